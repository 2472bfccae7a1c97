"""pip and uv in jailed workers: which certificates they take, and how they learn of authorities."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from interpreters import interpreter
from tls_servers import BAD, KINDS, LEGACY, PACKAGE, serve_kinds

from visruntime.policy import JailPolicy
from visruntime.runtime import Runtime

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.one_uid

PIP = """
import contextlib, io, logging, sys

sys.path.insert(0, wheel)
from pip._internal.cli.main import main

outcomes = {}
for kind, port in ports.items():
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = main(["download", "--no-deps", "--no-cache-dir", "--disable-pip-version-check",
                     "--retries", "0", "--no-input", "-d", f"/tmp/{kind}",
                     "-i", f"https://localhost:{port}/simple", package])
    outcomes[kind] = [code, said.getvalue()]
outcomes
"""

UV = """
import subprocess

outcomes = {}
for kind, port in ports.items():
    done = subprocess.run(
        [uv, "pip", "install", "--no-cache", "--no-config", "--no-deps", "--python", python,
         "--target", f"/tmp/{kind}", "-i", f"https://localhost:{port}/simple", package],
        capture_output=True, text=True)
    outcomes[kind] = [done.returncode, done.stderr]
outcomes
"""

UV_SAYS = {
    "unknown": "UnknownIssuer",
    "wrong_host": "certificate not valid for name",
    "expired": "certificate expired",
    "bad_signature": "BadSignature",
}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, int], Path]]:
    """Serve each kind of certificate; give the ports by kind, and the bundle."""
    with serve_kinds(tmp_path_factory.mktemp("tls").resolve()) as served:
        yield served


def taken(outcomes: dict[str, Any]) -> set[str]:
    """Return the kinds of which the package was fetched."""
    assert outcomes.keys() == set(KINDS)
    return {kind for kind, (code, _) in outcomes.items() if code == 0}


@pytest.mark.parametrize("strict", [None, False])
def test_pip_takes_legacy_and_no_wrong_certificates(strict: bool | None, servers: Any) -> None:  # noqa: FBT001
    """Pip learns of the bundle; in neither mode does it take what is wrong.

    It is not strict by itself, so legacy authorities pass with the default too.
    """
    ports, bundle = servers
    python = interpreter(13)
    installation = Path(os.path.realpath(python)).parent.parent
    (wheel,) = installation.glob("lib/python3.13/ensurepip/_bundled/pip-*.whl")
    policy = JailPolicy(host_ports=ports.values())
    with Runtime(policy, python=python, tls_strict=strict, ca=bundle) as runtime:
        inputs = {"ports": ports, "wheel": str(wheel), "package": PACKAGE}
        result = runtime.run(PIP, inputs=inputs, timeout=40)
    assert result.error is None, result.error.traceback
    outcomes: Any = result.value
    assert taken(outcomes) == {"good", *LEGACY}
    for kind in BAD:
        assert "certificate" in outcomes[kind][1].lower(), outcomes[kind]


@pytest.mark.parametrize("strict", [None, False])
def test_uv_takes_legacy_and_no_wrong_certificates(
    strict: bool | None,  # noqa: FBT001
    servers: Any,
    tool: Callable[[str], str],
) -> None:
    """Uv, whose TLS is not Python's, learns of the bundle, and the setting does not reach it."""
    ports, bundle = servers
    uv = os.path.realpath(os.environ.get("UV") or tool("uv"))
    policy = JailPolicy(host_ports=ports.values(), read=[uv])
    with Runtime(policy, tls_strict=strict, ca=bundle, env={"UV_HTTP_RETRIES": "0"}) as runtime:
        inputs = {"ports": ports, "uv": uv, "python": sys.executable, "package": PACKAGE}
        result = runtime.run(UV, inputs=inputs, timeout=40)
    assert result.error is None, result.error.traceback
    outcomes: Any = result.value
    assert taken(outcomes) == {"good", *LEGACY}, outcomes
    for kind, said in UV_SAYS.items():
        assert said in outcomes[kind][1], outcomes[kind]
    assert not [said for _, said in outcomes.values() if "warning" in said]
