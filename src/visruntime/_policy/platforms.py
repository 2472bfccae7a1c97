"""What each platform makes of each field of a `JailPolicy`: what holds it, or why it is refused.

A column for each platform and a row for each field, ``limits.x`` for each limit. There is no third
answer, and no default: a field without an entry fails `tests/project/test_platform_fields.py`. The
words for what holds a field are those of the report (`EnforcementReport.clauses`).
"""

from __future__ import annotations

from visruntime.errors import JailUnavailable, PolicyUnsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from visruntime.policy import JailPolicy

__all__ = [
    "COLUMNS",
    "HELD",
    "REFUSED",
    "SEATBELT",
    "check_platform",
    "check_worker",
    "fields",
    "platform_name",
    "refuse_mapping",
    "refused",
]

HELD, REFUSED = "held", "refused"


def platform_name(platform: str) -> str:
    """Return the name of a column for *platform*, which is spelled as ``sys.platform`` spells it."""
    return {"darwin": "macos", "win32": "windows"}.get(platform, platform)


LINUX = {
    "absent_deny": (HELD, "creation broker"),
    "caches": (HELD, "mount"),
    "deny": (HELD, "mount"),
    "deny_exec": (HELD, "noexec mount"),
    "deny_read": (HELD, "mount"),
    "deny_write": (HELD, "mount"),
    "egress": (HELD, "seccomp socket families"),
    "egress.proxy": (REFUSED, "the proxy is not built yet"),
    "env": (HELD, "built, not inherited"),
    "host_ports": (HELD, "relay process"),
    "inbound": (HELD, "relay process"),
    "inherit_env": (HELD, "built, not inherited"),
    "limits.cpu_seconds": (HELD, "RLIMIT_CPU"),
    "limits.cpus": (HELD, "cpu"),
    "limits.file_size": (HELD, "RLIMIT_FSIZE"),
    "limits.memory": (HELD, "watch by the keepers"),
    "limits.memory_by": (HELD, "RLIMIT_DATA"),
    "limits.open_files": (HELD, "RLIMIT_NOFILE"),
    "limits.output": (HELD, "host reader"),
    "limits.processes": (HELD, "RLIMIT_NPROC of the user namespace"),
    "limits.scratch": (HELD, "tmpfs size"),
    "limits.wall_seconds": (HELD, "keeper deadline"),
    "read": (HELD, "mount"),
    "reveal": (HELD, "mount"),
    "sensitive_sockets": (HELD, "mount"),
    "services": (REFUSED, "credential and system services are not passed on yet"),
    "sockets": (HELD, "mount"),
    "strict_globs": (HELD, "mount"),
    "system": (HELD, "mount"),
    "write": (HELD, "mount"),
}

NO_TREE = "macOS bounds no tree of processes"
PATHS = "Seatbelt rules on paths"
SEATBELT = {
    "absent_deny": (HELD, PATHS),
    "caches": (REFUSED, "private tool caches are not made on macOS yet; grant a folder by write="),
    "deny": (HELD, PATHS),
    "deny_exec": (HELD, "Seatbelt rules on executing and mapping"),
    "deny_read": (HELD, PATHS),
    "deny_write": (HELD, PATHS),
    "egress": (HELD, "Seatbelt rules on addresses"),
    "egress.proxy": (
        REFUSED,
        "the proxy is not built for macOS; Egress.OFF gives no network at all",
    ),
    "env": (HELD, "built, not inherited"),
    "host_ports": (HELD, "Seatbelt rules on addresses"),
    "inbound": (
        REFUSED,
        (
            "a jail on macOS has the host's ports, and Seatbelt cannot tell a server on the loopback "
            "from one on every address; let the guest serve a socket in its own folder"
        ),
    ),
    "inherit_env": (HELD, "built, not inherited"),
    "limits.cpu_seconds": (HELD, "RLIMIT_CPU"),
    "limits.cpus": (REFUSED, f"{NO_TREE}; write cpus=None"),
    "limits.file_size": (HELD, "RLIMIT_FSIZE"),
    "limits.memory": (
        REFUSED,
        f"{NO_TREE}, and ignores the bound of a process's memory; write memory=None",
    ),
    "limits.memory_by": (REFUSED, "there is no limit of memory; write memory=None"),
    "limits.open_files": (HELD, "RLIMIT_NOFILE"),
    "limits.output": (HELD, "host reader"),
    "limits.processes": (
        REFUSED,
        "macOS counts all processes of the user together; write processes=None",
    ),
    "limits.scratch": (
        REFUSED,
        "a jail's own folder on macOS is one of the host's, which nothing bounds; write scratch=None",
    ),
    "limits.wall_seconds": (HELD, "watcher deadline"),
    "read": (HELD, PATHS),
    "reveal": (HELD, PATHS),
    "sensitive_sockets": (HELD, "Seatbelt rules on sockets"),
    "services": (HELD, "Seatbelt rules on lookups"),
    "sockets": (HELD, "Seatbelt rules on sockets"),
    "strict_globs": (HELD, PATHS),
    "system": (HELD, PATHS),
    "write": (HELD, PATHS),
}
"""What a Seatbelt profile, its helper and its watcher hold."""

LIVE = (
    "a WindowsJail shows no live path of the host: its guest has private copies, by stage(), and the "
    "folders work and temp"
)
NO_DENY = (
    "nothing is taken away by path there: what a guest reaches, the lists of rights (ACLs) say"
)
NO_NETWORK = "its guest has no capability for a network, and none can be given to it"
NO_SOCKETS = "its guest reaches no socket outside of its own folder"
WINDOWS = {
    "absent_deny": (REFUSED, NO_DENY),
    "caches": (REFUSED, LIVE),
    "deny": (REFUSED, NO_DENY),
    "deny_exec": (REFUSED, NO_DENY),
    "deny_read": (REFUSED, NO_DENY),
    "deny_write": (REFUSED, NO_DENY),
    "egress": (REFUSED, NO_NETWORK),
    "egress.proxy": (REFUSED, NO_NETWORK),
    "env": (REFUSED, "give it to WindowsJail.spawn(env=...), which is all that a program gets"),
    "host_ports": (REFUSED, NO_NETWORK),
    "inbound": (REFUSED, NO_NETWORK),
    "inherit_env": (REFUSED, "nothing is inherited; give values to WindowsJail.spawn(env=...)"),
    "limits.cpu_seconds": (REFUSED, "a job counts user time alone, which bounds less"),
    "limits.cpus": (REFUSED, "give WindowsLimits(cpu_share=...) to WindowsJail.spawn"),
    "limits.file_size": (REFUSED, "Windows bounds no size of a file"),
    "limits.memory": (REFUSED, "give WindowsLimits(memory=...) to WindowsJail.spawn"),
    "limits.memory_by": (REFUSED, "WindowsLimits has memory= and process_memory=, both of a job"),
    "limits.open_files": (REFUSED, "Windows bounds no number of handles"),
    "limits.output": (REFUSED, "give max_bytes= to WindowsProcess.communicate"),
    "limits.processes": (REFUSED, "give WindowsLimits(processes=...) to WindowsJail.spawn"),
    "limits.scratch": (REFUSED, "its folders are the disk's, which bounds them alone"),
    "limits.wall_seconds": (REFUSED, "give timeout= to WindowsProcess.wait, and kill"),
    "read": (REFUSED, LIVE),
    "reveal": (REFUSED, LIVE),
    "sensitive_sockets": (REFUSED, NO_SOCKETS),
    "services": (REFUSED, "no service that holds credentials is passed on"),
    "sockets": (REFUSED, NO_SOCKETS),
    "strict_globs": (REFUSED, NO_DENY),
    "system": (REFUSED, "there is no root of its own: what of Windows is readable, ACLs say"),
    "write": (REFUSED, LIVE),
}
"""A `WindowsJail` is not made from a policy: none of its fields is read as something else."""

COLUMNS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "linux": LINUX,
    "macos": SEATBELT,
    "windows": WINDOWS,
}


def fields(policy: JailPolicy) -> list[str]:
    """Return the rows that *policy* says something in, those that differ from the default first."""
    from visruntime.policy import JailPolicy

    default, changed, same = JailPolicy(), [], []
    for name in type(policy).__slots__:
        for row, value, usual in _values(name, getattr(policy, name), getattr(default, name)):
            if value != usual:
                changed.append(row)
            elif value is not None and value is not False and value not in ((), {}):
                same.append(row)
    return changed + same


def _values(name: str, value: object, usual: object) -> list[tuple[str, object, object]]:
    if name == "limits":
        slots = type(value).__slots__  # type: ignore[attr-defined]
        return [
            (f"limits.{limit}", getattr(value, limit), getattr(usual, limit)) for limit in slots
        ]
    if name == "egress" and value.mode == "proxy":  # type: ignore[attr-defined]
        return [("egress.proxy", value, usual)]
    return [(name, value, usual)]


def refused(policy: JailPolicy, platform: str) -> list[tuple[str, str]]:
    """Return (field, reason) for what *policy* asks and the column *platform* refuses."""
    column = COLUMNS[platform]
    return [(row, column[row][1]) for row in fields(policy) if column[row][0] == REFUSED]


def check_platform(platform: str) -> None:
    """Refuse to open a `Jail` where this version has no back end that holds a policy.

    *platform* is spelled as ``sys.platform`` spells it.

    Raises:
        JailUnavailable: ``reason`` is "platform".
    """
    name = platform_name(platform)
    if any(kind == HELD for kind, _ in COLUMNS.get(name, {}).values()):
        return
    fix = "see doc/reference/platforms.md for what was shown where"
    if name == "windows":
        fix = "WindowsJail has programs in private copies of what they need, by methods of its own"
    raise JailUnavailable(
        f"no JailPolicy can be enforced on {name}, and none is weakened to what can be",
        stage="platform",
        reason="platform",
        fix=fix,
    )


def check_worker(platform: str) -> None:
    """Refuse a Python worker, and what rests on one, where this version has none.

    *platform* is spelled as ``sys.platform`` spells it.

    Raises:
        JailUnavailable: ``reason`` is "platform".
    """
    if platform == "darwin":
        raise JailUnavailable(
            "the Python worker is not built for macOS",
            stage="platform",
            reason="platform",
            fix="run a Python program by Jail.run",
        )


def refuse_mapping(policy: JailPolicy) -> PolicyUnsupported:
    """Return the error for *policy* where a `WindowsJail` was to be made of it."""
    found = refused(policy, "windows")
    listed = "; ".join(f"{field}: {why}" for field, why in found)
    return PolicyUnsupported(
        f"a WindowsJail is not made from a JailPolicy, of which it would hold another: {listed}",
        field=found[0][0],
    )
