"""Scenes of a `Jail` on macOS, over the calls that `darwin_build` made of Linux.

    python macos_scenes.py FOLDER

FOLDER has the module and in ``bin`` the programs. Prints one JSON object: what each scene found, or
the error that ended it. Run as root it becomes nobody first, once everything is imported.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

NOBODY = 65534
GET_PATH = 50
NOTHING = {"processes": None, "scratch": None}
TERMINAL = "stty size; : >/dev/tty && echo mine"
READS = "read line; echo got $line"
# A process of another session, without its parent, deaf to SIGTERM; macOS has no setsid(1).
LEAVES = (
    'perl -MPOSIX -e \'fork and exit; setsid; $SIG{TERM} = "IGNORE"; $| = 1; print "$$\\n"; '
    "sleep 60' & sleep 0.3; exit 5"
)


def pretend() -> None:
    """Take this system for macOS, as far as the package asks which one it is on.

    What Python has on Linux alone is taken away, and no worker's module is there. The standard library
    has decided before.
    """
    import asyncio
    import fcntl
    import multiprocessing
    import shutil

    assert all((asyncio, multiprocessing, shutil))  # they ask for the system when imported
    sys.platform = "darwin"
    sys.modules["visruntime._viscore"] = None  # type: ignore[assignment]
    for name in ("O_PATH", "O_TMPFILE", "pipe2", "pidfd_open", "memfd_create", "setns"):
        if hasattr(os, name):
            delattr(os, name)
    change_mode = os.chmod

    def chmod(path: Any, mode: int, *, dir_fd: int | None = None, **_: Any) -> None:
        change_mode(path, mode, dir_fd=dir_fd)  # Linux follows a link, and here is none

    vars(os).update(
        chmod=chmod,
        lchflags=lambda *_: None,
        confstr=lambda _: "/tmp",
    )
    # Of Linux, whose fcntl has no F_GETPATH.
    kept = fcntl.fcntl

    def control(descriptor: int, command: int, argument: Any = 0) -> Any:
        if command == GET_PATH:
            return os.fsencode(os.readlink(f"/proc/self/fd/{descriptor}")).ljust(1024, b"\0")
        return kept(descriptor, command, argument)

    vars(fcntl).update(F_GETPATH=GET_PATH, fcntl=control)


def load(folder: str) -> Any:
    """Import the package with the module of macOS in place of that of this system."""
    path = f"{folder}/_visjail.abi3.so"
    spec = importlib.util.spec_from_file_location("visruntime._visjail", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules["visruntime._visjail"] = module
    pretend()
    import visruntime as vr
    from visruntime._host.imports import import_ahead
    from visruntime._jail import macos_open, start_hints, terminal  # noqa: F401
    from visruntime._jail import open as opening

    import_ahead()
    assert vr.Jail is not None
    assert vr.JailPolicy is not None
    assert opening.open_jail.__kwdefaults__ == {
        "config_files": (),
        "implicit_read": (),
        "platform": "darwin",
    }
    # Linux has other names for terminals.
    vars(os)["ttyname"] = lambda _: "/dev/ttys000"
    return vr


class Scenes:
    """Each public method is one scene."""

    def __init__(self, vr: Any, work: Path) -> None:
        self.vr = vr
        self.work = work

    def policy(self, **fields: Any) -> Any:
        """Return a policy without the limits that macOS refuses."""
        limits = fields.pop("limits", {})
        return self.vr.JailPolicy(limits=self.vr.Limits(**NOTHING, **limits), **fields)

    def jail(self, **fields: Any) -> Any:
        """Open a jail."""
        return self.vr.Jail(self.policy(**fields))

    def folder(self, name: str) -> Path:
        """Make a folder for grants."""
        path = self.work / name
        path.mkdir()
        return path

    def refusal(self, act: Callable[[], object]) -> dict[str, Any]:
        """Return what *act* raised."""
        try:
            act()
        except Exception as error:
            found = {"type": type(error).__name__, "text": str(error)}
            return found | {
                name: getattr(error, name) for name in ("stage", "field") if hasattr(error, name)
            }
        return {"type": None}

    # ---- opening ------------------------------------------------------------------

    def report(self) -> Any:
        """Open with a clause of each kind, and show the report and what the profile says."""
        top = self.folder("report")
        (top / "no").mkdir()
        (top / "code").mkdir()
        (top / ".env").write_text("KEY=1\n")
        with self.jail(
            write=[top], deny=[top / "no"], deny_write=[top / "held"], deny_exec=[top / "code"],
            services=["com.example.agent"], host_ports=[5432], limits={"wall_seconds": 9.0},
            env={"A": "b"},
        ) as jail:  # fmt: skip
            handle = jail._handle
            rules = [[kind, path.replace("/private", "")] for kind, path in handle.profile["rules"]]
            return {
                "report": jail.report.to_dict(),
                "rules": rules,
                "top": str(top),
                "own": jail._held.folder.around,
                "held": sorted(handle.profile["held"]),
            }

    def host_code(self) -> Any:
        """Grant a folder with a library that the host has loaded, and one that its loader knows."""
        top = self.folder("code")
        (top / "libraries").mkdir()
        (top / "libloaded.dylib").touch()
        os.environ["DARWIN_IMAGE"] = str(top / "libloaded.dylib")
        os.environ["DYLD_LIBRARY_PATH"] = str(top / "libraries")
        try:
            with self.jail(write=[top]) as jail:
                clauses = [clause.clause for clause in jail.report.clauses]
        finally:
            del os.environ["DARWIN_IMAGE"], os.environ["DYLD_LIBRARY_PATH"]
        return sorted(each.replace(str(top), "TOP") for each in clauses if "protected" in each)

    def leaks(self) -> Any:
        """Open jails whose sandbox lets one act pass."""

        def leak(letter: str) -> dict[str, Any]:
            return self.refusal(lambda: self.jail(services=[f"com.example.leaks-{letter}"]))

        return {letter: leak(letter) for letter in "rwoclnuktdbps"}

    def refused(self) -> Any:
        """Ask for what Seatbelt cannot hold."""
        return [
            self.refusal(lambda: self.vr.Jail(self.vr.JailPolicy())),
            self.refusal(lambda: self.vr.Jail(self.policy(), backend="landlock")),
            self.refusal(lambda: self.jail(services=["com.example.not-compiled"])),
            self.refusal(lambda: self.jail(services=["com.example.no-marker"])),
            self.refusal(lambda: self.jail(read=["/nowhere/at/all"])),
            self.refusal(lambda: self.jail(write=["/tmp"])),
        ]

    def two_spellings(self) -> Any:
        """Grant what macOS spells in two ways."""
        return self.refusal(lambda: self.jail(read=[self.folder("two-spellings")]))

    # ---- running ------------------------------------------------------------------

    def runs(self) -> Any:
        """Run programs, and show what they got and gave."""
        top = self.folder("runs")
        with self.jail(write=[top], env={"A": "b c"}) as jail:
            said = jail.run(
                ["sh", "-c", "pwd; env | sort; cat; echo no >&2; ulimit -c; exit 7"],
                input=b"typed\n",
                cwd=top,
            )
            reader, writer = os.pipe()
            process = jail.spawn(["sh", "-c", "echo passed >&7"], pass_fds={7: writer})
            os.close(writer)
            process.wait()
            passed = os.read(reader, 100).decode()
            os.close(reader)
            (top / "tool").write_text("#!/bin/sh\necho own\n")
            (top / "tool").chmod(0o755)
            return {
                "exit": said.exit_code,
                "out": said.stdout_text.splitlines(),
                "err": said.stderr_text,
                "top": str(top),
                "home": jail._home,
                "passed": passed,
                "relative": jail.run(["./tool"], cwd=top).stdout_text,
                "shell": jail.shell("echo $((6 * 7))").stdout_text,
                "large": len(jail.run(["cat"], input=b"x" * 300_000).stdout),
                "missing": self.refusal(lambda: jail.run(["no-such-program"])),
                "not": self.refusal(lambda: jail.run(["/etc/passwd"])),
                "folder": self.refusal(lambda: jail.run(["true"], cwd="/nowhere")),
                "signal": jail.run(["sh", "-c", "kill -9 $$"]).signal,
            }

    def ends(self) -> Any:
        """End runs in each way that there is, with what they left behind."""
        found: dict[str, Any] = {}
        with self.jail(limits={"wall_seconds": 1.0}) as jail:
            try:
                jail.run(["sh", "-c", "echo begun; sleep 60"], timeout=0.2)
            except self.vr.CommandTimeout as error:
                found["timeout"] = [error.result.stopped_by, error.result.stdout_text]
            began = time.monotonic()
            walled = jail.run(["sleep", "60"])
            found["wall"] = [walled.stopped_by, walled.signal, time.monotonic() - began]
            left = jail.run(["sh", "-c", LEAVES])
            found["left"] = [left.exit_code, left.usage.killed, _lives(int(left.stdout))]
            process = jail.spawn(["sleep", "60"])
            found["running"] = process.poll()
            process.terminate()
            found["terminated"] = [process.wait(), process.stopped_by]
            process = jail.spawn(["sh", "-c", 'trap "" TERM; echo; sleep 60'], stdout=-1)
            process.stdout.readline()
            found["stopped"] = [process.stop(grace=0.1), process.stopped_by]
            process = jail.spawn(["sleep", "0.05"])
            found["late"] = self.refusal(lambda: process.wait(timeout=0.0))["type"]
            import select

            poll = select.poll()
            poll.register(process.fileno(), select.POLLIN)
            found["told"] = len(poll.poll(5000))
            found["ended"] = [process.wait(), process.stopped_by]
        return found

    def terminals(self) -> Any:
        """Give programs terminals."""
        with self.jail() as jail:
            process = jail.spawn(["sh", "-c", TERMINAL], pty=True, rows=30, cols=99)
            plain = process.communicate()[0].split()
            with jail.terminal(["sh", "-c", READS], rows=20, cols=50) as session:
                session.run()
                session.resize(21, 51)
                session.input("word\r")
                result = session.wait(20)
                return {
                    "plain": [each.decode() for each in plain],
                    "exit": result.exit_code,
                    "text": session.text,
                    "preview": session.preview().state,
                }

    # ---- closing ------------------------------------------------------------------

    def closes(self) -> Any:
        """Close a jail with programs in it, and a folder that resists."""
        jail = self.jail()
        top = jail._held.folder.top
        deep = "cd $HOME; i=0; while [ $i -lt 1200 ]; do mkdir d; cd d; i=$((i+1)); done"
        jail.run(["sh", "-c", f"mkdir -p $HOME/a/b; chmod 0 $HOME/a; {deep}"])
        # One of them cannot be reached by any other: it is in a session of its own.
        left = jail.spawn(["sh", "-c", LEAVES.replace("exit 5", "sleep 60")], stdout=-1)
        outside = int(left.stdout.readline())
        if not (child := os.fork()):
            try:
                jail.close()  # lets go, and nothing more
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        alive = [jail.closed, left.poll(), os.path.exists(top)]
        jail.close()
        jail.close()
        return {
            "alive": alive,
            "after": [left.wait(), left.stopped_by, _lives(outside), os.path.exists(top)],
            "run": self.refusal(lambda: jail.run(["true"])),
            "pty": self.refusal(lambda: jail.spawn(["true"], pty=True)),
        }

    def stale(self) -> Any:
        """Leave a jail's folder behind, as a host that is killed does."""
        reader, writer = os.pipe()
        if not (child := os.fork()):
            try:
                jail = self.jail()
                os.write(writer, os.fsencode(jail._held.folder.top))
                time.sleep(60)
            finally:
                os._exit(1)
        os.close(writer)
        top = os.read(reader, 4096).decode()
        with self.jail() as jail:
            kept = os.path.exists(top)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        with self.jail() as jail:
            mine = jail._held.folder.top
        return {"kept": kept, "left": os.path.exists(top), "mine": os.path.exists(mine)}

    def not_built(self) -> Any:
        """Ask for what is refused by name on macOS."""
        with self.jail() as jail:
            process = jail.spawn(["sleep", "60"])
            worker = [
                self.refusal(getattr(self.vr, name))
                for name in ("Runtime", "TrustedRuntime", "RuntimePool", "check_confinement")
            ]
            return [
                self.refusal(jail.processes),
                self.refusal(process.suspend),
                *worker,
            ]

    def doctor(self) -> Any:
        """Ask the doctor, and show what it prints."""
        report = self.vr.doctor()
        return {"data": report.to_dict(), "text": str(report)}

    def files(self) -> Any:
        """Give a program files that the host has opened, one of them closed to it."""
        top = self.folder("files")
        (top / "no").write_text("no\n")
        (top / "yes").write_text("yes\n")
        with (
            self.jail(read=[top], deny=[top / "no"]) as jail,
            open(top / "yes") as given,
            open(top / "no") as closed,
        ):
            return {
                "given": jail.spawn(["cat"], stdin=given, stdout=-1).communicate()[0].decode(),
                "closed": self.refusal(lambda: jail.spawn(["cat"], stdin=closed)),
            }

    def verbs(self) -> Any:
        """Read and write files of a jail from the host."""
        top = self.folder("verbs")
        (top / "link").symlink_to("file")
        os.mkfifo(top / "pipe")
        with self.jail(write=[top], limits={"file_size": 1 << 16}) as jail:
            jail.write_bytes(top / "file", b"some bytes")
            jail.make_dir(top / "made")
            status = jail.stat(top / "file")
            found = {
                "read": jail.read_bytes(top / "file").decode(),
                "status": [status.size, status.links, abs(status.modified - time.time()) < 60],
                "names": jail.list_dir(top),
                "real": jail.realpath(top / "link") == os.path.realpath(top / "file"),
                "home": jail.list_dir(jail._home),
                "link": self.refusal(lambda: jail.read_bytes(top / "link")),
                "pipe": self.refusal(lambda: jail.read_bytes(top / "pipe")),
                "folder": self.refusal(lambda: jail.read_bytes(top)),
                "missing": [jail.exists(top / "none"), jail.exists(top / "file")],
                "long": self.refusal(lambda: jail.read_bytes(top / "file", max_bytes=3)),
                "large": self.refusal(lambda: jail.write_bytes(top / "big", b"x" * (1 << 17))),
            }
            for name in ("made", "file"):
                jail.remove(top / name)
            found["left"] = sorted(os.listdir(top))
            found["gone"] = self.refusal(lambda: jail.remove(top / "file"))
            return found

    def names(self) -> Any:
        """Ask for every public name, and show those that are not there."""
        asked = {name: self.refusal(partial(getattr, self.vr, name)) for name in self.vr.__all__}
        return {name: found for name, found in asked.items() if found["type"]}

    def in_a_sandbox(self) -> Any:
        """Open a jail from within a sandbox: here, below a mark."""
        import resource

        reader, writer = os.pipe()
        if not (child := os.fork()):
            try:
                resource.setrlimit(resource.RLIMIT_MSGQUEUE, (5, 5))
                os.write(writer, json.dumps(self.refusal(self.jail)).encode())
            finally:
                os._exit(0)
        os.close(writer)
        os.waitpid(child, 0)
        return json.loads(os.read(reader, 65536))


def _lives(process: int) -> bool:
    status = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(process)], capture_output=True, text=True, check=False
    ).stdout.strip()
    return bool(status) and not status.startswith("Z")


def main() -> int:
    """Play every scene."""
    vr = load(sys.argv[1])
    found: dict[str, Any] = {}
    if not os.geteuid():
        found["root"] = Scenes(vr, Path("/")).refusal(lambda: vr.Jail(vr.JailPolicy(
            limits=vr.Limits(**NOTHING))))  # fmt: skip
        os.chdir("/")
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    with tempfile.TemporaryDirectory(prefix="vj") as work:
        scenes = Scenes(vr, Path(os.path.realpath(work)))
        kept = {"policy", "jail", "folder", "refusal"}
        names = [name for name in vars(Scenes) if not name.startswith("_") and name not in kept]
        for name in names:
            try:
                found[name] = getattr(scenes, name)()
            except Exception:
                found[name] = {"error": traceback.format_exc()}
    sys.stdout.write(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
