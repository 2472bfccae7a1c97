"""What is no data becomes what the host has chosen: a handle, a repr, or an error that says where."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from runtime_helpers import runtime

import visruntime as vr
from visruntime._runtime.brief import MAX_REPR
from visruntime.errors import GuestError
from visruntime.runtime import TrustedRuntime

if TYPE_CHECKING:
    from runtime_helpers import AnyRuntime

pytestmark = pytest.mark.one_uid

__all__ = ["runtime"]


def test_handles_are_what_happens_unasked(runtime: AnyRuntime) -> None:
    """Nothing changes for who says nothing; one run may ask for something else."""
    runtime.exec("lock = __import__('threading').Lock()")
    assert type(runtime.eval("[lock]")[0]) is vr.Handle
    assert type(runtime.run("[lock]", unknown="repr").value[0]) is vr.Repr
    assert type(runtime.run("[lock]").value[0]) is vr.Handle
    with runtime.start("[lock]", unknown="repr") as run:
        assert type(run.result().value[0]) is vr.Repr


def test_a_repr_is_bounded_text_of_a_type_of_its_own(runtime: AnyRuntime) -> None:
    """It is no str and equal to none, names the type, and a repr that fails is one too."""
    runtime.exec(
        "class Long:\n"
        "    def __repr__(self): return 'x' * 10_000_000\n"
        "class Odd:\n"
        "    def __repr__(self): raise ZeroDivisionError\n"
        "class Liar:\n"
        "    def __repr__(self): return chr(27) + '[2J'\n"
    )
    long, odd, liar, text = runtime.run("[Long(), Odd(), Liar(), 'text']", unknown="repr").value
    assert (type(long), type(text)) == (vr.Repr, str)
    assert long.type_name == "Long"
    assert len(long.text) < MAX_REPR
    assert odd.text == "<Odd: repr raised ZeroDivisionError>"
    assert liar != liar.text
    assert "\x1b" not in repr(liar)
    # The guest keeps nothing for the host.
    assert runtime.run("Long()", unknown="repr").value != long.text


def test_a_value_that_is_no_data_as_a_whole(runtime: AnyRuntime) -> None:
    """A cycle, and a key that is no data, make a repr of all of it."""
    for code in ("x = []; x.append(x); x", "{object(): 1}", "[0] * 2_000_000"):
        assert type(runtime.run(code, unknown="repr").value) is vr.Repr


def test_an_error_names_type_and_place(runtime: AnyRuntime) -> None:
    """The value is gone, and everything else of the run is there."""
    result = runtime.run(
        "print('said')\n"
        "try:\n    open('/nowhere/at-all')\nexcept OSError:\n    pass\n"
        "display('shown')\n"
        "{'a': [1, {'b': object()}]}",
        unknown="error",
    )
    assert result.value is None
    assert result.error is not None
    assert result.error.type_name == "visruntime.ValueNotData"
    assert "value['a'][1]['b']: no encoding for type 'object'" in result.error.message
    assert result.stdout == b"said\n"
    assert len(result.displays) == 1
    assert runtime.run("1 + 1", unknown="error").value == 2
    for code, why in (
        ("x = []; x.append(x); x", "value[0]: it contains itself"),
        ("[0] * 2_000_000", "more than 1000000 parts"),
        ("import datetime, zoneinfo; datetime.datetime.now(zoneinfo.ZoneInfo('UTC'))", "ZoneInfo"),
    ):
        error = runtime.run(code, unknown="error").error
        assert error is not None
        assert why in error.message


def test_a_runtime_has_a_rule() -> None:
    """It holds for every verb and for what host functions get; a copy has it too."""
    got: list[Any] = []
    with TrustedRuntime(unknown="error") as runtime:
        runtime.expose("take", got.append)
        runtime.exec("x = object()")
        for verb, word in ((runtime.eval, "x"), (runtime.get, "x"), (runtime.call, "object")):
            with pytest.raises(GuestError, match="no encoding for type 'object'"):
                verb(word)
        result = runtime.run("take([0, x])")
        assert result.error is not None
        assert result.error.type_name == "visruntime.ValueNotData"
        assert "args[0][1]" in result.error.message
        assert not got
        with runtime.fork() as copy, pytest.raises(GuestError, match="no encoding"):
            copy.eval("x")
        assert type(runtime.run("x", unknown="handle").value) is vr.Handle
    with TrustedRuntime(unknown="repr") as runtime:
        runtime.expose("take", got.append)
        runtime.exec("take(object())")
        assert type(got[0]) is vr.Repr
        assert type(runtime.call("object")) is vr.Repr
        runtime.set("back", got[0])
        assert runtime.get("back") == got[0]


@pytest.mark.parametrize("word", ["handles", "", None, True])
def test_a_rule_that_is_none_is_refused(word: Any) -> None:
    """Another word is refused before anything starts."""
    with pytest.raises(ValueError, match="unknown:"):
        TrustedRuntime(unknown=word)
    if word is not None:
        with TrustedRuntime() as runtime, pytest.raises(ValueError, match="unknown:"):
            runtime.run("1", unknown=word)


def test_what_denials_were_counted_stays_with_an_error(runtime: AnyRuntime) -> None:
    """What the run has counted until then is in the result, although its value is not."""
    result = runtime.run("import ctypes\neval('1')\nobject()", unknown="error")
    without = runtime.run("import ctypes\neval('1')\n1", unknown="error")
    assert result.error is not None
    assert result.trips.keys() >= without.trips.keys()


def test_a_type_with_an_endless_name(runtime: AnyRuntime) -> None:
    """Its name is cut, and the value still is a handle or a repr."""
    code = "type('N' * 5000, (), {})()"
    assert type(runtime.run(code).value) is vr.Handle
    assert type(runtime.run(code, unknown="repr").value) is vr.Repr


def test_a_handle_of_another_worker_is_refused(runtime: AnyRuntime) -> None:
    """A handle names nothing in a worker that came after, nor after a reset."""
    handle = runtime.eval("object()")
    runtime.set("x", handle)
    runtime.reset()
    with pytest.raises(GuestError, match="another worker"):
        runtime.set("x", handle)
    handle = runtime.eval("object()")
    runtime.kill()
    runtime.exec("made = [object() for _ in range(100)]")
    runtime.eval("made")  # with handles of its own
    with pytest.raises(GuestError, match="another worker"):
        runtime.set("x", handle)
