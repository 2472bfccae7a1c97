"""Run a whole program as the interpreter itself would, for ``visruntime run``."""

from __future__ import annotations

import atexit
import sys

from .imports import PACKAGE

TYPE_CHECKING = False  # typing costs a start more than this module does
if TYPE_CHECKING:
    from typing import Any


def run(kind: str, source: Any, path: str, argv: list[str], folder: str) -> list[object]:
    """Run a program.

    Returns its exit code, a missing module, and errno and path of the error that ended it.

    Args:
        kind: "file", "code" or "module".
        source: bytes of source text, or the name of the module.
        path: what tracebacks call the source.
        argv: becomes ``sys.argv``.
        folder: comes first in ``sys.path``.
    """
    sys.argv[:] = argv
    sys.path.insert(0, folder)
    status, missing, number, place = 0, None, None, None
    try:
        if kind == "module":
            missing = _run_module(source)
            status = int(missing is not None)
            missing = missing or None
        else:
            _run_source(kind, source, path)
    except SystemExit as stop:
        status = _status(stop.code)
    except BaseException as error:
        if type(error).__name__ == "VisInterrupt":
            raise
        status = 130 if isinstance(error, KeyboardInterrupt) else 1
        if isinstance(error, ModuleNotFoundError) and isinstance(error.name, str):
            missing = error.name
        if isinstance(error, OSError) and isinstance(error.errno, int):
            number = error.errno
            place = error.filename if isinstance(error.filename, str) else None
        if isinstance(error, EOFError):
            place = "<stdin>"
        _print(error)
    threading: Any = sys.modules.get("threading")
    if threading is not None:
        threading._shutdown()
    atexit._run_exitfuncs()
    return [status, missing, number, place]


def _run_module(name: str) -> str | None:
    """Run a module; one that cannot be is told in one line, as by ``python -m``.

    Returns None if it ran, else the top module that is not there, or "".
    """
    import runpy

    try:
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    except ImportError as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        if trace is None or trace.tb_frame.f_globals.get("__name__") != "runpy":
            raise
        print(f"{sys.executable}: {error}", file=sys.stderr)
        top = name.partition(".")[0]
        whole = str(error) == f"No module named {top}"
        return top if whole or getattr(error.__cause__, "name", None) == top else ""
    return None


def _run_source(kind: str, source: bytes, path: str) -> None:
    module = type(sys)("__main__")
    if kind == "file":
        module.__file__ = path
    sys.modules["__main__"] = module
    code = compile(source, path, "exec", dont_inherit=True)
    # The jail may not be able to open the script, and tracebacks show its lines.
    package: Any = sys.modules[PACKAGE]
    lines = source.decode(_encoding(source)).splitlines(keepends=True)
    package.session.keep_source(path, lines)
    exec(code, module.__dict__)


def _encoding(source: bytes) -> str:
    """Tell how source text is encoded; tokenize costs more than a short script."""
    if not any(b"coding" in line for line in source.split(b"\n", 2)[:2]):
        return "utf-8-sig"
    import io
    import tokenize

    return tokenize.detect_encoding(io.BytesIO(source).readline)[0]


def _print(error: BaseException) -> None:
    """Print *error* as the interpreter would, without the frames that are ours."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals is globals():
        trace = trace.tb_next
    if sys.excepthook is sys.__excepthook__:
        import traceback

        traceback.print_exception(type(error), error, trace)
    else:
        sys.excepthook(type(error), error, trace)


def _status(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1
