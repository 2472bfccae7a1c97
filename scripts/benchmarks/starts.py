"""What it costs to start a program or a worker."""

from __future__ import annotations

import contextlib
import tempfile
import venv
from typing import TYPE_CHECKING

import visruntime as vr
from benchmarks.model import (
    PYTHON,
    TRUE,
    Row,
    bubblewrapped,
    jailed,
    policy,
    sandlocked,
    started,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextlib.contextmanager
def command_in_an_open_jail() -> Iterator[Row]:
    """Measure a command in an open jail."""
    with vr.Jail(policy()) as jail:
        what = "command in an open jail / subprocess.run"
        yield Row("1", what, 1.1, jailed(jail, TRUE), started(TRUE), bubblewrapped(TRUE))


@contextlib.contextmanager
def new_jail() -> Iterator[Row]:
    """Measure a jail that is opened for one command, and closed."""
    plain = bubblewrapped(TRUE)
    if not plain:
        raise LookupError("bubblewrap is not installed")

    def ours() -> None:
        with vr.Jail(policy()) as jail:
            jail.run([TRUE], check=True)

    yield Row("2", "new jail and one command / bubblewrap", 0.65, ours, plain["bubblewrap"], {})


@contextlib.contextmanager
def new_jail_of_the_same_policy() -> Iterator[Row]:
    """Measure the same where one policy is opened again and again."""
    plain = bubblewrapped(TRUE)
    if not plain:
        raise LookupError("bubblewrap is not installed")
    same = policy()

    def ours() -> None:
        with vr.Jail(same) as jail:
            jail.run([TRUE], check=True)

    yield Row("2b", "new jail of the same policy / bubblewrap", 0.65, ours, plain["bubblewrap"], {})


@contextlib.contextmanager
def new_jail_without_namespaces() -> Iterator[Row]:
    """Measure the same with the back end that has Landlock and the filter alone."""
    # What it cannot hold is left out of the policy, as its users have to.
    plain = policy().replace(limits=vr.Limits(processes=None, scratch=None))

    def ours() -> None:
        with vr.Jail(plain, backend="landlock") as jail:
            jail.run([TRUE], check=True)

    try:
        ours()
    except vr.JailUnavailable as error:
        raise LookupError(str(error)) from None
    what = "new jail without namespaces and one command / run"
    yield Row("3", what, 1.5, ours, started(TRUE), sandlocked(TRUE))


@contextlib.contextmanager
def python_in_an_open_jail() -> Iterator[Row]:
    """Measure a Python program in an open jail."""
    command = (PYTHON, "-I", "-c", "pass")
    with vr.Jail(policy(python=True)) as jail:
        what = "python -I -c pass in an open jail / bare"
        yield Row(
            "4", what, 1.1, jailed(jail, *command), started(*command), bubblewrapped(*command)
        )


@contextlib.contextmanager
def worker() -> Iterator[Row]:
    """Measure a worker from nothing to its first result, the jail's opening included.

    In an environment without packages: the start-up files of this one import the finder of an
    editable install, which is no part of a start.
    """
    last: list[vr.Runtime] = []

    def close() -> None:
        while last:
            last.pop().close()

    def ours() -> Callable[[], None]:
        last.append(vr.Runtime(policy(), environment=empty))
        if last[-1].run("1+1").value != 2:
            raise AssertionError("1+1")
        return close  # after the clock has stopped

    bare = started(PYTHON, "-I", "-S", "-c", "pass")
    with tempfile.TemporaryDirectory() as empty:
        venv.create(empty, symlinks=True)
        yield Row("5", "worker start to first result / python -I -S -c pass", 1.5, ours, bare, {})
