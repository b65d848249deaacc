"""Provides Spark for the commands that are no verbs of the pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cli.verbs import as_failure, of_typer
from pipeline.verbs import options
from pipeline.verbs import running as verbs_running

Master = of_typer(options.Master)
Conf = of_typer(options.Conf)
Quiet = of_typer(options.Quiet)


@contextmanager
def running(master: str | None, conf: list[str] | None, *, quiet: bool = False) -> Iterator[Any]:
    """Provides a Spark session and stops it at the end; unless ``quiet``, its jobs say how far they are.

    A missing part of Spark, a job that it gives up, and counts that differ are failures of one sentence.
    """
    with as_failure(), verbs_running.running(master, conf, quiet=quiet) as spark:
        yield spark
