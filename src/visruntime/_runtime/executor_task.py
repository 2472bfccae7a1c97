"""One task of an executor: how its function gets to the worker, and what comes back as an error."""

from __future__ import annotations

import builtins
import marshal
import os
import sys
from functools import cache
from importlib.machinery import SourceFileLoader
from typing import TYPE_CHECKING, Any, NamedTuple

from visruntime._arguments import check_list, check_mapping, check_text
from visruntime._host.imports import import_trusted
from visruntime.errors import ProtocolViolation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from visruntime._runtime.session import OutputSink, RuntimeSession
    from visruntime._runtime.timeouts import Timeouts
    from visruntime.errors import GuestError
    from visruntime.results import RunResult

    Arguments = tuple[tuple[Any, ...], Mapping[str, Any]]

__all__ = ["Task", "as_exception", "make_task", "one_call", "perform", "send_library"]

_MARK = b"cloudpickle.cloudpickle"
"""Is in each pickle that holds code, and not only names."""
_NOT_RAISED = (StopIteration, StopAsyncIteration)
"""Builtin exceptions that would steer the host's own loops."""


class Task(NamedTuple):
    """A function and its arguments, encoded: the request, and how many results it has."""

    request: dict[str, Any]
    results: int


def one_call(args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> list[Arguments]:
    """Return the one set of arguments that ``schedule`` was given.

    Raises:
        TypeError, ValueError: *args* is no sequence of values, or *kwargs* no mapping of names.
    """
    named = {} if kwargs is None else dict(check_mapping(kwargs, "kwargs"))
    for name in named:
        check_text(name, "kwargs")
    return [(tuple(check_list(args, "args", "(1, 2)")), named)]


def make_task(function: Callable[..., Any] | str, calls: Sequence[Arguments]) -> Task:
    """Encode a call of *function* for each set of arguments.

    Raises:
        ModuleNotFoundError: it is no name, and the extra ``executor`` is not installed.
        TypeError: it is neither a function nor a name.
        Exception: whatever cloudpickle raises for what cannot be pickled.
    """
    request: dict[str, Any] = {"op": "apply", "data_only": True}
    if isinstance(function, str):
        plain = [(list(arguments), dict(keywords)) for arguments, keywords in calls]
        return Task({**request, "pickled": None, "name": function, "calls": plain}, len(plain))
    if not callable(function):
        raise TypeError(f"fn: expected a function or a name, not {type(function).__name__}")
    try:
        cloudpickle = import_trusted("cloudpickle")
    except ModuleNotFoundError as problem:
        raise ModuleNotFoundError(
            "functions cross by cloudpickle: install visruntime[executor], or name a function of "
            "the worker by text",
            name=problem.name,
        ) from None
    pickled = cloudpickle.dumps((function, list(calls)))
    built_for = list(sys.version_info[:2]) if _MARK in pickled else None
    return Task({**request, "pickled": pickled, "python": built_for}, len(calls))


def send_library(runtime: RuntimeSession) -> None:
    """Give the worker of *runtime* what it needs to load functions that cross as code."""
    codes = _library()
    if codes:
        runtime._equip({"op": "apply", "library": codes})


@cache
def _library() -> dict[str, bytes]:
    """The code of cloudpickle's modules by name; empty where it is not installed."""
    try:
        cloudpickle = import_trusted("cloudpickle")
    except ModuleNotFoundError:
        return {}
    folder = os.path.dirname(str(cloudpickle.__file__))
    codes = {}
    for entry in sorted(os.listdir(folder)):
        stem, dot = os.path.splitext(entry)
        if dot == ".py":
            name = "cloudpickle" if stem == "__init__" else f"cloudpickle.{stem}"
            loader = SourceFileLoader(name, os.path.join(folder, entry))
            codes[name] = marshal.dumps(loader.get_code(name))
    return codes


def perform(
    runtime: RuntimeSession,
    task: Task,
    timeout: float | Timeouts | None,
    on_output: OutputSink | None,
) -> list[Any]:
    """Run the task and return one result for each call.

    Raises:
        Exception: what the function raised, see `as_exception`; otherwise as ``Runtime.run``.
    """
    result = runtime._request(dict(task.request), timeout, runtime._new_feed(on_output=on_output))
    if result.error is not None:
        raise as_exception(result)
    values = result.value
    if type(values) is not list or len(values) != task.results:
        runtime.kill()
        raise ProtocolViolation("the worker replied to a task with something else than its results")
    return values


def as_exception(result: RunResult) -> Exception:
    """Return what stands on the host for the guest's exception.

    An instance of the same builtin exception, with the guest's text and notes; it has the
    `GuestError` with the traceback as its cause. An `OSError` has the guest's errno, and the class
    that Python makes of it. For any other type, and for those that mean something to the
    interpreter itself, it is the `GuestError`.
    """
    failure = result.error
    assert failure is not None
    error: GuestError = failure.to_exception(result)
    kind = getattr(builtins, failure.type_name, None) if failure.type_name.isidentifier() else None
    if not isinstance(kind, type) or not issubclass(kind, Exception):
        return error
    if issubclass(kind, (*_NOT_RAISED, ExceptionGroup)):
        return error
    if issubclass(kind, OSError) and failure.errno is not None:
        # The class is what Python makes of the number, whatever name the guest gave it.
        kind = type(OSError(failure.errno, ""))
    try:
        same: Exception = kind(error.message) if error.message else kind()
    except TypeError:  # it wants more than a text, as UnicodeDecodeError does
        return error
    if isinstance(same, OSError):
        same.errno = failure.errno
    same.__cause__ = error
    return same
