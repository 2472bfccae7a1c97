"""Pools of runtimes: who gets which worker, how many there are, and when one is replaced."""

from __future__ import annotations

import concurrent.futures
import gc
import os
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from jail_helpers import until
from runtime_helpers import children_of

from visruntime import (
    JailClosed,
    JailPolicy,
    Limits,
    PolicyError,
    PoolExhausted,
    TrustedRuntime,
    WorkerDied,
    pool,
)
from visruntime.pool import RuntimePool

if TYPE_CHECKING:
    from visruntime.pool import AnyRuntime

pytestmark = pytest.mark.one_uid

MARK = "import sys; seen = getattr(sys, 'mark', 0); sys.mark = seen + 1; seen"

HOLD = (
    "import time\ndef hold():\n    while True:\n        try: time.sleep(60)\n"
    "        except BaseException: pass\n"
)
"""Defines what no interrupt ends."""


def trusted(**arguments: object) -> RuntimePool:
    """Return a pool of workers without jails, which start a little faster."""
    return RuntimePool(TrustedRuntime, **arguments)  # type: ignore[arg-type]


def eventually(condition: object, seconds: float = 10.0) -> bool:
    """Wait until *condition* holds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():  # type: ignore[operator]
            return True
        time.sleep(0.01)
    return False


def test_each_borrower_gets_a_worker_that_nobody_has_used() -> None:
    """Nothing that one borrower did to interpreter or jail may meet the next."""
    with RuntimePool(JailPolicy(), min_idle=2, max_size=3) as runtimes:
        for _ in range(3):
            with runtimes.borrow() as runtime:
                assert runtime.run(MARK).value == 0
                assert runtime.run(MARK).value == 1  # the control: this is what would be seen
                kept = runtime.run("import os; os.path.exists('/tmp/left')").value
                assert kept is False
                runtime.exec("open('/tmp/left', 'w').close()")
        with pytest.raises(JailClosed):
            runtime.run("1")


@pytest.mark.parametrize(
    ("reuse", "marks", "name"), [("never", 0, False), ("reset", 1, False), ("keep", 1, True)]
)
def test_reuse_says_what_meets_the_next_borrower(reuse: str, marks: int, name: bool) -> None:  # noqa: FBT001
    """Only what the word says may be left of the borrower before."""
    with trusted(min_idle=1, max_size=2, reuse=reuse) as runtimes:
        runtimes.wait_ready(20)
        assert runtimes.run(MARK).value == 0
        runtimes.wait_ready(20)
        assert runtimes.run("'seen' in globals()").value is name
        runtimes.wait_ready(20)
        assert runtimes.run(MARK).value == marks


def test_reset_with_a_zygote_gives_a_fresh_worker() -> None:
    """With modules to preload, nothing but files of the jail may be left of the borrower before."""
    options = {"min_idle": 0, "max_size": 1, "reuse": "reset", "preload": ["json"]}
    with RuntimePool(JailPolicy(), **options) as runtimes:  # type: ignore[arg-type]
        with runtimes.borrow() as first:
            assert first.run(MARK).value == 0
        with runtimes.borrow() as second:
            assert second is first
            assert second.run(MARK).value == 0
            assert second.run("'json' in sys.modules").value is True


def test_a_ready_worker_is_lent_and_replaced() -> None:
    """No borrower waits for a start while one is ready, and the stock fills up by itself."""
    with trusted(min_idle=2, max_size=4) as runtimes:
        runtimes.wait_ready(20)
        with runtimes.borrow() as runtime:
            assert runtime.ping() < 2  # its worker is there before any call
            assert runtimes.borrowed == 1
            assert eventually(lambda: runtimes.ready == 2)


def test_the_stock_fits_into_the_pool() -> None:
    """Who asks for a small pool need not say that its stock is small, too."""
    with RuntimePool(TrustedRuntime, max_size=1) as runtimes:
        assert runtimes.run("1 + 1").value == 2


def test_no_more_than_max_size_at_once() -> None:
    """However many threads borrow, no more runtimes than allowed exist, and each gets one."""
    alive, most = [0], [0]
    done: list[int] = []
    lock = threading.Lock()

    def make() -> TrustedRuntime:
        with lock:
            alive[0] += 1
            most[0] = max(most[0], alive[0])
        runtime = TrustedRuntime()
        close = runtime.close

        def counted() -> None:
            close()
            with lock:
                alive[0] -= 1

        runtime.close = counted  # type: ignore[method-assign]
        return runtime

    with RuntimePool(make, min_idle=1, max_size=3) as runtimes:

        def borrow() -> None:
            done.extend(runtimes.run("1+1").value for _ in range(3))

        threads = [threading.Thread(target=borrow) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert done == [2] * 18
    assert 1 < most[0] <= 3
    assert alive[0] == 0


def test_an_exhausted_pool_waits_or_says_so() -> None:
    """Neither strategy lends more than there may be."""
    with trusted(min_idle=0, max_size=1) as runtimes, runtimes.borrow() as first:
        with pytest.raises(PoolExhausted, match=r"within 0\.05 s"):
            runtimes.acquire(timeout=0.05)
        threading.Timer(0.05, first.interrupt).start()
        first.run("import time; time.sleep(20)")
    with trusted(min_idle=0, max_size=1, when_exhausted="error") as runtimes:
        with runtimes.borrow(), pytest.raises(PoolExhausted, match="all 1"):
            runtimes.acquire()
        assert runtimes.run("1").value == 1  # although the one before has yet to end


def test_a_waiting_borrower_gets_what_comes_back() -> None:
    """A release must wake who waits."""
    with trusted(min_idle=0, max_size=1, reuse="keep") as runtimes:
        held = runtimes.acquire()
        held.set("x", 5)
        threading.Timer(0.1, runtimes.release, [held]).start()
        with runtimes.borrow(timeout=20) as runtime:
            assert runtime.get("x") == 5


@pytest.mark.parametrize(
    ("limits", "second"),
    [
        ({}, 1),
        ({"recycle_after": 1}, 0),
        ({"max_age": 0.001}, 0),
        ({"max_memory": 1024}, 0),
        ({"recycle_after": 2, "max_age": 100.0, "max_memory": 2**40}, 1),
    ],
)
def test_worn_workers_are_replaced(limits: dict[str, object], second: int) -> None:
    """By count, age and memory; one within the limits stays."""
    with trusted(min_idle=0, max_size=2, reuse="keep", **limits) as runtimes:
        assert runtimes.run(MARK).value == 0
        time.sleep(0.01)  # past the age of one of them
        assert runtimes.run(MARK).value == second


def test_a_worker_that_died_is_not_lent() -> None:
    """Neither one that died in the stock nor one that came back dead."""
    with trusted(min_idle=1, max_size=2, reuse="keep") as runtimes:
        runtimes.wait_ready(20)
        member = runtimes._idle[0]
        member.runtime.kill()
        assert eventually(lambda: not member.lives())
        with runtimes.borrow() as runtime:
            assert runtime is not member.runtime
            runtime.set("x", 1)
            runtime.kill()
        assert runtimes.run("'x' in globals()").value is False


def at_rest(runtimes: RuntimePool) -> bool:
    """Whether its thread has ended, so that nobody looks at the stock."""
    return eventually(lambda: runtimes._tender is None)


@pytest.mark.parametrize("exhausted", ["wait", "error"])
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"reuse": "keep"}, "import os, threading\nthreading.Timer(0.3, os._exit, [1]).start()"),
        ({"reuse": "reset"}, "import os, threading\nthreading.Timer(0.3, os._exit, [1]).start()"),
        ({"reuse": "keep", "max_age": 0.3}, "1"),
    ],
    ids=["keep", "reset", "age"],
)
def test_a_stock_that_has_died_at_rest_holds_up_nobody(
    monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any], code: str, exhausted: Any
) -> None:
    """A guest that ends later, and age, must not keep the place of one that can be lent."""
    monkeypatch.setattr(pool, "_LINGER_SECONDS", 0.05)
    options = {"min_idle": 0, "max_size": 1, "when_exhausted": exhausted, **arguments}
    with trusted(**options) as runtimes:
        with runtimes.borrow() as runtime:
            runtime.run(code)
        first = runtimes._idle[0]
        assert at_rest(runtimes)
        assert eventually(lambda: not first.lives() or runtimes._too_old(first))
        with runtimes.borrow(timeout=20) as runtime:
            assert runtime is not first.runtime
            assert runtime.run("1 + 1").value == 2


def test_a_stock_over_the_time_limit_of_its_policy_holds_up_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Workers that nobody has used end with ``wall_seconds``, and the pool must outlive them."""
    monkeypatch.setattr(pool, "_LINGER_SECONDS", 0.05)
    policy = JailPolicy(limits=Limits(wall_seconds=1))
    with RuntimePool(policy, min_idle=2, max_size=2) as runtimes:
        runtimes.wait_ready(20)
        first = list(runtimes._idle)
        assert at_rest(runtimes)
        assert eventually(lambda: not any(member.lives() for member in first))
        with runtimes.borrow(timeout=20) as runtime:
            assert runtime.run("1 + 1").value == 2


def test_a_pool_without_a_thread_lends_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no thread starts, who needs a place makes it, and who waits for the stock is told."""
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "visruntime-pool":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with trusted(min_idle=1, max_size=1) as runtimes:
        with pytest.raises(RuntimeError, match="new thread"):
            runtimes.wait_ready(20)
        for _ in range(2):
            with runtimes.borrow(timeout=20) as runtime:
                assert runtime.run("1 + 1").value == 2
        monkeypatch.undo()
        runtimes.run("1")
        runtimes.wait_ready(20)  # the control: with a thread it fills up again
        assert runtimes.ready == 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_runtime_whose_end_raises_holds_up_nobody() -> None:
    """What a runtime of somebody else raises must cost its own place no longer than it takes."""
    bad = [True]

    def make() -> TrustedRuntime:
        runtime = TrustedRuntime()
        close = runtime.close

        def fail() -> None:
            close()
            if bad:
                bad.clear()
                raise ValueError("its end went wrong")

        runtime.close = fail  # type: ignore[method-assign]
        return runtime

    with RuntimePool(make, min_idle=0, max_size=1) as runtimes:
        for _ in range(3):
            with runtimes.borrow(timeout=20) as runtime:
                assert runtime.run("1 + 1").value == 2
    assert not bad


@pytest.mark.parametrize("reuse", ["keep", "reset"])
def test_a_run_that_goes_on_does_not_meet_the_next_borrower(reuse: str) -> None:
    """Neither who gives a runtime back nor who gets the next one waits for a forgotten run."""
    with trusted(min_idle=0, max_size=1, reuse=reuse) as runtimes:
        with runtimes.borrow() as runtime:
            assert runtime.run(MARK).value == 0
            run = runtime.start("import time\nfor _ in range(80): time.sleep(0.1)")
            assert not run.done
            start = time.monotonic()
        assert runtimes.run(MARK).value == 0
        assert time.monotonic() - start < 6
        assert run.result(timeout=10).stopped_by == "cancelled"
        # The control: one whose run has ended is kept.
        with runtimes.borrow() as runtime:
            assert runtime.start(MARK).result(timeout=10).value == 1
        assert runtimes.run(MARK).value == 2


@pytest.mark.parametrize("verb", ["run", "eval"])
@pytest.mark.parametrize("reuse", ["never", "keep"])
def test_a_call_of_another_thread_is_ended_when_its_runtime_is_given_back(
    verb: str, reuse: Any
) -> None:
    """Who waits no longer for a guest that does not end must get the place, and the pool its end."""
    runtimes = trusted(min_idle=0, max_size=1, reuse=reuse)
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        with runtimes.borrow() as runtime:
            runtime.exec(HOLD)
            call = threads.submit(getattr(runtime, verb), "hold()")
            with pytest.raises(TimeoutError):  # the control: the guest does not end by itself
                call.result(timeout=0.5)
        with pytest.raises(WorkerDied) as caught:
            call.result(timeout=5)
        assert caught.value.stopped_by == "killed"
        with runtimes.borrow(timeout=5) as runtime:
            assert runtime.run("1 + 1").value == 2
        threads.submit(runtimes.kill).result(timeout=5)


def test_a_session_that_cannot_be_reset_is_not_lent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A guest must not hold up the pool by what its objects do when they are forgotten."""
    monkeypatch.setattr(pool, "RESET_SECONDS", 0.2)
    with trusted(min_idle=0, max_size=1, reuse="reset") as runtimes:
        code = (
            "import time\nclass Stay:\n"
            "    def __del__(self, sleep=time.sleep):\n        sleep(20)\n"
        )
        start = time.monotonic()
        with runtimes.borrow() as runtime:
            runtime.exec(code)
            runtime.run(MARK)
            assert "Stay" in runtime.eval("Stay()").type_name
        assert runtimes.run(MARK).value == 0
        assert time.monotonic() - start < 10


def test_what_cannot_start_raises_for_who_needs_it() -> None:
    """A policy that is refused raises at once; what fails later raises from acquire, each time."""
    with pytest.raises(PolicyError):
        RuntimePool(JailPolicy(), python="/nonexistent")
    bad = [True]

    def prepare(runtime: AnyRuntime) -> None:
        if bad[0]:
            runtime.exec("1/0")

    with trusted(min_idle=1, max_size=1, prepare=prepare) as runtimes:
        with pytest.raises(Exception, match="ZeroDivisionError"):
            runtimes.wait_ready(20)
        with pytest.raises(Exception, match="ZeroDivisionError"):
            runtimes.acquire()
        bad[0] = False
        assert runtimes.run("1+1").value == 2


def test_prepare_sees_each_worker_first() -> None:
    """Functions of the host and modules are there for every borrower."""

    def prepare(runtime: AnyRuntime) -> None:
        runtime.expose("double", lambda x: 2 * x)

    with trusted(min_idle=1, max_size=2, prepare=prepare) as runtimes:
        assert [runtimes.run("double(4)").value for _ in range(2)] == [8, 8]


@pytest.mark.parametrize(
    "arguments",
    [
        {"min_idle": -1},
        {"max_size": 0},
        {"min_idle": 3, "max_size": 2},
        {"recycle_after": 0},
        {"max_age": 0},
        {"max_memory": 0},
        {"reuse": "maybe"},
        {"when_exhausted": "cry"},
        {"backend": "namespaces"},
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, object]) -> None:
    """Nothing is started for arguments that mean nothing."""
    with pytest.raises(ValueError, match=next(iter(arguments))):
        trusted(**arguments)


def test_only_what_is_borrowed_can_be_given_back() -> None:
    """Neither a runtime of others nor the same one twice."""
    with trusted(min_idle=0) as runtimes, TrustedRuntime() as other:
        with pytest.raises(ValueError, match="not borrowed"):
            runtimes.release(other)
        runtime = runtimes.acquire()
        runtimes.release(runtime)
        with pytest.raises(ValueError, match="not borrowed"):
            runtimes.release(runtime)


def test_close_ends_everything() -> None:
    """No process and no thread is left, and a borrowed one ends when it comes back."""
    before = children_of(os.getpid())
    runtimes = RuntimePool(JailPolicy(), min_idle=2, max_size=3)
    runtimes.wait_ready(20)
    runtime = runtimes.acquire()
    runtimes.close()
    assert runtime.run("1+1").value == 2
    with pytest.raises(JailClosed, match="closed"):
        runtimes.acquire()
    runtimes.release(runtime)
    with pytest.raises(JailClosed):
        runtime.run("1")
    assert children_of(os.getpid()) <= before
    assert eventually(lambda: not [t for t in threading.enumerate() if t.name == "visruntime-pool"])


def test_kill_ends_borrowed_workers() -> None:
    """A run that would take long ends at once."""
    runtimes = trusted(min_idle=0)
    runtime = runtimes.acquire()
    problems: list[BaseException] = []

    def work() -> None:
        try:
            runtime.run("import time; time.sleep(30)")
        except Exception as problem:
            problems.append(problem)
        runtimes.release(runtime)

    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(0.2)
    start = time.monotonic()
    runtimes.kill()
    thread.join()
    assert time.monotonic() - start < 5
    assert [type(p).__name__ for p in problems] == ["WorkerDied"]


@pytest.mark.parametrize("min_idle", [0, 1])
@pytest.mark.parametrize("verb", ["close", "kill"])
def test_the_end_reaches_a_worker_that_is_made_ready(verb: str, min_idle: int) -> None:
    """Code that *prepare* has started must neither hold up the end of the pool nor outlive it."""
    before = children_of(os.getpid())
    begun = threading.Event()

    def prepare(runtime: AnyRuntime) -> None:
        runtime.exec(HOLD)
        begun.set()
        runtime.eval("hold()")

    runtimes = trusted(min_idle=min_idle, max_size=2, prepare=prepare)
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        call = threads.submit(runtimes.acquire)
        assert begun.wait(20)
        with pytest.raises(TimeoutError):  # the control: it does not end by itself
            call.result(timeout=0.5)
        threads.submit(getattr(runtimes, verb)).result(timeout=10)
        with pytest.raises(JailClosed, match="pool was closed"):
            call.result(timeout=5)
    assert children_of(os.getpid()) <= before


def test_kill_reaches_a_worker_that_is_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    """What forgetting does to objects of a guest must not hold up the end of the pool."""
    monkeypatch.setattr(pool, "RESET_SECONDS", 60.0)
    runtimes = trusted(min_idle=0, max_size=1, reuse="reset")
    runtime = runtimes.acquire()
    runtime.exec(
        "import time\nclass Stay:\n    def __del__(self, sleep=time.sleep):\n        sleep(60)\n"
    )
    runtime.eval("Stay()")  # its handle holds it until then
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        call = threads.submit(runtimes.release, runtime)
        with pytest.raises(TimeoutError):
            call.result(timeout=0.5)
        threads.submit(runtimes.kill).result(timeout=10)
        call.result(timeout=5)


def test_a_pool_that_is_forgotten_leaves_nothing() -> None:
    """Its workers end when it is collected, without close."""
    before = children_of(os.getpid())
    runtimes = trusted(min_idle=2)
    runtimes.wait_ready(20)
    assert len(children_of(os.getpid()) - before) == 2
    del runtimes

    def gone() -> bool:
        gc.collect()
        return children_of(os.getpid()) <= before

    assert eventually(gone)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_is_refused() -> None:
    """A child must not take a worker that its parent lends too, nor end it."""
    with trusted(min_idle=1) as runtimes:
        runtimes.wait_ready(20)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                runtimes.acquire()
            except JailClosed as problem:
                os.write(writer, str(problem).encode())
            finally:
                runtimes.close()
                os._exit(0)
        os.close(writer)
        os.waitpid(child, 0)
        with open(reader, "rb") as pipe:
            assert b"the process that made it" in pipe.read()
        assert runtimes.run("1+1").value == 2


def test_a_spare_one_is_not_lent_before_one_that_is_warm() -> None:
    """A worker that was made meanwhile must not take the place of the one that was used last."""
    with RuntimePool(JailPolicy(), reuse="keep", min_idle=2, max_size=2) as pool:
        runtime = pool.acquire()
        runtime.exec("kept = 7")
        pool.release(runtime)  # mostly before the spare one is ready
        assert until(lambda: pool.ready == 2, seconds=30)
        with pool.borrow() as again:
            assert again.get("kept") == 7
