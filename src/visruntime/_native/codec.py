"""The core of workers in the host's own process: its codec, which both sides have."""

from __future__ import annotations

from visruntime import _viscore
from visruntime.guest import values

__all__ = ["CORE_FILE", "decode", "encode"]

values.install(_viscore)

CORE_FILE = str(_viscore.__file__)
"""The module that runs in workers, too."""

decode = _viscore.decode
encode = _viscore.encode
