"""Plans that are used again, as long as all that they were made from is still so.

To make a plan is an eighth of what a jail costs. Most of that is not to look at the host but to
conclude from it, and the same looks lead to the same conclusions. So a policy keeps its
plan together with every look that led to it; when it is opened again, each is
repeated. One that shows something else, and the plan is made anew.

Only of a policy that grants nothing of its own: what is searched for in a grant (secrets,
sockets, names of files) must be searched for each time.
"""

from __future__ import annotations

import os
import stat
import struct

from visruntime import _native
from visruntime._jail.bound_sockets import bound_elsewhere
from visruntime._jail.mount_table import mount_table
from visruntime._jail.own_places import accounts, new_guest_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from visruntime._jail.limits import HeldLimits
    from visruntime._jail.mount_table import MountTree
    from visruntime._jail.plan import JailPlan
    from visruntime._policy.system_roots import SystemRoots
    from visruntime.policy import JailPolicy

__all__ = ["Remembered", "key_of", "recall", "remember"]

MOST_PLANS = 4
"""Of one policy: there is one for each back end and way to hold limits."""

FIELDS = (
    *("read", "write", "deny", "deny_read", "deny_write", "deny_exec", "reveal", "caches"),
    *("services", "sockets", "sensitive_sockets", "inherit_env", "inbound", "host_ports"),
)
"""Each leads to looks that are not kept."""

Seen = tuple[int, int, int, int, int, int]
"""Of what stands at a path, all that a plan can depend on; no times, no size of a folder."""


class Remembered:
    """A plan of a policy without grants, and what was seen when it was made."""

    __slots__ = ("_etc", "_guest_id", "_links", "_looks", "_plan", "_seen", "_tree")

    def __init__(
        self,
        plan: JailPlan,
        roots: SystemRoots | None,
        looks: Mapping[str, os.stat_result | None],
        tree: MountTree,
        guest_id: int,
    ) -> None:
        self._plan = plan
        self._guest_id = guest_id
        self._tree = tree
        self._etc = roots.names if roots is not None else None
        self._links = list(roots.links.items()) if roots is not None else []
        self._looks = looks
        self._seen: list[tuple[str, Seen | None]] = []  # made when it is first needed

    def still_holds(self, searched: dict[tuple[object, ...], frozenset[bytes]]) -> bool:
        """Repeat every look, and tell whether each shows what it showed."""
        seen = self._seen or [(path, _seen(status)) for path, status in self._looks.items()]
        self._seen = seen
        try:
            if self._etc is not None and os.listdir("/etc") != self._etc:
                return False
            if any(os.readlink(link) != text for link, text in self._links):
                return False
        except OSError:
            return False
        return (
            all(_look(path) == before for path, before in seen)
            and mount_table() == self._tree.table
            and not bound_elsewhere(self._plan.host_rules, self._tree, searched=searched)
        )

    def plan(self) -> JailPlan:
        """Return the plan for another jail, of a root caller with another uid for its guest."""
        again = self._plan.copy()
        if self._guest_id:
            again.blob = _for_guest(again.blob, again.home, self._guest_id, new_guest_id())
        return again


def key_of(
    policy: JailPolicy,
    limits: HeldLimits,
    implicit_read: Sequence[tuple[str, str]],
    backend: str,
) -> tuple[object, ...] | None:
    """Return what else a plan of *policy* depends on; ``None`` for one that is not kept."""
    if backend != "namespaces" or policy.system == "host" or policy.egress.mode != "off":
        return None
    if implicit_read or any(getattr(policy, field) for field in FIELDS):
        return None
    return (os.geteuid(), *limits.process.values(), *limits.tree.values())


def recall(policy: JailPolicy, key: tuple[object, ...]) -> JailPlan | None:
    """Return the plan that *policy* keeps under *key*, if all that it rests on still holds."""
    kept = policy.plans.get(key)
    return kept.plan() if kept is not None and kept.still_holds(policy.searched) else None


def remember(policy: JailPolicy, key: tuple[object, ...], kept: Remembered) -> None:
    """Keep a plan under *key*, with the looks that it was made from."""
    if len(policy.plans) >= MOST_PLANS:
        policy.plans.clear()
    policy.plans[key] = kept


def _seen(status: os.stat_result | None) -> Seen | None:
    if status is None:
        return None
    size = status.st_size if stat.S_ISREG(status.st_mode) else 0
    return status.st_mode, status.st_ino, status.st_dev, status.st_uid, status.st_gid, size


def _look(path: str) -> Seen | None:
    try:
        return _seen(os.lstat(path))
    except OSError:
        return None


def _for_guest(blob: bytes, home: str, before: int, now: int) -> bytes:
    """Return a plan in which another uid stands for the guest: each is ten digits long."""
    at = _native.PLAN_GUEST_AT
    blob = blob[:at] + struct.pack("=I", now) + blob[at + 4 :]
    for (_, old), (_, new) in zip(accounts(home, before), accounts(home, now), strict=True):
        blob = blob.replace(old.encode(), new.encode())
    return blob
