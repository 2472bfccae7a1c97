"""The guard of Windows' consoles, tried on a stand-in: a type in C whose initialiser takes the same.

The lane of wine has the real type. Each case is a Python of its own, which the guard changes for good.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import types
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from required import missing

from visruntime.guest.console import ConsoleUnguarded, guard_consoles

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [
    pytest.mark.one_uid,
    pytest.mark.skipif(
        sys.platform == "win32", reason="tests/windows/test_here.py has the real one"
    ),
]

NATIVE = Path(__file__).parent.parent.parent / "native/vispython"
# A stand-in for the console: it keeps what its initialiser gets, which is C like that of the real one.
STAND_IN = """
#define PY_SSIZE_T_CLEAN
#include <Python.h>
typedef struct { PyObject_HEAD PyObject *opened; } console;
static int start(PyObject *self, PyObject *args, PyObject *keywords) {
    static char *names[] = {"file", "mode", "closefd", "opener", NULL};
    PyObject *file, *closefd = NULL, *opener = NULL, *path = NULL;
    const char *mode = "r";
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|s$OO", names, &file, &mode, &closefd, &opener))
        return -1;
    if (PyLong_Check(file)) path = Py_NewRef(file);
    else if (!PyUnicode_FSDecoder(file, (void *)&path)) return -1;
    Py_XSETREF(((console *)self)->opened, path);
    return 0;
}
static PyObject *opened(PyObject *self, void *unused) {
    (void)unused;
    PyObject *path = ((console *)self)->opened;
    return path ? Py_NewRef(path) : PyUnicode_FromString("nothing");
}
static PyGetSetDef shown[] = {{"opened", opened, NULL, NULL, NULL}, {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot slots[] = {{Py_tp_init, start}, {Py_tp_getset, shown},
                              {Py_tp_new, PyType_GenericNew}, {0, NULL}};
static PyType_Spec spec = {"stand_in._WindowsConsoleIO", sizeof(console), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "stand_in", .m_size = -1};
PyMODINIT_FUNC PyInit_stand_in(void) {
    PyObject *module = PyModule_Create(&definition);
    if (module) PyModule_AddObject(module, "_WindowsConsoleIO", PyType_FromSpec(&spec));
    return module;
}
"""
PREPARE = """
import sys
sys.path.insert(0, {folder!r})
import stand_in
from stand_in import _WindowsConsoleIO as Console
from _visconsole import guard
events = []
def hook(event, arguments):
    if event == "open" and "CON" in str(arguments[0]):
        events.append(arguments)
        raise PermissionError("no console")
"""
TRY = """
sys.addaudithook(hook)
def attempt(make):
    events.clear()
    try:
        made = make()
    except PermissionError:
        return "refused", *events
    return getattr(made, "opened", made), *events
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[str]]:
    """Return a function that runs code in a Python with the guard and a stand-in for the console."""
    include = sysconfig.get_path("include")
    if not (Path(include) / "Python.h").exists():
        missing("the headers of this Python are not installed")
    folder = tmp_path_factory.mktemp("guard")
    (folder / "stand_in.c").write_text(STAND_IN)
    flags = ("-std=gnu11", "-O1", "-shared", "-fPIC", "-Wall", "-Wextra", f"-I{include}")
    for source, name in (
        (NATIVE / "windows_console_guard.c", "_visconsole"),
        (folder / "stand_in.c", "stand_in"),
    ):
        output = folder / f"{name}.so"
        command = ["cc", *flags, "-Wno-missing-field-initializers", "-o", str(output), str(source)]
        subprocess.run(command, check=True)

    def run(code: str, before: str = "", *, guarded: bool = True) -> list[str]:
        parts = [
            PREPARE.format(folder=str(folder)),
            before,
            "guard(Console)" if guarded else "",
            TRY,
        ]
        done = subprocess.run(
            [sys.executable, "-I", "-c", "\n".join([*parts, code])],
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
        return [*done.stdout.splitlines(), *done.stderr.splitlines()[-1:]]

    return run


WAYS = """
for name, make in {
    "call": lambda: Console("CONOUT$", "w"),
    "keyword": lambda: Console(file="CONIN$"),
    "bytes": lambda: Console(b"CONIN$", mode="r"),
    "raw": lambda: (c := Console.__new__(Console), Console.__init__(c, "CONIN$"), c)[2],
    "again": lambda: (c := Console(7), c.__init__("CONIN$"), c)[2],
    "kept descriptor": lambda: (c := Console.__new__(Console), kept_descriptor(c, "CONIN$"), c)[2],
    "kept wrapper": lambda: (kept_wrapper("CONIN$"), kept)[1],
    "subclass": lambda: type("Sub", (Console,), {})("CONIN$"),
    "subclass that calls super": lambda: Calling("CONIN$"),
    "subclass whose own is gone": lambda: Gone("CONIN$"),
    "through type": lambda: type.__call__(Console, "CONIN$"),
    "descriptor": lambda: Console(7),
    "another file": lambda: Console("other", "w"),
}.items():
    print(name, *attempt(make))
"""
BEFORE = """
kept = Console.__new__(Console)
kept_descriptor, kept_wrapper = Console.__init__, kept.__init__
"""
CLASSES = """
class Calling(Console):
    def __init__(self, name):
        super().__init__(name)
class Gone(Console):
    def __init__(self, name):
        pass
del Gone.__init__
"""


SUBCLASSES = ("subclass", "subclass that calls super", "subclass whose own is gone")


def test_each_way_to_a_console_is_seen(python: Callable[..., list[str]]) -> None:
    """W62: no constructor, subclass, kept initialiser or raw call may open one without the event."""
    lines = dict(
        line.rpartition(" refused ")[::2]
        for line in python(CLASSES + WAYS, BEFORE)
        if "refused" in line
    )
    reading, writing = "('CONIN$', {mode}, 0)", "('CONOUT$', 'w', 1)"
    assert lines == {
        "call": writing,
        "keyword": reading.format(mode=None),
        "bytes": reading.format(mode="'r'"),
        **dict.fromkeys(
            ("raw", "again", "kept descriptor", "kept wrapper", "through type", *SUBCLASSES),
            reading.format(mode=None),
        ),
    }


def test_without_the_guard_no_event_is_raised(python: Callable[..., list[str]]) -> None:
    """W62: the control: each of these opens, and tells nobody, where there is no guard."""
    lines = python(CLASSES + WAYS, BEFORE, guarded=False)
    assert len(lines) == 13
    assert all(line.endswith(("CONIN$", "CONOUT$", "7", "other")) for line in lines)


def test_what_opens_nothing_by_name_is_as_before(python: Callable[..., list[str]]) -> None:
    """W62: a descriptor that is open already raises no event, and errors are the type's own."""
    code = """
print(*attempt(lambda: Console(7)), *attempt(lambda: Console("other", "w")))
for args, named in (((), {}), ((3.5,), {}), (("x", "r", 1, 2, 3), {}), ((), {"y": 1})):
    try: Console(*args, **named)
    except TypeError as error: print("TypeError")
"""
    assert python(code) == ["7 other", *["TypeError"] * 4]
    assert python(code, guarded=False) == ["7 other", *["TypeError"] * 4]


def test_a_name_is_asked_for_once(python: Callable[..., list[str]]) -> None:
    """W62: no object may give the guard one name and the console another."""
    code = """
class Two:
    asked = 0
    def __fspath__(self):
        self.asked += 1
        return "harmless" if self.asked == 1 else "CONIN$"
class Number:
    def __init__(self): self.asked = 0
    def __index__(self):
        self.asked += 1
        if self.asked == 1: raise ValueError
        return 7
    def __fspath__(self): return "CONIN$"
class Key(str):
    def __hash__(self): return hash("file")
    def __eq__(self, other): return other == "file"
print(*attempt(lambda: Console(Two())))
print(*attempt(lambda: Console(Number())))
try: print(*attempt(lambda: Console(**{Key("other"): "CONIN$"})))
except TypeError as error: print(error)
"""
    assert python(code) == [
        "harmless",
        "refused ('CONIN$', None, 0)",
        "keywords must be plain text",
    ]


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ("class Sub(Console): pass", "start-up code has made a subclass"),
        ("class A(Console): pass\nclass B(A): pass", "start-up code has made a subclass"),
        ("Console.__init__ = lambda self, name: None", "not CPython's own"),
        ("guard(Console)", "guarded already"),
        ("class Console: pass", "__init__"),
        ("Console = 3", "a type is needed"),
    ],
)
def test_what_start_up_code_has_changed_ends_the_start(
    python: Callable[..., list[str]], before: str, said: str
) -> None:
    """W62: a subclass or a replaced initialiser of start-up code may not leave a way past the guard."""
    (line,) = python("print('started')", before)
    assert said in line
    assert "started" not in line


def test_no_further_interpreter_has_consoles_of_its_own(python: Callable[..., list[str]]) -> None:
    """W62: a sub-interpreter, whose console would be another type, may not be made."""
    code = """
try: import _interpreters as interpreters
except ImportError: import _xxsubinterpreters as interpreters
import importlib, sys
create = interpreters.create
del sys.modules[interpreters.__name__]
for make in (create, kept, importlib.import_module(interpreters.__name__).create):
    try: made = make()
    except RuntimeError as error: print(error)
    else: print("made"); interpreters.destroy(made)
"""
    kept = """
try: from _interpreters import create as kept
except ImportError: from _xxsubinterpreters import create as kept
"""
    controls = python(code, kept, guarded=False)
    assert controls == ["made"] * 3
    refusal = "no further interpreter: its consoles would not be guarded"
    assert python(code, kept) == [refusal] * 3


def test_the_guest_guards_only_where_there_are_consoles() -> None:
    """W62: nothing may be guarded elsewhere, and on Windows nothing may start unguarded."""
    assert guard_consoles("linux") is False
    console = type("_WindowsConsoleIO", (), {})
    io = types.ModuleType("io")
    with pytest.raises(ConsoleUnguarded, match="though this is Windows"):
        guard_consoles("win32", io)
    io._WindowsConsoleIO = console  # type: ignore[attr-defined]
    seen: list[type] = []
    assert guard_consoles("win32", io, seen.append) is True
    assert seen == [console]

    def failing(_type: type) -> None:
        raise RuntimeError("start-up code has made a subclass")

    with pytest.raises(ConsoleUnguarded, match="made a subclass"):
        guard_consoles("win32", io, failing)
    with pytest.raises(ConsoleUnguarded, match="_visconsole"):
        guard_consoles("win32", io)  # its module is of builds for Windows
