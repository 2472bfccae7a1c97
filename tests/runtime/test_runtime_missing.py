"""A guest that lacks a module is told how it would have it."""

from __future__ import annotations

import sys

import pytest

import visruntime as vr
from visruntime._runtime.missing import lacking_module

pytestmark = pytest.mark.one_uid

CHAINED = """
try:
    import nothere
except ImportError as error:
    raise ValueError from error
"""


def test_a_missing_module_is_explained() -> None:
    """The host's own words stand beside the guest's error, in its traceback too."""
    with vr.Runtime(vr.JailPolicy()) as runtime:
        result = runtime.run(CHAINED)
        assert result.error is not None
        assert result.error.cause is not None
        explanation = result.error.cause.explanation
        assert explanation is not None
        assert 'from_requirements(["nothere"]' in explanation
        assert explanation in result.error.traceback
        with pytest.raises(vr.GuestError) as caught:
            runtime.eval("__import__('nothere')")
        assert explanation in caught.value.traceback
        assert result.error.explanation is None


def test_a_worker_of_a_venv_names_its_command() -> None:
    """What is to be typed depends on where the worker's packages are."""
    with vr.Runtime(vr.JailPolicy(), environment=sys.prefix) as runtime:
        error = runtime.run("import nothere").error
        assert error is not None
        assert error.explanation == (
            f"{sys.prefix} has no nothere: uv pip install --python {sys.prefix} nothere"
        )
    with vr.TrustedRuntime() as trusted:
        error = trusted.run("import nothere").error
        assert error is not None
        assert error.explanation is not None
        assert "install its package" in error.explanation


def test_only_names_are_explained() -> None:
    """Nothing but a plain name of the guest may come into the host's own words."""
    unexplained = ["../../x", "a\nb", "a b", "\x1b[31m", "json.nothere", "1a", "a" * 200]
    with vr.Runtime(vr.JailPolicy()) as runtime:
        for name in unexplained:
            code = f'raise ModuleNotFoundError("No module named " + repr({name!r}))'
            error = runtime.run(code).error
            assert error is not None
            assert error.explanation is None
        error = runtime.run("raise ModuleNotFoundError(\"No module named 'tkinter'\")").error
        assert error is not None
        assert "of the standard library" in str(error.explanation)


def test_other_errors_are_not_about_modules() -> None:
    """Only the interpreter's own words for that error count."""
    assert lacking_module("ModuleNotFoundError", "No module named 'a'") == "a"
    assert lacking_module("ImportError", "No module named 'a'") is None
    assert (
        lacking_module("ModuleNotFoundError", "No module named 'a'; 'b' is not a package") is None
    )
