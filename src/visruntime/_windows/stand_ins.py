"""What stands where a system has none of what Linux has, on Windows and on macOS: a refusal."""

from __future__ import annotations

from visruntime._policy.platforms import check_platform, check_worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["stand_in"]


def stand_in(name: str, platform: str) -> type:
    """Return a class *name* that cannot be made: its constructor raises `JailUnavailable`.

    *platform* is spelled as ``sys.platform`` spells it.
    """

    def refuse(_self: object, *_arguments: Any, **_options: Any) -> None:
        check_platform(platform)
        check_worker(platform)

    bases = (Exception,) if name.endswith("Broken") else ()  # to be named behind `except`
    other, instead = ("Windows", "WindowsJail") if platform == "win32" else ("macOS", "Jail")
    doc = f"Not available on {other}: see `{instead}`."
    return type(name, bases, {"__init__": refuse, "__doc__": doc, "__module__": "visruntime"})
