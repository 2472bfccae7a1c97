"""The forbidden acts that each jail tries on itself when it opens, and what must come back."""

from __future__ import annotations

import errno

from visruntime.events import Canary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["CANARIES", "MOST_PATHS", "about_path", "judge"]

CANARIES: tuple[tuple[str, frozenset[int]], ...] = (
    ("mount a file system", frozenset({errno.EPERM})),
    ("make a user namespace", frozenset({errno.EPERM})),
    ("write to the root", frozenset({errno.EROFS})),
    ("list what only Landlock hides", frozenset({errno.EACCES})),
    ("open a packet socket", frozenset({errno.EAFNOSUPPORT})),
    ("connect to an outside address", frozenset({errno.ENETUNREACH})),
    ("set up io_uring", frozenset({errno.EPERM})),
    ("open a kernel setting for writing", frozenset({errno.EROFS, errno.EACCES})),
    ("make a set-uid file", frozenset({errno.EPERM})),
    ("signal the supervisor", frozenset({errno.EPERM})),
    ("trace the supervisor", frozenset({errno.EPERM})),
    ("hold a capability", frozenset({errno.EPERM})),
    ("connect to a path that is not granted", frozenset({errno.EACCES})),
    ("make an AF_UNIX datagram socket", frozenset({errno.EPROTONOSUPPORT})),
    ("make a Unix socket", frozenset({errno.EAFNOSUPPORT})),
    ("change the mode of a device", frozenset({errno.EPERM})),
    ("read /proc", frozenset({errno.EACCES})),
    ("idle the supervisor", frozenset({errno.EPERM})),
    ("renice the supervisor", frozenset({errno.EPERM})),
    ("connect to an abstract socket outside of the jail", frozenset({errno.EPERM})),
)
"""Name and the errnos that mean "held", in the order of native/visjail/linux_canary.c."""

ON_THE_HOST = {
    "write to the root": frozenset({errno.EACCES, errno.EROFS}),
    "connect to an outside address": frozenset({errno.EAFNOSUPPORT}),
}
"""What means "held" instead, where the jail has no root and no network of its own."""

PATH_ACTS = {
    "r": ("read", frozenset({errno.EACCES})),
    "w": ("write", frozenset({errno.EROFS, errno.EACCES})),
    "x": ("execute", frozenset({errno.EACCES})),
    "c": ("make", frozenset({errno.EACCES, errno.EROFS})),
    "b": ("have the broker make", frozenset({errno.EACCES, errno.EROFS})),
    "l": ("move", frozenset({errno.EBUSY, errno.EACCES})),
}

MOST_PATHS = 236
"""Paths of a policy that are tried, denies before grants; with more, the first ones.

With the fixed acts not more than VJ_ANSWERS_MAX of native/visjail/plan.h.
"""

NOT_APPLICABLE = -1
UNSEEN = errno.ENOENT
"""Below a folder that is denied as a whole there is nothing to open."""


def judge(
    answers: Sequence[int], acts: Sequence[str], backend: str = "namespaces"
) -> tuple[Canary, ...]:
    """Turn the jail's answers into canaries; those that say nothing here are left out."""
    other = ON_THE_HOST if backend == "landlock" else {}
    expected = [(name, other.get(name, held)) for name, held in CANARIES]
    for act in acts:
        verb, held = PATH_ACTS[act[0]]
        expected.append((f"{verb} {act[1:]}", held if act[0] in "cb" else held | {UNSEEN}))
    return tuple(
        Canary(name, held=answer in held, errno=answer)
        for (name, held), answer in zip(expected, answers, strict=True)
        if answer != NOT_APPLICABLE
    )


def about_path(canary: Canary) -> bool:
    """Tell whether *canary* tried one path of the policy, and not the jail as such."""
    verb, _, path = canary.name.partition(" ")
    return path.startswith("/") and any(verb == known for known, _ in PATH_ACTS.values())
