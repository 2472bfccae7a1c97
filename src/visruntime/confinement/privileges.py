"""Interfaces of the kernel with which a process gets more than it has, or sees more."""

from __future__ import annotations

from visruntime.confinement.attempt import Attempt

__all__ = ["ATTEMPTS"]

MOUNT = (
    "def mount():\n"
    # Without a jail an ordinary user may, in namespaces of his own.
    "    if not S.jailed: raw('unshare', 0x10020000)\n"
    "    raw('mount', b'tmpfs', os.fsencode(S.work), b'tmpfs', 0, None)\n"
)
PERF = (
    "events = bytearray(120)\n"
    "events[0:4] = (1).to_bytes(4, 'little')\n"  # PERF_TYPE_SOFTWARE, clock of the task
    "events[4:8] = (120).to_bytes(4, 'little')\n"
    "events[8:16] = (1).to_bytes(8, 'little')\n"
    "events[40:48] = (0x60).to_bytes(8, 'little')\n"  # neither the kernel nor a hypervisor
    "events = (ctypes.c_char * 120).from_buffer(events)\n"
)

ATTEMPTS = (
    Attempt("privileges.user_namespace", "make a user namespace, to be root in it",
        "by_call(lambda: in_child(lambda: raw('unshare', 0x10000000)),"
        " lambda: raw('unshare', 0x10000000 | 0x01))"),
    Attempt("privileges.mount", "mount a file system",
        MOUNT + "by_call(lambda: in_child(mount),"
        " lambda: raw('mount', ctypes.c_void_p(1), ctypes.c_void_p(1), ctypes.c_void_p(1), 0, None))"),
    Attempt("privileges.open_tree", "take hold of a tree of mounts (open_tree)",
        "by_call(lambda: os.close(raw('open_tree', -100, os.fsencode(S.read), 0)),"
        " lambda: raw('open_tree', -1, ctypes.c_void_p(1), 0xffffff))"),
    Attempt("privileges.set_user_id", "make a program run as its owner (set-uid)",
        "tool = S.work + '/tool'\n"
        "open(tool, 'w').close()\n"
        "by_call(lambda: os.chmod(tool, 0o4755),"
        " lambda: raw('fchmodat', -100, ctypes.c_void_p(1), 0o4755))"),
    Attempt("privileges.create_set_user_id", "create one with that bit",
        "by_call(lambda: os.close(os.open(S.work + '/tool2', os.O_CREAT | os.O_WRONLY, 0o4755)),"
        " lambda: raw('openat', -100, ctypes.c_void_p(1), os.O_CREAT | os.O_WRONLY, 0o4755))"),
    Attempt("privileges.keyring", "put a key into the kernel's keyring",
        "by_call(lambda: raw('add_key', b'user', b'visruntime-doctor', b'x', 1, -2),"
        " lambda: raw('add_key', ctypes.c_void_p(1), None, None, 0, 0))"),
    Attempt("privileges.io_uring", "make system calls past the filter (io_uring)",
        "params = ctypes.create_string_buffer(120)\n"
        "by_call(lambda: os.close(raw('io_uring_setup', 1, params)),"
        " lambda: raw('io_uring_setup', 0, None))"),
    Attempt("privileges.userfaultfd", "halt the kernel at a page (userfaultfd)",
        "by_call(lambda: os.close(raw('userfaultfd', 1)), lambda: raw('userfaultfd', 0x4000001))"),
    Attempt("privileges.fanotify", "watch the files of others (fanotify)",
        "by_call(lambda: os.close(raw('fanotify_init', 0x200, 0)),"
        " lambda: raw('fanotify_init', 0x200 | 0x40000000, 0))"),
    Attempt("privileges.file_handle", "get a handle that passes by every mount",
        "room = ctypes.create_string_buffer((128).to_bytes(4, 'little'), 140)\n"
        "number = ctypes.c_int()\n"
        "by_call(lambda: raw('name_to_handle_at', -100, os.fsencode(S.read), room,"
        " ctypes.byref(number), 0),"
        " lambda: raw('name_to_handle_at', -1, ctypes.c_void_p(1), None, None, 0))"),
    Attempt("privileges.performance", "open a performance counter",
        PERF + "by_call(lambda: os.close(raw('perf_event_open', events, 0, -1, -1, 0)),"
        " lambda: raw('perf_event_open', None, 0, -1, -1, 0))"),
    Attempt("privileges.newer_call", "make a system call that is newer than the filter (listmount)",
        "request = (ctypes.c_uint64 * 4)(24, 0xffffffffffffffff, 0, 0)\n"
        "room = (ctypes.c_uint64 * 8)()\n"
        "by_call(lambda: raw('listmount', request, room, 8, 0),"
        " lambda: raw('listmount', None, None, 0, 0xff))"),
    Attempt("privileges.device", "make a file for a device of the kernel",
        "import stat\n"
        "by_call(lambda: os.mknod(S.work + '/null', stat.S_IFCHR | 0o600, os.makedev(1, 3)),"
        " lambda: raw('mknodat', -100, ctypes.c_void_p(1), stat.S_IFCHR | 0o600, 0x103))",
        control_needs_root=True),
    Attempt("privileges.bpf", "load a program into the kernel (bpf)",
        "attribute = ctypes.create_string_buffer(128)\n"
        "attribute[0:16] = b''.join(n.to_bytes(4, 'little') for n in (2, 4, 4, 1))\n"
        "by_call(lambda: os.close(raw('bpf', 0, attribute, 128)), lambda: raw('bpf', 9999, None, 0))",
        control_needs_root=True),
    Attempt("privileges.type_for_others", "type into a terminal (TIOCSTI)",
        "controller, terminal = os.openpty()\n"
        "letter = ctypes.c_char(b'x')\n"
        "by_call(lambda: raw('ioctl', terminal, 0x5412, ctypes.byref(letter)),"
        " lambda: raw('ioctl', -1, 0x5412, None))",
        control_needs_root=True),
    Attempt("privileges.kernel_setting", "open a setting of the kernel for writing",
        "setting = '/proc/sys/kernel/core_pattern'\n"
        "on_path(lambda: os.close(os.open(setting, os.O_WRONLY)), setting, writes=True)",
        control_needs_root=True),
)  # fmt: skip
