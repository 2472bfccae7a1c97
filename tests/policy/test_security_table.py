"""SECURITY.md's table of clauses says what jails report, and leaves no clause out."""

from __future__ import annotations

import re
import socket
from typing import TYPE_CHECKING, Any

import pytest
import readme
from jail_helpers import backends

import visruntime as vr
from visruntime._jail.canaries import CANARIES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.one_uid

COLUMNS = ("Clause", "`namespaces`", "Canary in each jail", "`bubblewrap`", "`landlock`",
           "What stays open")  # fmt: skip


def rows() -> list[list[str]]:
    """Return the cells of each row of the table."""
    text = (readme.ROOT / "SECURITY.md").read_text()
    section = text.partition("## Clause by clause, back end by back end\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert tuple(table[0]) == COLUMNS
    return table[2:]


def cell(*words: str, backend: str = "namespaces") -> str:
    """Return what the table says of *backend* for the clause that has all *words*."""
    column = COLUMNS.index(f"`{backend}`")
    found = [row[column] for row in rows() if all(word in row[0] for word in words)]
    assert len(found) == 1, words
    return found[0]


def plain(mechanism: str) -> str:
    """Return a mechanism without the number of an ABI."""
    return re.sub(r"landlock-\d+", "landlock", mechanism)


def test_no_clause_is_left_out() -> None:
    """A field of the policy that the table does not speak of would be a claim about nothing."""
    named = set(re.findall(r"`([\w.]+)`", " ".join(row[0] for row in rows())))
    fields = {*vr.JailPolicy.__slots__} - {"limits"}
    limits = {f"limits.{name}" for name in vr.Limits.__slots__} - {"limits.memory_by"}
    assert named == fields | limits
    assert all(len(row) == len(COLUMNS) for row in rows())


def test_every_canary_is_in_the_table_by_its_name() -> None:
    """An act that jails try must not be called otherwise, nor be forgotten."""
    named = set(re.findall(r'"([^"]+)"', " ".join(row[2] for row in rows())))
    assert named == {name for name, _ in CANARIES}


@pytest.fixture
def things(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, Any]]:
    """Make what the policies below name, short enough for a socket."""
    import tempfile

    for name in ("uv", "pip"):
        (tmp_path / "state" / name).mkdir(parents=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path.resolve() / "state"))
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{folder}/socket")
        server.listen()
        (workspace / "file").touch()
        yield {"folder": str(workspace), "socket": f"{folder}/socket"}


@pytest.mark.parametrize("backend", backends())
@pytest.mark.parametrize(
    ("words", "clause", "fields"),
    [
        (("`read`",), "read[0]", {"read": ["{folder}"]}),
        (("`write`",), "write[0]", {"write": ["{folder}"]}),
        (("`deny`",), "deny[0]", {"write": ["{folder}"], "deny": ["{folder}/file"]}),
        (("`deny_write`",), "deny_write[0]", {"write": ["{folder}"], "deny_write": ["{folder}/file"]}),
        (("`deny_exec`",), "deny_exec[0]", {"write": ["{folder}"], "deny_exec": ["{folder}/file"]}),
        (("`absent_deny`",), "deny_write[0]",
         {"write": ["{folder}"], "deny_write": ["{folder}/absent"], "absent_deny": "wall"}),
        (("`system`",), "system", {}),
        (("`egress`", "off"), "egress", {}),
        (("`egress`", "open"), "egress", {"egress": vr.Egress.OPEN}),
        (("`egress`", "proxy"), "egress", {"egress": vr.Egress.proxy(allow=["a.test"])}),
        (("`inbound`",), "inbound[8000]", {"inbound": {8000: 0}}),
        (("`host_ports`",), "host_ports[0]", {"host_ports": [9]}),
        (("`sockets`",), "sockets[0]", {"sockets": ["{socket}"]}),
        (("`sockets`",), "sockets[0]", {"sockets": ["{socket}"], "read": ["{folder}"]}),
        (("`reveal`",), "reveal[0]", {"reveal": ["{folder}/file"]}),
        (("`strict_globs`",), "deny[0]", {"write": ["{folder}"], "deny": ["{folder}/*.x"]}),
        (("`strict_globs`",), "deny[0]",
         {"write": ["{folder}"], "deny": ["{folder}/*.x"], "strict_globs": True}),
        (("every jail: secrets",), "secrets", {"write": ["{folder}"]}),
        (("`caches`",), "caches[0]", {"caches": ["{folder}"]}),
        (("`services`",), "services", {"services": ["ssh"]}),
        (("`env`",), "env", {"env": {"A": "x"}}),
        (("memory", "process"), "limits.memory",
         {"limits": vr.Limits(memory=2**30, memory_by="process")}),
        (("memory", "cgroup"), "limits.memory", {"limits": vr.Limits(memory=2**30)}),
        (("memory", "watch"), "limits.memory",
         {"limits": vr.Limits(memory=2**30, memory_by="watch")}),
        (("processes`",), "limits.processes", {}),
        (("limits.cpus",), "limits.cpus", {"limits": vr.Limits(cpus=1)}),
        (("cpu_seconds",), "limits.cpu_seconds", {"limits": vr.Limits(cpu_seconds=9)}),
        (("wall_seconds",), "limits.wall_seconds", {"limits": vr.Limits(wall_seconds=9)}),
        (("open_files",), "limits.open_files", {}),
        (("file_size",), "limits.file_size", {"limits": vr.Limits(file_size=9)}),
        (("scratch",), "limits.scratch", {}),
        (("output",), "limits.output", {}),
        (("every jail: processes",), "processes of the host", {}),
        (("every jail: privileges",), "privileges", {}),
    ],
)  # fmt: skip
def test_the_table_says_what_a_jail_reports(
    things: dict[str, str],
    words: tuple[str, ...],
    clause: str,
    fields: dict[str, Any],
    backend: str,
) -> None:
    """No mechanism may be missing from the table, and "refused" must be what happens."""
    said = cell(*words, backend=backend)
    given: dict[str, Any] = {
        name: [text.format(**things) for text in value]
        if isinstance(value, list) and isinstance(value[0], str)
        else value
        for name, value in fields.items()
    }
    if backend == "landlock" and clause not in ("limits.processes", "limits.scratch"):
        values = {n: getattr(given.get("limits", vr.Limits()), n) for n in vr.Limits.__slots__}
        given["limits"] = vr.Limits(**(values | {"processes": None, "scratch": None}))
    try:
        jail = vr.Jail(vr.JailPolicy(**given), backend=backend)
    except vr.PolicyUnsupported:
        assert "refuse" in said
        return
    with jail:
        mechanisms = jail.report.mechanisms(clause)
    assert mechanisms or "not held" in said or "nothing to hold" in said
    for mechanism in mechanisms:
        assert f"`{plain(mechanism)}`" in said, (mechanism, said)


@pytest.mark.parametrize("backend", ["bubblewrap", "landlock"])
def test_a_back_end_that_the_table_calls_refused_is_refused(backend: str) -> None:
    """A column of refusals must not stand beside a back end that opens."""
    column = {row[COLUMNS.index(f"`{backend}`")] for row in rows()}
    try:
        vr.Jail(vr.JailPolicy(), backend=backend).close()
    except (vr.PolicyUnsupported, vr.JailUnavailable):
        assert "refused" in column
    else:
        assert column != {"refused"}
