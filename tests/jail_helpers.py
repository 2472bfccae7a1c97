"""One forbidden act at a time, tried by a small guest inside and outside of a jail.

`inside` and `outside` run the same Python text with the system's interpreter and return what
it passed to ``answer``. The text may use what `PRELUDE` defines, and gets what it names of it:
``attempt(function, ...)`` gives the errno that the function got (0: it succeeded), ``call(name, ...)``
makes a raw system call and gives its errno in the same way. A guest that crashes has answered
nothing and fails the test: a crash is no denial.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from visruntime.jail import Jail
from visruntime.policy import Egress, JailPolicy, Limits, Secret

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

__all__ = [
    "FORKS",
    "PYTHON",
    "Egress",
    "Jail",
    "JailPolicy",
    "Limits",
    "Secret",
    "backends",
    "children_of",
    "errno",
    "guest",
    "inside",
    "is_root",
    "jail_by",
    "leaves",
    "outside",
    "own_memory_cgroup",
    "policy_of",
    "processes",
    "spawn",
    "until",
]

PYTHON = "/usr/bin/python3"
"""The interpreter that every jail with system="minimal" has."""

FORKS = """
children = []
number = 0
try:
    while len(children) < 60:
        child = os.fork()
        if child == 0: time.sleep(30); os._exit(0)
        children.append(child)
except OSError as error:
    number = error.errno
for child in children: os.kill(child, 9)
answer([number, len(children)])
"""
"""Code of a guest that answers with the errno that ended its forks, 0 for none, and their count."""

_CALLS = r"""
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
X86 = dict(mount=165, umount2=166, unshare=272, clone=56, clone3=435, openat2=437, setns=308,
    pivot_root=155, open_tree=428, move_mount=429, mount_setattr=442, fsopen=430, bpf=321,
    keyctl=250, add_key=248, ptrace=101, process_vm_readv=310, process_vm_writev=311,
    pidfd_open=434, pidfd_getfd=438, pidfd_send_signal=424, io_uring_setup=425,
    io_uring_enter=426, io_uring_register=427, perf_event_open=298, userfaultfd=323,
    kexec_load=246, init_module=175, delete_module=176, swapon=167, reboot=169,
    settimeofday=164, sethostname=170, chroot=161, acct=163, quotactl=179, syslog=103,
    kcmp=312, name_to_handle_at=303, open_by_handle_at=304, fanotify_init=300,
    renameat2=316, fchmodat2=452, chmod=90, fchmod=91, fchmodat=268, open=2, openat=257,
    creat=85, mkdir=83, mkdirat=258, mknod=133, mknodat=259, ioctl=16, iopl=172, ioperm=173,
    execveat=322, io_setup=206, memfd_create=319, tkill=200, tgkill=234, rt_sigqueueinfo=129,
    sched_setaffinity=203, setpriority=141, lsm_get_self_attr=459, nonexistent=1000,
    sched_setscheduler=144, sched_setparam=142, sched_setattr=314, ioprio_set=251, prctl=157,
    semget=64, msgget=68)
ARM = dict(mount=40, umount2=39, unshare=97, clone=220, clone3=435, openat2=437, setns=268,
    pivot_root=41, open_tree=428, move_mount=429, mount_setattr=442, fsopen=430, bpf=280,
    keyctl=219, add_key=217, ptrace=117, process_vm_readv=270, process_vm_writev=271,
    pidfd_open=434, pidfd_getfd=438, pidfd_send_signal=424, io_uring_setup=425,
    io_uring_enter=426, io_uring_register=427, perf_event_open=241, userfaultfd=282,
    kexec_load=104, init_module=105, delete_module=106, swapon=224, reboot=142,
    settimeofday=170, sethostname=161, chroot=51, acct=89, quotactl=60, syslog=116,
    kcmp=272, name_to_handle_at=264, open_by_handle_at=265, fanotify_init=262,
    renameat2=276, fchmodat2=452, fchmod=52, fchmodat=53, openat=56, mkdirat=34, mknodat=33,
    ioctl=29, execveat=281, memfd_create=279, tkill=130, tgkill=131, rt_sigqueueinfo=138,
    sched_setaffinity=122, setpriority=140, lsm_get_self_attr=459, nonexistent=1000,
    sched_setscheduler=119, sched_setparam=118, sched_setattr=274, ioprio_set=30, prctl=167,
    semget=190, msgget=186)
NUMBERS = X86 if os.uname().machine == "x86_64" else ARM

def result(name, *arguments):
    # The value of a raw system call, or its negative errno.
    values = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    ctypes.set_errno(0)
    value = libc.syscall(ctypes.c_long(NUMBERS[name]), *values)
    return value if value >= 0 else -ctypes.get_errno()

def call(name, *arguments):
    value = result(name, *arguments)
    return -value if value < 0 else 0
"""
_BASE = r"""
import errno, os, stat, struct, sys, time

def attempt(function, *arguments, **named):
    try:
        function(*arguments, **named)
    except OSError as error:
        return error.errno
    return 0

def opened(path, flags=os.O_RDONLY, mode=0o644):
    def act():
        os.close(os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY, mode))
    return attempt(act)

def in_child(function):
    # In a child, so that this process stays what it was; negative: it died of a signal.
    child = os.fork()
    if child == 0:
        try:
            code = function()
        except BaseException:
            code = 99
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def as_json(value):
    # The import of json costs more than all else that most guests do.
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if type(value) is int:
        return str(value)
    if type(value) is str and value.isascii() and value.isprintable() and not set(value) & set('\\"'):
        return f'"{value}"'
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(as_json, value))}]"
    import json
    return json.dumps(value)

def answer(value):
    print(as_json(value), flush=True)
"""
PRELUDE = f"import json, signal, socket{_CALLS}{_BASE}"
"""Everything that a guest may use."""
_OF_CALLS = {"ARM", "NUMBERS", "X86", "call", "ctypes", "libc", "result"}


def guest(text: str) -> str:
    """Return *text* as a program with what it names of `PRELUDE`.

    The rest would cost each of thousands of guests twice the time that its interpreter starts in.
    """
    words = set(re.findall(r"\w+", text))
    imports = "".join(f"import {name}\n" for name in ("json", "signal", "socket") if name in words)
    return imports + (_CALLS if words & _OF_CALLS else "") + _BASE + text


def _answer(output: str, errors: str, code: int | None) -> Any:
    lines = output.splitlines()
    assert code == 0, f"the guest ended with {code}: {errors}"
    assert lines, "the guest gave no answer"
    return json.loads(lines[-1])


def inside(jail: Jail, text: str, **options: Any) -> Any:
    """Run *text* in *jail* and return its answer."""
    result = jail.run([PYTHON, "-IBS", "-c", guest(text)], timeout=30, **options)
    return _answer(result.stdout_text, result.stderr_text, result.exit_code)


def outside(text: str, **options: Any) -> Any:
    """Run *text* without a jail, as the same user, and return its answer."""
    command = [PYTHON, "-IBS", "-c", guest(text)]
    result = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=30, **options
    )
    return _answer(result.stdout, result.stderr, result.returncode)


def policy_of(**rules: Any) -> JailPolicy:
    """Return a policy whose fields are only known when the test runs."""
    return JailPolicy(**rules)


def spawn(jail: Jail, command: list[str], **options: Any) -> Any:
    """Spawn a program whose streams are known to be there."""
    return jail.spawn(command, **options)


def jail_by(backend: str, **rules: Any) -> Jail:
    """Return a jail of *backend*; where it cannot hold the default limits, without those."""
    if backend == "landlock":
        rules.setdefault("limits", Limits(processes=None, scratch=None))
    return Jail(JailPolicy(**rules), backend=backend)


def backends(*names: str) -> list[str]:
    """Return those of *names* that take a caller like this one: bubblewrap takes no root.

    Raises:
        pytest.fail.Exception: bubblewrap is missing, and VIS_REQUIRE_TOOLS=1 asks for it.
    """
    wanted = list(names or ("namespaces", "bubblewrap", "landlock"))
    if "bubblewrap" in wanted and (is_root() or shutil.which("bwrap") is None):
        if not is_root() and os.environ.get("VIS_REQUIRE_TOOLS") == "1":
            pytest.fail("bwrap is not installed, and VIS_REQUIRE_TOOLS=1 asks for it")
        wanted.remove("bubblewrap")
    return wanted


def is_root() -> bool:
    """Tell whether the tests run as host uid 0."""
    return os.geteuid() == 0


def own_memory_cgroup() -> str | None:
    """Return the directory of this process's memory cgroup, if it may divide it, else None.

    Found by another way than the library's: the usual places, and by really dividing it.
    """
    with open("/proc/self/cgroup", encoding="ascii") as file:
        paths = dict(line.rstrip("\n").split(":", 2)[1:] for line in file)
    if "memory" in paths:
        directory = f"/sys/fs/cgroup/memory{paths['memory']}".rstrip("/")
    else:
        directory = f"/sys/fs/cgroup{paths['']}".rstrip("/").removesuffix("/visruntime-host")
        try:
            with open(f"{directory}/cgroup.subtree_control", encoding="ascii") as file:
                if "memory" not in file.read().split():
                    return None
        except OSError:
            return None
    try:
        os.mkdir(f"{directory}/visruntime-test")
        os.rmdir(f"{directory}/visruntime-test")
    except OSError:
        return None
    return directory


def leaves(owner: int | None = None) -> set[str]:
    """Return the names of the cgroups that jails of this process, or of *owner*, have now."""
    directory = own_memory_cgroup()
    names = [] if directory is None else os.listdir(directory)
    # Others run tests in the same cgroup.
    pid = owner or os.getpid()
    return {name for name in names if re.match(rf"visruntime-jail-\d+-{pid}-", name)}


def until(condition: Callable[[], object], *, seconds: float = 5.0) -> bool:
    """Wait until *condition* holds; False when it does not in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return bool(condition())


def _status(pid: int) -> dict[str, str]:
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            pairs = (line.partition(":") for line in file)
            return {name: value.strip() for name, _, value in pairs}
    except OSError:
        return {}


def processes() -> Iterator[tuple[int, dict[str, str]]]:
    """Yield (pid, /proc/PID/status) of each process of the host that is not a zombie."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            status = _status(int(name))
            if status and not status["State"].startswith("Z"):
                yield int(name), status


def children_of(pid: int) -> dict[int, dict[str, str]]:
    """Return the descendants of a process of the host, with their status."""
    table = dict(processes())
    found: dict[int, dict[str, str]] = {}
    ring = {pid}
    while ring:
        ring = {p for p, s in table.items() if int(s["PPid"]) in ring and p not in found}
        found.update({p: table[p] for p in ring})
    return found
