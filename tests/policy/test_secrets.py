"""Secrets in a grant: hidden from the guest by their names, lifted one path at a time."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jail_helpers import Jail, JailPolicy, errno, inside, outside, policy_of

import visruntime as vr
from visruntime import PolicyUnsupported, _native
from visruntime._jail import facts as facts_module
from visruntime._jail import plan as plan_module
from visruntime._policy.secret_names import NAMES, hidden_at, table

KEY = "-----BEGIN RSA PRIVATE KEY-----\nnot a key\n"
CERTIFICATES = "-----BEGIN CERTIFICATE-----\nnot one\n"

SECRETS = {
    ".env": "A=1",
    ".env.production": "A=1",
    ".envrc": "export A=1",
    ".npmrc": "//registry/:_authToken=1",
    ".netrc": "password 1",
    ".git-credentials": "https://u:p@example.org",
    ".docker/config.json": "{}",
    "deep/er/id_ed25519": "1",
    "state/terraform.tfstate": "{}",
    "server.pem": CERTIFICATES + KEY,
    "fullchain.pem": CERTIFICATES * 200 + KEY,
    "UPPER.PEM": KEY,
    "Store.Jks": "1",
    ".claude/.credentials.json": "{}",
    ".codex/auth.json": "{}",
    ".gemini/oauth_creds.json": "{}",
    ".cache/huggingface/token": "1",
    ".Xauthority": "1",
    ".config/chromium/Default/Cookies": "1",
    ".mozilla/firefox/profile/logins.json": "{}",
    ".config/sops/age/keys.txt": "1",
    ".msmtprc": "1",
    ".authinfo": "1",
    ".bitcoin/wallets/one": "1",
    "server.key": "-----BEGIN ENCRYPTED PRIVATE KEY-----\n",
    "open.key": "-----BEGIN OPENSSH PRIVATE KEY-----\n",
    "pgp.key": "-----BEGIN PGP PRIVATE KEY BLOCK-----\n",
    "putty.key": "PuTTY-User-Key-File-3: ssh-ed25519\n",
    ".ssh/config": "Host *",
    ".aws/credentials": "1",
    "home/.config/gcloud/tokens.db": "1",
}
ORDINARY = {
    ".env.example": "A=",
    ".env.production.sample": "A=",
    "env": "A",
    "cacert.pem": CERTIFICATES * 4000,
    "public.key": "-----BEGIN PUBLIC KEY-----\n",
    "binary.key": "\0\1\2",
    "id_ed25519.pub": "1",
    "config.json": "{}",
    ".git/config": "[remote]\n",
    ".venv/lib/python3.12/site-packages/certifi/test.pem": KEY,
    ".venv/lib/python3.12/test/keycert.pem": KEY,
    "node_modules/ssl/test/key.pem": KEY,
    "node_modules/x/.npmrc": "x",
}

READ_AND_WRITE = """
import sys
got = {}
for path in json.load(sys.stdin):
    got[path] = [opened(path), opened(path, os.O_WRONLY)]
answer(got)
"""


def fill(folder: Path, files: dict[str, str]) -> list[str]:
    """Make *files* below *folder* and return their paths."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o644)
    return [str(folder / name) for name in files]


def asked(paths: list[str]) -> bytes:
    """Return *paths* as the input of a guest."""
    return json.dumps(paths).encode()


@pytest.mark.parametrize("kind", ["read", "write"])
def test_no_secret_is_read_or_written_and_nothing_else_is_hidden(
    workspace: Path, kind: str
) -> None:
    """Each listed name gives EACCES or is out of sight inside, while it opens outside."""
    secrets, ordinary = fill(workspace, SECRETS), fill(workspace, ORDINARY)
    policy = policy_of(**{kind: [workspace]})
    with Jail(policy) as jail:
        got = inside(jail, READ_AND_WRITE, input=asked([*secrets, *ordinary]))
        listed = {
            clause.clause.removeprefix("secrets ")
            for clause in jail.report.clauses
            if clause.clause.startswith("secrets ")
        }
        clause = next(one for one in jail.report.clauses if one.clause == "secrets")
        tried = {canary.name for canary in jail.report.canaries}
    free = outside(READ_AND_WRITE, input=asked([*secrets, *ordinary]).decode())
    for path in secrets:
        assert free[path] == [0, 0]
        covered = {top for top in listed if path == top or path.startswith(top + "/")}
        assert len(covered) == 1
        refused = (errno.EACCES,) if path in listed else (errno.ENOENT, errno.EACCES)
        assert got[path][0] in refused
        assert got[path][1] in (*refused, errno.EROFS)
        assert not policy.why("read", path)
        assert not policy.why("write", path)
    for path in ordinary:
        assert free[path] == [0, 0]
        assert got[path] == [0, 0 if kind == "write" else errno.EROFS]
        assert policy.why("read", path)
    assert clause.bound == "at_open"
    assert clause.mechanisms == ("mount",)
    assert str(len(listed)) in clause.note
    assert f"read {workspace}/.env" in tried


def test_a_jail_without_secrets_says_so(workspace: Path) -> None:
    """The report must have the clause when nothing is hidden, too."""
    with Jail(policy_of(read=[workspace])) as jail:
        clauses = [one for one in jail.report.clauses if one.clause.startswith("secrets")]
    assert [(one.clause, one.note) for one in clauses] == [("secrets", "none found")]


def test_a_secret_cannot_be_moved_away_or_replaced(workspace: Path) -> None:
    """Renaming it, its folder, or another file over it must fail, and leave it as it was."""
    fill(workspace, {"conf/.env": "A=1", "other": "B=2"})
    act = f"""
os.chdir({str(workspace)!r})
answer([attempt(os.rename, "conf", "node_modules"), attempt(os.rename, "conf/.env", "x"),
    attempt(os.rename, "other", "conf/.env"), attempt(os.unlink, "conf/.env"),
    attempt(os.link, "conf/.env", "y"), attempt(os.chmod, "conf/.env", 0o644)])
"""
    with Jail(policy_of(write=[workspace])) as jail:
        got = inside(jail, act)
    assert got[:4] == [errno.EBUSY] * 4
    assert got[4] in (errno.EXDEV, errno.EPERM)
    assert got[5] in (errno.EROFS, errno.EPERM)
    assert (workspace / "conf/.env").read_text() == "A=1"
    moved = outside(f"os.chdir({str(workspace)!r})\nanswer(attempt(os.rename, 'conf', 'x'))")
    assert moved == 0


def test_what_the_guest_makes_itself_stays_its_own(workspace: Path) -> None:
    """A name of the list that appears later must not be refused: it is the guest's data."""
    act = f"""
os.chdir({str(workspace)!r})
open(".env", "w").write("mine")
answer(open(".env").read())
"""
    policy = policy_of(write=[workspace])
    assert policy.why("write", workspace / ".env")
    with Jail(policy) as jail:
        assert inside(jail, act) == "mine"
    assert not policy.why("read", workspace / ".env")


@pytest.mark.parametrize("kind", ["read", "write"])
def test_reveal_lifts_one_path(workspace: Path, kind: str) -> None:
    """A revealed file must be had as far as granted, and its neighbours must not."""
    fill(workspace, SECRETS)
    policy = policy_of(
        **{kind: [workspace]},
        reveal=[workspace / ".env", workspace / ".ssh/config", workspace / ".aws"],
    )
    paths = [str(workspace / name) for name in SECRETS]
    shown = {str(workspace / name) for name in (".env", ".ssh/config", ".aws/credentials")}
    with Jail(policy) as jail:
        got = inside(jail, READ_AND_WRITE, input=asked(paths))
        listing = inside(jail, f"answer(attempt(os.listdir, {str(workspace / '.ssh')!r}))")
        report = jail.report
    for path in paths:
        assert (got[path][0] == 0) == (path in shown), path
        assert (got[path][1] == 0) == (path in shown and kind == "write"), path
        assert bool(policy.why("read", path)) == (path in shown)
    assert listing == errno.EACCES
    assert {one.clause for one in report.clauses} >= {"reveal[0]", "reveal[1]", "reveal[2]"}


def test_reveal_grants_nothing_by_itself(workspace: Path, outside: Path) -> None:
    """A revealed path outside of every grant must stay out of sight, and that is reported."""
    fill(outside, {".env": "A"})
    fill(workspace, {"plain": "A"})
    policy = policy_of(read=[workspace], reveal=[outside / ".env", workspace / "plain"])
    with Jail(policy) as jail:
        assert inside(jail, f"answer(opened({str(outside / '.env')!r}))") == errno.ENOENT
        assert f"reveal[1]: nothing is hidden at {workspace / 'plain'}" in jail.report.notes


def test_revealing_an_ordinary_folder_lifts_nothing_in_it(workspace: Path) -> None:
    """Only a secret path itself can be revealed, never all secrets of a grant at once."""
    fill(workspace, {".env": "A", "sub/.env": "A"})
    policy = policy_of(read=[workspace], reveal=[workspace])
    with Jail(policy) as jail:
        text = f"answer([opened({str(workspace)!r} + n) for n in ('/.env', '/sub/.env')])"
        assert inside(jail, text) == [errno.EACCES, errno.EACCES]
    assert not policy.why("read", workspace / ".env")


@pytest.mark.parametrize("name", [".env", ".ssh", ".ssh/config", "server.pem"])
def test_a_grant_of_a_secret_alone_is_refused(workspace: Path, name: str) -> None:
    """Naming it in a grant must not lift it in silence; the error has the line to paste."""
    fill(workspace, SECRETS)
    path = str(workspace / name)
    policy = policy_of(read=[path])
    with pytest.raises(vr.PolicyUnsupported, match=re.escape(f"add reveal=[{path!r}]")) as caught:
        Jail(policy)
    assert caught.value.field == "read[0]"
    assert not policy.why("read", path)
    with Jail(policy.replace(reveal=[path])) as jail:
        target = path + "/config" if name == ".ssh" else path
        assert inside(jail, f"answer(opened({target!r}))") == 0


def test_why_says_which_secret_and_how_to_reveal_it(workspace: Path) -> None:
    """The answer must name the rule and hold the line that lifts it."""
    fill(workspace, SECRETS)
    path = str(workspace / ".ssh/config")
    decision = policy_of(write=[workspace]).why("read", path)
    assert decision.rule == vr.Rule(kind="deny", path=str(workspace / ".ssh"), origin="secrets")
    assert "keys and hosts of SSH" in decision.reason
    assert f"reveal=[{path!r}]" in decision.reason
    assert decision.grant is not None
    assert decision.grant.python == f"reveal=[{path!r}]"
    assert decision.grant.cli.startswith("--reveal ")


def test_a_refused_secret_is_explained_with_what_reveals_it(workspace: Path) -> None:
    """A guest that fails on a secret must leave a hint that names it, and no wider grant."""
    fill(workspace, {".env": "A"})
    with Jail(policy_of(read=[workspace])) as jail:
        result = jail.run(["cat", str(workspace / ".env")])
    (hint,) = result.violations
    assert (hint.rule, hint.kind, hint.target) == ("secrets", "read", f"{workspace}/.env")
    assert hint.grant is not None
    assert hint.grant.python == f"reveal=['{workspace}/.env']"


def test_a_link_by_a_secret_name_hides_what_it_leads_to(workspace: Path, outside: Path) -> None:
    """The target inside the grant must not be read by its own name; one outside is not there."""
    fill(workspace, {"conf/production": "A=1"})
    fill(outside, {"env": "A"})
    (workspace / ".env").symlink_to("conf/production")
    (workspace / ".npmrc").symlink_to(outside / "env")
    policy = policy_of(write=[workspace])
    paths = [str(workspace / name) for name in ("conf/production", ".env", ".npmrc")]
    with Jail(policy) as jail:
        got = inside(jail, f"answer([opened(path) for path in {paths!r}])")
    assert got == [errno.EACCES, errno.EACCES, errno.ENOENT]
    assert not policy.why("read", paths[1])
    with Jail(policy.replace(reveal=[paths[0]])) as jail:
        got = inside(jail, f"answer([opened(path) for path in {paths!r}])")
    assert got == [0, 0, errno.ENOENT]


@pytest.mark.parametrize("kind", ["read", "write"])
def test_other_names_of_a_secret_are_hidden_too(workspace: Path, kind: str) -> None:
    """A hard link to a secret inside the grant must not show it."""
    fill(workspace, {".env": "A=1", "sub/x": ""})
    os.link(workspace / ".env", workspace / "sub" / "alias")
    with Jail(policy_of(**{kind: [workspace]})) as jail:
        got = inside(jail, f"answer(opened({str(workspace / 'sub' / 'alias')!r}))")
        listed = {clause.clause for clause in jail.report.clauses}
    assert got == errno.EACCES
    assert f"secrets {workspace / 'sub' / 'alias'}" in listed
    assert outside(f"answer(opened({str(workspace / 'sub' / 'alias')!r}))") == 0


def test_secrets_of_the_whole_root_are_hidden() -> None:
    """With system="host" the same names are closed wherever the root shows them."""
    candidates = ("/opt", "/srv", os.path.expanduser("~"), os.getcwd())
    private = ("/tmp", "/var/tmp", "/dev/shm")
    tops = [top for top in candidates if os.access(top, os.W_OK) and not top.startswith(private)]
    if not tops:
        pytest.skip("no folder can be written here that jails do not have for themselves")
    folder = tempfile.mkdtemp(prefix=".vis-secrets-", dir=tops[0])
    try:
        os.chmod(folder, 0o755)
        fill(Path(folder), {".env": "A", "plain": "A"})
        text = f"answer([opened({folder!r} + name) for name in ('/.env', '/plain')])"
        with Jail(policy_of(system="host")) as jail:
            assert inside(jail, text) == [errno.EACCES, 0]
        assert outside(text) == [0, 0]
        assert not policy_of(system="host").why("read", f"{folder}/.env")
    finally:
        shutil.rmtree(folder)


def test_more_secrets_than_a_policy_may_have_rules_are_refused(workspace: Path) -> None:
    """A grant with too many must not open with some of them shown."""
    for number in range(10_001):
        (workspace / f".env.{number}").touch()
    with pytest.raises(vr.PolicyUnsupported, match="too many files that hold secrets"):
        Jail(policy_of(read=[workspace]))


def test_a_key_that_cannot_be_read_counts_as_one(workspace: Path) -> None:
    """Its owner could open it to a guest later, so it must be hidden, by C and by `why`."""
    fill(workspace, {"a.pem": CERTIFICATES})
    (workspace / "a.pem").chmod(0)
    found = _native.search(
        str(workspace),
        most_entries=10,
        most_findings=1,
        most_secrets=10,
        most_key_bytes=10**6,
        secrets=table(),
    )
    expected = [] if os.geteuid() == 0 else [("k", str(workspace / "a.pem"))]
    assert found == expected
    assert bool(hidden_at(table(), str(workspace / "a.pem"), ())) == bool(expected)


def oracle_hides(parts: list[str], *, folder: bool) -> bool:
    """The list a second time, read plainly: whether the last of *parts* is hidden."""
    for end in range(1, len(parts) + 1):
        name, above = parts[end - 1], parts[end - 2] if end > 1 else ""
        is_folder = folder or end < len(parts)
        if any(kind == "installed" and name == known for kind, known, _ in NAMES):
            return False
        if above in ("lib", "lib64") and name.startswith("python3."):
            return False
        for kind, known, _ in NAMES:
            fits = f"{above}/{name}" == known if "/" in known else name == known
            if is_folder:
                if kind == "folder" and fits:
                    return True
            elif kind == "file":
                if fits:
                    return True
            elif kind == "suffix":
                if name.endswith(known) and name != known:
                    return True
            elif kind == "prefix" and name.startswith(known):
                public = [k for kind, k, _ in NAMES if kind == "public"]
                if not any(name.endswith(end) and name != end for end in public):
                    return True
    return False


words = st.sampled_from(
    sorted(
        {part for kind, name, _ in NAMES if kind != "key" for part in name.split("/")}
        | {".env.local", ".envrc", ".env.example", "x.tfstate", "python3.12", "lib", "a", ".", "é"}
        - {"."}
    )
)


@settings(
    max_examples=2000 if os.environ.get("VIS_FULL") else 300,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(parts=st.lists(words, min_size=1, max_size=4), folder=st.booleans())
def test_the_search_and_why_hide_what_the_list_says(
    tmp_path: Path, parts: list[str], *, folder: bool
) -> None:
    """C's search, C's question about one path and a plain reading of the list must agree."""
    top = tmp_path.resolve() / "tree"
    path = top.joinpath(*parts)
    try:
        path.parent.mkdir(parents=True)
        path.mkdir() if folder else path.touch()
        found = _native.search(
            str(top),
            most_entries=100,
            most_findings=10,
            most_secrets=10,
            most_key_bytes=10**6,
            secrets=table(),
        )
        hidden = hidden_at(table(), str(path), ())
        assert [place for _, place in found] == ([hidden[0]] if hidden else [])
        assert bool(hidden) == oracle_hides(["tree", *parts], folder=folder)
    finally:
        shutil.rmtree(top)


def test_no_link_is_followed_to_look_for_a_key(workspace: Path, outside: Path) -> None:
    """What a guest has put in the place of a file or folder leads the host to no other file."""
    for folder in (workspace, outside):
        (folder / "sub").mkdir()
        (folder / "sub" / "own.pem").write_text(KEY)
    (workspace / "sub" / "other.pem").symlink_to(outside / "sub" / "own.pem")
    (workspace / "moved").symlink_to(outside / "sub")
    for name, hidden in (("sub/own.pem", True), ("sub/other.pem", False), ("moved/own.pem", False)):
        found = hidden_at(table(), str(workspace / name), (), folder=False)
        assert (found is not None) is hidden, name
    # Asked by a link that leads to a file in the grant, that file's content counts.
    (workspace / "plain.txt").write_text(KEY)
    (workspace / "link.pem").symlink_to("plain.txt")
    assert not JailPolicy(read=[workspace]).why("read", workspace / "link.pem")


def test_every_entry_of_the_list_says_what_such_a_file_holds() -> None:
    """No entry that hides may come without its reason, and none may be there twice."""
    hiding = [(kind, name, why) for kind, name, why in NAMES if why]
    assert {kind for kind, _, _ in hiding} == {"folder", "file", "prefix", "suffix", "key"}
    assert {kind for kind, _, why in NAMES if not why} == {"public", "installed", "library"}
    assert len({(kind, name) for kind, name, _ in NAMES}) == len(NAMES)


@pytest.mark.parametrize(("times", "opens"), [(2, True), (3, False)])
def test_a_secret_that_goes_away_meanwhile_is_looked_for_again(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, *, times: int, opens: bool
) -> None:
    """A folder in which somebody works must not keep a jail from opening, nor be shown half seen."""
    look = facts_module.facts_of
    left = [times]

    def facts(*given: Any) -> Any:
        # Between the search and the look at what it found.
        if left[0]:
            left[0] -= 1
            (workspace / ".env").unlink()
            seen = look(*given)
            (workspace / ".env").touch()
            return seen
        return look(*given)

    (workspace / ".env").touch()
    monkeypatch.setattr(plan_module, "facts_of", facts)
    policy = JailPolicy(read=[workspace])
    if opens:
        with Jail(policy) as jail:
            assert jail.run(["cat", str(workspace / ".env")]).exit_code == 1
        return
    with pytest.raises(PolicyUnsupported, match="went away while the jail opened") as caught:
        Jail(policy)
    assert caught.value.value == str(workspace / ".env")


@pytest.mark.parametrize("prefix", [".", "inner"])
def test_only_the_interpreter_itself_is_exempt_of_its_prefix(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, prefix: str
) -> None:
    """A prefix may be ~/.local or a project's own folder: what else it holds must stay hidden."""
    top = (workspace / prefix).resolve()
    monkeypatch.setattr(sys, "base_prefix", str(top))
    secrets = [".env", "share/keyrings/login.keyring", "project/.env", ".aws/credentials"]
    installed = ["bin/.env", "include/.env", "lib/python3.11/.env", "lib64/python3.11/test/id_rsa"]
    for name in (*secrets, *installed):
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text("x")
    policy = JailPolicy(read=[workspace])
    with Jail(policy) as jail:
        for names, allowed in ((secrets, False), (installed, True)):
            paths = [str(top / name) for name in names]
            got = inside(jail, f"answer([opened(p) == 0 for p in {paths!r}])")
            assert got == [allowed] * len(names)
            assert [policy.why("read", path).allowed for path in paths] == got
