"""The cgroup of one jail: made for it, read while it runs, removed with it.

Its name says who owns it, so that what a killed host left behind is found and removed by the
next one: ``visruntime-jail-PIDNS-PID-START-NONCE``, with the inode of the owner's pid
namespace, its number there and the time at which it was started.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from contextlib import suppress

from visruntime._jail.cgroup_find import LEAF_PREFIX, Unusable, find_parents

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Collection, Sequence

    from visruntime._jail.cgroup_find import Parent
else:
    import _signal as signal

__all__ = ["Counts", "Leaf", "make_leaf"]

PERIOD_MICROSECONDS = 100_000
"""Over which a share of processor time is counted."""
LEAST_QUOTA_MICROSECONDS = 1_000
"""The kernel takes no smaller quota."""
MEMORY_FILES = {
    "kills": ("memory.oom_control", "memory.events"),
    "usage": ("memory.usage_in_bytes", "memory.current"),
    "statistics": ("memory.stat", "memory.stat"),
    "peak": ("memory.max_usage_in_bytes", "memory.peak"),
}
"""Files of a memory cgroup, v1 and v2."""
SOCKET_SHARE = 8
"""Of a memory limit of version 1, one part in so many is what sockets may hold beside it."""
READ_BYTES = 65536
REMOVAL_SECONDS = 1.0
"""How long a leaf may still look full after the last process in it was waited for."""


class Counts:
    """What the kernel counted in a leaf: seconds, bytes, and events."""

    __slots__ = ("kills", "peak", "refusals", "system_seconds", "user_seconds")

    def __init__(
        self,
        *,
        user_seconds: float | None,
        system_seconds: float | None,
        peak: int | None,
        kills: int,
        refusals: int,
    ) -> None:
        self.user_seconds: float | None = user_seconds
        self.system_seconds: float | None = system_seconds
        self.peak: int | None = peak
        self.kills: int = kills
        self.refusals: int = refusals


class Leaf:
    """The cgroup of one jail, in one or several directories.

    ``members`` are the files through which the jail joins, ``counters`` those that are read
    in it where memory is limited; `started` closes them. ``mechanisms`` says what each limit
    that was asked for rests on.
    """

    def __init__(self) -> None:
        self.members: list[int] = []
        self.counters: list[int] = []
        self.mechanisms: dict[str, str] = {}
        self._owner = os.getpid()
        self._directories: list[str] = []
        self._files: dict[str, str] = {}
        self._version = {"memory": 0, "cpuacct": 0}
        self._quotas: list[tuple[str, str, str]] = []  # file, all, the share
        self._last: Counts | None = None
        self._peak_file = -1

    def started(self, pid: int) -> None:
        """Let go of the files, and check that *pid* is where it belongs.

        Raises:
            Unusable: it is not; the jail must not be used.
        """
        self._close()
        for directory in self._directories:
            if str(pid) not in _read(f"{directory}/cgroup.procs").split():
                raise Unusable(f"the jail is not in {directory}")

    def counts(self) -> Counts:
        """Return what was counted so far, or up to the end once the leaf is gone."""
        if self._last is not None:
            return self._last
        return self._counts()

    def restart_peak(self) -> bool:
        """Have the peak of memory count from now on; false where the kernel cannot do that."""
        try:
            if self._version["memory"] == 1:
                _write(self._files["peak"], "0")
                return True
            if self._peak_file < 0:
                return False
            return os.pwrite(self._peak_file, b"0", 0) == 1
        except OSError:  # cgroup v2 before Linux 6.12
            return False

    @property
    def has_quota(self) -> bool:
        """Whether the processes have a share of the processors."""
        return bool(self._quotas)

    def loosen(self, *, for_good: bool = False) -> None:
        """Give the processes all of the processors, so that those that end the others can."""
        self._set_quotas(0)
        if for_good:
            self._quotas = []

    def tighten(self) -> None:
        """Give them their share again."""
        self._set_quotas(1)

    def _set_quotas(self, which: int) -> None:
        for file, *texts in self._quotas if os.getpid() == self._owner else ():
            with suppress(OSError):
                _write(file, texts[which])

    def end(self) -> None:
        """End all that is in it, where nobody else is left who would.

        Without a pid namespace the kernel may have ended, for memory, the supervisor and the keeper
        of a run, and the run goes on.
        """
        if os.getpid() != self._owner:
            return
        self.loosen(for_good=True)
        deadline = time.monotonic() + REMOVAL_SECONDS
        for directory in self._directories:
            while _read(f"{directory}/cgroup.procs") and time.monotonic() < deadline:
                _end_members(directory)
                time.sleep(0.001)

    def remove(self) -> None:
        """Remove the directories, whose processes have ended. Idempotent; only for the owner.

        What has not, since the kernel has ended its supervisors (for memory), is ended.
        """
        self._close()
        if os.getpid() != self._owner or not self._directories:
            return
        self._last = self.counts()
        deadline = time.monotonic() + REMOVAL_SECONDS
        directories, self._directories = self._directories, []
        for directory in directories:
            while not _removed(directory) and time.monotonic() < deadline:
                time.sleep(0.001)
                _end_members(directory)
        if self._peak_file >= 0:
            os.close(self._peak_file)
            self._peak_file = -1

    # ---- making -----------------------------------------------------------------

    def make(
        self,
        parents: Sequence[Parent],
        *,
        memory: int | None,
        processes: int | None,
        cpus: float | None,
    ) -> None:
        """Make the directories, set their limits and open the files for the jail."""
        name = f"{LEAF_PREFIX}{_owner_name(os.getpid())}-{os.urandom(4).hex()}"
        for parent in parents:
            directory = f"{parent.directory}/{name}"
            os.mkdir(directory, 0o755)
            self._directories.append(directory)
            self._know_files(parent, directory)
            self._set_limits(parent, directory, memory, processes, cpus)
            self.members.append(os.open(f"{directory}/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC))
        if memory is not None:
            for file in ("kills", "usage", "statistics"):  # in the order of vj_counter
                self.counters.append(os.open(self._files[file], os.O_RDONLY | os.O_CLOEXEC))

    def _know_files(self, parent: Parent, directory: str) -> None:
        old = parent.version == 1
        if "memory" in parent.controllers:
            self._version["memory"] = parent.version
            for what, names in MEMORY_FILES.items():
                self._files[what] = f"{directory}/{names[0 if old else 1]}"
            if not old:
                with suppress(OSError):
                    self._peak_file = os.open(self._files["peak"], os.O_RDWR | os.O_CLOEXEC)
        if "pids" in parent.controllers:
            self._files["refusals"] = f"{directory}/pids.events"
        if "cpuacct" in parent.controllers:
            self._version["cpuacct"] = parent.version
            self._files["time"] = directory

    def _set_limits(
        self,
        parent: Parent,
        directory: str,
        memory: int | None,
        processes: int | None,
        cpus: float | None,
    ) -> None:
        old = parent.version == 1
        if memory is not None and "memory" in parent.controllers:
            limit = "memory.limit_in_bytes" if old else "memory.max"
            _write(f"{directory}/{limit}", str(memory))
            _forbid_swap(directory, memory, old=old)
            if old:
                _limit_sockets(directory, memory)
            self.mechanisms["memory"] = f"cgroup{parent.version} memory"
        if processes is not None and "pids" in parent.controllers:
            _write(f"{directory}/pids.max", str(processes))
            self.mechanisms["processes"] = f"cgroup{parent.version} pids"
        if cpus is not None and "cpu" in parent.controllers:
            quota = int(cpus * PERIOD_MICROSECONDS)
            if old:
                _write(f"{directory}/cpu.cfs_period_us", str(PERIOD_MICROSECONDS))
                _write(f"{directory}/cpu.cfs_quota_us", str(quota))
                self._quotas.append((f"{directory}/cpu.cfs_quota_us", "-1", str(quota)))
            else:
                share = f"{quota} {PERIOD_MICROSECONDS}"
                _write(f"{directory}/cpu.max", share)
                self._quotas.append((f"{directory}/cpu.max", "max", share))
            self.mechanisms["cpus"] = f"cgroup{parent.version} cpu quota"

    def _close(self) -> None:
        descriptors = [*self.members, *self.counters]
        self.members, self.counters = [], []
        for descriptor in descriptors:
            os.close(descriptor)

    # ---- reading ----------------------------------------------------------------

    def _counts(self) -> Counts:
        user, system = self._seconds()
        return Counts(
            user_seconds=user,
            system_seconds=system,
            peak=self._peak(),
            kills=_named(self._files.get("kills"), "oom_kill") or 0,
            refusals=_named(self._files.get("refusals"), "max") or 0,
        )

    def _seconds(self) -> tuple[float | None, float | None]:
        directory = self._files.get("time")
        if directory is None:
            return None, None
        if self._version["cpuacct"] == 1:
            # Only the total is measured. The parts are counted at each tick of the clock,
            # between which a program can hide, so they just divide the total.
            total, *parts = (
                _number(f"{directory}/cpuacct.usage{part}") for part in ("", "_user", "_sys")
            )
            scale = 1e9
        else:
            total, *parts = (
                _named(f"{directory}/cpu.stat", f"{part}_usec")
                for part in ("usage", "user", "system")
            )
            scale = 1e6
        if total is None or None in parts:
            return None, None
        user, system = (part or 0 for part in parts)
        seconds = total / scale
        share = seconds * user / (user + system) if user + system else seconds
        return share, seconds - share

    def _peak(self) -> int | None:
        if self._peak_file >= 0:
            with suppress(OSError, ValueError):
                return int(os.pread(self._peak_file, 64, 0))
        path = self._files.get("peak")
        return None if path is None else _number(path)


def make_leaf(
    needed: Collection[str],
    *,
    memory: int | None = None,
    processes: int | None = None,
    cpus: float | None = None,
) -> Leaf:
    """Make a leaf that has all *needed* controllers; sweep up what killed hosts left there.

    Raises:
        Unusable: there is no such cgroup for this process; nothing was made.
    """
    parents = find_parents(needed)
    for parent in parents:
        _sweep(parent.directory)
    leaf = Leaf()
    try:
        leaf.make(parents, memory=memory, processes=processes, cpus=cpus)
    except OSError as error:
        leaf.remove()
        raise Unusable(f"{error.filename or 'a cgroup'}: {error.strerror}") from None
    except BaseException:
        leaf.remove()
        raise
    return leaf


def _forbid_swap(directory: str, memory: int, *, old: bool) -> None:
    """Keep memory over the limit from going to the disk instead.

    Raises:
        Unusable: the kernel has no such limit, and the machine has swap.
    """
    file = f"{directory}/{'memory.memsw.limit_in_bytes' if old else 'memory.swap.max'}"
    try:
        _write(file, str(memory) if old else "0")
    except FileNotFoundError:
        if _read("/proc/swaps").count("\n") > 1:
            raise Unusable("this kernel cannot limit the use of swap by a cgroup") from None


def _limit_sockets(directory: str, memory: int) -> None:
    """Bound what TCP and UDP sockets hold, which version 1 counts apart, where the kernel can.

    Beyond it each socket gets the least that it works with.
    """
    with suppress(FileNotFoundError):
        _write(f"{directory}/memory.kmem.tcp.limit_in_bytes", str(memory // SOCKET_SHARE))


# ---- owners ----------------------------------------------------------------------


def _owner_name(pid: int) -> str:
    return f"{_pid_namespace()}-{pid}-{_start_time(pid)}"


def _pid_namespace() -> int:
    return os.stat("/proc/self/ns/pid").st_ino


def _start_time(pid: int) -> str | None:
    """Return when *pid* was started, in clock ticks since the boot; ``None`` if it is gone."""
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return fields[19] if len(fields) > 19 and fields[0] not in ("Z", "X") else None


def _sweep(directory: str) -> None:
    """Remove the leaves in *directory* whose owner, a process of this user, is gone.

    The jail's pid 1 has seen the end of its host and is gone too, or about to: a leaf that
    still holds something stays for the next time.
    """
    try:
        names = [name for name in os.listdir(directory) if name.startswith(LEAF_PREFIX)]
    except OSError:
        return
    for name in names:
        parts = name.removeprefix(LEAF_PREFIX).split("-")
        # Numbers of another pid namespace say nothing here.
        if len(parts) != 4 or parts[0] != str(_pid_namespace()) or not parts[1].isdecimal():
            continue
        if _start_time(int(parts[1])) == parts[2]:
            continue
        path = f"{directory}/{name}"
        with suppress(OSError):
            if os.stat(path).st_uid == os.geteuid():
                os.rmdir(path)


def _end_members(directory: str) -> None:
    """Send SIGKILL to all that is in the leaf of a jail that has been closed."""
    with suppress(OSError):  # cgroup v2, Linux 5.14: all at one moment, however they fork
        _write(f"{directory}/cgroup.kill", "1")
        return
    for pid in _read(f"{directory}/cgroup.procs").split():
        if sys.platform == "linux":  # for type checkers: no other system has cgroups
            with suppress(OSError):
                process = os.pidfd_open(int(pid))
                try:
                    # Not one that has its number by now.
                    if pid in _read(f"{directory}/cgroup.procs").split():
                        signal.pidfd_send_signal(process, signal.SIGKILL)
                finally:
                    os.close(process)


def _removed(directory: str) -> bool:
    try:
        os.rmdir(directory)
    except FileNotFoundError:
        return True
    except OSError as error:
        return error.errno != errno.EBUSY
    return True


# ---- files -----------------------------------------------------------------------


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode("ascii"))
    except OSError as error:
        error.filename = path
        raise
    finally:
        os.close(descriptor)


def _read(path: str) -> str:
    # Not by `open`: a jail that nobody closed ends with the interpreter, when that name is gone.
    text = b""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            while part := os.read(descriptor, READ_BYTES):
                text += part
        finally:
            os.close(descriptor)
    except OSError:
        return ""
    return text.decode("ascii", "replace")


def _number(path: str) -> int | None:
    try:
        return int(_read(path))
    except ValueError:
        return None


def _named(path: str | None, name: str) -> int | None:
    """Return the number behind *name* at the start of a line."""
    if path is None:
        return None
    for line in _read(path).splitlines():
        word, _, number = line.partition(" ")
        if word == name and number.strip().isdecimal():
            return int(number)
    return None
