"""The seam to C: only this module imports the compiled modules."""

from __future__ import annotations

from visruntime import _viscore
from visruntime.guest import values

__all__ = ["decode", "encode"]

values.install(_viscore)

encode = _viscore.encode
decode = _viscore.decode
