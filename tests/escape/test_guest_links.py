"""Boundary: what the host does with links and folders that an earlier guest made."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from foreign_files import on_files
from jail_helpers import Jail, JailPolicy

from visruntime.errors import PolicyUnsupported

if TYPE_CHECKING:
    from pathlib import Path

LIBRARY = os.path.realpath("/usr/lib/x86_64-linux-gnu/libc.so.6")


def plant_chain(folder: Path, name: str) -> None:
    """Make *name* a link whose following takes many millions of steps without a bound."""
    tops = []
    for top in "pqrstuvw":
        (folder / top).mkdir()
        (folder / top / "a").symlink_to(".")
        for number in range(780):
            (folder / top / f"b{number}").symlink_to("a/" * 1990 + ".")
        (folder / f"c{top}").symlink_to(f"{top}/" + "/".join(f"b{n}" for n in range(780)) + "/..")
        tops.append(f"c{top}")
    (folder / name).symlink_to("/".join(tops))


def test_a_chain_of_links_does_not_hold_up_the_next_jail(workspace: Path) -> None:
    """A link named as a secret is followed as far as the kernel would, and no farther."""
    plant_chain(workspace, ".env")
    with pytest.raises(OSError, match="levels of symbolic links"):
        os.stat(workspace / ".env")
    started = time.monotonic()
    with Jail(JailPolicy(read=[workspace], deny=[workspace / "**" / "*.key"])) as jail:
        assert any(note.startswith("links_out: 1 ") for note in jail.report.notes)
    assert time.monotonic() - started < 5


def test_a_chain_of_links_does_not_hold_up_the_command_line(workspace: Path) -> None:
    """The same by the name of a policy file, and as the target of a question."""
    plant_chain(workspace, "visruntime.toml")
    started = time.monotonic()
    for words in (["why", "read", "visruntime.toml"], ["exec", "--write", ".", "--", "true"]):
        subprocess.run(
            [sys.executable, "-m", "visruntime", *words],
            cwd=workspace,
            capture_output=True,
            check=False,
            timeout=20,
        )
    assert time.monotonic() - started < 15


@pytest.mark.parametrize(
    "target",
    ["/proc/1/root/x", "/proc/1/cwd", "/proc/self/fd/0", "x" * 256, "/root/x", ".env", LIBRARY],
)
def test_a_link_out_of_the_grant_hides_nothing_there(workspace: Path, target: str) -> None:
    """No such link stops the next jail, nor does it cover what lies outside of the grant."""
    (workspace / ".env").symlink_to(target)
    with Jail(JailPolicy(write=[workspace])) as jail:
        assert jail.run(["cat", "/usr/bin/env"]).exit_code == 0
        assert not [c for c in jail.report.clauses if c.clause.startswith("secrets ")]


def test_a_link_in_the_grant_still_hides_what_it_leads_to(workspace: Path) -> None:
    """A link named as a secret that stays inside covers its target, as before."""
    (workspace / "passwords").write_text("top secret")
    (workspace / ".env").symlink_to("passwords")
    with Jail(JailPolicy(read=[workspace])) as jail:
        assert jail.run(["cat", workspace / "passwords"]).exit_code != 0
    assert (workspace / ".env").read_text() == "top secret"


def test_no_name_is_looked_up_outside_of_the_grant(workspace: Path) -> None:
    """A lookup on another file system tells its server the name: none is made."""
    (workspace / "granted").mkdir()
    code = """
import json, os
from jail_helpers import Jail, JailPolicy
granted = os.path.join(os.path.dirname(FILES), "granted")
os.symlink(FILES + "/message-to-outside/x", granted + "/.env")
os.symlink(FILES + "/message-to-outside/x", granted + "/a.key")
with Jail(JailPolicy(read=[granted], deny=[granted + "/*.key"])):
    pass
inside = open(os.path.dirname(FILES) + "/asked").read()
os.path.exists(FILES + "/message-to-outside")
print(json.dumps([inside, open(os.path.dirname(FILES) + "/asked").read()]))
"""
    during, afterwards = json.loads(on_files("exact", workspace, code))
    assert "message-to-outside" not in during
    assert "message-to-outside" in afterwards


def test_the_search_leaves_descriptors_to_the_host(workspace: Path) -> None:
    """Each level of folders is an open descriptor: a tree that is too deep is refused by name."""
    deepest = workspace
    for _ in range(126):
        deepest /= "a"
    deepest.mkdir(parents=True)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (opened + 190, limits[1]))
    try:
        with Jail(JailPolicy(read=[workspace])) as jail:
            assert jail.run(["true"]).exit_code == 0
        (deepest / "a" / "a").mkdir(parents=True)
        with (
            pytest.raises(PolicyUnsupported, match="nested too deep"),
            Jail(JailPolicy(read=[workspace])),
        ):
            pass
        pattern = f"{workspace}/**/*.key"
        with (
            pytest.raises(PolicyUnsupported, match="nested too deep"),
            Jail(JailPolicy(write=[workspace], deny=[pattern])),
        ):
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_names_of_guests_steer_no_terminal(workspace: Path) -> None:
    """A refusal shows a guest's name, and a terminal that shows it obeys nothing in it."""
    name = workspace / "a\x1b]0;owned\x07\n.env"
    (workspace / "kept").write_text("x")
    os.link(workspace / "kept", name)
    with (
        pytest.raises(PolicyUnsupported) as caught,
        Jail(JailPolicy(read=[workspace], deny=[name])),
    ):
        pass
    assert str(caught.value).isprintable()
    assert "\\x1b]0;owned" in str(caught.value)


def test_a_host_without_home_and_account_opens_a_jail(workspace: Path) -> None:
    """Then there is no folder of caches, and none is looked for below the current folder."""
    code = (
        "import os, pwd\n"
        "import visruntime as vr\n"
        "pwd.getpwuid = {}.__getitem__\n"  # as for a uid that no account has
        "assert os.path.expanduser('~') == '~'\n"
        "with vr.Jail(vr.JailPolicy(write=[os.getcwd()])) as jail:\n"
        "    print(jail.run(['true']).exit_code)"
    )
    done = subprocess.run(
        [sys.executable, "-B", "-c", code],
        cwd=workspace,
        env={"PATH": os.defpath},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "0\n", done.stderr
