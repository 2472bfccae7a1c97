"""Install a system call filter in this process, then try calls or become a program.

Run as a child by ``test_seccomp.py``; stdlib only. Standard input holds a JSON object:
``program`` (the BPF instructions in hexadecimal, empty for none) and either ``calls`` (a list
of ``[number, argument...]``; a text argument is passed as a pointer to it) or ``argv``.
The answer is a JSON list with the error number of each call, 0 where it succeeded.
"""

from __future__ import annotations

import ctypes
import json
import os
import struct
import sys

PR_SET_NO_NEW_PRIVS = 38
PR_SET_SECCOMP = 22
SECCOMP_MODE_FILTER = 2

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


def install(program: bytes) -> None:
    """Install *program* for this process and all that it starts."""
    buffer = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "no_new_privs")
    if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, header, 0, 0):
        raise OSError(ctypes.get_errno(), "seccomp")


def attempt(number: int, arguments: list[int | str]) -> int:
    """Make one call in a child of its own; return its error number or the negative signal."""
    values = [
        ctypes.c_char_p(each.encode()) if isinstance(each, str) else ctypes.c_ulong(each)
        for each in arguments
    ]
    child = os.fork()
    if child == 0:
        ctypes.set_errno(0)
        failed = libc.syscall(ctypes.c_long(number), *values) < 0
        os._exit(ctypes.get_errno() if failed else 0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main() -> None:
    """Do what standard input asks for."""
    request = json.load(sys.stdin)
    if request["program"]:
        install(bytes.fromhex(request["program"]))
    if "argv" in request:
        os.execvp(request["argv"][0], request["argv"])
    json.dump([attempt(call[0], call[1:]) for call in request["calls"]], sys.stdout)


if __name__ == "__main__":
    main()
