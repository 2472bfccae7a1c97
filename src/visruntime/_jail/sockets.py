"""Grants of single AF_UNIX sockets: what stands there, and what keeps them exact.

A path leads to a socket through every mount. So one tier holds where the guest sees no
folder in which the host could make another socket later (``mount``: what is not there cannot
be reached), and the other one everywhere (``broker``: each connection is judged by a process
in the jail, see native/visjail/linux_broker_connect.c).
"""

from __future__ import annotations

import stat

from visruntime._policy.links import check_links
from visruntime._policy.paths import visible
from visruntime._policy.socket_names import sensitive_by_name, sensitive_by_variable
from visruntime.errors import PolicyError, PolicyUnsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from visruntime._native import Fact
    from visruntime._policy.links import Resolver
    from visruntime.policy import JailPolicy

__all__ = ["MOST_BROKERED", "check_attach", "check_broker", "resolve_sockets", "socket_tier"]

MOST_BROKERED = 256
"""Sockets that the broker of one jail knows (VJ_SOCKETS_MAX of native/visjail/plan.h)."""

NO_ATTACH = "3"
"""kernel.yama.ptrace_scope under which no process may look at another."""


def resolve_sockets(
    policy: JailPolicy, resolver: Resolver, write_grants: Sequence[str]
) -> list[tuple[str, str]]:
    """Return (field, real path) of each granted socket.

    Raises:
        PolicyError: a path at which there is no socket, or a sensitive one in ``sockets``.
    """
    found = []
    for kind in ("sockets", "sensitive_sockets"):
        for index, path in enumerate(getattr(policy, kind)):
            field = f"{kind}[{index}]"
            real = resolver(path)
            check_links(field, path, real, resolver.links[path], write_grants)
            status = resolver.at(real)
            if status is None or not stat.S_ISSOCK(status.st_mode):
                what = "does not exist" if status is None else "is no socket"
                raise PolicyError(
                    f"{field}: {visible(path)} {what}; start its server first: the grant is for "
                    "the socket that is there when the jail opens",
                    field=field,
                    value=path,
                )
            if kind == "sockets":
                _refuse_sensitive(field, path, real)
            found.append((field, real))
    return found


def _refuse_sensitive(field: str, path: str, real: str) -> None:
    behind = sensitive_by_name(real)
    if behind is None:
        variable = sensitive_by_variable(path) or sensitive_by_variable(real)
        behind = f"what {variable} of this process names" if variable else None
    if behind is not None:
        raise PolicyError(
            f"{field}: behind {visible(path)} is {behind}; if the guest may have that, write "
            f"sensitive_sockets=[{path!r}]",
            field=field,
            value=path,
        )


def socket_tier(
    policy: JailPolicy,
    sockets: Sequence[tuple[str, str]],
    rules: Sequence[tuple[str, str, bool, bool]],
    facts: Mapping[str, Fact],
) -> str | None:
    """Return "mount" or "broker", or ``None`` for a policy that grants no socket.

    Only root can make a socket in the folders of ``system="minimal"``, which hold installed
    files; every other folder of the host may get one at any time.
    """
    if not sockets:
        return None
    folders = [
        path
        for kind, path, private, grant in rules
        if kind in ("read", "write") and grant and not private and facts[path][0] == "directory"
    ]
    return "broker" if folders or policy.system == "host" else "mount"


def check_broker(sockets: Sequence[tuple[str, str]]) -> None:
    """Refuse what the broker cannot do on this machine.

    Raises:
        PolicyUnsupported: naming the first clause that needs it.
    """
    field = sockets[0][0]
    fix = "grant no folders in this jail (then mounts alone keep the grant exact)"
    if len(sockets) > MOST_BROKERED:
        raise PolicyUnsupported(
            f"{field}: {len(sockets)} sockets, at most {MOST_BROKERED} beside granted folders",
            field=field,
        )
    check_attach(field, fix)


def check_attach(field: str, fix: str) -> None:
    """Refuse a clause that needs the broker where no process may look at another.

    Raises:
        PolicyUnsupported: naming *field*, and *fix*.
    """
    try:
        with open("/proc/sys/kernel/yama/ptrace_scope", encoding="ascii") as file:
            scope = file.read().strip()
    except OSError:
        return  # no Yama
    if scope == NO_ATTACH:
        raise PolicyUnsupported(
            f"{field}: kernel.yama.ptrace_scope is {scope}, so that nothing may look at what a "
            f"guest asks for; {fix}, or set it to 2 and restart the machine",
            field=field,
        )
