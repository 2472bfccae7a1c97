"""Which interpreters can be workers, how they start, and what they may read."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from interpreters import (
    INTERPRETERS,
    copy_installation,
    interpreter,
    make_venv,
    newer_interpreter,
    refuse_probe,
)

from visruntime.elf import Program
from visruntime.environments import CORE, LOADER, _find_library, find_interpreter
from visruntime.errors import PolicyError, ProtocolViolation, WorkerDied
from visruntime.processes import TrustedStart
from visruntime.runtime import TrustedRuntime

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@pytest.mark.parametrize("minor", [12, 13])
def test_the_versions_that_have_to_be_tried_are_here(minor: int) -> None:
    """Every list of interpreters would be shorter without a word where one is missing."""
    python = interpreter(minor)
    assert python in INTERPRETERS
    shown = subprocess.run([python, "--version"], capture_output=True, text=True, check=True).stdout
    assert shown.startswith(f"Python 3.{minor}.")


@pytest.mark.parametrize("minor", [14, 15])
def test_the_newer_versions_are_tried_where_they_are_made(minor: int) -> None:
    """The same of those that only the long lanes have."""
    assert newer_interpreter(minor) in INTERPRETERS


@pytest.mark.parametrize("python", INTERPRETERS)
def test_every_cpython_starts_with_the_hook_first(python: str) -> None:
    """Each layout found here starts, hook before initialisation, and keeps its own identity."""
    with TrustedRuntime(python=python) as runtime:
        result = runtime.run(
            "import sys, os, ssl, sqlite3, json, subprocess\n"
            "{'executable': sys.executable, 'prefix': sys.prefix,"
            " 'environment': sorted(k for k in os.environ if k.startswith(('LD_', 'VISPY')))}"
        )
        assert result.error is None, result.error.traceback
        bare = subprocess.run(
            [python, "-I", "-c", "import sys; print(sys.prefix)"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert result.value["executable"] == os.path.abspath(python)
        assert result.value["prefix"] == bare.stdout.strip()
        assert result.value["environment"] == sorted(k for k in os.environ if k.startswith("LD_"))
        assert runtime._worker is not None
        assert runtime._worker.hello["hook_before_init"] is True
        assert runtime._worker.hello["mode"] == runtime._interpreter.mode


@pytest.mark.parametrize("python", INTERPRETERS)
def test_children_of_a_worker_are_ordinary(python: str) -> None:
    """A child process has neither the core preloaded nor the runtime's descriptors."""
    with TrustedRuntime(python=python) as runtime:
        result = runtime.run(
            "import subprocess, sys\nsubprocess.run([sys.executable, '-I', '-c', 'import sys, os;"
            'print("_viscore" in sys.builtin_module_names, len(os.listdir("/proc/self/fd")))\'],'
            " capture_output=True, text=True).stdout.split()"
        )
    # Three standard descriptors and the one that lists the directory.
    assert result.value == ["False", "4"]


@pytest.mark.parametrize("python", INTERPRETERS)
def test_start_up_files_of_a_venv_run_after_the_bootstrap(python: str, tmp_path: Path) -> None:
    """A ``.pth`` and a sitecustomize of an untrusted environment run, and run late."""
    site_packages = make_venv(python, tmp_path / "venv")
    (site_packages / "late.pth").write_text("import sys; sys.pth_saw = sorted(sys.modules)\n")
    (site_packages / "sitecustomize.py").write_text(
        "import sys; sys.custom_saw = sorted(sys.modules)\n"
    )
    (site_packages / "present.py").write_text("answer = 42\n")
    with TrustedRuntime(environment=tmp_path / "venv") as runtime:
        result = runtime.run(
            "import present, sys\n"
            "(present.answer, sys.prefix, sys.pth_saw, getattr(sys, 'custom_saw', None))"
        )
    assert result.error is None, result.error.traceback
    answer, prefix, pth_saw, custom_saw = result.value
    assert (answer, prefix) == (42, str(tmp_path / "venv"))
    assert "_visguest.worker" in pth_saw
    # Debian has a sitecustomize of its own, which comes first.
    library = Path(os.path.realpath(python)).parent.parent / "lib" / site_packages.parent.name
    if (library / "sitecustomize.py").exists():
        assert custom_saw is None
    else:
        assert "_visguest.worker" in custom_saw


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("import os; os._exit(3)", "exit code 3"),
        ("import sys; sys.exit(3)", "SystemExit"),
        ("import sys; raise type('E' * 999, (BaseException,), {})", "worker: EEE"),
    ],
)
def test_start_up_files_that_end_the_worker_are_named(
    tmp_path: Path, line: str, message: str
) -> None:
    """An environment whose start-up file exits is an error that says so, not a hang."""
    site_packages = make_venv(sys.executable, tmp_path / "venv")
    (site_packages / "bad.pth").write_text(line + "\n")
    with (
        TrustedRuntime(environment=tmp_path / "venv") as runtime,
        pytest.raises(WorkerDied, match=message),
    ):
        runtime.run("1")


@pytest.mark.parametrize("error", ["10**5000", "'x' * 201", "['E']", "False"])
def test_a_forged_word_on_the_start_breaks_the_protocol(tmp_path: Path, error: str) -> None:
    """What start-up files send in place of their end is checked before anything shows it."""
    site_packages = make_venv(sys.executable, tmp_path / "venv")
    (site_packages / "bad.pth").write_text(
        "import _viscore as c; from _visguest.frames import RESULT; "
        f"c.send(RESULT, c.encode({{'id': 0, 'error': {error}}})); c.receive()\n"
    )
    with (
        TrustedRuntime(environment=tmp_path / "venv") as runtime,
        pytest.raises(ProtocolViolation, match="word on its start"),
    ):
        runtime.run("1")


def test_other_preloaded_libraries_stay(tool: Callable[[str], str], tmp_path: Path) -> None:
    """LD_PRELOAD of the caller is as it was, in the worker and in its children."""
    library = str(tmp_path / "libmore.so")
    # Without any library of its own, since an interpreter may have brought a newer C library.
    command = [tool("cc"), "-x", "c", "-", "-shared", "-fPIC", "-nostdlib", "-o", library]
    subprocess.run(command, input=b"int more;", check=True)
    for python in INTERPRETERS:
        with TrustedRuntime(
            python=python, env={"LD_PRELOAD": library, "PATH": os.defpath}
        ) as runtime:
            found = runtime.run(
                f"import os; [os.environ['LD_PRELOAD'], {library!r} in open('/proc/self/maps').read()]"
            )
            assert found.value == [library, True]


# ---- refusals ----


def elf_without_loader(path: Path) -> None:
    """Write the header of a static ELF program for this machine."""
    machine = {"x86_64": 62, "aarch64": 183}[os.uname().machine]
    header = bytearray(64)
    header[:7] = b"\x7fELF\x02\x01\x01"
    header[16:20] = (2).to_bytes(2, "little") + machine.to_bytes(2, "little")
    path.write_bytes(header)


def test_programs_that_cannot_be_workers_are_refused_with_the_reason(tmp_path: Path) -> None:
    """Scripts, foreign files, static and other programs: the reason, and nothing is run."""
    script = tmp_path / "shim"
    script.write_text("#!/bin/sh\ntouch ran\n")
    text = tmp_path / "text"
    text.write_text("x" * 100)
    static = tmp_path / "static"
    elf_without_loader(static)
    foreign = tmp_path / "foreign"
    foreign.write_bytes(static.read_bytes()[:18] + b"\x08\x00" + static.read_bytes()[20:])
    cases = {
        script: "it is a script",
        text: "not an ELF program",
        static: "statically linked",
        foreign: "another processor",
        Path("/bin/sh"): "neither uses a libpython nor exports",
    }
    for path, reason in cases.items():
        if path.parent == tmp_path:
            path.chmod(0o755)
        with pytest.raises(PolicyError, match=reason) as caught:
            find_interpreter(path, probe=refuse_probe)
        assert caught.value.field == "python"
    with pytest.raises(PolicyError, match="not an executable file"):
        find_interpreter(tmp_path / "missing", probe=refuse_probe)
    with pytest.raises(PolicyError, match="not both"):
        find_interpreter(sys.executable, environment=tmp_path, probe=refuse_probe)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((0, b"('pypy', (3, 11), '3.11', True)"), "only CPython"),
        ((0, b"('cpython', (3, 10), '3.10', True)"), "older than 3.11"),
        ((0, b"('cpython', (3, 13), '3.13', False)"), "free-threaded"),
        ((0, b"__import__('os').system('touch ran')"), "cannot be a worker"),
        ((0, b"(1,"), "cannot be a worker"),
        ((0, b"('cpython', (3, 13), 5, True)"), "not the agreed shape"),
        ((0, b"(" * 4000), "cannot be a worker"),
        ((0, b"'" + b"x" * 5000), "cannot be a worker"),
        ((139, b""), "ended with 139"),
    ],
)
def test_answers_of_a_probed_interpreter_are_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: tuple[int, bytes], reason: str
) -> None:
    """What a foreign interpreter says is parsed, never evaluated, and can only lead to a refusal."""
    monkeypatch.chdir(tmp_path)
    prefix = tmp_path / "python"
    (prefix / "bin").mkdir(parents=True)
    program = Path(shutil.copy2(os.path.realpath(sys.executable), prefix / "bin"))
    library = sysconfig.get_config_var("INSTSONAME")
    if (Path(sys.base_prefix) / "lib" / library).exists():
        (prefix / "lib").mkdir()
        (prefix / "lib" / library).symlink_to(Path(sys.base_prefix) / "lib" / library)
    with pytest.raises(PolicyError, match=reason):
        find_interpreter(program, probe=lambda *_: answer)
    assert not (tmp_path / "ran").exists()


def find_libpython() -> str:
    """Return a libpython of any interpreter found here, or of the system.

    Where CPythons of several builds are installed for root, one must be there.
    """
    found = [find_interpreter(python, probe=TrustedStart.probe) for python in INTERPRETERS]
    libraries = [one.library for one in found if one.library is not None]
    # A distribution's program contains its interpreter, but often has the library beside it.
    for folder in (f"/usr/lib/{os.uname().machine}-linux-gnu", "/usr/lib64", "/usr/local/lib"):
        libraries += [str(path.resolve()) for path in Path(folder).glob("libpython3.1?.so*")]
    if libraries:
        return libraries[0]
    missing = "no libpython3.1x.so: no --enable-shared CPython and no libpython3 package here"
    if os.geteuid() == 0 and os.environ.get("VIS_REQUIRE_TOOLS") == "1":
        pytest.fail(f"{missing}, and VIS_REQUIRE_TOOLS=1 asks for one")
    pytest.skip(missing)


def test_a_libpython_of_another_version_is_refused() -> None:
    """The loader compares Py_GetVersion with what was found, and says both."""
    library = find_libpython()
    done = subprocess.run(
        [
            LOADER,
            "--channel",
            "3",
            "--control",
            "4",
            "--core",
            CORE,
            "--name",
            sys.executable,
            "--library",
            library,
            "--expect",
            "2.7",
            "--",
            "-c",
            "print('ran')",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 121
    assert "another version" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--channel", "3"],
        [
            "--channel",
            "0",
            "--control",
            "4",
            "--core",
            CORE,
            "--name",
            "p",
            "--executable",
            "p",
            "--",
        ],
        ["--channel", "3", "--control", "4", "--core", CORE, "--name", "p", "--executable", "p"],
        ["--channel", "3", "--control", "4", "--core", CORE, "--name", "p", "--"],
        ["--bogus", "3", "--"],
    ],
)
def test_the_loader_refuses_wrong_arguments(arguments: list[str]) -> None:
    """Missing, unknown and contradicting options end it with 120 and its usage."""
    done = subprocess.run([LOADER, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 120
    assert "usage" in done.stderr


def test_the_loader_refuses_descriptors_that_are_not_the_hosts() -> None:
    """Without the host's two sockets no guest code runs: a worker cannot start by itself."""
    interpreter = find_interpreter(probe=refuse_probe)
    how = (
        ["--library", interpreter.library, "--expect", interpreter.version]
        if interpreter.library is not None
        else ["--executable", interpreter.program]
    )
    with open("/dev/null") as null:
        number = str(null.fileno())
        done = subprocess.run(
            [
                LOADER,
                "--channel",
                number,
                "--control",
                number,
                "--core",
                CORE,
                "--name",
                sys.executable,
                *how,
                "--",
                "-c",
                "print('ran')",
            ],
            capture_output=True,
            text=True,
            check=False,
            pass_fds=(null.fileno(),),
        )
    assert done.returncode == 121
    assert "not the socket of the host" in done.stderr
    assert done.stdout == ""


# ---- grants ----


def test_grants_come_from_the_places_of_real_files(tmp_path: Path) -> None:
    """The host's interpreter needs its installation, the venv and the worker's two files."""
    make_venv(sys.executable, tmp_path / "venv")
    interpreter = find_interpreter(environment=tmp_path / "venv", probe=refuse_probe)
    paths = [path for path, _ in interpreter.grants]
    assert {LOADER, CORE, str(tmp_path / "venv" / "lib")} <= set(paths)
    assert str(tmp_path / "venv") not in paths  # the folder may be a project
    assert all(os.path.isabs(path) and os.path.realpath(path) == path for path in paths)
    allowed = (os.path.realpath(sys.base_prefix), str(tmp_path / "venv"), LOADER, CORE)
    assert all(path.startswith((*allowed, "/usr")) or "libpython" in path for path in paths)


def test_an_interpreter_inside_a_write_grant_is_refused(tmp_path: Path) -> None:
    """A guest may have replaced it, so it leads to no grant and no start."""
    shutil.copy(os.path.realpath(sys.executable), tmp_path / "python3")
    with pytest.raises(PolicyError, match="inside the write grant"):
        find_interpreter(tmp_path / "python3", write=[str(tmp_path)], probe=refuse_probe)


def test_a_venv_inside_a_write_grant_widens_nothing(tmp_path: Path) -> None:
    """Its pyvenv.cfg and links were writable for a guest: what they say grants nothing."""
    secret = tmp_path / "secret"
    secret.mkdir()
    project = tmp_path / "project"
    project.mkdir()
    make_venv(sys.executable, project / "venv")
    (project / "venv" / "pyvenv.cfg").write_text(f"home = {secret}\n")
    trusted = find_interpreter(environment=project / "venv", probe=refuse_probe)
    assert str(project / "venv" / "pyvenv.cfg") in [path for path, _ in trusted.grants]
    written = find_interpreter(
        environment=project / "venv", write=[str(project)], probe=refuse_probe
    )
    paths = [path for path, _ in written.grants]
    assert not any(path.startswith(str(tmp_path)) for path in paths)


VERSION_ANSWER = repr(("cpython", sys.version_info[:2], sys.version, True)).encode()


def test_a_link_to_an_environment_grants_nothing(tmp_path: Path) -> None:
    """A guest that turned the environment into a link to a folder must not get that folder."""
    project, secret = tmp_path / "project", tmp_path / "secret"
    project.mkdir()
    (secret / "bin").mkdir(parents=True)
    (secret / "pyvenv.cfg").touch()
    (secret / "bin" / "python").symlink_to(os.path.realpath(sys.executable))
    (project / ".venv").symlink_to(secret)
    (tmp_path / "alias").symlink_to(project / ".venv")
    real = find_interpreter(environment=secret, probe=refuse_probe)
    assert (str(secret / "pyvenv.cfg"), "Python environment") in real.grants
    for environment in (project / ".venv", tmp_path / "alias"):
        with pytest.raises(PolicyError, match=f"name {secret}/bin/python if you mean that"):
            find_interpreter(environment=environment, probe=refuse_probe)
    written = find_interpreter(
        environment=project / ".venv", write=[str(project)], probe=refuse_probe
    )
    assert not any(path.startswith(str(tmp_path)) for path, _ in written.grants)


def test_a_link_chooses_no_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another installation behind a link is refused; the host's own and an installed one are not.

    Also without a write grant in this policy: an earlier guest may have had one.
    """
    project = tmp_path / "project"
    (project / ".venv" / "bin").mkdir(parents=True)
    python = project / ".venv" / "bin" / "python"
    other = copy_installation(tmp_path / "other")
    python.symlink_to(other)
    (tmp_path / "alias").symlink_to(project)
    asked: list[str] = []

    def probe(argv: list[str], _: Sequence[tuple[str, str]], data: bytes) -> tuple[int, bytes]:
        asked.append(argv[0])
        return 0, VERSION_ANSWER

    trusted = find_interpreter(other, probe=probe)
    assert str(tmp_path / "other") in [path for path, _ in trusted.grants]
    assert asked == [str(other)]
    for write in ([], [str(project)], [str(tmp_path / "alias")]):
        for name in (python, tmp_path / "alias" / ".venv" / "bin" / "python"):
            with pytest.raises(PolicyError, match="may have chosen it"):
                find_interpreter(name, write=write, probe=probe)
    assert asked == [str(other)]
    with monkeypatch.context() as managers:
        managers.setenv("UV_PYTHON_INSTALL_DIR", str(tmp_path))
        managed = find_interpreter(python, write=[str(project)], probe=probe)
        assert managed.program == str(other)
    python.unlink()
    python.symlink_to(os.path.realpath(sys.executable))
    own = find_interpreter(python, write=[str(project)], probe=refuse_probe)
    assert own.program == os.path.realpath(sys.executable)


def test_the_hosts_own_name_is_trusted_only_for_what_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When a guest has changed the link that started the host, its new target is refused."""
    python = tmp_path / "python"
    python.symlink_to(copy_installation(tmp_path.parent / f"{tmp_path.name}-other"))
    monkeypatch.setattr(sys, "executable", str(python))
    for write in ([], [str(tmp_path)]):
        with pytest.raises(PolicyError, match="may have chosen it"):
            find_interpreter(write=write, probe=refuse_probe)
    python.unlink()
    python.symlink_to(os.path.realpath("/proc/self/exe"))
    assert find_interpreter(probe=refuse_probe).name == str(python)


def test_the_name_of_a_library_is_no_path() -> None:
    """A program must not send the search for its library anywhere."""
    elf = Program(os.path.realpath("/proc/self/exe"))
    elf.needed = ["libpython3.11.so/../../etc/passwd"]
    with pytest.raises(ValueError, match="is a path"):
        _find_library(elf, [])


def test_a_library_inside_a_write_grant_is_refused(tmp_path: Path) -> None:
    """A libpython that a guest may have replaced, or whose link it may have, is not loaded."""
    library = Path("/proc/self/exe").resolve()  # any ELF file will do
    (tmp_path / "lib").mkdir()
    shutil.copy(library, tmp_path / "lib" / "libpython3.99.so")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "libpython3.99.so").symlink_to(tmp_path / "lib" / "libpython3.99.so")
    elf = Program(str(library))
    elf.needed = ["libpython3.99.so"]
    for place in ("lib", "links"):
        elf.search = [str(tmp_path / place)]
        if place == "lib":
            found = _find_library(elf, [])
            assert found == str(tmp_path / "lib" / "libpython3.99.so")
        else:
            with pytest.raises(ValueError, match="may have replaced it"):
                _find_library(elf, [])
        with pytest.raises(ValueError, match="may have replaced it"):
            _find_library(elf, [str(tmp_path / place)])


def test_a_python_in_a_home_directory_does_not_grant_the_home(tmp_path: Path) -> None:
    """The prefix of a program in ``~/bin`` is the home directory, and that is not granted."""
    home = tmp_path / "home"
    (home / "bin").mkdir(parents=True)
    (home / "lib" / "python3.11").mkdir(parents=True)
    (home / "lib" / "python3.11" / "os.py").touch()
    (home / "diary.txt").write_text("private")
    name = os.path.realpath(sys.executable)
    (home / "bin" / "python3").write_bytes(Path(name).read_bytes())
    (home / "bin" / "python3").chmod(0o755)
    library = sysconfig.get_config_var("INSTSONAME")
    source = Path(sys.base_prefix) / "lib" / library
    if source.exists():
        (home / "lib" / library).symlink_to(source)
    version = repr(("cpython", sys.version_info[:2], sys.version, True)).encode()
    interpreter = find_interpreter(home / "bin" / "python3", probe=lambda *_: (0, version))
    paths = [path for path, _ in interpreter.grants]
    assert str(home / "lib" / "python3.11") in paths
    assert str(home) not in paths
