"""The ``visruntime`` command."""

from __future__ import annotations

from visruntime.cli.main import command, main

__all__ = ["command", "main"]
