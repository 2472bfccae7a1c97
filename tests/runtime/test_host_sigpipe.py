"""A guest that does not read what it is sent ends no host that has SIGPIPE at its default."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from runtime_helpers import runtime

from visruntime import _native
from visruntime.aio import AsyncJail
from visruntime.errors import ProtocolViolation, WorkerDied
from visruntime.jail import PIPE, Jail
from visruntime.policy import JailPolicy
from visruntime.processes import TrustedStart

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runtime_helpers import AnyRuntime

__all__ = ["runtime"]

DEAF = ["sh", "-c", "exec 0<&-; echo deaf; sleep 60"]
"""A program that reads nothing, and says when it has closed its input."""


@pytest.fixture
def pipe_signals() -> Iterator[list[int]]:
    """Return what would have ended a host whose SIGPIPE is at its default."""
    seen: list[int] = []
    before = signal.signal(signal.SIGPIPE, lambda number, _: seen.append(number))
    try:
        yield seen
    finally:
        signal.signal(signal.SIGPIPE, before)


def test_a_plain_write_does_signal(pipe_signals: list[int]) -> None:
    """The control: without care the kernel sends SIGPIPE; with it the error is all that is left."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        with pytest.raises(BrokenPipeError):
            _native.write_quietly(writer, b"x")
        assert signal.SIGPIPE not in signal.sigpending()
        assert pipe_signals == []
        with pytest.raises(BrokenPipeError):
            os.write(writer, b"x")
        assert pipe_signals == [signal.SIGPIPE]
    finally:
        os.close(writer)


@pytest.mark.parametrize("kind", ["STREAM", "SEQPACKET"])
def test_a_worker_that_closes_its_sockets(
    runtime: AnyRuntime, pipe_signals: list[int], kind: str
) -> None:
    """No signal comes of answers, orders and requests to one that receives no more."""
    runtime.exec(
        "import os, socket, stat\n"
        "ends = []\n"
        "for name in os.listdir('/proc/self/fd'):\n"
        "    try:\n"
        "        if stat.S_ISSOCK(os.fstat(int(name)).st_mode):\n"
        "            ends.append(socket.socket(fileno=os.dup(int(name))))\n"
        "    except OSError:\n"
        "        pass\n"
        f"[end] = [each for each in ends if each.type == socket.SOCK_{kind}]\n"
    )
    runtime.expose("answer", runtime.interrupt)
    with contextlib.suppress(WorkerDied, ProtocolViolation):  # as it is heard of first
        runtime.run("end.shutdown(socket.SHUT_RD)\nanswer()\nos._exit(1)")
    assert pipe_signals == []


def test_a_worker_that_has_ended(runtime: AnyRuntime, pipe_signals: list[int]) -> None:
    """No signal comes of a run for a worker that ended between two runs."""
    runtime.exec("import os, threading\nthreading.Timer(0.1, lambda: os._exit(0)).start()")
    ended = False
    while not ended:
        try:
            runtime.exec("1")
        except WorkerDied:
            ended = True
    assert pipe_signals == []


def test_programs_that_do_not_read(pipe_signals: list[int]) -> None:
    """Writing to their stdin is an error for the host, and no signal."""
    with Jail(JailPolicy()) as jail:
        with jail.spawn(DEAF, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            stdin, stdout = process.stdin, process.stdout
            assert stdin is not None
            assert stdout is not None
            assert stdout.read(5) == b"deaf\n"
            with pytest.raises(BrokenPipeError):
                stdin.write(b"x")
            process.kill()
            assert process.communicate(b"x" * 100_000)[0] == b""
        assert jail.run(["true"], input=b"x" * 1_000_000).exit_code == 0
    assert pipe_signals == []


def test_awaited_programs_that_do_not_read(pipe_signals: list[int]) -> None:
    """The same with an async jail."""

    async def main() -> None:
        async with (
            AsyncJail(JailPolicy()) as jail,
            await jail.spawn(DEAF, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process,
        ):
            assert process.stdin is not None
            assert process.stdout is not None
            assert await process.stdout.receive() == b"deaf\n"
            with pytest.raises(anyio.BrokenResourceError):
                await process.stdin.send(b"x")

    anyio.run(main)
    assert pipe_signals == []


def test_an_interpreter_that_does_not_read(pipe_signals: list[int]) -> None:
    """Asking a program what it is gives it a file, which nobody has to read."""
    assert TrustedStart.probe(["cat"], [], b"x" * 1_000_000) == (0, b"x" * 1_000_000)
    assert TrustedStart.probe(["true"], [], b"x" * 1_000_000) == (0, b"")
    assert pipe_signals == []


def test_an_input_writes_as_files_do() -> None:
    """It takes any bytes, says how many, and None where it would have to wait."""
    with Jail(JailPolicy()) as jail, jail.spawn(["sleep", "60"], stdin=PIPE) as process:
        file = process.stdin
        assert file is not None
        os.set_blocking(file.fileno(), False)
        assert file.write(b"") == 0
        values: list[Any] = [b"ab", bytearray(b"cd"), memoryview(b"efgh")[::1]]
        assert [file.write(value) for value in values] == [2, 2, 4]
        assert file.write(b"x" * 1_000_000) in range(50_000, 65_536)
        assert file.write(b"x") is None
        assert not select.select([], [file], [], 0)[1]
        file.close()
        with pytest.raises(ValueError, match="closed"):
            file.write(b"x")
