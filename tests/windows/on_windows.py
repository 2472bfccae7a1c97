"""What .github/workflows/windows.yml runs, each step by one word; nothing of it runs elsewhere.

    python tests/windows/on_windows.py build | table | probe NAME... | in-job WORD...
    python tests/windows/on_windows.py session0 | python | package | runtime | extracted | faults
    python tests/windows/on_windows.py parts FOLDER | archive FOLDER

Every probe is a run of its own of ``windows_probe.exe``, with a watchdog, and has to say that it
passed. What it says otherwise is shown, and fails the step.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
# Short, and without the shortened names that the user's own folder has on some machines.
TEMPORARY = Path(os.environ.get("RUNNER_TEMP") or tempfile.gettempdir()).resolve()
sys.path.insert(0, str(ROOT / "scripts"))

from archive.windows_parts import gather  # noqa: E402, after the folder that it lies in
from gates import pe  # noqa: E402

BUILD = ROOT / "build" / "windows"
HEADER = ROOT / "native" / "visjail" / "windows_jail.h"
SHIPPED = ("visjail.dll", "visjail-desktop.exe")
FOR_TESTS = ("windows_guest.exe", "windows_table.exe", "windows_probe.exe")
TABLE = (
    *("features", "random", "this-process", "create", "pin", "identity", "list"),
    *("remove", "remove-read-only", "remove-tree", "reclaim"),
    *("attributes", "tokens", "profiles", "threads", "suspended", "exit-codes", "kill-tree"),
    *("close-job", "break-away", "nested-job", "handle-list", "exact-start", "pipes"),
    *("back-pressure", "exact-writes", "all-output", "console", "desktop"),
)
IN_SESSION_0 = (
    *("token", "exact", "descendants", "ends", "handles", "own-files", "staged-files"),
    *("other-files", "pour", "round-trip", "desktop", "network"),
)
SECONDS = 180
"""How long one probe may take: 16 guests of 20 seconds at most are never all that slow."""


def temporary(prefix: str) -> tempfile.TemporaryDirectory[str]:
    """Return a folder that goes as far as it can; what a guest left may still be open."""
    return tempfile.TemporaryDirectory(prefix=prefix, dir=TEMPORARY, ignore_cleanup_errors=True)


def programs() -> Path:
    """Return the folder of the programs that were built."""
    named = os.environ.get("VIS_WINDOWS_PROGRAMS")
    return Path(named) if named else BUILD / "bin"


def build() -> int:
    """Build with the compiler of Windows, and judge what came of it."""
    make = ["cmake", "-S", str(ROOT), "-B", str(BUILD), "-A", "x64", "-DVIS_LIBRARY_ONLY=ON"]
    subprocess.run([*make, "-DVIS_VERSION=0"], check=True)
    subprocess.run(["cmake", "--build", str(BUILD), "--config", "Release"], check=True)
    programs().mkdir(parents=True, exist_ok=True)
    for name in (*SHIPPED, *FOR_TESTS):
        (found,) = BUILD.glob(f"native/**/Release/{name}")
        shutil.copyfile(found, programs() / name)
    exports = pe.declared(HEADER.read_text())
    broken = pe.problems(programs(), exports=exports, ignored=FOR_TESTS)
    print("\n".join(broken) if broken else "PE gate: ok")
    return 1 if broken else 0


def run(program: str, names: list[str]) -> int:
    """Run each of *names* by itself; 1 if one does not say that it passed."""
    failed = []
    for name in names:
        with temporary("vj") as folder:
            try:
                result = subprocess.run(
                    [str(programs() / program), folder, name],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    check=False,
                    timeout=SECONDS,
                )
                said, code = result.stdout.decode("utf-8", "backslashreplace"), result.returncode
            except subprocess.TimeoutExpired as late:
                said, code = f"no end after {late.timeout:.0f} s\n", 1
        print(said, end="", flush=True)
        if code or f"ok {name}" not in said.splitlines():
            failed.append(name)
    print(f"failed: {', '.join(failed)}" if failed else "all of them passed")
    return 1 if failed else 0


def in_job(words: list[str]) -> int:
    """Run a step of this file in a job that its processes cannot leave."""
    import ctypes

    kernel = ctypes.WinDLL("kernel32", use_last_error=True)  # type: ignore[attr-defined,unused-ignore]
    kernel.CreateJobObjectW.restype = ctypes.c_void_p
    kernel.GetCurrentProcess.restype = ctypes.c_void_p
    job = ctypes.c_void_p(kernel.CreateJobObjectW(None, None))
    assert kernel.AssignProcessToJobObject(job, ctypes.c_void_p(kernel.GetCurrentProcess()))
    return main(words)


def session0() -> int:
    """Run probes as a scheduled task of the system, which has no desktop that anybody sees."""
    work = Path(tempfile.mkdtemp(prefix="vj0", dir=TEMPORARY))
    output, ended = work / "output.txt", work / "ended.txt"
    script = work / "run.cmd"
    lines = ["@echo off", f'set "VIS_WINDOWS_PROGRAMS={programs()}"']
    command = f'"{sys.executable}" "{__file__}" probe {" ".join(IN_SESSION_0)}'
    lines += [f'{command} > "{output}" 2>&1', f'echo %ERRORLEVEL% > "{ended}"']
    script.write_text("\r\n".join(lines) + "\r\n")
    task = ["schtasks", "/TN", "visjail-session0"]
    create = ["/Create", "/SC", "ONCE", "/ST", "23:59", "/RU", "SYSTEM", "/TR", str(script), "/F"]
    subprocess.run([task[0], *create, *task[1:]], check=True)
    try:
        subprocess.run([task[0], "/Run", *task[1:]], check=True)
        end = time.monotonic() + len(IN_SESSION_0) * SECONDS
        while not ended.exists() and time.monotonic() < end:
            time.sleep(1)
        time.sleep(1)  # the line is written after the file is made
        print(output.read_text("utf-8", "backslashreplace") if output.exists() else "no output")
        return 0 if ended.exists() and ended.read_text().strip() == "0" else 1
    finally:
        subprocess.run([task[0], "/Delete", "/F", *task[1:]], check=True)


def python() -> int:
    """Stage this very CPython, and run it: whole, and on a console with the guard and without."""
    scripts = ROOT / "tests" / "windows" / "scripts"
    with temporary("vjpy") as work:
        staged = Path(work, "python")
        # What no program needs of an installation: its own tests, and what others installed.
        left_out = shutil.ignore_patterns("test", "tests", "__pycache__", "site-packages", "Tools")
        shutil.copytree(sys.base_prefix, staged, ignore=left_out)
        (guard,) = BUILD.glob("native/**/Release/_visconsole*.pyd")
        shutil.copyfile(guard, staged / "_visconsole.pyd")
        os.environ["VIS_PROBE_PYTHON"] = str(staged)
        shutil.copyfile(scripts / "whole.py", staged / "script.py")
        failed = run("windows_probe.exe", ["python"])
        shutil.copyfile(scripts / "consoles.py", staged / "script.py")
        folder = Path(work, "jails")
        folder.mkdir()
        command = [str(programs() / "windows_probe.exe"), str(folder), "python-console"]
        subprocess.run(command, check=True, timeout=SECONDS)
        (result,) = folder.glob("vj-*/work/result.txt")
        lines = result.read_text().splitlines()
    print("\n".join(lines))
    ways = ("call", "open", "read", "raw", "kept", "subclass")
    wanted = [f"control {way} opened 0" for way in ways]
    wanted += [f"guarded {way} refused 1" for way in ways]
    return failed or int(lines != [*wanted, "ended 0"])


def installed(work: str) -> str:
    """Build and install the package as users do, in an environment below *work*; return its Python."""
    environment = Path(work, "environment")
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    python = str(environment / "Scripts" / "python.exe")
    subprocess.run([python, "-m", "pip", "install", "--quiet", f"{ROOT}[aio,executor]"], check=True)
    return python


def runtime() -> int:
    """Run Python in jails by the package as users have it: verbs, ends, children, pools, tasks."""
    failed = 0
    with temporary("vjrt") as work:
        python = installed(work)
        script = ROOT / "tests" / "windows" / "scripts" / "runtime_host.py"
        for act in ("verbs", "ends", "children", "pools", "tasks"):
            jails = Path(work, act)
            jails.mkdir()
            command = [python, "-I", str(script), act, str(jails)]
            failed |= subprocess.run(command, check=False, timeout=SECONDS).returncode
    return failed


def package() -> int:
    """Build and install the package as users do, and run a guest by its Python interface."""
    with temporary("vjpk") as work:
        python = installed(work)
        script = ROOT / "tests" / "windows" / "scripts" / "package.py"
        jails = Path(work, "jails")
        jails.mkdir()
        command = [python, "-I", str(script), str(jails), str(programs() / "windows_guest.exe")]
        return subprocess.run(command, check=False, timeout=SECONDS).returncode


def extracted() -> int:
    """Pack the files, take them out elsewhere, and compare: digests, and probes from there."""
    with temporary("vj70") as work:
        packed = shutil.make_archive(str(Path(work, "packed")), "gztar", programs())
        there = Path(work, "there")
        shutil.unpack_archive(packed, there, filter="data")
        for name in (*SHIPPED, *FOR_TESTS):
            digests = {
                hashlib.sha256((folder / name).read_bytes()).hexdigest()
                for folder in (programs(), there)
            }
            assert len(digests) == 1, name
        os.environ["VIS_WINDOWS_PROGRAMS"] = str(there)
        return run("windows_probe.exe", ["token", "exact", "own-files", "desktop"])


def parts(folder: str) -> int:
    """Lay out what an archive consists of, and the wheel; a system that keeps modes packs it."""
    out = Path(folder)
    wheel = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(out)]
    subprocess.run([*wheel, str(ROOT)], check=True)
    with temporary("vjpt") as work:
        (built,) = out.glob("visruntime-*.whl")
        with zipfile.ZipFile(built) as file:
            file.extractall(work)
        inner = Path(work, "visruntime")
        (guard,) = inner.glob("_visconsole*.pyd")
        (stub,) = BUILD.glob("native/**/Release/visjail.lib")
        native = {f"bin/{name}": programs() / name for name in SHIPPED}
        native |= {f"bin/{name}": inner / name for name in ("vispython.exe", "_viscore.pyd")}
        native |= {"bin/_visconsole.pyd": guard, "lib/visjail.lib": stub}
        uv = Path(work, "uv")
        install = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--require-hashes",
            "--no-deps",
        ]
        subprocess.run(
            [*install, "--target", str(uv), "-r", str(ROOT / "scripts" / "uv.txt")], check=True
        )
        base, version = Path(sys.base_prefix), platform.python_version()
        gather(out / "parts", native, base, base / "LICENSE.txt", version, uv)
    return 0


def archive(folder: str) -> int:
    """Take an archive out elsewhere: its digests, its worker, and probes of its library from there."""
    scripts = ROOT / "tests" / "windows" / "scripts"
    (packed,) = Path(folder).glob("*.tar.gz")
    with temporary("vjar") as work, tarfile.open(packed) as file:
        file.extractall(work, filter="data")
        (tree,) = Path(work).iterdir()
        for each in json.loads((tree / "manifest.json").read_bytes())["files"]:
            data = (tree / each["path"]).read_bytes()
            assert hashlib.sha256(data).hexdigest() == each["sha256"], each["path"]
        here = Path(work, "here")
        here.mkdir()
        for source in (scripts / "worker_host.py", ROOT / "tests" / "protocol_values.py"):
            shutil.copyfile(source, here / source.name)
        shutil.copyfile(tree / "lib/worker/start.py", here / "load")
        shutil.copyfile(tree / "lib/worker/bootstrap", here / "bootstrap")
        code = "import sys; sys.path.insert(0, '.'); import worker_host; worker_host.main()"
        places = [str(each) for each in (tree / "bin", tree / "python", here)]
        command = [str(tree / "python" / "python.exe"), "-c", code, "conversation", *places]
        done = subprocess.run(command, check=False, timeout=SECONDS, cwd=here)
        lines = (here / "result.txt").read_text("utf-8").splitlines()
        print("\n".join(lines))
        wanted = {"hook True L None", "value 2", "call True ask [6] {'by': 7}", "ended 0"}
        for name in FOR_TESTS:
            shutil.copyfile(programs() / name, tree / "bin" / name)
        os.environ["VIS_WINDOWS_PROGRAMS"] = str(tree / "bin")
        failed = run("windows_probe.exe", ["token", "exact", "own-files", "desktop"])
        return failed or done.returncode or int(not wanted <= set(lines))


def faults() -> int:
    """Let calls of Win32 fail below the table, one in each life of a context."""
    make = ["cmake", "--build", str(BUILD), "--config", "Release", "--target", "windows_faults"]
    subprocess.run(make, check=True)
    (found,) = BUILD.glob("native/**/Release/windows_faults.exe")
    program = shutil.copyfile(found, programs() / found.name)
    with temporary("vj66") as folder:
        command = [str(program), folder, "1", "100000", "5"]
        return subprocess.run(command, check=False, timeout=10 * SECONDS).returncode


def main(words: list[str]) -> int:
    """Do what the words say."""
    match words:
        case ["build"]:
            return build()
        case ["table"]:
            return run("windows_table.exe", list(TABLE))
        case ["probe", *names] if names:
            return run("windows_probe.exe", names)
        case ["in-job", *rest] if rest:
            return in_job(rest)
        case ["session0"]:
            return session0()
        case ["python"]:
            return python()
        case ["package"]:
            return package()
        case ["runtime"]:
            return runtime()
        case ["parts", folder]:
            return parts(folder)
        case ["archive", folder]:
            return archive(folder)
        case ["faults"]:
            return faults()
        case ["extracted"]:
            return extracted()
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
