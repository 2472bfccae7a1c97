"""Functions of the host that a guest may call by name."""

from __future__ import annotations

import sys
import time
from keyword import iskeyword

from visruntime import _native
from visruntime._arguments import check_switch, check_text, check_texts
from visruntime._callbacks.budget import Spending
from visruntime._callbacks.run import Call, calls_around
from visruntime._runtime.traceback import printable
from visruntime._worker.claims import as_dict
from visruntime.errors import ProtocolViolation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, Protocol

    from visruntime._callbacks.budget import Budget
    from visruntime._callbacks.schema import Schema
    from visruntime._worker.framed_values import FramedValues
else:
    Protocol = object  # typing costs more than all that a run needs of this package's protocols

__all__ = ["Callbacks", "Waiter"]

MAX_MESSAGE = 16_384
"""Longest message of an exception that the guest gets, in characters."""
MAX_NAME = 500
"""Longest name of its type, in characters."""
MAX_ABANDONED = 16
"""Functions that nobody waits for any longer and that still run; a call beyond is refused."""


class Waiter(Protocol):
    """Who waits for the functions of the host."""

    @property
    def threads(self) -> bool:
        """Whether each function is to have a thread, so that waiting for it can end before it."""

    def call_begins(self, call: Call) -> None:
        """A function is going to run."""

    def wait(self, call: Call) -> None:
        """Return once *call* is done, or is not worth waiting for any longer."""

    def call_ends(self) -> None:
        """It has run, or nobody waits for it any longer."""


class _Exposed:
    """One function, and how it may be called."""

    __slots__ = ("bound", "error_data", "function", "schema")

    def __init__(
        self, function: Callable[..., Any], schema: Schema | None, error_data: tuple[str, ...]
    ) -> None:
        from visruntime._callbacks.schema import bound_keywords

        self.function = function
        self.bound = bound_keywords(function)
        self.schema = schema
        self.error_data = error_data

    def check(self, name: str, arguments: list[Any], keywords: dict[str, Any]) -> None:
        """Make sure that the guest may call it with these.

        Raises:
            TypeError: an argument is of the wrong type, or one that the host has bound itself.
        """
        for keyword in keywords if self.bound else ():
            if keyword in self.bound:
                raise TypeError(f"{name}() argument {keyword!r} is bound by the host")
        if self.schema is not None:
            self.schema.check(arguments, keywords)


class Callbacks:
    """The functions that one runtime exposes, and the answers to the guest's calls.

    Arguments and results cross as data. An exception of the function crosses as the name of
    its type and its message, and the attributes that ``error_data`` names; the guest sees no
    traceback of the host.

    ``budget`` holds for each run. ``submit``, where it is set, runs an awaitable in a loop of its
    owner and returns a `concurrent.futures.Future`; else each gets a thread and a loop.
    """

    __slots__ = ("_abandoned", "_functions", "budget", "spending", "submit")

    def __init__(self) -> None:
        self._functions: dict[str, _Exposed] = {}
        self._abandoned: list[Call] = []
        self.budget: Budget | None = None
        self.spending: Spending = Spending(None)
        self.submit: Callable[[Any], Any] | None = None

    def copy(self) -> Callbacks:
        """Return the same functions under the same budget, for another runtime."""
        other = Callbacks()
        other.budget = self.budget
        other.submit = self.submit
        other._functions.update(self._functions)
        return other

    @property
    def names(self) -> list[str]:
        """The exposed names."""
        return list(self._functions)

    def functions(self, module: str | None) -> dict[str, Callable[..., Any]]:
        """The functions of one module, by their names in it; of none for ``None``."""
        found = {}
        for name, exposed in self._functions.items():
            home, _, last = name.rpartition(".")
            if home == (module or ""):
                found[last] = exposed.function
        return found

    def prepare(
        self,
        functions: Mapping[str, Callable[..., Any]],
        *,
        check: bool = True,
        error_data: Iterable[str] = (),
    ) -> Callable[[], None]:
        """Return what exposes *functions* by their names, all or none, instead of earlier ones.

        A dotted name is that of a function in a module, which the guest imports.

        Args:
            functions: what is called, which may be async, by what the guest calls it.
            check: check arguments against its type hints before it is called.
            error_data: attributes of its exceptions that the guest may have.

        Raises:
            ValueError: one is no Python name, its module is one of the standard library, or it is
                in the way of another one; the latter also when it is exposed.
            TypeError: a function cannot be called, or a type hint cannot be checked.
        """
        check_switch(check, "check")
        wanted = tuple(check_texts(error_data, "error_data", '["code"]'))
        from visruntime._callbacks.schema import schema_of

        exposed = {}
        for name, function in functions.items():
            _check_name(name)
            if not callable(function):
                raise TypeError(f"function: {name} is not callable, but {type(function).__name__}")
            schema = schema_of(name, function) if check else None
            exposed[name] = _Exposed(function, schema, wanted)
        self._check_homes(exposed)

        def expose() -> None:
            self._check_homes(exposed)  # others may have come meanwhile
            self._functions.update(exposed)

        return expose

    def _check_homes(self, exposed: Mapping[str, _Exposed]) -> None:
        """Refuse a module and a function of one name, since they would hide each other."""
        names = {**self._functions, **exposed}
        for name in names:
            home = name
            while "." in home:
                home = home.rpartition(".")[0]
                if home in names:
                    new, known = (name, home) if name in exposed else (home, name)
                    raise ValueError(
                        f"name: {new!r}: {known} is exposed already, and would be in its way"
                    )

    def in_callback(self) -> bool:
        """Whether the calling code runs inside a function that a guest of ours called."""
        return any(call.owner is self for call in calls_around())

    def begin_run(self) -> None:
        """Count anew."""
        self.spending = Spending(self.budget)

    def answer(
        self,
        payload: bytes,
        waiter: Waiter,
        tell: Callable[[str, Any], object],
        values: FramedValues,
    ) -> bytes:
        """Answer one CALLBACK frame: run the function, encode its reply.

        *tell* gets "call" and "return" with the name that the guest used, cleaned and cut. *values*
        decodes and encodes, and keeps the descriptors that go along.

        Raises:
            ProtocolViolation: the frame has not the agreed shape, or comes too late too often.
        """
        number, name, arguments, keywords = _read_call(payload, values)
        shown = printable(name[:MAX_NAME])
        tell("call", shown)
        spending = self.spending
        exposed = self._functions.get(name)

        def make() -> bytes:
            spending.begin(len(payload) + values.take_moved())
            if values.mismatch is not None:
                raise TypeError(values.mismatch)
            if exposed is None:
                raise NameError(f"the host exposes no function {name[:100]!r}")
            exposed.check(name, arguments, keywords)
            value = self._call(name, exposed.function, arguments, keywords, waiter)
            return values.encode({"id": number, "value": value, "error": None})

        answer = _reply(number, make, () if exposed is None else exposed.error_data)
        spending.bytes += len(answer) + values.take_moved()
        tell("return", shown)
        return answer

    def answer_question(
        self,
        number: int,
        ask: Callable[..., Any],
        prompt: str,
        password: bool,  # noqa: FBT001 (as *ask* is called)
        waiter: Waiter,
        size: int,
    ) -> bytes:
        """Answer an INPUT frame of *size* bytes by what *ask* says.

        It runs as the exposed functions do, on their budget, and is counted as one of their calls.

        Raises:
            ProtocolViolation: it comes too late too often.
        """

        def make() -> bytes:
            self.spending.begin(size)
            line = self._call("stdin", ask, [prompt, password], {}, waiter)
            if line is not None and not isinstance(line, str):
                raise TypeError(
                    f"the answer to a prompt is text or None, not {type(line).__name__}"
                )
            return _native.encode({"id": number, "value": line, "error": None})

        answer = _reply(number, make, ())
        self.spending.bytes += len(answer)
        return answer

    def _call(
        self,
        name: str,
        function: Callable[..., Any],
        arguments: list[Any],
        keywords: dict[str, Any],
        waiter: Waiter,
    ) -> Any:
        if self._abandoned:
            self._abandoned = [call for call in self._abandoned if not call.done]
            if len(self._abandoned) >= MAX_ABANDONED:
                raise RuntimeError(
                    f"{MAX_ABANDONED} functions of the host that were given up still run"
                )
        call = Call(name, lambda: function(*arguments, **keywords), owner=self, submit=self.submit)
        waiter.call_begins(call)
        started = time.monotonic()
        try:
            if not call.start(in_thread=waiter.threads):
                waiter.wait(call)
            if call.given_up:
                raise _GivenUp(f"the host's function {name} was given up, as its run is")
            return call.value()
        finally:
            if not call.done:
                call.cancel()
                self._abandoned.append(call)
            call.let_go()
            self.spending.seconds += time.monotonic() - started
            waiter.call_ends()


def _check_name(name: str) -> None:
    parts = check_text(name, "name").split(".")
    if not all(part.isidentifier() and not iskeyword(part) for part in parts):
        raise ValueError(f"name: {name!r} is not a Python name, so the guest could not call it")
    if len(parts) > 1 and parts[0] in sys.stdlib_module_names:
        raise ValueError(f"name: {name!r}: {parts[0]} is a module of the standard library")


class _GivenUp(Exception):
    """The run is being stopped, and the call with it."""


def _reply(number: int, make: Callable[[], bytes], wanted: tuple[str, ...]) -> bytes:
    """Return the answer that *make* makes, or the exception that the guest gets instead.

    Args:
        number: the number of the call.
        make: does what was asked.
        wanted: attributes of its exceptions that the guest may have.
    """
    try:
        return make()
    except ProtocolViolation:
        raise
    except _GivenUp as problem:
        return _refusal(number, TimeoutError(str(problem)), (), interrupted=True)
    except Exception as problem:  # noqa: BLE001 (whatever it is, it is the guest's answer)
        return _refusal(number, problem, wanted)


def _refusal(
    number: int, problem: Exception, wanted: tuple[str, ...], *, interrupted: bool = False
) -> bytes:
    """Encode the exception that the guest gets."""
    data: dict[str, Any] = {}
    for name in wanted:
        try:
            value = getattr(problem, name)
            _native.encode(value)
        except Exception:  # noqa: BLE001, S112 (it has none, or one that is no data)
            continue
        data[name] = value
    reply: dict[str, Any] = {"id": number, "value": None, "interrupted": interrupted}
    name, message = _describe(problem)
    try:
        return _native.encode(reply | {"error": (name, message, data)})
    except (TypeError, ValueError):  # each is small enough, and all together are not
        return _native.encode(reply | {"error": (name, message, {})})


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


def _read_call(payload: bytes, values: FramedValues) -> tuple[int, str, list[Any], dict[str, Any]]:
    try:
        return _check_call(as_dict(values.decode(payload)))
    except (ValueError, TypeError, KeyError) as problem:
        raise ProtocolViolation(f"the worker called a host function wrongly: {problem}") from None


def _check_call(call: dict[str, Any]) -> tuple[int, str, list[Any], dict[str, Any]]:
    number, name = call["id"], call["name"]
    arguments, keywords = call["args"], call["kwargs"]
    if (type(number), type(name), type(arguments), type(keywords)) != (int, str, list, dict):
        raise TypeError("a part has the wrong type")
    if not 0 <= number < 1 << 63:
        raise ValueError("the number of the call is out of range")
    if any(type(key) is not str for key in keywords):
        raise TypeError("a keyword is not text")
    return number, name, arguments, keywords
