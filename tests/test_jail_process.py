"""One program in a jail: its streams to the end, and measured facts that it cannot forge."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from jail_helpers import Jail, JailPolicy, Limits, until

from visruntime.jail import PIPE

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def jail() -> Iterator[Jail]:
    """A jail without grants."""
    with Jail(JailPolicy()) as one:
        yield one


def test_communicate_after_the_end_loses_nothing(jail: Jail) -> None:
    """A caller that has already seen the end must still get all of the output."""
    script = "head -c 60000 /dev/zero; echo err >&2; exit 3"
    with jail.spawn(["sh", "-c", script], stdout=PIPE, stderr=PIPE) as process:
        assert until(lambda: process.poll() is not None)
        assert process.communicate() == (bytes(60000), b"err\n")
        assert process.returncode == 3
        assert process.communicate() == (bytes(60000), b"err\n")


def test_what_is_written_after_the_end_is_not_read(jail: Jail) -> None:
    """Whoever got hold of a run's stdout may not feed the host after the end of that run."""
    reading, writing = os.pipe()
    written = 0

    def flood() -> None:
        nonlocal written
        with suppress(BrokenPipeError):
            while True:
                written += os.write(writing, b"late" * 4096)

    with jail.spawn(["true"], stdout=PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
        process.stdout = open(reading, "rb", buffering=0)  # noqa: SIM115 (communicate closes it)
        assert until(lambda: process.poll() is not None)
        thread = threading.Thread(target=flood)
        thread.start()
        try:
            assert until(lambda: written >= 49152)
            output, _ = process.communicate()
        finally:
            thread.join(20)
            os.close(writing)
        assert not thread.is_alive()
        assert 49152 <= len(output) <= 65536
        assert process.totals() == (len(output), 0)


def test_a_signal_to_itself_is_not_a_used_up_processor_limit(jail: Jail) -> None:
    """A program that sends itself SIGXCPU must not pass for one that used its time."""
    plain = jail.run(["sh", "-c", "kill -XCPU $$"])
    assert (plain.signal, plain.stopped_by) == (signal.SIGXCPU, None)
    with Jail(JailPolicy(limits=Limits(cpu_seconds=100))) as limited:
        forged = limited.run(["sh", "-c", "kill -XCPU $$"])
    assert (forged.signal, forged.stopped_by) == (signal.SIGXCPU, None)
    assert forged.violations == ()
    with Jail(JailPolicy(limits=Limits(cpu_seconds=1))) as limited:
        honest = limited.run(["sh", "-c", "while :; do :; done"], timeout=30)
    assert (honest.signal, honest.stopped_by) == (signal.SIGXCPU, "cpu")
    assert [violation.kind for violation in honest.violations] == ["limits.cpu_seconds"]
