"""Lists of what passes, in instructions: of ioctl and personality.

libseccomp, which compiles all other rules, has words for what is refused: in it a list of what
passes becomes hundreds of rules for the bits in which a number may differ.
"""

from __future__ import annotations

import errno
from typing import NamedTuple

import pyseccomp

LOW_32 = 0xFFFFFFFF
ADDR_NO_RANDOMIZE = 0x00040000

IOCTL_TYPES = (
    0x54,  # terminals, and what every descriptor has (FIONREAD and the like)
    0x89,  # sockets
    0x52,  # random numbers
    0x21,  # a guest's own system call filters
    0xB7,  # namespaces
    0xFF,  # pidfds
)
"""Kinds of requests (bits 8 to 15 of the number) that pass, but for REFUSED_IOCTLS."""
PIDFD_TYPE = 0xFF
"""Without a process namespace a pidfd is had of any process of the host, and tells (PIDFD_GET_INFO,
Linux 6.13) its ids, its cgroup and how it ended. Other kernels do not know the request: ENOTTY."""

REFUSED_IOCTLS = (
    0x5412,  # TIOCSTI types into a terminal
    0x541C,  # TIOCLINUX: of the console, pastes and more
    0x5423,  # TIOCSETD lets anybody load line disciplines, rare code with a long list of holes
    # sock_ioctl (net/socket.c) loads modules into the host's kernel for these, whoever asks, and
    # in whatever network namespace: "bridge" and "8021q".
    0x8940,  # SIOCGIFBR
    0x8941,  # SIOCSIFBR
    0x89A0,  # SIOCBRADDBR
    0x89A1,  # SIOCBRDELBR
    0x8982,  # SIOCGIFVLAN
    0x8983,  # SIOCSIFVLAN
)

SOCKET_TYPE = 0x89
PAIR_IOCTLS = (
    0x8901,  # FIOSETOWN
    0x8902,  # SIOCSPGRP
    0x8903,  # FIOGETOWN
    0x8904,  # SIOCGPGRP
    0x8905,  # SIOCATMARK
)
"""Requests of sockets in a jail that shares the host's network namespace and has its network off:
the others ask about the host's interfaces, by any pair of sockets too (EPERM)."""

FILE_SYSTEM_TYPES = (
    0x66,  # ext4, the flags of files, encryption, verity
    0x76,  # versions of files
    0x58,  # xfs, freezing
    0x72,  # vfat
    0x94,  # btrfs, clones of extents
    0xF5,  # f2fs
    0x6F,  # ocfs2
    0xBC,  # bcachefs
)
"""Requests of file systems: EPERM, but for those below. Many ask neither whether the mount is
read-only nor how the descriptor was opened: any folder of a grant served to remove the keys of the
caller's encrypted files (fscrypt), or subvolumes of btrfs with all that they hold, by number also
outside of the grant. Some make a name that Landlock does not see.

The rest of the numbers (devices that no jail has, file systems with few users, requests that are yet
to come) does not exist inside: ENOTTY."""

READING_IOCTLS = (
    0x00000002,  # FIGETBSZ
    0x80086601,  # FS_IOC_GETFLAGS
    0x80087601,  # FS_IOC_GETVERSION
    0x801C581F,  # FS_IOC_FSGETXATTR
    0xC020660B,  # FS_IOC_FIEMAP
    0xC0606610,  # PAGEMAP_SCAN and PROCMAP_QUERY are of /proc
    0xC0686611,
)
WRITING_IOCTLS = (
    # The kernel looks at the descriptor that is written to.
    0x40049409,  # FICLONE
    0x4020940D,  # FICLONERANGE
    0xC0189436,  # FIDEDUPERANGE
)
ATTRIBUTE_IOCTLS = (
    # The kernel asks whether the mount is read-only (mnt_want_write), but not how the
    # descriptor was opened. That is enough where the mounts are the jail's own.
    0x40086602,  # FS_IOC_SETFLAGS
    0x401C5820,  # FS_IOC_FSSETXATTR
)


class Instruction(NamedTuple):
    """One classic BPF instruction, as ``struct sock_filter`` holds it."""

    code: int
    jt: int
    jf: int
    k: int


# The few opcodes that a system call filter consists of.
LOAD_WORD, AND, RETURN = 0x20, 0x54, 0x06
JUMP, JUMP_EQUAL, JUMP_GREATER, JUMP_GREATER_EQUAL, JUMP_SET = 0x05, 0x15, 0x25, 0x35, 0x45
OFFSET_NUMBER, OFFSET_ARCHITECTURE, OFFSET_ARGUMENTS = 0, 4, 16


def ioctl_program(number: int, variant: str) -> list[Instruction]:
    """Return the part that answers ioctl, which has *number*; other calls pass it by.

    A list of what passes, which libseccomp has no words for. The kernel takes the request for
    an unsigned int, so its low half is all there is.
    """
    passes = [*READING_IOCTLS, *WRITING_IOCTLS]
    on_the_host = variant.startswith("landlock")
    if not on_the_host:
        passes += ATTRIBUTE_IOCTLS
    refused, allowed = 1, 2  # places of the answers below; what no step names gets the first
    answers = (pyseccomp.ERRNO(errno.ENOTTY), pyseccomp.ERRNO(errno.EPERM), pyseccomp.ALLOW)
    numbers = [*((code, allowed) for code in passes), *((code, refused) for code in REFUSED_IOCTLS)]
    types = [kind for kind in IOCTL_TYPES if kind != PIDFD_TYPE or not on_the_host]
    kinds = [*((k, allowed) for k in types), *((k, refused) for k in FILE_SYSTEM_TYPES)]
    if variant == "landlock_off":
        numbers += [(code, allowed) for code in PAIR_IOCTLS]
        kinds = [(kind, refused if kind == SOCKET_TYPE else to) for kind, to in kinds]
    # The whole number first, then its kind.
    steps = [*numbers, None, *((kind << 8, to) for kind, to in kinds)]
    body = [Instruction(LOAD_WORD, 0, 0, OFFSET_ARGUMENTS + 8)]
    for position, step in enumerate(steps):
        if step is None:
            body.append(Instruction(AND, 0, 0, 0xFF00))
        else:
            body.append(Instruction(JUMP_EQUAL, len(steps) - position - 1 + step[1], 0, step[0]))
    body += [Instruction(RETURN, 0, 0, each) for each in answers]
    return [Instruction(JUMP_EQUAL, 0, len(body), number), *body]


def personality_program(number: int) -> list[Instruction]:
    """Return the part that answers personality: 0, ADDR_NO_RANDOMIZE and the query pass."""
    body = [
        Instruction(LOAD_WORD, 0, 0, OFFSET_ARGUMENTS),
        Instruction(JUMP_EQUAL, 3, 0, LOW_32),
        Instruction(AND, 0, 0, LOW_32 & ~ADDR_NO_RANDOMIZE),
        Instruction(JUMP_EQUAL, 1, 0, 0),
        Instruction(RETURN, 0, 0, pyseccomp.ERRNO(errno.EPERM)),
        Instruction(RETURN, 0, 0, pyseccomp.ALLOW),
    ]
    return [Instruction(JUMP_EQUAL, 0, len(body), number), *body]
