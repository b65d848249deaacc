"""Writes docs/reference/performance.md and its picture from the figures in build: ``python -m benchmarks.report``.

Operations under load have a section of their own, and procedures have one; a part without new figures stays as it is.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks import plot
from benchmarks.plan import PLOT_BROKERS
from benchmarks.results import OPERATIONS_RESULTS, PROCEDURES_RESULTS, RESULTS, Sample, digits, factor

PAGE: Final = Path("docs/reference/performance.md")
PICTURE: Final = Path("docs/images/failover.svg")
METHOD: Final = Path(__file__).with_name("method.md")
PROCEDURES_METHOD: Final = Path(__file__).parent / "procedures" / "method.md"
OPERATIONS: Final = "# Operations under load\n"
PROCEDURES: Final = "# Procedures\n"
"""Headings of the second and the third part, which end those before; one level down in the page."""

COSTS_OF: Final = frozenset({"F2", "F3", "D1t", "D2", "D3", "R1", "R2", "P1", "T1", "T2"})
"""Cases that show the costs of a round, one for each event."""

Rows = Sequence[Mapping[str, Any]]


def page(machine: Mapping[str, Any], rows: Rows, method: str, *, picture: bool) -> str:
    """Returns the whole page."""
    parts = ["# Performance", "", _measured_on(machine), "", _table(rows), ""]
    if picture:
        parts += [f"![Failover time over partitions](../images/{PICTURE.name})", ""]
    return "\n".join([*parts, "## What a round took of the machine", "", _costs(rows), "", _phases(rows), "", method])


def _measured_on(machine: Mapping[str, Any]) -> str:
    return (
        f"`make bench-full` on {machine['cores']} cores ({machine['processor']}), {machine['memory_gib']} GiB, Python "
        f"{machine['python']}, Java {machine['java']}, Kafka {machine['kafka']}, ZooKeeper {machine['zookeeper']}: "
        "everything on one machine, so trust the ratios rather than the seconds. Median (range) of the warm rounds; "
        "cold is the first event of a fresh process."
    )


def _table(rows: Rows) -> str:
    lines = [
        "| case | size | what | regent | cold | peer | cold | ratio | goal | met |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        places = digits(row["unit"])
        ours, peer = Sample(**row["ours"]), Sample(**row["peer"]) if row["peer"] else None
        met = {True: "yes", False: "**no**", None: "-"}[row["met"]]
        ratio = factor(row["ratio"])
        peer_cells = f"{peer.shown(places)} | {_cold(peer, places)}" if peer else "- | -"
        lines.append(
            f"| {row['case']} | {row['size']} | {row['what']}, {row['unit']} | {ours.shown(places)} | "
            f"{_cold(ours, places)} | {peer_cells} | {ratio} | {row['goal']} | {met} |"
        )
    return "\n".join(lines)


def _cold(sample: Sample, places: int) -> str:
    return "-" if sample.cold is None else f"{sample.cold:,.{places}f}"


def _costs(rows: Rows) -> str:
    lines = [
        (
            "| event | size | controller | ZooKeeper requests | broker requests | MB to brokers | peak RSS, MB | "
            "CPU s | ZooKeeper CPU s | brokers CPU s | others, processors | fixed loop, ms |"
        ),
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        if row["case"] not in COSTS_OF:
            continue
        event = row["what"].partition(" until")[0]
        for name, cost in row["costs"].items():
            lines.append(
                f"| {event} | {row['size']} | {name} | {cost['zookeeper_requests']:,.0f} | "
                f"{cost['broker_requests']:,.0f} | {cost['broker_bytes'] / 1e6:,.1f} | {cost['peak_rss_mb']:,.0f} | "
                f"{cost['cpu_s']:.2f} | {cost['zookeeper_cpu_s']:.2f} | {cost['brokers_cpu_s']:.2f} | "
                f"{cost['foreign_cpus']:.1f} | {cost['pace_ms']:.0f} |"
            )
    return "\n".join(lines)


def _phases(rows: Rows) -> str:
    lines = ["Where the time goes, as the controllers' own logs report (seconds, medians), and the CPU of ours:", ""]
    for row in rows:
        if row["case"] not in {"F1", "C1", "S"}:
            continue
        for name, phases in row["phases"].items():
            parts = ", ".join(f"{phase} {value:.3f}" for phase, value in phases.items())
            lines.append(f"- {row['case']} {row['size']}, {name}: {parts}")
    return "\n".join(lines)


def operations(machine: Mapping[str, Any], rows: Rows) -> str:
    """Returns the part on what each operation costs a producer."""
    lines = [
        "| operation | regent: longest wait, s | took, s | by Kafka's own means | longest wait, s | took, s |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        ours, took = Sample(**row["ours"]).shown(2), row["phases"].get("took, s", {})
        peer = Sample(**row["peer"]).shown(2) if row["peer"] else "-"
        by = row["peer_is"] if row["peer"] else "none"
        seconds = [f"{took[name]:.1f}" if name in took else "-" for name in ("regent", "Kafka")]
        lines.append(f"| {row['size']} | {ours} | {seconds[0]} | {by} | {peer} | {seconds[1]} |")
    where = f"{machine['cores']} cores ({machine['processor']})"
    head = (
        f"`python -m benchmarks --case W --case O` on {where}: the longest wait of a record with acks=all, "
        "from the begin of an operation until its end, and until every replica is in sync."
    )
    return "\n".join([f"#{OPERATIONS}", head, "", *lines])


def procedures(machine: Mapping[str, Any], rows: Rows, method: str) -> str:
    """Returns the part on procedures."""
    head = f"`make bench-procedures`, regent {machine['regent']} on {machine['cores']} cores ({machine['processor']})"
    lines = [
        "| case | size | what | regent | peer | which peer | ratio | goal | met |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        places = digits(row["unit"])
        ours, peer = Sample(**row["ours"]), Sample(**row["peer"]) if row["peer"] else None
        met = {True: "yes", False: "**no**", None: "-"}[row["met"]]
        lines.append(
            f"| {row['case']} | {row['size']} | {row['what']}, {row['unit']} | {ours.shown(places)} | "
            f"{peer.shown(places) if peer else '-'} | {row['peer_is'] if peer else '-'} | {factor(row['ratio'])} | "
            f"{row['goal']} | {met} |"
        )
    spent = [
        f"- {row['case']} {row['size']}, {name if name == 'regent' else row['peer_is']}: {phase} {value:.2f}"
        for row in rows
        for name, phases in row["phases"].items()
        for phase, value in phases.items()
    ]
    return "\n".join(
        [f"#{PROCEDURES}", f"{head}: median (range).", "", *lines, "", "CPU besides:", "", *spent, "", method]
    )


def main() -> int:
    """Writes the page; exits with 1 without any figures."""
    there = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    rest, heading, last = there.partition(f"#{PROCEDURES}")
    third = heading + last
    first, heading, middle = rest.partition(f"#{OPERATIONS}")
    second = heading + middle
    if not any(found.exists() for found in (RESULTS, OPERATIONS_RESULTS, PROCEDURES_RESULTS)):
        print(f"{RESULTS} does not exist: run 'make bench' or 'make bench-full' first", file=sys.stderr)
        return 1
    if RESULTS.exists():
        found = json.loads(RESULTS.read_text(encoding="utf-8"))
        picture = plot.draw(found["rows"], PLOT_BROKERS, PICTURE)
        first = page(found["machine"], found["rows"], METHOD.read_text(encoding="utf-8"), picture=picture)
    if OPERATIONS_RESULTS.exists():
        found = json.loads(OPERATIONS_RESULTS.read_text(encoding="utf-8"))
        second = operations(found["machine"], found["rows"])
    if PROCEDURES_RESULTS.exists():
        found = json.loads(PROCEDURES_RESULTS.read_text(encoding="utf-8"))
        third = procedures(found["machine"], found["rows"], PROCEDURES_METHOD.read_text(encoding="utf-8"))
    parts = (part.strip() for part in (first, second, third))
    PAGE.write_text("\n\n".join(part for part in parts if part) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    argparse.ArgumentParser(prog="python -m benchmarks.report", description=__doc__).parse_args()
    sys.exit(main())
