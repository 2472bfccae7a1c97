"""Known ways out of a jail: each is stopped in one and works without, by a layer that is measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from jail_helpers import backends
from runtime_helpers import WORKER_PYTHONS, not_granted

import visruntime as vr
from visruntime.config import schema
from visruntime.confinement import examine
from visruntime.confinement.attempt import Attempt
from visruntime.confinement.examine import ATTEMPTS
from visruntime.confinement.layers import find_layers
from visruntime.confinement.scene import Scene

if TYPE_CHECKING:
    from pathlib import Path

    from visruntime.confinement.report import Outcome

KERNEL = {
    "mount namespace", "read-only mount", "mount", "pid namespace", "ipc namespace",
    "network namespace", "user namespace", "seccomp", "seccomp in the worker", "Landlock",
}  # fmt: skip
# What the kernel has no reason to refuse: machine code of the guest's own is no way out.
HOOK_ONLY = {f"interpreter.native_{kind}" for kind in ("module", "library", "memory")}
NEEDS_ROOT = {attempt.key for attempt in ATTEMPTS if attempt.control_needs_root}
TCL = {"starting.tcl", "interpreter.tcl_read"}


def states(report: vr.ConfinementReport, state: str) -> set[str]:
    """Return the keys of the attempts in that state."""
    return {one.key for one in report.outcomes if one.state == state}


@pytest.mark.parametrize("python", WORKER_PYTHONS)
def test_every_known_way_out_is_stopped_by_the_kernel(python: str | None) -> None:
    """No attempt may succeed in a worker of any version, nor rest on the audit hook alone."""
    report = vr.check_confinement(python=python)
    assert report.ok, str(report)
    assert report.open == ()
    assert len(report.stopped) >= 60
    # Whether freed memory is reused in time is a matter of luck.
    assert states(report, "missing") <= TCL | {"interpreter.memory"}
    allowed = set() if os.geteuid() == 0 else NEEDS_ROOT
    assert states(report, "unproven") <= allowed, str(report)
    for one in report.stopped:
        names = {name for name, _ in one.layers}
        if one.key in HOOK_ONLY:
            assert names == {"audit hook"}, one
        else:
            assert names & KERNEL, one
            assert names <= KERNEL | {"audit hook"}, one
        assert all(how for _, how in one.layers)


def test_the_corpus_is_as_large_as_promised_and_each_attempt_is_one() -> None:
    """No attempt may be counted twice, and there must be enough in each topic."""
    keys = [attempt.key for attempt in ATTEMPTS]
    assert len(keys) == len(set(keys)) >= 80
    assert len({attempt.code for attempt in ATTEMPTS}) == len(keys)
    topics = {attempt.topic for attempt in ATTEMPTS}
    assert topics == {"files", "processes", "network", "privileges", "starting", "interpreter"}
    assert set(keys) > NEEDS_ROOT


def test_an_open_jail_is_said_to_be_open(workspace: Path) -> None:
    """Where a policy grants what is tried, it must say that nothing stopped it, and fail."""
    policy = vr.JailPolicy(
        read=[not_granted()], write=[str(workspace)], egress=vr.Egress.OPEN, absent_deny="wall"
    )
    report = vr.check_confinement(policy, folder=workspace)
    opened = {one.key for one in report.open}
    assert {
        "files.open", "files.stat", "files.symbolic_link", "files.surrogate", "files.system",
        "network.loopback", "network.datagram",
        "interpreter.raw_call", "interpreter.sub_interpreter", "interpreter.sqlite_read",
    } <= opened, str(report)  # fmt: skip
    assert not report.ok
    assert all(one.stopped_by == "nothing" for one in report.open)
    assert "stopped by nothing" in report.headline
    assert "STOPPED BY NOTHING" in str(report)
    # What that policy does not grant is stopped all the same.
    stopped = {one.key for one in report.stopped}
    assert {"processes.trace", "privileges.mount", "starting.fork", "files.denied"} <= stopped


def test_damage_that_the_host_sees_counts_as_open(
    monkeypatch: pytest.MonkeyPatch, workspace: Path
) -> None:
    """An attempt that says it failed must not be believed when the host sees its effect."""
    liar = Attempt(
        "files.liar",
        "change a file and say that it failed",
        "open(S.work + '/folder/other', 'w').close()\n"
        "open(S.secret, 'a').close() if not S.jailed else None\n"
        "dict(tried(lambda: None), done=not S.jailed, errno=2)",
    )
    dead = Attempt(
        "files.dead",
        "end the worker",
        "os._exit(3) if S.jailed else None\ntried(lambda: None)",
    )
    after = Attempt("files.after", "go on afterwards", "tried(lambda: open(S.secret).close())")
    free = Attempt("files.no_control", "what works nowhere", "tried(lambda: open('/srv/x/y'))")
    monkeypatch.setattr(examine, "ATTEMPTS", (liar, dead, after, free))

    class Watching(Scene):
        """A scene whose tree says that something has changed, once."""

        def __init__(self, folder: str) -> None:
            super().__init__(folder)
            self.jailed._before[self.jailed.secret] = None

    monkeypatch.setattr("visruntime.confinement.examine.Scene", Watching)
    report = vr.check_confinement(folder=workspace)
    by_key = {one.key: one for one in report.outcomes}
    assert by_key["files.liar"].state == "open"
    assert by_key["files.dead"].state == "open"
    assert "no evidence" in by_key["files.dead"].control
    assert by_key["files.after"].state == "stopped"
    assert by_key["files.after"].stopped_by == "not told apart"
    assert by_key["files.no_control"].state == "unproven"
    assert not report.ok


def test_layers_are_told_from_evidence_only() -> None:
    """The same refusal with other evidence must be told as another layer, or as none."""
    facts: Any = ({"net": 1, "pid": 1, "ipc": 1, "seccomp": "2", "uid_map": []},
                  {"net": 2, "pid": 2, "ipc": 2, "seccomp": "0", "uid_map": []})  # fmt: skip
    same: Any = (facts[0], facts[0])
    call = {"errno": 1, "error": "PermissionError"}

    def layers(inside: Any, outside: Any = call, between: Any = facts) -> list[str]:
        found = find_layers(inside, outside, (), between, lambda _path: (1, 2))
        return [name for name, _ in found]

    assert layers(call | {"harmless": 1}, {"harmless": 22}) == ["seccomp"]
    assert layers(call | {"harmless": 22}, {"harmless": 22}) == ["not told apart"]
    assert layers(call | {"errno": 111, "network": True}) == ["network namespace"]
    assert layers(call | {"errno": 111, "network": True}, between=same) == ["not told apart"]
    assert layers(call | {"errno": 3, "process": True}) == ["pid namespace"]
    assert layers(call | {"errno": 3, "process": True}, between=same) == ["not told apart"]
    assert layers(call | {"start": (1, 1)}, {"start": (2, 22)}) == ["seccomp in the worker"]
    assert layers(call | {"start": (1, 1)}, {"start": (1, 1)}) == ["not told apart"]
    path = {"path": "/x", "seen": (1, 2), "lstat": 0, "access": 0, "opened": 13, "read_only": False}
    free = {"path": path | {"opened": 0}}
    assert layers(call | {"path": path}, free) == ["Landlock"]
    assert layers(call | {"path": path | {"access": 13}}, free) == ["not told apart"]
    assert layers(call | {"path": path | {"access": 13, "seen": (9, 9)}}, free) == ["mount"]
    gone = path | {"seen": None, "lstat": 2, "opened": 2}
    assert layers(call | {"path": gone}, free) == ["mount namespace"]
    closed = path | {"opened": 30, "access": 13, "read_only": True}
    assert layers(call | {"path": closed}, free) == ["read-only mount"]
    assert layers(call | {"path": closed}, {"path": closed}) == ["not told apart"]


def test_another_back_end_is_tried_the_same_way() -> None:
    """A jail that bubblewrap makes must stop the same attempts, or refuse the policy by name."""
    for backend in backends("bubblewrap"):
        try:
            report = vr.check_confinement(backend=backend)
        except vr.PolicyUnsupported as error:
            # A bwrap that follows links makes no jail with a deny where the caller can write.
            assert "follows links at its mount points" in str(error)  # noqa: PT017
            continue
        assert report.ok, str(report)
        assert report.backend == backend
        assert len(report.stopped) >= 60
    # Landlock alone takes nothing away below a grant, so the corpus's policy is refused there.
    with pytest.raises(vr.PolicyUnsupported):
        vr.check_confinement(backend="landlock")


def test_nothing_of_the_scene_is_left(workspace: Path) -> None:
    """Files, shared memory and processes that the attempts are about must be gone afterwards."""
    vr.check_confinement(folder=workspace)
    assert list(workspace.iterdir()) == []
    own = f"visruntime-{os.getpid()}-"  # others run tests at the same time
    assert [name for name in os.listdir("/dev/shm") if name.startswith(own)] == []


def command(*words: str) -> subprocess.CompletedProcess[str]:
    """Run ``visruntime doctor``."""
    return subprocess.run(
        [sys.executable, "-m", "visruntime", "doctor", *words],
        capture_output=True, text=True, check=False, timeout=60, cwd="/",
    )  # fmt: skip


def test_the_command_prints_text_and_json() -> None:
    """The command must end with 0 where all is stopped, and its JSON must follow its schema."""
    done = command("--confinement")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "attempts that succeed without a jail were stopped in it" in done.stdout
    assert "network namespace (ECONNREFUSED)" in done.stdout
    done = command("--confinement", "--json", "--python", sys.executable)
    data = json.loads(done.stdout)
    jsonschema.Draft202012Validator(schema("confinement")).validate(data)
    assert data["ok"] is True
    for words in (("--python", "x"), ("--confinement", "--html", "x")):
        assert command(*words).returncode == 125


def test_the_command_fails_when_an_attempt_succeeds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A continuous integration that runs it must go red when something is stopped by nothing."""
    from visruntime.cli.doctor import main

    harmless = Attempt("files.harmless", "open a file that is granted", "tried(lambda: None)")
    monkeypatch.setattr(examine, "ATTEMPTS", (ATTEMPTS[0], harmless))
    assert main(["--confinement"]) == 1
    printed = capsys.readouterr().out
    assert "OPEN  open a file that is granted" in printed
    outcome: Outcome = vr.check_confinement().open[0]
    assert outcome.to_dict()["stopped_by"] == []
