"""Guards commands that use the pipeline: its libraries belong to an extra, and its counts are checked by others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from cli.exit_codes import Exit, Failure
from cli.session import Session
from cli.verbs import as_failure
from pipeline.verbs import showing

if TYPE_CHECKING:
    from pipeline.inputs import Snapshot


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


def snapshot_named(session: Session, given: Path) -> Snapshot:
    """Reads a snapshot, of a folder the newest one, which it names; raises ``BadInput``."""
    from pipeline.snapshot_file import read_snapshot
    from pipeline.snapshot_folder import newest_of

    path = newest_of(given)
    if path != given:
        session.output.message(f"the newest snapshot there is {path.name}")
    return read_snapshot(path)


def warn_of_strangers(session: Session, count: int, loads: Path | None) -> None:
    """Says how many rows of the loads are about partitions that the other input does not have."""
    showing.warn_of_strangers(session.output, count, loads)
