"""Finding modules in those places only where no guest of this process could have written.

Modules belong to the whole process, and a jail that is closed has left its files behind. So what
guests could write is remembered for the process too, in `GUESTS`; empty, as long as no write
grant has covered a place where modules are looked for.
"""

from __future__ import annotations

import os
import sys
from _thread import get_ident
from contextlib import contextmanager
from importlib.machinery import PathFinder

from visruntime._host.editable_builds import builds_before_it_finds
from visruntime._host.own_version import KEPT_NAMES
from visruntime._policy.decider import Decider
from visruntime._policy.links import Resolver, real_path
from visruntime._policy.paths import is_within
from visruntime.errors import PolicyError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

__all__ = ["GUESTS", "Guests"]

MOST_POLICIES = 256
"""Different policies that are remembered one by one; after that no place is trusted but those
that no policy can give."""


class Guests:
    """What the guests of this process could write where it looks for modules.

    It is also the finder that leaves those places out, for the threads that ask for that.
    """

    def __init__(self) -> None:
        self._policies: dict[tuple[tuple[str, str], ...], Decider] = {}
        self._threads: dict[int, int] = {}

    @property
    def known(self) -> bool:
        """Whether there was any such guest."""
        return bool(self._policies)

    def remember(self, rules: Sequence[tuple[str, str]]) -> None:
        """Remember that a guest has *rules*, (kind, real path) each."""
        key = tuple(rules)
        if key not in self._policies and len(self._policies) <= MOST_POLICIES:
            self._policies[key] = Decider(key)

    def could_write(self, place: str) -> bool:
        """Whether one of them could have written at *place*, or its place can change."""
        if not os.path.isabs(place):
            return True
        try:
            with Resolver() as resolver:
                real = resolver(place)
        except PolicyError:
            return True
        if len(self._policies) > MOST_POLICIES:
            return not _is_kept(real)
        # A link on the way may be one that a guest has put in the place of a folder.
        ways = (real, *(link for link, _ in resolver.links[place]))
        return any(decide("write", way)[0] for decide in [*self._policies.values()] for way in ways)

    @contextmanager
    def left_out(self) -> Iterator[None]:
        """Let this thread import from no place of theirs.

        The finder comes first, and stays there afterwards: another thread may be going through
        the list, and would miss the one behind.
        """
        if sys.meta_path[:1] != [self]:
            sys.meta_path.insert(0, self)
        me = get_ident()
        self._threads[me] = self._threads.get(me, 0) + 1
        try:
            yield
        finally:
            self._threads[me] -= 1
            if not self._threads[me]:
                del self._threads[me]

    def forget_other_threads(self) -> None:
        """In a forked child: it has the thread that forked, and their numbers are used again."""
        me = get_ident()
        self._threads = {me: self._threads[me]} if me in self._threads else {}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module as the other finders do, but not where a guest could have written.

        Raises:
            ModuleNotFoundError: it is in no other place; nobody else is to look for it.
        """
        if get_ident() not in self._threads:
            return None
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            # A build takes from its sources what to run, and they may be a guest's.
            if find is None or finder is self or builds_before_it_finds(finder):
                continue
            if finder is PathFinder:
                places = sys.path if path is None else path
                spec = find(
                    name, [place for place in places if not self.could_write(place)], target
                )
            else:
                spec = find(name, path, target)
            if spec is not None and self._is_trusted(spec):
                found: ModuleSpec = spec
                return found
        raise ModuleNotFoundError(
            f"No module named {name!r} where no guest could have written", name=name
        )

    def _is_trusted(self, spec: ModuleSpec) -> bool:
        places = list(spec.submodule_search_locations or ())
        if spec.origin is None and places:
            return False  # a folder without code: where it is looked for can grow
        if spec.has_location and spec.origin is not None:
            places.append(spec.origin)
            if spec.cached is not None:  # the bytecode that would run instead
                places.append(spec.cached)
        return not any(map(self.could_write, places))


def _is_kept(real: str) -> bool:
    """Tell whether *real* lies where no policy lets a guest write."""
    kept = [os.path.dirname(os.__file__)]
    kept += [entry for entry in sys.path if os.path.basename(entry) in KEPT_NAMES]
    return any(is_within(real, real_path(folder)) for folder in kept)


GUESTS = Guests()
"""Of this process. Whoever is forked from it has its modules, and these as well."""
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=GUESTS.forget_other_threads)
