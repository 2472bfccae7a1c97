"""Code that changed on disk is seen, and what still refers to the old code is said."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from interpreters import INTERPRETERS

import visruntime as vr
from visruntime._runtime.reload import MOST_ENTRIES, reload_modules

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.one_uid

FIRST = "def f():\n    return 1\n\nclass C:\n    def g(self):\n        return 1\n"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return a folder with a package and a module that uses it."""
    folder = tmp_path.resolve() / "source"
    (folder / "package").mkdir(parents=True)
    (folder / "package" / "__init__.py").write_text("from .inner import f\n")
    (folder / "package" / "inner.py").write_text(FIRST)
    return folder


@pytest.fixture(params=INTERPRETERS)
def runtime(source: Path, request: pytest.FixtureRequest) -> Iterator[vr.Runtime]:
    """Return a worker, of each interpreter here, that can import from the folder."""
    with vr.Runtime(vr.JailPolicy(read=[str(source)]), python=request.param) as running:
        running.exec(f"import sys; sys.path.insert(0, {str(source)!r})")
        yield running


def change(source: Path) -> None:
    """Have the code return something longer, so that no time stamp decides."""
    (source / "package" / "inner.py").write_text(FIRST.replace("return 1", "return 2 + 20"))


def test_a_new_worker_sees_the_new_code(runtime: vr.Runtime, source: Path) -> None:
    """With a new worker nothing old is left, the session included."""
    runtime.exec("import package; name = 1")
    change(source)
    assert runtime.eval("package.f()") == 1  # the control: nothing is seen by itself
    result = runtime.reload()
    assert (result.worker, result.kept) == (True, ())
    assert runtime.eval("'name' in globals()") is False
    runtime.exec(f"import sys; sys.path.insert(0, {str(source)!r}); import package")
    assert runtime.eval("package.f()") == 22


def test_modules_are_imported_anew(runtime: vr.Runtime, source: Path) -> None:
    """Names of the session follow to the new code; other modules are left alone."""
    runtime.exec("import package, json; from package.inner import C; from package import f; n = 5")
    before = runtime.eval("id(json)")
    change(source)
    result = runtime.reload("modules", paths=[source])
    assert (result.worker, result.failed, result.kept) == (False, {}, ())
    assert set(result.modules) == {"package", "package.inner"}
    assert set(result.rebound) == {"package", "C", "f"}
    assert runtime.eval("[package.f(), f(), C().g(), n, id(json)]") == [22, 22, 22, 5, before]
    assert runtime.eval("sorted(k for k in globals() if not k.startswith('__'))") == [
        *("C", "display", "f", "json", "n", "package", "sys", "update_display"),
    ]


def test_what_keeps_old_code_is_named(runtime: vr.Runtime, source: Path) -> None:
    """An instance, a list, a subclass, another module: each is said, by its name where it has one."""
    runtime.exec(
        "import package, json, functools\n"
        "from package.inner import C\n"
        "made = C()\n"
        "listed = [package.inner.f]\n"
        "keyed = {'key': package.inner.f}\n"
        "called = package.inner.f\n"
        "part = functools.partial(package.inner.f)\n"
        "json.borrowed = C\n"
        "class D(C): pass"
    )
    change(source)
    result = runtime.reload("modules", paths=[str(source)])
    assert set(result.kept) >= {
        "the name made is of the old class package.inner.C",
        "the name listed holds the old package.inner.f",
        "a dict has the old package.inner.f at 'key'",
        "the name part holds the old package.inner.f",
        "json.borrowed is the old package.inner.C",
        "the class __main__.D is made of the old package.inner.C",
    }
    assert not [text for text in result.kept if "called" in text]
    assert runtime.eval("[made.g(), called(), C().g()]") == [1, 22, 22]


def test_a_module_that_fails_stays_as_it_was(runtime: vr.Runtime, source: Path) -> None:
    """Broken code must not leave the session without the module that it had."""
    runtime.exec("import package")
    (source / "package" / "inner.py").write_text("def broken(:\n")
    result = runtime.reload("modules", paths=[source])
    assert set(result.failed) == {"package", "package.inner"}
    assert "SyntaxError" in result.failed["package.inner"]
    assert runtime.eval("package.f()") == 1
    assert runtime.eval("__import__('sys').modules['package'] is package") is True


def test_a_link_of_the_guest_is_followed_inside(tmp_path: Path) -> None:
    """Where a guest's link leads on the host is nothing that the guest is told."""
    written, hidden = tmp_path / "written", tmp_path / "hidden"
    (written / "src").mkdir(parents=True)
    (hidden / "told").mkdir(parents=True)
    (hidden / "pointer").symlink_to("told")
    listen = (
        "import os, sys\n"
        "real, told = (os.path.isdir, os.path.realpath), []\n"
        "def hear(way):\n    told.append(way); return real[0](way)\n"
        "def resolve(way, **_):\n    told.append(way); return real[1](way)\n"
        "os.path.isdir, os.path.realpath = hear, resolve\n"
        f"os.rmdir({str(written)!r} + '/src')\n"
        f"os.symlink({str(hidden / 'pointer')!r}, {str(written)!r} + '/src')"
    )
    with vr.Runtime(vr.JailPolicy(write=[str(written)])) as running:
        running.exec(listen)
        with pytest.raises(FileNotFoundError) as refused:
            running.reload("modules", paths=[written / "src"])
        assert refused.value.filename == str(written / "src")
        assert set(running.get("told")) == {str(written / "src")}
        # The control: a link that stays inside leads to what was imported from there.
        (written / "code").mkdir()
        (written / "code" / "own.py").write_text("x = 1\n")
        (written / "way").symlink_to("code")
        place = str(written / "code")
        running.exec(f"os.path.realpath = real[1]; sys.path.insert(0, {place!r}); import own")
        assert running.reload("modules", paths=[written / "way"]).modules == ("own",)


def test_wrong_uses_are_errors(runtime: vr.Runtime) -> None:
    """A reload of nothing, or in no way, is refused."""
    with pytest.raises(ValueError, match="name the folders"):
        runtime.reload("modules")
    with pytest.raises(ValueError, match='"worker" or "modules"'):
        runtime.reload("all")
    with pytest.raises(FileNotFoundError, match=r"paths: the worker sees no such folder.*/nowhere"):
        runtime.reload("modules", paths=["/nowhere"])
    with pytest.raises(TypeError, match="paths: expected a list"):
        runtime.reload("modules", paths="code")
    with pytest.raises(ValueError, match="paths: a new worker has nothing old"):
        runtime.reload(paths=["code"])


@pytest.mark.parametrize(
    "claim",
    [
        None,
        [[], [], []],
        [[1], [], [], []],
        [[], [["a"]], [], []],
        [[], [], [], "text"],
        [["x"] * (MOST_ENTRIES + 1), [], [], []],
    ],
)
def test_nonsense_of_a_guest_is_no_account(claim: object) -> None:
    """What the guest says is checked, and its text steers no terminal."""
    with pytest.raises(vr.ProtocolViolation):
        reload_modules(lambda _: claim, ["/x"])
    told = reload_modules(lambda _: [["\x1b[31m"], [], [], ["y" * 1000]], ["/x"])
    assert told.modules == ("\ufffd[31m",)
    assert len(told.kept[0]) == 300
