"""A platform archive is used as a whole, as it was published, or not at all."""

from __future__ import annotations

import contextlib
import errno
import gzip
import hashlib
import json
import os
import shutil
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from bundle_helpers import change_manifest, member, packed, stage

from visruntime import BundleRefused, JailPolicy, PolicyError, Runtime, bundle
from visruntime.cli import main
from visruntime.jail import Jail

if TYPE_CHECKING:
    from collections.abc import Callable

MANY = 10**12
NAME = f"visruntime-1.0-linux-{os.uname().machine}"
PYTHON = "python/bin/python3.13"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let the state of this test be its own, and this package be of version 1.0."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(bundle, "own_version", lambda: "1.0")
    return tmp_path.resolve() / "cache" / "visruntime"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return the tree of a whole archive."""
    return stage(tmp_path)


def left(state: Path) -> list[str]:
    """Return what is in the folders of archives, complete or not."""
    folders = [state / "bundles", state / "building"]
    return [str(path) for folder in folders if folder.is_dir() for path in folder.rglob("*")]


def refused(file: Path, state: Path) -> str:
    """Return why *file* is refused: by both verbs alike, and nothing of it may be left."""
    with pytest.raises(BundleRefused) as raised:
        bundle.install(file)
    assert left(state) == []
    assert not (file.parent / "was-executed").exists()
    return str(raised.value)


def test_a_whole_archive(tree: Path, state: Path) -> None:
    """An archive that is installed is there in full, with its modes, and once."""
    file = packed(tree)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    added = bundle.install(file, sha256=digest.upper())
    assert added.folder == str(state / "bundles" / NAME / "archive")
    for path in tree.rglob("*"):
        there = Path(added.folder, path.relative_to(tree))
        assert there.lstat().st_mode == path.lstat().st_mode, there
        if path.is_file():
            assert there.read_bytes() == path.read_bytes()
    assert bundle.install(file).folder == added.folder
    assert [each.name for each in bundle.installed()] == [NAME]
    assert bundle.verify(NAME).name == bundle.verify(file).name == NAME
    assert bundle.find().python == f"{added.folder}/{PYTHON}"
    assert os.listdir(state / "building") == []
    assert not (tree.parent / "was-executed").exists()


@pytest.mark.parametrize("level", ["", "whole", "whole/archive"])
def test_a_link_that_comes_while_it_is_unpacked_leads_nowhere(
    tree: Path, state: Path, tmp_path: Path, level: str
) -> None:
    """A guest that may write above the state folder must not choose where the host writes."""
    outside, away = tmp_path / "outside", tmp_path / "away"
    for name in ("archive", "whole/archive"):
        (outside / name).mkdir(parents=True)
    before = sorted(outside.rglob("*"))
    there = []

    def swap(_line: str) -> None:
        made = state / "building" / NAME / level
        there.append(list(made.rglob("vispython")))
        made.rename(away)
        made.symlink_to(outside / level)

    with contextlib.suppress(OSError):
        bundle.install(packed(tree), progress=swap)
    assert sorted(outside.rglob("*")) == before
    assert there == [[]]  # the control: what is in it was still to be written


def test_the_published_digest(tree: Path, state: Path) -> None:
    """A whole archive that is another than the published one is not even unpacked."""
    file = packed(tree)
    with pytest.raises(BundleRefused, match="not the file that was published"):
        bundle.install(file, sha256="0" * 64)
    assert left(state) == []


@pytest.mark.parametrize(
    ("name", "why"),
    [("bin/uv", "bin/uv is damaged"), ("include/visjail/visjail.h", "visjail.h is damaged")],
)
def test_a_changed_byte(tree: Path, state: Path, name: str, why: str) -> None:
    """One changed byte of one file keeps all of the archive away."""
    data = bytearray((tree / name).read_bytes())
    data[-1] ^= 1
    mode = (tree / name).stat().st_mode
    (tree / name).write_bytes(data)
    (tree / name).chmod(mode)
    assert why in refused(packed(tree), state)


@pytest.mark.parametrize(
    ("extra", "why"),
    [
        (member(f"{NAME}/other"), "is not in its manifest"),
        (member(f"{NAME}/bin/uv", b"twice", mode=0o755), "is not in its manifest, or twice"),
        (member("/etc/cron.d/job"), "is not in its manifest"),
        (member(f"{NAME}/../../escape"), "is not in its manifest"),
        (member(f"{NAME}/pipe", type=tarfile.FIFOTYPE), "something else than files"),
        (member(f"{NAME}/null", type=tarfile.CHRTYPE, devmajor=1), "something else than files"),
        (member(f"{NAME}/uv2", type=tarfile.LNKTYPE, linkname="/etc/passwd"), "something else"),
        (member(f"{NAME}/out", type=tarfile.SYMTYPE, linkname="/etc"), "is not in its manifest"),
        (member(f"{NAME}/{'long' * 80}"), ""),
    ],
)
def test_a_member_that_does_not_belong_there(
    tree: Path, state: Path, extra: tuple[tarfile.TarInfo, bytes], why: str
) -> None:
    """No file, link, device or name beyond the manifest gets anywhere, inside or outside."""
    form = tarfile.USTAR_FORMAT if why else tarfile.GNU_FORMAT
    assert (why or "something else than files") in refused(
        packed(tree, more=(extra,), form=form), state
    )
    assert not (state / "escape").exists()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda m: m["files"].pop(), "is not in its manifest"),
        (lambda m: m["files"].append({"path": "more", "mode": 420, "size": 0, "sha256": "0" * 64}),
         "more is missing"),
        (lambda m: m["files"].append(dict(m["files"][0])), "names a file twice"),
        (lambda m: m["files"][0].update(mode=0o4755), "has the mode"),
        (lambda m: m["files"][0].update(mode=True), "has the mode"),
        (lambda m: m["files"][0].update(mode=420.0), "has the mode"),
        (lambda m: m["files"][0].update(mode=[420]), "has the mode"),
        (lambda m: m["files"][0].update(size=1.0), "has the size"),
        (lambda m: m["files"][0].update(size=MANY), "has the size"),
        (lambda m: m["files"][0].update(sha256="short"), "has no digest"),
        (lambda m: m["files"][0].update(path="../out"), "leads out of it"),
        (lambda m: m["files"][0].update(path="/etc/out"), "leads out of it"),
        (lambda m: m["files"][0].update(path="a//b"), "leads out of it"),
        (lambda m: m["files"][0].update(path="manifest.json"), "is no name of a file"),
        (lambda m: m["files"][0].update(path="a\nb"), "is no name of a file"),
        (lambda m: m["files"][0].update(path="a/" * 41 + "a"), "is no name of a file"),
        (lambda m: m["files"][0].update(path="a" * 1001), "is no name of a file"),
        (lambda m: m["files"].append({"path": "l", "link": "/etc/passwd"}), "is a link to"),
        (lambda m: m["files"].append({"path": "l", "link": "../../../x"}), "is a link to"),
        (lambda m: m["files"].append({"path": "l", "link": "python/bin/python3"}), "is a link to"),
        (lambda m: m["files"].append({"path": "bin/uv/x", "mode": 420, "size": 0, "sha256": "0" * 64}),
         "lies below bin/uv"),
        (lambda m: m["python"].update(program="/bin/sh"), "leads out of it"),
        (lambda m: m["python"].update(program="python/bin/python3"), "has no python/bin/python3"),
        (lambda m: m["python"].update(program="sbom.cdx.json"), "may not be executed"),
        (lambda m: m.update(schema=2), "has the schema 2"),
        (lambda m: m.update(name="visruntime-9-linux-x86_64"), "is not its version and platform"),
        (lambda m: m.update(schema=True), "has the schema True"),
        (lambda m: m.update(glibc=2.17), "where a short text belongs"),
        (lambda m: m.update(version="1" * 2000), "where a short text belongs"),
        (lambda m: m["python"].update(program=["sh"]), "where a short text belongs"),
        (lambda m: m.update(python=[["program", "x"]]), "where names and texts belong"),
        (lambda m: m.update(components={}), "are no list"),
        (lambda m: m.update(components=[1]), "where names and texts belong"),
        (lambda m: m.update(components=[{"name": 1}]), "where a short text belongs"),
        (lambda m: m.update(files=7), "cannot be read"),
        (lambda m: m.pop("glibc"), "cannot be read"),
    ],
)  # fmt: skip
def test_a_manifest_that_does_not_hold_together(
    tree: Path, state: Path, change: Callable[[dict[str, object]], object], why: str
) -> None:
    """No manifest can name a file outside, a set-uid bit, a link out, or what is not there."""
    change_manifest(tree, change)
    assert why in refused(packed(tree), state)


@pytest.mark.parametrize(
    ("made", "why"),
    [
        ({"version": "1.1"}, "it is of visruntime 1.1, and this is 1.0"),
        ({"platform": "linux-riscv64"}, "it is for linux-riscv64"),
        ({"platform": "windows-x64"}, "it is for windows-x64"),
        ({"glibc": "9.9"}, "it needs glibc 9.9"),
    ],
)
def test_an_archive_for_something_else(
    tmp_path: Path, state: Path, made: dict[str, str], why: str
) -> None:
    """An archive of another release, platform or glibc is whole, and not installed."""
    folder = tmp_path / "other"
    folder.mkdir()
    file = packed(stage(folder, **made))
    assert bundle.verify(str(file)).version
    assert why in refused(file, state)


def test_files_that_are_no_archives(tree: Path, state: Path, tmp_path: Path) -> None:
    """What is cut short, has something behind its end, or is no tar file at all is refused."""
    whole = packed(tree).read_bytes()
    plain = gzip.decompress(whole)
    file = tmp_path / "file.tar.gz"
    damaged = bytearray(plain)
    damaged[0] ^= 1
    for data, why in (
        (whole[: len(whole) // 2], "cut short"),
        (b"text", "no gzip file"),
        (gzip.compress(plain[:4096]), "cut short"),
        (gzip.compress(plain + b"x" * 512), "something follows its end"),
        (gzip.compress(plain + bytes(10240)), "something follows its end"),
        (whole + gzip.compress(bytes(10240)), "something follows its end"),
        (gzip.compress(bytes(damaged)), "a header in it is damaged"),
        (gzip.compress(b""), "cut short"),
        (gzip.compress(b"\0" * 10240), "does not begin with its manifest"),
    ):
        file.write_bytes(data)
        assert why in refused(file, state), why
    missing = packed(tree, without=("bin/vispython",))
    assert "bin/vispython is missing" in refused(missing, state)
    first = packed(tree, without=("manifest.json",))
    assert "does not begin with its manifest" in refused(first, state)
    with pytest.raises(BundleRefused, match="no such file, and no archive of that name"):
        bundle.verify("visruntime-7-linux-x86_64")


def test_a_fifo_in_place_of_the_archive(tmp_path: Path) -> None:
    """A FIFO is not waited for, and no archive."""
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(OSError, match="fifo") as raised:
        bundle.install(tmp_path / "fifo")
    assert raised.value.errno == errno.EINVAL


@pytest.mark.parametrize("name", [PYTHON, "lib/libvisjail.so", "python/bin/python3"])
def test_an_installed_file_that_was_changed(tree: Path, name: str) -> None:
    """A file that was changed, replaced or added after the installation is found before use."""
    folder = Path(bundle.install(packed(tree)).folder)
    path = folder / name
    before = path.lstat()
    if path.is_symlink():
        path.unlink()
        path.symlink_to("/bin/sh")
    else:
        data = bytearray(path.read_bytes())
        data[-2] ^= 1
        path.write_bytes(data)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    changed = f"{name} was changed; remove .* install it anew"
    with pytest.raises(BundleRefused, match=changed):
        bundle.find()
    with pytest.raises(BundleRefused, match=changed):
        bundle.verify(NAME)
    with pytest.raises(BundleRefused, match="was changed"):
        Runtime(JailPolicy(), python="bundle")


def test_an_installed_file_that_was_only_touched(tree: Path) -> None:
    """A file with other times and the same bytes is compared, and used."""
    added = bundle.install(packed(tree))
    os.utime(added.python)
    assert bundle.find().python == added.python
    os.chmod(added.python, 0o700)
    with pytest.raises(BundleRefused, match="was changed"):
        bundle.find()


def test_an_installed_file_too_many(tree: Path) -> None:
    """A module that was put beside those of the archive is found by verify."""
    folder = Path(bundle.install(packed(tree)).folder)
    (folder / "python/lib/sitecustomize.py").write_text("")
    with pytest.raises(BundleRefused, match=r"sitecustomize\.py' does not belong to it"):
        bundle.verify(NAME)
    with pytest.raises(BundleRefused, match="does not belong to it"):
        bundle.find()


def test_no_guest_may_write_there(tree: Path, state: Path) -> None:
    """A write grant of the folder is refused; one above it leaves the folder read-only."""
    added = bundle.install(packed(tree))
    for name in ("uv", "pip"):  # which have to be there to be kept
        (state.parent / name).mkdir()
    with pytest.raises(PolicyError, match="what a guest writes there the host would run"):
        Jail(JailPolicy(write=[str(state / "bundles")]))
    with Jail(JailPolicy(write=[str(state.parent)])) as jail:
        done = jail.run(["touch", added.python])
        assert (done.exit_code, b"Read-only file system" in done.stderr) == (1, True)
        assert jail.run(["touch", str(state.parent / "other")]).exit_code == 0


def test_without_an_archive_it_says_what_to_do(state: Path) -> None:
    """Nothing is looked for elsewhere where no archive is installed."""
    with pytest.raises(BundleRefused, match=f"bundle install {NAME}.tar.gz"):
        Runtime(JailPolicy(), python="bundle")
    assert bundle.installed() == []
    assert not state.exists()  # asking leaves no trace


def test_what_unpacking_says(tree: Path, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is said unasked, and asked no more than what a slow disk takes seconds for."""
    file = packed(tree)
    said: list[str] = []
    with pytest.raises(TypeError, match="progress"):
        bundle.install(file, progress="x")  # type: ignore[arg-type]
    assert not state.exists()
    bundle.install(file, progress=said.append)
    assert len(said) == 1
    assert said[0].startswith(f"unpacking {NAME}: ")
    shutil.rmtree(state)
    monkeypatch.setattr(bundle, "_PROGRESS_SECONDS", 0)
    bundle.install(file, progress=said.append)
    assert said[-1] == "unpacked 100 %"
    shares = [int(line.split()[1]) for line in said[2:]]
    assert shares == sorted(shares)


def test_the_command(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command's verbs say what they did, and a refusal is one line and exit code 125."""
    file = packed(tree)
    assert main(["bundle", "install", str(file), "--sha256", "0" * 64]) == 125
    assert main(["bundle", "install", str(file)]) == 0
    assert main(["bundle", "list"]) == 0
    assert main(["bundle", "verify"]) == 0
    assert main(["bundle", "verify", str(file)]) == 0
    assert main(["version", "--json"]) == 0
    assert main(["bundle", "verify", "nothing"]) == 125
    assert main(["bundle", "remove"]) == 125
    assert main(["bundle", "list", "--sha256", "0"]) == 125
    assert main(["bundle", "verify", "--quiet"]) == 0
    assert main(["bundle", "--quiet", "install", str(file)]) == 0
    shown = capsys.readouterr()
    lines = shown.out.splitlines()
    assert [NAME in line for line in lines] == [True] * 5
    assert json.loads(lines.pop())["bundles"] == [NAME]
    assert "Python 3.13.0" in lines[0]
    assert lines[2].endswith("every file is as its manifest says")
    assert [line[:12] for line in shown.err.splitlines()] == ["visruntime: "] * 4
