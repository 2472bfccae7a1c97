"""Each call of Win32 that the table makes fails once, in the very code that is shipped.

What the unit lane does with each call of the table, this does below it: between two calls of one
function of the table, too, nothing may get lost.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from wine_helpers import only_in_the_lane

if TYPE_CHECKING:
    from wine_helpers import Wine

only_in_the_lane()

# Of a life of a context, some 440 calls: under VIS_FULL=1 each fails, and else every 43rd.
EVERY = 1 if os.environ.get("VIS_FULL") == "1" else 43
AT_ONCE = 50 * EVERY
# Of these none may fail without a word. Others are done again, or only say more of an error; and
# where the table looks for what a system lacks, the lane's leaves out what wine has not.
TOLD = {
    *("CreateProcessW", "CreatePseudoConsole", "CreateNamedPipeW"),
    *("CreateDirectoryW", "DuplicateHandle", "GetSecurityInfo", "IsProcessInJob"),
    *("ResumeThread", "GetProcessTimes", "CreateFileMappingW", "MapViewOfFile", "WriteFile"),
}


def test_nothing_is_left_whichever_call_of_win32_fails(wine: Wine) -> None:
    """W66, W52: no handle, file or program is left, at once or after one more close."""
    first, failed, harmless, over = 1, 0, set[str](), False
    while not over:
        last = str(first + AT_ONCE - 1)
        answer = wine.run("windows_faults.exe", wine.folder()[0], str(first), last, str(EVERY))
        assert answer.code == 0, answer.lines
        failed += int(answer.value("failed"))
        harmless |= {line.split()[1] for line in answer.lines if line.startswith("harmless ")}
        first, over = first + AT_ONCE, answer.value("end") == "1"
    assert failed >= 300 // EVERY
    assert not harmless & TOLD
