"""Whether the creation broker can hold the names of a wall here, and how that is proved.

The broker compares names byte by byte. Where the file system takes two spellings for one
name, that would not do; the wall alone (``absent_deny="wall"``), which compares nothing, holds
there too.
"""

from __future__ import annotations

import os

from visruntime._jail.sockets import check_attach
from visruntime._policy.paths import visible
from visruntime.errors import PolicyUnsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from visruntime._jail.spellings import Spellings
    from visruntime._policy.wall import Wall

__all__ = ["MOST_NAMES", "check_names", "name_acts"]

MOST_NAMES = 512
"""Missing names that the broker of one jail knows (VJ_NAMES_MAX of native/visjail/plan.h)."""
MOST_KEPT = 4096
"""Names that exist, which it keeps from being made anew (VJ_KEPT_MAX)."""


def check_names(wall: Wall, spellings: Spellings) -> None:
    """Refuse names that the broker could not tell from others.

    Raises:
        PolicyUnsupported: naming the first such clause.
    """
    origin, path = wall.names[0]
    if len(wall.names) > MOST_NAMES:
        modules = sum(os.path.basename(name) == ".git" for _, name in wall.names)
        which = f" ({modules} of them .git of submodules that .gitmodules names)"
        raise PolicyUnsupported(
            f"{origin}: {len(wall.names)} denied names{which if modules > 1 else ''} do not exist, at "
            f'most {MOST_NAMES} can be held; deny folders, or use absent_deny="wall"',
            field=origin,
            value=path,
        )
    if len(wall.kept) > MOST_KEPT:
        raise PolicyUnsupported(
            f"{origin}: {visible(path)} does not exist, and beside such a name at most {MOST_KEPT} "
            f"others can be kept from being made anew, here {len(wall.kept)}; deny folders, or use "
            'absent_deny="wall"',
            field=origin,
            value=path,
        )
    check_attach(origin, 'use absent_deny="wall"')
    folders: dict[str, bool] = {}
    for origin, path in wall.names:
        folder = os.path.dirname(wall.first_missing(path))
        if folder not in folders:
            folders[folder] = spellings.may_fold(folder)
        if folders[folder]:
            raise PolicyUnsupported(
                f"{origin}: {visible(path)} does not exist, and {visible(folder)} may take other "
                "spellings for the same name, so that the broker cannot tell them apart; create "
                'it first, or use absent_deny="wall"',
                field=origin,
                value=path,
            )


def name_acts(wall: Wall, *, brokered: bool) -> list[str]:
    """Return the canaries: each name tried against the wall alone, and against the broker.

    Of a name in a folder that is missing as well, that folder is tried; but not against the
    broker, which would make it.
    """
    acts = dict.fromkeys("c" + wall.first_missing(path) for _, path in wall.names)
    if brokered:
        acts |= dict.fromkeys("b" + p for _, p in wall.names if wall.first_missing(p) == p)
    return list(acts)
