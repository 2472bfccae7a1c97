"""Boundary: environment. Nothing of the host's variables crosses unasked."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from jail_helpers import Jail, JailPolicy, Secret, children_of, inside, outside

if TYPE_CHECKING:
    import pytest

HOSTILE = {
    "FAKE_TOKEN": "t0ken",
    "LD_PRELOAD": "/nonexistent-preload.so",
    "PYTHONPATH": "/nonexistent-path",
    "PYTHONSTARTUP": "/nonexistent-startup",
    "NODE_OPTIONS": "--nonexistent",
    "BASH_ENV": "/nonexistent-bash",
    "GIT_SSH_COMMAND": "nonexistent-ssh",
    "AWS_SECRET_ACCESS_KEY": "aws",
}


def test_en_01_the_environment_is_built_not_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of the host may be seen by a guest, in its environment or in /proc."""
    for name, value in HOSTILE.items():
        if name != "LD_PRELOAD":
            monkeypatch.setenv(name, value)
    monkeypatch.setitem(os.environ, "LD_LIBRARY_PATH", "/nonexistent-libraries")
    with Jail(JailPolicy()) as jail:
        result = jail.run(["env", "-0"])
        pairs = dict(p.split(b"=", 1) for p in result.stdout.split(b"\0") if p)
        assert set(pairs) == {b"PATH", b"HOME", b"TMPDIR", b"LANG", b"USER", b"LOGNAME", b"SHELL"}
        assert jail.stat(os.fsdecode(pairs[b"HOME"])).mode & 0o40000
        assert jail.stat(os.fsdecode(pairs[b"TMPDIR"])).mode & 0o40000
        everything = """
got = []
for name in os.listdir("/proc"):
    if name.isdigit():
        for file in ("environ", "cmdline"):
            try:
                got.append(open("/proc/%s/%s" % (name, file), "rb").read().decode(errors="replace"))
            except OSError:
                pass
answer("".join(got))
"""
        seen = inside(jail, everything)
        assert not [v for v in HOSTILE.values() if v in seen]
        # What the supervisors have is empty to begin with, seen from the host too.
        for pid, status in children_of(os.getpid()).items():
            if status["Name"] == "visjail-init" and os.access(f"/proc/{pid}/environ", os.R_OK):
                with open(f"/proc/{pid}/environ", "rb") as file:
                    assert file.read() == b""
    assert outside("answer(os.environ['FAKE_TOKEN'])") == "t0ken"


def test_en_01_only_what_is_named_crosses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Env and inherit_env must give exactly the variables they name."""
    monkeypatch.setenv("WANTED", "w")
    monkeypatch.setenv("UNWANTED", "u")
    policy = JailPolicy(
        env={"SET": "s", "TOKEN": Secret("hidden")}, inherit_env=["WANTED", "ABSENT"]
    )
    with Jail(policy) as jail:
        got = inside(jail, "answer(dict(os.environ))", env={"MORE": "m"})
        absent = "inherit_env: ABSENT is not set on this host, so the guest does not have it"
        assert [note for note in jail.report.notes if "inherit_env" in note] == [absent]
    assert {name: got.get(name) for name in ("SET", "TOKEN", "WANTED", "MORE")} == {
        "SET": "s",
        "TOKEN": "hidden",
        "WANTED": "w",
        "MORE": "m",
    }
    assert "UNWANTED" not in got
    assert "ABSENT" not in got
    shown = repr(policy) + str(jail.report.to_dict()) + str(policy.to_dict())
    assert "hidden" not in shown
