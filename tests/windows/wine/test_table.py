"""The table of calls, as wine answers it: what a guest can do there is nobody's promise.

Enforcement of AppContainers, descriptors and limits cannot be shown under wine, and no test here
says anything about it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wine_helpers import only_in_the_lane

if TYPE_CHECKING:
    from wine_helpers import Wine

only_in_the_lane()

# VJ_WINDOWS_NEEDS_* of windows_os.h.
APP_CONTAINER, LPAC, CAPABILITIES, HANDLE_LIST, JOB_LIST, JOB_READBACK = 1, 2, 4, 8, 16, 32
NOT_SUPPORTED = "50"


def test_what_is_missing_is_named(wine: Wine) -> None:
    """W67: no jail is claimed where a process cannot be confined, and nothing is touched to see it."""
    windows, place = wine.folder()
    answer = wine.run("windows_table.exe", windows, "features")
    assert answer.code == 0, answer.lines
    assert int(answer.value("missing"), 16) == APP_CONTAINER | LPAC | CAPABILITIES | JOB_READBACK
    assert list(place.iterdir()) == []


def test_no_attribute_is_overlooked(wine: Wine) -> None:
    """W67, W28: an attribute that is refused is no process, and a token that says nothing no jail.

    CreateProcess itself would have started it, unconfined.
    """
    answer = wine.table("attributes", "tokens", "profiles")
    assert answer.value("capabilities") == NOT_SUPPORTED
    assert answer.value("lpac") == NOT_SUPPORTED
    assert answer.value("profile") == NOT_SUPPORTED
    assert not answer.value("token").startswith("0 ")


def test_files(wine: Wine) -> None:
    """W11, W16: nothing that exists is opened for new, and nobody changes what is pinned."""
    assert wine.table("create", "pin", "identity", "list").code == 0


def test_removal(wine: Wine) -> None:
    """W23, W52: what is removed is one name in an open directory, which nobody renames meanwhile."""
    assert wine.table("remove", "remove-tree").code == 0


def test_randomness_and_processes_of_hosts(wine: Wine) -> None:
    """W11, W24: bytes come from the system's generator, and a dead process has no creation time."""
    assert wine.table("random", "this-process", "threads").code == 0


def test_nothing_runs_before_it_is_resumed(wine: Wine) -> None:
    """W32: a process is suspended and in its job before its first instruction."""
    assert wine.table("suspended").code == 0


def test_exit_codes(wine: Wine) -> None:
    """W35, W39: codes keep 32 bits, and STILL_ACTIVE is one of them for a process that has ended."""
    assert wine.table("exit-codes").code == 0


def test_kill(wine: Wine) -> None:
    """W35: no descendant outlives the end of its job, and waiting for it has a bound."""
    assert wine.table("kill-tree").code == 0


def test_the_last_handle_of_a_job(wine: Wine) -> None:
    """W33, W36: nothing runs on when the one handle of its job is closed."""
    assert wine.table("close-job").code == 0


def test_breaking_away(wine: Wine) -> None:
    """W34: no process leaves its job; the refusal is error 5."""
    assert wine.table("break-away").code == 0


def test_a_host_in_a_job(wine: Wine) -> None:
    """W38: a host that is in a job itself can start a jail's."""
    assert wine.table("nested-job").code == 0


def test_inherited_handles(wine: Wine) -> None:
    """W40: an inheritable handle that is not listed is no handle in the guest (error 6).

    The control inherits it and uses it.
    """
    assert wine.table("handle-list").code == 0


def test_arguments_environment_and_folder(wine: Wine) -> None:
    """W5, W6, W7: a guest is started with exactly what it was given, and nothing of the host's."""
    answer = wine.table("exact-start")
    # wine adds names of its own, which are not the host's either.
    own = [
        line
        for line in answer.lines
        if "=" in line and not line.startswith(("WINE", "SystemDrive=", "SYSTEMDRIVE="))
    ]
    assert own == [r"SystemRoot=C:\windows"]
    assert answer.value("directory").startswith(r"C:\visjail-")


def test_pipes(wine: Wine) -> None:
    """W41, W42: nobody squats the name of a pipe; a read ends in its time, or when it is canceled."""
    assert wine.table("pipes").code == 0


def test_back_pressure(wine: Wine) -> None:
    """W45, W46: a guest that does not read holds nobody up; one that is dead is a broken pipe."""
    assert wine.table("back-pressure").code == 0


def test_writes_that_run_out_of_time(wine: Wine) -> None:
    """W45: what is counted as written was, and nothing else: no byte goes twice, and none is lost."""
    assert wine.table("exact-writes").code == 0


def test_output_to_its_end(wine: Wine) -> None:
    """W44: the end of a stream comes after all that was written."""
    assert wine.table("all-output").code == 0


def test_pseudo_console(wine: Wine) -> None:
    """W47, W48, W49: size, input and output of a console; its closer returns while it is drained."""
    answer = wine.table("console")
    assert answer.value("resize") == NOT_SUPPORTED  # of wine


def test_the_desktop_helper(wine: Wine) -> None:
    """W53, W56: no desktop of another's name or without its descriptor; the helper ends in time.

    The handles are handed over, and copies of them go to a process that is suspended. wine does
    not tell the descriptor of a desktop, so the whole call has to refuse.
    """
    assert wine.table("desktop").value("verified") != "0"


def test_a_helper_that_was_told_nothing(wine: Wine) -> None:
    """W56: without handles that it has inherited the helper does nothing, and ends."""
    assert wine.run("visjail-desktop.exe").code == 2
    assert wine.run("visjail-desktop.exe", "4", "8", "c").code == 2
