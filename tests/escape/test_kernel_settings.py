"""Boundary: the kernel's settings. /proc and /sys show little and change nothing."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from jail_helpers import Jail, JailPolicy, errno, inside, is_root, outside

if TYPE_CHECKING:
    from collections.abc import Iterator

SETTINGS = (
    "kernel/core_pattern kernel/hostname kernel/sysrq kernel/modprobe kernel/randomize_va_space"
    " kernel/domainname kernel/shmall kernel/msgmax kernel/sem net/ipv4/ip_forward"
    " user/max_user_namespaces fs/mqueue/msg_max fs/suid_dumpable vm/drop_caches"
    " vm/overcommit_memory fs/binfmt_misc/register"
).split()


@pytest.fixture(params=["minimal", "host"])
def any_jail(request: pytest.FixtureRequest) -> Iterator[Jail]:
    """Return a jail with a minimal root, and one with the host's."""
    with Jail(JailPolicy(system=request.param)) as jail:
        yield jail


def test_no_setting_can_be_written(any_jail: Jail) -> None:
    """Nothing below /proc/sys may be opened for writing, by a root caller's guest either."""
    text = f"""
got = {{n: opened("/proc/sys/" + n, os.O_WRONLY) for n in {SETTINGS!r}}}
got["list"] = len(os.listdir("/proc/sys/kernel")) > 10
answer(got)
"""
    got = inside(any_jail, text)
    assert got.pop("list")
    assert set(got.values()) <= {errno.EROFS, errno.EACCES, errno.ENOENT}
    control = outside("answer(opened('/proc/sys/kernel/core_pattern', os.O_WRONLY))")
    assert control == (0 if is_root() else errno.EACCES)


def test_no_setting_can_be_written_at_all(jail: Jail) -> None:
    """A walk over all of /proc/sys must find no file that opens for writing."""
    text = """
found, seen = [], 0
for folder, _, names in os.walk("/proc/sys"):
    for name in names:
        seen += 1
        if opened(folder + "/" + name, os.O_WRONLY) == 0: found.append(name)
answer([found, seen > 500])
"""
    assert inside(jail, text) == [[], True]


def test_the_kernels_memory_and_keys_are_masked(any_jail: Jail) -> None:
    """kcore, keys, timers and the like must not be read, chmodded or triggered."""
    text = """
got = {}
for name in "kcore keys timer_list kmsg slabinfo vmallocinfo kpagecount kpageflags".split():
    path = "/proc/" + name
    if os.path.lexists(path):
        got[name] = [opened(path), opened(path, os.O_WRONLY), attempt(os.chmod, path, 0o666)]
got["trigger"] = [opened("/proc/sysrq-trigger", os.O_WRONLY)]
got["bus"] = [attempt(os.mkdir, "/proc/bus/x")]
got["pressure"] = [opened("/proc/pressure/cpu", os.O_RDWR)]
answer(got)
"""
    got = inside(any_jail, text)
    assert {"kcore"} <= got.keys() or not os.path.exists("/proc/kcore")
    for name, values in got.items():
        assert set(values) <= {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT}, name
    if is_root():
        assert outside("answer(opened('/proc/kmsg'))") in (0, errno.EPERM)


def test_sys_is_not_there(jail: Jail) -> None:
    """With a minimal root there must be no /sys and no cgroup file system."""
    assert inside(
        jail, "answer([attempt(os.listdir, '/sys'), attempt(os.stat, '/sys/fs/cgroup')])"
    ) == [
        errno.ENOENT,
        errno.ENOENT,
    ]


def test_sys_of_the_host_is_read_only() -> None:
    """With the host's root /sys and its cgroups must take no write."""
    text = """
found = []
for folder, folders, names in os.walk("/sys"):
    if folder.count("/") > 5: folders[:] = []
    for name in names:
        if opened(folder + "/" + name, os.O_WRONLY) == 0: found.append(folder + "/" + name)
        if len(found) > 3: break
made = attempt(os.mkdir, "/sys/fs/cgroup/x")
answer([found, made])
"""
    with Jail(JailPolicy(system="host")) as jail:
        found, made = inside(jail, text)
    assert found == []
    assert made in (errno.EROFS, errno.ENOENT, errno.EACCES, errno.EPERM)


def test_names_of_the_machine_are_the_jails(jail: Jail) -> None:
    """Host name and IPC objects must be the jail's own."""
    text = """
answer([os.uname().nodename, open("/proc/sys/kernel/hostname").read().strip(),
    open("/proc/sysvipc/shm").read().count(chr(10)), open("/proc/self/cgroup").read()])
"""
    name, same, shm, cgroup = inside(jail, text)
    assert name == same == "visruntime"
    assert shm == 1
    assert all(line.endswith(":/") for line in cgroup.split())


def test_shared_memory_is_not_shared_between_jails() -> None:
    """System V and POSIX objects of one jail must not exist in another or on the host."""
    name = f"vis-object-{os.getpid()}"
    make = f"""
shm = libc.shmget({os.getpid()}, 4096, 0o1666)
open("/dev/shm/{name}", "w").close()
answer(shm >= 0)
"""
    look = f"""
ctypes.set_errno(0)
shm = libc.shmget({os.getpid()}, 4096, 0)
answer([0 if shm >= 0 else ctypes.get_errno(), os.path.exists("/dev/shm/{name}")])
"""
    with Jail(JailPolicy()) as one, Jail(JailPolicy()) as other:
        assert inside(one, make) is True
        assert inside(one, look) == [0, True]
        assert inside(other, look) == [errno.ENOENT, False]
        assert outside(look) == [errno.ENOENT, False]
