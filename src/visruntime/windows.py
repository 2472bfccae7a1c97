"""Programs that you do not trust, on Windows: `WindowsJail`.

Windows has no mounts of one's own and no Landlock, so its jail is another thing than `Jail`, and no
`JailPolicy` is read as one. Its guests work on private copies in a fresh folder; what else of the
machine they reach, Windows' own lists of rights (ACLs) decide. It works on Windows only, and what
holds there is unclaimed until a run on Windows has shown it.
"""

from __future__ import annotations

import os
import sys
import threading

from visruntime._arguments import check_list, check_mapping, check_path, check_switch, check_whole
from visruntime._policy.values import Frozen, Secret
from visruntime._windows.limits import WindowsLimits
from visruntime.errors import JailClosed, JailPoisoned, JailSealed, JailUnavailable, PolicyError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Self

    from visruntime._native.windows import WindowsCalls
    from visruntime._windows.process import WindowsExit, WindowsProcess, WindowsStream
    from visruntime._windows.python import StagedPython

__all__ = [
    "WindowsExit",
    "WindowsJail",
    "WindowsLimits",
    "WindowsProcess",
    "WindowsStaged",
    "WindowsStream",
]


CLOSE_ATTEMPTS = 3
"""Of what a failed start has left; nobody has an object by which to close it again."""


def __getattr__(name: str) -> object:
    """Import what belongs to programs only when it is asked for."""
    if name in ("WindowsExit", "WindowsProcess", "WindowsStream"):
        from visruntime._windows import process

        return getattr(process, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class WindowsStaged(Frozen):
    """What one `WindowsJail.stage` has copied: ``files``, ``folders`` and ``size`` in bytes."""

    __slots__ = ("files", "folders", "size")
    files: int
    folders: int
    size: int

    def __init__(self, files: int, folders: int, size: int) -> None:
        self._set(files=files, folders=folders, size=size)


class WindowsJail:
    r"""One jail of Windows: a private folder, an AppContainer of its own, and a job for each program.

    The guests are in an AppContainer of the less privileged kind (LPAC) whose only capability is
    ``registryRead``; they have no network. Use the jail as a context manager, and its methods from
    any thread.

    ``app`` below the root holds what was staged, which guests read and execute; ``work`` and
    ``temp`` are theirs to write.

    Args:
        parent: an existing folder of this machine, in which the jail's own is made. Short, such as
            ``C:\jails``: the path of a socket in it is at most 107 bytes.
        keep_work: leave ``work``, with what guests made there, when the jail is closed.

    Raises:
        JailUnavailable: not on Windows; or this Windows, or this build, lacks something. Nothing
            was made. ``reason`` is "platform", "library" or "feature".
        PolicyUnsupported: *parent* is a `JailPolicy`, which no WindowsJail is made of.
        PolicyError: *parent* cannot hold a jail.
    """

    def __init__(self, parent: str | os.PathLike[str], *, keep_work: bool = True) -> None:
        self._context = 0
        parent = _parent(parent)
        check_switch(keep_work, "keep_work")
        self._open(_load(sys.platform), parent, keep_work=keep_work)

    @classmethod
    def _over(cls, calls: WindowsCalls, parent: str, *, keep_work: bool = True) -> Self:
        """Make one over *calls*, which another system can have: of a test, over its own Windows."""
        jail = cls.__new__(cls)
        jail._context = 0
        jail._open(calls, parent, keep_work=keep_work)
        return jail

    def _open(self, calls: WindowsCalls, parent: str, *, keep_work: bool) -> None:
        from visruntime._native.windows import WindowsError
        from visruntime._windows.failures import as_public_error

        self._calls = calls
        self._ending = threading.Lock()
        self._python: StagedPython | None = None
        try:
            self._context, info = calls.create(parent, remove_work=not keep_work)
        except WindowsError as error:
            if error.context:
                _finish(calls, error.context)
            if error.status == "system":
                raise JailUnavailable(
                    str(error), stage=error.step, errno=error.winerror, reason="system"
                ) from None
            raise as_public_error(error) from None
        self.root: str = info["root"]
        """The jail's folder."""
        self.package_sid: str = info["package_sid"]
        """The identifier of its AppContainer, which ACLs could name."""

    @property
    def app(self) -> str:
        """The folder of what was staged."""
        return self.root + "\\app"

    @property
    def work(self) -> str:
        """The folder in which programs start, and which they may write."""
        return self.root + "\\work"

    @property
    def temp(self) -> str:
        """The folder in which ``LOCALAPPDATA``, ``TEMP`` and ``TMP`` of each program lie."""
        return self.root + "\\temp"

    @property
    def state(self) -> str:
        """What it may do: "open", "sealed" (programs have started), "poisoned", "closing", "closed"."""
        if not self._context:
            return "closed"
        try:
            found: str = self._do(self._calls.state, self._context)
        except JailClosed:
            return "closed"
        return found

    def stage(
        self,
        sources: Mapping[str, str | os.PathLike[str]],
        *,
        max_files: int = 100_000,
        max_bytes: int = 4 << 30,
        max_depth: int = 64,
    ) -> WindowsStaged:
        r"""Copy files and folders of the host into ``app``: all of them, or none.

        The copies are the jail's own: what the host changes later does not show in them, and the
        sources and their ACLs stay as they are. Links, junctions and other reparse points, devices,
        shares, and names that Windows would change are refused. A source that changes while it
        is copied is an error.

        Args:
            sources: name below ``app`` (``"bin/tool.exe"``, "" for the content of a folder) ->
                absolute path on the host.
            max_files, max_bytes, max_depth: of all sources together.

        Raises:
            PolicyError: a name, a path or a source that is not taken.
            PathDenied: a source changed meanwhile; ``path`` says which.
            JailSealed: a program has started.
            JailClosed: the jail is closed, or poisoned (`JailPoisoned`).
        """
        given = check_mapping(sources, "sources")
        pairs = []
        for name, source in given.items():
            if not isinstance(name, str):
                raise TypeError(f"sources: names are text, not {type(name).__name__}")
            pairs.append((check_path(source, f"sources[{name!r}]"), name))
        if not pairs:
            raise PolicyError("sources: nothing to stage", field="sources")
        most = {
            "most_files": check_whole(max_files, "max_files", 1),
            "most_bytes": check_whole(max_bytes, "max_bytes", 1, 1 << 60),
            "most_depth": check_whole(max_depth, "max_depth", 1, 64),
        }
        counts = self._do(
            lambda: self._calls.stage(self._live(), pairs, **most),
            sources=[source for source, _ in pairs],
        )
        return WindowsStaged(*counts)

    def stage_python(self) -> WindowsStaged:
        r"""Copy the Python that runs this host, and the worker, so that `Runtime` can start one.

        It lies in ``app\python``, without the packages that are installed there, and ``app\worker``.
        `Runtime` does so itself in a jail into which it was not staged, as long as that is open.

        Raises:
            JailUnavailable: a part of it is missing here (``reason`` is "library").
            PolicyError, PathDenied, JailSealed, JailClosed: as `stage`.
        """
        from visruntime._windows.python import StagedPython, host_python

        sources, library = host_python()
        staged = self.stage(sources)
        self._python = StagedPython(self.app, library, sys.version)
        return staged

    def spawn(
        self,
        command: Sequence[str | os.PathLike[str]],
        *,
        env: Mapping[str, str | Secret] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        stdin: bool = True,
        pty: bool = False,
        rows: int = 24,
        cols: int = 80,
        channel: bool = False,
        limits: WindowsLimits | None = None,
    ) -> WindowsProcess:
        """Start a program; the first one seals the jail, and nothing is staged after it.

        Nothing of it runs before Windows has said of the suspended process that its token, its
        job and its limits are what was asked for.

        Args:
            command: the absolute path of an .exe or .com, and its arguments. There is no search and
                no shell; batch files are refused.
            env: all of its variables. ``SystemRoot`` is added, and ``LOCALAPPDATA``, ``TEMP`` and
                ``TMP``, which are folders in ``temp`` and refused here; nothing of the host's is.
            cwd: an absolute path; ``work`` by default.
            stdin: false for a program that finds its input at its end.
            pty: a console (ConPTY) of this size for all three streams, instead of pipes.
            channel: two more pipes, beside the standard streams, for what is not output: a worker's
                frames. ``VISJAIL_CHANNEL`` in the program's environment has the numbers of its two
                handles. Not with *pty*.
            limits: of the program and what it starts.

        Raises:
            CommandNotFound: there is no such program, or the guest does not see it.
            CommandNotExecutable: it is not a program that runs here.
            JailUnavailable: Windows gave the process other rights than asked for (``reason`` is
                "readback") or lacks something ("feature"); nothing of it ran.
            JailClosed: the jail is closed, or poisoned (`JailPoisoned`).
        """
        from visruntime._windows.process import MAX_SIZE, WindowsProcess

        args = tuple(check_path(part, "command") for part in check_list(command, "command"))
        if not args:
            raise ValueError("command: a program is needed")
        check_switch(stdin, "stdin")
        check_switch(pty, "pty")
        check_switch(channel, "channel")
        check_whole(rows, "rows", 1, MAX_SIZE)
        check_whole(cols, "cols", 1, MAX_SIZE)
        limits = WindowsLimits() if limits is None else limits
        if not isinstance(limits, WindowsLimits):
            raise TypeError(f"limits: WindowsLimits are needed, not {type(limits).__name__}")
        numbers = {
            "active_processes": limits.processes or 0,
            "job_memory": limits.memory or 0,
            "process_memory": limits.process_memory or 0,
            "cpu_rate": limits.cpu_rate,
        }
        variables = _variables({} if env is None else env)
        directory = "" if cwd is None else check_path(cwd, "cwd")
        self._seal()
        info = self._do(
            lambda: self._calls.spawn(
                self._live(),
                arguments=args,
                environment=variables,
                directory=directory,
                console=(cols, rows) if pty else None,
                has_input=stdin,
                has_channel=channel,
                numbers=numbers,
            ),
            program=args[0],
        )
        return WindowsProcess(self._calls, info, args)

    def close(self) -> None:
        """End every program and remove the jail: its profile, desktop, ``app`` and ``temp``.

        Idempotent, and bounded in time: output that nobody reads is dropped.

        Raises:
            JailPoisoned: something could not be removed; call it again.
        """
        from visruntime._native.windows import WindowsError

        with self._ending:
            if not self._context:
                return
            try:
                self._calls.close(self._context)
            except WindowsError as error:
                if error.status != "stale":
                    raise JailPoisoned(
                        f"{error.step}: {error}; what is left is kept, close() again finishes"
                    ) from None
            self._context = 0

    @staticmethod
    def remove_stale(parent: str | os.PathLike[str]) -> int:
        """Remove what hosts that are dead have left below *parent*; return how many jails.

        A jail's folder is known by what it holds and by a record of the process that made it,
        and never by its name alone.

        Raises:
            JailUnavailable: as for a jail.
        """
        path = check_path(parent, "parent")
        return _remove_stale(_load(sys.platform), path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        # A host that ends takes its jobs with it; what stays on the disk, remove_stale removes.
        if getattr(self, "_context", 0) and not sys.is_finalizing():
            try:
                self.close()
            except JailPoisoned:
                return

    def __repr__(self) -> str:
        return f"<WindowsJail {self.root!r} {self.state}>"

    def _seal(self) -> None:
        try:
            self._do(lambda: self._calls.seal(self._live()))
        except JailSealed:
            return  # by an earlier program, or another thread

    def _live(self) -> int:
        if not self._context:
            raise JailClosed("the jail is closed")
        return self._context

    def _do(self, call: Any, *arguments: Any, **about: Any) -> Any:
        from visruntime._native.windows import WindowsError
        from visruntime._windows.failures import as_public_error

        try:
            return call(*arguments)
        except WindowsError as error:
            raise as_public_error(error, **about) from None


def _parent(parent: object) -> str:
    if not isinstance(parent, (str, os.PathLike)) and hasattr(parent, "egress"):
        from visruntime._policy.platforms import refuse_mapping
        from visruntime.policy import JailPolicy

        if isinstance(parent, JailPolicy):
            raise refuse_mapping(parent)
    return check_path(parent, "parent")


def _load(platform: str) -> WindowsCalls:
    """Return the calls of this Windows; *platform* is what to conclude for."""
    if platform != "win32":
        raise JailUnavailable(
            f"a WindowsJail needs Windows, and this is {platform}",
            stage="platform",
            reason="platform",
            fix="Jail(policy) opens a jail here" if platform == "linux" else "",
        )
    from visruntime._native.windows import load

    try:
        return load()
    except ImportError as error:
        raise JailUnavailable(
            f"the native library of WindowsJail is not there: {error}",
            stage="library",
            reason="library",
            fix="install the build of visruntime for Windows",
        ) from None


def _finish(calls: WindowsCalls, context: int) -> None:
    """Close what a failed start has left; what stays even so, `WindowsJail.remove_stale` removes."""
    from visruntime._native.windows import WindowsError

    for _ in range(CLOSE_ATTEMPTS):
        try:
            return calls.close(context)
        except WindowsError:
            continue
    return None


def _remove_stale(calls: WindowsCalls, parent: str) -> int:
    from visruntime._native.windows import WindowsError
    from visruntime._windows.failures import as_public_error

    try:
        return calls.remove_stale(parent)
    except WindowsError as error:
        raise as_public_error(error) from None


def _variables(env: Mapping[str, str | Secret]) -> list[str]:
    if not hasattr(env, "keys"):
        raise TypeError(f"env: a mapping is needed, not {type(env).__name__}")
    entries = []
    for name, value in dict(env).items():
        text = value.reveal() if isinstance(value, Secret) else value
        if not isinstance(name, str) or not isinstance(text, str):
            raise TypeError("env: names and values are text")
        if not name or "=" in name or "\0" in name + text:
            raise PolicyError("env: a name is empty or has '=', or there is a NUL", field="env")
        entries.append(f"{name}={text}")
    return entries
