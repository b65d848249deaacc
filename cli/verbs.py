"""Makes commands of the pipeline's verbs, and guards commands that use its libraries, its counts or Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from cli.exit_codes import Exit, Failure
from cli.session import Session, of_parameters
from pipeline import ending
from pipeline.verbs import options
from pipeline.verbs import running as verbs_running
from pipeline.verbs.options import Argument, Option, Verb, own_parameters

if TYPE_CHECKING:
    from pipeline.inputs import Snapshot


@contextmanager
def as_failure() -> Iterator[None]:
    """Makes a failure of the end of a verb."""
    try:
        yield
    except ending.Stopped as end:
        raise Failure(Exit(end.code), end.message, end.remedy) from end.__cause__


def as_command(verb: Verb) -> Callable[..., None]:
    """Returns a verb as a function for :func:`cli.session.command`."""

    def run(session: Session, **given: Any) -> None:
        with as_failure():
            code = verb(session.output, **given)
        if code:
            raise typer.Exit(code)

    own = [one.replace(annotation=of_typer(one.annotation)) for one in own_parameters(verb)]
    return of_parameters(run, verb, own)


def of_typer(annotation: Any) -> Any:
    """Returns the annotation of a verb's parameter as typer reads it."""
    of_type, described = get_args(annotation)
    if isinstance(described, Argument):
        return Annotated[of_type, typer.Argument(help=described.help)]
    assert isinstance(described, Option)
    option = typer.Option(
        *described.names, help=described.help, min=described.min, max=described.max, metavar=described.metavar
    )
    return Annotated[of_type, option]


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
    with as_failure(), ending.agreeing():
        yield


def snapshot_named(session: Session, given: Path) -> Snapshot:
    """Reads a snapshot, of a folder the newest one, which it names; raises ``BadInput``."""
    from pipeline.snapshot_file import newest_of, read_snapshot

    path = newest_of(given)
    if path != given:
        session.output.message(f"the newest snapshot there is {path.name}")
    return read_snapshot(path)


def warn_of_strangers(session: Session, count: int, loads: Path | None) -> None:
    """Says how many rows of the loads are about partitions that the other input does not have."""
    verbs_running.warn_of_strangers(session.output, count, loads)


Master = of_typer(options.Master)
Conf = of_typer(options.Conf)


@contextmanager
def running(master: str | None, conf: list[str] | None, *, quiet: bool = False) -> Iterator[Any]:
    """Provides a Spark session and stops it at the end; unless ``quiet``, its jobs say how far they are.

    A missing part of Spark, a job that it gives up, and counts that differ are failures of one sentence.
    """
    with as_failure(), verbs_running.running(master, conf, quiet=quiet) as spark:
        yield spark
