"""What a jail has of its own: HOME, private places, the made files of /etc, and a uid for its guest."""

from __future__ import annotations

import os

from visruntime._policy.links import real_path
from visruntime._policy.name_servers import name_servers
from visruntime._policy.paths import HOME, PRIVATE_WRITE, is_within
from visruntime.errors import PolicyUnsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from visruntime._policy.links import Resolver
    from visruntime._policy.system_roots import SystemRoots
    from visruntime.policy import JailPolicy, Rule

__all__ = [
    "GUEST_IDS",
    "OTHER_HOME",
    "accounts",
    "bare_extras",
    "extras_of",
    "home_of",
    "new_guest_id",
    "system_extras",
]

OTHER_HOME = "/tmp/home"  # noqa: S108 - inside the jail
"""HOME of the guest where `HOME` would lie in a tree of the host, in which nothing is made."""

GUEST_IDS = (0x70000000, 0x7FFDFFFF)
"""Host uids for guests of a root caller: a range that systemd's table of uids leaves unused."""

ACCOUNTS = (
    "root:x:0:0:root:{home}:/bin/sh\n"
    "user:x:{id}:{id}:user:{home}:/bin/sh\n"
    "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
)
GROUPS = "root:x:0:\nuser:x:{id}:\nnogroup:x:65534:\n"
HOSTS = "127.0.0.1 localhost visruntime\n::1 localhost\n"


def new_guest_id() -> int:
    """Return a uid of the host that nobody else has, for the guest of a root caller."""
    return GUEST_IDS[0] + int.from_bytes(os.urandom(8), "little") % (GUEST_IDS[1] - GUEST_IDS[0])


def accounts(home: str, user: int) -> tuple[tuple[str, str], ...]:
    """Return the files of accounts that a jail makes for itself: path and content."""
    return (
        ("/etc/passwd", ACCOUNTS.format(id=user, home=home)),
        ("/etc/group", GROUPS.format(id=user)),
    )


def home_of(resolved: Sequence[Rule], written: Sequence[Rule]) -> str:
    granted = {rule.path for rule in written if rule.kind in ("read", "write")}
    if HOME in granted:
        return HOME  # the host's own
    if any(rule.path == HOME for rule in resolved if rule.origin == "private"):
        return HOME
    for rule in written:
        if rule.kind in ("read", "write") and is_within(OTHER_HOME, rule.path):
            raise PolicyUnsupported(
                f"{rule.origin}: with {rule.path} granted as well there is no place left for the "
                f"guest's own HOME; grant folders inside of it, or make and grant {HOME}",
                field=rule.origin,
                value=rule.path,
            )
    return OTHER_HOME


def system_extras(
    system: SystemRoots | None, copied: Sequence[str]
) -> list[tuple[str, str, str, int]]:
    """Return the links and the copied files of ``system="minimal"``."""
    links = [("SYMLINK", path, text, 0) for path, text in (system.links if system else {}).items()]
    return links + [("COPY", path, path, 0) for path in copied]


def extras_of(
    policy: JailPolicy,
    resolved: Sequence[Rule],
    resolver: Resolver,
    home: str,
    user: int,
    notes: list[str],
) -> list[tuple[str, str, str, int]]:
    """Return the operations that follow from no rule, in order."""
    own = {rule.path for rule in resolved if rule.origin == "private"}
    if home == OTHER_HOME:
        own.add(home)
    extras: list[tuple[str, str, str, int]] = [
        ("DEVICES", "/dev", "", 0),
        ("PROC", "/proc", "", 0),
        ("SCRATCH", "/tmp", "", 0),  # noqa: S108 - inside the jail
    ]
    places = [*((place, 0o1777) for place in PRIVATE_WRITE if place != HOME), (home, 0o755)]
    extras += [("SCRATCH_PLACE", place, "", mode) for place, mode in places if place in own]
    if policy.system == "host":
        return extras
    if policy.system == "minimal":
        extras.append(("DIRECTORY", "/etc", "", 0))
        extras += _made_etc(policy, home, user, notes)
    extras.append(("DIRECTORY", "/run", "", 0))
    extras += _grant_links(policy, resolver)
    return extras


def bare_extras(acts: Sequence[str]) -> list[tuple[str, str, str, int]]:
    """Return the operations of a jail without mounts: the host's harmless devices, and acts."""
    return [("DEVICES", "/dev", "", 0), *(("TRY", act[1:], "", ord(act[0])) for act in acts)]


def _made_etc(
    policy: JailPolicy, home: str, user: int, notes: list[str]
) -> list[tuple[str, str, str, int]]:
    extras = [
        ("SYMLINK", "/etc/mtab", "/proc/self/mounts", 0),
        ("SYMLINK", "/var/run", "/run", 0),
    ]
    for path, text in (*accounts(home, user), ("/etc/hosts", HOSTS)):
        extras.append(("FILE", path, text, 0))
    servers = name_servers() if policy.egress.mode == "open" else None
    if servers is not None:
        extras.append(("FILE", "/etc/resolv.conf", servers, 0))
    elif policy.egress.mode == "open":
        notes.append("system: /etc/resolv.conf is left out: the host has none that all may read")
    return extras


def _grant_links(policy: JailPolicy, resolver: Resolver) -> list[tuple[str, str, str, int]]:
    """Links on the way to a grant, so that the path as it was written works in the jail."""
    first = {
        links[0][0]
        for path in (*policy.read, *policy.write)
        for asked in (path, *((policy.patterns[path].fixed,) if path in policy.patterns else ()))
        if (links := resolver.links.get(asked)) and not is_within(links[0][0], "/usr")
    }
    return [("SYMLINK", link, real_path(link), 0) for link in sorted(first)]
