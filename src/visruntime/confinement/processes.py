"""Processes of the host, by their number there, and the jail's own supervisor.

``S.victim`` is a process of the same user that lets itself be traced; ``S.supervisor`` is 1 in the jail
and the victim in the control.
"""

from __future__ import annotations

from visruntime.confinement.attempt import Attempt

__all__ = ["ATTEMPTS"]

VECTORS = (
    "import ctypes\n"
    "class Vector(ctypes.Structure):\n"
    "    _fields_ = [('base', ctypes.c_void_p), ('size', ctypes.c_size_t)]\n"
    "room = ctypes.create_string_buffer(8)\n"
    "mine = Vector(ctypes.cast(room, ctypes.c_void_p), 8)\n"
    "theirs = Vector(S.address, 8)\n"
)

ATTEMPTS = (
    Attempt("processes.see", "see a process of the host in /proc",
        "on_process(lambda: os.stat(f'/proc/{S.victim}'))"),
    Attempt("processes.environment", "read its environment",
        "on_process(lambda: open(f'/proc/{S.victim}/environ').close())"),
    Attempt("processes.root", "read a file through its root, /proc/PID/root",
        "on_process(lambda: open(f'/proc/{S.victim}/root{S.secret}').close())"),
    Attempt("processes.signal", "send a signal to it",
        "import signal\non_process(lambda: os.kill(S.victim, signal.SIGCONT))"),
    Attempt("processes.descriptor", "get hold of it by a pidfd",
        "on_process(lambda: os.close(os.pidfd_open(S.victim)))"),
    Attempt("processes.steal_descriptor", "take a descriptor from it (pidfd_getfd)",
        "by_call(lambda: raw('pidfd_getfd', os.pidfd_open(S.victim), 1, 0),"
        " lambda: raw('pidfd_getfd', -1, -1, 0))"),
    Attempt("processes.trace", "trace it (ptrace)",
        "by_call(lambda: (raw('ptrace', 0x4206, S.victim, 0, 0)),"
        " lambda: raw('ptrace', 0x4206, -1, 0, 0))"),
    Attempt("processes.memory", "read its memory (process_vm_readv)",
        VECTORS + "by_call(lambda: raw('process_vm_readv', S.victim, ctypes.byref(mine), 1,"
        " ctypes.byref(theirs), 1, 0), lambda: raw('process_vm_readv', -1, None, 1, None, 1, 0))"),
    Attempt("processes.compare", "compare kernel objects of processes (kcmp)",
        "by_call(lambda: raw('kcmp', os.getpid(), os.getpid(), 1, 0, 0),"
        " lambda: raw('kcmp', -1, -1, 99, 0, 0))"),
    Attempt("processes.priority", "change its priority",
        "by_call(lambda: os.setpriority(os.PRIO_PROCESS, S.victim, 19),"
        " lambda: raw('setpriority', 99, S.victim, 0))"),
    Attempt("processes.affinity", "bind it to processors",
        "on_process(lambda: os.sched_setaffinity(S.victim, os.sched_getaffinity(0)))"),
    Attempt("processes.limits", "read and change its limits (prlimit)",
        "limits = (ctypes.c_uint64 * 2)(0, 0)\n"
        "by_call(lambda: raw('prlimit64', S.victim, 4, ctypes.byref(limits), None),"
        " lambda: raw('prlimit64', S.victim, 9999, ctypes.c_void_p(1), None))"),
    Attempt("processes.owner", "have the kernel signal it (F_SETOWN)",
        "import fcntl, socket\n"
        "pair = socket.socketpair()\n"
        "on_process(lambda: fcntl.fcntl(pair[0], fcntl.F_SETOWN, S.victim))"),
    Attempt("processes.system_v", "attach to System V shared memory of the host",
        "def attach():\n"
        "    libc.shmget.restype = ctypes.c_int\n"
        "    if libc.shmget(S.key, 0, 0) < 0: raise OSError(ctypes.get_errno(), 'shmget')\n"
        "tried(attach, ipc=True)"),
    Attempt("processes.supervisor_signal", "send a signal to the jail's supervisor",
        "on_supervisor(lambda: os.kill(S.supervisor, 0))"),
    Attempt("processes.supervisor_root", "look into the host through the supervisor's root",
        "on_supervisor(lambda: os.stat(f'/proc/{S.supervisor}/root/.'))"),
    Attempt("processes.supervisor_memory", "open the supervisor's memory",
        "on_supervisor(lambda: open(f'/proc/{S.supervisor}/mem', 'r+b').close())"),
)  # fmt: skip
