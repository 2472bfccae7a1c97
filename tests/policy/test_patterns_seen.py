"""How often the names of patterns are looked for, and that a jail looks for itself."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from typing import TYPE_CHECKING

from jail_helpers import inside, outside

import visruntime as vr
from visruntime._policy.pattern_names import Walked

if TYPE_CHECKING:
    from pathlib import Path

COUNTING = """
import collections, json, sys
from visruntime import _native
from visruntime.cli.main import main
expand, counts = _native.expand, collections.Counter()
def counted(place, **options):
    counts.update(f"{place} {pattern}" for pattern in options["patterns"])
    return expand(place, **options)
_native.expand = counted
try:
    main(sys.argv[1:])
finally:
    sys.stderr.write("\\n" + json.dumps(counts))
"""


def walks(folder: Path, *words: str) -> int:
    """Run the command line *words* in *folder*; return how often a pattern was looked for at most."""
    done = subprocess.run(
        [sys.executable, "-c", COUNTING, *words],
        check=False,
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=60,
    )
    counts = json.loads(done.stderr.splitlines()[-1])
    assert len(counts) == 4, done.stderr
    return int(max(counts.values()))


def test_a_command_looks_once_for_its_questions_and_once_for_the_jail(tmp_path: Path) -> None:
    """Narrowing, the report's file and what cannot be enforced must not cost a walk each."""
    tree = tmp_path / "tree"
    (tree / "a").mkdir(parents=True)
    for name in ("x.txt", "x.cfg", "x.log"):
        (tree / "a" / name).touch()
    here = tmp_path / "here"
    here.mkdir()
    named = tmp_path / "named.toml"
    named.write_text(
        f'read = ["{tree}", "{tmp_path}/tree/*/x.txt"]\n'
        f'deny_read = ["{tree}/**/*.cfg", "{tree}/**/*.key"]\n'
    )
    (here / "visruntime.toml").write_text(f'deny = ["{tree}/*/*.log"]\n')
    policy = ("--policy", str(named))
    assert walks(here, "exec", *policy, "--report", "../r.json", "--", "/bin/true") == 2
    assert walks(here, "why", *policy, "read", str(tree / "a" / "x.cfg")) == 1
    assert json.loads((tmp_path / "r.json").read_text())["exit"]["code"] == 0


def test_a_jail_holds_what_is_there_when_it_opens(tmp_path: Path) -> None:
    """What a command has seen before must not stand for what a jail covers."""
    policy = vr.JailPolicy(read=[tmp_path], deny=[f"{tmp_path}/*.cfg"])
    policy._set(walked=Walked())
    late = tmp_path / "late.cfg"
    assert policy.why("read", late).allowed
    late.write_text("secret")
    assert policy.why("read", late).allowed  # a question of the same command
    assert policy.replace().resolved_rules() == policy.resolved_rules()
    assert any(rule.path == str(late) for rule in policy.resolved_rules())
    act = f"answer(attempt(lambda: open({str(late)!r}).read()))"
    assert outside(act) == 0
    with vr.Jail(policy) as jail:
        assert inside(jail, act) == errno.EACCES


def test_no_pattern_gives_a_guest_the_report(tmp_path: Path) -> None:
    """A report that a pattern names once it is made must not be the guest's to write."""
    (tmp_path / "there.json").touch()
    grant = f"{tmp_path}/*.json"

    def run(report: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [
                *(sys.executable, "-m", "visruntime", "exec", "--write", grant),
                *("--report", str(report), "--", "/bin/sh", "-c", f"echo forged > {report}"),
            ],
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
        )

    done = run(tmp_path / "new.json")
    assert done.returncode == 125, done.stderr
    assert "the guest could change it (write[0])" in done.stderr
    assert not (tmp_path / "new.json").exists()
    done = run(tmp_path / "new.txt")  # the control: no pattern names this one
    assert done.returncode != 125, done.stderr
    assert json.loads((tmp_path / "new.txt").read_text())["jailed"] is True
