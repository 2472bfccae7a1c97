"""The system call filters on this kernel: what is refused under one, and what works."""

from __future__ import annotations

import errno
import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from jail.test_seccomp import BAD_POINTER, HIGH, NETWORKS, generator, programs

if TYPE_CHECKING:
    from collections.abc import Callable

import platform

PROBE = Path(__file__).with_name("seccomp_probe.py")
machine = platform.machine()


def run_probe(variant: str | None, request: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """Run the probe under this machine's filter, or without one."""
    code = programs[machine, variant] if variant else []
    program = b"".join(struct.pack("<HBBI", *instruction) for instruction in code)
    return subprocess.run(
        [sys.executable, "-I", "-S", PROBE],
        input=json.dumps({"program": program.hex(), **request}),
        capture_output=True,
        text=True,
        check=False,
    )


FAULT, BAD_FILE, INVALID = errno.EFAULT, errno.EBADF, errno.EINVAL
MINUS_ONE = 0xFFFFFFFFFFFFFFFF

LIVE: list[tuple[str, list[Any], set[int], int]] = [
    # call, arguments, what the kernel says without the filter, what the filter says.
    # Everything here is harmless: it either succeeds on nothing or is wrong in its arguments.
    ("mount", [BAD_POINTER, BAD_POINTER, BAD_POINTER, 0, 0], {FAULT}, errno.EPERM),
    ("umount2", [BAD_POINTER, 0], {FAULT}, errno.EPERM),
    ("chroot", [BAD_POINTER], {FAULT}, errno.EPERM),
    ("open_tree", [MINUS_ONE, BAD_POINTER, 0], {FAULT}, errno.EPERM),
    ("fsconfig", [MINUS_ONE, 0, 0, 0, 0], {BAD_FILE, INVALID}, errno.EPERM),
    ("mount_setattr", [MINUS_ONE, BAD_POINTER, 0, BAD_POINTER, 0], {INVALID}, errno.EPERM),
    ("setns", [MINUS_ONE, 0], {BAD_FILE}, errno.EPERM),
    ("unshare", [0x10000000], {0}, errno.EPERM),
    ("clone", [0x10000000 | 17, 0, 0, 0, 0], {0}, errno.EPERM),
    ("clone3", [BAD_POINTER, 0], {INVALID}, errno.ENOSYS),
    ("openat2", [MINUS_ONE, BAD_POINTER, BAD_POINTER, 0], {INVALID}, errno.ENOSYS),
    ("name_to_handle_at", [MINUS_ONE, BAD_POINTER, BAD_POINTER, 0, 0], {FAULT}, errno.EPERM),
    ("fanotify_mark", [MINUS_ONE, 0, 0, 0, 0], {BAD_FILE, INVALID}, errno.EPERM),
    ("io_uring_setup", [1, BAD_POINTER], {FAULT}, errno.EPERM),
    ("io_uring_enter", [MINUS_ONE, 0, 0, 0, 0, 0], {BAD_FILE}, errno.EPERM),
    ("io_uring_register", [MINUS_ONE, 0, 0, 0], {BAD_FILE, INVALID}, errno.EPERM),
    ("add_key", [BAD_POINTER, BAD_POINTER, 0, 0, 0], {FAULT}, errno.EPERM),
    ("request_key", [BAD_POINTER, BAD_POINTER, 0, 0], {FAULT}, errno.EPERM),
    ("keyctl", [999], {errno.EOPNOTSUPP}, errno.EPERM),
    ("ptrace", [0, 0, 0, 0], {0}, errno.EPERM),
    ("process_vm_readv", [1, 0, 0, 0, 0, 1], {INVALID}, errno.EPERM),
    ("process_vm_writev", [1, 0, 0, 0, 0, 1], {INVALID}, errno.EPERM),
    ("process_madvise", [MINUS_ONE, 0, 0, 0, 0], {BAD_FILE}, errno.EPERM),
    ("pidfd_getfd", [MINUS_ONE, 0, 0], {BAD_FILE}, errno.EPERM),
    ("perf_event_open", [BAD_POINTER, 0, 0, 0, 0], {FAULT, errno.EACCES}, errno.EPERM),
    ("adjtimex", [BAD_POINTER], {FAULT}, errno.EPERM),
    ("clock_adjtime", [0, BAD_POINTER], {FAULT}, errno.EPERM),
    ("settimeofday", [BAD_POINTER, 0], {FAULT}, errno.EPERM),
    ("clock_settime", [0, BAD_POINTER], {FAULT}, errno.EPERM),
    ("quotactl_fd", [MINUS_ONE, 0, 0, 0], {BAD_FILE}, errno.EPERM),
    ("personality", [0x0400000], {0}, errno.EPERM),
    ("ioctl", [MINUS_ONE, 0x5412, 0], {BAD_FILE}, errno.EPERM),
    ("ioctl", [MINUS_ONE, 0x541C | HIGH, 0], {BAD_FILE}, errno.EPERM),
    ("ioctl", [MINUS_ONE, 0x8982, 0], {BAD_FILE}, errno.EPERM),
    ("ioctl", [MINUS_ONE, 0x89A0, 0], {BAD_FILE}, errno.EPERM),
    ("setsockopt", [MINUS_ONE, 6, 31, 0, 0], {BAD_FILE}, errno.ENOPROTOOPT),
    ("setsockopt", [MINUS_ONE, 17, 100, 0, 0], {BAD_FILE}, errno.ENOPROTOOPT),
    ("fchmodat", [MINUS_ONE, "{directory}", 0o4700], {0}, errno.EPERM),
    ("fchmodat", [MINUS_ONE, "{directory}", 0o2700], {0}, errno.EPERM),
    ("mkdirat", [MINUS_ONE, "{directory}/made", 0o2755], {0}, errno.EPERM),
    ("openat", [MINUS_ONE, "{directory}/opened", 0o101, 0o4755], {0}, errno.EPERM),
    ("openat", [MINUS_ONE, "{directory}", os.O_TMPFILE | 2, 0o4755], {0}, errno.EPERM),
    ("openat", [MINUS_ONE, "{directory}", 0o200003], {errno.EISDIR}, errno.EPERM),
    ("mknodat", [MINUS_ONE, "{directory}/node", 0o104755, 0], {0}, errno.EPERM),
    ("socket", [2, 4, 0], {errno.ESOCKTNOSUPPORT}, errno.EPERM),
    ("socket", [2, 5, 132], {0, errno.ESOCKTNOSUPPORT}, errno.EPROTONOSUPPORT),
    ("socket", [2, 1, 6 | HIGH], {0}, errno.EPROTONOSUPPORT),
    ("socket", [17, 3, 0], {0, errno.EPERM}, errno.EAFNOSUPPORT),
    ("socket", [16, 3, 15], {0}, errno.EPROTONOSUPPORT),
    ("socketpair", [2, 1, 0, BAD_POINTER], {FAULT, errno.EOPNOTSUPP}, errno.EAFNOSUPPORT),
    ("sendto", [MINUS_ONE, 0, 0, 0x20000000, 0, 0], {BAD_FILE}, errno.EOPNOTSUPP),
    ("sendmsg", [MINUS_ONE, 0, 0x20000000], {BAD_FILE}, errno.EOPNOTSUPP),
    ("sendmmsg", [MINUS_ONE, 0, 0, 0x20000000], {BAD_FILE}, errno.EOPNOTSUPP),
]

LIVE_AS_ROOT: list[tuple[str, list[Any], set[int], int]] = [
    # Calls that look at the caller's capabilities before anything else.
    ("pivot_root", [BAD_POINTER, BAD_POINTER], {FAULT}, errno.EPERM),
    ("move_mount", [MINUS_ONE, BAD_POINTER, MINUS_ONE, BAD_POINTER, 0], {FAULT}, errno.EPERM),
    ("fsopen", [BAD_POINTER, 0], {FAULT}, errno.EPERM),
    ("fspick", [MINUS_ONE, BAD_POINTER, 0], {FAULT}, errno.EPERM),
    ("fsmount", [MINUS_ONE, 0, 0], {BAD_FILE}, errno.EPERM),
    ("open_by_handle_at", [MINUS_ONE, BAD_POINTER, 0], {FAULT, BAD_FILE}, errno.EPERM),
    ("reboot", [0, 0, 0, 0], {INVALID}, errno.EPERM),
    ("swapon", [BAD_POINTER, 0], {FAULT}, errno.EPERM),
    ("swapoff", [BAD_POINTER], {FAULT}, errno.EPERM),
    ("acct", [BAD_POINTER], {FAULT, errno.ENOSYS}, errno.EPERM),
    ("syslog", [99, 0, 0], {INVALID}, errno.EPERM),
    ("bpf", [999, 0, 0], {INVALID}, errno.EPERM),
]


def test_filter_is_live(tmp_path: Path) -> None:
    """No forbidden call works under the filter, and each gets its own answer without it."""
    table = LIVE + (LIVE_AS_ROOT if os.geteuid() == 0 else [])
    outcomes: dict[str | None, list[int]] = {}
    for variant in (None, "network_off"):
        directory = tmp_path / str(variant)
        directory.mkdir()
        calls = [
            [
                generator.number_of(machine, name),
                *(a.format(directory=directory) if isinstance(a, str) else a for a in arguments),
            ]
            for name, arguments, _, _ in table
        ]
        result = run_probe(variant, {"calls": calls})
        assert result.returncode == 0, result.stderr
        outcomes[variant] = json.loads(result.stdout)
    for index, (name, arguments, control, expected) in enumerate(table):
        assert outcomes[None][index] in control, f"control: {name} {arguments}"
        assert outcomes["network_off"][index] == expected, f"filter: {name} {arguments}"
    assert list((tmp_path / "network_off").iterdir()) == []


def test_open_network_has_no_netlink() -> None:
    """With the host's network shared, no netlink socket tells the guest about it."""
    call = {"calls": [[generator.number_of(machine, "socket"), 16, 3, 0]]}
    outcomes = [
        json.loads(run_probe(v, call).stdout) for v in (None, "network_off", "network_open")
    ]
    assert outcomes == [[0], [0], [errno.EAFNOSUPPORT]]


WORK = {
    "threads": "import threading; t = threading.Thread(target=print, args=('done',)); "
    "t.start(); t.join()",
    "subprocess": "import subprocess; subprocess.run(['/bin/echo', 'done'], check=True)",
    "asyncio": "import asyncio; p = asyncio.create_subprocess_exec('/bin/echo', 'done')\n"
    "async def main(): await (await p).wait()\nasyncio.run(main())",
    "multiprocessing": "import multiprocessing as m\n"
    "p = m.get_context('fork').Process(target=print, args=('done',)); p.start(); p.join()",
    "sockets": "import socket; s = socket.create_server(('127.0.0.1', 0))\n"
    "c = socket.create_connection(s.getsockname()); c.sendall(b'done\\n')\n"
    "print(s.accept()[0].recv(5).decode())",
    "interfaces": "import socket; socket.getaddrinfo('localhost', 80); print('done')",
}


@pytest.mark.parametrize("variant", NETWORKS)
@pytest.mark.parametrize("work", WORK)
def test_python_works_under_the_filter(variant: str, work: str) -> None:
    """Ordinary Python work is not disturbed by the filter."""
    argv = [sys.executable, "-I", "-S", "-W", "ignore", "-c", WORK[work]]
    result = run_probe(variant, {"argv": argv})
    assert (result.returncode, result.stdout.strip()) == (0, "done"), result.stderr


@pytest.mark.parametrize("variant", NETWORKS)
def test_node_works_under_the_filter(variant: str, tool: Callable[[str], str]) -> None:
    """Node starts and runs, although it looks for io_uring and newer calls."""
    node = tool("node")
    script = "require('child_process').execFileSync('/bin/true'); console.log('done')"
    result = run_probe(variant, {"argv": [node, "-e", script]})
    assert (result.returncode, result.stdout.strip()) == (0, "done"), result.stderr
