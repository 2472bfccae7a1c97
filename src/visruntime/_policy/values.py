"""The values that a policy is made of: limits, egress, secrets, rules and decisions.

All are frozen, checked on creation, hashable and comparable. ``__slots__`` are written by
hand because importing ``dataclasses`` would cost more than starting an interpreter.
"""

from __future__ import annotations

from visruntime._arguments import check_list
from visruntime._policy.paths import _short, visible
from visruntime.errors import PolicyError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any, ClassVar, Literal, NoReturn, Self

    from visruntime._policy.pattern_names import Walked
    from visruntime._policy.patterns import Pattern

__all__ = [
    "Decision",
    "Egress",
    "Frozen",
    "Grant",
    "Limits",
    "Rule",
    "Secret",
    "Unasked",
    "Unsaid",
    "check_field_list",
]

GIB = 1024**3
MIB = 1024**2
MAX_BYTES = 2**60
"""Largest size that a limit can hold, in bytes; far above any machine, safe in 64 bits."""
MAX_PROCESSES = 2**22
"""Linux has at most this many process ids."""
MAX_SECONDS = 2**31
"""Longest time of a limit, in seconds (68 years)."""
MAX_OPEN_FILES = 2**30
MAX_CPUS = 4096
MAX_HOSTS = 1000
"""Most hosts in one list of an `Egress`."""
MAX_HOST_CHARACTERS = 253


class Frozen:
    """Give a class with ``__slots__`` equality, a hash, pickling, and no assignment."""

    __slots__ = ()

    def _values(self) -> tuple[Any, ...]:
        return tuple(self._named().values())

    def _named(self) -> dict[str, Any]:
        names: tuple[str, ...] = tuple(type(self).__slots__)
        return {name: getattr(self, name) for name in names}

    def _set(self, **values: object) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is frozen: cannot set {name}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is frozen: cannot delete {name}")

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return bool(self._values() == other._values())

    def __hash__(self) -> int:
        return hash((type(self), self._values()))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), self._named())

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self._named().items())
        return f"{type(self).__name__}({shown})"


class Unsaid(Frozen):
    """What a `JailPolicy` remembers but does not say.

    ``files`` is where it was read from, ``patterns`` has those of its paths that are written
    as patterns. ``owners`` has, for each grant that `narrow` made, the (uid, gid) in whose
    name the guest of a root caller reads it, ``None`` for nobody's: a file that narrows a
    policy gives no other identity than its owner gave.

    ``found`` has those of its patterns that only a file says which was found and not named:
    a guest may have written it, so what looking for them may cost is bounded more tightly.

    ``plans`` are those of jails that it opened, for `visruntime._jail.remembered`, and ``searched``
    what `visruntime._jail.bound_sockets` did not find.

    ``walked`` is what the command line has seen of its patterns' names, so that it looks once for
    all that it asks before the jail opens; ``None`` elsewhere.

    Not compared, not in the digest, not in `to_dict`. A jail keeps the files from its guests:
    what they say next time is for the owner to write.
    """

    __slots__ = ("files", "found", "owners", "patterns", "plans", "searched", "walked")
    files: tuple[str, ...]
    found: frozenset[str]
    owners: Mapping[str, tuple[int, int] | None]
    patterns: Mapping[str, Pattern]
    plans: dict[tuple[object, ...], Any]
    searched: dict[tuple[object, ...], frozenset[bytes]]
    walked: Walked | None


def _restore(cls: type[Any], values: dict[str, Any]) -> Any:
    """Build a pickled value again through its constructor, so that it is checked again."""
    return cls(**values)


class Secret:
    """A value that a guest may have and nothing else may show.

    It appears in no repr, dict, digest, report or log and cannot be pickled. `reveal` is
    the only way to the text.

    A guest has it and can put it anywhere. Where the host says what a guest said (errors, tracebacks,
    violations, denials, reports, stacks), ``***`` stands for the text as it is, and as Python escapes
    it. What a guest writes or returns by itself stays as it is: stdout, stderr, values, displays and
    files; and so does a text that a guest has changed.
    """

    __slots__ = ("_value",)
    _value: str

    def __init__(self, value: str) -> None:
        if not isinstance(value, str):
            raise PolicyError(f"value: a Secret holds text, not {type(value).__name__}")
        object.__setattr__(self, "_value", value)

    def reveal(self) -> str:
        """Return the secret text."""
        return self._value

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("Secret is frozen")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("Secret is frozen")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        import hmac

        mine, theirs = (one.reveal().encode("utf-8", "surrogatepass") for one in (self, other))
        return hmac.compare_digest(mine, theirs)

    def __hash__(self) -> int:
        # The same for every secret: a hash of the text would say something about it.
        return hash(Secret)

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Secret:
        return self

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a Secret cannot be pickled; give it to the other process by itself")

    def __repr__(self) -> str:
        return "Secret(...)"


class Rule(Frozen):
    """One rule of a policy: *kind* at *path*, and *origin*, where it came from.

    ``kind`` is "read", "write", "deny", "deny_read", "deny_write" or "deny_exec" (or
    "egress", in answers about connections); ``origin`` is a field such as ``"write[0]"``,
    or "system" or "private". ``is_own`` tells whether the place is the jail's own and shows nothing
    of the host's: a private place, or one of ``caches``.
    """

    __slots__ = ("kind", "origin", "path")
    kind: str
    origin: str
    path: str

    def __init__(self, *, kind: str, path: str, origin: str) -> None:
        self._set(kind=kind, path=path, origin=origin)

    @property
    def is_own(self) -> bool:
        """Whether what is there is the jail's own and not the host's."""
        return self.origin == "private" or self.origin.startswith("caches[")

    def __str__(self) -> str:
        return f"{self.kind} {self.path} ({self.origin})"


class Grant(Frozen):
    """What to add so that something is allowed, ready to be pasted.

    ``python`` is an argument of `JailPolicy`, ``cli`` a flag of the command line ("" where
    there is none).
    """

    __slots__ = ("cli", "python")
    cli: str
    python: str

    def __init__(self, *, python: str, cli: str) -> None:
        self._set(python=python, cli=cli)

    def to_dict(self) -> dict[str, str]:
        """Return both spellings."""
        return {"python": self.python, "cli": self.cli}

    def __str__(self) -> str:
        return self.python


class Decision(Frozen):
    """The answer of `JailPolicy.why`: true where *allowed*.

    ``rule`` is the rule that decided, ``None`` where no rule speaks of the target;
    ``reason`` is a sentence; ``grant`` is what would change a no, ``None`` where nothing can
    be added for that. ``notes`` are further sentences: what the answer does not cover.
    """

    __slots__ = ("allowed", "grant", "notes", "reason", "rule")
    allowed: bool
    grant: Grant | None
    notes: tuple[str, ...]
    reason: str
    rule: Rule | None

    def __init__(
        self,
        *,
        allowed: bool,
        rule: Rule | None,
        reason: str,
        grant: Grant | None = None,
        notes: tuple[str, ...] = (),
    ) -> None:
        self._set(allowed=allowed, rule=rule, reason=reason, grant=grant, notes=notes)

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as plain data."""
        return {
            "allowed": self.allowed,
            "rule": None if self.rule is None else self.rule._named(),
            "reason": self.reason,
            "grant": None if self.grant is None else self.grant.to_dict(),
            "notes": list(self.notes),
        }

    def __bool__(self) -> bool:
        return self.allowed


class Unasked(int):
    """A number that is a default: nobody asked for just this one.

    Where it cannot be held the report says so; the same number, asked for, is refused.
    """

    __slots__ = ()


DEFAULT_PROCESSES = Unasked(1024)


class Limits(Frozen):
    """How much a jail may use; ``None`` means no limit.

    Args:
        memory: bytes, the private places (/tmp and the rest) included with "cgroup".
        memory_by: what bounds the memory: "cgroup" (the sum, by the kernel; refused where
            this process has no cgroup to divide), "watch" (the sum of all processes, measured
            every 10 ms, the jail's runs ended when it is over) or "process" (the private data
            of each process, by the kernel; shared mappings, such as MAP_SHARED makes, and files
            in memory have no bound then).
        processes: processes and threads at one time, the jail's own few included; the default
            is at most half of what ``ulimit -u`` says when the jail opens.
        cpus: processors' worth of time, such as 1.5, at least 0.01; needs a cgroup.
        cpu_seconds: processor seconds of each process.
        wall_seconds: seconds of each run, whatever its own timeout.
        open_files: descriptors of each process; "auto" is half of the host's soft limit,
            read when the jail opens.
        file_size: bytes of each file that a guest writes.
        scratch: bytes of the private places (/tmp, HOME and the rest) together.
        output: bytes that are kept of each stream of each run: of a longer one the start,
            and half of that, or 1 MiB if that is less, of the end.

    Raises:
        PolicyError: naming the limit, for a wrong type or a number out of bounds.
    """

    __slots__ = (
        "cpu_seconds",
        "cpus",
        "file_size",
        "memory",
        "memory_by",
        "open_files",
        "output",
        "processes",
        "scratch",
        "wall_seconds",
    )
    cpu_seconds: int | None
    cpus: float | None
    file_size: int | None
    memory: int | None
    memory_by: Literal["cgroup", "watch", "process"]
    open_files: int | Literal["auto"] | None
    output: int | None
    processes: int | None
    scratch: int | None
    wall_seconds: float | None

    def __init__(
        self,
        *,
        memory: int | None = None,
        memory_by: Literal["cgroup", "watch", "process"] = "cgroup",
        processes: int | None = DEFAULT_PROCESSES,
        cpus: float | None = None,
        cpu_seconds: int | None = None,
        wall_seconds: float | None = None,
        open_files: int | Literal["auto"] | None = "auto",
        file_size: int | None = None,
        scratch: int | None = GIB,
        output: int | None = 64 * MIB,
    ) -> None:
        if memory_by not in ("cgroup", "watch", "process"):
            raise PolicyError(
                f'limits.memory_by: "cgroup", "watch" or "process", not {_short(memory_by)}',
                field="limits.memory_by",
                value=memory_by,
            )
        if open_files != "auto" or not isinstance(open_files, str):
            _check_number("open_files", open_files, MAX_OPEN_FILES, 'a number or "auto"')
        for name, size in (
            ("memory", memory),
            ("file_size", file_size),
            ("scratch", scratch),
            ("output", output),
        ):
            _check_number(name, size, MAX_BYTES, "a number of bytes")
        _check_number("processes", processes, MAX_PROCESSES, "a number")
        _check_number("cpu_seconds", cpu_seconds, MAX_SECONDS, "a whole number of seconds")
        _check_number("cpus", cpus, MAX_CPUS, "a number", fraction=True)
        _check_number("wall_seconds", wall_seconds, MAX_SECONDS, "seconds", fraction=True)
        self._set(
            memory=memory,
            memory_by=memory_by,
            processes=processes,
            cpus=cpus,
            cpu_seconds=cpu_seconds,
            wall_seconds=wall_seconds,
            open_files=open_files,
            file_size=file_size,
            scratch=scratch,
            output=output,
        )

    def __repr__(self) -> str:
        default = Limits()
        changed = {n: v for n, v in self._named().items() if v != getattr(default, n)}
        return f"Limits({', '.join(f'{name}={value!r}' for name, value in changed.items())})"

    def to_dict(self) -> dict[str, Any]:
        """Return the limits by name."""
        return self._named()

    def replace(self, **changes: Any) -> Limits:
        """Return the same limits with *changes*.

        Raises:
            PolicyError: for a name that is no limit, or a wrong value.
        """
        for name, value in changes.items():
            if name not in type(self).__slots__:
                raise PolicyError(
                    f"limits.{visible(name)}: there is no such limit; there are "
                    + ", ".join(type(self).__slots__),
                    field=f"limits.{name}",
                    value=value,
                )
        return Limits(**(self.to_dict() | changes))

    def narrow(self, other: Limits) -> Limits:
        """Return the smaller of each limit."""
        if not isinstance(other, Limits):
            raise TypeError(f"other: Limits are needed, not {type(other).__name__}")
        changes: dict[str, Any] = {}
        for name in type(self).__slots__:
            if name not in ("memory_by", "open_files"):
                given = [v for v in (getattr(self, name), getattr(other, name)) if v is not None]
                # Of two that are the same, the one that was asked for.
                changes[name] = min(given, default=None, key=lambda v: (v, type(v) is Unasked))
        changes["open_files"] = _smaller_open_files(self.open_files, other.open_files)
        setters = [one for one in (self, other) if one.memory is not None] or [self, other]
        # The surest of the ways that were asked for: the sum by the kernel comes first.
        changes["memory_by"] = min(
            (one.memory_by for one in setters), key=("cgroup", "watch", "process").index
        )
        return Limits(**changes)


def _check_number(
    name: str, value: object, largest: int, what: str, *, fraction: bool = False
) -> None:
    """Refuse a limit that is not ``None``, not positive, not finite or above *largest*."""
    if value is None:
        return
    field = f"limits.{name}"
    kinds = (int, float) if fraction else (int,)
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise PolicyError(
            f"{field}: {what}, or None for no limit, not {type(value).__name__} {_short(value)}",
            field=field,
            value=value,
        )
    if not 0 < value <= largest:  # nor is what is no number
        raise PolicyError(
            f"{field}: {value} is out of bounds; more than 0, at most {largest}, or None",
            field=field,
            value=value,
        )


def _smaller_open_files(one: Any, two: Any) -> int | Literal["auto"] | None:
    """Return the stricter of two open_files limits."""
    if one is None or two is None or one == two:
        result: int | Literal["auto"] | None = two if one is None else one
        return result
    if "auto" in (one, two):
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        number = int(two if one == "auto" else one)
        # "auto" is read when the jail opens; a number that is already smaller stays smaller.
        return "auto" if soft != resource.RLIM_INFINITY and soft // 2 <= number else number
    return int(min(one, two))


class Egress(Frozen):
    """What a guest may reach on the network: `OFF`, `OPEN`, or `proxy` with named hosts.

    ``mode`` is "off", "open" or "proxy"; ``allow`` and ``deny`` hold the hosts of a proxy,
    each ``host``, ``*.host`` (names below it), or either with ``:port``.

    Raises:
        PolicyError: for an unknown mode, or a host that is not spelled so.
    """

    __slots__ = ("allow", "deny", "mode")
    allow: tuple[str, ...]
    deny: tuple[str, ...]
    mode: Literal["off", "open", "proxy"]

    OFF: ClassVar[Egress]
    OPEN: ClassVar[Egress]

    def __init__(
        self,
        *,
        mode: Literal["off", "open", "proxy"],
        allow: Iterable[str] = (),
        deny: Iterable[str] = (),
    ) -> None:
        if mode not in ("off", "open", "proxy"):
            raise PolicyError(
                f'egress.mode: "off", "open" or "proxy", not {_short(mode)}',
                field="egress.mode",
                value=mode,
            )
        allowed = _check_hosts("egress.allow", allow)
        denied = _check_hosts("egress.deny", deny)
        if mode != "proxy" and (allowed or denied):
            raise PolicyError(
                f'egress: mode "{mode}" takes no hosts; use Egress.proxy(allow=[...])',
                field="egress",
                value=mode,
            )
        self._set(mode=mode, allow=allowed, deny=denied)

    @classmethod
    def proxy(cls, *, allow: Iterable[str] = (), deny: Iterable[str] = ()) -> Egress:
        """Return an egress through a proxy that lets *allow* through, but never *deny*."""
        return cls(mode="proxy", allow=allow, deny=deny)

    def narrow(self, other: Egress) -> Egress:
        """Return an egress that reaches only what both reach."""
        if not isinstance(other, Egress):
            raise TypeError(f"other: an Egress is needed, not {type(other).__name__}")
        modes = {self.mode, other.mode}
        if "off" in modes:
            return Egress.OFF
        if modes == {"open"}:
            return Egress.OPEN
        deny = sorted({*self.deny, *other.deny})
        if "open" in modes:
            return Egress.proxy(allow=self.allow or other.allow, deny=deny)
        both = {_host_in_both(one, two) for one in self.allow for two in other.allow}
        return Egress.proxy(allow=sorted(host for host in both if host), deny=deny)

    def to_dict(self) -> dict[str, Any]:
        """Return mode and, for a proxy, hosts."""
        if self.mode != "proxy":
            return {"mode": self.mode}
        return {"mode": self.mode, "allow": list(self.allow), "deny": list(self.deny)}

    def match(self, host: str, port: int) -> tuple[bool, str, str]:
        """Return whether a proxy lets *host* and *port* through, the field and pattern."""
        for field, hosts in (("deny", self.deny), ("allow", self.allow)):
            for index, pattern in enumerate(hosts):
                if _host_in_both(f"{host.lower()}:{port}", pattern):
                    return field == "allow", f"egress.{field}[{index}]", pattern
        return False, "egress", ""

    def __repr__(self) -> str:
        if self.mode != "proxy":
            return f"Egress.{self.mode.upper()}"
        return f"Egress.proxy(allow={list(self.allow)}, deny={list(self.deny)})"


def split_host(pattern: str) -> tuple[str, str]:
    """Return host and port text of ``host``, ``host:port`` or ``[v6]:port``; port may be empty."""
    if pattern.startswith("["):
        host, _, rest = pattern[1:].partition("]")
        return host, rest.removeprefix(":")
    if pattern.count(":") > 1:
        return pattern, ""
    host, _, port = pattern.partition(":")
    return host, port


def check_field_list(values: Any, field: str) -> tuple[Any, ...]:
    """Return *values* as a tuple; refuse a single text, a mapping and what is no list.

    Raises:
        PolicyError: naming *field*.
    """
    try:
        return tuple(check_list(values, field))
    except TypeError:
        raise PolicyError(
            f"{field}: a list is needed, not {type(values).__name__} {_short(values)}",
            field=field,
            value=values,
        ) from None


def _check_hosts(field: str, values: object) -> tuple[str, ...]:
    hosts = check_field_list(values, field)
    if len(hosts) > MAX_HOSTS:
        raise PolicyError(f"{field}: {len(hosts)} hosts, at most {MAX_HOSTS}", field=field)
    return tuple(_check_host(f"{field}[{index}]", host) for index, host in enumerate(hosts))


def _check_host(field: str, value: object) -> str:
    """Return *value* in lower case if it is a host pattern."""
    if isinstance(value, str) and value.isascii():
        host, port = split_host(value.lower())
        name = host.removeprefix("*.")
        plain = name and all(c.isalnum() or c in "-._:" for c in name)
        port_right = not port or (port.isdigit() and 1 <= int(port[:6]) <= 65535)
        colons_right = not value.endswith(":")
        if plain and port_right and colons_right and len(host) <= MAX_HOST_CHARACTERS:
            return value.lower()
    raise PolicyError(
        f'{field}: "host", "*.host" or either with ":port" (ASCII; a name in another script '
        f"in its xn-- form), not {_short(value)}",
        field=field,
        value=value,
    )


def _host_in_both(one: str, two: str) -> str | None:
    """Return the pattern for what two host patterns have in common, ``None`` if nothing."""
    (host1, port1), (host2, port2) = split_host(one), split_host(two)
    if port1 and port2 and port1 != port2:
        return None
    if host1 == host2 or (host2.startswith("*.") and host1.endswith(host2[1:])):
        host = host1
    elif host1.startswith("*.") and host2.endswith(host1[1:]):
        host = host2
    else:
        return None
    port = port1 or port2
    bracketed = f"[{host}]" if ":" in host and port else host
    return f"{bracketed}:{port}" if port else bracketed


Egress.OFF = Egress(mode="off")
Egress.OPEN = Egress(mode="open")
