"""What a guest must not change because the host runs or trusts it afterwards.

Asked for by no policy and lifted by none: the interpreter and the packages that the host
process imports, this package and its executables, the interpreters of version managers, and
the package caches from which installers link files into other environments. A link on the way
to one of them is as good as the thing itself, for whoever can replace it.
"""

from __future__ import annotations

import os
import sys

import visruntime
from visruntime import _native
from visruntime._host.own_prefixes import own_prefixes
from visruntime._host.own_version import KEPT_NAMES
from visruntime._jail.state_folder import (
    BUILDING,
    BUNDLES,
    CACHES,
    ENVIRONMENTS,
    default_caches,
    make_state_folder,
    state_folders,
)
from visruntime._jail.version_managers import version_managers
from visruntime._policy.decider import Decider
from visruntime._policy.links import Resolver
from visruntime._policy.looks import is_missing, refuse_closed
from visruntime._policy.paths import is_within, visible
from visruntime.errors import PolicyError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["Protection", "protect"]

PROTECTED, IMPORTED, CACHE, DEFAULT, STATE = "protected", "imported", "cache", "default", "state"
"""What becomes of a path in a write grant: read-only; read-only unless it is granted itself;
read-only, and not to be made where it is missing; the same of a cache that only processes with
other variables use; the same, though a build of an environment has a grant in it."""
_HOLDS = {CACHE: ("wall",), DEFAULT: ("wall", "broker"), STATE: ("wall", "broker")}
"""Which ways to keep a missing name from being made are taken unasked: a state folder that is
missing even now cannot be made by this user, and a grant of the home must not need one, nor a
cache that is not in use here."""


class Protection:
    """What stays read-only in write grants: ``existing`` paths, and names ``to_come``.

    ``everywhere`` has all that the host runs or trusts, wherever it is: another mount may show
    it in a grant. ``places`` are those from which the host imports, wherever they are.
    """

    __slots__ = ("everywhere", "existing", "notes", "places", "to_come")

    def __init__(self) -> None:
        self.everywhere: list[str] = []
        self.existing: list[str] = []
        self.to_come: list[str] = []
        self.notes: list[str] = []
        self.places: list[str] = []


def protect(
    rules: Sequence[tuple[str, str]],
    grants: Sequence[str],
    config_files: Iterable[str],
    *,
    absent_deny: str,
) -> Protection:
    """Return what the host itself runs or trusts and would be writable.

    Args:
        rules: (kind, real path) of all rules of the host's files.
        grants: real paths of the write grants.
        config_files: policy and configuration files in use.
        absent_deny: what keeps names that do not exist from being made.

    Raises:
        PolicyError: a grant lies in such a thing, or holds a link to one, or the name of one
            that does not exist and cannot be kept.
    """
    found = Protection()
    if not grants:
        return found
    from visruntime._host.editable_builds import build_folders
    from visruntime._host.import_places import unknown_finders

    decide = Decider(rules)
    links: list[tuple[str, str, str]] = []
    for kind, real, on_the_way, what, closed in _host_files(config_files, grants):
        if kind == IMPORTED:
            found.places.append(real)
        links += [(link, real, what) for link in on_the_way]
        if kind == STATE:
            # A build has its own folder in that of builds, and nothing else of the state folder.
            builds = os.path.join(real, BUILDING)
            others = [g for g in grants if g == builds or not is_within(g, builds)]
            _refuse_grants_in(real, what, others, decide)
        elif kind != IMPORTED:
            _refuse_grants_in(real, what, grants, decide)
        elif real in grants:
            found.notes.append(f"host_imports_from_grant: {visible(real)} is {what}")
            continue
        elif packages := [grant for grant in grants if _is_package(real, grant)]:
            found.notes.append(
                f"host_imports_from_grant: {visible(packages[0])} is part of a package in "
                f"{visible(real)}, which is {what}"
            )
        wholes = [os.path.join(real, name) for name in (ENVIRONMENTS, BUNDLES, CACHES)]
        for whole in wholes if kind == STATE else [real]:
            if whole not in found.everywhere:
                found.everywhere.append(whole)
        if not decide("write", real)[0] or _is_kept(real, found.existing, grants):
            continue
        if closed:
            refuse_closed(real, field="write")
        if kind == STATE:
            make_state_folder(real)
        if not is_missing(real):
            if real not in found.existing:
                found.existing.append(real)
        elif absent_deny in _HOLDS.get(kind, ()):
            found.to_come.append(real)
        elif kind in (CACHE, DEFAULT, STATE):
            raise PolicyError(
                f"write: {visible(real)} does not exist and could be made by a guest; it is "
                f"{what}: make it (mkdir -p {visible(real)}), so that it can be kept read-only, or "
                'set absent_deny="wall", or grant less',
                field="write",
                value=real,
            )
        elif kind == IMPORTED:
            found.notes.append(
                f"host_imports_from_grant: {visible(real)}, which does not exist, is {what}"
            )
    found.notes += [
        f"host_imports_from_grant: {finder} decides where the host imports from, and does not say "
        "which folders those are"
        for finder in unknown_finders()
    ]
    found.notes += [
        f"host_imports_from_grant: to import what {finder} finds builds it in {visible(folder)} "
        "first, which runs what its sources say; those in a write grant are the guest's"
        for folder, finder in build_folders().items()
    ]
    _refuse_links(links, [*rules, *(("deny_write", path) for path in found.existing)])
    return found


def _refuse_grants_in(real: str, what: str, grants: Sequence[str], decide: Decider) -> None:
    for grant in grants:
        if is_within(grant, real) and decide("write", grant)[0]:
            raise PolicyError(
                f"write: {grant} lies in {real}, {what}: what a guest writes there the host "
                "would run; grant another folder",
                field="write",
                value=grant,
            )


def _is_package(folder: str, grant: str) -> bool:
    """Tell whether *grant* is a package or the bytecode in *folder*, or lies in one of these."""
    if grant == folder or not is_within(grant, folder):
        return False
    top = grant[len(folder.rstrip("/")) + 1 :].partition("/")[0]
    return top == "__pycache__" or not is_missing(os.path.join(folder, top, "__init__.py"))


def _is_kept(real: str, existing: Sequence[str], grants: Sequence[str]) -> bool:
    """Tell whether *real* lies in what is read-only already, and in no grant within that."""
    return any(
        is_within(real, kept)
        and not any(is_within(real, grant) and is_within(grant, kept) for grant in grants)
        for kept in existing
    )


def _refuse_links(links: Sequence[tuple[str, str, str]], plain: list[tuple[str, str]]) -> None:
    """Refuse links that a guest could replace: no mount can cover a link."""
    decide = Decider(plain)
    for link, real, what in links:
        if decide("write", link)[0]:
            raise PolicyError(
                f"write: {visible(link)} is a link to {visible(real)}, {what}, and a guest could "
                f"put something else in its place; put {visible(real)} itself there, or move the "
                "link out of the grant",
                field="write",
                value=link,
            )


def _host_files(
    config_files: Iterable[str], grants: Sequence[str]
) -> Iterator[tuple[str, str, list[str], str, bool]]:
    """Yield what the host runs or trusts.

    That is (what becomes of it, real path, links on the way, what it is, nobody can look at it).
    """
    with Resolver() as resolver:
        for kind, path, what in _candidates(config_files, grants):
            try:
                whole = os.path.join(os.getcwd(), path)
            except FileNotFoundError:
                continue  # relative to a folder that is gone
            if whole in resolver.links:
                continue
            real = resolver(whole)
            links = [link for link, _ in resolver.links[whole]]
            yield kind, real, links, what, real in resolver.closed


def _candidates(
    config_files: Iterable[str], grants: Sequence[str]
) -> Iterator[tuple[str, str, str]]:
    from visruntime._host.import_places import import_places, mapped_programs

    for prefix in own_prefixes():
        yield PROTECTED, prefix, "the prefix of the host's Python"
    yield PROTECTED, os.path.dirname(os.__file__), "the host's standard library"
    for program in (sys.executable, _running()):
        if program:
            yield PROTECTED, program, "the host's interpreter"
    for entry in sys.path:
        if os.path.basename(entry) in KEPT_NAMES:
            yield PROTECTED, entry, "packages that the host imports"
    yield PROTECTED, os.path.dirname(os.path.abspath(visruntime.__file__)), "the package visruntime"
    yield PROTECTED, _native.BINARY_DIRECTORY, "the executables of visruntime"
    for kind, cache in _caches():
        yield kind, cache, "a cache from which installers link files into other environments"
    for folder in version_managers():
        yield DEFAULT, folder, "where a version manager keeps the interpreters of workers"
    for folder in state_folders():
        yield STATE, folder, "where visruntime keeps environments, which other guests run"
    if sys.pycache_prefix:
        yield CACHE, sys.pycache_prefix, "the place of the code that the host has compiled"
    for path in config_files:
        yield PROTECTED, path, "a policy or configuration file in use"
    for path, what in import_places(grants):
        yield IMPORTED, path, what
    for path in mapped_programs(grants):
        yield IMPORTED, path, "a program or library that the host runs"


def _running() -> str:
    """Return the program that really runs: the host's argv[0] may say something else."""
    try:
        return os.readlink("/proc/self/exe")
    except OSError:
        return ""


def _caches() -> Iterator[tuple[str, str]]:
    home = os.path.expanduser("~")  # stays as it is where neither HOME nor an account says more
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(home, ".cache")
    for name, default in (("UV_CACHE_DIR", "uv"), ("PIP_CACHE_DIR", "pip")):
        path = os.environ.get(name) or os.path.join(cache, default)
        if not path.startswith("~"):
            yield CACHE, path
    for folder in default_caches():
        for name in ("uv", "pip"):
            yield DEFAULT, os.path.join(folder, name)
