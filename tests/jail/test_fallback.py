"""What makes "auto" take a weaker back end: a machine that opens no jail, and never an accident.

A guest can fill what its user may have of processes and descriptors when it likes. It must not
choose in this way by what the host's next jail is held.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from jail_helpers import Jail, JailPolicy, Limits, is_root

import visruntime as vr
from visruntime import _native
from visruntime._jail import bubblewrap as _jail_bubblewrap
from visruntime._jail import diagnose as _jail_diagnose
from visruntime._jail import open as _jail_open
from visruntime._jail.diagnose import as_public_error
from visruntime.errors import JailUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BARE = Limits(processes=None, scratch=None)
"""Limits that every back end can hold."""

STAGES = (
    *("start", "plan", "cgroup", "user namespace", "id map", "namespaces", "process"),
    *("mount propagation", "mount source changed", "mount", "proc mount", "devices", "network"),
    *("pivot_root", "capabilities", "landlock", "seccomp", "supervisor", "limits", "host"),
)
ACCIDENTS = (
    *(errno.EAGAIN, errno.ENOMEM, errno.ENFILE, errno.EMFILE, errno.ENOSPC, errno.EINTR),
    *(errno.ETIMEDOUT, errno.ETOOMANYREFS, errno.EUSERS, errno.EIO, errno.EBUSY),
)
IMPOSSIBLE = (
    ("user namespace", errno.EPERM),
    ("user namespace", errno.EACCES),
    ("user namespace", errno.ENOSYS),
    ("id map", errno.EPERM),
    ("namespaces", errno.EPERM),
    ("mount propagation", errno.EACCES),
    ("mount", errno.ENOSYS),
    ("proc mount", errno.EPERM),
    ("landlock", errno.EOPNOTSUPP),
)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], list[str]]:
    """Return a function that lets the first opening fail so; it gives the list of all tries."""

    def arrange(stage: str, number: int) -> list[str]:
        tried: list[str] = []
        start = _jail_open._start

        def fail_first(plan: object, held: object) -> object:
            tried.append(plan.backend)  # type: ignore[attr-defined]
            if len(tried) == 1:
                raise _native.NativeError("system", stage, number, -1, stage)
            return start(plan, held)  # type: ignore[arg-type]

        monkeypatch.setattr(_jail_open, "_start", fail_first)
        return tried

    return arrange


@pytest.mark.parametrize("stage", STAGES)
def test_no_accident_at_any_stage_is_answered_by_a_weaker_jail(
    stage: str, failing: Callable[[str, int], list[str]]
) -> None:
    """Whatever can pass must be the error itself, and no other back end be tried."""
    for number in ACCIDENTS:
        tried = failing(stage, number)
        with pytest.raises(vr.VisRuntimeError) as caught:
            Jail(JailPolicy(limits=BARE))
        assert tried == ["namespaces"], os.strerror(number)
        if isinstance(caught.value, JailUnavailable):
            assert (caught.value.stage, caught.value.errno) == (stage, number)
            assert caught.value.fix


@pytest.mark.parametrize(("stage", "number"), IMPOSSIBLE)
def test_a_machine_that_opens_none_still_gets_the_next(
    stage: str, number: int, failing: Callable[[str, int], list[str]]
) -> None:
    """The control: what is refused for good must make auto go on, and the report name what held."""
    tried = failing(stage, number)
    with Jail(JailPolicy(limits=BARE)) as jail:
        assert jail.report.backend == tried[-1] != "namespaces"


@pytest.mark.parametrize("setting", ["0", "15000"])
def test_a_limit_of_namespaces_counts_only_where_it_is_zero(
    setting: str,
    failing: Callable[[str, int], list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """ENOSPC is for good where the setting is 0; elsewhere other jails have used it up."""
    read = _jail_diagnose._read
    monkeypatch.setattr(
        _jail_diagnose,
        "_read",
        lambda path: setting if path.startswith("/proc/sys/user/") else read(path),
    )
    tried = failing("user namespace", errno.ENOSPC)
    if setting == "0":
        with Jail(JailPolicy(limits=BARE)) as jail:
            assert jail.report.backend == tried[-1] != "namespaces"
        return
    with pytest.raises(JailUnavailable, match="no more namespaces"):
        Jail(JailPolicy(limits=BARE))
    assert tried == ["namespaces"]


def test_an_accident_says_what_to_do(failing: Callable[[str, int], list[str]]) -> None:
    """A full table of processes must be called that, with the limit and the way out."""
    failing("process", errno.EAGAIN)
    with pytest.raises(JailUnavailable, match="as many processes as it may") as caught:
        Jail(JailPolicy(limits=BARE))
    assert "ulimit -u" in caught.value.fix


def test_a_runtimes_jail_is_opened_anew_by_the_same_back_end(
    failing: Callable[[str, int], list[str]],
) -> None:
    """A guest that ends its jail must not come back in a weaker one, whatever the machine says."""
    with vr.Runtime(JailPolicy(limits=BARE)) as runtime:
        assert runtime.run("40 + 2").value == 42
        runtime._shared.jail.close()
        with pytest.raises(vr.WorkerDied):
            runtime.run("1")
        tried = failing("user namespace", errno.EPERM)
        with pytest.raises(JailUnavailable):
            runtime.run("1")
        assert tried == ["namespaces"]
        runtime.run("1")
        assert runtime.report.backend == "namespaces"


# ---- bubblewrap, which says in words why it failed -----------------------------------------

WORDS = (
    ("bwrap: Creating new namespace failed: Resource temporarily unavailable", 0),
    ("bwrap: Can't find source path /srv/grant: Permission denied", 0),
    ("bwrap: Can't mount tmpfs on /newroot/tmp: No space left on device", 0),
    ("bwrap: Failed to make / slave: Operation not permitted", errno.EPERM),
    ("bwrap: setting up uid map: Permission denied", errno.EACCES),
    # A guest has chosen the end of a path that was gone when bwrap came.
    ("bwrap: Can't create file at /w/x: Operation not permitted", 0),
    ("bwrap: Can't create file at /w/No permissions to creat: Operation not permitted", 0),
    ("bwrap: Creating new namespace failed: x: Operation not permitted", 0),
    ("bwrap: No permissions to create a new namespace, likely because the kernel", errno.EPERM),
)


@pytest.mark.parametrize(("words", "number"), WORDS)
def test_the_words_of_bubblewrap_are_told_apart(
    words: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only words of a machine that lets it make no jail must lead on to Landlock."""
    tried: list[str] = []
    start = _jail_open._start

    def fail(plan: object, held: object) -> object:
        tried.append(plan.backend)  # type: ignore[attr-defined]
        if tried[-1] == "namespaces":
            raise _native.NativeError("system", "user namespace", errno.EPERM, -1, "")
        if tried[-1] == "bubblewrap":
            raise _native.NativeError("system", "bubblewrap", 0, -1, words)
        return start(plan, held)  # type: ignore[arg-type]

    monkeypatch.setattr(_jail_open, "_start", fail)
    monkeypatch.setattr(_jail_open, "check_caller", lambda _: None)
    if number:
        with Jail(JailPolicy(limits=BARE)) as jail:
            assert jail.report.backend == "landlock"
        return
    with pytest.raises(JailUnavailable) as caught:
        Jail(JailPolicy(limits=BARE))
    assert tried == ["namespaces", "bubblewrap"]
    assert (caught.value.stage, caught.value.errno) == ("bubblewrap", 0)


def test_a_probe_that_could_not_be_made_is_no_answer(tmp_path: Path) -> None:
    """A bwrap that cannot be tried now must not count as one that follows links."""
    with pytest.raises(JailUnavailable, match="could not be tried"):
        _jail_bubblewrap.follows_links(str(tmp_path / "absent"))
    once = tmp_path / "bwrap"
    mark = tmp_path / "mark"
    fails = "bwrap: Creating new namespace failed: Resource temporarily unavailable"
    once.write_text(f"#!/bin/sh\n[ -e {mark} ] || exec touch {mark}\necho '{fails}' >&2\nexit 1\n")
    once.chmod(0o755)
    with pytest.raises(JailUnavailable, match="temporarily unavailable"):
        _jail_bubblewrap.follows_links(str(once))


# ---- maps of ids ----------------------------------------------------------------------------


def test_the_words_about_maps_of_ids_are_true() -> None:
    """A folder that is closed must not be told as a capability that is missing."""
    error = _native.NativeError("system", "id map", errno.EACCES, -1, "")
    public = as_public_error(error, b"")
    assert isinstance(public, JailUnavailable)
    assert "SETFCAP" not in str(public)
    assert "Permission denied" in str(public)
    assert "chmod" in public.fix
    if is_root():
        refused = as_public_error(_native.NativeError("system", "id map", errno.EPERM, -1, ""), b"")
        assert "SETFCAP" not in str(refused)


def test_closed_files_of_id_maps_start_no_weaker_jail(
    failing: Callable[[str, int], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """EACCES there is the mode of a folder, but where AppArmor is known to refuse them."""
    restricts = False
    monkeypatch.setattr("visruntime._jail.impossible.apparmor_restricts", lambda: restricts)
    tried = failing("id map", errno.EACCES)
    with pytest.raises(JailUnavailable):
        Jail(JailPolicy(limits=BARE))
    assert tried == ["namespaces"]
    tried.clear()
    restricts = True
    with Jail(JailPolicy(limits=BARE)) as jail:
        assert jail.report.backend == tried[-1] != "namespaces"


# ---- a limit that is really full ------------------------------------------------------------

OWN_UID = 61234
"""A uid that has no other processes, for the limit to count."""

FULL = """
import json, os, resource
from contextlib import suppress
import visruntime as vr
from visruntime._jail import open as opening
policy = vr.JailPolicy(limits=vr.Limits(processes=None, scratch=None))
tasks = 0
for name in filter(str.isdigit, os.listdir("/proc")):
    with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
        if os.stat(f"/proc/{name}").st_uid == os.getuid():
            tasks += len(os.listdir(f"/proc/{name}/task"))
hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
open_with = opening._open_with
def full_at_first(policy, backend, *rest):
    left = room if backend == "namespaces" else 99  # a guest ends what filled it
    resource.setrlimit(resource.RLIMIT_NPROC, (tasks + left, hard))
    return open_with(policy, backend, *rest)
opening._open_with = full_at_first
seen = []
for room in range(8):
    try:
        with vr.Jail(policy) as jail:
            seen.append([room, jail.report.backend])
    except vr.VisRuntimeError as error:
        seen.append([room, getattr(error, "errno", None)])
print(json.dumps(seen))
"""


def test_with_few_processes_left_the_jail_is_the_same_or_none() -> None:
    """However many processes the user has left at first, no jail of another kind may open."""
    ids = [f"--reuid={OWN_UID}", f"--regid={OWN_UID}", "--clear-groups"]
    prefix = ["setpriv", *ids, "--"] if is_root() else []
    done = subprocess.run(
        [*prefix, sys.executable, "-c", FULL],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
        env={"PATH": os.defpath, "HOME": "/nonexistent"},
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    outcomes = {outcome for _, outcome in seen}
    assert outcomes <= {"namespaces", errno.EAGAIN}, seen
    # Another uid's count is not of this process alone.
    assert not is_root() or outcomes == {"namespaces", errno.EAGAIN}, seen
