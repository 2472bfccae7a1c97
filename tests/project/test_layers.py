"""An import points down only: faces, runtime, jail, base, and the compiled modules below."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

import visruntime

pytestmark = pytest.mark.one_uid

ROOT = Path(visruntime.__file__).parent

# Highest first. A module may import from its own layer and those below it.
LAYERS = {
    "faces": (
        "cli", "confinement", "doctor", "_doctor_probes", "_doctor_windows", "_doctor_macos",
        "_tls_explain",
        "integrations", "_pyinstaller", "__main__", "__init__",
    ),
    "state": ("state",),
    "runtime": (
        "runtime", "_runtime", "callbacks", "_callbacks", "displays", "aio", "executor",
        "environments", "packages", "_packages", "results", "worker", "_worker", "processes", "elf",
        "denials", "pool", "bundle", "_bundle",
    ),
    "jail": ("jail", "_jail", "windows", "_windows", "network", "events"),
    "base": (
        "_arguments", "errors", "policy", "_policy", "config", "_config", "protocol", "_host",
        "_native", "_owned", "_tls_certificates",
    ),
}  # fmt: skip
ORDER = list(LAYERS)
COMPILED = ("_visjail", "_viscore")
ALLOWED_OUTSIDE = {"cffi"}
# Part of Python only since the version that is asked for before they are imported.
ALLOWED_LATER = {"annotationlib"}
# Extras: imported when they are first needed, and by whom alone.
ALLOWED_EXTRAS = {
    ("_runtime.executor_task", "cloudpickle"),
    ("_pyinstaller.hook-visruntime", "PyInstaller"),  # which runs it, and nobody imports it
}
ALLOWED_IN_AIO = {"anyio"}  # of the extra of that name
# Used only where the guest has them: matplotlib asks for a backend, arrays become what numpy has.
ALLOWED_IN_GUEST = {
    ("guest.figures", "matplotlib"),
    ("guest.arrays", "numpy"),
    ("guest.arrays", "pyarrow"),
    ("guest.console", "_visconsole"),  # of builds for Windows
}


def layer_of(module: str) -> str | None:
    """Return the layer of *module*, named without ``visruntime.``."""
    top = module.partition(".")[0]
    for layer, names in LAYERS.items():
        if top in names:
            return layer
    return None


def modules() -> list[tuple[str, Path]]:
    """Return (name without ``visruntime.``, file) of each module of the package."""
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[-1] == "__init__" and len(parts) > 1:
            parts = parts[:-1]
        found.append((".".join(parts), path))
    return found


def imports(module: str, path: Path, source: str) -> list[str]:
    """Return the full names that *source* imports, those for type checkers left out."""
    tree = ast.parse(source)
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
        for statement in node.body
        for inner in ast.walk(statement)
    }
    package = ["visruntime", *module.split(".")]
    if path.name != "__init__.py":
        package = package[:-1]
    elif module == "__init__":
        package = ["visruntime"]
    names = []
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                stem = package[: len(package) - node.level + 1]
                base = ".".join([*stem, base] if base else stem)
            whole = base == "visruntime" or (node.level and not node.module)
            names += [f"{base}.{alias.name}" for alias in node.names] if whole else [base]
    return names


def wrong_imports(module: str, path: Path, source: str) -> list[str]:
    """Return what is wrong with the imports of one module."""
    wrong = []
    inside = module.partition(".")[0] == "guest"
    mine = None if inside else layer_of(module)
    if mine is None and not inside and module not in COMPILED:
        return [f"{module} has no layer"]
    for name in imports(module, path, source):
        top, _, rest = name.partition(".")
        if top != "visruntime":
            # In a worker the compiled core is a builtin module of the interpreter itself.
            builtin = inside and top == "_viscore"
            if (module, top) in ALLOWED_IN_GUEST | ALLOWED_EXTRAS:
                continue
            if module.partition(".")[0] == "aio" and top in ALLOWED_IN_AIO:
                continue
            if top not in sys.stdlib_module_names | ALLOWED_OUTSIDE | ALLOWED_LATER and not builtin:
                wrong.append(f"{module} imports {name}, which is no part of Python")
            continue
        target = rest.partition(".")[0]
        if inside:
            if target not in ("guest", *COMPILED):
                wrong.append(f"{module} runs in workers and imports {name}")
        elif target in COMPILED:
            if module.partition(".")[0] != "_native":
                wrong.append(f"{module} imports {name}; only _native may")
        elif target == "guest":
            continue
        elif target:
            theirs = layer_of(target)
            if theirs is None:
                wrong.append(f"{module} imports {name}, which has no layer")
            elif ORDER.index(theirs) < ORDER.index(str(mine)):
                wrong.append(f"{module} ({mine}) imports {name} ({theirs}), which is above it")
    return wrong


def test_imports_point_down_only() -> None:
    """No module may import from a layer above its own, nor C past the seam."""
    found = modules()
    assert len(found) > 15
    assert [
        w for module, path in found for w in wrong_imports(module, path, path.read_text())
    ] == []


def test_the_check_sees_each_kind_of_wrong_import() -> None:
    """The check itself must fail on what it is there for."""
    path = ROOT / "x.py"
    for module, source in (
        ("policy", "from visruntime.jail import Jail"),
        ("policy", "def f():\n    from .runtime import Runtime"),
        ("jail", "import visruntime.runtime"),
        ("jail", "from . import cli"),
        ("jail", "from visruntime import _visjail"),
        ("runtime", "from visruntime._viscore import encode"),
        ("guest.session", "from visruntime.errors import VisRuntimeError"),
        ("guest.session", "from ..protocol import Frame"),
        ("jail", "import numpy"),
        ("unheard_of", "import os"),
    ):
        assert wrong_imports(module, path, source), (module, source)
    for module, source in (
        ("cli.run", "from visruntime.runtime import Runtime"),
        ("jail", "if TYPE_CHECKING:\n    from visruntime.runtime import Runtime"),
        ("guest.session", "from .frames import Frame\nimport os"),
        ("_native", "from visruntime import _viscore"),
    ):
        assert wrong_imports(module, path, source) == [], (module, source)


def test_importing_every_module_of_the_base_needs_no_higher_layer() -> None:
    """The list of layers must name modules that exist, so that it cannot rot unseen."""
    present = {module.partition(".")[0] for module, _ in modules()}
    for name in LAYERS["base"]:
        assert name in present, name
