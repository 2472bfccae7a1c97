"""What runs in the workers before the attempts: it tries an act and gathers evidence.

The evidence is to tell which layer refused. It is gathered by other acts, in the same process and
at the same moment: what `access` says, which asks no Landlock; whether the mount is read-only; what
the same system call gets with arguments that mean nothing, at which a filter looks and the kernel
does not get that far.
"""

from __future__ import annotations

__all__ = ["PRELUDE"]

PRELUDE = r"""
import errno, os, sys, types
try:
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
except (ImportError, OSError):
    ctypes = libc = None

X86_64 = dict(mount=165, unshare=272, clone=56, execve=59, execveat=322, openat=257, ptrace=101,
    process_vm_readv=310, pidfd_getfd=438, kcmp=312, add_key=248, keyctl=250, io_uring_setup=425,
    userfaultfd=323, fanotify_init=300, name_to_handle_at=303, perf_event_open=298, bpf=321,
    open_tree=428, listmount=458, renameat2=316, socket=41, fchmodat=268, ioctl=16, linkat=265,
    mknodat=259, prlimit64=302, setpriority=141)
AARCH64 = dict(mount=40, unshare=97, clone=220, execve=221, execveat=281, openat=56, ptrace=117,
    process_vm_readv=270, pidfd_getfd=438, kcmp=272, add_key=217, keyctl=219, io_uring_setup=425,
    userfaultfd=282, fanotify_init=262, name_to_handle_at=264, perf_event_open=241, bpf=280,
    open_tree=428, listmount=458, renameat2=276, socket=198, fchmodat=53, ioctl=29, linkat=37,
    mknodat=33, prlimit64=261, setpriority=140)
NUMBERS = X86_64 if os.uname().machine == "x86_64" else AARCH64

def raw(name, *arguments):
    '''The result of a system call; OSError where it fails. Python's hook sees nothing of it.'''
    values = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    ctypes.set_errno(0)
    value = libc.syscall(ctypes.c_long(NUMBERS[name]), *values)
    if value < 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")
    return value

def number_of(act):
    '''The errno that an act gets: 0 if it succeeds, -1 if it fails without one.'''
    try:
        act()
    except OSError as error:
        return error.errno or -1
    except Exception:
        return -1
    return 0

def tried(act, **evidence):
    '''Run the act; what became of it, and the evidence.'''
    found = dict(done=False, errno=None, error="", missing=False, **evidence)
    try:
        act()
    except ModuleNotFoundError as error:
        found.update(missing=True, error=str(error))
    except OSError as error:
        found.update(errno=error.errno, error=type(error).__name__)
    except Exception as error:
        found.update(error=type(error).__name__)
    else:
        found["done"] = True
    return found

def on_path(act, path, writes=False):
    '''An act on a path; how the path looks from here.'''
    found = tried(act)
    flags = os.O_WRONLY if writes else os.O_RDONLY
    above = path
    while number_of(lambda: os.lstat(above)) and above != "/":
        above = os.path.dirname(above)
    try:
        status = os.lstat(path)
        seen = (status.st_dev, status.st_ino)
    except OSError:
        seen = None
    want = (os.W_OK if writes else os.R_OK)
    found["path"] = dict(
        path=path, seen=seen, lstat=number_of(lambda: os.lstat(path)),
        access=0 if os.access(above if writes and not seen else path, want) else errno.EACCES,
        opened=number_of(lambda: os.close(raw("openat", -100, os.fsencode(path), flags))),
        read_only=bool(os.statvfs(above).f_flag & os.ST_RDONLY),
    )
    return found

def between(act, source, target):
    '''A move or a link from one name to another.'''
    found = tried(act)
    found["between"] = [bool(os.statvfs(os.path.dirname(p)).f_flag & os.ST_RDONLY)
                        if os.path.isdir(os.path.dirname(p)) else None for p in (source, target)]
    found["there"] = [os.path.lexists(source), os.path.lexists(os.path.dirname(target))]
    found["mounted"] = [os.path.ismount(source) or mounted_at(source), mounted_at(target)]
    found["below"] = mounted_below(source)
    return found

def mounted_at(path):
    with open("/proc/self/mountinfo", "rb") as lines:
        return any(line.split(b" ")[4] == os.fsencode(path) for line in lines)

def mounted_below(path):
    with open("/proc/self/mountinfo", "rb") as lines:
        return any(line.split(b" ")[4].startswith(os.fsencode(path) + b"/") for line in lines)

def by_call(act, harmless):
    '''An act by a system call; what the call gets with arguments that mean nothing.'''
    found = tried(act)
    found["harmless"] = number_of(harmless)
    return found

def on_process(act):
    '''An act on another process.'''
    found = tried(act)
    found["process"] = True
    return found

def on_supervisor(act):
    '''An act on the supervisor; whose it is, and whether it can be traced for all that.'''
    found = tried(act)
    with open(f"/proc/{S.supervisor}/status") as lines:
        uid = next(int(line.split()[1]) for line in lines if line.startswith("Uid:"))
    found["supervisor"] = dict(
        same_user=uid == os.getuid(), dumpable=os.stat(f"/proc/{S.supervisor}").st_uid == uid)
    return found

def on_network(act):
    '''A connection to a server of the host.'''
    found = tried(act)
    found["network"] = True
    return found

def starts(act):
    '''An act that starts a process; what calls get that would start none.'''
    found = tried(act)
    found["start"] = (number_of(lambda: raw("execve", b"", None, None)),
                      number_of(lambda: raw("clone", 0x800, 0, 0, 0, 0)))
    return found

def in_child(act):
    '''The act in a child, so that the control stays what it is; in the jail it is not to succeed.'''
    if S.jailed:
        return act()
    child = os.fork()
    if child == 0:
        try:
            act()
            number = 0
        except OSError as error:
            number = error.errno or 254
        except BaseException:
            number = 255
        os._exit(number)
    number = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if number:
        raise OSError(number if 0 < number < 254 else errno.EIO, "in the child")

def facts():
    '''What this process is.'''
    with open("/proc/self/status") as lines:
        status = dict(line.rstrip("\n").split(":\t", 1) for line in lines if ":\t" in line)
    with open("/proc/self/uid_map") as file:
        status["map"] = file.read().split()
    names = {name: os.stat(f"/proc/self/ns/{name}").st_ino for name in ("mnt", "net", "pid", "ipc")}
    return dict(names, seccomp=status["Seccomp"], uid_map=status["map"])
"""
"""Text for a worker; see the docstrings in it."""
