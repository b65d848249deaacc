"""Writes data to standard output as a table, JSON or YAML, and messages for people to standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterable
from enum import StrEnum
from typing import Any, Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cli.columns import COLUMNS
from cli.progress import ProgressLine


def cell(value: Any) -> str:
    """Returns a value as a table shows it: lists with commas, no value as a dash, endpoints as ``NAME://host:port``."""
    if value is None or value == [] or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.1f}"
    if isinstance(value, list):
        return ",".join(cell(item) for item in value)
    if isinstance(value, dict):
        endpoint = {"name", "host", "port"} <= value.keys()
        return f"{value['name']}://{value['host']}:{value['port']}" if endpoint else _pairs(value)
    return str(value)


def _pairs(value: dict[str, Any]) -> str:
    return " ".join(f"{name}={cell(item)}" for name, item in value.items())


def label(key: str) -> str:
    """Returns a JSON key as a heading: ``propagationAgeS`` becomes ``propagation age s``."""
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in key)


API_VERSION: Final = "regent/v1"
FILLED: Final = frozenset({"Procedure"})
"""Kinds of items of which a line for each field shows those alone that have a value: they have fields of all kinds."""
BAD: Final = "bold red"
DIM: Final = "dim"
UNBOUNDED_WIDTH: Final = 10_000
"""Width in a pipe, where no line is cut."""


class Format(StrEnum):
    """Format of the data."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"


class Output:
    """Writer of a command's data and messages."""

    def __init__(self, form: Format, color: bool) -> None:
        self.form = form
        width = None if sys.stdout.isatty() else UNBOUNDED_WIDTH
        self._out = Console(no_color=not color, emoji=False, highlight=False, width=width)
        self._err = Console(no_color=not color, emoji=False, highlight=False, stderr=True, soft_wrap=True)

    @property
    def for_programs(self) -> bool:
        """Returns whether the format is JSON or YAML."""
        return self.form in (Format.JSON, Format.YAML)

    def progress(self, pid: int) -> ProgressLine:
        """Returns the writer of a procedure's progress, beside the messages."""
        return ProgressLine(self._err, pid, self.message)

    def message(self, text: str, style: str = "") -> None:
        """Writes a sentence for people."""
        self._err.print(escape(text), style=style)

    def failure(self, message: str, remedy: str, code: int) -> None:
        """Writes why a command failed: in sentences, or as a document of the kind ``Error`` on standard error."""
        if self.for_programs:
            error = {"message": message, "remedy": remedy, "exitCode": int(code)}
            print(self._encoded("Error", [error]), end="", file=sys.stderr)
            return
        self.message(message, style="red")
        if remedy:
            self.message(f"Remedy: {remedy}")

    def document(self, kind: str, items: Iterable[Any]) -> None:
        """Writes a document for programs."""
        print(self._encoded(kind, items), end="")

    def _encoded(self, kind: str, items: Iterable[Any]) -> str:
        body = {"apiVersion": API_VERSION, "kind": kind, "items": list(items)}
        if self.form is Format.JSON:
            return json.dumps(body, indent=2, ensure_ascii=False) + "\n"
        import yaml

        return str(yaml.safe_dump(body, sort_keys=False, allow_unicode=True))

    def listing(self, kind: str, items: Iterable[dict[str, Any]]) -> None:
        """Writes items below each other."""
        if self.for_programs:
            self.document(kind, items)
            return
        columns = [column for column in COLUMNS[kind] if self.form is Format.WIDE or not column.wide]
        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in columns:
            table.add_column(column.header, overflow="fold")
        for item in items:
            table.add_row(*(escape(cell(item.get(column.key))) for column in columns))
        self._print(table)

    def detail(self, kind: str, item: dict[str, Any], bad: Collection[str] = (), quiet: Collection[str] = ()) -> None:
        """Writes one item, a line for each field: those of ``bad`` red, those of ``quiet`` dim where they are 0."""
        if self.for_programs:
            self.document(kind, [item])
            return
        table = Table.grid(padding=(0, 2))
        for key, value in item.items():
            if value == [] or isinstance(value, dict) or (kind in FILLED and value in (None, "")):
                continue
            style = BAD if key in bad else DIM if key in quiet and not value else ""
            table.add_row(label(key), escape(_lines(value)), style=style)
        self._print(table)

    def _print(self, table: Table) -> None:
        """Prints a table without the blanks that fill its last column."""
        with self._out.capture() as captured:
            self._out.print(table)
        print("\n".join(line.rstrip() for line in captured.get().splitlines()))

    def text(self, text: str) -> None:
        """Writes data that is text already."""
        print(text, end="" if text.endswith("\n") else "\n")

    def clear(self) -> None:
        """Clears the screen, where there is one."""
        self._out.clear()


def _lines(value: Any) -> str:
    if isinstance(value, list) and value and not isinstance(value[0], int):
        return "\n".join(cell(item) for item in value)
    return cell(value)
