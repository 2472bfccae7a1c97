"""Plans that are used again: never with a fact that is no longer so."""

from __future__ import annotations

import builtins
import os
import pickle
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from visruntime import Egress, Jail, JailPolicy, Limits
from visruntime._jail import bound_sockets, remembered
from visruntime._jail import plan as plan_module
from visruntime._jail.mount_table import mount_table
from visruntime._jail.plan import make_plan
from visruntime._policy.paths import MINIMAL_READ

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> Callable[[JailPolicy], bool]:
    """Return a function that makes a plan and tells whether it was really made."""
    made: list[str] = []
    compile_plan = plan_module._compile

    def counted(**parts: Any) -> bytes:
        made.append("")
        return compile_plan(**parts)

    monkeypatch.setattr(plan_module, "_compile", counted)

    def plan(policy: JailPolicy) -> bool:
        before = len(made)
        make_plan(policy)
        return len(made) > before

    return plan


@pytest.fixture
def granted(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Path]]:
    """Pretend that a folder, a file, a link and a name to come belong to every minimal system."""
    # Not in pytest's folder: a link to what not everybody may read would be left out.
    here = Path(os.path.realpath(tempfile.mkdtemp()))
    here.chmod(0o755)
    paths = {name: here / name for name in ("folder", "file", "link", "missing")}
    paths["folder"].mkdir()
    paths["file"].write_text("content")
    paths["link"].symlink_to("folder")
    entries = (*MINIMAL_READ, *map(str, paths.values()))
    monkeypatch.setattr("visruntime._policy.system_roots.MINIMAL_READ", entries)
    yield paths
    shutil.rmtree(here)


def test_a_plan_is_made_once(planned: Callable[[JailPolicy], bool]) -> None:
    """The second jail of a policy must not be planned again, nor one of an equal policy be."""
    policy = JailPolicy()
    assert [planned(policy) for _ in range(3)] == [True, False, False]
    assert planned(JailPolicy())


def _replace_folder(paths: dict[str, Path]) -> None:
    paths["folder"].rename(paths["folder"].with_name("before"))
    paths["folder"].mkdir()


def _make_file_a_link(paths: dict[str, Path]) -> None:
    paths["file"].rename(paths["file"].with_name("other"))
    paths["file"].symlink_to("other")


def _lead_link_elsewhere(paths: dict[str, Path]) -> None:
    paths["link"].unlink()
    paths["link"].symlink_to("../" + paths["link"].parent.name)


CHANGES: dict[str, Callable[[dict[str, Path]], object]] = {
    "another folder": _replace_folder,
    "no folder": lambda paths: paths["folder"].rename(paths["folder"].with_name("gone")),
    "another file": lambda paths: paths["file"].replace(paths["missing"]),
    "a longer file": lambda paths: paths["file"].write_text("x" * 40_000),
    "a link": _make_file_a_link,
    "another link": _lead_link_elsewhere,
    "a new name": lambda paths: paths["missing"].mkdir(),
    "another mode": lambda paths: paths["folder"].chmod(0o700),
    "the folder above": lambda paths: paths["folder"].parent.chmod(0o711),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_seen(
    change: str, granted: dict[str, Path], planned: Callable[[JailPolicy], bool]
) -> None:
    """No plan may be used again when something that it rests on has changed."""
    policy = JailPolicy()
    for path in granted.values():
        if path.exists():
            path.chmod(0o755)
    assert [planned(policy), planned(policy)] == [True, False]
    CHANGES[change](granted)
    assert planned(policy)
    assert make_plan(policy).rules == make_plan(JailPolicy()).rules
    assert make_plan(policy).host_rules == make_plan(JailPolicy()).host_rules


def test_mounts_and_sockets_are_looked_at_again(
    planned: Callable[[JailPolicy], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mount or a socket that came since must not be missed."""
    policy = JailPolicy()
    assert [planned(policy), planned(policy)] == [True, False]
    table = mount_table()
    with monkeypatch.context() as patch:
        patch.setattr(remembered, "mount_table", lambda: table + b"a line")
        assert planned(policy)
    assert not planned(policy)
    with monkeypatch.context() as patch:
        patch.setattr(remembered, "bound_elsewhere", lambda *_, **__: ["/usr/socket"])
        assert planned(policy)


@pytest.mark.parametrize("system", ["minimal", "none"])
def test_every_look_is_repeated(system: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planning must look at nothing that a plan which is used again does not look at."""
    policy = JailPolicy(system=system)
    looks: list[str] = []

    def spied(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any = ".", *arguments: Any, **named: Any) -> Any:
            looks.append(os.fsdecode(path) if isinstance(path, (str, bytes)) else repr(path))
            return function(path, *arguments, **named)

        return call

    def asked() -> list[bound_sockets.Bound]:
        looks.append("sockets")
        return []

    def seen(policy: JailPolicy) -> set[str]:
        looks.clear()
        with monkeypatch.context() as patch:
            for name in ("stat", "lstat", "readlink", "listdir", "scandir", "open", "access"):
                patch.setattr(os, name, spied(getattr(os, name)))
            patch.setattr(builtins, "open", spied(open))
            patch.setattr(bound_sockets, "_bound", asked)
            make_plan(policy)
        # The resolver opens the root before it is asked for anything.
        return {look for look in looks if look != "/" or system == "none"}

    first, second = seen(policy), seen(policy)
    assert "/proc/self/mountinfo" in second
    assert ("sockets" in second) == (system == "minimal")
    assert first <= second | {"/"}


@pytest.mark.parametrize(
    "policy",
    [
        JailPolicy(read=["/usr"]),
        JailPolicy(deny=["/usr/share"]),
        JailPolicy(system="host"),
        JailPolicy(egress=Egress.OPEN),
        JailPolicy(inherit_env=["LANG"]),
        JailPolicy(host_ports=[1]),
    ],
)
def test_a_policy_with_looks_of_its_own_is_planned_each_time(
    policy: JailPolicy, planned: Callable[[JailPolicy], bool]
) -> None:
    """What is searched for in grants, or depends on more than files, must not be remembered."""
    assert [planned(policy), planned(policy)] == [True, True]


def test_jails_share_a_plan_and_no_identity() -> None:
    """Jails of one policy must be as they were: open, confined, and each another uid's."""
    policy = JailPolicy()
    uids = set()
    for _ in range(3):
        with Jail(policy) as jail:
            result = jail.run(["/bin/sh", "-c", "id -u; id -un; ls -d /etc/passwd; ls /root"])
            uid, name, passwd = result.stdout_text.splitlines()
            assert (name, passwd) == ("user" if uid != "0" else "root", "/etc/passwd")
            assert result.exit_code != 0
            assert jail.report.backend == "namespaces"
            uids.add(uid)
    assert len(policy.plans) == 1
    mapped = os.geteuid() == 0 and uids != {"0"}
    assert len(uids) == (3 if mapped else 1)


def test_what_is_kept_is_no_part_of_the_policy() -> None:
    """Equality, pickling and the digest must know nothing of plans."""
    policy = JailPolicy(limits=Limits(processes=100))
    digest = policy.digest
    make_plan(policy)
    assert policy.plans
    again = pickle.loads(pickle.dumps(policy))
    assert (again, again.plans, policy.digest) == (policy, {}, digest)
    assert "plans" not in policy.to_dict()
    assert policy.replace(system="none").plans == {}


def test_few_plans_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy must not keep more plans for every way in which it is opened."""
    policy = JailPolicy()
    for number in range(remembered.MOST_PLANS + 2):
        monkeypatch.setattr(plan_module, "key_of", lambda *_, number=number: (number,))
        make_plan(policy)
        assert len(policy.plans) <= remembered.MOST_PLANS
