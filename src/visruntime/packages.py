"""Environments for workers, built with uv: packages in a folder that guests can only read.

::

    environment = vr.Environment.from_project("/home/me/project")
    with vr.Runtime(policy, environment=environment) as runtime:
        runtime.run("import numpy")

An environment is built once, in a jail of its own, and kept for this user, by what was locked,
the interpreter and the machine. Its packages are a guest's work: they run in jails only.
"""

from __future__ import annotations

import os
import shlex

from visruntime._arguments import (
    check_function,
    check_list,
    check_path,
    check_seconds,
    check_switch,
    check_text,
    check_texts,
    check_word,
)
from visruntime._host.files import has_name, open_followed
from visruntime._jail.state_folder import folder_at
from visruntime._packages.build import Build, Sources
from visruntime._packages.request import (
    PACKAGE,
    Request,
    of_project,
    of_requirements,
    of_script,
    read_requirements,
    read_script,
)
from visruntime._packages.store import Store
from visruntime._packages.tree import LOCKED, assemble, make_empty
from visruntime._packages.uv import check_index, find_uv, is_kept, secret_addresses
from visruntime._packages.versions import release, satisfies
from visruntime._policy.links import named_path
from visruntime._policy.paths import visible
from visruntime._policy.values import Limits
from visruntime._runtime.missing import package_of
from visruntime._worker.installed import installation_facts
from visruntime._worker.probe import file_facts
from visruntime.environments import (
    find_interpreter,
    interpreter_in,
    is_out_of_reach,
    refuse_unknown,
)
from visruntime.errors import EnvironmentNotBuilt, PolicyError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any, Self

    from visruntime.environments import Interpreter, Probe
    from visruntime.events import EnforcementReport

__all__ = ["BuiltEnvironment", "Environment"]

BUILD_SECONDS = 1800.0
"""How long a build may take if nothing else is said."""
FORMAT = 3
"""Of what an environment's folder holds; another number is another key."""
AnyPath = str | os.PathLike[str]


class BuiltEnvironment:
    """An environment that stands on disk.

    ``folder`` is its place, ``key`` its name there, ``interpreter`` what starts a worker in it,
    ``locked`` what is installed (requirements with versions and hashes), ``reused`` whether it was
    there already, ``report`` what enforced the jail of the build (``None`` if there was no build now).
    """

    __slots__ = ("folder", "interpreter", "key", "locked", "report", "reused")

    def __init__(
        self,
        *,
        folder: str,
        key: str,
        interpreter: Interpreter,
        locked: str,
        report: EnforcementReport | None,
        reused: bool,
    ) -> None:
        self.folder: str = folder
        self.key: str = key
        self.interpreter: Interpreter = interpreter
        self.locked: str = locked
        self.report: EnforcementReport | None = report
        self.reused: bool = reused

    def __repr__(self) -> str:
        return f"BuiltEnvironment({self.folder!r})"


class Environment:
    """Packages that a worker is to have, from a lock, from requirements or from a script.

    Making one reads the files; `build` (or the first `Runtime` with it) makes the folder. All
    constructors take these options:

    Args:
        python: the interpreter of the environment; the host's own by default.
        index: the package index that the build may reach: a URL, or ``"default"`` for uv's own.
            The jail of the build then shares the host's network, its loopback too. By default there
            is no network, and packages come from *wheelhouse*, or without one from uv's cache.
        wheelhouse: a folder of wheels, or several.
        cache: without an index and a wheelhouse, let the build read the user's own uv cache.
        hashes: ``"required"``: each requirement must come with one. ``"resolve"``: where some do
            not, take those that the wheelhouse or index gives for what it resolves to; they are
            kept with the environment, which never changes afterwards.
        wheels_only: refuse packages that have no wheel, so that no package's code runs in a build.
            Others run code of their own to be built, in the jail in which uv runs: with the network
            and the index's password if there is an *index*.
        uv: the program; the first that is found by default.
        timeout: seconds that the build may take.
        limits: of the jail of the build, instead of those that it has: half of the machine's memory
            but at most 8 GiB (by a cgroup where there is one, else watched), 1,024 processes, 4 GiB
            of scratch. Its ``wall_seconds`` is *timeout*. They do not decide what is installed, so
            that an environment which stands is used whatever they are.
        progress: gets a line of text for each step of the build.

    Raises:
        PolicyError: a file is missing or malformed, or asks for what cannot be done.
    """

    def __init__(self, request: Request, **options: Any) -> None:
        if not isinstance(request, Request):
            raise TypeError(
                "request: make an Environment with from_project, from_requirements or from_script"
            )
        self._request = request
        self._set(**options)

    def _set(
        self,
        *,
        python: AnyPath | None = None,
        index: str | None = None,
        wheelhouse: AnyPath | Sequence[AnyPath] = (),
        cache: bool = True,
        hashes: str = "required",
        wheels_only: bool = True,
        uv: AnyPath | None = None,
        timeout: float = BUILD_SECONDS,
        limits: Limits | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        check_word(hashes, "hashes", ("required", "resolve"))
        seconds = check_seconds(timeout, "timeout", positive=True)
        check_index(index)
        check_switch(cache, "cache")
        check_switch(wheels_only, "wheels_only")
        if progress is not None:
            check_function(progress, "progress")
        self._python = None if python is None else check_path(python, "python")
        self._uv = None if uv is None else check_path(uv, "uv")
        self._timeout = BUILD_SECONDS if seconds is None else seconds
        if limits is not None and not isinstance(limits, Limits):
            raise TypeError(f"limits: Limits, or None, not {type(limits).__name__}")
        self._limits = limits
        self._progress = progress or (lambda _: None)
        if isinstance(wheelhouse, (str, os.PathLike)):
            wheelhouse = [wheelhouse]
        folders = check_list(wheelhouse, "wheelhouse", '["wheels"]')
        self._sources = Sources(
            index=index,
            wheelhouses=tuple(_folder(folder) for folder in folders),
            cache=cache,
            wheels_only=wheels_only,
            resolve=hashes == "resolve",
        )
        if self._request.hashed is False and hashes == "required":
            raise PolicyError(
                f"environment: {self._request.label} has requirements without a hash; add them "
                "(--hash=sha256:...), or take those of the wheelhouse or index by "
                'hashes="resolve" (--hashes resolve)',
                field="environment",
            )

    @classmethod
    def from_project(
        cls,
        folder: AnyPath,
        *,
        extras: Sequence[str] = (),
        groups: Sequence[str] = (),
        editable: bool = True,
        **options: Any,
    ) -> Self:
        """Take what the ``uv.lock`` of the project in *folder* holds.

        Args:
            extras: optional dependencies to have too.
            groups: dependency groups to have too; none by default, not even ``dev``.
            editable: find the code of the project and of its workspace where it stands. A guest
                imports it only where its policy grants reading it.
        """
        check_switch(editable, "editable")
        extras, groups = check_texts(extras, "extras"), check_texts(groups, "groups")
        place = named_path("project", check_path(folder, "folder"))
        request = of_project(place, extras=extras, groups=groups, editable=editable)
        return cls(request, **options)

    @classmethod
    def from_requirements(
        cls, requirements: Iterable[str] | os.PathLike[str], **options: Any
    ) -> Self:
        """Take requirements: a list of texts, or the path of a file of them (as a `Path`)."""
        if isinstance(requirements, str):
            raise TypeError(
                "requirements: a list of texts, or the Path of a file, not one text: "
                '["requests>=2"]'
            )
        if isinstance(requirements, os.PathLike):
            path = os.path.abspath(check_path(requirements, "requirements"))
            lines: Iterable[str] = read_requirements(path)
            request = of_requirements(lines, label=path, add=f"{PACKAGE} in {path}")
        else:
            request = of_requirements(
                check_texts(requirements, "requirements", '["requests>=2"]'),
                label="the requirements",
                add=f"{PACKAGE} among the requirements",
            )
        return cls(request, **options)

    @classmethod
    def from_script(cls, script: AnyPath | bytes, **options: Any) -> Self:
        """Take what the metadata of a script asks for (PEP 723); *script* is its path or its text.

        The lock beside it, which ``uv lock --script`` makes, is used where there is one.

        Raises:
            PolicyError: it asks for nothing, or as the class says.
        """
        source, path = script, None
        if not isinstance(source, bytes):
            path = os.path.abspath(check_path(source, "script"))
            source = read_script(path)
        request = of_script(source, path)
        if request is None:
            raise PolicyError(
                f"environment: {path or 'the script'} asks for no packages in its metadata",
                field="environment",
            )
        return cls(request, **options)

    def __repr__(self) -> str:
        return f"Environment({self._request.label})"

    @property
    def sources(self) -> tuple[str, ...]:
        """The folders of source that belong to it, found where they stand."""
        return self._request.paths

    def build(self) -> BuiltEnvironment:
        """Return the environment, built now if it is not there yet.

        Builders that want the same at the same time wait for one of them.

        Raises:
            EnvironmentNotBuilt: uv could not make it; nothing of it is kept.
            PolicyError: the interpreter is not one that can be used.
        """
        from visruntime._runtime.interpreter import probe_in_jail

        return self._build((), probe_in_jail)

    def how_to_add(self, module: str) -> str:
        """Say how a guest of this environment would have *module*; a text for people."""
        check_text(module, "module")
        for path in self._request.paths:
            # The name is a guest's claim, and no path: of a part of one nothing is looked up.
            if module.isidentifier() and (has_name(path, module) or has_name(path, f"{module}.py")):
                return f"{module} stands in {path}, which is not granted; add it to read= (--read)"
        package, guess = package_of(module)
        add = self._request.add.replace(PACKAGE, shlex.quote(package))
        return f"{self._request.label} has no {module}; to add its package: {add}{guess}"

    def _build(self, write: Sequence[str], probe: Probe) -> BuiltEnvironment:
        interpreter, version = self._base(write, probe)
        store = Store()
        uv = self._find_uv(write)
        key = self._key(interpreter, uv)
        found = folder = store.find(key)
        report = None
        if folder is None:
            with store.locked(key, self._timeout):
                found = folder = store.find(key)
                if folder is None:
                    folder, report = self._make(store, key, interpreter, version, uv)
        kept = open_followed(os.path.join(folder, LOCKED))
        with open(kept, encoding="utf-8", errors="replace") as file:
            locked = file.read()
        return BuiltEnvironment(
            folder=folder,
            key=key,
            interpreter=interpreter_in(interpreter, folder, write),
            locked=locked,
            report=report,
            reused=found is not None,
        )

    def _base(self, write: Sequence[str], probe: Probe) -> tuple[Interpreter, tuple[int, int, int]]:
        """Return the interpreter that the environment is for, and its version in numbers."""
        found = find_interpreter(self._python, write=write, probe=probe, remember=True)
        wanted = self._request.requires_python
        version = release(found.version)
        try:
            fits = wanted is None or satisfies(version, wanted)
        except ValueError as problem:
            raise PolicyError(
                f"environment: {self._request.label}: {problem}", field="environment"
            ) from None
        if not fits:
            raise PolicyError(
                f"environment: {self._request.label} needs Python {wanted}, and {found.name} is "
                f"{found.version.split()[0]}; give another with python=",
                field="environment",
            )
        return found, version

    def _find_uv(self, write: Sequence[str]) -> str | PolicyError:
        """Return uv, or why there is none: an environment that stands needs none."""
        try:
            return find_uv(self._uv, write, secret=self._has_secrets())
        except PolicyError as problem:
            return problem

    def _has_secrets(self) -> bool:
        """Whether uv gets to know a password."""
        return bool(secret_addresses(self._sources.index) or self._request.secrets)

    def _key(self, interpreter: Interpreter, uv: str | PolicyError) -> str:
        """Name the environment by all that decides what is in it."""
        import hashlib
        import json

        request, sources = self._request, self._sources
        hashed = request.hashed is True and not sources.resolve
        facts = {
            "format": FORMAT,
            "files": {
                name: hashlib.sha256(content).hexdigest() for name, content in request.files.items()
            },
            "export": request.export,
            "paths": request.paths,
            "python": _python_facts(interpreter),
            "uv": [] if self._request.is_empty else _uv_facts(uv),
            "platform": list(os.uname()[0::4]),
            "wheels_only": sources.wheels_only,
            # Where everything has a hash it does not matter where it comes from.
            "resolve": None if hashed or not sources.resolve else _resolved_from(sources),
        }
        text = json.dumps(facts, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:40]

    def _make(
        self,
        store: Store,
        key: str,
        interpreter: Interpreter,
        version: tuple[int, int, int],
        uv: str | PolicyError,
    ) -> tuple[str, EnforcementReport | None]:
        report, locked = None, b""
        with store.staging(key) as staging:
            work = os.path.join(staging, "work")
            with folder_at(staging) as folder:
                os.mkdir("work", 0o700, dir_fd=folder)
            if self._request.is_empty:
                make_empty(work, version)
            else:
                if self._has_secrets():
                    refuse_unknown(interpreter)
                if isinstance(uv, PolicyError):
                    raise uv
                build = Build(
                    work,
                    self._request,
                    self._sources,
                    interpreter,
                    uv=uv,
                    seconds=self._timeout,
                    limits=self._limits,
                    progress=self._progress,
                )
                build.run()
                report, locked = build.report, build.locked
                if self._key(interpreter, uv) != key:
                    raise EnvironmentNotBuilt(
                        f"what {self._request.label} is built with was changed meanwhile; build "
                        "it again"
                    )
            tree = os.path.join(staging, "environment")
            assemble(
                os.path.join(work, "venv"),
                tree,
                interpreter.program,
                version,
                locked=locked,
                paths=self._request.paths,
            )
            return store.keep(tree, key), report


def _python_facts(interpreter: Interpreter) -> list[Any]:
    """What decides how *interpreter* installs and compiles, in full where a guest could change it."""
    program = interpreter.program
    facts = [interpreter.version, *file_facts(program, interpreter.library)]
    if is_out_of_reach(program):
        return facts
    try:
        return [*facts, installation_facts(program)]
    except (OSError, ValueError) as problem:
        raise PolicyError(
            f"environment: {visible(program)} cannot be told from what it was: {problem}; give "
            "another one with python=",
            field="environment",
        ) from None


def _uv_facts(uv: str | PolicyError) -> list[Any]:
    """What tells uv from any other, where a guest could have made it."""
    if isinstance(uv, PolicyError) or is_kept(uv):
        return []
    return list(file_facts(uv, None))


def _resolved_from(sources: Sources) -> list[Any]:
    """What decides to which versions requirements resolve, as far as it can be told."""
    wheels = []
    for folder in sources.wheelhouses:
        try:
            with os.scandir(folder) as entries:
                wheels.append([folder, sorted((e.name, e.stat().st_size) for e in entries)])
        except OSError as error:
            raise PolicyError(
                f"wheelhouse: {visible(error.filename or folder)} cannot be looked at "
                f"({error.strerror}); remove it from the wheelhouse, or put a file there",
                field="wheelhouse",
                value=folder,
            ) from None
    return [sources.index, wheels]


def _folder(path: AnyPath) -> str:
    real = named_path("wheelhouse", path)
    if not os.path.isdir(real):
        raise PolicyError(f"wheelhouse: {real} is no folder", field="wheelhouse", value=real)
    return real
