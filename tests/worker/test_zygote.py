"""Fresh workers from a zygote: what is imported before, and that nothing else is left."""

from __future__ import annotations

import errno
import os
import threading
import venv
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from interpreters import INTERPRETERS
from runtime_helpers import children_of

from visruntime._runtime.events import Feed
from visruntime._worker.copy import copy_worker
from visruntime._worker.starting import Starting
from visruntime._worker.zygote import Zygote
from visruntime.errors import CommandTimeout, ForkRefused, GuestError, PolicyError, WorkerDied
from visruntime.policy import JailPolicy, Limits
from visruntime.runtime import Runtime, TrustedRuntime

if TYPE_CHECKING:
    from collections.abc import Callable

    from runtime_helpers import AnyRuntime

    from visruntime.worker import Worker

SPIN_IN_C = "n = 10**10\nsum(range(n))"


@pytest.fixture(params=["trusted", "jailed"])
def make(request: pytest.FixtureRequest) -> Callable[..., AnyRuntime]:
    """Return what makes a runtime, without and with a jail."""
    if request.param == "trusted":
        return TrustedRuntime
    return lambda **options: Runtime(JailPolicy(), **options)


def test_a_reset_leaves_nothing_of_what_the_code_did(make: Callable[..., AnyRuntime]) -> None:
    """What code does to modules and to the process must not reach the next worker."""
    with make(preload=["json"]) as runtime:
        runtime.exec(
            "import json, os, sys\njson.spoiled = True\nos.environ['SPOILED'] = '1'\nx = 1"
        )
        first = runtime.eval("os.getpid()")
        runtime.reset()
        state = runtime.run(
            "import json, os, sys\n"
            "('x' in globals(), hasattr(json, 'spoiled'), 'SPOILED' in os.environ, os.getpid())"
        ).value
        assert state[:3] == (False, False, False)
        assert state[3] != first


def test_a_reload_does_not_go_on_with_the_modules_of_before(
    make: Callable[..., AnyRuntime],
) -> None:
    """Code that changed on disk must not live on in the zygote."""
    with make(preload=["json"]) as runtime:
        runtime.exec("1")
        zygote = runtime._shared.zygote
        assert zygote is not None
        before = zygote._original
        runtime.reload()
        assert zygote._original is None
        assert runtime.run("import sys\n'json' in sys.modules").value is True
        assert zygote._original is not before


def test_modules_are_there_before_any_code_runs(make: Callable[..., AnyRuntime]) -> None:
    """A module that was asked for must not be imported again by each worker."""
    with make(preload=["colorsys", "xml.dom.minidom"]) as runtime:
        for _ in range(2):
            loaded = runtime.run(
                "import sys\n[m in sys.modules for m in "
                "('colorsys', 'xml.dom.minidom', 'antigravity')]"
            ).value
            assert loaded == [True, True, False]
            runtime.reset()


def test_numpy_is_loaded_with_one_thread(make: Callable[..., AnyRuntime]) -> None:
    """A library that starts threads must not make copies impossible, nor keep its setting."""
    with make(preload=["numpy"], env={**os.environ, "OPENBLAS_NUM_THREADS": "2"}) as runtime:
        for _ in range(2):
            result = runtime.run(
                "import sys, os\nloaded = 'numpy' in sys.modules\nimport numpy\n"
                "total = float((numpy.ones((64, 64)) @ numpy.ones((64, 64))).sum())\n"
                "[loaded, total, os.environ.get('OPENBLAS_NUM_THREADS')]",
                check=True,
            ).value
            assert result[:3] == [True, 64.0**3, "2"]
            runtime.reset()


def test_fresh_workers_draw_different_numbers(make: Callable[..., AnyRuntime]) -> None:
    """Two workers of one zygote must not have the same random numbers."""
    with make(preload=["random", "uuid"]) as runtime:
        draws = []
        for _ in range(3):
            draws.append(
                runtime.run("import random, uuid\n(random.random(), str(uuid.uuid4()))").value
            )
            runtime.reset()
        assert len(set(draws)) == 3


def test_a_worker_that_was_ended_is_replaced_by_a_fresh_one(
    make: Callable[..., AnyRuntime],
) -> None:
    """The end of a worker must not be the end of its zygote, nor leave anything of it."""
    with make(preload=["json"]) as runtime:
        runtime.expose("answer", lambda: 42)
        runtime.exec("x = 1")
        with pytest.raises(CommandTimeout):
            runtime.run(SPIN_IN_C, timeout=0.1)
        assert runtime.run("'x' in globals(), answer()").value == (False, 42)
        with pytest.raises(WorkerDied):
            runtime.run("import os; os._exit(3)")
        assert runtime.run("answer()").value == 42


def test_a_module_that_cannot_be_imported_is_told(make: Callable[..., AnyRuntime]) -> None:
    """A preload that fails must not be left out in silence."""
    with make(preload=["no_such_module_anywhere"]) as runtime:
        for _ in range(2):
            with pytest.raises(GuestError, match="no_such_module_anywhere"):
                runtime.run("1")


def test_a_zygote_with_threads_is_refused(make: Callable[..., AnyRuntime]) -> None:
    """A worker must not be started in another way than the one that was asked for."""
    with make(preload=["threading"]) as runtime:
        runtime.exec("1")
        zygote = runtime._shared.zygote
        assert zygote is not None
        original = zygote._original
        assert original is not None
        original.begin_run(None, None)
        code = "import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()"
        request: dict[str, Any] = {
            "op": "exec",
            "code": code,
            "inputs": {},
            "filename": None,
            "argv": None,
        }
        original.request(request, callbacks=runtime._callbacks, feed=Feed())
        runtime.reset()
        with pytest.raises(ForkRefused, match="2 threads"):
            runtime.run("1")


def test_preload_takes_names_and_no_text() -> None:
    """A name must not be taken for its letters."""
    with pytest.raises(TypeError, match="preload: expected a list"):
        TrustedRuntime(preload="numpy")


@pytest.mark.parametrize(
    "options", [{"processes": False}, {"stdin": "pty"}, {"preload": ["no name"]}]
)
def test_a_wrong_preload_opens_no_jail(options: dict[str, Any]) -> None:
    """An argument that is refused must not leave a jail for as long as its error is kept."""
    before = children_of(os.getpid())
    with pytest.raises((PolicyError, ValueError), match="preload") as caught:
        Runtime(JailPolicy(), **{"preload": ["json"], **options})
    assert children_of(os.getpid()) <= before
    assert caught.value.__traceback__ is not None  # it holds all that was made before it


def test_nothing_of_users_runs_in_the_zygote() -> None:
    """What one worker did must not be in the next, whatever it did to its own memory."""
    with Runtime(JailPolicy(), preload=[]) as runtime:
        seen = set()
        for _ in range(3):
            seen.add(
                runtime.run(
                    "import builtins\nbuiltins.count = getattr(builtins, 'count', 0) + 1"
                    "\nbuiltins.count"
                ).value
            )
            runtime.reset()
        assert seen == {1}


def test_no_copy_reaches_the_memory_of_its_zygote() -> None:
    """What one worker wrote there, all later ones would start with; a worker's own child is open."""
    with Runtime(JailPolicy(), preload=["json"]) as runtime:
        result = runtime.run(
            "import os, subprocess, time\n"
            "def attempt(pid):\n"
            "    try:\n"
            "        os.close(os.open(f'/proc/{pid}/mem', os.O_RDONLY))\n"
            "    except OSError as problem:\n"
            "        return problem.errno\n"
            "    return 0\n"
            "name = lambda pid: open(f'/proc/{pid}/comm').read()\n"
            "others = {int(p) for p in os.listdir('/proc') if p.isdigit()} - {os.getpid()}\n"
            "zygotes = [pid for pid in others if name(pid) == name(os.getpid())]\n"
            "with subprocess.Popen(['sleep', '9']) as child:\n"
            "    while name(child.pid) != 'sleep\\n': time.sleep(0.01)\n"
            "    found = [attempt(p) for p in zygotes], attempt(child.pid), attempt(os.getpid())\n"
            "    child.kill()\n"
            "found"
        )
        assert result.error is None, result.error
        assert result.value == ([errno.EACCES], 0, 0)


def test_what_a_preload_prints_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules print at their import what they like; the host keeps no more than of a run."""
    venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
    (packages,) = (tmp_path / "venv").glob("lib/python3*/site-packages")
    (packages / "talkative.py").write_text(
        "import os\nfor _ in range(100): os.write(1, b'x' * 65536)\n"
    )
    seen = []

    def look_and_copy(original: Worker, **options: Any) -> Worker:
        capture = original.streams[0].capture
        seen.append((len(capture.take()), capture.dropped))
        return copy_worker(original, **options)

    monkeypatch.setattr("visruntime._worker.zygote.copy_worker", look_and_copy)
    policy = JailPolicy(limits=Limits(output=100_000))
    with Runtime(policy, environment=tmp_path / "venv", preload=["talkative"]) as runtime:
        runtime.warm_up()
    ((kept, dropped),) = seen
    assert 0 < kept <= 100_000
    assert kept + dropped == 6_553_600


def test_runtimes_forked_from_one_share_its_zygote(make: Callable[..., AnyRuntime]) -> None:
    """A copy must get fresh workers too, also when its original is closed."""
    runtime = make(preload=["json"])
    runtime.exec("x = 1")
    with runtime.fork() as copy:
        assert copy.get("x") == 1
        runtime.close()
        copy.reset()
        assert copy.run("import sys\n('x' in globals(), 'json' in sys.modules)").value == (
            False,
            True,
        )


def test_a_zygote_that_has_ended_is_started_anew() -> None:
    """The time limit of the zygote must not be that of the workers to come."""
    policy = JailPolicy(limits=Limits(wall_seconds=1.0))
    with Runtime(policy, preload=["json"]) as runtime:
        runtime.exec("1")
        zygote = runtime._shared.zygote
        assert zygote is not None
        assert zygote._original is not None
        with pytest.raises(WorkerDied) as death:
            runtime.run("import time; time.sleep(5)")
        assert death.value.stopped_by == "wall"
        zygote._original.process.wait(5)
        assert runtime.run("import sys; 'json' in sys.modules").value is True


def test_workers_are_asked_for_by_many_threads_at_once() -> None:
    """Each must get a worker of its own, and all of them one that works."""
    zygote = Zygote(TrustedRuntime()._start_worker, ["json"])
    workers = []
    threads = [
        threading.Thread(target=lambda: workers.append(zygote.worker(Starting()))) for _ in range(8)
    ]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        facts = [
            Path(f"/proc/self/fdinfo/{worker.process.pidfd}").read_text() for worker in workers
        ]
        assert len({fact.partition("\nPid:")[2].split()[0] for fact in facts}) == 8
        zygote.close()
        assert all(worker.process.poll() is None for worker in workers)
    finally:
        zygote.close()
        for worker in workers:
            worker.kill()


@pytest.mark.parametrize("python", INTERPRETERS)
def test_every_interpreter_has_zygotes(python: str) -> None:
    """No version or build may lose what the others have, in a jail either."""
    with Runtime(JailPolicy(), python=python, preload=["json", "asyncio"]) as runtime:
        for _ in range(2):
            assert runtime.run("import sys\n'asyncio' in sys.modules").value is True
            assert runtime.run("import asyncio\nawait asyncio.sleep(0, 5)").value == 5
            runtime.reset()
