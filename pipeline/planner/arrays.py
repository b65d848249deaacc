"""Provides NumPy and the name of its arrays without types: the compiled functions are typed when they are called."""

from __future__ import annotations

from typing import Any

import numpy

np: Any = numpy
Array = Any
"""An array of NumPy; the text beside each has its type and shape."""
