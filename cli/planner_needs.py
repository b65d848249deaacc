"""Guards commands that use the pipeline: its libraries belong to an extra, and its counts are checked by others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cli.exit_codes import Exit, Failure
from cli.session import Session
from cli.verbs import as_failure
from pipeline.verbs import showing


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


@contextmanager
def agreeing() -> Iterator[None]:
    """Makes a failure of one sentence from two ways of counting that differ."""
    from pipeline.verbs import ending

    with as_failure(), ending.agreeing():
        yield


def warn_of_strangers(session: Session, count: int, loads: Path | None) -> None:
    """Says how many rows of the loads are about partitions that the other input does not have."""
    showing.warn_of_strangers(session.output, count, loads)
