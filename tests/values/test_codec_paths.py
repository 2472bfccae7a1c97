"""Paths in the value codec: exact, counted by their parts, and of no part kept in the host."""

from __future__ import annotations

import pathlib
import subprocess

import pytest
from interpreters import INTERPRETERS

from visruntime._native import decode, encode
from visruntime.guest import values

pytestmark = pytest.mark.one_uid

PARTS_STAY = """
import importlib.util, itertools, pathlib, sys
spec = importlib.util.spec_from_file_location("values", sys.argv[1])
values = importlib.util.module_from_spec(spec)
spec.loader.exec_module(values)

def stays(build, part):
    path = build(f"/{part}/{part}")
    assert str(path) == f"/{part}/{part}" and hash(path) is not None and path == build(str(path))
    del path
    fresh = "".join(list(part))
    return sys.intern(fresh) is not fresh

assert not stays(values._build_path, "a part of a guest's")
assert stays(pathlib.PurePosixPath, "the control's") is ((3, 12) <= sys.version_info < (3, 12, 7))
for size in range(6):
    for letters in itertools.product("/.ab", repeat=size):
        text = "".join(letters)
        usual = pathlib.PurePosixPath(text)
        try:
            built = values._build_path(text)
        except ValueError:
            assert str(usual) != text, text
        else:
            pairs = (built, usual), (built.parent, usual.parent), (built / "c", usual / "c")
            for one, other in pairs:
                assert one == other and (str(one), one.parts) == (str(other), other.parts), text
                assert (hash(one), one.anchor, one.name) == (hash(other), other.anchor, other.name)
"""


@pytest.mark.parametrize("python", INTERPRETERS)
def test_no_part_of_a_path_is_kept_for_ever(python: str) -> None:
    """CPython before 3.12.7 never forgets what it interned, and pathlib interns every part."""
    done = subprocess.run(
        [python, "-I", "-c", PARTS_STAY, values.__file__],
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_parts_of_paths_count() -> None:
    """A path counts what its parts take in memory, on both sides alike."""
    path = pathlib.PurePosixPath("/a/b/c")
    data = encode(path, max_nodes=5)
    assert decode(data, max_nodes=5) == path
    with pytest.raises(ValueError, match="more than 4 parts"):
        encode(path, max_nodes=4)
    with pytest.raises(ValueError, match="more parts than allowed at byte 1"):
        decode(data, max_nodes=4)
