"""The command line: flags become exactly the policy they say, and guests' words stay words."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from typing import TYPE_CHECKING

import jsonschema
import pytest

import visruntime as vr
from visruntime.cli import main
from visruntime.cli.flags import Parser, make_policy
from visruntime.cli.messages import Cleaner, Refusal, clean
from visruntime.cli.report import ReportFile
from visruntime.cli.run import Program
from visruntime.config import schema

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def here(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a fresh folder the current one."""
    monkeypatch.chdir(workspace)
    return workspace


def parse(*words: str) -> tuple[vr.JailPolicy, list[str]]:
    """Return the policy and the guest's words of a command line."""
    parser = Parser("exec", "", "", "")
    parser.add_policy_flags()
    parser.add_start_flags()
    options, rest = parser.split(words)
    return make_policy(options), rest


def test_flags_make_the_policy_they_say(here: Path) -> None:
    """Each flag becomes its field; paths start at the current folder."""
    policy, rest = parse(
        "--read", "a", "--read=/b", "--write", ".", "--deny", "x/../y", "--deny-read", "dr",
        "--deny-write", "dw", "--deny-exec", "de", "--system", "none", "--net", "open",
        "--env", "A=b=c", "--env", "LANG", "--memory", "1G", "--memory-by", "process",
        "--processes", "7", "--cpus", "1.5", "--cpu-seconds", "9", "--open-files", "auto",
        "--file-size", "none", "--scratch", "2M", "--output", "3k", "--", "ls", "--read", "z",
    )  # fmt: skip
    assert rest == ["ls", "--read", "z"]
    assert policy == vr.JailPolicy(
        read=[here / "a", "/b"],
        write=[here],
        deny=[here / "y"],
        deny_read=[here / "dr"],
        deny_write=[here / "dw"],
        deny_exec=[here / "de"],
        system="none",
        egress=vr.Egress.OPEN,
        env={"A": "b=c"},
        inherit_env=["LANG"],
        limits=vr.Limits(
            memory=2**30,
            memory_by="process",
            processes=7,
            cpus=1.5,
            cpu_seconds=9,
            scratch=2 * 2**20,
            output=3 * 2**10,
        ),
    )


def test_flags_of_later_versions_reach_the_policy(here: Path) -> None:
    """They are understood, so that what refuses them can say why."""
    policy, _ = parse(
        "--allow", "a.test:443", "--deny-host", "b.test", "--inbound", "8000", "--inbound",
        "81:82", "--host-port", "5432", "--socket", "/s", "--reveal", "r", "--cache", "c",
        "--service", "ssh",
    )  # fmt: skip
    assert policy.egress == vr.Egress.proxy(allow=["a.test:443"], deny=["b.test"])
    assert dict(policy.inbound) == {8000: 0, 81: 82}
    assert (policy.host_ports, policy.sockets, policy.services) == ((5432,), ("/s",), ("ssh",))
    assert (policy.reveal, policy.caches) == ((f"{here}/r",), (f"{here}/c",))


@pytest.mark.parametrize(
    ("words", "rest"),
    [
        (["ls", "--write", "/"], ["ls", "--write", "/"]),
        (["--", "--write", "/"], ["--write", "/"]),
        (["-c", "--write", "/"], ["-c", "--write", "/"]),
        (["--net", "off", "-m", "x", "--net", "open"], ["-m", "x", "--net", "open"]),
        (["--net=off", "-"], ["-"]),
    ],
)
def test_a_guests_word_is_never_a_flag(here: Path, words: list[str], rest: list[str]) -> None:
    """What follows the command must not change the policy."""
    policy, got = parse(*words)
    assert got == rest
    assert policy.write == ()
    assert policy.egress == vr.Egress.OFF


@pytest.mark.parametrize(
    "words",
    [
        ["--no-such-flag", "--", "ls"],
        ["--rea", "/x", "--", "ls"],
        ["--read"],
        ["--system", "all", "--", "ls"],
        ["--net", "maybe", "--", "ls"],
        ["--net", "open", "--allow", "a.test", "--", "ls"],
        ["--read", "~/x", "--", "ls"],
        ["--read", "", "--", "ls"],
        ["--read", "--", "--", "ls"],
        ["--write", "/", "--", "ls"],
        ["--memory", "much", "--", "ls"],
        ["--processes", "1.5", "--", "ls"],
        ["--processes", "-1", "--", "ls"],
        ["--cpus", "nan", "--", "ls"],
        ["--inbound", "x", "--", "ls"],
        ["--env", "LD_PRELOAD=x", "--", "ls"],
        ["--env", "PYTHONPATH", "--", "ls"],
        ["--env", "ABSENT_TOKEN", "--", "ls"],
        ["--policy", "absent.toml", "--", "ls"],
        ["--timeout", "0", "--", "ls"],
        ["--backend", "landlock", "--", "ls"],
        ["--backend", "hope", "--", "ls"],
        # Of later versions: understood, and refused whole.
        ["--net", "proxy", "--", "ls"],
        ["--inbound", "8000", "--net", "open", "--", "ls"],
        ["--socket", "/run/docker.sock", "--", "ls"],
        ["--socket", "/nowhere", "--", "ls"],
        ["--cpus", "0.001", "--", "ls"],
        ["--read", ".env", "--", "ls"],
        [],
    ],
    ids=" ".join,
)
def test_what_cannot_be_done_is_refused(
    here: Path, capfd: pytest.CaptureFixture[str], words: list[str]
) -> None:
    """Nothing must run: exit code 125 and one line that says why."""
    assert main(["exec", *words]) == 125
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("visruntime: ")
    assert err.count("\n") == 1


def test_a_secret_variable_is_wrapped(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A secret named by the user crosses and shows nowhere."""
    monkeypatch.setenv("A_TOKEN", "hunter2")
    policy, _ = parse("--env", "A_TOKEN", "--env", "B_KEY=hunter3")
    assert policy.env == {"A_TOKEN": vr.Secret("hunter2"), "B_KEY": vr.Secret("hunter3")}
    assert "hunter" not in repr(policy)
    assert "A_TOKEN" not in policy.inherit_env


def test_a_policy_file_is_extended_by_flags(here: Path) -> None:
    """Flags add to the lists of --policy and replace its single values."""
    (here / "sub").mkdir()
    (here / "sub/p.toml").write_text('read = ["a"]\nsystem = "host"\n[limits]\nprocesses = 3\n')
    policy, _ = parse("--policy", "sub/p.toml", "--read", "b", "--system", "none", "--output", "5")
    assert policy.read == (f"{here}/sub/a", f"{here}/b")
    assert policy.system == "none"
    assert policy.limits == vr.Limits(processes=3, output=5)


def test_a_found_file_alone_is_ignored_and_said(
    here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A file that lies in the folder must not give itself a policy."""
    (here / "visruntime.toml").write_text('read = ["/"]\nwrite = ["."]\negress = "open"\n')
    policy, _ = parse("--", "ls")
    assert policy == vr.JailPolicy()
    assert "ignored visruntime.toml" in capfd.readouterr().err
    (here / "visruntime.toml").write_text("not [ toml")
    assert parse("--", "ls")[0] == vr.JailPolicy()


def test_a_found_file_narrows_and_cannot_be_rewritten(
    here: Path, outside: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A found file takes away only, and the guest cannot change it or the one named."""
    (here / "visruntime.toml").write_text(
        f'write = [".", "{outside}"]\ndeny = ["secret"]\negress = "open"\n'
    )
    (here / "mine.toml").write_text("")
    policy, _ = parse("--policy", "mine.toml", "--write", ".", "--", "ls")
    assert policy.write == (str(here),)
    assert policy.egress == vr.Egress.OFF
    assert policy.deny == (f"{here}/secret",)
    for name in ("visruntime.toml", "mine.toml"):
        assert not policy.why("write", here / name)
        assert policy.why("read", here / name)
    assert policy.why("write", here / "other")
    assert capfd.readouterr().err == ""


def test_a_broken_found_file_stops_a_policy(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A file that would narrow and cannot be understood must not be skipped."""
    (here / "visruntime.toml").write_text("wirte = []\n")
    assert main(["why", "--write", ".", "write", "x"]) == 125
    err = capfd.readouterr().err
    assert "wirte" in err
    assert "visruntime.toml" in err


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["--write", ".", "write", "x"], 0, "allowed: the policy lets the guest change"),
        (["read", "/srv/x"], 1, "denied: the guest cannot read"),
        (["connect", "example.org:443"], 1, "egress is off"),
        (["--net", "open", "connect", "example.org:443"], 0, "egress is open"),
        (["--net", "proxy", "--allow", "a.test", "connect", "a.test:1"], 0, "note: this version"),
    ],
)
def test_why_answers_in_words_and_code(
    here: Path, capfd: pytest.CaptureFixture[str], words: list[str], code: int, text: str
) -> None:
    """Allowed is 0, denied is 1, and the sentence says why."""
    assert main(["why", *words]) == code
    assert text in capfd.readouterr().out


@pytest.mark.parametrize(
    "words", [[], ["read"], ["eat", "x"], ["read", "x", "y"], ["read", "~x"], ["read", "a\0b"]]
)
def test_why_refuses_what_is_no_question(
    here: Path, capfd: pytest.CaptureFixture[str], words: list[str]
) -> None:
    """A question that is not understood is 125, neither allowed nor denied."""
    assert main(["why", *words]) == 125
    assert capfd.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("command", ["exec", "run", "shell", "why", "doctor", "schema", "worker"])
def test_help_teaches_with_examples(command: str) -> None:
    """Each sub-command's help shows how it is used, and exits with 0."""
    done = subprocess.run(
        [sys.executable, "-m", "visruntime", command, "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"usage: visruntime {command}" in done.stdout
    assert f"  visruntime {command}" in done.stdout.partition("examples:")[2]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["exec", "--pass-fd", "2", "--", "true"], "a number from 3 to 15, not '2'"),
        (["exec", "--pass-fd", "x", "--", "true"], "a number from 3 to 15, not 'x'"),
        (["exec", "--pass-fd", "16", "--", "true"], "a number from 3 to 15"),
        (["run", "--native-modules", "all", "-c", "1"], "read-only or anywhere, not 'all'"),
        (["worker", "x"], "nothing goes after the options"),
        (["worker", "--python", "p", "--environment", "e"], "does not go with --environment"),
    ],
)
def test_wrong_words_are_refused(
    here: Path, capfd: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    """Nothing starts where a word is wrong, and the message says which."""
    assert main(words) == 125
    assert said in capfd.readouterr().err


def test_a_descriptor_that_is_not_there_is_refused() -> None:
    """A guest must not wait for a descriptor that its caller forgot to open."""
    done = subprocess.run(
        [sys.executable, "-m", "visruntime", "exec", "--pass-fd", "14", "--", "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 125
    assert "--pass-fd 14: there is no such descriptor here" in done.stderr


def test_the_command_itself(capfd: pytest.CaptureFixture[str]) -> None:
    """Without or with a wrong sub-command the answer is help or a refusal, never a traceback."""
    assert main(["--help"]) == 0
    assert "Exit codes" in capfd.readouterr().out
    assert main([]) == 125
    assert main(["jail"]) == 125
    assert "jail" in capfd.readouterr().err
    assert main(["--version"]) == 0
    assert capfd.readouterr().out.startswith("visruntime ")


def test_shell_needs_a_terminal(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A shell without a terminal must not start."""
    assert main(["shell"]) == 125
    assert "terminal" in capfd.readouterr().err
    assert main(["exec", "--tty", "--", "ls"]) == 125


def test_a_report_goes_where_the_guest_cannot_reach(here: Path, outside: Path) -> None:
    """A report must not be a link, a device, or in reach of the guest."""
    policy = vr.JailPolicy(write=[here])
    (here / "inner").symlink_to(outside)
    (outside / "link").symlink_to(outside / "target")
    (outside / "way").symlink_to(here)
    os.mkfifo(outside / "fifo")
    (outside / "folder").mkdir()
    for path in (
        here / "r.json",
        outside / "way" / "r.json",
        outside / "link",
        outside / "fifo",
        outside / "folder",
        outside / "absent" / "r.json",
    ):
        with (
            pytest.raises(Refusal, match="--report"),
            ReportFile(str(path)).covering() as report,
        ):
            report.open(policy)
    assert not (outside / "target").exists()
    assert not (here / "r.json").exists()
    report = ReportFile(str(outside / "r.json"))
    report.open(policy)
    with pytest.raises(Refusal), report.covering():
        raise Refusal("it did not start")
    data = json.loads((outside / "r.json").read_text())
    jsonschema.Draft202012Validator(schema("report")).validate(data)
    assert (data["status"], data["error"]) == (125, "it did not start")
    assert (data["clauses"], data["canaries"], data["backend"]) == ([], [], None)
    assert stat.S_IMODE((outside / "r.json").stat().st_mode) == 0o600


def test_an_interrupt_is_in_the_report(outside: Path) -> None:
    """A report must not be left empty when the user stops the command."""
    report = ReportFile(str(outside / "r.json"))
    report.open(vr.JailPolicy())
    with pytest.raises(KeyboardInterrupt), report.covering():
        raise KeyboardInterrupt
    data = json.loads((outside / "r.json").read_text())
    jsonschema.Draft202012Validator(schema("report")).validate(data)
    assert (data["status"], data["error"]) == (130, "KeyboardInterrupt")


@pytest.mark.parametrize("command", [["exec", "--"], ["run"]])
@pytest.mark.parametrize(
    ("words", "clauses"),
    [
        (["--service", "ssh", "--cpus", "1"], {"services"}),
        (["--policy", "absent.toml"], set()),
        (["--memory", "much"], set()),
        (["--timeout", "0"], set()),
    ],
)
def test_a_refusal_is_in_the_report(
    here: Path,
    outside: Path,
    capfd: pytest.CaptureFixture[str],
    command: list[str],
    words: list[str],
    clauses: set[str],
) -> None:
    """A report must not be left as an earlier run wrote it, nor claim a clause as enforced."""
    (outside / "r.json").write_text('{"status": 0, "error": null}')
    (here / "x.py").touch()
    name, *dashes = command
    assert main([name, *words, "--report", str(outside / "r.json"), *dashes, "x.py"]) == 125
    data = json.loads((outside / "r.json").read_text())
    jsonschema.Draft202012Validator(schema("report")).validate(data)
    assert data["status"] == 125
    assert f"visruntime: {data['error']}\n" == capfd.readouterr().err
    assert data["exit"] == {"code": None, "signal": None, "stopped_by": None}
    assert (data["clauses"], data["canaries"], data["violations"]) == ([], [], [])
    assert clauses <= {entry["clause"] for entry in data["unsupported"]}


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b"plain \xc3\xa9\ttext\r\n", "plain é\ttext\r\n"),
        (b"\x1b[2J\x1b]0;title\x07", "\\x1b[2J\\x1b]0;title\\x07"),
        (b"\xc2\x9b31m", "\\x9b31m"),
        (b"\x9b31m\xff", "\\x9b31m\\xff"),
        (b"\x00\x08\x7f\x85", "\\x00\\x08\\x7f\\x85"),
        ("a\u202eb\u2066c\u2028".encode(), "a\\u202eb\\u2066c\\u2028"),
    ],
)
def test_a_guests_stream_cannot_steer_the_terminal(raw: bytes, shown: str) -> None:
    """No control sequence passes, also when it comes byte by byte."""
    assert Cleaner().feed(raw, last=True).decode() == shown
    cleaner = Cleaner()
    pieces = [cleaner.feed(raw[n : n + 1]) for n in range(len(raw))]
    assert (b"".join(pieces) + cleaner.feed(b"", last=True)).decode() == shown


def test_a_message_is_one_clean_line(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A name with newlines and escapes must not forge our own lines."""
    assert clean("a\nvisruntime: b\x1b[0m\r") == "a\\nvisruntime: b\\x1b[0m\\r"
    assert main(["exec", "--policy", "x\n\x1b[31mforged", "--", "ls"]) == 125
    err = capfd.readouterr().err
    assert err.count("\n") == 1
    assert "\x1b" not in err


def test_run_reads_the_script_on_the_host(here: Path) -> None:
    """A script is handed over as bytes; a name that is no regular file is refused."""
    (here / "s.py").write_text("print(1)")
    program = Program(["s.py", "-c", "--read"])
    assert program.source == b"print(1)"
    assert program.argv == ["s.py", "-c", "--read"]
    assert program.path == str(here / "s.py")
    assert Program(["-c", "1", "x"]).argv == ["-c", "x"]
    assert Program(["-m", "json.tool", "x"]).source == "json.tool"
    os.mkfifo(here / "fifo")
    for words in (["absent.py"], ["."], ["fifo"], ["-c"], ["-m"], ["-x"]):
        with pytest.raises(Refusal):
            Program(words)


def test_run_names_the_grant_of_a_neighbour_only(here: Path, outside: Path) -> None:
    """The guest's word for a module is compared with a listing and never used as a path."""
    (here / "s.py").touch()
    (here / "helper.py").touch()
    (outside / "other.py").touch()
    program = Program(["s.py"])
    assert program.missing_read("helper") == str(here)
    for name in ("helper.part", "absent", "../outside/other", "..", "", "/etc"):
        assert program.missing_read(name) is None


def test_doctor_prints_text_json_and_a_page(
    here: Path, outside: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The same findings come as words, as data, and as a page without scripts or references."""
    page = outside / "page.html"
    assert main(["doctor", "--html", str(page)]) == 0
    text = capfd.readouterr().out
    assert "A jail can be opened here" in text
    assert main(["doctor", "--json"]) == 0
    data = json.loads(capfd.readouterr().out)
    assert data["ok"] is True
    assert len(data["findings"]) > 3
    for finding in data["findings"]:
        assert finding["name"] in text
    content = page.read_text()
    assert data["findings"][0]["name"] in content
    for forbidden in ("<script", "http://", "https://", "src=", "href="):
        assert forbidden not in content


def test_doctor_follows_no_link_to_write_its_page(
    here: Path, outside: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A planted link must not make the page overwrite another file."""
    (outside / "precious").write_text("precious")
    (here / "page.html").symlink_to(outside / "precious")
    assert main(["doctor", "--html", "page.html"]) == 125
    assert "--html" in capfd.readouterr().err
    assert (outside / "precious").read_text() == "precious"


def test_doctor_writes_its_page_to_a_regular_file_only(
    here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A named pipe or a device as the page must be refused at once, not waited for or written."""
    os.mkfifo(here / "pipe")
    reader = os.open(here / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        for path in (str(here / "pipe"), "/dev/null"):
            assert main(["doctor", "--html", path]) == 125
            assert f"--html {path}: it must be a regular file" in capfd.readouterr().err
    finally:
        os.close(reader)
    assert main(["doctor", "--html", str(here / "pipe")]) == 125
    assert "it must be a regular file" in capfd.readouterr().err


@pytest.mark.parametrize("command", ["exec", "shell"])
def test_help_warns_of_raw_terminal_output(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody may take a terminal session for filtered output: the help says what passes."""
    assert main([command, "--help"]) == 0
    assert "control sequences included" in " ".join(capsys.readouterr().out.split())


def test_help_says_that_controls_run_without_a_jail(capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody may name an interpreter that they do not trust, believing that it stays in a jail."""
    assert main(["doctor", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "WITHOUT a jail, with your rights" in shown
    assert "it runs without a jail too" in shown
