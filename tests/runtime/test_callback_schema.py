"""Arguments of guests against the type hints of host functions, and the stubs made of the same."""

from __future__ import annotations

import ast
import collections.abc
import datetime
import functools
import sys
import typing
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, Literal, NewType, Optional, TypedDict, Union

import pytest
from runtime_helpers import runtime

from visruntime._callbacks.schema import make_check, schema_of
from visruntime._callbacks.stubs import stub_text
from visruntime._runtime.known_types import known_types
from visruntime.errors import GuestError
from visruntime.runtime import TrustedRuntime

if TYPE_CHECKING:
    from runtime_helpers import AnyRuntime

pytestmark = pytest.mark.one_uid

__all__ = ["runtime"]  # the fixture is found by its name in this module


class Order(TypedDict, total=False):
    """What a guest may hand over."""

    item: str
    amounts: list[int]


class Named(TypedDict):
    """The same with a key that must be there."""

    name: str


UserId = NewType("UserId", int)


def short(part: Any) -> str:
    """Name a hint or a value; one that is too long for that has a name of its own."""
    try:
        return str(part)[:30]
    except ValueError:
        return "huge"


TAKEN: list[tuple[Any, Any]] = [
    (int, 5),
    (float, 5),
    (float, 5.5),
    (complex, 1),
    (bool, True),
    (str, "x"),
    (bytes, b"x"),
    (bytearray, bytearray(b"x")),
    (None, None),
    (Any, object),
    (object, [1]),
    (list, [1, "x"]),
    (list[int], []),
    (list[int], [1, 2]),
    (list[Any], [1, "x"]),
    (dict[str, list[float]], {"a": [1, 2.5]}),
    (dict[int, int], {10**9999: 1}),
    (collections.abc.Mapping[str, int], {"a": 1}),
    (tuple[int, str], (1, "x")),
    (tuple[()], ()),
    (typing.Tuple[()], ()),  # noqa: UP006 (as it was said)
    (typing.Tuple, (1, "x")),  # noqa: UP006
    (tuple[int, ...], (1, 2, 3)),
    (set[str], {"a"}),
    (frozenset[int], frozenset({1})),
    (collections.abc.Sequence[int], (1, 2)),
    (collections.abc.Iterable[int], {1, 2}),
    (int | None, None),
    (Optional[int], 5),  # noqa: UP045
    (Union[int, str], "x"),  # noqa: UP007
    (list[int] | None, [1]),
    (int | Any, "x"),
    (Literal["a", 1, None], 1),  # noqa: PYI061
    (Literal["a", 1, None], None),  # noqa: PYI061
    (Annotated[int, "positive"], 5),
    (UserId, 5),
    (Order, {"item": "tea", "amounts": [1]}),
    (Order, {}),
    (Named, {"name": "x"}),
    (datetime.date, datetime.date(2020, 1, 1)),
    (PurePosixPath, PurePosixPath("/x")),
]

REFUSED: list[tuple[Any, Any, str]] = [
    (int, True, "x: expected int, not bool"),
    (int, 5.0, "x: expected int, not float"),
    (float, True, "x: expected float, not bool"),
    (bool, 1, "x: expected bool, not int"),
    (str, b"x", "x: expected str, not bytes"),
    (bytes, bytearray(b"x"), "x: expected bytes, not bytearray"),
    (None, 0, "x: expected None, not int"),
    (list[int], (1, 2), r"x: expected list\[int\], not tuple"),
    (list[int], [1, "x"], r"x\[1\]: expected int, not str"),
    (dict[str, list[float]], {"a": [1, "x"]}, r"x\['a'\]\[1\]: expected float, not str"),
    (dict[str, int], {1: 1}, "x: a key: expected str, not int"),
    (dict[int, int], {10**9999: None}, r"x\[<int>\]: expected int, not NoneType"),
    (dict[Any, int], {("a" * 10**6,): None}, r"x\[<tuple>\]: expected int, not NoneType"),
    (dict[str, int], {"a" * 10**6: None}, r"x\['a{100}'\]: expected int, not NoneType"),
    (tuple[()], (1,), r"x: expected tuple"),
    (tuple[()], [], r"x: expected tuple"),
    (tuple[int, str], (1,), r"x: expected tuple\[int, str\], not tuple"),
    (tuple[int, str], (1, 2), r"x\[1\]: expected str, not int"),
    (tuple[int, ...], (1, None), r"x\[1\]: expected int, not NoneType"),
    (collections.abc.Sequence[str], "text", "x: expected Sequence"),
    (int | None, "x", r"x: expected int \| None, not str"),
    (list[int] | None, ["x"], r"x\[0\]: expected int, not str"),
    (Literal["a", 1], True, "x: expected one of 'a', 1"),
    (Literal["a", 1], ["a"], "x: expected one of 'a', 1"),
    (Annotated[int, "positive"], "x", "x: expected int, not str"),
    (UserId, "x", "x: expected int, not str"),
    (Order, [], "x: expected Order, not list"),
    (Order, {"amounts": ["x"]}, r"x\['amounts'\]\[0\]: expected int, not str"),
    (Order, {"secret": 1}, "x: Order has no 'secret'"),
    (Named, {}, "x: Named needs 'name'"),
    (datetime.date, "2020-01-01", "x: expected date, not str"),
]


@pytest.mark.parametrize(("hint", "value"), TAKEN, ids=short)
def test_a_value_of_the_type_is_taken(hint: Any, value: Any) -> None:
    """No value is refused that the hint allows."""
    check = make_check(hint, "f: x")
    if check is None:
        assert hint in (Any, object, int | Any)
    else:
        check(value, "x")


@pytest.mark.parametrize(("hint", "value", "says"), REFUSED, ids=short)
def test_a_value_of_another_type_is_refused(hint: Any, value: Any, says: str) -> None:
    """Nothing is converted, and the message names the part that is wrong."""
    check = make_check(hint, "f: x")
    assert check is not None
    with pytest.raises(TypeError, match=f"^{says}"):
        check(value, "x")


def test_hints_that_cannot_be_checked_are_refused_when_the_function_is_exposed() -> None:
    """No function is exposed with a promise that is not kept; ``check=False`` makes none."""

    def odd(x: collections.abc.Callable[[int], int]) -> None: ...

    def unknown(x: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with TrustedRuntime() as running:
        for function, says in ((odd, "is none that"), (unknown, "cannot be looked up")):
            with pytest.raises(TypeError, match=says):
                running.expose("f", function)
            running.expose("f", function, check=False)
        assert running.run("f(1)").error is None


def test_a_hint_that_names_nothing_is_no_promise() -> None:
    """Without `from __future__` Python 3.14 looks it up late, and the answer must be the same."""
    source = (
        "import sys\nfrom typing import NamedTuple, TypedDict\n"
        "def plain(x: Nowhere, y: int) -> Nowhere: ...\n"
        "def mixed(x: int | 'Nowhere', y: sys.nothing) -> None: ...\n"
        "class Part(TypedDict):\n    inner: Nowhere\n"
        "class Pair(NamedTuple):\n    left: Nowhere\n"
        "def nested(x: Part) -> None: ...\n"
    )
    late = sys.version_info >= (3, 14)
    head = "" if late else "from __future__ import annotations\n"
    names: dict[str, Any] = {"__name__": "late"}
    exec(compile(head + source, "late.py", "exec", dont_inherit=True), names)
    for name in ("plain", "mixed", "nested"):
        with pytest.raises(TypeError, match=f"^{name}: the type hint.*cannot be looked up"):
            schema_of(name, names[name])
    assert stub_text({"plain": names["plain"]}) == (
        "import typing\n\ndef plain(x: typing.Any, y: int) -> typing.Any: ...\n"
    )
    with pytest.raises(TypeError, match="the type hints of Pair cannot be looked up"):
        known_types([names["Pair"]])


def test_functions_of_every_kind_have_their_hints_read() -> None:
    """Methods, partials, callable objects and keyword-only arguments are checked like others."""

    class Tool:
        def method(self, n: int, *rest: str, key: int = 0, **more: float) -> None: ...

        def __call__(self, n: int) -> None: ...

    schema = schema_of("f", Tool().method)
    assert schema is not None
    schema.check([1, "a", "b"], {"key": 2, "other": 1.5})
    for arguments, keywords, says in (
        (["1"], {}, "'n': expected int"),
        ([1, "a", 2], {}, "'rest': expected str"),
        ([1], {"key": "2"}, "'key': expected int"),
        ([1], {"other": "x"}, "'other': expected float"),
        ([], {"n": None}, "'n': expected int"),
    ):
        with pytest.raises(TypeError, match=says):
            schema.check(arguments, keywords)
    for function in (Tool(), functools.partial(Tool().method, 1), Tool().method):
        assert schema_of("f", function) is not None
    silent: list[Any] = [print, len, {}.__getitem__, lambda x: x, dict]
    assert [schema_of("f", function) for function in silent] == [None] * 5


@pytest.mark.parametrize("check", [True, False])
def test_what_the_host_has_bound_no_guest_binds_anew(runtime: AnyRuntime, *, check: bool) -> None:
    """A keyword of functools.partial must not be replaced by the guest's, however deep it was bound."""

    def read(name: str, *, root: str, mode: str = "r", **rest: str) -> str:
        return f"{root}/{name} {mode} {rest}"

    inner = functools.partial(read, root="/public")
    runtime.expose("read", functools.partial(inner, mode="rb", extra="1"), check=check)
    runtime.expose("plain", lambda name, root="/public": f"{root}/{name}", check=check)
    assert runtime.eval("read('a')") == "/public/a rb {'extra': '1'}"
    assert runtime.eval("read('a', other='2')") == "/public/a rb {'extra': '1', 'other': '2'}"
    # The control: a default of the function is the guest's to replace.
    assert runtime.eval("plain('a', root='/etc')") == "/etc/a"
    for keyword in ("root", "mode", "extra"):
        with pytest.raises(GuestError, match=rf"argument '{keyword}' is bound by the host"):
            runtime.eval(f"read('a', {keyword}='/etc')")
    with pytest.raises(GuestError, match="TypeError"):
        runtime.eval("read('a', '/etc')")
    stub = runtime.stubs()
    assert "def read(name: str, **rest: str)" in stub
    assert "root: typing.Any = ..." in stub


def test_a_call_with_wrong_arguments_is_a_type_error_and_calls_nothing(
    runtime: AnyRuntime,
) -> None:
    """The guest can catch it, its message says what is wrong, and no host code has run."""
    called: list[Any] = []

    def book(item: str, amounts: list[int], mode: Literal["now", "later"] = "now") -> int:
        called.append((item, amounts, mode))
        return sum(amounts)

    runtime.expose("book", book)
    assert runtime.eval("book('tea', [1, 2], mode='later')") == 3
    called.clear()
    for call, says in (
        ("book(5, [1])", "book() argument 'item': expected str, not int"),
        ("book('tea', [1, '2'])", "book() argument 'amounts'[1]: expected int, not str"),
        (
            "book('tea', amounts=None)",
            "book() argument 'amounts': expected list[int], not NoneType",
        ),
        ("book('tea', [1], mode='x')", "book() argument 'mode': expected one of 'now', 'later'"),
        ("book('tea')", "missing 1 required positional argument: 'amounts'"),
        ("book('tea', [1], 'now', 1)", "takes from 2 to 3 positional arguments"),
        ("book('tea', [1], x=1)", "unexpected keyword argument 'x'"),
        ("book(*[1] * 100000)", "expected str, not int"),
        ("book(**{'k' * 10**6: 1})", "unexpected keyword argument"),
        ("book(display, [1])", "expected str, not Handle"),
    ):
        result = runtime.run(f"try: {call}\nexcept TypeError as e: r = str(e)\nr")
        assert says in result.value, call
    assert called == []


def test_stubs_are_what_a_type_checker_reads() -> None:
    """Names, types, defaults and documents are there; nothing private to the host is."""

    class Private:
        pass

    async def fetch(url: str, *, limit: int | None = 5, tags: tuple[str, ...] = ()) -> Private:
        r'''Get a page.

        With """quotes""" and a \ in it, "said"
        '''
        return Private()

    def book(
        order: Order, at: datetime.date, /, mode: Literal["now"], *rest: int, **more: Any
    ) -> list[int]:
        return []

    text = stub_text({"fetch": fetch, "book": book, "show": print, "any": lambda x, *, y: (x, y)})
    module = ast.parse(text)
    functions = [node for node in module.body if isinstance(node, ast.FunctionDef)]
    assert [function.name for function in functions] == ["fetch", "book", "show", "any"]
    assert text.startswith("import datetime\nimport typing\n")
    assert (
        "def fetch(url: str, *, limit: int | None = ..., tags: tuple[str, ...] = ...)"
        " -> typing.Any:" in text
    )
    assert ast.get_docstring(functions[0]) == (
        'Get a page.\n\nWith """quotes""" and a \\ in it, "said"'
    )
    assert (
        "def book(order: typing.Any, at: datetime.date, /, mode: typing.Literal['now'], "
        "*rest: int, **more: typing.Any) -> list[int]: ..." in text
    )
    assert "def any(x: typing.Any, *, y: typing.Any) -> typing.Any: ..." in text
    assert "Private" not in text


def test_stubs_of_a_runtime_are_by_module() -> None:
    """Functions of a module are in its stub, and the others in that of none."""
    with TrustedRuntime() as running:
        running.expose("top", lambda: 1)
        running.expose_module("tools", {"add": lambda a, b: a + b})
        assert running.stubs() == "import typing\n\ndef top() -> typing.Any: ...\n"
        assert "def add(" in running.stubs("tools")
        assert running.stubs("other") == ""
