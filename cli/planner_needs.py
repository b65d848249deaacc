"""Guards commands that use the planner of the pipeline: its libraries belong to an extra."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cli.exit_codes import Exit, Failure


@contextmanager
def needed() -> Iterator[None]:
    """Makes a failure of one sentence from a library that is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in ("numpy", "numba"):
            raise
        remedy = "install regent with its extra, in its sources: .venv/bin/pip install '.[pipeline]'"
        message = f"the planner needs NumPy and Numba: {error.name} is not installed"
        raise Failure(Exit.FAILED, message, remedy) from None
