"""``ca=``: which bundles are delivered, how programs learn of them, and what is refused."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tls_servers import Authority, serve

from visruntime._worker.tls import (
    CA_VARIABLES,
    MAX_BUNDLE_BYTES,
    SYSTEM_BUNDLES,
    UV_SWITCHES,
    TlsSettings,
)
from visruntime.errors import PolicyError
from visruntime.jail import Jail
from visruntime.policy import JailPolicy
from visruntime.runtime import Runtime, TrustedRuntime

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.one_uid

LOOK = """
import os
def attempt(act, *words):
    try:
        act(*words)
        return 0
    except OSError as error:
        return error.errno
flags = os.O_WRONLY
[open(bundle, "rb").read(), attempt(os.open, bundle, flags), attempt(os.unlink, bundle),
 sorted(os.listdir(os.path.dirname(bundle))), dict(os.environ)]
"""

ASK = """
import urllib.request
with urllib.request.urlopen(f"https://localhost:{port}/", timeout=5) as reply:
    status = reply.status
status
"""


@pytest.fixture(scope="module")
def authority() -> Authority:
    """Return an authority without fault."""
    return Authority("Example Authority")


@pytest.fixture
def bundle(tmp_path: Path, authority: Authority) -> Path:
    """Return a bundle with that authority, beside a file that is nobody's business."""
    folder = tmp_path.resolve() / "authorities"
    folder.mkdir()
    (folder / "other").write_text("private\n")
    path = folder / "authorities.pem"
    path.write_bytes(b"# F\xc5\x91 authority\n" + authority.pem)
    return path


def test_a_jailed_worker_reads_the_bundle_and_changes_nothing(bundle: Path) -> None:
    """No guest changes the bundle or sees its neighbours; every variable names it."""
    with Runtime(JailPolicy(), ca=bundle) as runtime:
        result = runtime.run(LOOK, inputs={"bundle": str(bundle)})
        report = result.report
    assert result.error is None, result.error.traceback
    content, writing, unlinking, names, variables = result.value
    assert content == bundle.read_bytes()
    assert writing == errno.EROFS
    assert unlinking in (errno.EROFS, errno.EBUSY)
    assert names == [bundle.name]
    assert {name: variables[name] for name in CA_VARIABLES} == dict.fromkeys(
        CA_VARIABLES, str(bundle)
    )
    assert {name: variables[name] for name in UV_SWITCHES} == UV_SWITCHES
    assert "PYTHONPATH" not in variables
    assert report.mechanisms(f"implicit read {bundle}") == report.mechanisms("system")
    (clause,) = [clause for clause in report.clauses if clause.clause == "ca"]
    assert clause.note.startswith(str(bundle))
    assert bundle.exists()


def test_the_same_acts_succeed_without_a_jail(bundle: Path) -> None:
    """The control: outside of a jail the bundle can be written and removed."""
    with TrustedRuntime(ca=bundle) as runtime:
        _, writing, unlinking, _, variables = runtime.run(
            LOOK.replace("sorted(os.listdir(os.path.dirname(bundle)))", "None"),
            inputs={"bundle": str(bundle)},
        ).value
    assert (writing, unlinking) == (0, 0)
    assert not bundle.exists()
    assert variables["SSL_CERT_FILE"] == str(bundle)
    assert variables["PATH"] == os.environ["PATH"]  # the rest is as without ca=


@pytest.mark.parametrize("jailed", [True, False])
def test_only_the_bundle_makes_the_server_trusted(
    *, jailed: bool, bundle: Path, authority: Authority, tmp_path: Path
) -> None:
    """Without the bundle, or with another one, the same server is refused."""
    certificate, key = authority.issue()
    other = bundle.parent / "other.pem"
    other.write_bytes(Authority("Other Authority").pem)
    answers = []
    with serve(tmp_path, "server", [certificate], key) as port:
        for ca in (bundle, None, other, "system"):
            with (
                Runtime(JailPolicy(host_ports=[port]), ca=ca) if jailed else TrustedRuntime(ca=ca)
            ) as runtime:
                result = runtime.run(ASK, inputs={"port": port}, timeout=20)
                answers.append(result.error.message if result.error else result.value)
    assert answers[0] == 200
    for answer in answers[1:]:
        assert "unable to get local issuer certificate" in answer


def test_curl_and_git_learn_of_the_bundle(
    bundle: Path, authority: Authority, tmp_path: Path, tool: Callable[[str], str]
) -> None:
    """Programs that a worker starts trust the bundle, and refuse without it."""
    tool("curl")
    tool("git")
    certificate, key = authority.issue()
    code = (
        "import subprocess\n"
        "url = f'https://localhost:{port}/'\n"
        "def run(*words):\n"
        "    done = subprocess.run(words, capture_output=True, text=True)\n"
        "    return [done.returncode, done.stderr]\n"
        "[run('curl', '-sSf', url), run('git', 'ls-remote', url + 'x.git')]"
    )
    said: Any = []
    with serve(tmp_path, "server", [certificate], key) as port:
        for ca in (bundle, None):
            with Runtime(JailPolicy(host_ports=[port]), ca=ca) as runtime:
                result = runtime.run(code, inputs={"port": port}, timeout=20)
                assert result.error is None, result.error.traceback
                said.append(result.value)
    (curl, git), (curl_without, git_without) = said
    assert curl == [0, ""]
    assert curl_without[0] == 60  # CURLE_PEER_FAILED_VERIFICATION
    assert "certificate" not in git[1]  # the server is no repository, and that is all
    assert "certificate" in git_without[1]


def test_system_is_the_file_of_the_distribution() -> None:
    """The first known place that exists is taken, and no environment variable changes that."""
    expected = next((path for path in SYSTEM_BUNDLES if os.path.exists(path)), None)
    if expected is None:
        with pytest.raises(PolicyError, match="name the file"):
            TlsSettings(ca="system")
        return
    assert TlsSettings(ca="system").bundle == os.path.realpath(expected)


def _key(folder: Path) -> Path:
    authority = Authority("Careless Authority")
    certificate, key = authority.issue()
    path = folder / "with-key.pem"
    path.write_bytes(authority.pem + key)
    assert certificate
    return path


def _text(folder: Path) -> Path:
    path = folder / "notes.txt"
    path.write_text("no certificates\n")
    return path


def _cut(folder: Path) -> Path:
    path = folder / "cut.pem"
    path.write_bytes(Authority("Cut Authority").pem[:-60])
    return path


def _large(folder: Path) -> Path:
    path = folder / "large.pem"
    with path.open("wb") as file:
        file.truncate(MAX_BUNDLE_BYTES + 1)
    return path


def _fifo(folder: Path) -> Path:
    path = folder / "fifo"
    os.mkfifo(path)
    return path


def _link(folder: Path) -> Path:
    path = folder / "link.pem"
    path.symlink_to(folder / "authorities.pem")
    return path


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (_key, "private key"),
        (_text, "no list of certificates"),
        (_cut, "no list of certificates"),
        (_large, "larger than"),
        (_fifo, "no regular file"),
        (_link, "link"),
        (lambda folder: folder, "no regular file"),
        (lambda folder: folder / "missing.pem", "cannot be read"),
        (lambda _: "", "path of a PEM file"),
        (lambda _: b"/etc/x.pem", "path of a PEM file"),
        (lambda _: "/etc/\0", "path of a PEM file"),
    ],
)
@pytest.mark.parametrize("jailed", [True, False])
def test_what_is_no_bundle_is_refused(
    *, jailed: bool, make: Callable[[Path], Any], why: str, bundle: Path
) -> None:
    """Nothing starts with a file that holds a key, is no bundle, or is reached by a link."""
    ca = make(bundle.parent)
    with pytest.raises(PolicyError, match=why) as refusal:
        Runtime(JailPolicy(), ca=ca) if jailed else TrustedRuntime(ca=ca)
    assert refusal.value.field == "ca"


def test_a_bundle_that_a_guest_may_write_is_refused(bundle: Path, tmp_path: Path) -> None:
    """No earlier guest gets to add an authority, by whichever name of the folder."""
    for grant in (bundle.parent, bundle, tmp_path):
        with pytest.raises(PolicyError, match="write grant") as refusal:
            Runtime(JailPolicy(write=[grant]), ca=bundle)
        assert refusal.value.field == "ca"
    with Runtime(JailPolicy(read=[bundle.parent]), ca=bundle) as runtime:
        assert runtime.eval("open(__import__('os').environ['PIP_CERT']).read()")


def test_two_answers_to_one_question_are_refused(bundle: Path) -> None:
    """A variable that contradicts ca= is never overruled in silence, wherever it comes from."""
    other = {"REQUESTS_CA_BUNDLE": "/etc/other.pem"}
    makers: list[Callable[[], object]] = [
        lambda: Runtime(JailPolicy(env=other), ca=bundle),
        lambda: Runtime(JailPolicy(), env=other, ca=bundle),
        lambda: TrustedRuntime(env=other, ca=bundle),
    ]
    for make in makers:
        with pytest.raises(PolicyError, match="REQUESTS_CA_BUNDLE is set as well"):
            make()
    same = {"REQUESTS_CA_BUNDLE": str(bundle)}
    with Runtime(JailPolicy(env=same), env=same, ca=bundle) as runtime:
        assert runtime.eval("1")


def test_an_inherited_variable_counts_as_an_answer(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the policy takes over by name contradicts too; what is merely around does not."""
    monkeypatch.setenv("SSL_CERT_FILE", "/etc/other.pem")
    with pytest.raises(PolicyError, match="SSL_CERT_FILE is set as well"):
        Runtime(JailPolicy(inherit_env=["SSL_CERT_FILE"]), ca=bundle)
    with TrustedRuntime(ca=bundle) as runtime:
        assert runtime.eval("__import__('os').environ['SSL_CERT_FILE']") == str(bundle)


def test_a_jail_that_hides_the_bundle_is_refused(bundle: Path) -> None:
    """A worker never starts in a jail that cannot show it what was asked for."""
    python = [os.path.realpath(sys.prefix), os.path.realpath(sys.base_prefix)]
    package = os.path.dirname(os.path.abspath(TlsSettings(strict=False).modules[0][1]))
    with (
        Jail(JailPolicy(read=[*python, package])) as jail,
        pytest.raises(PolicyError, match="certificate authorities"),
    ):
        Runtime(jail, ca=bundle, tls_strict=False)
    with (
        Jail(JailPolicy(read=[*python, package, bundle])) as jail,
        Runtime(jail, ca=bundle, tls_strict=False) as runtime,
    ):
        assert runtime.run("1").report.mechanisms("ca") == ("environment",)
    with (
        Jail(JailPolicy(read=[*python, bundle])) as jail,
        pytest.raises(PolicyError, match="tls_strict=False"),
    ):
        Runtime(jail, ca=bundle, tls_strict=False)


@pytest.mark.parametrize("how", ["deny", "deny_read"])
def test_a_policy_that_denies_the_bundle_is_refused(how: str, bundle: Path) -> None:
    """A worker that could not read what it is told of never starts."""
    for path in (bundle, bundle.parent):
        if path == bundle.parent:  # the bundle is the more specific path, and wins
            with Runtime(JailPolicy(**{how: [path]}), ca=bundle) as runtime:  # type: ignore[arg-type]
                assert runtime.eval("len(open(__import__('os').environ['PIP_CERT']).read())")
            continue
        with pytest.raises(PolicyError, match="denies reading") as refusal:
            Runtime(JailPolicy(**{how: [path]}), ca=bundle)  # type: ignore[arg-type]
        assert refusal.value.value == str(bundle)


def test_a_switch_of_uv_is_left_as_chosen(bundle: Path) -> None:
    """Both mean the same file, so another value is no contradiction."""
    with Runtime(JailPolicy(env={"UV_SYSTEM_CERTS": "0"}), ca=bundle) as runtime:
        variables = runtime.eval("dict(__import__('os').environ)")
    assert (variables["UV_SYSTEM_CERTS"], variables["UV_NATIVE_TLS"]) == ("0", "true")


def test_a_new_worker_has_the_settings_too(bundle: Path) -> None:
    """They belong to the runtime: a worker that dies takes nothing with it."""
    ask = "import ssl, os; [os.environ['PIP_CERT'], len(ssl.SSLContext.__mro__)]"
    with Runtime(JailPolicy(), ca=bundle, tls_strict=False) as runtime:
        before = runtime.run(ask).value
        with pytest.raises(Exception, match="signal 9"):
            runtime.run("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
        assert runtime.run(ask).value == before
    assert before == [str(bundle), 4]
    assert shutil.which("true")
