"""What one run may send to its host beside its result; both sides hold to it."""

from __future__ import annotations

MAX_DISPLAYS = 1_000
"""Displays of one run that are kept; later ones are dropped."""
MAX_DISPLAYS_SIZE = 32 * 1024 * 1024
"""Bytes of all displays of one run together, as they are encoded."""
MAX_DISPLAY_FORMATS = 20
"""Formats of one display."""
MAX_MEDIA_TYPE = 100
"""Longest media type, in characters."""
MAX_DISPLAY_ID = 100
"""Longest name of a display, in characters."""
MAX_PROMPT = 16_384
"""Longest prompt of a question for input, in characters."""
MAX_TASKS = 100
"""Background tasks of one run that are named."""
MAX_TASK_NAME = 200
"""Longest name of a task, in characters."""
QUIET = ("clear", "expose")
"""Requests in which the guest is to ask its host for nothing; no result would count it."""
MAX_ERROR_NAME = 200
"""Characters of the name of the exception that ended the start-up files."""
NO_THREAD = 123
"""Exit code of a worker for which the kernel made no thread (native/vispython has 120 to 122)."""
BESIDE_BYTES = 1024 * 1024
"""Plain bytes up to this size cross in the frame, which holds 64 of them: as many as there may be
buffers."""
UNKNOWN = ("handle", "repr", "error")
"""What becomes of a value that is no data; the first is what happens unasked."""
