"""The kernel against the C decision function and the oracle, on random policies.

For each policy a jail is opened, and one guest tries to read, to write and to execute every
node of a small tree, and to move every node aside and back. Nothing may be possible that the
decision does not allow, and everything that it allows must be possible.

Two places need words. Where the jail's own private place decides (the tree lies in /tmp), the
host's object must not be there at all: a name of the policy may be a folder of the jail's own,
never the host's file; and nothing that leads to a rule may be moved aside, so the folder of all
trees is tried too. And a folder that only leads to a rule below it is the jail's own: it may
show the names that the policy itself holds, and no other.

Half of the policies also deny writing to names that do not exist. Nobody may make them;
other names are made beside them by the broker, or under ``absent_deny="wall"`` not at all.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import tempfile
from typing import TYPE_CHECKING

import oracle
import pytest
from jail_helpers import PYTHON, Jail, Limits, backends, errno, guest, policy_of

from visruntime._jail import bubblewrap as _jail_bubblewrap
from visruntime._native import decide
from visruntime.errors import PolicyUnsupported
from visruntime.policy import PRIVATE_WRITE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

POLICIES = int(os.environ.get("VIS_POLICIES", "5000" if os.environ.get("VIS_FULL") else "500"))
CHUNKS = 10
KINDS = ("read", "write", "deny", "deny_read", "deny_write", "deny_exec")
RIGHTS = ("read", "write", "exec")
NAMES = ("a", "ab", "b", ".git", "é x")
OWN_FOLDER = -1  # a rule in a private place is a folder of the jail's own
PROGRAM = "#!/bin/true\n"
ASIDE = "~"
PROBE = ".probe"

GUEST = """
def spawned(path):
    def act():
        os.waitpid(os.posix_spawn(path, [path], {}), 0)
    return attempt(act)

def listed(path):
    try:
        return sorted(os.listdir(path))
    except OSError as error:
        return error.errno

def made(path):
    got = attempt(os.mkdir, path)
    return got or attempt(os.rmdir, path)

def moved(path):
    got = attempt(os.rename, path, path + "~")
    return got or attempt(os.rename, path + "~", path)

def ran(path):
    # A program of the guest's own: whether it could be made, and whether it is executed.
    name = path + "/.probe"
    def make():
        file = os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o755)
        os.write(file, b"#!/bin/true\\n")
        os.close(file)
    got = attempt(make)
    if got:
        return got, 0
    run = spawned(name)
    os.unlink(name)
    return 0, run

def attacked(path):
    # One part after the other: in the end something would be there. What is only above
    # a denied name may be made, and goes again.
    made = []
    parts = path.split("/")
    for end in range(2, len(parts) + 1):
        part = "/".join(parts[:end])
        if attempt(os.mkdir, part) == 0:
            made.append(part)
    opened(path, os.O_CREAT | os.O_WRONLY)
    attempt(os.symlink, ".", path)
    for folder in (os.path.dirname(path), top):
        names = listed(folder)
        for name in names if isinstance(names, list) else ():
            attempt(os.rename, f"{folder}/{name}", path)
    for part in reversed(made):
        attempt(os.rmdir, part)

got = {}
nodes, absent, above = eval(sys.stdin.read())  # to import json takes longer than all of this
top = nodes[-1][0]
for path in absent:
    attacked(path)
for path, folder in nodes:
    got[path] = (
        [listed(path), made(path + "/.probe"), moved(path), ran(path)] if folder
        else [-1 if os.path.isdir(path) else opened(path), opened(path, os.O_WRONLY),
            moved(path), spawned(path)]
    )
got[above] = moved(above)
answer(got)
"""


class Case:
    """A random tree, a random policy over it, and what must hold."""

    DEPTH = 3
    CHILDREN = (1, 3)
    PROGRAM = PROGRAM

    def __init__(
        self,
        top: str,
        seed: int,
        *,
        bare: bool = False,
        brokered: bool = True,
        tree: Case | None = None,
    ) -> None:
        self.top = top
        self.random = random.Random(seed)
        self.folders: list[str] = list(tree.folders) if tree else [top]
        self.files: list[str] = list(tree.files) if tree else []
        if not tree:
            self._grow(top, 0)
        self.nodes = [*self.folders, *self.files]
        rules: dict[str, list[str]] = {kind: [] for kind in KINDS}
        for _ in range(self.random.randint(1, 8)):
            weights = (3, 4, 2, 1, 2, 1)
            kind = self.random.choices(KINDS, weights)[0]
            rules[kind].append(self._node())
        self.absent = [
            self._absent() for _ in range(self.random.choice((0, 0, 1, 2))) if self.folders
        ]
        rules["deny_write"] += self.absent
        self.written = [(kind, path) for kind, paths in rules.items() for path in paths]
        # Without mounts a jail has no private places, and no limits that need them.
        self.bare = bare
        limits = Limits(processes=None, scratch=None) if bare else Limits()
        # Only a jail with namespaces of its own has a broker.
        self.mode = self.random.choice(("broker", "wall")) if brokered else "wall"
        self.policy = policy_of(**rules, absent_deny=self.mode, limits=limits)
        resolved = self.policy.resolved_rules()
        if bare:
            resolved = tuple(rule for rule in resolved if rule.origin != "private")
        self.rules = [(rule.kind, rule.path) for rule in resolved]
        self.private = {i for i, rule in enumerate(resolved) if rule.origin == "private"}
        self.known: dict[tuple[str, str], tuple[bool, bool]] = {}

    def _node(self) -> str:
        return self.random.choice(self.nodes)

    def _absent(self) -> str:
        folder = self.random.choice(self.folders)
        free = [name for name in (*NAMES, "new") if not os.path.lexists(f"{folder}/{name}")]
        path = f"{folder}/{self.random.choice(free)}"
        return path if self.random.random() < 0.6 else f"{path}/below"

    def is_walled(self, folder: str) -> bool:
        """Tell whether the wall keeps new names out of *folder*."""
        names = [n for n in self.absent if not self.decide("read", n)[1]]
        walled = oracle.is_walled(self.rules, names, self.folders, folder)
        walled = walled and self.mode == "wall"
        new = f"{folder}/{PROBE}"
        if self.bare:
            return walled
        assert bool(self.policy.why("write", new)) == (self.decide("write", new)[0] and not walled)
        return walled

    def _grow(self, folder: str, depth: int) -> None:
        for name in self.random.sample(NAMES, self.random.randint(*self.CHILDREN)):
            path = f"{folder}/{name}"
            if depth < self.DEPTH and self.random.random() < 0.55:
                os.mkdir(path)
                self.folders.append(path)
                self._grow(path, depth + 1)
            else:
                with open(path, "w", encoding="utf-8") as file:
                    file.write(self.PROGRAM)
                os.chmod(path, 0o755)
                self.files.append(path)

    def decide(self, right: str, path: str) -> tuple[bool, bool]:
        """Return C's answer, and whether a private place gave it; it must be the oracle's."""
        if (right, path) not in self.known:
            allowed, index = self.ask(right, path)
            assert allowed == oracle.decide(self.rules, right, path), (right, path)
            self.known[right, path] = allowed, index in self.private
        return self.known[right, path]

    def ask(self, right: str, path: str) -> tuple[bool, int]:
        """Return C's answer and the number of the rule that gave it."""
        return decide(self.rules, right, path)

    def is_named(self, path: str) -> bool:
        """Tell whether the policy itself names *path* or something below it."""
        return any(oracle.covers(path, top) for _, top in self.written)

    def is_redundant(self, top: str) -> bool:
        """Tell whether the rules at *top* change nothing for it."""
        without = [(kind, path) for kind, path in self.rules if path != top]
        return all(decide(without, r, top)[0] == decide(self.rules, r, top)[0] for r in RIGHTS)


def check_folder(case: Case, path: str, got: list[Any]) -> None:
    """Judge what a guest could do with a folder."""
    names, made, _, (program, run) = got
    if program == 0:
        wanted = 0 if case.decide("exec", path)[0] else errno.EACCES
        assert run == wanted, f"executing gave {run}"
    read, is_own = case.decide("read", path)
    if read and not is_own:
        hidden = isinstance(names, int)
        assert not hidden, f"reading failed with {names}"
        assert set(names) <= {n for n in os.listdir(path) if n != PROBE}
    elif isinstance(names, list):
        below = [n[len(path) + 1 :] for n in (*case.nodes, *case.absent) if oracle.covers(path, n)]
        own = {n.split("/")[0] for n in below if n}
        leading = {name for name in own if case.is_named(f"{path}/{name}")}
        assert set(names) <= leading, "names of the host are visible"
    else:
        assert names in (errno.EACCES, errno.ENOENT)
    write, is_own = case.decide("write", path)
    if write and not is_own:
        wanted = errno.EACCES if case.is_walled(path) else 0
        assert made == wanted, f"writing gave {made}"
    elif not write:
        assert made in (errno.EACCES, errno.ENOENT, errno.EROFS)


def check_file(case: Case, path: str, got: list[Any]) -> None:
    """Judge what a guest could do with a file."""
    read, write, _, run = got
    for right, outcome in (("read", read), ("write", write), ("exec", run)):
        allowed, is_own = case.decide(right, path)
        if is_own or case.decide("read", path)[1]:
            own = (errno.ENOENT, errno.EACCES, errno.EROFS, errno.EISDIR, OWN_FOLDER)
            assert outcome in own, f"{right}: the host's file is there"
        elif allowed:
            assert outcome == 0, f"{right} failed with {outcome}"
        else:
            denials: tuple[int, ...] = (errno.EACCES, errno.ENOENT, errno.EROFS)
            if case.decide("read", os.path.dirname(path))[1]:
                denials += (errno.EISDIR, OWN_FOLDER)  # a deny in a private place
            assert outcome in denials, f"{right}: {outcome}"


def check_move(case: Case, path: str, outcome: int) -> None:
    """Judge whether a node could be moved aside."""
    parent = os.path.dirname(path)
    write, is_own = case.decide("write", parent)
    below = [top for _, top in case.written if oracle.covers(path, top)]
    if is_own and outcome == 0:
        assert not os.path.lexists(path + ASIDE)
        assert all(case.is_redundant(top) for top in below), "a rule was moved aside"
    if is_own:
        return
    if oracle.covers(path, case.top):
        assert outcome != 0
        return
    if not write or case.is_walled(parent):
        assert outcome != 0
    elif not below and case.decide("write", path)[0]:
        assert outcome == 0, f"moving failed with {outcome}"
    elif outcome == 0:
        assert all(case.is_redundant(top) for top in below), "a rule was moved aside"


def contents(top: str) -> dict[str, bytes | None]:
    """Return every name below *top* and what the files hold."""
    found: dict[str, bytes | None] = {}
    for folder, _, files in os.walk(top):
        found[folder] = None
        for name in files:
            with open(f"{folder}/{name}", "rb") as file:
                found[f"{folder}/{name}"] = file.read()
    return found


def places() -> list[str]:
    """Return where trees are made: in a place that jails hide, and if there is one, outside."""
    found = ["/tmp"]
    for candidate in (os.path.expanduser("~"), "/opt", os.getcwd()):
        real = os.path.realpath(candidate)
        own = any(oracle.covers(place, real) for place in PRIVATE_WRITE)
        if not own and os.access(real, os.W_OK) and real != "/":
            return [*found, real]
    return found


@pytest.fixture(params=range(len(places())), ids=lambda number: ("hidden", "outside")[number])
def place(request: pytest.FixtureRequest) -> Iterator[str]:
    """Return a folder for the trees that is gone after the test."""
    folder = tempfile.mkdtemp(prefix=".vis-kernel-", dir=places()[request.param])
    os.chmod(folder, 0o755)
    yield os.path.realpath(folder)
    shutil.rmtree(folder)


def compare(place: str, number: int, backend: str) -> int | None:
    """Try one random policy by one back end; return how many nodes it granted.

    None: the back end cannot hold the policy, and said so before anything started.
    """
    top = f"{place}/{number}"
    os.mkdir(top)
    case = Case(top, number, bare=backend == "landlock", brokered=backend == "namespaces")
    before = contents(top)
    nodes = [(path, path in case.folders) for path in reversed(case.nodes)]
    granted = 0
    refusal = ""
    try:
        with Jail(case.policy, backend=backend) as jail:
            result = jail.run(
                [PYTHON, "-IBS", "-c", guest(GUEST)],
                input=repr([nodes, case.absent, place]).encode(),
                timeout=30,
            )
    except PolicyUnsupported as error:
        refusal = str(error)
    if refusal:
        assert backend != "namespaces", refusal
        assert any(word in refusal for word in (backend, "Landlock")), refusal
        shutil.rmtree(top)
        return None
    assert result.exit_code == 0, result.stderr_text
    answers = json.loads(result.stdout)
    check_move(case, place, answers[place])
    for path, folder in nodes:
        try:
            (check_folder if folder else check_file)(case, path, answers[path])
            check_move(case, path, answers[path][2])
        except AssertionError as error:
            pytest.fail(
                f"policy {number}: {path[len(place) :]}: {error}\n{case.written}\n{answers[path]}"
            )
        granted += case.decide("read", path)[0] and not case.decide("read", path)[1]
    assert contents(top) == before
    shutil.rmtree(top)
    return granted


def compare_some(place: str, backend: str) -> list[int | None]:
    """Try a share of the policies by one back end; at least one must grant something."""
    share = max(POLICIES // 5 // len(places()), 20)
    outcomes = [compare(place, number, backend) for number in range(share)]
    assert any(outcomes), "no policy granted anything: nothing was tried"
    return outcomes


@pytest.mark.timeout(600)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_the_kernel_decides_as_the_policy(place: str, chunk: int) -> None:
    """No node may be read, written, executed or moved against the decision, nor withheld."""
    share = POLICIES // CHUNKS // len(places())
    numbers = range(chunk * share, (chunk + 1) * share)
    granted = sum(compare(place, number, "namespaces") or 0 for number in numbers)
    assert granted, "no policy granted anything: nothing was tried"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("backend", backends("bubblewrap", "landlock"))
def test_the_other_back_ends_decide_the_same(place: str, backend: str) -> None:
    """Another back end must refuse a policy as a whole, or decide each node as the policy does."""
    assert None in compare_some(place, backend)


@pytest.mark.timeout(600)
@pytest.mark.skipif("bubblewrap" not in backends("bubblewrap"), reason="no bubblewrap for root")
def test_masks_and_pins_by_bubblewrap(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mounts that bubblewrap makes below a grant must hold as those of visruntime do.

    Nobody plants links in these trees, so a bwrap that would follow them may mount there.
    """
    refused_before = compare_some(place, "bubblewrap").count(None)
    monkeypatch.setattr(_jail_bubblewrap, "follows_links", lambda _: False)
    assert compare_some(place, "bubblewrap").count(None) <= refused_before
