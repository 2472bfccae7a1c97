"""What guests display: formats, updates, figures, tables and pictures, all of it bounded data."""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING, Any

import pytest
from runtime_helpers import runtime

from visruntime import _native
from visruntime.displays import Display, Displays
from visruntime.errors import ProtocolViolation
from visruntime.runtime import TrustedRuntime

if TYPE_CHECKING:
    from runtime_helpers import AnyRuntime

    from visruntime.runtime import RunEvent

pytestmark = pytest.mark.one_uid

__all__ = ["runtime"]  # the fixture is found by its name in this module

FORMATS = """
class Rich:
    def _repr_html_(self): return '<b>x</b>'
    def _repr_markdown_(self): return '**x**'
    def _repr_svg_(self): return '<svg/>'
    def _repr_png_(self): return b'png'
    def _repr_jpeg_(self): raise AssertionError('one raster picture is enough')
    def _repr_json_(self): return {'a': [1, None]}
    def _repr_latex_(self): return None
class Whole:
    def _repr_mimebundle_(self, include=None, exclude=None):
        return {'text/plain': 'chosen', 'application/vnd.x+json': {'b': 2}, 7: 'no', 'x/y': object(),
                'bad\\x1b/type': 'no', 'x' * 101: 'no'}, {'meta': 1}
class Broken:
    def _repr_html_(self): raise KeyError('x')
    def _repr_png_(self): return 'text is fine, too'
    def _repr_json_(self): return {1j}
class Worse:
    def __repr__(self): raise KeyError('x')
display(Rich(), Whole(), Broken(), Worse(), Rich)
"""


def test_every_format_that_an_object_offers(runtime: AnyRuntime) -> None:
    """No format is lost or made up, and one that fails takes no other along."""
    result = runtime.run(FORMATS)
    assert result.error is None, result.error.traceback
    rich, whole, broken, worse, kind = result.displays
    assert rich.formats() == (
        *("text/plain", "text/html", "text/markdown", "image/svg+xml", "image/png"),
        "application/json",
    )
    assert (rich.html, rich.markdown, rich.svg, rich.png) == ("<b>x</b>", "**x**", "<svg/>", b"png")
    assert rich.json == {"a": [1, None]}
    assert "Rich object" in (rich.text or "")
    assert "text/latex" not in rich
    assert dict(whole._contents) == {"text/plain": "chosen", "application/vnd.x+json": '{"b": 2}'}
    assert broken.formats() == ("text/plain", "image/png")
    assert broken.png is None  # text that claims to be a picture is no bytes
    assert worse.text == "<Worse: repr raised KeyError>"
    assert kind.formats() == ("text/plain",)


def test_displays_come_during_the_run_and_are_replaced(runtime: AnyRuntime) -> None:
    """A display is told when it is made; an update replaces it in the result and is told, too."""
    events: list[RunEvent] = []
    result = runtime.run(
        "h = display('first', display_id=True)\n"
        "display('other')\n"
        "h.update('second')\n"
        "display('named', display_id='mine')\n"
        "update_display('renamed', display_id='mine')\n"
        "update_display('nothing to replace', display_id='new')\n"
        "(h.display_id, display('x'))",
        on_event=events.append,
    )
    told = [(e.kind, e.data.text) for e in events if e.kind in {"display", "update"}]
    assert told == [
        ("display", "'first'"),
        ("display", "'other'"),
        ("update", "'second'"),
        ("display", "'named'"),
        ("update", "'renamed'"),
        ("display", "'nothing to replace'"),
        ("display", "'x'"),
    ]
    assert [d.text for d in result.displays] == [
        *("'second'", "'other'", "'renamed'", "'nothing to replace'", "'x'")
    ]
    assert [d.display_id for d in result.displays] == ["display-1", None, "mine", "new", None]
    assert result.value == ("display-1", None)
    # The name lives on in the session; the run that is over is not changed.
    later = runtime.run("h.update('third')")
    assert [d.text for d in later.displays] == ["'third'"]
    assert next(d.text for d in result.displays) == "'second'"


@pytest.mark.parametrize("wrong", ["7", "'x' * 101", "b'x'"])
def test_a_wrong_name_is_an_error_of_the_guest(runtime: AnyRuntime, wrong: str) -> None:
    """The guest learns of its mistake; the worker does not break its protocol."""
    error = runtime.run(f"display(1, display_id={wrong})").error
    assert error is not None
    assert error.type_name in {"TypeError", "ValueError"}
    assert runtime.run("1").value == 1


def test_displays_survive_what_ends_the_run(runtime: AnyRuntime) -> None:
    """What was displayed before an error is there; the value of an eval may display, too."""
    result = runtime.run("display(1); 1/0")
    assert result.error is not None
    assert [d.text for d in result.displays] == ["1"]
    runtime.exec("def f(): display(2); return 3")
    assert runtime.eval("f()") == 3


def test_displays_are_bounded_in_number_and_size() -> None:
    """Displays over the bounds must cost the host nothing but a count, in any order of sizes."""
    with TrustedRuntime() as runtime:
        runtime.run("1")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        result = runtime.run(
            "class Big:\n"
            "    def __repr__(self): return 'big'\n"
            "    def _repr_html_(self): return 'x' * n\n"
            "n = 7_000_000\n"
            "for _ in range(30): display(Big())\n"
            "n = 9_000_000; display(Big())\n"
            "h = display('small', display_id=True)\n"
            "for n in (1_000_000, 7_000_000, 100): h.update(Big())\n"
            "display('y' * 200_000)"
        )
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert result.error is None, result.error.traceback
    assert [d.formats() for d in result.displays[:4]] == [("text/plain", "text/html")] * 4
    assert result.displays[4].formats() == ("text/plain",)  # too large for one
    assert len(result.displays[5]["text/html"]) == 100
    assert len(result.displays[6]["text/plain"]) < 100_100
    assert len(result.displays) == 7
    assert result.displays_dropped == 27
    assert grown < 100_000  # KiB


def frame(**changes: Any) -> bytes:
    """Return the payload of a DISPLAY frame."""
    return _native.encode(
        {"data": {"text/plain": "x"}, "display_id": None, "update": False} | changes
    )


def test_the_keeper_counts_what_it_drops() -> None:
    """Neither many displays nor many updates make the keeper slow or large."""
    kept = Displays()
    for _ in range(1001):
        kept.add(frame(display_id="one"))
    for _ in range(20_000):
        kept.add(frame(display_id="one", update=True))
    assert len(kept.take()) == 1000
    assert kept.dropped == 1
    large = frame(data={"text/plain": "x" * 20_000_000})
    kept = Displays()
    assert kept.add(b"\xff" * 40_000_000) is None  # dropped by its size alone
    kept = Displays()
    assert kept.add(large) is not None
    assert kept.add(large) is None
    assert kept.add(frame(display_id="a", update=True)) is not None


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xff",
        _native.encode(7),
        _native.encode({"data": {}}),
        frame(data=[]),
        frame(data={"a/b": None}),
        frame(data={b"a/b": "x"}),
        frame(data={"a\nb": "x"}),
        frame(data={str(n): "x" for n in range(21)}),
        frame(data={"a/b": [[]] * 500}),
        frame(display_id=1),
        frame(display_id="x" * 101),
        frame(update=None),
        frame(update=True),
    ],
)
def test_displays_of_another_shape_are_violations(payload: bytes) -> None:
    """Nothing of a forged display is kept."""
    kept = Displays()
    with pytest.raises(ProtocolViolation):
        kept.add(payload)
    assert kept.take() == ()


def test_json_of_a_guest_is_parsed_only_when_asked_for() -> None:
    """JSON that is none, or deeper than the parser goes, is a ValueError and no crash."""
    for text in ("{", "[" * 100_000 + "]" * 100_000):
        with pytest.raises(ValueError):  # noqa: PT011 (json's own subclass among them)
            assert Display({"application/json": text}).json
    assert Display({}).json is None


def test_json_of_a_guest_takes_bounded_memory() -> None:
    """Three bytes of JSON become a list of 64: what has too many parts is not parsed."""
    for part in ("[],", "{},", '{"a":1},', "1,"):
        many = "[" + part * (12_000_000 // len(part)) + "1]"
        with pytest.raises(ValueError, match="too many parts"):
            assert Display({"application/json": many}).json
    numbers = "[" + "0.125," * 1_000_000 + "1]"
    assert len(Display({"application/json": numbers}).json) == 1_000_001


def test_bytes_of_a_display_are_text_where_they_can_be() -> None:
    """What is no UTF-8 becomes U+FFFD."""
    assert Display({"text/html": b"\xff"}).html == "\ufffd"


# ---- the libraries ----


@pytest.fixture(scope="module")
def libraries() -> Any:
    """Return a worker that keeps what it has imported."""
    with TrustedRuntime() as running:
        yield running


def test_figures_are_shown_by_show_and_at_the_end(libraries: TrustedRuntime) -> None:
    """A figure is displayed once: by ``plt.show()``, or when the run ends, also by an error."""
    result = libraries.run(
        "import matplotlib.pyplot as plt\n"
        "plt.plot([1, 2]); plt.show()\n"
        "plt.figure(); plt.plot([2, 1]); plt.title('left open')\n"
        "print(plt.get_backend())"
    )
    assert result.error is None, result.error.traceback
    assert [d.formats() for d in result.displays] == [("text/plain", "image/png")] * 2
    assert all((d.png or b"").startswith(b"\x89PNG\r\n\x1a\n") for d in result.displays)
    assert result.displays[0].png != result.displays[1].png
    assert "_visguest.figures" in result.stdout_text
    assert result.stderr == b""
    failed = libraries.run("plt.plot([3, 4]); 1/0")
    assert len(failed.displays) == 1
    assert libraries.run("plt.get_fignums()").value == []
    shown = libraries.run("figure, axes = plt.subplots(); display(figure); plt.close(figure)")
    assert len(shown.displays) == 1
    saved = libraries.run("plt.plot([1]); import io; b = io.BytesIO(); plt.savefig(b); plt.close()")
    assert saved.displays == ()


def test_the_guest_chooses_another_backend() -> None:
    """A guest that wants another backend gets it."""
    with TrustedRuntime(env={"MPLBACKEND": "svg", "PATH": "/usr/bin", "HOME": "/tmp"}) as chosen:
        result = chosen.run("import matplotlib\nmatplotlib.rcParams['backend']")
        assert result.value == "svg"


def test_tables_and_pictures(libraries: TrustedRuntime) -> None:
    """A pandas table comes as text and HTML, a Pillow image as PNG."""
    result = libraries.run(
        "import pandas, PIL.Image\n"
        "display(pandas.DataFrame({'a': [1, 2]}))\n"
        "display(PIL.Image.new('RGB', (3, 2), 'red'))"
    )
    assert result.error is None, result.error.traceback
    table, picture = result.displays
    assert "<table" in (table.html or "")
    assert table.text == "   a\n0  1\n1  2"
    assert picture.formats() == ("text/plain", "image/png")
    assert (picture.png or b"").startswith(b"\x89PNG")


def test_nothing_is_imported_for_displays_that_nobody_makes(runtime: AnyRuntime) -> None:
    """A run that displays nothing must not pay for displays, let alone for matplotlib."""
    loaded = runtime.eval("sorted(n for n in __import__('sys').modules if 'visguest' in n)")
    assert not {"_visguest.displays", "_visguest.figures", "_visguest.inputs"} & set(loaded)
    assert runtime.eval("{'matplotlib', 'json', 'io'} & set(__import__('sys').modules)") <= {"io"}
    runtime.run("display(1)")
    assert runtime.eval("'matplotlib' in __import__('sys').modules") is False
