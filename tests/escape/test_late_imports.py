"""Boundary: what the host imports after a guest has run. None of it is the guest's."""

from __future__ import annotations

import ast
import json
import os
import py_compile
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pytest

import visruntime
from visruntime._host.imports import may_import_from
from visruntime._host.trusted_finder import MOST_POLICIES, Guests

PACKAGE = Path(visruntime.__file__).parent
EXTRAS = ("anyio", "cloudpickle")
GUARDED = {"numpy", "pandas", "pyarrow"}
"""What `late_import` answers for."""
SINCE_3_14 = {"annotationlib"}
"""What the package imports of newer versions of Python only."""
ELSEWHERE = {"guest", "_pyinstaller"}
"""Parts that run in workers only, and in a program that packs others."""

HOST = """
import contextlib, json, os, site, sys
site.addsitedir({site!r})
import visruntime as vr
from importlib import import_module

here = os.path.dirname(os.path.abspath(__file__))
names = sorted(sys.stdlib_module_names | set({extras!r}))
plant = '''
for name in {{names}}:
    with open({{here!r}} + "/" + name + ".py", "w") as file:
        file.write("open(" + repr({{here!r}} + "/ran/" + name) + ", 'w').close()")
'''
policy = vr.JailPolicy(write=[here])
refused = {{}}
with vr.Jail(policy) as jail:
    plant = plant.format(names=names, here=here)
    assert jail.run(["/usr/bin/python3", "-I", "-c", plant]).exit_code == 0
vr.Jail(vr.JailPolicy()).close()
with vr.Jail(policy) as jail:
    jail.write_bytes(here + "/archive.tar.gz", b"no archive")
    about = b"Metadata-Version: 2.1\\nName: visruntime\\nVersion: 6.6.6\\n"
    jail.run(["mkdir", here + "/visruntime-6.6.6.dist-info"])
    jail.write_bytes(here + "/visruntime-6.6.6.dist-info/METADATA", about)
{after}
for name in sorted(os.environ["VIS_PARTS"].split(":")):
    with contextlib.suppress(ImportError):  # the extras, and what other platforms have
        import_module(name)
import this  # the control: such a module is imported by whoever does not take care
print(json.dumps([refused, sorted(os.listdir(here + "/ran"))]))
"""

AFTER = """
import warnings
warnings.simplefilter("always")
warnings.warn("left open", ResourceWarning, source=here)  # asks tracemalloc where it was made
try:
    vr.JailExecutor(vr.JailPolicy(), 1).submit(len, "x").result()
except ModuleNotFoundError as error:
    refused["executor"] = error.name
try:
    import visruntime.aio
except ModuleNotFoundError as error:
    refused["aio"] = error.name
from visruntime import bundle
try:
    bundle.verify(here + "/archive.tar.gz")
except vr.BundleRefused:
    refused["bundle"] = True
with vr.Runtime(vr.JailPolicy()) as runtime:
    result = runtime.run("import array\\nmemoryview(array.array('d', [1.5]))", unknown="repr")
    repr(result), str(result.report), result.report.to_dict()
    assert "division" in str(runtime.run("1/0").error)
from visruntime._host.own_version import own_version
refused["version"] = own_version()
"""


def site_without_extras(folder: Path) -> Path:
    """Return a folder of packages with all that is installed here, but for the extras."""
    site = folder / "site-packages"
    site.mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.startswith(EXTRAS):
            (site / entry.name).symlink_to(entry)
    return site


def parts() -> list[str]:
    """Return the names of all modules of the package, but for those that run elsewhere."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        inner = path.relative_to(PACKAGE.parent).with_suffix("").parts
        if not ELSEWHERE & set(inner) and inner[-1] != "__main__":
            found.append(".".join(inner[:-1] if inner[-1] == "__init__" else inner))
    return found


def run_host(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    """Run a host whose own folder is a guest's to write, without the extras."""
    here = folder / "here"
    (here / "ran").mkdir(parents=True)
    (here / "host.py").write_text(text)
    return subprocess.run(
        [sys.executable, "-S", str(here / "host.py")],
        env={**os.environ, "VIS_PARTS": ":".join(parts()), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )


def test_no_module_of_a_guest_runs_in_the_host(tmp_path: Path) -> None:
    """A guest that writes a module by each name that there is must not run in the host."""
    site = site_without_extras(tmp_path)
    text = HOST.format(site=str(site), extras=EXTRAS, after=AFTER)
    result = run_host(tmp_path, text)
    assert result.returncode == 0, result.stderr
    refused, ran = json.loads(result.stdout.splitlines()[-1])
    assert refused.pop("version") == version("visruntime")
    assert refused == {"executor": "cloudpickle", "aio": "anyio", "bundle": True}
    assert ran == ["this"]


EARLIER = """
import json, os, site, sys
site.addsitedir({site!r})
here = os.path.dirname(os.path.abspath(__file__))
import visruntime as vr
from visruntime.errors import PolicyError
for name in ("anyio", "cloudpickle", "grp", "html"):
    assert name not in sys.modules
    with open(here + "/" + name + ".py", "w") as file:  # as a guest of an earlier host
        file.write("open(" + repr(here + "/ran/" + name) + ", 'w').close()")
with vr.Jail(vr.JailPolicy(write=[here])):
    pass
refused = []
with vr.Runtime(vr.JailPolicy()) as runtime:
    table = runtime.run("1")
try:
    import visruntime.aio
except ModuleNotFoundError as error:
    refused.append(error.name)
print(json.dumps([refused, sorted(os.listdir(here + "/ran")), sys.modules["grp"].__name__]))
"""


def test_what_a_guest_of_an_earlier_process_left_is_not_imported(tmp_path: Path) -> None:
    """A module that stands in a write grant when the first jail opens must not be imported."""
    result = run_host(tmp_path, EARLIER.format(site=str(site_without_extras(tmp_path))))
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout.splitlines()[-1]) == [["anyio"], [], "grp"]


def imported_by(path: Path) -> set[str]:
    """Return the modules that the file imports anywhere in it, but for those of the package."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(
            ("import_module", "import_trusted", "__import__")
        ):
            found |= {str(a.value) for a in node.args[:1] if isinstance(a, ast.Constant)}
    return {name for name in found if name.partition(".")[0] not in ("visruntime", "__future__")}


@pytest.mark.one_uid
def test_all_that_the_package_imports_is_imported_ahead() -> None:
    """No module that the package imports may be missing once `import_ahead` has run."""
    wanted: dict[str, str] = {}
    for path in PACKAGE.rglob("*.py"):
        for name in imported_by(path):
            if not ELSEWHERE & set(path.relative_to(PACKAGE).parts):
                wanted[name] = str(path.relative_to(PACKAGE))
    code = "from visruntime._host.imports import import_ahead\nimport_ahead()\nimport json, sys\n"
    result = subprocess.run(
        [sys.executable, "-c", code + "print(json.dumps(list(sys.modules)))"],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    there = set(json.loads(result.stdout))
    assert {"anyio", "grp", "tempfile"} <= set(wanted)
    if sys.version_info < (3, 14):
        there |= SINCE_3_14
    missing = {name: path for name, path in wanted.items() if name not in there | GUARDED}
    assert missing == {}


def test_only_who_asks_leaves_places_of_guests_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A guarded import must find nothing of a guest's, and other threads must find all."""
    here = tmp_path.resolve()
    plain = here / "plain"
    for folder, name in ((here / "guest", "vis_planted"), (plain, "vis_plain")):
        folder.mkdir()
        (folder / f"{name}.py").write_text("")
    (plain / "vis_linked.py").write_text("")
    (here / "guest" / "link").symlink_to(plain)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(sys, "path", [str(here / "guest" / "link"), *sys.path])
    sys.path.insert(0, str(here / "guest"))
    monkeypatch.chdir(here / "guest")
    guests = Guests()
    assert not guests.known
    guests.remember([("write", str(here / "guest"))])
    assert guests.known
    with guests.left_out():
        # A link that a guest has put there leads to what is not the guest's, this time.
        for name in ("vis_planted", "vis_linked"):
            with pytest.raises(ModuleNotFoundError):
                import_module(name)
        with ThreadPoolExecutor(1) as other:
            assert other.submit(import_module, "vis_planted").result().__name__ == "vis_planted"
        sys.path.append(str(plain))
        assert import_module("vis_plain").__name__ == "vis_plain"
    assert import_module("vis_linked").__name__ == "vis_linked"
    for number in range(MOST_POLICIES + 1):
        guests.remember([("write", str(here / str(number)))])
    # Where there were too many to remember, only what no policy gives is trusted.
    assert guests.could_write(str(plain))
    assert not guests.could_write(str(Path(os.__file__).parent / "json"))
    for name in ("vis_planted", "vis_plain", "vis_linked"):
        monkeypatch.delitem(sys.modules, name)


ZONES = """
import os, site, sys
site.addsitedir({site!r})
here = os.path.dirname(os.path.abspath(__file__))
import pandas, pyarrow
import visruntime as vr

for name in ("pytz", "tzdata"):
    assert name not in sys.modules
when = pyarrow.timestamp("us", "No/Such")
tables = [
    pyarrow.table({{"when": pyarrow.array([1, 2], when)}}),
    pyarrow.table({{
        name: pyarrow.array([{{"when": 1}}], pyarrow.struct([("when", when)])) for name in "ab"
    }}),
]
frame = pandas.DataFrame({{"when": pandas.to_datetime([1], utc=True)}})
got = []
with vr.Runtime(vr.JailPolicy(write=[here])) as runtime:
    for name in ("pytz", "tzdata"):
        runtime.exec(
            "with open(" + repr(here + "/" + name + ".py") + ", 'w') as file:\\n"
            "    file.write(" + repr("open('" + here + "/ran/" + name + "', 'w')") + ")"
        )
    for table in tables:
        runtime.set("table", table)
        value = runtime.run("table").value
        assert type(value).__name__ == "Table", value
        try:
            value.to_pandas()
        except Exception as error:
            got.append(type(error).__name__)
    runtime.set("frame", frame)
    plain = pyarrow.table({{"number": [1, 2]}})
    runtime.set("table", plain)
    assert list(runtime.run("table").value.to_pandas()["number"]) == [1, 2]
print(len(got), os.listdir(here + "/ran"))
try:
    tables[0].to_pandas()  # the control: who does this alone
except Exception:
    pass
print(os.listdir(here + "/ran"))
"""


def test_a_time_zone_of_a_table_imports_nothing_of_a_guest(tmp_path: Path) -> None:
    """When a table names a zone, pyarrow imports pytz: that must not be one of a guest's making."""
    result = run_host(tmp_path, ZONES.format(site=str(site_without_extras(tmp_path))))
    assert result.returncode == 0, result.stderr
    first, control = result.stdout.splitlines()[-2:]
    assert first == "2 []"
    assert "pytz" in control


def test_bytecode_of_a_guest_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytecode that is not compared with its source runs in place of it, whoever wrote it."""
    here = tmp_path.resolve()
    source = here / "vis_cached.py"
    source.write_text("by = 'the guest'")
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(source), invalidation_mode=unchecked)
    source.write_text("by = 'the host'")
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(sys, "path", [str(here), *sys.path])
    guests = Guests()
    guests.remember([("write", str(here / "__pycache__"))])
    with guests.left_out(), pytest.raises(ModuleNotFoundError):
        import_module("vis_cached")
    assert import_module("vis_cached").by == "the guest"  # the control
    monkeypatch.delitem(sys.modules, "vis_cached")


def test_a_grant_of_bytecode_is_one_of_modules(tmp_path: Path) -> None:
    """Where a guest may write the bytecode of a folder, modules are imported ahead, and it is noted."""
    folder = str(tmp_path.resolve())
    cache = tmp_path.resolve() / "__pycache__"
    cache.mkdir()
    assert may_import_from([("write", str(cache))], [folder])
    assert not may_import_from([("write", f"{folder}/free")], [folder])
    code = (
        "import sys\nimport visruntime as vr\nsys.path.append(sys.argv[1])\n"
        "with vr.Jail(vr.JailPolicy(write=[sys.argv[1] + '/__pycache__'])) as jail:\n"
        "    print(*jail.report.notes)\n"
        "from visruntime._host.trusted_finder import GUESTS\nprint(GUESTS.known)"
    )
    result = subprocess.run(
        [sys.executable, "-P", "-c", code, folder],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert f"host_imports_from_grant: {cache}" in result.stdout
    assert result.stdout.endswith("True\n")


def test_a_forked_child_has_the_narrowing_of_its_own_thread_only() -> None:
    """Numbers of threads are used again: none of a child's may be narrowed for one of its parent's."""
    code = """
import os, threading
from visruntime._host.trusted_finder import GUESTS
inside, go_on = threading.Event(), threading.Event()
def other():
    with GUESTS.left_out():
        inside.set()
        go_on.wait(10)
thread = threading.Thread(target=other)
thread.start()
inside.wait(10)
with GUESTS.left_out():
    before = len(GUESTS._threads)
    child = os.fork()
    if not child:
        os._exit(len(GUESTS._threads) if threading.get_ident() in GUESTS._threads else 9)
    go_on.set()
thread.join()
print(before, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), len(GUESTS._threads))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stdout == "2 1 0\n"
