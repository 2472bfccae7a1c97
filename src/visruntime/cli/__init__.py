"""The ``visruntime`` command."""

from __future__ import annotations

from visruntime.cli.main import main

__all__ = ["main"]
