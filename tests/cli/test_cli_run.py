"""``visruntime run`` behaves as ``python`` does: the same output, traceback and exit code."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import visruntime as vr
from visruntime.cli.run import DRIVER, Program

if TYPE_CHECKING:
    from pathlib import Path


def drive(words: list[str]) -> tuple[int, str | None, str, str]:
    """Return exit code, missing module, stdout and stderr of *words* under the driver."""
    with vr.TrustedRuntime() as runtime:
        result = runtime.run(DRIVER, inputs=Program(words).inputs(), filename="<visruntime>")
    status, missing, *_ = result.value
    return status, missing, result.stdout_text, result.stderr_text


SCRIPTS = {
    "prints": "import sys\nprint('out', sys.argv[1:], __name__)\nprint('err', file=sys.stderr)\n",
    "raises": "def f():\n    return 1 / 0\n\nf()\n",
    "chained": "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise ValueError('x') from e\n",
    "syntax": "x = (\n",
    "exit none": "raise SystemExit\n",
    "exit code": "import sys\nsys.exit(300)\n",
    "exit text": "import sys\nsys.exit('bad')\n",
    "interrupt": "class Odd(BaseException):\n    pass\nraise Odd('x')\n",
    "atexit": "import atexit\natexit.register(print, 'bye')\nprint('hi')\n",
    "thread": "import threading, time\nthreading.Thread(target=lambda: (time.sleep(.2), print('t')))"
    ".start()\nprint('main')\n",
    "main": "import sys\nprint(sys.modules['__main__'].x if 'x' in globals() else 'none')\nx = 1\n"
    "print(sys.modules['__main__'].x, __file__.endswith('script.py'))\n",
    "hook": "import sys\nsys.excepthook = lambda *a: print('hooked', a[0].__name__)\n1 / 0\n",
    "pickle": "import pickle\nclass C:\n    pass\n"
    "print(type(pickle.loads(pickle.dumps(C()))).__name__)\n",
    "no module": "import nowhere_at_all\n",
    "coding": "# -*- coding: latin-1 -*-\nprint(len('ab'))\nraise KeyError('ké')\n",
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_runs_as_python_runs_it(
    name: str, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Output, traceback text and exit code must be those of the interpreter itself."""
    monkeypatch.chdir(workspace)
    script = workspace / "script.py"
    script.write_text(SCRIPTS[name])
    plain = subprocess.run(
        [sys.executable, str(script), "a", "-b"], capture_output=True, text=True, check=False
    )
    status, _, out, err = drive([str(script), "a", "-b"])
    assert (status, out, err) == (plain.returncode, plain.stdout, plain.stderr)


def test_code_and_modules_run_as_python_runs_them(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """-c and -m must set argv and __name__ as the interpreter does."""
    monkeypatch.chdir(workspace)
    (workspace / "data.json").write_text('{"a": 1}')
    code = "import sys; print(__name__, sys.argv); 1 / 0"
    for words in (["-c", code, "x"], ["-m", "json.tool", "data.json"]):
        plain = subprocess.run(
            [sys.executable, *words], capture_output=True, text=True, check=False
        )
        status, _, out, err = drive(words)
        assert (status, out) == (plain.returncode, plain.stdout)
        assert err.splitlines()[-1:] == plain.stderr.splitlines()[-1:]
        if sys.version_info >= (3, 13):  # since when python shows the lines of -c as well
            assert err == plain.stderr


def test_a_missing_neighbour_is_named(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver reports which module was not found, so that the grant can be said."""
    monkeypatch.chdir(workspace)
    (workspace / "script.py").write_text("import nowhere_at_all.part\n")
    status, missing, _, err = drive(["script.py"])
    assert (status, missing) == (1, "nowhere_at_all")
    assert "No module named 'nowhere_at_all'" in err


def test_the_driver_imports_nothing_that_python_does_not() -> None:
    """What tracebacks and encodings need must not be paid for by code that has neither."""
    code = "import sys; print({'linecache', 're', 'threading', 'tokenize'} & set(sys.modules))"
    plain = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert drive(["-c", code]) == (0, None, plain.stdout, "")


def test_the_command_ends_its_process_with_all_that_was_written(tmp_path: Path) -> None:
    """What is still in the buffers, and handlers of the end, must not be lost."""
    code = (
        "import atexit, sys; from visruntime.cli import command\n"
        "atexit.register(lambda: print('bye', file=sys.stderr, end=''))\n"
        "sys.argv[1:] = ['run', '-c', \"import sys; print('out' * 9999); sys.exit(7)\"]\n"
        "command()"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert (done.returncode, done.stdout, done.stderr) == (7, "out" * 9999 + "\n", "bye")


def test_a_run_imports_nothing_that_it_does_not_need(tmp_path: Path) -> None:
    """What only other policies and failures need must not be paid for by the smallest run."""
    heavy = (
        "ctypes hashlib hmac secrets random base64 bz2 lzma urllib.parse tomllib importlib.metadata "
        "argparse gettext locale re shlex subprocess typing enum signal socket selectors math array"
    )
    code = (
        "import sys; before = set(sys.modules); from visruntime.cli import main\n"
        "code = main(['run', '-c', 'pass'])\n"
        f"print(code, *({set(heavy.split())} & set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")
