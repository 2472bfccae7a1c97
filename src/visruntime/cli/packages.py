"""The flags of ``run`` that give a script its packages, and the environment that they make."""

from __future__ import annotations

import os
import sys

from visruntime._policy.paths import resolve_beside
from visruntime.cli.messages import Refusal, complain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from visruntime.cli.flags import Parser
    from visruntime.cli.parser import Options
    from visruntime.packages import Environment

__all__ = ["add_flags", "environment_of", "say_missing"]

_LISTS = (
    ("with", "REQUIREMENT", "a package to have, such as 'requests>=2'"),
    ("extra", "NAME", "with --project: optional dependencies to have too"),
    ("group", "NAME", "with --project: a dependency group to have too, such as dev"),
    ("wheelhouse", "DIR", "take packages from this folder of wheels"),
)


def add_flags(parser: Parser) -> None:
    """Add the flags about packages to *parser*."""
    parser.flag("--project", metavar="DIR", help="have the packages of DIR/uv.lock, built by uv")
    for name, metavar, text in _LISTS:
        parser.flag(f"--{name}", metavar=metavar, action="append", default=[], help=text)
    parser.flag(
        "--index",
        metavar="default|URL",
        help="let the build of packages reach this index; without, it has no network",
    )
    parser.flag(
        "--hashes",
        metavar="required|resolve",
        help="resolve takes missing hashes from the wheelhouse or index, once; so do --with and a "
        "script's metadata",
    )
    parser.flag(
        "--allow-builds",
        action="store_true",
        help="take packages without wheels too: their code runs in the jail of the build",
    )
    parser.flag(
        "--quiet", action="store_true", help="say nothing of what is built, on a terminal neither"
    )


def environment_of(options: Options, program: Any) -> Environment | None:
    """Return the environment that the flags, or the metadata of *program*'s script, ask for.

    Raises:
        Refusal: flags that do not go together.
        PolicyError: as `Environment`.
    """
    packages = getattr(options, "with")
    if options.hashes not in (None, "required", "resolve"):
        raise Refusal(f"--hashes: required or resolve, not {options.hashes!a}")
    if options.index is not None:
        from visruntime._packages.uv import check_index

        check_index(options.index)
    if options.project and packages:
        raise Refusal(
            f"--with does not go with --project; add it there: uv add --project {options.project!a}"
        )
    if not options.project and (options.extra or options.group):
        raise Refusal("--extra and --group go with --project")
    here = os.getcwd()
    if options.project:
        from visruntime.packages import Environment

        return Environment.from_project(
            resolve_beside(options.project, here, "--project"),
            extras=options.extra,
            groups=options.group,
            **_build_options(options, "required"),
        )
    source = program.source if program.kind in ("file", "code") else b""
    if not packages and (b"# ///" not in source or _is_in_venv(options.python)):
        _say_unused(options)
        return None
    from visruntime._packages.request import PACKAGE, of_script
    from visruntime.packages import Environment

    path = program.path if program.kind == "file" else None
    request = of_script(source, path, packages)
    if request is None:
        _say_unused(options)
        return None
    if packages:
        request.add = f"--with {PACKAGE}"
    return Environment(request, **_build_options(options, "resolve"))


def say_missing(runtime: Any, module: str) -> None:
    """Say how the guest would have *module*, whose import it claims to have failed at."""
    if not module.isidentifier() or len(module) > 100:
        return
    if module in sys.stdlib_module_names:
        complain(f"{module} is of the standard library, and this interpreter has it not")
    elif runtime._environment is None:
        from visruntime._runtime.missing import package_of

        package, guess = package_of(module)
        complain(
            f"this interpreter has no {module}: add --with {package} (and --index default, where "
            f"it is to come from the package index), or --project DIR{guess}"
        )
    else:
        complain(runtime._how_to_add(module))


def _say_unused(options: Options) -> None:
    """Say which flags do nothing where no package is asked for."""
    given = [
        f"--{name.replace('_', '-')}"
        for name in ("index", "hashes", "wheelhouse", "allow_builds")
        if getattr(options, name)
    ]
    if given:
        complain(
            f"{', '.join(given)}: nothing is built here; packages are asked for by --with, "
            "--project or a script's metadata"
        )


def _build_options(options: Options, hashes: str) -> dict[str, Any]:
    here = os.getcwd()
    return {
        "python": options.python,
        "index": options.index,
        "wheelhouse": [resolve_beside(path, here, "--wheelhouse") for path in options.wheelhouse],
        "hashes": options.hashes or hashes,
        "wheels_only": not options.allow_builds,
        "progress": complain if os.isatty(2) and not options.quiet else None,
    }


def _is_in_venv(python: str | None) -> bool:
    """Whether the user chose an environment, whose packages then are the script's."""
    if python is None:
        return False
    folder = os.path.dirname(os.path.dirname(os.path.abspath(python)))
    return os.path.isfile(os.path.join(folder, "pyvenv.cfg"))
