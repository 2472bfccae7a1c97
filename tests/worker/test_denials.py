"""The audit hook of jailed workers explains what the kernel refuses, and refuses nothing else."""

from __future__ import annotations

import errno
import os
import pickle
import time
from typing import TYPE_CHECKING, Any

import pytest
from runtime_helpers import WORKER_PYTHONS, not_granted

from visruntime._native import encode
from visruntime.denials import Denial, Denials
from visruntime.errors import GuestError, ProtocolViolation, WorkerDied
from visruntime.policy import JailPolicy
from visruntime.results import RunResult
from visruntime.runtime import Runtime, TrustedRuntime

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.one_uid

SEEN = """
def seen(act, *arguments):
    try:
        act(*arguments)
    except OSError as error:
        kinds = (PermissionError, FileNotFoundError)
        return (error.errno, [k.__name__ for k in kinds if isinstance(error, k)], str(error))
    return None
"""


def ran(runtime: Any, code: str, **inputs: Any) -> Any:
    """Run *code* with paths as text, and return the result untyped."""
    return runtime.run(code, inputs={name: str(value) for name, value in inputs.items()})


class Place:
    """A worker with a read grant, a write grant and a deny in it."""

    def __init__(self, top: Path, python: str | None = None) -> None:
        self.read, self.write = top / "read", top / "write"
        self.denied = self.write / "denied"
        for folder in (self.read, self.write):
            folder.mkdir()
        for file in (self.read / "file", self.denied):
            file.write_text("x")
        policy = JailPolicy(read=[str(self.read)], write=[str(self.write)], deny=[str(self.denied)])
        self.runtime = Runtime(policy, python=python)
        self.runtime.exec(SEEN)

    def run(self, code: str, **inputs: Any) -> Any:
        """Run *code* with paths as text."""
        return ran(self.runtime, code, **inputs)


@pytest.fixture
def place(workspace: Path) -> Iterator[Place]:
    """Return such a worker with the host's interpreter."""
    made = Place(workspace)
    with made.runtime:
        yield made


@pytest.fixture(params=WORKER_PYTHONS)
def any_place(request: pytest.FixtureRequest, workspace: Path) -> Iterator[Place]:
    """Return one with each interpreter of this machine that can be a worker."""
    made = Place(workspace, request.param)
    with made.runtime:
        yield made


def test_a_refusal_names_rule_path_grant_and_line(any_place: Place) -> None:
    """A guest must learn which rule refused what, and the host at which line, on each version."""
    target = not_granted()
    result = any_place.run("import pathlib\n\npathlib.Path(target).read_text()", target=target)
    assert result.error.type_name == "PermissionError"
    assert f"read of {target} is not granted (rule: none; add --read {target})" in (
        result.error.message
    )
    (denial,) = result.denials
    assert (denial.event, denial.right, denial.path) == ("open", "read", target)
    assert (denial.rule, denial.errno) == ("", errno.ENOENT)
    assert (denial.file, denial.line) == (result.error.frames[0].file, 3)
    assert denial.violation.grant.cli == f"--read {target}"
    assert result.violations.count(denial.violation) == 1
    assert denial.violation.confidence == "hint"

    result = any_place.run("open(target)", target=any_place.denied)
    assert "(rule: deny[0]; only removing that rule allows it)" in result.error.message
    assert (result.error.errno, result.denials[0].rule) == (errno.EACCES, "deny[0]")

    result = any_place.run("open(target, 'a')", target=any_place.read / "file")
    assert f"(rule: read[0]; add --write {any_place.read}/file)" in result.error.message
    assert (result.error.errno, result.denials[0].right) == (errno.EROFS, "write")


def test_what_is_missing_is_still_missing_for_a_guest_that_asks(place: Place) -> None:
    """A program that goes on without a file must go on: FileNotFoundError, and its errno."""
    code = (
        "found = None\n"
        "try: open(target)\n"
        "except FileNotFoundError as error: found = error\n"
        "import pickle\n"
        "[*seen(open, target), pickle.dumps(found)]"
    )
    number, kinds, _, pickled = place.run(code, target=not_granted()).value
    assert (number, kinds) == (errno.ENOENT, ["PermissionError", "FileNotFoundError"])
    copy = pickle.loads(pickled)
    assert (type(copy), copy.errno) == (PermissionError, errno.ENOENT)
    # In the jail's own places the policy grants everything: nothing is explained there.
    result = place.run("seen(open, '/tmp/missing')")
    assert result.value[:2] == (errno.ENOENT, ["FileNotFoundError"])
    assert result.denials == ()


def test_nothing_is_refused_that_the_kernel_allows(place: Place) -> None:
    """A link, a folder above a grant, an opener and a dir_fd must work as without the hook."""
    code = """
import os
os.symlink(granted, "/tmp/link")
os.mkdir("/tmp/deep"); os.symlink(folder, "/tmp/deep/away")
def by_descriptor(path):
    top = os.open(folder, os.O_RDONLY)
    os.chdir("/tmp/deep")
    try: os.close(os.open("file", os.O_RDONLY, dir_fd=top))
    finally: os.close(top); os.chdir("/")
def by_opener(path):
    open(path, opener=lambda _, flags: os.open(granted, flags)).close()
def closed(path): open(path).close()
def handle(path): os.close(os.open(path, os.O_PATH))
[seen(handle, "/"), seen(handle, denied), seen(closed, "/tmp/link"),
 seen(closed, "/tmp/deep/away/file"), seen(by_descriptor, ""),
 seen(by_opener, "/srv/not/there"), seen(os.listdir, parent),
 seen(closed, "/proc/self/status"), seen(closed, "/dev/null")]
"""
    result = place.run(
        code,
        granted=place.read / "file",
        denied=place.denied,
        folder=place.read,
        parent=place.read.parent,
    )
    assert result.value == [None] * 9
    assert result.denials == ()


def test_other_ways_to_a_name_are_explained(place: Place) -> None:
    """Listing, making and removing must be explained too, with the kernel's own errno."""
    hidden = os.path.dirname(not_granted())
    code = """
import os
[seen(os.mkdir, f"{read}/new"), seen(os.remove, f"{read}/file"), seen(os.symlink, "x", f"{read}/l"),
 seen(os.mkdir, f"{read}/file"), seen(os.rmdir, f"{read}/none")]
"""
    result = place.run(code, read=place.read, hidden=hidden)
    numbers = [found[0] for found in result.value]
    assert numbers[:3] == [errno.EROFS] * 3
    # The kernel's own answers where the name itself is the reason.
    assert numbers[3] == errno.EEXIST
    assert numbers[4] in (errno.ENOENT, errno.EROFS)
    assert [d.event for d in result.denials] == ["os.mkdir", "os.remove", "os.symlink"]
    assert {d.rule for d in result.denials} == {"read[0]"}


def test_a_path_with_a_lone_surrogate_gets_nowhere(place: Place) -> None:
    """What has no bytes must be refused, and what has some must be judged by them."""
    target = not_granted()
    assert place.run("open('\\ud800')").error.type_name == "UnicodeEncodeError"
    result = place.run("open('/tmp/\\udcff/../..' + target)", target=target)
    assert f"read of {target} is not granted" in result.error.message
    assert result.denials[0].path == target


def test_the_denials_of_sub_interpreters_are_seen(any_place: Place) -> None:
    """A guest must not escape the hook by an interpreter of its own."""
    code = (
        "try: import _interpreters as i; run = i.exec\n"
        "except ImportError: import _xxsubinterpreters as i; run = i.run_string\n"
        "one = i.create()\n"
        "try: run(one, 'open(%r)' % target)\n"
        "except Exception: pass"
    )
    target = not_granted()
    result = any_place.run(code, target=target)
    assert result.error is None
    assert [(d.path, d.line) for d in result.denials] == [(target, 1)]


def test_what_the_worker_does_itself_has_no_line_of_the_guest(place: Place) -> None:
    """A denial must not blame the runtime's own code, nor the first run for the start-up files."""
    assert place.run("1").denials == ()
    with pytest.raises(GuestError) as caught:
        place.runtime.call("open", not_granted())
    assert isinstance(caught.value.result, RunResult)
    (denial,) = caught.value.result.denials
    assert (denial.path, denial.file, denial.line) == (not_granted(), "", 0)
    # Of a thread that runs nothing but the library, that is the line.
    code = "import threading\nt = threading.Thread(target=open, args=(path,))\nt.start(); t.join()"
    (denial,) = place.run(code, path=not_granted()).denials
    assert denial.file.endswith("threading.py")


def test_many_denials_are_kept_to_a_bound(place: Place) -> None:
    """A guest that is refused without end must not grow its reply, and what is left out counts."""
    code = "for n in range(250): seen(open, f'/srv/{n}')"
    result = place.run(code)
    assert (len(result.denials), result.denials_dropped) == (100, 150)
    assert len(result.violations) == 50
    assert place.run("1").denials == ()


def test_a_worker_without_a_jail_refuses_nothing() -> None:
    """Where no policy is, the hook has nothing to say."""
    with TrustedRuntime() as runtime:
        result = ran(runtime, "open('/srv/missing')")
    assert (result.error.type_name, result.denials) == ("FileNotFoundError", ())


# ---- machine code, processes, ctypes -----------------------------------------------------

LOAD = """
import importlib.machinery as machinery, importlib.util as util, glob, os, shutil, sys
place = os.path.dirname(util.find_spec("_ctypes").origin)
name = next(n for n in sorted(os.listdir(place)) if n.startswith(("_json.", "_heapq.", "mmap.")))
copy = f"{folder}/{name}"
shutil.copy(f"{place}/{name}", copy)
def load(path):
    module = os.path.basename(path).split(".")[0]
    spec = util.spec_from_file_location(module, path)
    return util.module_from_spec(spec).__name__
load(f"{place}/{name}")
"""


def test_machine_code_from_a_writable_place_is_refused(any_place: Place) -> None:
    """A module that the guest can write must not be loaded, by import or by ctypes."""
    original = any_place.run(LOAD, folder=any_place.write)
    assert original.error is None
    for code, kind in (("load(copy)", "ImportError"), ("import ctypes; ctypes.CDLL(copy)", "P")):
        result = any_place.run(code)
        assert result.error.type_name.startswith(kind)
        assert 'native_modules="read-only"' in result.error.message
        assert (result.denials[0].right, result.denials[0].path) == (
            "native code",
            str(next(any_place.write.glob("*.so"))),
        )
    # By a link in a read-only place too, and from memory.
    (any_place.read / "m.so").symlink_to(next(any_place.write.glob("*.so")))
    assert any_place.run("ctypes.CDLL(f'{read}/m.so')", read=any_place.read).denials
    code = (
        "m = os.memfd_create('m'); os.write(m, open(copy, 'rb').read())\n"
        "ctypes.CDLL(f'/proc/self/fd/{m}')"
    )
    assert any_place.run(code).denials[0].right == "native code"


def test_machine_code_from_anywhere_is_the_owners_choice(workspace: Path) -> None:
    """The control: with the option off the same module loads."""
    policy = JailPolicy(write=[str(workspace)])
    with Runtime(policy, native_modules="anywhere") as runtime:
        result = runtime.run(LOAD + "load(copy)", inputs={"folder": str(workspace)})
        assert result.error is None
        assert runtime.run("import ctypes; ctypes.CDLL(copy)").error is None
    with pytest.raises(ValueError, match="native_modules"):
        Runtime(policy, native_modules="nowhere")  # type: ignore[arg-type]


START = """
import ctypes, os, subprocess, _posixsubprocess
libc = ctypes.CDLL(None, use_errno=True)
def raw():
    child = libc.fork()
    if child == 0: os._exit(0)
    if child < 0: raise OSError(ctypes.get_errno(), "fork")
    os.waitpid(child, 0)
def spawn(): os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)
def forked():
    child = os.fork()
    if child == 0: os._exit(0)
    os.waitpid(child, 0)
acts = dict(
    raw=raw, spawn=spawn, fork=forked,
    run=lambda: subprocess.run(["/bin/true"], check=True),
    system=lambda: os.system("true") and 1 / 0,
)
{name: (seen(act) or [0])[0] for name, act in acts.items()}
"""
IMMEDIATE = ("raw", "spawn", "fork", "run", "system")


@pytest.mark.parametrize("python", WORKER_PYTHONS)
def test_processes_can_be_refused_by_the_kernel(python: str | None) -> None:
    """A worker that is to start nothing must not, whichever way; by default it may."""
    with Runtime(JailPolicy(), python=python) as runtime:
        runtime.exec(SEEN)
        assert runtime.run(START).value == dict.fromkeys(IMMEDIATE, 0)
    with Runtime(JailPolicy(), python=python, processes=False) as runtime:
        runtime.exec(SEEN)
        result = runtime.run(START)
        assert result.value == dict.fromkeys(IMMEDIATE, errno.EPERM)
        # The raw call meets only the kernel; the others are explained as well.
        assert {d.rule for d in result.denials} == {"processes=False"}
        assert result.report.mechanisms("processes=False") == ("seccomp in the worker",)
        held = {c.name: c.held for c in result.report.canaries}
        assert held["fork the worker"]
        # The function behind subprocess stays replaced in a module that is made anew.
        remade = ran(
            runtime,
            "import sys, importlib\ndel sys.modules['_posixsubprocess']\n"
            "import _posixsubprocess as new\nnew.fork_exec()",
        )
        assert remade.error.type_name == "PermissionError"
        assert "processes=False" in remade.error.message
        # Threads and asyncio go on.
        code = "import threading, asyncio\nt = threading.Thread(target=print); t.start(); t.join()"
        assert runtime.run(code).error is None
        assert runtime.eval("await asyncio.to_thread(len, 'abc')") == 3
        text = ran(runtime, "subprocess.run(['true'])").error.message
        assert "starting a process is refused (rule: processes=False)" in text


def test_other_runs_of_the_jail_are_not_under_the_filter_of_a_worker() -> None:
    """The filter must hold for the worker, not for what the host runs in the same jail."""
    with Runtime(JailPolicy(), processes=False) as runtime:
        assert ran(runtime, "import os; os.fork()").error.errno == errno.EPERM
        done = runtime._jail.run(["sh", "-c", "true; echo ran"])
    assert done.stdout == b"ran\n"


@pytest.mark.parametrize("python", WORKER_PYTHONS)
def test_ctypes_can_be_left_out(python: str | None) -> None:
    """A guest that is to have no ctypes must get an ImportError that says so."""
    with Runtime(JailPolicy(), python=python, ctypes=False) as runtime:
        result = ran(runtime, "import ctypes")
        assert result.error.type_name == "ImportError"
        assert "ctypes=False" in result.error.message
        assert result.denials[0].right == "module"
        (clause,) = [c for c in result.report.clauses if c.clause == "ctypes=False"]
        assert clause.mechanisms == ("audit hook",)
        assert "no wall" in clause.note
    with pytest.raises(TypeError, match="ctypes"):
        Runtime(JailPolicy(), ctypes="no")  # type: ignore[arg-type]


# ---- what the host takes -----------------------------------------------------------------

GOOD = ("open", "read", "deny[0]", "/x", 2, "f", 1)


@pytest.mark.parametrize(
    "claim",
    [
        [],
        ([GOOD],),
        ([GOOD] * 101, 0),
        ([GOOD], -1),
        ([GOOD], 2**64),
        ([GOOD[:6]], 0),
        ([list(GOOD)], 0),
        ([("x" * 65, *GOOD[1:])], 0),
        ([(*GOOD[:3], "/" * 4097, *GOOD[4:])], 0),
        ([(*GOOD[:4], 2**31, *GOOD[5:])], 0),
        ([(*GOOD[:6], "1")], 0),
    ],
)
def test_a_forged_denial_is_a_violation_of_the_protocol(claim: object) -> None:
    """A worker must not make the host keep what is no denial, or too much."""
    assert Denials().all(([GOOD], 3))[1] == 3
    with pytest.raises(ProtocolViolation, match="denial"):
        Denials().all(claim)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\1\1",
        encode({}),
        encode({"denial": [*GOOD]}),
        encode({"denial": GOOD[:6]}),
        encode({"denial": (*GOOD[:3], "/" * 4097, *GOOD[4:])}),
        encode({"denial": ({1: 2}, *GOOD[1:])}),
        encode({"denial": GOOD, "more": list(range(30))}),
    ],
)
def test_a_forged_denial_frame_is_a_violation_of_the_protocol(payload: bytes) -> None:
    """What comes during a run is checked as what comes at its end."""
    denials = Denials()
    assert denials.add(encode({"denial": GOOD})) is not None
    with pytest.raises(ProtocolViolation, match="denial"):
        denials.add(payload)


def test_denials_are_bounded_however_they_come() -> None:
    """A worker that tells of very many must make the host keep no more than its bound."""
    denials = Denials()
    told = [denials.add(encode({"denial": GOOD})) for _ in range(130)]
    assert [one is None for one in told] == [False] * 100 + [True] * 30
    kept, dropped = denials.all(([GOOD] * 5, 2))
    assert (len(kept), dropped, denials.told) == (100, 37, 100)


# ---- while the run goes on ---------------------------------------------------------------


def test_a_denial_is_an_event_while_the_run_goes_on(place: Place) -> None:
    """A watcher must not wait for the end of a run to learn of a refusal, in whatever thread."""
    run = place.runtime.start(
        "import threading, time\n"
        "def other():\n"
        "    seen(open, '/srv/\\udcff\u00e9')\n"
        "print('before')\n"
        "seen(open, path)\n"
        "time.sleep(.3)\n"
        "thread = threading.Thread(target=other)\n"
        "thread.start()\n"
        "time.sleep(.5)\n"
        "thread.join()",
        inputs={"path": str(place.denied)},
    )
    events = list(run)
    assert [event.kind for event in events] == ["stdout", "denial", "denial", "result"]
    first, second = events[1].data, events[2].data
    assert (first.rule, first.path, first.line) == ("deny[0]", str(place.denied), 4)
    assert (second.path, second.right) == ("/srv/\udcff\u00e9", "read")
    assert events[2].time - events[1].time > 0.2
    assert events[3].time - events[2].time > 0.3
    assert run.result().denials == (first, second)
    assert place.run("1").denials == ()


def test_denials_of_one_run_are_bounded(place: Place) -> None:
    """A guest that is refused without end must neither fill the host nor its own process."""
    run = place.runtime.start(
        "for n in range(350): seen(open, path)", inputs={"path": str(place.denied)}
    )
    events = [event.kind for event in run]
    assert events == ["denial"] * 100 + ["result"]
    result = run.result()
    assert (len(result.denials), result.denials_dropped) == (100, 250)
    assert len(place.run("seen(open, path)", path=place.denied).denials) == 1


def test_what_was_told_outlives_the_worker(place: Place) -> None:
    """A worker that ends must not take with it what it had told."""
    with pytest.raises(WorkerDied) as death:
        place.run("import os\nseen(open, path)\nos._exit(3)", path=place.denied)
    (denial,) = death.value.result.denials
    assert denial.path == str(place.denied)


def test_refusals_between_two_runs_come_with_the_next(place: Place) -> None:
    """A thread that is refused while nothing runs must not break the protocol, nor be forgotten."""
    place.run(
        "import threading, time\n"
        "def later():\n"
        "    time.sleep(.3)\n"
        "    seen(open, path)\n"
        "threading.Thread(target=later).start()",
        path=place.denied,
    )
    time.sleep(0.8)
    place.runtime.expose("f", lambda: 1)  # in which every frame but the reply is a violation
    (denial,) = place.run("1").denials
    assert denial.path == str(place.denied)


def test_refusals_and_calls_of_many_threads_do_not_mix(place: Place) -> None:
    """Frames of two threads must stay whole and in order, whoever writes them."""
    place.runtime.expose("twice", lambda n: 2 * n)
    result = place.run(
        "import threading\n"
        "sums = []\n"
        "def work():\n"
        "    for n in range(40):\n"
        "        seen(open, path)\n"
        "        sums.append(twice(n))\n"
        "threads = [threading.Thread(target=work) for _ in range(4)]\n"
        "for t in threads: t.start()\n"
        "work()\n"
        "for t in threads: t.join()\n"
        "sum(sums)",
        path=place.denied,
    )
    assert result.value == 5 * 2 * sum(range(40))
    assert (len(result.denials), result.denials_dropped) == (100, 100)


def test_a_claimed_denial_is_only_a_hint() -> None:
    """A guest that claims a denial of what the policy allows must get no violation for it."""
    with Runtime(JailPolicy()) as runtime:
        explain = runtime._explain_act
        allowed = Denial(("open", "read", "deny[0]", "/usr/bin/env", 13, "f", 1), explain)
        refused = Denial(("open", "read", "none", "/srv/\x1b[2J", 13, "f\x07", 1), explain)
    assert allowed.violation is None
    assert refused.violation is not None
    assert refused.violation.confidence == "hint"
    assert "\x1b" not in str(refused)
    assert "\x07" not in str(refused)
    assert refused.to_dict()["violation"]["kind"] == "read"
