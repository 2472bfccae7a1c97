"""Whether a staged CPython of Windows is whole: its modules, its folders, a process of its own."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tempfile

MODULES = (
    *("_asyncio", "_bz2", "_ctypes", "_decimal", "_elementtree", "_hashlib", "_lzma"),
    *("_multiprocessing", "_overlapped", "_queue", "_socket", "_sqlite3", "_ssl", "_uuid"),
    *("_zoneinfo", "pyexpat", "select", "unicodedata", "winreg", "msvcrt", "_winapi"),
)

root = os.path.dirname(os.getcwd())
print("modules", len([importlib.import_module(name) for name in MODULES]), "of", len(MODULES))
print("platform", sys.platform, sys.version_info[0], sys.implementation.name)
print("program", os.path.relpath(sys.executable, root))
print("directory", os.path.relpath(os.getcwd(), root))
temporary = os.path.relpath(tempfile.gettempdir(), root)
print("temporary", temporary.replace(os.path.basename(root), "*"))
with tempfile.TemporaryDirectory() as folder, open(os.path.join(folder, "a"), "w") as file:
    print("wrote", file.write("text"))
child = subprocess.run(
    [sys.executable, "-I", "-B", "-c", "print('child')"],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    check=True,
    timeout=60,
)
print("process", child.stdout.decode().strip())
with open("kept.txt", "w") as file:
    file.write("kept")
