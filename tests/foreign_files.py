"""A small file system whose names mean what a server says, and jails on it.

Run as ``foreign_files.py KIND FOLDER CODE``: it mounts itself at ``FOLDER/mnt`` in a mount namespace
of its own, shows what is in ``FOLDER/back``, and executes CODE there. KIND is "folds" (case does
not matter, as on a share of Windows), "snapshots" (each folder has a ``.snapshot`` that no listing
names) or "exact". ``FOLDER/asked`` has each name that somebody looked up.

It speaks the kernel's protocol itself (include/uapi/linux/fuse.h, 7.31), so that no library is
needed. Nodes are numbered by their names, as libfuse does it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

CLONE_NEWNS = 0x20000
MS_REC_PRIVATE = 0x44000
MNT_DETACH = 2
HEADER = struct.Struct("<IIQQIIII")
ENTRY = struct.Struct("<QQQQII")
ATTRIBUTES = struct.Struct("<6Q10I")
VERSION = (7, 31)


def on_files(kind: str, folder: Path, code: str, *, expect: int = 0) -> str:
    """Execute *code* where ``folder/mnt`` is such a file system; return what it printed."""
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR))
    except OSError as error:
        pytest.skip(f"/dev/fuse cannot be opened by this user: {error.strerror}")
    if os.geteuid() != 0:
        pytest.skip("mounting a file system for others needs root")
    for name in ("mnt", "back"):
        (folder / name).mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, __file__, kind, str(folder), code],
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
        env={**os.environ, "PYTHONPATH": os.path.dirname(__file__)},
    )
    assert done.returncode == expect, done.stderr
    return done.stdout


class Server:
    """Answers the kernel's questions about one folder."""

    def __init__(self, kind: str, folder: str, device: int) -> None:
        self.kind, self.back, self.device = kind, f"{folder}/back", device
        self.asked = open(f"{folder}/asked", "ab", buffering=0)  # noqa: SIM115 - as long as it serves
        self.paths = {1: self.back}
        self.numbers = {self.back: 1}

    def serve(self) -> None:
        """Answer until the file system is unmounted."""
        while True:
            try:
                question = os.read(self.device, 1 << 20)
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.EINTR):
                    continue
                return
            size, operation, unique, node, *_ = HEADER.unpack_from(question)
            if operation in (2, 36, 42):  # FORGET, INTERRUPT and BATCH_FORGET want no answer
                continue
            try:
                data, failed = self.answer(operation, node, question[HEADER.size : size]), 0
            except OSError as error:
                data, failed = b"", error.errno or errno.EIO
            try:
                os.write(self.device, struct.pack("<IiQ", 16 + len(data), -failed, unique) + data)
            except OSError:
                continue  # who asked has gone

    def answer(self, operation: int, node: int, data: bytes) -> bytes:
        """Return the answer to one question."""
        known = {
            1: self._lookup, 3: self._attributes, 4: self._change, 8: self._make_node,
            9: self._make_folder, 10: self._remove, 12: self._rename, 14: self._opened,
            15: self._read, 16: self._write, 17: self._size, 26: self._begin, 27: self._opened,
            28: self._listing, 35: self._create, 45: self._rename_with_flags,
        }  # fmt: skip
        if operation in (18, 20, 25, 29):  # nothing is kept open or back
            return b""
        if operation not in known:
            raise OSError(errno.ENOSYS, "")
        return known[operation](self.paths.get(node, ""), data)

    def _begin(self, _: str, __: bytes) -> bytes:
        return struct.pack("<IIIIHHII36x", *VERSION, 65536, 0, 10, 10, 65536, 1)

    def _find(self, folder: str, raw: bytes) -> str:
        name = os.fsdecode(raw.split(b"\0", 1)[0])
        if self.kind == "snapshots" and name == ".snapshot":
            # The server's own folder, which holds copies of what was in this one.
            return os.path.join(f"{self.back}-snapshots", os.path.relpath(folder, self.back))
        if self.kind == "folds":
            same = [one for one in os.listdir(folder) if one.lower() == name.lower()]
            name = same[0] if same else name
        return os.path.join(folder, name)

    def _entry(self, path: str) -> bytes:
        # By the spelling that was asked for it would be another inode each time; by the file
        # it is one, and the kernel still keeps an entry for each spelling.
        described = self._describe(path)
        return ENTRY.pack(self.numbers[path], 0, 0, 0, 0, 0) + described

    def _describe(self, path: str) -> bytes:
        status = os.lstat(path)
        if path not in self.numbers:
            self.numbers[path] = len(self.paths) + 1
            self.paths[self.numbers[path]] = path
        return ATTRIBUTES.pack(
            self.numbers[path], status.st_size, 1, 0, int(status.st_mtime), 0, 0, 0, 0,
            status.st_mode, status.st_nlink, status.st_uid, status.st_gid, 0, 4096, 0,
        )  # fmt: skip

    def _lookup(self, folder: str, data: bytes) -> bytes:
        self.asked.write(data.rstrip(b"\0") + b"\n")
        return self._entry(self._find(folder, data))

    def _attributes(self, path: str, _: bytes) -> bytes:
        return struct.pack("<QII", 0, 0, 0) + self._describe(path)

    def _change(self, path: str, data: bytes) -> bytes:
        valid, _, _, size = struct.unpack_from("<IIQQ", data)
        if valid & 8:
            os.truncate(path, size)
        if valid & 1:
            os.chmod(path, struct.unpack_from("<I", data, 68)[0] & 0o7777)
        return self._attributes(path, data)

    def _make_node(self, folder: str, data: bytes) -> bytes:
        path = self._find(folder, data[16:])
        os.mknod(path, struct.unpack_from("<I", data)[0])
        return self._entry(path)

    def _make_folder(self, folder: str, data: bytes) -> bytes:
        path = self._find(folder, data[8:])
        os.mkdir(path, 0o755)
        return self._entry(path)

    def _create(self, folder: str, data: bytes) -> bytes:
        path = self._find(folder, data[16:])
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))
        return self._entry(path) + bytes(16)

    def _remove(self, folder: str, data: bytes) -> bytes:
        os.unlink(self._find(folder, data))
        return b""

    def _rename(self, folder: str, data: bytes, head: int = 8) -> bytes:
        old, new = data[head:].split(b"\0")[:2]
        target = self.paths[struct.unpack_from("<Q", data)[0]]
        os.rename(self._find(folder, old), self._find(target, new))
        return b""

    def _rename_with_flags(self, folder: str, data: bytes) -> bytes:
        return self._rename(folder, data, 16)

    def _opened(self, _: str, __: bytes) -> bytes:
        return bytes(16)

    def _read(self, path: str, data: bytes) -> bytes:
        offset, size = struct.unpack_from("<QI", data, 8)
        with open(path, "rb") as file:
            file.seek(offset)
            return file.read(size)

    def _write(self, path: str, data: bytes) -> bytes:
        offset, size = struct.unpack_from("<QI", data, 8)
        descriptor = os.open(path, os.O_WRONLY)
        os.pwrite(descriptor, data[40 : 40 + size], offset)
        os.close(descriptor)
        return struct.pack("<II", size, 0)

    def _size(self, _: str, __: bytes) -> bytes:
        return bytes(80)

    def _listing(self, path: str, data: bytes) -> bytes:
        offset, size = struct.unpack_from("<QI", data, 8)
        found = b""
        for index, name in enumerate([".", "..", *sorted(os.listdir(path))][offset:], offset + 1):
            raw = os.fsencode(name)
            found += struct.pack("<QQII", index, index, len(raw), 0) + raw + bytes(-len(raw) % 8)
        return found[:size]


def main() -> None:
    """Mount, serve in a child, and execute the code."""
    kind, folder, code = sys.argv[1:]
    libc = ctypes.CDLL(None, use_errno=True)

    def checked(result: int) -> None:
        if result != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    checked(libc.unshare(CLONE_NEWNS))
    checked(libc.mount(b"none", b"/", None, MS_REC_PRIVATE, None))
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    point = f"{folder}/mnt".encode()
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions"
    checked(libc.mount(b"test", point, b"fuse", 6, options.encode()))
    child = os.fork()
    if child == 0:
        Server(kind, folder, device).serve()
        os._exit(0)
    os.close(device)
    try:
        exec(compile(code, "<test>", "exec"), {"FILES": f"{folder}/mnt"})
    finally:
        checked(libc.umount2(point, MNT_DETACH))
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
