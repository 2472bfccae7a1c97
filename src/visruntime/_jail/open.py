"""Opening a jail by one of the back ends, and proving that it holds.

"auto" takes the first that opens and holds every clause. It finds out by really opening:
nothing is concluded from versions. It goes on to the next where a back end opens no jail on this
machine (`_jail.impossible`). A jail that did not hold is closed and is an error, and so is every
accident; no other back end is tried after that.
"""

from __future__ import annotations

import errno
import os
import sys

from visruntime import _native
from visruntime._host.imports import prepare
from visruntime._jail.backends import BACKENDS, check_caller
from visruntime._jail.canaries import about_path, judge
from visruntime._jail.diagnose import as_public_error, init_path, no_wall, not_looked_at
from visruntime._jail.limits import IDENTITY_ROOT, hold, hold_processes, start_held
from visruntime._jail.plan import make_plan
from visruntime._jail.ports import ports_of
from visruntime._jail.report import make_report
from visruntime.errors import JailUnavailable, PolicyUnsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from visruntime._jail.caches import CacheFolders
    from visruntime._jail.limits import HeldLimits
    from visruntime._jail.plan import JailPlan
    from visruntime._native.macos import MacosJailHandle
    from visruntime.events import EnforcementReport
    from visruntime.policy import JailPolicy

__all__ = ["OpenedJail", "open_jail"]


class OpenedJail:
    """An open jail: its handle, the plan that it was made from, and what enforces it.

    ``held`` is what holds its limits, and ``caches`` the folders of its caches, if it has any; both
    are to be released after the handle is closed.
    """

    __slots__ = ("caches", "handle", "held", "plan", "report")

    def __init__(
        self,
        handle: _native.JailHandle | MacosJailHandle,
        held: HeldLimits,
        plan: JailPlan,
        report: EnforcementReport,
    ) -> None:
        self.handle = handle
        self.held = held
        self.plan = plan
        self.report = report
        self.caches: CacheFolders | None = None


def open_jail(
    policy: JailPolicy,
    backend: str,
    *,
    config_files: Iterable[str] = (),
    implicit_read: Sequence[tuple[str, str]] = (),
    platform: str = sys.platform,
) -> OpenedJail:
    """Open a jail by *backend*, or by the first that can on *platform* for "auto".

    *platform* is what to conclude for; tests name another one.

    Raises:
        PolicyUnsupported: a clause that cannot be enforced, and by "auto" by no back end.
        PolicyError: a path of the policy that does not exist or leads astray.
        JailUnavailable: no jail opens here.
    """
    if platform == "darwin" or backend == "seatbelt":
        from visruntime._jail.seatbelt import check_seatbelt

        check_seatbelt(backend, platform)
        from visruntime._jail.macos_open import open_seatbelt

        return open_seatbelt(policy, config_files=config_files, implicit_read=implicit_read)
    if platform != "linux":
        from visruntime._policy.platforms import check_platform

        check_platform(platform)
    files = tuple(config_files)
    if not policy.caches:
        return _open_by(policy, backend, files, implicit_read, None)
    from visruntime._jail.caches import hold_caches

    caches = hold_caches(policy)
    try:
        opened = _open_by(policy, backend, files, implicit_read, caches)
    except BaseException:
        caches.release()
        raise
    opened.caches = caches
    return opened


def _open_by(
    policy: JailPolicy,
    backend: str,
    files: Sequence[str],
    implicit_read: Sequence[tuple[str, str]],
    caches: CacheFolders | None,
) -> OpenedJail:
    if backend != "auto":
        return _open_with(policy, backend, files, implicit_read, caches)
    first: JailUnavailable | None = None
    others = []
    for name in BACKENDS:
        try:
            return _open_with(policy, name, files, implicit_read, caches)
        except PolicyUnsupported as error:
            if first is None:
                raise  # what the strongest cannot hold, no other can
            others.append(f"{name}: {error}")
        except JailUnavailable as error:
            from visruntime._jail.impossible import is_impossible

            if not is_impossible(error):
                raise
            if first is None:
                first = error
            else:
                others.append(f"{name}: {error}")
    assert first is not None
    said = str(first).removesuffix(f". {first.fix}")
    raise JailUnavailable(
        f"{said} ({'; '.join(others)})", stage=first.stage, errno=first.errno, fix=first.fix
    )


def _open_with(
    policy: JailPolicy,
    backend: str,
    config_files: Sequence[str],
    implicit_read: Sequence[tuple[str, str]],
    caches: CacheFolders | None,
) -> OpenedJail:
    check_caller(backend)

    def open_within(held: HeldLimits) -> tuple[JailPlan, _native.JailHandle]:
        with start_held(held):
            try:
                plan = make_plan(
                    policy,
                    limits=held,
                    implicit_read=implicit_read,
                    config_files=config_files,
                    backend=backend,
                    caches=caches,
                )
            except (OSError, _native.NativeError) as error:
                raise not_looked_at(error) or error from None
            prepare(plan.host_rules, plan.import_places)
            try:
                return plan, _start(plan, held)
            except _native.NativeError as error:
                held.refuse_too_little()
                raise no_wall(error, plan.wall) or as_public_error(error, plan.blob) from None

    held = hold(policy.limits)
    plan, handle = open_within(held)
    try:
        if not held.counts_processes(handle.info):
            counting = hold_processes(policy.limits)
            if counting is not None:
                handle.close()
                held.release()
                held = counting
                plan, handle = open_within(held)
        report = _prove(policy, plan, held, handle, implicit_read)
    except BaseException:
        handle.close()
        held.release()
        raise
    return OpenedJail(handle, held, plan, report)


def _start(plan: JailPlan, held: HeldLimits) -> _native.JailHandle:
    if plan.backend != "bubblewrap":
        return _native.JailHandle(
            init_path(), plan.blob, members=held.members, counters=held.counters
        )
    from visruntime._jail.bubblewrap import find_bubblewrap, follows_links

    path = find_bubblewrap()
    try:
        return _start_bubblewrap(plan, held, path, follows_links=True)
    except _native.NativeError as error:
        # Only asked where it matters: a mount point that a guest can have prepared.
        if error.status != "refused" or "links" not in str(error) or follows_links(path):
            raise
    return _start_bubblewrap(plan, held, path, follows_links=False)


def _start_bubblewrap(
    plan: JailPlan, held: HeldLimits, path: str, *, follows_links: bool
) -> _native.JailHandle:
    try:
        handle = _native.JailHandle(
            init_path(),
            plan.blob,
            members=held.members,
            counters=held.counters,
            bubblewrap=path,
            follows_links=follows_links,
            disables_userns=True,
        )
    except _native.NativeError as error:
        # Before 0.8 it has no such option. The filter refuses user namespaces anyway.
        if error.stage != "bubblewrap" or "userns" not in str(error):
            raise
        return _native.JailHandle(
            init_path(),
            plan.blob,
            members=held.members,
            counters=held.counters,
            bubblewrap=path,
            follows_links=follows_links,
        )
    plan.disables_userns = True
    return handle


def _prove(
    policy: JailPolicy,
    plan: JailPlan,
    held: HeldLimits,
    handle: _native.JailHandle,
    implicit_read: Sequence[tuple[str, str]],
) -> EnforcementReport:
    """Judge what the jail got when it tried what must not be possible."""
    info = handle.info
    if info["identity"] == IDENTITY_ROOT:
        from visruntime._jail.as_root import refuse_as_root

        refuse_as_root(policy, plan)
    held.check_joined(info["pid"])
    canaries = judge(handle.answers, plan.acts, plan.backend)
    broken = [
        f"{canary.name} ({os.strerror(canary.errno) if canary.errno else 'done'})"
        for canary in canaries
        if not canary.held
    ]
    missed = [canary for canary in canaries if not canary.held]
    if missed and all(canary.errno == errno.EMFILE for canary in missed):
        held.refuse_too_few_files()
    if broken or not canaries:
        fix = "please report this with the output of `visruntime doctor --json`"
        if canaries and all(about_path(canary) for canary in canaries if not canary.held):
            fix = (
                "another program that may write there can have moved a folder while the jail "
                f"opened: try again when nothing else changes the grants; if it stays, {fix}"
            )
        raise JailUnavailable(
            f"the jail did not hold: {', '.join(broken) or 'no canary answered'}",
            stage="canaries",
            fix=fix,
        )
    ports = ports_of(policy, handle.ports)
    return make_report(policy, plan, held, info, canaries, implicit_read, ports)
