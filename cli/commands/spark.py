"""Starts Spark for the commands of the pipeline and stops it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Annotated, Any, Final

import typer

from cli.exit_codes import Exit, Failure
from cli.planner_needs import agreeing

Master = Annotated[str, typer.Option("--master", help="Master of Spark: local[2], spark://host:7077, yarn, k8s://...")]
Conf = Annotated[list[str] | None, typer.Option("--conf", help="A setting of Spark, NAME=VALUE; may be repeated.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing about the progress.")]
LOCAL = "local[*]"
ON_A_TERMINAL_S: Final = 1.0
"""Time between two lines of progress, each of which replaces the one before."""
IN_A_LOG_S: Final = 10.0
CLEARED: Final = "\r\x1b[2K"
"""Clears the line of a terminal."""


@contextmanager
def running(master: str, conf: list[str] | None, *, quiet: bool = False) -> Iterator[Any]:
    """Provides a Spark session and stops it at the end; unless ``quiet``, its jobs say how far they are.

    A missing part of Spark, a job that it gives up, and counts that differ are failures of one sentence.
    """
    from pipeline.progress import Phase, telling
    from pipeline.session import CannotStart, cause, errors, start

    settings = dict(_setting(text) for text in conf or ())
    with nullcontext() if quiet else _progress():
        try:
            with telling(Phase("starting Spark")):
                spark = start(master, settings)
        except CannotStart as error:
            raise Failure(Exit.FAILED, str(error)) from None
        try:
            with agreeing():
                yield spark
        except errors() as error:
            remedy = "its own messages above have the rest"
            raise Failure(Exit.FAILED, f"Spark gave up: {cause(error)}", remedy) from error
        finally:
            spark.stop()


@contextmanager
def _progress() -> Iterator[None]:
    """Writes progress to standard error: one line that changes on a terminal, a line now and then elsewhere."""
    from pipeline.progress import heard

    err = sys.stderr
    if not err.isatty():
        with heard(lambda line: print(line, file=err, flush=True), IN_A_LOG_S):
            yield
        return

    def replace(line: str) -> None:
        err.write(CLEARED + line[: max(shutil.get_terminal_size().columns - 1, 1)])
        err.flush()

    with heard(replace, ON_A_TERMINAL_S, lambda: replace("")):
        yield


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise Failure(Exit.USAGE, f"--conf {text} is no setting", "give NAME=VALUE, such as spark.driver.memory=4g")
    return name, value
