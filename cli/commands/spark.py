"""Starts Spark for the commands of the pipeline and stops it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from cli.exit_codes import Exit, Failure

Master = Annotated[str, typer.Option("--master", help="Master of Spark: local[2], spark://host:7077, yarn, k8s://...")]
Conf = Annotated[list[str] | None, typer.Option("--conf", help="A setting of Spark, NAME=VALUE; may be repeated.")]
LOCAL = "local[*]"


@contextmanager
def running(master: str, conf: list[str] | None) -> Iterator[Any]:
    """Provides a Spark session and stops it at the end; a missing part of Spark is a failure of one sentence."""
    from pipeline.session import CannotStart, start

    settings = dict(_setting(text) for text in conf or ())
    try:
        spark = start(master, settings)
    except CannotStart as error:
        raise Failure(Exit.FAILED, str(error)) from None
    try:
        yield spark
    finally:
        spark.stop()


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise Failure(Exit.USAGE, f"--conf {text} is no setting", "give NAME=VALUE, such as spark.driver.memory=4g")
    return name, value
