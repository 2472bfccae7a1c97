"""What WindowsJail can ask of Windows at all: its table of calls, read as it is declared."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.one_uid

HEADER = Path(__file__).parent.parent.parent / "native/visjail/windows_os.h"
NOTHING_TO_PROTECT = {
    "profile_create": "an AppContainer profile has no descriptor of the caller's",
    "console_create": "a pseudo console is no object that others can name",
}


def calls() -> dict[str, str]:
    """Return the calls of the table, each with its parameters."""
    text = re.sub(r"//.*", "", HEADER.read_text("utf-8"))
    table = text[text.index("struct vj_windows_os {") :]
    found = re.findall(r"\(\*(\w+)\)\(([^;]*)\);", table)
    return {name: " ".join(parameters.split()) for name, parameters in found}


def test_whatever_makes_an_object_is_given_its_rights() -> None:
    """W31: no call that makes an object may leave its rights to the host's token."""
    makers = [name for name in calls() if re.search(r"_(create|connect)$|^thread_start$", name)]
    assert len(makers) > 8
    for name in makers:
        if name not in NOTHING_TO_PROTECT and name != "process_create":
            assert "vj_windows_security security" in calls()[name], name
    assert "vj_windows_security security" in calls()["desktop_open"]
    launch = (
        HEADER.read_text("utf-8")
        .partition("} vj_windows_launch;")[0]
        .rpartition("typedef struct")[2]
    )
    assert re.findall(r"vj_windows_security (\w+);", launch) == ["process", "thread"]


def test_no_call_changes_the_rights_of_what_is_there() -> None:
    """W14: nothing that exists may get other rights, so the table may have no call that gives any."""
    named = {name for name in calls() if "security" in name}
    assert named == {"security_open", "security_close", "security_equal"}
    setting = {name for name in calls() if re.search(r"_set|acl|label|owner_set|protect", name)}
    assert setting == {"job_set_limits"}
    assert len(calls()) > 40
