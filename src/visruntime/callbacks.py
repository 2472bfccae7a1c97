"""Functions of the host that a guest may call by name."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from visruntime import _native
from visruntime.errors import ProtocolViolation

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Callbacks"]

MAX_MESSAGE = 16_384
"""Longest message of an exception that the guest gets, in characters."""
MAX_NAME = 500
"""Longest name of its type, in characters."""


class Callbacks:
    """The functions that one runtime exposes, and the answers to the guest's calls.

    Arguments and results cross as data. An exception of the function crosses as the name of
    its type and its message; the guest sees no traceback of the host.
    """

    __slots__ = ("_functions", "_threads")

    def __init__(self) -> None:
        self._functions: dict[str, Callable[..., Any]] = {}
        self._threads: set[int] = set()

    @property
    def names(self) -> list[str]:
        """The exposed names."""
        return list(self._functions)

    def add(self, name: str, function: Callable[..., Any]) -> None:
        """Expose *function* as *name*, replacing an earlier one of that name.

        Raises:
            ValueError: *name* is no Python identifier.
            TypeError: *function* cannot be called.
        """
        if not name.isidentifier():
            raise ValueError(f"{name!r} is not a Python name, so the guest could not call it")
        if not callable(function):
            raise TypeError(f"{name}: not callable: {function!r}")
        self._functions[name] = function

    def in_callback(self) -> bool:
        """Whether the calling thread is inside a function that a guest called."""
        return threading.get_ident() in self._threads

    def answer(self, payload: bytes) -> bytes:
        """Answer one CALLBACK frame: run the function, encode its reply.

        Raises:
            ProtocolViolation: the frame has not the agreed shape.
        """
        number, name, arguments, keywords = _read_call(payload)
        try:
            value = self._call(name, arguments, keywords)
            return _native.encode({"id": number, "value": value, "error": None})
        except Exception as problem:  # noqa: BLE001 (whatever it is, it is the guest's answer)
            error = _describe(problem)
        return _native.encode({"id": number, "value": None, "error": error})

    def _call(self, name: str, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        function = self._functions.get(name)
        if function is None:
            raise NameError(f"the host exposes no function {name[:100]!r}")
        thread = threading.get_ident()
        self._threads.add(thread)
        try:
            result = function(*arguments, **keywords)
            if hasattr(type(result), "__await__"):
                return self._finish(result)
            return result
        finally:
            self._threads.discard(thread)

    def _finish(self, awaitable: Any) -> Any:
        """Run an async function's awaitable to its end.

        It gets a thread and an event loop of its own: the calling thread may be running a
        loop already, and that one must not be blocked by nesting.
        """
        import asyncio

        outcome: list[Any] = []

        async def finish() -> Any:
            return await awaitable

        def run() -> None:
            thread = threading.get_ident()
            self._threads.add(thread)
            try:
                outcome.append((asyncio.run(finish()), None))
            except BaseException as problem:  # noqa: BLE001 (raised again in the calling thread)
                outcome.append((None, problem))
            finally:
                self._threads.discard(thread)

        thread = threading.Thread(target=run, name="visruntime-callback")
        thread.start()
        thread.join()
        value, problem = outcome[0]
        if problem is not None:
            raise problem
        return value


def _describe(problem: Exception) -> tuple[str, str]:
    """Name the type and the message, which may repeat whatever the guest had sent."""
    try:
        message = _message(problem)
    except Exception as failure:  # noqa: BLE001 (a __str__ that fails is no reason to fail a run)
        message = f"<str() raised {type(failure).__name__}>"
    more = len(message) - MAX_MESSAGE
    message = message[:MAX_MESSAGE]
    if more > 0:
        message += f"... ({more} more characters)"
    return type(problem).__name__[:MAX_NAME], message


def _message(problem: Exception) -> str:
    """Return the text of an exception; that of a KeyError is the key, which str() would quote."""
    if type(problem).__str__ is KeyError.__str__ and len(problem.args) == 1:
        (key,) = problem.args
        if isinstance(key, str):
            return key
    return str(problem)


def _read_call(payload: bytes) -> tuple[int, str, list[Any], dict[str, Any]]:
    try:
        return _check_call(_native.decode(payload))
    except (ValueError, TypeError, KeyError) as problem:
        raise ProtocolViolation(f"the worker called a host function wrongly: {problem}") from None


def _check_call(call: Any) -> tuple[int, str, list[Any], dict[str, Any]]:
    number, name = call["id"], call["name"]
    arguments, keywords = call["args"], call["kwargs"]
    if (type(number), type(name), type(arguments), type(keywords)) != (int, str, list, dict):
        raise TypeError("a part has the wrong type")
    if any(type(key) is not str for key in keywords):
        raise TypeError("a keyword is not text")
    return number, name, arguments, keywords
