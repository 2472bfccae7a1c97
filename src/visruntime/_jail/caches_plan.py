"""Caches in a plan: of the host's files they take something away, and show a folder in its place.

So the plan denies the path of a cache, which covers and pins what the host has there as any deny
does, and binds the policy's own folder on top. What is concluded about the host's files
(secrets, links, what the host runs) sees the deny only.
"""

from __future__ import annotations

import os
import stat

from visruntime._jail.state_folder import CACHES, state_folder, state_folders
from visruntime._policy.caches import cache_rules
from visruntime._policy.decider import Decider
from visruntime._policy.links import real_path
from visruntime._policy.looks import status_at
from visruntime._policy.paths import ancestors, is_within, visible
from visruntime._policy.values import Rule
from visruntime.errors import PolicyError, PolicyUnsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from visruntime._jail.aliases import Aliases
    from visruntime._jail.caches import CacheFolders
    from visruntime.policy import JailPolicy

__all__ = ["PlannedCaches", "hidden_caches"]

PlanRule = tuple[str, str, bool, bool]


class PlannedCaches:
    """The caches of one plan.

    ``sources`` has (path, folder) of each, ``denies`` a deny of each path, and ``covering`` those of
    them that cover something of the host's that is granted around it.
    """

    __slots__ = ("_acts", "_own_points", "covering", "denies", "sources")

    def __init__(self) -> None:
        self.sources: list[tuple[str, str]] = []
        self.denies: list[Rule] = []
        self.covering: list[Rule] = []
        self._own_points: list[str] = []
        self._acts: list[str] = []

    def place(
        self,
        policy: JailPolicy,
        resolved: Sequence[Rule],
        folders: CacheFolders | None,
        rules: Sequence[PlanRule],
        unasked: Iterable[str],
    ) -> None:
        """Find out where each cache stands, and refuse what cannot be one.

        Args:
            policy: whose caches.
            resolved: its rules; those of caches have the real paths.
            folders: what is shown there.
            rules: all rules of the host's files.
            unasked: real paths that the caller's library has granted, and of sockets.

        Raises:
            PolicyUnsupported: what stands there is needed, or is no folder.
            PolicyError: it is missing where the jail makes nothing.
        """
        if folders is None:
            return
        own = cache_rules(resolved)
        decide = Decider([rule[:2] for rule in rules])
        kept = real_path(state_folder())
        for cache in own:
            if is_within(cache.path, kept):
                raise PolicyUnsupported(
                    f"{cache.origin}: {visible(cache.path)} lies in {visible(kept)}, where "
                    "visruntime keeps things of its own; name another folder",
                    field=cache.origin,
                    value=cache.path,
                )
            for path in unasked:
                if is_within(path, cache.path) or is_within(cache.path, path):
                    raise PolicyUnsupported(
                        f"{cache.origin}: {visible(cache.path)} and {visible(path)}, which the guest "
                        "needs from the host, lie in each other; name another folder",
                        field=cache.origin,
                        value=cache.path,
                    )
            index = int(cache.origin[len("caches[") : -1])
            self.sources.append((cache.path, folders.places[policy.caches[index]]))
            deny = Rule(kind="deny", path=cache.path, origin=cache.origin)
            self.denies.append(deny)
            around = os.path.dirname(cache.path)
            readable, at = decide("read", around)
            if readable and not rules[at][2]:
                _check_point(cache, rules[at][1])
                self.covering.append(deny)
            else:
                self._own_points.append(cache.path)
        # What guests of this policy have put into a cache says nothing about the others.
        if not any(is_within(folders.root, cache.path) for cache in own):
            self._acts.append(f"r{folders.root}")

    def rules(self) -> list[PlanRule]:
        """Return the rules to add to those of the host's files."""
        return [(rule.kind, rule.path, False, False) for rule in self.denies]

    def seen(self, rules: Sequence[PlanRule]) -> list[tuple[str, str]]:
        """Return (kind, path) of *rules* as a guest meets them: it may write in each cache."""
        tops = {path for path, _ in self.sources}
        return [
            *(rule[:2] for rule in rules if not tops or not tops.intersection(ancestors(rule[1]))),
            *(("write", path) for path in tops),
        ]

    def acts(self) -> list[str]:
        """Return what must fail in a jail with caches: to list those of all policies."""
        return self._acts

    def extras(self) -> list[tuple[str, str, str, int]]:
        """Return the operations that show them."""
        return [("CACHE", path, source, 0) for path, source in self.sources]

    def own_points(self) -> list[str]:
        """Return the paths at which nothing of the host's is in sight."""
        return self._own_points


def _check_point(cache: Rule, grant: str) -> None:
    """Refuse a cache inside of a grant where no folder is: nothing is made on the host."""
    found = status_at(cache.path)
    if found is None:
        raise PolicyError(
            f"{cache.origin}: {visible(cache.path)} does not exist inside the granted "
            f"{visible(grant)}, and a jail makes nothing on the host; make it (mkdir -p), or name a "
            "folder outside of the grants",
            field=cache.origin,
            value=cache.path,
        )
    if not stat.S_ISDIR(found.st_mode):
        raise PolicyUnsupported(
            f"{cache.origin}: {visible(cache.path)} is no folder on this host, and a cache is one; "
            "name another path",
            field=cache.origin,
            value=cache.path,
        )


def hidden_caches(
    written: Sequence[Rule],
    rules: Sequence[PlanRule],
    aliases: Aliases,
    looks: dict[str, os.stat_result | None],
) -> list[tuple[str, str]]:
    """Return (path, why) of what must be covered, so that no guest sees the caches of others.

    Args:
        written: the rules of the policy's own fields, resolved.
        rules: all rules.
        aliases: of the host's mounts.
        looks: gets what the answer rests on.

    Raises:
        PolicyError: a rule grants something in the folder of all caches.
    """
    granted = {
        path for kind, path, private, _ in rules if kind in ("read", "write") and not private
    }
    folders = []
    for state in state_folders():
        asked = os.path.join(state, CACHES)
        # What the system's folders hold is not reached through a link of the user's.
        if written or any(top in granted for top in ancestors(asked)):
            from visruntime._jail.caches import caches_folder

            folder = caches_folder(asked, looks)
            if folder is not None and folder not in folders:
                folders.append(folder)
    if not folders:
        return []
    names = [name for folder in folders for name in (folder, *aliases.second_mounts(folder))]
    decide = Decider([rule[:2] for rule in rules])
    found = []
    for name in names:
        for rule in written:
            if rule.kind not in ("read", "write") or not is_within(rule.path, name):
                continue
            if decide("read", rule.path)[0]:
                raise PolicyError(
                    f"{rule.origin}: {visible(rule.path)} lies in {visible(name)}, the caches of all "
                    "policies, each for its own guests; grant another folder",
                    field=rule.origin,
                    value=rule.path,
                )
        if any(top in granted for top in ancestors(name)):
            readable, at = decide("read", name)
            if readable and not rules[at][2]:
                found.append((name, "the caches of all policies, each for its own guests"))
    return found
