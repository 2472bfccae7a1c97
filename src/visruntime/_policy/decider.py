"""Questions about many rules: each looks only at the rules whose paths cover the one asked."""

from __future__ import annotations

from visruntime._native import decide
from visruntime._policy.paths import ancestors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Decider"]


class Decider:
    """The answers of `_native.decide` for one list of rules, (kind, path) each."""

    __slots__ = ("_by_path",)

    def __init__(self, rules: Iterable[tuple[str, str]]) -> None:
        self._by_path: dict[str, list[tuple[int, str]]] = {}
        for index, (kind, path) in enumerate(rules):
            self._by_path.setdefault(path, []).append((index, kind))

    def __call__(self, right: str, path: str) -> tuple[bool, int]:
        """Return whether *right* is allowed on *path*, and the index of the rule, or -1."""
        by_path = self._by_path
        covering = [
            (index, kind, top)
            for top in ancestors(path)
            if top in by_path
            for index, kind in by_path[top]
        ]
        allowed, index = decide([(kind, top) for _, kind, top in covering], right, path)
        return allowed, covering[index][0] if index >= 0 else -1
