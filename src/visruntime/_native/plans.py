"""What a policy decides, and the plan that it becomes: both are C's, without a system call."""

from __future__ import annotations

import os
import struct
from itertools import accumulate

from visruntime._native.library import check, ffi, lib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from typing import Any

__all__ = [
    "KIND_NUMBERS",
    "PLAN_GUEST_AT",
    "RULE",
    "Fact",
    "Strings",
    "compile_plan",
    "decide",
    "plan_path",
    "table_of",
]

Fact = tuple[str, int, int, int, int]
"""What stands at a path: its kind, device, inode, owner and group."""
RULE_KINDS = ("read", "write", "deny", "deny_read", "deny_write", "deny_exec")
RIGHTS = ("read", "write", "exec")
BACKENDS = {
    "namespaces": lib.VJ_BACKEND_NAMESPACES,
    "bubblewrap": lib.VJ_BACKEND_BUBBLEWRAP,
    "landlock": lib.VJ_BACKEND_LANDLOCK,
}
RULE = struct.Struct("@PII")
FACT = struct.Struct("@PIIIIQQ")
EXTRA = struct.Struct("@IIPP")
"""vj_rule, vj_fact and vj_extra; the tests compare them with the compiler's layout."""
PLAN_GUEST_AT: int = lib.VJ_PLAN_GUEST_AT
"""Where the guest's uid stands in a plan."""

KIND_NUMBERS = {kind: number for number, kind in enumerate(RULE_KINDS)}
OBJECTS = {
    "absent": lib.VJ_OBJECT_ABSENT,
    "directory": lib.VJ_OBJECT_DIRECTORY,
    "file": lib.VJ_OBJECT_FILE,
    "link": lib.VJ_OBJECT_LINK,
}


class Strings:
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


def table_of(name: str, rows: list[bytes]) -> Any:
    return ffi.from_buffer(f"{name}[]", b"".join(rows)) if rows else ffi.new(f"{name}[]", 1)


def decide(rules: Sequence[tuple[str, str]], right: str, path: str) -> tuple[bool, int]:
    """Return whether *right* is allowed on *path*, and the index of the rule that decided.

    The index is -1 where no rule speaks about the right. Paths are absolute and normal.
    """
    strings = Strings([path for _, path in rules])
    rows = [
        RULE.pack(address, KIND_NUMBERS[kind], 0)
        for address, (kind, _) in zip(strings.addresses, rules, strict=False)
    ]
    table = table_of("vj_rule", rows)
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
            path and every directory above it, and for the folder behind each cache.
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
    strings = Strings(texts)
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
    kinds = [
        lib.VJ_EXTRA_CACHE if operation == "CACHE" else getattr(lib, f"VJ_OPERATION_{operation}")
        for operation, _, _, _ in extras
    ]
    kinds += [lib.VJ_EXTRA_FREE] * len(free)
    first = len(rules) + len(facts)
    sources = strings.addresses[first + len(kinds) :]
    extra_rows = [
        EXTRA.pack(kind, extra[3], next(at), source)
        for kind, extra, source in zip(kinds, (*extras, *more), sources, strict=False)
    ]
    rule_table = table_of("vj_rule", rule_rows)
    fact_table = table_of("vj_fact", fact_rows)
    extra_table = table_of("vj_extra", extra_rows)
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
    check(status, error)
    try:
        return bytes(ffi.buffer(block[0], size[0]))
    finally:
        lib.vj_plan_free(block[0])


def plan_path(plan: bytes, operation: int) -> str:
    """Return the path of an operation of a plan, for messages."""
    return os.fsdecode(ffi.string(lib.vj_plan_path(ffi.from_buffer(plan), operation)))
