"""Why a program does not start in a jail: what the host has at its path, and what would grant it."""

from __future__ import annotations

import shlex
import stat

from visruntime import _native
from visruntime._policy.links import Resolver
from visruntime._policy.paths import escape, is_within, visible
from visruntime.errors import PolicyError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["StartHints"]


class StartHints:
    """Answers from the host's files, for a jail with these rules.

    No link in a write grant is followed out of the grants: a guest could have made it, to have the
    host look at, and advise to grant, what the guest chose.
    """

    __slots__ = ("_rules", "_written")

    def __init__(self, rules: Sequence[tuple[str, str]]) -> None:
        """Take (kind, path) of all rules about the host's files."""
        self._rules = rules
        self._written = [path for kind, path in rules if kind == "write"]

    def of_missing(self, name: str, directory: str, search_path: str) -> str:
        """Say why a program that exists on the host is not there for a guest in *directory*.

        *search_path* is the PATH of the guest, in which a name without a slash is looked for.
        """
        named = self._named(name, directory)
        place = self._program(name, directory)
        if named is None or place is None:
            return ""
        at = named.rpartition("/")[0] or "/"
        missed = "/" not in name and at not in search_path.split(":")
        if not _native.decide(self._rules, "exec", place)[0]:
            folder = escape(place.rpartition("/")[0] or "/")
            grant = f"grant it by read=[{folder!r}] (--read {shlex.quote(folder)})"
            start = f" and start it as {visible(named)}" if missed else ""
            return f"; the host has it, {grant}{start}"
        if missed:
            return (
                f"; it is {visible(named)}, and the PATH of the jail does not name that folder: start "
                f"it by its path, or with env={{'PATH': {visible(at) + ':' + search_path!r}}} "
                f"(--env PATH={shlex.quote(visible(at) + ':' + search_path)})"
            )
        return "; it is there, but the interpreter or loader that it names is not"

    def of_refused(self, name: str, directory: str) -> str:
        """Say whether it is the policy that keeps a program from being executed."""
        place = self._program(name, directory)
        if place is None or _native.decide(self._rules, "exec", place)[0]:
            return ""
        return f"; the policy lets the guest not execute {visible(place)}"

    def of_directory(self, path: str) -> str:
        """Say why *path* cannot be the working directory."""
        place = self._place(path)
        if place is not None and stat.S_ISDIR(place[1]):
            return "grant it by read= or write= (--read, --write)"
        if any(is_within(path, grant) for grant in self._written):
            return "it leads to no folder in the grants"
        return "there is no such folder here either"

    def _named(self, name: str, directory: str) -> str | None:
        path = f"{directory}/{name}" if "/" in name and not name.startswith("/") else name
        if "/" in path:
            host: str | None = path
        else:
            from shutil import which

            host = which(path)
        return host if host and host.startswith("/") else None

    def _program(self, name: str, directory: str) -> str | None:
        host = self._named(name, directory)
        place = self._place(host) if host else None
        return place and place[0]

    def _place(self, path: str) -> tuple[str, int] | None:
        """Return where *path* leads on the host, and the mode of what is there."""
        inside = any(is_within(path, grant) for grant in self._written)
        try:
            with Resolver(within=self._written if inside else None) as resolver:
                real = resolver(path)
        except PolicyError:
            return None
        links = (link for link, _ in resolver.links[path])
        if not inside and any(is_within(link, top) for link in links for top in self._written):
            return None
        found = resolver.found.get(real)
        return None if found is None else (real, found.st_mode)
