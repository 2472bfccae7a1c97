"""Boundary: what the host runs or trusts later. A guest changes none of it, in any write grant."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from jail_helpers import Jail, JailPolicy, errno, inside, is_root, outside
from mount_helpers import in_mount_namespace

import visruntime
from visruntime._native import BINARY_DIRECTORY
from visruntime.errors import PolicyError

PACKAGE = Path(visruntime.__file__).resolve().parent


def attack(path: Path) -> str:
    """Return a guest that tries to change a folder in every simple way."""
    return f"""
p = {str(path)!r}
some = next((os.path.join(f, n) for f, _, ns in os.walk(p) for n in ns), None)
got = [opened(p + "/planted.py", os.O_CREAT | os.O_WRONLY), attempt(os.mkdir, p + "/planted")]
if some:
    got += [opened(some, os.O_WRONLY), attempt(os.chmod, some, 0o777), attempt(os.utime, some)]
got += [attempt(os.chmod, p, 0o777)]
answer([got, attempt(os.rename, p, p + ".aside"), opened(some) if some else 0])
"""


def trusted() -> dict[str, Path]:
    """Return what must stay as it is, by what it is."""
    return {
        "package": PACKAGE,
        "executables": Path(BINARY_DIRECTORY) / "bin",
        "site": Path(sysconfig.get_path("purelib")).resolve(),
        "prefix": Path(sys.prefix).resolve(),
    }


@pytest.mark.parametrize("what", sorted(trusted()))
def test_what_the_host_runs_stays_read_only_in_a_write_grant(what: str) -> None:
    """The interpreter's prefix, its packages, this one and its executables must refuse writes."""
    path = trusted()[what]
    grant = next(p for p in path.parents if not str(path).startswith(str(p) + "/lib"))
    for candidate in path.parents:
        if candidate == Path(sys.prefix).resolve().parent:
            grant = candidate
    if grant in (Path("/"), Path("/usr"), Path("/home")) or not os.access(grant, os.W_OK):
        grant = path.parents[0]
    if str(grant).startswith(str(Path(sys.prefix).resolve())):
        pytest.skip("inside the prefix, which is refused: see below")
    policy = JailPolicy(write=[grant])
    with Jail(policy) as jail:
        got, moved, read = inside(jail, attack(path))
        assert any(clause.clause.startswith("protected ") for clause in jail.report.clauses)
    assert got[0] == got[1] == got[-1] == errno.EROFS
    # A file may refuse for a second reason: it is being executed, or has no write bit.
    assert set(got) <= {errno.EROFS, errno.ETXTBSY, errno.EACCES}
    assert moved in (errno.EBUSY, errno.EROFS)
    assert read == 0
    assert not (path / "planted.py").exists()


def test_a_grant_inside_the_prefix_is_refused() -> None:
    """A write grant in the host's environment must be refused before anything starts."""
    site = Path(sysconfig.get_path("purelib")).resolve()
    for path in (site, site / "pytest", Path(sys.prefix).resolve(), PACKAGE, PACKAGE / "guest"):
        with pytest.raises(PolicyError, match=r"write.*the host") as caught:
            Jail(JailPolicy(write=[path]))
        assert caught.value.field == "write"


CACHES = """
import os, sys
from visruntime.jail import Jail
from visruntime.policy import JailPolicy
from visruntime.errors import PolicyError
home = sys.argv[1]
for name in (".cache/uv", ".cache/pip", ".cache/uv/sub"):
    try:
        Jail(JailPolicy(write=[os.path.join(home, name)])).close()
        print("granted", name)
    except PolicyError as error:
        print("refused", "cache" in str(error))
with Jail(JailPolicy(write=[home])) as jail:
    for name in (".cache/uv/f", ".cache/pip/f", ".cache/free", "free"):
        print(jail.run(["touch", os.path.join(home, name)]).exit_code)
"""


def test_package_caches_are_refused_and_protected(tmp_path: Path) -> None:
    """Uv and pip caches must take no grant, and no write through a grant of the home."""
    home = tmp_path.resolve() / "home"
    for name in (".cache/uv/sub", ".cache/pip"):
        (home / name).mkdir(parents=True)
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("UV_CACHE_DIR", "PIP_CACHE_DIR", "XDG_CACHE_HOME")
    }
    result = subprocess.run(
        [sys.executable, "-c", CACHES, str(home)],
        env={**environment, "HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines == ["refused True"] * 3 + ["1", "1", "0", "0"]
    # The host itself has made its state folder, so that it is kept and covered like these.
    assert sorted(os.listdir(home / ".cache")) == ["free", "pip", "uv", "visruntime"]
    assert sorted(os.listdir(home / ".cache/visruntime")) == ["caches", "environments"]


def test_configuration_in_use_is_protected(workspace: Path) -> None:
    """A policy file in the workspace must not be changed by the guest that it rules."""
    config = workspace / "visruntime.toml"
    config.write_text("")
    text = f"""
c = {str(config)!r}
answer([opened(c, os.O_WRONLY), attempt(os.rename, c, c + "2"), attempt(os.unlink, c), opened(c)])
"""
    with Jail(JailPolicy(write=[workspace]), config_files=[str(config)]) as jail:
        assert inside(jail, text) == [errno.EROFS, errno.EBUSY, errno.EBUSY, 0]
    assert config.read_text() == ""
    assert outside(f"answer(opened({str(config)!r}, os.O_WRONLY))") == 0


@pytest.mark.skipif(not is_root(), reason="making shared mounts needs root")
def test_later_mounts_of_the_host_do_not_come_in(tmp_path: Path) -> None:
    """What the host mounts after the opening must not appear in a jail, writable least of all."""
    grant = tmp_path.resolve() / "grant"
    (grant / "point").mkdir(parents=True)
    (grant / "point" / "before").write_text("")
    program = """
    import json, subprocess, sys
    from jail_helpers import Jail, inside, policy_of
    grant = sys.argv[1]
    got = []
    cases = [("minimal", {"read": [grant]}), ("minimal", {"write": [grant]}), ("host", {})]
    for system, rules in cases:
        with Jail(policy_of(system=system, **rules)) as jail:
            subprocess.run(["mount", "-t", "tmpfs", "none", grant + "/point"], check=True)
            subprocess.run(["touch", grant + "/point/late"], check=True)
            look = "p = %r\\nmounts = open('/proc/self/mountinfo').read()\\n" % (grant + "/point")
            look += "answer([attempt(os.stat, p + '/late'), mounts.count('/point')])"
            if system == "minimal":
                got.append(inside(jail, look))
            else:
                got.append(inside(jail, look)[1:])
            subprocess.run(["umount", grant + "/point"], check=True)
    slave = ["unshare", "-m", "--propagation", "slave", "sh", "-c", "read x; ls " + grant + "/point"]
    control = subprocess.Popen(slave, stdin=-1, stdout=-1)
    import time; time.sleep(0.3)
    subprocess.run(["mount", "-t", "tmpfs", "none", grant + "/point"], check=True)
    subprocess.run(["touch", grant + "/point/late"], check=True)
    print(json.dumps([got, control.communicate(b"go\\n")[0].decode()]))
    subprocess.run(["umount", grant + "/point"], check=True)
    """
    import json

    output = in_mount_namespace("mount --make-rshared /", program, arguments=(str(grant),))
    got, control = json.loads(output.splitlines()[-1])
    assert got == [[errno.ENOENT, 0], [errno.ENOENT, 0], [0]]
    assert control == "late\n"


def test_opening_a_jail_changes_nothing_on_the_host(workspace: Path) -> None:
    """Opening and using a jail must leave names, modes and times of its grants as they were."""
    (workspace / "d").mkdir()
    (workspace / "d" / "f").write_text("f")
    (workspace / "secret").write_text("s")
    paths = [workspace, workspace / "d", workspace / "d" / "f", workspace / "secret"]

    def state() -> list[object]:
        return [
            (
                p.lstat().st_mode,
                p.lstat().st_mtime_ns,
                p.lstat().st_ctime_ns,
                sorted(os.listdir(p)) if p.is_dir() else "",
            )
            for p in paths
        ]

    before = state()
    policy = JailPolicy(
        write=[workspace], deny=[workspace / "secret"], deny_write=[workspace / "d" / "f"]
    )
    with Jail(policy) as jail:
        for command in ("exit 0", "exit 1"):
            jail.run(["sh", "-c", command])
        assert state() == before
    assert state() == before
