"""Every field of a policy on every platform: held by what is named, or refused by name."""

from __future__ import annotations

import inspect
import os
import re
import socket
from typing import TYPE_CHECKING, Any

import pytest

import visruntime as vr
from visruntime._jail.open import open_jail
from visruntime._policy.platforms import (
    COLUMNS,
    HELD,
    REFUSED,
    check_platform,
    fields,
    platform_name,
    refuse_mapping,
    refused,
)

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.one_uid

ROWS = sorted(
    [
        *(set(vr.JailPolicy.__slots__) - {"limits"}),
        "egress.proxy",
        *(f"limits.{name}" for name in vr.Limits.__slots__),
    ]
)


def limits(**values: Any) -> vr.Limits:
    """Return limits of which only *values* are set."""
    none = dict.fromkeys(set(vr.Limits.__slots__) - {"memory_by"})
    return vr.Limits(**{**none, **values})


def asking(row: str, folder: Path) -> dict[str, Any]:
    """Return fields of a policy that asks for what *row* names, and can be held in *folder*."""
    inner = folder / "inner"
    inner.mkdir(exist_ok=True)
    (inner / "file").touch()
    deny = {"write": [folder], "deny": [inner / "file"]}
    policies: dict[str, dict[str, Any]] = {
        "absent_deny": {"write": [folder], "deny_write": [folder / "absent"]},
        "caches": {"caches": [inner]},
        "deny": deny,
        "deny_exec": {"write": [folder], "deny_exec": [inner]},
        "deny_read": {"write": [folder], "deny_read": [inner / "file"]},
        "deny_write": {"write": [folder], "deny_write": [inner]},
        "egress": {"egress": vr.Egress.OPEN},
        "egress.proxy": {"egress": vr.Egress.proxy(allow=["host.test"])},
        "env": {"env": {"A": "b"}},
        "host_ports": {"host_ports": [9]},
        "inbound": {"inbound": {8000: 0}},
        "inherit_env": {"inherit_env": ["LANG"]},
        "read": {"read": [inner]},
        "reveal": {"read": [inner], "reveal": [inner / "file"]},
        "sensitive_sockets": {"sensitive_sockets": [folder / "socket"]},
        "services": {"services": ["service.test"]},
        "sockets": {"sockets": [folder / "socket"]},
        "strict_globs": {"write": [folder], "deny": [inner / "**"], "strict_globs": True},
        "system": {"system": "none"},
        "write": {"write": [folder]},
        "limits.cpu_seconds": {"limits": limits(cpu_seconds=5)},
        "limits.cpus": {"limits": limits(cpus=1.0)},
        "limits.file_size": {"limits": limits(file_size=1 << 20)},
        "limits.memory": {"limits": limits(memory=1 << 30, memory_by="watch")},
        "limits.memory_by": {"limits": limits(memory=1 << 30, memory_by="process")},
        "limits.open_files": {"limits": limits(open_files=64)},
        "limits.output": {"limits": limits(output=1 << 20)},
        "limits.processes": {"limits": limits(processes=64)},
        "limits.scratch": {"limits": limits(scratch=1 << 26)},
        "limits.wall_seconds": {"limits": limits(wall_seconds=60.0)},
    }
    return policies[row]


def test_no_field_is_without_an_answer_on_any_platform() -> None:
    """W2: a field that is added to a policy may not be without an entry for each platform."""
    assert set(COLUMNS) == {"linux", "macos", "windows"}
    for platform, column in COLUMNS.items():
        assert sorted(column) == ROWS, platform
        for row, (kind, words) in column.items():
            assert kind in (HELD, REFUSED), (platform, row)
            assert words, (platform, row)


@pytest.mark.parametrize("platform", ["macos", "windows"])
@pytest.mark.parametrize("row", ROWS)
def test_a_refused_field_is_refused_by_its_name(row: str, platform: str, workspace: Path) -> None:
    """W2: no field that a platform refuses may be left out of that, or without a reason."""
    policy = vr.JailPolicy(**asking(row, workspace))
    kind, words = COLUMNS[platform][row]
    assert row in fields(policy)
    assert ((row, words) in refused(policy, platform)) == (kind == REFUSED)
    if platform == "windows":
        error = refuse_mapping(policy)
        assert isinstance(error, vr.PolicyUnsupported)
        assert f"{row}: {words}" in str(error)
        # What was asked for comes before what stands there by default.
        assert error.field in fields(policy)[: len(asking(row, workspace))] or row == "absent_deny"


def test_a_jail_is_never_opened_on_windows_from_a_policy() -> None:
    """W1: no policy, not even an empty one, may open a jail where only WindowsJail holds anything."""
    for policy in (vr.JailPolicy(), vr.JailPolicy(system="none", limits=limits())):
        for backend in ("auto", "namespaces", "landlock"):
            with pytest.raises(vr.JailUnavailable, match="WindowsJail") as caught:
                open_jail(policy, backend, platform="win32")
            assert (caught.value.reason, caught.value.stage) == ("platform", "platform")
    with pytest.raises(vr.JailUnavailable, match="freebsd14") as caught:
        check_platform("freebsd14")
    assert caught.value.reason == "platform"
    check_platform("linux")


def test_a_platform_opens_jails_only_if_its_column_holds_something() -> None:
    """W1: a platform may not open a jail while its whole column says that nothing is held."""
    for platform in ("linux", "darwin", "win32"):
        column = COLUMNS[platform_name(platform)]
        if any(kind == HELD for kind, _ in column.values()):
            check_platform(platform)
        else:
            with pytest.raises((vr.JailUnavailable, vr.PolicyUnsupported)):
                open_jail(vr.JailPolicy(), "auto", platform=platform)
    assert all(kind == REFUSED for kind, _ in COLUMNS["windows"].values())


def test_what_windows_offers_instead_is_there() -> None:
    """W2: no reason may send a reader to a name or an argument that does not exist."""
    called = re.compile(r"(Windows\w+(?:\.\w+)?)\((\w+)=")
    given = re.compile(r"(\w+)= to (Windows\w+\.\w+)")
    offered = set[tuple[str, str]]()
    for kind, words in COLUMNS["windows"].values():
        assert kind == REFUSED
        offered |= set(called.findall(words))
        offered |= {(name, argument) for argument, name in given.findall(words)}
    assert len(offered) >= 6
    for name, argument in offered:
        found: Any = vr
        for part in name.split("."):
            found = getattr(found, part)
        assert argument in inspect.signature(found).parameters, (name, argument)


# The clause of the report that tells of a row, where it has another name.
CLAUSES = {
    "absent_deny": "deny_write[",
    "inherit_env": "env",
    "limits.memory_by": "limits.memory",
    "reveal": "secrets",
    "strict_globs": "deny[",
}
# What a machine may lack: its refusal then names the field.
MAY_LACK = ("limits.cpus", "limits.memory")
# Rows that one jail shows. All that is held is in one of them.
FILES = ("read", "write", "deny", "deny_read", "deny_write", "deny_exec", "reveal")
BOUNDS = (
    "cpu_seconds",
    "file_size",
    "open_files",
    "output",
    "processes",
    "scratch",
    "wall_seconds",
)
JAILS = (
    (*FILES, "env", "inherit_env", "inbound", "host_ports"),
    tuple(f"limits.{name}" for name in BOUNDS),
    ("limits.memory",),
    ("limits.memory_by",),
    ("limits.cpus",),
    ("caches",),
    ("absent_deny",),
    ("strict_globs",),
    ("sockets", "sensitive_sockets"),
    ("egress",),
    ("system",),
)


def words_of(report: vr.EnforcementReport, row: str) -> set[str]:
    """Return the mechanisms that *report* names for *row*."""
    named = CLAUSES.get(row, row)
    return {
        word
        for clause in report.clauses
        if clause.clause.startswith(named)
        for word in clause.mechanisms
    }


def joined(rows: tuple[str, ...], folder: Path) -> vr.JailPolicy:
    """Return one policy that asks for all *rows*."""
    whole: dict[str, Any] = {}
    bounds: dict[str, Any] = {}
    for row in rows:
        for name, value in asking(row, folder).items():
            if name == "limits":
                limit = row.partition(".")[2]
                bounds |= {limit: getattr(value, limit)}
                if limit.startswith("memory"):
                    bounds |= {"memory": value.memory, "memory_by": value.memory_by}
            else:
                whole[name] = value
    if bounds:
        whole["limits"] = limits(**bounds)
    return vr.JailPolicy(**whole)


def report_of(policy: vr.JailPolicy) -> vr.EnforcementReport | str:
    """Open *policy* and return its report, or the field that this machine cannot hold."""
    try:
        with vr.Jail(policy) as jail:
            return jail.report
    except vr.PolicyUnsupported as error:
        return str(error.field)


def test_what_linux_holds_is_in_the_report(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No field may be called held on Linux unless the report of a jail names that mechanism."""
    held = {row for row, (kind, _) in COLUMNS["linux"].items() if kind == HELD}
    assert {row for rows in JAILS for row in rows} == held
    monkeypatch.chdir(workspace)
    monkeypatch.setenv("XDG_CACHE_HOME", str(workspace.parent / "state"))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")  # relative, since the whole path may be too long
        listener.listen()
        for rows in JAILS:
            report = report_of(joined(rows, workspace))
            if isinstance(report, str):
                assert report in MAY_LACK
                assert rows == (report,)
                continue
            for row in rows:
                words = COLUMNS["linux"][row][1]
                found = words_of(report, row)
                assert any(words in word for word in found), (row, found)


def test_what_linux_refuses_is_refused_by_the_jail(workspace: Path) -> None:
    """No field may be called refused on Linux and be taken."""
    for row, (kind, words) in COLUMNS["linux"].items():
        if kind == REFUSED:
            with pytest.raises(vr.PolicyUnsupported, match=words) as caught:
                vr.Jail(vr.JailPolicy(**asking(row, workspace)))
            assert str(caught.value.field).startswith(row.partition(".")[0])


def test_no_environment_variable_or_file_changes_the_answer(
    monkeypatch: pytest.MonkeyPatch, workspace: Path
) -> None:
    """W3: nothing that a host's environment holds may make a refused field pass."""
    for name in ("VISRUNTIME_JAIL", "VIS_PLATFORM", "SANDBOX", "container", "CI"):
        monkeypatch.setenv(name, "off")
    monkeypatch.chdir(workspace)
    for name in (".visruntime-off", ".sandboxed", "visruntime.toml"):
        (workspace / name).touch()
    with pytest.raises(vr.JailUnavailable):
        open_jail(vr.JailPolicy(), "auto", platform="win32")
    assert os.environ["VISRUNTIME_JAIL"] == "off"
