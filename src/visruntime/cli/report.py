"""``--report FILE``: what enforced the policy and what came of the run, as JSON."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress

from visruntime._host.files import open_regular
from visruntime._jail.aliases import Aliases
from visruntime._jail.mount_table import MountTree, mount_table
from visruntime._policy.links import real_path
from visruntime._policy.paths import resolve_beside
from visruntime.cli.messages import Refusal, clean, code_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any, Self

    from visruntime.events import Violation
    from visruntime.policy import JailPolicy

__all__ = ["ReportFile", "open_for_caller", "plain"]


class ReportFile:
    """The report of one command: its file is opened before the guest starts, written at the end.

    Also where nothing starts: then the report holds the refusal, and no clause as enforced.
    """

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._descriptor: int | None = None
        self.data: dict[str, Any] = {
            "version": 1,
            "status": None,
            "error": None,
            "unsupported": [],
            "policy_files": [],
            "jailed": False,
            "enforcement": None,
            "backend": None,
            "identity": None,
            "clauses": [],
            "canaries": [],
            "notes": [],
            "exit": {"code": None, "signal": None, "stopped_by": None},
            "usage": {},
            "violations": [],
            "violations_dropped": 0,
        }

    @property
    def wanted(self) -> bool:
        """Whether somebody asked for the report."""
        return self._path is not None

    @contextmanager
    def covering(self) -> Iterator[Self]:
        """Write the report when the block ends, whatever it ends with."""
        try:
            yield self
        except BaseException as error:
            self.data["error"] = clean(str(error)) or type(error).__name__
            self.data["status"] = code_of(error)
            with suppress(Refusal, OSError):  # the first error is the one to tell
                self._write()
            raise
        self._write()

    def open(self, policy: JailPolicy) -> None:
        """Open the file, before anything starts under *policy*.

        Raises:
            Refusal: if the file is a link or no regular file, or the guest could change it.
        """
        self.data["policy_files"] = list(policy.files)
        if self._path is not None:
            path, self._path = self._path, None
            self._descriptor = _open(path, policy)
            self._path = path

    def refuse_unsupported(self, policy: JailPolicy) -> None:
        """Refuse *policy* if this version cannot enforce all of it; the report lists it all.

        Raises:
            Refusal: naming the first clause.
        """
        clauses = policy.unsupported()
        self.data["unsupported"] = [{"clause": name, "reason": why} for name, why in clauses]
        if clauses:
            field, sentence = clauses[0]
            more = f" (and {len(clauses) - 1} more)" if len(clauses) > 1 else ""
            raise Refusal(f"cannot enforce {field}: {sentence}{more}")

    def record(self, report: object, process: object) -> None:
        """Take over the jail's *report* and what was measured of *process*."""
        enforced = plain(report)
        if isinstance(enforced, dict):
            self.data |= enforced
        code = getattr(process, "returncode", None)
        ended = code if isinstance(code, int) else None
        self.data["exit"] = {
            "code": ended if ended is not None and ended >= 0 else None,
            "signal": -ended if ended is not None and ended < 0 else None,
            "stopped_by": plain(getattr(process, "stopped_by", None)),
        }
        self.data["usage"] = plain(getattr(process, "usage", None)) or {}
        self.add(getattr(process, "violations", ()), getattr(process, "violations_dropped", 0))

    def add(self, violations: Iterable[Violation], dropped: int = 0) -> None:
        """Add *violations*, and to the count of those that are left out."""
        self.data["violations"] += plain(tuple(violations))
        self.data["violations_dropped"] += dropped

    def _write(self) -> None:
        if self._descriptor is None and self._path is not None:
            # Nothing was started, so there is no guest that could be in the way.
            self._descriptor = open_for_caller(self._path, f"--report {self._path}", 0o600)
        self._path = None
        if self._descriptor is None:
            return
        import json

        content = json.dumps(self.data, indent=2, ensure_ascii=True) + "\n"
        descriptor, self._descriptor = self._descriptor, None
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(content)


def plain(value: object) -> Any:
    """Return *value* as what JSON can hold."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    convert = getattr(value, "to_dict", None)
    if callable(convert):
        return plain(convert())
    if hasattr(value, "items"):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    slots = getattr(type(value), "__slots__", None)
    if slots:
        return {name: plain(getattr(value, name)) for name in slots if not name.startswith("_")}
    return repr(value)


def _open(path: str, policy: JailPolicy) -> int:
    option = f"--report {path}"
    real = real_path(resolve_beside(path, os.getcwd(), option))
    is_new = not os.path.lexists(real)
    _refuse_writable(option, real, policy)
    descriptor = open_for_caller(path, option, 0o600)
    if is_new and any(policy.patterns[one].rest for one in policy.write if one in policy.patterns):
        # Patterns name what is there, and now it is: the jail that opens will see it.
        anew = policy.replace()
        anew._set(walked=None)
        try:
            _refuse_writable(option, real, anew)
        except Refusal:
            os.close(descriptor)
            os.unlink(real)
            raise
    return descriptor


def _refuse_writable(option: str, real: str, policy: JailPolicy) -> None:
    for name in (real, *Aliases(MountTree(mount_table())).second_mounts(real)):
        decision = policy.why("write", name)
        if decision and decision.rule is not None and not decision.rule.is_own:
            raise Refusal(
                f"{option}: the guest could change it ({decision.rule.origin}); "
                "choose a file outside of what it can write"
            )


def open_for_caller(path: str, option: str, mode: int) -> int:
    """Open a new or regular file to be written from its start; return the descriptor.

    Nothing is emptied, and nothing waited for, before it is known to be a regular file that
    is reached without a link that a guest could have made.

    Raises:
        Refusal: it is reached through a link or is something else; the message starts with
            *option*.
    """
    name = resolve_beside(path, os.getcwd(), option)
    refusal = "it must be a regular file or new, and no link"
    try:
        descriptor = open_regular(name, os.O_WRONLY | os.O_CREAT, mode)
    except OSError as error:
        raise Refusal(f"{option}: {refusal}; {error.strerror}") from None
    if os.fstat(descriptor).st_uid != os.geteuid():
        os.close(descriptor)
        raise Refusal(f"{option}: it belongs to another user, who could read and change it")
    os.ftruncate(descriptor, 0)
    return descriptor
