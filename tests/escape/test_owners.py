"""Whose files a guest of a root caller has: those of the owner of each grant, and no others."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from jail_helpers import Jail, JailPolicy, errno, inside, is_root, outside

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

pytestmark = pytest.mark.skipif(not is_root(), reason="only root has files of several owners")

OWNER = 1000
TRY = """
path = {path!r}
answer([attempt(lambda: open(path).read()), attempt(lambda: open(path, "a").write("x"))])
"""


@pytest.fixture
def folder(workspace: Path) -> Path:
    """Return a folder of an ordinary user in which root keeps a file for itself."""
    (workspace / "conf").mkdir()
    (workspace / "conf" / "cron").write_text("root's\n")
    (workspace / "conf" / "cron").chmod(0o600)
    os.chown(workspace, OWNER, OWNER)
    return workspace


@pytest.mark.parametrize(
    "rule",
    [{}, {"deny_exec": ["conf"]}, {"deny_write": ["conf"]}, {"deny_exec": ["conf/cron"]}],
    ids=["none", "deny_exec", "deny_write", "deny_exec of the file"],
)
def test_a_rule_that_denies_shows_nothing_more(folder: Path, rule: dict[str, list[str]]) -> None:
    """A mount made for a deny must not map the files in it to another owner."""
    text = TRY.format(path=str(folder / "conf" / "cron"))
    assert outside(text) == [0, 0]
    rules: Any = {kind: [folder / path for path in paths] for kind, paths in rule.items()}
    with Jail(JailPolicy(write=[folder], **rules)) as jail:
        reading, writing = inside(jail, text)
    assert reading == errno.EACCES
    assert writing in (errno.EACCES, errno.EROFS)


def test_a_file_that_is_protected_unasked_shows_nothing_more(folder: Path) -> None:
    """A set-id file that only root may read must stay unreadable while it is kept read-only."""
    program = folder / "tool"
    program.write_bytes(b"secret program")
    program.chmod(0o4711)
    text = TRY.format(path=str(program))
    assert outside(text)[0] == 0
    program.chmod(0o4711)  # the control has written, which takes the bit
    with Jail(JailPolicy(write=[folder])) as jail:
        reading, writing = inside(jail, text)
    assert reading == errno.EACCES
    assert writing in (errno.EACCES, errno.EROFS)


def test_each_grant_has_its_own_owner(folder: Path) -> None:
    """A grant inside a grant must be the files of its own owner, as it is alone."""
    inner = folder / "conf"
    text = TRY.format(path=str(inner / "cron"))
    for grants in ([inner], [folder, inner]):
        with Jail(JailPolicy(write=grants)) as jail:
            assert inside(jail, text) == [0, 0]
    with Jail(JailPolicy(write=[folder], read=[inner])) as jail:
        assert inside(jail, text) == [0, errno.EROFS]
