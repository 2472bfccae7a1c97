"""Boundary: paths. What a guest left in its write grant leads no later run astray.

Each attack needs no race: one run plants something where it may write, and the next is the
user's ordinary command.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from jail_helpers import Jail, JailPolicy, errno, inside, is_root, outside

from visruntime._policy.links import Resolver
from visruntime.errors import CommandNotFound, PathDenied, PolicyError
from visruntime.policy import PROTECTED_NAMES

if TYPE_CHECKING:
    from collections.abc import Callable

COMMAND = [sys.executable, "-m", "visruntime"]


def visruntime(*words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the command with *words*, as a user would."""
    command = [*COMMAND, *map(str, words)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=50)


def plant(grant: Path, script: str) -> None:
    """Let a guest run *script* in its write grant."""
    with Jail(JailPolicy(write=[grant])) as jail:
        jail.run(["sh", "-c", f"cd '{grant}' && {script}"], check=True)


@pytest.fixture
def work(workspace: Path) -> Path:
    """Return a write grant with two folders for work."""
    for name in ("in", "out"):
        (workspace / name).mkdir()
    return workspace


@pytest.mark.parametrize("make", ["mkdir -p", "cp /dev/null", "ln -s ."])
def test_no_name_that_a_guest_plants_keeps_a_jail_from_opening(work: Path, make: str) -> None:
    """What a jail makes to try itself must have a name that no guest knows before."""
    plant(work, f"{make} in/.visruntime-canary")
    with Jail(JailPolicy(write=[work], deny_write=[work / "in"])) as jail:
        assert [c.held for c in jail.report.canaries if c.name == f"write {work}/in"] == [True]
    assert os.listdir(work / "in") == [".visruntime-canary"]


@pytest.mark.parametrize("planted", ["", "[limits]\n", "read=['in']\nwrite=['out']\n"])
def test_a_narrowing_file_turns_no_link_into_a_grant(
    work: Path, outside_file: Path, planted: str
) -> None:
    """A grant that has become a link is refused, whatever policy file is found beside it."""
    target = outside_file.parent
    words = ["exec", "--read", "in", "--write", "out", "--", "sh", "-c"]
    attack = f"cat '{outside_file}'; touch '{target}/planted'"
    before = visruntime(*words, "echo started", cwd=work)
    assert before.returncode == 0, before.stderr
    plant(work, f"rmdir in out && ln -s '{target}' in && ln -s '{target}' out")
    if planted:
        plant(work, f'printf "{planted}" > visruntime.toml')
    after = visruntime(*words, attack, cwd=work)
    assert after.returncode == 125
    assert f"is a link out of its folder, to {target}" in after.stderr
    assert "top-secret" not in after.stdout
    assert not (target / "planted").exists()
    assert outside(f"answer(opened({str(outside_file)!r}))") == 0


def test_narrowing_refuses_the_links_that_a_jail_refuses(work: Path, outside_file: Path) -> None:
    """What `Jail` takes from neither policy must not come out of both of them."""
    (work / "link").symlink_to(outside_file.parent)
    linked = JailPolicy(read=[work / "link"])
    with pytest.raises(PolicyError, match="link out of its folder"):
        Jail(linked)
    plain = JailPolicy(read=[outside_file.parent])
    for one, two in ((linked, linked), (linked, plain), (plain, linked)):
        with pytest.raises(PolicyError, match="link out of its folder"):
            one.narrow(two)
    assert plain.narrow(plain).read == (str(outside_file.parent),)


def test_parents_are_not_looked_up_behind_a_link(work: Path, outside_file: Path) -> None:
    """'..' on the command line and in files must follow no planted link."""
    target, sub = outside_file.parent, work / "sub"
    sub.mkdir()
    (work / "in" / "mine").write_text("mine")
    (work / "p.toml").write_text("read = ['sub/../in']\n")
    given = (["--read", "../in"], ["--policy", "../p.toml"])
    for words in given:
        done = visruntime("exec", *words, "--", "cat", work / "in" / "mine", cwd=sub)
        assert (done.returncode, done.stdout) == (0, "mine")
    plant(work, f"rm -r in && ln -s '{target}' in")
    for words in (*given, ["--write", "../in"]):
        done = visruntime("exec", *words, "--", "cat", outside_file, cwd=sub)
        assert done.returncode == 125
        assert "is a link out of its folder" in done.stderr
    plant(work, f"rmdir sub && ln -s '{target}' sub")
    done = visruntime("exec", "--read", "sub/../in", "--", "true", cwd=work)
    assert done.returncode == 125
    assert f"stands behind {work}/sub, which is a link" in done.stderr


def test_a_workspace_behind_a_link_is_refused(work: Path, outside_file: Path) -> None:
    """The preset must not take a link's target for the project."""
    for folder in (work / "proj", outside_file.parent):
        for name in PROTECTED_NAMES:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            if not (folder / name).exists():
                (folder / name).touch()
    with Jail(JailPolicy.workspace(work / "proj")) as jail:
        assert jail.exists(work / "proj")
    os.rename(work / "proj", work / "old")  # as a guest does where nothing of it is masked
    (work / "proj").symlink_to(outside_file.parent)
    with pytest.raises(PolicyError, match="link out of its folder"):
        Jail(JailPolicy.workspace(work / "proj"))


def test_links_of_roots_guests_are_not_the_systems() -> None:
    """Below /opt or /usr/local, root's guest makes links as root."""
    if not is_root():
        pytest.skip("an ordinary user's guests cannot write below /opt")
    top = Path(tempfile.mkdtemp(prefix="vis-links-", dir="/opt"))
    try:
        (top / "data" / "etc").mkdir(parents=True)
        with Jail(JailPolicy(read=[top / "data" / "etc"])) as jail:
            assert jail.exists(top / "data" / "etc")
        plant(top, "mv data old && ln -s / data")
        with pytest.raises(PolicyError, match="name what it leads to \\(/etc\\)"):
            Jail(JailPolicy(read=[top / "data" / "etc"]))
    finally:
        shutil.rmtree(top)


def test_links_of_the_system_are_followed() -> None:
    """A merged /bin and /var/run are everyday paths, also for root."""
    followed = 0
    for path in ("/bin", "/lib", "/var/run", "/var/lock"):
        if os.path.islink(path):
            with Resolver() as resolver:
                resolver(path)
                assert resolver.links[path][0] == (path, True)
            followed += 1
    assert followed


@pytest.mark.parametrize("option", ["--report", "--html"])
def test_nothing_is_written_through_a_planted_folder(
    work: Path, outside: Path, option: str
) -> None:
    """A report must not replace a file behind a link, and nothing starts."""
    precious = outside / "report.json"
    precious.write_text("precious")
    words = ["doctor", "--html"] if option == "--html" else ["exec", "--report"]
    command = [] if option == "--html" else ["--", "true"]
    plant(work, f"rmdir out && ln -s '{outside}' out")
    done = visruntime(*words, "out/report.json", *command, cwd=work)
    assert done.returncode == 125
    assert f"write {precious} if you mean that" in done.stderr
    assert precious.read_text() == "precious"
    assert visruntime("exec", "--report", precious, "--", "true", cwd=work).returncode == 0
    assert precious.read_text() != "precious"


def test_a_planted_script_is_not_read(work: Path, outside_file: Path) -> None:
    """`run main.py` must not show the guest the file that a link leads to."""
    (work / "main.py").write_text("print('mine')")
    assert visruntime("run", "main.py", cwd=work).stdout == "mine\n"
    plant(work, f"ln -sf '{outside_file}' main.py")
    done = visruntime("run", "main.py", cwd=work)
    assert done.returncode == 125
    assert "is a link that a guest could have made" in done.stderr
    assert "secret" not in done.stdout + done.stderr.replace("secret.txt", "")


@pytest.mark.parametrize("name", ["visruntime.toml", "pyproject.toml", "named.toml"])
def test_a_policy_file_behind_a_link_is_refused(work: Path, outside: Path, name: str) -> None:
    """Only the link's target could be kept from the guest, who would replace the link."""
    (outside / name).write_text("[tool.visruntime]\n" if name == "pyproject.toml" else "")
    (work / name).symlink_to(outside / name)
    words = ["--policy", name] if name == "named.toml" else ["--read", "in"]
    done = visruntime("exec", *words, "--", "true", cwd=work)
    assert done.returncode == 125
    assert f"{work / name} is a link that a guest could have made" in done.stderr
    (work / name).unlink()
    shutil.copy(outside / name, work / name)
    assert visruntime("exec", *words, "--", "true", cwd=work).returncode == 0


def test_a_new_policy_file_puts_no_other_out_of_force(work: Path) -> None:
    """An empty visruntime.toml must not lift what pyproject.toml denies."""
    (work / "secret").write_text("top-secret")
    (work / "pyproject.toml").write_text("[tool.visruntime]\nwrite = ['.']\ndeny = ['secret']\n")
    words = ["exec", "--write", ".", "--", "sh", "-c"]
    before = visruntime(*words, "cat secret; : > visruntime.toml", cwd=work)
    assert before.stdout == ""
    assert (work / "visruntime.toml").exists()
    after = visruntime(*words, "cat secret; echo > pyproject.toml", cwd=work)
    assert after.stdout == ""
    assert "Permission denied" in after.stderr
    assert "Read-only file system" in after.stderr


def test_modules_of_the_current_folder_do_not_run_in_the_command(work: Path) -> None:
    """`python -m visruntime` must import nothing that a guest left in the folder."""
    names = ("tomllib", "json", "html", "resource", "argparse", "secrets")
    plant(work, f"for m in {' '.join(names)}; do echo 'raise SystemExit(66)' > $m.py; done")
    done = visruntime("exec", "--read", "in", "--write", "out", "--", "echo", "ran", cwd=work)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ran\n", "")
    planted = subprocess.run([sys.executable, "-c", "import argparse"], cwd=work, check=False)
    assert planted.returncode == 66


def test_copy_in_reads_no_more_of_a_grant_than_the_guest(work: Path) -> None:
    """Root must not read for a guest what the guest has renamed into place."""
    (work / "key").write_text("top-secret")
    (work / "key").chmod(0o600)
    (work / "in.txt").write_text("for the guest")
    if is_root():
        for path in (work, work / "in.txt"):
            os.chown(path, 1000, 1000)
    with Jail(JailPolicy(write=[work])) as jail:
        jail.copy_in(work / "in.txt", "/tmp/in.txt")
        assert jail.read_bytes("/tmp/in.txt") == b"for the guest"
        if not is_root():
            return
        text = f"w = {str(work)!r}; answer([opened(w + '/key'), "
        text += "attempt(os.rename, w + '/key', w + '/in.txt')])"
        assert inside(jail, text) == [errno.EACCES, 0]
        with pytest.raises(PermissionError):
            jail.copy_in(work / "in.txt", "/tmp/in.txt")
        assert jail.read_bytes("/tmp/in.txt") == b"for the guest"
    assert (work / "in.txt").read_text() == "top-secret"


# ---- whose name a narrowed grant is read in ------------------------------------------


def narrowed(owner: JailPolicy, folder: Path, text: str) -> JailPolicy:
    """Return *owner* narrowed by a policy file with *text* that a guest made in *folder*."""
    from visruntime.config import narrow_by_config

    (folder / "visruntime.toml").write_text(text)
    return narrow_by_config(owner, folder / "visruntime.toml")


def test_a_found_file_opens_nothing_that_system_host_keeps_closed(work: Path) -> None:
    """Root's files seen through ``system`` stay closed when a file names them as grants."""
    if not is_root():
        pytest.skip("an ordinary caller's grants are mapped to nobody else")
    top = Path(tempfile.mkdtemp(prefix="vis-closed-", dir="/opt"))  # /tmp is the jail's own
    try:
        secret = top / "secret"
        secret.write_text("top-secret")
        secret.chmod(0o600)
        top.chmod(0o755)
        owner = JailPolicy(system="host", write=[work])
        planted = f"system='minimal'\nread=['{secret}', '{top}']\nwrite=['in']\n"
        ask = f"answer([opened({str(secret)!r}), opened({str(work / 'in/n')!r}, 0o101)])"
        policy = narrowed(owner, work, planted)
        for candidate in (owner, policy, policy.narrow(policy), policy.replace(env={"A": "b"})):
            with Jail(candidate) as jail:
                assert inside(jail, ask) == [errno.EACCES, 0]
                noted = any(note.startswith("narrowed_grants") for note in jail.report.notes)
                assert noted == (candidate is not owner)
        with Jail(JailPolicy(read=[secret])) as jail:
            assert inside(jail, f"answer(opened({str(secret)!r}))") == 0
    finally:
        shutil.rmtree(top)


def test_a_found_file_maps_no_part_of_a_grant_to_another_owner(work: Path, tmp_path: Path) -> None:
    """In alice's folder, root's files stay root's when a file names them one by one."""
    if not is_root():
        pytest.skip("an ordinary caller's grants are mapped to nobody else")
    key, conf = work / "root.key", work / "conf"
    key.write_text("top-secret")
    key.chmod(0o600)
    conf.mkdir()
    (conf / "cron").write_text("#")
    (work / "mine").mkdir()
    for path in (work, work / "mine"):
        os.chown(path, 1000, 1000)
    ask = f"""
w = {str(work)!r}
answer([opened(w + "/root.key"), opened(w + "/conf/cron", os.O_WRONLY), opened(w + "/mine/n", 0o101)])
"""
    expected = [errno.EACCES, errno.EACCES, 0]
    owner = JailPolicy(write=[work])
    with Jail(owner) as jail:
        assert inside(jail, ask) == expected
    policy = narrowed(owner, work, "write=['conf', 'mine']\nread=['root.key']\n")
    with Jail(policy) as jail:
        assert inside(jail, ask) == expected


def test_what_a_policy_remembers_survives_pickling(work: Path) -> None:
    """A narrowed policy that is sent to another process must not grant more there."""
    import pickle

    owner = JailPolicy(system="host", write=[work])
    policy = narrowed(owner, work, f"system='minimal'\nread=['/root']\nwrite=['{work}']\n")
    again = pickle.loads(pickle.dumps(policy))
    assert again == policy
    assert again.files == policy.files
    assert dict(again.owners) == dict(policy.owners)
    assert again.owners["/root"] is None


# ---- what the host runs, and the links that lead to it --------------------------------


def test_a_link_to_what_the_host_trusts_is_refused_in_a_write_grant(
    work: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guest would replace the link, which no mount can cover."""
    (outside / "env").mkdir()
    (outside / "config").touch()
    (work / ".venv").symlink_to(outside / "env")
    (work / "config").symlink_to(outside / "config")
    (work / "real").touch()
    replace = "w = {!r}; answer(attempt(os.rename, w, w + '.aside'))"
    with Jail(JailPolicy(write=[work]), config_files=[str(work / "real")]) as jail:
        assert inside(jail, replace.format(str(work / "real"))) == errno.EBUSY
        assert inside(jail, replace.format(str(work / ".venv"))) == 0
    os.rename(work / ".venv.aside", work / ".venv")
    with pytest.raises(PolicyError, match=f"{work}/config is a link to {outside}/config"):
        Jail(JailPolicy(write=[work]), config_files=[str(work / "config")])
    monkeypatch.setattr(sys, "prefix", str(work / ".venv"))
    with pytest.raises(PolicyError, match=f"{work}/.venv is a link to {outside}/env"):
        Jail(JailPolicy(write=[work]))
    with Jail(JailPolicy(write=[work / "in"])) as jail:
        assert jail.exists(work / "in")


def test_what_the_host_imports_from_below_a_grant_stays_read_only(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A guest must not plant a module where the host looks for one."""
    monkeypatch.syspath_prepend(str(work / "in"))
    monkeypatch.syspath_prepend(str(work / "to-come"))
    text = f"""
w = {str(work)!r}
answer([opened(w + "/in/ujson.py", 0o101), attempt(os.rename, w + "/in", w + "/x"),
    opened(w + "/out/ujson.py", 0o101)])
"""
    with Jail(JailPolicy(write=[work])) as jail:
        assert inside(jail, text) == [errno.EROFS, errno.EBUSY, 0]
        assert any(note.startswith("host_imports_from_grant") for note in jail.report.notes)
        assert f"protected {work}/in" in [clause.clause for clause in jail.report.clauses]
    with Jail(JailPolicy(write=[work, work / "in"])) as jail:
        assert inside(jail, f"answer(opened({str(work / 'in' / 'ujson.py')!r}, 0o101))") == 0
        assert any(f"{work}/in is on" in note for note in jail.report.notes)


def test_the_program_that_really_runs_is_protected(monkeypatch: pytest.MonkeyPatch) -> None:
    """argv[0] may name another program than the one that is the host."""
    from visruntime._jail.plan import make_plan

    real = os.path.realpath("/proc/self/exe")
    monkeypatch.setattr(sys, "executable", "")
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    # Where all of them are kept, a grant in there is refused before that.
    monkeypatch.setattr("visruntime._jail.protect.version_managers", list)
    folder = os.path.dirname(real)
    plan = make_plan(JailPolicy(write=[folder]))
    assert real in plan.protected


def pycache(path: Path, patch: pytest.MonkeyPatch) -> None:
    """Let the host keep its compiled code in *path*."""
    patch.setattr(sys, "pycache_prefix", str(path))


def uv_cache(path: Path, patch: pytest.MonkeyPatch) -> None:
    """Let uv keep its cache in *path*."""
    patch.setenv("UV_CACHE_DIR", str(path))


@pytest.mark.parametrize("place", [pycache, uv_cache])
def test_a_cache_that_the_host_trusts_is_no_place_for_a_guest(
    work: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: Callable[[Path, pytest.MonkeyPatch], None],
) -> None:
    """Neither an existing cache nor one that does not exist yet is a guest's to fill."""
    cache = work / "caches" / "one"
    place(cache, monkeypatch)
    make = f"""
answer([attempt(os.makedirs, {str(cache / "n")!r}), opened({str(work / "out/n")!r}, 0o101)])
"""
    with pytest.raises(PolicyError, match=f"mkdir -p {cache}"):
        Jail(JailPolicy(write=[work]))
    with Jail(JailPolicy(write=[work], absent_deny="wall")) as jail:
        assert inside(jail, make) == [errno.EACCES, 0]
    cache.mkdir(parents=True)
    with Jail(JailPolicy(write=[work])) as jail:
        assert inside(jail, make) == [errno.EROFS, 0]
    with pytest.raises(PolicyError, match="grant another folder"):
        Jail(JailPolicy(write=[cache]))
    assert outside(f"answer(attempt(os.makedirs, {str(cache / 'n')!r}))") == 0


# ---- files that are made to cost -----------------------------------------------------


@pytest.mark.parametrize(
    "planted",
    [
        ".".join(["a"] * 30_000) + "=1",
        "[" + " . ".join(['"a"', "'a'"] * 15_000) + "]",
        "x={" + ".".join(["a"] * 30_000) + "=1}",
        "[a]\n[b]\n" * 100_000,
        ".".join(["a", *['"' + "a" * 129 + '"'] * 7_000]) + "=1",
        ".".join(["a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.'" + "a" * 129 + "'"] * 5_000) + "=1",
        'x = """\'\n"""\n' + ".".join(["a"] * 30_000) + "=1",
    ],
)
@pytest.mark.parametrize("name", ["visruntime.toml", "pyproject.toml"])
def test_a_planted_policy_file_is_cheap_to_refuse(work: Path, name: str, planted: str) -> None:
    """A small file must not take the command's memory and minutes."""
    (work / name).write_text(planted)
    command = ["sh", "-c", 'ulimit -v 1000000; exec "$@"', "sh", *COMMAND]
    done = subprocess.run(
        [*command, "exec", "--read", "in", "--", "true"],
        cwd=work, capture_output=True, text=True, check=False, timeout=20,
    )  # fmt: skip
    assert done.returncode == 125
    assert f"{name}', line " in done.stderr
    assert "a key of more than 16 parts" in done.stderr or "MiB of memory" in done.stderr


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
@pytest.mark.parametrize("name", ["visruntime.toml", "pyproject.toml"])
def test_a_policy_file_that_is_none_is_not_waited_for(
    work: Path, name: str, make: Callable[[Path], None]
) -> None:
    """A FIFO in the place of the file must not hang the command, nor be passed over."""
    make(work / name)
    done = visruntime("exec", "--read", "in", "--", "true", cwd=work)
    assert done.returncode == 125
    assert "is no regular file" in done.stderr
    assert str(work / name) in done.stderr


def test_ten_thousand_rules_open_in_seconds(work: Path) -> None:
    """As many denies as a policy may have must neither hang nor be left out."""
    folder = work / "d"
    folder.mkdir()
    for number in range(9_000):
        (folder / str(number)).write_text("x")
    denied = [folder / str(number) for number in range(1, 9_000)]
    started = time.monotonic()
    with Jail(JailPolicy(write=[work], deny=denied)) as jail:
        assert time.monotonic() - started < 30  # two here; quadratic was minutes
        text = f"d = {str(folder)!r}; answer([opened(d + '/' + str(n)) for n in range(9000)])"
        assert inside(jail, text) == [0] + [errno.EACCES] * 8_999


def test_a_program_file_is_cheap_to_refuse(work: Path) -> None:
    """A hostile ELF file given as an interpreter must be refused in a moment."""
    from visruntime.elf import Program

    texts = b"\0libpython3.99.so\0" + b":" * 60_000 + b"\0"
    for count, segments, reason in (
        (20_000, 3, "dynamic section is too large"),
        (100, 3, "longer than 4096 bytes"),
        (1, 60_000, "segments"),
    ):
        start = 64 + 56 * segments
        size = 16 * (count + 4)
        data = start + size
        entries = [(5, data), (10, len(texts)), (1, 1), *[(29, 18)] * count, (0, 0)]
        table = [(1, 0, data + len(texts)), (2, start, size), (3, 0, 1)]
        table += [(2, start, size)] * (segments - 3)
        machine = {"x86_64": 62, "aarch64": 183}[os.uname().machine]
        content = struct.pack(
            "<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01" + bytes(9),
            3, machine, 1, 0, 64, 0, 0, 64, 56, segments, 0, 0, 0,
        )  # fmt: skip
        content += b"".join(
            struct.pack("<IIQQQQQQ", kind, 7, offset, offset, 0, length, length, 8)
            for kind, offset, length in table
        )
        content += b"".join(struct.pack("<QQ", *entry) for entry in entries)
        (work / "python").write_bytes(content + texts)
        started = time.monotonic()
        with pytest.raises(ValueError, match=reason):
            Program(str(work / "python"))
        assert time.monotonic() - started < 2


def test_no_hint_follows_a_planted_link(work: Path, outside_file: Path) -> None:
    """A program or folder that does not start must not have the host advise what a guest chose."""
    outside_file.chmod(0o755)
    with Jail(JailPolicy(write=[work])) as jail:
        made = f"ln -s {outside_file} {work}/tool; ln -s {outside_file.parent} {work}/there"
        assert jail.run(["sh", "-c", made]).exit_code == 0
        with pytest.raises(CommandNotFound) as missing:
            jail.run([f"{work}/tool"])
        with pytest.raises(PathDenied) as denied:
            jail.run(["true"], cwd=f"{work}/there")
        with pytest.raises(CommandNotFound, match=r"grant it by read=") as hinted:
            jail.run([str(outside_file)])
    assert str(missing.value) == f"{work}/tool: not found in the jail"
    assert "leads to no folder in the grants" in str(denied.value)
    for refusal in (missing, denied):
        assert str(outside_file.parent) not in str(refusal.value).replace(str(work), "")
    assert str(outside_file.parent) in str(hinted.value)


def test_a_host_whose_folder_is_gone_is_told_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deleted current folder must not turn a missing program into another error."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with Jail(JailPolicy(system="none")) as jail, pytest.raises(CommandNotFound, match="grant it"):
        jail.run(["sh"])
