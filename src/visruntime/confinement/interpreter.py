"""Ways past the interpreter's audit hook: what raises no event, or tells too little."""

from __future__ import annotations

import textwrap

from visruntime.confinement.attempt import Attempt

__all__ = ["ATTEMPTS"]

MEMORY = (
    # bpo-15994: a buffered reader hands out its buffer, and frees it while it is still held.
    "import io\n"
    "class Source(io.RawIOBase):\n"
    "    def readinto(self, buffer):\n"
    "        global held\n"
    "        held = buffer\n"
    "        return 0\n"
    "    def readable(self): return True\n"
    "reader = io.BufferedReader(Source(), buffer_size=4096)\n"
    "reader.read(1)\n"
    "del reader\n"
    "filler = [None] * (4096 // 8 - 2)\n"
    "words = held.cast('P')\n"
    "if id(None) not in words:\n"
    "    raise ModuleNotFoundError('this version hands out no freed memory')\n"
)
NATIVE = (
    "import importlib.util, shutil\n"
    "origin = os.path.dirname(importlib.util.find_spec('_ctypes').origin)\n"
    "name = min(n for n in os.listdir(origin) if n.startswith(('_json.', '_heapq.', 'mmap.')))\n"
    "copy = shutil.copy(f'{origin}/{name}', f'{S.work}/{name}')\n"
    "def load():\n"
    "    module = name.split('.')[0]\n"
    "    importlib.util.module_from_spec(importlib.util.spec_from_file_location(module, copy))\n"
)
INSIDE = (
    "try:\n"
    "    import _interpreters as interpreters\n"
    "    run = interpreters.exec\n"
    "except ImportError:\n"
    "    import _xxsubinterpreters as interpreters\n"
    "    run = interpreters.run_string\n"
    "reading, writing = os.pipe()\n"
    "inner = f'''\n"
    "import os\n"
    "try:\n"
    "    open({S.secret!r}).close()\n"
    "    answer = 0\n"
    "except OSError as error:\n"
    "    answer = error.errno\n"
    "os.write({writing}, bytes([answer]))\n"
    "'''\n"
    "def in_another():\n"
    "    one = interpreters.create()\n"
    "    run(one, inner)\n"
    "    number = os.read(reading, 1)[0]\n"
    "    if number: raise OSError(number, 'in the sub-interpreter')\n"
)


def _sqlite(name: str, title: str, statement: str, target: str) -> Attempt:
    return Attempt(
        f"interpreter.{name}",
        title,
        "import sqlite3\n"
        "def by_sqlite():\n"
        "    with sqlite3.connect(':memory:', isolation_level=None) as base:\n"
        f"        {statement}\n"
        f"on_path(by_sqlite, {target}, writes=True)",
    )


ATTEMPTS = (
    Attempt("interpreter.raw_call", "open a file by a raw system call (ctypes)",
        "on_path(lambda: os.close(raw('openat', -100, os.fsencode(S.secret), 0)), S.secret)"),
    Attempt("interpreter.memory", "alias freed memory (bpo-15994), then open a file by a raw call",
        "def after_aliasing():\n"
        + textwrap.indent(MEMORY, "    ")
        + "    os.close(raw('openat', -100, os.fsencode(S.secret), 0))\n"
        "on_path(after_aliasing, S.secret)"),
    Attempt("interpreter.sub_interpreter", "open a file in a sub-interpreter",
        INSIDE + "on_path(in_another, S.secret)"),
    _sqlite("sqlite_attach", "make a file by ATTACH of sqlite",
        "base.execute('attach ? as other', (S.read + '/attached',));"
        " base.execute('create table other.t (x)')", "S.read + '/attached'"),
    _sqlite("sqlite_vacuum", "make a file by VACUUM INTO of sqlite",
        "base.execute('vacuum into ?', (S.read + '/vacuumed',))", "S.read + '/vacuumed'"),
    Attempt("interpreter.sqlite_read", "read a database that is not granted",
        "import sqlite3\n"
        "def by_sqlite():\n"
        "    with sqlite3.connect(f'file:{S.database}?mode=ro', uri=True) as base:\n"
        "        base.execute('select * from sqlite_master').fetchall()\n"
        "on_path(by_sqlite, S.database)"),
    Attempt("interpreter.readline_read", "read a file as readline's history",
        "def by_readline():\n"
        "    import readline\n"
        "    readline.read_history_file(S.secret)\n"
        "on_path(by_readline, S.secret)"),
    Attempt("interpreter.readline_write", "write a file as readline's history",
        "def by_readline():\n"
        "    import readline\n"
        "    readline.add_history('line')\n"
        "    readline.write_history_file(S.read + '/history')\n"
        "on_path(by_readline, S.read + '/history', writes=True)"),
    Attempt("interpreter.tcl_read", "read a file by Tcl",
        "def by_tcl():\n"
        "    import _tkinter, tkinter\n"
        "    tkinter.Tcl().eval(f'close [open {{{S.secret}}}]')\n"
        "on_path(by_tcl, S.secret)"),
    Attempt("interpreter.tls_keys", "make a file as the log of TLS keys",
        "import ssl\n"
        "def by_tls():\n"
        "    ssl.create_default_context().keylog_filename = S.read + '/keys'\n"
        "on_path(by_tls, S.read + '/keys', writes=True)"),
    Attempt("interpreter.native_module", "import machine code from a write grant",
        NATIVE + "tried(load)"),
    Attempt("interpreter.native_library", "load machine code from a write grant (ctypes)",
        NATIVE + "tried(lambda: ctypes.CDLL(copy))"),
    Attempt("interpreter.native_memory", "load machine code from memory",
        NATIVE + "handle = os.memfd_create('code')\n"
        "with open(f'{origin}/{name}', 'rb') as file: os.write(handle, file.read())\n"
        "tried(lambda: ctypes.CDLL(f'/proc/self/fd/{handle}'))"),
)  # fmt: skip
