"""Standard input of runs: nothing, given bytes, or a function of the host that answers."""

from __future__ import annotations

import os
import pty
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from jail_helpers import backends
from runtime_helpers import runtime

from visruntime.errors import CommandTimeout, PolicyError, WorkerDied
from visruntime.policy import JailPolicy, Limits
from visruntime.pool import RuntimePool
from visruntime.runtime import Runtime, TrustedRuntime

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from runtime_helpers import AnyRuntime

    from visruntime._runtime.handle import RunHandle

pytestmark = pytest.mark.one_uid

__all__ = ["runtime"]  # the fixture is found by its name in this module

READ_ALL = """
import os, subprocess, sys
first = input('prompt> ')
second = sys.stdin.readline()
rest = sys.stdin.read()
(first, second, rest)
"""


def test_given_text_is_what_the_code_reads(runtime: AnyRuntime) -> None:
    """input(), sys.stdin and the end of file are those of a file with that text."""
    result = runtime.run(READ_ALL, stdin="eins\nzwei é\nmore\nlast")
    assert result.error is None, result.error.traceback
    assert result.value == ("eins", "zwei é\n", "more\nlast")
    assert result.stdout == b"prompt> "
    assert runtime.run("for line in sys.stdin: print(len(line))", stdin="ab\nc").stdout == b"3\n1\n"
    assert runtime.run("input()", stdin="").error.type_name == "EOFError"  # type: ignore[union-attr]


def test_children_and_c_code_read_it_too(runtime: AnyRuntime) -> None:
    """Descriptor 0 is the input, byte for byte, for whoever reads from it."""
    data = bytes(range(256)) * 5000
    code = "import os, subprocess\nhead = os.read(0, 4)\n(head, subprocess.check_output(['cat']))"
    result = runtime.run(code, stdin=data)
    assert result.value == (data[:4], data[4:])


def test_input_of_one_run_is_not_that_of_the_next(runtime: AnyRuntime) -> None:
    """What a run left unread is gone, and descriptor 0 and sys.stdin are as before."""
    before = runtime.run("import os, sys\n(os.fstat(0).st_rdev, id(sys.stdin))").value
    runtime.run("input()", stdin="one\ntwo\n")
    assert runtime.run("(os.fstat(0).st_rdev, id(sys.stdin))").value == before
    for verb in ("input()", "sys.stdin.readline() or input()"):
        error = runtime.run(verb).error
        assert error is not None
        assert error.type_name == "EOFError"
    runtime.run("os.close(0)", stdin="x")
    assert runtime.run("(os.fstat(0).st_rdev, id(sys.stdin))").value == before
    runtime.run("os.close(0)")
    assert runtime.run("input()", stdin="works").value == "works"
    assert runtime.run("1").value == 1


def test_the_host_answers_questions(runtime: AnyRuntime) -> None:
    """input() and getpass ask the host, with their prompt, and nothing is printed."""
    asked: list[tuple[str, bool]] = []

    def answer(prompt: str, password: bool) -> str | None:  # noqa: FBT001 (as it is called)
        asked.append((prompt, password))
        return {"name? ": "Ada", "Password: ": "s3cret"}.get(prompt, "line")

    events: list[Any] = []
    result = runtime.run(
        "import getpass, sys\n"
        "(input('name? '), getpass.getpass(), sys.stdin.readline(), sys.stdin.readline(2),\n"
        " sys.stdin.readline())",
        stdin=answer,
        on_event=events.append,
    )
    assert result.error is None, result.error.traceback
    assert result.value == ("Ada", "s3cret", "line\n", "li", "ne\n")
    assert asked == [("name? ", False), ("Password: ", True), ("", False), ("", False)]
    assert (result.stdout, result.stderr) == (b"", b"")
    assert [e.data for e in events if e.kind == "input"] == ["name? ", "Password: ", "", ""]
    # After the run nobody is asked any more.
    error = runtime.run("getpass.getpass is not None and input('again? ')").error
    assert error is not None
    assert error.type_name == "EOFError"
    assert len(asked) == 4


def test_an_answer_of_none_is_the_end_of_file(runtime: AnyRuntime) -> None:
    """``None`` ends the input as an empty file does."""
    assert runtime.run("list(__import__('sys').stdin)", stdin=lambda *_: None).value == []
    error = runtime.run("input()", stdin=lambda *_: None).error
    assert error is not None
    assert error.type_name == "EOFError"
    lines = iter(["a", "b"])
    code = "__import__('sys').stdin.read()"
    assert runtime.run(code, stdin=lambda *_: next(lines, None)).value == "a\nb\n"


def test_an_answer_that_fails_is_an_error_of_the_guest(runtime: AnyRuntime) -> None:
    """An exception of the function, or an answer that is no text, comes up in the guest."""

    def fail(*_: object) -> str:
        raise PermissionError("not now")

    error = runtime.run("input()", stdin=fail).error
    assert error is not None
    assert (error.type_name, error.message) == ("visruntime.host.PermissionError", "not now")
    wrong: Any = lambda *_: 7  # noqa: E731
    error = runtime.run("input()", stdin=wrong).error
    assert error is not None
    assert "text or None" in error.message
    assert runtime.run("1").value == 1


def test_prompts_are_clean_and_bounded(runtime: AnyRuntime) -> None:
    """A prompt of a guest reaches no terminal as a control sequence, nor in any length."""
    asked: list[str] = []

    def answer(prompt: str, _: bool) -> str:  # noqa: FBT001 (as it is called)
        asked.append(prompt)
        return "x"

    code = "input('\\x1b]0;title\\x07 \\x9b31m pay\\r?\\n\\u202e'), len(input('p' * 10**6))"
    assert runtime.run(code, stdin=answer).value == ("x", 1)
    assert all(character == "\n" or character.isprintable() for character in asked[0])
    assert "title" in asked[0]
    assert len(asked[1]) == 16_384


def test_a_guest_that_asks_without_end_is_stopped_by_its_time(runtime: AnyRuntime) -> None:
    """A million questions are bounded by the run's own limits, and the next run is fine."""
    count = [0]

    def answer(*_: object) -> str:
        count[0] += 1
        return "x"

    started = time.monotonic()
    with pytest.raises(CommandTimeout):
        runtime.run("while True: input()", stdin=answer, timeout=0.5)
    assert time.monotonic() - started < 3
    assert count[0] > 10
    assert runtime.run("2").value == 2


def test_threads_of_the_guest_may_ask(runtime: AnyRuntime) -> None:
    """Questions of several threads are answered one by one and do not mix."""
    result = runtime.run(
        "import threading\nanswers = {}\n"
        "def ask(n): answers[n] = input(str(n))\n"
        "threads = [threading.Thread(target=ask, args=(n,)) for n in range(20)]\n"
        "for t in threads: t.start()\n"
        "for t in threads: t.join()\n"
        "answers == {n: f'<{n}>' for n in range(20)}",
        stdin=lambda prompt, _: f"<{prompt}>",
    )
    assert result.value is True


def test_a_thread_that_asks_after_the_run_gets_the_end_of_file(runtime: AnyRuntime) -> None:
    """A function kept from a run with answers must not ask in a later run without."""
    runtime.run("import builtins\nkept = builtins.input", stdin=lambda *_: "x")
    error = runtime.run("kept('?')").error
    assert error is not None
    assert error.type_name == "EOFError"


def test_the_terminal_of_the_host_is_never_read() -> None:
    """With a terminal as the host's own stdin, a guest's input() still ends at once."""
    main, other = pty.openpty()
    saved = os.dup(0)
    try:
        os.dup2(other, 0)
        os.write(main, b"typed by the owner\n")
        with TrustedRuntime() as runtime:
            done: list[Any] = []
            reader = threading.Thread(target=lambda: done.append(runtime.run("input()").error))
            reader.start()
            reader.join(10)
            assert done
            assert done[0].type_name == "EOFError"
        assert os.read(0, 100) == b"typed by the owner\n"
    finally:
        os.dup2(saved, 0)
        for descriptor in (saved, main, other):
            os.close(descriptor)


@pytest.mark.parametrize("backend", backends("bubblewrap", "landlock"))
def test_other_back_ends_give_the_same(backend: str) -> None:
    """Given text, answers and a terminal work in whatever built the jail, or are refused by name."""
    limits = Limits(processes=None, scratch=None) if backend == "landlock" else Limits()
    policy = JailPolicy(limits=limits)
    with Runtime(policy, backend=backend) as running:
        assert running.run("input()", stdin="text").value == "text"
        assert running.run("input('?')", stdin=lambda prompt, _: prompt).value == "?"
        assert running.run("import os; os.getcwd()", cwd="/").value == "/"
    with Runtime(policy, backend=backend, stdin="pty") as running:
        assert running.run("import os; os.isatty(0)").value is True
        running.type_text("typed\n")
        assert running.run("input()", timeout=10).value == "typed"


# ---- a terminal ----


@pytest.fixture(params=["trusted", "jailed"])
def terminal(request: pytest.FixtureRequest) -> Iterator[AnyRuntime]:
    """Return a runtime whose standard input is a terminal."""
    trusted = request.param == "trusted"
    with TrustedRuntime(stdin="pty") if trusted else Runtime(JailPolicy(), stdin="pty") as running:
        yield running


def until_it_says(run: RunHandle, kind: str, text: bytes) -> None:
    """Wait until a run has written *text* to that stream."""
    said = b""
    while text not in said:
        event = run.next_event(timeout=10)
        assert event is not None
        said += event.data if event.kind == kind else b""


def test_a_terminal_is_read_like_one(terminal: AnyRuntime) -> None:
    """The guest sees a terminal, reads lines from it, and meets its end at Ctrl-D."""
    run = terminal.start(
        "import getpass, os, sys\n"
        "print('ready', flush=True)\n"
        "lines = [input('a? '), sys.stdin.readline(), getpass.getpass('b? ')]\n"
        "print('told', flush=True)\n"
        "rest = sys.stdin.read()\n"
        "(os.isatty(0), os.isatty(1), lines, rest)",
        timeout=20,
    )
    terminal.type_text("one\ntwo é\n")
    until_it_says(run, "stderr", b"b? ")
    terminal.type_text("secret\n")
    # What is typed before getpass has given the terminal back is thrown away with that.
    until_it_says(run, "stdout", b"told\n")
    terminal.type_text("rest\n\x04")
    result = run.result()
    assert result.error is None, result.error.traceback
    assert result.value == (True, False, ["one", "two é\n", "secret"], "rest\n")
    assert b"secret" not in result.stdout + result.stderr


def test_text_for_one_run_comes_before_the_terminal(terminal: AnyRuntime) -> None:
    """A run that has an input of its own reads that, and the next one the terminal again."""
    assert terminal.run("input()", stdin="given").value == "given"
    terminal.type_text("typed\n")
    assert terminal.run("input()", timeout=10).value == "typed"


def test_typing_that_nobody_reads_ends(terminal: AnyRuntime) -> None:
    """A guest that does not read must not hold its host up, nor get lines cut in two."""
    terminal.run("1")
    started = time.monotonic()
    with pytest.raises(TimeoutError):
        terminal.type_text("x" * 100 + "\n" + ("y" * 3000 + "\n") * 100, timeout=0.3)
    assert time.monotonic() - started < 2
    assert terminal.run("input()", timeout=10).value == "x" * 100
    with pytest.raises(ValueError, match="4000"):
        terminal.type_text("x" * 5000)


def test_keys_of_a_terminal_are_no_signals(terminal: AnyRuntime) -> None:
    r"""Ctrl-C, Ctrl-Z and Ctrl-\ reach the guest as nothing worse than an empty line."""
    terminal.run("1")
    terminal.type_text("\x03\x1a\x1cword\n")
    assert terminal.run("input()", timeout=10).value.endswith("word")
    assert terminal.run("1 + 1").value == 2


def test_a_new_worker_has_a_new_terminal(terminal: AnyRuntime) -> None:
    """What was typed for a worker that died must not be read by the next."""
    terminal.run("1")
    terminal.type_text("for the first\n")
    with pytest.raises(WorkerDied):
        terminal.run("import os; os._exit(1)")
    run = terminal.start("print('ready', flush=True); input()", timeout=10)
    assert run.next_event(timeout=10) is not None
    terminal.type_text("for the second\n")
    assert run.result().value == "for the second"


def test_a_copy_that_starts_anew_leaves_the_terminal_to_its_original(terminal: AnyRuntime) -> None:
    """What is typed for one runtime must not go to another, whose worker has died."""
    terminal.run("1")
    with terminal.fork() as copy:
        with pytest.raises(WorkerDied):
            copy.run("import os; os._exit(1)")
        assert copy.run("import os; (os.isatty(0), os.read(0, 10))").value == (False, b"")
        with pytest.raises(ValueError, match="pty"):
            copy.type_text("x\n")
        terminal.type_text("for the original\n")
        assert terminal.run("input()", timeout=10).value == "for the original"


@pytest.mark.parametrize("make", [TrustedRuntime, lambda **o: Runtime(JailPolicy(), **o)])
def test_no_terminal_is_shared_by_the_copies_of_a_zygote(make: Any) -> None:
    """What was typed for one worker and not read must not wait there for the next one."""
    with pytest.raises(PolicyError, match="preload: all copies would have one terminal"):
        make(stdin="pty", preload=[])
    with make(preload=[]) as running:  # the controls
        assert running.run("input()").error.type_name == "EOFError"
    with make(stdin="pty") as running:
        assert running.run("import os; os.isatty(0)").value is True


@pytest.fixture
def reused(tmp_path: Path) -> Iterator[Callable[[int], None]]:
    """Return what closes a descriptor and opens a secret file under its number."""
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret of the host")
    opened: list[int] = []

    def reuse(number: int) -> None:
        os.close(number)
        opened.append(os.open(secret, os.O_RDONLY))
        if opened[-1] != number:
            opened.append(os.dup2(opened[-1], number))

    yield reuse
    for descriptor in opened:
        os.close(descriptor)


@pytest.mark.parametrize("make", [TrustedRuntime, lambda **o: Runtime(JailPolicy(), **o)])
def test_a_descriptor_is_the_file_that_it_was(make: Any, reused: Callable[[int], None]) -> None:
    """A worker that starts later must not read what has the number by then."""
    reading, writing = os.pipe()
    os.write(writing, b"onetwothree")
    with make(stdin=reading) as running:
        assert running.run("import os; os.read(0, 3)").value == b"one"
        reused(reading)
        assert os.pread(reading, 6, 0) == b"secret"  # the control
        with running.fork() as copy:
            assert copy.run("os.read(0, 3)").value == b"two"
            for worker in (running, copy):
                with pytest.raises(WorkerDied):
                    worker.run("os._exit(0)")
            running.close()
            assert copy.run("import os; os.read(0, 9)").value == b"three"
        # With the last of them the pipe is given back.
        with pytest.raises(BrokenPipeError):
            os.write(writing, b"x")
    os.close(writing)


def test_a_descriptor_of_a_pool_is_the_file_that_it_was(reused: Callable[[int], None]) -> None:
    """Runtimes that a pool makes later must not read what has the number by then, either."""
    reading, writing = os.pipe()
    os.write(writing, b"onetwo")
    with RuntimePool(JailPolicy(), max_size=1, min_idle=0, stdin=reading) as pool:
        with pool.borrow() as running:
            assert running.run("import os; os.read(0, 3)").value == b"one"
        reused(reading)
        with pool.borrow() as running:
            assert running.run("import os; os.read(0, 3)").value == b"two"
    with pytest.raises(BrokenPipeError):
        os.write(writing, b"x")
    os.close(writing)


def test_modes_that_are_none_are_refused() -> None:
    """Text where a mode is meant must not be taken for one, and no terminal is typed on by chance."""
    with pytest.raises(ValueError, match="run"):
        TrustedRuntime(stdin="some text")
    with TrustedRuntime(stdin="empty") as running:
        assert running.run("input()").error.type_name == "EOFError"  # type: ignore[union-attr]
        with pytest.raises(ValueError, match="pty"):
            running.type_text("x")
