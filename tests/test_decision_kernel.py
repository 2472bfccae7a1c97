"""The kernel against the policy: what a jailed program can really do is what `why` says.

With test_decision.py, which holds the C function against the oracle, this closes the
circle: specification = C = kernel, on the same kind of random policies.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Literal

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import visruntime as vr
from visruntime.policy import KINDS

if TYPE_CHECKING:
    from pathlib import Path

EXAMPLES = 5_000 if os.environ.get("VIS_FULL") else 500

NAMES = ("a", "ab")
DEPTH = 2
ACTS: tuple[Literal["read", "write", "exec"], ...] = ("read", "write", "exec")

# Try the three acts on each file and print what came of them: true, or the errno.
PROBE = """
import json, os, sys
answers = []
for path in json.load(sys.stdin):
    for flags in (os.O_RDONLY, os.O_WRONLY):
        try:
            os.close(os.open(path, flags))
            answers.append(True)
        except OSError as error:
            answers.append(error.errno)
    try:
        process = os.posix_spawn(path, [path], {})
        answers.append(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0)
    except OSError as error:
        answers.append(error.errno)
print(json.dumps(answers))
"""

DENIED = {
    "read": {errno.ENOENT, errno.EACCES},
    "write": {errno.ENOENT, errno.EACCES, errno.EROFS},
    "exec": {errno.ENOENT, errno.EACCES},
}
"""What a denied act gets: nothing is there, it is masked, or it is read-only."""

TREE = [""]
for _level in range(DEPTH):
    TREE += [f"{top}/{name}" for top in TREE if top.count("/") == _level for name in NAMES]
FILES = [f"{folder}/f" for folder in TREE]

places = st.sampled_from([*TREE, *FILES])
few = st.lists(places, max_size=2)
fields = st.fixed_dictionaries({"read": few, "write": few}, optional=dict.fromkeys(KINDS[2:], few))


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make folders two deep, with an executable file in each."""
    top = tmp_path_factory.mktemp("above").resolve() / "tree"
    for folder, file in zip(TREE, FILES, strict=True):
        (top / folder.lstrip("/")).mkdir()
        path = top / file.lstrip("/")
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    return top


def system_python() -> str:
    """Return the interpreter that each jail has without a grant."""
    path = "/usr/bin/python3"
    if not os.path.exists(path):
        pytest.fail(f"this test needs {path}")
    return path


def test_every_act_succeeds_without_a_jail(tree: Path) -> None:
    """The control: nothing but the jail can be what denies."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE],
        input=json.dumps([f"{tree}{file}" for file in FILES]),
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == [True] * (3 * len(FILES))


@pytest.mark.timeout(3600 if os.environ.get("VIS_FULL") else 300)
def test_the_kernel_decides_as_the_policy_says(tree: Path) -> None:
    """No guest may do what the policy denies, and each can do what it allows."""
    python = system_python()
    paths = [f"{tree}{file}" for file in FILES]
    question = json.dumps(paths).encode()
    seen: set[tuple[str, bool]] = set()

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(rules=fields)
    def check(rules: dict[str, list[str]]) -> None:
        given_rules: dict[str, Any] = {
            kind: [f"{tree}{place}" for place in chosen] for kind, chosen in rules.items()
        }
        # The tree may lie in /tmp, of which each jail has its own: that must not answer.
        given_rules["deny"] = [*given_rules.get("deny", []), tree.parent]
        policy = vr.JailPolicy(**given_rules)
        with vr.Jail(policy) as jail:
            result = jail.run([python, "-I", "-S", "-c", PROBE], input=question, check=True)
        answers = iter(json.loads(result.stdout))
        for path in paths:
            for act in ACTS:
                answer = next(answers)
                allowed = policy.why(act, path).allowed
                assert (answer is True) == allowed, (act, path, answer, policy)
                assert allowed or answer in DENIED[act], (act, path, answer, policy)
                seen.add((act, allowed))

    check()
    assert seen == {(act, allowed) for act in ACTS for allowed in (True, False)}
