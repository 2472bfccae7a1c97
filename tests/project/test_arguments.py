"""Wrong arguments: each is refused by its name, as a TypeError or ValueError, before anything starts.

The table below is complete: a test reads the signatures of the public classes, and fails where an
argument of one is neither in the table nor listed with the reason why nothing can be wrong with it.
"""

from __future__ import annotations

import inspect
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

import visruntime as vr
from visruntime import aio
from visruntime._arguments import check_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.one_uid

POLICY = vr.JailPolicy()
NUMBERS: tuple[Any, ...] = ("x", [1], True)
SECONDS: tuple[Any, ...] = (*NUMBERS, float("nan"))
LIMIT: tuple[Any, ...] = (*SECONDS, -1)
TEXT: tuple[Any, ...] = (3, b"x", [1])
PATH: tuple[Any, ...] = (3, b"/x", [1], "/x\0", "/x\ud83d")
LIST: tuple[Any, ...] = (3, "x", [3])
MAPPING: tuple[Any, ...] = (3, "x", [1])
VARIABLES: tuple[Any, ...] = (*MAPPING, {1: "x"}, {"A": 1}, {"A=": "x"})
SWITCH: tuple[Any, ...] = ("no", 3)
WORD: tuple[Any, ...] = (3, "x", [1])
FUNCTION: tuple[Any, ...] = (3, "x", [1])
OBJECT: tuple[Any, ...] = (3, {}, "x")

RUN = {
    "code": TEXT,
    "unknown": WORD,
    "inputs": (*MAPPING, {"a b": 1}, {"class": 1}, {3: 1}),
    "timeout": (*LIMIT, 0),
    "filename": TEXT,
    "argv": LIST,
    "cwd": PATH,
    "env": VARIABLES,
    "stdin": (3, [1]),
    "isolation": WORD,
    "tasks": WORD,
}
SINKS = {"check": SWITCH, "on_output": FUNCTION, "on_event": FUNCTION}
SOME = {name: RUN[name] for name in ("code", "inputs", "timeout")}
EXPOSE = {"check": SWITCH, "error_data": LIST}
START = {"cwd": (*PATH, "relative"), "env": (3, "x", [1], {"A": 1}, {"A=": "x"}), "timeout": LIMIT}
WORKER = {
    "python": PATH,
    "environment": (3, [1]),
    "tls_strict": WORD,
    "ca": (3, [1], ""),
    "cwd": PATH,
    "env": VARIABLES,
    "stdin": (*NUMBERS, -1, 9999),
    "preload": (*LIST, [""], ["a b"]),
    "unknown": WORD,
    "types": (3, "x", [3], {"a": 3}),
}
SIZE = {"rows": (*NUMBERS, 0, 1 << 20), "cols": (*NUMBERS, -1)}
COMMAND: tuple[Any, ...] = (3, "true", [3], [], [b"true"], ["a\0"], None)
BUILD = {
    "python": PATH,
    "index": (3, "foo", "", "ftp://example.org/simple", "https://", " default"),
    "wheelhouse": (3, [3], "/nowhere"),
    "cache": SWITCH,
    "hashes": WORD,
    "wheels_only": SWITCH,
    "uv": PATH,
    "timeout": (*LIMIT, 0),
    "progress": FUNCTION,
}
LIMITS = {
    name: ("x", [1], True, 0, -1, float("nan"))
    for name in vr.Limits.__slots__
    if name != "memory_by"
}
SPAN = ("x", -1, 0, True, (1,), (1, "x"), (1, -1))

# Class, then verb ("" is the constructor), then argument: values that are wrong for it.
TABLE: dict[type, dict[str, dict[str, tuple[Any, ...]]]] = {
    vr.JailPolicy: {
        "": {
            **dict.fromkeys(("read", "write", "deny", "deny_read", "deny_write"), (3, "/x", [3])),
            **dict.fromkeys(("deny_exec", "sockets", "sensitive_sockets"), (3, "/x", [3])),
            **dict.fromkeys(("reveal", "caches", "services", "inherit_env"), (3, "x", [3])),
            "absent_deny": WORD,
            "egress": (3, "off"),
            "env": VARIABLES,
            "host_ports": (3, "x", ["x"], [0]),
            "inbound": (3, [1], {"x": 1}, {1: "x"}),
            "limits": OBJECT,
            "strict_globs": SWITCH,
            "system": WORD,
        },
        "narrow": {"other": OBJECT},
        "load": {"path": PATH},
        "from_dict": {"folder": PATH},
        "why": {"op": WORD, "target": (3, [1], "relative")},
    },
    vr.Limits: {
        "": {**LIMITS, "memory_by": WORD},
        "narrow": {"other": OBJECT},
    },
    vr.Egress: {
        "": {"mode": WORD},
        "proxy": {"allow": LIST, "deny": LIST},
        "narrow": {"other": OBJECT},
    },
    vr.Secret: {"": {"value": TEXT}},
    vr.Timeouts: {
        "": {
            **dict.fromkeys(("wall", "cpu", "idle", "turn", "callback"), SPAN),
            "grace": ("x", -1, True),
            "pause_in_callbacks": SWITCH,
        },
    },
    vr.Jail: {
        "": {
            "policy": OBJECT,
            "backend": WORD,
            "config_files": LIST,
            "implicit_read": (*LIST, [("/x",)]),
        },
        "run": {"command": COMMAND, "input": (3, "x", [1]), "check": SWITCH, **START},
        "shell": {"script": TEXT},
        "guesses": {"text": (3, "x", [1])},
        "spawn": {
            "command": COMMAND,
            "stdin": ("x", [1], -7),
            "stdout": ("x", [1], -7),
            "stderr": ("x", [1], -7),
            "pty": SWITCH,
            "pass_fds": (*MAPPING, {1: 2}, {5: "x"}, {5: -1}),
            **SIZE,
            **START,
        },
        "terminal": {
            "command": COMMAND,
            "max_bytes": (*NUMBERS, 0),
            "max_lines": (*NUMBERS, 0),
            **SIZE,
            **START,
        },
        "read_bytes": {"path": (*PATH, "relative"), "max_bytes": (*NUMBERS, -1)},
        "write_bytes": {"path": (*PATH, "relative"), "data": (3, "x", [1])},
        "stat": {"path": (*PATH, "relative")},
        "exists": {"path": (*PATH, "relative")},
        "list_dir": {"path": (*PATH, "relative"), "max_bytes": (*NUMBERS, 1)},
        "make_dir": {"path": (*PATH, "relative")},
        "remove": {"path": (*PATH, "relative")},
        "realpath": {"path": (*PATH, "relative")},
        "copy_in": {"source": PATH, "target": (*PATH, "relative"), "max_bytes": (*NUMBERS, -1)},
        "copy_out": {"source": (*PATH, "relative"), "target": PATH, "max_bytes": (*NUMBERS, -1)},
    },
    vr.JailProcess: {
        "wait": {"timeout": SECONDS},
        "communicate": {"input": (3, "x", [1]), "timeout": SECONDS},
        "send_signal": {"number": (*NUMBERS, -1, 1000)},
        "stop": {"grace": SECONDS},
    },
    vr.TerminalSession: {
        "input": {"data": (3, [1], None), "timeout": LIMIT},
        "resize": SIZE,
        "wait": {"timeout": SECONDS},
        "read": {"timeout": SECONDS},
    },
    vr.Runtime: {
        "": {
            "policy": OBJECT,
            "backend": WORD,
            "processes": SWITCH,
            "ctypes": SWITCH,
            "native_modules": WORD,
            **WORKER,
        },
        "run": RUN | SINKS,
        "start": RUN,
        "exec": SOME,
        "eval": SOME,
        "call": {"name": TEXT},
        "get": {"name": TEXT},
        "set": {"name": (*TEXT, "a b", "class", "None")},
        "set_timeouts": {"timeouts": (*LIMIT, 0)},
        "expose": {"name": (*TEXT, "", "class", "os.x"), "function": FUNCTION, **EXPOSE},
        "expose_module": {"name": TEXT, "functions": (*MAPPING, [len], {3: len}), **EXPOSE},
        "stubs": {"module": TEXT},
        "limit_callbacks": dict.fromkeys(("calls", "bytes", "seconds"), ("x", [1], True, -1)),
        "type_text": {"text": TEXT, "timeout": LIMIT},
        "ping": {"timeout": (*LIMIT, None)},
        "reload": {"how": WORD, "paths": (*LIST, ["code"])},
    },
    vr.TrustedRuntime: {"": {"output": (*NUMBERS, 0), **WORKER}},
    vr.RunHandle: {"result": {"timeout": SECONDS}, "next_event": {"timeout": SECONDS}},
    vr.RuntimePool: {
        "": {
            "policy": OBJECT,
            "min_idle": (*NUMBERS, -1, 100),
            "max_size": (*NUMBERS, 0),
            "reuse": WORD,
            "recycle_after": (*NUMBERS, 0),
            "max_age": (*LIMIT, 0),
            "max_memory": (*NUMBERS, 0),
            "when_exhausted": WORD,
            "prepare": FUNCTION,
        },
        "borrow": {"timeout": LIMIT},
        "acquire": {"timeout": LIMIT},
        "wait_ready": {"timeout": LIMIT},
        "release": {"runtime": OBJECT},
        "run": {"code": TEXT},
    },
    vr.JailExecutor: {
        "": {
            "policy": OBJECT,
            "max_workers": ("x", [1], 0, 1.5, True),
            "initializer": (3, [1]),
            "initargs": (3, "x"),
            "max_tasks_per_child": (*NUMBERS, 0),
            "timeout": (*LIMIT, 0),
            "prepare": FUNCTION,
            "on_output": FUNCTION,
            "min_idle": (*NUMBERS, -1),
        },
        "submit": {"fn": (3, None, [1])},
        "schedule": {
            "fn": (3, [1]),
            "args": (3, "x"),
            "kwargs": (*MAPPING, {1: 2}),
            "timeout": (*LIMIT, 0),
        },
        "map": {
            "fn": (3, [1]),
            "timeout": SECONDS,
            "chunksize": ("x", [1], 0, 1.5),
            "buffersize": (0, "x", 1.5),
        },
    },
    vr.Environment: {
        "": {"request": OBJECT},
        "from_requirements": {"requirements": (3, "x", [3], [b"x"], {"a": 1}), **BUILD},
        "from_project": {
            "folder": PATH,
            "extras": LIST,
            "groups": LIST,
            "editable": SWITCH,
        },
        "from_script": {"script": (3, [1], "/x\0")},
        "how_to_add": {"module": TEXT},
    },
    vr.WindowsLimits: {"": {name: ("x", [1], True, 0, -1) for name in vr.WindowsLimits.__slots__}},
    vr.WindowsJail: {
        "": {"parent": PATH, "keep_work": SWITCH},
        "remove_stale": {"parent": PATH},
        "stage": {
            "sources": (*MAPPING, {}, {3: "C:\\x"}, {"x": 3}, {"x": "C:\0"}),
            "max_files": (*NUMBERS, 0),
            "max_bytes": (*NUMBERS, 0),
            "max_depth": (*NUMBERS, 0, 65),
        },
        "spawn": {
            "command": COMMAND,
            "env": START["env"],
            "cwd": PATH,
            "stdin": SWITCH,
            "pty": SWITCH,
            "channel": SWITCH,
            "limits": OBJECT,
            **SIZE,
        },
    },
    vr.WindowsProcess: {
        "wait": {"timeout": SECONDS},
        "communicate": {
            "input": (3, "x", [1]),
            "timeout": SECONDS,
            "max_bytes": (*NUMBERS, -1),
        },
        "resize": SIZE,
    },
    aio.AsyncJail: {"": {"policy": OBJECT, "backend": WORD, "config_files": LIST}},
    aio.AsyncRuntime: {"": {"policy": OBJECT}},
}

FREE = {
    "options": "goes on to another constructor, which is in the table",
    "arguments": "goes on to `Runtime.run`",
    "changes": "goes on to the constructor; a name that is none is tested with the policy",
    "args": "values of the user, of any type that can cross",
    "kwargs": "values of the user, of any type that can cross",
    "iterables": "anything that can be iterated over",
    "value": "of any type that can cross",
    "exc": "given by Python",
    "_": "given by Python",
    "interrupt": "true or false of anything",
    "wait": "true or false of anything, as in CPython",
    "cancel_futures": "true or false of anything, as in CPython",
    "key": "any name of a start",
    "data": "a table of a policy: tests/policy/test_policy.py",
}
"""Arguments for which there is no wrong value here, with the reason."""
ELSEWHERE = {
    "JailProcess.__init__",  # made by a jail
    "TerminalSession.__init__",
    "RunHandle.__init__",
    "RunHandle.start",  # of this package
    "RunHandle.watch",
    "RunHandle.cancel",
    "JailProcess.refused",
    "JailProcess.resize",  # as `TerminalSession.resize`, and needs a terminal: test_jail_process.py
    "JailPolicy.workspace",  # test_policy.py
    "Egress.__init__",  # its lists: with `proxy`
    "Egress.match",  # of this package
    "Runtime.__del__",
    "WindowsProcess.__init__",  # made by a jail
}


def test_no_public_argument_is_forgotten() -> None:
    """A new argument of a public class must not come without a check."""
    missing = []
    for kind, verbs in TABLE.items():
        for name, member in inspect.getmembers(kind, callable):
            if name.startswith("_") and name != "__init__":
                continue
            label = f"{kind.__name__}.{name}"
            if label in ELSEWHERE or (kind.__module__.startswith("visruntime.aio") and verbs):
                continue  # the asynchronous verbs hand on what they get
            verb = "" if name == "__init__" else name
            shared = TABLE[vr.Runtime] if kind is vr.TrustedRuntime and verb else verbs
            known = shared.get(verb, {})
            missing += [
                f"{label}({parameter})"
                for parameter in inspect.signature(member).parameters
                if parameter != "self" and parameter not in known and parameter not in FREE
            ]
    assert missing == []


@pytest.fixture(scope="module")
def live() -> Iterator[dict[type, Any]]:
    """An object of each class that has verbs."""
    with (
        vr.Jail(POLICY) as jail,
        vr.Runtime(POLICY) as runtime,
        vr.RuntimePool(POLICY, min_idle=0) as pool,
        vr.JailExecutor(POLICY, 1) as executor,
        jail.spawn(["sleep", "100"], pty=True) as process,
        jail.terminal(["cat"]) as terminal,
    ):
        yield {
            vr.JailPolicy: POLICY,
            vr.Limits: vr.Limits(),
            vr.Egress: vr.Egress.OFF,
            vr.Environment: vr.Environment.from_requirements([]),
            vr.Jail: jail,
            vr.JailProcess: process,
            vr.TerminalSession: terminal,
            vr.Runtime: runtime,
            vr.RunHandle: runtime.start("1"),
            vr.RuntimePool: pool,
            vr.JailExecutor: executor,
            # What is wrong is said before a jail is needed, and none can be here.
            vr.WindowsJail: vr.WindowsJail.__new__(vr.WindowsJail),
            vr.WindowsProcess: vr.WindowsProcess.__new__(vr.WindowsProcess),
        }


# What a call needs beside the argument that is wrong.
NEEDED: dict[str, dict[str, Any]] = {
    "Egress": {"mode": "off"},
    "WindowsJail": {"parent": "C:\\x"},
    "Jail": {"policy": POLICY},
    "Runtime": {"policy": POLICY},
    "RuntimePool": {"policy": POLICY, "min_idle": 0},
    "JailExecutor": {"policy": POLICY, "max_workers": 1},
    "AsyncJail": {"policy": POLICY},
    "AsyncRuntime": {"policy": POLICY},
    "JailPolicy.from_dict": {"data": {}},
    "JailPolicy.why": {"op": "read", "target": "/x"},
    "Jail.run": {"command": ["true"]},
    "Jail.spawn": {"command": ["true"]},
    "Jail.terminal": {"command": ["true"]},
    "Jail.read_bytes": {"path": "/etc/passwd"},
    "Jail.write_bytes": {"path": "/tmp/x", "data": b""},
    "Jail.list_dir": {"path": "/"},
    "Jail.copy_in": {"source": "/etc/services", "target": "/tmp/y"},
    "Jail.copy_out": {"source": "/etc/services", "target": "/nowhere/z"},
    "JailProcess.send_signal": {"number": 0},
    "TerminalSession.input": {"data": b"x"},
    "TerminalSession.resize": {"rows": 24, "cols": 80},
    "WindowsJail.stage": {"sources": {"x": "C:\\x"}},
    "WindowsJail.spawn": {"command": ["C:\\x.exe"]},
    "WindowsProcess.resize": {"rows": 24, "cols": 80},
    "Runtime.run": {"code": "1"},
    "Runtime.start": {"code": "1"},
    "Runtime.exec": {"code": "1"},
    "Runtime.eval": {"code": "1"},
    "Runtime.expose": {"name": "f", "function": abs},
    "Runtime.expose_module": {"name": "m", "functions": {"f": abs}},
    "Runtime.type_text": {"text": "x"},
    "RuntimePool.run": {"code": "1"},
    "Environment.from_requirements": {"requirements": ["x"], "hashes": "resolve"},
    "Environment.from_project": {"folder": "/nowhere"},
}

CASES = [
    pytest.param(kind, verb, argument, id=f"{kind.__name__}.{verb or 'new'}({argument})")
    for kind, verbs in TABLE.items()
    for verb, arguments in verbs.items()
    for argument in arguments
]


def children() -> set[str]:
    """The numbers of the processes that this one has started and not yet waited for."""
    tasks = Path("/proc/self/task").glob("*/children")
    return {number for task in tasks for number in task.read_text().split()}


def _make(label: str, call: Callable[..., Any], argument: str, wrong: Any) -> None:
    """Make the call with one wrong argument; where it is given by its place, there."""
    needed = {name: value for name, value in NEEDED.get(label, {}).items() if name != argument}
    if label == "Jail.spawn" and argument in SIZE:
        needed["pty"] = True
    if label == "JailExecutor.submit":
        call(wrong, 1).result()
    elif label == "JailExecutor.schedule":
        call(**{"fn": "abs", "args": [1], argument: wrong}).result()
    elif label == "JailExecutor.map" and argument == "fn":
        list(call(wrong, [1]))
    elif label == "JailExecutor.map":
        call("abs", [1], **{argument: wrong})
    elif label == "RuntimePool.borrow":
        with call(wrong):
            pass
    elif label == "Runtime.call":
        call(wrong)
    elif label == "Runtime.set":
        call(wrong, 1)
    else:
        made = call(**needed, **{argument: wrong})
        getattr(made, "close", lambda: None)()


@pytest.mark.parametrize(("kind", "verb", "argument"), CASES)
def test_a_wrong_argument_is_named(
    live: dict[type, Any], kind: type, verb: str, argument: str
) -> None:
    """No wrong argument is taken, fails somewhere inside, or is refused without its name."""
    label = f"{kind.__name__}.{verb}" if verb else kind.__name__
    call: Callable[..., Any] = getattr(live[kind], verb) if verb else kind
    running, threads = children(), threading.active_count()
    for wrong in TABLE[kind][verb][argument]:
        with pytest.raises((TypeError, ValueError)) as caught:
            _make(label, call, argument, wrong)
        said = str(caught.value)
        assert argument in said, (wrong, said)
        assert "has no attribute" not in said, (wrong, said)
        assert len(said) < 400, (wrong, said)
        assert said.isprintable(), (wrong, said)
    if not verb:
        assert children() <= running
        assert threading.active_count() <= threads


def test_a_factory_that_makes_no_runtime_is_named() -> None:
    """What a function for a pool returns must be a runtime, and not fail somewhere later."""
    for make in (lambda: 3, lambda: None, lambda: POLICY):
        with pytest.raises(TypeError, match="policy: the function must return a new Runtime"):
            vr.RuntimePool(make)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="policy: the function must return a new Runtime"):
            vr.JailExecutor(make, 1)  # type: ignore[arg-type]


def test_the_asynchronous_twins_name_it_too() -> None:
    """They hand arguments on, and what comes back is the same word."""

    async def main() -> None:
        async with aio.AsyncJail(POLICY) as jail:
            for command in (3, "true", [1]):
                with pytest.raises(TypeError, match="command"):
                    await jail.run(command)  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="path"):
                await jail.read_bytes(3)  # type: ignore[arg-type]
        async with aio.AsyncRuntime(POLICY) as runtime:
            for name in ("on_output", "on_event"):
                options: dict[str, Any] = {name: 3}
                with pytest.raises(TypeError, match=name):
                    await runtime.run("1", **options)
            with pytest.raises(TypeError, match="functions"):
                await runtime.expose_module("m", [len])  # type: ignore[arg-type]
            assert (await runtime.run("1")).value == 1

    anyio.run(main)


def test_what_is_left_of_a_time_that_is_over_is_no_mistake(live: dict[type, Any]) -> None:
    """Waiting takes numbers below 0, as that of the standard library does; limits do not."""
    with pytest.raises(vr.CommandTimeout):
        live[vr.JailProcess].wait(timeout=-1)
    handle = live[vr.RunHandle]
    assert handle.result().value == handle.result(timeout=-1).value == 1
    assert check_seconds(-1, "timeout", past=True) == -1
    with pytest.raises(ValueError, match="timeout: a positive number"):
        check_seconds(0, "timeout", positive=True)
