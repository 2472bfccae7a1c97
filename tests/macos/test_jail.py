"""`Jail` on macOS, with a sandbox that only marks: how it opens, what runs get, how it ends.

The scenes are played once (`macos_scenes`), by the code of macOS over calls that are made of Linux.
They show nothing of what Seatbelt holds: `seatbelt_jail_on_macos` asks that, on a Mac.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from darwin_build import build_module

from visruntime._policy.platforms import REFUSED, SEATBELT
from visruntime.config import schema

# The scenes are played for the first test: on a loaded machine they wait for a minute.
pytestmark = [pytest.mark.one_uid, pytest.mark.timeout(240)]

SCENES = Path(__file__).parent.parent / "macos_scenes.py"
TIMEOUT = 100
EPERM = 1


@pytest.fixture(scope="module")
def played(programs: Path) -> dict[str, Any]:
    """Play all scenes in one process, whose module of C is that of macOS."""
    module = build_module(programs)
    module.chmod(0o755)
    done = subprocess.run(
        [sys.executable, str(SCENES), str(programs)],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    errors = {name: scene["error"] for name, scene in found.items() if "error" in scene}
    assert errors == {}, "\n".join(errors.values())
    return found


def test_each_clause_has_its_mechanism(played: dict[str, Any]) -> None:
    """No clause may be without what holds it, and it is said that nothing is claimed."""
    report = played["report"]["report"]
    assert (report["backend"], report["jailed"]) == ("seatbelt", True)
    clauses = {each["clause"]: each for each in report["clauses"]}
    for row in ("write", "deny", "deny_write", "deny_exec", "services", "host_ports"):
        assert clauses[f"{row}[0]"]["mechanisms"] == [SEATBELT[row][1]]
    for row in ("system", "egress", "env", "limits.open_files", "limits.wall_seconds"):
        assert clauses[row]["mechanisms"] == [SEATBELT[row][1]]
    assert clauses["limits.wall_seconds"]["value"] == 9.0
    assert "no guest makes it" in clauses["deny_write[0]"]["note"]
    assert clauses["secrets"]["note"] == "1 path hidden"
    assert any(note.startswith("unclaimed:") for note in report["notes"])
    assert all(clause["mechanisms"] for name, clause in clauses.items() if "reveal" not in name)


def test_what_was_found_is_denied(played: dict[str, Any]) -> None:
    """Secrets, names to come and the jail's own folder must be in the profile, unasked."""
    scene = played["report"]
    top = scene["top"]
    for rule in (
        ["deny", f"{top}/.env"],
        ["deny_write", f"{top}/held"],
        ["deny", scene["own"]],
    ):
        assert rule in scene["rules"], rule
    assert [path.removeprefix("/private") for path in scene["held"]] == [f"{top}/held"]


def test_what_the_host_runs_is_protected(played: dict[str, Any]) -> None:
    """A library that the host has loaded, or will look for, must not be writable in a grant."""
    assert played["host_code"] == ["protected TOP/libloaded.dylib", "protected TOP/libraries"]


def test_each_canary_was_tried_outside_and_inside(played: dict[str, Any]) -> None:
    """A jail that opened must have denied each act with exactly EPERM."""
    canaries = played["report"]["report"]["canaries"]
    names = {each["name"] for each in canaries}
    assert {each["errno"] for each in canaries} == {EPERM}
    assert all(each["held"] for each in canaries)
    top = played["report"]["top"]
    assert {
        "read a file that is not granted",
        "make a hard link",
        "signal the host",
        "connect to a port of this machine",
        f"read {top}/no",
        f"read {top}/.env",
    } <= names
    assert not any("own folder" in name for name in names)


def test_a_jail_that_lets_one_act_pass_does_not_open(played: dict[str, Any]) -> None:
    """Whichever act a sandbox lets pass, no program may be started in it."""
    expected = {
        "r": "read a file",
        "w": "write to a file",
        "o": "look at a file",
        "c": "make a file",
        "l": "make a hard link",
        "n": "clone a file",
        "u": "connect to a path",
        "k": "signal the host",
        "t": "connect to a port",
        "d": "send to a port",
        "b": "bind a port",
        "p": "ask about the host",
        "s": "make shared memory",
    }
    assert set(played["leaks"]) == set(expected)
    for letter, refusal in played["leaks"].items():
        assert (refusal["type"], refusal["stage"]) == ("JailUnavailable", "canaries")
        assert f"did not hold: {expected[letter]}" in refusal["text"]


def test_what_stands_against_a_jail_is_said(played: dict[str, Any]) -> None:
    """Nothing may be left out or weakened: the limits, the back end, the profile, the marker."""
    limits, backend, profile, marker, path, others = played["refused"]
    assert (limits["type"], limits["field"]) == ("PolicyUnsupported", "limits.processes")
    assert "limits.scratch" in limits["text"]
    assert backend["stage"] == "platform"
    assert "belongs to Linux" in backend["text"]
    assert (profile["type"], profile["stage"]) == ("JailUnavailable", "sandbox")
    assert "marker cannot be looked up" in marker["text"]
    assert (path["type"], path["field"]) == ("PolicyError", "read[0]")
    assert (others["type"], others["field"]) == ("PolicyUnsupported", "write[0]")
    assert "folders of other jails" in others["text"]
    assert "two ways" in played["two_spellings"]["text"]
    assert played["in_a_sandbox"]["stage"] == "sandbox around the host"


def test_a_caller_that_is_root_opens_nothing(played: dict[str, Any]) -> None:
    """No guest may be root."""
    if "root" not in played:
        assert played["report"]["report"]["identity"].startswith("uid ")
        return
    assert "guest would be root" in played["root"]["text"]


def test_a_run_gets_what_is_named(played: dict[str, Any]) -> None:
    """Variables, streams, descriptors and the folder must arrive, and nothing of the host."""
    scene = played["runs"]
    first, *variables, typed, cores = scene["out"]
    assert (first, typed, cores) == (scene["top"], "typed", "0")
    given = dict(line.partition("=")[::2] for line in variables)
    assert given.pop("HOME") == given.pop("TMPDIR") == scene["home"]
    assert given.pop("PATH").startswith("/usr/local/bin:")
    assert {name for name in given if name not in ("PWD", "OLDPWD", "_", "SHLVL")} == {
        "A", "LANG", "LOGNAME", "SHELL", "UV_LINK_MODE", "USER",
    }  # fmt: skip
    assert (scene["exit"], scene["err"], scene["signal"]) == (7, "no\n", 9)
    assert (scene["passed"], scene["relative"], scene["shell"]) == ("passed\n", "own\n", "42\n")
    assert scene["large"] == 300_000


def test_a_program_that_does_not_start_is_told(played: dict[str, Any]) -> None:
    """A wrong name, a file that is no program and a wrong folder must not look alike."""
    scene = played["runs"]
    assert scene["missing"]["type"] == "CommandNotFound"
    assert scene["not"]["type"] == "CommandNotExecutable"
    assert scene["folder"]["type"] == "PathDenied"


def test_runs_end_as_a_whole(played: dict[str, Any]) -> None:
    """By a time limit, a signal or the end of the program: nobody may be left, and it says why."""
    scene = played["ends"]
    assert scene["timeout"] == ["timeout", "begun\n"]
    stopped, number, seconds = scene["wall"]
    assert (stopped, number) == ("wall", 9)
    assert 1.0 <= seconds < 20
    assert scene["left"] == [5, 1, False]
    assert scene["running"] is None
    assert scene["terminated"] == [-15, None]
    assert scene["stopped"] == [-9, "killed"]
    assert (scene["late"], scene["told"]) == ("CommandTimeout", 1)
    assert scene["ended"] == [0, None]


def test_terminals(played: dict[str, Any]) -> None:
    """A program must have its own terminal, of the size that was asked for."""
    scene = played["terminals"]
    assert scene["plain"] == ["30", "99", "mine"]
    assert (scene["exit"], scene["preview"]) == (0, "ready")
    assert "got word" in scene["text"]


def test_a_closed_jail_leaves_nothing(played: dict[str, Any]) -> None:
    """Neither a process of another session nor a folder that resists may stay; a fork ends nothing."""
    scene = played["closes"]
    assert scene["alive"] == [False, None, True]
    assert scene["after"] == [-9, "closed", False, False]
    assert [scene[name]["type"] for name in ("run", "pty")] == ["JailClosed", "JailClosed"]
    assert played["stale"] == {"kept": True, "left": False, "mine": False}


def test_files_of_a_jail(played: dict[str, Any]) -> None:
    """No link, pipe or folder may be read as a file; names, sizes and content must come whole."""
    scene = played["verbs"]
    assert scene["read"] == "some bytes"
    assert scene["status"] == [10, 1, True]
    assert scene["names"] == ["file", "link", "made", "pipe"]
    assert (scene["real"], scene["home"]) == (True, [])
    assert {name: scene[name]["type"] for name in ("link", "pipe", "folder", "long", "gone")} == {
        "link": "PathDenied",
        "pipe": "OSError",
        "folder": "IsADirectoryError",
        "long": "OutputLimitExceeded",
        "gone": "FileNotFoundError",
    }
    assert scene["missing"] == [False, True]
    assert "File too large" in scene["large"]["text"]
    assert scene["left"] == ["big", "link", "pipe"]


def test_every_public_name_is_there(played: dict[str, Any]) -> None:
    """A host that imports a name must not fail on macOS, whatever that name then refuses."""
    assert played["names"] == {}


def test_what_is_not_built_is_refused_by_name(played: dict[str, Any]) -> None:
    """Processes, standing still and the Python worker must not fail in another way."""
    texts = [refusal["text"] for refusal in played["not_built"]]
    types = [refusal["type"] for refusal in played["not_built"]]
    assert types == ["CommandError"] * 2 + ["JailUnavailable"] * 4
    assert all("macOS" in text for text in texts)


def test_the_doctor_claims_nothing(played: dict[str, Any]) -> None:
    """A jail that opened must not look proven, and what is refused must be listed."""
    scene = played["doctor"]
    jsonschema.Draft202012Validator(schema("doctor")).validate(scene["data"])
    findings = {each["key"]: each for each in scene["data"]["findings"]}
    assert scene["data"]["backend"] == "seatbelt"
    assert findings["jail"]["state"] == "degraded"
    assert "unclaimed" in findings["jail"]["detail"]
    assert findings["canary.make_a_hard_link"]["errno"] == "EPERM"
    assert [findings[key]["state"] for key in ("program", "terminal")] == ["enforced"] * 2
    assert findings["python"]["state"] == "unavailable"
    refused = {row for row, (kind, _) in SEATBELT.items() if kind == REFUSED}
    assert {key.removeprefix("clause.") for key in findings if key.startswith("clause.")} == refused
    assert "unclaimed" in scene["text"]


def test_descriptors_that_the_host_opened(played: dict[str, Any]) -> None:
    """A file that the policy closes must not come in by a descriptor of the host's."""
    scene = played["files"]
    assert scene["given"] == "yes\n"
    assert scene["closed"]["type"] == "PathDenied"
