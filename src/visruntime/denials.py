"""What the audit hook of a worker says that it refused: claims of the guest, as data."""

from __future__ import annotations

from visruntime._jail.redacted import without_secrets
from visruntime._policy.redact import redact
from visruntime._policy.values import Frozen
from visruntime._runtime.traceback import printable
from visruntime._worker.claims import read_dict
from visruntime.errors import ProtocolViolation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from visruntime.events import Violation

    ExplainAct = Callable[[str, int, str], "Violation | None"]
    """What a policy has to say of a right, an errno and a path."""

__all__ = ["Denial", "Denials"]

MAX_DENIALS = 100
"""Most denials of one run; workers keep no more."""
_MAX_NAME = 64
_MAX_PATH = 4_096


class Denial(Frozen):
    """Something that a worker's audit hook refused while a run was under way.

    A claim of the guest, as everything that its process says: a hint that helps to repair its code
    or the policy, and no proof. ``event`` is CPython's audit event ("open"), ``right`` what was
    wanted ("read", "write", "native code", "process" or "module"), ``rule`` the policy's name of the
    rule that decided ("deny[0]", "" where none grants it) or the option of the runtime
    ("processes=False"), ``path`` what it was about, ``errno`` what the kernel had answered (0 where
    it was not asked), ``file`` and ``line`` the guest's code (the innermost frame outside of the
    standard library; "" and 0 where the host asked for the act, as by ``call("open", path)``).

    ``violation`` is the host's own: what the policy says of such an act, ``None`` where it
    allows it or has nothing to say.
    """

    __slots__ = ("errno", "event", "file", "line", "path", "right", "rule", "violation")

    errno: int
    event: str
    file: str
    line: int
    path: str
    right: str
    rule: str
    violation: Violation | None

    def __init__(
        self, claim: tuple[Any, ...], explain: ExplainAct, secrets: tuple[str, ...] = ()
    ) -> None:
        event, right, rule, path, errno, file, line = claim
        said = explain(right, errno, path) if right in ("read", "write") else None
        self._set(
            event=redact(event, secrets),
            right=redact(right, secrets),
            rule=redact(rule, secrets),
            path=redact(path, secrets),
            errno=errno,
            file=redact(file, secrets),
            line=line,
            violation=None if said is None else without_secrets(said, secrets),
        )

    def __str__(self) -> str:
        rule = f" (rule: {self.rule})" if self.rule else ""
        return printable(f"{self.file}:{self.line}: {self.right} of {self.path!a} refused{rule}")

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        plain = {name: getattr(self, name) for name in self.__slots__ if name != "violation"}
        return plain | {"violation": None if self.violation is None else self.violation.to_dict()}


class Denials:
    """Takes in what a worker says that its audit hook refused in one run.

    ``told`` is how many of those kept came while the run went on, ``explain`` the policy, and
    ``secrets`` are texts that none of them shows.
    """

    __slots__ = ("_kept", "_lost", "explain", "secrets", "told")

    def __init__(self) -> None:
        self.explain: ExplainAct = _unexplained
        self.secrets: tuple[str, ...] = ()
        self._kept: list[Denial] = []
        self._lost = 0
        self.told: int = 0

    def add(self, payload: bytes) -> Denial | None:
        """Take a DENIED frame; returns what is to be told, ``None`` for one that is over the bound.

        Raises:
            ProtocolViolation: it has not the agreed shape.
        """
        try:
            claim = read_dict(payload, max_nodes=20)["denial"]
            _check(claim)
        except (TypeError, ValueError, KeyError) as problem:
            raise ProtocolViolation(f"the worker described a denial wrongly: {problem}") from None
        if len(self._kept) >= MAX_DENIALS:
            self._lost += 1
            return None
        self._kept.append(Denial(claim, self.explain, self.secrets))
        self.told += 1
        return self._kept[-1]

    def all(self, claim: object) -> tuple[tuple[Denial, ...], int]:
        """Return them with those that the reply claims, and how many were not kept.

        Raises:
            ProtocolViolation: those have not the agreed shape.
        """
        claimed: list[tuple[Any, ...]] = []
        dropped = 0
        if claim is not None:  # None: a worker that could not describe its result, or sent none
            try:
                claimed, dropped = _checked(claim)
            except (TypeError, ValueError) as problem:
                raise ProtocolViolation(
                    f"the worker described a denial wrongly: {problem}"
                ) from None
        room = MAX_DENIALS - len(self._kept)
        rest = [Denial(one, self.explain, self.secrets) for one in claimed[:room]]
        return (*self._kept, *rest), dropped + self._lost + len(claimed) - len(rest)


def _unexplained(_right: str, _errno: int, _path: str) -> None:
    """Nothing of a policy is asked."""


def _checked(claim: Any) -> tuple[list[tuple[Any, ...]], int]:
    if type(claim) is not tuple or len(claim) != 2:
        raise TypeError("not a pair")
    claimed, dropped = claim
    if type(claimed) is not list or len(claimed) > MAX_DENIALS:
        raise TypeError("not a list, or too long")
    if type(dropped) is not int or not 0 <= dropped < 2**64:
        raise TypeError("the rest is no count")
    for one in claimed:
        _check(one)
    return claimed, dropped


def _check(one: Any) -> None:
    if type(one) is not tuple or len(one) != 7:
        raise TypeError("a denial has not seven parts")
    *names, path, errno, file, line = one
    if any(type(name) is not str or len(name) > _MAX_NAME for name in names):
        raise TypeError("a name is not text, or too long")
    if any(type(text) is not str or len(text) > _MAX_PATH for text in (path, file)):
        raise TypeError("a path is not text, or too long")
    if any(type(number) is not int or not -1 <= number < 2**31 for number in (errno, line)):
        raise ValueError("a number is out of range")
