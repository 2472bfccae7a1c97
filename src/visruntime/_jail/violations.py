"""What the policy stopped in one run: limits exactly, refusals of files as hints.

The kernel tells nobody which open or connect of a guest it refused. So a hint starts from
the guest's own word (the error of a Python guest, or its stderr), and adds what the policy
says of that path. It is no proof that the act was tried, nor why it failed.
"""

from __future__ import annotations

import errno as numbers
import os

from visruntime._jail.redacted import without_secrets
from visruntime._jail.refusals import violation_of
from visruntime._policy.decider import Decider
from visruntime._policy.grants import grant_limit, grant_path, grant_reveal
from visruntime._policy.paths import MAX_PATH_BYTES
from visruntime._policy.redact import secrets_of
from visruntime._policy.values import Grant
from visruntime.events import Violation

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from visruntime._native import Refusal
    from visruntime._policy.values import Limits, Rule
    from visruntime.policy import JailPolicy
else:
    import _signal as signal

__all__ = [
    "MAX_VIOLATIONS",
    "Explainer",
    "bounded",
    "guessed",
    "limit_violations",
    "of_output",
]

MAX_VIOLATIONS = 50
"""Most violations that one result holds; `bounded` counts the others."""
MAX_TEXT_BYTES = 64 * 1024
"""How much of the end of a guest's stderr is looked at."""

STOPPED = {
    "wall": ("wall_seconds", "ran for all of {} s"),
    "cpu": ("cpu_seconds", "used all of {} s of processor time"),
    "memory": ("memory", "used all of {} bytes of memory"),
    "processes": ("processes", "had all of {} processes"),
}
"""What ``stopped_by`` says, the limit behind it, and a sentence with its value."""

NO_NETWORK = {
    numbers.ENETUNREACH: "a jail has no network but a loopback of its own",
    numbers.EHOSTUNREACH: "a jail has no network but a loopback of its own",
    numbers.ECONNREFUSED: "a jail has a loopback of its own, on which the host's servers are not",
}
"""What egress off has to do with an error that comes without a path."""
NETWORK_SENTENCES = {
    "Network is unreachable": numbers.ENETUNREACH,
    "Could not resolve host": numbers.ENETUNREACH,
    "Temporary failure in name resolution": numbers.ENETUNREACH,
    "Connection refused": numbers.ECONNREFUSED,
}
REFUSALS = (numbers.ENOENT, numbers.EACCES, numbers.EPERM, numbers.EROFS)
VERBS = {"read": "read", "write": "change", "exec": "execute"}
SENTENCES = {
    "Permission denied": numbers.EACCES,
    "Read-only file system": numbers.EROFS,
    "No such file or directory": numbers.ENOENT,
    "Operation not permitted": numbers.EPERM,
    # Of git, where a linked worktree or a submodule leads to a repository that is not granted.
    "not a git repository: ": numbers.ENOENT,
}


def limit_violations(
    stopped_by: str | None, limits: Limits, *, reached: tuple[float | None, str] = (None, "")
) -> tuple[Violation, ...]:
    """Return the limit of the policy that ended a run, if one did.

    Args:
        reached: the peak, where it is known, and how the end is known, "" for the plain case.
    """
    if stopped_by not in STOPPED:
        return ()
    name, sentence = STOPPED[stopped_by]
    limit = getattr(limits, name)
    shown = f"{limit:g}" if isinstance(limit, float) else str(limit)
    return (
        Violation(
            f"limits.{name}",
            reached[1] or sentence.format(shown),
            rule=f"limits.{name}",
            grant=grant_limit(limits, name),
            limit=limit,
            peak=reached[0],
        ),
    )


def of_output(
    limits: Limits, streams: Iterable[tuple[str, int, int]], *, ended_by: int | None = None
) -> Iterator[Violation]:
    """Say of each (name, bytes written, bytes kept) that was cut, and of a file too large.

    A file that reaches its limit ends the program by SIGXFSZ, which a program can also send
    to itself: a hint.
    """
    for name, total, kept in streams:
        if total > kept:
            yield Violation(
                "limits.output",
                f"wrote {total} bytes to {name}, of which {kept} are kept",
                rule="limits.output",
                target=name,
                grant=grant_limit(limits, "output"),
            )
    if ended_by == signal.SIGXFSZ and limits.file_size is not None:
        yield Violation(
            "limits.file_size",
            f"ended by SIGXFSZ, as a file of {limits.file_size} bytes would that grows",
            confidence="hint",
            rule="limits.file_size",
            grant=grant_limit(limits, "file_size"),
        )


class Explainer:
    """What a policy has to do with an error about a path; never looks at the path itself."""

    __slots__ = ("_decider", "_origins", "_policy", "_resolved", "_rules", "_secrets", "_texts")

    def __init__(
        self,
        policy: JailPolicy,
        rules: Sequence[tuple[str, str]],
        secrets: Iterable[tuple[str, str]] = (),
        resolved: Sequence[Rule] = (),
    ) -> None:
        self._policy = policy
        self._rules = rules
        self._resolved = resolved
        self._secrets = {path for path, _ in secrets}
        self._texts = secrets_of(policy.env)
        self._decider: Decider | None = None
        self._origins: dict[tuple[str, str], str] | None = None

    def explain(
        self, errno: int, path: str | None, *, confidence: str = "hint"
    ) -> Violation | None:
        """Return what may have been refused, ``None`` if the policy allows all of it.

        An error without a path may be one of the network.
        """
        found = self._explain(errno, path, confidence)
        return None if found is None else without_secrets(found, self._texts)

    def _explain(self, errno: int, path: str | None, confidence: str) -> Violation | None:
        if path is None:
            return self._network(errno, confidence)
        normal = _normal(path) if errno in REFUSALS else None
        if normal is None:
            return None
        right = self._right(errno, normal)
        if right is None:
            return self._hidden(normal, confidence) if errno == numbers.ENOENT else None
        return self._refusal(right, errno, normal, confidence)

    def of_act(self, right: str, errno: int, path: str) -> Violation | None:
        """Return what the policy says of *right* on a path, ``None`` if it allows that."""
        found = self._of_act(right, errno, path)
        return None if found is None else without_secrets(found, self._texts)

    def _of_act(self, right: str, errno: int, path: str) -> Violation | None:
        normal = _normal(path)
        if normal is None or self._decide(right, normal)[0]:
            return None
        return self._refusal(right, errno, normal, "hint")

    def of_refusal(self, refusal: Refusal) -> Violation:
        """Return what the policy says of an act that a broker of the jail has refused."""
        found = violation_of(
            refusal, lambda errno, path: self._of_act("write", errno, path), self.named_rules()
        )
        return without_secrets(found, self._texts)

    def named_rules(self) -> list[tuple[str, str, str]]:
        """Return each rule as (kind, path, the policy's own name of it)."""
        return [(kind, path, self._origin(kind, path)) for kind, path in self._rules]

    def _refusal(self, right: str, errno: int, path: str, confidence: str) -> Violation:
        _, index = self._decide(right, path)
        rule, why, grant = "", "no rule grants it", grant_path(right, path)
        if index >= 0:
            kind, at = self._rules[index]
            rule, why = self._origin(kind, at), f"{kind}={at!r} decides"
            if rule == "secrets":
                why, grant = f"{at!a} is hidden as a secret", grant_reveal(path)
            elif kind.startswith("deny") and (at == path or kind == "deny_exec"):
                # A deny of this very path beats any grant of it, and deny_exec all below it.
                grant = None
        return Violation(
            right,
            f"the policy does not let the guest {VERBS[right]} {path!a}: {why}",
            confidence=confidence,
            target=path,
            errno=errno,
            rule=rule,
            grant=grant,
        )

    def _decide(self, right: str, path: str) -> tuple[bool, int]:
        if self._decider is None:  # of no use to a jail in which nothing fails
            self._decider = Decider(self._rules)
        return self._decider(right, path)

    def _right(self, errno: int, path: str) -> str | None:
        """Return the right that *errno* speaks of and that the policy does not give."""
        allowed = {right: self._decide(right, path)[0] for right in VERBS}
        if errno == numbers.EROFS:
            return None if allowed["write"] else "write"
        if not allowed["read"]:
            return "read"
        if errno == numbers.ENOENT:
            return None
        if errno == numbers.EACCES and not allowed["exec"]:
            return "exec"
        return None if allowed["write"] else "write"

    def _network(self, errno: int, confidence: str) -> Violation | None:
        """Say what a policy without a network has to do with an error of a connection."""
        if errno not in NO_NETWORK or self._policy.egress.mode != "off":
            return None
        return Violation(
            "connect",
            f"egress is off: {NO_NETWORK[errno]}",
            confidence=confidence,
            errno=errno,
            rule="egress",
            grant=Grant(python="egress=vr.Egress.OPEN", cli="--net open"),
        )

    def _hidden(self, path: str, confidence: str) -> Violation | None:
        """Say that nothing of the host's is where the jail has a place of its own."""
        readable, index = self._decide("read", path)
        grant = grant_path("read", path)
        if not readable or grant is None or self._origin(*self._rules[index]) != "private":
            return None
        place = self._rules[index][1]
        return Violation(
            "read",
            f"{place} is the jail's own: what the host has at {path!a} is not visible there",
            confidence=confidence,
            target=path,
            errno=numbers.ENOENT,
            rule="private",
            grant=grant,
        )

    def _origin(self, kind: str, path: str) -> str:
        """Return the policy's own name of a rule, such as ``deny[0]``."""
        if self._origins is None:
            known = (*self._policy.rules(), *self._resolved)
            self._origins = {(rule.kind, rule.path): rule.origin for rule in known}
        if (kind, path) in self._origins:
            return self._origins[kind, path]
        return "secrets" if kind == "deny" and path in self._secrets else f"{kind} {path}"


def _normal(path: str) -> str | None:
    """Return the normal form of *path*, ``None`` for what a jail could not have been asked for."""
    if not path.startswith("/") or "\0" in path:
        return None
    path = os.path.normpath(path)
    try:
        size = len(os.fsencode(path))
    except UnicodeEncodeError:
        return None
    return None if path.startswith("//") or size > MAX_PATH_BYTES else path


def guessed(
    text: bytes, explain: Callable[[int, str | None], Violation | None]
) -> Iterator[Violation]:
    """Find lines in a guest's stderr that look like refusals, in order."""
    import re

    candidates = re.compile(r"""'(/[^'\n]+)'|"(/[^"\n]+)"|((?<![\w.])/[^\s'":;,()]+)""")
    end = text[-MAX_TEXT_BYTES:].decode("utf-8", "surrogateescape")
    for line in end.split("\n"):
        errno = next((number for words, number in SENTENCES.items() if words in line), None)
        if errno is None:
            yield from _guessed_of_network(line, explain)
            continue
        for match in candidates.finditer(line):
            found = explain(errno, next(filter(None, match.groups())))
            if found is not None:
                yield found
                break


def _guessed_of_network(
    line: str, explain: Callable[[int, str | None], Violation | None]
) -> Iterator[Violation]:
    errno = next((number for words, number in NETWORK_SENTENCES.items() if words in line), None)
    found = None if errno is None else explain(errno, None)
    if found is not None:
        yield found


def bounded(violations: Iterable[Violation]) -> tuple[tuple[Violation, ...], int]:
    """Return the first different *violations*, and how many more there were.

    What is known exactly, and comes first, is not told again as a hint.
    """
    kept: list[Violation] = []
    seen: set[tuple[str, str, str]] = set()
    for violation in violations:
        key = (violation.kind, violation.target, violation.confidence)
        if (violation.kind, violation.target, "exact") in seen:
            continue
        if key not in seen and len(kept) < MAX_VIOLATIONS:
            kept.append(violation)
        seen.add(key)
    return tuple(kept), len(seen) - len(kept)
