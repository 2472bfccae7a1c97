"""An archive that lacks a part, a licence or a byte is never published."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from archive.python_tree import MODULES
from bundle_helpers import change_manifest, member, packed, stage
from gates import archive

if TYPE_CHECKING:
    import tarfile
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.one_uid

MACHINE = os.uname().machine
EXTENSIONS = "python/lib/python3.13/lib-dynload"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return the tree of an archive that may be published."""
    return stage(tmp_path, extensions=MODULES)


def without(tree: Path, name: str) -> None:
    """Take a file out of *tree* and out of its manifest: it was never packed."""
    (tree / name).unlink()

    def forget(manifest: dict[str, object]) -> None:
        files = manifest["files"]
        assert isinstance(files, list)
        manifest["files"] = [each for each in files if each["path"] != name]

    change_manifest(tree, forget)


def test_a_whole_archive_passes(tree: Path) -> None:
    """Nothing is refused in an archive as it should be."""
    assert archive.problems(packed(tree)) == []


@pytest.mark.parametrize(
    ("name", "rules"),
    [
        ("bin/uv", ["bin/uv: is missing"]),
        ("bin/vispython", ["bin/vispython: is missing"]),
        ("lib/libvisjail.so", ["lib/libvisjail.so: is missing"]),
        ("lib/worker/bootstrap", ["lib/worker/bootstrap: is missing"]),
        ("sbom.cdx.json", ["sbom.cdx.json: is missing"]),
        ("LICENSES/uv/MIT", ["LICENSES/uv: has no text", "LICENSES/uv: is missing"]),
        (
            "LICENSES/cpython/LICENSE.txt",
            ["LICENSES/cpython: has no text", "LICENSES/cpython: is missing"],
        ),
        (
            f"{EXTENSIONS}/_ssl.cpython-313-{MACHINE}-linux-gnu.so",
            [f"{EXTENSIONS}/_ssl.cpython-313-{MACHINE}-linux-gnu.so: is missing"],
        ),
    ],
)
def test_a_part_that_is_missing(tree: Path, name: str, rules: list[str]) -> None:
    """No archive passes without uv, its licence, a module of CPython, or a part of ours."""
    without(tree, name)
    assert archive.problems(packed(tree)) == rules


def test_a_program_that_may_not_be_executed(tree: Path) -> None:
    """An uv without its run bit is refused, although the manifest agrees."""
    (tree / "bin/uv").chmod(0o644)
    change_manifest(
        tree, lambda m: [f.update(mode=0o644) for f in m["files"] if f["path"] == "bin/uv"]
    )
    assert archive.problems(packed(tree)) == ["bin/uv: may not be executed"]


def test_an_extension_module_too_many(tree: Path) -> None:
    """The modules of CPython are exactly those that are listed."""
    name = f"{EXTENSIONS}/readline.cpython-313-{MACHINE}-linux-gnu.so"
    (tree / name).write_bytes(b"")
    assert f"{name}: is no module that belongs there" in archive.problems(packed(tree))


@pytest.mark.parametrize(
    ("extra", "rule"),
    [
        (member("{}/note"), "note: is not in the manifest"),
        (member("elsewhere/note"), "elsewhere/note: lies outside of {}/"),
        (member("{}/bin/uv", b"", mode=0o755), "{}/bin/uv: is there 2 times"),
        (member("{}/bin/su", b"", mode=0o4755), "bin/su: is not in the manifest"),
    ],
)
def test_a_member_that_does_not_belong_there(
    tree: Path, extra: tuple[tarfile.TarInfo, bytes], rule: str
) -> None:
    """No file beyond the manifest, outside of the folder or twice passes."""
    info, data = extra
    info.name = info.name.format(tree.name)
    assert rule.format(tree.name) in "\n".join(archive.problems(packed(tree, more=((info, data),))))


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (lambda m: m["files"][0].update(sha256="0" * 64), "another digest than the manifest says"),
        (lambda m: m["files"][0].update(size=1), "another size than the manifest says"),
        (lambda m: m["files"][0].update(mode=0o777), "has the mode 644"),
        (lambda m: m.update(version="2.0"), "is not of version 1.0"),
        (lambda m: m.update(platform="linux-other"), "is not for linux-"),
        (lambda m: m["python"].update(version="3.12.0"), "names two versions of CPython"),
        (lambda m: m["components"][0].update(version="0.9"), "of version 1.0"),
        (lambda m: m["components"][0].update(sha256=""), "is not pinned by a digest"),
        (lambda m: m["components"][0].update(license=""), "has no version, licence or source"),
        (lambda m: m["components"].pop(), "does not name cpython"),
        (lambda m: m["components"].append(dict(m["components"][0], name="zlib")),
         "LICENSES/zlib: is missing"),
        (lambda m: m.pop("files"), "cannot be read"),
    ],
)  # fmt: skip
def test_a_manifest_that_is_not_true(
    tree: Path, change: Callable[[dict[str, object]], object], rule: str
) -> None:
    """A byte, a mode, a version or a component that the manifest has wrong is found."""
    change_manifest(tree, change)
    assert rule in "\n".join(archive.problems(packed(tree)))


def test_a_changed_byte(tree: Path) -> None:
    """One byte that changed after the manifest was written is found."""
    data = bytearray((tree / "bin/uv").read_bytes())
    data[3] ^= 1
    (tree / "bin/uv").write_bytes(data)
    (tree / "bin/uv").chmod(0o755)
    assert archive.problems(packed(tree)) == ["bin/uv: has another digest than the manifest says"]


def test_what_is_no_archive(tree: Path, tmp_path: Path) -> None:
    """Neither another name, nor an empty file, nor one without a manifest passes."""
    file = packed(tree)
    other = file.rename(tmp_path / "other.tar.gz")
    assert archive.problems(other) == ["other.tar.gz: is no name of an archive"]
    assert archive.problems(packed(tree, without=("manifest.json",))) == [
        "manifest.json: is missing"
    ]
    file.write_bytes(b"")
    assert "neither a folder nor a wheel nor a tar file" in archive.problems(file)[0]


@pytest.mark.parametrize("platform", ["windows-x64", "macos-arm64"])
def test_archives_of_other_platforms(tmp_path: Path, platform: str) -> None:
    """Those for Windows and macOS must have their own parts, and say so where they have not."""
    problems = archive.problems(packed(stage(tmp_path, platform=platform)))
    end = "vispython.exe" if platform == "windows-x64" else "libvisjail.dylib"
    assert any(each.endswith(f"{end}: is missing") for each in problems)
