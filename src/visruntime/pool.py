"""A stock of runtimes whose workers have started, for programs that often need one at once."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Literal, Self

import visruntime
from visruntime._arguments import check_function, check_seconds, check_whole, check_word
from visruntime._runtime.session import RuntimeSession
from visruntime._worker.limit import Timeout
from visruntime.errors import JailClosed, PolicyUnsupported, PoolExhausted, VisRuntimeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeAlias

    from visruntime._worker.standard_input import WorkerInput
    from visruntime.policy import JailPolicy
    from visruntime.results import RunResult
    from visruntime.runtime import Runtime, TrustedRuntime
    from visruntime.windows import WindowsJail

    AnyRuntime: TypeAlias = Runtime | TrustedRuntime

__all__ = ["RuntimePool"]

RESET_SECONDS = 5.0
"""How long a worker may take to forget its names between two borrowers."""
INTERRUPT_SECONDS = 0.5
"""How long runs may take to end when they are interrupted, before their workers are killed."""
_IDLE = 2
"""How many are kept ready where nobody says."""
_LULL_SECONDS = 0.02
"""How long the stock is left as it is after a runtime was taken: its first task goes first."""
_LINGER_SECONDS = 1.0
"""How long the thread that tends the stock waits for more to do before it ends."""
_KILL_TURNS = 20
_KILL_SECONDS = 0.05


class _Member:
    """One runtime of a pool, and what decides how long it stays."""

    __slots__ = ("born", "runtime", "uses")

    def __init__(self, runtime: AnyRuntime) -> None:
        self.runtime = runtime
        self.born = time.monotonic()
        self.uses = 0

    def lives(self) -> bool:
        """Whether its worker is there and its jail, if any, too."""
        runtime = self.runtime
        worker = runtime._worker
        return (
            not runtime._closed
            and worker is not None
            and not worker.ended_by_host
            and not worker.process.has_ended()
        )

    def under_way(self) -> bool:
        """Whether a call goes on in it, begun by `start` or in a thread that nobody waited for."""
        return self.runtime._lock.locked()

    def memory(self) -> int:
        """The largest resident size of its worker that was seen, in bytes."""
        worker = self.runtime._worker
        return (worker and worker.process.peak_memory()) or 0


class RuntimePool:
    """Runtimes with a worker ready to run, each in a jail of its own.

    By default each borrower gets a worker that nobody has used before, so that borrowers who must
    not meet can share a pool. With ``reuse="reset"`` or ``"keep"`` they are one trust domain:
    files of the jail, modules and whatever the last one left behind meet the next.

    Any thread may use it. A child made by ``os.fork`` may not. A thread fills it up while there is
    something to do, and ends when there is not.
    """

    _runtime_class: type[Runtime] = visruntime.Runtime  # that of this system

    def __init__(
        self,
        policy: JailPolicy | WindowsJail | Callable[[], AnyRuntime],
        *,
        min_idle: int | None = None,
        max_size: int = 8,
        reuse: Literal["never", "reset", "keep"] = "never",
        recycle_after: int | None = None,
        max_age: float | None = None,
        max_memory: int | None = None,
        when_exhausted: Literal["wait", "error"] = "wait",
        prepare: Callable[[AnyRuntime], object] | None = None,
        **options: Any,
    ) -> None:
        """Open the first jail and begin to fill the stock.

        Args:
            policy: the policy of each, or a function that makes a new `Runtime` or `TrustedRuntime`.
                On Windows an open `WindowsJail`, or such a function: in one jail all are of one
                trust domain, whatever *reuse* says.
            min_idle: how many are kept ready; 2 by default, or *max_size* if that is less.
            max_size: how many there may be, borrowed ones and those about to end included.
            reuse: what becomes of one that is given back: ``"never"`` ends it, ``"reset"`` forgets
                the names of its session (with ``preload=`` it gets a fresh worker in the same
                jail), ``"keep"`` changes nothing. In any case borrowers share what the policy
                shares: the folders of its write grants and its ``caches``.
            recycle_after: times that one is lent, at most.
            max_age: seconds since its start after which one is lent no more.
            max_memory: bytes of resident size of its worker after which one is lent no more; see
                ``RunUsage.peak_memory``.
            when_exhausted: what `acquire` does while all are borrowed.
            prepare: gets each new runtime before anybody else: to expose functions, or import modules.
            options: further arguments of `Runtime`.

        Raises:
            TypeError, ValueError: an argument is wrong; the message names it.
            PolicyError, JailUnavailable: as `Runtime`; nothing was started.
            PolicyUnsupported: *max_memory* where nothing tells what a worker uses.
        """
        _check_numbers(
            min_idle=(min_idle, 0),
            max_size=(max_size, 1),
            recycle_after=(recycle_after, 1),
            max_memory=(max_memory, 1),
        )
        check_seconds(max_age, "max_age", positive=True)
        check_word(reuse, "reuse", ("never", "reset", "keep"))
        check_word(when_exhausted, "when_exhausted", ("wait", "error"))
        if prepare is not None:
            check_function(prepare, "prepare")
        if min_idle is None:
            min_idle = min(_IDLE, max_size)
        if min_idle > max_size:
            raise ValueError("min_idle must not be greater than max_size")
        if callable(policy) and options:
            raise ValueError(f"{', '.join(options)}: give these to the runtime that you make")
        self._input: WorkerInput | None = None
        make: Callable[..., AnyRuntime] = self._runtime_class
        self._open = _maker(policy) if callable(policy) else lambda: make(policy, **options)
        self._min_idle = min_idle
        self._max_size = max_size
        self._reuse = reuse
        self._recycle_after = recycle_after
        self._max_age = max_age
        self._max_memory = max_memory
        self._waits = when_exhausted == "wait"
        self._prepare = prepare
        self._process_id = os.getpid()
        lock = threading.Lock()
        self._freed = threading.Condition(lock)  # for those who wait for a runtime
        self._work = threading.Condition(lock)  # for the thread that tends the stock
        self._idle: deque[_Member] = deque()
        self._busy: dict[int, _Member] = {}
        self._retired: deque[_Member] = deque()
        self._unready: list[AnyRuntime] = []  # of those that are made, or reset
        self._making = 0
        self._ending = 0
        self._tender: threading.Thread | None = None
        self._quiet_until = 0.0
        self._problem: BaseException | None = None
        self._closed = False
        self._first: AnyRuntime | None = None
        # Refused here, and not in some thread later.
        first = self._first = self._open()
        try:
            self._settle(first, options)
        except BaseException:
            first.close()
            raise
        with lock:
            self._tend()

    def _settle(self, first: AnyRuntime, options: dict[str, Any]) -> None:
        """Refuse what *first* shows to be impossible, and keep the input that all are to have."""
        if self._max_memory is not None and not first._measures_memory:
            raise PolicyUnsupported(
                "max_memory: nothing there tells what a worker uses; give recycle_after=",
                field="max_memory",
            )
        if options.get("stdin") is not None:
            from visruntime._worker.standard_input import WorkerInput, check_stdin

            own = check_stdin(options["stdin"])
            if isinstance(own, WorkerInput):
                # Runtimes are made as long as the pool lives, and the caller may close the descriptor.
                self._input = own
                options["stdin"] = own.fileno()

    def __repr__(self) -> str:
        return f"<RuntimePool, {len(self._idle)} ready, {len(self._busy)} borrowed>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def ready(self) -> int:
        """How many can be borrowed without waiting for a start."""
        return len(self._idle)

    @property
    def borrowed(self) -> int:
        """How many are borrowed now."""
        return len(self._busy)

    # For borrowers.

    @contextmanager
    def borrow(self, timeout: float | None = None) -> Iterator[AnyRuntime]:
        """Lend a runtime for a ``with`` block; the arguments and errors are those of `acquire`."""
        runtime = self.acquire(timeout)
        try:
            yield runtime
        finally:
            self.release(runtime)

    def run(self, code: str, **arguments: Any) -> RunResult:
        """Borrow a runtime for one ``Runtime.run``."""
        with self.borrow() as runtime:
            return runtime.run(code, **arguments)

    def acquire(self, timeout: float | None = None) -> AnyRuntime:
        """Lend a runtime until `release`; starts one if none is ready and there is room.

        Args:
            timeout: seconds to wait while all are borrowed.

        Raises:
            PoolExhausted: all were borrowed, for *timeout* seconds or at all.
            JailClosed: the pool is closed, or belongs to another process.
            WorkerDied, JailUnavailable: a new one was needed and could not be started.
        """
        self._check_process()
        check_seconds(timeout, "timeout")
        end = None if timeout is None else time.monotonic() + timeout
        with self._freed:
            while True:
                if self._closed:
                    raise JailClosed("this pool is closed")
                member = self._take_ready()
                if member is not None:
                    return self._lend(member)
                if self._size() < self._max_size:
                    self._making += 1
                    self._problem = None
                    break
                if len(self._busy) >= self._max_size and not self._waits:
                    raise PoolExhausted(f"all {self._max_size} runtimes of the pool are borrowed")
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    raise PoolExhausted(f"no runtime of the pool came back within {timeout} s")
                if self._retired and self._tender is None:
                    self._end_retired_here()
                else:
                    self._freed.wait(left)
        try:
            member = self._make()
        except Exception as problem:
            if self._closed:
                raise JailClosed("this pool was closed") from problem
            raise
        with self._freed:
            self._making -= 1
            if not self._closed:
                return self._lend(member)
        member.runtime.close()
        raise JailClosed("this pool was closed")

    def release(self, runtime: AnyRuntime) -> None:
        """Take a runtime back. The borrower must not use it any more.

        One in which a call still goes on is ended, and the call with it, whatever *reuse* says.

        Raises:
            ValueError: it is not one that is borrowed from this pool.
        """
        self._check_process()
        with self._freed:
            member = self._busy.get(id(runtime))
            if member is None or member.runtime is not runtime:
                raise ValueError("this runtime is not borrowed from this pool")
            del self._busy[id(runtime)]
            self._ending += 1
        stays = False
        try:
            stays = self._may_stay(member)
        finally:
            closed = self._take_back(member, stays=stays)
        if closed:
            self._end_retired()

    def _take_back(self, member: _Member, *, stays: bool) -> bool:
        """Keep a member that was released, or retire it; return whether the pool is closed."""
        with self._freed:
            self._ending -= 1
            if stays and not self._closed:
                self._idle.append(member)
            else:
                # From now on, although its end may take a moment.
                member.runtime._closed = True
                self._retired.append(member)
            self._tend()
            self._freed.notify_all()
            return self._closed

    def wait_ready(self, timeout: float | None = None) -> None:
        """Wait until as many are ready as are to be kept.

        Raises:
            TimeoutError: they were not in time.
            Exception: what went wrong with starting one, if something did.
        """

        def settled() -> bool:
            wanted = min(self._min_idle, self._max_size - len(self._busy))
            return self._closed or self._problem is not None or len(self._idle) >= wanted

        check_seconds(timeout, "timeout")
        with self._freed:
            self._quiet_until = 0.0
            self._tend()
            if not self._freed.wait_for(settled, timeout):
                raise TimeoutError(f"the pool was not filled within {timeout} s")
            if self._problem is not None:
                raise self._problem

    # The end.

    def close(self) -> None:
        """End those that are not borrowed, now, and each other one when it is given back.

        What *prepare* does in one of the former is ended with it, and an `acquire` that waits for
        it raises `JailClosed`.
        """
        if os.getpid() != self._process_id:
            return
        with self._freed:
            self._closed = True
            self._retired.extend(self._idle)
            self._idle.clear()
            unready = list(self._unready)
            tender = self._tender
            self._freed.notify_all()
            self._work.notify_all()
        for runtime in unready:  # whoever makes them ready closes them
            _end_call(runtime)
        self._end_retired()
        if tender is not None and tender is not threading.current_thread():
            tender.join()
        first, self._first = self._first, None
        if first is not None:
            first.close()
        if self._input is not None:
            self._input.close()

    def kill(self, *, interrupt: bool = False) -> None:
        """Close the pool and end the borrowed workers too, whatever they do.

        Args:
            interrupt: interrupt their runs first, and give them half a second to end.
        """
        self.close()
        if interrupt:
            self._end_borrowed(lambda runtime: runtime.interrupt(), INTERRUPT_SECONDS)
        # Again, since a run that was just about to begin starts a new worker.
        for _ in range(_KILL_TURNS):
            if self._end_borrowed(lambda runtime: runtime.kill(), _KILL_SECONDS):
                break

    def _end_borrowed(self, act: Callable[[AnyRuntime], None], seconds: float) -> bool:
        with self._freed:
            members = list(self._busy.values())
        for member in members:
            act(member.runtime)
        with self._freed:
            return self._freed.wait_for(lambda: not self._busy and not self._unready, seconds)

    # How it works. Where nothing else is said, the caller holds the lock.

    def _check_process(self) -> None:
        if os.getpid() != self._process_id:
            raise JailClosed("this pool belongs to the process that made it, not to its child")

    def _size(self) -> int:
        return len(self._idle) + len(self._busy) + len(self._retired) + self._making + self._ending

    def _take_ready(self) -> _Member | None:
        while self._idle:
            # The one that was used last is warm; the oldest of unused ones is.
            member = self._idle.popleft() if self._reuse == "never" else self._idle.pop()
            if member.lives() and not self._too_old(member):
                return member
            self._retire(member)
        return None

    def _retire(self, member: _Member) -> None:
        """Have one ended. Its place is free only then, and somebody may wait for that."""
        self._retired.append(member)
        self._tend()

    def _lend(self, member: _Member) -> AnyRuntime:
        member.uses += 1
        self._busy[id(member.runtime)] = member
        self._quiet_until = time.monotonic() + _LULL_SECONDS
        self._tend()
        return member.runtime

    def _too_old(self, member: _Member) -> bool:
        return self._max_age is not None and time.monotonic() - member.born > self._max_age

    def _may_stay(self, member: _Member) -> bool:
        """Whether one that is given back can be lent again; resets it. Without the lock."""
        worn = (
            self._reuse == "never"
            or (self._recycle_after is not None and member.uses >= self._recycle_after)
            or self._too_old(member)
            or (self._max_memory is not None and member.memory() > self._max_memory)
            or not member.lives()
            or member.under_way()
        )
        if worn or self._closed:
            return False
        if self._reuse == "reset":
            try:
                with self._unready_until_done(member.runtime):
                    _reset(member.runtime)
            except (VisRuntimeError, Timeout):
                return False
        return True

    def _make(self) -> _Member:
        """Start one that is counted as being made. Without the lock."""
        try:
            with self._freed:
                runtime, self._first = self._first, None
            runtime = runtime or self._open()
            try:
                with self._unready_until_done(runtime):
                    runtime.warm_up()
                    if self._prepare is not None:
                        self._prepare(runtime)
            except BaseException:
                runtime.close()
                raise
        except BaseException:
            with self._freed:
                self._making -= 1
                self._freed.notify_all()
            raise
        return _Member(runtime)

    @contextmanager
    def _unready_until_done(self, runtime: AnyRuntime) -> Iterator[None]:
        """Have `close` end the calls by which *runtime* is made ready. Without the lock."""
        with self._freed:
            if self._closed:
                raise JailClosed("this pool was closed")
            self._unready.append(runtime)
        try:
            yield
        finally:
            with self._freed:
                self._unready.remove(runtime)
                self._freed.notify_all()

    def _wanted(self) -> bool:
        """Whether one more is to be made ready."""
        return (
            not self._closed
            and self._problem is None
            and len(self._idle) + self._making < self._min_idle
            and self._size() < self._max_size
        )

    def _tend(self) -> None:
        """Have the thread look, and start it if there is none and something to do."""
        if self._tender is not None:
            self._work.notify_all()
        elif self._retired or self._wanted():
            self._tender = threading.Thread(
                target=self._keep_tending, name="visruntime-pool", daemon=True
            )
            try:
                self._tender.start()
            except RuntimeError as problem:  # the interpreter is about to end, or has no thread
                self._tender = None
                self._problem = problem  # of who waits for the stock; `acquire` needs no thread
                self._freed.notify_all()

    def _keep_tending(self) -> None:
        try:
            self._tend_until_quiet()
        except BaseException:
            with self._freed:
                self._tender = None
                self._freed.notify_all()  # who waits for a place ends what is retired
            raise

    def _tend_until_quiet(self) -> None:
        """End what is retired and make what is wanted, until nothing was to do for a while."""
        while True:
            with self._work:
                if not self._await_work():
                    self._tender = None
                    return
                retires = bool(self._retired)
                if not retires:
                    self._making += 1
            if retires:
                self._end_retired()
                continue
            try:
                member = self._make()
            except BaseException as problem:  # noqa: BLE001 (raised where one is needed)
                with self._freed:
                    self._problem = problem
                    self._freed.notify_all()
                continue
            with self._freed:
                self._making -= 1
                if self._closed:
                    self._retired.append(member)
                elif self._reuse == "never":
                    self._idle.append(member)
                else:  # lent only when none is free that was lent before
                    self._idle.appendleft(member)
                self._freed.notify_all()

    def _await_work(self) -> bool:
        """Wait until there is something to do; False when the thread is to end."""
        end = time.monotonic() + _LINGER_SECONDS
        while True:
            now = time.monotonic()
            until = end
            if self._retired or self._wanted():
                # Where none is ready somebody may wait already.
                if self._closed or not self._idle or now >= self._quiet_until:
                    return True
                until = self._quiet_until
            elif self._closed or now >= end:
                return False
            self._work.wait(until - now)

    def _end_retired_here(self) -> None:
        """End all that are retired in this thread, where there is none to tend the stock."""
        self._freed.release()
        try:
            self._end_retired()
        finally:
            self._freed.acquire()

    def _end_retired(self) -> None:
        """End all that are retired. Without the lock."""
        while True:
            with self._freed:
                if not self._retired:
                    return
                member = self._retired.popleft()
                self._ending += 1
            try:
                with suppress(VisRuntimeError, OSError):
                    _end_call(member.runtime)
                    member.runtime.close()
            finally:
                with self._freed:
                    self._ending -= 1
                    self._freed.notify_all()


def _end_call(runtime: AnyRuntime) -> None:
    """End a call that goes on in *runtime*, for which its `close` would wait; none begins any more.

    One that was cancelled keeps the moment that it has for cleaning up.
    """
    runtime._closed = True
    if runtime._started is not None:
        runtime._started.cancel()
    if runtime._lock.locked() and not runtime._is_ending():
        runtime.kill()


def _reset(runtime: AnyRuntime) -> None:
    if runtime._shared.zygote is not None:
        runtime.reset()  # its worker ends, and the next one is a copy of the zygote
        runtime.warm_up()
    else:
        # This drops objects of the guest, whose finalizers may do anything.
        runtime._value({"op": "clear"}, RESET_SECONDS)


def _maker(function: Callable[[], AnyRuntime]) -> Callable[[], AnyRuntime]:
    """Return *function* with a check of what it makes."""

    def make() -> AnyRuntime:
        runtime = function()
        if not isinstance(runtime, RuntimeSession):
            raise TypeError(
                "policy: the function must return a new Runtime or TrustedRuntime, not "
                f"{type(runtime).__name__}"
            )
        return runtime

    return make


def _check_numbers(**numbers: tuple[int | None, int]) -> None:
    for name, (value, least) in numbers.items():
        if value is not None:
            check_whole(value, name, least)
