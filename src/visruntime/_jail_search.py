"""What a mount alone does not tame: sockets, FIFOs, set-id files, folders that hide them.

A read-only mount stops neither connect(2) nor writing to a FIFO, so such files are found
when a jail opens and masked. What appears later is not covered; SECURITY.md says so.
"""

from __future__ import annotations

import os
import stat

from visruntime import _native
from visruntime._paths import is_within
from visruntime.errors import PolicyUnsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from visruntime.policy import Rule

__all__ = ["Findings", "look_through"]

MOST_ENTRIES = 5_000_000
"""Names below the grants of one policy that are looked at."""
MOST_FINDINGS = 1024
"""Sockets and the like that one grant may hold: each costs mounts."""

NOT_LOOKED_THROUGH = ("usr", "proc", "sys", "dev", "tmp")
"""Folders of the host's root that are the jail's own, or hold nothing but installed files."""

REASONS = {
    "s": "a socket that no entry of sockets names",
    "f": "a FIFO where nothing may be written",
    "u": "a folder that cannot be looked through",
}


INSTALLED = ("site-packages", "dist-packages", "node_modules")
"""Folders of installed code, which installers fill with hard links into other environments."""


class Findings:
    """What was found in the grants.

    ``masked`` has (path, why) of what is covered, ``read_only`` what stays as it is, and
    ``notes`` what is not covered.
    """

    __slots__ = ("masked", "notes", "read_only")

    def __init__(self) -> None:
        self.masked: list[tuple[str, str]] = []
        self.read_only: list[str] = []
        self.notes: list[str] = []


def look_through(
    written: Sequence[Rule],
    rules: Sequence[tuple[str, str, bool, bool]],
    *,
    host_root: bool,
    granted: frozenset[str] = frozenset(),
) -> Findings:
    """Look through every grant of the caller.

    Args:
        written: the rules of the policy's own fields, resolved.
        rules: all rules, as (kind, path, is private, is a grant).
        granted: sockets that the policy names.

    Raises:
        PolicyUnsupported: something cannot be looked at, or there is too much of it.
    """
    plain = [(kind, path) for kind, path, private, _ in rules if not private]
    findings = Findings()
    seen = set(granted)
    linked = []
    for place, writable in _places(written, host_root=host_root):
        try:
            found = _native.search(
                place,
                most_entries=MOST_ENTRIES,
                most_findings=MOST_FINDINGS,
                set_id=writable and os.geteuid() == 0,
                links=writable,
            )
        except _native.NativeError as error:
            raise PolicyUnsupported(
                f"{place}: {error}; grant smaller folders", field="read", value=place
            ) from None
        for kind, path in found:
            if path in seen:
                continue
            seen.add(path)
            if kind == "h":
                linked.append(path)
            else:
                _judge(findings, rules, plain, kind, path)
    _judge_linked(findings, plain, linked)
    for path in _bound_elsewhere(plain):
        if path not in seen:
            seen.add(path)
            _judge(findings, rules, plain, "s", path)
    return findings


def _judge(
    findings: Findings,
    rules: Sequence[tuple[str, str, bool, bool]],
    plain: list[tuple[str, str]],
    kind: str,
    path: str,
) -> None:
    readable, index = _native.decide([rule[:2] for rule in rules], "read", path)
    if not readable or rules[index][2]:
        return  # out of sight: denied, or behind a place of the jail's own
    writable = _native.decide(plain, "write", path)[0]
    if kind == "i":
        if writable:
            findings.read_only.append(path)
    elif kind != "f" or not writable:
        findings.masked.append((path, REASONS[kind]))


def _judge_linked(findings: Findings, plain: list[tuple[str, str]], paths: Sequence[str]) -> None:
    """Keep installed code that has a name outside of the grants read-only.

    uv, pip and pnpm link the files of one environment into others and into their caches:
    what a guest writes to its own would run elsewhere.
    """
    names: dict[tuple[int, int], list[str]] = {}
    missing = {}
    for path in paths:
        try:
            found = os.lstat(path)
        except FileNotFoundError:
            continue
        key = (found.st_dev, found.st_ino)
        names.setdefault(key, []).append(path)
        missing[key] = found.st_nlink - len(names[key])
    folders = set()
    others = 0
    for key, known in names.items():
        if missing[key] <= 0 or not _native.decide(plain, "write", known[0])[0]:
            continue
        for path in known:
            installed = _installed_above(path)
            if installed is None:
                others += 1
            else:
                folders.add(installed)
    findings.read_only += sorted(f for f in folders if _native.decide(plain, "write", f)[0])
    if others:
        findings.notes.append(
            f"linked_outside: {others} writable files have a name outside of the grants, through "
            "which a change shows there as well"
        )


def _installed_above(path: str) -> str | None:
    parts = path.split("/")
    for index, part in enumerate(parts):
        if part in INSTALLED:
            return "/".join(parts[: index + 1])
    return None


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
    tops = [path for kind, path in plain if kind in ("read", "write")]
    found = []
    for line in lines:
        fields = line.split(None, 7)
        if len(fields) != 8 or not fields[7].startswith(b"/"):
            continue
        path = os.fsdecode(fields[7])
        if any(is_within(path, top) for top in tops) and _is_socket(os.path.realpath(path)):
            found.append(os.path.realpath(path))
    return sorted(found)


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False
