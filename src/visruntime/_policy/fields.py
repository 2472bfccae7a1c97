"""The fields of a policy: what each may be, as the constructor gets it and as files write it."""

from __future__ import annotations

import os
from types import MappingProxyType

from visruntime._arguments import check_path
from visruntime._policy.paths import (
    FORBIDDEN_GRANTS,
    _short,
    has_glob,
    is_within,
    normalise,
    resolve_beside,
    visible,
)
from visruntime._policy.patterns import check_pattern, parse
from visruntime._policy.socket_names import sensitive_by_name
from visruntime._policy.values import Egress, Limits, check_field_list
from visruntime.errors import PolicyError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, NoReturn

    from visruntime._policy.patterns import Pattern

__all__ = [
    "ABSENT_DENIES",
    "KINDS",
    "MAX_NAMES",
    "MAX_RULES",
    "MAX_SOCKET_BYTES",
    "PATH_FIELDS",
    "check_inbound",
    "check_known",
    "check_paths",
    "check_ports",
    "check_rules",
    "check_services",
    "check_sockets",
    "fields_from_dict",
    "refuse",
]

MAX_RULES = 10_000
"""Most paths in all rule fields of a policy together."""
MAX_NAMES = 1000
"""Most entries in each of the other lists of a policy."""
MAX_SOCKET_BYTES = 107
"""Longest path of an AF_UNIX socket, in bytes (``sun_path`` without its end)."""

ABSENT_DENIES = ("broker", "wall", "error")
"""Values of ``absent_deny``, the one that lets a guest do most first."""

KINDS = ("read", "write", "deny", "deny_read", "deny_write", "deny_exec")
"""The kinds of rules; each is also the name of its field."""

PATH_FIELDS = (*KINDS, "reveal", "caches", "sockets", "sensitive_sockets")
"""The fields that are lists of paths; in a file, relative ones start at its folder."""


def fields_from_dict(
    data: Mapping[str, Any], *, folder: str | os.PathLike[str] | None = None
) -> dict[str, Any]:
    """Return the fields that plain *data* gives, as the constructor takes them.

    Raises:
        PolicyError: for an unknown key, a secret's marker, or a value of the wrong shape.
    """
    if not hasattr(data, "keys"):
        refuse("policy", data, "a table of fields and values")
    check_known(data)
    fields = dict(data)
    if folder is not None:
        folder = check_path(folder, "folder")
        for name in PATH_FIELDS:
            if name in fields:
                fields[name] = [
                    resolve_beside(path, folder, f"{name}[{index}]", pattern=name in KINDS)
                    for index, path in enumerate(check_field_list(fields[name], name))
                ]
    if "egress" in fields:
        fields["egress"] = _egress_from_plain(fields["egress"])
    if "limits" in fields and not isinstance(fields["limits"], Limits):
        _check_table("limits", fields["limits"])
        fields["limits"] = Limits().replace(**fields["limits"])
    if "inbound" in fields:
        _check_table("inbound", fields["inbound"])
        fields["inbound"] = {
            int(port) if isinstance(port, str) and port.isascii() and port.isdigit() else port: to
            for port, to in fields["inbound"].items()
        }
    if "env" in fields:
        _check_table("env", fields["env"])
        for name, value in fields["env"].items():
            if isinstance(value, dict):
                raise PolicyError(
                    f"env[{name!r}]: the value of a secret is never stored; leave it out and "
                    f'add it with .replace(env={{"{name}": vr.Secret(...)}})',
                    field=f"env[{name!r}]",
                )
    return fields


def _egress_from_plain(value: object) -> Egress:
    if isinstance(value, Egress):
        return value
    table: Any = {"mode": value} if isinstance(value, str) else value
    _check_table("egress", table)
    for key in table:
        if key not in ("mode", "allow", "deny"):
            refuse(f"egress.{visible(str(key))}", table[key], "only mode, allow and deny")
    return Egress(**({"mode": "proxy"} | table))


def check_known(fields: Mapping[str, object]) -> None:
    """Refuse a name that is no field of a policy."""
    from visruntime.policy import JailPolicy

    for name in fields:
        if name not in JailPolicy.__slots__:
            raise PolicyError(
                f"{visible(str(name))}: there is no such policy field; there are "
                + ", ".join(JailPolicy.__slots__),
                field=str(name),
                value=fields[name],
            )


def _check_table(field: str, value: object) -> None:
    if not isinstance(value, dict) or not all(isinstance(key, (str, int)) for key in value):
        refuse(field, value, "a table (names and values)")


def refuse(field: str, value: object, wanted: str) -> NoReturn:
    """Raise the PolicyError for *value*, of which *wanted* would have been right."""
    raise PolicyError(
        f"{field}: {wanted}; not {type(value).__name__} {_short(value)}", field=field, value=value
    )


def check_paths(field: str, values: object, most: int) -> tuple[str, ...]:
    paths = check_field_list(values, field)
    if len(paths) > most:
        raise PolicyError(f"{field}: {len(paths)} entries, at most {most}", field=field)
    return tuple(normalise(path, f"{field}[{index}]") for index, path in enumerate(paths))


def check_rules(
    given: Mapping[str, object],
) -> tuple[dict[str, tuple[str, ...]], Mapping[str, Pattern]]:
    """Return the rule fields as tuples of normalised paths, and which of those are patterns."""
    rules = {kind: check_paths(kind, values, MAX_RULES) for kind, values in given.items()}
    total = sum(map(len, rules.values()))
    if total > MAX_RULES:
        raise PolicyError(f"{total} rules, and a policy has at most {MAX_RULES}", field="rules")
    patterns = {}
    for kind, paths in rules.items():
        for index, path in enumerate(paths):
            if has_glob(path):
                check_pattern(f"{kind}[{index}]", path)
                patterns[path] = parse(path)
    for kind in ("read", "write"):
        for index, path in enumerate(rules[kind]):
            field = f"{kind}[{index}]"
            top = patterns[path].fixed if path in patterns else path
            if top == "/":
                fix = 'system="host"' if kind == "read" else "the folders that it really needs"
                refuse(field, path, f"the whole root is not granted like this; write {fix}")
            if top.startswith(FORBIDDEN_GRANTS) and any(
                is_within(top, tree) for tree in FORBIDDEN_GRANTS
            ):
                refuse(field, path, "nothing in /proc, /dev or /sys; a jail has its own")
    return rules, MappingProxyType(patterns)


def check_sockets(field: str, values: object) -> tuple[str, ...]:
    paths = check_paths(field, values, MAX_NAMES)
    for index, path in enumerate(paths):
        if len(os.fsencode(path)) > MAX_SOCKET_BYTES:
            refuse(f"{field}[{index}]", path, f"at most {MAX_SOCKET_BYTES} bytes")
        behind = sensitive_by_name(path) if field == "sockets" else None
        if behind is not None:
            raise PolicyError(
                f"{field}[{index}]: behind {visible(path)} is {behind}; if the guest may have "
                f"that, write sensitive_sockets=[{path!r}]",
                field=f"{field}[{index}]",
                value=path,
            )
    return paths


def check_services(values: object) -> tuple[str, ...]:
    services = check_field_list(values, "services")
    if len(services) > MAX_NAMES:
        raise PolicyError(f"services: {len(services)} names, at most {MAX_NAMES}", field="services")
    for index, name in enumerate(services):
        plain = isinstance(name, str) and 0 < len(name) <= 255 and name.isascii()
        if not plain or not all(c.isalnum() or c in "-._:/@" for c in name):
            refuse(f"services[{index}]", name, "the name of a service")
    return services


def _check_port(field: str, value: object, lowest: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= 65535:
        refuse(field, value, f"a port, {lowest} to 65535")


def check_ports(field: str, values: object) -> tuple[int, ...]:
    ports = check_field_list(values, field)
    if len(ports) > MAX_NAMES:
        raise PolicyError(f"{field}: {len(ports)} ports, at most {MAX_NAMES}", field=field)
    for index, port in enumerate(ports):
        _check_port(f"{field}[{index}]", port, 1)
    return ports


def check_inbound(value: Any) -> Mapping[int, int]:
    if not hasattr(value, "keys"):
        refuse("inbound", value, "a mapping of jail ports to host ports, such as {8000: 0}")
    ports = dict(value)
    if len(ports) > MAX_NAMES:
        raise PolicyError(f"inbound: {len(ports)} ports, at most {MAX_NAMES}", field="inbound")
    for port, to in ports.items():
        _check_port("inbound", port, 1)
        _check_port(f"inbound[{port}]", to, 0)
    return MappingProxyType({port: ports[port] for port in sorted(ports)})
