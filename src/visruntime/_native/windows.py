"""The seam to the C of a `WindowsJail`: windows_jail.h, in Python's own types.

It is imported on Windows only, and when a jail is made. Each call fills one record of an error;
`WindowsError` carries it, and what it means to a caller is decided above.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

__all__ = ["WindowsCalls", "WindowsError", "load"]

STATUSES = (
    "ok refused unavailable system stale state closing poisoned mismatch changed ended timed_out "
    "no_memory"
).split()
"""By number, as vj_windows_status has them."""
STATES = ("open", "sealed", "poisoned", "closing")
VERSION = 1
REMOVE_WORK = 1
SPAWN_CONSOLE, SPAWN_NO_INPUT, SPAWN_CHANNEL = 1, 4, 8
FOREVER = -1


class WindowsError(Exception):
    """A call failed.

    ``status`` is one of `STATUSES`, ``step`` what was being done, ``winerror`` a code of Win32 or
    0, ``index`` the item of the request that it concerns, or -1. ``context`` is a jail that the failed
    call has left, or 0.
    """

    def __init__(self, status: str, step: str, winerror: int, index: int, text: str) -> None:
        super().__init__(text or step)
        self.status = status
        self.step = step
        self.winerror = winerror
        self.index = index
        self.context = 0


class WindowsCalls:
    """The functions of windows_jail.h over *ffi* and *lib*, which a module of cffi has."""

    def __init__(self, ffi: Any, lib: Any) -> None:
        self._ffi = ffi
        self._lib = lib

    def _structure(self, name: str, **values: Any) -> Any:
        made = self._ffi.new(f"{name} *")
        made.size = self._ffi.sizeof(name)
        made.version = VERSION
        for field, value in values.items():
            setattr(made, field, value)
        return made

    def _text(self, text: bytes, held: list[Any]) -> Any:
        data = self._ffi.new("char[]", text)
        held.append(data)
        return self._ffi.new("vj_windows_text *", (data, len(text)))[0]

    def _string(self, text: Any) -> str:
        return bytes(self._ffi.string(text)).decode("utf-8", "replace")

    def _call(self, name: str, *arguments: Any) -> None:
        error = self._structure("vj_windows_error")
        status = getattr(self._lib, name)(*arguments, error)
        if status:
            word = STATUSES[status] if status < len(STATUSES) else "system"
            raise WindowsError(
                word,
                self._string(error.step),
                error.os_error,
                error.index,
                self._string(error.text),
            )

    def probe(self) -> int:
        """Return the build of Windows if each part is there that a jail needs; touches nothing."""
        build = self._ffi.new("uint32_t *")
        self._call("vj_windows_probe", build)
        return int(build[0])

    def create(self, parent: str, *, remove_work: bool) -> tuple[int, dict[str, Any]]:
        """Make a context below *parent*; return its id, and where it is.

        Raises:
            WindowsError: its ``context`` is not 0 where something was left, to be closed.
        """
        held: list[Any] = []
        options = self._structure(
            "vj_windows_create_options",
            parent=self._text(_bytes(parent), held),
            flags=REMOVE_WORK if remove_work else 0,
        )
        context = self._ffi.new("vj_windows_id *")
        info = self._structure("vj_windows_context_info")
        try:
            self._call("vj_windows_create", options, context, info)
        except WindowsError as error:
            error.context = context[0]
            raise
        return context[0], {
            "build": info.build,
            "package": self._string(info.package),
            "package_sid": self._string(info.package_sid),
            "root": self._string(info.root),
        }

    def remove_stale(self, parent: str) -> int:
        """Remove what dead hosts have left below *parent*; return how many contexts."""
        held: list[Any] = []
        removed = self._ffi.new("uint64_t *")
        text = self._ffi.new("vj_windows_text *", self._text(_bytes(parent), held))
        self._call("vj_windows_remove_stale", text, removed)
        return int(removed[0])

    def stage(
        self, context: int, sources: Sequence[tuple[str, str]], **most: int
    ) -> tuple[int, int, int]:
        """Copy (source, destination) pairs; return the numbers of files, folders and bytes."""
        held: list[Any] = []
        array = self._ffi.new("vj_windows_source[]", len(sources))
        for item, (source, destination) in zip(array, sources, strict=True):
            item.source = self._text(_bytes(source), held)
            item.destination = self._text(_bytes(destination), held)
        request = self._structure(
            "vj_windows_stage_request", sources=array, source_count=len(sources), **most
        )
        info = self._structure("vj_windows_stage_info")
        self._call("vj_windows_stage", context, request, info)
        return info.files, info.directories, info.bytes

    def seal(self, context: int) -> None:
        """Allow processes from now on, and no more staging."""
        self._call("vj_windows_seal", context)

    def state(self, context: int) -> str:
        """Return one of `STATES`."""
        state = self._ffi.new("vj_windows_context_state *")
        self._call("vj_windows_state_of", context, state)
        return STATES[int(state[0])]

    def spawn(
        self,
        context: int,
        *,
        arguments: Sequence[str],
        environment: Sequence[str],
        directory: str,
        console: tuple[int, int] | None,
        has_input: bool,
        has_channel: bool,
        numbers: dict[str, int],
    ) -> dict[str, Any]:
        """Start a program; *console* is (columns, rows), *numbers* the limits by their names in C."""
        held: list[Any] = []
        columns, rows = console or (0, 0)
        flags = (SPAWN_CONSOLE if console else 0) | (0 if has_input else SPAWN_NO_INPUT)
        flags |= SPAWN_CHANNEL if has_channel else 0
        request = self._structure(
            "vj_windows_spawn_request",
            application=self._text(_bytes(arguments[0]), held),
            arguments=self._text(_packed(arguments), held),
            argument_count=len(arguments),
            environment=self._text(_packed(environment), held),
            environment_count=len(environment),
            directory=self._text(_bytes(directory), held),
            flags=flags,
            columns=columns,
            rows=rows,
            **numbers,
        )
        info = self._structure("vj_windows_spawn_info")
        self._call("vj_windows_spawn", context, request, info)
        return {
            "process": info.process,
            "input": info.input,
            "output": info.output,
            "errors": info.errors,
            "to_guest": info.to_guest,
            "from_guest": info.from_guest,
            "pid": info.pid,
            "created": info.created,
            "integrity": info.integrity,
            "package_sid": self._string(info.package_sid),
            "capability_sid": self._string(info.capability_sid),
        }

    def wait(self, process: int, milliseconds: int) -> dict[str, int]:
        """Wait for a program; its exit, all as numbers."""
        result = self._structure("vj_windows_exit")
        self._call("vj_windows_wait", process, milliseconds, result)
        names = ("exit_code", "killed", "processes", "user_ns", "kernel_ns")
        peaks = ("peak_process_memory", "peak_job_memory")
        return {name: getattr(result, name) for name in (*names, *peaks)}

    def kill(self, process: int) -> None:
        """End a program and its descendants."""
        self._call("vj_windows_kill", process)

    def resize(self, process: int, columns: int, rows: int) -> None:
        """Set the size of a program's console."""
        self._call("vj_windows_resize", process, columns, rows)

    def release(self, process: int) -> None:
        """Forget a program, which is ended."""
        self._call("vj_windows_release", process)

    def read(self, stream: int, buffer: Any, milliseconds: int) -> int:
        """Read into *buffer*; 0 at the end of the stream."""
        count = self._ffi.new("uint64_t *")
        to = self._ffi.from_buffer(buffer, require_writable=True)
        self._call("vj_windows_read", stream, to, len(to), milliseconds, count)
        return int(count[0])

    def write(self, stream: int, data: Any, milliseconds: int) -> tuple[int, bool]:
        """Write *data*; return how much was taken, and whether the time was over."""
        count = self._ffi.new("uint64_t *")
        given = self._ffi.from_buffer(data)
        try:
            self._call("vj_windows_write", stream, given, len(given), milliseconds, count)
        except WindowsError as error:
            if error.status != "timed_out":
                raise
            return int(count[0]), True
        return int(count[0]), False

    def close_stream(self, stream: int) -> None:
        """Close one stream; calls of other threads on it end."""
        self._call("vj_windows_close_stream", stream)

    def close(self, context: int) -> None:
        """End and remove a context; after an error it may be called again."""
        self._call("vj_windows_close", context)


def _packed(texts: Sequence[str]) -> bytes:
    return b"".join(_bytes(text) + b"\0" for text in texts)


def _bytes(text: str) -> bytes:
    # Half a surrogate pair goes on as it is: C refuses it, and says what and where.
    return text.encode("utf-8", "surrogatepass")


def load() -> WindowsCalls:
    """Return the calls of the compiled module.

    Raises:
        ImportError: it is not there, or is not for Windows.
    """
    from visruntime._visjail import ffi, lib

    if not hasattr(lib, "vj_windows_create"):
        raise ImportError("this build of libvisjail has no WindowsJail")
    return WindowsCalls(ffi, lib)
