"""libvisjail for hosts that are not Python: it exports what its headers declare, and nothing else."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from pack_archive import HEADERS

ROOT = Path(__file__).parents[2]
NATIVE = ROOT / "native" / "visjail"


def declared() -> set[str]:
    """Return the functions that the headers declare and do not define themselves."""
    text = "".join((NATIVE / name).read_text() for name in HEADERS)
    functions = re.findall(r"^(?:\w[\w ]*[ *])(vj_\w+)\(", text, re.MULTILINE)
    inline = re.findall(r"^static inline .*?(vj_\w+)\(", text, re.MULTILINE)
    return set(functions) - set(inline)


def test_the_library_exports_what_its_headers_declare(tmp_path: Path) -> None:
    """A function that no header declares may not become an interface by being exported."""
    cmake = (NATIVE / "CMakeLists.txt").read_text()
    match = re.search(r"set\(VISJAIL_SOURCES([^)]*)\)", cmake)
    assert match is not None
    library = tmp_path / "libvisjail.so"
    command = ["cc", "-shared", "-fPIC", "-O0", "-D_GNU_SOURCE", "-o", str(library)]
    command += [*match[1].split(), "-Wl,--version-script=visjail.map"]
    subprocess.run(command, check=True, cwd=NATIVE, timeout=60)
    listed = subprocess.run(
        ["nm", "--dynamic", "--defined-only", str(library)],
        capture_output=True,
        text=True,
        check=True,
        timeout=10,
    ).stdout
    exported = {line.split()[-1] for line in listed.splitlines()}
    assert "vj_jail_open" in exported
    assert exported == declared()
