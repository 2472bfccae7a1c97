"""Collections, handles, reprs and blobs in the value codec, from both sides."""

from __future__ import annotations

import collections
from typing import Any

import pytest
from values.test_codec import V, head

from visruntime._native import decode, encode
from visruntime.guest.values import Handle, Repr

pytestmark = pytest.mark.one_uid


def test_collections_keep_what_they_are() -> None:
    """The order, the length and what makes missing values stay; a factory of another's does not."""
    ordered = collections.OrderedDict(a=1, b=2)
    ordered.move_to_end("a")
    assert list(decode(encode(ordered)).items()) == [("b", 2), ("a", 1)]
    assert decode(encode(collections.deque([1, 2], 2))).maxlen == 2
    lists = decode(encode(collections.defaultdict(list)))
    lists["x"].append(1)
    assert lists == {"x": [1]}
    assert decode(encode(collections.Counter(a=-2)))["missing"] == 0

    class Lists(list[int]):
        pass

    Lists.__name__ = "list"
    for factory in (Lists, lambda: 1, object, eval):
        with pytest.raises(TypeError, match="a defaultdict whose factory is none of"):
            encode(collections.defaultdict(factory))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "fields",
    [
        b"\x04\x04\x14\0\0\0\0\x01",  # no such kind
        b"\x04\x00\x10\0\0\0\0\x01",  # a list as OrderedDict
        b"\x04\x02\x14\0\0\0\0\x01",  # a dict as deque
        b"\x04\x00\x14\0\0\0\0\x04\x01",  # an OrderedDict with a length
        b"\x04\x02\x10\1\0\0\0\x01\x04\x00",  # more than the deque holds
        b"\x04\x02\x10\0\0\0\0\x04\xff",  # a negative length
        b"\x04\x03\x14\0\0\0\0\x0a\4\0\0\0eval",  # a builtin that is no factory
        b"\x04\x03\x14\0\0\0\0\x10\0\0\0\0",  # no name
        b"\x03\x14\0\0\0\0\x01",  # True as the kind
    ],
)
def test_odd_collections_are_refused(fields: bytes) -> None:
    """A collection has one of four kinds, data of its kind, and calls nothing else."""
    with pytest.raises(ValueError, match="fields that its type does not allow"):
        decode(V + b"\x30" + fields)


def test_bytes_that_lie_beside() -> None:
    """Long bytes are offered to reduce(), but not in keys; a blob without its buffer is refused."""
    asked = []

    def reduce(value: Any) -> tuple[Any, ...] | None:
        asked.append(type(value))
        return None

    value = [b"x" * 99, b"x" * 100, bytearray(100), {b"y" * 100: 1}]
    assert decode(encode(value, reduce=reduce, beside=99)) == value
    assert asked == [bytes, bytearray]
    for data in (b"\x2c\x04\x01\x04\x09", head(0x0B, 1) + b"x"):
        with pytest.raises(ValueError, match="fields that its type does not allow"):
            decode(V + b"\x31\x04\x00" + data)


def test_reprs_are_no_text_and_no_keys() -> None:
    """What stands for an object is of a type of its own; as a key it could be another's double."""
    got = decode(encode([object()], default=lambda _: (None, "object", "<it>")))
    assert got == [Repr("object", "<it>")]
    assert got != ["<it>"]
    assert "\x1b" not in repr(Repr("a\x1b", "b\x1b[2J"))
    with pytest.raises(TypeError, match="no key in a key"):
        encode({object(): 1}, default=lambda _: (None, "t", "r"))
    for bad in ((1, "r"), ("t", 1), ("t" * 1025, "r"), ("t", "r" * 8193)):
        with pytest.raises(ValueError, match="must be a str"):
            Repr(*bad)


def test_collections_with_colliding_keys() -> None:
    """To fill a collection costs what filling its dict has cost, and it counts."""
    modulus = (1 << 61) - 1
    pairs = b"".join(encode(i * modulus)[1:] + b"\x01" for i in range(3000))
    table = head(0x14, 3000) + pairs
    assert len(decode(V + table)) == 3000
    many = head(0x10, 60) + (b"\x30\x04\x00" + table + b"\x01") * 60
    with pytest.raises(ValueError, match="keys that collide on purpose"):
        decode(V + many)


def test_default_makes_handles() -> None:
    """An unknown object crosses as a Handle only, and a Handle goes back as itself."""
    got = decode(encode({"o": object()}, default=lambda _: (7, "object", "<object>")))
    assert got == {"o": Handle(7, "object", "<object>")}
    assert decode(encode(got)) == got


@pytest.mark.parametrize(
    "answer",
    [
        None,
        (1, "t"),
        (None, "t"),
        ("1", "t", "r"),
        (1, "t" * 1025, "r"),
        (1, "t", "r" * 8193),
        (1, b"t", "r"),
    ],
)
def test_default_with_a_wrong_answer(answer: Any) -> None:
    """A default() that answers with something else is an error, not a strange handle."""
    with pytest.raises(TypeError, match=r"default\(\) must return"):
        encode(object(), default=lambda _: answer)


@pytest.mark.parametrize(
    "data",
    ["0110010000002e0c050000006111726f77", "0110010000002e0a0500000061627269656e"],
)
def test_a_table_has_one_encoding(data: str) -> None:
    """A bytearray or text in the place of its bytes would be another one of the same value."""
    with pytest.raises(ValueError, match=r"neither bytes nor a buffer|decode"):
        decode(bytes.fromhex(data))
