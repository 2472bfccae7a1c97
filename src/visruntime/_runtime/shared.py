"""What a runtime and those forked from it have in common."""

from __future__ import annotations

import os
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from visruntime._worker.standard_input import WorkerInput
    from visruntime._worker.terminal import WorkerTerminal
    from visruntime._worker.zygote import Zygote
    from visruntime.jail import Jail

__all__ = ["Shared"]


class Shared:
    """The jail and the zygote of a runtime and its copies; the last one to leave ends them.

    Args:
        owner: the first runtime; it and those that `enter` have to `leave`.
        open_jail: opens the jail; ``None`` where there is none, or it is not ours.
        jail: one that is not ours: it is never closed.
        stdin: what their workers have as standard input; ``None`` for nothing.
    """

    def __init__(
        self,
        owner: object,
        open_jail: Callable[[], Jail] | None = None,
        *,
        jail: Jail | None = None,
        stdin: WorkerInput | WorkerTerminal | None = None,
    ) -> None:
        self._stdin = stdin
        self._open_jail = open_jail
        self._process_id = os.getpid()
        self._lock = threading.Lock()
        self._users = {id(owner)}
        self._jail = jail if open_jail is None else open_jail()
        self.zygote: Zygote | None = None

    @property
    def jail(self) -> Jail:
        """The jail, as it was last opened."""
        assert self._jail is not None
        return self._jail

    def live_jail(self) -> Jail:
        """The jail; one that a guest brought down is opened anew if it is ours."""
        with self._lock:
            if self._open_jail is not None and self.jail.closed:
                self.jail.close()
                self._jail = self._open_jail()
            return self.jail

    def enter(self, user: object) -> None:
        """One more runtime uses it."""
        with self._lock:
            self._users.add(id(user))

    def leave(self, user: object) -> None:
        """One runtime less; again is nothing. In a forked child of the host it only lets go."""
        if os.getpid() == self._process_id:
            with self._lock:
                was_last = self._users == {id(user)}
                self._users.discard(id(user))
            if not was_last:
                return
            if self.zygote is not None:
                self.zygote.close()
            if self._stdin is not None:
                self._stdin.close()
        if self._open_jail is not None:
            self.jail.close()
