"""Build an environment: uv in a jail of its own, and then a compiler in another one.

The first jail sees uv, the interpreter, the wheelhouse or cache, and copies of what is asked for. It
has the network, and the index's password, only where the owner named an index; so what it
installs is unpacked there and not run. Bytecode is made in the second one, which has
neither. What comes out is a guest's work; `_packages/tree.py` says what becomes of it.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress

from visruntime._jail.making import folder_below, make_file
from visruntime._jail.state_folder import folder_at, remove_tree
from visruntime._packages.addresses import credentials, credentials_in, without_credentials
from visruntime._packages.direct_urls import remove_credentials
from visruntime._packages.lock import VARIABLE
from visruntime._packages.tree import packages_of
from visruntime._packages.uv import certificates, host_cache, settings, variables
from visruntime._packages.versions import release
from visruntime._policy.redact import secrets_of, shown
from visruntime.errors import (
    CommandTimeout,
    EnvironmentNotBuilt,
    PolicyError,
    PolicyUnsupported,
    VisRuntimeError,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from visruntime._packages.request import Request
    from visruntime.environments import Interpreter
    from visruntime.events import EnforcementReport
    from visruntime.jail import Jail
    from visruntime.policy import JailPolicy, Limits, Secret

__all__ = ["Build", "Sources"]

MOST_COMPILERS = 16
"""Most processes that compile the modules of one environment, if there are as many processors."""
BUILD_PROCESSES = 1024
"""Processes and threads of a build; compilers of packages start many."""
BUILD_SCRATCH = 4 * 1024**3
"""Bytes in the private places of a build; packages are downloaded and unpacked elsewhere."""
BUILD_MEMORY = 8 * 1024**3
"""Most bytes of memory of a build; on a machine with less than twice that, half of what it has."""
EXPORTED, RESOLVED = "exported.txt", "resolved.txt"
_MAX_TEXT = 4000
_MAX_SHORT = 1000
_MAX_LOCKED = 32 * 1024**2
_NOT_FETCHED = (
    "network connectivity is disabled",
    "network was disabled",
    "not found in the provided package locations",
    "not found in the cache",
    "index lookups were disabled",
    "no versions of",
    "there is no version of",
    "there are no versions of",
    "only the following versions of",
)
"""What uv says (0.4 to 0.13), in lower case, where a package or a version of it is in no source."""
_SHARED = ("archive-", "simple-", "wheels-")
"""Beginnings of what a build reads of the user's uv cache: wheels, and what is known of them."""


class Sources:
    """Where packages may come from, and what may be done with them.

    ``index`` is ``None`` for no network, ``wheelhouses`` are folders of wheels, ``cache`` lets
    a build without either read the user's own uv cache, ``wheels_only`` refuses packages whose
    code would have to run to be built, ``resolve`` lets hashes be those that the sources give.
    """

    __slots__ = ("cache", "index", "resolve", "wheelhouses", "wheels_only")

    def __init__(
        self,
        *,
        index: str | None,
        wheelhouses: tuple[str, ...],
        cache: bool,
        wheels_only: bool,
        resolve: bool,
    ) -> None:
        self.index = index
        self.wheelhouses = wheelhouses
        self.cache = cache
        self.wheels_only = wheels_only
        self.resolve = resolve

    def arguments(self) -> list[str]:
        """The arguments of uv that say so."""
        words = [word for folder in self.wheelhouses for word in ("--find-links", folder)]
        if self.index is None and self.wheelhouses:
            words.append("--no-index")
        return [*words, "--only-binary", ":all:"] if self.wheels_only else words


class Build:
    """One build under way: *folder* is what its jail may write in, and afterwards holds ``venv``.

    ``locked`` is what was installed, as requirements with versions and hashes; ``report`` says
    what enforced the jail that uv was in.
    """

    def __init__(
        self,
        folder: str,
        request: Request,
        sources: Sources,
        interpreter: Interpreter,
        *,
        uv: str,
        seconds: float,
        limits: Limits | None,
        progress: Callable[[str], None],
    ) -> None:
        """Get ready; *limits* are those of its jail, ``None`` for those that builds have."""
        self._folder = folder
        self._request = request
        self._sources = sources
        self._interpreter = interpreter
        self._uv = uv
        self._deadline = time.monotonic() + seconds
        self._seconds = seconds
        self._limits = limits
        self._progress = progress
        self._shared = None
        if sources.cache and sources.index is None and not sources.wheelhouses:
            self._shared = host_cache()
        self.locked = b""
        self._asked = request.secrets
        self.report: EnforcementReport | None = None

    def run(self) -> None:
        """Do all steps.

        Raises:
            EnvironmentNotBuilt: with the words of uv.
        """
        with folder_at(self._folder) as folder:
            for name, content in self._request.files.items():
                make_file(name, folder, content, 0o644)
        try:
            with self._open_jail(self._policy()) as jail:
                self.report = jail.report
                self._install(jail, self._lock(jail))
            self._remove_cache()
            self._remove_requests()
            self._compile()
        except CommandTimeout:
            raise EnvironmentNotBuilt(
                f"building {self._request.label} took longer than {self._seconds:.0f} s"
            ) from None

    def _remove_cache(self) -> None:
        try:
            with folder_at(self._folder) as folder:
                remove_tree("cache", folder)
        except OSError as error:
            raise EnvironmentNotBuilt(f"the cache of the build: {error.strerror}") from None

    def _remove_requests(self) -> None:
        """Remove what was asked for: its addresses may hold passwords, and compilers need none."""
        try:
            with folder_at(self._folder) as folder:
                for name in (*self._request.files, EXPORTED, RESOLVED):
                    with suppress(FileNotFoundError):
                        os.unlink(name, dir_fd=folder)
        except OSError as error:
            raise EnvironmentNotBuilt(f"the files of the build: {error.strerror}") from None

    def _open_jail(self, policy: JailPolicy) -> Jail:
        """Open a jail; without a cgroup to be had, with its memory watched instead."""
        from visruntime.jail import Jail

        try:
            return Jail(policy, implicit_read=self._interpreter.grants)
        except PolicyUnsupported as refusal:
            if self._limits is not None or refusal.field != "limits.memory":
                raise
        limits = policy.limits.replace(memory_by="watch")
        return Jail(policy.replace(limits=limits), implicit_read=self._interpreter.grants)

    def _lock(self, jail: Jail) -> str:
        """Find out what exactly to install; return the name of the file that says it."""
        request, sources = self._request, self._sources
        python = ["--python", self._interpreter.program]
        wanted = "requirements.in"
        if request.export is not None:
            wanted = EXPORTED
            self._progress(f"reading the lock of {request.label}")
            export = ["export", *request.export, "--format", "requirements.txt"]
            self._call(jail, [*export, *python, "--output-file", wanted])
            self._refuse_variables(jail, wanted)
        if sources.resolve and not self._is_hashed(jail, wanted):
            self._progress(f"resolving what {request.label} asks for")
            resolve = ["pip", "compile", "--generate-hashes", "--no-header", "--no-annotate"]
            resolve += [*sources.arguments(), *python, wanted]
            wanted = RESOLVED
            self._call(jail, [*resolve, "--output-file", wanted], asks=True)
            self._refuse_variables(jail, wanted)
        content = self._read(jail, wanted)
        text = content.decode("utf-8", "replace")
        try:
            self._asked |= credentials_in(text)
        except ValueError as error:
            raise EnvironmentNotBuilt(f"{self._request.label}: {error}") from None
        self.locked = without_credentials(text).encode()
        return wanted

    def _install(self, jail: Jail, locked: str) -> None:
        self._progress(f"installing the packages of {self._request.label}")
        self._call(jail, ["venv", "--relocatable", "--python", self._interpreter.program, "venv"])
        install = ["pip", "install", "--python", "venv/bin/python", "--require-hashes"]
        install += [*self._sources.arguments(), "--no-compile-bytecode", "--requirements", locked]
        self._call(jail, install, asks=True)
        if self._asked:
            try:
                packages = packages_of(release(self._interpreter.version))
                place = os.path.join(self._folder, "venv", packages)
                remove_credentials(jail, place, self._deadline)
            except (VisRuntimeError, OSError, ValueError, KeyError, TypeError) as problem:
                raise EnvironmentNotBuilt(
                    f"the addresses in what {self._request.label} installs: {type(problem).__name__}"
                ) from None

    def _compile(self) -> None:
        """Compile the modules, by the interpreter itself and not by the environment's.

        A wheel can bring ``.pth`` files, a sitecustomize and even another ``bin/python``: all
        that starts with the environment is for workers, whose policy is another one.
        """
        from visruntime import guest

        self._progress(f"compiling the packages of {self._request.label}")
        # Read and not imported: the host has no use for what it imports.
        with open(os.path.join(os.path.dirname(guest.__file__), "bytecode.py")) as file:
            source = file.read()
        modules = os.path.join(self._folder, "venv", "lib")
        processes = min(len(os.sched_getaffinity(0)), MOST_COMPILERS)
        options = ["-I", "-S", "-W", "ignore", "-X", "utf8"]
        command = [self._interpreter.program, *options, "-c", source, modules, str(processes)]
        try:
            jail = self._open_jail(self._narrow_policy())
        except PolicyError as problem:
            # Such a jail has opened here before: but for its limits, it is about what is there now.
            if isinstance(problem, PolicyUnsupported) and (problem.field or "").startswith(
                "limits."
            ):
                raise
            raise EnvironmentNotBuilt(f"what {self._request.label} installs: {problem}") from None
        with jail:
            self._run(jail, command, "the compiler of Python")

    def _is_hashed(self, jail: Jail, name: str) -> bool:
        if self._request.hashed is not None:
            return self._request.hashed
        text = self._read(jail, name).decode("utf-8", "replace").replace("\\\n", " ")
        return all("--hash=" in line for line in text.splitlines() if line.strip())

    def _read(self, jail: Jail, name: str) -> bytes:
        # By the jail's own rights: a build of a package may have put a link there.
        return jail.read_bytes(os.path.join(self._folder, name), max_bytes=_MAX_LOCKED)

    def _refuse_variables(self, jail: Jail, name: str) -> None:
        """Refuse requirements with a variable in them, which uv would fill in as it reads them."""
        if VARIABLE.search(self._read(jail, name).decode("utf-8", "replace")):
            raise EnvironmentNotBuilt(
                f"what {self._request.label} asks for names a variable of the environment (${{...}}), "
                "which uv would put in; lock anew, or leave out the package that asks for it"
            )

    def _call(self, jail: Jail, arguments: list[str], *, asks: bool = False) -> None:
        """Run uv; *asks* says that it is to ask the index, which it is then told."""
        configuration = settings(self._sources.index) if asks else b""
        given = ["--config-file", "/dev/stdin"] if configuration else []
        self._run(jail, [self._uv, *arguments, *given], f"uv {arguments[0]}", configuration)

    def _run(self, jail: Jail, command: list[str], name: str, given: bytes = b"") -> None:
        left = max(self._deadline - time.monotonic(), 0.1)
        result = jail.run(command, input=given, cwd=self._folder, timeout=left)
        text = shown(result.stderr, self._secrets(jail.policy.env))[-_MAX_TEXT:].strip()
        if result.exit_code == 0:
            for line in text.splitlines():
                self._progress(line)
            return
        if any(found.kind == "limits.memory" for found in result.violations):
            raise EnvironmentNotBuilt(
                f"building {self._request.label} took more than the {jail.policy.limits.memory} "
                "bytes of memory that it may have; limits=Limits(memory=...) lets it have more",
                output=text,
            )
        ended = f"signal {result.signal}" if result.exit_code is None else result.exit_code
        raise EnvironmentNotBuilt(
            f"{name} ended with {ended} for {self._request.label}: "
            f"{_in_short(text)}{self._fix(text)}",
            output=text,
        )

    def _secrets(self, variables: Mapping[str, str | Secret]) -> set[str]:
        """Return what no message shows: the credentials in the addresses of index and proxies."""
        given = {*secrets_of(variables), self._sources.index or ""}
        return {part for text in given for part in credentials(text)} | self._asked

    def _fix(self, text: str) -> str:
        """Say what would help, as far as the words of uv tell."""
        lower = text.lower()
        if "--require-hashes" in lower:
            return (
                '; hashes="resolve" (--hashes resolve) takes those that the wheelhouse or index gives, '
                "and holds the environment to them from then on"
            )
        if "no usable wheels" in lower or ("source" in lower and "is disabled" in lower):
            return (
                "; only wheels are installed, since anything else runs its own code to be built; "
                "wheels_only=False (--allow-builds) lets it, in the jail of the build"
            )
        if self._sources.index is None and any(word in lower for word in _NOT_FETCHED):
            return (
                '; nothing was fetched, since no index was given: index="default" (--index default) '
                "lets the build reach one, wheelhouse= (--wheelhouse DIR) is a folder of wheels"
            )
        return ""

    def _policy(self) -> JailPolicy:
        from visruntime._policy.paths import escape
        from visruntime.policy import Egress

        sources = self._sources
        read = [self._uv, *sources.wheelhouses]
        environment = variables(self._make_cache(), sources.index)
        if self._shared is not None:
            read.append(self._shared)
            environment["UV_LINK_MODE"] = "copy"  # there are no links across two mounts
        if sources.index is not None:
            read += certificates()
        return self._narrow_policy().replace(
            read=[escape(path) for path in dict.fromkeys(read)],
            env=environment,
            egress=Egress.OFF if sources.index is None else Egress.OPEN,
        )

    def _narrow_policy(self) -> JailPolicy:
        """Return the policy of a jail with the folder of the build and nothing else."""
        from visruntime._policy.paths import escape
        from visruntime.policy import JailPolicy

        return JailPolicy(
            write=[escape(self._folder)],
            limits=(self._limits or _build_limits()).replace(wall_seconds=self._seconds),
        )

    def _make_cache(self) -> str:
        """Make the cache of this build: empty, but for links to the user's own, read-only there."""
        shared: list[os.DirEntry[str]] = []
        if self._shared is not None:
            with os.scandir(self._shared) as entries:
                shared += (entry for entry in entries if entry.name.startswith(_SHARED))
        with folder_at(self._folder) as folder:
            os.mkdir("cache", 0o700, dir_fd=folder)
            with folder_below("cache", folder) as cache:
                for entry in shared:
                    if entry.is_dir(follow_symlinks=False):
                        os.symlink(entry.path, entry.name, dir_fd=cache)
        return os.path.join(self._folder, "cache")


def _build_limits() -> Limits:
    from visruntime.policy import Limits

    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Limits(
        memory=min(BUILD_MEMORY, machine // 2), processes=BUILD_PROCESSES, scratch=BUILD_SCRATCH
    )


def _in_short(text: str) -> str:
    """Return what uv said in one line, without the marks of its layout."""
    lines = [" ".join(line.split()) for line in text.splitlines()]
    first = next((i for i, line in enumerate(lines) if line.startswith("error")), 0)
    said = " ".join(line for line in lines[first:] if line and not line.startswith("hint:"))
    return said[:_MAX_SHORT].rstrip(".") or "it said nothing"
