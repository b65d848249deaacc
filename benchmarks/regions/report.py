"""Writes docs/reference/performance-regions.md from build/regions.json: ``python -m benchmarks.regions.report``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

from benchmarks.regions.__main__ import RESULTS
from benchmarks.results import Sample, digits, factor

PAGE: Final = Path("docs/reference/performance-regions.md")
METHOD: Final = Path(__file__).with_name("method.md")


def page(machine: dict[str, Any], rows: list[dict[str, Any]], method: str) -> str:
    """Returns the page."""
    lines = [
        "# Performance of regions",
        "",
        _measured_on(machine),
        "",
        "| case | size | what | regent | HBase | ratio | goal | met |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        met = {True: "yes", False: "**no**", None: "-"}[row["met"]]
        places = digits(row["unit"])
        shown = Sample(**row["ours"]).shown(places)
        peer = f"{Sample(**row['peer']).shown(places)} ({row['peer_is']})" if row["peer"] else "-"
        cells = (
            row["case"],
            row["size"],
            f"{row['what']}, {row['unit']}",
            shown,
            peer,
            factor(row["ratio"]),
            row["goal"],
            met,
        )
        lines.append(f"| {' | '.join(cells)} |")
    spent = [
        f"- {row['case']} {row['size']}, {name}: {phase} {value:.0f}"
        for row in rows
        for name, phases in row["phases"].items()
        for phase, value in phases.items()
    ]
    return "\n".join([*lines, "", "Besides:", "", *spent, "", method])


def _measured_on(machine: dict[str, Any]) -> str:
    return (
        f"`make bench-regions`, regent {machine['regent']} on {machine['cores']} cores ({machine['processor']}), "
        f"Python {machine['python']}: median (range)."
    )


def main() -> int:
    """Writes the page; exits with 1 without figures."""
    if not RESULTS.exists():
        print(f"{RESULTS} does not exist: run 'python -m benchmarks.regions' first", file=sys.stderr)
        return 1
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    PAGE.write_text(page(found["machine"], found["rows"], METHOD.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
