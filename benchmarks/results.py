"""Declares rows of the result table with figures, goals and outcomes, as JSON and as a table."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

TABLE_WIDTH: Final = 180
RESULTS: Final = Path("build/bench.json")
PROCEDURES_RESULTS: Final = Path("build/procedures.json")
OPERATIONS_RESULTS: Final = Path("build/operations.json")


@dataclass(frozen=True)
class Sample:
    """Median and range of the warm rounds, and the first round of a fresh process (None where it was not kept)."""

    median: float
    low: float
    high: float
    rounds: int
    cold: float | None = None

    @classmethod
    def of(cls, values: Sequence[float], cold: float | None = None) -> Sample:
        """Makes a sample of the warm rounds' values; without any, of the cold one."""
        found = list(values) or [cold if cold is not None else 0.0]
        return cls(statistics.median(found), min(found), max(found), len(values), cold)

    def shown(self, digits: int) -> str:
        """Returns the median with the range."""
        text = f"{self.median:,.{digits}f}"
        return text if self.rounds < 2 else f"{text} ({self.low:,.{digits}f} to {self.high:,.{digits}f})"


@dataclass(frozen=True)
class Goal:
    """A goal. ``ratio``: least factor over the peer; ``most`` and ``least``: bounds of the figure.

    All that are given count; without any the figure is only shown.
    """

    ratio: float | None = None
    most: float | None = None
    least: float | None = None

    def met(self, ours: float, ratio: float | None) -> bool | None:
        """Returns whether the goal is met; None without a goal, or without a peer to compare with."""
        judged = [ours <= self.most] if self.most is not None else []
        judged += [ours >= self.least] if self.least is not None else []
        judged += [ratio >= self.ratio] if self.ratio is not None and ratio is not None else []
        return all(judged) if judged else None

    def __str__(self) -> str:
        parts = [f"at most {self.most:g}"] if self.most is not None else []
        parts += [f"at least {self.ratio:.3g}x"] if self.ratio is not None else []
        parts += [f"at least {self.least:,.0f}"] if self.least is not None else []
        return ", ".join(parts) or "-"


@dataclass
class Row:
    """One line of the table. ``costs`` has the median costs of a round by contestant."""

    case: str
    size: str
    what: str
    unit: str
    ours: Sample
    peer: Sample | None = None
    goal: Goal = field(default_factory=Goal)
    higher_is_better: bool = False
    peer_is: str = "Kafka 3.9.1"
    costs: dict[str, dict[str, float]] = field(default_factory=dict)
    phases: dict[str, dict[str, float]] = field(default_factory=dict)
    note: str = ""
    pairs: float | None = None
    """Median of the factors of rounds that were played in turn."""

    @property
    def ratio(self) -> float | None:
        """Returns the factor over the peer: of the pairs, or by the medians."""
        if self.pairs is not None:
            return self.pairs
        if self.peer is None or not self.ours.median or not self.peer.median:
            return None
        ratio = self.peer.median / self.ours.median
        return 1 / ratio if self.higher_is_better else ratio

    @property
    def met(self) -> bool | None:
        """Returns whether the goal is met; None without a goal."""
        return self.goal.met(self.ours.median, self.ratio)

    def as_json(self) -> dict[str, Any]:
        """Returns all fields, computed ones included."""
        return {**asdict(self), "goal": str(self.goal), "ratio": self.ratio, "met": self.met}


def save(rows: Iterable[Row], machine: dict[str, Any], path: Path = RESULTS) -> list[dict[str, Any]]:
    """Adds rows to the file; a row of the same case and size replaces the one before. Returns all rows."""
    kept = {(row["case"], row["size"]): row for row in load(path)}
    for row in rows:
        kept[row.case, row.size] = row.as_json()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"machine": machine, "rows": list(kept.values())}, indent=1) + "\n", encoding="utf-8")
    return list(kept.values())


def load(path: Path = RESULTS) -> list[dict[str, Any]]:
    """Reads the rows of earlier runs."""
    return list(json.loads(path.read_text(encoding="utf-8"))["rows"]) if path.exists() else []


def show(
    rows: Sequence[Row], console: Console | None = None, title: str = "regent beside Kafka's own controller"
) -> None:
    """Prints the table and, below it, the phases."""
    console = console or Console(width=TABLE_WIDTH)
    table = Table(title=f"{title}: median (range)")
    for name, justify in (("case", "left"), ("size", "left"), ("what", "left")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for name in ("regent", "peer", "ratio", "goal", "met"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*_cells(row))
    console.print(table)
    for row in rows:
        for name, phases in row.phases.items():
            parts = ", ".join(f"{phase} {value:.3f}" for phase, value in phases.items())
            console.print(f"{row.case} {row.size} {name}: {parts}", highlight=False)


def digits(unit: str) -> int:
    """Returns the number of decimals of a unit."""
    return {"s": 3, "us": 2, "times": 2, "cost": 2, "splits per second": 1, "znodes": 1}.get(unit, 0)


def factor(ratio: float | None) -> str:
    """Returns a ratio, with more decimals where it is near to 1."""
    if ratio is None:
        return "-"
    return f"{ratio:.1f}x" if ratio >= 10 else f"{ratio:.2f}x"


def _cells(row: Row) -> list[str]:
    places = digits(row.unit)
    met = {True: "[green]yes", False: "[red]NO", None: "-"}[row.met]
    return [
        row.case,
        row.size,
        f"{row.what}, {row.unit}",
        row.ours.shown(places),
        row.peer.shown(places) if row.peer is not None else "-",
        factor(row.ratio),
        str(row.goal),
        met,
    ]
