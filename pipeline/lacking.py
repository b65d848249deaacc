"""Finds what an executor lacks. It runs where anything may be missing, so it imports the standard library alone."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module


def lacking(libraries: Sequence[str], _: int) -> str:
    """Returns the first library that does not import, with the Python that lacks it; empty if all do."""
    for name in libraries:
        try:
            import_module(name)
        except ImportError as error:
            return f"{name} ({sys.executable}: {error})"
    return ""
