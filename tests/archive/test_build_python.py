"""No CPython is shipped from another source than the pinned one, or without one of its modules."""

from __future__ import annotations

import functools
import hashlib
import http.server
import json
import shutil
import ssl
import tarfile
import threading
from typing import TYPE_CHECKING

import pytest
import trustme
from archive.python_source import RECORD, Source, SourceRefusedError, obtain
from archive.python_tree import LEFT_OUT_MODULES, MODULES
from build_python import Build, NotBuiltError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.one_uid

DATA = b"the source of a CPython"
SHA256 = hashlib.sha256(DATA).hexdigest()
PINNED = Source("3.13.99", "https://example.org/source.tar.xz", SHA256)
# As much of CPython's build as the steps need: it notes each call, with what it was given.
CONFIGURE = """#!/bin/sh
echo configure "$@" >>"$HOME/calls"
env | grep -v '^_=' | sort >"$HOME/variables"
test ! -e "$HOME/fail" || { echo "no such compiler"; exit 3; }
"""
MAKE = """#!/bin/sh
echo make "$@" >>"$HOME/calls"
test ! -e "$HOME/stop" || exit 2
for word; do case $word in DESTDIR=*) ;; *) continue ;; esac
    prefix=${word#DESTDIR=}/visruntime/python
    mkdir -p "$prefix/bin" "$prefix/lib/python3.13/lib-dynload/__pycache__"
    echo program >"$prefix/bin/python3.13"
    ln -s python3.13 "$prefix/bin/python3"
    mkdir "$prefix/lib/python3.13/config-x"
    echo "srcdir=$PWD" >"$prefix/lib/python3.13/config-x/Makefile"
    echo "build_time_vars = {'abs_srcdir': '$PWD'}" >"$prefix/lib/python3.13/_sysconfigdata_x.py"
    for module in $(cat modules); do
        : >"$prefix/lib/python3.13/lib-dynload/$module.cpython-313-x.so"
    done
done
"""
# Notes what is run in another system, and runs it here.
ENTER = """#!/bin/sh
echo "$@" >>"${0%/*}/entered"
while test "$1" != --; do shift; done
shift
exec "$@"
"""
PATCHELF = '#!/bin/sh\necho searches "$@" >>"$4"\n'


class Upstream(http.server.BaseHTTPRequestHandler):
    """Has the file, another one, and an address that leads to the file."""

    def do_GET(self) -> None:
        """Answer by the name that is asked for."""
        leads = self.path == "/moved"
        self.send_response(302 if leads else 200)
        if leads:
            self.send_header("Location", "/file")
        self.end_headers()
        self.wfile.write({"/file": DATA, "/other": b"other"}.get(self.path, b""))

    def log_message(self, *words: object) -> None:
        """Say nothing."""


@pytest.fixture
def upstream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Serve HTTPS on loopback, by an authority that is trusted here; yield its address.

    No other place to get a file from is there: PATH is empty.
    """
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    monkeypatch.setenv("PATH", "/nonexistent")
    for name in ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    with http.server.ThreadingHTTPServer(("localhost", 0), Upstream) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"https://localhost:{server.server_port}"
        server.shutdown()
        thread.join()


def test_the_pinned_file_is_fetched_once(upstream: str, tmp_path: Path) -> None:
    """What lies there is not fetched again, and not used either once it has changed."""
    source = Source("3.13.99", f"{upstream}/file", SHA256)
    path = obtain(tmp_path / "sources", source=source)
    assert path.read_bytes() == DATA
    gone = source._replace(url=f"{upstream}/gone/file")
    assert obtain(tmp_path / "sources", source=gone) == path
    path.write_bytes(DATA + b"!")
    with pytest.raises(SourceRefusedError, match=f"and {SHA256} is pinned"):
        obtain(tmp_path / "sources", source=source)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("other", f"its SHA-256 is {hashlib.sha256(b'other').hexdigest()}, and {SHA256} is pinned"),
        ("moved", "leads to https://localhost:.*name it with --source"),
    ],
)
def test_what_upstream_has_instead_is_not_built(
    upstream: str, tmp_path: Path, name: str, why: str
) -> None:
    """Neither another file nor one at another address is taken, and nothing of it is kept."""
    source = Source("3.13.99", f"{upstream}/{name}", SHA256)
    with pytest.raises(SourceRefusedError, match=why):
        obtain(tmp_path / "sources", source=source)
    assert list((tmp_path / "sources").iterdir()) == []
    plain = source._replace(url=source.url.replace("https", "http").replace("moved", "file"))
    with pytest.raises(SourceRefusedError, match="is not https"):
        obtain(tmp_path / "sources", source=plain)


def test_a_file_that_is_given(tmp_path: Path) -> None:
    """A file that somebody names is compared, too."""
    source = Source("3.13.99", "https://example.org/file", SHA256)
    (tmp_path / "mine").write_bytes(DATA)
    assert obtain(tmp_path, given=tmp_path / "mine", source=source) == tmp_path / "mine"
    (tmp_path / "mine").write_bytes(b"other")
    with pytest.raises(SourceRefusedError, match="is not file: its SHA-256 is"):
        obtain(tmp_path, given=tmp_path / "mine", source=source)
    with pytest.raises(SourceRefusedError, match="is no file"):
        obtain(tmp_path, given=tmp_path / "nothing", source=source)


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a make and a patchelf that note what they are asked for before all others."""
    folder = tmp_path / "tools"
    folder.mkdir()
    for name, text in (("make", MAKE), ("patchelf", PATCHELF)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("CFLAGS", "-O0")
    monkeypatch.setenv("LD_PRELOAD_NOT_OURS", "1")
    return folder


def tarball(folder: Path, *modules: str, name: str = "source.tar.xz") -> Path:
    """Return the tarball of a CPython that would build *modules*."""
    tree = folder / "Python-3.13.99"
    for text in ("LICENSE", "Doc/license.rst", "Modules/expat/COPYING", "Misc/sbom.spdx.json"):
        (tree / text).parent.mkdir(parents=True, exist_ok=True)
        (tree / text).write_text(f"text of {text}\n")
    (tree / "configure").write_text(CONFIGURE)
    (tree / "configure").chmod(0o755)
    (tree / "modules").write_text(" ".join(modules))
    with tarfile.open(folder / name, "w:xz", preset=0) as archive:
        archive.add(tree, tree.name)
    shutil.rmtree(tree)
    return folder / name


@pytest.fixture
def build(tmp_path: Path, tools: Path) -> functools.partial[Build]:
    """Return what makes a build of a tarball in this test's work folder."""
    return functools.partial(Build, tmp_path / "work", jobs=3, source=PINNED)


def calls(tmp_path: Path) -> list[str]:
    """Return the steps of a build that were run, by their first words."""
    lines = (tmp_path / "work" / "calls").read_text().splitlines()
    return [" ".join(line.split()[:3]) for line in lines]


def test_a_whole_build(tmp_path: Path, build: functools.partial[Build]) -> None:
    """Nothing of the caller's settings, of the folder or of the hour gets into a CPython."""
    source, out = tarball(tmp_path, *MODULES), tmp_path / "out"
    build(source).prefix(out)
    lines = (tmp_path / "work/variables").read_text().splitlines()
    variables = dict(line.partition("=")[::2] for line in lines)
    assert variables["HOME"] == str(tmp_path / "work")
    assert variables["SOURCE_DATE_EPOCH"] == str(int(source_time(source)))
    assert "CFLAGS" not in variables
    assert "LD_PRELOAD_NOT_OURS" not in variables
    disabled = (tmp_path / "work/source/Modules/Setup.local").read_text().split()
    assert disabled == ["*disabled*", *LEFT_OUT_MODULES]
    assert (out / "bin/python3.13").read_text() == (
        f"program\nsearches --force-rpath --set-rpath $ORIGIN/../lib {out}.partial/bin/python3.13\n"
    )
    for name in ("_sysconfigdata_x.py", "config-x/Makefile"):
        assert str(tmp_path) not in (out / "lib/python3.13" / name).read_text()
    assert list(out.rglob("__pycache__")) == []
    texts = {path.name: path.read_text() for path in (out / "licences").iterdir()}
    assert texts["Modules-expat-COPYING"] == "text of Modules/expat/COPYING\n"
    assert len(texts) == 4
    told = json.loads((out / RECORD).read_text())
    assert told["sha256"] == hashlib.sha256(source.read_bytes()).hexdigest()
    assert (told["version"], told["url"]) == ("3.13.99", "https://example.org/source.tar.xz")
    assert "--enable-shared" in told["configure"]
    with pytest.raises(NotBuiltError, match="is there already"):
        build(source).prefix(out)
    # Its Makefile quotes no name of a folder.
    spaced = Build(tmp_path / "a place", source, 1, source=PINNED)
    with pytest.raises(NotBuiltError, match=r"cannot be built in .*/a place: name a"):
        spaced.prefix(tmp_path / "more")


def test_a_build_in_another_system(
    tmp_path: Path, build: functools.partial[Build], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No step that compiles runs in this system, and none is taken for done that another has done."""
    enter = tmp_path / "in_root.sh"
    enter.write_text(ENTER)
    enter.chmod(0o755)
    monkeypatch.setattr("build_python.IN_ROOT", enter)
    source = tarball(tmp_path, *MODULES)
    build(source, system=tmp_path / "root").prefix(tmp_path / "out")
    entered = (tmp_path / "entered").read_text().splitlines()
    inside = f"{tmp_path}/root {tmp_path}/work --"
    assert {line.rpartition(" -- ")[0] + " --" for line in entered} == {inside}
    steps = [line.removeprefix(inside).split()[0] for line in entered]
    assert steps == ["gcc", "./configure", "make", "make", "gcc"]
    build(source).prefix(tmp_path / "here")  # the control
    assert (tmp_path / "entered").read_text().splitlines() == entered
    assert len(calls(tmp_path)) == 3


def source_time(path: Path) -> float:
    """Return the time of the licence in a tarball, which is that of the release."""
    with tarfile.open(path) as archive:
        return archive.getmember("Python-3.13.99/LICENSE").mtime


def test_what_was_interrupted_goes_on(tmp_path: Path, build: functools.partial[Build]) -> None:
    """No step is done twice, and none of another source is taken for done."""
    source = tarball(tmp_path, *MODULES)
    (tmp_path / "work").mkdir()
    with pytest.raises(NotBuiltError, match="make failed; see"):
        stopped(build, source, tmp_path).prefix(tmp_path / "out")
    (tmp_path / "work/stop").unlink()
    build(source).prefix(tmp_path / "out")
    done = calls(tmp_path)
    assert done == ["configure --quiet --prefix=/visruntime/python", *["make -s -j3"] * 2,
                    "make -s install"]  # fmt: skip
    build(source).prefix(tmp_path / "again")
    assert calls(tmp_path) == done
    other = tarball(tmp_path, *MODULES, name="other.tar.xz")
    with open(other, "ab") as file:
        file.write(b"\0" * 4)  # padding that xz ignores
    build(other).prefix(tmp_path / "other")
    assert calls(tmp_path) == [done[0], *done[2:]]


def stopped(build: functools.partial[Build], source: Path, tmp_path: Path) -> Build:
    """Return a build whose make will fail, once the folder is its own."""
    made: Build = build(source)
    made._begin()
    (tmp_path / "work/stop").touch()
    return made


def test_a_step_that_fails_is_named(tmp_path: Path, build: functools.partial[Build]) -> None:
    """What a step said last is shown, and nothing is there that looks like a result."""
    made = build(tarball(tmp_path, *MODULES))
    made._begin()
    (tmp_path / "work/fail").touch()
    with pytest.raises(NotBuiltError, match=r"no such compiler\n\./configure failed; see"):
        made.prefix(tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("modules", "why"),
    [
        ([m for m in MODULES if m not in {"_ssl", "zlib"}], "has no _ssl, zlib: it needs"),
        ([*MODULES, "readline"], "has readline, which no archive has"),
    ],
)
def test_another_set_of_modules(
    tmp_path: Path, build: functools.partial[Build], modules: list[str], why: str
) -> None:
    """A module that CPython's own build left out, or found a library for, is no success."""
    with pytest.raises(NotBuiltError, match=why):
        build(tarball(tmp_path, *modules)).prefix(tmp_path / "out")
    assert not (tmp_path / "out").exists()
