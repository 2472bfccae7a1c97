"""Patterns in rules: what they name, for how long they hold, and what is refused instead."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import time
from typing import TYPE_CHECKING

import oracle
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jail_helpers import Jail, errno, inside, outside, policy_of

import visruntime as vr
from visruntime import _native
from visruntime._policy.paths import escape
from visruntime._policy.patterns import parse
from visruntime.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.one_uid

FULL = bool(os.environ.get("VIS_FULL"))
JAILS = 400 if FULL else 60

fast = settings(
    max_examples=5000 if FULL else 500,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)

# ---- what one part names -----------------------------------------------------------


def as_regex(part: str) -> str:
    """A part of a pattern as a regular expression, read from the documentation alone."""
    out, at = "", 0
    while at < len(part):
        character = part[at]
        at += 1
        if character == "*":
            out += ".*"
        elif character == "?":
            out += "."
        elif character == "[":
            close = at + 1 if part[at : at + 1] == "!" else at
            close = part.find("]", close + 1 if part[close : close + 1] == "]" else close)
            if close < 0:
                out += re.escape("[")
                continue
            inner, at = part[at:close], close + 1
            negated, inner = inner.startswith("!"), inner.removeprefix("!")
            items, position = "", 0
            while position < len(inner):
                low = inner[position]
                if inner[position + 1 : position + 2] == "-" and position + 2 < len(inner):
                    high = inner[position + 2]
                    position += 3
                    if low <= high:
                        items += f"{re.escape(low)}-{re.escape(high)}"
                else:
                    items += re.escape(low)
                    position += 1
            if items:
                out += f"[{'^' if negated else ''}{items}]"
            else:
                out += "." if negated else "(?!)"
        else:
            out += re.escape(character)
    return out


letters = st.sampled_from("abc*?[]!-.é中")
plain = st.sampled_from("abc[]!-.é中*")


@fast
@given(part=st.text(letters, min_size=1, max_size=7), name=st.text(plain, min_size=1, max_size=6))
def test_a_part_names_what_the_documentation_says(part: str, name: str) -> None:
    """C must name exactly the names that a plain reading of the syntax names."""
    assert _native.fits(part, name) == bool(re.fullmatch(as_regex(part), name, re.DOTALL))


@pytest.mark.parametrize(
    ("part", "name", "named"),
    [
        ("*", ".hidden", True),
        ("*.py", ".py", True),
        ("?", "é", True),
        ("?", "\udcff", True),
        ("[!a]", "a", False),
        ("[]]", "]", True),
        ("[a-c]x", "bx", True),
        ("[*]", "*", True),
        ("[*]", "a", False),
        ("[", "[", True),
        ("a*b*c", "aXbYbZc", True),
        ("a*b*c", "aXbYbZ", False),
        ("*" * 30 + "b", "a" * 200, False),
    ],
)
def test_parts_written_out(part: str, name: str, *, named: bool) -> None:
    """The syntax by hand; many stars must not take long either."""
    assert _native.fits(part, name) is named


@pytest.mark.parametrize(
    ("path", "fixed", "rest"),
    [
        ("/w/a", "/w/a", ""),
        ("/w/**", "/w", ""),
        ("/w/**/**", "/w", ""),
        ("/w/**/*.py", "/w", "**/*.py"),
        ("/w/*/x/**", "/w", "*/x"),
        ("/w/[[]id]/a", "/w/[id]/a", ""),
        ("/w/a[*]/b?", "/w/a*", "b?"),
        ("/**/x", "/", "**/x"),
    ],
)
def test_a_path_is_cut_where_its_pattern_begins(path: str, fixed: str, rest: str) -> None:
    """What is one rule and what is looked for must follow from the text alone."""
    pattern = parse(path)
    assert (pattern.fixed, pattern.rest) == (fixed, rest)


@fast
@given(path=st.text(st.sampled_from("/ab*?[]!"), max_size=12).map(lambda text: "/" + text))
def test_an_escaped_path_names_only_itself(path: str) -> None:
    """No character of a path may become part of a pattern once it is escaped."""
    clean = "/" + "/".join(part for part in path.split("/") if part)
    pattern = parse(escape(clean))
    assert (pattern.fixed, pattern.rest) == (clean, "")


# ---- what a pattern names below a folder -----------------------------------------------

NAMES = ("a", "b", ".x", "a.py", "é b")
BEGINS = ("*", "**", "a*", "*.py", "?", "[ab]", "[!a]*")
PARTS = ("*", "**", "a*", "*.py", "?", "[ab]", "[!a]*", "a", "b", ".*")


def grow(chosen: random.Random, folder: str, depth: int = 0) -> None:
    """Make a random tree with files, folders and links."""
    for name in chosen.sample(NAMES, chosen.randint(1, 4)):
        path = f"{folder}/{name}"
        kind = chosen.random()
        if depth < 3 and kind < 0.5:
            os.mkdir(path)
            grow(chosen, path, depth + 1)
        elif kind < 0.6:
            os.symlink(folder, path)
        else:
            with open(path, "w", encoding="utf-8") as file:
                file.write("#!/bin/true\n")
            os.chmod(path, 0o755)


def named(top: str, rest: str, place: str = "") -> dict[str, str]:
    """What a pattern names, by walking and comparing whole paths; path to kind.

    Nothing is looked for below a name; with *place*, a folder below *top*, from there on.
    """
    parts = rest.split("/")

    def matches(names: list[str], wanted: list[str]) -> bool:
        if not wanted:
            return not names
        if wanted[0] == "**":
            return any(matches(names[skip:], wanted[1:]) for skip in range(len(names) + 1))
        fits = bool(names) and re.fullmatch(as_regex(wanted[0]), names[0], re.DOTALL)
        return bool(fits) and matches(names[1:], wanted[1:])

    found: dict[str, str] = {}

    def walk(folder: str, names: list[str]) -> None:
        for entry in os.scandir(folder):
            below = [*names, entry.name]
            folder_like = entry.is_dir(follow_symlinks=False)
            if matches(below, parts):
                kind = "l" if entry.is_symlink() else "d" if folder_like else "f"
                found[entry.path] = kind
            elif folder_like:
                walk(entry.path, below)

    start = place[len(top) + 1 :].split("/") if place else []
    for length in range(1, len(start) + 1):
        if matches(start[:length], parts):
            found["/".join([top, *start[:length]])] = "d"
    walk(place or top, start)
    return found


def found_by_c(place: str, top: str, patterns: list[str]) -> list[dict[str, str]]:
    """What one walk of C finds for each of *patterns*, and nothing twice."""
    budget = _native.expand_budget(entries=10**6, matches=10**6, work=10**9)
    found: list[dict[str, str]] = [{} for _ in patterns]
    for kind, index, path in _native.expand(
        place,
        fixed=len(top.encode()),
        patterns=patterns,
        budget=budget,
        most_matches=10**6,
    ):
        assert path not in found[index]
        found[index][path] = kind
    return found


@settings(
    max_examples=400 if FULL else 60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(
    seed=st.integers(0, 10**6),
    parts=st.lists(st.sampled_from(PARTS), min_size=1, max_size=4),
    start=st.integers(0, 5),
)
def test_the_walk_finds_what_a_second_walk_finds(
    tmp_path: Path, seed: int, parts: list[str], start: int
) -> None:
    """C must find each name below a folder that the pattern names, no other, and no link's."""
    while parts and parts[-1] == "**":
        parts.pop()
    if not parts:
        return
    top = str(tmp_path.resolve() / "tree")
    os.mkdir(top)
    try:
        grow(random.Random(seed), top)
        want = named(top, "/".join(parts))
        asked = ["/".join(parts), "**/nothing*here", "/".join(parts)]
        assert found_by_c(top, top, asked) == [want, {}, want]
        # Begun further down, as for a grant below the beginning: the part of it that lies there.
        folders = sorted(entry.path for entry in os.scandir(top) if entry.is_dir())
        if folders and not os.path.islink(folders[start % len(folders)]):
            place = folders[start % len(folders)]
            want = named(top, "/".join(parts), place)
            assert found_by_c(place, top, asked) == [want, {}, want]
    finally:
        shutil.rmtree(top)


# ---- what the kernel makes of them ------------------------------------------------------

OPENED = """
got = {}
for path in json.load(sys.stdin):
    got[path] = [opened(path), opened(path, os.O_WRONLY)]
answer(got)
"""


def test_the_kernel_decides_as_if_each_name_were_written_out(workspace: Path) -> None:
    """Random policies with patterns: no file is opened that the oracle denies, none is lost."""
    chosen = random.Random(7)
    opened = denied = 0
    for number in range(JAILS):
        top = str(workspace / str(number))
        os.mkdir(top)
        grow(chosen, top)
        rules: dict[str, list[str]] = {"read": [], "write": [], "deny": [], "deny_read": []}
        rules[chosen.choice(("read", "write"))].append(top)
        for _ in range(chosen.randint(1, 3)):
            parts = [chosen.choice(BEGINS), *chosen.choices(PARTS, k=chosen.randint(0, 2))]
            kind = chosen.choice(("read", "write", "deny", "deny", "deny_read"))
            rules[kind].append("/".join([top, *parts, *(["**"] if chosen.random() < 0.2 else [])]))
        pairs = written_out(top, rules)
        if pairs is None:
            with pytest.raises(vr.PolicyError, match="names nothing that exists"):
                Jail(policy_of(**rules))
            continue
        files = [
            f"{folder}/{name}"
            for folder, _, names in os.walk(top)
            for name in names
            if not os.path.islink(f"{folder}/{name}")
        ]
        policy = policy_of(**rules)
        with Jail(policy) as jail:
            got = inside(jail, OPENED, input=json.dumps(files).encode())
        for path in files:
            for right, result in zip(("read", "write"), got[path], strict=True):
                allowed = oracle.decide(pairs, right, path)
                assert (result == 0) == allowed, (rules, right, path, result)
                assert bool(policy.why(right, path)) == allowed, (rules, right, path)  # type: ignore[arg-type]
                opened += allowed
                denied += not allowed
    assert opened > JAILS
    assert denied > JAILS


def written_out(top: str, rules: dict[str, list[str]]) -> list[tuple[str, str]] | None:
    """Return (kind, path) of the rules with each pattern written out, None if a grant is empty."""
    pairs: list[tuple[str, str]] = []
    for kind in ("deny", "deny_read", "read", "write"):
        for path in rules[kind]:
            rest = path[len(top) + 1 :].split("/") if path != top else []
            while rest and rest[-1] == "**":
                rest.pop()
            if not rest:
                pairs.append((kind, top))
            elif kind.startswith("deny"):
                for match, link in named(top, "/".join(rest)).items():
                    pairs.append((kind, os.path.realpath(match) if link == "l" else match))
            else:
                # A grant by a pattern lifts no deny below its beginning.
                denies = [deny for given, deny in pairs if "deny" in given and deny != top]
                found = [
                    match
                    for match, link in named(top, "/".join(rest)).items()
                    if link != "l" and not any(oracle.covers(deny, match) for deny in denies)
                ]
                if not found:
                    return None
                pairs += [(kind, match) for match in found]
    return pairs


@pytest.mark.parametrize("kind", ["deny_write", "deny_exec"])
def test_a_deny_that_later_names_would_escape_is_refused(workspace: Path, kind: str) -> None:
    """A pattern that is worth nothing for the next file must not be taken; a folder's is."""
    (workspace / "bin").mkdir()
    (workspace / "bin" / "a.sh").write_text("#!/bin/true\n")
    (workspace / "bin" / "a.sh").chmod(0o755)
    rules = {"write": [workspace], kind: [workspace / "**" / "*.sh"]}
    with pytest.raises(vr.PolicyUnsupported, match=rf"{kind}\[0\].*made later.*/\*\*"):
        Jail(policy_of(**rules))
    act = f"""
import shutil
os.chdir({str(workspace / "bin")!r})
def run(path):
    return attempt(lambda: os.waitpid(os.posix_spawn(path, [path], {{}}), 0))
def made():
    shutil.copy("a.sh", "b.sh")
answer([opened("a.sh", os.O_WRONLY), attempt(made), run("./a.sh"), run("./b.sh")])
"""
    assert outside(act) == [0, 0, 0, 0]
    (workspace / "bin" / "b.sh").unlink()
    with Jail(policy_of(**(rules | {kind: [workspace / "bin" / "**"]}))) as jail:
        got = inside(jail, act)
        (clause,) = [one for one in jail.report.clauses if one.clause == f"{kind}[0]"]
    if kind == "deny_write":
        assert got[:3] == [errno.EROFS, errno.EROFS, 0]
        assert not (workspace / "bin" / "b.sh").exists()
    else:
        assert got == [0, 0, errno.EACCES, errno.EACCES]
    assert clause.bound == "always"


def test_a_deny_of_writing_what_nobody_can_write_holds_always(workspace: Path) -> None:
    """In a read grant a pattern of names to keep must not be refused: it holds as it is."""
    (workspace / "a.lock").touch()
    policy = policy_of(read=[workspace], deny_write=[workspace / "*.lock"])
    with Jail(policy) as jail:
        (clause,) = [one for one in jail.report.clauses if one.clause == "deny_write[0]"]
        assert inside(jail, f"answer(opened({str(workspace / 'a.lock')!r}, 1))") == errno.EROFS
        assert inside(jail, f"answer(opened({str(workspace / 'b.lock')!r}, 65))") == errno.EROFS
    assert clause.bound == "always"
    for grant in (workspace / "sub", workspace / "a.lock"):
        grant.mkdir() if grant.name == "sub" else None
        with pytest.raises(vr.PolicyUnsupported, match=r"deny_write\[0\]"):
            Jail(policy.replace(write=[grant]))


def test_an_answer_names_the_pattern_as_it_is_written(workspace: Path) -> None:
    """The reader must find the rule in the policy, and see what it stands for."""
    (workspace / "a.log").touch()
    decision = policy_of(write=[workspace], deny=[workspace / "*.log"]).why(
        "read", workspace / "a.log"
    )
    assert not decision
    assert f"deny[0] = '{workspace}/*.log'" in decision.reason
    assert f"names {workspace}/a.log" in decision.reason


def test_a_deny_holds_for_what_exists_and_says_so(workspace: Path) -> None:
    """What was there is closed; what the guest makes is its own; the report has the time."""
    (workspace / "old.log").write_text("host")
    act = f"""
os.chdir({str(workspace)!r})
def make():
    open("new.log", "w").write("guest")
answer([opened("old.log"), attempt(make), opened("new.log")])
"""
    policy = policy_of(write=[workspace], deny=[workspace / "*.log", workspace / "none?"])
    with Jail(policy) as jail:
        assert inside(jail, act) == [errno.EACCES, 0, 0]
        clauses = {one.clause: one for one in jail.report.clauses}
    assert clauses["deny[0]"].bound == clauses["deny[1]"].bound == "at_open"
    assert "1 name when" in clauses["deny[0]"].note
    assert "host adds later is not covered" in clauses["deny[0]"].note
    assert "0 names when" in clauses["deny[1]"].note
    (workspace / "sub").mkdir()
    strict = policy.replace(strict_globs=True)
    with pytest.raises(vr.PolicyUnsupported, match=r"deny\[0\].*strict_globs"):
        Jail(strict)
    with Jail(strict.replace(deny=[workspace / "sub" / "**"])) as jail:
        assert not jail.closed


def test_a_whole_folder_is_one_rule(workspace: Path) -> None:
    """20,000 files must cost one mount, be closed, and new names in the folder with them."""
    data = workspace / "data"
    data.mkdir()
    for number in range(20_000):
        (data / str(number)).touch()
    policy = policy_of(write=[workspace], deny=[data / "**"])
    act = f"answer([opened({str(data / '77')!r}), opened({str(data / 'new')!r}, 65)])"
    with Jail(policy) as jail:
        assert inside(jail, act)[0] in (errno.EACCES, errno.ENOENT)
        assert inside(jail, act)[1] in (errno.EACCES, errno.EROFS)
        assert jail.run(["/bin/echo", "hello"]).stdout == b"hello\n"
    assert [rule for rule in policy.resolved_rules() if rule.origin == "deny[0]"] == [
        vr.Rule(kind="deny", path=str(data), origin="deny[0]")
    ]
    assert not (data / "new").exists()


def test_an_island_under_a_denied_folder_is_reopened(workspace: Path) -> None:
    """The most specific path must win over a whole folder, and over nothing else in it."""
    for name in ("data/keep/a", "data/b"):
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).touch()
    policy = policy_of(
        write=[workspace], deny=[workspace / "data/**"], read=[workspace / "data/keep"]
    )
    paths = [str(workspace / name) for name in ("data/keep/a", "data/b")]
    with Jail(policy) as jail:
        got = inside(jail, OPENED, input=json.dumps(paths).encode())
    assert got[paths[0]] == [0, errno.EROFS]
    assert got[paths[1]][0] == errno.ENOENT


def test_a_grant_inside_of_a_name_is_looked_through_as_well(workspace: Path) -> None:
    """What a pattern names in a more specific grant must be denied there, too."""
    for name in ("x/y/x/secret", "x/y/open", "x/z"):
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).touch()
    policy = policy_of(write=[workspace], deny=[workspace / "**/x"], read=[workspace / "x/y"])
    paths = [str(workspace / name) for name in ("x/y/x/secret", "x/y/open", "x/z")]
    with Jail(policy) as jail:
        got = inside(jail, OPENED, input=json.dumps(paths).encode())
    assert [got[path][0] == 0 for path in paths] == [False, True, False]
    assert [bool(policy.why("read", path)) for path in paths] == [False, True, False]


def test_a_grant_by_pattern_lifts_no_deny_below_its_beginning(workspace: Path) -> None:
    """Naming all of a kind must not open a folder that the policy closes by its name."""
    for name in ("a.md", "private/b.md", "sub/private/c.md"):
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).touch()
    grant = workspace / "**" / "*.md"
    for denies in ([workspace / "private", workspace / "sub" / "private"], [f"{workspace}/**/pr*"]):
        policy = policy_of(read=[grant], deny=denies)
        with Jail(policy) as jail:
            paths = [str(path) for path in sorted(workspace.rglob("*.md"))]
            got = inside(jail, OPENED, input=json.dumps(paths).encode())
        assert [got[path][0] == 0 for path in paths] == [True, False, False]


def test_a_grant_by_pattern_follows_no_link(workspace: Path, outside: Path) -> None:
    """A link that a guest could have made must not bring its target into the jail."""
    (outside / "secret.txt").write_text("S")
    (workspace / "planted.txt").symlink_to(outside / "secret.txt")
    (workspace / "folder").symlink_to(outside)
    (workspace / "own.txt").write_text("O")
    for pattern in ("*.txt", "**/*.txt", "*/secret.txt"):
        policy = policy_of(read=[workspace / pattern])
        if pattern.startswith("*/"):
            with pytest.raises(vr.PolicyError, match="names nothing that exists"):
                Jail(policy)
            continue
        with Jail(policy) as jail:
            text = f"""answer([opened(path) for path in ({str(workspace / "own.txt")!r},
    {str(workspace / "planted.txt")!r}, {str(outside / "secret.txt")!r},
    {str(workspace / "folder/secret.txt")!r})])"""
            assert inside(jail, text) == [0, errno.ENOENT, errno.ENOENT, errno.ENOENT]


def test_a_deny_by_pattern_protects_what_a_link_leads_to(workspace: Path) -> None:
    """A link of a denied name must not be a way to say that its target is open."""
    (workspace / "real").write_text("S")
    (workspace / "a.cred").symlink_to("real")
    with Jail(policy_of(write=[workspace], deny=[workspace / "*.cred"])) as jail:
        text = f"answer([opened({str(workspace)!r} + n) for n in ('/real', '/a.cred')])"
        assert inside(jail, text) == [errno.EACCES, errno.EACCES]
    assert outside(text) == [0, 0]


def test_a_file_named_as_a_pattern_does_not_take_its_place(workspace: Path) -> None:
    """A guest that makes a file called ``*.cred`` must not switch the pattern off."""
    for name in ("a.cred", "*.cred", "[id]", "i"):
        (workspace / name).write_text("S")
    paths = [str(workspace / name) for name in ("a.cred", "*.cred", "[id]", "i")]

    def closed(deny: str) -> list[bool]:
        with Jail(policy_of(read=[workspace], deny=[f"{workspace}/{deny}"])) as jail:
            got = inside(jail, OPENED, input=json.dumps(paths).encode())
        return [got[path][0] != 0 for path in paths]

    assert closed("*.cred") == [True, True, False, False]
    assert closed("[id]") == [False, False, True, True]
    assert closed("[[]id]") == [False, False, True, False]
    assert closed("[*].cred") == [False, True, False, False]


def test_a_secret_is_not_granted_by_a_pattern(workspace: Path) -> None:
    """A name of the list among many must stay hidden, until it is revealed."""
    for name in (".env", "plain"):
        (workspace / name).write_text("A")
    policy = policy_of(read=[workspace / "*"])
    text = f"answer([opened({str(workspace)!r} + n) for n in ('/.env', '/plain')])"
    with Jail(policy) as jail:
        assert inside(jail, text) == [errno.ENOENT, 0]
    with Jail(policy.replace(reveal=[workspace / ".env"])) as jail:
        assert inside(jail, text) == [0, 0]


def test_more_names_than_a_policy_may_have_rules_are_refused(workspace: Path) -> None:
    """A pattern must not be taken for the first names that it stands for."""
    for number in range(10_001):
        (workspace / f"{number}.x").touch()
    for rules in (
        {"read": [workspace / "*.x"]},
        {"read": [workspace], "deny": [workspace / "*.x"]},
    ):
        with pytest.raises(vr.PolicyUnsupported, match="names too many files"):
            Jail(policy_of(**rules))


@pytest.mark.parametrize(
    ("field", "path", "words"),
    [
        ("read", "/w/a**", "a whole name"),
        ("deny", "/w/**b/c", "a whole name"),
        ("read", "/*/x", "the whole root"),
        ("write", "/**", "the whole root"),
        ("read", "/proc/*", "nothing in /proc"),
        ("deny", "/w" + "/*" * 100, "too many parts"),
    ],
)
def test_patterns_that_say_nothing_are_refused(field: str, path: str, words: str) -> None:
    """A pattern that cannot be meant must be an error when the policy is made."""
    with pytest.raises(vr.PolicyError, match=words):
        policy_of(**{field: [path]})


def test_a_folder_with_such_characters_is_no_pattern(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Work in a folder called ``proj[1]`` must mean that folder, on the command line too."""
    folder = workspace / "proj[1]"
    (folder / "src").mkdir(parents=True)
    (workspace / "proj1").mkdir()
    (folder / "src" / "a.py").write_text("print('ran')")
    (folder / "b.txt").write_text("B")
    policy = vr.JailPolicy.workspace(folder)
    assert {rule.path for rule in policy.resolved_rules() if rule.kind == "write"} >= {str(folder)}
    assert not policy.why("write", workspace / "proj1" / "x") or str(workspace).startswith("/tmp")
    data = {"read": ["src/**/*.py"], "deny_write": ["src"]}
    loaded = vr.JailPolicy.from_dict(data, folder=folder)
    assert [rule.path for rule in loaded.resolved_rules() if rule.origin == "deny_write[0]"] == [
        str(folder / "src")
    ]
    monkeypatch.chdir(folder)
    command = ["sh", "-c", f"cat '{folder}/src/a.py' && ! cat '{folder}/b.txt' 2>/dev/null"]
    assert main(["exec", "--read", "src/**/*.py", "--", *command]) == 0
    assert capfd.readouterr().out == "print('ran')"
    assert main(["exec", "--read", "src/*.c", "--", "true"]) == 125
    assert "names nothing that exists" in capfd.readouterr().err
    assert main(["exec", "--read", ".", "--deny", "*.txt", "--strict-globs", "--", "true"]) == 125
    assert "strict_globs" in capfd.readouterr().err


def test_a_policy_with_patterns_stays_a_value(workspace: Path) -> None:
    """Patterns must survive dicts, pickling and narrowing as they were written."""
    import pickle

    (workspace / "a.log").touch()
    policy = policy_of(write=[workspace], deny=[workspace / "*.log"], strict_globs=True)
    for same in (
        vr.JailPolicy.from_dict(policy.to_dict()),
        pickle.loads(pickle.dumps(policy)),
        policy.replace(),
    ):
        assert same == policy
        assert same.digest == policy.digest
        assert hash(same) == hash(policy)
    assert policy.digest != policy.replace(strict_globs=False).digest
    both = policy_of(write=[workspace]).narrow(policy)
    assert both.strict_globs
    assert not both.why("read", workspace / "a.log")
    assert str(workspace / "*.log") in both.deny


def test_fs_15_a_pattern_for_a_folder_is_one_rule(workspace: Path) -> None:
    """20,000 files below a pattern of a whole folder must cost no mount each, and stay denied."""
    data = workspace / "data"
    data.mkdir()
    for number in range(20_000):
        (data / f"file{number}").touch()
    (data / "file7").write_text("secret")
    assert subprocess.run(["cat", data / "file7"], capture_output=True, check=True).stdout
    begin = time.monotonic()
    with Jail(policy_of(write=[workspace], deny=[f"{data}/**"])) as jail:
        assert jail.run(["echo", "hello"]).stdout == b"hello\n"
        assert time.monotonic() - begin < 2  # of the case; about a tenth of that is needed
        result = jail.run(["cat", data / "file7"])
        assert (result.exit_code, result.stdout) == (1, b"")
        assert result.stderr_text.endswith("Permission denied\n")
