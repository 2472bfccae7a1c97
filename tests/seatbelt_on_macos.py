"""What only a Mac can show: the real sandbox, asked the same questions as the model.

    python tests/seatbelt_on_macos.py OUT

OUT is a folder that `scripts/build_macos.py` filled. Each act is tried without a jail, where it
must succeed, and in a jail, where its errno must be what the model of the profile says: 0 or
EPERM. What is not known beforehand is printed as a note. Ends with 1 if anything differs.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from seatbelt_model import Profile

if TYPE_CHECKING:
    from collections.abc import Iterator

TIMEOUT = 60


class Probe(NamedTuple):
    """One act, and the operations that the kernel asks about for it, each with its facts."""

    act: tuple[str, ...]
    asks: tuple[tuple[str, dict[str, Any]], ...]

    def allowed_by(self, profile: Profile) -> bool:
        """Return what the model says."""
        return all(profile.decides(operation, **facts) for operation, facts in self.asks)


def _on(operation: str, path: str) -> tuple[str, dict[str, Any]]:
    return operation, {"path": path}


class Scene:
    """Files, sockets and ports that acts are about, made anew for each side."""

    def __init__(self, top: Path, tool: str) -> None:
        self.top = top
        self.sockets: list[socket.socket] = []
        for name in (
            "w/no/yes",
            "w/ro",
            "w/nw",
            "w/bin",
            "w/deep/er/no",
            "w/.git",
            "r",
            "o",
            "own",
        ):
            (top / name).mkdir(parents=True)
        for name in (
            *("w/file", "w/gone", "w/no/secret", "w/no/gone", "w/no/yes/file", "w/ro/file"),
            *(
                "w/ro/gone",
                "w/nw/file",
                "w/deep/er/no/secret",
                "w/deep/er/file",
                "r/file",
                "o/file",
            ),
        ):
            (top / name).write_text("x\n")
        for name in ("w/tool", "w/bin/tool", "o/tool"):
            shutil.copy2(tool, top / name)
        for name in ("granted.sock", "other.sock"):
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(str(top / name))
            self._listen(listener)
        self.ports = []
        for _ in range(2):
            listener = socket.socket()
            listener.bind(("127.0.0.1", 0))
            self.ports.append(listener.getsockname()[1])
            self._listen(listener)

    def _listen(self, listener: socket.socket) -> None:
        listener.listen(16)
        self.sockets.append(listener)

    def close(self) -> None:
        """Take everything away."""
        for listener in self.sockets:
            listener.close()
        shutil.rmtree(self.top, ignore_errors=True)

    def policy(self) -> list[str]:
        """Return the lines of the policy that the probes are about."""
        top = self.top
        return [
            *(f"write\t{top}/{name}" for name in ("w", "w/no/yes")),
            *(f"read\t{top}/{name}" for name in ("r", "w/ro")),
            *(f"deny\t{top}/{name}" for name in ("w/no", "w/deep/er/no")),
            f"deny_write\t{top}/w/nw",
            f"deny_exec\t{top}/w/bin",
            f"held\t{top}/w/.git/hooks",
            "ignores-case",
            "system",
            f"own\t{top}/own",
            f"socket\t{top}/granted.sock",
            f"port\t{self.ports[0]}",
        ]

    def probes(self) -> list[Probe]:
        """Return the acts, in an order in which each finds what it is about."""
        return [*self._files(), *self._moves(), *self._programs(), *self._network()]

    def _on(self, word: str, operation: str, *names: str) -> list[Probe]:
        return [
            Probe((word, f"{self.top}/{name}"), ((operation, {"path": f"{self.top}/{name}"}),))
            for name in names
        ]

    def _files(self) -> list[Probe]:
        files = (
            "w/file",
            "w/no/secret",
            "w/no/yes/file",
            "w/ro/file",
            "w/nw/file",
            "r/file",
            "o/file",
        )
        new = ("w/new", "w/no/new", "w/no/yes/new", "w/ro/new", "w/nw/new", "r/new", "o/new")
        return [
            *self._on("read", "file-read-data", *files, "w/deep/er/no/secret"),
            *self._on("look", "file-read-metadata", *files, "w", "w/no", "o"),
            *self._on("write", "file-write-data", *files),
            *self._on("create", "file-write-create", *new),
            *self._on("folder", "file-write-create", "w/made", "w/ro/made", "o/made"),
            *self._on("folder", "file-write-create", "w/.git/HOOKS"),
            *self._on("remove", "file-write-unlink", "w/gone", "w/no/gone", "w/ro/gone"),
        ]

    def _moves(self) -> list[Probe]:
        found = []
        for name in (
            "w/file",
            "w/deep/er/file",
            "w/deep/er/no",
            "w/deep/er",
            "w/deep",
            "w/no",
            "w/ro",
            "w/bin",
        ):
            source, target = f"{self.top}/{name}", f"{self.top}/w/moved"
            asks = (_on("file-write-unlink", source), _on("file-write-create", target))
            found.append(Probe(("move", source, target), asks))
        source, target = f"{self.top}/r/file", f"{self.top}/w/linked"
        asks = (_on("file-link", source), _on("file-write-create", target))
        return [*found, Probe(("link", source, target), asks)]

    def _programs(self) -> list[Probe]:
        set_id = ("mode", f"{self.top}/w/file", "4700")
        return [
            *self._on("execute", "process-exec", "w/tool", "w/bin/tool", "o/tool"),
            Probe(set_id, (_on("file-write-setugid", set_id[1]),)),
            Probe(("signal", str(os.getpid())), (("signal", {"target": "others"}),)),
            Probe(
                ("memory", "/vj-probe"), (("ipc-posix-shm-write-create", {"name": "/vj-probe"}),)
            ),
        ]

    def _network(self) -> list[Probe]:
        host = "127.0.0.1"
        return [
            *self._on("connect-unix", "network-outbound", "granted.sock", "other.sock"),
            *self._on("bind-unix", "network-bind", "own/a.sock", "w/b.sock"),
            *(
                Probe(
                    (f"connect-{kind}", host, str(port)),
                    (
                        ("system-socket", {"domain": "AF_INET"}),
                        ("network-outbound", {"remote": (kind, host, port)}),
                    ),
                )
                for kind, port in (
                    ("tcp", self.ports[0]),
                    ("tcp", self.ports[1]),
                    ("udp", self.ports[0]),
                )
            ),
            Probe(("bind-tcp", host, "0"), (("network-bind", {"local": ("tcp", host, 0)}),)),
        ]


def lines_of(probes: list[Probe]) -> bytes:
    """Return the input of the program that tries acts."""
    return "".join("\t".join(probe.act) + "\n" for probe in probes).encode()


def answers_of(command: list[str], probes: list[Probe]) -> list[int]:
    """Run *command*, which tries acts, and return the errno of each."""
    done = subprocess.run(
        command, input=lines_of(probes), stdout=subprocess.PIPE, check=True, timeout=TIMEOUT
    )
    answers = [int(line) for line in done.stdout.split()]
    assert len(answers) == len(probes), f"{len(answers)} answers to {len(probes)} acts"
    return answers


@contextlib.contextmanager
def scene(tool: str, parent: Path | None = None) -> Iterator[Scene]:
    """Make a scene in a folder with a short name that no link leads to."""
    top = Path(tempfile.mkdtemp(prefix="vj", dir=parent or Path.home())).resolve()
    made = Scene(top, tool)
    try:
        yield made
    finally:
        made.close()


def control(tool: str, command: list[str], parent: Path | None = None) -> list[str]:
    """Try every act without a jail; return those that do not succeed there."""
    with scene(tool, parent) as here:
        probes = here.probes()
        answers = answers_of(command, probes)
    return [
        f"{' '.join(probe.act)}: {errno.errorcode.get(code, code)} without a jail"
        for probe, code in zip(probes, answers, strict=True)
        if code
    ]


class Runner:
    """The programs of a build, and what was found with them."""

    def __init__(self, out: Path) -> None:
        self.probe = str(out / "macos-probe")
        self.parts = [
            f"helper\t{out}/visjail-macos-init",
            f"watcher\t{out}/visjail-macos-watch",
            f"read\t{out}/macos-probe",
        ]
        self.found: list[str] = []
        self.work = Path(tempfile.mkdtemp(prefix="vjp")).resolve()

    def file(self, lines: list[str]) -> str:
        """Write a policy, with what starts the probe itself in it."""
        path = self.work / f"policy-{time.monotonic_ns()}"
        path.write_text("".join(f"{line}\n" for line in (*lines, *self.parts)))
        return str(path)

    def profile(self, policy: str) -> Profile:
        """Return the profile of a policy, read by the model."""
        text = subprocess.run(
            [self.probe, "profile", policy], stdout=subprocess.PIPE, check=True, timeout=TIMEOUT
        ).stdout.decode()
        pairs = [line[2:].split(" = ", 1) for line in text.splitlines() if line.startswith("; P")]
        return Profile(text, dict(pairs))

    def run(self, policy: str, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in a jail."""
        return subprocess.run(
            [self.probe, "run", policy, *command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT,
        )

    def expect(self, what: str, *, holds: bool, said: object = "") -> None:
        """Print what was tried, and remember what did not hold."""
        print("ok     " if holds else "FAILED ", what, "" if holds else said)
        if not holds:
            self.found.append(what)

    def compare(self) -> None:
        """Compare model and kernel, act by act."""
        for line in control(self.probe, [self.probe, "acts"]):
            self.expect(line, holds=False)
        with scene(self.probe) as here:
            canary = here.top / "o" / "file"
            policy = self.file([*here.policy(), f"canary\t{canary}"])
            profile, probes = self.profile(policy), here.probes()
            self.expect("the profile has no findings", holds=not profile.findings,
                        said=profile.findings)  # fmt: skip
            answers = answers_of([self.probe, "run", policy, self.probe, "acts"], probes)
        for probe, code in zip(probes, answers, strict=True):
            wanted = 0 if probe.allowed_by(profile) else errno.EPERM
            self.expect(f"{' '.join(probe.act)}: {wanted}", holds=code == wanted, said=f"is {code}")

    def ends(self) -> None:
        """End a jail with a process that left its parent, its group and its session."""
        policy = self.file(["system"])
        done = subprocess.run(
            [self.probe, "end", policy, self.probe, "leave"],
            stdout=subprocess.PIPE,
            text=True,
            check=False,
            timeout=TIMEOUT,
        )
        process, _, left = done.stdout.partition("\n")
        alive = True
        try:
            os.kill(int(process), 0)
        except ProcessLookupError:
            alive = False
        except ValueError:
            pass
        self.expect("nobody is left", holds=left.strip() == "left 0" and not alive, said=done)
        if alive and process.isdigit():
            os.kill(int(process), signal.SIGKILL)

    def outlives_nothing(self) -> None:
        """A host that is killed takes its jails along, whoever left whom in them."""
        host = subprocess.Popen(
            [self.probe, "run", self.file(["system"]), self.probe, "leave"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert host.stdout is not None
        left = int(host.stdout.readline())
        os.kill(left, 0)
        host.kill()
        host.wait(TIMEOUT)
        until = time.monotonic() + 1
        alive = True
        while alive and time.monotonic() < until:
            time.sleep(0.02)
            try:
                os.kill(left, 0)
            except ProcessLookupError:
                alive = False
        self.expect("nothing outlives a killed host", holds=not alive)
        if alive:
            os.kill(left, signal.SIGKILL)

    def nested(self) -> None:
        """In a sandbox of somebody else's nothing is started, and that is said."""
        policy = self.file(["system"])
        around = ["/usr/bin/sandbox-exec", "-p", "(version 1)(allow default)"]
        for command, wanted in (
            ([self.probe, "where"], "in no sandbox"),
            ([*around, self.probe, "where"], "in a sandbox"),
            ([*around, self.probe, "run", policy, "/usr/bin/true"], "sandbox around the host"),
        ):
            done = subprocess.run(
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
                timeout=TIMEOUT,
                env={"APP_SANDBOX_CONTAINER_ID": "x", "SANDBOX": "x"},
            )
            self.expect(f"nested: {wanted}", holds=wanted in done.stdout, said=done.stdout)

    def programs(self) -> None:
        """Ordinary programs work: Python, git and the shell, each with what it needs."""
        with scene(self.probe) as here:
            home = f"variable\tHOME={here.top}/own"
            temporary = f"variable\tTMPDIR={here.top}/own"
            base = [*here.policy(), "python", "git", home, temporary, f"directory\t{here.top}/w"]
            base += ["variable\tPATH=/usr/bin:/bin", "variable\tPYTHONDONTWRITEBYTECODE=1"]
            prefixes = {sys.prefix, sys.base_prefix, str(Path(sys.executable).resolve().parent)}
            policy = self.file([*base, *(f"read\t{os.path.realpath(path)}" for path in prefixes)])
            python = os.path.realpath(sys.executable)
            code = (
                "import asyncio, multiprocessing, sqlite3, ssl, os\n"
                "multiprocessing.Lock()\n"
                "asyncio.run(asyncio.sleep(0))\n"
                "sqlite3.connect('x.db').execute('create table t (a)')\n"
                "ssl.create_default_context()\n"
                "os.openpty()\n"
                "print(6 * 7)\n"
            )
            done = self.run(policy, python, "-I", "-c", code)
            self.expect("Python works", holds=done.stdout == "42\n", said=done)
            self._git(base)
            done = self.run(policy, "/bin/sh", "-c", "exit 7")
            self.expect("an exit code comes through", holds=done.returncode == 7, said=done)
            done = self.run(policy, "/bin/sh", "-c", "ulimit -n; ulimit -c")
            self.expect("limits hold", holds=done.stdout.split() == ["64", "0"], said=done)
            self._terminal(policy)
            done = self.run(policy, "/nowhere/program")
            self.expect("a program that is not there", holds="execute" in done.stderr, said=done)
            opened = self.file([*base, f"canary\t{here.top}/w/file"])
            done = self.run(opened, "/usr/bin/true")
            self.expect("a canary that is not held", holds="canaries" in done.stderr, said=done)

    def _terminal(self, policy: str) -> None:
        code = "stty size; : >/dev/tty && echo mine"
        done = subprocess.run(
            [self.probe, "terminal", policy, "/bin/sh", "-c", code],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
            timeout=TIMEOUT,
        )
        self.expect("a terminal", holds=done.stdout.split() == ["30", "100", "mine"], said=done)

    def _git(self, base: list[str]) -> None:
        # Not the shim of /usr/bin, which looks for the tools in places of its own.
        found = [
            subprocess.run(
                command, stdout=subprocess.PIPE, text=True, check=True, timeout=TIMEOUT
            ).stdout.strip()
            for command in (["xcrun", "--find", "git"], ["xcode-select", "--print-path"])
        ]
        git, tools = map(os.path.realpath, found)
        policy = self.file([*base, f"read\t{tools}"])
        done = self.run(policy, "/bin/sh", "-c", f"'{git}' init -q g && cd g && '{git}' status -sb")
        self.expect("git works", holds=done.returncode == 0 and "##" in done.stdout, said=done)

    def unknown(self) -> None:
        """Print what nobody has measured yet."""
        for count in (1000, 5000):
            rules = [f"read\t{self.work}/{number}" for number in range(min(count, 4000))]
            began = time.monotonic()
            done = self.run(self.file(["system", *rules]), "/usr/bin/true")
            print(
                "note   ",
                len(rules),
                "rules:",
                done.returncode,
                f"{time.monotonic() - began:.3f} s",
            )
        with scene(self.probe) as here:
            policy = self.file(here.policy())
            sleeper = subprocess.Popen(
                [self.probe, "run", policy, self.probe, "leave"], stdout=subprocess.PIPE, text=True
            )
            assert sleeper.stdout is not None
            other = sleeper.stdout.readline().strip()
            probe = Probe(("signal", other), ())
            (code,) = answers_of([self.probe, "run", policy, self.probe, "acts"], [probe])
            print("note    a signal to another jail's process:", errno.errorcode.get(code, code))
            sleeper.kill()
            sleeper.wait(TIMEOUT)


def main() -> int:
    """Try everything."""
    runner = Runner(Path(sys.argv[1]).resolve())
    for part in (
        runner.compare,
        runner.ends,
        runner.outlives_nothing,
        runner.nested,
        runner.programs,
        runner.unknown,
    ):
        # A start that fails must not hide what the other parts would show.
        try:
            part()
        except (AssertionError, OSError, ValueError, subprocess.SubprocessError) as error:
            runner.expect(part.__name__, holds=False, said=repr(error))
    shutil.rmtree(runner.work, ignore_errors=True)
    print(f"{len(runner.found)} did not hold")
    return 1 if runner.found else 0


if __name__ == "__main__":
    sys.exit(main())
