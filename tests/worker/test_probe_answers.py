"""What an interpreter says when it is asked what it is may be anything, and takes no time to read."""

from __future__ import annotations

import time

import pytest

from visruntime._worker.probe import MAX_COMPILED, Answer
from visruntime._worker.start import sources

pytestmark = pytest.mark.one_uid

ABOUT = b"('cpython', (3, 12), '3.12.1 x', True)\n"
NAMES = [name.encode() for name, _ in sources()]
COMPILED = {name: b"code of %s\n" % name for name in NAMES}


def text(compiled: dict[bytes, bytes]) -> bytes:
    """Return what an interpreter writes."""
    return ABOUT + b"".join(b"%s %d\n%s" % (k, len(v), v) for k, v in compiled.items())


def test_what_was_compiled_is_read() -> None:
    """Each module has its bytes, whatever is in them; where nothing was compiled there is none."""
    found = Answer(0, text(COMPILED)).compiled
    assert found == {name.decode(): code for name, code in COMPILED.items()}
    assert Answer(0, ABOUT).compiled is None


@pytest.mark.parametrize("entry", [b" 1\nX", b"a 1\nX", b"frames 1\nX", b"\n", b"x" * 99, b"9"])
def test_many_entries_take_no_time(entry: bytes) -> None:
    """Four megabytes of tiny entries took a minute and a half of the host."""
    began = time.process_time()
    with pytest.raises(ValueError, match="it compiled"):
        Answer(0, ABOUT + entry * (MAX_COMPILED // len(entry)))
    assert time.process_time() - began < 0.5


def test_other_modules_are_refused() -> None:
    """All of them are there, in their order, and nothing else; no size is beyond what came."""
    whole = text(COMPILED)
    first = NAMES[0]
    for wrong in (
        text(dict(reversed(COMPILED.items()))),
        text({name: COMPILED[name] for name in NAMES[:-1]}),
        text(COMPILED | {b"more": b"x"}),
        whole + b"x",
        whole[:-1],
        ABOUT + b"%s 0\n" % first,
        ABOUT + b"%s -1\nx" % first,
        ABOUT + b"%s +1\nx" % first,
        ABOUT + b"%s %s\nx" % (first, b"9" * 90),
        ABOUT + b"%s %s\nx" % (first, b"9" * 5000),
        ABOUT + first,
    ):
        with pytest.raises(ValueError, match="it compiled"):
            Answer(0, wrong)
