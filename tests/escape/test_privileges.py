"""Boundary: privileges. No capability, namespace, set-id bit or kernel interface is to be had."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
from typing import TYPE_CHECKING

import pytest
from jail_helpers import (
    PRELUDE,
    PYTHON,
    Jail,
    JailPolicy,
    children_of,
    errno,
    inside,
    is_root,
    outside,
    own_memory_cgroup,
    spawn,
)
from mount_helpers import in_mount_namespace

from visruntime.policy import Egress

if TYPE_CHECKING:
    from pathlib import Path

STATUS = """
fields = dict(line.split(":", 1) for line in open("/proc/self/status"))
answer({k: fields[k].strip() for k in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb",
    "NoNewPrivs", "Seccomp", "Uid", "Groups")})
"""


def test_a_guest_has_no_capability(jail: Jail) -> None:
    """All five capability sets must be empty, no_new_privs and the filter be on."""
    got = inside(jail, STATUS)
    assert {got[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert got["NoNewPrivs"] == "1"
    assert got["Seccomp"] == "2"
    assert set(got["Groups"].split()) <= {"65534"}


NAMESPACES = """
flags = dict(NEWNS=0x20000, NEWCGROUP=0x2000000, NEWUTS=0x4000000, NEWIPC=0x8000000,
    NEWUSER=0x10000000, NEWPID=0x20000000, NEWNET=0x40000000, NEWTIME=0x80)
got = {}
for name, flag in flags.items():
    got["unshare " + name] = in_child(lambda: call("unshare", flag))
    got["unshare high " + name] = in_child(lambda: call("unshare", flag | 1 << 33))
for name, flag in flags.items():
    if name != "NEWTIME":
        got["clone " + name] = in_child(lambda: call("clone", flag | 17, 0, 0, 0, 0) if flag else 0)
got["clone3"] = call("clone3", ctypes.create_string_buffer(88), 88)
got["setns"] = call("setns", os.open("/proc/self/ns/net", os.O_RDONLY), 0)
got["setns user"] = call("setns", os.open("/proc/self/ns/user", os.O_RDONLY), 0x10000000)
answer(got)
"""


def test_no_namespace_is_made_or_entered(jail: Jail) -> None:
    """unshare, clone and setns must be refused, whatever stands in the upper bits."""
    got = inside(jail, NAMESPACES)
    assert got.pop("clone3") == errno.ENOSYS
    assert set(got.values()) == {errno.EPERM}
    assert outside("answer(in_child(lambda: call('unshare', 0x10000000)))") == 0


CALLS = """
path = b"/tmp"
buffer = ctypes.create_string_buffer(256)
names = "bpf keyctl add_key ptrace perf_event_open userfaultfd kexec_load init_module".split()
names += ["delete_module"]
names += "swapon reboot settimeofday acct quotactl syslog kcmp fanotify_init process_vm_readv".split()
names += "process_vm_writev pidfd_getfd open_by_handle_at name_to_handle_at io_uring_setup".split()
names += "io_uring_enter io_uring_register setns mount umount2 pivot_root chroot open_tree".split()
names += "move_mount mount_setattr fsopen".split()
got = {name: call(name, 0, 0, 0, 0, 0, 0) for name in names}
got["sethostname"] = call("sethostname", b"x", 1)
got["openat2"] = call("openat2", -100, path, buffer, 24)
got["lsm"] = call("lsm_get_self_attr", 0, 0, 0, 0)
got["future"] = call("nonexistent", 0, 0)
answer(got)
"""


def test_calls_that_no_program_needs_are_refused(jail: Jail) -> None:
    """Mounts, keys, BPF, tracing, rings and modules must be refused before anything is looked at."""
    got = inside(jail, CALLS)
    assert got.pop("openat2") == errno.ENOSYS
    assert got.pop("future") == errno.ENOSYS
    assert got.pop("lsm") == errno.ENOSYS
    assert set(got.values()) == {errno.EPERM}
    control = outside(CALLS)
    assert control["openat2"] != errno.ENOSYS
    assert control["keyctl"] != errno.EPERM


SINCE = {
    "cachestat": (451, (6, 5)),
    "fchmodat2": (452, (6, 6)),
    "statmount": (457, (6, 8)),
    "lsm_set_self_attr": (460, (6, 8)),
    "mseal": (462, (6, 10)),
    "setxattrat": (463, (6, 13)),
    "open_tree_attr": (467, (6, 15)),
    "file_setattr": (469, (6, 17)),
}
"""Numbers of calls that are newer than the filter's table, and the kernel that has them."""


def test_calls_newer_than_the_table_are_not_there(jail: Jail) -> None:
    """What came to the kernel after the filter was written must not exist, if called directly."""
    text = f"""
NUMBERS.update({ {name: number for name, (number, _) in SINCE.items()}!r})
answer([call(name, -1, 0, 0, 0, 0) for name in {list(SINCE)!r}])
"""
    assert inside(jail, text) == [errno.ENOSYS] * len(SINCE)
    kernel = tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2])
    there = [got != errno.ENOSYS for got in outside(text)]
    assert there == [kernel >= since for _, since in SINCE.values()]


MOUNTS = """
def at(path): return path.encode()
got = [call("mount", b"none", b"/tmp", b"tmpfs", 0, 0), call("mount", 0, b"/", 0, 32 | 4096, 0),
    call("umount2", b"/proc/sys", 2), call("umount2", b"/", 2), call("umount2", b"/tmp", 2),
    call("mount", b"/proc/sys", b"/tmp", 0, 4096, 0), call("pivot_root", b"/tmp", b"/tmp"),
    call("open_tree", -100, b"/", 1), call("mount_setattr", -100, b"/", 0, 0, 0),
    call("chroot", b"/tmp")]
answer(got)
"""


def test_no_mount_is_made_moved_or_taken_away(jail: Jail) -> None:
    """Every way to change the tree of mounts must be refused."""
    assert set(inside(jail, MOUNTS)) == {errno.EPERM}
    if is_root():
        control = """
def act():
    return (call("unshare", 0x20000) or call("mount", 0, b"/", 0, 278528, 0)
        or call("mount", b"none", b"/tmp", b"tmpfs", 0, 0))
answer(in_child(act))
"""
        assert outside(control) == 0


SET_ID = """
os.chdir(WHERE)
open("f", "w").close(); os.mkdir("d"); os.chmod("f", 0o700)
f = os.open("f", os.O_RDWR)
d = os.open(".", os.O_RDONLY)
got = {}
for bit in (0o4000, 0o2000, 0o6000):
    mode = 0o700 | bit
    got["chmod %o" % bit] = [attempt(os.chmod, "f", mode), attempt(os.fchmod, f, mode),
        attempt(os.chmod, "f", mode, dir_fd=d), call("fchmodat", -100, b"f", mode),
        attempt(os.chmod, "d", mode),
        opened("n%o" % bit, os.O_CREAT | os.O_WRONLY, mode), attempt(os.mkdir, "m%o" % bit, mode),
        attempt(os.mknod, "k%o" % bit, mode | stat.S_IFREG), attempt(os.mkfifo, "p%o" % bit, mode),
        attempt(os.mkdir, "q%o" % bit, mode, dir_fd=d),
        attempt(os.mknod, "r%o" % bit, mode | stat.S_IFREG, dir_fd=d),
        opened(".", os.O_TMPFILE | os.O_RDWR, mode),
        call("fchmodat", -100, b"f", mode | 1 << 40)]
    got["new %o" % bit] = call("fchmodat2", -100, b"f", mode, 0)
    if "creat" in NUMBERS:
        got["old %o" % bit] = [call("creat", b"o", mode), call("open", b"o", os.O_CREAT, mode),
            call("chmod", b"f", mode), call("mkdir", b"o", mode),
            call("mknod", b"o", mode | stat.S_IFREG, 0)]
got["sticky"] = attempt(os.chmod, "d", 0o1777)
got["plain"] = attempt(os.chmod, "f", 0o755)
got["modes"] = sorted({os.lstat(n).st_mode & 0o6000 for n in os.listdir(".")})
answer(got)
"""


@pytest.mark.parametrize("where", ["/tmp", "/dev/shm", "grant"])
def test_no_set_id_bit_is_set_by_any_call(workspace: Path, where: str) -> None:
    """No call may leave a set-user-id or set-group-id bit on anything that a host could run."""
    place = str(workspace) if where == "grant" else where
    text = f"WHERE = {place!r}\n" + SET_ID
    with Jail(JailPolicy(write=[workspace])) as jail:
        got = inside(jail, text)
    assert got.pop("modes") == [0]
    assert got.pop("plain") == got.pop("sticky") == 0
    for name, value in got.items():
        if name.startswith("new"):
            assert value == errno.ENOSYS
        else:
            assert set(value) == {errno.EPERM}, name
    for path in workspace.rglob("*"):
        assert not path.lstat().st_mode & 0o6000
    shutil.rmtree(workspace)
    workspace.mkdir()
    control = outside(f"WHERE = {str(workspace)!r}\n" + SET_ID)
    assert control["chmod 4000"][:2] == [0, 0]
    assert 0o4000 in control["modes"] or 0o6000 in control["modes"]


def test_a_set_id_program_gives_nothing(workspace: Path) -> None:
    """A set-user-id program of the host must run without its bit."""
    program = workspace / "id"
    shutil.copy("/usr/bin/id", program)
    program.chmod(0o4755)
    text = f"""
import subprocess
got = subprocess.run([{str(program)!r}, "-u"], capture_output=True, text=True).stdout
answer([int(got), os.getuid()])
"""
    with Jail(JailPolicy(read=[workspace])) as jail:
        effective, real = inside(jail, text)
    assert effective == real
    if is_root():
        program.chmod(0o4755)
        os.chown(program, 4242, 4242)
        program.chmod(0o4755)
        control = subprocess.run([program, "-u"], capture_output=True, text=True, check=True)
        assert control.stdout.strip() == "4242"
        with Jail(JailPolicy(read=[workspace])) as jail:
            effective, real = inside(jail, text)
        assert effective == real != 4242


IDS = """
answer([attempt(os.setuid, 0), attempt(os.setgid, 0), attempt(os.setgroups, [0]),
    attempt(os.setresuid, 12, 12, 12), attempt(os.setreuid, 65534, 65534)])
"""


def test_no_other_identity_is_taken(jail: Jail) -> None:
    """The guest's uid must be the only one there is for it."""
    got = inside(jail, IDS)
    uid = inside(jail, "answer(os.getuid())")
    expected = {errno.EPERM, errno.EINVAL}
    assert set(got[2:]) <= expected
    assert uid == 0 or set(got) <= expected
    if is_root():
        assert outside("answer([in_child(lambda: attempt(os.setuid, 12))])") == [0]


def guest_uids(jail: Jail) -> str:
    """Return the uids of a guest as the host sees them."""
    text = PRELUDE + "print(1, flush=True); time.sleep(30)"
    with spawn(jail, [PYTHON, "-IBS", "-c", text], stdout=-1) as process:
        process.stdout.readline()
        statuses = children_of(os.getpid()).values()
        guests = (s for s in statuses if s["Name"] == "python3" and "\t" in s["NSpid"])
        return next(guests)["Uid"]


def test_host_uid_0_is_not_inside(workspace: Path) -> None:
    """A root caller's guest must have another host uid; anybody else's has the caller's own."""
    with Jail(JailPolicy(write=[workspace])) as jail:
        uids = {int(uid) for uid in guest_uids(jail).split()}
        if is_root():
            assert "id-mapped" in jail.report.identity
            assert all(uid >= 0x70000000 for uid in uids)
            supervisors = [
                int(status["Uid"].split()[0])
                for status in children_of(os.getpid()).values()
                if status["Name"] == "visjail-init"
            ]
            assert 0 not in supervisors
            assert len(supervisors) > 1
        else:
            assert uids == {os.geteuid()}
        made = f"open({str(workspace / 'made')!r}, 'w').close(); answer(0)"
        assert inside(jail, made) == 0
    status = (workspace / "made").stat()
    owner = workspace.stat()
    assert (status.st_uid, status.st_gid) == (owner.st_uid, owner.st_gid)


@pytest.mark.skipif(not is_root(), reason="two owners need a root caller")
def test_files_of_each_grant_belong_to_its_owner(workspace: Path, outside: Path) -> None:
    """In two grants of two owners, what a guest makes must belong to each grant's owner."""
    os.chown(workspace, 1234, 2345)
    os.chown(outside, 3456, 4567)
    with Jail(JailPolicy(write=[workspace, outside])) as jail:
        for folder in (workspace, outside):
            jail.write_bytes(folder / "f", b"x")
            assert jail.run(["stat", "-c", "%U", str(folder / "f")]).stdout == b"user\n"
    assert (workspace / "f").stat().st_uid == 1234
    assert (workspace / "f").stat().st_gid == 2345
    assert (outside / "f").stat().st_uid == 3456


@pytest.mark.skipif(not is_root(), reason="mounting an overlay needs root")
def test_a_grant_that_refuses_id_mapping_is_named(tmp_path: Path) -> None:
    """Where a file system refuses, the guest is uid 0 without rights, and the report says so."""
    for name in ("lower", "upper", "work", "merged"):
        (tmp_path / name).mkdir()
    script = (
        f"mount -t tmpfs none {tmp_path}/upper; mkdir {tmp_path}/upper/u {tmp_path}/upper/w; "
        f"mount -t overlay none {tmp_path}/merged "
        f"-o lowerdir={tmp_path}/lower,upperdir={tmp_path}/upper/u,workdir={tmp_path}/upper/w"
    )
    output = in_mount_namespace(
        script,
        """
        import json, sys
        from jail_helpers import Jail, JailPolicy, inside
        grant = sys.argv[1]
        with Jail(JailPolicy(write=[grant])) as jail:
            text = '''
        fields = dict(line.split(":", 1) for line in open("/proc/self/status"))
        answer([os.getuid(), fields["CapEff"].strip(),
            opened("/proc/sys/kernel/core_pattern", os.O_WRONLY),
            opened("/proc/sysrq-trigger", os.O_WRONLY), opened("/proc/kcore"), opened("/proc/kmsg"),
            opened("/proc/slabinfo"), opened(GRANT + "/f", os.O_CREAT | os.O_WRONLY),
            opened(GRANT + "/g", os.O_CREAT | os.O_WRONLY, 0o4755),
            attempt(os.mknod, GRANT + "/n", 0o600 | stat.S_IFBLK, 0x800)])
        '''.replace("GRANT", repr(grant))
            print(json.dumps([jail.report.identity, inside(jail, text)]))
        """,
        arguments=(str(tmp_path / "merged"),),
    )
    identity, got = json.loads(output.splitlines()[-1])
    assert identity == "host uid 0 without capabilities: a file system refused id-mapped mounts"
    assert got[:2] == [0, "0" * 16]
    assert got[2] == errno.EROFS
    assert got[3] in (errno.EROFS, errno.ENOENT)  # not built into every kernel
    assert set(got[4:7]) <= {errno.EACCES, errno.EPERM, errno.ENOENT}
    assert got[7] == 0
    assert got[8] == errno.EPERM
    assert got[9] == errno.EPERM


WRITABLE = """
found = []
host = os.path.exists("/proc/2/stat") and "kthreadd" in open("/proc/2/stat").read()
for folder, folders, names in os.walk("/proc"):
    if folder == "/proc" and host:
        folders[:] = [n for n in folders if not n.isdigit()]
    for name in names:
        path = folder + "/" + name
        if not os.path.islink(path) and opened(path, os.O_WRONLY | os.O_NONBLOCK) == 0:
            found.append(path)
answer(found)
"""


@pytest.mark.skipif(not is_root(), reason="only root's guests may be uid 0")
def test_nothing_in_proc_can_be_written_by_a_guest_that_is_uid_0(tmp_path: Path) -> None:
    """Without id-mapping all of /proc must refuse to be opened, the supervisor's files too.

    What root may use by its uid alone, without any capability, is refused by name.
    """
    (tmp_path / "grant").mkdir()
    output = in_mount_namespace(
        f"mount -t ramfs none {tmp_path}/grant",
        """
        import json, sys
        from jail_helpers import Jail, JailPolicy, inside
        with Jail(JailPolicy(write=[sys.argv[1]])) as jail:
            fine = "answer([open('/proc/meminfo').read(8), os.listdir('/proc/tty') != []])"
            got = [jail.report.identity, inside(jail, sys.argv[2]), inside(jail, fine)]
        import socket
        from visruntime.errors import PolicyUnsupported
        server = socket.socket(socket.AF_UNIX)
        server.bind(sys.argv[3])
        for clause in ({"system": "host"}, {"sockets": [sys.argv[3]]}):
            try:
                with Jail(JailPolicy(write=[sys.argv[1]], **clause)):
                    got.append("")
            except PolicyUnsupported as error:
                got.append(str(error))
        with Jail(JailPolicy(sockets=[sys.argv[3]])):
            print(json.dumps(got))
        """,
        arguments=(str(tmp_path / "grant"), WRITABLE, str(tmp_path / "s")),
    )
    identity, found, fine, *refused = json.loads(output.splitlines()[-1])
    # (Of the whole root something may have gone away in that moment, which is refused as well.)
    assert "and read all that root owns" in refused[0] or "went away" in refused[0]
    assert "would take it for root" in refused[1]
    assert identity.startswith("host uid 0 without capabilities")
    assert found == []
    assert fine == ["MemTotal", True]
    assert outside(WRITABLE)


def test_devices_cannot_be_made_or_opened(workspace: Path) -> None:
    """No device node may be made, and one that is in a grant must not open."""
    node = workspace / "sda"
    if is_root():
        os.mknod(node, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        node.chmod(0o666)
    text = f"""
w = {str(workspace)!r}
answer([attempt(os.mknod, w + "/n", 0o600 | stat.S_IFCHR, 0x103),
    attempt(os.mknod, "/tmp/n", 0o600 | stat.S_IFBLK, 0x800), opened(w + "/sda")])
"""
    with Jail(JailPolicy(write=[workspace])) as jail:
        got = inside(jail, text)
    assert got[:2] == [errno.EPERM, errno.EPERM]
    assert got[2] == (errno.EACCES if is_root() else errno.ENOENT)
    if is_root():
        assert outside(f"answer(opened({str(node)!r}))") == 0


@pytest.mark.parametrize("egress", [Egress.OFF, Egress.OPEN])
def test_the_filter_is_one_for_all(egress: Egress) -> None:
    """A second filter of the guest's own must not loosen the first."""
    text = """
import resource
answer([call("unshare", 0x10000000), resource.getrlimit(resource.RLIMIT_CORE)])
"""
    with Jail(JailPolicy(egress=egress)) as jail:
        assert inside(jail, text) == [errno.EPERM, [1, 1]]


@pytest.mark.skipif(not is_root(), reason="mounting an overlay needs root")
def test_processes_of_uid_0_are_counted_by_a_cgroup_or_refused(tmp_path: Path) -> None:
    """Where RLIMIT_NPROC counts nothing, a limit that was asked for must hold or be refused."""
    for name in ("lower", "upper", "work", "merged"):
        (tmp_path / name).mkdir()
    script = (
        f"mount -t tmpfs none {tmp_path}/upper; mkdir {tmp_path}/upper/u {tmp_path}/upper/w; "
        f"mount -t overlay none {tmp_path}/merged "
        f"-o lowerdir={tmp_path}/lower,upperdir={tmp_path}/upper/u,workdir={tmp_path}/upper/w"
    )
    host = """
        import json, sys
        from jail_helpers import FORKS, Jail, JailPolicy, Limits, inside
        from visruntime.errors import PolicyUnsupported
        answers = []
        for limits in (Limits(processes=20), Limits(processes=1024), Limits()):
            try:
                with Jail(JailPolicy(write=[sys.argv[1]], limits=limits)) as jail:
                    answers.append([jail.report.mechanisms("limits.processes"), inside(jail, FORKS)])
            except PolicyUnsupported as error:
                answers.append([error.field, None])
        print(json.dumps(answers))
        """
    merged = (str(tmp_path / "merged"),)
    held = json.loads(in_mount_namespace(script, host, arguments=merged).splitlines()[-1])
    if own_memory_cgroup() is None:
        assert held[0] == ["limits.processes", None]
    else:
        assert held[0][0] == ["cgroup1 pids"] or held[0][0] == ["cgroup2 pids"]
        number, count = held[0][1]
        assert number == errno.EAGAIN
        assert 10 <= count < 20
        assert held[2][0] == held[0][0]
    # Without any cgroup file system to see: the number that was asked for is refused, also
    # when it is the default's; the default itself is reported as not enforced.
    hidden = script + "; mount -t tmpfs none /sys/fs/cgroup"
    refused = json.loads(in_mount_namespace(hidden, host, arguments=merged).splitlines()[-1])
    assert refused[:2] == [["limits.processes", None], ["limits.processes", None]]
    assert refused[2] == [[], [0, 60]]
