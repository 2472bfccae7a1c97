"""What stands on Windows where other systems have the classes of policies: a refusal."""

from __future__ import annotations

from visruntime._policy.platforms import check_platform

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["stand_in"]


def stand_in(name: str) -> type:
    """Return a class *name* that cannot be made: its constructor raises `JailUnavailable`."""

    def refuse(_self: object, *_arguments: Any, **_options: Any) -> None:
        check_platform("win32")

    bases = (Exception,) if name.endswith("Broken") else ()  # to be named behind `except`
    doc = "Not available on Windows: see `WindowsJail`."
    return type(name, bases, {"__init__": refuse, "__doc__": doc, "__module__": "visruntime"})
