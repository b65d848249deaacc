"""Compiles loops over arrays with Numba; the result is kept on disk for the next process."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from pkgutil import get_data
from typing import Any, TypeVar, cast

import numba
import numpy as np

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Compiles a function within the one that calls it."""
    return cast(Function, numba.njit(nogil=True, error_model="numpy")(function))


def kept(function: Function) -> Function:
    """Compiles a function with all that it calls, and keeps it; where no folder takes it, each process compiles it."""
    options = {"nogil": True, "error_model": "numpy"}
    try:
        return cast(Function, numba.njit(cache=True, **options)(function))
    except RuntimeError:  # Numba found no folder that it may write
        return cast(Function, numba.njit(**options)(function))


def digest(package: str, parts: Iterable[str]) -> int:
    """Returns a number that changes with the text of modules of a package.

    Numba looks at the file of the kept function alone: one that is made of several modules closes over this number.
    """
    texts = [get_data("pipeline", "compiling.py"), *(get_data(package, f"{part}.py") for part in parts)]
    return int.from_bytes(hashlib.sha256(b"".join(text or b"" for text in texts)).digest()[:7], "big")


Ints = Any
"""An array of NumPy's int64."""


@kept
def latest(known: Ints, wanted: Ints) -> Ints:
    """Returns for each column of ``wanted`` the last column of ``known`` of the same key with a lower number, or -1.

    The last line of both is the number, those before are the key; the columns of ``known`` are sorted.
    """
    found = np.full(wanted.shape[1], -1, np.int64)
    lines = wanted.shape[0]
    for i in range(wanted.shape[1]):
        low, high = 0, known.shape[1]
        while low < high:
            middle = (low + high) // 2
            less = False
            for line in range(lines):
                if known[line, middle] != wanted[line, i]:
                    less = known[line, middle] < wanted[line, i]
                    break
            low, high = (middle + 1, high) if less else (low, middle)
        found[i] = low - 1
        for line in range(lines - 1):
            if low and known[line, low - 1] != wanted[line, i]:
                found[i] = -1
    return found
