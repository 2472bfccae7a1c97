"""TLS strictness: what tls_strict changes in a worker, and that it changes nothing else."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from interpreters import interpreter, programs
from tls_servers import BAD, KINDS, LEGACY, serve_kinds

from visruntime._worker.tls import LENIENT_FOLDER
from visruntime.errors import PolicyError
from visruntime.guest.lenient_tls import sitecustomize as shim
from visruntime.policy import JailPolicy, Secret
from visruntime.runtime import Runtime, TrustedRuntime

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.one_uid

CLIENTS = (Path(__file__).parent / "tls_clients.py").read_text()
STRICT_BY_ITSELF = {"by_urllib", "by_urllib3", "by_requests", "by_httpx", "by_aiohttp"}
"""Clients of tls_clients.py that ask for nothing: strict from Python 3.13 on."""
PACKAGES = sysconfig.get_paths()["purelib"]
"""Where requests, httpx and the others are: their pure parts run in other versions too."""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, int], Path]]:
    """Serve each kind of certificate; give the ports by kind, and the bundle."""
    with serve_kinds(tmp_path_factory.mktemp("tls").resolve()) as served:
        yield served


@pytest.fixture
def environment_of(tmp_path: Path) -> Any:
    """Return a function that makes an environment with the real packages for an interpreter."""

    def make(python: str) -> Path:
        folder = tmp_path.resolve() / "environment"
        subprocess.run([python, "-m", "venv", "--without-pip", folder], check=True)
        (site_packages,) = folder.glob("lib/python3.*/site-packages")
        (site_packages / "real.pth").write_text(f"{PACKAGES}\n")
        return folder

    return make


def start(
    environment: Path, jailed: str, strict: object, **options: Any
) -> Runtime | TrustedRuntime:
    """Return a runtime with the packages, jailed or not."""
    options |= {"environment": environment, "tls_strict": strict}
    if jailed == "trusted":
        return TrustedRuntime(**options)
    ports = list(options.pop("ports", {}).values())
    return Runtime(JailPolicy(read=[PACKAGES], host_ports=ports), **options)


@pytest.mark.parametrize(
    ("minor", "strict", "jailed"),
    [
        (11, True, "jailed"),
        (11, False, "jailed"),
        (11, False, "trusted"),
        (12, False, "jailed"),
        (13, None, "jailed"),
        (13, True, "trusted"),
        (13, False, "jailed"),
        (13, False, "trusted"),
    ],
)
def test_tl_01_every_client_by_every_kind(
    minor: int, strict: object, jailed: str, servers: Any, environment_of: Any
) -> None:
    """TL-01: no client takes a wrong certificate in any mode, nor a legacy one but with False.

    The controls are in the same table: good is taken by all, and each refusal says its reason.
    """
    ports, bundle = servers
    options: dict[str, Any] = {"ca": bundle} | ({"ports": ports} if jailed == "jailed" else {})
    with start(environment_of(interpreter(minor)), jailed, strict, **options) as runtime:
        # The order that breaks the patch of an existing module: its context is made at import.
        runtime.exec("import aiohttp")
        runtime.exec(CLIENTS)
        table: Any = runtime.run("ask_all(ports)", inputs={"ports": ports}, timeout=40).value
    assert len(table) == CLIENTS.count("def by_")
    for client, answers in table.items():
        assert answers.keys() == set(KINDS)
        lenient = strict is False or (minor < 13 and client in STRICT_BY_ITSELF)
        expected = {"good": "ok"} | (dict.fromkeys(LEGACY, "ok") if lenient else LEGACY) | BAD
        for kind, said in answers.items():
            assert said.startswith(expected[kind]), (client, kind, said)


FLAGS = """
import sys
before = "ssl" in sys.modules
import ssl
contexts = {
    "default": ssl.create_default_context(),
    "bare": ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
    "server": ssl.create_default_context(ssl.Purpose.CLIENT_AUTH),
    "stdlib": ssl._create_stdlib_context(),
}
made = {name: int(context.verify_flags) for name, context in contexts.items()}
context, masks = contexts["bare"], [1 << bit for bit in range(31)]
masks += [0, 0x20 | 0x8000, 0x7FFFFFFF, 0x7FFFFFDF, 0x40100020, 0x21]
kept = []
for mask in masks:
    context.verify_flags = mask
    kept.append(int(context.verify_flags))
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    kept.append(int(context.verify_flags))
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    kept.append(int(context.verify_flags))
refused = []
for wrong in ("text", None, 1.5, 1 << 80, -(1 << 80)):
    try:
        context.verify_flags = wrong
    except Exception as error:
        refused.append([type(error).__name__, str(error)])
try:
    del context.verify_flags
except Exception as error:
    refused.append(type(error).__name__)
facts = {
    "before": before,
    "made": made,
    "kept": kept,
    "refused": refused,
    "options": [int(context.options), context.check_hostname, int(context.verify_mode)],
    "constant": int(ssl.VERIFY_X509_STRICT),
    "type": type(context.verify_flags).__name__,
    "classes": [f"{one.__module__}.{one.__qualname__}" for one in type(context).__mro__],
    "create": ssl.create_default_context.__module__,
    "loader": [type(ssl.__loader__).__name__, type(ssl.__spec__.loader).__name__],
}
"""


def plain(python: str) -> dict[str, Any]:
    """Return the facts of an interpreter that is no worker."""
    code = f"{FLAGS}\nimport json; print(json.dumps(facts))"
    done = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("minor", [11, 13])
@pytest.mark.parametrize("strict", [None, True])
def test_unset_and_true_change_nothing(minor: int, strict: object) -> None:
    """Not one bit, class or message of ssl differs from Python's own, and it is not imported."""
    python = interpreter(minor)
    with TrustedRuntime(python=python, tls_strict=strict) as runtime:  # type: ignore[arg-type]
        finders = runtime.run("import sys; [str(type(one)) for one in sys.meta_path]").value
        variables = runtime.eval("dict(__import__('os').environ)")
        runtime.exec(FLAGS)
        assert runtime.get("facts") == plain(python)
        assert runtime.tls_strict is strict
    assert not [finder for finder in finders if "lenient" in finder]
    assert variables.get("PYTHONPATH") == os.environ.get("PYTHONPATH")


@pytest.mark.parametrize("minor", [11, 13])
def test_false_clears_one_bit_and_no_other(minor: int) -> None:
    """Every other flag survives, unknown ones included, and so does every error message."""
    python = interpreter(minor)
    own = plain(python)
    with TrustedRuntime(python=python, tls_strict=False) as runtime:
        runtime.exec(FLAGS)
        lenient: Any = runtime.get("facts")
        assert runtime.tls_strict is False
    assert lenient["before"] is False
    assert own["made"]["default"] & 0x20 == (0x20 if minor >= 13 else 0)
    assert lenient["made"] == {name: value & ~0x20 for name, value in own["made"].items()}
    assert lenient["kept"] == [value & ~0x20 for value in own["kept"]]
    assert any(value & 0x20 for value in own["kept"])
    native = own["classes"].index("_ssl._SSLContext")
    own["classes"].insert(native, "_ssl._SSLContext")
    for fact in ("refused", "options", "constant", "type", "classes", "create", "loader"):
        assert lenient[fact] == own[fact], fact


STRICT_BIT = """
import ssl
context = ssl.create_default_context()
context.verify_flags |= ssl.VERIFY_X509_STRICT
print(bool(context.verify_flags & ssl.VERIFY_X509_STRICT))
"""


def test_an_import_anew_is_lenient_too(runtime_false: TrustedRuntime) -> None:
    """Neither a reload of ssl nor a second import brings strictness back."""
    again = "import importlib, ssl; importlib.reload(ssl)"
    fresh = "import sys; del sys.modules['ssl']"
    for before in ("", again, fresh, f"{fresh}\n{again}"):
        result = runtime_false.run(f"{before}\n{STRICT_BIT}")
        assert (result.stdout, result.error) == (b"False\n", None)
    found = "import importlib.util as u; s = u.find_spec('ssl'); len(s.loader.get_source('ssl'))"
    assert runtime_false.run(found).value > 10_000


@pytest.fixture
def runtime_false() -> Iterator[TrustedRuntime]:
    """Return a trusted runtime with tls_strict=False."""
    with TrustedRuntime(tls_strict=False) as runtime:
        yield runtime


CHILDREN = """
import multiprocessing, subprocess, sys

def python(*words):
    return subprocess.run([sys.executable, *words], capture_output=True, text=True)

def forked():
    import ssl
    return [one.__module__ for one in ssl.SSLContext.__mro__]

with multiprocessing.get_context("fork").Pool(1) as pool:
    classes = pool.apply(forked)
with multiprocessing.get_context("spawn").Pool(1) as pool:
    spawned = pool.apply(eval, ("len(__import__('ssl').SSLContext.__mro__)",))
said = {
    "child": python("-c", strict_bit),
    "grandchild": python("-c", "import subprocess, sys; subprocess.run(sys.argv[1:])",
                         sys.executable, "-c", strict_bit),
    "path": python("-c", "import from_path, sys; print([p for p in sys.path if 'lenient' in p])"),
    "isolated": python("-I", "-c", strict_bit),
}
[classes, spawned, {name: (done.stdout, done.stderr) for name, done in said.items()}]
"""


@pytest.mark.parametrize("jailed", ["jailed", "trusted"])
def test_pythons_that_a_worker_starts(jailed: str, tmp_path: Path) -> None:
    """Forked and started Pythons are lenient too; those that ignore the environment are not."""
    more = tmp_path.resolve() / "more"
    more.mkdir()
    (more / "from_path.py").write_text("")
    options: dict[str, Any] = {"tls_strict": False, "env": {"PYTHONPATH": str(more)}}
    with (
        TrustedRuntime(**options)
        if jailed == "trusted"
        else Runtime(JailPolicy(read=[more]), **options)
    ) as runtime:
        result = runtime.run(CHILDREN, inputs={"strict_bit": STRICT_BIT})
    assert result.error is None, result.error.traceback
    classes, spawned, said = result.value
    assert spawned == 3  # started with -I, as the worker is
    assert classes == ["ssl", "_ssl", "_ssl", "builtins"]
    assert said == {
        "child": ("False\n", ""),
        "grandchild": ("False\n", ""),
        "path": ("[]\n", ""),
        "isolated": ("True\n", ""),
    }


PLANT = """
import os
def attempt(name, mode):
    try:
        open(os.path.join(folder, name), mode).close()
        return 0
    except OSError as error:
        return error.errno
[attempt("sitecustomize.py", "a"), attempt("planted.py", "w")]
"""


def test_a_write_grant_above_leaves_the_shim_alone(tmp_path: Path) -> None:
    """No guest plants code where the Pythons of the next worker look first."""
    package = Path(LENIENT_FOLDER).parents[2]
    with Runtime(JailPolicy(write=[package]), tls_strict=False) as runtime:
        assert runtime.run(PLANT, inputs={"folder": LENIENT_FOLDER}).value == [errno.EROFS] * 2
        assert runtime.run(STRICT_BIT).stdout == b"False\n"
    (tmp_path / "sitecustomize.py").write_text("")
    with TrustedRuntime() as control:
        assert control.run(PLANT, inputs={"folder": str(tmp_path)}).value == [0, 0]


def test_a_secret_path_stays_one() -> None:
    """A path that is given as a secret reaches the worker whole, and no report."""
    policy = JailPolicy(env={"PYTHONPATH": Secret("/srv/hidden")})
    with Runtime(policy, tls_strict=False) as runtime:
        result = runtime.run("__import__('os').environ['PYTHONPATH']")
    assert result.value == f"{LENIENT_FOLDER}:/srv/hidden"
    assert "hidden" not in json.dumps(result.report.to_dict())


def test_children_of_other_versions() -> None:
    """A Python that is too old for a worker must not fail because a worker started it."""
    pythons = [path for minor in range(6, 11) for path in programs(f"3.{minor}")]
    pythons.append(sys.executable)
    environment = {"PYTHONPATH": LENIENT_FOLDER, "PYTHONDONTWRITEBYTECODE": "1"}
    for python in pythons:
        done = subprocess.run(
            [python, "-c", STRICT_BIT], env=environment, capture_output=True, text=True, check=False
        )
        assert (done.stdout, done.stderr) == ("False\n", ""), python


def test_a_hidden_sitecustomize_still_runs(tmp_path: Path) -> None:
    """The environment's own sitecustomize is neither lost nor named twice, and may fail."""
    (tmp_path / "sitecustomize.py").write_text("print('own')\nMARK = 1\n")
    code = (
        "import sys, sitecustomize; print(sitecustomize.MARK); " + STRICT_BIT.replace("\n", ";")[1:]
    )
    path = f"{LENIENT_FOLDER}:{tmp_path}"
    environment = {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}

    def run(words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", words],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    done = run(code)
    assert (done.stdout, done.stderr) == ("own\n1\nFalse\n", "")
    (tmp_path / "sitecustomize.py").write_text("raise ZeroDivisionError('mine')\n")
    done = run(STRICT_BIT)
    assert done.stdout == "False\n"
    assert "ZeroDivisionError: mine" in done.stderr
    assert done.returncode == 0


def test_without_tls_the_import_says_what_python_says(tmp_path: Path) -> None:
    """A Python without _ssl gets its own ImportError, not one of the shim."""
    code = "import sys; sys.modules['_ssl'] = None; import ssl"
    outcomes = []
    for path in ("", LENIENT_FOLDER):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        outcomes.append(done.stderr.strip().splitlines()[-1])
    assert outcomes[0] == outcomes[1]
    assert "_ssl" in outcomes[0]


def test_the_module_is_inert_elsewhere() -> None:
    """Importing it by its own name changes nothing in this process."""
    assert shim.__name__.endswith("lenient_tls.sitecustomize")
    assert not [finder for finder in sys.meta_path if type(finder).__name__ == "Finder"]


def test_reports_name_the_setting() -> None:
    """A report never hides that a worker is lenient, and says nothing where nothing was asked."""
    with Runtime(JailPolicy(), tls_strict=False) as runtime:
        report = runtime.run("1").report
        assert report.mechanisms("tls_strict") == ("the worker's ssl module",)
        assert report.mechanisms(f"implicit read {LENIENT_FOLDER}") == report.mechanisms("system")
    with Runtime(JailPolicy(), tls_strict=True) as runtime:
        report = runtime.run("1").report
        assert report == runtime._jail.report
        assert report.mechanisms("tls_strict") == ()
    with TrustedRuntime(tls_strict=False) as trusted:
        report = trusted.run("1").report
        assert not report.jailed
        (clause,) = [one for one in report.clauses if one.clause == "tls_strict"]
        # In force, and no enforcement: nothing that counts mechanisms takes it for a jail's.
        assert clause.mechanisms == ()
        assert clause.note.startswith("in force by the worker's ssl module: False: ")
    with TrustedRuntime(tls_strict=True) as trusted:
        assert [one.clause for one in trusted.report.clauses] == ["audit hook"]


@pytest.mark.parametrize("wrong", [0, 1, "false", "no", 0.0])
def test_only_the_three_values_are_taken(wrong: Any) -> None:
    """What is no bool is never taken for one."""
    for make in (TrustedRuntime, lambda **options: Runtime(JailPolicy(), **options)):
        with pytest.raises(PolicyError, match="True, False or None") as refusal:
            make(tls_strict=wrong)
        assert refusal.value.field == "tls_strict"
