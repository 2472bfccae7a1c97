"""Archives for macOS and Windows are packed on any machine, from parts, or not at all."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from archive.parts import COMPONENTS, pack_parts
from gates import archive, archive_windows
from macho_maker import GOOD, X86_64, macho, text
from pe_maker import pe_file

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.one_uid

ROOT = Path(__file__).parents[2]
LICENCE = ROOT / "LICENSE"
PLATFORMS = ("windows-x64", "macos-arm64", "macos-x64")
WHEEL = "visruntime-1.0-cp311-abi3-any.whl"
EPOCH = 1_700_000_000
WORKER = """
LOAD = "text of the first file"
def bootstrap(*, same_as_host):
    return b"payload of the second" if not same_as_host else b""
"""
FOREIGN = {"a.dll": ["f"]}
NEEDS_MORE = text(0xC, "/opt/x.dylib")


def compiled(platform: str, name: str) -> bytes:
    """Return a file of ours that the gate of *platform* lets pass."""
    if platform == "windows-x64":
        return pe_file(library=not name.endswith(".exe"))
    kind = 6 if name.endswith((".dylib", ".so")) else 2
    if platform == "macos-x64":
        return macho(*GOOD[:2], machine=X86_64, kind=kind)
    return macho(*GOOD, kind=kind)


def make_parts(folder: Path, platform: str) -> Path:
    """Return the parts of an archive as its platform's runners would give them, without run bits."""
    parts = folder / "parts"
    wanted = archive.PLATFORMS[platform.partition("-")[0]]
    written = {"sbom.cdx.json", "lib/worker/start.py", "lib/worker/bootstrap"}
    modules = [str(wanted["module"]).format(each) for each in wanted["modules"]]
    python = [place.format("313") for place in wanted["python"]]
    names = {*wanted["programs"], *wanted["files"], *python, *modules} - written
    if platform == "windows-x64":
        names |= {f"python/DLLs/{name}.pyd" for name in archive_windows.MODULES}
        names.add("python/Lib/encodings/__init__.py")
    for name in (*names, "LICENSES/uv/MIT", "LICENSES/cpython/LICENSE.txt"):
        path = parts / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(compiled(platform, name) if name in wanted["own"] else name.encode())
        path.chmod(0o644)
    told = [
        {"name": name, "version": version, "license": "MIT", "source": "https://example.org",
         "sha256": "0" * 64}
        for name, version in (("uv", "0.1"), ("cpython", "3.13.0"))
    ]  # fmt: skip
    (parts / COMPONENTS).write_text(json.dumps(told))
    return parts


@pytest.fixture(scope="module")
def small_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a wheel with what the packer asks of one, of version 1.0."""
    path = tmp_path_factory.mktemp("wheel") / WHEEL
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("visruntime/_worker/start.py", WORKER)
    return path


@pytest.mark.parametrize("platform", PLATFORMS)
def test_a_whole_archive(tmp_path: Path, small_wheel: Path, platform: str) -> None:
    """Nothing but the parts and the packer's own files is in it; the same parts give the same bytes."""
    parts = make_parts(tmp_path, platform)
    given = platform, parts, small_wheel, LICENCE
    (tmp_path / "out").mkdir()
    path = pack_parts(*given, tmp_path / "out", EPOCH)
    assert path.name == f"visruntime-1.0-{platform}.tar.gz"
    assert [each.name for each in (tmp_path / "out").iterdir()] == [path.name]
    assert archive.problems(path) == []
    with tarfile.open(path) as file:
        root = f"visruntime-1.0-{platform}"
        modes = {each.name.removeprefix(f"{root}/"): each.mode for each in file}
        manifest = file.extractfile(f"{root}/manifest.json")
        assert manifest is not None
        told = json.load(manifest)
    mine = {str(each.relative_to(parts)) for each in parts.rglob("*") if each.is_file()}
    assert modes.keys() - mine == {
        *("manifest.json", "sbom.cdx.json", "LICENSES/visruntime/LICENSE"),
        *("lib/worker/start.py", "lib/worker/bootstrap"),
    }
    system = archive.PLATFORMS[platform.partition("-")[0]]
    executed = {*system["programs"], told["python"]["program"]}
    assert {name for name, mode in modes.items() if mode == 0o755} == executed
    assert told["platform"] == platform
    assert {each["name"] for each in told["components"]} == {"cpython", "uv", "visruntime"}
    (tmp_path / "again").mkdir()
    again = pack_parts(*given, tmp_path / "again", EPOCH)
    assert again.read_bytes() == path.read_bytes()


def without(name: str) -> Callable[[Path], object]:
    """Return what takes a part away."""
    return lambda parts: (parts / name).unlink()


def with_text(name: str, data: bytes) -> Callable[[Path], object]:
    """Return what puts other bytes, or one more part, in."""

    def put(parts: Path) -> None:
        (parts / name).parent.mkdir(exist_ok=True, parents=True)
        (parts / name).write_bytes(data)

    return put


def asking(needed: str, *, library: bool = True) -> bytes:
    """Return a file of Windows that asks for one library, and for what is Windows' own."""
    imports = {needed: ["f"], "kernel32.dll": ["f"], "api-ms-win-crt-runtime-l1-1-0.dll": ["f"]}
    return pe_file(library=library, imports=imports)


def test_what_lies_beside_its_python_is_found(tmp_path: Path, small_wheel: Path) -> None:
    """No archive is refused for libraries that are where Windows looks for them."""
    parts = make_parts(tmp_path, "windows-x64")
    for name, needed in (
        ("python/DLLs/_ssl.pyd", "libssl-3.dll"),
        ("python/DLLs/_bz2.pyd", "vcruntime140.dll"),
        ("bin/_viscore.pyd", "python3.dll"),
        ("bin/_visconsole.pyd", "python313.dll"),
    ):
        (parts / name).write_bytes(asking(needed))
    for beside in ("python/DLLs/libssl-3.dll", "python/VCRUNTIME140.dll"):
        (parts / beside).write_text("a library")
    given = "windows-x64", parts, small_wheel, LICENCE
    assert pack_parts(*given, tmp_path, EPOCH).is_file()


@pytest.mark.parametrize(
    ("platform", "change", "why"),
    [
        ("windows-x64", without("bin/uv.exe"), "bin/uv.exe: is missing"),
        ("windows-x64", without("bin/visjail.dll"), "bin/visjail.dll: is missing"),
        ("windows-x64", without("python/python313.dll"), "python/python313.dll: is missing"),
        ("windows-x64", without("bin/_visconsole.pyd"), "bin/_visconsole.pyd: is missing"),
        ("windows-x64", without("bin/_viscore.pyd"), "bin/_viscore.pyd: is missing"),
        ("windows-x64", without("python/python3.dll"), "python/python3.dll: is missing"),
        ("windows-x64", without("python/DLLs/_ssl.pyd"), "python: has no _ssl"),
        ("windows-x64", without("python/Lib/encodings/__init__.py"),
         "python: has no standard library"),
        ("windows-x64", with_text("python/python313.dll", asking("vcruntime140.dll")),
         "python/python313.dll: needs vcruntime140.dll, which does not lie"),
        ("windows-x64", with_text("python/DLLs/_ssl.pyd", asking("libssl-3.dll")),
         "python/DLLs/_ssl.pyd: needs libssl-3.dll, which does not lie"),
        ("windows-x64", with_text("bin/vispython.exe", asking("vcruntime140.dll", library=False)),
         "bin/vispython.exe: needs vcruntime140.dll, which does not lie"),
        ("windows-x64", with_text("bin/visjail.dll", asking("python3.dll")),
         "bin/visjail.dll: needs python3.dll, which does not lie"),
        ("windows-x64", with_text("bin/_visconsole.pyd", asking("python312.dll")),
         "bin/_visconsole.pyd: needs python312.dll, which does not lie"),
        ("windows-x64", with_text("python/a.pyd", b"MZ broken"), "python/a.pyd: a broken PE file"),
        ("windows-x64", without("LICENSES/uv/MIT"), "LICENSES/uv: has no text"),
        ("windows-x64", with_text("bin/visjail.dll", pe_file(characteristics=0x140)),
         "bin/visjail.dll: lies in the lower 4 GiB"),
        ("windows-x64", with_text("bin/vispython.exe", pe_file(library=False, imports=FOREIGN)),
         "bin/vispython.exe: needs a.dll"),
        ("macos-arm64", without("bin/visjail-macos-init"), "bin/visjail-macos-init: is missing"),
        ("macos-arm64", without("lib/libvisjail.dylib"), "lib/libvisjail.dylib: is missing"),
        ("macos-arm64", without("python/lib/python3.13/lib-dynload/_scproxy.cpython-313-darwin.so"),
         "_scproxy.cpython-313-darwin.so: is missing"),
        ("macos-arm64", with_text("bin/vispython", macho(*GOOD, flags=0x85)),
         "bin/vispython: lies at a fixed address"),
        ("macos-arm64", with_text("lib/libvisjail.dylib", macho(*GOOD, NEEDS_MORE, kind=6)),
         "lib/libvisjail.dylib: needs /opt/x.dylib"),
        ("macos-x64", with_text("bin/vispython", macho(*GOOD)), "is for another machine than x86_64"),
        ("macos-x64", with_text("python/lib/a.pyc", b""), "python/lib/a.pyc: does not belong there"),
        ("macos-x64", with_text("manifest.json", b"{}"), "written by the packer alone"),
        ("macos-x64", without(COMPONENTS), f"{COMPONENTS} cannot be read"),
        ("macos-x64", with_text(COMPONENTS, b"[]"), f"{COMPONENTS} does not name cpython"),
        ("macos-x64", with_text(COMPONENTS, b'[{"name": "uv"}]'), f"{COMPONENTS} cannot be read"),
    ],
)  # fmt: skip
def test_parts_that_make_no_archive(
    tmp_path: Path, small_wheel: Path, platform: str, change: Callable[[Path], object], why: str
) -> None:
    """No archive is left where a part is missing, one too many, or would not load."""
    parts = make_parts(tmp_path, platform)
    change(parts)
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(ValueError, match=f"(?s){why}"):
        pack_parts(platform, parts, small_wheel, LICENCE, out, EPOCH)
    assert list(out.iterdir()) == []


def test_a_platform_that_there_is_none_of(tmp_path: Path, small_wheel: Path) -> None:
    """No archive is made under a name that no gate knows."""
    parts = make_parts(tmp_path, "windows-x64")
    with pytest.raises(ValueError, match="solaris-sparc is no platform that there are archives"):
        pack_parts("solaris-sparc", parts, small_wheel, LICENCE, tmp_path, EPOCH)


def test_the_command_takes_one_of_two(tmp_path: Path, small_wheel: Path) -> None:
    """Neither both a Python and parts, nor parts of an unnamed platform, are packed."""
    parts = make_parts(tmp_path, "windows-x64")
    command: list[str | Path] = [sys.executable, ROOT / "scripts/pack_archive.py"]
    command += ["--wheel", small_wheel, "--out", tmp_path / "out", "--parts", parts]
    for words, code, said in (
        ((), 2, "either --python, or --parts and --platform"),
        (("--platform", "windows-x64", "--python", parts), 2, "either --python, or"),
        (("--platform", "windows-x64"), 0, ""),
    ):
        done = subprocess.run(
            [*command, *words], capture_output=True, text=True, check=False, timeout=60,
            env={"PATH": "/usr/bin:/bin", "SOURCE_DATE_EPOCH": str(EPOCH)},
        )  # fmt: skip
        assert (done.returncode, said in done.stderr) == (code, True), done.stderr
    assert archive.problems(tmp_path / "out/visruntime-1.0-windows-x64.tar.gz") == []
