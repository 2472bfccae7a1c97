"""Opening a jail on macOS, and proving that it holds."""

from __future__ import annotations

import os
import resource

from visruntime import _native
from visruntime._host.imports import prepare
from visruntime._jail.limits import HeldLimits
from visruntime._jail.macos_canaries import fixed_acts, judge_macos
from visruntime._jail.macos_folder import MacosFolder, temporary_parent
from visruntime._jail.macos_plan import make_macos_plan
from visruntime._jail.macos_report import make_macos_report
from visruntime._jail.open import OpenedJail
from visruntime._native.macos import MacosJailHandle, is_sandboxed
from visruntime.errors import JailUnavailable, PolicyUnsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from visruntime._jail.macos_plan import MacosPlan
    from visruntime.policy import JailPolicy, Limits

__all__ = ["open_seatbelt"]

MOST_OPEN_FILES = 10240
"""OPEN_MAX of macOS: beyond it a limit is not taken by every release."""
FIX = "see doc/seatbelt.md and `visruntime doctor`"


class _HeldByFolder(HeldLimits):
    """The limits of a jail of macOS; its folder is given back with them."""

    __slots__ = ("folder",)

    def __init__(self, limits: Limits, folder: MacosFolder) -> None:
        super().__init__(limits, None)
        self.folder = folder
        if limits.open_files == "auto":
            # Descriptors on their way between processes are not counted by user, as on Linux.
            soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            self.process["open_files"] = (
                MOST_OPEN_FILES if soft == resource.RLIM_INFINITY else min(soft, MOST_OPEN_FILES)
            )
        self.environment |= {
            "LANG": "en_US.UTF-8",
            "TMPDIR": folder.home,
            "UV_LINK_MODE": "copy",  # no profile allows hard links, by which uv installs
        }

    def release(self) -> None:
        self.folder.remove()


def open_seatbelt(
    policy: JailPolicy,
    *,
    config_files: Iterable[str] = (),
    implicit_read: Sequence[tuple[str, str]] = (),
) -> OpenedJail:
    """Open a jail whose runs are in sandboxes of macOS.

    Raises:
        PolicyUnsupported: a clause that Seatbelt cannot hold.
        PolicyError: a path of the policy that does not exist or leads astray.
        JailUnavailable: no jail opens here, or this one did not hold.
    """
    _check_caller()
    folder = MacosFolder(temporary_parent())
    try:
        held = _HeldByFolder(policy.limits, folder)
        made = make_macos_plan(
            policy, folder, implicit_read=implicit_read, config_files=config_files
        )
        prepare(made.plan.host_rules, made.plan.import_places)
        handle = MacosJailHandle(
            helper=program("visjail-macos-init"),
            watcher=program("visjail-macos-watch"),
            profile=made.profile,
            limits={
                name: held.process[name] for name in ("open_files", "file_size", "cpu_seconds")
            },
            canary=folder.canary,
        )
        try:
            return _prove(policy, made, held, handle, implicit_read)
        except BaseException:
            handle.close()
            raise
    except BaseException:
        folder.remove()
        raise


def program(name: str) -> str:
    """Return the path of an installed program of macOS.

    Raises:
        JailUnavailable: the installation is incomplete.
    """
    path = os.path.join(_native.BINARY_DIRECTORY, "bin", name)
    if not os.access(path, os.X_OK):
        raise JailUnavailable(
            f"{path} is missing or may not be executed",
            stage="host",
            fix="reinstall visruntime with pip or uv",
        )
    return path


def _check_caller() -> None:
    if not os.geteuid():
        raise JailUnavailable(
            "macOS maps no ids, so that a root caller's guest would be root",
            stage="host",
            fix="call as an ordinary user",
        )
    if is_sandboxed():
        raise JailUnavailable(
            "this process is in a sandbox already, and macOS lets none enter a second one",
            stage="sandbox around the host",
            fix="leave the outer sandbox; that of a program which was started by it cannot be left",
        )


def _prove(
    policy: JailPolicy,
    made: MacosPlan,
    held: _HeldByFolder,
    handle: MacosJailHandle,
    implicit_read: Sequence[tuple[str, str]],
) -> OpenedJail:
    fixed = fixed_acts(policy, held.folder)
    try:
        answers = handle.try_acts([act for _, act in (*fixed, *made.acts)])
    except _native.NativeError as error:
        raise _public(error, made) from None
    finally:
        held.folder.close_listeners()
    canaries = judge_macos(fixed, made.acts, answers)
    report = make_macos_report(policy, made.plan, held, made.held, canaries, implicit_read)
    return OpenedJail(handle, held, made.plan, report)


def _public(error: _native.NativeError, made: MacosPlan) -> Exception:
    """Turn the failure of the first start into the error that the caller gets."""
    if error.stage == "plan":
        written = made.plan.written
        field = written[error.index].origin if 0 <= error.index < len(written) else "policy"
        return PolicyUnsupported(f"{field}: {error} (back end seatbelt)", field=field)
    return JailUnavailable(
        f"no jail opens: {error} ({error.stage})", stage=error.stage, errno=error.errno, fix=FIX
    )
