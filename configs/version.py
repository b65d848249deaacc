"""Reads the product's version from the installed distribution."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Final

DISTRIBUTION: Final = "regent-controller"


@cache
def product_version() -> str:
    """Returns the version of the installed distribution; ``unknown`` where the sources run without an installation."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "unknown"
