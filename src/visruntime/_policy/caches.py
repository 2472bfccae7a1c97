"""What ``caches`` of a policy may be: paths at which a jail shows folders of the policy's own."""

from __future__ import annotations

from visruntime._policy.paths import FORBIDDEN_GRANTS, PRIVATE_WRITE, _short, is_within, visible
from visruntime.errors import PolicyError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from visruntime.policy import Rule

__all__ = ["MOST_CACHES", "cache_rules", "check_caches", "in_the_way", "without_those_in"]

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/boot", "/etc")
"""Where programs and settings of the system are, none of which a guest is to choose for the next."""
MOST_CACHES = 64
"""Most caches of one policy: each is a mount."""


def check_caches(paths: tuple[str, ...]) -> tuple[str, ...]:
    """Return *paths*, normalised ones, if each can be that of a cache.

    Raises:
        PolicyError: naming the entry.
    """
    if len(paths) > MOST_CACHES:
        raise PolicyError(f"caches: {len(paths)} entries, at most {MOST_CACHES}", field="caches")
    for index, path in enumerate(paths):
        wanted = ""
        if path == "/" or any(is_within(path, top) for top in FORBIDDEN_GRANTS):
            wanted = "a folder that is neither the root nor in /proc, /dev or /sys"
        elif any(is_within(path, top) for top in SYSTEM):
            wanted = "a folder that holds no programs or settings of the system"
        elif place := next((place for place in PRIVATE_WRITE if is_within(place, path)), None):
            wanted = f"a folder in {place}, which is the jail's own, and not that itself"
        elif other := next(
            (o for i, o in enumerate(paths) if i != index and is_within(o, path)), None
        ):
            wanted = f"a folder that does not hold {visible(other)}, which is a cache as well"
        if wanted:
            raise PolicyError(
                f"caches[{index}]: {wanted}; not {_short(path)}",
                field=f"caches[{index}]",
                value=path,
            )
    return paths


def cache_rules(rules: Sequence[Rule]) -> list[Rule]:
    """Return those of *rules* that are caches."""
    return [rule for rule in rules if rule.origin.startswith("caches[")]


def without_those_in(found: Sequence[Rule], rules: Sequence[Rule]) -> list[Rule]:
    """Return the rules *found* by patterns, without those that speak of what a cache covers.

    What the host has there is not shown, and what guests keep there is their own. A deny of
    the very path of a cache stays, and is refused.
    """
    tops = [rule.path for rule in cache_rules(rules)]
    if not tops:
        return list(found)
    return [
        rule
        for rule in found
        if not any(
            is_within(rule.path, top) and (rule.path != top or rule.kind in ("read", "write"))
            for top in tops
        )
    ]


def in_the_way(rules: Sequence[Rule]) -> Iterator[tuple[str, str]]:
    """Yield (field, sentence) for caches that hold what another rule speaks of.

    A cache holds nothing of the host's, so there is nothing to grant or to deny in it.
    """
    own = cache_rules(rules)
    for cache in own:
        for rule in rules:
            if rule in own or not is_within(rule.path, cache.path):
                continue
            what = {
                "system": "belongs to the system",
                "private": "is made by the jail",
            }.get(rule.origin, f"is {rule.origin}")
            where = "is" if rule.path == cache.path else "holds"
            sentence = (
                f"{visible(cache.path)} {where} {visible(rule.path)}, which {what}, and a cache shows "
                "nothing of the host's; name another folder for the cache, or leave that rule out"
            )
            yield cache.origin, sentence
            break
