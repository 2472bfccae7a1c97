"""`WindowsJail` where it cannot be: every use is refused with a reason, and nothing is made."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import visruntime as vr
from visruntime.windows import WindowsStaged, _load

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="tests/windows/test_here.py is for it"
)
PACKAGE = Path(vr.__file__).parent


@pytest.mark.parametrize(
    "use", [vr.WindowsJail, vr.WindowsJail.remove_stale], ids=["create", "remove_stale"]
)
def test_off_windows_every_use_is_refused(use: Callable[..., Any], workspace: Path) -> None:
    """W1: no folder may be made where nothing could hold its guest."""
    with pytest.raises(
        vr.JailUnavailable, match=r"needs Windows, and this is linux.*Jail\(policy\)"
    ):
        use(workspace)
    with pytest.raises(vr.JailUnavailable) as caught:
        use(str(workspace))
    assert (caught.value.reason, caught.value.stage) == ("platform", "platform")
    assert list(workspace.iterdir()) == []


def test_a_windows_jail_is_made_of_no_policy() -> None:
    """W2: no policy may become a WindowsJail; each of its fields is refused by name."""
    policy = vr.JailPolicy(read=["/data"], egress=vr.Egress.OPEN)
    with pytest.raises(vr.PolicyUnsupported, match=r"egress: .*read: .*private copies") as caught:
        vr.WindowsJail(policy)  # type: ignore[arg-type]
    assert caught.value.field == "egress"
    with pytest.raises(vr.PolicyUnsupported, match="system: "):
        vr.WindowsJail(vr.JailPolicy())  # type: ignore[arg-type]


def test_a_build_without_the_library_is_refused() -> None:
    """W67: a Windows without the native part may open nothing, and says what is missing."""
    with pytest.raises(vr.JailUnavailable, match="native library") as caught:
        _load("win32")  # this build's library is that of Linux
    assert caught.value.reason == "library"


def test_wrong_limits_are_refused_by_name() -> None:
    """No limit may be taken that a job could not hold."""
    wrong: tuple[tuple[dict[str, Any], type[Exception]], ...] = (
        ({"processes": 0}, ValueError),
        ({"processes": "x"}, TypeError),
        ({"memory": -1}, ValueError),
        ({"memory": 4095}, ValueError),
        ({"process_memory": 1}, ValueError),
        ({"process_memory": True}, TypeError),
        ({"cpu_share": 0}, vr.PolicyError),
        ({"cpu_share": 1.5}, vr.PolicyError),
        ({"cpu_share": float("nan")}, vr.PolicyError),
        ({"cpu_share": "x"}, vr.PolicyError),
    )
    for values, error in wrong:
        with pytest.raises(error, match=next(iter(values))):
            vr.WindowsLimits(**values)
    assert vr.WindowsLimits(cpu_share=0.25).cpu_rate == 2500
    assert vr.WindowsLimits(cpu_share=0.0001).cpu_rate == 1
    assert vr.WindowsLimits().cpu_rate == 0
    assert WindowsStaged(1, 2, 3) == WindowsStaged(1, 2, 3)


# What a Python on Windows does not have, nor a build for it.
ABSENT = "fcntl grp pwd resource termios pty visruntime._visjail visruntime._viscore".split()
BEGIN = f"""
import sys, os
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in {ABSENT!r}:
            raise ImportError(f"no {{name}} on Windows")
sys.meta_path.insert(0, Absent())
sys.platform = "win32"
for name in ("O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK", "O_DIRECTORY", "geteuid", "getuid", "fork"):
    delattr(os, name)
"""
ON_WINDOWS = f"""{BEGIN}
import visruntime as vr
def reason(make):
    try:
        make()
    except vr.JailUnavailable as error:
        return error.reason
print(reason(lambda: vr.WindowsJail("C:\\\\x")), vr.WindowsLimits(), vr.WindowsProcess.__name__)
print(vr.doctor())
policy = vr.JailPolicy(egress=vr.Egress.OPEN, limits=vr.Limits(processes=4))
try: vr.WindowsJail(policy)
except vr.PolicyUnsupported as error: print(error.field)
print([name for name in vr.__all__ if getattr(vr, name).__name__ != name])
for name in ("Jail", "Runtime", "RuntimePool", "JailExecutor"):
    print(name, reason(lambda: getattr(vr, name)(policy)), getattr(vr, name).__name__)
"""


def test_a_python_of_windows_can_import_what_it_needs() -> None:
    """W1: no import of what only Linux has may keep a Windows from being told why there is no jail."""
    done = subprocess.run(
        [sys.executable, "-c", ON_WINDOWS], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    first, *others = done.stdout.splitlines()
    assert first.startswith("library WindowsLimits(")
    assert "native library of WindowsJail is not there" in done.stdout
    assert others[-6:-4] == ["egress", "[]"]
    assert others[-4:] == [
        f"{name} platform {name}" for name in ("Jail", "Runtime", "RuntimePool", "JailExecutor")
    ]


def command_line(*words: str) -> tuple[int, str, str]:
    """Run the command line as on Windows; return its exit code, stdout and stderr."""
    code = f"{BEGIN}\nfrom visruntime.cli import main\nsys.exit(main({list(words)!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def test_the_command_line_refuses_in_one_line() -> None:
    """W1: no sub-command may run anything on Windows, nor end in a traceback instead of a refusal."""
    for words in (
        ("exec", "--", "true"),
        ("run", "-c", "1"),
        ("shell",),
        ("doctor", "--html", "x"),
    ):
        code, output, said = command_line(*words)
        assert (code, output) == (125, ""), (words, said)
        assert said.count("\n") == 1
        assert "no JailPolicy can be enforced on windows" in said
    code, output, said = command_line("doctor")
    assert (code, said) == (1, "")
    assert "native library of WindowsJail is not there" in output
    code, output, said = command_line("doctor", "--json")
    assert (code, said) == (1, "")
    assert json.loads(output)["backend"] == "none"
    assert command_line("--version")[0] == 0


def test_importing_it_costs_next_to_nothing() -> None:
    """No class of Windows may make ``import visruntime`` dearer, or load C before a jail is made."""
    code = (
        "import sys, visruntime; before = set(sys.modules); visruntime.WindowsJail; "
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert "visruntime.windows" in loaded
    assert not {"visruntime._visjail", "visruntime._native", "io", "cffi"} & set(loaded)


def sources() -> list[Path]:
    """Return the files that decide whether and how a guest is held, in both languages."""
    python = [
        PACKAGE / "windows.py",
        PACKAGE / "_native/windows.py",
        *PACKAGE.glob("_windows/*.py"),
    ]
    python += [PACKAGE / "_policy/platforms.py", PACKAGE / "_jail/open.py"]
    native = Path(__file__).parent.parent.parent / "native/visjail"
    return [*python, *native.glob("windows_*.[ch]"), native / "sha256.c"]


def reads_of_surroundings(path: Path) -> list[str]:
    """Return what in *path* asks the environment of the host."""
    text = path.read_text("utf-8")
    if path.suffix != ".py":
        words = r"\b(getenv|environ|GetEnvironmentVariable[AW]?|GetEnvironmentStrings[AW]?)\b"
        code = "\n".join(line.partition("//")[0] for line in text.splitlines())
        return re.findall(words, code)
    return [
        node.attr
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute) and node.attr in ("environ", "environb", "getenv")
    ]


def test_nothing_around_the_host_switches_the_jail_off(tmp_path: Path) -> None:
    """W3: no file that decides about the jail may look at the host's environment or at a marker."""
    files = sources()
    assert len(files) > 15
    for path in files:
        assert reads_of_surroundings(path) == [], path
    # The scan sees what it is there for.
    seen = tmp_path / "x.py"
    seen.write_text("import os\nif os.environ.get('OFF'): pass\n")
    assert reads_of_surroundings(seen) == ["environ"]
    other = tmp_path / "x.c"
    other.write_text('if (getenv("OFF")) return 0; // environ\n')
    assert reads_of_surroundings(other) == ["getenv"]


def test_a_poisoned_environment_changes_nothing(workspace: Path) -> None:
    """W3: no variable, and no sandbox that one claims, may let a WindowsJail open or a policy pass."""
    code = (
        "import visruntime as vr\n"
        "try: vr.WindowsJail('C:\\\\x')\n"
        "except vr.JailUnavailable as error: print(error.reason)"
    )
    names = ("VISRUNTIME_JAIL", "VIS_SANDBOX", "SANDBOX", "APP_SANDBOX_CONTAINER_ID", "container")
    environment = {**os.environ, **dict.fromkeys(names, "off")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
        cwd=workspace,
    )
    assert done.stdout.split() == ["platform"]
