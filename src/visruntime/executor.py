"""An executor of ``concurrent.futures`` whose tasks run in jails."""

from __future__ import annotations

import itertools
import logging
import os
import threading
import time
from collections import deque
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NoReturn

from visruntime._arguments import (
    check_function,
    check_list,
    check_seconds,
    check_whole,
)
from visruntime._runtime.executor_task import make_task, one_call, perform, send_library
from visruntime._runtime.timeouts import as_timeouts
from visruntime._runtime.traceback import printable
from visruntime.errors import VisRuntimeError
from visruntime.pool import RuntimePool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from visruntime._runtime.executor_task import Arguments, Task
    from visruntime._runtime.session import OutputSink
    from visruntime._runtime.timeouts import Timeouts
    from visruntime.policy import JailPolicy
    from visruntime.pool import AnyRuntime
    from visruntime.windows import WindowsJail

__all__ = ["JailExecutor", "JailExecutorBroken"]

MOST_SAID = 500
"""Of the reason that an executor broke, in characters: each later call repeats it."""
_LOGGER = logging.getLogger("concurrent.futures")


class JailExecutorBroken(VisRuntimeError, BrokenExecutor):
    """The executor runs no more tasks: a worker could not be made ready, or all were killed."""


class JailExecutor(Executor):
    """Runs functions in jailed workers, as ``ProcessPoolExecutor`` does in processes.

    Functions and arguments go to the worker by cloudpickle; results come back as data, and nothing
    that comes from a worker is unpickled. A function given as text is one of the worker: a name of
    its session, or ``"module:name"``.

    All tasks are of one trust domain: a worker that one has used is used by the next, unless
    *max_tasks_per_child* is 1. Each worker has a jail of its own, unless it is given one.
    """

    _pool_class: type[RuntimePool] = RuntimePool

    def __init__(
        self,
        policy: JailPolicy | WindowsJail | Callable[[], AnyRuntime],
        max_workers: int | None = None,
        *,
        initializer: Callable[..., object] | str | None = None,
        initargs: Sequence[Any] = (),
        max_tasks_per_child: int | None = None,
        timeout: float | Timeouts | None = None,
        prepare: Callable[[AnyRuntime], object] | None = None,
        on_output: OutputSink | None = None,
        min_idle: int = 0,
        **options: Any,
    ) -> None:
        """Open the first jail; workers start with the first tasks.

        Args:
            policy: the policy of each jail, or a function that makes a `Runtime` or
                `TrustedRuntime`; on Windows an open `WindowsJail` for all, or such a function.
            max_workers: how many tasks run at a time; as many as processors by default.
            initializer: function that each worker calls before its first task.
            initargs: its arguments.
            max_tasks_per_child: tasks after which a worker is replaced.
            timeout: seconds, or `Timeouts`, that each task may take (in `map` each chunk).
            prepare: gets the runtime of each new worker, on the host, before *initializer*: to
                expose functions, or to define some.
            on_output: gets ``"stdout"`` or ``"stderr"`` and what tasks print, in any thread.
            min_idle: workers kept ready beside those at work, for when one is replaced.
            options: further arguments of `Runtime`.

        Raises:
            TypeError, ValueError: an argument is wrong; the message names it.
            PolicyError, JailUnavailable: as `Runtime`; nothing was started.
        """
        if max_workers is None:
            max_workers = _processors()
        if isinstance(max_workers, int) and max_workers <= 0:
            raise ValueError("max_workers must be greater than 0")  # in the words of CPython
        check_whole(max_workers, "max_workers", 1)
        check_whole(min_idle, "min_idle", 0)
        if max_tasks_per_child is not None:
            check_whole(max_tasks_per_child, "max_tasks_per_child", 1)
        if initializer is not None and not isinstance(initializer, str):
            check_function(initializer, "initializer")
        initargs = check_list(initargs, "initargs", "(1, 2)")
        for name, function in (("prepare", prepare), ("on_output", on_output)):
            if function is not None:
                check_function(function, name)
        self._timeout = as_timeouts(timeout)
        self._on_output = on_output
        first_task = (
            None if initializer is None else make_task(initializer, [(tuple(initargs), {})])
        )
        self._process_id = os.getpid()
        self._gate = threading.Lock()
        self._broken: str | None = None
        self._killed = False
        self._shut = False
        self._open = 0
        self._max_workers = max_workers
        self._pool = self._pool_class(
            policy,
            min_idle=min_idle,
            max_size=max_workers + min_idle,
            reuse="keep",
            recycle_after=max_tasks_per_child,
            prepare=_preparation(prepare, first_task, self._timeout, on_output),
            **options,
        )
        self._threads = ThreadPoolExecutor(max_workers, thread_name_prefix="visruntime-executor")

    def submit(self, fn: Callable[..., Any] | str, /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Schedule one call and return its future.

        What the future raises: an exception of the function as an instance of the same builtin
        type with the `GuestError` as its cause, or as that `GuestError`; `CommandTimeout` and
        `WorkerDied`, after which the next task gets a fresh worker; `JailExecutorBroken`; and what
        cannot be encoded as whatever that raises.

        Raises:
            JailExecutorBroken: the executor is broken, or belongs to another process.
            RuntimeError: it was shut down.
        """
        return self.schedule(fn, args, kwargs)

    def schedule(
        self,
        fn: Callable[..., Any] | str,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        timeout: float | Timeouts | None = None,
    ) -> Future[Any]:
        """Schedule one call as `submit` does, with a limit on time of its own.

        Args:
            fn: the function, or its name.
            args: positional arguments.
            kwargs: named arguments.
            timeout: seconds, or `Timeouts`, that the task may take once it runs; that of the
                executor by default. Its future raises `CommandTimeout`.

        Raises:
            ValueError: *timeout* is not a positive number; otherwise as `submit`.
        """
        return self._schedule(fn, one_call(args, kwargs), timeout, self._work_single)

    def map(
        self,
        fn: Callable[..., Any] | str,
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        buffersize: int | None = None,
    ) -> Iterator[Any]:
        """Call *fn* with the items of *iterables* and yield the results in order.

        Args:
            fn: the function, or its name.
            iterables: one for each argument; the shortest decides.
            timeout: seconds from now after which waiting for a result raises ``TimeoutError``.
            chunksize: calls that go to a worker together. An exception ends its whole chunk.
            buffersize: chunks that are scheduled ahead of the one that is yielded. By default all
                are, and *iterables* are read to their end at once.

        Raises:
            TypeError, ValueError: *chunksize* or *buffersize* is not a positive whole number.
        """
        check_whole(chunksize, "chunksize", 1)
        check_seconds(timeout, "timeout", past=True)
        if buffersize is not None:
            if not isinstance(buffersize, int):
                raise TypeError("buffersize must be an integer or None")
            if buffersize < 1:
                raise ValueError("buffersize must be None or > 0")
        end = None if timeout is None else time.monotonic() + timeout
        chunks = _chunks(zip(*iterables, strict=False), chunksize)

        def schedule(chunk: list[tuple[Any, ...]]) -> Future[list[Any]]:
            return self._schedule(fn, [(items, {}) for items in chunk], None, self._work)

        waiting = deque(schedule(chunk) for chunk in itertools.islice(chunks, buffersize))

        def results() -> Iterator[Any]:
            try:
                while waiting:
                    left = None if end is None else end - time.monotonic()
                    values = _result_of(waiting, left)
                    waiting.extend(schedule(chunk) for chunk in itertools.islice(chunks, 1))
                    values.reverse()
                    while values:
                        yield values.pop()
            finally:
                for future in waiting:
                    future.cancel()

        return results()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002 (as the base class has it)
        """Take no more tasks, and end the workers when those that are scheduled are done.

        Args:
            wait: return only after that.
            cancel_futures: cancel what has not begun.
        """
        if os.getpid() != self._process_id:
            return
        with self._gate:
            self._shut = True
            finished = self._open == 0
        self._threads.shutdown(wait=wait, cancel_futures=cancel_futures)
        if wait or finished:
            self._pool.close()

    def terminate_workers(self) -> None:
        """Break the executor: interrupt what runs, and kill what does not end in half a second.

        Futures that have not begun are cancelled, those under way raise `JailExecutorBroken`.
        """
        self._end_workers(interrupt=True)

    def kill_workers(self) -> None:
        """Break the executor and end all workers at once; otherwise as `terminate_workers`."""
        self._end_workers(interrupt=False)

    # How it works.

    def _end_workers(self, *, interrupt: bool) -> None:
        if os.getpid() != self._process_id:
            return
        with self._gate:
            self._killed = True
            self._broken = self._broken or "its workers were ended"
        self.shutdown(wait=False, cancel_futures=True)
        self._pool.kill(interrupt=interrupt)

    def _schedule(
        self,
        fn: Callable[..., Any] | str,
        calls: Sequence[Arguments],
        timeout: float | Timeouts | None,
        work: Callable[[Task, Timeouts | None], Any],
    ) -> Future[Any]:
        limit = self._timeout if timeout is None else as_timeouts(timeout)
        self._refuse_if_over()
        try:
            task = make_task(fn, calls)
        except Exception as problem:  # noqa: BLE001 (cloudpickle raises anything)
            failed: Future[Any] = Future()
            failed.set_exception(problem.with_traceback(None))
            return failed
        with self._gate:
            self._refuse_if_over()
            future = self._threads.submit(work, task, limit)
            self._open += 1
        future.add_done_callback(self._one_less)
        return future

    def _perform(
        self,
        fn: Callable[..., Any] | str,
        calls: Sequence[Arguments],
        timeout: float | Timeouts | None,
    ) -> list[Any]:
        """Make *calls* of *fn* in this thread, with whichever worker is free; for the twin in aio."""
        limit = self._timeout if timeout is None else as_timeouts(timeout)
        self._refuse_if_over()
        task = make_task(fn, calls)
        with self._gate:
            self._refuse_if_over()
            self._open += 1
        try:
            return self._work(task, limit)
        finally:
            self._one_less()

    def _refuse_if_over(self) -> None:
        if os.getpid() != self._process_id:
            raise JailExecutorBroken("this executor belongs to the process that made it")
        if self._broken is not None:
            raise JailExecutorBroken(f"the executor is broken: {self._broken}")
        if self._shut:
            raise RuntimeError("cannot schedule new futures after shutdown")

    def _one_less(self, _future: Future[Any] | None = None) -> None:
        with self._gate:
            self._open -= 1
            finished = self._shut and self._open == 0
        if finished:
            self._pool.close()

    def _work_single(self, task: Task, timeout: Timeouts | None) -> Any:
        return self._work(task, timeout)[0]

    def _work(self, task: Task, timeout: Timeouts | None) -> list[Any]:
        """Run a task in this thread, with whichever worker is free."""
        if self._broken is not None:
            raise JailExecutorBroken(f"the executor is broken: {self._broken}")
        try:
            runtime = self._pool.acquire()
        except Exception as problem:  # noqa: BLE001 (an initializer may raise anything)
            self._break(problem)
        try:
            return perform(runtime, task, timeout, self._on_output)
        except Exception as problem:
            if self._killed:
                raise JailExecutorBroken(f"the executor is broken: {self._broken}") from problem
            raise
        finally:
            self._pool.release(runtime)

    def _break(self, problem: Exception) -> NoReturn:
        with self._gate:
            known = self._broken is not None
            if not known:
                said = printable(f"{type(problem).__name__}: {problem}"[:MOST_SAID]).rstrip(": ")
                self._broken = f"a worker could not be made ready ({said})"
        if not known:
            # Not with its traceback: that shows source, and a guest may have put anything there.
            _LOGGER.critical("%s", self._broken)
        raise JailExecutorBroken(f"the executor is broken: {self._broken}") from problem


def _processors() -> int:
    """How many processors this process may use, where the system tells, or how many there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _preparation(
    prepare: Callable[[AnyRuntime], object] | None,
    first_task: Task | None,
    timeout: Timeouts | None,
    on_output: OutputSink | None,
) -> Callable[[AnyRuntime], None]:
    def make_ready(runtime: AnyRuntime) -> None:
        send_library(runtime)
        if prepare is not None:
            prepare(runtime)
        if first_task is not None:
            perform(runtime, first_task, timeout, on_output)

    return make_ready


def _chunks(items: Iterator[tuple[Any, ...]], size: int) -> Iterator[list[tuple[Any, ...]]]:
    while chunk := list(itertools.islice(items, size)):
        yield chunk


def _result_of(waiting: deque[Future[list[Any]]], timeout: float | None) -> list[Any]:
    """Take the first future out and wait for it, without keeping a reference to it."""
    future = waiting.popleft()
    try:
        return future.result(timeout)
    finally:
        future.cancel()  # of no effect but after a timeout
        del future
