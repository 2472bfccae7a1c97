"""Have a worker see code that has changed on disk: by a new worker, or by importing it anew.

A module that is imported anew is another module: what was made of the old one (instances, names
in other modules, functions that were handed somewhere) goes on with the old code. That cannot be
helped, so it is said: `Reloaded.kept` names who still refers to what.
"""

from __future__ import annotations

import errno
import os

from visruntime._arguments import check_list, check_path, check_word
from visruntime._runtime.traceback import printable
from visruntime.errors import ProtocolViolation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

__all__ = ["Reloaded", "reload", "reload_modules"]

MOST_ENTRIES = 1000
"""Most entries of each kind that are told."""
MOST_CHARACTERS = 300
"""Of one entry."""

GUEST = '''
def reload(roots, session, most):
    """Import anew what was imported from below *roots*; say what did, what failed, what is left."""
    import gc, importlib, linecache, os, sys, types

    # A module lies below the folder as it was named, or where that leads to in here.
    roots = [way.rstrip("/") for root in roots for way in {root, os.path.realpath(root)}]
    code = (types.FunctionType, type)
    own = ("__main__", session["__name__"])

    def is_inside(module):
        places = [getattr(module, "__file__", None), *(getattr(module, "__path__", None) or ())]
        return any(
            isinstance(place, str) and place.startswith(root + "/")
            for place in places for root in roots
        )

    old = {
        name: module for name, module in list(sys.modules.items())
        if isinstance(module, types.ModuleType) and name not in own and is_inside(module)
    }
    for name in old:
        del sys.modules[name]
    importlib.invalidate_caches()
    linecache.checkcache()
    failed = {}
    for name in list(old):
        try:
            importlib.import_module(name)
        except Exception as error:
            failed[name] = f"{type(error).__name__}: {error}"
    for name in failed:
        sys.modules[name] = old[name]
        del old[name]
    new = {name: sys.modules[name] for name in old}
    # Names of the session follow, where the new module has something of that name.
    rebound = []
    for name, value in list(session.items()):
        place = getattr(value, "__module__", None)
        if isinstance(value, types.ModuleType) and old.get(value.__name__) is value:
            successor = new.get(value.__name__)
        elif isinstance(value, code) and place in new:
            inner = value.__qualname__
            same = vars(old[place]).get(inner) is value
            successor = vars(new[place]).get(inner) if same else None
        else:
            continue
        if successor is not None and successor is not value:
            session[name] = successor
            rebound.append(name)
    kept = find_old(old, session, code)
    return [list(new)[:most], [[*pair] for pair in failed.items()][:most], rebound[:most], kept[:most]]


def find_old(old, session, code):
    """Say who still refers to the modules in *old*, or to their functions and classes."""
    import gc, sys, types

    gc.collect()
    labels, objects, inner = {}, [], [old, old.values()]
    for name, module in old.items():
        labels[id(module)] = name
        objects.append(module)
        inner.append(vars(module))
        for key, value in list(vars(module).items()):
            if isinstance(value, code) and value.__module__ == name:
                labels[id(value)] = f"{name}.{key}"
                objects.append(value)
                if isinstance(value, type):
                    inner.append(value.__mro__)
                    for member in vars(value).values():
                        # A method that uses super() has its class in a cell.
                        inner += [member, *(getattr(member, "__closure__", None) or ())]
    ignored = {id(part) for part in (inner, objects, labels, *inner)}
    homes = {id(vars(m)): n for n, m in list(sys.modules.items()) if isinstance(m, types.ModuleType)}
    names = {id(value): name for name, value in session.items()}
    kept = []
    for referrer in gc.get_referrers(*objects):
        if id(referrer) in ignored or isinstance(referrer, (types.FrameType, types.CellType)):
            continue
        if type(referrer) is tuple and list(map(id, referrer)) == list(map(id, objects)):
            continue  # the arguments of this very call
        for target in {id(t): t for t in gc.get_referents(referrer) if id(t) in labels}.values():
            label = labels[id(target)]
            if isinstance(referrer, types.GetSetDescriptorType) or id(referrer) in labels:
                continue  # a part of the old code itself
            kept += describe(referrer, target, label, session, homes, names)
    return sorted(set(kept))


def describe(referrer, target, label, session, homes, names):
    if referrer is session:
        return [f"the name {k} is the old {label}" for k, v in session.items() if v is target]
    if isinstance(referrer, dict):
        keys = [key for key, value in referrer.items() if value is target]
        home = homes.get(id(referrer))
        if home is not None:
            return [f"{home}.{key} is the old {label}" for key in keys]
        return [f"a dict has the old {label} at {str(key)[:50]!r}" for key in keys]
    bound = names.get(id(referrer))
    where = f"the name {bound}" if bound is not None else None
    if type(referrer) is target:
        return [f"{where or 'an object'} is of the old class {label}"]
    if isinstance(referrer, type):
        return [f"the class {referrer.__module__}.{referrer.__qualname__} is made of the old {label}"]
    return [f"{where or 'a ' + type(referrer).__name__} holds the old {label}"]
'''
"""What runs in the worker. All that it returns is the guest's claim."""


class Reloaded:
    """What became of a reload; but for ``worker`` all of it is the guest's claim.

    ``worker`` says that the next call gets a new worker, in which nothing old is left. Otherwise
    ``modules`` were imported anew, ``failed`` were not (name to reason; the old ones stay),
    ``rebound`` are names of the session that lead to the new code now, and ``kept`` says in a
    sentence each who still refers to old code.
    """

    __slots__ = ("failed", "kept", "modules", "rebound", "worker")

    def __init__(
        self,
        *,
        worker: bool,
        modules: tuple[str, ...] = (),
        failed: dict[str, str] | None = None,
        rebound: tuple[str, ...] = (),
        kept: tuple[str, ...] = (),
    ) -> None:
        self.worker: bool = worker
        self.modules: tuple[str, ...] = modules
        self.failed: dict[str, str] = failed or {}
        self.rebound: tuple[str, ...] = rebound
        self.kept: tuple[str, ...] = kept

    def __repr__(self) -> str:
        if self.worker:
            return "Reloaded(worker)"
        return (
            f"Reloaded({len(self.modules)} modules, {len(self.failed)} failed, "
            f"{len(self.kept)} old references kept)"
        )


def reload(
    how: str,
    paths: object,
    evaluate: Callable[[str], Any],
    sources: Sequence[str],
    end_worker: Callable[[], None],
) -> Reloaded:
    """Carry out `Runtime.reload`, where the environment of the worker has *sources*.

    Raises:
        TypeError, ValueError: an argument is wrong; the message names it.
        FileNotFoundError: the worker sees no such folder.
    """
    given = _check_paths(paths)
    if check_word(how, "how", ("worker", "modules")) == "worker":
        if given:
            raise ValueError('paths: a new worker has nothing old; they go with how="modules"')
        end_worker()
        return Reloaded(worker=True)
    if not given and not sources:
        raise ValueError("paths: name the folders of the code that is to be imported anew")
    _require_seen(evaluate, given)
    return reload_modules(evaluate, given or sources)


def _check_paths(paths: object) -> list[str]:
    """Return the folders of source that ``paths=`` names.

    Raises:
        TypeError: a single path, where a list is needed.
    """
    return [
        check_path(path, f"paths[{index}]")
        for index, path in enumerate(check_list(paths, "paths", '["src"]'))
    ]


def _require_seen(evaluate: Callable[[str], Any], paths: Sequence[str]) -> None:
    """Check that *paths* are folders for the worker of *evaluate*, which may have its own /tmp.

    Raises:
        FileNotFoundError: it says of one that it is none, so nothing was imported from there.
    """
    for path in paths:
        root = os.path.abspath(path)
        if evaluate(f"__import__('os').path.isdir({root!r})") is not True:
            text = "paths: the worker sees no such folder; correct the path, or grant reading it"
            raise FileNotFoundError(errno.ENOENT, text, root)


def reload_modules(evaluate: Callable[[str], Any], paths: Sequence[str]) -> Reloaded:
    """Import anew, in the worker of *evaluate*, what it imported from below *paths*.

    Raises:
        GuestError: the worker could not do it.
        ProtocolViolation: it says nonsense.
    """
    # Links are for the worker to follow: it may have made them, and only what it may see itself
    # is to be told to it.
    roots = [os.path.abspath(path) for path in paths]
    # In a namespace of its own, so that no name of the session is touched but on purpose.
    value = evaluate(
        f"(lambda own, session: (exec({GUEST!r}, own), "
        f"own['reload']({roots!r}, session, {MOST_ENTRIES}))[1])({{}}, globals())"
    )
    try:
        modules, failed, rebound, kept = value
        return Reloaded(
            worker=False,
            modules=_texts(modules),
            failed=dict(_pair(claim) for claim in failed),
            rebound=_texts(rebound),
            kept=_texts(kept),
        )
    except (TypeError, ValueError):
        raise ProtocolViolation("the worker's account of a reload makes no sense") from None


def _pair(claim: Any) -> tuple[str, str]:
    first, second = _texts(claim)
    return first, second


def _texts(claim: Any) -> tuple[str, ...]:
    if not isinstance(claim, (list, tuple)) or len(claim) > MOST_ENTRIES:
        raise TypeError
    if not all(isinstance(text, str) for text in claim):
        raise TypeError
    return tuple(printable(text[:MOST_CHARACTERS]) for text in claim)
