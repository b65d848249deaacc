"""Guards commands that use the pipeline: its libraries belong to an extra, and its counts are checked by others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cli.exit_codes import Exit, Failure
from cli.session import Session


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
    from pipeline.disagreement import Disagreement

    try:
        yield
    except Disagreement as error:
        remedy = "this is a defect of regent, and no result was written: report it with the files that were read"
        raise Failure(Exit.FAILED, str(error), remedy) from None


def warn_of_strangers(session: Session, count: int, loads: Path | None) -> None:
    """Says how many rows of the loads are about partitions that the other input does not have."""
    if count:
        what = f"{count} rows of {loads} are about partitions that are not in the cluster"
        session.output.message(f"{what}: check that both files are of one cluster and time", style="yellow")
