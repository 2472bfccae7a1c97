"""What the attempts are about: files, servers and a process of the host, made for them.

There are two trees of files, one for the jail and one for the controls, which change theirs.
"""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, Self

from visruntime._jail.making import make_file, make_folder
from visruntime.policy import JailPolicy

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Scene", "Tree"]

CONTENT = b"of the host\n"
SYSTEM_FILES = ("/etc/debian_version", "/etc/issue", "/etc/profile", "/etc/shells", "/etc/services")
"""World-readable files of which a policy grants none unasked; the first that is there is used."""
VICTIM = """
import ctypes, sys
libc = ctypes.CDLL(None)
libc.prctl(0x59616d61, ctypes.c_ulong(-1), 0, 0, 0)  # Yama: anybody may trace this
room = ctypes.create_string_buffer(b"of the victim")
print(ctypes.addressof(room), flush=True)
sys.stdin.read()
"""
_IPC_CREAT, _IPC_RMID = 0o1000, 0
_CHANGES_IN_READ = ("file", "doomed", "moved", "exchanged")


class Tree:
    """One tree of files: ``secret`` and ``database`` beside a ``read`` and a ``work`` folder."""

    def __init__(self, top: str) -> None:
        self.top = top
        self.read: str = f"{top}/read"
        self.work: str = f"{top}/work"
        self.secret: str = f"{top}/secret"
        self.database: str = f"{top}/database"
        kept = [f"{self.work}/{name}" for name in ("denied", "kept", "folder/denied")]
        with ExitStack() as end:
            made = _Maker(os.path.dirname(top), end)
            own = made.folder(os.path.basename(top))
            read, work = own.folder("read"), own.folder("work")
            inner = work.folder("folder")
            own.files("secret")
            read.files(*_CHANGES_IN_READ)
            work.files("denied", "kept")
            inner.files("denied")
            # To sqlite that is a database without tables; not every build of it can serialize one.
            make_file("database", own.descriptor, b"")
        self._kept = kept
        self._before = {path: self._state(path) for path in self._watched()}
        self._names = set(os.listdir(self.read))

    def policy(self, base: JailPolicy) -> JailPolicy:
        """Return *base* with the clauses that the attempts are about."""
        return base.replace(
            read=(*base.read, self.read),
            write=(*base.write, self.work),
            deny=(*base.deny, f"{self.work}/denied", f"{self.work}/folder/denied"),
            deny_write=(*base.deny_write, f"{self.work}/kept"),
        )

    def damage(self) -> list[str]:
        """Return what has changed of that which nobody may change, and take it as given."""
        found = [path for path in self._before if self._state(path) != self._before[path]]
        found += [f"{self.read}/{name}" for name in set(os.listdir(self.read)) - self._names]
        self._before = {path: self._state(path) for path in self._watched()}
        self._names = set(os.listdir(self.read))
        return found

    def _watched(self) -> Iterator[str]:
        yield from (self.secret, self.database, *self._kept)
        yield from (f"{self.read}/{name}" for name in _CHANGES_IN_READ)

    @staticmethod
    def _state(path: str) -> tuple[Any, ...] | None:
        try:
            status = os.lstat(path)
            with open(path, "rb") as file:
                return status.st_ino, status.st_mode, status.st_mtime_ns, file.read()
        except OSError:
            return None


class _Maker:
    """A folder in which things are made by its descriptor, so that no link is followed."""

    def __init__(self, path: str | int, end: ExitStack) -> None:
        """Open the folder *path* until *end* closes it, or take the descriptor of one."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        self.descriptor: int = os.open(path, flags) if isinstance(path, str) else path
        self._end = end
        end.callback(os.close, self.descriptor)

    def folder(self, name: str) -> _Maker:
        return _Maker(make_folder(name, self.descriptor), self._end)

    def files(self, *names: str) -> None:
        for name in names:
            make_file(name, self.descriptor, CONTENT)


class Scene:
    """Everything, until it is closed."""

    def __init__(self, folder: str) -> None:
        self._end = ExitStack()
        try:
            self.jailed: Tree = Tree(f"{folder}/jailed")
            self.free: Tree = Tree(f"{folder}/free")
            self._make(folder)
        except BaseException:
            self._end.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end.close()

    def names(self, tree: Tree, *, jailed: bool) -> dict[str, Any]:
        """Return what the attempts know as ``S``."""
        return self._names | {
            "top": tree.top,
            "read": tree.read,
            "work": tree.work,
            "secret": tree.secret,
            "database": tree.database,
            "supervisor": 1 if jailed else self._names["victim"],
            "jailed": jailed,
        }

    def _make(self, folder: str) -> None:
        victim = self._victim()
        assert victim.stdout is not None
        address = int(victim.stdout.readline())
        shared = f"/dev/shm/visruntime-{os.getpid()}-{victim.pid}"  # noqa: S108 - made with O_EXCL
        os.close(os.open(shared, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        self._end.callback(_remove, shared)
        controller, terminal = os.openpty()
        self._end.callback(os.close, controller)
        self._end.callback(os.close, terminal)
        abstract = f"visruntime-{os.getpid()}-{victim.pid}"
        self._listen(socket.AF_UNIX, "\0" + abstract)
        for place in (folder, self.jailed.read, self.free.read):
            # By a descriptor: the address of a socket has room for a short path only.
            handle = os.open(place, os.O_PATH | os.O_CLOEXEC)
            self._listen(socket.AF_UNIX, f"/proc/self/fd/{handle}/socket")
            os.close(handle)
        tcp = self._listen(socket.AF_INET, ("127.0.0.1", 0)).getsockname()[1]
        for tree in (self.jailed, self.free):
            tree._names.add("socket")
        self._names = {
            "system": next(filter(_is_public, SYSTEM_FILES), ""),
            "victim": victim.pid,
            "address": address,
            "shared_memory": shared,
            "terminal": os.ttyname(terminal),
            "abstract": abstract,
            "socket": f"{folder}/socket",
            "tcp": tcp,
            "udp": self._echo(),
            "key": self._system_v(),
        }

    def _victim(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", VICTIM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._end.callback(_end_process, process)
        return process

    def _listen(self, family: int, address: Any) -> socket.socket:
        server = socket.socket(family, socket.SOCK_STREAM)
        self._end.callback(server.close)
        server.bind(address)
        server.listen(16)
        return server

    def _echo(self) -> int:
        server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        server.bind(("127.0.0.1", 0))
        port: int = server.getsockname()[1]
        thread = threading.Thread(target=_answer, args=(server,), daemon=True)
        thread.start()

        def end() -> None:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
                last.sendto(b"", ("127.0.0.1", port))
            thread.join()
            server.close()

        self._end.callback(end)
        return port

    def _system_v(self) -> int:
        libc = ctypes.CDLL(None, use_errno=True)
        for key in range(os.getpid() << 8, (os.getpid() << 8) + 255):
            number = libc.shmget(ctypes.c_int(key), 4096, _IPC_CREAT | 0o2000 | 0o600)
            if number >= 0:
                self._end.callback(libc.shmctl, number, _IPC_RMID, None)
                return key
        raise OSError(ctypes.get_errno(), "no System V shared memory can be made")


def _answer(server: socket.socket) -> None:
    """Send back what comes, until it is nothing."""
    while True:
        with suppress(ConnectionError):
            data, sender = server.recvfrom(16)
            if not data:
                return
            server.sendto(data, sender)


def _is_public(path: str) -> bool:
    return os.access(path, os.R_OK) and not JailPolicy().why("read", path).allowed


def _remove(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)


def _end_process(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()
