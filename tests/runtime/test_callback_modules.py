"""Modules of host functions, their budgets, and errors with data."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest
from runtime_helpers import runtime

from visruntime import CommandTimeout, JailClosed, ProtocolViolation, WorkerPaused
from visruntime._callbacks.budget import Budget
from visruntime.runtime import TrustedRuntime

if TYPE_CHECKING:
    from runtime_helpers import AnyRuntime

pytestmark = pytest.mark.one_uid

__all__ = ["runtime"]  # the fixture is found by its name in this module


# ---- modules ----


def test_a_module_of_functions_is_imported_like_any_other(runtime: AnyRuntime) -> None:
    """Each form of import works, in this worker, after a reset, and in the next one."""
    runtime.expose_module("tools.math", {"add": lambda a, b: a + b})
    runtime.exec("1")
    runtime.expose("tools.echo", lambda value: value)
    code = (
        "import tools.math as m, tools\nfrom tools.math import add\nfrom tools import echo\n"
        "import importlib\n"
        "(m.add(1, 2), add(3, 4), echo('x'), tools.math is m, importlib.import_module('tools') is "
        "tools, repr(add), add.__name__, [n for n in dir(tools) if n[0] != '_'])"
    )
    value = (3, 7, "x", True, True, "<host function tools.math.add>", "add", ["echo", "math"])
    assert runtime.run(code).value == value
    runtime.run("import sys; del sys.modules['tools'], sys.modules['tools.math']; m.add = None")
    runtime.reset()
    assert runtime.run(code).value == value
    runtime.kill()
    assert runtime.run(code).value == value
    error = runtime.run("import tools.nothing").error
    assert error is not None
    assert error.type_name == "ModuleNotFoundError"
    assert runtime.run("'add' in globals() or 'tools.echo' in globals()").value is True  # by import


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["os.system"], "a module of the standard library"),
        (["json.tools.x"], "a module of the standard library"),
        (["a..b"], "not a Python name"),
        (["a.class"], "not a Python name"),
        ([""], "not a Python name"),
        (["a", "a.b"], "a is exposed already"),
        (["a.b.c", "a.b"], "a.b.c is exposed already"),
    ],
)
def test_names_that_would_hide_others_are_refused(names: list[str], says: str) -> None:
    """No module of host functions stands in for the standard library or for a function."""
    with TrustedRuntime() as running:
        for name in names[:-1]:
            running.expose(name, print)
        with pytest.raises(ValueError, match=says):
            running.expose(names[-1], print)


# ---- errors with data ----


class Refused(Exception):
    """An error of a host that has more to say."""

    def __init__(self, status: int, private: str) -> None:
        super().__init__("refused")
        self.status = status
        self.private = private
        self.cause = object()


@pytest.mark.parametrize(
    "wrong",
    [
        {"a": lambda: 1, "b": 3},
        {"a": lambda: 1, "b c": lambda: 2},
        {"a": lambda: 1, "a.b": lambda: 2},
        {"a": lambda: 1, "used.b": lambda: 2},
    ],
    ids=["no-function", "no-name", "in-its-own-way", "in-the-way"],
)
def test_a_module_is_exposed_as_a_whole_or_not_at_all(wrong: dict[str, Any]) -> None:
    """What the host was told is not exposed must not be callable, now or in a later worker."""
    with TrustedRuntime() as runtime:
        runtime.expose("m.used", lambda: 0)
        with pytest.raises((TypeError, ValueError), match=r"function: m\.b|name: 'm\."):
            runtime.expose_module("m", wrong)
        assert runtime._callbacks.names == ["m.used"]
        error = runtime.run("import m; m.a()").error
        assert error is not None
        assert error.type_name == "AttributeError"


def test_nothing_is_exposed_where_the_worker_cannot_be_told() -> None:
    """A name that `expose` refused, in a callback, in a pause or after the end, is not there later."""
    with TrustedRuntime() as runtime:
        runtime.expose("late", lambda: runtime.expose("inner", lambda: 1))
        error = runtime.run("late()").error
        assert error is not None
        assert error.type_name.endswith("RuntimeError")
        runtime.pause()
        with pytest.raises(WorkerPaused):
            runtime.expose("paused", lambda: 2)
        runtime.resume()
        assert runtime._callbacks.names == ["late"]
    with pytest.raises(JailClosed):
        runtime.expose("closed", lambda: 3)
    assert runtime._callbacks.names == ["late"]


def test_exceptions_carry_the_attributes_that_were_chosen(runtime: AnyRuntime) -> None:
    """What was not named does not cross, nor what is no data; without a choice nothing does."""

    def fetch() -> None:
        raise Refused(404, "the host's own")

    runtime.expose("fetch", fetch, error_data=["status", "cause", "missing"])
    runtime.expose("plain", fetch)
    code = "try: {}()\nexcept Exception as e: r = (e.type_name, str(e), e.data)\nr"
    assert runtime.run(code.format("fetch")).value == (
        "Refused",
        "Refused: refused",
        {"status": 404},
    )
    assert runtime.run(code.format("plain")).value == ("Refused", "Refused: refused", {})
    with pytest.raises(TypeError, match="error_data: expected a list"):
        runtime.expose("fetch", fetch, error_data="status")


# ---- budgets ----


def test_a_run_has_a_budget_of_calls(runtime: AnyRuntime) -> None:
    """A call over the budget calls nothing; each run has it anew, and the result counts."""
    called: list[int] = []
    runtime.expose("f", called.append)
    runtime.limit_callbacks(calls=3)
    code = "for n in range(5):\n    try: f(n)\n    except Exception as e: r = (n, e.type_name)\nr"
    for _ in range(2):
        called.clear()
        result = runtime.run(code)
        assert result.value == (4, "LimitExceeded")
        assert called == [0, 1, 2]
        assert (result.host_calls.calls, result.host_calls.refused) == (3, 2)
    runtime.limit_callbacks()
    assert runtime.run("[f(n) for n in range(10)]").host_calls.calls == 10


def test_a_run_has_a_budget_of_bytes_and_of_seconds(runtime: AnyRuntime) -> None:
    """Both directions count; what has begun may go over, what comes after is refused."""
    runtime.expose("give", bytes)
    runtime.expose("nap", time.sleep)
    runtime.limit_callbacks(bytes=100_000)
    result = runtime.run("give(60_000); len(give(60_000))")
    assert result.value == 60_000
    assert 120_000 < result.host_calls.bytes < 121_000
    for call in ("give(100_000)", "give(b'x' * 100_000)"):
        error = runtime.run(f"{call}; give(1)").error
        assert error is not None
        assert "budget of 100000 bytes" in error.message
    runtime.limit_callbacks(seconds=0.1)
    result = runtime.run("nap(.15); nap(.15)")
    assert result.error is not None
    assert "budget of 0.1 seconds" in result.error.message
    assert 0.15 <= result.host_calls.seconds < 0.3
    assert result.host_calls.to_dict()["calls"] == 1


def test_questions_for_input_are_on_the_same_budget(runtime: AnyRuntime) -> None:
    """``input()`` must be no way to call the host more often, or with more, than it allows."""
    asked: list[str] = []

    def ask(prompt: str, _password: bool) -> str:  # noqa: FBT001 (as it is called)
        asked.append(prompt)
        return "y" * 1000

    runtime.expose("f", lambda: None)
    many = "for n in range(5):\n    try: input('p' * 100)\n    except Exception as e: r = str(e)\nr"
    free = runtime.run(many.replace("r = str(e)", "raise") + "= 0", stdin=ask)
    assert len(asked) == 5  # the control
    assert (free.host_calls.calls, free.host_calls.refused) == (5, 0)
    assert 5_500 < free.host_calls.bytes < 6_500
    runtime.limit_callbacks(calls=3)
    asked.clear()
    result = runtime.run(f"f()\n{many}", stdin=ask)
    assert "budget of 3 calls" in result.value
    assert len(asked) == 2
    assert (result.host_calls.calls, result.host_calls.refused) == (3, 3)
    runtime.limit_callbacks(bytes=1_000)
    assert "budget of 1000 bytes" in runtime.run(many, stdin=ask).value
    assert len(asked) == 3
    with pytest.raises(ProtocolViolation, match="after its budget of bytes"):
        runtime.run(many.replace("range(5)", "range(10**6)"), stdin=ask, timeout=60)
    assert len(asked) == 4


def test_a_guest_that_calls_without_end_is_ended(runtime: AnyRuntime) -> None:
    """A million calls, or huge ones, over the budget cost the host no more than a thousand."""
    called: list[int] = []
    runtime.expose("f", lambda *_: called.append(1))
    runtime.limit_callbacks(calls=2)
    for code in (
        "for _ in range(10**6):\n    try: f()\n    except Exception: pass",
        "big = b'x' * (5 << 20)\nfor _ in range(10**6):\n    try: f(big)\n    except Exception: pass",
    ):
        called.clear()
        with pytest.raises(ProtocolViolation, match="after its budget of calls"):
            runtime.run(code, timeout=60)
        assert called == [1, 1]
    runtime.limit_callbacks(calls=0)
    assert runtime.run("1").host_calls.calls == 0


def test_a_million_calls_end_with_their_run(runtime: AnyRuntime) -> None:
    """Without a budget a time limit still ends a guest that does nothing but call."""
    runtime.expose("f", lambda: None)
    started = time.monotonic()
    with pytest.raises(CommandTimeout) as caught:
        runtime.run("for _ in range(10**8): f()", timeout=0.3)
    assert time.monotonic() - started < 3
    assert caught.value.result.host_calls.calls > 0  # how many, a busy machine decides
    assert not caught.value.result.session_lost


@pytest.mark.parametrize(
    ("wrong", "error"),
    [({"calls": -1}, ValueError), ({"calls": 1.5}, TypeError), ({"seconds": True}, TypeError)],
)
def test_budgets_are_checked_when_they_are_made(wrong: dict[str, Any], error: type) -> None:
    """No budget that means nothing is taken."""
    with pytest.raises(error, match=next(iter(wrong))):
        Budget(**wrong)


# ---- who is calling ----


def test_threads_of_a_callback_cannot_reenter_either(runtime: AnyRuntime) -> None:
    """``asyncio.to_thread`` inside a callback gets the error, not a deadlock; later it may call."""
    kept: list[Any] = []

    async def again() -> Any:
        kept.append(asyncio.get_running_loop())
        return await asyncio.to_thread(runtime.eval, "1")

    runtime.expose("again", again)
    error = runtime.run("again()", timeout=10).error
    assert error is not None
    assert "calling it" in error.message
    assert runtime.eval("1") == 1


def test_code_that_a_callback_left_behind_may_use_the_runtime() -> None:
    """What runs on in the context of a call that is over is like any other caller."""
    import contextvars

    contexts: list[contextvars.Context] = []
    with TrustedRuntime() as running:
        running.expose("f", lambda: contexts.append(contextvars.copy_context()))
        running.run("f()")
        assert contexts[0].run(running.eval, "6 * 7") == 42
