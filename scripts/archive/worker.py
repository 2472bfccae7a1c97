"""What a host without Python starts an archive's worker with: two files, as the wheel has them."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["BOOTSTRAP", "START", "write_worker"]

START = "lib/worker/start.py"
"""The text that the worker's Python gets by ``-c``."""
BOOTSTRAP = "lib/worker/bootstrap"
"""The payload of the host's first frame: the guest modules, as source for any Python."""

_ASK = """
import sys
sys.path.insert(0, sys.argv[1])
from visruntime._worker.start import LOAD, bootstrap
with open(sys.argv[2], "w", encoding="ascii") as file:
    file.write(LOAD)
with open(sys.argv[3], "wb") as file:
    file.write(bootstrap(same_as_host=False))
"""


def write_worker(tree: Path, wheel: Path) -> None:
    """Write both into *tree*, from the modules of *wheel* and none of this checkout's."""
    (tree / START).parent.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if name.endswith(".py")]
            archive.extractall(folder, names)
        files = [str(tree / START), str(tree / BOOTSTRAP)]
        write = [sys.executable, "-I", "-B", "-c", _ASK, folder, *files]
        subprocess.run(write, check=True)
