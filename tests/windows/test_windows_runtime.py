"""`Runtime` over a `WindowsJail`: its host side, with a worker of this machine behind two pipes."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from windows_relay import ROOT, RelayedCalls

import visruntime as vr
from visruntime._callbacks import run as calls_of_guests
from visruntime._callbacks.bell import DescriptorBell, EventBell
from visruntime._runtime.windows import REFUSED, Runtime
from visruntime._windows.python import host_python
from visruntime._worker import windows as transport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.one_uid

APP = ROOT + r"\app"
LIMITS = vr.WindowsLimits(processes=3, memory=1 << 30)


@pytest.fixture
def runtime(jail: vr.WindowsJail) -> Iterator[Runtime]:
    """Return a runtime in it."""
    with Runtime(jail, limits=LIMITS, env={"A": "b", "KEY": vr.Secret("hush-hush")}) as runtime:
        yield runtime


def in_a_thread(act: Callable[[], None]) -> Callable[[str, bytes], None]:
    """Return what takes output and has another thread act: the run has begun by then."""
    return lambda _name, _data: threading.Thread(target=act).start()


def pid(runtime: Runtime) -> int:
    """Return the number of the runtime's worker."""
    return int(runtime.eval("__import__('os').getpid()"))


def test_the_verbs_are_those_of_every_runtime(runtime: Runtime, calls: RelayedCalls) -> None:
    """W64: no verb may mean something else on Windows, and all are answered by one worker."""
    result = runtime.run("import sys\nprint('out')\nprint('err', file=sys.stderr)\n6 * 7")
    assert (result.value, result.stdout_text, result.stderr_text) == (42, "out\n", "err\n")
    assert result.error is None
    runtime.exec("def double(n):\n    return n * factor", inputs={"factor": 2})
    assert runtime.call("double", 4) == 8
    assert runtime.eval("n + 1", inputs={"n": 1}) == 2
    runtime.set("factor", 3)
    assert (runtime.get("factor"), runtime.call("double", 4)) == (3, 12)
    with pytest.raises(vr.GuestError, match="ZeroDivisionError"):
        runtime.eval("1 / 0")
    assert runtime.run("1 / 0").error is not None
    seen: list[tuple[str, bytes]] = []
    runtime.run("print('a')", on_output=lambda name, data: seen.append((name, data)))
    assert seen == [("stdout", b"a\n")]
    assert [shown.text for shown in runtime.run("display(7)").displays] == ["7"]
    assert runtime.run("input('name? ')", stdin=lambda prompt, _: prompt.upper()).value == "NAME? "
    with runtime.start("print('x'); 5") as handle:
        assert [event.kind for event in handle] == ["stdout", "result"]
        assert handle.result().value == 5
    runtime.reset()
    with pytest.raises(vr.GuestError, match="NameError"):
        runtime.get("factor")
    assert len(calls.spawned) == 1


def test_the_worker_is_started_as_the_documents_say(runtime: Runtime, calls: RelayedCalls) -> None:
    """W8, W40: no part of its command may be looked for, and nothing of the host is inherited."""
    runtime.warm_up()
    (request,) = calls.spawned
    arguments = request["arguments"]
    assert arguments[:9] == (
        *(APP + r"\worker\vispython.exe", "--core", APP + r"\worker\_viscore.pyd"),
        *("--name", APP + r"\python\python.exe", "--library", APP + r"\python\python311.dll"),
        *("--expect", sys.version),
    )
    assert arguments[9:13] == ("--", "-I", "-S", "-B")
    assert (request["has_channel"], request["has_input"], request["console"]) == (True, False, None)
    assert (request["environment"], request["directory"]) == (["A=b", "KEY=hush-hush"], "")
    assert request["numbers"]["active_processes"] == 3
    assert request["numbers"]["job_memory"] == 1 << 30


def test_functions_of_the_host(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """W64: a guest's call may not depend on a descriptor; each way to wait for one is the same."""
    made: list[type] = []

    async def later(value: int) -> int:
        await asyncio.sleep(0.05)
        return value

    def add(a: int, b: int = 1) -> int:
        return a + b

    runtime.expose("add", add)
    runtime.expose("tools.later", later)
    runtime.expose("sleep", time.sleep)
    for kind in (DescriptorBell, EventBell):

        def make_bell(kind: type[DescriptorBell | EventBell] = kind) -> DescriptorBell | EventBell:
            made.append(kind)
            return kind()

        monkeypatch.setattr(calls_of_guests, "make_bell", make_bell)
        assert runtime.eval("add(1, b=2)") == 3
        assert runtime.run("import tools; tools.later(5)").value == 5
        with pytest.raises(vr.GuestError, match="TypeError"):
            runtime.eval("add('a')")
        with pytest.raises(vr.CommandTimeout, match="sleep") as caught:
            runtime.run("sleep(20)", timeout=vr.Timeouts(callback=0.2))
        assert caught.value.result.stop.reason == "callback"
        assert not caught.value.result.session_lost
    assert set(made) == {DescriptorBell, EventBell}


def test_a_run_is_interrupted_and_its_session_kept(runtime: Runtime, calls: RelayedCalls) -> None:
    """W64: neither a time that is over nor an interrupt from a thread may cost the session."""
    runtime.run("kept = 1")
    with pytest.raises(vr.CommandTimeout, match="the session is kept"):
        runtime.run("while True: pass", timeout=0.3)
    code = "import time; print('begun', flush=True); time.sleep(60)"
    error = runtime.run(code, on_output=in_a_thread(runtime.interrupt)).error
    assert error is not None
    assert error.interrupted
    assert runtime.get("kept") == 1
    with runtime.start("while True: pass") as handle:
        handle.cancel()
        assert handle.result().stopped_by == "cancelled"
    assert runtime.get("kept") == 1
    assert len(calls.spawned) == 1


STUBBORN = "sum(range(10**11))"
"""C code that looks at no signal for a minute."""


def test_who_does_not_obey_is_ended(runtime: Runtime, calls: RelayedCalls) -> None:
    """W64: no guest may outlive its time; the next call has a fresh worker, without old names."""
    runtime.run("kept = 1")
    with pytest.raises(vr.CommandTimeout, match="the worker was ended") as caught:
        runtime.run(STUBBORN, timeout=vr.Timeouts(wall=0.2, grace=0.3))
    rungs = caught.value.result.stop.rungs
    assert [rung.name for rung in rungs] == ["signal", "stacks", "kill"]
    assert rungs[1].detail == "no thread of the worker writes stacks"
    with pytest.raises(vr.GuestError, match="NameError"):
        runtime.get("kept")
    assert len(calls.spawned) == 2


def test_an_end_is_told_as_it_was_measured(runtime: Runtime) -> None:
    """W35, W64: no end of a worker may look like another one, and no report shows a secret."""
    with pytest.raises(vr.WorkerDied, match="ended with exit code 7") as caught:
        runtime.run(
            "import os, sys\nprint('before')\nprint('hush-hush', file=sys.stderr)\nos._exit(7)"
        )
    report = caught.value.report
    assert (report.exit_code, report.signal, report.run) == (7, None, 1)
    assert caught.value.result.stdout_text == "before\n"
    assert report.stderr_tail == "***\n"
    code = "import ctypes; ctypes.string_at(0)"
    with pytest.raises(vr.WorkerDied) as caught:
        runtime.run(code)
    assert "Fatal Python error" in caught.value.report.stacks
    code = "import time; print('begun', flush=True); time.sleep(60)"
    with pytest.raises(vr.WorkerDied) as caught:
        runtime.run(code, on_output=in_a_thread(runtime.kill))
    assert caught.value.stopped_by == "killed"
    assert runtime.eval("1") == 1


def test_a_program_that_is_no_worker_is_not_taken_for_one(
    runtime: Runtime, calls: RelayedCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W64: what ends before it is ready is told with its own words, and nothing of it stays."""
    for code, what in (
        ("import sys; print('no room', file=sys.stderr); sys.exit(3)", "exit code 3: no room"),
        (
            "import _viscore as c; c.receive(); c.send(1, c.encode({})); c.receive(); c.receive()",
            "audit hook was not installed",
        ),
    ):
        monkeypatch.setattr("visruntime._worker.start.LOAD", code)
        with pytest.raises((vr.WorkerDied, vr.ProtocolViolation), match=what):
            runtime.run("1")
        assert calls.programs == {}


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("import _viscore; _viscore.send(7, b'x')", "malformed value"),
        (
            "import _viscore as c; c.send(17, c.encode({'id': 1, 'size': 99999, 'copied': True}))",
            "none can be lent",
        ),
    ],
)
def test_a_worker_that_breaks_the_protocol_is_ended(
    runtime: Runtime, calls: RelayedCalls, code: str, what: str
) -> None:
    """W64: nothing may go on with a worker whose frames are not those that may come."""
    with pytest.raises(vr.ProtocolViolation, match=what):
        runtime.run(code)
    assert calls.programs == {}
    assert runtime.eval("2") == 2


def test_what_nobody_asked_for_ends_it(runtime: Runtime) -> None:
    """W64: a frame between two runs may not be taken for an answer; what was printed is late."""
    late = (
        "import os, threading, time\n"
        "def later():\n time.sleep(0.2)\n print('late', flush=True)\n{}\n"
        "threading.Thread(target=later).start()"
    )
    runtime.run(late.format(""))
    time.sleep(0.5)
    assert runtime.run("1").late_stdout == b"late\n"
    runtime.run(late.format(" import _viscore\n _viscore.send(7, b'x')"))
    time.sleep(0.5)
    with pytest.raises(vr.ProtocolViolation, match="nobody had asked for"):
        runtime.run("1")


def test_a_worker_that_reads_nothing_holds_up_nobody(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W45, W64: no host may wait without end for room in a pipe, nor for the end of such a worker."""
    monkeypatch.setattr(transport, "SEND_SECONDS", 0.5)
    os.kill(pid(runtime), signal.SIGSTOP)
    began = time.monotonic()
    with pytest.raises(vr.ProtocolViolation, match="does not read"):
        runtime.run("1", inputs={"data": b"a" * (8 << 20)})
    assert time.monotonic() - began < 5
    assert runtime.eval("len(data)", inputs={"data": b"a" * (8 << 20)}) == 8 << 20
    os.kill(pid(runtime), signal.SIGSTOP)
    began = time.monotonic()
    runtime.close()
    assert time.monotonic() - began < 5


def test_output_of_any_size_is_whole_or_counted(runtime: Runtime) -> None:
    """W44: no byte of output that a limit allows may be lost, nor may a flood block a run."""
    assert len(runtime.run("print('x' * 3_000_000)").stdout) == 3_000_001
    result = runtime.run("print('x' * 20_000_000)")
    assert result.dropped[0] == 20_000_001 - len(result.stdout)
    assert len(result.stdout) == 16 << 20


def test_orders_wait_for_the_frame_that_is_sent(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W64: an interrupt may not tear a frame apart that another thread is sending."""
    runtime.run("1")
    worker = runtime._worker
    assert isinstance(worker, transport.WindowsWorker)
    sent: list[bytes] = []
    room = 100

    def write(data: bytes, _seconds: float) -> int:
        sent.append(bytes(data))
        return min(room, len(data))

    monkeypatch.setattr(worker._to_guest, "write_within", write)
    with worker._sending:
        worker.interrupt()
        assert sent == []
    worker._give_order()
    worker._give_order()
    assert len(sent) == 1
    room = 3
    worker.interrupt()
    with pytest.raises(vr.ProtocolViolation, match="does not read"):
        runtime.run("1")  # its frame would begin inside of the order


def test_the_end_of_the_jail_is_the_end_of_the_worker(
    jail: vr.WindowsJail, runtime: Runtime
) -> None:
    """W43, W64: no call may hang, or find an answer, once the jail is closed."""
    runtime.warm_up()
    closing = threading.Timer(0.3, jail.close)
    closing.start()
    with pytest.raises((vr.WorkerDied, vr.JailClosed)):
        runtime.run("import time; time.sleep(60)")
    closing.join()  # the worker may be seen to end first
    with pytest.raises(vr.JailClosed):
        runtime.run("1")
    runtime.close()


def test_the_jail_is_closed_with_its_runtime_where_that_was_asked_for(
    calls: RelayedCalls, jail: vr.WindowsJail
) -> None:
    """W64: no jail of somebody else's may be closed, and none that nobody else has may stay."""
    with Runtime(jail) as runtime:
        assert runtime.eval("1") == 1
    assert not calls.closed
    with Runtime(jail, close_jail=True) as runtime:
        assert runtime.eval("1") == 1
    assert calls.closed
    runtime.close()


def test_the_report_claims_nothing(runtime: Runtime) -> None:
    """W2, W64: nothing that only a Windows can show may be shown as proven by a result."""
    report = runtime.run("1").report
    assert (report.backend, report.jailed, report.canaries) == ("windows", True, ())
    assert report.identity == "AppContainer S-1-15-2-1"
    assert [clause.clause for clause in report.clauses] == [
        *("identity", "network", "processes", "limits.memory", "limits.processes")
    ]
    assert all("unclaimed" in clause.note for clause in report.clauses)
    assert [limit.value for limit in report.limits] == [1 << 30, 3]


def test_each_option_is_taken_or_refused_by_its_name(
    jail: vr.WindowsJail, calls: RelayedCalls
) -> None:
    """W2: no option of a runtime may be ignored on Windows; a new one needs an answer."""
    elsewhere = set(inspect.signature(vr.Runtime).parameters) - {"policy"}
    here = set(inspect.signature(Runtime).parameters) - {
        "jail",
        "close_jail",
        "limits",
        "output",
        "others",
    }
    assert set(REFUSED) == elsewhere - here
    for name, reason in REFUSED.items():
        with pytest.raises(vr.PolicyUnsupported, match=f"{name}: ") as caught:
            Runtime(jail, **{name: None})  # type: ignore[arg-type]
        assert caught.value.field == name
        assert reason in str(caught.value)
    with pytest.raises(TypeError, match="unexpected keyword argument 'tls'"):
        Runtime(jail, tls=None)
    with pytest.raises(vr.JailUnavailable) as refused:
        Runtime(vr.JailPolicy())  # type: ignore[arg-type]
    assert refused.value.reason == "platform"
    for env in (
        *({"A=": "b"}, {"=C:": "b"}, {"A": "b\0"}, {"API_TOKEN": "hush"}, {"Api_Token": "hush"}),
        *({"perl5lib": "C:\\"}, {"A": 1}, {"A": "b", "a": "b"}, ["A"]),
    ):
        with pytest.raises(vr.PolicyError, match=r"^env") as refused_env:
            Runtime(jail, env=env)  # type: ignore[arg-type]
        assert "hush" not in str(refused_env.value)
    for wrong in (1, None, "C:\\jails"):
        with pytest.raises(TypeError, match="WindowsJail"):
            Runtime(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="WindowsLimits"):
        Runtime(jail, limits=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="output"):
        Runtime(jail, output=0)
    with pytest.raises(TypeError, match="close_jail"):
        Runtime(jail, close_jail=1)  # type: ignore[arg-type]
    assert calls.spawned == []


def test_each_verb_that_is_not_there_says_so(runtime: Runtime, calls: RelayedCalls) -> None:
    """W2, W64: no verb may do less than its name says; the worker goes on as before."""
    runtime.run("kept = 1")
    refused: dict[str, Callable[[], Any]] = {
        "pause": runtime.pause,
        "resume": runtime.resume,
        "stacks": runtime.stacks,
        "ping": runtime.ping,
        "type_text": lambda: runtime.type_text("a"),
        "timeouts.cpu": lambda: runtime.run("1", timeout=vr.Timeouts(cpu=1.0)),
    }
    for name, call in refused.items():
        with pytest.raises(vr.PolicyUnsupported, match=f"^{name}: ") as caught:
            call()
        assert caught.value.field == name
    with pytest.raises(vr.ForkRefused, match="cannot be copied"):
        runtime.fork()
    assert runtime.tls_strict is None
    assert runtime.get("kept") == 1
    assert len(calls.spawned) == 1


# What is staged.


def installation(folder: Path) -> tuple[Path, Path]:
    """Return the folder of a Python, and that of a package with a worker for it."""
    library = f"python{sys.version_info.major}{sys.version_info.minor}.dll"
    prefix, package = folder / "python", folder / "package"
    for name in (
        *("python.exe", "python3.dll", library, "vcruntime140.dll", "LICENSE.txt", "NEWS.txt"),
        *("DLLs/_ssl.pyd", "Lib/os.py", "Lib/json/decoder.py", "Lib/test/support.py"),
        *("Lib/site-packages/six.py", "Lib/__pycache__/os.pyc", "Scripts/pip.exe"),
    ):
        path = prefix / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    package.mkdir()
    for name in ("vispython.exe", "_viscore.pyd", "_visconsole.cp3-win.pyd"):
        (package / name).touch()
    return prefix, package


def test_a_python_is_staged_without_its_packages(tmp_path: Path) -> None:
    """W14, W64: nothing that others have installed may come into a jail unasked."""
    prefix, package = installation(tmp_path)
    sources, library = host_python(str(prefix), str(package), (".cp3-win.pyd", ".pyd"))
    assert sorted(sources) == sorted(
        [
            *("python/DLLs", "python/Lib/json", "python/Lib/os.py", "python/python.exe"),
            *(f"python/{library}", "python/python3.dll", "python/vcruntime140.dll"),
            *("worker/vispython.exe", "worker/_viscore.pyd", "worker/_visconsole.pyd"),
        ]
    )
    assert sources["worker/_visconsole.pyd"] == str(package / "_visconsole.cp3-win.pyd")


@pytest.mark.parametrize(
    "part",
    [
        *("python/python.exe", "python/python3{minor}.dll"),
        *("package/vispython.exe", "package/_viscore.pyd", "package/_visconsole.cp3-win.pyd"),
    ],
)
def test_a_part_that_is_missing_is_named(tmp_path: Path, part: str) -> None:
    """W64, W67: no worker may be staged in parts; a guard for another Python is none."""
    prefix, package = installation(tmp_path)
    (tmp_path / part.format(minor=sys.version_info.minor)).unlink()
    with pytest.raises(vr.JailUnavailable) as caught:
        host_python(str(prefix), str(package), (".cp3-win.pyd", ".pyd"))
    assert caught.value.reason == "library"
    assert os.path.basename(part).partition(".")[0].format(minor=sys.version_info.minor) in str(
        caught.value
    )


@pytest.mark.usefixtures("mode_of_this_python")
def test_a_worker_is_staged_before_any_program(
    calls: RelayedCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W64: a runtime stages what it needs itself, while it can, and says so where it is too late."""
    sources = {"python/python.exe": r"C:\python.exe"}
    monkeypatch.setattr(
        "visruntime._windows.python.host_python", lambda: (sources, "python311.dll")
    )
    with vr.WindowsJail._over(calls, r"C:\jails") as jail:  # type: ignore[arg-type]
        with Runtime(jail) as runtime:
            assert runtime.eval("1") == 1
        assert calls.staged == [(r"C:\python.exe", "python/python.exe")]
        with Runtime(jail) as runtime:  # it is there, and is staged once
            assert runtime.eval("2") == 2
        assert len(calls.staged) == 1
    other = RelayedCalls()
    with vr.WindowsJail._over(other, r"C:\jails") as jail:  # type: ignore[arg-type]
        jail._seal()
        with pytest.raises(vr.JailSealed, match=r"call stage_python\(\) before any program"):
            Runtime(jail)
        assert other.staged == []
