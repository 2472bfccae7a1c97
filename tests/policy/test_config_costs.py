"""What a file costs to parse as TOML is known before it is parsed."""

from __future__ import annotations

import random
import time
import tomllib
import tracemalloc
from itertools import count, product

import pytest

from visruntime._config.cost import (
    MAX_KEY_PARTS,
    MAX_WORD,
    MOST_MEMORY,
    estimate,
    too_expensive,
)
from visruntime._config.lines import _leaves, line_of
from visruntime._packages.request import of_project, script_metadata
from visruntime.errors import PolicyError

pytestmark = pytest.mark.one_uid

PART = "a" * 129
QUOTED = (f'"{PART}"', f"'{PART}'", '"\\u0061\\""', "''", '""', '"]"', "'#'", '"="', "a-b_1")
PIECES = (
    *("a", "b", ".", " . ", "=", " = ", "\n", "\n", "[", "]", "[[", "]]", "{", "}", ",", ", ", " "),
    *('"x"', "'y'", '""', "''", '"""', "'''", '"', "'", "\\", '\\"', "#", "# c\n", "1", "1.5", "0x1f"),
    *("true", "1979-05-27T07:32:00Z", "\t", "\r\n", "é", "😀", "a.b.c", "[a]\n", "[[b.c]]\n", "x=[]\n"),
    *("a={}\n", "{a=1}", "[1,2]", 'k="""m\n"""\n', "l='''m''''\n", 'm="""""q"""""\n'),
)  # fmt: skip


def measured(text: str) -> int:
    """Return how many bytes parsing *text* takes at most at a time."""
    tracemalloc.start()
    try:
        tomllib.loads(text)
    except (ValueError, RecursionError):
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak


def names() -> list[str]:
    """Return names that are all different, the short ones first."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    return [*letters, *map("".join, product(letters, repeat=2))]


@pytest.mark.parametrize("parts", [1, 2, 4, MAX_KEY_PARTS])
@pytest.mark.parametrize(
    "form",
    [
        "{}=1\n",
        "{}={{}}\n",
        "{}=[[]]\n",
        "[{}]\n",
        "[[{}]]\n",
        "[h.b.c.d.e.f.g.h.i.j.k.l.m.n.o.{0}]\n{0}=[]\n",
        "x.{}=[{{}},{{a={{a=1}}}}]\n",
    ],
)
def test_the_estimate_is_above_what_is_measured(form: str, parts: int) -> None:
    """A table and a long key must not cost more than they are counted with."""
    text = "".join(form.format(name + ".a" * (parts - 1)) for name in names()[:200])
    for ended in (text, text + "[zzz]\n"):
        assert measured(ended) < estimate(ended) < 60 * measured(ended)


def test_the_estimate_holds_for_random_text() -> None:
    """Also where the text is no TOML, or is cut off, or most of it is in quotes."""
    chosen = random.Random(5)
    parsed = 0
    for _ in range(3000):
        text = "".join(chosen.choices(PIECES, k=chosen.randint(0, 40)))
        if chosen.random() < 0.5:  # what is TOML by itself, many times under many names
            text = "".join(f"{name}{text}\n" for name in names()[:20])
        if too_expensive(text) is None:
            assert measured(text) < estimate(text), text
            parsed += 1
    assert parsed > 2000


def test_no_key_of_too_many_parts_passes() -> None:
    """Parts count whatever their quotes and lengths, wherever the key stands."""
    chosen = random.Random(6)
    for number in range(600):
        parts = chosen.choices(("a", *QUOTED), k=MAX_KEY_PARTS + number % 2)
        key = chosen.choice((".", " . ", "\t.")).join(parts)
        before = chosen.choice(("", "x = '''\n'' '''\n", 'x = "\\""\n', "# '\n", 'x = """\\""""\n'))
        form = chosen.choice(("{} = 1\n", "[{}]\n", "[[{}]]\n", "x = [{{ {} = 1 }}]\n", "{}"))
        text = before + form.format(key)
        found = too_expensive(text)
        line = before.count("\n") + 1
        assert found == ((line, "a key of more than 16 parts") if number % 2 else None), text


def test_what_is_in_quotes_is_no_key() -> None:
    """The control: such texts, comments and several lines of text are read."""
    dotted = ".".join(["a"] * 100)
    for text in (
        f"# {dotted}\n",
        f'a = "{dotted}"\n',
        f"a = '''\n{dotted}'''\n",
        f'a = """{dotted}"""',
    ):
        assert too_expensive(text) is None
        tomllib.loads(text)


@pytest.mark.parametrize(
    "number", ["1" * 5000, "0x" + "f" * 5000, "1.0" + "1" * 5000, "1_1" * 2000]
)
def test_a_number_of_many_digits_is_refused_by_its_line(tmp_path: object, number: str) -> None:
    """Python turns none of more than 4,300 digits into an int, and each costs 128 bytes."""
    del tmp_path
    assert too_expensive(f"a = 1\nb = {number}") == (
        2,
        f"a word or number of more than {MAX_WORD} characters",
    )
    with pytest.raises(PolicyError, match=r"s, line 3: a word or number"):
        script_metadata(f"x\n# /// script\n# a = {number}\n# ///\n".encode(), "s")


def test_what_a_lock_nests_is_refused_by_name(tmp_path: object) -> None:
    """Neither depth nor digits may end in an error that is not ours."""
    from pathlib import Path

    project = Path(str(tmp_path))
    (project / "pyproject.toml").write_text('[project]\nname = "p"\n')
    for text in (
        "a = " + "[" * 5000,
        "a = " + "{a=" * 5000,
        "a = " + "9" * 4400,
        "a = -" + "9" * 999,
    ):
        (project / "uv.lock").write_text(text)
        if text.endswith("-" + "9" * 999):  # the control
            of_project(str(project), extras=(), groups=(), editable=True)
            continue
        with pytest.raises(PolicyError, match=r"uv\.lock"):
            of_project(str(project), extras=(), groups=(), editable=True)


def test_tables_in_tables_are_walked_however_deep() -> None:
    """The look for a field's line must not end in a recursion of its own."""
    deep: dict[str, object] = {}
    for _ in range(2000):
        deep = {"a": deep, "b": 1}
    found = _leaves(deep, ())
    assert len(next(found)) == 2000
    assert len(next(found)) == 2000
    assert line_of("a = 1\nb.c = { d = 1, e = { f = 2 } }\n", "b.c.e.f") == 2
    while deep:  # Python would free it by a call for each level
        deep = deep.get("a", {})  # type: ignore[assignment]


@pytest.mark.parametrize(
    "text",
    [
        "a." * 1_000_000,
        '"' * 1_000_000,
        "'" * 999_999,
        '"\\' * 500_000,
        "[" * 1_000_000,
        '"" ' * 300_000,
        " " * 1_000_000 + "=",
        "a " * 500_000,
        "a=1\n" * 250_000,
        "#\n" * 500_000,
        '"a" . ' * 150_000,
    ],
)
def test_the_look_is_quick(text: str) -> None:
    """A megabyte that is made to be slow takes a moment."""
    start = time.process_time()
    too_expensive(text)
    assert time.process_time() - start < 1.5


def test_large_policies_and_locks_are_read() -> None:
    """The control: five thousand rules are far below the bound, and a lock of many packages too."""
    rules = "".join(f'"/srv/data/{number:06}/**",\n' for number in range(5000))
    assert estimate(f"write = [\n{rules}]\n") < MOST_MEMORY / 8
    numbers = count()
    wheel = (
        '    {{ url = "https://files.test/packages/aa/bb/{0}/package-1.0-cp311-cp311-linux.whl", '
        'hash = "sha256:' + "0" * 64 + '", size = {0}, upload-time = "2025-01-01T00:00:00.0Z" }},\n'
    )
    package = '[[package]]\nname = "p{0}"\nversion = "1.0"\nwheels = [\n{1}]\n\n'
    lock = "".join(
        package.format(number, "".join(wheel.format(next(numbers)) for _ in range(30)))
        for number in range(100)
    )
    assert estimate(lock) * (16 * 1024**2 / len(lock)) < 512 * 1024**2
