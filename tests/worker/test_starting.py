"""A worker that is ended while it starts: by whom, and that nobody waits for it any longer."""

from __future__ import annotations

import os
import threading
import time
import venv
from typing import TYPE_CHECKING, Any

import pytest
from jail_helpers import until
from runtime_helpers import children_of

from visruntime import JailPolicy, Runtime, TrustedRuntime, WorkerDied
from visruntime._worker.copy import COPY_SECONDS
from visruntime._worker.starting import Starting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from runtime_helpers import AnyRuntime

pytestmark = pytest.mark.one_uid

SOON = 5.0
"""Seconds in which all is over that was ended; a start that nobody ends takes 30."""

HANGS = """
import os, time

def wait():
    time.sleep(15)
    os._exit(0)

def arm(where):
    os.register_at_fork(**{where: wait})

arm(os.environ.get("WHERE", "after_in_child"))
"""
"""A module whose import makes copies of its process hang, for longer than is waited for one."""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an environment with a package that never lets a worker get ready, while `slow`."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    wait = f"import os, time; os.path.exists({str(packages / 'slow')!r}) and time.sleep(60)\n"
    (packages / "wait.pth").write_text(wait)
    (packages / "hangs.py").write_text(HANGS)
    return folder


@pytest.fixture
def slow(environment: Path) -> Iterator[Path]:
    """Return the file by which starts in the environment do not come to their end."""
    (packages,) = environment.glob("lib/python3*/site-packages")
    (packages / "slow").touch()
    yield packages / "slow"
    (packages / "slow").unlink(missing_ok=True)


@pytest.fixture(params=["trusted", "jailed", "preload"])
def make(request: pytest.FixtureRequest, environment: Path) -> Callable[[], AnyRuntime]:
    """Return what makes a runtime with that environment."""
    if request.param == "trusted":
        return lambda: TrustedRuntime(environment=environment)
    preload = ["json"] if request.param == "preload" else None
    return lambda: Runtime(JailPolicy(), environment=environment, preload=preload)


class Call:
    """A call in a thread of its own."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.problem: BaseException | None = None
        self._work = work
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._work()
        except Exception as problem:
            self.problem = problem

    def is_over(self, seconds: float) -> bool:
        """Whether it returns in time."""
        self._thread.join(seconds)
        return not self._thread.is_alive()


def starts(runtime: AnyRuntime) -> bool:
    """Wait until the process of a worker has begun to start."""

    def begun() -> bool:
        starting: Any = runtime._starting
        return starting is not None and getattr(starting._worker, "_process", None) is not None

    return until(begun)


def test_kill_ends_a_start(make: Callable[[], AnyRuntime], slow: Path) -> None:
    """What a package does at the start must not hold a host that kills the worker."""
    with make() as runtime:
        call = Call(lambda: runtime.run("1", timeout=60))
        assert starts(runtime)
        assert not call.is_over(0.5)  # the control: nothing else ends it
        runtime.kill()
        assert call.is_over(SOON)
        assert isinstance(call.problem, WorkerDied)
        assert call.problem.stopped_by == "killed"
        slow.unlink()
        assert runtime.run("1 + 1").value == 2


@pytest.mark.usefixtures("slow")
def test_close_ends_a_start(make: Callable[[], AnyRuntime]) -> None:
    """``close`` waits for runs of other threads, but for no worker that has yet to start."""
    before = children_of(os.getpid())
    runtime = make()
    call = Call(lambda: runtime.run("1"))
    assert starts(runtime)
    assert not call.is_over(0.3)
    closing = Call(runtime.close)
    assert closing.is_over(SOON)
    assert call.is_over(SOON)
    assert isinstance(call.problem, WorkerDied)
    assert children_of(os.getpid()) <= before


def test_a_run_is_cancelled_while_its_worker_starts(
    make: Callable[[], AnyRuntime], slow: Path
) -> None:
    """Cancelling must not wait for the start, and is no error."""
    with make() as runtime:
        handle = runtime.start("1")
        assert starts(runtime)
        handle.cancel()
        result = handle.result(timeout=SOON)
        assert (result.stopped_by, result.session_lost) == ("cancelled", True)
        assert [event.kind for event in handle] == ["result"]
        slow.unlink()
        assert runtime.run("1 + 1").value == 2


def test_a_start_that_was_ended_before_its_process_leaves_none() -> None:
    """An end may come at any time: also before there is anything to end."""
    before = children_of(os.getpid())
    with TrustedRuntime() as runtime:
        starting = Starting()
        starting.cancel()
        with pytest.raises(WorkerDied, match="killed") as caught:
            runtime._start_worker(starting)
        assert caught.value.stopped_by == "killed"
        assert children_of(os.getpid()) <= before
        runtime._start_worker(Starting()).kill()  # the control


def test_kill_ends_the_wait_for_the_start_of_another_runtime(environment: Path, slow: Path) -> None:
    """Runtimes that share a zygote wait for its start; to end one wait must not end the other."""
    slow.unlink()
    with TrustedRuntime(environment=environment, preload=["json"]) as runtime:
        runtime.warm_up()
        with runtime.fork() as copy:
            slow.touch()
            for each in (runtime, copy):
                each.reset()
            assert runtime._shared.zygote is not None
            runtime._shared.zygote.close()
            first = Call(runtime.warm_up)
            assert starts(runtime)
            second = Call(copy.warm_up)
            assert until(lambda: copy._starting is not None)
            begun = time.monotonic()
            copy.kill()
            assert second.is_over(SOON)
            assert time.monotonic() - begun < SOON
            assert isinstance(second.problem, WorkerDied)
            assert second.problem.stopped_by == "killed"
            assert not first.is_over(0.3)
            runtime.kill()
            assert first.is_over(SOON)
            assert isinstance(first.problem, WorkerDied)


@pytest.fixture(params=["trusted", "jailed"])
def make_hanging(request: pytest.FixtureRequest, environment: Path) -> Callable[[str], AnyRuntime]:
    """Return what makes a runtime whose fresh workers are copies that hang."""

    def make(where: str) -> AnyRuntime:
        if request.param == "trusted":
            return TrustedRuntime(environment=environment, preload=["hangs"], env={"WHERE": where})
        policy = JailPolicy(env={"WHERE": where})
        return Runtime(policy, environment=environment, preload=["hangs"])

    return make


def copies(runtime: AnyRuntime) -> bool:
    """Wait until the zygote is there and its copy under way."""

    def under_way() -> bool:
        zygote: Any = runtime._shared.zygote
        return zygote._original is not None

    if not until(under_way):
        return False
    time.sleep(0.3)
    return True


@pytest.mark.parametrize("where", ["after_in_child", "before"])
@pytest.mark.parametrize("way", ["kill", "close", "cancel"])
def test_a_copy_that_hangs_is_ended_at_once(
    make_hanging: Callable[[str], AnyRuntime], way: str, where: str
) -> None:
    """No host must wait for the 5 s of a copy that it has ended, wherever that hangs."""
    with make_hanging(where) as runtime:
        run = runtime.start("1")
        assert copies(runtime)
        assert not run.done  # the control: nothing else ends it
        begun = time.monotonic()
        {"kill": runtime.kill, "close": runtime.close, "cancel": run.cancel}[way]()
        if way == "kill":
            with pytest.raises(WorkerDied) as killed:
                run.result(timeout=SOON)
            assert killed.value.stopped_by == "killed"
        else:
            assert run.result(timeout=SOON).stopped_by == "cancelled"
        assert time.monotonic() - begun < COPY_SECONDS - 2


@pytest.mark.parametrize("way", ["kill", "close"])
@pytest.mark.parametrize("where", ["after_in_child", "before"])
def test_a_fork_that_hangs_is_ended_at_once(environment: Path, way: str, where: str) -> None:
    """``fork`` of another thread must not hold up who ends its runtime."""
    with TrustedRuntime(environment=environment, env={"WHERE": where}) as runtime:
        runtime.exec("import hangs")
        fork = Call(runtime.fork)
        assert not fork.is_over(0.5)
        begun = time.monotonic()
        {"kill": runtime.kill, "close": runtime.close}[way]()
        assert fork.is_over(SOON)
        assert isinstance(fork.problem, WorkerDied)
        assert time.monotonic() - begun < COPY_SECONDS - 2
