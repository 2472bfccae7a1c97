"""Small packages that tests make themselves, and uv."""

from __future__ import annotations

import base64
import hashlib
import io
import os
import tarfile
import zipfile
from typing import TYPE_CHECKING, Any

import pytest

import visruntime as vr
from visruntime._packages.uv import find_uv
from visruntime.errors import PolicyError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


def require_uv() -> str:
    """Return the path of uv; without one the test skips, or fails where tools must be there."""
    try:
        return find_uv()
    except PolicyError as problem:
        if os.environ.get("VIS_REQUIRE_TOOLS") == "1":
            pytest.fail(f"{problem}, and VIS_REQUIRE_TOOLS=1 asks for it")
        pytest.skip(str(problem))


def make_wheel(
    folder: Path,
    name: str,
    version: str,
    files: Mapping[str, str],
    *,
    requires: tuple[str, ...] = (),
) -> str:
    """Write a wheel into *folder*; return its hash as a requirement has it."""
    folder.mkdir(exist_ok=True)
    about = f"{name}-{version}.dist-info"
    lines = [f"Requires-Dist: {one}\n" for one in requires]
    content = {
        **files,
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        + "".join(lines),
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
    }
    record = ""
    for path, text in content.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=")
        record += f"{path},sha256={digest.decode()},{len(text.encode())}\n"
    content[f"{about}/RECORD"] = f"{record}{about}/RECORD,,\n"
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in content.items():
            archive.writestr(path, text)
    return f"--hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}"


BACKEND = '''
def build_wheel(folder, settings=None, metadata=None):
    import os, zipfile
    attack()
    name = "{name}-{version}-py3-none-any.whl"
    about = "{name}-{version}.dist-info"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as archive:
        archive.writestr("{name}.py", "built = True\\n")
        archive.writestr(about + "/METADATA",
            "Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n")
        archive.writestr(about + "/WHEEL",
            "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        archive.writestr(about + "/RECORD", "")
    return name

def work():
    """The folder of the build, in which this runs somewhere."""
    import os
    here = os.getcwd()
    while not os.path.exists(os.path.join(here, "venv")):
        here = os.path.dirname(here)
    return here
'''


def make_source(folder: Path, name: str, version: str, attack: str) -> str:
    """Write a source package whose build runs the body *attack*; return its hash."""
    folder.mkdir(exist_ok=True)
    body = "".join(f"    {line}\n" for line in attack.splitlines())
    files = {
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        "pyproject.toml": f'[project]\nname = "{name}"\nversion = "{version}"\n'
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
        "backend.py": BACKEND.format(name=name, version=version) + f"\ndef attack():\n{body}",
    }
    archive = folder / f"{name}-{version}.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for path, text in files.items():
            entry = tarfile.TarInfo(f"{name}-{version}/{path}")
            entry.size = len(text.encode())
            tar.addfile(entry, io.BytesIO(text.encode()))
    return f"--hash=sha256:{hashlib.sha256(archive.read_bytes()).hexdigest()}"


def make_project(folder: Path, packages: Mapping[str, tuple[str, str]]) -> None:
    """Write a project and its lock, which has hashes as that of an index has.

    Args:
        packages: version and hash of each; ``devtool`` is of the development group.
    """
    folder.mkdir(exist_ok=True)
    needed = [name for name in packages if name != "devtool"]
    develops = [name for name in packages if name == "devtool"]
    (folder / "pyproject.toml").write_text(
        '[project]\nname = "mine"\nversion = "0"\nrequires-python = ">=3.11"\n'
        f"dependencies = {needed!r}\n[dependency-groups]\ndev = {develops!r}\n"
    )
    linked, dev = (
        "[" + ", ".join(f'{{ name = "{name}" }}' for name in names) + "]"
        for names in (needed, develops)
    )
    lock = (
        'version = 1\nrevision = 1\nrequires-python = ">=3.11"\n\n'
        '[[package]]\nname = "mine"\nversion = "0"\nsource = { virtual = "." }\n'
        f"dependencies = {linked}\n\n[package.dev-dependencies]\ndev = {dev}\n\n"
        f"[package.metadata]\nrequires-dist = {linked}\n\n"
        f"[package.metadata.requires-dev]\ndev = {dev}\n"
    )
    for name, (version, held) in packages.items():
        lock += (
            f'\n[[package]]\nname = "{name}"\nversion = "{version}"\n'
            'source = { registry = "https://index.test/simple" }\n'
            f'wheels = [{{ url = "https://index.test/{name}-{version}-py3-none-any.whl", '
            f'hash = "{held.removeprefix("--hash=")}" }}]\n'
        )
    (folder / "uv.lock").write_text(lock)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the environments of a test, and the cache of uv, below its own folder."""
    require_uv()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("UV_CACHE_DIR", raising=False)
    return tmp_path / "cache" / "visruntime"


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """Return a folder with two wheels, of which one needs the other."""
    folder = tmp_path / "wheels"
    make_wheel(folder, "tinyb", "1.2", {"tinyb.py": "y = 2\n"})
    make_wheel(
        folder,
        "tinya",
        "1.0",
        {
            "tinya/__init__.py": "from tinyb import y\ndef main():\n    print('ran', y)\n",
            "tinya-1.0.dist-info/entry_points.txt": "[console_scripts]\ntinya = tinya:main\n",
        },
        requires=("tinyb>=1",),
    )
    return folder


def resolved(wheels: Path, *requirements: str, **options: Any) -> vr.Environment:
    """Return an environment of *requirements*, with the hashes of the wheels that are there."""
    return vr.Environment.from_requirements(
        requirements, wheelhouse=wheels, hashes="resolve", **options
    )


def left_behind(cache: Path) -> list[str]:
    """Return what stands of environments and builds."""
    return [p.name for kind in ("environments", "building") for p in (cache / kind).iterdir()]


@pytest.fixture(autouse=True)
def no_leftovers(cache: Path) -> Iterator[None]:
    """Check after each test that no folder of a build is left."""
    yield
    if (cache / "building").exists():
        assert list((cache / "building").iterdir()) == []
