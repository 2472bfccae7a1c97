"""Look through the host's files: sockets, links, secrets, and what patterns name."""

from __future__ import annotations

import os

from visruntime._native.library import check, ffi, lib
from visruntime._native.plans import KIND_NUMBERS, RULE, Strings, table_of
from visruntime._owned import Owned

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from typing import Any

__all__ = [
    "KEY_BYTES",
    "PATTERN_PARTS_MAX",
    "JudgedNames",
    "Names",
    "expand",
    "expand_budget",
    "file_id",
    "find_secret",
    "fits",
    "is_private_key",
    "search",
]


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


class Names(Owned):
    """Names of files that have several, from any number of searches; their paths are not kept.

    *rules*, as `compile_plan` takes them, and *protected* paths say what each name gives.
    """

    __slots__ = ("_blocks", "_keep", "folders")

    def __init__(
        self, rules: Sequence[tuple[str, str, bool, bool]], protected: Sequence[str]
    ) -> None:
        every = [*rules, *(("deny_write", path, False, False) for path in protected)]
        strings = Strings([path for _, path, _, _ in every])
        table = table_of(
            "vj_rule",
            [
                RULE.pack(address, KIND_NUMBERS[kind], lib.VJ_RULE_PRIVATE if private else 0)
                for address, (kind, _, private, _) in zip(strings.addresses, every, strict=False)
            ],
        )
        # A tree of the rules, made once: there may be as many searches as rules.
        tree = lib.vj_tree_new(table, len(every))
        if tree == ffi.NULL:
            raise MemoryError
        super().__init__(tree, lib.vj_tree_delete, ReferenceError)
        self._keep = strings, table
        self._blocks: list[bytes] = []
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
    return ffi.new("vj_file_id[]", sorted(files) or 1)


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
    devices: bool = False,
    installed: bool = True,
    links: Names | None = None,
    wanted: Collection[tuple[int, int]] = (),
    secrets: bytes = b"",
) -> list[tuple[str, str]]:
    """Return (kind, path) of what a mount alone does not tame at and below *directory*.

    Kinds: "s" a socket, "f" a FIFO, "v" a device node (with *devices*), "i" a set-id file
    (with *set_id*) or one with capabilities (with *capabilities*), "u" a folder that cannot
    be listed but that a guest could enter, "k" what the list *secrets* names (of a folder,
    nothing below it), "h" a name of one of the files *wanted*. No link is followed.

    Args:
        links: takes the names of files that have several, at most *most_links*.
        installed: look into installed code, too, as the list *secrets* knows it.

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
    request.files = (
        (lib.VJ_SEARCH_SET_ID if set_id else 0)
        | (lib.VJ_SEARCH_CAPABILITIES if capabilities else 0)
        | (lib.VJ_SEARCH_DEVICES if devices else 0)
        | (0 if installed else lib.VJ_SEARCH_NO_INSTALLED)
    )
    if links is not None:
        request.files |= lib.VJ_SEARCH_LINKS
        request.rules = links.pointer
        request.first_folder = len(links.folders) + 1
    check(lib.vj_search(request, result, error), error)
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
    check(lib.vj_expand(request, budget, found, size, error), error)
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
