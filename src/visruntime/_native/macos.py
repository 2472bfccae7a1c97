"""Jails of macOS: each run is a process in a sandbox of its own, under the profile of its jail.

There is no supervisor that holds a jail open. What its runs have in common is the profile, but for
one name in it, the marker by which the processes of a run are found.
"""

from __future__ import annotations

import os
import struct
import threading
import weakref

from visruntime._native.jails import Capture, RunHandle
from visruntime._native.library import NativeError, check, ffi, lib
from visruntime._native.profiles import built_profile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, NoReturn

__all__ = ["MacosJailHandle", "ignores_case", "is_sandboxed", "kernel_spelling", "loaded_images"]

TRIED = struct.Struct("=ii")
"""vj_tried of native/visjail/macos_try.h."""
TRY_SECONDS = 30.0
TERMINAL_SIZE = (24, 80)
"""Until the caller sets another one, before the program starts."""


def is_sandboxed() -> bool:
    """Tell whether this process is in a sandbox already, so that no jail can be opened from it."""
    return bool(lib.vj_macos_is_sandboxed())


def loaded_images() -> list[str]:
    """Return the paths of all programs and libraries whose code this process has loaded."""
    found: list[str] = []
    while (path := lib.vj_macos_image(len(found))) != ffi.NULL:
        found.append(os.fsdecode(ffi.string(path)))
    return found


def kernel_spelling(path: str) -> str:
    """Return how macOS spells *path*, of which only the end may be missing.

    Raises:
        NativeError: refused, where it has two spellings.
    """
    missing: list[str] = []
    there = path
    while not os.path.lexists(there) and there != "/":
        there, _, name = there.rpartition("/")
        there = there or "/"
        missing.append(name)
    resolved = ffi.new("char[]", lib.VJ_MACOS_STRING_MAX + 1)
    error = ffi.new("vj_error *")
    check(lib.vj_macos_real_path(os.fsencode(there), resolved, error), error)
    start = os.fsdecode(ffi.string(resolved))
    return "/".join([start.rstrip("/"), *reversed(missing)]) or "/"


def ignores_case(path: str) -> bool:
    """Tell whether names that differ in case only are one name on the volume of *path*."""
    answer, error = ffi.new("bool *"), ffi.new("vj_error *")
    check(lib.vj_macos_ignores_case(os.fsencode(path), answer, error), error)
    return bool(answer[0])


class _MacosRunHandle(RunHandle):
    __slots__ = ("__weakref__",)


class MacosJailHandle:
    """One open jail, with what `JailHandle` of Linux has.

    Args:
        helper, watcher: paths of the two programs.
        profile: what `built_profile` takes, without a terminal.
        limits: ``open_files``, ``file_size`` and ``cpu_seconds``; 0 for none.
        canary: a file that this process can read and no guest.
    """

    __slots__ = ("_closed", "_lock", "_runs", "_spawn", "info", "ports", "profile")

    def __init__(
        self,
        *,
        helper: str,
        watcher: str,
        profile: Mapping[str, Any],
        limits: Mapping[str, int],
        canary: str,
    ) -> None:
        self.profile = dict(profile)
        self.info = {
            "pid": 0,
            "landlock_abi": 0,
            "guest_id": os.getuid(),
            "identity": int(lib.VJ_IDENTITY_CALLER),
            "shared_memory": 0,
        }
        self.ports: list[int] = []
        self._spawn = (helper, watcher, canary, dict(limits))
        self._runs: weakref.WeakSet[_MacosRunHandle] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._closed = False

    def close(self) -> None:
        """End every program of the jail and wait for that. Idempotent."""
        with self._lock:
            self._closed = True
            runs = list(self._runs)
        for run in runs:
            if run.is_held:
                lib.vj_macos_run_close(run.pointer)

    def alive(self) -> bool:
        """Tell whether the jail has not been closed."""
        return not self._closed

    def terminal(self) -> tuple[int, int]:
        """Return the descriptors of a new pseudo-terminal: master, slave."""
        self._check_open()
        master, slave, error = ffi.new("int32_t *"), ffi.new("int32_t *"), ffi.new("vj_error *")
        check(lib.vj_macos_terminal(*TERMINAL_SIZE, master, slave, error), error)
        return master[0], slave[0]

    def pairs(self) -> NoReturn:
        """Refuse: only a Python worker needs them.

        Raises:
            NativeError: refused.
        """
        raise _refused("a Python worker in a jail is not built for macOS")

    def start(
        self,
        *,
        directory: bytes,
        arguments: Sequence[bytes],
        environment: Sequence[bytes],
        descriptors: Mapping[int, int],
        timeout_ns: int = 0,
        search: bool = False,
        terminal: bool = False,
        directory_fallback: bool = False,
        quiet: bool = False,  # noqa: ARG002 - each start is waited for
        file: str | None = None,
        limit: int = 0,
    ) -> RunHandle:
        """Start a program, as `JailHandle.start`, and wait until it is executed.

        Raises:
            NativeError: it could not be started, and by which step; the list of processes is refused.
        """
        if file == "PROCESSES":
            raise _refused("the processes of a jail are not listed on macOS")
        flags = (
            (lib.VJ_BRIEF_SEARCH if search else 0)
            | (lib.VJ_BRIEF_FILE if file else 0)
            | (lib.VJ_BRIEF_TERMINAL if terminal else 0)
            | (lib.VJ_BRIEF_HOME if directory_fallback else 0)
        )
        program = arguments[0]
        if not search and not program.startswith(b"/"):  # as the program itself would be found
            program = os.path.join(directory, program)
        return self._run(
            [program, *arguments[1:]],
            flags=flags,
            directory=directory,
            environment=environment,
            descriptors=descriptors,
            timeout_ns=timeout_ns,
            terminal=os.ttyname(descriptors[0]) if terminal else None,
            file=int(getattr(lib, f"VJ_FILE_{file}")) if file else 0,
            limit=limit,
        )

    def try_acts(self, acts: Sequence[str]) -> list[tuple[int, int]]:
        """Try *acts* (native/visjail/macos_try.h) outside of a sandbox of this jail, and in it.

        Returns the errno of each, 0 where it succeeded: outside, inside.

        Raises:
            NativeError: it could not be started, or did not answer.
        """
        reader, writer = os.pipe()
        try:
            run = self._run(
                [os.fsencode(act) for act in acts],
                flags=lib.VJ_BRIEF_TRY,
                directory=b"/",
                environment=[],
                descriptors={1: writer},
                timeout_ns=int(TRY_SECONDS * 1e9),
            )
        except BaseException:
            os.close(reader)
            raise
        finally:
            os.close(writer)
        answers = Capture(reader, TRIED.size * len(acts) + 2)
        end = run.communicate(answers, None, TRY_SECONDS)
        while end is None and run.is_held:
            run.kill()
            end = run.communicate(answers, None, TRY_SECONDS)
        said = answers.value()
        if end is None or end["status"] or len(said) != TRIED.size * len(acts):
            raise NativeError("system", "canaries", 0, -1, "the helper tried nothing")
        return list(TRIED.iter_unpack(said))

    def _check_open(self) -> None:
        if self._closed:
            raise NativeError("closed", "host", 0, -1, "the jail is closed")

    def _run(
        self,
        arguments: Sequence[bytes],
        *,
        flags: int,
        directory: bytes,
        environment: Sequence[bytes],
        descriptors: Mapping[int, int],
        timeout_ns: int,
        terminal: str | None = None,
        file: int = 0,
        limit: int = 0,
    ) -> RunHandle:
        self._check_open()
        helper, watcher, canary, limits = self._spawn
        marker = ffi.new("char[]", lib.VJ_MARKER_SIZE)
        lib.vj_macos_marker(marker)
        kept: list[Any] = [marker]

        def text(value: bytes) -> Any:
            kept.append(ffi.new("char[]", value))
            return kept[-1]

        spawn = ffi.new("vj_macos_spawn *")
        spawn.size = ffi.sizeof("vj_macos_spawn")
        spawn.version = lib.VJ_MACOS_SPAWN_VERSION
        spawn.flags = flags
        spawn.argument_count, spawn.environment_count = len(arguments), len(environment)
        for field, values in (("arguments", arguments), ("environment", environment)):
            kept.append(ffi.new("char *[]", [*map(text, values), ffi.NULL]))
            setattr(spawn, field, kept[-1])
        spawn.helper, spawn.watcher = text(os.fsencode(helper)), text(os.fsencode(watcher))
        spawn.marker, spawn.directory = marker, text(directory)
        # In a run of canaries the acts are what is tried.
        spawn.canary = ffi.NULL if flags & lib.VJ_BRIEF_TRY else text(os.fsencode(canary))
        spawn.timeout_ns = timeout_ns
        spawn.file, spawn.limit = file, limit
        for field, value in limits.items():
            setattr(spawn.limits, field, value)
        services = [*self.profile.get("services", ()), ffi.string(marker).decode()]
        settings = {**self.profile, "services": services, "terminal": terminal}
        nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        try:
            for number in range(len(spawn.descriptors)):
                missing = nothing if number < 3 else -1
                spawn.descriptors[number] = descriptors.get(number, missing)
            with built_profile(**settings) as profile:
                spawn.profile = profile
                return self._start(spawn)
        finally:
            os.close(nothing)

    def _start(self, spawn: Any) -> RunHandle:
        run, pid, error = ffi.new("vj_run **"), ffi.new("int32_t *"), ffi.new("vj_error *")
        check(lib.vj_macos_run_start(spawn, run, pid, error), error)
        handle = _MacosRunHandle(run[0], pid[0])
        with self._lock:
            self._runs.add(handle)
            closed = self._closed
        if closed:  # meanwhile, by another thread, which did not see this run
            lib.vj_macos_run_close(handle.pointer)
            self._check_open()
        return handle


def _refused(text: str) -> NativeError:
    return NativeError("refused", "request", 0, -1, text)
