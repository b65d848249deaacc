"""Starts Spark for the commands of the pipeline and stops it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from cli.exit_codes import Exit, Failure
from cli.planner_needs import agreeing

Master = Annotated[str, typer.Option("--master", help="Master of Spark: local[2], spark://host:7077, yarn, k8s://...")]
Conf = Annotated[list[str] | None, typer.Option("--conf", help="A setting of Spark, NAME=VALUE; may be repeated.")]
LOCAL = "local[*]"


@contextmanager
def running(master: str, conf: list[str] | None) -> Iterator[Any]:
    """Provides a Spark session and stops it at the end.

    A missing part of Spark, a job that it gives up, and counts that differ are failures of one sentence.
    """
    from pipeline.session import CannotStart, cause, errors, start

    settings = dict(_setting(text) for text in conf or ())
    try:
        spark = start(master, settings)
    except CannotStart as error:
        raise Failure(Exit.FAILED, str(error)) from None
    try:
        with agreeing():
            yield spark
    except errors() as error:
        raise Failure(Exit.FAILED, f"Spark gave up: {cause(error)}", "its own messages above have the rest") from error
    finally:
        spark.stop()


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise Failure(Exit.USAGE, f"--conf {text} is no setting", "give NAME=VALUE, such as spark.driver.memory=4g")
    return name, value
