"""What any thread may do with the worker of a runtime while another is in a call."""

from __future__ import annotations

import time

from visruntime._arguments import check_seconds, check_text
from visruntime._runtime.timeouts import GRACE_SECONDS
from visruntime._worker.limit import LOOK_MILLISECONDS
from visruntime.errors import JailClosed, WorkerDied

TYPE_CHECKING = False
if TYPE_CHECKING:
    from threading import Lock

    from visruntime._worker.conversation import Conversation
    from visruntime._worker.standard_input import WorkerInput
    from visruntime._worker.starting import Starting
    from visruntime._worker.terminal import WorkerTerminal

__all__ = ["CALL_SECONDS", "WorkerControl"]

CALL_SECONDS = 5.0
"""How long one function of the host may hold up the end of the runtime whose guest called it."""
_ENDED_SECONDS = 1.0
"""How long a worker that was told to end is waited for."""


class WorkerControl:
    """Interrupt, end, pause, ask and type; the part of a runtime that needs no turn."""

    _worker: Conversation | None
    _starting: Starting | None
    _stdin: WorkerInput | WorkerTerminal | None
    _closed: bool
    _lock: Lock

    def type_text(self, text: str, *, timeout: float = 5.0) -> None:
        r"""Type *text* on the terminal of a runtime with ``stdin="pty"``, from any thread.

        A line ends with ``"\n"``; ``"\x04"`` at the start of one is the end of the input. The guest
        decides what becomes of it; as long as it reads nothing, some lines wait in the kernel.

        Args:
            text: what is typed; lines of at most 4,000 bytes.
            timeout: seconds to wait for a worker, and for a guest that does not read.

        Raises:
            ValueError: the runtime has no terminal, or a line is too long.
            TimeoutError: nobody read it in time; a part may have got in.
        """
        check_text(text, "text")
        check_seconds(timeout, "timeout")
        terminal = self._terminal()
        if terminal is None:
            raise ValueError('the worker has no terminal; give the runtime stdin="pty"')
        terminal.write(text.encode("utf-8", "surrogateescape"), timeout)

    def _terminal(self) -> WorkerTerminal | None:
        """The terminal of the workers, if they have one."""
        if self._stdin is None:  # nor need there be any on this system
            return None
        from visruntime._worker.terminal import WorkerTerminal

        return self._stdin if isinstance(self._stdin, WorkerTerminal) else None

    def interrupt(self) -> None:
        """Break the run under way, from another thread; the session lives on.

        The guest sees ``VisInterrupt``; a task that waits is cancelled first. An async function of
        the host that the guest waits for is cancelled, and one that ``Timeouts(callback=)`` limits
        is no longer waited for. ``run`` returns with ``error.interrupted`` and with ``stop``.
        """
        worker = self._worker
        if worker is not None:
            worker.ask_to_stop()

    def kill(self) -> None:
        """End the worker at once, from any thread; the next call starts a fresh one.

        A call under way raises `WorkerDied` with ``stopped_by`` "killed", also while its worker
        starts. The session is lost.
        """
        self._end_start()
        worker = self._worker
        if worker is not None:
            worker.end()

    def _is_ending(self) -> bool:
        """Whether the call under way was told to end, by all that it takes."""
        worker = self._worker
        return worker is not None and worker.is_ending()

    def _take_last_turn(self) -> bool:
        """Wait for the call under way and hold the lock; False where a host function hangs.

        The worker has ended then. The thread that is in the function cannot be ended: when the
        function returns it gives back what it holds of the worker, and can do nothing else.
        """
        seen, since = None, 0.0
        while not self._lock.acquire(timeout=LOOK_MILLISECONDS / 1000):
            worker, now = self._worker, time.monotonic()
            call = None if worker is None else worker.host_call()
            if call is not seen:
                seen, since = call, now
            elif worker is not None and call is not None:
                hurried = worker.ended_by_host or worker.is_ending()
                if hurried or now - since >= CALL_SECONDS:
                    worker.cancel()
                    if self._lock.acquire(timeout=GRACE_SECONDS):  # an async function obeys
                        return True
                    worker.end()
                    worker.process.wait(_ENDED_SECONDS)
                    return False
        return True

    def _end_start(self) -> None:
        """End the worker that starts for a call under way, if one does."""
        starting = self._starting
        if starting is not None:
            starting.cancel()

    def pause(self) -> None:
        """Stop the worker and all that it started (SIGSTOP), from any thread, until :meth:`resume`.

        A call under way goes on waiting, and no limit of `Timeouts` counts that time. Those of the
        policy do: ``wall_seconds`` ends a paused worker, too. A call that begins meanwhile raises
        `WorkerPaused`.

        Raises:
            WorkerDied: there is no worker.
            CommandError: the supervisor of its jail did not answer; it is not paused.
        """
        self._running_worker().suspend(suspended=True)

    def resume(self) -> None:
        """Let a paused worker go on.

        Raises:
            WorkerDied: there is no worker.
        """
        self._running_worker().suspend(suspended=False)

    def ping(self, timeout: float = 2.0) -> float:
        """Return in how many seconds the worker answered, whatever its Python code is doing.

        Raises:
            TimeoutError: it did not within *timeout* seconds: it is paused, or gone.
            WorkerDied: there is no worker.
            JailClosed: the runtime is closed.
        """
        seconds = check_seconds(timeout, "timeout")
        if seconds is None:
            raise TypeError("timeout: expected a number of seconds, not None")
        return self._running_worker().ping(seconds)

    def stacks(self) -> str:
        """Every Python thread of the worker as text; works while C code runs.

        Raises:
            TimeoutError: the worker did not answer.
            WorkerDied: there is no worker.
        """
        return self._running_worker().stacks()

    def _running_worker(self) -> Conversation:
        worker = self._worker
        if worker is None:
            self._refuse_closed()
            raise WorkerDied("there is no worker now; the next call starts one")
        return worker

    def _refuse_closed(self) -> None:
        if self._closed:
            raise JailClosed("this runtime is closed")
