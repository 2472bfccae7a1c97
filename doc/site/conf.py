"""The documentation site: Sphinx reads the repository's own Markdown, where it lies.

The source folder is the repository, so that every link between documents works on a forge and on the
site. `scripts/build_docs.py` builds it and then looks at all links. Nothing is fetched.
"""

from __future__ import annotations

import os
import sys
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

import generate_documents  # noqa: E402 (found by the line above)
from website import c_reference, inventory, navigation, platforms, python_reference  # noqa: E402 (as above)

if TYPE_CHECKING:
    from docutils import nodes
    from sphinx.addnodes import pending_xref
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

project = "visruntime"
author = "The visruntime authors"
version = release = installed_version("visruntime")
root_doc = "doc/index"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.intersphinx"]
include_patterns = ["*.md", "doc/**.md"]
exclude_patterns = [".*", "build", "dist", "examples", "native", "scripts", "src", "tests"]

myst_heading_anchors = 4
smartquotes = False  # what looks like an option or a quoted word is one

nitpicky = True
default_role = "py:obj"
autoclass_content = "both"
autodoc_class_signature = "mixed"
autodoc_typehints_format = "short"
autodoc_member_order = "alphabetical"
napoleon_numpy_docstring = False
toc_object_entries = False
nitpick_ignore = [
    # Modules and constants that docstrings name, and that this reference does not describe.
    *(("py:obj", name) for name in ("visruntime.bundle", "PROTECTED_NAMES", "write")),
    *(("py:obj", name) for name in ("PIPE", "STDOUT", "DEVNULL")),
    # Values of an enumeration, described with it.
    *(("py:obj", name) for name in ("OFF", "OPEN", "Egress.OFF", "Egress.OPEN")),
    # Aliases of types that say what they mean where they are used.
    *(
        ("py:class", name)
        for name in ("AnyPath", "AnyRuntime", "Ask", "EventSink", "OutputSink", "Span")
    ),
    # Given to classes that only the package itself makes.
    *(
        ("py:class", name)
        for name in (
            *("Account", "Callbacks", "ExplainAct", "Request"),
            *("_native.NativeError", "_native.Refusal", "_native.RunHandle"),
            *("Attempt", "Explain", "Layer", "RuntimeSession", "WindowsCalls"),
        )
    ),
    # Of pyarrow and anyio, whose documentation says what they are.
    ("py:exc", "pyarrow.ArrowException"),
    *(
        ("py:exc", f"anyio.{name}")
        for name in ("BrokenResourceError", "ClosedResourceError", "EndOfStream")
    ),
]
# Types of C's own headers.
nitpick_ignore_regex = [("c:identifier", r"u?int\d+_t|size_t|bool")]

html_theme = "furo"
html_title = "visruntime"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_extra_path = ["extra"]
html_sourcelink_suffix = ""
html_show_sphinx = False
html_show_copyright = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b6e6e", "color-brand-content": "#0b6e6e"},
    "dark_css_variables": {"color-brand-primary": "#5cc8c0", "color-brand-content": "#5cc8c0"},
}

_PYTHON = "https://docs.python.org/3"
_SHORTCUTS = python_reference.shortcuts()
_SHORTCUTS |= {
    "Path": "pathlib.Path",
    "Future": "concurrent.futures.Future",
    "concurrent.futures._base.Future": "concurrent.futures.Future",
    "concurrent.futures._base.BrokenExecutor": "concurrent.futures.BrokenExecutor",
}


def offer_names(app: Sphinx, config: object) -> None:
    """Give intersphinx its list of Python's names as a file, so that it fetches none."""
    del config
    target = Path(app.doctreedir) / "python.inv"
    target.parent.mkdir(parents=True, exist_ok=True)
    names = (Path(__file__).parent / "python-names.txt").read_text()
    target.write_bytes(inventory.inventory("Python", "3", names))
    app.config.intersphinx_mapping = {"python": (_PYTHON, str(target))}


def prepare(app: Sphinx, docname: str, source: list[str]) -> None:
    """Make the menus of the index, and of both lists of names what can be linked to."""
    del app
    if docname == root_doc:
        source[0] = navigation.with_menus(source[0], f"{root_doc}.md")
    elif docname == "doc/reference/api":
        source[0] = python_reference.for_site()
    elif docname == "doc/reference/c":
        source[0] = c_reference.for_site()
    elif docname == "doc/reference/platforms":
        source[0] = platforms.markdown(generate_documents.records(os.environ.get("VIS_RECORDS")))


def spell_out(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, contnode: nodes.TextElement
) -> nodes.Element | None:
    """Find what a type hint or docstring calls by a shorter or inner name."""
    full = _SHORTCUTS.get(node.get("reftarget", ""))
    if node.get("refdomain") != "py" or full is None or full == node["reftarget"]:
        return None
    node["reftarget"] = full
    found = env.domains.python_domain.resolve_xref(
        env, node["refdoc"], app.builder, "obj", full, node, contnode
    )
    if found is not None:
        return found
    from sphinx.ext.intersphinx import resolve_reference_any_inventory

    return resolve_reference_any_inventory(env, False, node, contnode)


def keep_whole(
    app: Sphinx, what: str, name: str, value: object, options: object, lines: list[str]
) -> None:
    """Keep napoleon from reading what comes before a colon in a property's sentence as its type."""
    del app, name, value, options
    if what == "property":
        lines[:0] = ["..", ""]


def write_llms(app: Sphinx, error: Exception | None) -> None:
    """Put a list of all pages, for programs that read, at the root of the site."""
    if error is None and app.builder.name == "html":
        index = (ROOT / f"{root_doc}.md").read_text()
        text = navigation.llms(index, f"{root_doc}.md", "_sources/{path}")
        (Path(app.outdir) / "llms.txt").write_text(text)


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the parts above."""
    app.connect("config-inited", offer_names)
    app.connect("source-read", prepare)
    app.connect("autodoc-process-docstring", keep_whole, priority=400)
    app.connect("missing-reference", spell_out, priority=400)
    app.connect("build-finished", write_llms)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
