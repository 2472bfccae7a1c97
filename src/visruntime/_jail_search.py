"""What a mount alone does not tame (sockets, FIFOs, set-id files), and what holds secrets.

A read-only mount stops neither connect(2) nor writing to a FIFO, so such files are found
when a jail opens and masked, and so are the secrets, in the same walk. What appears later is
not covered; SECURITY.md says so.
"""

from __future__ import annotations

import os
import stat

from visruntime import _native
from visruntime._decider import Decider
from visruntime._jail_links import judge_links, names_by_file
from visruntime._jail_secrets import Secrets
from visruntime._paths import NOT_LOOKED_THROUGH, ancestors
from visruntime.errors import PolicyUnsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from visruntime.policy import Rule

__all__ = ["REASONS", "Findings", "look_through"]

MOST_ENTRIES = 5_000_000
"""Names below the grants of one policy that are looked at."""
MOST_FINDINGS = 1024
"""Sockets and the like that one grant may hold: each costs mounts."""
MOST_SECRETS = 10_000
"""Files with secrets that one grant may hold: as many as a policy may have rules."""

REASONS = {
    "s": "a socket that no entry of sockets names",
    "f": "a FIFO where nothing may be written",
    "u": "a folder that cannot be looked through",
}


class Findings:
    """What was found in the grants.

    ``masked`` has (path, why) of what is covered, ``secrets`` the same of what holds secrets,
    ``reopened`` the grants that `reveal` makes inside of those, as (kind, path),
    ``read_only`` what stays as it is, and ``notes`` what is not covered.
    """

    __slots__ = ("masked", "notes", "read_only", "reopened", "secrets")

    def __init__(self) -> None:
        self.masked: list[tuple[str, str]] = []
        self.secrets: list[tuple[str, str]] = []
        self.reopened: list[tuple[str, str]] = []
        self.read_only: list[str] = []
        self.notes: list[str] = []


def look_through(
    written: Sequence[Rule],
    rules: Sequence[tuple[str, str, bool, bool]],
    protected: Sequence[str],
    reveal: Sequence[str],
    *,
    host_root: bool,
    granted: frozenset[str] = frozenset(),
) -> Findings:
    """Look through every grant of the caller.

    Args:
        written: the rules of the policy's own fields, resolved.
        rules: all rules, as (kind, path, is private, is a grant).
        protected: what stays read-only unasked.
        reveal: the secret paths that the policy lifts, resolved.
        granted: sockets that the policy names.

    Raises:
        PolicyUnsupported: something cannot be looked at, there is too much of it, or a file
            has a name that gives what another one denies.
    """
    findings = Findings()
    plain = [(kind, path) for kind, path, private, _ in rules if not private]
    places = list(_places(written, host_root=host_root))
    sockets = _bound_elsewhere(plain)
    if not places and not sockets:
        return findings
    every = Decider([rule[:2] for rule in rules])
    decide = Decider([*plain, *(("deny_write", path) for path in protected)])
    secrets = Secrets(reveal)
    # One name of a file may deny what another one gives: only then are all of them needed.
    many = any(rule.kind not in ("read", "deny_exec") for rule in written)
    found: dict[tuple[str, str], None] = {}
    for place, writable in places:
        names = secrets.names_in(place)
        found |= dict.fromkeys(_search(place, names, writable=writable, links=many))
    for path in [path for kind, path in found if kind == "k"]:
        secrets.found(path)
    for place in secrets.revealed_folders():
        writable = decide("write", place)[0]
        found |= dict.fromkeys(_search(place, b"", writable=writable, links=many))
    if not many and secrets.has_other_names():
        for place, _ in places:
            found |= dict.fromkeys(_search(place, b"", links=True))
    # What a place of the jail's own covers is out of sight under that name.
    files = names_by_file(
        path for kind, path in found if kind == "h" and not rules[every.of_many("read", path)[1]][2]
    )
    findings.secrets, findings.reopened = secrets.judge(every, rules, files)
    findings.notes += secrets.notes
    if many:
        findings.read_only, notes = judge_links(files.values(), decide)
        findings.notes += notes
    found |= {("s", path): None for path in sockets}
    for kind, path in found:
        if kind not in ("h", "k") and path not in granted:
            _judge(findings, rules, every, decide, kind, path)
    return findings


def _search(
    place: str, names: bytes, *, writable: bool = False, links: bool
) -> list[tuple[str, str]]:
    try:
        return _native.search(
            place,
            most_entries=MOST_ENTRIES,
            most_findings=MOST_FINDINGS,
            most_secrets=MOST_SECRETS,
            set_id=writable and os.geteuid() == 0,
            links=links,
            secrets=names,
        )
    except _native.NativeError as error:
        raise PolicyUnsupported(
            f"{place}: {error}; grant smaller folders", field="read", value=place
        ) from None


def _judge(
    findings: Findings,
    rules: Sequence[tuple[str, str, bool, bool]],
    every: Decider,
    decide: Decider,
    kind: str,
    path: str,
) -> None:
    readable, index = every("read", path)
    if not readable or rules[index][2]:
        return  # out of sight: denied, or behind a place of the jail's own
    writable = decide("write", path)[0]
    if kind == "i":
        if writable:
            findings.read_only.append(path)
    elif kind != "f" or not writable:
        findings.masked.append((path, REASONS[kind]))


def _places(written: Sequence[Rule], *, host_root: bool) -> Iterator[tuple[str, bool]]:
    grants = sorted({(r.path, r.kind == "write") for r in written if r.kind in ("read", "write")})
    yield from grants
    if host_root:
        for entry in os.scandir("/"):
            if entry.is_dir(follow_symlinks=False) and entry.name not in NOT_LOOKED_THROUGH:
                yield entry.path, False


def _bound_elsewhere(plain: Sequence[tuple[str, str]]) -> list[str]:
    """Return the sockets of this network namespace (proc(5)) in what was not looked through."""
    try:
        with open("/proc/net/unix", "rb") as table:
            lines = table.read().splitlines()[1:]
    except OSError:
        return []
    tops = {path for kind, path in plain if kind in ("read", "write")}
    found = []
    for line in lines:
        fields = line.split(None, 7)
        if len(fields) != 8 or not fields[7].startswith(b"/"):
            continue
        path = os.fsdecode(fields[7])
        if any(top in tops for top in ancestors(os.path.normpath(path))):
            real = os.path.realpath(path)
            if _is_socket(real):
                found.append(real)
    return sorted(found)


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False
