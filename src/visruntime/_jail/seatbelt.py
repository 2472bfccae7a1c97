"""The back end of macOS: which clauses Seatbelt holds, and the profile of a policy.

Everything here is computed, on every platform; nothing is applied. What a profile says is
decided in C, by the same tree of rules as a plan of Linux.
"""

from __future__ import annotations

from visruntime import _native
from visruntime._policy.links import real_path
from visruntime.errors import JailUnavailable, PolicyUnsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from visruntime.policy import JailPolicy

__all__ = ["ENVIRONMENT", "check_seatbelt", "make_profile", "refused"]

ENVIRONMENT = {"UV_LINK_MODE": "copy"}
"""Set for every guest: no profile allows hard links or clones, by which uv installs."""

NO_SHARES = "macOS bounds no process tree, only single processes"
REFUSED_LIMITS = {
    "memory": f"{NO_SHARES}, and it ignores a process's bound of memory; write memory=None",
    "processes": "macOS counts all processes of the user together; write processes=None",
    "cpus": f"{NO_SHARES}; write cpus=None",
    "scratch": "a jail on macOS has a folder of the host's for its files, which nothing bounds; "
    "write scratch=None",
}

NO_INBOUND = (
    "a jail on macOS has the host's ports, and Seatbelt cannot tell a server on the loopback from "
    "one on every address; let the guest serve a socket in its own folder"
)


def refused(policy: JailPolicy) -> Iterator[tuple[str, str]]:
    """Yield (field, sentence) for each clause of *policy* that Seatbelt cannot hold."""
    for name, why in REFUSED_LIMITS.items():
        if getattr(policy.limits, name) is not None:
            yield f"limits.{name}", why
    if policy.egress.mode == "proxy":
        yield "egress", "the proxy is not built for macOS; Egress.OFF gives no network at all"
    for port in policy.inbound:
        yield f"inbound[{port}]", NO_INBOUND
    for index, name in enumerate(policy.services):
        why = _native.service_refused(name)
        if why:
            yield f"services[{index}]", why
    if policy.caches:
        yield "caches", "private tool caches are not made yet; grant a folder by write="


def make_profile(
    policy: JailPolicy,
    *,
    own: str | None = None,
    terminal: str | None = None,
    hidden: Sequence[str] = (),
    held: Sequence[str] = (),
    ignores_case: bool = True,
) -> tuple[str, dict[str, str]]:
    """Return the Seatbelt profile of *policy* and its parameters by name.

    Args:
        own: the jail's own folder, for HOME, temporary files and sockets of its guests.
        terminal: the device of the run's own terminal.
        hidden: secrets that were found in the grants, which stay closed.
        held: what is denied for writing and does not exist.
        ignores_case: whether names that differ in case only are one name, as on most Macs.

    Raises:
        PolicyUnsupported: a clause, or a path, that Seatbelt cannot hold.
    """
    _refuse(refused(policy))
    # Places of a jail's own and the roots of Linux are not macOS's.
    written = [
        rule
        for rule in policy._assemble(resolve=True, minimal=())
        if rule.origin not in ("system", "private")
    ]
    rules = [(rule.kind, rule.path) for rule in written]
    if policy.system == "host":
        rules.append(("read", "/"))
    rules += [("deny", path) for path in hidden]
    rules += [("deny_write", path) for path in held if ("deny_write", path) not in rules]
    try:
        return _native.macos_profile(
            rules=rules,
            own=own,
            terminal=terminal,
            sockets=[real_path(path) for path in (*policy.sockets, *policy.sensitive_sockets)],
            services=policy.services,
            host_ports=policy.host_ports,
            held=frozenset(held),
            programs=() if policy.system == "none" else tuple(_native.PROGRAMS),
            network_open=policy.egress.mode == "open",
            system=policy.system != "none",
            ignores_case=ignores_case,
        )
    except _native.NativeError as error:
        field = written[error.index].origin if 0 <= error.index < len(written) else "policy"
        raise PolicyUnsupported(f"{field}: {error} (back end seatbelt)", field=field) from None


def check_seatbelt(policy: JailPolicy, backend: str, platform: str) -> None:
    """Refuse a back end of another system.

    Raises:
        PolicyUnsupported: on macOS, a clause that Seatbelt cannot hold.
        JailUnavailable: *backend* does not exist on *platform* (`sys.platform`).
    """
    if platform != "darwin":
        if backend == "seatbelt":
            raise JailUnavailable(
                f"Seatbelt belongs to macOS, and this system is {platform}",
                stage="platform",
                reason="platform",
                fix='use backend="auto"',
            )
        return
    if backend not in ("auto", "seatbelt"):
        raise JailUnavailable(
            f"{backend} belongs to Linux, and this is macOS",
            stage="platform",
            reason="platform",
            fix='use backend="seatbelt"',
        )
    _refuse(refused(policy))
    raise JailUnavailable(
        "Seatbelt's helper is built and not yet connected to Jail",
        stage="platform",
        reason="platform",
        fix="use Linux, or the C library of macOS (doc/seatbelt.md)",
    )


def _refuse(found: Iterator[tuple[str, str]]) -> None:
    """Raise for all clauses at once: with one after the other, each try would show the next."""
    against = list(found)
    if against:
        said = "; ".join(f"{field}: {why}" for field, why in against)
        raise PolicyUnsupported(f"{said} (back end seatbelt)", field=against[0][0])
