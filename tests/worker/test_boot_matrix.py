"""Each CPython found here, itself and by a venv, in a jail: how it boots, and why others do not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from interpreters import INTERPRETERS, copy_installation, make_venv, programs, refuse_probe
from packages_helpers import make_wheel, require_uv

import visruntime as vr
from visruntime._runtime.interpreter import jailed_interpreter
from visruntime._worker import probe as _worker_probe
from visruntime._worker.start import sources
from visruntime.environments import find_interpreter
from visruntime.processes import TrustedStart

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

OLD = [
    path for version in ("2.7", "3.6", "3.7", "3.8", "3.9", "3.10") for path in programs(version)
]
"""Interpreters that are too old, where a version manager has some."""


def no(what: str) -> Any:
    """Return the parameter of a test that is skipped, since there is no *what*."""
    return pytest.param("", marks=pytest.mark.skip(reason=f"no {what} here"))


FACTS = """
import os, sys
[sys.version, sys.executable, sys.prefix, sys.base_prefix, sorted(os.listdir("/proc/self/fd")),
 getattr(sys, "saw", None)]
"""


def by_itself(python: str, _: Path) -> tuple[dict[str, str], str, str]:
    """Return how a runtime gets *python*, and the executable and prefix that it then has."""
    real = Path(os.path.realpath(python))
    prefix = sys.prefix if python == sys.executable else str(real.parent.parent)
    return {"python": python}, os.path.abspath(python), prefix


def by_venv(python: str, folder: Path) -> tuple[dict[str, str], str, str]:
    """The same for a venv of *python*, with a start-up file that notes what was there before."""
    packages = make_venv(python, folder / "venv")
    (packages / "early.pth").write_text("import sys; sys.saw = '_visguest.worker' in sys.modules\n")
    return {"environment": str(folder / "venv")}, f"{folder}/venv/bin/python", f"{folder}/venv"


@pytest.mark.parametrize("way", [by_itself, by_venv])
@pytest.mark.parametrize("python", INTERPRETERS)
def test_each_layout_boots_in_a_jail(
    python: str, way: Callable[[str, Path], tuple[dict[str, str], str, str]], tmp_path: Path
) -> None:
    """The hook comes before the interpreter, start-up files after the bootstrap, both proven."""
    given, executable, prefix = way(python, tmp_path.resolve())
    with vr.Runtime(vr.JailPolicy(), **given) as runtime:  # type: ignore[arg-type]
        result = runtime.run(FACTS)
        assert result.error is None, result.error.traceback
        assert runtime._worker is not None
        hello = runtime._worker.hello
        interpreter = runtime._interpreter
    version, seen, found, base, _, saw = result.value
    assert hello["hook_before_init"] is True
    assert hello["mode"] == interpreter.mode == ("P" if interpreter.library is None else "L")
    assert (version, seen, found) == (interpreter.version, executable, prefix)
    assert Path(base).resolve() == Path(interpreter.program).parent.parent
    assert saw is (True if way is by_venv else None)


@pytest.mark.parametrize("python", INTERPRETERS)
def test_each_has_packages_that_uv_installed(
    python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An environment for one interpreter is not that of another, and its bytecode fits."""
    require_uv()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    held = make_wheel(tmp_path / "wheels", "tinyb", "1.2", {"tinyb.py": "y = 2\n"})
    environment = vr.Environment.from_requirements(
        [f"tinyb==1.2 {held}"], wheelhouse=tmp_path / "wheels", python=python
    )
    with vr.Runtime(vr.JailPolicy(), environment=environment) as runtime:
        assert runtime._worker is None
        value = runtime.eval(
            "[(m := __import__('tinyb')).y,"
            " __import__('sys').implementation.cache_tag in (cached := m.__spec__.cached),"
            " __import__('os').path.exists(cached), __import__('sys').prefix]"
        )
        assert runtime._worker is not None
        assert runtime._worker.hello["hook_before_init"] is True
    assert value == [2, True, True, environment.build().folder]


@pytest.mark.parametrize("python", OLD or [no("CPython older than 3.11")], ids=str)
def test_what_is_too_old_is_named(python: Path) -> None:
    """An interpreter from before 3.11 is refused with its version, and another one is named."""
    with pytest.raises(vr.PolicyError, match=r"older than 3\.11|3\.11 is the oldest") as caught:
        vr.Runtime(vr.JailPolicy(), python=python)
    assert str(caught.value).endswith(f"; {sys.executable} can")


@pytest.fixture
def compile_program(tmp_path: Path, tool: Callable[[str], str]) -> Callable[..., Path]:
    """Return a function that makes a small program, linked as its arguments say."""
    compiler = tool("cc")

    def build(name: str, *flags: str, source: str = "int main(void) { return 0; }") -> Path:
        path = tmp_path / name
        command = [compiler, "-x", "c", "-", "-x", "none", "-o", str(path), *flags]
        subprocess.run(command, input=source.encode(), check=True)
        return path

    return build


def test_other_kinds_of_interpreters_are_named(
    compile_program: Callable[..., Path], tmp_path: Path
) -> None:
    """PyPy, musl and an interpreter without its symbols: each reason in words, and nothing runs."""
    library = "int pypy_main(void) { return 0; }"
    compile_program("libpypy3.11-c.so", "-shared", "-Wl,-soname,libpypy3.11-c.so", source=library)
    pypy = compile_program("pypy3", "-Wl,--no-as-needed", f"-L{tmp_path}", "-l:libpypy3.11-c.so")
    musl = compile_program("python3", "-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1")
    old = "int Py_Main(void) { return 0; } int main(void) { return Py_Main(); }"
    ancient = compile_program("python3.7", "-rdynamic", source=old)
    stripped = compile_program("python3.12", "-s")
    for program, reason in (
        (pypy, "it is PyPy"),
        (musl, "built for musl"),
        (ancient, r"older than 3\.8"),
        (stripped, "--enable-shared"),
    ):
        with pytest.raises(vr.PolicyError, match=reason):
            find_interpreter(program, probe=refuse_probe)


def test_each_library_that_was_tried_is_named(
    compile_program: Callable[..., Path], tmp_path: Path
) -> None:
    """Where no libpython can be used, the message has each place and what is wrong there."""
    name = "libpython3.98.so.1.0"
    compile_program(name, "-shared", f"-Wl,-soname,{name}", source="int x;")
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / name).write_text("no library at all, but a longer text than a header")
    program = compile_program(
        "python3",
        "-Wl,--no-as-needed",
        f"-L{tmp_path}",
        f"-l:{name}",
        f"-Wl,-rpath,{tmp_path}/missing:{tmp_path}/text",
    )
    (tmp_path / name).unlink()
    with pytest.raises(vr.PolicyError) as caught:
        find_interpreter(program, probe=refuse_probe)
    message = str(caught.value)
    assert f"{tmp_path}/missing/{name} (No such file or directory)" in message
    assert f"{tmp_path}/text/{name} (it is not an ELF program)" in message
    assert f"/usr/lib/{name} (No such file or directory)" in message


def libraries() -> list[tuple[str, str]]:
    """Return each interpreter that has a library, and the library."""
    found = [(path, find_interpreter(path, probe=TrustedStart.probe)) for path in INTERPRETERS]
    return [(path, one.library) for path, one in found if one.library is not None]


def test_a_library_of_another_version_is_not_run() -> None:
    """A worker with the wrong libpython must not start, and its end says which versions met."""
    found = libraries()
    if len(found) < 2:
        pytest.skip("fewer than two CPythons with a libpython here")
    (python, _), (_, other) = found[:2]
    with vr.Runtime(vr.JailPolicy(read=[other]), python=python) as runtime:
        right, runtime._interpreter.library = runtime._interpreter.library, other
        with pytest.raises(vr.WorkerDied, match="another version"):
            runtime.run("1")
        runtime._interpreter.library = right
        assert runtime.run("1").value == 1


def test_a_library_that_cannot_be_loaded_is_named(
    compile_program: Callable[..., Path], tmp_path: Path
) -> None:
    """The end of the worker has the words of the dynamic linker, or what is missing in the file."""
    found = libraries()
    if not found:
        pytest.skip("no CPython with a libpython here")
    missing = compile_program("libgone.so", "-shared", "-Wl,-soname,libgone.so", source="int x;")
    needs = compile_program(
        *("libneeds.so", "-shared", "-Wl,--no-as-needed", f"-L{tmp_path}", "-l:libgone.so"),
        source="int y;",
    )
    missing.unlink()
    empty = compile_program("libempty.so", "-shared", source="int z;")
    with vr.Runtime(vr.JailPolicy(read=[str(needs), str(empty)]), python=found[0][0]) as runtime:
        for library, reason in ((needs, "libgone.so: cannot open"), (empty, "no Py_GetVersion")):
            runtime._interpreter.library = str(library)
            with pytest.raises(vr.WorkerDied, match=reason):
                runtime.run("1")


# ---- the answer of a foreign interpreter ----


def others() -> list[str]:
    """Return the interpreters whose compiled code the host does not make itself."""
    return [
        path
        for path in INTERPRETERS
        if os.path.realpath(path) != os.path.realpath("/proc/self/exe")
    ]


@pytest.mark.parametrize("python", others() or [no("CPython but the one that runs")])
def test_another_interpreter_compiles_for_itself(
    python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers of another version get code, not source, and it is asked for once."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "visruntime").mkdir(mode=0o700)
    first = jailed_interpreter(python, None, write=())
    assert first.compiled is not None
    assert list(first.compiled) == [name for name, _ in sources()]
    assert b"def main" not in first.compiled["worker"]
    (kept,) = (tmp_path / "visruntime" / "interpreters").iterdir()

    def refuse(*_: object) -> tuple[int, bytes]:
        pytest.fail("asked again")

    again = find_interpreter(python, probe=refuse, remember=True)
    assert (again.version, again.compiled) == (first.version, first.compiled)
    # What is kept counts only whole, and only for the file that it was said of.
    for content in (b"", b"('cpython', (3, 10), 'x', True)\n", kept.read_bytes()[:20]):
        kept.write_bytes(content)
        assert jailed_interpreter(python, None, write=()).version == first.version
    with vr.Runtime(vr.JailPolicy(), python=python) as runtime:
        failed = runtime.run("def f():\n    1 / 0\nf()")
        assert failed.error is not None
        assert [frame.function for frame in failed.error.frames] == ["<module>", "f"]


def test_a_changed_interpreter_is_asked_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another file at the same path must not be taken for the one that answered."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(tmp_path / "versions"))
    (tmp_path / "cache" / "visruntime").mkdir(mode=0o700, parents=True)
    python = copy_installation(tmp_path / "versions" / "python")
    asked = []

    code = {name: b"code" for name, _ in sources()}

    def probe(argv: list[str], *_: object) -> tuple[int, bytes]:
        asked.append(argv[0])
        return 0, answer(f"3.11.{len(asked)} x", code)

    for expected in ("3.11.1 x", "3.11.1 x"):
        found = find_interpreter(python, probe=probe, remember=True)
        assert (found.version, found.compiled) == (expected, code)
    shutil.copy(python, tmp_path / "copy")
    os.replace(tmp_path / "copy", python)
    assert find_interpreter(python, probe=probe, remember=True).version == "3.11.2 x"
    assert find_interpreter(python, probe=probe).version == "3.11.3 x"
    assert len(asked) == 3


def test_nothing_is_kept_of_an_interpreter_that_guests_can_write_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it says while a guest has changed its library must not be said of the honest one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(tmp_path / "versions"))
    (tmp_path / "cache" / "visruntime").mkdir(mode=0o700, parents=True)
    asked = []

    def probe(argv: list[str], *_: object) -> tuple[int, bytes]:
        asked.append(argv[0])
        return 0, answer(f"3.11.{len(asked)} x", {name: b"code" for name, _ in sources()})

    project = copy_installation(tmp_path / "project")
    managed = copy_installation(tmp_path / "versions" / "3.11.1")
    for python, expected in ((project, 2), (managed, 1)):  # the second is the control
        asked.clear()
        for _ in range(2):
            find_interpreter(python, probe=probe, remember=True)
        assert len(asked) == expected


def test_nothing_is_kept_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A runtime must leave no trace: without the folder of environments nothing is written."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    asked = []

    def probe(argv: list[str], *_: object) -> tuple[int, bytes]:
        asked.append(argv[0])
        return 0, repr(("cpython", (3, 11), "3.11.1 x", True)).encode()

    python = copy_installation(tmp_path / "python")
    for _ in range(2):
        assert find_interpreter(python, probe=probe, remember=True).compiled is None
    assert len(asked) == 2
    assert not (tmp_path / "cache").exists()


def answer(version: str, code: dict[str, bytes]) -> bytes:
    """Return what an interpreter of *version* says that compiled *code*."""
    compiled = b"".join(b"%s %d\n" % (n.encode(), len(c)) + c for n, c in code.items())
    return repr(("cpython", (3, 11), version, True)).encode() + b"\n" + compiled


@pytest.mark.parametrize(
    "about",
    [
        b"('cpython',(-1e999,),'v',True)",
        b"('cpython',(1e999,3),'v',True)",
        b"('cpython',(True,False),'v',True)",
        b"('cpython',(2,10**5000),'v',True)",
        b"('cpython',(3,11,0),'v',True)",
        b"('cpython',{3:1,11:2},'v',True)",
        b"('cpython',(3,11),b'v',True)",
        b"('cpython',(3,11),'v',[1])",
        b"(['cpython'],(3,11),'v',True)",
        b"('cpython',(3,11),'v')",
        b"7",
        b"\xff",
        b"",
        b"()" * 2000,
        b"-" * 4000 + b"1",
        b"(" * 2000,
        b"{" * 90 + b"}" * 90,
        b"{[]}",
        b"1+1j" * 900,
        b"__import__('os')",
    ],
)
def test_what_an_interpreter_says_of_itself_is_a_claim(about: bytes) -> None:
    """Whatever it says, the host raises the one error that it then reports as a bad interpreter."""
    with pytest.raises(ValueError, match=r"of itself|version"):
        _worker_probe.Answer(0, about + b"\n")
    assert _worker_probe.Answer(0, b"('cpython',(3,11),'v',True)\n").version == "v"  # the control


def test_what_an_interpreter_compiled_is_checked() -> None:
    """It must be of the modules that it was given, whole, and not fill the memory of the host."""
    right = {name: b"code" for name, _ in sources()}
    assert _worker_probe.Answer(0, answer("3.11.1 x", right)).compiled == right
    first, *_ = right
    large = b"x" * (_worker_probe.MAX_COMPILED + 1)
    for wrong in (
        answer("3.11.1 x", right)[:-1],
        answer("3.11.1 x", {**right, "more": b"code"}),
        answer("3.11.1 x", {first: b"code"}),
        answer("3.11.1 x", {**right, first: b""}),
        answer("3.11.1 x", {**right, first: large}),
        answer("3.11.1 x", {}) + b"frames -1\nx",
        answer("3.11.1 x", {}) + b"\n",
    ):
        with pytest.raises(ValueError, match=r"cut short|something else|ended with 0|invalid"):
            _worker_probe.Answer(0, wrong)
