"""Starts and stops Spark for a verb, says how far its jobs are, and shows its result."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final, Protocol

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


API_VERSION: Final = "regent/v1"


class Shown(Protocol):
    """Takes data and sentences of a verb."""

    @property
    def for_programs(self) -> bool:
        """Returns whether a document is wanted, and no text."""

    def document(self, kind: str, items: Iterable[Any]) -> None:
        """Writes a document for programs."""

    def text(self, text: str) -> None:
        """Writes data that is text already."""

    def message(self, text: str, style: str = "") -> None:
        """Writes a sentence for people. ``style``: a color, where there are some."""


class Plain:
    """Shows by the standard library alone: text, or JSON in the form of ``regent -o json``."""

    def __init__(self, *, json_wanted: bool) -> None:
        self.for_programs = json_wanted

    def document(self, kind: str, items: Iterable[Any]) -> None:
        """Writes a document for programs."""
        self._write(sys.stdout, kind, items)

    def text(self, text: str) -> None:
        """Writes data that is text already."""
        print(text, end="" if text.endswith("\n") else "\n")

    def message(self, text: str, style: str = "") -> None:
        """Writes a sentence for people."""
        print(text, file=sys.stderr)

    def failure(self, message: str, remedy: str, code: int) -> None:
        """Writes why a verb failed: in sentences, or as a document of the kind ``Error`` on standard error."""
        if self.for_programs:
            self._write(sys.stderr, "Error", [{"message": message, "remedy": remedy, "exitCode": code}])
            return
        self.message(message)
        if remedy:
            self.message(f"Remedy: {remedy}")

    def _write(self, to: Any, kind: str, items: Iterable[Any]) -> None:
        body = {"apiVersion": API_VERSION, "kind": kind, "items": list(items)}
        print(json.dumps(body, indent=2, ensure_ascii=False), file=to)


def warn_of_strangers(show: Shown, count: int, loads: Path | None) -> None:
    """Says how many rows of the loads are about partitions that the other input does not have."""
    if count:
        what = f"{count} rows of {loads} are about partitions that are not in the cluster"
        show.message(f"{what}: check that both files are of one cluster and time", style="yellow")
