"""What happens during one run, as the host sees it, and who is told."""

from __future__ import annotations

import threading
import time

from visruntime._runtime.traceback import printable
from visruntime._worker.claims import read_dict
from visruntime.denials import Denials
from visruntime.displays import Displays
from visruntime.errors import ProtocolViolation
from visruntime.guest.limits import MAX_PROMPT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from visruntime._worker.ladder import Ladder
    from visruntime._worker.starting import Starting
    from visruntime.callbacks import Callbacks
    from visruntime.results import RunResult

    Ask = Callable[[str, bool], str | None]

__all__ = ["Feed", "RunEvent"]


class RunEvent:
    """Something that happened during a run.

    ``ordinal`` counts the events of the run from 1, ``time`` is the host's ``time.monotonic()`` when
    it saw the event, and ``data`` depends on ``kind``:

    * ``"stdout"``, ``"stderr"``: bytes as the host read them, cut anywhere (``text`` decodes them).
      Each stream is in order. Between the two, and between them and what else happens, the order is
      the one in which the host read: the kernel keeps no other. What was printed before a display or
      a call comes before it; what was printed right after it may, too.
    * ``"late_stdout"``, ``"late_stderr"``: bytes that were written after the run before this one, or
      while the worker started.
    * ``"display"`` and ``"update"``: a `Display`; the second replaces an earlier one of its name.
    * ``"call"`` and ``"return"``: the name of the host function, cleaned of control characters.
    * ``"input"``: the prompt of a question to the host, cleaned too.
    * ``"denial"``: a `Denial`, when the audit hook has refused something. At most 100 come while a run
      goes on, and what the worker could not tell at once comes at the end.
    * ``"dropped"``: how many events a reader was too slow for.
    * ``"result"``: the `RunResult`; the last event.
    """

    __slots__ = ("data", "kind", "ordinal", "time")

    def __init__(self, kind: str, ordinal: int, data: Any) -> None:
        self.kind: str = kind
        self.ordinal: int = ordinal
        self.time: float = time.monotonic()
        self.data: Any = data

    @property
    def text(self) -> str:
        """``data`` of an output event as text; bytes that are not UTF-8 become U+FFFD."""
        return self.data.decode("utf-8", "replace") if isinstance(self.data, bytes) else ""

    def __repr__(self) -> str:
        data = self.data
        shown = f"{len(data)} bytes" if isinstance(data, bytes) else repr(data)
        return f"RunEvent({self.kind!r}, {self.ordinal}, {shown})"


class Feed:
    """Takes in what happens during one run, keeps the displays, and tells who wants to know.

    ``on_output`` gets a stream's name and each chunk, ``on_event`` each `RunEvent`, and ``ask``
    answers the guest's questions for input; all are called in the thread that drives the run, but
    for ``ask`` with ``threads``: then functions of the host have threads of their own, so that one
    that hangs holds up nobody who ends the run.
    """

    __slots__ = (
        "_lock",
        "_on_event",
        "_on_output",
        "_ordinal",
        "ask",
        "cancelled",
        "denials",
        "displays",
        "limit",
        "threads",
    )

    def __init__(
        self,
        *,
        on_output: Callable[[str, bytes], None] | None = None,
        on_event: Callable[[RunEvent], object] | None = None,
        ask: Ask | None = None,
        threads: bool = False,
    ) -> None:
        self._on_output = on_output
        self._on_event = on_event
        self._ordinal = 0
        self._lock = threading.Lock()
        self.ask: Ask | None = ask
        self.threads: bool = threads
        self.displays: Displays = Displays()
        self.denials: Denials = Denials()
        self.cancelled: bool = False
        self.limit: Ladder | Starting | None = None

    @property
    def sink(self) -> Callable[[str, bytes], None] | None:
        """What is to get each chunk of output, if anybody wants it."""
        if self._on_event is None:
            return self._on_output
        return self._output

    def emit(self, kind: str, data: Any) -> None:
        """Tell of one event."""
        if self._on_event is not None:
            self._ordinal += 1
            self._on_event(RunEvent(kind, self._ordinal, data))

    def end(self, result: RunResult) -> None:
        """Tell of what the last reply brought, and of the end."""
        for denial in result.denials[self.denials.told :]:
            self.emit("denial", denial)
        self.emit("result", result)

    def _output(self, name: str, data: bytes) -> None:
        if self._on_output is not None:
            self._on_output(name, data)
        self.emit(name, data)

    def display(self, payload: bytes) -> None:
        """Take a DISPLAY frame.

        Raises:
            ProtocolViolation: it has not the agreed shape.
        """
        added = self.displays.add(payload)
        if added is not None:
            display, update = added
            self.emit("update" if update else "display", display)

    def denial(self, payload: bytes) -> None:
        """Take a DENIED frame.

        Raises:
            ProtocolViolation: it has not the agreed shape.
        """
        denial = self.denials.add(payload)
        if denial is not None:
            self.emit("denial", denial)

    def answer(self, payload: bytes, callbacks: Callbacks, limit: Ladder) -> bytes:
        """Answer an INPUT frame with what ``ask`` says.

        Raises:
            ProtocolViolation: it has not the agreed shape, or nobody offered to answer.
        """
        number, prompt, password = _read_question(payload)
        if self.ask is None:
            raise ProtocolViolation("the worker asked for input, which it was not offered")
        self.emit("input", prompt)
        return callbacks.answer_question(number, self.ask, prompt, password, limit, len(payload))

    # How another thread ends the run.

    def begin(self, limit: Ladder | Starting) -> None:
        """Let *limit* be what `cancel` ends, at once if that was asked for already."""
        with self._lock:
            self.limit = limit
        if self.cancelled:
            limit.cancel()

    def let_go(self) -> None:
        """Forget the limit of a run that is over, or the start of its worker."""
        with self._lock:
            self.limit = None

    def cancel(self) -> None:
        """End the run now: interrupted first, and killed when that does not help."""
        with self._lock:
            self.cancelled = True
            limit = self.limit
        if limit is not None:
            limit.cancel()


def _read_question(payload: bytes) -> tuple[int, str, bool]:
    try:
        question = read_dict(payload, max_nodes=20)
        number, prompt, password = question["id"], question["prompt"], question["password"]
        if (type(number), type(prompt), type(password)) != (int, str, bool):
            raise TypeError("a part has the wrong type")
        if len(prompt) > MAX_PROMPT or not 0 <= number < 1 << 63:
            raise ValueError("a part is too large")
    except (ValueError, TypeError, KeyError) as problem:
        raise ProtocolViolation(f"the worker asked for input wrongly: {problem}") from None
    return number, printable(prompt), password
