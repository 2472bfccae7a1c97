"""Workers driven by a host that was written from the documents alone (tests/protocol_client.py)."""

from __future__ import annotations

import ast
import struct
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import protocol_client
import protocol_values
import pytest
from protocol_client import Client, recipe
from protocol_values import Composite
from runtime_helpers import WORKER_PYTHONS

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.one_uid


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    """Return how a worker is started."""
    return recipe()


@pytest.fixture(scope="module")
def worker(made: dict[str, Any]) -> Iterator[Client]:
    """Return a worker that the tests share; each leaves it idle."""
    client = Client(made)
    yield client
    client.close()


def test_the_client_knows_nothing_of_the_package() -> None:
    """It must import nothing but the standard library: then any language could do the same."""
    names = set()
    for module in (protocol_client, protocol_values):
        for node in ast.walk(ast.parse(Path(str(module.__file__)).read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names.add(str(node.module).partition(".")[0])
    assert "socket" in names
    assert names - {"protocol_values"} <= sys.stdlib_module_names


def test_greeting(worker: Client, made: dict[str, Any]) -> None:
    """The worker says what it is, and its start-up files ended well."""
    assert worker.hello["hook_before_init"] is True
    assert worker.hello["python"] == made["python"] == sys.version
    assert worker.hello["refuses_processes"] is None
    assert worker.ready == {"id": 0, "error": None}


def test_it_is_jailed(worker: Client) -> None:
    """What the command line jails is jailed for this host as well."""
    error = worker.execute("open('/etc/shadow')")["error"]
    assert error["type"] in ("PermissionError", "FileNotFoundError")
    assert (error["errno"], error["path"]) in ((13, "/etc/shadow"), (2, "/etc/shadow"))


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, 127, -129, 2**31, -(2**63), 2**63, -(2**200), 0.1, "é\ud800", b"\0\xff"),
        *([1, [2]], (3,), {"a": {"b": None}}, {1, "x"}, frozenset({2})),
    ],
)
def test_values_both_ways(worker: Client, value: object) -> None:
    """A value that this host encodes comes back the same."""
    reply = worker.request("eval", code="given", inputs={"given": value}, filename=None)
    assert reply["error"] is None
    assert (reply["value"], type(reply["value"])) == (value, type(value))


def test_composite_values(worker: Client) -> None:
    """Items with fields are as the table says; what does not cross is a handle, and comes back."""
    reply = worker.execute(
        "import datetime, decimal, pathlib, uuid\n"
        "class Thing: pass\n"
        "thing = Thing()\n"
        "[datetime.date(2024, 2, 29), decimal.Decimal('1.50'), pathlib.Path('/a/b'), range(3),"
        " uuid.UUID(int=1), 2j, thing]"
    )
    date, number, path, span, identity, imaginary, thing = reply["value"]
    assert date == Composite("date", (2024, 2, 29))
    assert number == Composite("decimal", ("1.50",))
    assert path == Composite("path", ("/a/b",))
    assert span == Composite("range", (0, 3, 1))
    assert identity == Composite("uuid", (bytes(15) + b"\1",))
    assert imaginary == 2j
    assert (thing.kind, thing.fields[1]) == ("handle", "Thing")
    same = worker.request("eval", code="it is thing", inputs={"it": thing}, filename=None)
    assert same["value"] is True


def test_requests(worker: Client) -> None:
    """Each operation of the table does what it says."""
    assert worker.execute("x = 20\ndef add(a, *, b): return a + b\nx + 1")["value"] == 21
    assert worker.request("get", name="x")["value"] == 20
    assert worker.request("set", inputs={"x": 5})["value"] is None
    assert worker.request("call", name="add", args=[1], kwargs={"b": 2})["value"] == 3
    assert worker.request("exec", code="x += 1", inputs={}, filename=None)["value"] is None
    assert worker.request("get", name="x")["value"] == 6
    assert worker.request("clear")["error"] is None
    assert worker.request("get", name="x")["error"]["type"] == "NameError"
    assert worker.execute("import sys; sys.exit(7)")["exit_code"] == 7


def test_around_and_output(worker: Client) -> None:
    """What holds for one run alone holds for it alone; output is in the pipe."""
    reply = worker.request(
        "run",
        code="import sys, os\nprint(sys.argv, os.environ['A'], sys.stdin.read())",
        inputs={},
        filename="prog.py",
        around={"argv": ["prog", "x"], "env": {"A": "b"}, "stdin": b"typed", "fresh": True},
    )
    assert reply["error"] is None
    assert worker.printed(b"typed\n") == b"['prog', 'x'] b typed\n"
    assert worker.execute("import os; 'A' in os.environ")["value"] is False


def test_errors(worker: Client) -> None:
    """An error has a type, a message, notes, frames with lines, and what caused it."""
    reply = worker.request(
        "run",
        code="def fail():\n    {}['key']\ntry:\n    fail()\nexcept KeyError as e:\n"
        "    e.add_note('noted')\n    raise ValueError('wrong') from e",
        inputs={},
        filename="their.py",
    )
    error = reply["error"]
    assert (error["type"], error["message"]) == ("ValueError", "wrong")
    assert error["frames"][0][:3] == ("their.py", 7, "<module>")
    assert (error["cause"]["type"], error["cause"]["notes"]) == ("KeyError", ["noted"])
    assert error["cause"]["frames"][-1][:3] == ("their.py", 2, "fail")
    assert error["cause"]["frames"][-1][3].strip() == "{}['key']"
    assert (error["interrupted"], error["cancelled"]) == (False, False)


def test_calls_displays_and_questions(worker: Client) -> None:
    """Functions of this host are called, their errors cross, displays come, input is answered."""
    worker.functions = {"double": lambda n: n * 2, "tools.fail": lambda: 1 // 0}
    worker.ask = lambda prompt, password: None if password else prompt.upper()
    assert worker.request("expose", names=["double", "tools.fail"])["error"] is None
    assert worker.execute("double(21)")["value"] == 42
    reply = worker.execute("import tools\ntools.fail()")
    assert reply["error"]["type"].rpartition(".")[2] == "ZeroDivisionError"
    assert worker.execute("display('shown'); 1")["value"] == 1
    (shown,) = worker.displays
    assert shown["data"]["text/plain"] == "'shown'"
    assert (shown["display_id"], shown["update"]) == (None, False)
    reply = worker.request(
        "run", code="input('name? ')", inputs={}, filename=None, around={"stdin": True}
    )
    assert reply["value"] == "NAME? "


def test_large_values(worker: Client) -> None:
    """An array comes in memory of this host, sealed by the worker."""
    pytest.importorskip("numpy")
    reply = worker.execute("import numpy\nnumpy.arange(10_000, dtype='<i8')")
    dtype, shape, data = reply["value"].fields
    assert (dtype, shape) == ("<i8", (10_000,))
    assert data == Composite("buffer", (0, 80_000))
    assert worker.buffers[0] == struct.pack("<10000q", *range(10_000))


def test_control(worker: Client) -> None:
    """Heartbeats and stacks are answered while code runs, and an interrupt ends only that run."""
    worker.begin("run", code="while True: pass", inputs={}, filename="busy.py")
    worker.order("H", 77)
    assert worker.heard() == struct.pack("<cQ", b"H", 77)
    text = b""
    while b'"busy.py", line 1' not in text:  # until it is in its loop
        worker.order("D", 0)
        text = worker.heard()
        while not text.endswith(b"\0"):
            text += worker.heard()
    began = time.monotonic()
    worker.order("I", worker.run)
    reply = worker.reply()
    assert time.monotonic() - began < 5
    assert reply["error"]["interrupted"] is True
    worker.order("I", worker.run)  # it is over already
    assert worker.execute("1 + 1")["value"] == 2


def test_an_interrupt_during_a_call(worker: Client) -> None:
    """The reply to a call that was broken off may still be sent, and the session goes on."""
    entered = threading.Event()

    def slow() -> str:
        entered.set()
        worker.order("I", worker.run)
        time.sleep(0.3)
        return "late"

    worker.functions["slow"] = slow
    assert worker.request("expose", names=["slow"])["error"] is None
    assert worker.execute("slow()")["error"]["interrupted"] is True
    assert entered.is_set()
    assert worker.execute("'on'")["value"] == "on"


def test_another_interpreter() -> None:
    """The recipe of another interpreter starts that one."""
    other = next((path for path in reversed(WORKER_PYTHONS) if path is not None), sys.executable)
    client = Client(recipe("--python", other))
    same = client.execute("import sys\n[sys.executable, sys.version]")["value"]
    assert same == [other, client.hello["python"]]
    assert client.goodbye() == 0
    client.close()


def test_shutdown(made: dict[str, Any]) -> None:
    """BYE ends a worker in order, with its exit functions; a closed control socket at once."""
    client = Client(made, "--timeout", "60", explain=[(0, b"/usr", b"system")])
    reply = client.execute("def look(): open('/srv/x')\nlook()")
    denial = ("open", "read", "", "/srv/x", 2, "<run 1>", 1)
    assert (client.denials, reply["denials"]) == ([denial], ([], 0))
    assert "add --read /srv/x" in reply["error"]["message"]
    client.execute("import atexit\natexit.register(print, 'bye')")
    assert client.goodbye() == 0
    assert client.printed(b"\n") == b"bye\n"
    client.close()
    client = Client(made, "--timeout", "60")
    client.begin("run", code="import time; time.sleep(1000)", inputs={}, filename=None)
    client.control.close()
    assert client.wait() == 122
    with pytest.raises(EOFError):
        client.reply()
    client.close()
