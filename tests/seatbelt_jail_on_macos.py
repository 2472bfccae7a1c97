"""What only a Mac can show of `Jail`: its denials with both controls, and its runs.

    python tests/seatbelt_jail_on_macos.py OUT

OUT is a folder that `scripts/build_macos.py` filled; visruntime is installed. Each act of the probe is
tried without a jail, where it must succeed, and in a jail of a policy, where its errno must be 0 or
EPERM, as the model of the jail's own profile says. Then the scenes of `macos_scenes` are played over
the real thing. Ends with 1 if anything differs.
"""

from __future__ import annotations

import errno
import os
import sys
import tempfile
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from macos_scenes import Scenes
from seatbelt_model import Profile
from seatbelt_on_macos import control, lines_of, scene

import visruntime as vr
from visruntime._native.macos import MacosJailHandle
from visruntime._native.profiles import macos_profile

if TYPE_CHECKING:
    from collections.abc import Callable

    from seatbelt_on_macos import Probe, Scene

KINDS = ("read", "write", "deny", "deny_read", "deny_write", "deny_exec")
TIMEOUT = 60


class Judge:
    """What was tried, and what did not hold."""

    def __init__(self) -> None:
        self.failed = 0

    def expect(self, what: str, *, holds: bool, said: object = "") -> None:
        """Print what was tried, and count what did not hold."""
        print("ok     " if holds else "FAILED ", what, "" if holds else said)
        self.failed += not holds

    def part(self, act: Callable[[], object]) -> None:
        """Do a part; one that fails must not hide what the others would show."""
        try:
            act()
        except Exception:
            self.expect(act.__name__, holds=False, said=traceback.format_exc())


class OnMacos:
    """The parts, over one build."""

    def __init__(self, out: Path, judge: Judge) -> None:
        self.probe = str(out / "macos-probe")
        self.judge = judge

    def policy(self, here: Scene) -> vr.JailPolicy:
        """Return the policy of a scene, whose own folder is the jail's."""
        fields: dict[str, Any] = {kind: [] for kind in KINDS}
        for line in here.policy():
            kind, _, operand = line.partition("\t")
            if kind in fields:
                fields[kind].append(operand)
            elif kind == "held":
                fields["deny_write"].append(operand)
            elif kind == "socket":
                fields["sockets"] = [operand]
            elif kind == "port":
                fields["host_ports"] = [int(operand)]
        fields["read"].append(self.probe)
        return vr.JailPolicy(**fields, limits=vr.Limits(processes=None, scratch=None))

    def compare(self) -> None:
        """Compare what a jail's guest gets with what its policy says, act by act."""
        for line in control(self.probe, [self.probe, "acts"]):
            self.judge.expect(line, holds=False)
        with scene(self.probe) as here, vr.Jail(self.policy(here)) as jail:
            handle = jail._handle
            assert isinstance(handle, MacosJailHandle)
            profile = Profile(*macos_profile(**handle.profile))
            self.judge.expect("the profile has no findings", holds=not profile.findings)
            probes = [
                probe for probe in here.probes() if not any("/own/" in word for word in probe.act)
            ]
            done = jail.run([self.probe, "acts"], input=lines_of(probes), timeout=TIMEOUT)
            answers = [int(line) for line in done.stdout.split()]
            self.judge.expect("every act answers", holds=len(answers) == len(probes), said=done)
        for probe, code in zip(probes, answers, strict=False):
            self._answered(probe, code, profile)
        denied = sum(code == errno.EPERM for code in answers)
        self.judge.expect("acts are denied and others are not", holds=0 < denied < len(answers))

    def _answered(self, probe: Probe, code: int, profile: Profile) -> None:
        wanted = 0 if probe.allowed_by(profile) else errno.EPERM
        what = f"Jail: {' '.join(probe.act)}: {wanted}"
        self.judge.expect(what, holds=code == wanted, said=f"is {code}")

    def scenes(self) -> None:
        """Play what needs no tricks over the real thing."""
        expect = self.judge.expect
        with tempfile.TemporaryDirectory(dir=Path.home()) as name:
            played = Scenes(vr, Path(os.path.realpath(name)))
            report = played.report()["report"]
            expect("the report names seatbelt", holds=report["backend"] == "seatbelt")
            canaries = [each for each in report["canaries"] if not each["held"]]
            expect("all canaries held", holds=bool(report["canaries"]) and not canaries)
            runs = played.runs()
            expect("a run", holds=(runs["exit"], runs["err"]) == (7, "no\n"), said=runs)
            expect("descriptors", holds=runs["passed"] == "passed\n", said=runs)
            expect("a shell", holds=runs["shell"] == "42\n", said=runs)
            expect("300 kB", holds=runs["large"] == 300_000, said=runs)
            expect("a signal", holds=runs["signal"] == 9, said=runs)
            expect("no program", holds=runs["missing"]["type"] == "CommandNotFound", said=runs)
            ends = played.ends()
            expect("a timeout", holds=ends["timeout"] == ["timeout", "begun\n"], said=ends)
            expect("a wall", holds=ends["wall"][:2] == ["wall", 9], said=ends)
            expect("nobody is left", holds=ends["left"] == [5, 1, False], said=ends)
            expect("an end is told", holds=ends["told"] == 1, said=ends)
            terminals = played.terminals()
            expect("terminals", holds=terminals["plain"] == ["30", "99", "mine"], said=terminals)
            expect("a session", holds="got word" in terminals["text"], said=terminals)
            closes = played.closes()
            expect("closed", holds=closes["after"] == [-9, "closed", False, False], said=closes)
            stale = played.stale()
            expect("what a killed host left", holds=not stale["left"], said=stale)
            files = played.files()
            expect("a closed file", holds=files["closed"]["type"] == "PathDenied", said=files)
            verbs = played.verbs()
            expect("files", holds=verbs["read"] == "some bytes", said=verbs)
            expect("names", holds=verbs["names"] == ["file", "link", "made", "pipe"], said=verbs)
            expect("links", holds=verbs["link"]["type"] == "PathDenied", said=verbs)
            refused = played.not_built()
            expect("not built", holds=all("macOS" in each["text"] for each in refused))

    def chflags(self) -> None:
        """A guest's immutable file in the jail's own folder must not outlive the jail."""
        with vr.Jail(vr.JailPolicy(limits=vr.Limits(processes=None, scratch=None))) as jail:
            top = os.path.dirname(jail._home)
            done = jail.run(["/bin/sh", "-c", "echo > $HOME/kept && chflags uchg $HOME/kept"])
            self.judge.expect("chflags", holds=done.exit_code == 0, said=done.stderr)
        self.judge.expect("an immutable file goes", holds=not os.path.exists(top))

    def python(self) -> None:
        """Python runs in a jail that may read its folders."""
        folders = {os.path.realpath(path) for path in (sys.prefix, sys.base_prefix)}
        policy = vr.JailPolicy(read=sorted(folders), limits=vr.Limits(processes=None, scratch=None))
        code = "import ssl, sqlite3, multiprocessing; multiprocessing.Lock(); print(6 * 7)"
        with vr.Jail(policy) as jail:
            done = jail.run([os.path.realpath(sys.executable), "-I", "-c", code], timeout=TIMEOUT)
        self.judge.expect("Python works", holds=done.stdout == b"42\n", said=done.stderr)

    def doctor(self) -> None:
        """The doctor opens a jail and claims nothing."""
        report = vr.doctor()
        print(report)
        self.judge.expect("the doctor", holds=report.ok and "unclaimed" in str(report))


def main() -> int:
    """Try everything."""
    judge = Judge()
    parts = OnMacos(Path(sys.argv[1]).resolve(), judge)
    for part in (parts.compare, parts.scenes, parts.chflags, parts.python, parts.doctor):
        judge.part(part)
    print(f"{judge.failed} did not hold")
    return 1 if judge.failed else 0


if __name__ == "__main__":
    sys.exit(main())
