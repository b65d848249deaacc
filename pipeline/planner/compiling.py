"""Compiles the search with Numba; the result is kept on disk for the next process."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pkgutil import get_data
from typing import Any, Final, TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., Any])

PARTS: Final = (
    "arrays bounds compiling feeding leading placing repairing scoring searching shedding state swapping taking_back"
)
"""Modules with a part of what is compiled."""


def compiled(function: Function) -> Function:
    """Compiles a part of the search, within the function that calls it."""
    return cast(Function, numba.njit(nogil=True, error_model="numpy")(function))


def kept(function: Function) -> Function:
    """Compiles the whole search and keeps it; where no folder takes it, each process compiles it anew."""
    options = {"nogil": True, "error_model": "numpy"}
    try:
        return cast(Function, numba.njit(cache=True, **options)(function))
    except RuntimeError:  # Numba found no folder that it may write
        return cast(Function, numba.njit(**options)(function))


def digest() -> int:
    """Returns a number that changes with the text of any part: Numba looks at the file of the kept function alone."""
    text = b"".join(get_data("pipeline.planner", f"{part}.py") or b"" for part in PARTS.split())
    return int.from_bytes(hashlib.sha256(text).digest()[:7], "big")
