"""Profiles of macOS: what a policy becomes there, computed by C on every platform."""

from __future__ import annotations

import os
from contextlib import contextmanager

from visruntime._native.library import check, ffi, lib
from visruntime._native.plans import KIND_NUMBERS, RULE, Strings, table_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from typing import Any

__all__ = ["PROGRAMS", "built_profile", "macos_path", "macos_profile", "service_refused"]

PROGRAMS = {
    "python": lib.VJ_MACOS_PYTHON,
    "node": lib.VJ_MACOS_NODE,
    "git": lib.VJ_MACOS_GIT,
}
"""Programs that need more than every process does, and their bits."""

STRING_MAX = 1025


def macos_path(path: str) -> str:
    """Return the path by which macOS's kernel knows *path*.

    Raises:
        NativeError: refused, because no filter on it would ever fit.
    """
    resolved = ffi.new("char[]", STRING_MAX)
    error = ffi.new("vj_error *")
    check(lib.vj_macos_path(os.fsencode(path), resolved, STRING_MAX, error), error)
    return os.fsdecode(ffi.string(resolved))


def service_refused(name: str) -> str:
    """Return why macOS's service *name* is not given even by name, or ""."""
    why = lib.vj_macos_service_refused(os.fsencode(name))
    return "" if why == ffi.NULL else ffi.string(why).decode()


@contextmanager
def built_profile(
    *,
    rules: Sequence[tuple[str, str]],
    own: str | None = None,
    terminal: str | None = None,
    sockets: Sequence[str] = (),
    services: Sequence[str] = (),
    host_ports: Sequence[int] = (),
    held: Collection[str] = (),
    programs: Collection[str] = (),
    network_open: bool = False,
    system: bool = False,
    ignores_case: bool = False,
) -> Iterator[Any]:
    """Give the C record of the profile that `macos_profile` describes, for a while.

    Raises:
        NativeError: refused; ``index`` is that of the rule, or -1.
    """
    strings = Strings([path for _, path in rules])
    rows = [
        RULE.pack(address, KIND_NUMBERS[kind], lib.VJ_RULE_HELD if path in held else 0)
        for address, (kind, path) in zip(strings.addresses, rules, strict=False)
    ]
    table = table_of("vj_rule", rows)
    kept: list[Any] = []
    settings = ffi.new("vj_macos_settings *")
    settings.size = ffi.sizeof("vj_macos_settings")
    settings.version = lib.VJ_MACOS_PROFILE_VERSION
    for wanted, flag in (
        (network_open, lib.VJ_MACOS_NETWORK_OPEN),
        (system, lib.VJ_MACOS_SYSTEM),
        (ignores_case, lib.VJ_MACOS_IGNORES_CASE),
    ):
        settings.flags |= flag if wanted else 0
    for name in programs:
        settings.programs |= PROGRAMS[name]
    for field, path in (("own", own), ("terminal", terminal)):
        if path is not None:
            kept.append(ffi.new("char[]", os.fsencode(path)))
            setattr(settings, field, kept[-1])
    for field, count, texts in (
        ("sockets", "socket_count", sockets),
        ("services", "service_count", services),
    ):
        kept += [ffi.new("char[]", os.fsencode(text)) for text in texts]
        kept.append(ffi.new("char *[]", kept[len(kept) - len(texts) :] or 1))
        setattr(settings, field, kept[-1])
        setattr(settings, count, len(texts))
    kept.append(ffi.new("uint16_t[]", list(host_ports) or 1))
    settings.host_ports = kept[-1]
    settings.host_port_count = len(host_ports)
    profile = ffi.new("vj_macos_profile *")
    error = ffi.new("vj_error *")
    check(lib.vj_macos_profile_build(settings, table, len(rules), profile, error), error)
    try:
        yield profile
    finally:
        lib.vj_macos_profile_free(profile)


def macos_profile(
    *, rules: Sequence[tuple[str, str]], **settings: Any
) -> tuple[str, dict[str, str]]:
    """Return the Seatbelt profile of *rules* (kind, path), and its parameters by name.

    Args:
        settings: ``own``, the jail's own folder, where its guests make files and sockets;
            ``terminal``, the device of the run's own; ``sockets``, ``services`` and ``host_ports``;
            ``held``, paths of rules that name what does not exist and must not be made;
            ``programs``, which of `PROGRAMS` run; ``system``, its programs and configuration can
            be read; ``network_open``; ``ignores_case``, names that differ in case only are one.

    Raises:
        NativeError: refused; ``index`` is that of the rule, or -1.
    """
    with built_profile(rules=rules, **settings) as profile:
        text = os.fsdecode(bytes(ffi.buffer(profile.text, profile.text_size)))
        said = bytes(ffi.buffer(profile.parameters, profile.parameters_size))
    parts = os.fsdecode(said).split("\0")[:-1]
    return text, dict(zip(parts[::2], parts[1::2], strict=True))
