"""Sessions as modules: what the standard library expects of one, and what one run has for itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from runtime_helpers import WORKER_PYTHONS, runtime

from visruntime.runtime import TrustedRuntime

if TYPE_CHECKING:
    from runtime_helpers import AnyRuntime

pytestmark = pytest.mark.one_uid

__all__ = ["runtime"]  # the fixture is found by its name in this module

DEFINE = """
import dataclasses, enum, typing

@dataclasses.dataclass
class Point:
    x: int
    other: 'Point | None' = None

class Colour(enum.Enum):
    RED = 1

class Plain:
    # a comment
    kind: 'Colour'

    def method(self):
        return 1

def function(point: 'Point') -> 'Plain':
    return 2
"""

USE = """
import copy, inspect, pickle, sys
point = Point(1, Point(2))
{
    'main': sys.modules['__main__'].__dict__ is globals() and __name__,
    'pickle': pickle.loads(pickle.dumps([point, Colour.RED, len])) == [point, Colour.RED, len],
    'pickled function': pickle.loads(pickle.dumps(function)) is function,
    'copy': copy.deepcopy(point) == point,
    'hints': typing.get_type_hints(Point)['other'] == (Point | None),
    'function hints': typing.get_type_hints(function) == {'point': Point, 'return': Plain},
    'class': inspect.getsource(Plain),
    'dataclass': inspect.getsource(Point).splitlines()[0:2],
    'function': inspect.getsource(function),
    'method': inspect.getsource(Plain.method),
    'module': inspect.getmodule(Plain) is sys.modules['__main__'],
}
"""


def check_module(running: AnyRuntime) -> None:
    """Check what the standard library finds out about things of the session."""
    assert running.run(DEFINE).error is None
    running.run("later = 'a run in between'")
    result = running.run(USE)
    assert result.error is None, result.error.traceback
    found = result.value
    assert found["main"] == "__main__"
    for name in ("pickle", "pickled function", "copy", "hints", "function hints", "module"):
        assert found[name] is True, name
    assert found["class"].startswith("class Plain:\n    # a comment\n")
    assert found["class"].endswith("return 1\n")
    assert found["dataclass"] == ["@dataclasses.dataclass", "class Point:"]
    assert found["function"].startswith("def function(")
    assert found["method"] == "    def method(self):\n        return 1\n"


def test_the_session_is_a_module_like_any_other(runtime: AnyRuntime) -> None:
    """pickle, copy, typing and inspect work with what earlier runs defined."""
    check_module(runtime)


@pytest.mark.parametrize("python", [path for path in WORKER_PYTHONS if path is not None])
def test_the_session_is_a_module_in_every_python(python: str) -> None:
    """The same in workers of other versions, whose inspect finds sources in other ways."""
    with TrustedRuntime(python=python) as other:
        check_module(other)
        result = other.run("input()", stdin="x")
        assert (result.value, result.error) == ("x", None)
        assert other.run("display(1)").displays[0].text == "1"
        code = "import asyncio\nt = asyncio.create_task(asyncio.sleep(99))\nawait asyncio.sleep(0)"
        assert len(other.run(code, tasks="cancel").tasks) == 1


def test_the_newest_definition_of_a_class_is_shown(runtime: AnyRuntime) -> None:
    """A class that was defined again has the source of its last definition."""
    runtime.run("class A:\n    first = 1\n")
    runtime.run("class A:\n    second = 2\n")
    runtime.run("class AB:\n    third = 3\n")
    assert runtime.run("import inspect; inspect.getsource(A)").value == "class A:\n    second = 2\n"


def test_a_fresh_run_has_names_of_its_own(runtime: AnyRuntime) -> None:
    """Nothing of the session is seen in it, and nothing of it is left in the session."""
    runtime.expose("host", lambda: "host")
    runtime.exec("kept = 1\nclass C: pass")
    fresh = runtime.run(
        "import pickle\n"
        "class C: pass\n"
        "pickle.loads(pickle.dumps(C()))\n"
        "made = 2\n"
        "('kept' in globals(), host(), given, __name__, display is not None)",
        inputs={"given": 3},
        isolation="fresh",
    )
    assert fresh.error is None, fresh.error.traceback
    assert fresh.value == (False, "host", 3, "__main__", True)
    code = "(kept, 'made' in globals(), 'given' in globals(), type(C()).__name__)"
    assert runtime.run(code).value == (1, False, False, "C")
    assert runtime.run("import sys; sys.modules['__main__'].kept").value == 1
    failed = runtime.run("made = 1/0", isolation="fresh")
    assert failed.error is not None
    assert runtime.get("kept") == 1


def test_a_run_has_its_own_arguments_directory_and_variables(runtime: AnyRuntime) -> None:
    """They hold for one run, for its children too, and are taken back whatever happened."""
    look = "import os, subprocess, sys\n(sys.argv, os.getcwd(), os.environ.get('VIS_TEST'))"
    before = runtime.run(look).value
    code = (
        "import os, subprocess, sys\n"
        "child = subprocess.check_output(['sh', '-c', 'echo $VIS_TEST; pwd'], text=True)\n"
        "(sys.argv, os.getcwd(), child)"
    )
    result = runtime.run(code, argv=["prog", "-x"], cwd="/", env={"VIS_TEST": "a b"})
    assert result.value == (["prog", "-x"], "/", "a b\n/\n")
    assert runtime.run(look).value == before
    failed = runtime.run(
        "os.chdir('/usr'); os.environ['VIS_TEST'] = 'x'; 1/0", env={"VIS_TEST": "y"}
    )
    assert failed.error is not None
    assert runtime.run("os.environ.get('VIS_TEST')").value is None
    missing = runtime.run("1", cwd="/nowhere/at/all", argv=["x"])
    assert missing.error is not None
    assert missing.error.type_name == "FileNotFoundError"
    assert runtime.run("sys.argv").value == before[0]


def test_an_interrupted_run_gives_everything_back(runtime: AnyRuntime) -> None:
    """An interrupt in the middle must not leave the next run in the wrong surroundings."""
    look = (
        "import os, sys\n(sys.argv, os.getcwd(), os.environ.get('VIS_TEST'), os.fstat(0).st_rdev)"
    )
    before = runtime.run(look).value
    run = runtime.start(
        "print('x', flush=True)\nwhile True: pass",
        argv=["a"],
        cwd="/",
        env={"VIS_TEST": "1"},
        stdin="text",
        isolation="fresh",
    )
    assert run.next_event(timeout=10) is not None
    run.cancel()
    assert run.result(timeout=10).session_lost is False
    assert runtime.run(look).value == before


def test_an_await_anywhere_puts_the_whole_run_into_the_loop(runtime: AnyRuntime) -> None:
    """What stands before the await must find the running loop."""
    result = runtime.run(
        "import asyncio\nasync def work(): return 5\ntask = asyncio.create_task(work())\nawait task"
    )
    assert (result.value, result.error) == (5, None)
    code = "loop = asyncio.get_running_loop()\nawait asyncio.sleep(0)\nloop.is_running()"
    assert runtime.run(code).value is True
    same = runtime.run("await asyncio.sleep(0)\nasyncio.get_running_loop() is loop")
    assert same.value is True


def test_tracebacks_of_awaited_code_show_no_event_loop(runtime: AnyRuntime) -> None:
    """The frames are those of the guest's code."""
    error = runtime.run("async def f():\n    raise ValueError(1)\nawait f()").error
    assert error is not None
    assert [(f.function, f.line) for f in error.frames] == [("<module>", 3), ("f", 2)]


BACKGROUND = """
import asyncio
ended = []
async def tick():
    try:
        await asyncio.sleep(60)
    finally:
        ended.append('ended')
async def fail():
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        raise KeyError('quiet')
tasks = [asyncio.create_task(tick(), name='ticker\\x1b'), asyncio.create_task(fail())]
await asyncio.sleep(0)
"""


def test_background_tasks_are_reported_and_kept(runtime: AnyRuntime) -> None:
    """By default a task outlives its run, and the result names it."""
    result = runtime.run(BACKGROUND)
    assert len(result.tasks) == 2
    assert "ticker\ufffd (tick)" in result.tasks
    assert runtime.run("await asyncio.sleep(0)\nended").value == []


def test_background_tasks_are_cancelled_where_asked(runtime: AnyRuntime) -> None:
    """With ``tasks="cancel"`` they have ended when the run has, without any noise."""
    result = runtime.run(BACKGROUND, tasks="cancel")
    assert (result.error, len(result.tasks)) == (None, 2)
    after = runtime.run("import gc\ntasks = None; gc.collect()\nended")
    assert after.value == ["ended"]
    assert (after.tasks, after.stderr, after.late_stderr) == ((), b"", b"")
    failed = runtime.run(BACKGROUND + "1/0", tasks="cancel")
    assert failed.error is not None
    assert failed.error.type_name == "ZeroDivisionError"
    assert runtime.run("ended").value == ["ended"]


def test_many_background_tasks_are_named_within_bounds(runtime: AnyRuntime) -> None:
    """Names of tasks are a guest's text: cut, and not more than a hundred."""
    result = runtime.run(
        "import asyncio\n"
        "tasks = [asyncio.create_task(asyncio.sleep(60), name='n' * 1000) for _ in range(500)]\n"
        "await asyncio.sleep(0)"
    )
    assert len(result.tasks) == 100
    assert max(map(len, result.tasks)) <= 200


def test_script_metadata_is_only_a_comment(runtime: AnyRuntime) -> None:
    """A script with inline metadata (PEP 723) runs; what it names is not installed unasked."""
    result = runtime.run(
        "# /// script\n# requires-python = '>=3.11'\n# dependencies = ['nowhere']\n# ///\n1 + 1"
    )
    assert (result.value, result.error) == (2, None)


def test_members_of_a_group_are_all_described(runtime: AnyRuntime) -> None:
    """A member that is the cause of its group must not be missing from it."""
    error = runtime.run(
        "try:\n    1/0\nexcept ZeroDivisionError as e:\n"
        "    raise ExceptionGroup('g', [e, ValueError(2)]) from e"
    ).error
    assert error is not None
    assert [member.type_name for member in error.exceptions] == ["ZeroDivisionError", "ValueError"]
    assert error.cause is not None
