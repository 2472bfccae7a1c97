"""One attempt to get out of a jail: what is tried, as text for a Python worker."""

from __future__ import annotations

from visruntime._policy.values import Frozen

__all__ = ["Attempt"]


class Attempt(Frozen):
    """Something that must not work in a jail and works without one.

    ``key`` names it for programs and ``title`` for people. ``code`` is Python for a worker in which
    the text of `guest.PRELUDE` has run; its last expression is the evidence, a dict that one of the
    functions there returns. The same text is the control, run in a worker without a jail.
    ``control_needs_root`` says that an ordinary user cannot do it anywhere.
    """

    __slots__ = ("code", "control_needs_root", "key", "title")

    key: str
    title: str
    code: str
    control_needs_root: bool

    def __init__(
        self, key: str, title: str, code: str, *, control_needs_root: bool = False
    ) -> None:
        self._set(key=key, title=title, code=code, control_needs_root=control_needs_root)

    @property
    def topic(self) -> str:
        """The first part of the key."""
        return self.key.partition(".")[0]
