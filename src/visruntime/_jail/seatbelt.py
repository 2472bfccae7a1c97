"""The back end of macOS: which clauses Seatbelt holds, and the profile of a policy.

Everything here is computed, on every platform; nothing is applied. What a profile says is
decided in C, by the same tree of rules as a plan of Linux.
"""

from __future__ import annotations

from visruntime._native import NativeError
from visruntime._native.profiles import PROGRAMS, macos_profile, service_refused
from visruntime._policy.links import real_path
from visruntime._policy.platforms import REFUSED, SEATBELT, fields
from visruntime.errors import JailUnavailable, PolicyUnsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from visruntime.policy import JailPolicy

__all__ = ["check_seatbelt", "make_profile", "refuse_unsupported", "refused"]


def refused(policy: JailPolicy) -> Iterator[tuple[str, str]]:
    """Yield (field, sentence) for each clause of *policy* that Seatbelt cannot hold."""
    for row in fields(policy):
        kind, why = SEATBELT[row]
        limit = row.partition("limits.")[2]
        # memory_by says nothing where there is no limit of memory, nor does any other None.
        says = not limit or (limit != "memory_by" and getattr(policy.limits, limit) is not None)
        if kind == REFUSED and row == "inbound":
            for port in policy.inbound:
                yield f"inbound[{port}]", why
        elif kind == REFUSED and says:
            yield row.partition(".proxy")[0], why
    for index, name in enumerate(policy.services):
        why = service_refused(name)
        if why:
            yield f"services[{index}]", why


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
    refuse_unsupported(policy)
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
        return macos_profile(
            rules=rules,
            own=own,
            terminal=terminal,
            sockets=[real_path(path) for path in (*policy.sockets, *policy.sensitive_sockets)],
            services=policy.services,
            host_ports=policy.host_ports,
            held=frozenset(held),
            programs=() if policy.system == "none" else tuple(PROGRAMS),
            network_open=policy.egress.mode == "open",
            system=policy.system != "none",
            ignores_case=ignores_case,
        )
    except NativeError as error:
        field = written[error.index].origin if 0 <= error.index < len(written) else "policy"
        raise PolicyUnsupported(f"{field}: {error} (back end seatbelt)", field=field) from None


def check_seatbelt(backend: str, platform: str) -> None:
    """Refuse a back end of another system than *platform*, which is spelled as ``sys.platform``.

    Raises:
        JailUnavailable: *backend* does not exist on *platform*.
    """
    if platform != "darwin":
        said = f"Seatbelt belongs to macOS, and this system is {platform}"
        fix = 'use backend="auto"'
    elif backend not in ("auto", "seatbelt"):
        said, fix = f"{backend} belongs to Linux, and this is macOS", 'use backend="seatbelt"'
    else:
        return
    raise JailUnavailable(said, stage="platform", reason="platform", fix=fix)


def refuse_unsupported(policy: JailPolicy) -> None:
    """Refuse what Seatbelt cannot hold of *policy*.

    All at once: with one after the other, each try would show the next.

    Raises:
        PolicyUnsupported: naming each clause, with what to do.
    """
    against = list(refused(policy))
    if against:
        said = "; ".join(f"{field}: {why}" for field, why in against)
        raise PolicyUnsupported(f"{said} (back end seatbelt)", field=against[0][0])
