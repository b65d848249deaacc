"""Data on standard output as a table, JSON or YAML; people are spoken to on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cli.columns import COLUMNS, cell, label

API_VERSION: Final = "regent/v1"
UNBOUNDED_WIDTH: Final = 10_000
"""In a pipe nothing is cut."""


class Format(StrEnum):
    """How data is written."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"


class Output:
    """Where a command's answer goes."""

    def __init__(self, form: Format, color: bool) -> None:
        self.form = form
        width = None if sys.stdout.isatty() else UNBOUNDED_WIDTH
        self._out = Console(no_color=not color, highlight=False, width=width)
        self._err = Console(no_color=not color, highlight=False, stderr=True, soft_wrap=True)

    @property
    def for_programs(self) -> bool:
        """JSON or YAML is wanted."""
        return self.form in (Format.JSON, Format.YAML)

    def say(self, text: str, style: str = "") -> None:
        """A sentence for people."""
        self._err.print(escape(text), style=style)

    def document(self, kind: str, items: Iterable[Any]) -> None:
        """A document for programs."""
        body = {"apiVersion": API_VERSION, "kind": kind, "items": list(items)}
        if self.form is Format.JSON:
            print(json.dumps(body, indent=2, ensure_ascii=False))
        else:
            import yaml

            print(yaml.safe_dump(body, sort_keys=False, allow_unicode=True), end="")

    def listing(self, kind: str, items: Iterable[dict[str, Any]]) -> None:
        """Items below each other."""
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

    def detail(self, kind: str, item: dict[str, Any]) -> None:
        """One item, a line a field."""
        if self.for_programs:
            self.document(kind, [item])
            return
        table = Table.grid(padding=(0, 2))
        for key, value in item.items():
            if value == [] or isinstance(value, dict):
                continue
            table.add_row(label(key), escape(_lines(value)))
        self._print(table)

    def _print(self, table: Table) -> None:
        """Without the blanks that fill the last column: nobody wants lines as long as the longest."""
        with self._out.capture() as captured:
            self._out.print(table)
        print("\n".join(line.rstrip() for line in captured.get().splitlines()))

    def text(self, text: str) -> None:
        """Data that is text as it stands."""
        print(text, end="" if text.endswith("\n") else "\n")

    def clear(self) -> None:
        """A fresh screen, where there is one."""
        self._out.clear()


def _lines(value: Any) -> str:
    if isinstance(value, list) and value and not isinstance(value[0], int):
        return "\n".join(cell(item) for item in value)
    return cell(value)
