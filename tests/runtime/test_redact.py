"""A Secret that a guest prints is not in the errors, reports and progress that people read."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest
from packages_helpers import make_source, require_uv

import visruntime as vr
from visruntime._policy.redact import redact, shown
from visruntime._worker.output import Capture

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Any

pytestmark = pytest.mark.one_uid

TEXT = "very-secret-0123456789-abcdefghij"
WRITE = "import os; os.write(2, os.environ['TOKEN'].encode()); os._exit(3)"
LATER = f"""
import threading, time
def end():
    time.sleep(0.1)
    {WRITE}
threading.Thread(target=end, daemon=True).start()
"""
NAMED = "raise type('E' * 100 + os.environ['TOKEN'], (BaseException,), {})"
POLICY = vr.JailPolicy(env={"TOKEN": vr.Secret(TEXT)})


def everything(problem: vr.WorkerDied) -> str:
    """Return all that is said of the end of a worker."""
    assert problem.report is not None
    report = problem.report
    return "\n".join([str(problem), repr(problem), str(report), repr(report.to_dict())])


def check(problem: vr.WorkerDied) -> None:
    """Check that the end of the guest's output is told, without the secret."""
    said = everything(problem)
    assert "***" in said
    for start in range(len(TEXT) - 8):
        assert TEXT[start : start + 8] not in said


def run_everything(result: vr.RunResult) -> str:
    """Return all that is said of a run, but what the guest wrote by itself."""
    error = result.error
    said = [repr(result), repr(result.violations), repr(result.denials), repr(result.trips)]
    said += [repr([violation.to_dict() for violation in result.violations])]
    said += [repr([denial.to_dict() for denial in result.denials])]
    if error is not None:
        said += [error.traceback, repr(error), repr(error.path), repr(error.explanation)]
        said += [repr(error.frames), repr([frame.source for frame in error.frames])]
        said += [str(error.to_exception(result)), error.type_name, *error.notes]
    return "\n".join(map(str, said))


RUNS = (
    "raise ValueError(TOKEN)",
    "problem = KeyError(1); problem.add_note(TOKEN); raise problem",
    "try: raise ValueError(TOKEN)\nexcept ValueError as cause: raise KeyError(1) from cause",
    "open('/nowhere/' + TOKEN)",
    "open('/root/' + TOKEN + '/x', 'w')",
    "__import__(TOKEN.replace('-', '_') + '-')",
    "exec(compile('def f():\\n  1/0\\nf()', TOKEN, 'exec'))",
    "raise type(TOKEN, (Exception,), {})",
)


def test_what_a_guest_puts_into_an_error() -> None:
    """It is not in errors, violations, denials and explanations, whose policy it may be of."""
    for options in ({"policy": POLICY}, {"policy": vr.JailPolicy(), "env": POLICY.env}):
        seen = []
        with vr.Runtime(**options) as runtime:
            runtime.exec("import os; TOKEN = os.environ['TOKEN']")
            for code in RUNS:
                result = runtime.run(code)
                assert result.error is not None, code
                said = run_everything(result)
                assert TEXT not in said, code
                seen.append(said)
            # The controls: each was about it, and what a guest writes by itself is the guest's.
            assert sum("***" in said for said in seen) >= len(RUNS) - 1
            result = runtime.run("print(TOKEN)\nTOKEN")
            assert (result.value, result.stdout_text) == (TEXT, TEXT + "\n")
        assert any("violation" in said.lower() and "/nowhere/***" in said for said in seen)


def test_the_path_decides_before_it_is_redacted(tmp_path: Path) -> None:
    """What the policy says is said of the real path; no grant is advised for a hidden one."""
    denied = tmp_path / TEXT
    denied.mkdir()
    policy = vr.JailPolicy(read=[tmp_path], deny=[denied], env={"TOKEN": vr.Secret(TEXT)})
    with vr.Runtime(policy) as runtime:
        code = f"import os; open('{tmp_path}/' + os.environ['TOKEN'] + '/x')"
        (violation,) = runtime.run(code).violations
    assert violation.rule == "deny[0]"
    assert violation.target == f"{tmp_path}/***/x"
    assert violation.grant is None


def test_a_path_that_a_setting_adds_to() -> None:
    """PYTHONPATH has one folder more with ``tls_strict=False``, and is a secret as before."""
    options: dict[str, Any] = {"env": {"PYTHONPATH": vr.Secret(f"/{TEXT}")}, "tls_strict": False}
    with vr.Runtime(vr.JailPolicy(), **options) as runtime, pytest.raises(vr.WorkerDied) as caught:
        runtime.run("import os; os.write(2, os.environ['PYTHONPATH'].encode()); os._exit(3)")
    check(caught.value)


def test_stacks_of_a_run_that_was_stopped() -> None:
    """The name of the code that runs is one more place."""
    code = "import os; eval(compile('max(iter(int, 1))', os.environ['TOKEN'], 'eval'))"
    with vr.Runtime(POLICY) as runtime:
        with pytest.raises(vr.CommandTimeout) as caught:
            runtime.run(code, timeout=vr.Timeouts(wall=0.2, grace=0.6))
        stop = caught.value.result.stop
        assert TEXT not in stop.stacks
        assert "***" in stop.stacks


def test_what_a_program_says_of_a_path() -> None:
    """Violations that are guessed from stderr are the host's words, which stderr is not."""
    command = ["sh", "-c", 'cat "/nowhere/$TOKEN"']
    plain = vr.JailPolicy()
    for policy, env in ((POLICY, None), (plain, {"TOKEN": vr.Secret(TEXT)})):
        with vr.Jail(policy) as jail:
            result = jail.run(command, env=env)
            assert TEXT in result.stderr_text
            assert [violation.target for violation in result.violations] == ["/nowhere/***"]
            assert TEXT not in repr(result.violations)


def test_the_log_of_an_executor_that_broke(caplog: pytest.LogCaptureFixture) -> None:
    """It names the error without the secret, and opens no file to show source."""
    executor = vr.JailExecutor(POLICY, 1, initializer="os:getenv", initargs=("TOKEN", "x", 1))
    with executor, pytest.raises(vr.JailExecutorBroken):
        executor.submit("os:getcwd").result()
    assert "could not be made ready" in caplog.text
    assert all(record.exc_info is None for record in caplog.records)

    def initialize() -> None:
        import os

        raise ValueError(os.environ["TOKEN"])

    executor = vr.JailExecutor(POLICY, 1, initializer=initialize)
    with executor, pytest.raises(vr.JailExecutorBroken, match=r"\*\*\*"):
        executor.submit("os:getcwd").result()
    assert "ValueError: ***" in caplog.text
    assert TEXT not in caplog.text


def test_the_report_and_the_hints_of_a_command(tmp_path: Path) -> None:
    """``--report`` and the lines of ``visruntime:`` show no secret that a script puts into a path."""
    report = tmp_path / "report.json"
    script = tmp_path / "script.py"
    script.write_text("import os\nopen('/nowhere/' + os.environ['API_TOKEN'])\n")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "visruntime", "run", "--env", "API_TOKEN"),
            *("--report", str(report), str(script)),
        ],
        env={**os.environ, "API_TOKEN": TEXT},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1, done.stderr
    ours = [line for line in done.stderr.splitlines() if line.startswith("visruntime:")]
    assert any("/nowhere/***" in line for line in ours), done.stderr
    assert TEXT not in "".join(ours)
    assert TEXT not in report.read_text()
    assert "/nowhere/***" in report.read_text()


def test_texts_without_secrets() -> None:
    """The longer one goes first, and escaped forms are known, as is what is no UTF-8."""
    assert redact("a tokenlonger token", ["token", "tokenlonger", ""]) == "a *** ***"
    assert redact(repr("a\nb\xe9"), ["a\nb\xe9"]) == "'***'"
    assert redact(ascii("a\nb\xe9"), ["a\nb\xe9"]) == "'***'"
    for said in (repr, ascii):  # one quote, the other, or both around it
        for around in ("", '"', "'", "'\""):
            assert redact(said(f"{around}a'\xe9b{around}"), ["a'\xe9b"]).count("***") == 1
    assert shown(b"x\x1b a\xffb", ["a\udcffb"]) == "x\ufffd ***"


def test_a_secret_as_python_escapes_its_bytes() -> None:
    """The bytes of a secret that is not ASCII are not shown as Python writes bytes."""
    for secret in ("pässwörd", "tökén'quoted", "line\nö"):
        for shape in (secret.encode(), [secret.encode()], {"a": secret.encode() + b'"'}):
            shown_text = redact(f"Invalid header value {shape!r}", (secret,))
            assert "***" in shown_text
            assert "\\x" not in shown_text


def test_a_secret_that_a_worker_cuts() -> None:
    """What is left of it where a long message ends is not shown either."""
    assert redact(f"x{TEXT[:-1]}... (1 more characters)", (TEXT,)) == "x***... (1 more characters)"
    assert redact("x... (1 more characters)", (TEXT,)) == "x... (1 more characters)"
    assert redact(f"{TEXT[:9]} and", (TEXT,)) == f"{TEXT[:9]} and"  # the control
    code = "import os\nraise ValueError('x' * 16364 + os.environ['TOKEN'])"
    with vr.Runtime(POLICY) as runtime:
        error = runtime.run(code).error
    assert error is not None
    assert error.message.endswith("x***... (13 more characters)")


def test_a_secret_that_the_limit_of_output_cuts() -> None:
    """Its halves beside what was left out are not shown either."""
    for ahead in range(46, 51):  # of which 50 bytes are kept
        output = b"a" * ahead + TEXT.encode() * 2 + b"b" * 45
        capture = Capture(100)
        capture.add(output)
        said = shown(capture.take(), [TEXT], capture.seam)
        assert said.startswith("a" * ahead)
        assert said.endswith("b" * 45)
        assert TEXT[:3] not in said
        assert TEXT[-3:] not in said
    policy = vr.JailPolicy(env={"TOKEN": vr.Secret(TEXT)}, limits=vr.Limits(output=200))
    with vr.Runtime(policy) as runtime, pytest.raises(vr.WorkerDied) as caught:
        runtime.run(
            "import os; os.write(2, b'a' * 80 + os.environ['TOKEN'].encode() * 9); os._exit(3)"
        )
    check(caught.value)


@pytest.mark.parametrize("options", [{}, {"env": {"TOKEN": vr.Secret(TEXT)}}])
def test_an_end_during_a_run(options: dict[str, Any]) -> None:
    """Neither that of the policy nor that of the runtime is shown, nor the rest of one."""
    with vr.Runtime(vr.JailPolicy() if options else POLICY, **options) as runtime:
        with pytest.raises(vr.WorkerDied) as caught:
            runtime.run(WRITE)
        check(caught.value)
        # All but its first character is within what a report keeps.
        with pytest.raises(vr.WorkerDied) as caught:
            runtime.run(
                "import os; os.write(2, os.environ['TOKEN'].encode().ljust(4001, b'x')); os._exit(3)"
            )
        check(caught.value)


def test_an_end_between_two_runs() -> None:
    """The next call learns of it, and shows nothing either."""
    with vr.Runtime(POLICY) as runtime:
        for call in (lambda: runtime.run("1"), lambda: runtime.expose("name", print)):
            runtime.run(LATER)
            time.sleep(0.4)
            with pytest.raises(vr.WorkerDied) as caught:
                call()
            check(caught.value)


@pytest.mark.parametrize("code", [WRITE, NAMED])
def test_an_end_at_the_start(tmp_path: Path, code: str) -> None:
    """What start-up files of an environment print is part of the message."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "e"], check=True)
    (packages,) = (tmp_path / "e" / "lib").glob("python3.*/site-packages")
    (packages / "start.pth").write_text(f"import os; exec({code!r})\n")
    with (
        vr.Runtime(POLICY, environment=tmp_path / "e") as runtime,
        pytest.raises(vr.WorkerDied) as caught,
    ):
        runtime.run("1")
    said = str(caught.value) + str(caught.value.report)
    assert "***" in said
    assert TEXT not in said


def test_an_end_of_a_copy() -> None:
    """A copy of a worker knows the secrets of the first."""
    with vr.Runtime(POLICY, preload=["json"]) as runtime:
        with pytest.raises(vr.WorkerDied) as caught:
            runtime.run(WRITE)
        check(caught.value)


@pytest.fixture
def index() -> Iterator[str]:
    """Return the address of an index that has nothing."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Nothing)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_address[1]}/simple"
    server.shutdown()
    thread.join()
    server.server_close()


class Nothing(BaseHTTPRequestHandler):
    """An index without packages."""

    def do_GET(self) -> None:
        """Find nothing."""
        self.send_error(404)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_a_build_that_fails(tmp_path: Path, index: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the index with its password nor a proxy is in what a build says."""
    require_uv()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("ALL_PROXY", f"http://someone:{TEXT}@127.0.0.1:9")
    held = make_source(
        tmp_path / "wheels",
        "loud",
        "1.0",
        "import os, sys\nfor text in (os.environ['all_proxy'], "
        f"'http://me:hunter2-{TEXT}@{index}'):\n"
        "    print('has', text, file=sys.stderr)\nraise SystemExit(1)",
    )
    lines: list[str] = []
    environment = vr.Environment.from_requirements(
        [f"loud==1.0 {held}"],
        wheelhouse=tmp_path / "wheels",
        wheels_only=False,
        index=f"http://me:hunter2-{TEXT}@{index}",
        progress=lines.append,
    )
    with pytest.raises(vr.EnvironmentNotBuilt, match="has ") as caught:
        environment.build()
    said = "\n".join([str(caught.value), caught.value.output, *lines])
    # Which index it was, its user is to see; who asked there, nobody.
    assert caught.value.output.count("has http://***@") == 2
    assert f"has http://***@{index}" in caught.value.output
    for hidden in (TEXT, "hunter2", "me:"):
        assert hidden not in said
