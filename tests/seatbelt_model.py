"""Seatbelt profiles read, judged and decided without macOS.

`Profile` reads SBPL text with its parameters. ``findings`` says what is wrong with it as a
jail's profile, and `Profile.decides` answers for one operation as the kernel is known to:

P1  of the rules of one operation that have filters, the last that fits decides;
P2  a rule without filter speaks only where none with a filter fits, whatever the order;
P3  a rule on a narrow operation (file-write-unlink) beats one on a wide one (file-write*);
P4  filters see the path without links, so one on a link or an odd spelling never fits;
P5  a path that is denied is uncovered by moving it or a folder above it;
P6  a second name (file-link) of a readable file in a writable folder is writable;
P7  connect() to an AF_UNIX socket is network-outbound with a path;
P8  addresses have "*" or "localhost" as their host, and a *local* "localhost" also fits
    what is bound to every address;
P9  a process that cannot read "/" ends before main;
P10 those of ``DEFAULT_ALLOWED`` are denied by their very name only, not by a wider one;
P11 a folder is cloned (file-clone) with all that is in it, asked about the folder only.

Where P3 would not hold, the last rule that fits would decide whichever operation it names:
`Profile.decides` answers for that reading too (``narrow_first=False``), and a profile of
ours must not care.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

STRING_MAX = 1024
LINKS = ("/tmp", "/var", "/etc", "/home")
LINKS_LOOKED_AT = {"/etc", "/tmp", "/var"}
"""Alive in rules on metadata alone: whoever follows the link looks at the link itself."""


class SbplError(ValueError):
    """The text is no profile that macOS would compile."""


class Symbol(str):
    """A bare word."""

    __slots__ = ()


class Text(str):
    """A string, also one written as a raw pattern (``#"..."``)."""

    __slots__ = ()


Form = Symbol | Text | list["Form"]

# Operations, and the wide one that each falls back to; every other falls back to default.
CHILDREN = {
    "file*": (
        "file-read* file-write* file-map-executable file-test-existence file-ioctl file-link "
        "file-clone file-mknod file-chroot file-mount file-mount-update file-unmount "
        "file-search file-revoke file-issue-extension file-graft file-ungraft"
    ),
    "file-read*": "file-read-data file-read-metadata file-read-xattr",
    "file-write*": (
        "file-write-data file-write-create file-write-unlink file-write-flags file-write-mode "
        "file-write-owner file-write-setugid file-write-times file-write-xattr file-write-acl"
    ),
    "network*": "network-inbound network-outbound network-bind",
    "process*": "process-exec* process-fork process-info*",
    "process-exec*": "process-exec process-exec-interpreter",
    "process-info*": "process-info-pidinfo process-info-listpids process-info-rusage",
    "sysctl*": "sysctl-read sysctl-write",
    "mach*": "mach-lookup mach-register mach-priv-task-port mach-task-name",
    "ipc*": "ipc-posix* ipc-sysv*",
    "ipc-posix*": "ipc-posix-sem ipc-posix-shm*",
    "ipc-posix-shm*": (
        "ipc-posix-shm-read-data ipc-posix-shm-write-data ipc-posix-shm-write-create "
        "ipc-posix-shm-write-unlink"
    ),
    "iokit*": "iokit-open iokit-get-properties iokit-set-properties",
}
WIDER = {name: wide for wide, names in CHILDREN.items() for name in names.split()}
OPERATIONS = {
    "default", "signal", "system-socket", "pseudo-tty", "user-preference-read", "appleevent-send",
    "lsopen", "job-creation", "dynamic-code-generation", "system-fcntl", "fs-snapshot-create",
    "fs-snapshot-delete", "fs-snapshot-mount", "fs-snapshot-revert", *CHILDREN, *WIDER,
}  # fmt: skip
DEFAULT_ALLOWED = {
    "file-clone", "file-link", "file-graft", "file-ungraft", "file-map-executable",
    "file-test-existence", "fs-snapshot-mount", "process-info*", "system-fcntl",
    "dynamic-code-generation",
}  # fmt: skip
"""Some of what neither (deny default) nor (deny file*) denies, but a rule of the very name."""
PATH_FILTERS = {"literal", "subpath", "prefix", "regex"}
NAME_FILTERS = {
    "global-name", "sysctl-name", "ipc-posix-name", "target", "extension", "socket-domain",
    "iokit-registry-entry-class",
}  # fmt: skip
REGEX_FILTERS = {"ipc-posix-name-regex"}
PREFIX_FILTERS = {"sysctl-name-prefix", "ipc-posix-name-prefix", "global-name-prefix"}
COMBINED = {"require-all", "require-any", "require-not"}
# An allow of these without a filter gives more than any policy asks for.
NEVER_WHOLE = re.compile(r"(file|network|process-exec|mach|ipc|sysctl|iokit|default)")
NEVER_ALLOWED = {"file*", "file-link", "default", "process*", "mach*", "network*"}


class Rule(NamedTuple):
    """One allow or deny: its operations, and its filters, of which any may fit."""

    allows: bool
    operations: tuple[str, ...]
    filters: tuple[list[Form], ...]
    line: int


class Finding(NamedTuple):
    """What is wrong, by a word that tests ask for, and where."""

    code: str
    what: str


def tokens(text: str) -> Iterator[tuple[int, str | Symbol | Text]]:
    """Yield (line, token); parentheses are plain strings."""
    at, line = 0, 1
    while at < len(text):
        character = text[at]
        if character == "\0":
            raise SbplError(f"line {line}: NUL")
        if character.isspace():
            line += character == "\n"
            at += 1
        elif character == ";":
            end = text.find("\n", at)
            at = len(text) if end < 0 else end
        elif character in "()":
            yield line, character
            at += 1
        elif character == '"' or text.startswith('#"', at):
            raw = character == "#"
            value, at = _string(text, at + 1 + raw, line, raw=raw)
            yield line, Text(value)
        else:
            word = re.compile(r'[^\s()";]+').match(text, at)
            assert word is not None
            yield line, Symbol(word.group())
            at = word.end()


def _string(text: str, at: int, line: int, *, raw: bool) -> tuple[str, int]:
    found = []
    while True:
        if at >= len(text):
            raise SbplError(f"line {line}: a string without its end")
        character = text[at]
        if character == '"':
            break
        if ord(character) < 0x20 or character == "\x7f":
            raise SbplError(f"line {line}: a control character in a string")
        if character == "\\":
            if at + 1 >= len(text):
                raise SbplError(f"line {line}: a string without its end")
            found.append(text[at : at + 2] if raw else text[at + 1])
            at += 2
            continue
        found.append(character)
        at += 1
    value = "".join(found)
    _check_length(value, line)
    return value, at + 1


def _check_length(value: str, line: int) -> None:
    if len(value.encode("utf-8", "surrogateescape")) > STRING_MAX:
        raise SbplError(f"line {line}: a string of more than {STRING_MAX} bytes")


def read(text: str) -> list[tuple[int, list[Form]]]:
    """Return the top-level forms, each with its line."""
    top: list[tuple[int, list[Form]]] = []
    stack: list[list[Form]] = []
    for line, token in tokens(text):
        if token == "(" and type(token) is str:
            stack.append([])
            if len(stack) == 1:
                top.append((line, stack[0]))
        elif token == ")" and type(token) is str:
            if not stack:
                raise SbplError(f"line {line}: ) without (")
            closed = stack.pop()
            if stack:
                stack[-1].append(closed)
        elif not stack:
            raise SbplError(f"line {line}: {token!r} outside of a form")
        else:
            assert isinstance(token, (Symbol, Text))
            stack[-1].append(token)
    if stack:
        raise SbplError("a ( without its )")
    return top


class Profile:
    """A profile as macOS would read it; `SbplError` where it would not."""

    def __init__(self, text: str, parameters: Mapping[str, str] | None = None) -> None:
        self.parameters = dict(parameters or {})
        self.rules: list[Rule] = []
        self.findings: list[Finding] = []
        self._used: set[str] = set()
        for name, value in self.parameters.items():
            _check_length(value, 0)
            if re.search(r"[\x00-\x1f\x7f]", value):
                raise SbplError(f"parameter {name}: a control character")
        version = None
        for line, form in read(text):
            head = form[0] if form else None
            if head == "version":
                version = form[1:]
            elif head in ("allow", "deny"):
                self._take(line, allows=head == "allow", rest=form[1:])
            elif head == "if":
                self._take_known(line, form)
            else:
                raise SbplError(f"line {line}: unknown form {head!r}")
        if version != ["1"]:
            raise SbplError("no (version 1)")
        self._by_operation: dict[str, list[tuple[int, Rule]]] = {}
        for number, rule in enumerate(self.rules):
            for operation in rule.operations:
                self._by_operation.setdefault(operation, []).append((number, rule))
        self._examine()

    def _take(self, line: int, *, allows: bool, rest: list[Form]) -> None:
        operations = tuple(str(word) for word in rest if isinstance(word, Symbol))
        filters = tuple(form for form in rest if isinstance(form, list))
        if not operations or len(operations) + len(filters) != len(rest):
            raise SbplError(f"line {line}: a rule is operations and filters")
        for operation in operations:
            if operation not in OPERATIONS:
                raise SbplError(f"line {line}: unknown operation {operation}")
        rule = Rule(allows, operations, filters, line)
        for form in filters:
            self._check_filter(form, rule)
        self.rules.append(rule)

    def _take_known(self, line: int, form: list[Form]) -> None:
        """Take ``(if (defined? 'NAME) (deny NAME))``, as where the name is known."""
        _, test, rule = form if len(form) == 3 else (None, None, None)
        if not isinstance(rule, list) or len(rule) != 2 or rule[0] != "deny":
            raise SbplError(f"line {line}: an if of another form")
        if test != ["defined?", f"'{rule[1]}"]:
            raise SbplError(f"line {line}: an if of another form")
        self._take(line, allows=False, rest=rule[1:])

    def value(self, form: Form) -> str:
        """Return the string that *form* stands for."""
        if isinstance(form, Text):
            return str(form)
        if isinstance(form, list) and len(form) == 2 and form[0] == "param":
            name = str(form[1])
            if name not in self.parameters:
                raise SbplError(f"parameter {name} is not given")
            self._used.add(name)
            return self.parameters[name]
        raise SbplError(f"{form!r} is no string")

    # ---- what is wrong with it ---------------------------------------------------------

    def _find(self, code: str, what: str) -> None:
        self.findings.append(Finding(code, what))

    def _check_filter(self, form: list[Form], rule: Rule) -> None:
        head = str(form[0]) if form else ""
        if head in COMBINED:
            for inner in form[1:]:
                if not isinstance(inner, list):
                    raise SbplError(f"line {rule.line}: {head} takes filters")
                self._check_filter(inner, rule)
        elif head in ("remote", "local"):
            self._check_address(form, rule)
        elif head in PATH_FILTERS:
            for path in form[1:]:
                self._check_path(head, self.value(path), rule)
        elif head in NAME_FILTERS:
            if not form[1:]:
                raise SbplError(f"line {rule.line}: {head} of nothing")
        elif head in PREFIX_FILTERS or head in REGEX_FILTERS:
            self.value(form[1])
        else:
            raise SbplError(f"line {rule.line}: unknown filter {head}")

    def _check_address(self, form: list[Form], rule: Rule) -> None:
        if len(form) != 3 or form[1] not in ("ip", "tcp", "udp"):
            raise SbplError(f"line {rule.line}: an address is (remote ip|tcp|udp HOST:PORT)")
        host, _, port = self.value(form[2]).rpartition(":")
        if host not in ("*", "localhost"):
            raise SbplError(f"line {rule.line}: host must be * or localhost")  # P8
        if port != "*" and not (port.isdigit() and 1 <= int(port) <= 65535):
            raise SbplError(f"line {rule.line}: port {port!r}")
        if rule.allows and form[0] == "local" and host == "localhost":
            self._find("wide-address", f"line {rule.line}: local localhost fits every address")

    def _check_path(self, head: str, path: str, rule: Rule) -> None:
        if head == "regex":
            try:
                re.compile(path)
            except re.error as error:
                raise SbplError(f"line {rule.line}: {path!r}: {error}") from None
            if not path.startswith("^/"):
                self._find("loose-pattern", f"line {rule.line}: {path!r} fits in the middle")
            return
        if not path.startswith("/"):
            raise SbplError(f"line {rule.line}: {path!r} is not absolute")
        only_looks = {"file-read-metadata", "file-test-existence"}.issuperset(rule.operations)
        if head == "literal" and only_looks and path in LINKS_LOOKED_AT:
            return
        odd = path != "/" and path.endswith("/")
        odd |= "//" in path or any(part in (".", "..") for part in path.split("/"))
        if odd or any(path == link or path.startswith(f"{link}/") for link in LINKS):
            self._find("dead-path", f"line {rule.line}: nothing is ever at {path!r}")  # P4

    def _examine(self) -> None:
        for name in sorted(set(self.parameters) - self._used):
            self._find("unused-parameter", name)
        first = self.rules[0] if self.rules else None
        if first is None or first[:3] != (False, ("default",), ()):
            self._find("no-default-deny", "the first rule is (deny default)")
        denied = 0
        for rule in self.rules:
            if not rule.allows:
                denied = rule.line if rule.filters else denied  # P2
                continue
            if denied:
                self._find("allow-after-deny", f"line {rule.line}, after line {denied}")
            for operation in rule.operations:
                if operation in NEVER_ALLOWED:
                    self._find("too-wide", f"line {rule.line}: {operation}")  # P6
                elif not rule.filters and NEVER_WHOLE.match(operation):
                    self._find("unfiltered", f"line {rule.line}: {operation}")  # P2, P7
        if not self.decides("file-read-data", path="/"):
            self._find("unreadable-root", "no program starts")  # P9
        self._examine_moves()

    def _examine_moves(self) -> None:
        """Find what is denied and can be moved to where it is not (P5)."""
        for rule in self.rules:
            if rule.allows or not any(name.startswith("file-read") for name in rule.operations):
                continue
            for path in self._denied_paths(rule.filters):
                ancestors = [path[:at] for at in range(1, len(path)) if path[at] == "/"]
                for moved in (*ancestors, path):
                    if self.decides("file-write-unlink", path=moved):
                        self._find("movable", f"line {rule.line}: {moved} above or at {path}")

    def _denied_paths(self, filters: tuple[list[Form], ...] | list[Form]) -> Iterator[str]:
        for form in filters:
            if not isinstance(form, list):
                continue
            if form[0] in ("subpath", "literal"):
                yield from map(self.value, form[1:])
            elif form[0] in ("require-all", "require-any"):
                yield from self._denied_paths(form[1:])

    # ---- what it decides ---------------------------------------------------------------

    def decides(self, operation: str, *, narrow_first: bool = True, **facts: object) -> bool:
        """Tell whether *operation* is allowed.

        Facts: ``path`` of a file or AF_UNIX socket; ``name`` of a service, setting or shared
        memory; ``remote`` or ``local`` as (protocol, host, port); ``extension``; ``domain``.
        """
        chain = [operation]
        while chain[-1] in WIDER and chain[-1] not in DEFAULT_ALLOWED:
            chain.append(WIDER[chain[-1]])
        if chain[-1] not in DEFAULT_ALLOWED:
            chain.append("default")  # P10
        if not narrow_first:
            return self._last_of(chain, facts)
        for name in chain:
            whole = None
            for _, rule in reversed(self._by_operation.get(name, [])):
                if not rule.filters:
                    whole = rule.allows if whole is None else whole
                elif any(self._fits(form, facts) for form in rule.filters):
                    return rule.allows  # P1
            if whole is not None:
                return whole  # P2
        return chain[-1] in DEFAULT_ALLOWED

    def _last_of(self, chain: list[str], facts: Mapping[str, object]) -> bool:
        ruled = chain[-1] == "default"
        numbered = [pair for name in chain for pair in self._by_operation.get(name, [])]
        whole = None
        for _, rule in sorted(numbered, key=lambda pair: -pair[0]):
            if not rule.filters:
                whole = rule.allows if whole is None else whole
            elif any(self._fits(form, facts) for form in rule.filters):
                return rule.allows
        return not ruled if whole is None else whole

    def _fits(self, form: list[Form], facts: Mapping[str, object]) -> bool:
        head, rest = str(form[0]), form[1:]
        if head in COMBINED:
            answers = (self._fits(inner, facts) for inner in rest if isinstance(inner, list))
            return {"require-all": all, "require-any": any}.get(head, _none)(answers)
        if head in ("remote", "local"):
            return self._fits_address(form, facts.get(head))
        if head in PATH_FILTERS:
            path = facts.get("path")
            return isinstance(path, str) and any(
                _fits_path(head, self.value(value), path) for value in rest
            )
        fact = "domain" if head == "socket-domain" else head
        known = facts.get(fact if fact in ("domain", "target", "extension") else "name")
        if head in REGEX_FILTERS:
            return isinstance(known, str) and bool(re.search(self.value(rest[0]), known))
        if head in PREFIX_FILTERS:
            return isinstance(known, str) and known.startswith(self.value(rest[0]))
        return known in [str(value) for value in rest]

    def _fits_address(self, form: list[Form], address: object) -> bool:
        if not isinstance(address, tuple):
            return False
        protocol, host, port = address
        wanted_host, _, wanted_port = self.value(form[2]).rpartition(":")
        own = ("127.0.0.1", "::1", *(("0.0.0.0", "::") if form[0] == "local" else ()))
        return (
            form[1] in ("ip", protocol)
            and (wanted_host == "*" or host in own)
            and wanted_port in ("*", str(port))
        )


def _none(answers: Iterator[bool]) -> bool:
    return not any(answers)


def _fits_path(head: str, value: str, path: str) -> bool:
    if head == "literal":
        return path == value
    if head == "prefix":
        return path.startswith(value)
    if head == "regex":
        return re.search(value, path) is not None
    return value in ("/", path) or path.startswith(f"{value}/")


def codes(profile: Profile) -> set[str]:
    """Return the words of what is wrong with *profile*."""
    return {finding.code for finding in profile.findings}
