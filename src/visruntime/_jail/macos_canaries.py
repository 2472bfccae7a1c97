"""What each jail on macOS tries on itself when it opens: outside of its sandbox, and in it.

An act that does not succeed outside says nothing about the sandbox. Of those about paths it is left
out, as where this user may not do it either; of the others it ends the opening.
"""

from __future__ import annotations

import errno
import os

from visruntime.errors import JailUnavailable
from visruntime.events import Canary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from visruntime._jail.macos_folder import MacosFolder
    from visruntime.policy import JailPolicy

__all__ = ["fixed_acts", "judge_macos"]

POSITIVE = "make a file in the jail's own folder"
"""The one act that must succeed in the jail: else all the others are no denials."""
KEYCHAIN = "com.apple.SecurityServer"
NO_CLONES = frozenset({errno.ENOTSUP, errno.EXDEV})
"""What a volume without clones answers outside."""
BROKEN = "please report this with the output of `visruntime doctor --json`"


def fixed_acts(policy: JailPolicy, folder: MacosFolder) -> list[tuple[str, str]]:
    """Return (name, act of native/visjail/macos_try.h) of what *policy* does not give."""
    socket, port = folder.listen()
    closed, own = folder.canary, folder.home
    memory = f"/vis-{os.getpid():x}"
    acts = [
        (POSITIVE, f"c {own}/made"),
        ("read a file that is not granted", f"r {closed}"),
        ("write to a file that is not granted", f"w {closed}"),
        ("look at a file that is not granted", f"o {closed}"),
        ("make a file that is not granted", f"c {closed}-made"),
        ("make a hard link", f"l {closed} {own}/linked"),
        ("clone a file that is not granted", f"n {closed} {own}/cloned"),
        ("make a set-uid file", f"i {own}/.canary"),
        ("connect to a path that is not granted", f"u {socket}"),
        ("signal the host", f"k {os.getpid()}"),
        ("ask about the host's process", f"p {os.getpid()}"),
    ]
    if not any(memory.startswith(name.partition(":")[2]) for name in policy.services
               if name.startswith("posix-shm:")):  # fmt: skip
        acts.append(("make shared memory", f"s {memory}"))
    if KEYCHAIN not in policy.services:
        acts.append(("look up the keychain", f"g {KEYCHAIN}"))
    if policy.egress.mode != "open":
        if port not in policy.host_ports:
            acts.append(("connect to a port of this machine", f"t {port}"))
        acts += [("send to a port of this machine", f"d {port}"), ("bind a port", "b")]
    return acts


def judge_macos(
    fixed: Sequence[tuple[str, str]],
    paths: Sequence[tuple[str, str]],
    answers: Sequence[tuple[int, int]],
) -> tuple[Canary, ...]:
    """Turn what was tried outside and inside into canaries.

    Raises:
        JailUnavailable: a control failed, or an act was not denied with exactly EPERM.
    """
    canaries, controls = [], []
    known = [(name, True) for name, _ in fixed] + [(name, False) for name, _ in paths]
    for (name, is_fixed), (outside, within) in zip(known, answers, strict=True):
        if name == POSITIVE:
            if outside or within:
                controls.append(f"{name} ({os.strerror(outside or within)})")
        elif outside:
            if is_fixed and not (name.startswith("clone") and outside in NO_CLONES):
                controls.append(f"{name}, outside ({os.strerror(outside)})")
        else:
            canaries.append(Canary(name, held=within == errno.EPERM, errno=within))
    if controls:
        raise JailUnavailable(
            f"nothing is known of the jail, since what must succeed failed: {', '.join(controls)}",
            stage="canaries",
            fix=BROKEN,
        )
    broken = [
        f"{canary.name} ({os.strerror(canary.errno) if canary.errno else 'done'})"
        for canary in canaries
        if not canary.held
    ]
    if broken or not canaries:
        raise JailUnavailable(
            f"the jail did not hold: {', '.join(broken) or 'no canary answered'}",
            stage="canaries",
            fix=BROKEN,
        )
    return tuple(canaries)
