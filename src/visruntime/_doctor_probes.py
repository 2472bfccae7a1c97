"""The probes behind `doctor`: each opens a real jail, and most try a forbidden act in it.

A clause is offered to `Jail` as a policy would: what it refuses is unavailable, with its
own words, so that nothing here has to know what is built or what this kernel has.
"""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack, closing, contextmanager

from visruntime._jail.diagnose import apparmor_profile
from visruntime._jail.making import make_file, make_folder
from visruntime._packages.trial_folder import trial_folder
from visruntime._policy.fields import MAX_SOCKET_BYTES
from visruntime.doctor import Finding
from visruntime.errors import JailUnavailable, VisRuntimeError
from visruntime.jail import Jail
from visruntime.policy import Egress, JailPolicy, Limits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

__all__ = ["examine"]

LANDLOCK_WITH_SCOPES = 6
PROGRAM_TIMEOUT_SECONDS = 10
MEMORY_LIMIT = 64 * 1024**2
MEMORY_TRIED = 256 * 1024**2
"""What a program tries to hold under `MEMORY_LIMIT`, in bytes."""

LOAD_PROFILE = "visruntime doctor --apparmor | sudo apparmor_parser --replace"


def examine() -> tuple[str, tuple[Finding, ...], str]:
    """Return the back end ("none" if no jail opens), the findings, and an AppArmor profile."""
    probe = "open a jail with the default policy"
    try:
        jail = Jail(JailPolicy())
    except VisRuntimeError as error:
        restricted = _kernel_setting("apparmor_restrict_unprivileged_userns") == "1"
        finding = Finding(
            "jail",
            "jail",
            "unavailable",
            detail=str(error),
            probe=probe,
            errno=getattr(error, "errno", None),
            fix=LOAD_PROFILE if restricted else getattr(error, "fix", ""),
        )
        return "none", (finding,), apparmor_profile() if restricted else ""
    with jail:
        backend = str(jail.report.backend)
        opened = Finding("jail", "jail", "enforced", detail=backend, probe=probe)
        findings = (
            opened,
            _identity(jail),
            _landlock(jail),
            *_canaries(jail),
            *_files(),
            _terminal(jail),
            _worker(),
            *_limits(jail),
            *_clauses(),
            *_backends(),
        )
    return backend, findings, ""


def _kernel_setting(name: str) -> str:
    try:
        with open(f"/proc/sys/kernel/{name}", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def _identity(jail: Jail) -> Finding:
    less = os.geteuid() == 0 and "without capabilities" in jail.report.identity
    return Finding(
        "identity",
        "identity of the guest",
        "degraded" if less else "enforced",
        detail=jail.report.identity,
        probe="mount the grants id-mapped" if os.geteuid() == 0 else "map the caller's own uid",
        fix="call as an ordinary user" if less else "",
    )


def _landlock(jail: Jail) -> Finding:
    layers = [name for name in jail.report.mechanisms("system") if name.startswith("landlock")]
    abi = int(layers[0].rpartition("-")[2]) if layers else 0
    name, probe = "second layer (Landlock)", "restrict a program by Landlock"
    if abi >= LANDLOCK_WITH_SCOPES:
        return Finding("landlock", name, "enforced", detail=f"ABI {abi}", probe=probe)
    if abi:
        return Finding(
            "landlock",
            name,
            "degraded",
            detail=f"ABI {abi}: files only, signals between runs are not kept apart",
            probe=probe,
            fix="Linux 6.12 brings ABI 6",
        )
    return Finding(
        "landlock",
        name,
        "unavailable",
        detail="this kernel has none: file clauses rest on mounts alone",
        probe=probe,
        fix="boot with landlock in the lsm= list (Linux 5.13)",
    )


def _canaries(jail: Jail) -> Iterator[Finding]:
    for canary in jail.report.canaries:
        yield Finding(
            f"canary.{canary.name.lower().replace(' ', '-').replace('/', '')}",
            f"cannot {canary.name}",
            "enforced",
            detail=os.strerror(canary.errno),
            probe=canary.name,
            errno=canary.errno,
        )


# ---- files -------------------------------------------------------------------


FILE_ACTS: tuple[tuple[str, str, str, Callable[[Jail, str], object]], ...] = (
    ("files.not_granted", "files that are not granted", "read a file beside the grants",
     lambda jail, top: jail.read_bytes(f"{top}/elsewhere/file")),
    ("files.read", "a read grant is not changed", "write to a file of a read grant",
     lambda jail, top: jail.write_bytes(f"{top}/grant/file", b"x")),
    ("files.deny", "a deny inside a grant", "read a denied file in a write grant",
     lambda jail, top: jail.read_bytes(f"{top}/work/secret")),
    ("files.deny_write", "a deny of writing", "write to a kept file in a write grant",
     lambda jail, top: jail.write_bytes(f"{top}/work/kept", b"x")),
    ("files.deny_exec", "a deny of execution", "execute a program in a write grant",
     lambda jail, top: jail.run([f"{top}/work/tool"], timeout=PROGRAM_TIMEOUT_SECONDS)),
)  # fmt: skip
"""What must be refused: key, name, what it is, and the act in the folder that was made for it."""


def _files() -> tuple[Finding, ...]:
    """Try the file clauses on files that this process itself can read, change and run."""
    try:
        with trial_folder() as top:
            _make_files(top)
            return tuple(_try_files(top))
    except JailUnavailable as error:
        return tuple(_refused(key, name, probe, error) for key, name, probe, _ in FILE_ACTS)


def _make_files(top: str) -> None:
    with ExitStack() as end:
        outer = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        end.callback(os.close, outer)
        for name in ("grant", "work", "elsewhere"):
            inner = make_folder(name, outer)
            end.callback(os.close, inner)
            for file in ("file", "secret", "kept", "tool"):
                make_file(file, inner, b"#!/bin/sh\n", 0o700)


def _try_files(top: str) -> Iterator[Finding]:
    policy = JailPolicy(
        read=[f"{top}/grant"],
        write=[f"{top}/work"],
        deny=[f"{top}/work/secret"],
        deny_write=[f"{top}/work/kept"],
        deny_exec=[f"{top}/work/tool"],
    )
    try:
        jail = Jail(policy)
    except VisRuntimeError as error:
        for key, name, probe, _ in FILE_ACTS:
            yield _refused(key, name, probe, error, top)
        return
    with jail:
        for key, name, probe, act in FILE_ACTS:
            yield _forbidden(key, name, probe, act, jail, top)


def _forbidden(
    key: str, name: str, probe: str, act: Callable[[Jail, str], object], jail: Jail, top: str
) -> Finding:
    """Try an act that must be refused."""
    try:
        act(jail, top)
    except OSError as error:
        detail = os.strerror(error.errno) if error.errno else str(error)
        return Finding(key, name, "enforced", detail=detail, probe=probe, errno=error.errno)
    return Finding(key, name, "unavailable", detail="the act succeeded", probe=probe)


def _refused(key: str, name: str, probe: str, error: Exception, folder: str = "") -> Finding:
    """Return what a refusal says, without the name of the folder that the probe made."""
    detail = str(error).replace(folder, "FOLDER") if folder else str(error)
    return Finding(
        key,
        name,
        "unavailable",
        detail=detail,
        probe=probe,
        errno=getattr(error, "errno", None),
        fix=getattr(error, "fix", ""),
    )


# ---- programs ----------------------------------------------------------------


def _terminal(jail: Jail) -> Finding:
    key, probe = "terminal", "run tty on a terminal of the jail"
    try:
        with jail.spawn(["tty"], pty=True, timeout=PROGRAM_TIMEOUT_SECONDS) as process:
            shown, _ = process.communicate()
    except (VisRuntimeError, OSError) as error:
        detail = f"pty_unavailable: {error}"
        return Finding(key, "terminal", "unavailable", detail=detail, probe=probe)
    if b"/dev/pts/" not in shown:
        return Finding(key, "terminal", "unavailable", detail="pty_unavailable", probe=probe)
    return Finding(key, "terminal", "enforced", detail="its own devpts", probe=probe)


def _worker() -> Finding:
    from visruntime.runtime import Runtime

    key, name, probe = "python", "Python worker", "run 1+1 in a jailed Python worker"
    fix = "give another interpreter by python="
    try:
        with Runtime(JailPolicy()) as runtime:
            value = runtime.run("1+1").value
    except (VisRuntimeError, OSError) as error:
        return Finding(key, name, "unavailable", detail=str(error), probe=probe, fix=fix)
    if value != 2:
        return Finding(key, name, "unavailable", detail="it answered wrongly", probe=probe)
    return Finding(key, name, "enforced", detail="this interpreter, jailed", probe=probe)


# ---- limits ------------------------------------------------------------------


def _limits(jail: Jail) -> Iterator[Finding]:
    for clause in jail.report.clauses:
        if clause.clause.startswith("limits."):
            held = bool(clause.mechanisms)
            yield Finding(
                clause.clause,
                clause.clause.replace(".", " on ").replace("_", " "),
                "enforced" if held else "degraded",
                detail=_by(clause.mechanisms, clause.bound) if held else clause.note,
                probe="open a jail with the default limit",
                fix="" if held else "call as an ordinary user",
            )
    for way, name in (
        ("cgroup", "memory of a whole tree, by the kernel"),
        ("watch", "memory of a whole tree, watched"),
        ("process", "memory of each process"),
    ):
        yield _memory(way, name)
    yield _clause("limits.cpus", "a share of the processors", {"limits": Limits(cpus=1)})


def _by(mechanisms: tuple[str, ...], bound: str | None) -> str:
    by = ", ".join(mechanisms) or "takes a rule away, so nothing has to enforce it"
    return by + (f"; bound: {bound}" if bound else "")


def _memory(way: Any, name: str) -> Finding:
    """Let a program try to hold more than it may."""
    key = f"limits.memory_by_{way}"
    probe = f"hold {MEMORY_TRIED >> 20} MiB under a limit of {MEMORY_LIMIT >> 20} MiB"
    script = f"head -c {MEMORY_TRIED} /dev/zero | tail -c {MEMORY_TRIED} >/dev/null"
    try:
        with Jail(JailPolicy(limits=Limits(memory=MEMORY_LIMIT, memory_by=way))) as jail:
            result = jail.run(["/bin/sh", "-c", script], timeout=PROGRAM_TIMEOUT_SECONDS)
            clauses = [c for c in jail.report.clauses if c.clause == "limits.memory"]
    except (VisRuntimeError, OSError) as error:
        return _refused(key, name, probe, error)
    if result.exit_code == 0 and result.stopped_by is None:
        return Finding(key, name, "unavailable", detail="the program held it", probe=probe)
    by = _by(clauses[0].mechanisms, clauses[0].bound) if clauses else ""
    return Finding(key, name, "enforced", detail=by, probe=probe)


# ---- clauses that some machines and versions cannot enforce --------------------


CLAUSES: tuple[tuple[str, str, Mapping[str, Any]], ...] = (
    ("egress.open", "the host's network", {"egress": Egress.OPEN}),
    ("egress.proxy", "egress through a proxy",
     {"egress": Egress.proxy(allow=["service.test:443"])}),
    ("inbound", "a port of the jail on the host's loopback", {"inbound": {8000: 0}}),
    ("host_ports", "one port of the host's loopback", {"host_ports": [9]}),
    ("system.host", "the whole host, read-only", {"system": "host"}),
    ("caches", "private tool caches", {"caches": ["/home/user/.cache/doctor"]}),
    ("services", "credential and system services", {"services": ["ssh"]}),
)  # fmt: skip
"""Key, name and fields of what is tried without a file."""


def _clauses_on_files(top: str) -> tuple[tuple[str, str, Mapping[str, Any]], ...]:
    """Return the same of what is tried in a folder that `_things` has filled."""
    folder = f"{top}/folder"
    return (
        ("sockets", "one AF_UNIX socket of the host", {"sockets": [f"{top}/socket"]}),
        ("sockets.folder", "the same beside a granted folder",
         {"sockets": [f"{top}/socket"], "write": [folder]}),
        ("deny_write.absent", "a denied name that does not exist yet",
         {"write": [folder], "deny_write": [f"{folder}/absent"]}),
        ("deny.pattern", "a deny by pattern",
         {"write": [folder], "deny": [f"{folder}/*.absent"]}),
        ("reveal", "secret paths lifted one by one", {"reveal": [f"{folder}/file"]}),
    )  # fmt: skip


def _clauses() -> Iterator[Finding]:
    for key, name, fields in CLAUSES:
        yield _clause(key, name, fields)
    try:
        with _things() as top:
            for key, name, fields in _clauses_on_files(top):
                if "sockets" in fields and len(os.fsencode(f"{top}/socket")) > MAX_SOCKET_BYTES:
                    yield _refused(key, name, _probe_of(key), _too_long_for_a_socket())
                else:
                    yield _clause(key, name, fields, top)
    except JailUnavailable as error:
        for key, name, _ in _clauses_on_files("/"):
            yield _refused(key, name, _probe_of(key), error)


@contextmanager
def _things() -> Iterator[str]:
    """Make a folder that holds a ``folder`` with a file, and a ``socket`` that listens."""
    with trial_folder() as top, closing(socket.socket(socket.AF_UNIX)) as listener:
        outer = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            inner = make_folder("folder", outer)
            try:
                make_file("file", inner, b"")
            finally:
                os.close(inner)
            # The address of a socket has room for a short path only.
            listener.bind(f"/proc/self/fd/{outer}/socket")
        finally:
            os.close(outer)
        listener.listen()
        yield top


def _too_long_for_a_socket() -> JailUnavailable:
    return JailUnavailable(
        f"the address of a socket has {MAX_SOCKET_BYTES} bytes, fewer than its path in the state "
        "folder would need",
        stage="state folder",
        fix="set XDG_CACHE_HOME to a shorter path",
    )


def _clause_of(key: str) -> str:
    """Return the clause of the report that *key* is about: each limit has one of its own."""
    return key if key.startswith("limits.") else key.partition(".")[0]


def _probe_of(key: str) -> str:
    return f"open a jail with {_clause_of(key)}= and run a program"


def _clause(key: str, name: str, fields: Mapping[str, Any], folder: str = "") -> Finding:
    """Open a jail with one clause, and run a program in it.

    Once more where it is refused: files of the host that come and go while a jail opens are
    no property of the machine.
    """
    first = _try_clause(key, name, fields, folder)
    return first if first.state == "enforced" else _try_clause(key, name, fields, folder)


def _try_clause(key: str, name: str, fields: Mapping[str, Any], folder: str) -> Finding:
    clause, probe = _clause_of(key), _probe_of(key)
    try:
        with Jail(JailPolicy(**fields)) as jail:
            result = jail.run(["true"], timeout=PROGRAM_TIMEOUT_SECONDS)
            found = [c for c in jail.report.clauses if c.clause.partition("[")[0] == clause]
    except (VisRuntimeError, OSError) as error:
        return _refused(key, name, probe, error, folder)
    if result.exit_code != 0:
        return Finding(key, name, "unavailable", detail="the program did not run", probe=probe)
    by = _by(found[0].mechanisms, found[0].bound) if found else "the jail opened"
    return Finding(key, name, "enforced", detail=by, probe=probe)


def _limits_for(backend: str) -> Limits:
    """Return the limits that *backend* can hold: Landlock makes no place and no namespace."""
    return Limits(processes=None, scratch=None) if backend == "landlock" else Limits()


def _backends() -> Iterator[Finding]:
    for backend in ("bubblewrap", "landlock"):
        key, name = f"backend.{backend}", f"back end {backend}"
        probe = f"open a jail by {backend} and run a program"
        try:
            with Jail(JailPolicy(limits=_limits_for(backend)), backend=backend) as jail:
                result = jail.run(["true"], timeout=PROGRAM_TIMEOUT_SECONDS)
        except (VisRuntimeError, OSError) as error:
            yield _refused(key, name, probe, error)
            continue
        held = result.exit_code == 0
        yield Finding(
            key,
            name,
            "enforced" if held else "unavailable",
            detail=f"{len(jail.report.canaries)} canaries held" if held else "nothing ran",
            probe=probe,
        )
