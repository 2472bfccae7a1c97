"""What each system call filter answers, and why: the table of `generate_seccomp`.

Two things decide the order of the rules. Rules on one system call never overlap with
different answers, because libseccomp does not promise which of them wins. And whatever takes
an ``int`` is compared on its low 32 bits or refused when any higher bit is set: the kernel
ignores those bits, so a comparison of all 64 could be dodged.
"""

from __future__ import annotations

import errno
from typing import NamedTuple

from seccomp_lists import ATTRIBUTE_IOCTLS, LOW_32

ALL_64 = 0xFFFFFFFFFFFFFFFF

VARIANTS = ("network_off", "network_open", "landlock_off", "landlock_open")
"""By network mode; "landlock": of a jail without namespaces, on the host's own places."""
TRAPS = ("trap_sockets", "trap_names", "trap_both")
"""Installed over a variant where a clause needs the broker. Of the answers of several filters
the kernel takes the strictest, so a trap opens nothing that the variant refuses."""
HELPERS = ("broker", "broker_names", "dialer", "relay")
"""Lists of what the jail's own helpers may call; everything else is EPERM."""
PROGRAMS = (*VARIANTS, *TRAPS, *HELPERS)

REFUSED = (
    # The kernel and the machine.
    "kexec_load kexec_file_load init_module finit_module delete_module reboot swapon swapoff"
    " acct quotactl quotactl_fd syslog settimeofday clock_settime clock_adjtime adjtimex iopl"
    " ioperm vhangup uselib nfsservctl lookup_dcookie"
    # Large attack surfaces that ordinary programs do without.
    " bpf perf_event_open userfaultfd io_uring_setup io_uring_enter io_uring_register"
    # The kernel's key rings are not divided by namespaces.
    " add_key request_key keyctl"
    # Other processes.
    " ptrace process_vm_readv process_vm_writev process_madvise kcmp pidfd_getfd"
    # Mounts, roots and namespaces (unshare and clone: see below).
    " setns mount umount2 pivot_root chroot open_tree move_mount fsopen fsconfig fsmount fspick"
    " mount_setattr"
    # Files by handle, which no mount confines, and watches over whole mounts.
    " open_by_handle_at name_to_handle_at fanotify_init fanotify_mark"
).split()
"""Answered with EPERM whatever the arguments."""

REFUSED_ON_THE_HOST = (
    # What Landlock does not see: owners, modes, times and attributes of any file that the
    # caller owns, also through a descriptor that is open for reading.
    "chmod fchmod fchmodat chown lchown fchown fchownat utime utimes futimesat utimensat setxattr"
    " lsetxattr fsetxattr removexattr lremovexattr fremovexattr"
    # Names of files, as they are made and opened in any folder.
    " inotify_init inotify_init1 inotify_add_watch"
    # The host's own System V objects and message queues.
    " shmget shmat shmctl semget semop semtimedop semctl msgget msgsnd msgrcv msgctl mq_open"
    " mq_unlink"
).split()
"""Answered with EPERM as well where a jail has no namespaces of its own."""

UNSUPPORTED_ON_THE_HOST = "getxattr lgetxattr listxattr llistxattr".split()
"""Answered with ENOTSUP there, as by a file system without attributes: by its path any file is
asked, granted or not, and tools go on. By a descriptor that is open for reading a file is asked
that is granted."""

PRIO_PROCESS, PRIO_PGRP, PRIO_USER = 0, 1, 2
IOPRIO_WHO_PROCESS, IOPRIO_WHO_PGRP, IOPRIO_WHO_USER = 1, 2, 3
IOPRIO_CLASS_SHIFT, IOPRIO_CLASS_MASK, IOPRIO_CLASS_IDLE = 13, 7, 3
SCHED_OTHER, SCHED_BATCH, SCHED_IDLE, SCHED_EXT = 0, 3, 5, 7
SCHED_RESET_ON_FORK = 0x40000000
SIGN = 0x80000000
MADV_COLD, MADV_PAGEOUT = 20, 21
PR_FUTEX_HASH = 78

UNSUPPORTED = ("clone3", "io_setup", "openat2", "memfd_secret", "sched_setattr")
"""Answered with ENOSYS, for which programs have another way.

A filter cannot see what clone3, openat2 and sched_setattr are given. The requests of io_setup count
for the whole machine (/proc/sys/fs/aio-max-nr), so one guest could take them from everybody. Secret
memory belongs to no control group."""

UNSUITABLE = ("splice", "sendfile")
"""Answered with EINVAL, as for descriptors of a kind that they do not take: programs read and write.

Both keep the lock of a pipe while they wait for the other descriptor, a socket or a terminal
(splice_to_socket, splice_file_to_pipe in fs/splice.c). Whoever reads, writes or asks (FIONREAD) the
other end of that pipe, such as the host, waits for the lock, and no signal ends that. tee gives up
the lock to wait, and vmsplice waits for nothing but its own memory, as read and write do."""

CLONE_FLAGS = {
    "NEWNS": 0x00020000,
    "NEWCGROUP": 0x02000000,
    "NEWUTS": 0x04000000,
    "NEWIPC": 0x08000000,
    "NEWUSER": 0x10000000,
    "NEWPID": 0x20000000,
    "NEWNET": 0x40000000,
}
CLONE_NEWTIME = 0x00000080  # unshare only: these bits of clone are the exit signal

FILE_FCNTLS = (
    1024,  # F_SETLEASE: stalls the host's open() of a file that the guest only reads for 45 s
    1040,  # F_SETDELEG
    1026,  # F_NOTIFY
    1036,  # F_SET_RW_HINT stays with the file, and asks for no right to write
    1038,  # F_SET_FILE_RW_HINT
)
FUTEX_PRIVATE, FUTEX_CLOCK_REALTIME = 0x80, 0x100
FUTEX_MOVES = (3, 4, 11, 12)  # REQUEUE, CMP_REQUEUE, WAIT_REQUEUE_PI, CMP_REQUEUE_PI
MFD_HUGETLB, MAP_HUGETLB, SHM_HUGETLB = 0x4, 0x40000, 0o4000
MAP_GROWSDOWN = 0x100
SET_ID_BITS = (0o4000, 0o2000)
MODE_ARGUMENT = {
    "chmod": 1,
    "fchmod": 1,
    "fchmodat": 2,
    "creat": 1,
    "mkdir": 1,
    "mkdirat": 2,
    "mknod": 1,
    "mknodat": 2,
}
OPEN_ARGUMENTS = {"open": (1, 2), "openat": (2, 3)}  # flags, mode
CREATING_FLAGS = (0o100, 0o20000000)  # O_CREAT, __O_TMPFILE: only these make open read its mode
O_ACCMODE = 3

AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16
SOCKET_TYPE_MASK = 0xF
SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET = 1, 2, 5
INTERNET_PROTOCOLS = {SOCK_STREAM: (0, 6), SOCK_DGRAM: (0, 17)}
"""Any, TCP and UDP, by the kind of socket: for another pair the kernel asks the host for modules."""
NETLINK_ROUTE = 0
MSG_FASTOPEN = 0x20000000
SOL_SOCKET, SO_REUSEADDR, SO_REUSEPORT = 1, 2, 15
SO_PASSCRED, SO_PASSPIDFD, SO_PEERPIDFD = 16, 76, 77
IPPROTO_TCP = 6
# ULP; MD5SIG, MD5SIG_EXT; AO_ADD_KEY, AO_DEL_KEY, AO_INFO, AO_GET_KEYS
TCP_OPTIONS = (31, 14, 32, 38, 39, 40, 41)
IPPROTO_UDP, UDP_ENCAP = 17, 100
SOCKET_PROGRAMS = (26, 50, 51, 52)
"""SO_ATTACH_FILTER, SO_ATTACH_BPF, SO_ATTACH_REUSEPORT_CBPF and SO_ATTACH_REUSEPORT_EBPF."""
RLIMIT_CORE = 4
RENAME_WHITEOUT = 1 << 2
S_IFMT, S_IFCHR, S_IFBLK = 0o170000, 0o020000, 0o060000

BROKER = (
    "read write close ppoll recvmsg sendmsg statx readlinkat fcntl getpid exit_group wait4 kill"
    " rt_sigreturn restart_syscall"
    # What a trapped call means: the guest's memory and descriptors.
    " process_vm_readv pidfd_open pidfd_getfd getsockopt"
    # The calls that it makes for guests.
    " connect bind fchdir umask"
).split()
SIOCUNIXFILE = 0x89E0
"""Opens the file to which an AF_UNIX socket is bound (Linux 4.13)."""
DIALER = (
    "close sendmsg recvfrom connect getsockname exit_group rt_sigreturn restart_syscall"
).split()
RELAY = (
    "close ppoll accept4 connect getsockname sendmsg recvmsg sendto recvfrom shutdown getsockopt"
    " setsockopt exit_group rt_sigreturn restart_syscall"
).split()
NAME_MAKERS = (
    "creat mkdir mkdirat mknod mknodat link linkat symlink symlinkat rename renameat renameat2"
).split()
"""Calls that make a name, besides the two that open a file and may make it."""
BROKER_NAMES = "openat openat2 symlinkat linkat renameat2".split()
"""What the broker calls for them; those with a mode are in helper_rules."""
SECCOMP_IOCTLS = (0xC0502100, 0xC0182101, 0x40082102, 0x80082102, 0x40182103)
"""NOTIF_RECV, NOTIF_SEND, NOTIF_ID_VALID (headers before Linux 5.9 had another number for it)
and NOTIF_ADDFD of seccomp_unotify(2)."""
SEND_FLAGS_ARGUMENT = {"sendto": 3, "sendmsg": 2, "sendmmsg": 3}


class Test(NamedTuple):
    """One comparison: ``(argument & mask) == value``, or ``argument > value`` without a mask."""

    argument: int
    value: int
    mask: int | None = None


NOTIFY, ALLOWED = -1, -2
"""In the place of an error: the broker answers the call, or it goes through."""


class Rule(NamedTuple):
    """Answer *syscall* with *error* when every test holds."""

    syscall: str
    error: int
    tests: tuple[Test, ...] = ()


def equals(argument: int, value: int) -> Test:
    """Compare the low 32 bits of an argument, as the kernel does with an ``int``."""
    return Test(argument, value, LOW_32)


def has_bits(argument: int, bits: int) -> Test:
    """Hold when all of *bits* are set."""
    return Test(argument, bits, bits)


def exactly(argument: int, value: int) -> Test:
    """Compare all 64 bits, where another rule answers whatever else the kernel takes for it."""
    return Test(argument, value, ALL_64)


def above(argument: int, value: int) -> Test:
    """Hold when the whole 64-bit argument is greater than *value*."""
    return Test(argument, value)


def not_in(argument: int, allowed: tuple[int, ...]) -> list[Test]:
    """Return alternatives that together hold for each value outside *allowed*."""
    top = max(allowed)
    return [
        *(equals(argument, value) for value in range(top) if value not in allowed),
        above(argument, top),
    ]


def file_mode_rules() -> list[Rule]:
    """Refuse to set a set-user-id or set-group-id bit on anything."""
    rules = [
        Rule(name, errno.EPERM, (has_bits(argument, bit),))
        for name, argument in MODE_ARGUMENT.items()
        for bit in SET_ID_BITS
    ]
    rules += [
        Rule(name, errno.EPERM, (has_bits(flags, creating), has_bits(mode, bit)))
        for name, (flags, mode) in OPEN_ARGUMENTS.items()
        for creating in CREATING_FLAGS
        for bit in SET_ID_BITS
    ]
    return rules


def device_rules() -> list[Rule]:
    """Refuse to make a device node; without rights the kernel refuses all but one.

    That one, character device 0:0, is a whiteout: in the layer of an overlay it hides a file.
    A rename can leave one behind as well.
    """
    rules = [Rule("renameat2", errno.EPERM, (has_bits(4, RENAME_WHITEOUT),))]
    return rules + [
        Rule(name, errno.EPERM, (Test(MODE_ARGUMENT[name], kind, S_IFMT),))
        for name in ("mknod", "mknodat")
        for kind in (S_IFCHR, S_IFBLK)
    ]


def access_mode_rules() -> list[Rule]:
    """Refuse to open a file neither for reading nor for writing, the fourth access mode of open(2).

    Landlock asks about reading and writing, so it lets that mode pass for any file and device: opening
    one already acts on some, and extended attributes are read by such a descriptor.
    """
    return [
        Rule(name, errno.EPERM, (has_bits(flags, O_ACCMODE),))
        for name, (flags, _) in OPEN_ARGUMENTS.items()
    ]


def other_process_rules() -> list[Rule]:
    """Refuse to set a limit of another process than the caller (pid 0).

    The kernel asks for nothing but the same uid, which the jail's supervisors have: with a
    limit of one descriptor they could not look for the processes that they have to end.
    """
    return [Rule("prlimit64", errno.EPERM, (above(0, 0), above(2, 0)))]


def core_size_rules() -> list[Rule]:
    """Answer 0 to a change of RLIMIT_CORE, and change nothing.

    It is 1, with which the kernel writes no core and starts no core handler either; with 0 it
    starts one, on the host as root (fs/coredump.c looks for 1 alone). Programs that must not
    leave a core, such as gpg, end when they cannot set it to 0, and it does what they want.
    """
    return [
        Rule("setrlimit", 0, (equals(0, RLIMIT_CORE),)),
        Rule("prlimit64", 0, (equals(0, 0), equals(1, RLIMIT_CORE), above(2, 0))),
    ]


def shared_memory_rules(*, on_the_host: bool) -> list[Rule]:
    """Refuse what reaches through memory that others share, and memory of huge pages.

    A wait on a word in a file that the guest may only read is woken by whoever maps it, and
    moved to another word, where nobody looks for it. Programs move only waits of their own
    process: glibc wakes all where a condition is shared, musl asks for the private kind first.
    Huge pages come from a pool of the machine and count in no memory limit. Memory that grows
    like a stack is outside of RLIMIT_DATA.
    """
    rules = [
        Rule("futex", errno.ENOSYS, (Test(1, move, LOW_32 & ~FUTEX_CLOCK_REALTIME),))
        for move in FUTEX_MOVES
    ]
    rules.append(Rule("memfd_create", errno.EPERM, (has_bits(1, MFD_HUGETLB),)))
    rules += [
        Rule("mmap", errno.EPERM, (has_bits(3, flag),)) for flag in (MAP_HUGETLB, MAP_GROWSDOWN)
    ]
    if not on_the_host:
        rules.append(Rule("shmget", errno.EPERM, (has_bits(2, SHM_HUGETLB),)))
    return rules


def scheduling_rules(*, on_the_host: bool) -> list[Rule]:
    """Refuse to change how another process is scheduled.

    The kernel asks for nothing but the same uid, which the jail's supervisors have: behind
    enough busy programs they could neither end a run nor die themselves. A thread of the
    caller is named by a number like any process. What must work there is left: its processors,
    which take nobody's turn away, and the ordinary policy, which pthread_create sets where
    it is asked to, and which favours nobody.
    """
    other = above(0, 0)
    ordinary_passes = () if on_the_host else (above(1, SCHED_OTHER),)
    rules = [
        Rule("sched_setscheduler", errno.EPERM, (other, *ordinary_passes)),
        Rule("sched_setparam", errno.EPERM, (other,)),
    ]
    if on_the_host:
        rules.append(Rule("sched_setaffinity", errno.EPERM, (other,)))
    for name, user in (("setpriority", PRIO_USER), ("ioprio_set", IOPRIO_WHO_USER)):
        rules += [
            Rule(name, errno.EPERM, (above(1, 0),)),
            Rule(name, errno.EPERM, (equals(0, user),)),
        ]
    return rules


def low_priority_rules() -> list[Rule]:
    """Answer 0 where the caller wants a lower priority for itself, and change nothing.

    A thread that others keep from the processor keeps what it holds in the kernel: locks of
    pipes, files and memory that the host waits for, deaf to signals. At the ordinary priority
    its turn comes. Programs lower theirs as a courtesy, and some (nice, chrt, ionice) do
    without what they were started for when they cannot. A negative niceness is left to the
    kernel, which refuses it. A scheduler of the host's own (SCHED_EXT, Linux 6.12) is unknown.
    """
    policy = LOW_32 & ~SCHED_RESET_ON_FORK
    caller = exactly(0, 0)
    rules = [
        Rule("sched_setscheduler", 0, (caller, Test(1, low, policy)))
        for low in (SCHED_BATCH, SCHED_IDLE)
    ]
    rules.append(Rule("sched_setscheduler", errno.EINVAL, (caller, Test(1, SCHED_EXT, policy))))
    rules += [
        Rule("setpriority", 0, (equals(0, kind), exactly(1, 0), Test(2, 0, SIGN)))
        for kind in (PRIO_PROCESS, PRIO_PGRP)
    ]
    idle = Test(2, IOPRIO_CLASS_IDLE << IOPRIO_CLASS_SHIFT, IOPRIO_CLASS_MASK << IOPRIO_CLASS_SHIFT)
    return rules + [
        Rule("ioprio_set", 0, (equals(0, kind), exactly(1, 0), idle))
        for kind in (IOPRIO_WHO_PROCESS, IOPRIO_WHO_PGRP)
    ]


def paging_rules() -> list[Rule]:
    """Answer the advice to give up pages as a kernel before 5.4 does.

    For each page of a file that others map as well, the kernel looks through all mappings, and whoever
    maps that file, or starts it, waits. A guest needs nothing but to read the file.
    """
    return [
        Rule("madvise", errno.EINVAL, (equals(2, advice),)) for advice in (MADV_COLD, MADV_PAGEOUT)
    ]


def futex_hash_rules() -> list[Rule]:
    """Answer PR_FUTEX_HASH as a kernel without it does (before Linux 6.16).

    A process takes up to 128 MiB by it that are counted in no size of a process.
    """
    return [Rule("prctl", errno.EINVAL, (equals(0, PR_FUTEX_HASH),))]


def host_socket_rules(variant: str) -> list[Rule]:
    """Allow no AF_UNIX socket, by which every service of the host could be reached.

    Pairs are allowed, but for datagrams: those can be sent to another address.
    """
    families = () if variant == "landlock_off" else (AF_INET, AF_INET6)
    if not families:
        # A pair has two, and one of them could take an abstract name of the host: by bind, or by
        # asking for credentials, when a connect or a message gives it one (unix_autobind). A
        # connect would also tell which names there are.
        rules = [Rule("socket", errno.EAFNOSUPPORT), Rule("bind", errno.EPERM)]
        rules.append(Rule("connect", errno.EPERM))
        named = (equals(1, SOL_SOCKET), equals(2, SO_PASSCRED))
        rules.append(Rule("setsockopt", errno.EPERM, named))
    else:
        rules = [rule for rule in socket_rules("network_open") if rule.syscall == "socket"]
        rules.append(Rule("socket", errno.EAFNOSUPPORT, (equals(0, AF_UNIX),)))
    rules += [Rule("socketpair", errno.EAFNOSUPPORT, (test,)) for test in not_in(0, (AF_UNIX,))]
    rules += [
        Rule(
            "socketpair",
            errno.EPROTONOSUPPORT,
            (equals(0, AF_UNIX), Test(1, kind, SOCKET_TYPE_MASK)),
        )
        for kind in range(SOCKET_TYPE_MASK + 1)
        if kind not in (SOCK_STREAM, SOCK_SEQPACKET)
    ]
    rules += [
        Rule(name, errno.EOPNOTSUPP, (has_bits(argument, MSG_FASTOPEN),))
        for name, argument in SEND_FLAGS_ARGUMENT.items()
    ]
    return rules


def socket_rules(variant: str) -> list[Rule]:
    """Allow AF_UNIX, TCP and UDP over IP, and where the network is off NETLINK_ROUTE."""
    families = [AF_UNIX, AF_INET, AF_INET6]
    if variant == "network_off":
        families.append(AF_NETLINK)
    rules = [Rule("socket", errno.EAFNOSUPPORT, (test,)) for test in not_in(0, tuple(families))]
    for family in (AF_INET, AF_INET6):
        for kind in range(SOCKET_TYPE_MASK + 1):
            of_kind = (equals(0, family), Test(1, kind, SOCKET_TYPE_MASK))
            if kind in (SOCK_STREAM, SOCK_DGRAM):
                rules += [
                    Rule("socket", errno.EPROTONOSUPPORT, (*of_kind, test))
                    for test in not_in(2, INTERNET_PROTOCOLS[kind])
                ]
            else:
                error = errno.EPROTONOSUPPORT if kind == SOCK_SEQPACKET else errno.EPERM
                rules.append(Rule("socket", error, of_kind))
    if variant == "network_off":
        netlink = (equals(0, AF_NETLINK), above(2, NETLINK_ROUTE))
        rules.append(Rule("socket", errno.EPROTONOSUPPORT, netlink))
    rules += [Rule("socketpair", errno.EAFNOSUPPORT, (test,)) for test in not_in(0, (AF_UNIX,))]
    # TCP Fast Open connects inside a send, where no rule about connect sees it.
    rules += [
        Rule(name, errno.EOPNOTSUPP, (has_bits(argument, MSG_FASTOPEN),))
        for name, argument in SEND_FLAGS_ARGUMENT.items()
    ]
    return rules


def name_trap_rules() -> list[Rule]:
    """Hand every call that may make a name to the broker.

    One flag of an empty folder (FS_CASEFOLD_FL) makes all its names stand for others. A filter
    does not see which flags are set.
    """
    rules = [Rule(name, NOTIFY) for name in NAME_MAKERS]
    rules.append(Rule("ioctl", errno.EPERM, (equals(1, ATTRIBUTE_IOCTLS[0]),)))
    rules += [
        Rule(name, NOTIFY, (has_bits(flags, CREATING_FLAGS[0]),))
        for name, (flags, _) in OPEN_ARGUMENTS.items()
    ]
    return rules


def trap_rules() -> list[Rule]:
    """Hand connections to the broker, and refuse the AF_UNIX sockets that need none.

    A datagram socket, which SOCK_RAW makes as well (unix(7)), is given an address with each
    send, where no filter can see it; so is either end of a pair of them.
    """
    kinds = [k for k in range(SOCKET_TYPE_MASK + 1) if k not in (SOCK_STREAM, SOCK_SEQPACKET)]
    rules = [Rule("connect", NOTIFY)]
    rules += [
        Rule(name, errno.EPROTONOSUPPORT, (equals(0, AF_UNIX), Test(1, kind, SOCKET_TYPE_MASK)))
        for name in ("socket", "socketpair")
        for kind in kinds
    ]
    return rules


HELPER_CALLS = {"dialer": DIALER, "relay": RELAY}


def port_rules(names: list[str]) -> list[Rule]:
    """Return what the dialer or the relay may call: of sockets, they make TCP over IPv4 only."""
    kind = (equals(0, AF_INET), Test(1, SOCK_STREAM, SOCKET_TYPE_MASK), equals(2, 0))
    return [*(Rule(name, ALLOWED) for name in names), Rule("socket", ALLOWED, kind)]


def broker_rules(variant: str) -> list[Rule]:
    """Return what the broker may call: answer, look at a guest, connect, and start a child."""
    rules = [Rule(name, ALLOWED) for name in BROKER]
    ioctls = (*SECCOMP_IOCTLS, SIOCUNIXFILE)
    rules += [Rule("ioctl", ALLOWED, (equals(1, code),)) for code in ioctls]
    any_namespace = 0
    for bit in CLONE_FLAGS.values():
        any_namespace |= bit
    rules.append(Rule("clone", ALLOWED, (Test(0, 0, any_namespace),)))
    if variant == "broker_names":
        set_id = SET_ID_BITS[0] | SET_ID_BITS[1]
        rules += [Rule(name, ALLOWED) for name in BROKER_NAMES]
        rules += [
            Rule(name, ALLOWED, (Test(MODE_ARGUMENT[name], 0, set_id),))
            for name in ("mkdirat", "mknodat")
        ]
        return rules
    any_creation = CREATING_FLAGS[0] | CREATING_FLAGS[1]
    rules.append(Rule("openat", ALLOWED, (Test(2, 0, any_creation),)))
    return rules


def rules_of(variant: str) -> list[Rule]:
    """Return the whole table of one program, for all architectures."""
    if variant in TRAPS:
        sockets = trap_rules() if variant != "trap_names" else []
        names = name_trap_rules() if variant != "trap_sockets" else []
        return [*sockets, Rule("bind", NOTIFY), *names]
    if variant in HELPERS:
        return (
            port_rules(HELPER_CALLS[variant]) if variant in HELPER_CALLS else broker_rules(variant)
        )
    rules = [Rule(name, errno.EPERM) for name in REFUSED]
    rules += [Rule(name, errno.ENOSYS) for name in UNSUPPORTED]
    rules += [Rule(name, errno.EINVAL) for name in UNSUITABLE]
    for bit in (*CLONE_FLAGS.values(), CLONE_NEWTIME):
        rules.append(Rule("unshare", errno.EPERM, (has_bits(0, bit),)))
    for bit in CLONE_FLAGS.values():
        rules.append(Rule("clone", errno.EPERM, (has_bits(0, bit),)))
    on_the_host = variant.startswith("landlock")
    refused = frozenset(REFUSED_ON_THE_HOST if on_the_host else ())
    rules += [Rule(name, errno.EPERM) for name in REFUSED_ON_THE_HOST if name in refused]
    if on_the_host:
        rules += [Rule(name, errno.ENOTSUP) for name in UNSUPPORTED_ON_THE_HOST]
    rules += [rule for rule in file_mode_rules() if rule.syscall not in refused]
    rules += device_rules()
    rules += access_mode_rules()
    rules += other_process_rules()
    rules += scheduling_rules(on_the_host=on_the_host)
    rules += low_priority_rules()
    rules += paging_rules()
    rules += futex_hash_rules()
    rules += core_size_rules()
    rules += [Rule("fcntl", errno.EPERM, (equals(1, code),)) for code in FILE_FCNTLS]
    rules += shared_memory_rules(on_the_host=on_the_host)
    # Compiled for the processor from a budget of the whole machine (net.core.bpf_jit_limit).
    rules += [
        Rule("setsockopt", errno.ENOPROTOOPT, (equals(1, SOL_SOCKET), equals(2, option)))
        for option in SOCKET_PROGRAMS
    ]
    # A descriptor of the process at the other end of a socket, such as a worker's channel: the
    # host's own. It tells when that ends and, without a process namespace, its ids and cgroup.
    # Refused as by a kernel before 6.5.
    rules.append(
        Rule("getsockopt", errno.ENOPROTOOPT, (equals(1, SOL_SOCKET), equals(2, SO_PEERPIDFD)))
    )
    rules.append(
        Rule("setsockopt", errno.ENOPROTOOPT, (equals(1, SOL_SOCKET), equals(2, SO_PASSPIDFD)))
    )
    # The first gives a connection to another protocol of the kernel's (TLS, ESP): rare code. The
    # others sign its packets, as routers do, by an algorithm that the host loads a module for,
    # whoever names it. Programs that know these go on without.
    rules += [
        Rule("setsockopt", errno.ENOPROTOOPT, (equals(1, IPPROTO_TCP), equals(2, option)))
        for option in TCP_OPTIONS
    ]
    # Gives a socket's datagrams to IPsec, L2TP and the like, in the same way.
    encapsulation = (equals(1, IPPROTO_UDP), equals(2, UDP_ENCAP))
    rules.append(Rule("setsockopt", errno.ENOPROTOOPT, encapsulation))
    if variant.endswith("open"):
        # With it a guest joins the port of a server of the same uid, and gets its clients.
        shared_port = (equals(1, SOL_SOCKET), equals(2, SO_REUSEPORT))
        rules.append(Rule("setsockopt", errno.ENOPROTOOPT, shared_port))
        # So does this one with datagrams, and nobody sees which kind of socket it is for. It is
        # answered with success, without which hardly a server would start.
        rules.append(Rule("setsockopt", 0, (equals(1, SOL_SOCKET), equals(2, SO_REUSEADDR))))
    if not on_the_host:
        return rules + socket_rules(variant)
    return rules + host_socket_rules(variant)
