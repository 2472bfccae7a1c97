"""The host imports nothing that a guest wrote, though the guest may write where it imports from.

A script has its own folder first on ``sys.path``. When that folder is a write grant, every
module that the host imports after a guest has run may be the guest's.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = '''
import sys
W = sys.path[0]
from visruntime.jail import PIPE, Jail
from visruntime.policy import JailPolicy, Limits
from visruntime.runtime import Runtime, TrustedRuntime
from visruntime.errors import VisRuntimeError

PLANTED = """
log = open({log!r}, "a"); log.write(__name__ + "\\\\n"); log.close()
raise SystemExit(f"{__name__} is the guest's")
"""

def plant():
    """Do what a guest would: be every module of the standard library that is not loaded yet."""
    extras = {"anyio", "cloudpickle", "exceptiongroup", "idna", "numpy", "pyarrow", "sniffio", "trio"}
    names = sorted((sys.stdlib_module_names | extras) - set(sys.modules) - {"antigravity", "this"})
    text = PLANTED.replace("{log!r}", repr(W + "/log"))
    for name in names:
        with open(f"{W}/{name}.py", "w") as file: file.write(text)
    sys.path_importer_cache.clear()
    return names

def tried(act, *expected):
    try: act()
    except expected or VisRuntimeError: pass
    else: assert expected == () or None in expected, act

policy = JailPolicy(write=[W], limits=Limits(cpu_seconds=1))
'''

JAIL = """
with Jail(policy) as jail:
    jail.run(["true"])
    planted = plant()
    jail.run(["sh", "-c", "echo x; exit 3"], input=b"x" * 100000)
    for command in (["no-such"], [W + "/no-such"], ["/usr/bin/env", "x"], [W]):
        tried(lambda: jail.run(command))
    tried(lambda: jail.run(["false"], check=True))
    tried(lambda: jail.run(["sleep", "9"], timeout=0.1))
    jail.run(["python3", "-c", "while True: pass"])
    jail.shell("echo $HOME")
    with jail.spawn(["cat"], pty=True) as process:
        process.resize(30, 90)
        process.suspend(); process.resume()
        process.pty.write(b"x")
        process.stop(0.1)
    with jail.spawn(["cat"], stdin=PIPE, stdout=PIPE, stderr=PIPE) as process:
        process.communicate(b"y")
    with jail.terminal(["cat"]) as session:
        session.preview(); session.run(); session.input("z\\r"); session.text; session.restart()
    jail.processes()
    jail.write_bytes(W + "/file", b"x"); jail.read_bytes(W + "/file"); jail.stat(W + "/file")
    jail.list_dir(W); jail.make_dir(W + "/d"); jail.remove(W + "/d"); jail.realpath(W)
    jail.copy_out(W + "/file", W + "/copy"); jail.copy_in(W + "/copy", "/tmp/copy")
    tried(lambda: jail.read_bytes("/etc/shadow"), VisRuntimeError, OSError)
    tried(lambda: jail.run(["true"], cwd="/nowhere"))
    jail.report.to_dict(); repr(jail); repr(jail.report); jail.policy.digest
    jail.policy.why("write", W); jail.policy.why("connect", "example.org:1")
    jail.policy.to_dict(); JailPolicy.from_dict(jail.policy.to_dict()).narrow(jail.policy)
    with Jail(policy.replace(read=["/usr/share"])) as other: other.run(["true"])
print("planted", len(planted))
"""

RUNTIME = """
VALUES = '''
import datetime, decimal, fractions, pathlib, uuid, zoneinfo
[1, 1.5, 1j, 10**50, "x", b"x", None, True, (1,), {1}, frozenset({1}), {"a": 1}, range(3),
 datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc), datetime.date(2020, 1, 1),
 datetime.time(1), datetime.timedelta(1), decimal.Decimal("1.5"), fractions.Fraction(1, 3),
 uuid.UUID(int=5), pathlib.PurePosixPath("/x"), bytearray(b"x"), slice(1, 2), ...]
'''
with Runtime(policy) as runtime:
    runtime.run("1")
    planted = plant()
    assert runtime.run(VALUES).error is None
    for code in ("1/0", "raise KeyError('x')", "open('/etc/shadow')", "(",
                 "raise ExceptionGroup('g', [ValueError(1)])", "import socket; socket.socket(17)",
                 "print('x' * 10**6)", "raise UnicodeDecodeError('utf-8', b'x', 0, 1, 'r')",
                 "import time; time.strptime('x', 'y')", "raise PermissionError(13, 'no', '/x')"):
        repr(runtime.run(code)); str(runtime.run(code).error)
    for act in (lambda: runtime.run("import os; os._exit(3)"), lambda: runtime.eval("1/0"),
                lambda: runtime.exec("x"), lambda: runtime.call("no"),
                lambda: runtime.run("while True: pass", timeout=0.2), lambda: runtime.get("no")):
        tried(act)
    runtime.expose("f", lambda x: x); runtime.run("f(1)")
    runtime.expose("bad", lambda: 1 / 0); runtime.run("bad()")
    runtime.set("v", [1]); runtime.get("v"); runtime.stacks(); runtime.reset()
    runtime.run("import warnings; warnings.warn('w')")
print("planted", len(planted))
"""

ASYNC = """
with Runtime(policy) as runtime:
    runtime.run("1")
    planted = plant()
    async def f(): return 1
    runtime.expose("f", f)
    assert runtime.run("f()").value == 1
print("planted", len(planted))
"""


OTHERS = """
import visruntime as vr
with Jail(policy) as jail: jail.run(["true"])
planted = plant()
vr.doctor().to_dict()
with vr.JailExecutor(policy, max_workers=1) as executor:
    assert executor.submit(lambda x: x + 1, 1).result() == 2
    assert list(executor.map(len, ["a", "bc"])) == [1, 2]
with vr.RuntimePool(policy, max_size=1, preload=["json"]) as pool:
    with pool.borrow() as runtime: runtime.run("1")
with Runtime(policy) as runtime:
    with runtime.fork() as copy: copy.run("1")
    for event in runtime.start("print(1); 2"): repr(event)
    runtime.reload()
async def main():
    async with vr.aio.AsyncJail(policy) as jail: await jail.run(["true"])
    async with vr.aio.AsyncRuntime(policy) as runtime: await runtime.run("1")
import asyncio
asyncio.run(main())
print("planted", len(planted))
"""

ELSEWHERE = """
import os
os.chdir("/")
sys.path[0] = ""  # as of python -c and of prompts
with Runtime(policy) as runtime:
    runtime.run("1")
    planted = plant()
    os.chdir(W)
    assert runtime.run("import decimal; decimal.Decimal(1)").error is None
    runtime.run("import uuid, fractions; [uuid.UUID(int=1), fractions.Fraction(1, 3)]")
    repr(runtime.run("1/0"))
print("planted", len(planted))
"""

EXAMINED = """
import visruntime as vr
with Jail(policy) as jail: jail.run(["true"])
planted = plant()
vr.check_confinement(python=sys.executable)
print("planted", len(planted))
"""


@pytest.mark.parametrize(
    "verbs",
    [JAIL, RUNTIME, ASYNC, OTHERS, ELSEWHERE, EXAMINED],
    ids=["jail", "runtime", "async", "others", "elsewhere", "examined"],
)
def test_no_module_of_a_guest_runs_in_the_host(workspace: Path, verbs: str) -> None:
    """Whatever the host asks of a jail or a worker, it must import nothing from a write grant."""
    script = workspace / "host.py"
    script.write_text(SCRIPT + verbs)
    result = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, check=False, timeout=100
    )
    imported = (workspace / "log").read_text().split() if (workspace / "log").exists() else []
    assert imported == [], result.stderr
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("planted ")
    assert int(result.stdout.split()[1]) > 50


def test_the_control_imports_what_was_planted(workspace: Path) -> None:
    """A host that imports a module by itself afterwards must get the planted one."""
    script = workspace / "host.py"
    script.write_text(SCRIPT + "names = plant()\nimport colorsys\n")
    result = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert "colorsys is the guest's" in result.stderr
    assert json.dumps((workspace / "log").read_text()) == '"colorsys\\n"'
