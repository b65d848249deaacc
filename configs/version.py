"""The product's version, as it was installed."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Final

DISTRIBUTION: Final = "regent-controller"


@cache
def product_version() -> str:
    """Version of the installed distribution; ``unknown`` where the sources run without being installed."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "unknown"
