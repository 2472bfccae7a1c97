"""Fuzz the decoder of `_viscore` under AddressSanitizer and UndefinedBehaviorSanitizer.

``python tests/native/fuzz_codec.py --seconds 120`` builds the codec with both sanitizers and
feeds it damaged encodings in a child process. An input passes if it is refused with
ValueError, or if it is the one encoding of the value that it decodes to. The input that
crashed, hung or broke that rule is printed in hexadecimal, with the seed; exit code 1.
"""

from __future__ import annotations

import argparse
import collections
import datetime as dt
import decimal
import enum
import fractions
import importlib.util
import mmap
import os
import pathlib
import random
import re
import struct
import subprocess
import sys
import sysconfig
import tempfile
import time
import uuid
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
SLOWEST = 10.0
"""Seconds that one input may take under the sanitizers."""
INPUT_ROOM = 1 << 20
"""Bytes of the file that holds the input under test, length first."""


class Color(enum.Enum):
    """An enum for the seeds."""

    RED = 1


Point = collections.namedtuple("Point", "x y")  # noqa: PYI024


def seeds() -> list[Any]:
    """Return values that use every tag."""
    zone = dt.timezone(dt.timedelta(hours=-3), "X")
    return [
        None,
        [True, False, 1, -1, 300, -(1 << 40), 1 << 90, -(1 << 71), 0.0, float("nan"), 2j],
        ["", "text", "é\udc80😀", b"bytes", bytearray(b"array"), "k" * 300],
        {"op": "run", "code": "1+1", "id": 7, ("t", 1): [None, {}], frozenset({1, 2}): set()},
        {1, 2, "x", (3, 4), None},
        [range(3), dt.date(2020, 1, 2), dt.time(1, 2, 3, 4, tzinfo=zone), dt.timedelta(-1, 3)],
        [dt.datetime(2020, 1, 2, 3, tzinfo=dt.UTC), zone, decimal.Decimal("-1.50E+7")],
        [fractions.Fraction(-1, 3), uuid.UUID(int=5), pathlib.PurePosixPath("/a/b")],
        {Color.RED: Point(1, [Point(2, 3)])},
        [[[[[[(), ((),)]]]]], {"a": {"b": {"c": {}}}}],
        {i: str(i) for i in range(100)},
        {(i, "x") for i in range(100)},
        [collections.OrderedDict(a=1, b=[2]), collections.Counter("abca")],
        [collections.deque([1, {}], 5), collections.deque(), collections.defaultdict(list, a=[1])],
    ]


class Mutator:
    """Makes damaged inputs from good ones."""

    def __init__(self, corpus: list[bytes], source: random.Random) -> None:
        self.corpus = corpus
        self.source = source

    def make(self) -> bytes:
        """Return the next input."""
        data = bytearray(self.source.choice(self.corpus))
        for _ in range(self.source.choice((1, 1, 1, 2, 3, 8))):
            self.source.choice(self.ways)(self, data)
        return bytes(data[: INPUT_ROOM - 8])

    def _place(self, data: bytearray) -> int:
        return self.source.randrange(len(data) + 1)

    def flip(self, data: bytearray) -> None:
        """Change one bit."""
        if data:
            data[self.source.randrange(len(data))] ^= 1 << self.source.randrange(8)

    def tag(self, data: bytearray) -> None:
        """Put a tag somewhere."""
        if data:
            tags = (*range(1, 13), *range(0x10, 0x15), *range(0x20, 0x32))
            data[self.source.randrange(len(data))] = self.source.choice(tags)

    def length(self, data: bytearray) -> None:
        """Put a lying length somewhere."""
        at = self._place(data)
        choices = (0, 1, len(data), len(data) - at - 4, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 31, 65, 64)
        data[at : at + 4] = struct.pack("<I", max(0, self.source.choice(choices)))

    def cut(self, data: bytearray) -> None:
        """Drop the end."""
        del data[self._place(data) :]

    def drop(self, data: bytearray) -> None:
        """Drop a piece."""
        at = self._place(data)
        del data[at : at + self.source.randrange(1, 12)]

    def repeat(self, data: bytearray) -> None:
        """Repeat a piece, a few times or very often."""
        at = self._place(data)
        piece = data[at : at + self.source.randrange(1, 12)]
        data[at:at] = piece * self.source.choice((1, 1, 2, 70, 300, 20_000))

    def splice(self, data: bytearray) -> None:
        """Put a piece of another input somewhere."""
        other = self.source.choice(self.corpus)
        at = self.source.randrange(len(other))
        place = self._place(data)
        data[place:place] = other[at : at + self.source.randrange(1, 60)]

    ways = (flip, flip, tag, tag, length, length, cut, drop, repeat, splice, splice)


def sources() -> list[str]:
    """Return the C files that the build makes `_viscore` of."""
    native = ROOT / "native" / "vispython"
    library = (native / "CMakeLists.txt").read_text().rpartition("python_add_library(_viscore")[2]
    return [str(native / name) for name in re.findall(r"\S+\.c\b", library.partition(")")[0])]


def build(directory: pathlib.Path) -> pathlib.Path:
    """Build `_viscore` with the sanitizers and return its path."""
    target = directory / "_viscore.abi3.so"
    subprocess.run(
        [
            *("gcc", "-shared", "-fPIC", "-g", "-O1", "-std=gnu11"),
            *("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
            *("-fno-omit-frame-pointer", "-D_GNU_SOURCE", "-DPy_LIMITED_API=0x030b0000"),
            f"-I{sysconfig.get_path('include')}",
            f"-I{ROOT / 'native' / 'visjail'}",
            *sources(),
            *("-o", str(target)),
        ],
        check=True,
    )
    return target


def load(path: str, name: str) -> Any:
    """Load a module from its file."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def has_set(value: Any) -> bool:
    """Whether a set, whose order is free, is in *value*."""
    if isinstance(value, (set, frozenset)):
        return True
    if isinstance(value, dict):
        return any(map(has_set, value)) or any(map(has_set, value.values()))
    if type(value).__name__ == "Record":
        return has_set(dict(value.fields))
    return isinstance(value, (list, tuple, collections.deque)) and any(map(has_set, value))


class Buffers:
    """Stands for the memory beside the frames: as many zeros as a buffer is said to have."""

    def __init__(self, values: Any) -> None:
        self.used = False
        self.builders = (*values.BUILDERS[:12], self.take, *values.BUILDERS[13:])

    def take(self, number: Any, size: Any) -> memoryview:
        """Make the bytes of one: a whole object, or a view of something that can change."""
        self.used = True
        if type(number) is not int or type(size) is not int or not 0 < size < 5000:
            raise ValueError("not a buffer")
        return memoryview(bytearray(size)).toreadonly() if number else memoryview(bytes(size))


def reduce(arrays: Any, values: Any, value: Any) -> tuple[Any, ...] | None:
    """Take anything apart; what would lie beside gets a number."""
    parts: tuple[Any, ...] | None = arrays.reduce_stored(value)
    parts = parts or arrays.reduce_array(value, lambda data: (0, len(data)))
    return parts or values.reduce_value(value)


def large_seeds(core: Any, arrays: Any) -> list[bytes]:
    """Return encodings of arrays, tables and long bytes, within the frame and beside it."""
    shape = b"\x0a\3\0\0\0<i4" + b"\x11\1\0\0\0\x04\x03"
    buffers = [b"\x2c\x04" + bytes((number, 4, 12)) for number in (0, 1)]
    found = [b"\x01\x10\1\0\0\0\x2d" + shape + buffer for buffer in buffers]
    found += [b"\x01\x2e" + buffer for buffer in buffers]
    found += [b"\x01\x31\x04" + bytes((kind,)) + buffers[kind] for kind in (0, 1)]
    reduce = arrays.reduce_array
    for value in (arrays.Array("<f8", (2, 3), bytes(48)), arrays.Table(b"arrow")):
        found.append(core.encode([value], reduce=lambda value: reduce(value, None)))
    return found


def fuzz(core_path: str, input_path: str, seconds: float, seed: int) -> int:
    """Feed inputs to the decoder until the time is up: the child process."""
    core = load(core_path, "_viscore")
    sys.path.insert(0, str(ROOT / "src"))
    from visruntime.guest import arrays, values

    values.install(core)
    buffers = Buffers(values)
    with open(input_path, "r+b") as file:
        current = mmap.mmap(file.fileno(), INPUT_ROOM)
    corpus = [core.encode(value) for value in seeds()]
    corpus.append(core.encode([object()], default=lambda _: (1, "type", "repr")))
    corpus.append(core.encode([object()], default=lambda _: (None, "type", "repr")))
    if any(
        core.encode(core.decode(data)) != data for data in corpus if not has_set(core.decode(data))
    ):
        print("a seed does not survive a round trip")
        return 1
    corpus += large_seeds(core, arrays)
    mutator = Mutator(corpus, random.Random(seed))
    tried = accepted = 0
    slowest = 0.0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        data = mutator.make()
        current[:8] = struct.pack("<Q", len(data))
        current[8 : 8 + len(data)] = data
        began = time.monotonic()
        buffers.used = False
        try:
            value = core.decode(data, builders=buffers.builders)
        except ValueError:
            pass
        else:
            accepted += 1
            again = core.encode(value, reduce=lambda value: reduce(arrays, values, value))
            # What lies beside comes back as another buffer, or as plain bytes.
            if not buffers.used and not has_set(value) and again != data:
                print("accepted a second encoding of a value")
                return 1
            if len(data) < 2000 and len(corpus) < 3000:
                corpus.append(data)
        took = time.monotonic() - began
        slowest = max(slowest, took)
        if took > SLOWEST:
            print(f"took {took:.1f} s")
            return 1
        tried += 1
    print(f"{tried} inputs, {accepted} accepted, slowest {slowest * 1000:.0f} ms, seed {seed}")
    return 0 if tried and accepted else 1


def library(name: str) -> str:
    """Return the path of a sanitizer's runtime."""
    found = subprocess.run(
        ["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True
    ).stdout.strip()
    if not pathlib.Path(found).is_absolute():
        raise FileNotFoundError(f"gcc has no {name}: install the sanitizer libraries")
    return found


def main() -> int:
    """Build, fuzz in a child process, and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=None, help="repeat a run")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else int.from_bytes(os.urandom(4))
    if options.child:
        core, current = options.child
        return fuzz(core, current, options.seconds, seed)
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        core = build(directory)
        current = directory / "input"
        current.write_bytes(bytes(INPUT_ROOM))
        child = [sys.executable, "-I", __file__, "--child", str(core), str(current)]
        status = subprocess.run(
            [*child, "--seconds", str(options.seconds), "--seed", str(seed)],
            env={
                "LD_PRELOAD": f"{library('libasan.so')} {library('libubsan.so')}",
                # Python's own allocator would hide its objects from the sanitizer.
                "PYTHONMALLOC": "malloc",
                # Leaks are looked for in tests/values/test_codec.py: an interpreter never frees all.
                "ASAN_OPTIONS": "detect_leaks=0",
            },
            timeout=options.seconds + 120,
            check=False,
        ).returncode
        if status != 0:
            data = current.read_bytes()
            (size,) = struct.unpack("<Q", data[:8])
            print(f"failed (status {status}, seed {seed}) on input {data[8 : 8 + size].hex()}")
    return 0 if status == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
