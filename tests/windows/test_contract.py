"""The contract of `WindowsJail`: each of its 70 points is shown where doc/reference/windows.md says."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.one_uid

ROOT = Path(__file__).parent.parent.parent
TABLE = ROOT / "doc/reference/windows.md"
POINT = re.compile(r"\bW([1-9][0-9]?)\b")
ROW = re.compile(r"^\| W(\d+) \| (.+) \| ([a-z0-9, ]+) \|$", re.MULTILINE)
POINTS = range(1, 71)
WORKFLOW = ".github/workflows/windows.yml"


def contract() -> dict[int, list[str]]:
    """Return the lanes of each point, as the document says."""
    return {int(n): lanes.split(", ") for n, _, lanes in ROW.findall(TABLE.read_text("utf-8"))}


def named_in_python(path: Path) -> set[int]:
    """Return the points that docstrings of tests in *path* name."""
    found: set[int] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            found |= {int(n) for n in POINT.findall(ast.get_docstring(node) or "")}
    return found


def named_in_text(path: Path) -> set[int]:
    """Return the points that comments of a C test or of a script, or steps of a workflow, name."""
    lines = path.read_text("utf-8").splitlines()
    kept = [line for line in lines if re.search(r"//|#|- name:|/\*|^ \*", line)]
    return {int(n) for n in POINT.findall("\n".join(kept))}


def lane_of(path: Path) -> str | None:
    """Return the lane that a file belongs to, by where it is and how it is called."""
    name = path.relative_to(ROOT).as_posix()
    if name in (WORKFLOW, "tests/windows/test_here.py"):
        return "windows"
    if not re.search(r"windows|wine|cross|worker/test_console_guard|project/test_platform", name):
        return None
    for word, lane in (("wine", "wine"), ("cross", "cross"), ("pe_gate", "cross")):
        if word in name:
            return lane
    return "unit"


def shown() -> dict[str, set[int]]:
    """Return the points that each lane names."""
    lanes: dict[str, set[int]] = {name: set() for name in ("unit", "cross", "wine", "windows")}
    for path in [
        *ROOT.glob("tests/**/test_*.py"),
        *ROOT.glob("tests/**/test_*.c"),
        *ROOT.glob("scripts/**/*windows*"),
        *ROOT.glob("scripts/**/*wine*"),
        *ROOT.glob("scripts/**/*cross*"),
        *ROOT.glob(WORKFLOW),
    ]:
        lane = None if "__pycache__" in path.parts else lane_of(path)
        if lane is not None and path.is_file() and path.name != Path(__file__).name:
            named = named_in_python(path) if path.suffix == ".py" else named_in_text(path)
            lanes[lane] |= named
    lanes["refusal"] = lanes["wine"]
    lanes["session0"] = lanes["windows"]
    return lanes


LANES = ("unit", "cross", "wine", "refusal", "windows", "session0")


def later() -> dict[str, set[int]]:
    """Return what each lane does not show yet, as the document says."""
    (line,) = re.findall(r"^Not shown yet.*: (.*)\.$", TABLE.read_text("utf-8"), re.MULTILINE)
    found: dict[str, set[int]] = {lane: set() for lane in LANES}
    for part in line.split(", "):
        lane, *points = part.split()
        found[lane] = {int(point.removeprefix("W")) for point in points}
    return found


def test_the_table_has_each_point_once() -> None:
    """No point may be missing from the table, be there twice, or have a lane that does not exist."""
    numbers = [int(n) for n, _, _ in ROW.findall(TABLE.read_text("utf-8"))]
    assert numbers == list(POINTS)
    for point, lanes in contract().items():
        assert lanes, point
        assert set(lanes) <= set(LANES), point


@pytest.fixture(scope="module")
def named() -> dict[str, set[int]]:
    """Return the points that each lane names."""
    return shown()


@pytest.mark.parametrize("point", POINTS)
def test_each_point_is_named_where_it_is_shown(point: int, named: dict[str, set[int]]) -> None:
    """No point may be without the test, or the step of a workflow, that the table promises."""
    open_points = later()
    lanes = contract()[point]
    missing = [lane for lane in lanes if point not in named[lane] | open_points[lane]]
    assert missing == [], f"W{point} is named nowhere in: {', '.join(missing)}"


def test_the_search_sees_a_point_that_is_named_nowhere(tmp_path: Path) -> None:
    """The search itself must tell a test's docstring from any other mention."""
    path = tmp_path / "test_x.py"
    path.write_text(
        '"""W1"""\n# W2\ndef helper():\n    """W3"""\ndef test_x():\n    """W4, W50: x."""\n'
    )
    assert named_in_python(path) == {4, 50}
    other = tmp_path / "x.yml"
    other.write_text("  - name: W7 and W70\n    run: echo W8\n# W9\n")
    assert named_in_text(other) == {7, 9, 70}
