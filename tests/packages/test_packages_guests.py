"""Environments and guests: none writes where they are, nor chooses what a build reads and runs."""

from __future__ import annotations

import ast
import errno
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from packages_helpers import (
    cache,
    make_project,
    no_leftovers,
    require_uv,
    resolved,
    wheels,
)

import visruntime as vr
from visruntime._packages.uv import find_uv

pytestmark = pytest.mark.one_uid

__all__ = ["cache", "no_leftovers", "wheels"]


def test_no_guest_writes_where_environments_are(wheels: Path, cache: Path) -> None:
    """A guest with a write grant around them must not change what other guests import."""
    built = resolved(wheels, "tinyb").build()
    module = next(Path(built.folder).rglob("tinyb.py"))
    for grant in (built.folder, str(cache / "environments")):
        with (
            pytest.raises(vr.PolicyError, match="would run"),
            vr.Jail(vr.JailPolicy(write=[grant])),
        ):
            pytest.fail("opened")
    for name in ("uv", "pip"):  # what is missing there would be a reason to refuse the grant
        (cache.parent / name).mkdir(exist_ok=True)
    text = f"import sys\ntry:\n    open({str(module)!r}, 'a')\nexcept OSError as e: print(e.errno)"
    with vr.Jail(vr.JailPolicy(write=[str(cache.parent)])) as jail:
        result = jail.run(["/usr/bin/python3", "-c", text])
        assert result.stdout_text.strip() == str(errno.EROFS), result.stderr_text
        for name in ("building", "locks", "environments"):
            planted = jail.run(["/usr/bin/touch", str(cache / name / "planted")])
            assert planted.exit_code == 1
            assert "Read-only" in planted.stderr_text
        beside = f"open({str(cache.parent / 'beside')!r}, 'a')"
        assert jail.run(["/usr/bin/python3", "-c", beside]).exit_code == 0
    with open(module, "a"):
        pass  # the control: the host can
    with pytest.raises(vr.PolicyError, match="write"):
        vr.Runtime(vr.JailPolicy(write=[built.folder]), environment=resolved(wheels, "tinyb"))


@pytest.mark.parametrize("absent_deny", ["broker", "wall"])
def test_no_guest_prepares_the_place_of_environments(
    tmp_path: Path, cache: Path, absent_deny: str
) -> None:
    """Where nothing was built yet, a guest must not put there what later workers would import."""
    for name in ("uv", "pip"):
        (cache.parent / name).mkdir(parents=True)
    text = (
        "import os\n"
        "def attempt(act, *given):\n"
        "    try: act(*given)\n"
        "    except OSError as error: return error.errno\n"
        "    return 0\n"
        f"home, here = {str(tmp_path)!r}, {str(cache)!r}\n"
        "os.makedirs(home + '/own', exist_ok=True)\n"
        "print([attempt(os.mkdir, here), attempt(os.symlink, home, here),"
        " attempt(os.rename, home + '/own', here),"
        " attempt(os.rename, os.path.dirname(here), home + '/x')])"
    )
    outside = subprocess.run(
        ["/usr/bin/python3", "-c", text], capture_output=True, text=True, check=True
    )
    assert outside.stdout == f"[0, {errno.EEXIST}, 0, 0]\n"  # the control
    (tmp_path / "x").rename(cache.parent)
    cache.rmdir()
    (tmp_path / "own").mkdir()
    policy = vr.JailPolicy(write=[str(tmp_path)], absent_deny=absent_deny)  # type: ignore[arg-type]
    with vr.Jail(policy) as jail:
        result = jail.run(["/usr/bin/python3", "-c", text])
    assert result.exit_code == 0, result.stderr_text
    first, second, third, fourth = ast.literal_eval(result.stdout_text)
    # The host has made it when the jail opened, so it is there, and stays where it is.
    assert {first, second} == {errno.EEXIST}
    assert {third, fourth} <= {errno.EBUSY, errno.EACCES, errno.EXDEV}
    assert {path.name for path in cache.iterdir()} == {"caches", "environments"}
    assert list((cache / "environments").iterdir()) == []


def test_a_worker_without_a_jail_takes_none(wheels: Path) -> None:
    """The host must not execute what a build has left."""
    with pytest.raises(vr.PolicyError, match="in jails only"):
        vr.TrustedRuntime(environment=resolved(wheels, "tinyb"))  # type: ignore[arg-type]


def test_a_worker_without_a_jail_takes_no_folder_of_a_build(wheels: Path, tmp_path: Path) -> None:
    """Nor the folder of an environment, by whichever name it is given."""
    folder = resolved(wheels, "tinyb").build().folder
    other, link, whole = tmp_path / "other", tmp_path / "python", tmp_path / "whole"
    other.symlink_to(tmp_path / "cache")
    link.symlink_to(f"{folder}/bin/python")
    whole.symlink_to(folder)
    by_link = folder.replace(str(tmp_path / "cache"), str(other))
    for options in (
        {"environment": folder},
        {"environment": Path(f"{folder}/lib/..")},
        {"environment": by_link},
        {"environment": whole},
        {"python": f"{folder}/bin/python"},
        {"python": f"{by_link}/bin/python3"},
        {"python": link},
    ):
        with pytest.raises(vr.PolicyError, match="runs in jails only") as caught:
            vr.TrustedRuntime(**options)
        assert caught.value.field in options
    with vr.Runtime(vr.JailPolicy(), environment=folder) as runtime:
        assert runtime.eval("__import__('tinyb').y") == 2


def test_a_planted_link_names_no_source(wheels: Path, tmp_path: Path) -> None:
    """What an earlier guest made a link of shows a build nothing, as it shows no policy."""
    link = tmp_path / "link"
    link.symlink_to(wheels)
    project = tmp_path / "project"
    make_project(project, {})
    beside = tmp_path / "beside"
    beside.symlink_to(project)
    uv = tmp_path / "uv"
    uv.symlink_to(require_uv())
    with pytest.raises(vr.PolicyError, match="could have made it"):
        vr.Jail(vr.JailPolicy(read=[link]))
    with pytest.raises(vr.PolicyError, match=r"wheelhouse: .*could have made it"):
        resolved(link, "tinyb")
    with pytest.raises(vr.PolicyError, match=r"project: .*could have made it"):
        vr.Environment.from_project(beside, wheelhouse=wheels)
    with pytest.raises(vr.PolicyError, match=r"uv: .*could have made it"):
        resolved(wheels, "tinyb", uv=uv).build()


def test_no_uv_from_a_write_grant_is_run(wheels: Path, tmp_path: Path) -> None:
    """A guest could have put it there: it would get the index and make what others are given."""
    real = require_uv()
    grant = tmp_path / "grant"
    grant.mkdir()
    copy = grant / "uv"
    shutil.copy(real, copy)
    link = tmp_path / "bin"
    link.symlink_to(grant)
    policy = vr.JailPolicy(write=[grant])
    for named in (copy, grant / ".." / "grant" / "uv"):
        with pytest.raises(vr.PolicyError, match="inside the write grant"):
            vr.Runtime(policy, environment=resolved(wheels, "tinyb", uv=named))
    assert find_uv(copy) == str(copy)  # without that grant it is as good as any
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{grant}:{link}:{os.path.dirname(real)}")
        patch.delenv("UV", raising=False)
        assert find_uv() == str(copy)
        found = find_uv(None, [str(grant)])
        assert not found.startswith(str(grant))


def test_a_wheel_that_is_a_dangling_link(wheels: Path) -> None:
    """It is named, as is what to do."""
    dangling = wheels / "gone-1.0-py3-none-any.whl"
    dangling.symlink_to("nowhere")
    with pytest.raises(vr.PolicyError, match=f"wheelhouse: {dangling}.*remove it") as caught:
        resolved(wheels, "tinyb").build()
    assert caught.value.field == "wheelhouse"
