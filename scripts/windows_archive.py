"""A platform archive for the wine lane, packed as one that is released, of what the lane has built.

Its CPython is the lane's, of another version than a release has, and with it the archive's name says
what it is: it is unpacked and tried, and never shipped.
"""

from __future__ import annotations

import subprocess
import zipfile
from typing import TYPE_CHECKING

from archive.parts import pack_parts
from archive.windows_parts import gather
from cross_build import HELPER, LIBRARY, NATIVE, ROOT
from windows_python import VERSION, install_for_windows

if TYPE_CHECKING:
    from pathlib import Path

    from cross_build import Target

__all__ = ["pack"]

EPOCH = 1_700_000_000
WHEEL = "visruntime-0-cp311-abi3-win_amd64.whl"
WORKER = ("vispython.exe", "_viscore.pyd", "_visconsole.pyd")


def pack(target: Target, work: Path) -> Path:
    """Pack what lies below *work* into ``archive`` there, through the gates; return the file.

    Raises:
        ValueError: a gate refuses what came out.
    """
    stub = work / "visjail.lib"
    tool = f"{target.machine}-w64-mingw32-dlltool"
    made = ["-d", str(NATIVE / "visjail.def"), "-D", LIBRARY, "-l", str(stub)]
    subprocess.run([tool, *made], check=True)
    native = {f"bin/{name}": work / "bin" / name for name in (LIBRARY, HELPER)}
    native |= {f"bin/{name}": work / "worker" / name for name in WORKER}
    native["lib/visjail.lib"] = stub
    install_for_windows(work / "uv", "--only-group", "archive")
    note = work / "NOTE.txt"
    note.write_text("CPython is under PSF-2.0; this copy is a fixture of tests.\n")
    version = ".".join(map(str, VERSION))
    gather(work / "parts", native, work / "python", note, version, work / "uv")
    # The lane's own tests of consoles have it there.
    (work / "parts" / "python" / "_visconsole.pyd").unlink()
    wheel, out = work / WHEEL, work / "archive"
    with zipfile.ZipFile(wheel, "w") as file:
        for path in sorted((work / "host" / "visruntime").rglob("*.py")):
            file.write(path, path.relative_to(work / "host").as_posix())
    out.mkdir()
    return pack_parts("windows-x64", work / "parts", wheel, ROOT / "LICENSE", out, EPOCH)
