"""The documentation site: its menus, the pages made from headers, and the look at its links."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zlib
from typing import TYPE_CHECKING

import build_docs
import generate_api_reference
import pytest
import readme
from website import (
    c_header,
    c_reference,
    cli_reference,
    inventory,
    links,
    navigation,
    python_reference,
)

import visruntime
from visruntime.cli.main import COMMANDS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.one_uid

# Looks at pages in a frame of 390 points, and says how wide the widest is, or which ones are wider.
LOOK = """<pre></pre><script>
(async () => {
    const wide = [], names = %s;
    for (const name of names) {
        const frame = document.createElement("iframe");
        frame.width = 390;
        frame.height = 844;
        frame.style.border = 0;
        document.body.append(frame);
        await new Promise((loaded) => {
            frame.onload = loaded;
            frame.src = "file://%s/" + name;
        });
        const width = frame.contentDocument.documentElement.scrollWidth;
        if (width > 390) wide.push(name + " " + width);
        frame.remove();
    }
    const told = ["wide:", ...(wide.length ? wide : ["390"]), "seen:", names.length];
    document.querySelector("pre").textContent = told.join(" ");
})();
</script>"""
INDEX = """# Name

What it is,
in a sentence.

## Ask

* [One](a.md#one) is no page of its own.

## Read

* [A](a.md): the first page,
  on two lines.
* [B](../B.md): the second.
"""


def test_menus_are_what_the_index_lists() -> None:
    """No page is in a menu that the index does not have, and no link into a page makes one."""
    (section,) = navigation.sections(INDEX, "doc/index.md")
    assert section.title == "Read"
    assert [entry.path for entry in section.entries] == ["doc/a.md", "B.md"]
    assert section.entries[0].about == "the first page, on two lines."
    menus = navigation.with_menus(INDEX, "doc/index.md").removeprefix(INDEX)
    assert menus == "\n```{toctree}\n:hidden:\n:caption: Read\n\nA </doc/a>\nB </B>\n```\n"


def test_llms_txt_leads_to_the_sources() -> None:
    """A program that reads the list finds the Markdown of each page, and what it is about."""
    text = navigation.llms(INDEX, "doc/index.md", "sources/{path}")
    assert text.startswith("# Name\n\n> What it is, in a sentence.\n\n## Read\n")
    assert "- [A](sources/doc/a.md): the first page, on two lines.\n" in text
    assert text.endswith("- [B](sources/B.md): the second.\n")


def test_names_of_python_need_no_network() -> None:
    """The inventory that is made has the lines that Sphinx reads; a wrong line is refused."""
    data = inventory.inventory("Python", "3", "# why\n\nopen py:function f.html#open\n")
    head, _, packed = data.partition(b"zlib.\n")
    assert b"# Project: Python\n# Version: 3\n" in head
    assert zlib.decompress(packed) == b"open py:function 1 f.html#open -\n"
    with pytest.raises(ValueError, match="unpack"):
        inventory.inventory("Python", "3", "open\n")


HEADER = """\
// A header.
//
// More of it.
#ifndef X_H
#define X_H

#include <stdint.h>

// Remark on nothing.

#define X_MOST 3u // of them

enum {
    X_A_ONE = 1, // one
    X_A_TWO,
};

// What it holds.
typedef struct {
    int a; // a

    int b;
} x_pair;

// Two that belong together.
void x_open(const x_pair *pair,
            int flag);
int *x_close(void); // late
// Another.
static inline int x_inline(int a) {
    return a;
}

#endif
"""


def test_a_header_is_read_as_it_is_written() -> None:
    """No declaration loses its comment to its neighbour, or a part of its text."""
    header = c_header.read("x.h", HEADER)
    assert header.about == "A header.\n\nMore of it."
    found = [(comment, [(i.kind, i.name) for i in items]) for comment, items in header.groups]
    assert found == [
        ("Remark on nothing.", []),
        ("", [("macro", "X_MOST")]),
        ("", [("enumerators", "X_A_*")]),
        ("What it holds.", [("type", "x_pair")]),
        ("Two that belong together.", [("function", "x_open"), ("function", "x_close")]),
        ("Another.", [("function", "x_inline")]),
    ]
    texts = [item.text for _, items in header.groups for item in items]
    assert texts[2].endswith("    int b;\n} x_pair;")
    assert texts[3] == "void x_open(const x_pair *pair,\n            int flag);"
    with pytest.raises(ValueError, match="neither a macro"):
        c_header.read("x.h", "// A.\n#ifndef X_H\n\nextern int x;\n")


def test_the_c_page_has_every_exported_function() -> None:
    """No function of the headers is missing from the page, in either of its two forms."""
    declared = set()
    for name in c_reference.HEADERS:
        text = re.sub(r"//.*", "", (c_reference.FOLDER / name).read_text())
        declared |= set(re.findall(r"^[\w ]+?\**(vj_\w+)\(", text, re.MULTILINE))
    assert {"vj_jail_open", "vj_run_wait", "vj_policy_compile", "vj_plan_check"} <= declared
    assert set(re.findall(r"\*?(vj_\w+)\(", c_reference.markdown())) >= declared
    directives = re.findall(r"c:function:: .*?(vj_\w+)\(", c_reference.for_site())
    assert sorted(directives) == sorted(declared)


def test_the_python_page_has_every_public_name() -> None:
    """No public name, and none of the classes that are met in results, is missing on the site."""
    page = python_reference.for_site()
    for name in visruntime.__all__:
        assert re.search(rf"^\.\. auto(class|function):: visruntime\.{name}$", page, re.MULTILINE)
    for name in ("visruntime.aio.AsyncJail", *generate_api_reference.RETURNED):
        assert f".. autoclass:: {name}\n" in page
    assert python_reference.shortcuts()["Runtime.run"] == "visruntime.Runtime.run"


def test_the_page_of_the_command_line_has_every_command() -> None:
    """No sub-command is missing, no option, and nothing in the help becomes markup."""
    page = cli_reference.markdown()
    for name in COMMANDS:
        assert f"\n## visruntime {name}\n\n```text\nvisruntime {name} [OPTIONS]" in page
    assert "\n* `--read P`: let the guest read and execute P" in page
    assert "(`src/**/*.py`)\n" in page
    assert "; see `--memory-by`\n" in page
    outside = re.sub(r"```.*?```|`[^`\n]*`|^\* ", "", page, flags=re.DOTALL | re.MULTILINE)
    assert "*" not in outside
    assert " --" not in outside


def test_links_that_lead_nowhere_are_found(tmp_path: Path) -> None:
    """No dead link, missing place, foreign script or way out of the site is let pass."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.html").write_text(
        '<h1 id="top">A</h1><a href="sub/b.html#here">b</a><a href="#top">t</a>'
        '<a href="https://example.org/x">far</a><img src="p.svg"><a href="sub/b.html?q=1">b</a>'
    )
    (tmp_path / "p.svg").write_text("<svg/>")
    (tmp_path / "sub" / "b.html").write_text('<p id="here">b</p><a href="../a.html">a</a>')
    assert links.problems(tmp_path) == []
    (tmp_path / "sub" / "b.html").write_text(
        '<a href="../a.html#gone"></a><a href="c.html"></a><a href="../../x.html"></a>'
        '<script src="https://example.org/s.js"></script><a href="http://example.org"></a>'
    )
    assert links.problems(tmp_path) == [
        "a.html: sub/b.html#here: has no such place",
        "sub/b.html: ../a.html#gone: has no such place",
        "sub/b.html: c.html: leads nowhere",
        "sub/b.html: ../../x.html: leads out of the site",
        "sub/b.html: https://example.org/s.js: is loaded from another server",
        "sub/b.html: http://example.org: is not fetched safely",
    ]
    (tmp_path / "sub" / "b.html").write_text('<p id="here">b</p>')
    (tmp_path / "llms.txt").write_text("- [B](sub/b.html): b\n- [C](c.md): c\n")
    assert links.problems(tmp_path) == ["llms.txt: c.md: leads nowhere"]
    assert links.problems(tmp_path / "nothing") == ["there is no page"]


def test_a_site_with_a_warning_is_not_built(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A dead link, a missing heading or an unknown name ends the build; the control passes."""
    (tmp_path / "doc").mkdir()
    (tmp_path / "doc" / "index.md").write_text("# I\n\n## Read\n\n* [A](a.md): a.\n")
    page = tmp_path / "doc" / "a.md"
    page.write_text("# A\n\n[b](index.md#read)\n")
    assert build_docs.build(tmp_path, tmp_path / "good", {}) == 0
    assert capfd.readouterr().err == ""
    wrong = ("[b](b.md)", "[b](index.md#gone)", "```{eval-rst}\n:py:class:`Gone`\n```")
    page.write_text("\n\n".join(["# A", *wrong, ""]))
    assert build_docs.build(tmp_path, tmp_path / "bad", {}) == 1
    warnings = capfd.readouterr().err
    for each in ("target not found: 'b.md'", "'doc/index': 'gone'", "target not found: Gone"):
        assert each in warnings


def test_the_packed_site_is_always_the_same(tmp_path: Path) -> None:
    """Neither times nor modes of this machine are in the packed site."""
    packed = []
    for number, mode in enumerate((0o600, 0o755)):
        site = tmp_path / str(number)
        (site / "sub").mkdir(parents=True)
        (site / "sub" / "a.html").write_text("a")
        (site / "sub" / "a.html").chmod(mode)
        build_docs.archive(site, tmp_path / "out" / f"{number}.tar.gz", "docs")
        packed.append((tmp_path / "out" / f"{number}.tar.gz").read_bytes())
    assert packed[0] == packed[1]


def test_everything_of_the_site_is_pinned_to_this_repository() -> None:
    """The scripts and styles of the site load nothing from elsewhere."""
    for path in (readme.ROOT / "doc" / "site").rglob("*.*"):
        if path.suffix in {".css", ".js", ".html"}:
            assert not re.search(r"https?:|@import", path.read_text()), path


@pytest.mark.skipif(os.environ.get("VIS_FULL") != "1", reason="needs a browser: VIS_FULL=1")
@pytest.mark.timeout(500)
def test_no_page_is_wider_than_a_phone(tmp_path: Path, tool: Callable[[str], str]) -> None:
    """No page of the site has to be pushed sideways on a screen of 390 points."""
    site = tmp_path / "site"
    script = [sys.executable, str(readme.ROOT / "scripts" / "build_docs.py"), "--out", str(site)]
    subprocess.run(script, check=True, stdout=subprocess.DEVNULL, timeout=300)
    names = [str(path.relative_to(site)) for path in site.rglob("*.html")]
    assert len(names) > 30
    (tmp_path / "look.html").write_text(LOOK % (json.dumps(names), site))
    command = [tool("chromium"), "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    command += ["--allow-file-access-from-files", "--virtual-time-budget=60000"]
    shown = subprocess.run(
        [*command, f"--user-data-dir={tmp_path}/profile", f"file://{tmp_path}/look.html"],
        capture_output=True, text=True, check=True, timeout=120,
    ).stdout  # fmt: skip
    told = re.search(r"<pre>(.*?)</pre>", shown, re.DOTALL)
    assert told is not None
    assert told[1].split() == ["wide:", "390", "seen:", str(len(names))]
