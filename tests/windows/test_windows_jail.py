"""`WindowsJail` in Python over its own C, which runs over a Windows of the tests' own."""

from __future__ import annotations

import gc
import io
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import visruntime as vr
from visruntime._doctor_windows import examine
from visruntime._native.windows import STATES, STATUSES
from visruntime.doctor import DoctorReport
from visruntime.windows import WindowsStaged

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from windows_library import TestedWindows

pytestmark = pytest.mark.one_uid

GUEST = "C:\\sources\\guest.exe"
SOURCES = {"guest.exe": GUEST, "lib": "C:\\sources\\lib"}


@pytest.fixture
def jail(machine: TestedWindows) -> vr.WindowsJail:
    """Return a jail that each test closes."""
    return vr.WindowsJail._over(machine.calls, "C:\\jails")


def test_the_seam_knows_every_status_and_state(machine: TestedWindows) -> None:
    """No status of C may be taken for another one in Python."""
    constants = {name: getattr(machine.lib, name) for name in dir(machine.lib) if name.isupper()}
    for number, word in enumerate(STATUSES):
        assert constants[f"VJ_WINDOWS_{word.upper()}"] == number
    assert constants["VJ_WINDOWS_NO_MEMORY"] == len(STATUSES) - 1
    for number, word in enumerate(STATES):
        assert constants[f"VJ_WINDOWS_CONTEXT_{word.upper()}"] == number


def test_create_stage_spawn_and_close(jail: vr.WindowsJail, tmp_path: Path) -> None:
    """W1: the four verbs make a jail and its program, and leave only what the guest wrote."""
    assert jail.state == "open"
    root = tmp_path / "c" / jail.root.removeprefix("C:\\").replace("\\", "/")
    assert jail.stage(SOURCES) == WindowsStaged(2, 1, 16)
    assert (root / "app/lib/one.py").read_text() == "one = 1"
    with jail.spawn([GUEST, "echo"]) as process:
        assert jail.state == "sealed"
        assert process.communicate(b"hello") == (b"hello", b"")
        assert process.wait().exit_code == 0
        assert process.returncode == 0
        assert process.poll() == 0
        assert "echo" not in repr(process)
    with pytest.raises(vr.JailSealed):
        jail.stage(SOURCES)
    (root / "work/result").write_text("kept")
    jail.close()
    jail.close()
    assert jail.state == "closed"
    assert [path.name for path in root.iterdir()] == ["work"]
    assert (root / "work/result").read_text() == "kept"
    with pytest.raises(vr.JailClosed):
        jail.spawn([GUEST])
    with pytest.raises(vr.JailClosed):
        jail.stage(SOURCES)


def test_a_channel_is_beside_the_standard_streams(jail: vr.WindowsJail) -> None:
    """W40: it carries both ways and ends with its program; none is there unasked, or on a console."""
    with jail.spawn([GUEST, "echo"]) as process:
        assert (process.to_guest, process.from_guest) == (None, None)
    with jail.spawn([GUEST, "relay"], channel=True, stdin=False) as process:
        assert process.to_guest is not None
        assert process.from_guest is not None
        assert process.to_guest.write(b"frame") == 5
        process.to_guest.close()
        assert process.from_guest.read() == b"frame"
        assert process.communicate() == (b"", b"")
    with pytest.raises(vr.JailClosed):
        process.from_guest.read(1)
    with pytest.raises(vr.PolicyError, match="console inherits no handles"):
        jail.spawn([GUEST, "relay"], channel=True, pty=True)
    with pytest.raises(vr.PolicyError, match="VISJAIL_CHANNEL"):
        jail.spawn([GUEST], channel=True, env={"VISJAIL_CHANNEL": "1:2"})
    jail.close()


def test_sources_stay_as_they_are(jail: vr.WindowsJail, tmp_path: Path) -> None:
    """W14: no mode, owner, time or content of a source, nor of what is above it, may change."""

    def look() -> dict[str, tuple[float, ...]]:
        top = tmp_path / "c/sources"
        kept = ("st_mode", "st_uid", "st_gid", "st_ino", "st_nlink", "st_size", "st_mtime_ns")
        return {
            str(path): tuple(getattr(path.stat(), name) for name in kept)
            for path in (top, *top.rglob("*"))
        }

    before = look()
    assert len(before) == 4
    jail.stage(SOURCES)
    with pytest.raises(vr.PolicyError):
        jail.stage({"again": GUEST, "a:b": GUEST})
    with jail.spawn([GUEST, "echo"]) as process:
        process.communicate()
    jail.close()
    assert look() == before


def test_work_goes_too_if_asked(machine: TestedWindows, tmp_path: Path) -> None:
    """Nothing of a jail may stay on the disk that was not to be kept."""
    with vr.WindowsJail._over(machine.calls, "C:\\jails", keep_work=False) as jail:
        jail.stage(SOURCES)
        assert repr(jail) == f"<WindowsJail {jail.root!r} open>"
        assert (jail.app, jail.work) == (jail.root + "\\app", jail.root + "\\work")
        assert jail.temp == jail.root + "\\temp"
        assert jail.package_sid.startswith("S-1-15-2-")
    assert list((tmp_path / "c/jails").iterdir()) == []


def test_wrong_requests_are_refused_by_what_is_wrong(jail: vr.WindowsJail) -> None:
    """W8, W18: what C refuses must reach the caller as an error of his request, and start nothing."""
    for sources in ({"a:b": GUEST}, {"nul": GUEST}, {"../x": GUEST}, {"\ud800": GUEST}):
        with pytest.raises(vr.PolicyError):
            jail.stage(sources)
    with pytest.raises(vr.PolicyError) as caught:
        jail.stage({"fine": GUEST, "x": "\\\\server\\share"})
    assert caught.value.value == "\\\\server\\share"
    with pytest.raises(vr.PolicyError, match="sources"):
        jail.stage({})
    for command in (["guest.exe"], ["C:\\sources\\x.bat"], ["C:\\sources\\x.cmd", "a"]):
        with pytest.raises(vr.PolicyError):
            jail.spawn(command)
    with pytest.raises(vr.PolicyError):
        jail.spawn([GUEST], env={"A": "1", "a": "2"})
    with pytest.raises(vr.PolicyError, match="env"):
        jail.spawn([GUEST], env={"A=": "1"})
    jail.close()


def test_a_program_that_is_not_there_is_named(machine: TestedWindows, jail: vr.WindowsJail) -> None:
    """A missing program may not look like a broken jail."""
    name = machine.ffi.new("char[]", b"process_create")
    errors: dict[int, type[Exception]] = {
        2: vr.CommandNotFound,
        3: vr.CommandNotFound,
        5: vr.CommandNotExecutable,
        193: vr.CommandNotExecutable,
        1450: vr.WindowsCallFailed,
    }
    for code, error in errors.items():
        machine.lib.fake_fail_named(name, code)
        with pytest.raises(error) as caught:
            jail.spawn([GUEST, "echo"])
        machine.lib.fake_fail_named(machine.ffi.NULL, 0)
        if isinstance(caught.value, vr.WindowsCallFailed):
            assert (caught.value.winerror, caught.value.step) == (1450, "process")
    jail.close()


@pytest.mark.parametrize("lie", range(13))
def test_a_readback_that_disagrees_starts_nothing(
    machine: TestedWindows, jail: vr.WindowsJail, lie: int
) -> None:
    """W28: whatever Windows says otherwise of token or job, no guest may run, and it is told."""
    machine.lib.fake_lie(1 << lie)
    with pytest.raises(vr.JailUnavailable, match="nothing of the program ran") as caught:
        jail.spawn([GUEST, "echo"])
    assert caught.value.reason == "readback"
    assert not machine.lib.fake_ran()
    machine.lib.fake_lie(0)
    jail.close()


def test_a_windows_that_lacks_something_is_refused(machine: TestedWindows, tmp_path: Path) -> None:
    """W67: a Windows without a needed part may make no folder; the refusal names the part."""
    machine.lib.fake_lack(1)
    with pytest.raises(vr.JailUnavailable) as caught:
        vr.WindowsJail._over(machine.calls, "C:\\jails")
    machine.lib.fake_lack(0)
    assert caught.value.reason == "feature"
    assert str(caught.value)
    assert list((tmp_path / "c/jails").iterdir()) == []


def test_the_doctor_claims_nothing_on_windows(machine: TestedWindows) -> None:
    """W1: neither a whole Windows nor one that lacks something may be shown as enforcing anything."""
    for missing in (0, 1):
        machine.lib.fake_lack(missing)
        backend, findings, _ = examine(lambda: machine.calls)
        report = DoctorReport(backend=backend, findings=findings)
        assert not report.ok
        assert [finding.key for finding in findings] == ["jail", "windows_jail"]
        assert "enforced" not in {finding.state for finding in findings}
        assert ("unclaimed" in str(report)) == (missing == 0)
    machine.lib.fake_lack(0)


def test_each_failing_call_leaves_nothing_or_can_be_closed_again(
    machine: TestedWindows, tmp_path: Path
) -> None:
    """W52, W66: whichever call of Windows fails, an error says so, and a second close cleans."""

    def use() -> None:
        jail = vr.WindowsJail._over(machine.calls, "C:\\jails", keep_work=False)
        try:
            jail.stage(SOURCES)
            with jail.spawn([GUEST, "echo"]) as process:
                process.communicate(b"x", timeout=10)
        finally:
            try:
                jail.close()
            except vr.JailPoisoned:
                machine.lib.fake_fail(0, 0)
                jail.close()
            assert jail.state == "closed"

    machine.lib.fake_forget()
    use()
    total = int(machine.lib.fake_calls())
    assert total > 50
    failed = 0
    for number in range(1, total + 1, max(1, total // 15)):
        machine.lib.fake_forget()
        machine.lib.fake_fail(number, 1450)
        try:
            use()
        except (vr.VisRuntimeError, OSError):
            failed += 1
        machine.lib.fake_fail(0, 0)
        assert machine.lib.fake_left(True) == 0, number
        assert machine.lib.fake_running() == 0
    assert failed > 5
    vr.windows._remove_stale(machine.calls, "C:\\jails")
    assert list((tmp_path / "c/jails").iterdir()) == []


@pytest.mark.parametrize("call", ["pipe_write", "handle_close"])
def test_input_that_cannot_be_given_is_an_error(
    machine: TestedWindows, jail: vr.WindowsJail, call: str
) -> None:
    """W46: a program may not wait for input whose writing, or whose end, has failed."""
    name = machine.ffi.new("char[]", call.encode())
    with jail, jail.spawn([GUEST, "echo"]) as process:
        machine.lib.fake_fail_named(name, 1450)
        try:
            with pytest.raises(vr.VisRuntimeError, match="1450"):
                process.communicate(b"x", timeout=20)
        finally:
            machine.lib.fake_fail_named(machine.ffi.NULL, 0)


def test_time_is_bounded(jail: vr.WindowsJail) -> None:
    """No wait may be longer than asked; the program goes on, and kill ends all of it."""
    with jail.spawn([GUEST, "hang"]) as process:
        began = time.monotonic()
        with pytest.raises(vr.CommandTimeout):
            process.wait(0.3)
        assert process.poll() is None
        assert process.returncode is None
        assert time.monotonic() - began < 5
        process.kill()
        assert process.wait(10).killed
    with jail.spawn([GUEST, "hang"]) as process:
        with pytest.raises(vr.CommandTimeout):
            process.communicate(timeout=0.1)
        assert process.wait(10).killed
    jail.close()


def test_output_is_whole_and_bounded(jail: vr.WindowsJail) -> None:
    """W44: no byte of output may be lost; more than the limit ends the program and says so."""
    size = 300_000
    with jail.spawn([GUEST, "flood", str(size)]) as process:
        output, errors = process.communicate(timeout=20)
        assert output == bytes(i % 251 for i in range(size)) + b"PASS"
        assert errors == b""
    with jail.spawn([GUEST, "flood", str(1 << 40)]) as process:
        with pytest.raises(vr.OutputLimitExceeded):
            process.communicate(max_bytes=100_000, timeout=20)
        assert process.wait(10).killed
    jail.close()


def test_a_console_is_one_stream_of_a_size(machine: TestedWindows, jail: vr.WindowsJail) -> None:
    """W48: a console has the size that was asked for, at the start and after a change."""
    columns, rows = machine.ffi.new("uint16_t *"), machine.ffi.new("uint16_t *")
    with jail.spawn([GUEST, "echo"], pty=True, rows=10, cols=40) as process:
        machine.lib.fake_console_size(columns, rows)
        assert (columns[0], rows[0]) == (40, 10)
        process.resize(20, 60)
        machine.lib.fake_console_size(columns, rows)
        assert (columns[0], rows[0]) == (60, 20)
        assert process.stderr is None
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"hello")
        assert process.stdout.read(5) == b"hello"
    with jail.spawn([GUEST, "echo"]) as process, pytest.raises(vr.VisRuntimeError):
        process.resize(20, 60)
    jail.close()


def test_streams_are_files_of_python(jail: vr.WindowsJail) -> None:
    """A stream reads or writes, not both, is a raw file, and says when it was closed."""
    with jail.spawn([GUEST, "echo"]) as process:
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None
        assert stdout is not None
        assert (stdin.readable(), stdin.writable()) == (False, True)
        assert (stdout.readable(), stdout.writable()) == (True, False)
        assert stdin.write(b"") == 0
        assert stdin.write(memoryview(b"one\ntwo\n")) == 8
        lines = io.BufferedReader(stdout)
        assert lines.readline() == b"one\n"
        with pytest.raises(io.UnsupportedOperation):
            stdin.read(1)
        with pytest.raises(io.UnsupportedOperation):
            stdout.write(b"x")
        assert stdout.readinto(bytearray()) == 0
        stdin.close()
        stdin.close()
        with pytest.raises(vr.JailClosed):
            stdin.write(b"x")
        assert lines.read() == b"two\n"
    with jail.spawn([GUEST, "echo"], stdin=False) as process:
        assert process.stdin is None
        assert process.communicate() == (b"", b"")
    jail.close()


def test_a_write_to_a_program_that_is_gone_says_so(jail: vr.WindowsJail) -> None:
    """W46: a dead reader is a broken pipe, and never a success; nothing to write asks nothing."""
    with jail.spawn([GUEST, "exit", "259"]) as process:
        assert process.wait(10).exit_code == 259
        assert process.stdin is not None
        with pytest.raises((BrokenPipeError, vr.JailClosed)):
            process.stdin.write(b"x" * (1 << 20))
        assert process.stdin.write(b"") == 0
    jail.close()


def test_exit_codes_keep_all_their_bits(jail: vr.WindowsJail) -> None:
    """W35: an NTSTATUS may not become a negative or a cut number."""
    with jail.spawn([GUEST, "exit", str(0xC0000005)]) as process:
        exit = process.wait(10)
        assert (exit.exit_code, exit.killed) == (0xC0000005, False)
        assert exit.processes >= 1
        assert exit == process.wait()
    jail.close()


def test_a_close_ends_what_others_wait_for(jail: vr.WindowsJail) -> None:
    """W68: a thread that reads or waits is told of the close, and two closes are one."""
    process = jail.spawn([GUEST, "hang"])
    assert process.stdout is not None
    outcomes: list[str] = []

    def note(call: Callable[[], Any]) -> None:
        try:
            outcomes.append(f"returned {call()!r}"[:12])
        except Exception as error:
            outcomes.append(type(error).__name__)

    calls = [lambda: process.stdout.read(1), process.wait, jail.close, jail.close]  # type: ignore[union-attr]
    threads = [threading.Thread(target=note, args=(call,)) for call in calls]
    for thread in threads[:2]:
        thread.start()
    time.sleep(0.05)
    for thread in threads[2:]:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert len(outcomes) == 4
    for outcome in outcomes:
        assert outcome == "JailClosed" or outcome.startswith("returned"), outcomes
    assert jail.state == "closed"
    process.close()


def test_a_jail_that_is_forgotten_is_closed(machine: TestedWindows) -> None:
    """No program, and no object of Windows, may outlive the last reference to its jail."""
    jail = vr.WindowsJail._over(machine.calls, "C:\\jails")
    process = jail.spawn([GUEST, "hang"])
    assert machine.lib.fake_running() == 1
    del jail
    gc.collect()
    assert machine.lib.fake_running() == 0
    with pytest.raises(vr.JailClosed):
        process.wait(1)
    process.close()


def test_a_runtime_of_linux_takes_none(jail: vr.WindowsJail) -> None:
    """A runtime may not start its worker outside of the jail that it was given."""
    with pytest.raises(TypeError, match="not WindowsJail"):
        vr.Runtime(jail)  # type: ignore[arg-type]
    jail.close()


def test_secrets_reach_the_guest_and_no_repr(jail: vr.WindowsJail) -> None:
    """A secret of the environment may show in no object of the host."""
    with jail.spawn([GUEST, "echo"], env={"TOKEN": vr.Secret("hush")}) as process:
        assert "hush" not in repr(process) + repr(jail) + repr(vars(process))
    jail.close()
