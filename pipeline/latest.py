"""Finds the row before another one among rows of numbers, in a compiled loop."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.compiling import kept

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
