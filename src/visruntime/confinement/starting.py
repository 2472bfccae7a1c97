"""Starting a process from a worker that may start none."""

from __future__ import annotations

from visruntime.confinement.attempt import Attempt

__all__ = ["ATTEMPTS"]

WAIT = (
    "def wait(child):\n"
    "    if child == 0: os._exit(0)\n"
    "    os.waitpid(child, 0)\n"
    "def wait_raw(child):\n"
    "    if child < 0: raise OSError(ctypes.get_errno(), 'refused')\n"
    "    wait(child)\n"
)
# The arguments of a private function, which grow from version to version.
FORK_EXEC = WAIT + (
    "def fork_exec(function):\n"
    "    reading, writing = os.pipe()\n"
    "    rest = [None, None, None, -1, None] + ([True] if sys.version_info < (3, 14) else [])\n"
    "    wait(function([b'/bin/true'], [b'/bin/true'], True, (), None, None, -1, -1, -1, -1, -1, -1,"
    " reading, writing, True, False, 0, *rest))\n"
)
MEMORY_FILE = (
    "def run_memory():\n"
    "    with open('/bin/true', 'rb') as file: code = file.read()\n"
    "    handle = os.memfd_create('program', 0)\n"
    "    os.write(handle, code)\n"
    "    words = (ctypes.c_char_p * 2)(b'true', None)\n"
    "    raw('execveat', handle, b'', words, None, 0x1000)\n"
)

ATTEMPTS = (
    Attempt("starting.fork", "fork", WAIT + "starts(lambda: wait(os.fork()))"),
    Attempt("starting.system", "run a shell (os.system)",
        "starts(lambda: os.system('true') and 1 / 0)"),
    Attempt("starting.spawn", "start a program (os.posix_spawn)",
        WAIT + "starts(lambda: wait(os.posix_spawn('/bin/true', ['true'], {})))"),
    Attempt("starting.subprocess", "start a program (subprocess)",
        "import subprocess\nstarts(lambda: subprocess.run(['/bin/true'], check=True))"),
    Attempt("starting.fork_exec", "start a program below subprocess, of which no event tells",
        FORK_EXEC + "import _posixsubprocess\nstarts(lambda: fork_exec(_posixsubprocess.fork_exec))"),
    Attempt("starting.remade", "the same with a module that was made anew",
        FORK_EXEC + "import importlib.util\n"
        "spec = importlib.util.find_spec('_posixsubprocess')\n"
        "new = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(new)\n"
        "starts(lambda: fork_exec(new.fork_exec))"),
    Attempt("starting.execute", "replace the worker by a program (os.execv)",
        "starts(lambda: in_child(lambda: os.execv('/bin/true', ['true'])))"),
    Attempt("starting.native_fork", "fork by the C library",
        WAIT + "starts(lambda: wait_raw(libc.fork()))"),
    Attempt("starting.clone", "fork by a raw system call",
        WAIT + "starts(lambda: wait(raw('clone', 17, 0, 0, 0, 0)))"),
    Attempt("starting.memory_file", "execute a program from memory (memfd)",
        MEMORY_FILE + "starts(lambda: in_child(run_memory))"),
    Attempt("starting.tcl", "start a program by Tcl",
        "def by_tcl():\n"
        "    import _tkinter, tkinter\n"
        "    tkinter.Tcl().eval('exec true')\n"
        "starts(by_tcl)"),
)  # fmt: skip
