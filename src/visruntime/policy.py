"""What a guest may do: one frozen, checked value.

A `JailPolicy` is made on the host, is the same on every machine that reads it, and is
enforced by the kernel or refused (`visruntime.Jail`). Deny beats allow at the same path,
the most specific path wins, and the order of rules never matters.
"""

from __future__ import annotations

import os
from types import MappingProxyType

from visruntime._policy.caches import check_caches, without_those_in
from visruntime._policy.environment_names import check_env, check_inherit_env
from visruntime._policy.fields import (
    ABSENT_DENIES,
    KINDS,
    MAX_NAMES,
    MAX_RULES,
    check_inbound,
    check_known,
    check_paths,
    check_ports,
    check_rules,
    check_services,
    check_sockets,
    fields_from_dict,
    refuse,
)
from visruntime._policy.links import followed, real_path
from visruntime._policy.looks import is_missing
from visruntime._policy.name_servers import name_servers
from visruntime._policy.paths import (
    FORBIDDEN_GRANTS,
    HOME,
    MADE_READ,
    MADE_READ_OPEN,
    MAX_PATH_BYTES,
    MINIMAL_DENY,
    MINIMAL_READ,
    PRIVATE_READ,
    PRIVATE_WRITE,
    escape,
    is_within,
    resolve_beside,
)
from visruntime._policy.pattern_names import Sought, denied_names, granted_names, look_for
from visruntime._policy.protected_names import PROTECTED_NAMES
from visruntime._policy.system_roots import SystemRoots
from visruntime._policy.values import (
    Decision,
    Egress,
    Grant,
    Limits,
    Rule,
    Secret,
    Unsaid,
    check_field_list,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any, Literal

    from visruntime._policy.pattern_names import Walked
    from visruntime._policy.patterns import Pattern

__all__ = [
    "FORBIDDEN_GRANTS",
    "MAX_PATH_BYTES",
    "MAX_RULES",
    "MINIMAL_DENY",
    "MINIMAL_READ",
    "PRIVATE_READ",
    "PRIVATE_WRITE",
    "PROTECTED_NAMES",
    "Decision",
    "Egress",
    "Grant",
    "JailPolicy",
    "Limits",
    "Rule",
    "Secret",
]


class JailPolicy(Unsaid):
    """What a guest may read, write, execute, reach and use.

    Args:
        read: files and trees that it may read and execute, absolute; a read grant inside a
            write grant is read-only.
        write: files and trees that it may read, execute and change.
        deny: neither readable nor writable nor executable.
        deny_read: as *deny*, since what cannot be read can be neither changed nor run.
        deny_write: readable as far as granted, but not to be changed.
        deny_exec: not executable; no grant below lifts this.
        absent_deny: what becomes of a *deny_write* inside a write grant while nothing is
            there. "broker": no guest makes it, and other names beside it are made by a
            process of the jail, which costs time. "wall": no new name at all can be made in
            the folders that would hold it, nor in those above (folders that exist in them
            are free). "error": refused.
        reveal: secret paths (keys, ``.env`` and the like) that are hidden inside the grants
            unless they are named here, one by one; grants nothing by itself.
        caches: folders for the caches of tools (pip, uv, npm), private to this policy: at
            each path the guest may write, and finds what guests of the same policy, its secrets
            included, have left there. What the host has at that path is neither shown nor
            changed. They are kept in ``$XDG_CACHE_HOME/visruntime/caches``.
        services: credential and system services, by name.
        system: "minimal" (programs, libraries, certificates), "host" (the whole root,
            read-only) or "none".
        egress: `Egress.OFF`, `Egress.OPEN` or `Egress.proxy`.
        inbound: ports of the jail to ports of the host's loopback (0: any free one).
        host_ports: loopback ports of the host that the guest may connect to.
        sockets: AF_UNIX socket paths that it may connect to, exactly these.
        sensitive_sockets: as *sockets*, for those behind which somebody acts in the user's
            name (container engines, buses, key agents), which *sockets* refuses.
        env: variables for the guest; nothing else crosses, but *inherit_env*.
        inherit_env: names of variables taken from the host when the jail opens.
        limits: `Limits`.
        strict_globs: refuse patterns in *deny* and *deny_read* that hold only for names that
            exist when the jail opens.

    Paths of rules may be patterns: ``*``, ``?`` and ``[a-z]`` in a name, ``**`` as a whole name
    for any number of folders. ``data/**`` is one rule on a folder and holds always. Other
    patterns stand for what they name when the jail opens: of a grant links do not count, and
    something must be there; in *deny_write* and *deny_exec* they are refused where files of
    such names could be made later. ``[*]``, ``[?]`` and ``[[]`` mean the character itself.

    Raises:
        PolicyError: naming the field and the value.
    """

    __slots__ = (
        "absent_deny",
        "caches",
        "deny",
        "deny_exec",
        "deny_read",
        "deny_write",
        "egress",
        "env",
        "host_ports",
        "inbound",
        "inherit_env",
        "limits",
        "read",
        "reveal",
        "sensitive_sockets",
        "services",
        "sockets",
        "strict_globs",
        "system",
        "write",
    )
    absent_deny: Literal["broker", "wall", "error"]
    caches: tuple[str, ...]
    deny: tuple[str, ...]
    deny_exec: tuple[str, ...]
    deny_read: tuple[str, ...]
    deny_write: tuple[str, ...]
    egress: Egress
    env: Mapping[str, str | Secret]
    host_ports: tuple[int, ...]
    inbound: Mapping[int, int]
    inherit_env: tuple[str, ...]
    limits: Limits
    read: tuple[str, ...]
    reveal: tuple[str, ...]
    sensitive_sockets: tuple[str, ...]
    services: tuple[str, ...]
    sockets: tuple[str, ...]
    strict_globs: bool
    system: Literal["minimal", "host", "none"]
    write: tuple[str, ...]

    def __init__(
        self,
        *,
        read: Iterable[str | os.PathLike[str]] = (),
        write: Iterable[str | os.PathLike[str]] = (),
        deny: Iterable[str | os.PathLike[str]] = (),
        deny_read: Iterable[str | os.PathLike[str]] = (),
        deny_write: Iterable[str | os.PathLike[str]] = (),
        deny_exec: Iterable[str | os.PathLike[str]] = (),
        absent_deny: Literal["broker", "wall", "error"] = "broker",
        reveal: Iterable[str | os.PathLike[str]] = (),
        caches: Iterable[str | os.PathLike[str]] = (),
        services: Iterable[str] = (),
        system: Literal["minimal", "host", "none"] = "minimal",
        egress: Egress = Egress.OFF,
        inbound: Mapping[int, int] = MappingProxyType({}),
        host_ports: Iterable[int] = (),
        sockets: Iterable[str | os.PathLike[str]] = (),
        sensitive_sockets: Iterable[str | os.PathLike[str]] = (),
        env: Mapping[str, str | Secret] = MappingProxyType({}),
        inherit_env: Iterable[str] = (),
        limits: Limits | None = None,
        strict_globs: bool = False,
    ) -> None:
        given = (read, write, deny, deny_read, deny_write, deny_exec)
        rules, patterns = check_rules(dict(zip(KINDS, given, strict=True)))
        self._set(files=(), found=frozenset(), patterns=patterns, plans={}, searched={}, **rules)
        self._set(owners=MappingProxyType({}), walked=None)
        self._set(reveal=check_paths("reveal", reveal, MAX_NAMES))
        self._set(caches=check_caches(check_paths("caches", caches, MAX_NAMES)))
        self._set(sockets=check_sockets("sockets", sockets))
        self._set(sensitive_sockets=check_sockets("sensitive_sockets", sensitive_sockets))
        if system not in ("minimal", "host", "none"):
            refuse("system", system, 'one of "minimal", "host", "none"')
        if absent_deny not in ABSENT_DENIES:
            refuse("absent_deny", absent_deny, f"one of {', '.join(map(repr, ABSENT_DENIES))}")
        if not isinstance(strict_globs, bool):
            refuse("strict_globs", strict_globs, "True or False")
        if not isinstance(egress, Egress):
            refuse("egress", egress, "Egress.OFF, Egress.OPEN or Egress.proxy(allow=[...])")
        if limits is not None and not isinstance(limits, Limits):
            refuse("limits", limits, "a Limits object")
        ports = check_inbound(inbound)
        if ports and egress.mode == "open":
            refuse("inbound", dict(ports), "nothing with Egress.OPEN, which shares the network")
        self._set(
            absent_deny=absent_deny,
            services=check_services(services),
            strict_globs=strict_globs,
            system=system,
            egress=egress,
            inbound=ports,
            host_ports=check_ports("host_ports", host_ports),
            env=check_env(env),
            inherit_env=check_inherit_env(inherit_env),
            limits=limits if limits is not None else Limits(),
        )

    # The value itself: as a dict, from a dict or a file, changed, compared.

    def to_dict(self) -> dict[str, Any]:
        """Return the policy as plain data, for JSON.

        A `Secret` appears as ``{"secret": True}``, which `from_dict` refuses: give the
        value again with ``.replace(env=...)`` where it is known.

        Not in it is in whose name a narrowed policy's grants are read (see `narrow`): a root
        caller passes such a policy on by pickling, or narrows it again.
        """
        plain: dict[str, Any] = {}
        for field in type(self).__slots__:
            value = getattr(self, field)
            plain[field] = list(value) if isinstance(value, tuple) else value
        plain["egress"] = self.egress.to_dict()
        plain["inbound"] = {str(port): to for port, to in self.inbound.items()}
        plain["env"] = {
            name: {"secret": True} if isinstance(value, Secret) else value
            for name, value in self.env.items()
        }
        plain["limits"] = self.limits.to_dict()
        return plain

    @classmethod
    def from_dict(
        cls, data: Mapping[str, Any], *, folder: str | os.PathLike[str] | None = None
    ) -> JailPolicy:
        """Build a policy from plain data, as `to_dict` writes it.

        Args:
            data: fields by name; a missing one has its default.
            folder: where relative paths start; without it they are refused.

        Raises:
            PolicyError: for an unknown key, a secret's marker, or a wrong value.
        """
        return cls(**fields_from_dict(data, folder=folder))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> JailPolicy:
        """Read a policy from a TOML file.

        The file is a ``visruntime.toml``, or a ``pyproject.toml`` with a
        ``[tool.visruntime]`` table. Relative paths start at the file's folder.

        Raises:
            PolicyError: naming the file and the line, for wrong TOML or a wrong policy.
            OSError: if the file cannot be read.
        """
        from visruntime.config import ConfigFile

        return ConfigFile(path).policy()

    @staticmethod
    def json_schema() -> dict[str, Any]:
        """Return the JSON Schema (2020-12) of a policy file, for editors and other checkers.

        What it refuses, `load` refuses too; the reverse cannot be: a schema knows no links.
        """
        from visruntime.config import schema

        return schema("policy")

    def replace(self, **changes: Any) -> JailPolicy:
        """Return the same policy with *changes*, which are given as to the constructor.

        Raises:
            PolicyError: for a name that is no field, or a wrong value.
        """
        check_known(changes)
        policy = JailPolicy(**(self._named() | changes))
        policy._set(files=self.files, found=self.found, owners=self.owners, walked=self.walked)
        return policy

    def narrow(self, other: JailPolicy) -> JailPolicy:
        """Return a policy that grants nothing that *self* or *other* does not grant.

        Grants and denies are compared where their paths really lead on this host; limits
        are the smaller ones, and of the environment only what both give stays. Where the
        caller is root, the guest reads what is left of a grant as the owner of that grant,
        and what one of the two gives by ``system`` only as a stranger.

        Raises:
            PolicyError: a grant goes through a link that no jail would follow.
        """
        from visruntime._policy.narrow import narrow

        if not isinstance(other, JailPolicy):
            raise TypeError(f"other: a JailPolicy is needed, not {type(other).__name__}")
        return narrow(self, other)

    @property
    def digest(self) -> str:
        """SHA-256, in hexadecimal, of what the policy says.

        The order of rules and the values of secrets do not enter it.
        """
        import hashlib
        import json

        plain = self.to_dict()
        for field, value in plain.items():
            if isinstance(value, list):
                plain[field] = sorted(set(value))
        if self.egress.mode == "proxy":
            plain["egress"] = {
                "mode": "proxy",
                "allow": sorted(set(self.egress.allow)),
                "deny": sorted(set(self.egress.deny)),
            }
        for limit, number in plain["limits"].items():
            if isinstance(number, float) and number.is_integer():
                plain["limits"][limit] = int(number)
        canonical = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(b"visruntime policy 1\n" + canonical.encode("ascii")).hexdigest()

    def __hash__(self) -> int:
        plain = (tuple(v.items()) if isinstance(v, MappingProxyType) else v for v in self._values())
        return hash(tuple(plain))

    def __reduce__(self) -> tuple[Any, ...]:
        restore, (cls, values) = super().__reduce__()
        values = values | {field: dict(values[field]) for field in ("env", "inbound")}
        unsaid = {"files": self.files, "found": self.found, "owners": dict(self.owners)}
        return restore, (cls, values), unsaid

    def __setstate__(self, unsaid: dict[str, Any]) -> None:
        self._set(files=unsaid["files"], found=unsaid["found"])
        self._set(owners=MappingProxyType(unsaid["owners"]))

    def __repr__(self) -> str:
        default = JailPolicy()
        shown = []
        for field in type(self).__slots__:
            value = getattr(self, field)
            if value == getattr(default, field):
                continue
            if isinstance(value, tuple) and len(value) > 3:
                shown.append(f"{field}=<{len(value)} entries>")
            elif isinstance(value, MappingProxyType):
                shown.append(f"{field}=<{', '.join(map(str, value))}>")
            else:
                shown.append(f"{field}={list(value) if isinstance(value, tuple) else value!r}")
        return f"JailPolicy({', '.join(shown)})"

    # What it means.

    def rules(self) -> tuple[Rule, ...]:
        """Return every file rule: those of the fields, of ``system``, and the private places.

        Paths are as the policy writes them. A private place that the policy itself grants
        is not private and is left out.
        """
        return self._assemble(resolve=False)

    def resolved_rules(self) -> tuple[Rule, ...]:
        """Return `rules` with each path where it really leads on this host.

        A deny through a link holds for both the link and what it leads to.
        """
        return self._assemble(resolve=True)

    def _seen_rules(self) -> tuple[Rule, ...]:
        """Return `resolved_rules` for a question: as the command has seen them, where it has."""
        return self.resolved_rules() if self.walked is None else self.walked.rules_of(self)

    def _assemble(
        self,
        *,
        resolve: bool,
        minimal: Sequence[tuple[str, str]] | None = None,
        real: Callable[[str], str] = real_path,
        implicit: Sequence[str] = (),
        walked: Walked | None = None,
        links: list[str] | None = None,
    ) -> tuple[Rule, ...]:
        """Return all rules; *links* gets those by which deny patterns name something."""
        rules = []
        patterns = []
        for kind in KINDS:
            for index, given in enumerate(getattr(self, kind)):
                origin = f"{kind}[{index}]"
                pattern = self.patterns.get(given)
                path = given if pattern is None or pattern.rest else pattern.fixed
                if pattern is not None and pattern.rest and resolve:
                    patterns.append((kind, origin, path, pattern))
                    if is_missing(path):
                        continue
                    if kind in ("read", "write"):
                        patterns.pop()  # a name that is there is meant as it is written
                target = followed(real, path, origin) if resolve else path
                if kind not in ("read", "write") and target != path:
                    rules.append(Rule(kind=kind, path=path, origin=origin))
                rules.append(Rule(kind=kind, path=target, origin=origin))
        for index, path in enumerate(self.caches):
            origin = f"caches[{index}]"
            place = followed(real, path, origin) if resolve else path
            rules.append(Rule(kind="write", path=place, origin=origin))
        if self.system == "minimal" and minimal is None:
            minimal = SystemRoots().pairs
        if patterns:
            unasked = [*implicit, *(target for _, target in minimal or ())]
            found = self._expand(patterns, rules, real, unasked, walked, links)
            rules += without_those_in(found, rules)
        granted = {rule.path for rule in rules if rule.kind in ("read", "write")}
        if self.system == "host":
            rules.append(Rule(kind="read", path="/", origin="system"))
        elif self.system == "minimal":
            seen = set()
            for path, target in minimal or ():
                shown = target if resolve else path
                if shown not in seen:
                    seen.add(shown)
                    rules.append(Rule(kind="read", path=shown, origin="system"))
            rules += [
                Rule(kind="deny", path=path, origin="system")
                for path in MINIMAL_DENY
                if path not in granted and not is_missing(path)
            ]
        made: tuple[str, ...] = MADE_READ if self.system == "minimal" else ()
        if made and self.egress.mode == "open" and name_servers() is not None:
            made = (*made, MADE_READ_OPEN)
        for kind, places in (("write", PRIVATE_WRITE), ("read", (*PRIVATE_READ, *made))):
            rules += [
                Rule(kind=kind, path=place, origin="private")
                for place in places
                if place not in granted and not self._shows_the_hosts(place, granted)
            ]
        return tuple(rules)

    def _expand(
        self,
        patterns: Sequence[tuple[str, str, str, Pattern]],
        rules: Sequence[Rule],
        real: Callable[[str], str],
        unasked: Iterable[str],
        walked: Walked | None,
        links: list[str] | None,
    ) -> list[Rule]:
        """Return the rules on what *patterns* name: (kind, origin, path, pattern) each.

        *rules* are those without patterns, *unasked* what is granted by no field, and *walked*
        what was found before, if that will do; *links* gets those by which denies name something.
        """
        tops = {path: real(pattern.fixed) for _, _, path, pattern in patterns}
        begun = [tops[path] for kind, _, path, _ in patterns if kind in ("read", "write")]
        plain = [rule.path for rule in rules if rule.kind in ("read", "write") and not rule.is_own]
        grants = dict.fromkeys((*unasked, *begun, *plain), False)
        if self.system == "host":
            grants["/"] = False
        for place in (*PRIVATE_WRITE, *PRIVATE_READ):
            if not (place in grants or any(is_within(place, top) for top in begun)):
                grants[place] = not self._shows_the_hosts(place, set(grants))
        # Of writing and executing only what holds anyway is taken (`not_held`).
        sought = [
            Sought(kind, origin, path, pattern, tops[path], found=path in self.found)
            for kind, origin, path, pattern in patterns
            if kind in ("read", "write", "deny", "deny_read")
        ]
        look_for(sought, grants, walked)
        taken = [one for one in sought if one.kind in ("deny", "deny_read")]
        found = [
            Rule(kind=one.kind, path=name, origin=one.field)
            for one, name in denied_names(taken, grants, (*begun, *plain), links)
        ]
        denies = [rule for rule in (*rules, *found) if rule.kind.startswith("deny")]
        reveal = [real(path) for path in self.reveal]
        for one in sought:
            if one.kind in ("read", "write"):
                above = ("deny", "deny_read", *(("deny_write",) if one.kind == "write" else ()))
                denied = [rule.path for rule in denies if rule.kind in above]
                names = granted_names(one, denied=denied, reveal=reveal)
                found += [Rule(kind=one.kind, path=name, origin=one.field) for name in names]
        return found

    def _shows_the_hosts(self, place: str, granted: set[str]) -> bool:
        """Tell whether a place that other jails have for themselves is the host's here.

        Nothing is made in a tree of the host, so a place in one needs a folder there; HOME
        then moves to /tmp.
        """
        if self.system != "host" and not any(is_within(place, grant) for grant in granted):
            return False
        return place == HOME or not os.path.isdir(place)

    def why(
        self, op: Literal["read", "write", "exec", "connect"], target: str | os.PathLike[str]
    ) -> Decision:
        """Say whether the policy lets a guest do *op* to *target*, and why.

        No kernel is involved; links in *target* are followed as they are on this host.

        Args:
            op: "read", "write" or "exec" of a path, or "connect".
            target: an absolute path; for "connect" ``host:port``, or a socket's path.

        Raises:
            PolicyError: for an unknown *op*, or a target that is none.
        """
        from visruntime._policy.why import why

        return why(self, op, target)

    def unsupported(self) -> list[tuple[str, str]]:
        """Return the clauses that this version cannot enforce, as (field, sentence).

        `Jail` refuses a policy for which this is not empty. Looks at the host, because a
        name that does not exist cannot be held yet.
        """
        from visruntime._policy.unsupported import unsupported

        return unsupported(self)

    @classmethod
    def workspace(cls, path: str | os.PathLike[str], **changes: Any) -> JailPolicy:
        """Return a policy for work in one folder: writable but for `PROTECTED_NAMES`.

        Git hooks and configuration, editor and agent configuration and the like can be
        read and neither changed nor made (see *absent_deny*); so can what the settings of its
        git name inside of the folder when this is called: hooks, included files, programs; and
        what links in all these lead to there.
        Where ``.git`` is a file, as in a linked worktree, it stays as it is, and the repository
        that it names is not granted.

        Args:
            path: the folder; a relative one starts at the current directory.
            changes: further fields; ``write`` and ``deny_write`` are added to the preset's.

        A folder behind a link stays written as it is, and `Jail` refuses it: an earlier guest
        may have put the link there.

        Raises:
            PolicyError: if *path* is no folder, for a wrong field, or for what cannot be kept, such
                as a hook that is a link to a link.
        """
        check_known(changes)
        from visruntime._policy.git_names import further_names, hooks_around
        from visruntime._policy.linked_names import linked_names

        folder = resolve_beside(path, os.getcwd(), "workspace")
        if not os.path.isdir(folder):
            refuse("workspace", path, "a folder that exists")
        written = escape(folder)
        write = [written, *check_field_list(changes.pop("write", ()), "write")]
        further = further_names(folder)
        further += linked_names(folder, [*PROTECTED_NAMES, *further], hooks_around(folder))
        held = [os.path.join(written, name) for name in PROTECTED_NAMES]
        held += [os.path.join(written, escape(name)) for name in further]
        deny_write = [*held, *check_field_list(changes.pop("deny_write", ()), "deny_write")]
        return cls(write=write, deny_write=deny_write, **changes)
