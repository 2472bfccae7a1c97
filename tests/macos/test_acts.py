"""The acts that a Mac is asked about succeed without a jail, and some are denied in theirs."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from required import missing
from seatbelt_model import Profile
from seatbelt_on_macos import Scene, control, lines_of

from visruntime._native.profiles import macos_profile

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.one_uid

NATIVE = Path(__file__).parent.parent / "native"


@pytest.fixture(scope="module")
def acts(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Build the program that tries acts."""
    folder = tmp_path_factory.mktemp("acts")
    main = folder / "main.c"
    main.write_text('#include "macos_acts.h"\nint main(void) { return try_acts(); }\n')
    program = folder / "acts"
    command = ["cc", "-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", f"-I{NATIVE}"]
    try:
        subprocess.run(
            [*command, str(main), str(NATIVE / "macos_acts.c"), "-o", str(program)],
            check=True,
            timeout=50,
        )
    except FileNotFoundError:
        missing("there is no C compiler (cc)")
    return str(program)


@pytest.fixture
def short() -> Iterator[Path]:
    """Make a folder whose name leaves room for the paths of sockets."""
    with tempfile.TemporaryDirectory(prefix="vj", dir="/tmp") as folder:
        yield Path(folder)


def test_each_act_succeeds_without_a_jail(acts: str, short: Path) -> None:
    """An act that fails for another reason would be taken for a denial."""
    assert control(acts, [acts], short) == []


def test_the_acts_divide(acts: str, short: Path) -> None:
    """The model must allow some acts of each kind and deny others, or the comparison shows little."""
    scene = Scene(short / "s", acts)
    try:
        lines = [line.split("\t") for line in scene.policy()]
        rules = [
            (kind, path[0]) for kind, *path in lines if kind.startswith(("read", "write", "deny"))
        ]
        held = f"{scene.top}/w/.git/hooks"
        profile = Profile(
            *macos_profile(
                rules=[*rules, ("deny_write", held)],
                held=[held],
                ignores_case=True,
                system=True,
                own=f"{scene.top}/own",
                sockets=[f"{scene.top}/granted.sock"],
                host_ports=[scene.ports[0]],
            )
        )
        answers: dict[str, set[bool]] = {}
        for probe in scene.probes():
            word = probe.act[0]
            resolved = tuple(
                (operation, {name: f"/private{value}" if name == "path" else value
                             for name, value in facts.items()})
                for operation, facts in probe.asks
            )  # fmt: skip
            allowed = probe._replace(asks=resolved).allowed_by(profile)
            answers.setdefault(word, set()).add(allowed)
        never = {word for word, found in answers.items() if found == {False}}
        assert never == {"bind-tcp", "connect-udp", "link", "memory", "mode", "signal"}
        assert all(found == {True, False} for word, found in answers.items() if word not in never)
        assert lines_of(scene.probes()).count(b"\n") == len(scene.probes())
    finally:
        scene.close()
