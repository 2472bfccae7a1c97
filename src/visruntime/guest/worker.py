"""The worker's main loop: take requests of the host, answer each with one RESULT."""

from __future__ import annotations

import faulthandler
import sys

if sys.platform == "win32":
    import nt as posix
else:
    import posix

import _viscore as core  # type: ignore[import-not-found]

from .confine import confine
from .frames import BYE, FORK, HELLO, RESULT, RUN
from .imports import PACKAGE, Imports
from .interrupts import Interrupts, VisInterrupt, reserve
from .limits import MAX_ERROR_NAME, NO_THREAD, QUIET
from .session import Session
from .values import CONVERTING_BUILDERS, install

TYPE_CHECKING = False  # typing costs a start more than this module does
if TYPE_CHECKING:
    from typing import Any

READY = 0
"""The ``id`` of the RESULT that says: the environment's start-up files have run."""


def main() -> None:
    """Say hello, let the environment start up, then serve until the host says goodbye."""
    facts = core.facts()
    interrupts = Interrupts(facts["signal_interrupt"])
    faulthandler.enable(2)  # so that a crash leaves the stacks in stderr
    if sys.platform != "win32":  # where no signal is that could ask for stacks
        faulthandler.register(facts["signal_dump"], file=facts["control"], all_threads=True)
    reserve((facts["signal_interrupt"], facts["signal_dump"]))
    try:
        core.start_control()
    except OSError:  # no room for a thread, so that nothing could stop this worker
        posix._exit(NO_THREAD)
    install(core, CONVERTING_BUILDERS)
    settings = core.decode(core.receive()[1])
    package: Any = sys.modules[PACKAGE]
    late, compiled = package.late
    imports = Imports(late, compiled=compiled)
    if sys.platform == "win32":
        from .console import guard_consoles, load_guard

        # Before any code of the environment, which could make a subclass that is not guarded.
        guard_consoles(guard=load_guard(settings["console"]))
    hello = {
        "hook_before_init": facts["hook_before_init"],
        "mode": facts["mode"],
        "python": sys.version,
        "pid": posix.getpid(),
        "refuses_processes": confine(settings["confine"]),
    }
    core.send(HELLO, core.encode(hello))
    package.session = session = Session(interrupts, imports)
    process = posix.getpid()
    if sys.platform != "win32":
        posix.register_at_fork(after_in_child=core.forget_host)
        core.buffer_lines()
        _allow_fork(process)
    sys.argv = [""]
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    # Only now may code of the environment run: .pth files, sitecustomize.
    _, failure = interrupts.guarded(_start_site)
    interrupts.guarded(_flush)  # what it wrote is not the first run's
    core.denials()  # what start-up files looked for is of no interest to the first run
    name = None if failure is None else type(failure).__name__[:MAX_ERROR_NAME]
    ready = {"id": READY, "error": name}
    core.send(RESULT, core.encode(ready))
    while True:
        try:
            frame_type, payload = core.receive()
        except (EOFError, OSError):
            break
        if frame_type == BYE:
            break
        if frame_type == RUN:
            reply = _answer(
                session, interrupts, session.decode(payload, core.descriptors()), process
            )
            session.finish(lambda reply=reply: core.send(RESULT, reply))  # type: ignore[misc]
        if frame_type == FORK:
            request = core.decode(payload)
            from .copying import copy

            copied, reason = copy(session, request)
            if copied:
                process = hello["pid"] = posix.getpid()
                _allow_fork(process)
                core.send(HELLO, core.encode(hello))
            else:
                core.send(FORK, core.encode({"id": request["id"], "refused": reason}))


def _allow_fork(process: int) -> None:
    """Keep CPython 3.12+ from warning of the control thread at each ``os.fork``.

    That thread holds no lock that a child could need. The filter is one for this exact text, in the
    form that CPython uses for its own, because a pattern would cost the import of ``re``.
    """
    if sys.version_info < (3, 12):
        return
    import _warnings

    text = (
        f"This process (pid={process}) is multi-threaded, "
        "use of fork() may lead to deadlocks in the child."
    )
    _warnings.filters.insert(0, ("ignore", text, DeprecationWarning, None, 0))


def _start_site() -> None:
    import site

    site.main()


def _answer(
    session: Session, interrupts: Interrupts, request: dict[str, Any], process: int
) -> bytes:
    session.running = request["op"] not in QUIET
    session.unknown = request.get("unknown", "handle")
    interrupts.begin_run()
    core.begin_run(request["id"], session.running)
    operation = getattr(session, request["op"])
    value, exception = interrupts.guarded(operation, request)
    if posix.getpid() != process:
        _end_child(exception)
    tasks, problem = interrupts.guarded(session.end_code, request)
    tasks = tasks if problem is None else []
    exception = exception if exception is not None else problem
    if exception is None:
        reply, failure = interrupts.guarded(session.encode_success, request, value, tasks)
    else:
        reply, failure = interrupts.guarded(session.encode_failure, request, exception, tasks)
    interrupts.guarded(_flush)
    core.end_run()
    session.take_back()
    if failure is None:
        assert isinstance(reply, bytes)
        return reply
    return _encode_undescribed(request, interrupted=type(failure) is VisInterrupt)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        try:
            stream.flush()  # type: ignore[union-attr]
        except (OSError, ValueError, AttributeError):
            continue  # the guest closed or replaced it
    core.flush_stdio()


def _encode_undescribed(request: dict[str, Any], *, interrupted: bool) -> bytes:
    """Reply when the description of the result failed; runs no code of the guest."""
    error: dict[str, object] = {
        "type": "visruntime.VisInterrupt" if interrupted else "visruntime.ResultUnavailable",
        "message": "the result of the run could not be described",
        "notes": [],
        "frames": [],
        "errno": None,
        "path": None,
        "cause": None,
        "context": None,
        "exceptions": [],
        "interrupted": interrupted,
        "cancelled": False,
    }
    encoded: bytes = core.encode(
        {
            "id": request["id"],
            "value": None,
            "error": error,
            "exit_code": None,
            "tasks": [],
            "trips": {},
            "denials": ([], 0),
        }
    )
    return encoded


def _end_child(exception: BaseException | None) -> None:
    """End a forked child that came to the end of the guest's code, as a program would."""
    code = 0
    if isinstance(exception, SystemExit):
        code = (
            exception.code if isinstance(exception.code, int) else int(exception.code is not None)
        )
    elif exception is not None:
        sys.excepthook(type(exception), exception, exception.__traceback__)
        code = 1
    _flush()
    posix._exit(code & 0xFF)
