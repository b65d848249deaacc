"""Starts Spark for a verb and stops it, and says how far its jobs are."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Final

from pipeline.ending import FAILED, USAGE, Stopped, agreeing
from pipeline.progress import Phase, heard, telling

ON_A_TERMINAL_S: Final = 1.0
"""Time between two lines of progress, each of which replaces the one before."""
IN_A_LOG_S: Final = 10.0
CLEARED: Final = "\r\x1b[2K"
"""Clears the line of a terminal."""


@contextmanager
def running(master: str | None, conf: list[str] | None, *, quiet: bool = False) -> Iterator[Any]:
    """Provides a Spark session and stops it at the end; one that ran before is used, and stays.

    Unless ``quiet``, its jobs say how far they are. A missing part of Spark, a job that it gives up, and counts that
    differ raise :class:`Stopped`.
    """
    from pipeline.session import CannotStart, cause, errors, runs_already, start

    settings = dict(_setting(text) for text in conf or ())
    with nullcontext() if quiet else _progress():
        borrowed = runs_already()
        try:
            with telling(Phase("starting Spark")):
                spark = start(master, settings)
        except CannotStart as error:
            raise Stopped(FAILED, str(error)) from None
        try:
            with agreeing():
                yield spark
        except errors() as error:
            remedy = "its own messages above have the rest"
            raise Stopped(FAILED, f"Spark gave up: {cause(error)}", remedy) from error
        finally:
            if not borrowed:
                spark.stop()


@contextmanager
def _progress() -> Iterator[None]:
    """Writes progress to standard error: one line that changes on a terminal, a line now and then elsewhere."""
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
        raise Stopped(USAGE, f"--conf {text} is no setting", "give NAME=VALUE, such as spark.driver.memory=4g")
    return name, value
