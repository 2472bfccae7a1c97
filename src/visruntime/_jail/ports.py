"""Single ports between a jail and the loopback of the host, as the plan holds them.

The jail's own processes listen, connect and move the bytes (native/visjail/linux_ports.h);
nothing of it passes through the host's process.
"""

from __future__ import annotations

import errno
import os

from visruntime.errors import JailUnavailable, PolicyError, PolicyUnsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from visruntime.policy import JailPolicy

__all__ = ["MOST_PORTS", "needs_ports", "port_error", "port_operations", "ports_of"]

MOST_PORTS = 64
"""Ports of one jail, both ways together (VJ_PORTS_MAX of native/visjail/plan.h)."""


def needs_ports(policy: JailPolicy) -> bool:
    """Tell whether a jail has ports of its own to serve; with the host's network it has none."""
    return policy.egress.mode != "open" and bool(policy.inbound or policy.host_ports)


def port_operations(policy: JailPolicy) -> list[tuple[str, str, str, int]]:
    """Return the operations of the ports: inbound first, each in the order of the policy.

    Raises:
        PolicyUnsupported: there are more than `MOST_PORTS`.
        PolicyError: a port of the jail that both fields want.
    """
    if not needs_ports(policy):
        return []
    out = list(dict.fromkeys(policy.host_ports))
    if len(policy.inbound) + len(out) > MOST_PORTS:
        field = "inbound" if policy.inbound else "host_ports"
        raise PolicyUnsupported(
            f"{field}: {len(policy.inbound) + len(out)} ports, at most {MOST_PORTS} in one jail",
            field=field,
        )
    for port in out:
        if port in policy.inbound:
            raise PolicyError(
                f"host_ports: {port} in the jail leads to the host, so no guest can listen on it "
                f"for inbound[{port}]; leave one of them out",
                field="host_ports",
                value=port,
            )
    operations = [
        ("INBOUND", f"/inbound[{port}]", "", host << 16 | port)
        for port, host in policy.inbound.items()
    ]
    operations += [("HOST_PORT", f"/host_ports: {port}", "", port << 16 | port) for port in out]
    return operations


def ports_of(policy: JailPolicy, numbers: Sequence[int]) -> dict[int, int]:
    """Return ``jail.ports`` from what listens, in the order of `port_operations`."""
    return dict(zip(policy.inbound, numbers, strict=False)) if needs_ports(policy) else {}


def port_error(label: str, number: int) -> Exception:
    """Return the error for a port that could not be opened; *label* is the operation's path."""
    clause = label.removeprefix("/")
    why = os.strerror(number)
    field = clause.partition(":")[0]
    if number in (errno.EACCES, errno.EPERM):
        return PolicyUnsupported(
            f"{clause}: {why}: no process of a jail may listen on that port of the host, whoever "
            "calls (net.ipv4.ip_unprivileged_port_start); take one from 1024, or 0 for any free "
            "one",
            field=field,
        )
    return JailUnavailable(
        f"cannot open a jail: {clause}: {why}",
        stage="ports",
        errno=number,
        fix="choose another port of the host, or 0 for any free one (see jail.ports)",
    )
