"""Shows the result of a verb: data on standard output, sentences for people on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, Protocol

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
