"""The generated system call filters: no drift, right answers, and live on this kernel."""

from __future__ import annotations

import errno
import importlib.util
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from seccomp_rules import HELPER_CALLS

if TYPE_CHECKING:
    from types import ModuleType

pytestmark = pytest.mark.one_uid

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "generate_seccomp.py"
HEADER = ROOT / "native" / "visjail" / "seccomp_programs.h"

ALLOW = 0x7FFF0000
KILL_PROCESS = 0x80000000
NOTIFY = 0x7FC00000
HIGH = 1 << 32
BAD_POINTER = 8


def _load_generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_seccomp", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    sys.path.insert(0, str(SCRIPT.parent))  # where it finds its other half
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


generator = _load_generator()
programs = generator.parse(HEADER.read_text())
machine = platform.machine()


def refused(error: int) -> int:
    """Return the answer of a filter that makes a call fail with *error*."""
    return 0x00050000 | error


def ask(arch: str, variant: str, name: str, *arguments: int) -> int:
    """Return the committed program's answer to one call, without making it."""
    number = generator.number_of(arch, name)
    assert number is not None
    result = generator.answer(
        programs[arch, variant], generator.ARCHITECTURES[arch], number, arguments
    )
    assert isinstance(result, int)
    return result


EVERYWHERE = [(arch, variant) for arch in ("x86_64", "aarch64") for variant in generator.VARIANTS]
every_program = pytest.mark.parametrize(("arch", "variant"), EVERYWHERE)
NETWORKS = [variant for variant in generator.VARIANTS if variant.startswith("network")]
BARE = [variant for variant in generator.VARIANTS if variant not in NETWORKS]
with_namespaces = pytest.mark.parametrize(
    ("arch", "variant"), [each for each in EVERYWHERE if each[1] in NETWORKS]
)
without_namespaces = pytest.mark.parametrize(
    ("arch", "variant"), [each for each in EVERYWHERE if each[1] in BARE]
)

ALWAYS_REFUSED = """
    kexec_load kexec_file_load init_module finit_module delete_module reboot swapon swapoff acct
    quotactl quotactl_fd syslog settimeofday clock_settime clock_adjtime adjtimex vhangup
    nfsservctl lookup_dcookie bpf perf_event_open userfaultfd io_uring_setup io_uring_enter
    io_uring_register add_key request_key keyctl ptrace process_vm_readv process_vm_writev
    process_madvise kcmp pidfd_getfd setns mount umount2 pivot_root chroot open_tree move_mount
    fsopen fsconfig fsmount fspick mount_setattr open_by_handle_at name_to_handle_at
    fanotify_init fanotify_mark
""".split()

LOW_BITS = 0xFFFFFFFF

UNTOUCHED = """
    read write close openat2_is_not_here connect bind listen accept accept4 getsockopt setsockopt
    recvfrom recvmsg recvmmsg mprotect execve execveat exit_group futex prctl
    seccomp landlock_create_ruleset landlock_add_rule landlock_restrict_self rt_sigaction
    pidfd_open pidfd_send_signal waitid epoll_pwait eventfd2 inotify_init1 statx getrandom
    sched_setaffinity close_range copy_file_range tee vmsplice shmat mq_open
""".replace("openat2_is_not_here", "").split()


def test_header_is_what_the_rules_generate() -> None:
    """The committed header never differs from what the script writes with the same library."""
    result = subprocess.run(
        [sys.executable, SCRIPT, "--check"], capture_output=True, text=True, check=False
    )
    if f"with libseccomp {generator.library_version()}:" in HEADER.read_text():
        assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    else:
        # Another version may arrange the same rules in another way; the script says so
        # instead of guessing, and the tests below judge the answers on every machine.
        assert result.returncode == 1
        assert "check where the versions are the same" in result.stderr


def test_check_notices_an_edit(tmp_path: Path) -> None:
    """A single changed constant in the header never passes the check."""
    text = HEADER.read_text()
    edited = tmp_path / "seccomp_programs.h"
    edited.write_text(text.replace("0x00050001", "0x7fff0000", 1))
    result = subprocess.run(
        [sys.executable, SCRIPT, "--check", "--output", edited],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1
    if f"with libseccomp {generator.library_version()}:" in text:
        assert "-    {0x06, 0, 0, 0x7fff0000}," in result.stdout


def test_header_holds_a_program_for_each_architecture_and_mode() -> None:
    """No architecture or mode is missing, and each program ends within the kernel's limit."""
    arches = generator.ARCHITECTURES
    assert sorted(programs) == sorted((a, v) for a in arches for v in generator.PROGRAMS)
    assert all(100 < len(programs[each]) < 4096 for each in EVERYWHERE)
    assert all(20 < len(code) < 4096 for code in programs.values())


@every_program
def test_every_refused_call_is_refused(arch: str, variant: str) -> None:
    """No call of the list gets through, on either architecture."""
    names = [*ALWAYS_REFUSED, *(["iopl", "ioperm", "uselib"] if arch == "x86_64" else [])]
    wrong = [name for name in names if ask(arch, variant, name) != refused(errno.EPERM)]
    assert wrong == []
    for name in ("clone3", "openat2"):
        assert ask(arch, variant, name) == refused(errno.ENOSYS)
    for name in ("splice", "sendfile"):
        assert ask(arch, variant, name, 3, 4, 5, 6, 7, 8) == refused(errno.EINVAL)


@with_namespaces
def test_ordinary_calls_are_untouched(arch: str, variant: str) -> None:
    """No rule touches the calls that ordinary programs and language runtimes live on."""
    hostile = (0xFFFFFFFFFFFFFFFF,) * 6
    wrong = [
        name
        for name in UNTOUCHED
        if {ask(arch, variant, name), ask(arch, variant, name, *hostile)} != {ALLOW}
    ]
    assert wrong == []


@every_program
def test_limits_of_other_processes(arch: str, variant: str) -> None:
    """No limit of another process is set; reading one, and setting one's own, is untouched."""
    for pid in (1, 7, 1 << 32, LOW_BITS):
        assert ask(arch, variant, "prlimit64", pid, 7, 0x1000, 0) == refused(errno.EPERM)
        assert ask(arch, variant, "prlimit64", pid, 7, 0, 0x1000) == ALLOW
    assert ask(arch, variant, "prlimit64", 0, 7, 0x1000, 0x1000) == ALLOW


@every_program
def test_foreign_and_unknown_calls(arch: str, variant: str) -> None:
    """A foreign calling convention ends the process; a number newer than the table is ENOSYS."""
    code = programs[arch, variant]
    native = generator.ARCHITECTURES[arch]
    foreign = {0x40000003, 0xC000003E, 0xC00000B7, 0x40000028} - {native}
    assert {generator.answer(code, other, 1) for other in foreign} == {KILL_PROCESS}
    assert generator.answer(code, native, 450) == ALLOW
    for number in (451, 452, 500, 0x3FFFFFFF):  # 452 is fchmodat2
        assert generator.answer(code, native, number) == refused(errno.ENOSYS)
    x32 = generator.answer(code, native, 0x40000001)
    assert x32 == (KILL_PROCESS if arch == "x86_64" else refused(errno.ENOSYS))


@every_program
def test_namespaces(arch: str, variant: str) -> None:
    """Neither unshare nor clone makes a namespace, and threads and forks are untouched."""
    for bit in (17, 25, 26, 27, 28, 29, 30):
        for flags in (1 << bit, 1 << bit | 0x11, 1 << bit | HIGH):
            assert ask(arch, variant, "unshare", flags) == refused(errno.EPERM)
            assert ask(arch, variant, "clone", flags) == refused(errno.EPERM)
    assert ask(arch, variant, "unshare", 0x80) == refused(errno.EPERM)
    assert ask(arch, variant, "unshare", 0x400) == ALLOW  # CLONE_FILES
    for flags in (17, 0x3D0F00, 0x1200011, 0x4111):  # fork, pthread_create, glibc fork, vfork
        assert ask(arch, variant, "clone", flags) == ALLOW


@every_program
def test_personality(arch: str, variant: str) -> None:
    """Only 0, ADDR_NO_RANDOMIZE and the query pass; no other bit alone or in company does."""
    for allowed in (0, 0x40000, 0xFFFFFFFF, 0x40000 | HIGH):
        assert ask(arch, variant, "personality", allowed) == ALLOW
    bad = [1 << bit for bit in range(32) if bit != 18]
    bad += [0x440000, 0xFFFBFFFF, 0xFFFFFFFE, 0x7FFFFFFF, 0x0000FFFF, 0x55555555, 0xAAAAAAAA]
    for value in bad:
        for variation in (value, value | HIGH):
            assert ask(arch, variant, "personality", variation) == refused(errno.EPERM), hex(value)


@every_program
def test_terminal_injection(arch: str, variant: str) -> None:
    """TIOCSTI and TIOCLINUX are refused whatever the high bits, and other requests are not."""
    for request in (0x5412, 0x541C):
        for variation in (request, request | HIGH, request | 0xFFFFFFFF00000000):
            assert ask(arch, variant, "ioctl", 0, variation) == refused(errno.EPERM)
    for request in (0x5401, 0x5410, 0x5413, 0x5414, 0x541B):
        assert ask(arch, variant, "ioctl", 0, request) == ALLOW


FILE_SYSTEM_CHANGES = {
    "fscrypt, add a key": 0xC0506617,
    "fscrypt, remove a key": 0xC0406618,
    "fscrypt, remove a key for all": 0xC0406619,
    "fscrypt, set a policy": 0x800C6613,
    "verity": 0x40806685,
    "ext4, move extents": 0xC028660F,
    "set the version": 0x40087602,
    "xfs, shut down": 0x8004587D,
    "freeze": 0xC0045877,
    "vfat, set attributes": 0x40047211,
    "btrfs, make a snapshot": 0x50009417,
    "btrfs, destroy": 0x5000940F,
    "btrfs, destroy by number": 0x5000943F,
    "btrfs, make read-only": 0x4008941A,
    "f2fs, collect": 0x4004F506,
    "ocfs2, link": 0x40186F04,
    "bcachefs, make a subvolume": 0x401CBC10,
}
READ_OR_CLONE = (
    *(0x00000002, 0x80086601, 0x80087601, 0x801C581F, 0xC020660B, 0xC0606610, 0xC0686611),
    *(0x40049409, 0x4020940D, 0xC0189436),
)


@every_program
def test_requests_of_file_systems(arch: str, variant: str) -> None:
    """No request changes a file system behind its mount; what reads or clones passes."""
    for what, request in FILE_SYSTEM_CHANGES.items():
        for variation in (request, request | HIGH):
            assert ask(arch, variant, "ioctl", 0, variation) == refused(errno.EPERM), what
    assert {ask(arch, variant, "ioctl", 0, request) for request in READ_OR_CLONE} == {ALLOW}
    flags = ALLOW if variant in NETWORKS else refused(errno.EPERM)
    for request in (0x40086602, 0x401C5820):
        assert ask(arch, variant, "ioctl", 0, request) == flags
    # Devices, and file systems that nobody has looked at.
    for request in (0x4B3A, 0x5606, 0xCF03, 0x9701, 0x6E81, 0x80086E81, 0x5760, 0x2286):
        assert ask(arch, variant, "ioctl", 0, request) == refused(errno.ENOTTY)


@every_program
def test_requests_of_sockets(arch: str, variant: str) -> None:
    """None loads modules for bridges and VLANs, or shows the host's interfaces without network."""
    for request in (0x8940, 0x8941, 0x89A0, 0x89A1, 0x8982, 0x8983):
        found = {ask(arch, variant, "ioctl", 0, each) for each in (request, request | HIGH)}
        assert found == {refused(errno.EPERM)}
    shown = refused(errno.EPERM) if variant == "landlock_off" else ALLOW
    assert {ask(arch, variant, "ioctl", 0, n) for n in (0x8910, 0x8912, 0x8915, 0x8927)} == {shown}
    assert {ask(arch, variant, "ioctl", 0, n) for n in (0x8903, 0x8905, 0x541B)} == {ALLOW}


@every_program
def test_pidfds_tell_of_the_hosts_processes_nothing(arch: str, variant: str) -> None:
    """PIDFD_GET_INFO answers where all processes that can be named are the jail's own."""
    expected = ALLOW if variant in NETWORKS else refused(errno.ENOTTY)
    assert ask(arch, variant, "ioctl", 3, 0xC048FF0B) == expected


@every_program
def test_connections_keep_their_protocol(arch: str, variant: str) -> None:
    """What lends a connection to other code of the kernel's is refused as if it was not there."""
    for level, option in (
        (6, 31),
        (6 | HIGH, 31 | HIGH),
        *((6, n) for n in (14, 32, 38, 39, 40, 41)),
        (17, 100),
        (17 | HIGH, 100 | HIGH),
    ):
        found = ask(arch, variant, "setsockopt", 0, level, option)
        assert found == refused(errno.ENOPROTOOPT)
    for level, option in (
        (6, 1),
        (6, 13),
        (6, 30),
        (6, 37),
        (1, 31),
        (0, 31),
        (1, 38),
        (17, 103),
        (6, 100),
    ):
        assert ask(arch, variant, "setsockopt", 0, level, option) == ALLOW


@every_program
def test_terminals_keep_their_line_discipline(arch: str, variant: str) -> None:
    """No line discipline is loaded."""
    assert ask(arch, variant, "ioctl", 0, 0x5423) == refused(errno.EPERM)
    assert ask(arch, variant, "ioctl", 0, 0x5424) == ALLOW  # TIOCGETD


@every_program
def test_memory_that_others_share(arch: str, variant: str) -> None:
    """No waiter of another process is moved; no huge page, no memory that grows like a stack."""
    for move in (3, 4, 11, 12):
        for operation in (move, move | 0x100, move | HIGH):
            assert ask(arch, variant, "futex", 1, operation) == refused(errno.ENOSYS)
        assert ask(arch, variant, "futex", 1, move | 0x80) == ALLOW
    for operation in (0, 1, 5, 6, 7, 9, 10, 0x81, 0x189, 13):
        assert ask(arch, variant, "futex", 1, operation) == ALLOW
    for flag in (0x40000, 0x100):
        assert ask(arch, variant, "mmap", 0, 4096, 3, 0x22 | flag) == refused(errno.EPERM)
    assert ask(arch, variant, "mmap", 0, 4096, 3, 0x22) == ALLOW
    assert ask(arch, variant, "memfd_create", 1, 0x5) == refused(errno.EPERM)
    assert {ask(arch, variant, "memfd_create", 1, flags) for flags in (0, 3, 11)} == {ALLOW}
    assert ask(arch, variant, "memfd_secret", 0) == refused(errno.ENOSYS)
    assert ask(arch, variant, "shmget", 0, 4096, 0o5600) == refused(errno.EPERM)
    if variant in NETWORKS:
        assert ask(arch, variant, "shmget", 0, 4096, 0o1600) == ALLOW


@every_program
def test_files_take_no_hints_or_leases(arch: str, variant: str) -> None:
    """No hint stays with a file, and no lease holds up its owner."""
    for command in (1024, 1026, 1036, 1038, 1040, 1036 | HIGH):
        assert ask(arch, variant, "fcntl", 3, command) == refused(errno.EPERM)
    assert {ask(arch, variant, "fcntl", 3, n) for n in (1, 4, 37, 1030, 1033, 1035)} == {ALLOW}


@every_program
def test_options_of_sockets(arch: str, variant: str) -> None:
    """No program is attached, no peer's pidfd is had; on the host's network no port is shared."""
    unknown = refused(errno.ENOPROTOOPT)
    for option in (26, 50, 51, 52, 26 | HIGH, 76, 76 | HIGH):
        assert ask(arch, variant, "setsockopt", 3, 1, option) == unknown
    assert {ask(arch, variant, "getsockopt", 3, 1, n) for n in (77, 77 | HIGH)} == {unknown}
    assert {ask(arch, variant, "getsockopt", 3, 1, n) for n in (3, 4, 17, 59, 76)} == {ALLOW}
    assert {ask(arch, variant, "setsockopt", 3, 1, n) for n in (6, 7, 8, 9, 13, 20)} == {ALLOW}
    assert {ask(arch, variant, "setsockopt", 3, 6, n) for n in (1, 2, 15, 26)} == {ALLOW}
    unnamed = refused(errno.EPERM) if variant == "landlock_off" else ALLOW
    assert {ask(arch, variant, "setsockopt", 3, 1, n) for n in (16, 16 | HIGH)} == {unnamed}
    assert ask(arch, variant, "connect", 3) == unnamed
    opened = variant.endswith("open")
    assert ask(arch, variant, "setsockopt", 3, 1, 2) == (refused(0) if opened else ALLOW)
    assert ask(arch, variant, "setsockopt", 3, 1, 15) == (unknown if opened else ALLOW)


@every_program
def test_every_open_is_for_reading_or_for_writing(arch: str, variant: str) -> None:
    """The access mode that Landlock does not look at is refused, whatever else is asked for."""
    for flags in (0, os.O_CREAT, os.O_CLOEXEC, os.O_TMPFILE, HIGH):
        for mode in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR):
            assert ask(arch, variant, "openat", 3, BAD_POINTER, flags | mode, 0) == ALLOW
        neither = refused(errno.EPERM)
        assert ask(arch, variant, "openat", 3, BAD_POINTER, flags | os.O_ACCMODE, 0) == neither
        if arch == "x86_64":
            assert ask(arch, variant, "open", BAD_POINTER, flags | os.O_ACCMODE, 0) == neither


@with_namespaces
def test_set_id_bits(arch: str, variant: str) -> None:
    """No call sets a set-id bit, and modes without one pass, the sticky bit included."""
    modes = {"fchmod": 1, "fchmodat": 2, "mkdirat": 2, "mknodat": 2}
    if arch == "x86_64":
        modes |= {"chmod": 1, "creat": 1, "mkdir": 1, "mknod": 1}
    for name, position in modes.items():
        for mode in (0o4755, 0o2755, 0o6000, 0o104755, 0o4000 | HIGH):
            assert ask(arch, variant, name, *[0] * position, mode) == refused(errno.EPERM)
        for mode in (0o755, 0o1777, 0o100644):
            assert ask(arch, variant, name, *[0] * position, mode) == ALLOW
    opens = {"openat": 2} | ({"open": 1} if arch == "x86_64" else {})
    for name, position in opens.items():
        before = [0] * position
        for flags in (0o100, 0o101, 0o20000000, 0o20200002):
            for mode in (0o4755, 0o2755):
                assert ask(arch, variant, name, *before, flags, mode) == refused(errno.EPERM)
            assert ask(arch, variant, name, *before, flags, 0o1777) == ALLOW
        # Without O_CREAT or __O_TMPFILE the mode is whatever the register held.
        assert ask(arch, variant, name, *before, 0o200000, 0o7777) == ALLOW


@with_namespaces
def test_socket_families_and_protocols(arch: str, variant: str) -> None:
    """Only AF_UNIX, TCP, UDP and (network off) NETLINK_ROUTE sockets can be made."""

    def make(family: int, kind: int, protocol: int) -> int:
        return ask(arch, variant, "socket", family, kind, protocol)

    netlink = 16
    allowed = {1, 2, 10} | ({netlink} if variant == "network_off" else set())
    for family in (*range(64), HIGH | 40, HIGH | 1, 0xFFFFFFFF):
        expected = ALLOW if family in allowed else refused(errno.EAFNOSUPPORT)
        assert make(family, 1, 0) == expected, family
    for family in (2, 10):
        for flags in (0, 0o2000000, 0o4000, HIGH):
            for kind, own, other in ((1, 6, 17), (2, 17, 6)):
                assert {make(family, kind | flags, p) for p in (0, own)} == {ALLOW}
                for protocol in (other, 1, 2, 33, 58, 132, 136, 255, 262, 6 | HIGH, 0xFFFFFFFF):
                    assert make(family, kind | flags, protocol) == refused(errno.EPROTONOSUPPORT)
            assert make(family, 5 | flags, 0) == refused(errno.EPROTONOSUPPORT)
            for kind in (3, 4, 6, 10):
                for protocol in (0, 1, 6, 255):
                    assert make(family, kind | flags, protocol) == refused(errno.EPERM)
    assert make(1, 5, 0) == ALLOW  # AF_UNIX keeps all its types
    if variant == "network_off":
        for protocol in (9, 15, 16, HIGH):
            assert make(netlink, 3, protocol) == refused(errno.EPROTONOSUPPORT)
        assert make(netlink, 3, 0) == ALLOW
    assert ask(arch, variant, "socketpair", 1, 1, 0) == ALLOW
    for family in (0, 2, 10, 16, 40, HIGH | 1):
        assert ask(arch, variant, "socketpair", family, 1, 0) == refused(errno.EAFNOSUPPORT)


HOST_FILES = (
    "inotify_init1 fchmod fchmodat fchown fchownat utimensat setxattr lsetxattr fsetxattr removexattr"
    " lremovexattr fremovexattr inotify_add_watch shmget shmat shmctl semget semop semtimedop"
    " semctl msgget msgsnd msgrcv msgctl mq_open mq_unlink"
).split()
HOST_ATTRIBUTES = ("getxattr", "lgetxattr", "listxattr", "llistxattr")
BARE_UNTOUCHED = sorted(
    {*UNTOUCHED, "ioprio_set", "fgetxattr", "flistxattr"}
    - {*HOST_FILES, *HOST_ATTRIBUTES, "sched_setaffinity", "bind", "connect"}
)


@every_program
def test_scheduling_of_others(arch: str, variant: str) -> None:
    """Nobody but the caller (pid 0) is given another priority, policy or class."""
    idle, batch, ordinary, reset = 5, 3, 0, 0x40000000
    for pid in (1, 4242, 1 << 40, 0xFFFFFFFF):
        assert ask(arch, variant, "sched_setparam", pid) == refused(errno.EPERM)
        assert ask(arch, variant, "sched_setattr", pid) == refused(errno.ENOSYS)
        for policy in (idle, batch, 1, 2, 6, reset, HIGH):
            assert ask(arch, variant, "sched_setscheduler", pid, policy) == refused(errno.EPERM)
        # What pthread_create asks for; it favours nobody.
        passes = ALLOW if variant.startswith("network") else refused(errno.EPERM)
        assert ask(arch, variant, "sched_setscheduler", pid, ordinary) == passes
        assert ask(arch, variant, "sched_setaffinity", pid) == passes
    for name in ("sched_setparam", "sched_setaffinity"):
        assert ask(arch, variant, name, 0) == ALLOW
    for name, kinds in (("setpriority", (0, 1, 2)), ("ioprio_set", (1, 2, 3))):
        for kind in kinds:
            assert ask(arch, variant, name, kind, 4242) == refused(errno.EPERM)
            own = refused(errno.EPERM) if kind == kinds[-1] else ALLOW
            assert ask(arch, variant, name, kind, 0, -5) == own
            assert ask(arch, variant, name, kind | HIGH, 0, -5) == own


@every_program
def test_lower_priorities(arch: str, variant: str) -> None:
    """Nobody is put behind others at its own wish, and a wish to be before them is the kernel's."""
    done, idle, batch, extension, reset = refused(0), 5, 3, 7, 0x40000000
    for low in (idle, batch):
        for policy in (low, low | reset, low | HIGH):
            assert ask(arch, variant, "sched_setscheduler", 0, policy) == done
            assert ask(arch, variant, "sched_setscheduler", HIGH, policy) == refused(errno.EPERM)
    for policy in (extension, extension | reset):
        assert ask(arch, variant, "sched_setscheduler", 0, policy) == refused(errno.EINVAL)
    for policy in (0, reset, 1, 2, 6):
        assert ask(arch, variant, "sched_setscheduler", 0, policy) == ALLOW
    assert ask(arch, variant, "sched_setattr", 0) == refused(errno.ENOSYS)
    for kind in (0, 1, HIGH, HIGH | 1):
        for niceness in (1, 19, 0x7FFFFFFF, HIGH | 5):
            assert ask(arch, variant, "setpriority", kind, 0, niceness) == done
            assert ask(arch, variant, "setpriority", kind, HIGH, niceness) == refused(errno.EPERM)
        for niceness in (-1, -20, 0xFFFFFFFF):
            assert ask(arch, variant, "setpriority", kind, 0, niceness) == ALLOW
    for kind in (1, 2):
        assert ask(arch, variant, "ioprio_set", kind, 0, 3 << 13 | 7) == done
        assert ask(arch, variant, "ioprio_set", kind, 0, 3 << 13 | HIGH) == done
        for other in (0, 1 << 13, 2 << 13 | 4):
            assert ask(arch, variant, "ioprio_set", kind, 0, other) == ALLOW


@every_program
def test_advice_to_give_up_pages(arch: str, variant: str) -> None:
    """MADV_COLD and MADV_PAGEOUT are unknown, and other advice passes."""
    for advice in (20, 21, 21 | HIGH):
        assert ask(arch, variant, "madvise", 0, 4096, advice) == refused(errno.EINVAL)
    for advice in (0, 4, 8, 9, 14, 19, 22, 25, 100):
        assert ask(arch, variant, "madvise", 0, 4096, advice) == ALLOW


@every_program
def test_hash_of_waits(arch: str, variant: str) -> None:
    """PR_FUTEX_HASH is unknown, and other options pass."""
    for option in (78, 78 | HIGH):
        assert ask(arch, variant, "prctl", option, 1, 16) == refused(errno.EINVAL)
    assert {ask(arch, variant, "prctl", option) for option in (1, 4, 15, 38, 77, 79)} == {ALLOW}


@without_namespaces
def test_what_landlock_does_not_see_is_refused(arch: str, variant: str) -> None:
    """Without namespaces no file's attributes, IPC object or other process is changed."""
    names = [*HOST_FILES, *(["chmod", "chown", "lchown", "utime"] if arch == "x86_64" else [])]
    assert [n for n in names if ask(arch, variant, n) != refused(errno.EPERM)] == []
    assert {ask(arch, variant, n) for n in HOST_ATTRIBUTES} == {refused(errno.ENOTSUP)}
    assert [n for n in BARE_UNTOUCHED if ask(arch, variant, n) != ALLOW] == []
    for pid in (1, 4242, 1 << 40):
        for name in ("sched_setaffinity", "sched_setscheduler", "sched_setparam"):
            assert ask(arch, variant, name, pid) == refused(errno.EPERM)
            assert ask(arch, variant, name, 0) == ALLOW
    for name, user in (("setpriority", 2), ("ioprio_set", 3)):
        assert ask(arch, variant, name, 0, 4242) == refused(errno.EPERM)
        assert ask(arch, variant, name, user, 0) == refused(errno.EPERM)
        assert ask(arch, variant, name, user | HIGH, 0) == refused(errno.EPERM)
        assert ask(arch, variant, name, 1, 0, -1) == ALLOW
    for request in (0x40086602, 0x401C5820, 0x50009401, 0x40086602 | HIGH):
        assert ask(arch, variant, "ioctl", 0, request) == refused(errno.EPERM)
    # An end of a pair takes an abstract name of the host by it.
    bound = refused(errno.EPERM) if variant == "landlock_off" else ALLOW
    assert ask(arch, variant, "bind", 3, 0x1000, 16) == bound


@without_namespaces
def test_sockets_without_namespaces(arch: str, variant: str) -> None:
    """No AF_UNIX socket can be made, an internet one only with the host's network."""
    internet = ALLOW if variant == "landlock_open" else refused(errno.EAFNOSUPPORT)
    for family in (*range(64), HIGH | 1, HIGH | 40):
        expected = internet if family in (2, 10) else refused(errno.EAFNOSUPPORT)
        assert ask(arch, variant, "socket", family, 1, 0) == expected, family
    if variant == "landlock_open":
        assert ask(arch, variant, "socket", 2, 3, 0) == refused(errno.EPERM)
        assert ask(arch, variant, "socket", 2, 1, 262) == refused(errno.EPROTONOSUPPORT)
        assert ask(arch, variant, "socket", 2, 2, 6) == refused(errno.EPROTONOSUPPORT)
    assert {ask(arch, variant, "socketpair", 1, kind | 0o2000000, 0) for kind in (1, 5)} == {ALLOW}
    for kind in (2, 3, 2 | 0o4000, 2 | HIGH):
        assert ask(arch, variant, "socketpair", 1, kind, 0) == refused(errno.EPROTONOSUPPORT)
    assert ask(arch, variant, "socketpair", 2, 1, 0) == refused(errno.EAFNOSUPPORT)


@every_program
def test_fast_open(arch: str, variant: str) -> None:
    """No send opens a connection by MSG_FASTOPEN, and other flags pass."""
    for name, position in {"sendto": 3, "sendmsg": 2, "sendmmsg": 3}.items():
        before = [0] * position
        for flags in (0x20000000, 0x20004040, 0x20000000 | HIGH):
            assert ask(arch, variant, name, *before, flags) == refused(errno.EOPNOTSUPP)
        for flags in (0, 0x4000, 0x40, 0x8000, 0x5FFFFFFF & ~0x20000000):
            assert ask(arch, variant, name, *before, flags) == ALLOW


BROKER_MAY = """
    read write close ppoll recvmsg sendmsg statx readlinkat fcntl getpid exit_group wait4 kill
    process_vm_readv pidfd_open pidfd_getfd getsockopt connect bind fchdir umask
""".split()
BROKER_MAY_NOT = """
    execve execveat socket socketpair listen accept4 sendto mmap mprotect ptrace
    process_vm_writev unlinkat setns unshare mount seccomp prctl memfd_create dup3 io_uring_setup
    setsockopt kexec_load bpf landlock_restrict_self
""".split()


@pytest.mark.parametrize("arch", generator.ARCHITECTURES)
def test_a_trap_hands_over_connections_only(arch: str) -> None:
    """The trap notifies of each connect, and nothing of this family but streams can be made."""
    trap = "trap_sockets"
    for name in ("connect", "bind"):
        assert ask(arch, trap, name, 3, BAD_POINTER, 16) == NOTIFY
    for name in ("socket", "socketpair"):
        for kind in range(16):
            for flags in (0, 0o2000000, 0o4000, HIGH):
                wanted = ALLOW if kind in (1, 5) else refused(errno.EPROTONOSUPPORT)
                assert ask(arch, trap, name, 1, kind | flags) == wanted
                assert ask(arch, trap, name, 1 | HIGH, kind | flags) == wanted
            assert ask(arch, trap, name, 2, kind) == ALLOW
    assert {ask(arch, trap, name) for name in UNTOUCHED if name not in ("connect", "bind")} == {
        ALLOW
    }


NAME_MAKERS = """
    mkdirat mknodat linkat symlinkat renameat renameat2
    creat mkdir mknod link symlink rename
""".split()


@pytest.mark.parametrize("arch", generator.ARCHITECTURES)
@pytest.mark.parametrize("trap", ["trap_names", "trap_both"])
def test_a_trap_hands_over_every_call_that_makes_a_name(arch: str, trap: str) -> None:
    """No call that makes a name goes past the broker, and an open that makes none does."""
    old = NAME_MAKERS[6:]
    there = [name for name in NAME_MAKERS if arch == "x86_64" or name not in old]
    assert {ask(arch, trap, name, -100, BAD_POINTER, 0o600) for name in there} == {NOTIFY}
    for name, place in (("openat", 1), ("open", 0)):
        if arch == "aarch64" and name == "open":
            continue
        for flags in (0, 1, 2, 0o1000, 0o2000000, 0o20200000):
            before = (-100, BAD_POINTER)[1 - place :]
            assert ask(arch, trap, name, *before, flags, 0o600) == ALLOW
            assert ask(arch, trap, name, *before, flags | 0o100, 0o600) == NOTIFY
            assert ask(arch, trap, name, *before, flags | 0o100 | HIGH, 0o600) == NOTIFY
    untouched = {ask(arch, trap, name) for name in UNTOUCHED if name not in ("connect", "bind")}
    assert untouched == {ALLOW}
    assert ask(arch, trap, "bind", 3, BAD_POINTER, 16) == NOTIFY  # no filter sees the family
    assert ask(arch, trap, "connect") == (NOTIFY if trap == "trap_both" else ALLOW)
    # It makes all names of a folder stand for others (FS_CASEFOLD_FL), or sets another flag.
    assert ask(arch, trap, "ioctl", 3, 0x40086602) == refused(errno.EPERM)
    assert ask(arch, trap, "ioctl", 3, 0x80086601) == ALLOW


@every_program
def test_names_that_no_path_check_sees(arch: str, variant: str) -> None:
    """Subvolumes, snapshots and reflinks by name are refused, whatever the high bits."""
    for request in (
        0x5000940E,
        0x50009401,
        0x50009418,
        0x50009417,
        0x40186F04,
        0x4020BC10,
        0x4030BC1D,
    ):
        for variation in (request, request | HIGH):
            assert ask(arch, variant, "ioctl", 3, variation) == refused(errno.EPERM)
    for request in (0x40049409, 0x4020940D):  # FICLONE, FICLONERANGE
        assert ask(arch, variant, "ioctl", 3, request) == ALLOW


@pytest.mark.parametrize("arch", generator.ARCHITECTURES)
def test_the_broker_of_names_makes_no_set_id_file(arch: str) -> None:
    """The broker that makes names makes them without set-id bits, and still runs no program."""
    program = "broker_names"
    for name in ("mkdirat", "mknodat"):
        assert ask(arch, program, name, 3, BAD_POINTER, 0o100755) == ALLOW
        for bit in (0o4000, 0o2000):
            assert ask(arch, program, name, 3, BAD_POINTER, bit) == refused(errno.EPERM)
    assert {ask(arch, program, name) for name in (*BROKER_MAY_NOT, "fchmodat", "chroot")} == {
        refused(errno.EPERM)
    }


@pytest.mark.parametrize("arch", generator.ARCHITECTURES)
def test_the_broker_may_call_little(arch: str) -> None:
    """The broker makes only the calls of its work: no program, no namespace, no file."""
    assert {ask(arch, "broker", name) for name in BROKER_MAY} == {ALLOW}
    assert {ask(arch, "broker", name) for name in BROKER_MAY_NOT} == {refused(errno.EPERM)}
    for code in (0xC0502100, 0xC0182101, 0x40082102, 0x40182103, 0x89E0):
        assert ask(arch, "broker", "ioctl", 1, code) == ALLOW
    for code in (0x5412, 0x8910, 0xC0182101 + 1):
        assert ask(arch, "broker", "ioctl", 1, code) == refused(errno.EPERM)
    for flags in (0, 0o2000000, 0o12000000):
        assert ask(arch, "broker", "openat", 0, BAD_POINTER, flags) == ALLOW
        for creating in (0o100, 0o20000000):
            wanted = refused(errno.EPERM)
            assert ask(arch, "broker", "openat", 0, BAD_POINTER, flags | creating) == wanted
    assert ask(arch, "broker", "clone", 17) == ALLOW
    for bit in (17, 25, 26, 27, 28, 29, 30):
        assert ask(arch, "broker", "clone", 1 << bit | 17) == refused(errno.EPERM)


@pytest.mark.parametrize("arch", generator.ARCHITECTURES)
@pytest.mark.parametrize("helper", ["dialer", "relay"])
def test_dialer_and_relay_may_call_little(arch: str, helper: str) -> None:
    """What moves the bytes of ports makes TCP sockets over IPv4 and uses them; nothing else."""
    may = set(HELPER_CALLS[helper])
    assert {ask(arch, helper, name) for name in may} == {ALLOW}
    may_not = ["bind", "listen", "openat", "read", "write", "execve", "clone", "kill", "mmap"]
    may_not += ["pidfd_getfd", "process_vm_readv", "prctl", "seccomp", "unshare", "setns"]
    assert {ask(arch, helper, name) for name in may_not} == {refused(errno.EPERM)}
    assert ("accept4" in may) == (helper == "relay")
    assert ask(arch, helper, "socket", 2, 1 | 0o2004000, 0) == ALLOW
    for family, kind, protocol in ((1, 1, 0), (10, 1, 0), (2, 2, 0), (2, 1, 262), (16, 3, 0)):
        assert ask(arch, helper, "socket", family, kind, protocol) == refused(errno.EPERM)
