"""The recipe: modules that are imported by name when they are first needed, programs, and sources.

The programs go along as binaries, which keep their run bits. Workers get the modules of ``guest``
as source or compiled from it, so those are there as files too.
"""

from PyInstaller.utils.hooks import (
    collect_data_files,
    collect_submodules,
    get_module_file_attribute,
)

_folder = get_module_file_attribute("visruntime").rpartition("/")[0]

hiddenimports = [
    "_cffi_backend",
    *collect_submodules("visruntime", filter=lambda name: "_pyinstaller" not in name),
]
datas = [
    *collect_data_files("visruntime", excludes=["_pyinstaller", "bin", "vispython"]),
    *collect_data_files("visruntime", subdir="guest", include_py_files=True),
]
binaries = [
    (f"{_folder}/bin/visjail-init", "visruntime/bin"),
    (f"{_folder}/vispython", "visruntime"),
]
