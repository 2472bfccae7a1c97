"""The secrets in the grants of a jail that opens: which are hidden, which the policy reveals."""

from __future__ import annotations

import stat

from visruntime._native import file_id
from visruntime._policy.links import LeadsOut, LinkLoop, Resolver
from visruntime._policy.looks import is_missing, may_be_folder, status_at
from visruntime._policy.paths import Trees, ancestors, visible
from visruntime._policy.secret_names import hidden_at, table
from visruntime.errors import PolicyError, PolicyUnsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

    from visruntime._jail.aliases import Aliases
    from visruntime._policy.decider import Decider

__all__ = ["Secrets"]


class Secrets:
    """What a search has found by name, on the way to what is hidden.

    ``notes`` says which entries of ``reveal`` lifted nothing; ``links`` has those by which
    something is hidden, and which a guest could remove: the next jail would not hide it.
    """

    __slots__ = ("_aliases", "_found", "_names", "_reveal", "links", "notes")

    def __init__(self, reveal: Sequence[str], aliases: Aliases) -> None:
        self._aliases = aliases
        self._names = table()
        self._reveal = reveal
        self._found: dict[str, os.stat_result] = {}
        self.links: list[str] = []
        self.notes: list[str] = []

    def names_in(self, place: str) -> bytes:
        """Return the list to look for below *place*: nothing where installed code is."""
        probe = f"{place.rstrip('/')}/.ssh"  # named by the list anywhere but in installed code
        return self._names if hidden_at(self._names, probe, (), folder=True) else b""

    def found(self, path: str) -> None:
        """Take a path that the search found by its name."""
        found = status_at(path)
        if found is not None:  # else it went away, and with it the secret
            self._found[path] = found

    def with_other_names(self) -> list[tuple[int, int]]:
        """Return (device, inode) of the files that were found and have several names."""
        return sorted(
            {
                file_id(one)
                for one in self._found.values()
                if stat.S_ISREG(one.st_mode) and one.st_nlink > 1
            }
        )

    def revealed_folders(self) -> list[str]:
        """Return what is to be looked through after all, since `reveal` shows it."""
        return [
            path
            for path in self._reveal
            if any(top in self._found for top in ancestors(path)) and may_be_folder(path)
        ]

    def judge(
        self,
        every: Decider,
        rules: Sequence[tuple[str, str, bool, bool]],
        files: dict[tuple[int, int], list[str]],
        places: Sequence[str],
    ) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
        """Return what is hidden, as (path, reason), and the grants that reveal makes.

        Args:
            every: over all *rules* of the jail.
            files: the names of those that have several; what is hidden is taken out.
            places: what the guest may see of the host; links are followed in there only.

        Raises:
            PolicyUnsupported: following the links takes too long.
        """

        def shown(path: str) -> bool:
            readable, index = every("read", path)
            return readable and not rules[index][2]

        hidden: dict[str, str] = {}
        for path, target, mode, links in self._followed(places):
            reason = self._reason(path, target, mode)
            if not reason or not shown(target):
                continue
            hidden[target] = reason
            self.links += links
            for name in _other_names(target, files):
                if shown(name) and name not in self._reveal:
                    hidden.setdefault(name, f"{reason}; a second name of {target}")
        reopened = []
        found = Trees(self._found)
        for index, path in enumerate(self._reveal):
            inside = any(step in hidden for step in ancestors(path) if step != path)
            if inside and not is_missing(path) and every("read", path)[0]:
                reopened.append(("write" if every("write", path)[0] else "read", path))
            elif not self._lifts(path, found):
                self.notes.append(f"reveal[{index}]: nothing is hidden at {path}")
        return sorted(hidden.items()), reopened

    def _followed(self, places: Sequence[str]) -> Iterator[tuple[str, str, int, list[str]]]:
        """Yield (path, where it leads, mode of what is there, links on the way) of all found.

        A guest can have made the links: one out of the places that it sees would let it choose
        what the host looks up and covers elsewhere, so such a link is no secret of the grants.
        """
        left_out = []
        with Resolver(within=places) as resolver:
            for path, status in self._found.items():
                if not stat.S_ISLNK(status.st_mode):
                    yield path, path, status.st_mode, []
                    continue
                try:
                    target = resolver(path)
                except (LeadsOut, LinkLoop):
                    left_out.append(path)
                    continue
                except PolicyError as error:
                    raise PolicyUnsupported(
                        f"secrets: {error}; remove that link", field="secrets", value=path
                    ) from None
                there = resolver.at(target)
                if there is not None:
                    yield path, target, there.st_mode, [link for link, _ in resolver.links[path]]
        if left_out:
            self.notes.append(
                f"links_out: {len(left_out)} links with names of secrets lead out of the grants "
                f"and hide nothing there, such as {visible(left_out[0])}"
            )

    def _reason(self, path: str, target: str, mode: int) -> str:
        """Return why *target* is hidden, to which *path* leads if that is a link."""
        folder = stat.S_ISDIR(mode)
        if not folder and not stat.S_ISREG(mode):
            return ""
        by_name = hidden_at(self._names, path, (), folder=folder)
        if by_name is None:
            return ""
        if path != target:
            return "" if target in self._reveal else by_name[1]
        # Asked of the secret itself, so that a path inside of it does not lift all of it.
        return (hidden_at(self._names, path, self._reveal, folder=folder) or ("", ""))[1]

    def _lifts(self, path: str, found: Trees) -> bool:
        # A second mount of a secret is hidden with it, and has a name of its own.
        names = (path, *self._aliases.second_mounts(path))
        return any(map(found.touch, names)) or hidden_at(self._names, path, ()) is not None


def _other_names(path: str, files: dict[tuple[int, int], list[str]]) -> list[str]:
    """Take the file at *path* out of *files* and return its names."""
    found = status_at(path)
    # The plan notices it if it went away.
    return [] if found is None else files.pop(file_id(found), [])
