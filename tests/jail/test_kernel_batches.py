"""The kernel against the C decision and the oracle, 100,000 times: many policies in each jail.

The policies of one batch are about trees that lie side by side, so they are one policy as
well, and one guest tries them all. Each check compares the three for one right on one node.

As test_kernel_decision.py, which runs real programs and moves nodes, but cheap: whether a
file may be executed is told by the errno alone. It is no program: ENOEXEC comes after the
kernel has looked at the rights, EACCES is its refusal. Half of the denied names that do not
exist are held by the broker, half by the wall alone, by batch.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import oracle
import pytest
from jail.test_kernel_decision import OWN_FOLDER, Case, contents, place, places
from jail_helpers import PYTHON, Jail, Limits, backends, errno, guest, policy_of

from visruntime._jail import bubblewrap as _jail_bubblewrap
from visruntime._jail.limits import hold, start_held
from visruntime._jail.plan import make_plan
from visruntime._policy.decider import Decider
from visruntime.errors import PolicyUnsupported

if TYPE_CHECKING:
    from typing import Any

    from visruntime.policy import JailPolicy

__all__ = ["place"]  # a fixture

BATCH = 30
CHECKS = 100_000 // (len(backends()) * len(places())) + 1
"""Of each back end in each place, so that all together are as many as promised."""

GUEST = """
def listed(path):
    try:
        return sorted(os.listdir(path))
    except OSError as error:
        return error.errno

def made(path):
    got = attempt(os.mkdir, path)
    return got or attempt(os.rmdir, path)

got = []
for nodes, absent in json.load(sys.stdin):
    for path in absent:
        opened(path, os.O_CREAT | os.O_WRONLY)
        attempt(os.mkdir, path)
    got.append([
        [listed(path), made(path + "/.probe")] if folder
        else [-1 if os.path.isdir(path) else opened(path), opened(path, os.O_WRONLY),
            attempt(os.execve, path, [path], {})]
        for path, folder in nodes
    ])
answer(got)
"""


class Grown(Case):
    """A case with a larger tree, whose policy is one of many in its jail."""

    DEPTH = 5
    CHILDREN = (2, 4)
    PROGRAM = "no program\n"

    def _node(self) -> str:
        # Often near the top, or most of a large tree would be denied by no rule at all.
        near = [path for path in self.folders if path.count("/") <= self.top.count("/") + 1]
        return self.random.choice(near if self.random.random() < 0.5 else self.nodes)

    def join(self, policy: JailPolicy, decider: Decider, private: set[int], mode: str) -> None:
        """Let the policy of the whole batch decide."""
        self.policy = policy
        self.decider = decider
        self.private = private
        self.mode = mode
        # Of another tree no rule covers anything in this one.
        near = [r for r in self.rules if oracle.covers(r[1], self.top)]
        self.rules = near + [r for r in self.rules if oracle.covers(self.top, r[1])]
        self.rules = list(dict.fromkeys(self.rules))
        self.known = {}

    def ask(self, right: str, path: str) -> tuple[bool, int]:
        """Return C's answer for the whole batch."""
        return self.decider(right, path)

    def is_walled(self, folder: str) -> bool:
        """Tell whether the wall keeps new names out of *folder*."""
        if self.mode != "wall":
            return False
        names = [name for name in self.absent if not self.decide("read", name)[1]]
        return oracle.is_walled(self.rules, names, self.folders, folder)


def is_held(policy: JailPolicy, backend: str) -> bool:
    """Tell whether *backend* takes the policy; a refusal comes before anything starts."""
    held = hold(policy.limits)
    try:
        with start_held(held):
            make_plan(policy, limits=held, backend=backend)
    except PolicyUnsupported:
        return False
    finally:
        held.release()
    return True


def draw(tree: Grown, seed: int, backend: str) -> Grown:
    """Return a random policy over *tree* that *backend* can hold."""
    bare, brokered = backend == "landlock", backend == "namespaces"
    for number in range(50):
        case = Grown(tree.top, seed * 50 + number, bare=bare, brokered=brokered, tree=tree)
        if brokered or is_held(case.policy, backend):
            return case
    raise AssertionError("the back end refuses everything")


def join(cases: list[Grown], mode: str, *, bare: bool) -> None:
    """Make the policies of *cases* one."""
    rules: dict[str, list[str]] = {}
    for case in cases:
        for kind, path in case.written:
            rules.setdefault(kind, []).append(path)
    limits = Limits(processes=None, scratch=None) if bare else Limits()
    policy = policy_of(**rules, absent_deny=mode, limits=limits)
    resolved = policy.resolved_rules()
    if bare:
        resolved = tuple(rule for rule in resolved if rule.origin != "private")
    decider = Decider([(rule.kind, rule.path) for rule in resolved])
    private = {i for i, rule in enumerate(resolved) if rule.origin == "private"}
    for case in cases:
        case.join(policy, decider, private, mode)


def check(case: Grown, path: str, got: list[Any]) -> int:
    """Judge what a guest could do with a node; return how many checks that were."""
    allowed = {right: case.decide(right, path) for right in ("read", "write", "exec")}
    if path in case.folders:
        names, made = got
        read, is_own = allowed["read"]
        if isinstance(names, int):
            assert is_own or (not read and names in (errno.EACCES, errno.ENOENT)), (
                f"listing gave {names}"
            )
        elif not is_own and not read:
            # The jail's own folder on the way to a rule below shows nothing else.
            leading = {n for n in os.listdir(path) if case.is_named(f"{path}/{n}")}
            leading |= {n[len(path) + 1 :].split("/")[0] for n in case.absent}
            assert set(names) <= leading, "names of the host are visible"
        write, is_own = allowed["write"]
        if not is_own:
            assert (made == 0) == (write and not case.is_walled(path)), f"making gave {made}"
            assert made in (0, errno.EACCES, errno.ENOENT, errno.EROFS)
        return 2
    for right, outcome in zip(("read", "write", "exec"), got, strict=True):
        granted, is_own = allowed[right]
        if is_own or allowed["read"][1]:
            assert outcome not in (0, errno.ENOEXEC), f"{right}: the host's file is there"
        elif granted:
            assert outcome == (errno.ENOEXEC if right == "exec" else 0), f"{right}: {outcome}"
        else:
            denials: tuple[int, ...] = (errno.EACCES, errno.ENOENT, errno.EROFS)
            if case.decide("read", os.path.dirname(path))[1]:
                denials += (errno.EISDIR, OWN_FOLDER)  # a deny in a private place
            assert outcome in denials, f"{right}: {outcome}"
    return 3


def compare(trees: list[Grown], number: int, backend: str) -> tuple[int, int]:
    """Try one batch; return how many checks there were and how many nodes were granted."""
    cases = [draw(tree, number * BATCH + i, backend) for i, tree in enumerate(trees)]
    mode = "broker" if backend == "namespaces" and number % 2 == 0 else "wall"
    join(cases, mode, bare=backend == "landlock")
    wanted = [[[(n, n in case.folders) for n in case.nodes], case.absent] for case in cases]
    with Jail(cases[0].policy, backend=backend) as jail:
        result = jail.run(
            [PYTHON, "-IBS", "-c", guest(GUEST)], input=json.dumps(wanted).encode(), timeout=60
        )
    assert result.exit_code == 0, result.stderr_text
    checks = granted = 0
    for case, answers in zip(cases, json.loads(result.stdout), strict=True):
        for path, got in zip(case.nodes, answers, strict=True):
            try:
                checks += check(case, path, got)
            except AssertionError as error:
                pytest.fail(f"{backend} {number}: {path}: {error}\n{case.written}\n{got}")
            granted += case.decide("read", path) == (True, False)
    return checks, granted


@pytest.mark.timeout(300)
@pytest.mark.parametrize("backend", backends())
def test_no_check_of_a_hundred_thousand_is_wrong(
    place: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No right on any node may be had against the decision, nor withheld, by any back end."""
    # Nobody plants links in these trees, so a bwrap that would follow them may mount there.
    monkeypatch.setattr(_jail_bubblewrap, "follows_links", lambda _: False)
    trees = []
    for number in range(BATCH):
        os.mkdir(f"{place}/{number}")
        trees.append(Grown(f"{place}/{number}", number))
    # Other policies in the second place.
    number = 0 if place.startswith("/tmp/") else 10_000
    before = contents(place)
    checks = granted = 0
    while checks < CHECKS:
        more, had = compare(trees, number, backend)
        checks += more
        granted += had
        number += 1
    assert contents(place) == before
    assert granted > checks // 40, "too little was granted to tell anything"
