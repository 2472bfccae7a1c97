"""Nesting: a host that is itself confined opens a jail, or says by what it is kept from one.

Each situation is a real one around a host process of its own. The causes are told apart by
what harmless calls answer, never by one errno.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import pytest
from jail_helpers import Jail, JailPolicy, is_root

import visruntime as vr

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HOST = """
import json, sys
import visruntime as vr
from visruntime.jail import Jail
backend, bare = sys.argv[1:]
limits = vr.Limits(processes=None, scratch=None) if bare == "bare" else vr.Limits()
try:
    with Jail(vr.JailPolicy(limits=limits), backend=backend) as jail:
        out = jail.run(["sh", "-c", "echo inside"]).stdout_text
        print(json.dumps({"backend": jail.report.backend, "out": out}))
except vr.VisRuntimeError as error:
    print(json.dumps({"error": type(error).__name__, "text": str(error), "fix": error.fix}))
"""

# Refuse some calls, as a container's filter does; the rest is the host's.
FILTER = """
import errno, os, sys
import pyseccomp
names, number, *command = sys.argv[1:]
program = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
for name in names.split(","):
    if name == "clone":
        program.add_rule(pyseccomp.ERRNO(errno.EPERM), "clone",
            pyseccomp.Arg(0, pyseccomp.MASKED_EQ, 0x10000000, 0x10000000))
    else:
        program.add_rule(pyseccomp.ERRNO(int(number)), name)
program.load()
os.execv(command[0], command)
"""

# A Landlock domain that allows everything that it handles below /.
DOMAIN = """
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
ruleset = libc.syscall(444, struct.pack("=Q", 1 << 7), 8, 0)
rule = struct.pack("=Qi", 1 << 7, os.open("/", os.O_PATH))
assert ruleset >= 0 and libc.syscall(445, ruleset, 1, rule, 0) == 0
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.syscall(446, ruleset, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
"""


def host(*prefix: str, backend: str = "namespaces", bare: str = "") -> dict[str, str]:
    """Return what came of opening a jail in a process that *prefix* starts."""
    command = [*prefix, sys.executable, "-c", HOST, backend, bare]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    lines = done.stdout.splitlines()
    assert lines, done.stderr
    answer: dict[str, str] = json.loads(lines[-1])
    return answer


def filtered(names: str, number: int = 1) -> list[str]:
    """Return the start of a command under a filter."""
    return [sys.executable, "-c", FILTER, names, str(number)]


CONTAINER = "unshare,clone,setns,mount,umount2,pivot_root"


def test_without_anything_around_it_opens() -> None:
    """The control of all that follows: here a jail opens."""
    assert host() == {"backend": "namespaces", "out": "inside\n"}


def test_in_a_containers_filter() -> None:
    """A filter that refuses namespaces must be called that, and no other cause be named."""
    got = host(*filtered(CONTAINER))
    assert got["error"] == "JailUnavailable"
    assert "seccomp filter" in got["text"]
    assert "namespaces" in got["text"]
    assert "profile" in got["fix"]


def test_in_a_filter_of_mounts_alone() -> None:
    """A filter that refuses mounts only must be told from Landlock, which does so too."""
    got = host(*filtered("mount"))
    assert "seccomp filter" in got["text"]
    assert "mounts" in got["text"]


def test_in_a_landlock_domain() -> None:
    """Landlock around the host refuses mounts: the error must not blame a filter."""
    got = host(sys.executable, "-c", DOMAIN)
    assert got["error"] == "JailUnavailable"
    assert "Landlock" in got["text"]
    assert "seccomp" not in got["text"]


def test_in_a_chroot(tmp_path: Path) -> None:
    """In a chroot the kernel makes no user namespace, and the error must name the chroot."""
    script = f'mount --rbind / {tmp_path} && PATH=$PATH:/usr/sbin exec chroot {tmp_path} "$0" "$@"'
    got = host("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script)
    assert got["error"] == "JailUnavailable"
    assert "chroot" in got["text"]
    assert "seccomp" not in got["text"]


def test_where_namespaces_are_switched_off() -> None:
    """With max_user_namespaces=0 around the host the error must name that setting."""
    script = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$0" "$@"'
    got = host("unshare", "--user", "--map-root-user", "sh", "-c", script)
    assert "max_user_namespaces is 0" in got["text"]
    assert "sysctl" in got["fix"]


def test_with_a_covered_proc() -> None:
    """Where a part of /proc is covered the kernel gives no other one: that must be said."""
    script = 'mount -t tmpfs none /proc/fs && exec "$0" "$@"'
    got = host("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script)
    assert "partly covered" in got["text"]


def test_without_proc() -> None:
    """A host that cannot see its own mounts must get a named error, and what would help."""
    script = 'mount -t tmpfs none /proc && exec "$0" "$@"'
    got = host("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script)
    assert got["error"] == "JailUnavailable"
    assert "/proc/self/mountinfo of this host cannot be read (No such file" in got["text"]
    assert "mount -t proc" in got["fix"]


@pytest.fixture
def bwrap(tool: Callable[[str], str]) -> list[str]:
    """Return the start of a command in bubblewrap with everything of the host."""
    return [tool("bwrap"), "--unshare-all", "--bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]


def test_in_bubblewrap(bwrap: list[str]) -> None:
    """Inside bubblewrap a jail must open; where root's own is covered, the reason be given."""
    got = host(*bwrap)
    if is_root():
        assert "partly covered" in got["text"]
        bare = host(*bwrap, "--cap-drop", "ALL")
        assert "SETFCAP" in bare["text"]
    else:
        assert got == {"backend": "namespaces", "out": "inside\n"}


def test_in_bubblewrap_without_user_namespaces(bwrap: list[str]) -> None:
    """Where an outer sandbox has ended nesting, the limit must be named and not a filter."""
    got = host(*bwrap, "--unshare-user", "--disable-userns")
    assert got["error"] == "JailUnavailable"
    assert "no more namespaces" in got["text"] or "max_user_namespaces" in got["text"]
    assert "seccomp" not in got["text"]


def run_in_a_jail(*arguments: str) -> dict[str, str]:
    """Return what came of opening a jail from inside one of ours."""
    sources = os.path.dirname(os.path.dirname(os.path.realpath(vr.__file__)))
    read = {os.path.realpath(p) for p in (sys.prefix, sys.base_prefix, sources)}
    policy = JailPolicy(read=sorted(read - {"/usr"}))
    with Jail(policy) as jail:
        done = jail.run([sys.executable, "-c", HOST, *arguments], timeout=60)
    lines = done.stdout_text.splitlines()
    assert lines, done.stderr_text
    answer: dict[str, str] = json.loads(lines[-1])
    return answer


def test_a_jail_in_a_jail() -> None:
    """A jail of ours gives no namespaces: the filter must be named, with every other way."""
    got = run_in_a_jail("auto", "")
    assert got["error"] == "JailUnavailable"
    assert "seccomp filter" in got["text"]
    assert "bubblewrap: " in got["text"]
    assert "landlock: limits.processes" in got["text"]


def test_a_jail_by_landlock_in_a_jail() -> None:
    """Where only Landlock can, auto must take it for a policy that it holds, and say so."""
    assert run_in_a_jail("auto", "bare") == {"backend": "landlock", "out": "inside\n"}


def test_auto_takes_the_first_that_holds_the_policy() -> None:
    """Without namespaces auto must take Landlock for what it can hold, and refuse the rest."""
    container = filtered(CONTAINER)
    assert host(*container, backend="auto", bare="bare")["backend"] == "landlock"
    got = host(*container, backend="auto")
    assert got["error"] == "JailUnavailable"
    for part in ("seccomp filter", "bubblewrap: ", "landlock: limits.processes"):
        assert part in got["text"]


@pytest.mark.skipif(is_root(), reason="bubblewrap takes no root caller")
def test_auto_takes_bubblewrap_where_only_that_can(tool: Callable[[str], str]) -> None:
    """On a kernel without open_tree auto must take bubblewrap, which needs none."""
    tool("bwrap")
    got = host(*filtered("open_tree", 38), backend="auto")
    assert got == {"backend": "bubblewrap", "out": "inside\n"}


# ---- other kernel file systems of the host ---------------------------------------------

KERNEL_FILES = """
import json, os, sys
import visruntime as vr
from visruntime.jail import Jail
top = sys.argv[1]
looked = {name: len(os.listdir(f"{top}/{name}")) > 0 for name in ("proc", "sys", "cgroup")}
with Jail(vr.JailPolicy(system="host")) as jail:
    got = {}
    for name in looked:
        done = jail.run(["ls", f"{top}/{name}"])
        got[name] = [done.exit_code, "ermission denied" in done.stderr_text]
print(json.dumps([looked, got]))
"""


def test_other_kernel_mounts_of_the_host_are_masked(tmp_path: Path) -> None:
    """With the host's root a procfs, sysfs or cgroup file system elsewhere must not be seen.

    Root of the machine, in a namespace of its own, gets no such jail: it maps no ids there.
    """
    top = tmp_path.resolve()
    script = textwrap.dedent(f"""
        set -e
        mkdir {top}/proc {top}/sys {top}/cgroup
        mount -t proc none {top}/proc
        mount -t sysfs none {top}/sys
        mount -t cgroup2 none {top}/cgroup
        exec "$0" "$@"
    """)
    spaces = ["--user", "--map-root-user", "--mount", "--net", "--pid", "--cgroup", "--fork"]
    # A place that the jail does not have for itself: pytest's own is in /tmp.
    command = ["unshare", *spaces, "sh", "-c", script]
    command += [sys.executable, "-c", KERNEL_FILES, str(top)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if is_root():
        assert "PolicyUnsupported: system: a file system of the grants refuses" in done.stderr
        return
    assert done.returncode == 0, done.stderr
    looked, got = json.loads(done.stdout.splitlines()[-1])
    assert set(looked.values()) == {True}
    assert got == {name: [2, True] for name in looked}
