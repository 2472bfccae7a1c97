"""Find out how a Python interpreter can be started as a worker, and what it has to read.

Three boot modes (see native/vispython/loader.c): ``L`` loads the libpython that the program
names, ``P`` preloads the core into a program that contains its interpreter; anything else is
refused with the reason. Files are tested; what a build configuration says is not believed.
"""

from __future__ import annotations

import os
import sys

from visruntime import _native
from visruntime._arguments import check_path
from visruntime._jail.state_folder import BUNDLES, state_folder
from visruntime._jail.version_managers import version_managers
from visruntime._policy.links import Resolver, untrusted_link
from visruntime._worker.probe import Grant, Probe, ask
from visruntime._worker.search import nearest
from visruntime.elf import Program
from visruntime.errors import CommandNotExecutable, PolicyError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "Grant",
    "Interpreter",
    "Probe",
    "find_interpreter",
    "interpreter_in",
    "is_out_of_reach",
    "refuse_unknown",
    "worker_argv",
]

CORE = os.path.realpath(_native.CORE_FILE)
"""The shared object that the loader puts into the interpreter."""
LOADER = os.path.join(os.path.dirname(CORE), "vispython")
"""The program that starts a worker."""
_INSTALLATION_ENTRIES = frozenset(
    (
        "bin",
        "include",
        "lib",
        "lib64",
        "libexec",
        "share",
        "man",
        "ssl",
        "etc",
        "licenses",
        "build",
        "BUILD",
        "LICENSE",
        "PYTHON.json",
    )
)
"""What a directory that is nothing but a Python installation may hold."""


_SHARED_ENTRIES = frozenset(("doc", "info", "licenses", "man", "terminfo"))
"""What the folder ``share`` of such an installation may hold."""
_ENVIRONMENT_PARTS = ("pyvenv.cfg", "bin", "include", "lib", "lib64", "share")
"""What a venv consists of: the folder itself may be a project, with all that lies in it."""


class Interpreter:
    """One interpreter that can be started as a worker.

    ``name`` becomes ``sys.executable`` (a venv's own path, unresolved), ``program`` is the real file,
    ``version`` its ``sys.version``, ``mode`` the boot mode, ``library`` the libpython of mode L,
    ``grants`` what must be readable, ``same_as_host`` whether code compiled here runs there,
    ``compiled`` the guest modules by name as it compiled them itself, bytes for its workers only.
    """

    __slots__ = (
        "compiled",
        "grants",
        "library",
        "mode",
        "name",
        "program",
        "same_as_host",
        "version",
    )

    def __init__(
        self,
        *,
        name: str,
        program: str,
        version: str,
        library: str | None,
        grants: tuple[Grant, ...],
        same_as_host: bool,
        compiled: Mapping[str, bytes] | None = None,
    ) -> None:
        self.name: str = name
        self.program: str = program
        self.version: str = version
        self.library: str | None = library
        self.mode = "L" if library is not None else "P"
        self.grants: tuple[Grant, ...] = grants
        self.same_as_host: bool = same_as_host
        self.compiled: Mapping[str, bytes] | None = compiled

    def __repr__(self) -> str:
        return f"Interpreter({self.name!r}, mode={self.mode!r}, {self.version.split()[0]})"


def find_interpreter(
    python: str | os.PathLike[str] | None = None,
    *,
    environment: str | os.PathLike[str] | None = None,
    write: Sequence[str] = (),
    probe: Probe,
    remember: bool = False,
) -> Interpreter:
    """Say how to start *python*, the one of a venv, or by default the host's own.

    Args:
        python: path of an interpreter; ``"bundle"``: that of the installed platform archive.
        environment: directory of a venv; not together with *python*.
        write: the write grants of the policy; no file and no link inside one is trusted, as
            is no link that an earlier guest could have made.
        probe: asks an interpreter that is not the host's for its version.
        remember: keep its answer for the next time, where no guest can write to it; only for a
            probe in a jail.

    Raises:
        PolicyError: ``field`` says which argument; the message says why it cannot be used and
            what to do.
        BundleRefused: no archive of this version is installed, or it was changed.
    """
    field = "environment" if environment is not None else "python"
    if environment is not None:
        if python is not None:
            raise PolicyError("give python= or environment=, not both", field="environment")
        python = os.path.join(check_path(environment, "environment"), "bin", "python")
    if python == "bundle":
        from visruntime import bundle

        python = bundle.find().python
    if python is None:
        if getattr(sys, "frozen", False):
            raise PolicyError(
                f"{field}: this program was frozen and is no interpreter for workers; give python= "
                f'with the path of one, or python="bundle"',
                field=field,
            )
        python = sys.executable
        if not python:
            raise PolicyError(
                "this process does not know its interpreter; give python=", field=field
            )
    name = os.path.abspath(check_path(python, "python"))
    write = tuple(dict.fromkeys([*write, *map(os.path.realpath, write)]))
    program, link = _follow(name, write)
    if not os.path.isfile(program) or not os.access(program, os.X_OK):
        raise PolicyError(f"{field}: {name} is not an executable file", field=field, value=name)
    _refuse_written(name, program, write, field)
    if link is None:
        own = program == os.path.realpath(sys.executable)
    else:
        # The host's own name may be that very link; the kernel knows what really runs here.
        own = program == os.path.realpath("/proc/self/exe")
        _refuse_link(name, program, link, own=own, field=field)
    parts = _parts(_environment(name, write, field))
    try:
        elf = Program(program)
        library = _find_library(elf, write)
    except (OSError, ValueError) as problem:
        raise _unusable(field, name, problem) from None
    grants = _grants(program, library, parts, write)
    version, compiled = sys.version, None
    if not own:
        try:
            # What any other one said could be what a guest made of it for the time of the asking.
            keep = remember and all(map(is_out_of_reach, filter(None, (program, library))))
            answer = ask(program, library, grants, probe, remember=keep)
        except ValueError as problem:
            raise _unusable(field, name, problem) from None
        version, compiled = answer.version, answer.compiled
    return Interpreter(
        name=name,
        program=program,
        version=version,
        library=library,
        grants=grants,
        same_as_host=version == sys.version,
        compiled=compiled,
    )


def interpreter_in(base: Interpreter, folder: str, write: Sequence[str]) -> Interpreter:
    """Return how *base* starts in the environment *folder*, whose links the host itself made.

    What *base* was found in, such as the host's own environment, is not granted with it.
    """
    return Interpreter(
        name=os.path.join(folder, "bin", "python"),
        program=base.program,
        version=base.version,
        library=base.library,
        grants=_grants(base.program, base.library, [folder], write),
        same_as_host=base.same_as_host,
        compiled=base.compiled,
    )


def worker_argv(
    interpreter: Interpreter, *, channel: int, control: int, harden: bool, code: str
) -> list[str]:
    """The command that starts a worker; *channel* and *control* are its descriptor numbers.

    Raises:
        CommandNotExecutable: the loader has lost its run bit, as a file unpacked by a tool that
            knows no modes has.
    """
    if not os.access(LOADER, os.X_OK):
        raise CommandNotExecutable(
            f"{LOADER} of visruntime is missing or may not be executed; reinstall visruntime with "
            f"pip or uv, which keep the run bit, or: chmod +x {LOADER}"
        )
    argv = [LOADER, "--channel", str(channel), "--control", str(control)]
    argv += ["--core", CORE, "--name", interpreter.name]
    if harden:
        argv.append("--harden")
    if interpreter.library is not None:
        argv += ["--library", interpreter.library, "--expect", interpreter.version]
    else:
        argv += ["--executable", interpreter.program]
    # Isolated, without site: the bootstrap runs first and starts site itself. Python 3.14 lets a
    # debugger run code in it (PEP 768); what is no option of an older one is ignored there.
    options = ["-I", "-S", "-B", "-X", "utf8", "-X", "disable-remote-debug"]
    return [*argv, "--", *options, "-c", code]


def _unusable(field: str, name: str, problem: BaseException) -> PolicyError:
    """Say why *name* cannot be a worker, and which interpreter could."""
    other = nearest(_seems_usable)
    fix = f"; {other} can" if other is not None else ""
    return PolicyError(
        f"{field}: {name} cannot be a worker: {problem}{fix}", field=field, value=name
    )


def _seems_usable(path: str) -> bool:
    try:
        library = _find_library(Program(os.path.realpath(path)), ())
    except (OSError, ValueError):
        return False
    return library is None or not library.endswith("t.so.1.0")  # a free-threaded build


def _inside(path: str, trees: Sequence[str]) -> str | None:
    for tree in trees:
        if path == tree or path.startswith(tree.rstrip("/") + "/"):
            return tree
    return None


def _follow(path: str, write: Sequence[str]) -> tuple[str, str | None]:
    """Where *path* leads, and what on the way a guest may have made or replaced, if anything.

    A link to a neighbour (python to python3.12) leads out of nothing that the caller named.
    """
    with Resolver() as resolver:
        real = resolver(path)
    if _inside(path, write) is not None:
        return real, path
    folder = os.path.dirname(real)
    return real, untrusted_link(
        [
            (link, by_system or os.path.dirname(link) == folder)
            for link, by_system in resolver.links[path]
        ],
        write,
    )


def _environment(name: str, write: Sequence[str], field: str) -> str | None:
    """The folder of the venv that the interpreter *name* belongs to, if it belongs to one.

    One in a write grant is no reason for a grant of its own: the guest reads it as it is.
    """
    folder = os.path.dirname(os.path.dirname(name))
    real, link = _follow(folder, write)
    inside = _inside(folder, write) is not None or _inside(real, write) is not None
    if inside or not os.path.isfile(os.path.join(real, "pyvenv.cfg")):
        return None
    if link is not None:
        raise PolicyError(
            f"{field}: {name} lies in {real}, reached through {link}, a link that an earlier guest "
            f"may have made; name {os.path.join(real, os.path.relpath(name, folder))} if you mean "
            "that",
            field=field,
            value=name,
        )
    return real


def _parts(environment: str | None) -> list[str]:
    """What of a venv a worker gets to read; no link, which could lead to anything beside it.

    lib64 is one to lib, as a rule, and Python looks in both.
    """
    if environment is None:
        return []
    paths = [os.path.join(environment, part) for part in _ENVIRONMENT_PARTS]
    return [path for path in paths if os.path.lexists(path) and not os.path.islink(path)]


def _refuse_link(name: str, program: str, link: str, *, own: bool, field: str) -> None:
    """Refuse a program that a guest may have chosen, unless it may as well have that one.

    Those are the interpreter that runs here, the system's, and what a manager of versions has
    installed for the caller: an environment leads to one of them by a link, as a rule.
    """
    if own or _is_system(program) or _inside(program, version_managers()) is not None:
        return
    raise PolicyError(
        f"{field}: {name} leads to {program} through {link}, so an earlier guest may have chosen "
        f"it; name {program} itself, or use an environment of the interpreter that runs here, of "
        "the system's, or of one that uv or pyenv installed",
        field=field,
        value=name,
    )


def refuse_unknown(interpreter: Interpreter) -> None:
    """Refuse an interpreter that could be a guest's, for what is done with a password.

    A guest may have made any program in a folder of the user. So only the one that runs here is
    taken, those of the system, and what a manager of versions or a platform archive has installed.

    Raises:
        PolicyError: it is another one.
    """
    program = interpreter.program
    own = program in (os.path.realpath(sys.executable), os.path.realpath("/proc/self/exe"))
    if own or is_out_of_reach(program):
        return
    raise PolicyError(
        f"python: {program} is neither the interpreter that runs here nor one of the system, of uv, of "
        "pyenv or of a platform archive, so a guest may have made it, and uv would run it beside the "
        "password of the index, a proxy or a requirement; use one of those, or build from a "
        "wheelhouse without an index",
        field="python",
        value=program,
    )


def is_out_of_reach(path: str) -> bool:
    """Tell whether no guest writes to the real *path*: of the system, or kept from all guests.

    The folders of version managers and of platform archives are (`_jail/protect.py`).
    """
    known = [*version_managers(), os.path.join(state_folder(), BUNDLES)]
    return _is_system(path) or _inside(path, [os.path.realpath(top) for top in known]) is not None


def _is_system(program: str) -> bool:
    if _inside(program, ["/usr"]) is None:
        return False
    status = os.stat(program)
    return status.st_uid == 0 and not status.st_mode & 0o022


def _refuse_written(name: str, program: str, write: Sequence[str], field: str) -> None:
    tree = _inside(program, write)
    if tree is not None:
        raise PolicyError(
            f"{field}: {program} lies inside the write grant {tree}, so an earlier guest may have "
            "replaced it; use an interpreter outside of every write grant",
            field=field,
            value=name,
        )


def _find_library(elf: Program, write: Sequence[str]) -> str | None:
    """The libpython that *elf* is linked with; None when it contains its interpreter."""
    if elf.loader is None:
        raise ValueError("it is statically linked, so nothing can be loaded into it")
    if "ld-musl" in elf.loader:
        raise ValueError("it is built for musl, and the worker's core needs glibc")
    names = [needed for needed in elf.needed if needed.startswith("libpython3.")]
    if not names:
        _require_interpreter(elf)
        return None
    if "/" in names[0]:
        raise ValueError(f"the name of its library is a path: {names[0]!a:.100}")
    places = [*elf.search, os.path.join(os.path.dirname(os.path.dirname(elf.path)), "lib")]
    places += [
        f"/usr/lib/{os.uname().machine}-linux-gnu",
        "/usr/lib64",
        "/usr/lib",
        "/usr/local/lib",
    ]
    tried = []
    for place in places:
        candidate, link = _follow(os.path.abspath(os.path.join(place, names[0])), write)
        changeable = link or _inside(candidate, write)
        if changeable is not None and os.path.lexists(candidate):
            raise ValueError(
                f"its library {candidate} is reached through a link or lies inside a write grant "
                f"({changeable}), so an earlier guest may have replaced it"
            )
        try:
            Program(candidate)
        except OSError as problem:
            tried.append(f"{candidate} ({problem.strerror})")
        except ValueError as problem:
            tried.append(f"{candidate} ({problem})")
        else:
            return candidate
    raise ValueError(f"no usable {names[0]}; tried: {'; '.join(tried)}")


def _require_interpreter(elf: Program) -> None:
    """Refuse a program without a libpython 3 that does not contain a usable interpreter either."""
    if elf.names("PySys_AddAuditHook") and elf.names("PyImport_AppendInittab"):
        return
    others = [needed for needed in elf.needed if needed.startswith(("libpython", "libpypy"))]
    if any(needed.startswith("libpypy") for needed in others):
        raise ValueError("it is PyPy, and only CPython can be a worker")
    if others:
        raise ValueError(
            f"it uses {others[0]!a:.60}, and CPython 3.11 is the oldest that can be one"
        )
    if elf.names("Py_Main"):
        raise ValueError("it contains an interpreter older than 3.8, and 3.11 is the oldest")
    raise ValueError(
        "it neither uses a libpython nor exports the interpreter's functions; install a "
        "CPython that was built with --enable-shared"
    )


def _grants(
    program: str, library: str | None, environment: Sequence[str], write: Sequence[str]
) -> tuple[Grant, ...]:
    """What a worker has to read, from the places of real files only.

    Neither what the interpreter says nor a file or link that a guest may have written (an
    environment inside a write grant) leads to a grant.
    """
    # Trees first: what lies inside one of them needs no grant of its own.
    wanted: list[Grant] = [
        *((path, "Python installation") for path in _installation(program)),
        (program, "Python interpreter"),
    ]
    if library is not None:
        wanted.append((library, "Python library"))
    wanted += [(path, "Python environment") for path in environment]
    wanted += [(LOADER, "worker loader"), (CORE, "worker core")]
    kept: list[Grant] = []
    for path, reason in wanted:
        # /usr as a prefix is the system's business (`system=`), "/" would be everything.
        covered = path in ("/", "/usr") or _inside(path, ["/usr"]) or _inside(path, write)
        if not covered and not _inside(path, [grant for grant, _ in kept]):
            kept.append((path, reason))
    return tuple(kept)


def _installation(program: str) -> list[str]:
    """The trees of the installation that *program* belongs to.

    The prefix itself only where it holds nothing but an installation: the prefix of a program
    in a home directory's ``bin`` is that home directory.
    """
    prefix = os.path.dirname(os.path.dirname(program))
    libraries = os.path.join(prefix, "lib")
    try:
        entries = set(os.listdir(prefix))
        versions = [entry for entry in os.listdir(libraries) if entry.startswith("python3.")]
    except OSError:
        return []
    standard = [
        os.path.join(libraries, entry)
        for entry in versions
        if os.path.isfile(os.path.join(libraries, entry, "os.py"))
    ]
    if standard and entries <= _INSTALLATION_ENTRIES and _shares_nothing_else(prefix):
        return [prefix]
    return standard


def _shares_nothing_else(prefix: str) -> bool:
    """Tell whether ``share`` is part of an installation: below ~/.local it has data of the user."""
    try:
        return _SHARED_ENTRIES.issuperset(os.listdir(os.path.join(prefix, "share")))
    except FileNotFoundError:
        return True
    except OSError:
        return False
