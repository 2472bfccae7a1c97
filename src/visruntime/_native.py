"""The seam to C: only this module imports the compiled modules.

It turns C's records into plain Python values and its statuses into `NativeError`; what
they mean to a caller is decided above. Every handle owns its C object and frees it.
"""

from __future__ import annotations

import os
import struct
from itertools import accumulate

from visruntime import _viscore
from visruntime._owned import Owned
from visruntime._viscore import decode, encode, make_intake, map_memory
from visruntime._visjail import ffi, lib
from visruntime.guest import values

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from typing import Any

__all__ = [
    "BINARY_DIRECTORY",
    "KEY_BYTES",
    "PATTERN_PARTS_MAX",
    "Capture",
    "JailHandle",
    "NativeError",
    "RunHandle",
    "TerminalReader",
    "compile_plan",
    "decide",
    "decode",
    "encode",
    "expand",
    "expand_budget",
    "find_secret",
    "fits",
    "is_private_key",
    "make_intake",
    "map_memory",
    "plan_path",
    "search",
]

values.install(_viscore)

BINARY_DIRECTORY = os.path.dirname(os.path.abspath(_viscore.__file__))
"""Where the compiled modules are, and in ``bin`` below it the executables."""

Fact = tuple[str, int, int, int, int]
"""What stands at a path: its kind, device, inode, owner and group."""
PATH_MAX = 4096
"""Longest path that C takes, its NUL included."""
MOST_SECONDS = float(1 << 32)
"""A longer wait has no end: its nanoseconds might not fit in 64 bits."""
RULE_KINDS = ("read", "write", "deny", "deny_read", "deny_write", "deny_exec")
RIGHTS = ("read", "write", "exec")
BACKENDS = {
    "namespaces": lib.VJ_BACKEND_NAMESPACES,
    "bubblewrap": lib.VJ_BACKEND_BUBBLEWRAP,
    "landlock": lib.VJ_BACKEND_LANDLOCK,
}
STATUS_NAMES = {lib.VJ_REFUSED: "refused", lib.VJ_SYSTEM: "system", lib.VJ_CLOSED: "closed"}


class NativeError(Exception):
    """A call of libvisjail failed.

    ``status`` is "refused", "system" or "closed"; ``stage`` names the step,
    ``errno`` the system's answer (0: none), ``index`` the operation of the plan (-1: none).
    """

    def __init__(self, status: str, stage: str, errno: int, index: int, text: str) -> None:
        super().__init__(f"{text}: {os.strerror(errno)}" if errno else text)
        self.status = status
        self.stage = stage
        self.errno = errno
        self.index = index


def _gone() -> NativeError:
    return NativeError("closed", "host", 0, -1, "it has been given back")


def _check(status: int, error: Any) -> None:
    if status == lib.VJ_OK:
        return
    if status == lib.VJ_NO_MEMORY:
        raise MemoryError
    raise NativeError(
        STATUS_NAMES.get(status, "system"),
        ffi.string(lib.vj_stage_name(error.stage)).decode(),
        error.os_error,
        error.index,
        ffi.string(error.text).decode(errors="replace"),
    )


# ---- policy --------------------------------------------------------------------


RULE = struct.Struct("@PII")
FACT = struct.Struct("@PIIIIQQ")
PLAN_GUEST_AT: int = lib.VJ_PLAN_GUEST_AT
EXTRA = struct.Struct("@IIPP")
"""vj_rule, vj_fact and vj_extra; the tests compare them with the compiler's layout."""

KIND_NUMBERS = {kind: number for number, kind in enumerate(RULE_KINDS)}
OBJECTS = {
    "absent": lib.VJ_OBJECT_ABSENT,
    "directory": lib.VJ_OBJECT_DIRECTORY,
    "file": lib.VJ_OBJECT_FILE,
}


class _Strings:
    """Texts for C, one after the other in one block, and where each begins."""

    __slots__ = ("_block", "addresses")

    def __init__(self, texts: Sequence[str]) -> None:
        joined = "\0".join(texts) + "\0"
        block = os.fsencode(joined)
        sizes: Iterable[int] = map(len, texts)
        if len(block) != len(joined):  # not all of it is ASCII
            sizes = (len(os.fsencode(text)) for text in texts)
        self._block = ffi.from_buffer(block)
        start = int(ffi.cast("uintptr_t", self._block))
        self.addresses = list(accumulate((size + 1 for size in sizes), initial=start))


def _table(name: str, rows: list[bytes]) -> Any:
    return ffi.from_buffer(f"{name}[]", b"".join(rows)) if rows else ffi.new(f"{name}[]", 1)


def decide(rules: Sequence[tuple[str, str]], right: str, path: str) -> tuple[bool, int]:
    """Return whether *right* is allowed on *path*, and the index of the rule that decided.

    The index is -1 where no rule speaks about the right. Paths are absolute and normal.
    """
    strings = _Strings([path for _, path in rules])
    rows = [
        RULE.pack(address, KIND_NUMBERS[kind], 0)
        for address, (kind, _) in zip(strings.addresses, rules, strict=False)
    ]
    table = _table("vj_rule", rows)
    deciding = ffi.new("int32_t *")
    allowed = lib.vj_policy_decide(
        table, len(rules), RIGHTS.index(right), os.fsencode(path), deciding
    )
    return bool(allowed), deciding[0]


def compile_plan(
    *,
    rules: Sequence[tuple[str, str, bool, bool]],
    facts: Mapping[str, Fact],
    extras: Sequence[tuple[str, str, str, int]],
    limits: Mapping[str, int],
    tree: Mapping[str, int],
    hostname: str,
    guest_id: int,
    scratch_size: int,
    private_network: bool,
    host_root: bool,
    backend: str = "namespaces",
    broker_sockets: bool = False,
    ports: bool = False,
    broker_names: bool = False,
    held: Collection[str] = (),
    free: Sequence[str] = (),
) -> bytes:
    """Compile a policy into the plan that visjail-init executes.

    Args:
        rules: (kind, path, is private, is the caller's grant).
        facts: path -> ("absent" | "directory" | "file", device, inode, owner, group), for each rule's
            path and every directory above it.
        extras: (operation, path, source, mode), in order.
        limits: of each process; 0 leaves one as it is.
        ports: some of *extras* are ports.
        backend: "namespaces", "bubblewrap" or "landlock".
        broker_sockets: connections to AF_UNIX paths are judged in the jail.
        broker_names: names beside those that are held are made in the jail for guests.
        held: paths of rules that name what does not exist and must not be made.
        free: folders in which names may be made all the same.
        tree: of the jail as a whole, as in ``vj_tree_limits`` of plan.h.
    """
    more = [("FREE", path, "", 0) for path in free]
    texts = [
        *(rule[1] for rule in rules),
        *facts,
        *(extra[1] for extra in (*extras, *more)),
        *(extra[2] for extra in (*extras, *more)),
    ]
    strings = _Strings(texts)
    at = iter(strings.addresses)
    rule_rows = []
    for kind, path, private, grant in rules:
        flags = (lib.VJ_RULE_PRIVATE if private else 0) | (lib.VJ_RULE_GRANT if grant else 0)
        if held and kind == "deny_write" and path in held:
            flags |= lib.VJ_RULE_HELD
        rule_rows.append(RULE.pack(next(at), KIND_NUMBERS[kind], flags))
    fact_rows = [
        FACT.pack(next(at), OBJECTS[kind], owner, group, 0, device, inode)
        for kind, device, inode, owner, group in facts.values()
    ]
    kinds = [getattr(lib, f"VJ_OPERATION_{operation}") for operation, _, _, _ in extras]
    kinds += [lib.VJ_EXTRA_FREE] * len(free)
    first = len(rules) + len(facts)
    sources = strings.addresses[first + len(kinds) :]
    extra_rows = [
        EXTRA.pack(kind, extra[3], next(at), source)
        for kind, extra, source in zip(kinds, (*extras, *more), sources, strict=False)
    ]
    rule_table = _table("vj_rule", rule_rows)
    fact_table = _table("vj_fact", fact_rows)
    extra_table = _table("vj_extra", extra_rows)
    settings = ffi.new("vj_plan_settings *")
    name = ffi.new("char[]", hostname.encode())
    for wanted, flag in (
        (private_network, lib.VJ_PLAN_PRIVATE_NETWORK),
        (broker_sockets, lib.VJ_PLAN_BROKER_SOCKETS),
        (broker_names, lib.VJ_PLAN_BROKER_NAMES),
        (ports, lib.VJ_PLAN_PORTS),
    ):
        settings.flags |= flag if wanted else 0
    settings.guest_id = guest_id
    settings.hostname = name
    settings.scratch_size = scratch_size
    settings.host_root = host_root
    settings.backend = BACKENDS[backend]
    for key, value in limits.items():
        setattr(settings.limits, key, value)
    for key, value in tree.items():
        setattr(settings.tree, key, value)
    block = ffi.new("void **")
    size = ffi.new("size_t *")
    error = ffi.new("vj_error *")
    status = lib.vj_policy_compile(
        settings,
        rule_table,
        len(rules),
        fact_table,
        len(facts),
        extra_table,
        len(extra_rows),
        block,
        size,
        error,
    )
    _check(status, error)
    try:
        return bytes(ffi.buffer(block[0], size[0]))
    finally:
        lib.vj_plan_free(block[0])


def plan_path(plan: bytes, operation: int) -> str:
    """Return the path of an operation of a plan, for messages."""
    return os.fsdecode(ffi.string(lib.vj_plan_path(ffi.from_buffer(plan), operation)))


class JudgedNames:
    """What `Names.judge` found.

    ``conflict`` is (device, inode) of a file of which one name gives what another denies, or
    None; ``others`` counts the writable names whose file has names that were not found,
    ``copies`` the files of installed code that are denied under one name and readable under
    another; ``folders`` of installed code must stay as they are.
    """

    __slots__ = ("conflict", "copies", "folders", "others")

    def __init__(
        self, conflict: tuple[int, int] | None, others: int, copies: int, folders: list[str]
    ) -> None:
        self.conflict = conflict
        self.others = others
        self.copies = copies
        self.folders = folders


class Names:
    """Names of files that have several, from any number of searches; their paths are not kept.

    *rules*, as `compile_plan` takes them, and *protected* paths say what each name gives.
    """

    __slots__ = ("_blocks", "_keep", "folders", "rules", "table")

    def __init__(
        self, rules: Sequence[tuple[str, str, bool, bool]], protected: Sequence[str]
    ) -> None:
        every = [*rules, *(("deny_write", path, False, False) for path in protected)]
        self._keep = _Strings([path for _, path, _, _ in every])
        self._blocks: list[bytes] = []
        self.rules = len(every)
        self.table = _table(
            "vj_rule",
            [
                RULE.pack(address, KIND_NUMBERS[kind], lib.VJ_RULE_PRIVATE if private else 0)
                for address, (kind, _, private, _) in zip(self._keep.addresses, every, strict=False)
            ],
        )
        self.folders: list[str] = []
        """Folders of installed code with such files in them."""

    def add(self, block: bytes) -> None:
        """Take the table of one search."""
        self._blocks.append(block)

    def judge(self, left_out: Collection[tuple[int, int]] = ()) -> JudgedNames:
        """Judge all names together but those of the files *left_out*, (device, inode) each."""
        links = ffi.new("char[]", b"".join(self._blocks))
        kept = ffi.new("uint8_t[]", len(self.folders) + 1)
        verdict = ffi.new("vj_links_verdict *")
        lib.vj_links_judge(
            ffi.cast("vj_link *", links),
            (len(links) - 1) // ffi.sizeof("vj_link"),
            _file_ids(left_out),
            len(left_out),
            kept,
            verdict,
        )
        conflict = verdict.conflict
        return JudgedNames(
            (conflict.device, conflict.inode) if conflict.inode else None,
            verdict.others,
            verdict.copies,
            [folder for number, folder in enumerate(self.folders, 1) if kept[number]],
        )


def _file_ids(files: Collection[tuple[int, int]]) -> Any:
    return ffi.new("vj_file_id[]", list(files) or 1)


def file_id(found: os.stat_result) -> tuple[int, int]:
    """Return (device, inode) of a file as libvisjail writes them."""
    return os.major(found.st_dev) << 32 | os.minor(found.st_dev), found.st_ino


def search(
    directory: str,
    *,
    most_entries: int,
    most_findings: int,
    most_secrets: int,
    most_key_bytes: int,
    most_links: int = 0,
    set_id: bool = False,
    capabilities: bool = False,
    links: Names | None = None,
    wanted: Collection[tuple[int, int]] = (),
    secrets: bytes = b"",
) -> list[tuple[str, str]]:
    """Return (kind, path) of what a mount alone does not tame at and below *directory*.

    Kinds: "s" a socket, "f" a FIFO, "i" a set-id file (with *set_id*) or one with
    capabilities (with *capabilities*), "u" a folder that cannot be listed but that a guest
    could enter, "k" what the list *secrets* names (of a folder, nothing below it), "h" a
    name of one of the files *wanted*. No link is followed.

    Args:
        links: takes the names of files that have several, at most *most_links*.

    Raises:
        NativeError: "refused" when there is more than that, or something cannot be seen.
    """
    result = ffi.new("vj_search_result *")
    error = ffi.new("vj_error *")
    request = ffi.new("vj_search_request *")
    name = ffi.new("char[]", os.fsencode(directory))
    request.directory = name
    request.most_entries = most_entries
    request.most_findings = most_findings
    request.most_secrets = most_secrets
    request.most_key_bytes = most_key_bytes
    request.most_links = most_links
    request.secrets = table = ffi.from_buffer(secrets)
    request.secrets_size = len(table)
    request.wanted = ids = _file_ids(wanted)
    request.wanted_count = len(wanted)
    request.files = (lib.VJ_SEARCH_SET_ID if set_id else 0) | (
        lib.VJ_SEARCH_CAPABILITIES if capabilities else 0
    )
    if links is not None:
        request.files |= lib.VJ_SEARCH_LINKS
        request.rules = links.table
        request.rule_count = links.rules
        request.first_folder = len(links.folders) + 1
    _check(lib.vj_search(request, result, error), error)
    del ids
    try:
        found = ffi.buffer(result.findings, result.size)[:] if result.size else b""
        size = result.link_count * ffi.sizeof("vj_link")
        if links is not None and size:
            links.add(ffi.buffer(result.links, size)[:])
    finally:
        lib.vj_free(result.findings)
        lib.vj_free(result.links)
    pairs = [(chr(item[0]), os.fsdecode(item[1:])) for item in found.split(b"\0") if item]
    if links is not None:
        links.folders += [path for kind, path in pairs if kind == "n"]
    return [pair for pair in pairs if pair[0] != "n"]


def expand_budget(*, entries: int, matches: int, work: int) -> Any:
    """Return what searches of `expand` may cost together: names looked at and found, characters."""
    return ffi.new("vj_expand_budget *", (entries, matches, work))


def expand(
    directory: str, *, fixed: int, patterns: Sequence[str], budget: Any, most_matches: int
) -> list[tuple[str, int, str]]:
    """Return (kind, pattern, path) of what *patterns* name below *directory*, in one walk.

    Kinds: "d" a folder, "f" a regular file, "l" a link, "o" anything else; the pattern is
    told by its index. No link is followed, and nothing is looked for below a match.

    Args:
        directory: without a link on the way.
        fixed: bytes of it that are the beginning of the patterns, which say what comes after.
        budget: an `expand_budget`, from which this takes; *most_matches* are of each pattern.

    Raises:
        NativeError: "refused" as by `search`; ``index`` is a pattern that asked for it.
    """
    found = ffi.new("char **")
    size = ffi.new("uint64_t *")
    error = ffi.new("vj_error *")
    name = ffi.new("char[]", os.fsencode(directory))
    texts = ffi.from_buffer(b"".join(os.fsencode(pattern) + b"\0" for pattern in patterns))
    request = ffi.new("vj_expand_request *", (name, fixed, texts, len(texts), most_matches))
    _check(lib.vj_expand(request, budget, found, size, error), error)
    try:
        items = ffi.buffer(found[0], size[0])[:].split(b"\0") if size[0] else []
    finally:
        lib.vj_free(found[0])
    parts = [item.partition(b"/") for item in items if item]
    return [(chr(head[0]), int(head[1:]), os.fsdecode(b"/" + rest)) for head, _, rest in parts]


def fits(part: str, name: str) -> bool:
    """Tell whether one part of a pattern names *name*."""
    return bool(lib.vj_pattern_fits(os.fsencode(part), os.fsencode(name)))


PATTERN_PARTS_MAX: int = lib.VJ_PATTERN_PARTS_MAX
"""Most parts of a path from its first part with a pattern on."""


# ---- names of secrets ------------------------------------------------------------

KEY_BYTES: int = lib.VJ_SECRET_KEY_BYTES
"""How much of a file is looked at for the header of a private key, in bytes."""


def find_secret(
    secrets: bytes, path: bytes, *, after: int = 0, folder: bool
) -> tuple[int, int, bool]:
    """Return the first part of *path* longer than *after* that the list *secrets* names.

    As (entry or -1, its length, counts only if it holds a private key); *folder* says what
    *path* itself is, and what leads to it are folders.
    """
    what = lib.VJ_SECRET_FOLDER if folder else lib.VJ_SECRET_FILE
    found = lib.vj_secret_find(secrets, len(secrets), path, after, what)
    return found.entry, found.length, found.by_content


def is_private_key(content: bytes) -> bool:
    """Tell whether *content* begins with the header of a private key."""
    return bool(lib.vj_secret_is_key(content, len(content)))


# ---- jails and runs ------------------------------------------------------------


class JailHandle(Owned):
    """One open jail.

    ``info`` holds pid, landlock_abi, guest_id, identity, and shared_memory (whether System V
    shared memory got its limit); ``answers`` what its canaries got, ``ports`` the numbers of
    the ports that listen, in the order of the plan.

    Args:
        members: the cgroup.procs files that the jail joins.
        counters: the files of the memory cgroup that are read in the jail.
        bubblewrap: path of the binary that executes a plan for it.
        follows_links: it follows links at its mount points.
        disables_userns: it has --disable-userns.
    """

    __slots__ = ("answers", "info", "ports")

    def __init__(
        self,
        init_path: str,
        plan: bytes,
        *,
        members: Sequence[int] = (),
        counters: Sequence[int] = (),
        bubblewrap: str = "",
        follows_links: bool = True,
        disables_userns: bool = False,
    ) -> None:
        name = ffi.new("char[]", os.fsencode(bubblewrap))
        options = ffi.new("vj_jail_options *")
        options.bubblewrap = name
        options.follows_links, options.disables_userns = follows_links, disables_userns
        groups = options.groups
        groups.count, groups.counter_count = len(members), len(counters)
        groups.counters[0 : len(counters)] = list(counters)
        groups.members[0 : len(members)] = list(members)
        jail, info = ffi.new("vj_jail **"), ffi.new("vj_jail_info *")
        error = ffi.new("vj_error *")
        status = lib.vj_jail_open(
            os.fsencode(init_path), options, plan, len(plan), jail, info, error
        )
        _check(status, error)
        super().__init__(jail[0], lib.vj_jail_free, _gone)
        self.info = {
            "pid": info.pid,
            "landlock_abi": info.landlock_abi,
            "guest_id": info.guest_id,
            "identity": info.identity,
            "shared_memory": int(bool(info.flags & lib.VJ_READY_SHARED_MEMORY)),
        }
        self.ports = list(info.ports[0 : info.port_count])
        self.answers = list(info.answers[0 : info.answer_count])

    def close(self) -> None:
        """End everything in the jail and wait for it. Idempotent."""
        if self.is_held:
            lib.vj_jail_close(self.pointer)

    def alive(self) -> bool:
        """Tell whether the jail's pid 1 lives."""
        return self.is_held and bool(lib.vj_jail_alive(self.pointer))

    def terminal(self) -> tuple[int, int]:
        """Return the descriptors of a new pseudo-terminal: master, slave."""
        master, slave, error = ffi.new("int *"), ffi.new("int *"), ffi.new("vj_error *")
        _check(lib.vj_jail_terminal(self.pointer, master, slave, error), error)
        return master[0], slave[0]

    def start(
        self,
        *,
        directory: bytes,
        arguments: Sequence[bytes],
        environment: Sequence[bytes],
        descriptors: Mapping[int, int],
        timeout_ns: int = 0,
        search: bool = False,
        terminal: bool = False,
        directory_fallback: bool = False,
        quiet: bool = False,
        file: str | None = None,
        limit: int = 0,
    ) -> RunHandle:
        """Start a program, or with *file* a file operation on ``arguments[0]``.

        Args:
            descriptors: number in the program -> descriptor here (which stays open).
            timeout_ns: until the run is ended; 0 for none.
            search: look the program up in the PATH of *environment*.
            terminal: descriptor 0 becomes the controlling terminal.
            quiet: do not wait for the start; a failure is raised by `RunHandle.communicate`.
            directory_fallback: when *directory* cannot be entered, use HOME.
        """
        strings = b"\0".join([directory, *arguments, *environment]) + b"\0"
        text = ffi.from_buffer(strings)
        numbers = ffi.new("int32_t[]", list(descriptors.keys()) or 1)
        sources = ffi.new("int32_t[]", list(descriptors.values()) or 1)
        spawn = ffi.new("vj_spawn *")
        spawn.strings = text
        spawn.strings_size = len(strings)
        spawn.argument_count = len(arguments)
        spawn.environment_count = len(environment)
        spawn.flags = (
            (lib.VJ_SPAWN_SEARCH if search else 0)
            | (lib.VJ_SPAWN_TERMINAL if terminal else 0)
            | (lib.VJ_SPAWN_CWD_FALLBACK if directory_fallback else 0)
            | (lib.VJ_SPAWN_QUIET if quiet else 0)
            | (lib.VJ_SPAWN_FILE if file else 0)
        )
        spawn.file = getattr(lib, f"VJ_FILE_{file}") if file else 0
        spawn.timeout_ns = timeout_ns
        spawn.limit = limit
        spawn.descriptor_count = len(descriptors)
        spawn.descriptors = sources
        spawn.numbers = numbers
        run, pid = ffi.new("vj_run **"), ffi.new("int32_t *")
        error = ffi.new("vj_error *")
        _check(lib.vj_run_start(self.pointer, spawn, run, pid, error), error)
        return RunHandle(run[0], pid[0])


class Capture(Owned):
    """The first and the last bytes of a stream, *limit* in all. Takes *descriptor*."""

    __slots__ = ()

    def __init__(self, descriptor: int, limit: int) -> None:
        capture = lib.vj_capture_new(descriptor, limit)
        if capture == ffi.NULL:
            raise MemoryError
        super().__init__(capture, lib.vj_capture_free, _gone)

    def value(self) -> bytes:
        """Return the bytes that were kept."""
        size = lib.vj_capture_size(self.pointer)
        return bytes(ffi.buffer(lib.vj_capture_bytes(self.pointer), size)) if size else b""

    def total(self) -> int:
        """Return how many bytes came in all."""
        return int(lib.vj_capture_total(self.pointer))


class TerminalReader:
    """Reads the non-blocking master of a terminal in large pieces."""

    __slots__ = ("_buffer", "_descriptor")

    SIZE = 1 << 18

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._buffer = bytearray(self.SIZE)

    def read(self, wakeup: int, timeout: float | None) -> bytes | None:
        """Return what is there; ``b""`` when nothing came in *timeout* seconds or *wakeup* did.

        ``None`` is the end: every program has let go of the terminal.
        """
        size = ffi.new("uint64_t *")
        error = ffi.new("vj_error *")
        deadline = -1 if timeout is None else int(timeout * 1e9)
        buffer = ffi.from_buffer(self._buffer)
        status = lib.vj_terminal_read(
            self._descriptor, wakeup, deadline, buffer, self.SIZE, size, error
        )
        if status not in (lib.VJ_CLOSED, lib.VJ_TIMED_OUT, lib.VJ_INTERRUPTED):
            _check(status, error)
        return None if status == lib.VJ_CLOSED else bytes(self._buffer[: size[0]])


_MEASURED = (
    *("status", "stop", "killed", "program_us", "user_us", "system_us"),
    *("resident_kib", "watched"),
)


class RunHandle(Owned):
    """One run. Freeing it ends the run if it has not ended."""

    __slots__ = ("_input", "_input_descriptor", "_input_offset", "pid")

    def __init__(self, run: Any, pid: int) -> None:
        super().__init__(run, lib.vj_run_free, _gone)
        self._input = b""
        self._input_offset = ffi.new("uint64_t *")
        self._input_descriptor = ffi.new("int *", -1)
        self.pid = pid

    def expect(self, timeout_ns: int) -> RunHandle:
        """Return a run for a program that this one is about to fork, for `adopt`."""
        run, error = ffi.new("vj_run **"), ffi.new("vj_error *")
        _check(lib.vj_run_expect(self.pointer, timeout_ns, run, error), error)
        return RunHandle(run[0], 0)

    def adopt(self, process: int) -> None:
        """Take the process of a pidfd, which the keeper must have inherited, as the program."""
        pid, error = ffi.new("int32_t *"), ffi.new("vj_error *")
        _check(lib.vj_run_adopt(self.pointer, process, pid, error), error)
        self.pid = pid[0]

    def feed(self, data: bytes, descriptor: int) -> None:
        """Have *data* written to *descriptor* (taken) by the next `communicate` calls."""
        os.set_blocking(descriptor, False)
        self._input = data
        self._input_offset[0] = 0
        self._input_descriptor[0] = descriptor

    def communicate(
        self,
        output: Capture | None,
        errors: Capture | None,
        timeout: float | None,
        *,
        feed: bool = False,
    ) -> dict[str, int] | None:
        """Move output, and input with *feed*, until the run has ended or *timeout* has gone by.

        Returns what was measured, or ``None`` while the run goes on. Signal handlers of the
        host run in between.
        """
        result, error = ffi.new("vj_exit *"), ffi.new("vj_error *")
        for_ever = timeout is None or timeout > MOST_SECONDS
        deadline = -1 if for_ever else max(0, int((timeout or 0) * 1e9))
        while True:
            status = lib.vj_run_communicate(
                self.pointer,
                ffi.from_buffer(self._input),
                len(self._input),
                self._input_offset,
                self._input_descriptor if feed else ffi.new("int *", -1),
                ffi.NULL if output is None else output.pointer,
                ffi.NULL if errors is None else errors.pointer,
                deadline,
                result,
                error,
            )
            if status == lib.VJ_OK and result.failed_stage:
                name = ffi.string(lib.vj_stage_name(result.failed_stage)).decode()
                raise NativeError("system", name, result.failed_errno, -1, name)
            if status == lib.VJ_OK:
                return {name: getattr(result, name) for name in _MEASURED}
            if status == lib.VJ_TIMED_OUT:
                return None
            if status != lib.VJ_INTERRUPTED:
                _check(status, error)
            if timeout is not None:
                return None  # the caller counts its own time and calls again

    def signal(self, number: int) -> None:
        """Send a signal to the direct child."""
        if self.is_held:
            lib.vj_run_signal(self.pointer, number)

    def kill(self) -> None:
        """Order the end of the whole run."""
        if self.is_held:
            lib.vj_run_kill(self.pointer)

    def suspend(self, *, suspended: bool) -> None:
        """Stop every process of the run, or continue them; done when it returns."""
        error = ffi.new("vj_error *")
        _check(lib.vj_run_suspend(self.pointer, suspended, error), error)

    def descriptor(self) -> int:
        """Return a descriptor that becomes readable when the run has ended."""
        return int(lib.vj_run_descriptor(self.pointer))
