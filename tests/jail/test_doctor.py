"""The doctor: every finding is of a real jail, and comes as text, as data and as a page."""

from __future__ import annotations

import errno
import html.parser
import json
import os
import sys
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

import visruntime as vr
from visruntime import _doctor_probes
from visruntime.cli import main
from visruntime.cli.page import render
from visruntime.config import schema
from visruntime.doctor import Finding

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def report() -> vr.DoctorReport:
    """Return the report on this machine, made once."""
    return vr.doctor()


def by_key(report: vr.DoctorReport) -> dict[str, Finding]:
    """Return the findings by their keys."""
    return {finding.key: finding for finding in report.findings}


def test_the_report_is_as_its_schema_says(report: vr.DoctorReport) -> None:
    """A program that reads the JSON must not meet another shape, nor one key twice."""
    jsonschema.Draft202012Validator(schema("doctor")).validate(report.to_dict())
    assert len(by_key(report)) == len(report.findings)
    for finding in report.findings:
        assert finding.probe, finding
        assert finding.detail, finding
        assert not finding.detail.startswith(("; ", ", ")), finding


def test_file_clauses_are_tried_and_named_by_errno(report: vr.DoctorReport) -> None:
    """A finding on files must come from an act in a jail, with the kernel's own answer."""
    found = by_key(report)
    expected = {
        "files.not_granted": (errno.ENOENT,),
        "files.read": (errno.EROFS,),
        "files.deny": (errno.EACCES,),
        "files.deny_write": (errno.EROFS, errno.EACCES),
        "files.deny_exec": (errno.EACCES,),
    }
    for key, numbers in expected.items():
        assert found[key].state == "enforced", found[key]
        assert found[key].errno in numbers, found[key]
    for canary in (finding for key, finding in found.items() if key.startswith("canary.")):
        assert canary.errno, canary
    assert found["limits.memory_by_process"].state == "enforced"
    assert found["python"].state == "enforced"
    assert found["terminal"].state == "enforced"


@pytest.mark.parametrize(
    ("key", "fields"),
    [
        ("egress.proxy", {"egress": vr.Egress.proxy(allow=["service.test:443"])}),
        ("host_ports", {"host_ports": [9]}),
        ("limits.cpus", {"limits": vr.Limits(cpus=1)}),
        ("egress.open", {"egress": vr.Egress.OPEN}),
    ],
)
def test_a_clause_is_called_enforced_only_if_a_jail_takes_it(
    report: vr.DoctorReport, key: str, fields: dict[str, Any]
) -> None:
    """The doctor must say of a clause what opening a jail with it says."""
    try:
        vr.Jail(vr.JailPolicy(**fields)).close()
        state = "enforced"
    except vr.VisRuntimeError:
        state = "unavailable"
    assert by_key(report)[key].state == state


def test_nothing_of_the_probes_is_left(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files that the probes make must be gone, and no path of them be in the report.

    They are made in the state folder, and it alone may have what they leave: names of its parts.
    """
    monkeypatch.setenv("XDG_CACHE_HOME", str(workspace))
    monkeypatch.setattr(_doctor_probes, "CLAUSES", ())
    findings = (*_doctor_probes._files(), *_doctor_probes._clauses())
    for finding in findings:
        if finding.key in ("sockets", "sockets.folder") and finding.state != "enforced":
            assert finding.fix == "set XDG_CACHE_HOME to a shorter path"
        else:
            assert finding.state == "enforced", finding
    assert os.listdir(workspace) == ["visruntime"]
    for name in ("building", "locks"):
        assert os.listdir(workspace / "visruntime" / name) == []
    assert str(workspace) not in str(findings)


def test_without_a_state_folder_the_doctor_says_what_was_not_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What needs files must not be tried where a guest could change them, and be named."""
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/absent")
    monkeypatch.setattr(_doctor_probes, "CLAUSES", ())
    findings = {f.key: f for f in (*_doctor_probes._files(), *_doctor_probes._clauses())}
    for key in ("files.read", "files.deny_exec", "sockets", "deny_write.absent"):
        assert findings[key].state == "unavailable"
        assert "/proc/absent/visruntime" in findings[key].detail
        assert "XDG_CACHE_HOME" in findings[key].fix


def test_where_no_jail_opens_the_doctor_says_what_helps() -> None:
    """A machine that refuses must be told apart: here it is a jail, in which none opens."""
    package = os.path.dirname(vr.__file__)
    # The interpreter, its environment and this package, wherever they are.
    read = {sys.prefix, sys.base_prefix, package, *filter(os.path.isdir, sys.path)}
    policy = vr.JailPolicy(read=sorted(os.path.realpath(path) for path in read))
    command = [
        sys.executable,
        "-c",
        "from visruntime.cli import main; exit(main(['doctor', '--json']))",
    ]
    with vr.Jail(policy) as jail:
        result = jail.run(command, timeout=50)
    assert result.exit_code == 1, result.stderr_text
    data = json.loads(result.stdout_text)
    jsonschema.Draft202012Validator(schema("doctor")).validate(data)
    assert data["ok"] is False
    assert data["backend"] == "none"
    (finding,) = data["findings"]
    assert (finding["key"], finding["state"]) == ("jail", "unavailable")
    assert finding["errno"] == "EPERM"
    assert finding["fix"]


def test_the_text_has_every_finding(report: vr.DoctorReport) -> None:
    """What the JSON says must not be missing where people look."""
    text = str(report)
    for finding in report.findings:
        assert finding.name in text
        assert finding.detail in text
        if finding.state != "enforced":
            assert finding.probe in text
            assert finding.fix in text


class Page(html.parser.HTMLParser):
    """Collect the tags and the text of a page."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(content)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Remember a tag, and that it is open."""
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Check that tags are closed in order."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Collect the text outside of the style."""
        if "style" not in self.open:
            self.text += data


def test_the_page_is_one_accessible_file(report: vr.DoctorReport) -> None:
    """The page must load nothing, run nothing, and be a table that a reader can name."""
    page = Page(render(report))
    assert page.open == []
    tags = [tag for tag, _ in page.tags]
    assert not {"script", "link", "img", "iframe", "object", "a", "form"} & set(tags)
    for tag, attributes in page.tags:
        assert not {"src", "href", "style"} & set(attributes), (tag, attributes)
        assert not [name for name in attributes if name.startswith("on")], (tag, attributes)
    assert ("html", {"lang": "en"}) in page.tags
    for tag in ("title", "main", "h1", "caption", "thead"):
        assert tags.count(tag) == 1, tag
    assert [a.get("scope") for tag, a in page.tags if tag == "th"].count("row") == len(
        report.findings
    )
    assert "prefers-color-scheme: dark" in render(report)
    for finding in report.findings:
        assert finding.name in page.text
        assert finding.detail in page.text


def test_the_page_shows_foreign_text_as_text() -> None:
    """A name with markup or control characters must stay text."""
    finding = Finding(
        "jail", "</td><script>x", "unavailable", detail='"&\x1b[31m\u202e', probe="p", fix="<b>"
    )
    content = render(vr.DoctorReport(backend="none", findings=(finding,), apparmor_profile="<i>"))
    assert "<script" not in content
    assert "<b>" not in content
    assert "<i>" not in content
    assert "\x1b" not in content
    assert "\u202e" not in content
    assert "&lt;/td&gt;&lt;script&gt;x" in content


def test_the_profile_alone_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    """The command that loads the profile must get the profile and nothing else."""
    assert main(["doctor", "--apparmor"]) == 0
    out = capfd.readouterr().out
    assert out.startswith("abi ")
    assert "visjail-init" in out
    assert out.rstrip().endswith("}")
    assert main(["doctor", "--apparmor", "--json"]) == 125
