"""The JSON Schema of policy files: generated, current, and no stricter than the code."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
import readme
from hypothesis import given, settings
from hypothesis import strategies as st

import visruntime as vr
from visruntime.cli import main
from visruntime.config import SCHEMAS, schema

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.one_uid

SCRIPT = readme.ROOT / "scripts" / "generate_policy_schema.py"

WORDS = st.sampled_from(
    ["", "/a", "a", "~/x", "../b", "none", "auto", "512M", "1 GiB", "5ib", "1P", "minimal", "host",
     "off", "open", "proxy", "cgroup", "process", "a.test:443", "*.a.test", "LANG", "8000", "\n/a"]
)  # fmt: skip
NUMBERS = st.one_of(
    st.integers(-2, 5),
    st.sampled_from([65535, 65536, 2**31, 2**60, 2**60 + 1, 2**63, 0.5, 5.0, -1.5]),
    st.booleans(),
)
SCALARS = st.one_of(WORDS, NUMBERS)
NAMES = st.one_of(
    st.sampled_from(
        [*vr.Limits.__slots__, "mode", "allow", "deny", "LANG", "A_KEY", "80", "x y", "tls_strict"]
    ),
    WORDS,
)
LISTS = st.lists(SCALARS, max_size=3)
TABLES = st.dictionaries(NAMES, st.one_of(SCALARS, LISTS), max_size=3)
FIELDS = st.one_of(st.sampled_from([*vr.JailPolicy.__slots__, "python"]), WORDS)
POLICIES = st.dictionaries(FIELDS, st.one_of(SCALARS, LISTS, TABLES), max_size=4)


def toml(value: Any) -> str:
    """Return *value* as TOML writes it inside of a line."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(k)} = {toml(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


def validator() -> jsonschema.Draft202012Validator:
    """Return a checker of policies by the shipped schema."""
    return jsonschema.Draft202012Validator(vr.JailPolicy.json_schema())


def test_the_committed_schema_is_what_the_code_gives() -> None:
    """A field that is added or changed must not be missing from the schema."""
    done = subprocess.run(
        [sys.executable, SCRIPT, "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    fields = {*vr.JailPolicy.__slots__, "python"}  # which a file may hold, and no policy
    assert set(vr.JailPolicy.json_schema()["properties"]) == fields


def test_it_is_a_schema_and_each_field_is_described() -> None:
    """A schema that is none would let everything pass."""
    content = vr.JailPolicy.json_schema()
    jsonschema.Draft202012Validator.check_schema(content)
    limits = content["properties"]["limits"]["properties"]
    assert set(limits) == set(vr.Limits.__slots__)
    for name, shape in [*content["properties"].items(), *limits.items()]:
        assert len(shape["description"]) > 4, name


@settings(max_examples=1500, deadline=None)
@given(policy=POLICIES)
def test_what_the_schema_refuses_the_code_refuses(policy: dict[str, Any]) -> None:
    """A policy file that works must not be underlined by an editor."""
    import tempfile

    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write("".join(f"{json.dumps(name)} = {toml(v)}\n" for name, v in policy.items()))
        file.flush()
        try:
            vr.JailPolicy.load(file.name)
        except vr.PolicyError:
            return
    assert list(validator().iter_errors(policy)) == [], policy


@pytest.mark.parametrize(
    "wrong",
    [
        {"reed": []},
        {"read": "/a"},
        {"read": ["~/a"]},
        {"read": [5]},
        {"limits": {"memory": "much"}},
        {"limits": {"memry": 5}},
        {"limits": {"processes": 0}},
        {"system": "all"},
        {"egress": "maybe"},
        {"egress": {"mode": "proxy", "hosts": []}},
        {"host_ports": [0]},
        {"inbound": {"http": 5}},
        {"env": {"A B": "x"}},
        {"env": {"A": {"secret": True}}},
        {"python": {"tls_strict": 0}},
        {"python": {"tls": False}},
    ],
)
def test_what_an_editor_can_see_is_seen(wrong: dict[str, Any]) -> None:
    """The usual slips must be found by the schema alone, and by the code as well."""
    assert list(validator().iter_errors(wrong))
    with pytest.raises(vr.PolicyError):
        vr.JailPolicy.from_dict(wrong, folder="/")


def test_the_example_of_the_reference_is_valid(tmp_path: Path) -> None:
    """The documented file must be one that the schema and the code take."""
    (text,) = readme.blocks("toml", "doc/reference/policy.md")
    file = tmp_path / "visruntime.toml"
    file.write_text(text)
    assert list(validator().iter_errors(tomllib.loads(text))) == []
    policy = vr.JailPolicy.load(file)
    assert policy.read == (f"{tmp_path}/data",)
    assert policy.limits.wall_seconds == 60


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_command_prints_each_schema(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    """What is printed is the schema whole, as JSON."""
    assert main(["schema", name]) == 0
    assert json.loads(capfd.readouterr().out) == schema(name)
    jsonschema.Draft202012Validator.check_schema(schema(name))


@pytest.mark.parametrize("words", [[], ["all"], ["policy", "report"]])
def test_an_unknown_schema_is_refused(words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    """No other file of the package can be printed by its name."""
    assert main(["schema", *words]) == 125
    assert capfd.readouterr().out == ""
    with pytest.raises(ValueError, match="schema"):
        schema("../../etc/passwd")
