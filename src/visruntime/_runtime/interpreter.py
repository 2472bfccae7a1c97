"""Which interpreter a jailed worker gets, asked in a jail where the host does not know it."""

from __future__ import annotations

import os

from visruntime._arguments import check_path
from visruntime._jail.state_folder import state_folder
from visruntime._policy.links import Resolver
from visruntime._policy.paths import is_within, visible
from visruntime._runtime.missing import package_of
from visruntime._worker.conversation import START_SECONDS
from visruntime.environments import find_interpreter
from visruntime.errors import PolicyError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from visruntime.environments import Grant, Interpreter
    from visruntime.packages import Environment

__all__ = ["how_to_add", "jailed_interpreter", "probe_in_jail", "refuse_built"]


def jailed_interpreter(
    python: str | os.PathLike[str] | None,
    environment: str | os.PathLike[str] | Environment | None,
    *,
    write: Sequence[str],
) -> Interpreter:
    """Return how to start *python*, that of a venv, or that of an environment, built if need be.

    Raises:
        PolicyError: as `find_interpreter`, and as `Environment.build`.
        EnvironmentNotBuilt: uv could not make the environment.
    """
    if environment is None or isinstance(environment, (str, os.PathLike)):
        return find_interpreter(
            python, environment=environment, write=write, probe=probe_in_jail, remember=True
        )
    from visruntime.packages import Environment

    if not isinstance(environment, Environment):
        raise TypeError(
            f"environment: a folder or an Environment, not {type(environment).__name__}"
        )
    if python is not None:
        raise PolicyError(
            "give python= to the Environment, whose packages are for one interpreter",
            field="python",
        )
    return environment._build(write, probe_in_jail).interpreter


def refuse_built(environment: object, python: str | os.PathLike[str] | None = None) -> None:
    """Refuse what a build has left for a worker without a jail: an `Environment`, or its folder.

    Its packages were unpacked or built by what ran in a jail, and the host runs none of that.
    """
    if environment is not None and not isinstance(environment, (str, os.PathLike)):
        raise PolicyError(
            "environment: what a build has left runs in jails only; give TrustedRuntime the folder "
            "of a venv that you made yourself",
            field="environment",
        )
    if environment is not None:
        folder = check_path(environment, "environment")
        _refuse_kept("environment", os.path.join(folder, "bin", "python"))
    if python is not None:
        _refuse_kept("python", check_path(python, "python"))


def _refuse_kept(field: str, path: str) -> None:
    """Refuse a *path* that lies in, or leads through, the folder of built environments."""
    name = os.path.abspath(path)
    state = os.path.abspath(state_folder())
    with Resolver() as resolver:
        kept = (state, resolver(state))
        # An interpreter finds its packages by its names on the way, not by its real path alone.
        passed = [name, resolver(name), *(link for link, _ in resolver.links[name])]
    if any(is_within(place, folder) for place in passed for folder in kept):
        raise PolicyError(
            f"{field}: {visible(name)} lies in {visible(state)}, where builds have left what they "
            "made; it runs in jails only: give TrustedRuntime the folder of a venv that you made "
            "yourself",
            field=field,
            value=name,
        )


def how_to_add(environment: str | os.PathLike[str] | Environment | None, module: str) -> str:
    """Say how a worker of *environment* would have *module*; a text for people."""
    package, guess = package_of(module)
    if environment is None:
        return (
            f"this worker has no {module}: give it an environment with the package, such as "
            f'environment=vr.Environment.from_requirements(["{package}"], hashes="resolve", ...)'
            f"{guess}"
        )
    if isinstance(environment, (str, os.PathLike)):
        folder = os.fspath(environment)
        return f"{folder} has no {module}: uv pip install --python {folder} {package}{guess}"
    return environment.how_to_add(module)


def probe_in_jail(argv: list[str], grants: Sequence[Grant], data: bytes) -> tuple[int, bytes]:
    """Ask a foreign interpreter in a jail that lets it read itself and nothing else."""
    from visruntime.jail import Jail
    from visruntime.policy import JailPolicy

    with Jail(JailPolicy(), implicit_read=grants) as jail:
        result = jail.run(argv, input=data, timeout=START_SECONDS)
    code = result.exit_code
    return (128 + (result.signal or 0) if code is None else code), result.stdout
