"""What a mount alone does not tame (sockets, FIFOs, privileged files), and what holds secrets.

A read-only mount stops neither connect(2) nor writing to a FIFO, so such files are found
when a jail opens and masked, and so are the secrets, in the same walk. What appears later is
not covered; SECURITY.md says so.
"""

from __future__ import annotations

import os

from visruntime import _native
from visruntime._jail.bound_sockets import bound_elsewhere
from visruntime._jail.diagnose import OUT_OF_FILES
from visruntime._jail.links import (
    names_by_file,
    notes_on_names,
    read_only_paths,
    refuse_conflict,
)
from visruntime._jail.secrets import Secrets
from visruntime._jail.state_folder import BUNDLES, ENVIRONMENTS, state_folder
from visruntime._policy.decider import Decider
from visruntime._policy.paths import NOT_LOOKED_THROUGH, Trees, ancestors, is_within, visible
from visruntime.errors import PolicyUnsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from visruntime._jail.aliases import Aliases
    from visruntime._jail.mount_table import MountTree
    from visruntime.policy import Rule

__all__ = ["REASONS", "Findings", "look_through", "movable", "refuse_devices", "refuse_links"]

MOST_ENTRIES = 5_000_000
"""Names below the grants of one policy that are looked at."""
MOST_FINDINGS = 1024
"""Sockets and the like that one grant may hold: each costs mounts."""
MOST_LINKS = 1_000_000
"""Names of files with several names that one grant may hold: 32 bytes each."""
MOST_SECRETS = 10_000
"""Files with secrets that one grant may hold: as many as a policy may have rules."""

MOST_KEY_BYTES = 1024**3
"""What one grant may hold in files that are secrets if they hold a private key, of each its
first 64 KiB and 8 KiB for opening it: 120,000 small files, or a second or two."""

REASONS = {
    "s": "a socket that no entry of sockets names",
    "f": "a FIFO where nothing may be written",
    "v": "a device",
    "u": "a folder that cannot be looked through",
}


class Findings:
    """What was found in the grants.

    ``masked`` has (path, why) of what is covered, ``secrets`` the same of what holds secrets,
    ``reopened`` the grants that `reveal` makes inside of those, as (kind, path),
    ``read_only`` what stays as it is, ``links`` those by which something is hidden and which a
    guest could move, and ``notes`` what is not covered.
    """

    __slots__ = ("links", "masked", "notes", "read_only", "reopened", "secrets")

    def __init__(self) -> None:
        self.masked: list[tuple[str, str]] = []
        self.secrets: list[tuple[str, str]] = []
        self.reopened: list[tuple[str, str]] = []
        self.read_only: list[str] = []
        self.links: list[str] = []
        self.notes: list[str] = []


def look_through(
    written: Sequence[Rule],
    rules: Sequence[tuple[str, str, bool, bool]],
    protected: Sequence[str],
    reveal: Sequence[str],
    aliases: Aliases,
    *,
    tree: MountTree | None = None,
    searched: dict[tuple[object, ...], frozenset[bytes]] | None = None,
    implicit: Sequence[str] = (),
    host_root: bool,
    granted: frozenset[str] = frozenset(),
    devices: bool = False,
) -> Findings:
    """Look through every grant of the caller, and those that its library adds.

    Args:
        written: the rules of the policy's own fields, resolved.
        rules: all rules, as (kind, path, is private, is a grant).
        protected: what stays read-only unasked.
        reveal: the secret paths that the policy lifts, resolved.
        aliases: of the host's mounts.
        tree: those; ``None`` where no socket of the host is reached by a path.
        searched: what the policy remembers of `bound_elsewhere`.
        implicit: what the caller's library lets the guest read: an interpreter, an environment.
        granted: sockets that the policy names.
        devices: look for device nodes too, which no mount of the jail makes dead.

    Raises:
        PolicyUnsupported: something cannot be looked at, there is too much of it, or a file
            has a name that gives what another one denies.
    """
    findings = Findings()
    plain = [(kind, path) for kind, path, private, _ in rules if not private]
    asked = _places(written, host_root=host_root)
    added = _not_built(implicit)
    places = sorted({*asked, *added})
    sockets = []
    if tree is not None:
        sockets = bound_elsewhere(plain, tree, asked, searched={} if searched is None else searched)
    if not places and not sockets:
        return findings
    every = Decider([rule[:2] for rule in rules])
    decide = Decider([*plain, *(("deny_write", path) for path in protected)])
    secrets = Secrets(reveal, aliases)
    # One name of a file may deny what another one gives: only then are all of them needed.
    many = any(rule.kind not in ("read", "deny_exec") for rule in written)
    grants = [rule.path for rule in written if rule.kind == "write"]
    walk = _Walk(grants, _native.Names(rules, protected) if many else None, devices=devices)
    for place in asked:
        walk.through(place, secrets.names_in(place))
    for place in added:
        walk.beside_installed(place, secrets.names_in(place))
    for path in [path for kind, path in walk.found if kind == "k"]:
        secrets.found(path)
    shown = set(asked)
    for place in sorted({*asked, *secrets.revealed_folders()}):
        walk.through(place, secrets.names_in(place) if place in shown else b"")

    def seen(paths: Iterable[str]) -> list[str]:
        # What a place of the jail's own covers is out of sight under that name.
        return [path for path in paths if not rules[every("read", path)[1]][2]]

    ids = secrets.with_other_names(places)
    files = names_by_file(seen(walk.names_of(ids))) if ids else {}
    findings.secrets, findings.reopened = secrets.judge(every, rules, files)
    findings.links = movable(secrets.links, rules)
    findings.notes += secrets.notes
    if walk.names is not None:
        judged = walk.names.judge([one for one in ids if one not in files])
        if judged.conflict is not None:
            refuse_conflict(seen(walk.names_of([judged.conflict])), decide)
        findings.read_only += read_only_paths(judged.folders, grants, decide)
        findings.notes += notes_on_names(judged)
    walk.found |= {("s", path): None for path in sockets}
    for kind, path in walk.found:
        if kind != "k" and path not in granted:
            _judge(findings, rules, every, decide, kind, path)
    return findings


def movable(links: Sequence[str], rules: Sequence[tuple[str, str, bool, bool]]) -> list[str]:
    """Return those *links* that a guest could move or remove, by all *rules* of its jail."""
    every = Decider([rule[:2] for rule in rules] if links else ())
    return [link for link in links if every("write", link)[0]]


def refuse_links(link: str) -> None:
    """Refuse a *link* that must stay, where no mount can be made on one.

    Raises:
        PolicyUnsupported: naming it.
    """
    raise PolicyUnsupported(
        f"secrets: {visible(link)} is a link by which something is hidden, and bubblewrap cannot "
        "keep a guest from removing it; replace it by what it leads to, or use the back end "
        "namespaces",
        field="secrets",
        value=link,
    )


def refuse_devices(written: Sequence[Rule], findings: Findings) -> None:
    """Refuse grants that hold device nodes where no mount is made: the guest could open them.

    Raises:
        PolicyUnsupported: naming the grant and the device.
    """
    for path, why in findings.masked:
        if why != REASONS["v"]:
            continue
        around = [rule for rule in written if rule.kind in ("read", "write")]
        around = [rule for rule in around if is_within(path, rule.path)]
        field = max(around, key=lambda rule: len(rule.path)).origin
        raise PolicyUnsupported(
            f"{field}: {visible(path)} is a device, and without mounts of its own a jail cannot "
            "keep the guest from what is behind it; remove it, grant the folders beside it, or use "
            "the back end namespaces",
            field=field,
            value=path,
        )


class _Walk:
    """What was found in places that lie side by side; none is looked through twice."""

    __slots__ = ("_devices", "_grants", "_tops", "_trees", "found", "names")

    def __init__(
        self, grants: Sequence[str], names: _native.Names | None, *, devices: bool
    ) -> None:
        self._devices = devices
        self._grants = Trees(grants)
        self._tops: dict[str, None] = {}
        self._trees = Trees()
        self.found: dict[tuple[str, str], None] = {}
        self.names = names

    def through(self, place: str, secrets: bytes) -> None:
        """Look through *place*, unless a folder above it was, and it with it."""
        if self._trees.top_of(place) is not None:
            left_out = any(
                kind in ("k", "u") and (kind, top) in self.found
                for top in ancestors(place)
                for kind in ("k", "u")
            )
            if not left_out or place in self._tops:
                return
        self._tops[place] = None
        self._trees.add(place)
        writable = self._grants.touch(place)
        self.found |= dict.fromkeys(
            _search(
                place,
                secrets=secrets,
                links=self.names,
                most_links=MOST_LINKS,
                set_id=writable and os.geteuid() == 0,
                capabilities=writable,
                devices=self._devices,
            )
        )

    def beside_installed(self, place: str, secrets: bytes) -> None:
        """Look through what nobody asked to grant, but for the installed code in it.

        That is large, as a rule, and no place for secrets; the names of its files judge nothing.
        """
        if secrets and self._trees.top_of(place) is None:
            self._tops[place] = None
            self.found |= dict.fromkeys(_search(place, secrets=secrets, installed=False))

    def names_of(self, files: Sequence[tuple[int, int]]) -> list[str]:
        """Return all names of files, (device, inode) each."""
        return sorted(
            {path for top in self._tops for kind, path in _search(top, wanted=files) if kind == "h"}
        )


def _search(place: str, **options: Any) -> list[tuple[str, str]]:
    try:
        return _native.search(
            place,
            most_entries=MOST_ENTRIES,
            most_findings=MOST_FINDINGS,
            most_secrets=MOST_SECRETS,
            most_key_bytes=MOST_KEY_BYTES,
            **options,
        )
    except _native.NativeError as error:
        if error.errno in OUT_OF_FILES:
            raise
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


def _not_built(implicit: Sequence[str]) -> list[str]:
    """Return what may hold more than was installed there by builds, in jails, and from archives."""
    state = os.path.realpath(state_folder()) if implicit else ""
    built = [os.path.join(state, name) for name in (ENVIRONMENTS, BUNDLES)]
    return sorted({path for path in implicit if not any(is_within(path, top) for top in built)})


def _places(written: Sequence[Rule], *, host_root: bool) -> list[str]:
    """Return what the guest may see of the host, each folder before those in it."""
    found = {rule.path for rule in written if rule.kind in ("read", "write")}
    if host_root:
        for entry in os.scandir("/"):
            if entry.is_dir(follow_symlinks=False) and entry.name not in NOT_LOOKED_THROUGH:
                found.add(entry.path)
    return sorted(found)
