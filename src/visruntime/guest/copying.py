"""Copy this worker: the copy answers another host object, from the same state.

A fork copies one thread and every descriptor, and nothing can tell the copy's own state from
what it shares. So it is refused wherever that is known to go wrong.
"""

from __future__ import annotations

import errno
import posix
import sys

import _viscore as core  # type: ignore[import-not-found]

from .limits import NO_THREAD

TYPE_CHECKING = False  # typing costs a start more than this module does
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from .session import Session

_THREAD_VARIABLES = (
    "OPENBLAS_NUM_THREADS",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
"""What numeric libraries read for the number of threads that they start when imported."""
_NOT_COPYABLE = {
    "grpc._cython.cygrpc": "gRPC",
    "jaxlib.xla_extension": "JAX",
    "tensorflow": "TensorFlow",
    "pycuda.driver": "PyCUDA",
    "cupy": "CuPy",
    "ray": "Ray",
}
"""Modules that hold threads, devices or connections from their import on, and their names."""
NO_ROOM = (
    "the kernel makes no further process or thread here; raise limits.processes by two or more"
)
"""Of a copy that could not be made, or not be started."""
MAX_NAMES = 10
"""Threads that a refusal names."""


def refusal(session: Session) -> str | None:
    """Say why this worker cannot be copied now; ``None`` if it can."""
    for module, name in _NOT_COPYABLE.items():
        if module in sys.modules:
            return f"{name} is loaded, which does not survive a copy of its process"
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return "torch has initialised CUDA, which does not survive a copy of its process"
    tasks = session.pending_tasks()
    if tasks:
        return (
            f"{tasks} asyncio tasks are pending in the session's event loop; await or cancel them"
        )
    threads = core.count_threads()
    if threads < 0:
        return "the worker cannot count its threads: /proc is not readable in this jail"
    if threads > 1:
        return (
            f"the worker has {threads} threads{_names_of_threads()}, and a copy would have one. Join "
            "them; numeric libraries start some when imported: preload= such a library, or set "
            "OPENBLAS_NUM_THREADS and OMP_NUM_THREADS to 1 in env="
        )
    return None


def _names_of_threads() -> str:
    threading: Any = sys.modules.get("threading")
    if threading is None:
        return ""
    names = [
        str(thread.name)[:100]
        for thread in threading.enumerate()
        if thread is not threading.main_thread()
    ]
    return f" ({', '.join(names[:MAX_NAMES])})" if names else ""


def preload(names: Iterable[str]) -> None:
    """Import modules for all copies to come, so that they start no threads.

    The variables that say how many threads are put back afterwards: programs that a copy
    starts see what the host set.
    """
    import gc
    from importlib import import_module
    from os import environ

    before = {name: environ.get(name) for name in _THREAD_VARIABLES}
    environ.update(dict.fromkeys(_THREAD_VARIABLES, "1"))
    try:
        for name in names:
            import_module(name)
    finally:
        for name, value in before.items():
            if value is None:
                environ.pop(name, None)
            else:
                environ[name] = value
    gc.collect()
    # Collections of the copies leave the pages of these objects shared.
    gc.freeze()
    # What a copy did to the memory of this process, all later ones would start with.
    core.close_memory()


def reseed() -> None:
    """Give a copy its own random numbers and names.

    The hash secret and the addresses of memory stay those of the original, as do random
    generators that the guest made itself.
    """
    random: Any = sys.modules.get("random")
    if random is not None:
        random.seed()
    numpy: Any = sys.modules.get("numpy.random")
    if numpy is not None:
        numpy.seed()
    uuid: Any = sys.modules.get("uuid")
    if uuid is not None:
        for name in ("_last_timestamp", "_last_timestamp_v7"):
            if hasattr(uuid, name):
                setattr(uuid, name, None)
    tempfile: Any = sys.modules.get("tempfile")
    if tempfile is not None:
        tempfile._name_sequence = None


def copy(session: Session, request: dict[str, Any]) -> tuple[bool, str | None]:
    """Copy this worker as the host asked; whether this is the copy, and why there is none."""
    core.await_copy_order()
    reason = refusal(session)
    copied = False
    if reason is None:
        try:
            copied = core.copy(request["keeper"])
        except OSError as problem:
            full = problem.errno == errno.EAGAIN
            reason = NO_ROOM if full else f"the kernel refused: {problem.strerror}"
    else:
        core.refuse_copy()
    if copied:
        session.become_copy()
        core.trip_counts()
        core.denials()
        reseed()
    try:
        core.start_control()
    except OSError:
        if not copied:
            raise
        posix.write(2, NO_ROOM.encode())
        posix._exit(NO_THREAD)
    return copied, reason
