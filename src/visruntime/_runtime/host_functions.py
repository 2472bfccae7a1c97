"""Functions of the host that the guest may call: exposed, described and limited."""

from __future__ import annotations

from abc import ABC, abstractmethod

from visruntime._arguments import check_mapping, check_text
from visruntime._callbacks.budget import Budget
from visruntime._worker.limit import Timeout
from visruntime.errors import WorkerDied
from visruntime.results import GuestFailure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import AbstractContextManager
    from typing import Any

    from visruntime._worker.conversation import Conversation
    from visruntime.callbacks import Callbacks
    from visruntime.events import Violation

__all__ = ["HostFunctions"]


class HostFunctions(ABC):
    """The part of a runtime that is about functions of the host."""

    _callbacks: Callbacks
    _worker: Conversation | None

    def expose(
        self,
        name: str,
        function: Callable[..., Any],
        *,
        check: bool = True,
        error_data: Iterable[str] = (),
    ) -> None:
        """Let the guest call *function* by *name*, now and in every later worker.

        A dotted name, ``"tools.add"``, is that of a function in a module: the guest imports
        ``tools``. It runs in the thread that is in ``run``, or, where ``Timeouts(callback=)`` limits
        it and in runs that ``start`` began, in one of its own. It may be async: then it gets an event
        loop of its own. Its exceptions cross as type name and message. What is no `Exception` does
        not cross: ``SystemExit`` and ``KeyboardInterrupt`` end the run with its worker, and come out
        of ``run``.

        Args:
            name: what the guest calls.
            function: what is called.
            check: check the arguments against the type hints before the call: another type, also
                deep in a list or dict, is a TypeError in the guest, and nothing is called. A bool
                is no int here, and an int is a float.
            error_data: names of attributes of its exceptions that the guest may have, as far as
                they are data, in ``data`` of the error.

        Raises:
            ValueError: *name* is no name, or would hide another one or the standard library.
            TypeError: *function* cannot be called, or has a type hint that cannot be checked.
            GuestError: the worker could not take it, because of what its code has changed, and was
                ended; the next one gets it.
        """
        self._expose_all({check_text(name, "name"): function}, check=check, error_data=error_data)

    def expose_module(
        self,
        name: str,
        functions: Mapping[str, Callable[..., Any]],
        *,
        check: bool = True,
        error_data: Iterable[str] = (),
    ) -> None:
        """Let the guest import a module *name* that holds *functions*; otherwise as :meth:`expose`.

        It hides an installed module of that name.
        """
        check_text(name, "name")
        members = {
            f"{name}.{check_text(member, 'functions')}": function
            for member, function in check_mapping(functions, "functions").items()
        }
        self._expose_all(members, check=check, error_data=error_data)

    def _expose_all(
        self,
        functions: Mapping[str, Callable[..., Any]],
        *,
        check: bool,
        error_data: Iterable[str],
    ) -> None:
        add = self._callbacks.prepare(functions, check=check, error_data=error_data)
        with self._exclusive():
            worker = self._worker
            if worker is not None:
                worker.refuse_paused()
            add()
            if worker is not None:
                try:
                    self._expose(worker, list(functions))
                except BaseException:
                    self._discard()
                    raise

    def stubs(self, module: str | None = None) -> str:
        """Return the text of a stub file (``.pyi``) for the exposed functions.

        Args:
            module: a module of host functions; by default those that are in no module.
        """
        from visruntime._callbacks.stubs import stub_text

        if module is not None:
            check_text(module, "module")
        return stub_text(self._callbacks.functions(module))

    def limit_callbacks(
        self,
        *,
        calls: int | None = None,
        bytes: int | None = None,
        seconds: float | None = None,
    ) -> None:
        """Limit what the guest's calls, and questions for input, may take in each later run.

        ``None`` is no limit. A call over the budget is refused with ``LimitExceeded``, without
        calling anything. A guest that goes on after very many refusals breaks the protocol.

        Args:
            calls: how many there may be.
            bytes: what they and their answers may carry, as encoded.
            seconds: time of the host's functions.
        """
        self._callbacks.budget = Budget(calls=calls, bytes=bytes, seconds=seconds)

    def _expose(self, worker: Conversation, names: list[str]) -> None:
        """Tell a worker of functions; one that cannot take them is of no use any more."""
        self._tell(worker, {"op": "expose", "names": names})

    def _tell(self, worker: Conversation, request: dict[str, Any]) -> None:
        """Make a request of our own, which runs no code of the guest and has a limit of ours."""
        try:
            reply = worker.request_aside(request, callbacks=self._callbacks)
        except Timeout:
            raise WorkerDied("the worker did not answer between two runs and was ended") from None
        if reply.get("error") is not None:
            failure = GuestFailure.from_claim(reply["error"], self._explain, worker.secrets)
            raise failure.to_exception(None)

    @abstractmethod
    def _exclusive(self) -> AbstractContextManager[None]:
        """Keep other threads from starting something meanwhile."""

    @abstractmethod
    def _discard(self) -> None:
        """End the worker; the next call starts another one."""

    @abstractmethod
    def _explain(self, errno: int, path: str | None) -> Violation | None:
        """Say what the policy has to do with an error of the guest's."""
