"""What to paste into a policy or a command line, so that something is allowed."""

from __future__ import annotations

from visruntime._policy.paths import FORBIDDEN_GRANTS, escape, is_within
from visruntime._policy.values import Grant

TYPE_CHECKING = False
if TYPE_CHECKING:
    from visruntime._policy.values import Limits

__all__ = [
    "grant_hosts",
    "grant_limit",
    "grant_path",
    "grant_ports",
    "grant_reveal",
    "grant_socket",
]

LIMIT_FLAGS = (
    "memory",
    "file_size",
    "scratch",
    "output",
    "processes",
    "open_files",
    "cpu_seconds",
    "cpus",
)
"""The limits that have a flag of their own name."""


def grant_path(right: str, path: str) -> Grant | None:
    """Return the grant of *right* ("read", "write" or "exec") on a path, if one can be given."""
    if path == "/" or any(is_within(path, tree) for tree in FORBIDDEN_GRANTS):
        return None
    field = "write" if right == "write" else "read"
    path = escape(path)  # a guest may have chosen the name, so it must not grant others
    return Grant(python=f"{field}=[{path!r}]", cli=f"--{field} {_word(path)}")


def grant_reveal(path: str) -> Grant:
    """Return what lifts the secret at *path*, as far as it is granted."""
    return Grant(python=f"reveal=[{path!r}]", cli=f"--reveal {_word(path)}")


def grant_hosts(host: str, port: int) -> Grant:
    """Return the grant of a connection to one host by name."""
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return Grant(python=f"egress=vr.Egress.proxy(allow=[{where!r}])", cli=f"--allow {_word(where)}")


def grant_ports(port: int) -> Grant:
    """Return the grant of one port of the host's loopback."""
    return Grant(python=f"host_ports=[{port}]", cli=f"--host-port {port}")


def grant_socket(path: str, field: str) -> Grant:
    """Return the grant of one AF_UNIX socket by *field*, "sockets" or "sensitive_sockets".

    For the second no flag is offered for pasting: who gives that away writes it himself.
    """
    flag = f"--socket {_word(path)}" if field == "sockets" else ""
    return Grant(python=f"{field}=[{path!r}]", cli=flag)


def grant_limit(limits: Limits, name: str) -> Grant | None:
    """Return a grant of twice as much, ``None`` if *name* is not limited."""
    limit = getattr(limits, name, None)
    if not isinstance(limit, (int, float)):
        return None
    more = f"{limit * 2:g}" if isinstance(limit, float) else str(limit * 2)
    flag = f"--{name.replace('_', '-')} {more}" if name in LIMIT_FLAGS else ""
    by = f", memory_by={limits.memory_by!r}" if name == "memory" else ""
    by_flag = f" --memory-by {limits.memory_by}" if name == "memory" else ""
    return Grant(python=f"limits=vr.Limits({name}={more}{by})", cli=f"{flag}{by_flag}")


def _word(text: str) -> str:
    """Quote *text* for a shell; what cannot be seen is written by its escape."""
    import shlex

    if text.isprintable():
        return shlex.quote(text)
    escaped = "".join(_escape(c) for c in text)
    return f"$'{escaped}'"


def _escape(character: str) -> str:
    if character in "'\\":
        return "\\" + character
    if character.isprintable():
        return character
    data = character.encode("utf-8", "surrogateescape")
    return "".join(f"\\x{byte:02x}" for byte in data)
