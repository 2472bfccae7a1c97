"""Which processes of a listing are a guest's, and of which run."""

from __future__ import annotations

import random
import time

import pytest

from visruntime._jail.processes import parse_processes

pytestmark = pytest.mark.one_uid

CHAIN = 20_000
MOST_SECONDS = 5.0
"""For a chain that took a minute when each process climbed to the top by itself; now 0.2 s."""


def listing(parents: dict[int, int]) -> bytes:
    """Return what /proc/PID/stat says of such processes, each ended by NUL."""
    return b"".join(
        b"%d (name) S %d %s\0" % (pid, parent, b" ".join(b"%d" % pid for _ in range(20)))
        for pid, parent in parents.items()
    )


def test_the_descendants_of_keepers_are_guests() -> None:
    """Whoever comes from no keeper, or from itself, is left out, however deep the others are."""
    found = parse_processes(listing({1: 0, 2: 1, 3: 2, 4: 3, 9: 2, 5: 1, 6: 5, 7: 8, 8: 7, 20: 19}))
    assert {each.pid: each.run for each in found} == {3: 3, 4: 3, 9: 3, 6: 6}
    assert parse_processes(listing({2: 1, 3: 2})) == ()


def test_random_trees_are_read_as_each_climb_says() -> None:
    """The quick way must say of every process what its own way up says."""
    chance = random.Random(7)
    for _ in range(200):
        pids = chance.sample(range(2, 400), 60)
        parents = {1: 0} | {pid: chance.choice([1, *pids]) for pid in pids}
        guests = set()
        for pid in parents:
            line = [pid]
            while line[-1] in parents and len(line) <= len(parents):
                line.append(parents[line[-1]])
            if len(line) >= 4 and line[-2:] == [1, 0]:
                guests.add(pid)
        assert {each.pid for each in parse_processes(listing(parents))} == guests


def test_a_long_chain_is_read_in_time() -> None:
    """A guest must not hold up whoever looks at its processes."""
    start = time.process_time()
    found = parse_processes(listing({1: 0, 2: 1} | {n: n - 1 for n in range(3, CHAIN)}))
    assert len(found) == CHAIN - 3
    assert {each.run for each in found} == {3}
    assert time.process_time() - start < MOST_SECONDS
