"""The flags that make a policy, and how they become one."""

from __future__ import annotations

import os

from visruntime._policy.environment_names import looks_secret
from visruntime._policy.fields import KINDS
from visruntime._policy.links import real_path
from visruntime._policy.paths import escape, resolve_beside
from visruntime._policy.pattern_names import Walked
from visruntime.cli.messages import Refusal, complain
from visruntime.cli.parser import BaseParser
from visruntime.config import ConfigFile, find_configs, narrow_by_config, parse_size
from visruntime.errors import PolicyError
from visruntime.policy import Egress, JailPolicy, Secret

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from visruntime.cli.parser import Options

__all__ = ["Parser", "check_backend", "make_policy", "make_policy_and_files", "seconds"]

LIMIT_FLAGS = (
    ("memory", "SIZE", "memory of all processes together; see --memory-by"),
    ("file-size", "SIZE", "largest file that a guest can write"),
    ("scratch", "SIZE", "room in the private /tmp, HOME and so on"),
    ("output", "SIZE", "output kept of each stream"),
    ("processes", "N", "processes and threads at one time"),
    ("open-files", "N", "open descriptors of each process"),
    ("cpu-seconds", "S", "processor seconds of each process"),
    ("cpus", "X", "processors' worth of time, such as 1.5; needs a cgroup"),
)
REACH_FLAGS = (
    (
        "inbound",
        "PORT[:HOSTPORT]",
        "let HOSTPORT of your loopback lead to PORT of the guest's; left out: any free one",
    ),
    ("host-port", "PORT", "let the guest connect to PORT of your loopback"),
    ("socket", "PATH", "let the guest connect to this AF_UNIX socket"),
    (
        "sensitive-socket",
        "PATH",
        "the same for one that acts in your name (an engine, a bus, a key agent)",
    ),
)
PATH_HELP = {
    "read": "let the guest read and execute P, a file, a tree or a quoted pattern (src/**/*.py)",
    "write": "let the guest read, execute and change P",
    "deny": "close P inside a grant; the most specific path wins",
    "deny_read": "as --deny: what cannot be read can be neither changed nor run",
    "deny_write": "keep P as it is inside a --write",
    "deny_exec": "keep P from being executed; no grant below lifts this",
}


class Parser(BaseParser):
    """A parser with the options that several sub-commands share."""

    def add_policy_flags(self) -> None:
        """Add the flags that all sub-commands with a policy share."""
        self.flag("--policy", metavar="FILE", help="start from this policy file (TOML)")
        for kind in KINDS:
            self.flag(
                f"--{kind.replace('_', '-')}",
                metavar="P",
                action="append",
                default=[],
                help=PATH_HELP[kind],
            )
        self.flag(
            "--absent-deny",
            metavar="broker|wall|error",
            help="what holds a --deny-write of what does not exist: broker, which makes other "
            "names for the guest; wall, which lets no new name be made around it; or nothing",
        )
        self.flag(
            "--strict-globs",
            action="store_true",
            help="refuse a --deny by a pattern that holds only for what exists now",
        )
        self.flag("--system", metavar="minimal|host|none", help="which of the system it sees")
        self.flag(
            "--net",
            metavar="off|proxy|open",
            help="its network; open is the host's, its loopback services too",
        )
        for name, metavar in (
            ("allow", "HOST[:PORT]"),
            ("deny-host", "HOST"),
            ("service", "NAME"),
        ):
            self.flag(
                f"--{name}",
                metavar=metavar,
                action="append",
                default=[],
                help="for a later version; refused today",
            )
        for name, metavar, text in REACH_FLAGS:
            self.flag(f"--{name}", metavar=metavar, action="append", default=[], help=text)
        self.flag(
            "--reveal",
            metavar="P",
            action="append",
            default=[],
            help="show P, which is hidden as a secret inside the grants (keys, .env and the like)",
        )
        self.flag(
            "--cache",
            metavar="P",
            action="append",
            default=[],
            help="at P a folder of this policy's own, kept for its next jails; not what you have there",
        )
        self.flag(
            "--env",
            metavar="NAME[=VALUE]",
            action="append",
            default=[],
            help="give the guest this variable, yours if no value is written",
        )
        for name, metavar, text in LIMIT_FLAGS:
            self.flag(f"--{name}", metavar=metavar, help=text)
        self.flag(
            "--memory-by",
            metavar="cgroup|watch|process",
            help="what bounds the memory: the sum by the kernel, the sum watched, or each process",
        )

    def add_start_flags(self) -> None:
        """Add the flags of the sub-commands that start something."""
        self.flag("--cwd", metavar="DIR", help="where the guest starts")
        self.flag("--timeout", metavar="S", help="kill everything after S seconds")
        self.flag(
            "--backend",
            metavar="auto|namespaces|bubblewrap|landlock",
            default="auto",
            help="what builds the jail; auto takes the first that can enforce the policy",
        )
        self.flag("--report", metavar="FILE", help="write what enforced the policy, as JSON")


def check_backend(options: Options) -> str:
    """Return the back end that *options* choose."""
    backend: str = options.backend
    if backend not in ("auto", "namespaces", "bubblewrap", "landlock"):
        raise Refusal(f"--backend: auto, namespaces, bubblewrap or landlock, not {backend!a}")
    return backend


def make_policy(options: Options) -> JailPolicy:
    """Return the policy that *options* give, narrowed by the policy files found in the cwd.

    A file that is only found may have been written by an earlier guest: it can take away
    from what the user gave, never add, and alone it counts for nothing.
    """
    return make_policy_and_files(options)[0]


def make_policy_and_files(
    options: Options,
) -> tuple[JailPolicy, ConfigFile | None, list[ConfigFile]]:
    """Return what `make_policy` does, the file that was named, and the found ones that count."""
    here = os.getcwd()
    named = _read_policy(options.policy) if options.policy else None
    policy = named.policy() if named is not None else JailPolicy()
    changes = _changes(options, policy, here)
    owner = policy.replace(**changes)
    # All that is asked before the jail opens rests on one look; the jail takes its own.
    owner._set(walked=Walked())
    for name in options.env:
        if name in owner.inherit_env and name not in os.environ:
            complain(f"--env {name}: there is no such variable here, so the guest has none")
    if named is None and not changes:
        _say_ignored(here)
        return owner, None, []
    real = real_path(options.policy) if named is not None else None
    found = [ConfigFile(path) for path in find_configs(here) if real_path(path) != real]
    for file in found:
        owner = narrow_by_config(owner, file)
    used = [path for path in (real, *(file.name for file in found)) if path]
    return _protect(owner, used), named, found


def _read_policy(path: str) -> ConfigFile:
    try:
        return ConfigFile(path)
    except OSError as error:
        raise Refusal(f"--policy {path!a}: cannot be read: {error.strerror}") from None


def _processors(text: str) -> float:
    """Return the positive number of processors in *text*, whose bounds `Limits` checks."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not value > 0:
        raise Refusal(f"--cpus: processors' worth of time above 0, such as 1.5, not {text!a:.60}")
    return value


def seconds(text: str, flag: str) -> float:
    """Return the positive number of seconds in *text*."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 2**31:
        raise Refusal(f"{flag}: a number of seconds above 0, not {text!a}")
    return value


def _say_ignored(here: str) -> None:
    try:
        found = find_configs(here)
    except (PolicyError, OSError):
        found = [os.path.join(here, "pyproject.toml")]
    for path in found:
        name = os.path.basename(path)
        complain(
            f"ignored {name} in this folder: it may only narrow a policy that you give; "
            f"to give it, --policy {name}"
        )


def _protect(policy: JailPolicy, files: list[str]) -> JailPolicy:
    """Keep the guest from rewriting the policy files in use."""
    kept = []
    for file in files:
        real = real_path(file)
        decision = policy.why("write", real)
        if decision and decision.rule is not None and not decision.rule.is_own:
            kept.append(escape(real))
    return policy.replace(deny_write=(*policy.deny_write, *kept)) if kept else policy


def _changes(options: Options, policy: JailPolicy, here: str) -> dict[str, Any]:
    """Return the fields that flags change; lists are added to the policy's."""
    changes: dict[str, Any] = {}
    flags = [(kind, kind, kind.replace("_", "-")) for kind in KINDS]
    flags += [("reveal", "reveal", "reveal"), ("caches", "cache", "cache")]
    flags += [("sockets", "socket", "socket")]
    flags += [("sensitive_sockets", "sensitive_socket", "sensitive-socket")]
    for field, option, flag in flags:
        given = getattr(options, option)
        if given:
            added = [
                resolve_beside(path, here, f"--{flag} {path!a}", pattern=field in KINDS)
                for path in given
            ]
            changes[field] = (*getattr(policy, field), *added)
    if options.service:
        changes["services"] = (*policy.services, *options.service)
    if options.strict_globs:
        changes["strict_globs"] = True
    if options.system:
        changes["system"] = options.system
    if options.absent_deny:
        changes["absent_deny"] = options.absent_deny
    _add_network(options, policy, changes)
    _add_env(options, policy, changes)
    _add_limits(options, policy, changes)
    return changes


def _add_network(options: Options, policy: JailPolicy, changes: dict[str, Any]) -> None:
    hosts = bool(options.allow or options.deny_host)
    mode: Any = options.net or ("proxy" if hosts else None)
    if mode == "proxy":
        before = policy.egress
        changes["egress"] = Egress.proxy(
            allow=(*before.allow, *options.allow), deny=(*before.deny, *options.deny_host)
        )
    elif hosts:
        raise Refusal(f"--allow and --deny-host need --net proxy, not --net {mode}")
    elif mode is not None:
        if mode not in ("off", "open"):
            raise Refusal(f"--net: off, proxy or open, not {mode!a:.60}")
        changes["egress"] = Egress(mode=mode)
    if options.inbound:
        ports = dict(policy.inbound)
        for text in options.inbound:
            port, _, to = text.partition(":")
            ports[_port(port, "--inbound")] = _port(to or "0", "--inbound")
        changes["inbound"] = ports
    if options.host_port:
        added = [_port(text, "--host-port") for text in options.host_port]
        changes["host_ports"] = (*policy.host_ports, *added)


def _port(text: str, flag: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text[:6]) <= 65535):
        raise Refusal(f"{flag}: a port number, not {text!a}")
    return int(text)


def _add_env(options: Options, policy: JailPolicy, changes: dict[str, Any]) -> None:
    """Add --env; naming a secret here is the user's own act, so it is wrapped, not refused."""
    for text in options.env:
        name, equals, value = text.partition("=")
        if not equals and not looks_secret(name):
            changes["inherit_env"] = (*changes.get("inherit_env", policy.inherit_env), name)
            continue
        if not equals:
            if name not in os.environ:
                raise Refusal(f"--env {name}: there is no such variable here; --env {name}=VALUE")
            value = os.environ[name]
        env = changes.setdefault("env", dict(policy.env))
        env[name] = Secret(value) if looks_secret(name) else value


def _add_limits(options: Options, policy: JailPolicy, changes: dict[str, Any]) -> None:
    limits: dict[str, Any] = {}
    for flag, metavar, _ in LIMIT_FLAGS:
        text = getattr(options, flag.replace("-", "_"))
        if text is None:
            continue
        name = flag.replace("-", "_")
        if text == "none" or (flag == "open-files" and text == "auto"):
            limits[name] = None if text == "none" else text
        elif metavar == "SIZE":
            limits[name] = parse_size(text, f"--{flag}")
        elif metavar == "X":
            limits[name] = _processors(text)
        elif text.isascii() and text.isdigit() and len(text) < 20:
            limits[name] = int(text)
        else:
            raise Refusal(f"--{flag}: a whole number, or none for no limit, not {text!a}")
    if options.memory_by is not None:
        limits["memory_by"] = options.memory_by
    if limits:
        changes["limits"] = policy.limits.replace(**limits)
