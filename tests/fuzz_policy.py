#!/usr/bin/env python3
"""Feed the reader of policy files with text of all kinds, and check what must always hold.

    uv run python tests/fuzz_policy.py [--seconds 60]

Whatever a file holds: it becomes a policy or a `PolicyError` that names the file, in bounded
time; a policy survives being written and read; and a file that is only found takes away from
the owner's policy and never adds. tests/policy/test_policy_fuzz.py runs a part of it each time.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from typing import Any, Literal

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import visruntime as vr
from visruntime.config import narrow_by_config

TREE = ("/", "/srv", "/srv/a", "/srv/a/b", "/srv/a/b/c", "/srv/d", "/srv/d/e", "/usr", "/usr/lib",
        "/etc/shadow", "/tmp", "/home/user", "/proc", "/srv/a/.git/hooks")  # fmt: skip
CONNECT = ("a.test:443", "b.a.test:80", "localhost:5432", "/srv/a/socket")
SYSTEMS = ("none", "minimal", "host")
MOST_SECONDS = 5
"""Longest time for one small file."""

PATHS = st.sampled_from([*TREE, "a", "../d", ".", "~", "/srv/*", "/srv/a/", "//srv/./a", "\0", ""])
WORDS = st.sampled_from(
    [
        "none",
        "auto",
        "minimal",
        "host",
        "off",
        "open",
        "proxy",
        "512M",
        "1GiB",
        "a.test",
        "*.a.test",
    ]
)
LEAVES = st.one_of(
    PATHS,
    WORDS,
    st.integers(-1, 70_000),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.text(max_size=8),
)
FIELDS = st.one_of(st.sampled_from([*vr.JailPolicy.__slots__, "python"] * 5), st.text(max_size=6))
NAMES = st.one_of(
    st.sampled_from(
        [*vr.Limits.__slots__, "mode", "allow", "deny", "LANG", "A_TOKEN", "80", "tls_strict"]
    ),
    st.text(max_size=6),
)
VALUES = st.one_of(
    LEAVES,
    st.lists(PATHS, max_size=4),
    st.lists(LEAVES, max_size=4),
    st.dictionaries(NAMES, st.one_of(LEAVES, st.lists(LEAVES, max_size=3)), max_size=4),
)
RULES = st.fixed_dictionaries(
    {},
    optional={
        **{
            kind: st.lists(st.sampled_from(TREE[1:7]), max_size=3)
            for kind in ("read", "write", "deny", "deny_read", "deny_write", "deny_exec")
        },
        "system": st.sampled_from(SYSTEMS),
        "egress": st.sampled_from(
            [
                "off",
                "open",
                {"allow": ["a.test"]},
                {"allow": ["*.a.test:443"], "deny": ["b.a.test"]},
            ]
        ),
        "host_ports": st.lists(st.sampled_from([5432, 80]), max_size=2),
        "sockets": st.lists(st.just("/srv/a/socket"), max_size=1),
        "env": st.dictionaries(st.sampled_from(["LANG", "A"]), st.sampled_from(["x", "y"])),
        "inherit_env": st.lists(st.sampled_from(["LANG", "TZ"]), max_size=2),
        "limits": st.dictionaries(
            st.sampled_from(["processes", "output", "wall_seconds"]), st.integers(1, 9)
        ),
    },
)
TABLES = st.one_of(RULES, st.dictionaries(FIELDS, VALUES, max_size=4))
EDITS = st.lists(st.tuples(st.integers(0, 400), st.text(max_size=3), st.integers(0, 4)), max_size=3)
TEXTS = st.one_of(
    st.binary(max_size=80),
    st.text(alphabet="[]{}=.,'\"#\\ \n\rabc019_-+é", max_size=80).map(str.encode),
)


def toml(value: Any) -> str:
    """Return *value* as TOML writes it inside of a line."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(k)} = {toml(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


def as_file(table: dict[str, Any], edits: list[tuple[int, str, int]]) -> bytes:
    """Return the text of a policy file, changed here and there."""
    text = "".join(f"{json.dumps(name)} = {toml(value)}\n" for name, value in table.items())
    for at, insert, removed in edits:
        text = text[:at] + insert + text[at + removed :]
    return text.encode("utf-8", "surrogatepass")


def check_file(content: bytes) -> bool:
    """Read a policy file; return whether it is one."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "visruntime.toml")
        with open(path, "wb") as file:
            file.write(content)
        started = time.monotonic()
        policy, error = None, None
        try:
            policy = vr.JailPolicy.load(path)
        except vr.PolicyError as refusal:
            error = refusal
        assert time.monotonic() - started < MOST_SECONDS
    if policy is None:
        assert error is not None
        assert error.file == path, error
        assert "visruntime.toml" in str(error), error
        assert error.line is None or 1 <= error.line <= content.count(b"\n") + 1, error
        assert str(error).isprintable(), ascii(str(error))
        return False
    again = vr.JailPolicy.from_dict(json.loads(json.dumps(policy.to_dict())))
    assert again == policy
    assert again.digest == policy.digest
    assert policy.narrow(policy).digest == policy.narrow(policy).narrow(policy).digest
    return True


def check_narrowing(owner: dict[str, Any], content: bytes) -> bool:
    """Narrow *owner* by a file; return whether it was one."""
    mine = vr.JailPolicy.from_dict(owner)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "visruntime.toml")
        with open(path, "wb") as file:
            file.write(content)
        try:
            narrowed = narrow_by_config(mine, path)
        except vr.PolicyError:
            return False
    operation: Literal["read", "write", "exec"]
    for operation in ("read", "write", "exec"):
        for target in TREE:
            added = narrowed.why(operation, target) and not mine.why(operation, target)
            assert not added, (operation, target, owner, content)
    for target in CONNECT:
        added = narrowed.why("connect", target) and not mine.why("connect", target)
        assert not added, (target, owner, content)
    assert SYSTEMS.index(narrowed.system) <= SYSTEMS.index(mine.system)
    assert narrowed.env.items() <= mine.env.items()
    assert set(narrowed.inherit_env) <= set(mine.inherit_env)
    assert set(narrowed.reveal) <= set(mine.reveal)
    assert narrowed.inbound.items() <= mine.inbound.items()
    assert narrowed.limits.narrow(mine.limits) == narrowed.limits
    return True


def run(examples: int, *, derandomize: bool = True) -> dict[str, int]:
    """Check *examples* of each kind; return how many there were, and how many were policies."""
    counts = {"files": 0, "policies": 0, "narrowed": 0, "texts": 0}
    how = settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=derandomize,
        suppress_health_check=list(HealthCheck),
    )

    @how
    @given(TABLES, EDITS)
    def files(table: dict[str, Any], edits: list[tuple[int, str, int]]) -> None:
        counts["files"] += 1
        counts["policies"] += check_file(as_file(table, edits))

    @how
    @given(TEXTS)
    def texts(content: bytes) -> None:
        counts["texts"] += 1
        check_file(content)

    @how
    @given(RULES, TABLES)
    def narrowing(owner: dict[str, Any], table: dict[str, Any]) -> None:
        counts["narrowed"] += check_narrowing(owner, as_file(table, []))

    files()
    texts()
    narrowing()
    return counts


def main() -> int:
    """Fuzz for some time and print the counts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=60, help="how long (60)")
    options = parser.parse_args()
    end = time.monotonic() + options.seconds
    total: dict[str, int] = {}
    while time.monotonic() < end:
        for name, count in run(500, derandomize=False).items():
            total[name] = total.get(name, 0) + count
    sys.stdout.write(f"{json.dumps(total)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
