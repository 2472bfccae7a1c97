"""Boundary: what a jail takes from /etc unasked is what everybody may read, wherever links lead.

Whoever could write in /etc or /run once, such as the guest of a root caller with such a grant,
may have put links there. Each test has an /etc of its own in a mount namespace.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from jail_helpers import errno, is_root
from mount_helpers import in_mount_namespace

if TYPE_CHECKING:
    from pathlib import Path

UNSHARE = ["unshare", "--mount"] if is_root() else ["unshare", "--user", "-r", "--mount"]

OPEN = """
import json, sys
import visruntime as vr
names = ["/etc/nsswitch.conf", "/etc/resolv.conf", "/etc/gai.conf"]
host = [open(name).read() for name in names]
with vr.Jail(vr.JailPolicy(egress=vr.Egress.OPEN)) as jail:
    seen = [jail.run(["cat", name]) for name in names]
    print(json.dumps([
        host,
        [(run.stdout_text, run.stderr_text.rpartition(": ")[2].strip()) for run in seen],
        list(jail.report.notes),
    ]))
"""


@pytest.fixture
def etc(workspace: Path) -> Path:
    """Return a folder that can stand in for /etc, and that everybody may look into."""
    folder = workspace / "etc"
    folder.mkdir()
    shutil.copytree("/etc/alternatives", folder / "alternatives", symlinks=True)
    shutil.copy("/etc/ld.so.cache", folder)
    for name in ("passwd", "group"):
        shutil.copy(f"/etc/{name}", folder)
    return folder


def opened(etc: Path) -> tuple[list[str], list[list[str]], list[str]]:
    """Return what the host and a guest read of three files, and the notes of the report."""
    script = f'mount --bind "{etc}" /etc && exec "$@"'
    ran = subprocess.run(
        [*UNSHARE, "sh", "-c", script, "sh", sys.executable, "-c", OPEN],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert ran.returncode == 0, ran.stderr
    host, guest, notes = json.loads(ran.stdout)
    return host, guest, notes


def test_no_link_of_etc_shows_what_only_some_may_read(etc: Path, workspace: Path) -> None:
    """Neither a file of its caller's own mode nor one in a closed folder comes into a jail."""
    (workspace / "private").write_text("nameserver secret\n")
    (workspace / "private").chmod(0o600)
    (workspace / "closed").mkdir(mode=0o700)
    (workspace / "closed" / "open").write_text("secret\n")
    (etc / "shadow").write_text("secret\n")
    (etc / "shadow").chmod(0o600)
    (etc / "nsswitch.conf").symlink_to(workspace / "closed" / "open")
    (etc / "resolv.conf").symlink_to(workspace / "private")
    (etc / "gai.conf").symlink_to("shadow")
    host, guest, notes = opened(etc)
    assert all("secret" in text for text in host)
    assert guest == [["", os.strerror(2)]] * 3
    for name in ("nsswitch.conf", "gai.conf"):
        expected = f"system: /etc/{name} is left out: not everybody may read what the link leads to"
        assert expected in notes
    assert "system: /etc/resolv.conf is left out: the host has none that all may read" in notes


def test_links_of_etc_to_public_files_work(etc: Path) -> None:
    """What everybody may read is shown, of name servers the settings alone."""
    (etc / "nsswitch.real").write_text("hosts: files dns\n")
    (etc / "resolv.real").write_text(
        "# words\nnameserver 192.0.2.1\nkey of others\noptions rotate\n"
    )
    (etc / "nsswitch.conf").symlink_to("nsswitch.real")
    (etc / "resolv.conf").symlink_to("resolv.real")
    (etc / "gai.conf").write_text("label ::1/128 0\n")
    _, guest, notes = opened(etc)
    assert [text for text, _ in guest] == [
        "hosts: files dns\n",
        "nameserver 192.0.2.1\noptions rotate\n",
        "label ::1/128 0\n",
    ]
    assert not any("left out" in note for note in notes)


AS_ROOT = """
import json
from jail_helpers import inside, jail_by
names = ["/etc/nsswitch.conf", "/etc/gai.conf"]
text = f"answer([attempt(lambda: open(name).read()) for name in {names!r}])"
host = [open(name).read() for name in names]
with jail_by("landlock") as jail:
    print(json.dumps([host, inside(jail, text), list(jail.report.notes)]))
"""


@pytest.mark.skipif(not is_root(), reason="only root's guest may stay root")
def test_a_guest_that_stays_root_reads_of_etc_what_everybody_may(etc: Path) -> None:
    """A file of root's own mode under a name that jails take from /etc is left out, by its name."""
    for name in ("nsswitch.conf", "gai.conf"):
        (etc / name).write_text("of root\n")
    (etc / "gai.conf").chmod(0o600)
    output = in_mount_namespace(f'mount --bind "{etc}" /etc', AS_ROOT)
    host, (public, private), notes = json.loads(output.splitlines()[-1])
    assert host == ["of root\n"] * 2
    assert (public, private) == (0, errno.EACCES)
    assert "system: /etc/gai.conf is left out: not everybody may read it" in notes
