"""Each rule of the gates catches the one mutation that breaks it, and nothing else is refused."""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from gates import elf, wheel

from visruntime import _native

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.one_uid

MACHINE = os.uname().machine
NAME = f"visruntime-1.0-cp311-abi3-manylinux_2_35_{MACHINE}.whl"
HARDENED = ("-fPIE", "-pie", "-Wl,-z,relro,-z,now,-z,noexecstack")


@pytest.fixture(scope="module")
def versioned(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that makes a libc.so.6 whose one symbol has the given version."""

    def make(version: str) -> Path:
        folder = tmp_path_factory.mktemp("libc")
        (folder / "map").write_text(f"{version} {{ global: newer; local: *; }};")
        (folder / "c.c").write_text("int newer(void) { return 1; }\n")
        library = folder / "libc.so.6"
        command = ["cc", "-shared", "-nostdlib", "-fPIC", "-Wl,-soname,libc.so.6"]
        command += [f"-Wl,--version-script={folder / 'map'}", "-o", str(library)]
        subprocess.run([*command, str(folder / "c.c")], check=True)
        return library

    return make


def compiled(folder: Path, *options: str, source: str = "int main(void) { return 0; }") -> Path:
    """Compile a program, or with ``-shared`` a library, into *folder*; return the folder."""
    (folder / "part.c").write_text(source + "\n")
    output = folder / ("part.so" if "-shared" in options else "part")
    command = ["cc", "-fPIC", str(folder / "part.c"), *options, "-o", str(output)]
    subprocess.run(command, check=True, capture_output=True)
    (folder / "part.c").unlink()
    return folder


def refused(folder: Path, **how: object) -> list[str]:
    """Return what the ELF gate says of *folder*."""
    return elf.problems(folder, machine=MACHINE, **how)  # type: ignore[arg-type]


def test_a_hardened_program_passes(tmp_path: Path) -> None:
    """No rule is broken by a program that is built as ours are."""
    assert refused(compiled(tmp_path, *HARDENED), hardened=["part"]) == []


def test_what_is_installed_here_passes() -> None:
    """No compiled file of this very build is less hardened than what is promised."""
    package = Path(_native.BINARY_DIRECTORY)
    files = [*wheel.PROGRAMS, *wheel.COMPILED]
    patterns = [name.removeprefix("visruntime/") for name in files]
    assert refused(package, hardened=patterns) == []


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        (("-no-pie", "-fno-pie", *HARDENED[2:]), "no PIE"),
        (("-fPIE", "-pie", "-Wl,-z,norelro,-z,now"), "no RELRO"),
        (("-fPIE", "-pie", "-Wl,-z,relro,-z,lazy"), "no BIND_NOW"),
        ((*HARDENED, "-Wl,-z,execstack"), "an executable stack"),
        ((*HARDENED, "-Wl,-rpath,/opt/lib"), "searches libraries in /opt/lib"),
        ((*HARDENED, "-Wl,-rpath,$ORIGIN:lib"), "searches libraries in lib"),
        ((*HARDENED, "-Wl,-rpath,$ORIGIN/../.."), "searches libraries in $ORIGIN/../.."),
        ((*HARDENED, "-Wl,-rpath,$ORIGINAL"), "searches libraries in $ORIGINAL"),
        ((*HARDENED, "-Wl,--dynamic-linker=/lib/ld-musl.so.1"), "the loader /lib/ld-musl.so.1"),
    ],
)
def test_a_program_that_breaks_one_rule(
    tmp_path: Path, options: tuple[str, ...], rule: str
) -> None:
    """Not one of the rules for programs lets its mutation pass, and no other rule speaks."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (problem,) = refused(compiled(folder, *options), hardened=["part"])
    assert problem.startswith("part: ")
    assert rule in problem


def test_relocations_in_code_are_refused(tmp_path: Path) -> None:
    """No file whose code has to be writable when it is loaded passes."""
    (tmp_path / "part.s").write_text(".text\n.globl f\nf: .quad other\n.section .note.GNU-stack\n")
    command = ["cc", "-shared", "-nostdlib", "-Wl,-z,notext", "-o", str(tmp_path / "part.so")]
    subprocess.run([*command, str(tmp_path / "part.s")], check=True, capture_output=True)
    assert refused(tmp_path) == ["part.so: has relocations in its code"]


@pytest.mark.parametrize(
    ("version", "rule"),
    [
        ("GLIBC_2.36", "part: needs GLIBC_2.36 of libc.so.6, above 2.35"),
        ("GLIBC_2.100", "part: needs GLIBC_2.100 of libc.so.6, above 2.35"),
        ("GLIBC_PRIVATE", "part: needs GLIBC_PRIVATE of libc.so.6, which is no numbered interface"),
        ("GLIBC_ABI_DT_RELR", "part: needs GLIBC_ABI_DT_RELR of libc.so.6, which is no numbered"),
        ("GLIBC_2.35", ""),
        ("GLIBC_2.4", ""),
    ],
)
def test_symbol_versions(
    tmp_path: Path, versioned: Callable[[str], Path], version: str, rule: str
) -> None:
    """No symbol of a newer glibc, nor one of its private ones, passes; those of the baseline do."""
    source = "int newer(void); int main(void) { return newer(); }"
    options = ("-nostdlib", "-Wl,-e,main", str(versioned(version)), *HARDENED)
    found = refused(compiled(tmp_path, *options, source=source))
    assert len(found) == bool(rule)
    assert "".join(found).startswith(rule)


def test_a_library_that_not_every_system_has(tmp_path: Path) -> None:
    """A needed library passes where it lies beside its user and that looks there, else not."""
    shared = ("-shared", "-nostdlib", "-Wl,-soname,libother.so.1")
    library = compiled(tmp_path, *shared, source="int f(void) { return 1; }")
    (library / "part.so").rename(library / "libother.so.1")
    source = "int f(void); int main(void) { return f(); }"
    options = ["-Wl,--no-as-needed", str(library / "libother.so.1"), *HARDENED]
    there = [*options, "-Wl,-rpath,$ORIGIN", "-Wl,--disable-new-dtags"]
    assert refused(compiled(tmp_path, *there, source=source)) == []
    late = [*there[:-1], "-Wl,--enable-new-dtags"]
    (overruled,) = refused(compiled(tmp_path, *late, source=source))
    assert "looks in LD_LIBRARY_PATH before its own place" in overruled
    (not_looking,) = refused(compiled(tmp_path, *options, source=source))
    assert "which is neither beside it nor on every system" in not_looking
    compiled(tmp_path, *there, source=source)
    (library / "libother.so.1").unlink()
    (gone,) = refused(tmp_path)
    assert "which is neither beside it nor on every system" in gone


@pytest.mark.parametrize("bit", [0o4000, 0o2000])
def test_a_bit_that_gives_rights_is_refused(tmp_path: Path, bit: int) -> None:
    """No file with a set-uid or set-gid bit passes, whether it is a program or not."""
    compiled(tmp_path, *HARDENED)
    (tmp_path / "text").write_text("no program")
    (tmp_path / "text").chmod(0o755 | bit)
    assert refused(tmp_path) == ["text: a set-uid or set-gid bit"]


def test_another_machine_and_a_file_cut_short(tmp_path: Path) -> None:
    """No file for another processor passes, and none that cannot be read to its end."""
    whole = (compiled(tmp_path, *HARDENED) / "part").read_bytes()
    (tmp_path / "part").write_bytes(whole[:18] + b"\x08\x00" + whole[20:])
    assert f"part: is for 8, not for {MACHINE}" in refused(tmp_path)
    (tmp_path / "part").write_bytes(whole[:100])
    (problem,) = refused(tmp_path)
    assert problem.startswith("part: a broken ELF file")


def test_nothing_to_judge_is_no_success(tmp_path: Path) -> None:
    """Neither an empty folder, nor one without programs, nor a name that fits none passes."""
    assert "holds no file" in refused(tmp_path)[0]
    (tmp_path / "text").write_text("text")
    assert "no ELF file in it" in refused(tmp_path)[0]
    assert "neither a folder nor a wheel" in refused(tmp_path / "text")[0]
    compiled(tmp_path, *HARDENED)
    (problem,) = refused(tmp_path, hardened=["part", "other"])
    assert "no ELF file is named other" in problem


@pytest.fixture
def small_wheel(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that makes a wheel that passes, but for *files* and *modes* given."""

    def make(
        files: dict[str, bytes | None] | None = None,
        modes: dict[str, int] | None = None,
        name: str = NAME,
        first: str | None = None,
        rows: tuple[str, ...] = (),
    ) -> Path:
        metadata = "visruntime-1.0.dist-info"
        contents: dict[str, bytes | None] = dict.fromkeys(
            (*wheel.PROGRAMS, *wheel.COMPILED, "visruntime/py.typed"), b"data"
        )
        contents["visruntime/guest/worker.py"] = b""
        tag = f"Tag: cp311-abi3-manylinux_2_35_{MACHINE}\n"
        contents[f"{metadata}/WHEEL"] = b"Wheel-Version: 1.0\n" + tag.encode()
        contents.update(files or {})
        path = tmp_path / name
        lines = []
        with zipfile.ZipFile(path, "w") as archive:
            if first is not None:
                archive.writestr(first, b"other")
            for inner, data in contents.items():
                if data is None:
                    continue
                mode = 0o755 if inner in wheel.PROGRAMS else 0o644
                info = zipfile.ZipInfo(inner)
                info.external_attr = (0o100000 | (modes or {}).get(inner, mode)) << 16
                archive.writestr(info, data)
                lines.append(f"{inner},{wheel.digest(data)},{len(data)}")
            record = f"{metadata}/RECORD"
            if record not in contents:
                archive.writestr(record, "\n".join([*lines, *rows, f"{record},,"]))
                archive.getinfo(record).external_attr = 0o100644 << 16
        return path

    return make


def test_a_whole_wheel_passes(small_wheel: Callable[..., Path]) -> None:
    """Nothing is refused in a wheel as it should be."""
    assert wheel.problems(small_wheel()) == []


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"modes": {"visruntime/vispython": 0o644}}, "vispython: may not be executed"),
        ({"modes": {"visruntime/py.typed": 0o755}}, "py.typed: may be executed"),
        ({"files": {"visruntime/bin/visjail-init": None}}, "bin/visjail-init: is missing"),
        ({"files": {"visruntime/_viscore.abi3.so": None}}, "_viscore.abi3.so: is missing"),
        ({"files": {"other.py": b""}}, "other.py: lies outside of the package"),
        ({"files": {"visruntime/a.pth": b"import os"}}, "would run at each start of Python"),
        ({"files": {"visruntime/__pycache__/a.pyc": b""}}, "a.pyc: does not belong there"),
        ({"files": {"visruntime/.env": b"TOKEN=1"}}, ".env: does not belong there"),
        ({"files": {"visruntime-1.0.dist-info/RECORD": b""}}, "is not what RECORD says"),
        ({"files": {"visruntime-1.0.dist-info/WHEEL": b"Tag: py3-none-any\n"}}, "its tags are not"),
        ({"files": {"visruntime/big": os.urandom(wheel.MOST_BYTES)}}, "bytes, more than"),
        (
            {"rows": ("visruntime/gone.py,sha256=x,1",)},
            "gone.py: is in RECORD and not in the wheel",
        ),
        ({"rows": ("visruntime/py.typed,sha256=x,4",)}, "RECORD: names a file twice"),
        ({"first": "visruntime/py.typed"}, "visruntime/py.typed: is there 2 times"),
        ({"name": NAME.replace("manylinux_2_35", "linux")}, "is not for cp311-abi3-manylinux"),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_wheel_that_breaks_one_promise(
    small_wheel: Callable[..., Path], change: dict[str, object], rule: str
) -> None:
    """Not one promise about wheels can be broken unseen."""
    assert rule in "\n".join(wheel.problems(small_wheel(**change)))


@pytest.mark.parametrize(
    "name",
    [
        "build/a.c",
        "src/visruntime/_visjail.abi3.so.o",
        "notes.txt",
        "tests/__pycache__/a.pyc",
        ".git/config",
    ],
)
def test_a_source_distribution_with_junk(tmp_path: Path, name: str) -> None:
    """No file of a build, of a repository or of a person gets into a source distribution."""
    root = tmp_path / "visruntime-1.0"
    for inner in ("pyproject.toml", "src/visruntime/__init__.py", name):
        (root / inner).parent.mkdir(parents=True, exist_ok=True)
        (root / inner).write_text("")
    path = shutil.make_archive(str(tmp_path / "source"), "gztar", tmp_path, root.name)
    problems = wheel.problems(Path(path))
    assert problems
    assert all(problem.startswith(f"visruntime-1.0/{name}: ") for problem in problems)
