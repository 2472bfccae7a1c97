"""The session: a ``__main__`` module whose globals stay between runs, and its host calls."""

from __future__ import annotations

import _thread
import builtins
import sys

if sys.platform == "win32":
    import nt as posix
else:
    import posix

import _viscore as core  # type: ignore[import-not-found]

from .describe import ErrorDescriber, bounded_repr, exit_code, type_name
from .frames import BUFFER, CALLBACK, CALLBACK_REPLY, INPUT
from .imports import PACKAGE
from .interrupts import VisInterrupt
from .limits import BESIDE_BYTES
from .values import MAX_TYPE_NAME, Handle, reduce_value

TYPE_CHECKING = False  # typing costs a start more than this module does
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, ModuleType
    from typing import Any

    from .displays import DisplayHandle
    from .imports import Imports
    from .interrupts import Interrupts

_ONLY_AST = 0x0400
_TOP_LEVEL_AWAIT = 0x2000
_COROUTINE = 0x80
_LIBRARIES = ("numpy", "pyarrow", "pandas", f"{PACKAGE}.arrays")
"""While none of them is loaded there are no arrays."""
_OCTETS = (bytes, bytearray, memoryview)
MAX_SOURCES = 256
"""Sources of earlier runs that are kept for tracebacks."""
MAX_HANDLES = 10_000
"""Objects kept alive because the host holds a handle; the oldest goes first."""


class HostError(Exception):
    """A function of the host raised; ``type_name`` is the type it raised there.

    ``data`` holds what the host chose to tell besides: attributes of the exception by name.
    """

    __module__ = "visruntime"
    type_name = ""
    data: dict[str, object] = {}  # noqa: RUF012 (each error gets its own)


class ValueNotData(TypeError):
    """A value holds what is no data, and the host wants neither handles nor reprs."""

    __module__ = "visruntime"


class HostFunction:
    """A function of the host, callable by the guest under its exposed name."""

    __slots__ = ("__name__", "__qualname__", "_call")

    def __init__(self, name: str, call: Callable[..., object]) -> None:
        self.__qualname__ = name
        self.__name__: str = name.rpartition(".")[2]
        self._call = call

    def __call__(self, *arguments: object, **keywords: object) -> object:
        """Call it on the host and wait for the result."""
        return self._call(self.__qualname__, arguments, keywords)

    def __repr__(self) -> str:
        return f"<host function {self.__qualname__}>"


class Session:
    """Runs code in one kept namespace."""

    def __init__(self, interrupts: Interrupts, imports: Imports) -> None:
        self._interrupts = interrupts
        self.imports = imports
        self.sources: dict[str, list[str]] = {}
        self.running: bool = False
        self.asks = False
        self.unknown = "handle"
        self.last_display = 0
        self.undo: list[Callable[[], object]] = []
        self._handles: dict[int, object] = {}
        self._last_handle = _first_handle()
        self._exposed: dict[str, HostFunction] = {}
        self._modules: dict[str, ModuleType] = {}
        self._last_call = 0
        self._host = _thread.allocate_lock()
        self._sending = _thread.allocate_lock()
        self._runner: Any = None
        self.reset()
        imports.when_imported("linecache", self._fill_linecache)
        imports.when_imported("inspect", self._teach_inspect)
        imports.when_imported("matplotlib", _choose_backend)

    def reset(self) -> None:
        """Start a new namespace; exposed functions stay."""
        self._begin_module()
        self._handles.clear()

    def _begin_module(self) -> None:
        module = type(sys)("__main__")
        module.__dict__["__builtins__"] = builtins
        module.__dict__["display"] = self.display
        module.__dict__["update_display"] = self.update_display
        sys.modules["__main__"] = module
        self.globals: Any = module.__dict__
        for function in self._exposed.values():
            self._place(function)

    def begin_fresh(self) -> Callable[[], None]:
        """Start a namespace for one run; returns what brings the session's own back."""
        before = sys.modules["__main__"], self.globals
        self._begin_module()

        def undo() -> None:
            sys.modules["__main__"], self.globals = before

        return undo

    def _fill_linecache(self, linecache: ModuleType) -> None:
        from .sources import fill_linecache

        fill_linecache(linecache, self.sources)

    def _teach_inspect(self, inspect: ModuleType) -> None:
        from .sources import teach_inspect

        teach_inspect(inspect, self.sources)

    def pending_tasks(self) -> int:
        """How many tasks wait in the session's event loop."""
        if self._runner is None:
            return 0
        import asyncio

        return len(asyncio.all_tasks(self._runner.get_loop()))

    def become_copy(self) -> None:
        """Let go of what a copied worker shares with the original."""
        self._last_handle = _first_handle()  # those before name the same in both
        # The two have one epoll: to close the loop here would take the original's readers away.
        if self._runner is not None:
            core.keep_forever(self._runner)
            self._runner = None

    # What the host can ask for: each method is one `op` of a request.

    def run(self, request: dict[str, Any]) -> object:
        """Run source text; the value is that of its last expression statement."""
        if "around" in request:
            from .surroundings import arrange

            arrange(self, request["around"], self.undo)
        return self._run_source(request, want_value=True)

    def exec(self, request: dict[str, Any]) -> object:
        """Run source text for its effects."""
        return self._run_source(request, want_value=False)

    def eval(self, request: dict[str, Any]) -> object:
        """Evaluate one expression."""
        filename = self._register(request)
        self._bind(request["inputs"])
        return self._execute(compile_expression(request["code"], filename))

    def call(self, request: dict[str, Any]) -> object:
        """Call what a (dotted) name refers to."""
        arguments = [self._given(argument) for argument in request["args"]]
        keywords = {key: self._given(value) for key, value in request["kwargs"].items()}
        result = self.look_up(request["name"])(*arguments, **keywords)
        return self.wait_for(result) if hasattr(type(result), "__await__") else result

    def apply(self, request: dict[str, Any]) -> object:
        """Call a function that the host sends or names, for an executor."""
        from .functions import apply

        return apply(self, request)

    def get(self, request: dict[str, Any]) -> object:
        """Read what a (dotted) name refers to."""
        return self.look_up(request["name"])

    def set(self, request: dict[str, Any]) -> object:
        """Bind global names."""
        self._bind(request["inputs"])
        return None

    def expose(self, request: dict[str, Any]) -> object:
        """Bind names to functions of the host; a dotted one is a module's."""
        for name in request["names"]:
            self._exposed[name] = HostFunction(name, self.call_host)
            self._place(self._exposed[name])
        return None

    def _place(self, function: HostFunction) -> None:
        module = function.__qualname__.rpartition(".")[0]
        names = self._host_module(module).__dict__ if module else self.globals
        names[function.__name__] = function

    def _host_module(self, name: str) -> ModuleType:
        """Return the module of host functions of that (dotted) name, also if it is a new one."""
        module = self._modules.get(name)
        if module is None:
            module = self._modules[name] = type(sys)(name, "Functions of the host.")
            module.__path__ = []
        sys.modules[name] = module
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(self._host_module(parent), last, module)
        return module

    def clear(self, _request: dict[str, Any]) -> object:
        """Forget all globals and handles."""
        self.reset()
        return None

    def preload(self, request: dict[str, Any]) -> object:
        """Import modules for the copies of this worker."""
        from .copying import preload

        preload(request["names"])
        return None

    def _bind(self, inputs: dict[str, Any]) -> None:
        for name, value in inputs.items():
            self.globals[name] = self._given(value)

    def _given(self, value: Any) -> Any:
        """What the host gave; a handle becomes the object that it stands for."""
        if type(value) is not Handle:
            return value
        if value.id not in self._handles:
            raise LookupError(f"{value!r} is of another worker or an earlier session, or too old")
        return self._handles[value.id]

    def look_up(self, name: str) -> Any:
        """Return what a (dotted) name of the session, or of a builtin, refers to."""
        first, *rest = name.split(".")
        if first in self.globals:
            found = self.globals[first]
        elif hasattr(builtins, first):
            found = getattr(builtins, first)
        else:
            raise NameError(f"name {first!r} is not defined in the session")
        for attribute in rest:
            found = getattr(found, attribute)
        return found

    def _register(self, request: dict[str, Any]) -> str:
        filename: str = request["filename"] or f"<run {request['id']}>"
        self.keep_source(filename, request["code"].splitlines(keepends=True))
        return filename

    def keep_source(self, filename: str, lines: list[str]) -> None:
        """Keep the source text of code that is no file here, for tracebacks."""
        self.sources[filename] = lines
        if len(self.sources) > MAX_SOURCES:
            del self.sources[next(iter(self.sources))]
        linecache = sys.modules.get("linecache")
        if linecache is not None and hasattr(linecache, "cache"):
            linecache.cache[filename] = (sum(map(len, lines)), None, lines, filename)

    def _run_source(self, request: dict[str, Any], *, want_value: bool) -> object:
        filename = self._register(request)
        self._bind(request["inputs"])
        if request["filename"]:
            self.globals["__file__"] = filename
        flags = _TOP_LEVEL_AWAIT
        if want_value and "\n" not in request["code"]:
            # A line is most often one expression, which needs no tree.
            try:
                expression = compile_expression(request["code"], filename)
            except SyntaxError:
                pass
            else:
                return self._execute(expression)
        import _ast

        tree: Any = compile(request["code"], filename, "exec", flags | _ONLY_AST, True)
        last = None
        if want_value and tree.body and type(tree.body[-1]) is _ast.Expr:
            last = tree.body.pop()
        parts: list[CodeType] = [compile(tree, filename, "exec", flags, True)] if tree.body else []
        if last is None:
            return self._execute(*parts)
        tree = _ast.Expression(last.value)
        return self._execute(*parts, compile(tree, filename, "eval", flags, True))

    def _execute(self, *parts: CodeType) -> object:
        """Run *parts* one after the other; if one awaits, all of them run in the event loop."""
        if any(code.co_flags & _COROUTINE for code in parts):
            return self.wait_for(self._execute_awaiting(parts))
        result = None
        for code in parts:
            result = eval(code, self.globals)
        return result

    async def _execute_awaiting(self, parts: tuple[CodeType, ...]) -> object:
        result: Any = None
        for code in parts:
            result = eval(code, self.globals)
            if code.co_flags & _COROUTINE:
                result = await result
        return result

    def wait_for(self, awaitable: Any) -> object:
        """Run an awaitable in the event loop of the session, until it is done."""
        import asyncio

        if self._runner is None:
            self._runner = asyncio.Runner()

        async def finish() -> object:
            self._interrupts.watch_task(asyncio)
            return await awaitable

        try:
            return self._runner.run(finish())
        except VisInterrupt:
            self._cancel_tasks()
            raise
        except asyncio.CancelledError as cancelled:
            if not self._interrupts.cancelled:
                raise  # the code cancelled itself
            self._cancel_tasks()
            interrupt = VisInterrupt()
            interrupt.cancelled = True
            raise interrupt.with_traceback(cancelled.__traceback__) from None
        finally:
            self._interrupts.forget_task()

    def _cancel_tasks(self) -> None:
        import asyncio

        for task in asyncio.all_tasks(self._runner.get_loop()):
            task.cancel()

    # What crosses to the host.

    def display(self, *values: object, display_id: object = None) -> DisplayHandle | None:
        """Show each value on the host in every format that it offers.

        With a *display_id*, which may be True for a new one, the handle that this returns, or
        ``update_display``, can replace it later.
        """
        from . import displays

        return displays.display(self, values, display_id)

    def update_display(self, value: object, *, display_id: str) -> None:
        """Show *value* in place of the latest display of that name."""
        from . import displays

        displays.show(self, value, displays.check_id(display_id), update=True)

    def end_code(self, request: dict[str, Any]) -> list[str]:
        """Do what comes after the guest's code; return the names of tasks that it left behind."""
        figures = sys.modules.get(f"{PACKAGE}.figures")
        if figures is not None:
            figures.show()
        if self._runner is None:
            return []
        from .tasks import left_behind

        return left_behind(self._runner, cancel=request.get("tasks") == "cancel")

    def take_back(self) -> None:
        """Take back what was set up for one run; no interrupt comes here."""
        while self.undo:
            try:
                self.undo.pop()()
            except Exception:  # noqa: S112 (the guest closed or replaced what it needs)
                continue

    def handle(self, value: object) -> tuple[int, str, str]:
        """Keep *value* here and name it for the host."""
        self._last_handle += 1
        self._handles[self._last_handle] = value
        if len(self._handles) > MAX_HANDLES:
            del self._handles[next(iter(self._handles))]
        return self._last_handle, _short_name(value), bounded_repr(value)

    def encode_success(self, request: dict[str, Any], value: object, tasks: list[str]) -> bytes:
        """Encode the reply for *value*; what cannot cross becomes what the host has chosen."""
        reply = self._reply(request, tasks)
        reply["value"] = value
        data_only = bool(request.get("data_only"))
        try:
            return self._encode(reply, data_only=data_only)
        except (ValueError, TypeError, OverflowError, RecursionError) as problem:
            if data_only or self.unknown == "error":
                kind = TypeError if data_only else ValueNotData
                reply["value"] = None
                return self._encode_error(reply, _not_data("the result", problem, kind))
            reply["value"] = Opaque(value)
            return self._encode(reply)

    def encode_failure(
        self, request: dict[str, Any], exception: BaseException, tasks: list[str]
    ) -> bytes:
        """Encode the reply for an exception that ended the guest's code."""
        reply = self._reply(request, tasks)
        if isinstance(exception, SystemExit) and request["op"] == "run":
            reply["exit_code"] = exit_code(exception)
            return self._encode(reply)
        return self._encode_error(reply, exception)

    def _encode_error(self, reply: dict[str, object], exception: BaseException) -> bytes:
        error = ErrorDescriber(self.sources).describe(exception)
        interrupt = exception if type(exception) is VisInterrupt else None
        error["interrupted"] = interrupt is not None
        error["cancelled"] = interrupt is not None and interrupt.cancelled
        reply["error"] = error
        return self._encode(reply)

    def _reply(self, request: dict[str, Any], tasks: list[str]) -> dict[str, object]:
        """Begin a reply; what was counted in this run is taken, and goes with it."""
        return {
            "id": request["id"],
            "value": None,
            "error": None,
            "exit_code": None,
            "tasks": tasks,
            "trips": core.trip_counts(),
            "denials": self._refused(),
        }

    def _refused(self) -> tuple[list[object], int]:
        """What the host has not been told yet; a request that asks nothing leaves it to the next."""
        taken: tuple[list[object], int] = core.denials() if self.running else ([], 0)
        return taken

    def _encode(self, value: dict[str, object], *, data_only: bool = False) -> bytes:
        options: dict[str, Any] = {"reduce": self._reduce}
        if sys.platform != "win32":  # where no descriptor crosses, and frames hold all
            options["beside"] = BESIDE_BYTES
        if not data_only and self.unknown != "error":
            options["default"] = self._default
        encoded: bytes = core.encode(value, **options)
        return encoded

    def _reduce(self, value: object) -> tuple[Any, ...] | None:
        parts = reduce_value(value)
        if parts is None and (
            type(value) in _OCTETS or any(name in sys.modules for name in _LIBRARIES)
        ):
            if sys.platform == "win32":
                from .framed import reduce
            else:
                from .buffers import reduce
            return reduce(value, self)
        return parts

    def _default(self, value: object) -> tuple[int | None, str, str]:
        if type(value) is Opaque:
            value = value.value
        if self.unknown == "repr":
            return None, _short_name(value), bounded_repr(value)
        return self.handle(value)

    # Calls to the host.

    def call_host(
        self, name: str, arguments: tuple[object, ...], keywords: dict[str, object]
    ) -> object:
        """Call an exposed function of the host and wait for its answer."""
        call: dict[str, object] = {"name": name, "args": list(arguments), "kwargs": keywords}
        return self.ask_host(CALLBACK, call)

    def ask_host(self, kind: int, question: dict[str, object]) -> Any:
        """Send a question and wait for its answer."""
        self._last_call = number = self._last_call + 1
        # Encoding may run code of the guest, which may call the host itself.
        try:
            data = self._encode({"id": number, **question})
        except TypeError as problem:
            if self.unknown != "error":
                raise
            raise _not_data("an argument", problem, ValueNotData) from None
        self._interrupts.enter_channel()
        try:
            with self._host:
                reply, descriptors = self._exchange(kind, number, data)
        finally:
            self._interrupts.leave_channel()
        if reply["error"] is not None:
            if reply["interrupted"]:
                self._interrupts.raise_in_main()
            raise _host_error(*reply["error"])
        return (reply["value"], descriptors) if kind == BUFFER else reply["value"]

    def _exchange(
        self, kind: int, number: int, data: bytes
    ) -> tuple[dict[str, Any], tuple[int, ...]]:
        if kind == INPUT and not self.asks:
            raise EOFError("the host answers no more questions for input")
        self._send(kind, data)
        while True:
            frame_type, payload = core.receive()
            if frame_type == CALLBACK_REPLY:
                descriptors: tuple[int, ...] = core.descriptors()
                reply = self.decode(payload, () if kind == BUFFER else descriptors)
                # The reply to a call that an interrupt broke off comes late; it is dropped.
                if reply["id"] == number:
                    return reply, descriptors
                for descriptor in descriptors if kind == BUFFER else ():
                    posix.close(descriptor)

    def decode(self, payload: bytes, descriptors: tuple[int, ...]) -> dict[str, Any]:
        """Decode what the host says; *descriptors* came along."""
        value: dict[str, Any]
        if not descriptors:
            value = core.decode(payload)
            return value
        from .buffers import decode

        value = decode(payload, descriptors)
        return value

    def send(self, kind: int, value: object) -> None:
        """Tell the host something that has no answer, from any thread."""
        data = core.encode(value)
        self._interrupts.enter_channel()
        try:
            self._send(kind, data)
        finally:
            self._interrupts.leave_channel()

    def _send(self, kind: int, data: bytes) -> None:
        # Two threads would mix their frames.
        with self._sending:
            if not self.running:
                raise RuntimeError("the host can be reached only during a run")
            core.send(kind, data)

    def finish(self, send: Callable[[], object]) -> None:
        """End the run with *send*, after calls to the host in other threads are done."""
        with self._host, self._sending:
            self.running = False
            send()


def _first_handle() -> int:
    """A number that no other worker begins at: a handle of one must not name another's object."""
    return int.from_bytes(posix.urandom(5), "little") << 20


def compile_expression(code: str, filename: str) -> CodeType:
    """Compile one expression, in the quick way where that gives the same."""
    code = code.strip()
    expression: CodeType | None = None
    if "coding" not in code:  # it would heed a comment that declares an encoding
        try:
            expression = core.compile_expression(code, filename)
        except Exception:
            expression = None  # the builtin takes more (await), and says better what is wrong
    return expression or compile(code, filename, "eval", _TOP_LEVEL_AWAIT, True)


class Opaque:
    """Marks a value that cannot cross although its parts could (a cycle, too large)."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value: object = value


def _short_name(value: object) -> str:
    return type_name(type(value))[:MAX_TYPE_NAME]


def _not_data(what: str, problem: Exception, kind: type[Exception]) -> Exception:
    """Say which type is where in the value, but not where that is in a frame."""
    text = str(problem).replace("value['value']", "value", 1).replace("value['args']", "args", 1)
    return kind(f"{what} does not cross as data: {text}")


def _host_error(name: str, message: str, data: dict[str, object]) -> HostError:
    """Make an exception that is a HostError and, where it fits, of the same builtin type."""
    builtin = getattr(builtins, name, None)
    kind: Any = HostError
    if isinstance(builtin, type) and issubclass(builtin, Exception):
        kind = type(name, (HostError, builtin), {"__module__": "visruntime.host"})
    try:
        error: HostError = kind(message if kind is not HostError else f"{name}: {message}")
    except TypeError:  # it wants more than a message, as UnicodeDecodeError does
        error = HostError(f"{name}: {message}")
    error.type_name = name
    error.data = data
    return error


def _choose_backend(matplotlib: Any) -> None:
    """Let pyplot show its figures on the host, unless the guest's environment says otherwise."""
    import os

    if not os.environ.get("MPLBACKEND"):
        matplotlib.rcParams["backend"] = f"module://{PACKAGE}.figures"
