"""Boundary: other names of what is covered (other spellings, folders of earlier versions)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from foreign_files import on_files

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

START = """
import json, os, sys
from jail_helpers import Jail, JailPolicy
from visruntime.errors import PolicyUnsupported

def refusal(**rules):
    try:
        with Jail(JailPolicy(**rules)):
            return ""
    except PolicyUnsupported as error:
        return str(error)
"""


def run(kind: str, folder: Path, code: str) -> Any:
    """Return what *code* prints on such a file system."""
    return json.loads(on_files(kind, folder, START + code))


@pytest.fixture
def files(workspace: Path) -> Path:
    """Return a folder with what the file systems of the tests show in ``back``."""
    (workspace / "back" / "keys").mkdir(parents=True)
    (workspace / "back" / "secret.txt").write_text("top secret")
    (workspace / "back" / "keys" / "id").write_text("key")
    return workspace


RULES = {
    "file": {"read": [""], "deny": ["/secret.txt"]},
    "file below": {"read": [""], "deny": ["/keys/id"]},
    "folder": {"read": [""], "deny": ["/keys"]},
    "deny_write": {"write": [""], "deny_write": ["/secret.txt"]},
    "read-only": {"write": [""], "read": ["/secret.txt"]},
}


def test_what_has_another_spelling_is_not_covered_by_half(files: Path) -> None:
    """Where case does not matter the mask of one spelling leaves the others: refused by name."""
    code = f"""
found = {{}}
for name, rules in {RULES!r}.items():
    rules = {{kind: [FILES + path for path in paths] for kind, paths in rules.items()}}
    found[name] = refusal(**rules)
print(json.dumps(found))
"""
    assert run("exact", files, code) == dict.fromkeys(RULES, "")
    outside = "print(json.dumps([open(FILES + '/SECRET.TXT').read(), os.listdir(FILES)]))"
    assert run("folds", files, outside) == ["top secret", ["keys", "secret.txt"]]
    refused = run("folds", files, code)
    assert [name for name in RULES if "several spellings" in refused[name]] == list(RULES)


def test_a_hidden_secret_has_no_second_spelling(files: Path) -> None:
    """A secret that is found by its name is refused too where it has other spellings."""
    (files / "back" / ".env").write_text("PASSWORD=1")
    code = "print(json.dumps([open(FILES + '/.ENV').read(), refusal(read=[FILES])]))"
    outside, refused = run("folds", files, code)
    assert outside == "PASSWORD=1"
    assert refused.startswith("secrets: ")


def test_a_workspace_without_case_is_refused(files: Path) -> None:
    """Held names (``.vscode``) would be made as ``.VSCODE``: the workspace does not open."""
    code = "print(json.dumps(refusal(write=[FILES], deny_write=[FILES + '/.vscode'])))"
    assert "other spellings" in run("folds", files, code)
    # Foreign names are the other side's affair; the wall compares none.
    assert "other spellings" in run("exact", files, code)
    walled = """
with Jail(JailPolicy(write=[FILES], deny_write=[FILES + "/.vscode"], absent_deny="wall")) as jail:
    made = jail.run(["mkdir", FILES + "/.VSCODE"]).exit_code
print(json.dumps([made, os.listdir(FILES)]))
"""
    made, names = run("folds", files, walled)
    assert made != 0
    assert ".VSCODE" not in names


def test_folders_of_earlier_versions_are_covered(files: Path) -> None:
    """A ``.snapshot`` that no listing names holds what a deny or a secret hides."""
    earlier = files / "back-snapshots"
    (earlier / "keys").mkdir(parents=True)
    (earlier / "secret.txt").write_text("earlier secret")
    (earlier / "keys" / "id").write_text("earlier key")
    code = """
paths = [FILES + "/.snapshot/secret.txt", FILES + "/keys/.snapshot/id"]
outside = [open(path).read() for path in paths]
listed = ".snapshot" in os.listdir(FILES)
with Jail(JailPolicy(read=[FILES], deny=[FILES + "/keys/id"])) as jail:
    inside = [jail.run(["cat", path]).stdout_text for path in paths]
print(json.dumps([outside, listed, inside]))
"""
    assert run("snapshots", files, code) == [
        ["earlier secret", "earlier key"],
        False,
        ["", ""],
    ]
