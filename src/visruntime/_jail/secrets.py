"""The secrets in the grants of a jail that opens: which are hidden, which the policy reveals."""

from __future__ import annotations

import os
import stat

from visruntime._native import file_id
from visruntime._policy.links import LeadsOut, LinkLoop, Resolver
from visruntime._policy.looks import is_missing, may_be_folder, status_at
from visruntime._policy.paths import Trees, ancestors, is_within, visible
from visruntime._policy.secret_names import hidden_at, table
from visruntime.errors import PolicyError, PolicyUnsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from visruntime._jail.aliases import Aliases
    from visruntime._policy.decider import Decider

    _Lead = tuple[str, os.stat_result | None, list[str]]

__all__ = ["Secrets"]


MOST_INSIDE = 200_000
"""Names in one secret folder that are looked at, for files with other names and links."""

EXECUTABLE = 0o111


class Secrets:
    """What a search has found by name, on the way to what is hidden.

    ``notes`` says which entries of ``reveal`` lifted nothing; ``links`` has those by which
    something is hidden, and which a guest could remove: the next jail would not hide it.
    """

    __slots__ = ("_aliases", "_found", "_hidden", "_inside", "_names", "_reveal", "links", "notes")

    def __init__(self, reveal: Sequence[str], aliases: Aliases) -> None:
        self._aliases = aliases
        self._names = table()
        self._reveal = reveal
        self._found: dict[str, os.stat_result] = {}
        self._hidden: list[tuple[str, str, Sequence[str]]] = []
        self._inside: dict[str, list[tuple[int, int]]] = {}
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

    def with_other_names(self, places: Sequence[str]) -> list[tuple[int, int]]:
        """Return (device, inode) of the files to be hidden that have several names.

        Of what was found, of what that leads to, and of all that lies in a secret folder.

        Args:
            places: what the guest may see of the host; links are followed in there only.

        Raises:
            PolicyUnsupported: following the links takes too long, or a secret folder is too large.
        """
        left_out = []
        with Resolver(within=places) as resolver:
            for path, status in self._found.items():
                lead = self._follow(path, status, resolver)
                if lead is None:
                    left_out.append(path)
                    continue
                target, there, links = lead
                reason = there and self._reason(path, target, there.st_mode)
                if there and reason:
                    self._hide(target, there, reason, links, resolver)
        if left_out:
            self.notes.append(
                f"links_out: {len(left_out)} links with names of secrets lead out of the grants "
                f"and hide nothing there, such as {visible(left_out[0])}"
            )
        return sorted({one for inside in self._inside.values() for one in inside})

    def _follow(self, path: str, status: os.stat_result, resolver: Resolver) -> _Lead | None:
        """Return where *path* leads, what is there and the links on the way, ``None`` for outside.

        A guest can have made the links: one out of the places that it sees would let it choose
        what the host looks up and covers elsewhere, so such a link is no secret of the grants.
        """
        if not stat.S_ISLNK(status.st_mode):
            return path, status, []
        try:
            target = resolver(path)
        except (LeadsOut, LinkLoop):
            return None
        except PolicyError as error:
            raise PolicyUnsupported(
                f"secrets: {error}; remove that link", field="secrets", value=path
            ) from None
        return target, resolver.at(target), [link for link, _ in resolver.links[path]]

    def _hide(
        self,
        target: str,
        status: os.stat_result,
        reason: str,
        links: Sequence[str],
        resolver: Resolver,
    ) -> None:
        self._hidden.append((target, reason, links))
        if target in self._inside:
            return
        if not stat.S_ISDIR(status.st_mode):
            self._inside[target] = [file_id(status)] if status.st_nlink > 1 else []
            return
        self._inside[target] = []
        for path, inner in self._files_in(target):
            if stat.S_ISREG(inner.st_mode):
                self._inside[target] += [file_id(inner)] if inner.st_nlink > 1 else []
                continue
            lead = self._follow(path, inner, resolver)
            there = lead and lead[1]
            # A program that a link names is none; nor is a folder, which may be all of a grant.
            is_file = there and stat.S_ISREG(there.st_mode) and not there.st_mode & EXECUTABLE
            if lead and there and is_file and lead[0] not in self._reveal:
                self._hide(lead[0], there, f"{reason}; {path} leads there", lead[2], resolver)

    def _files_in(self, folder: str) -> Iterator[tuple[str, os.stat_result]]:
        """Yield the files and links in a secret *folder*, at any depth, that reveal does not show."""
        waiting = [folder]
        left = MOST_INSIDE
        for place in waiting:
            try:
                with os.scandir(place) as entries:
                    for entry in entries:
                        left -= 1
                        if entry.path in self._reveal:
                            continue
                        if entry.is_dir(follow_symlinks=False):
                            waiting.append(entry.path)
                        elif entry.is_file(follow_symlinks=False) or entry.is_symlink():
                            yield entry.path, entry.stat(follow_symlinks=False)
            except OSError:
                continue  # it went away, or nobody but its owner looks into it
            if left < 0:
                raise PolicyUnsupported(
                    f"secrets: more than {MOST_INSIDE} names lie in {visible(folder)}, and a file "
                    "there may have another name; grant less",
                    field="secrets",
                    value=folder,
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
    ) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
        """Return what is hidden, as (path, reason), and the grants that reveal makes.

        Args:
            every: over all *rules* of the jail.
            files: the names of those that have several; what is hidden is taken out.
        """

        def shown(path: str) -> bool:
            readable, index = every("read", path)
            return readable and not rules[index][2]

        hidden: dict[str, str] = {}
        for target, reason, links in self._hidden:
            if not shown(target):
                continue
            hidden[target] = reason
            self.links += links
            for one in self._inside[target]:
                for name in files.pop(one, ()):
                    if shown(name) and name not in self._reveal and not is_within(name, target):
                        hidden.setdefault(name, f"{reason}; a second name in {target}")
        reopened = []
        found = Trees(self._found)
        for index, path in enumerate(self._reveal):
            inside = any(step in hidden for step in ancestors(path) if step != path)
            if inside and not is_missing(path) and every("read", path)[0]:
                reopened.append(("write" if every("write", path)[0] else "read", path))
            elif not self._lifts(path, found):
                self.notes.append(f"reveal[{index}]: nothing is hidden at {path}")
        return sorted(hidden.items()), reopened

    def _reason(self, path: str, target: str, mode: int) -> str:
        """Return why *target* is hidden, to which *path* leads if that is a link."""
        folder = stat.S_ISDIR(mode)
        if not folder and not stat.S_ISREG(mode):
            return ""
        by_name = hidden_at(self._names, path, (), folder=folder, content=target)
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
