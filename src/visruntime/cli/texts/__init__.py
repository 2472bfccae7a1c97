"""Completions of shells and the manual page, as scripts/generate_documents.py made them."""

from __future__ import annotations

import os

__all__ = ["text"]


def text(name: str) -> str:
    """Return what the file *name* of this folder holds."""
    path = os.path.join(os.path.dirname(__file__), name)
    with open(path, encoding="utf-8") as file:
        return file.read()
