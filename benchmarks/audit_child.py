"""Ingests and audits a journal with the tree on the path, and prints the CPU seconds of all processes.

:mod:`benchmarks.audit_cost` runs it, also with earlier trees: it imports nothing else of this one.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

AUDITS = 3
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def tree_cpu_s() -> float:
    """Returns the CPU seconds of this process, of all that descend from it, and of those that these have reaped."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended
        pid = int(path.parent.name)
        parents[pid], ticks[pid] = int(fields[1]), sum(map(int, fields[11:15]))
    family = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return sum(ticks[pid] for pid in family) * TICK_S


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Runs a step; returns its CPU seconds and its result."""
    begun = tree_cpu_s()
    found = work()
    return round(tree_cpu_s() - begun, 2), found


def main(master: str, bronze: str, *journals: str) -> None:
    """Runs the jobs."""
    from pipeline import jobs
    from pipeline.session import start

    start_cpu_s, spark = timed(lambda: start(master, {"spark.driver.memory": "4g"}))
    try:
        ingest_cpu_s, ingested = timed(lambda: jobs.ingest(spark, journals, bronze))
        audits = [timed(lambda: jobs.audit(spark, bronze, strict=True)) for _ in range(AUDITS)]
    finally:
        spark.stop()
    found = {
        "rows": ingested["rows"],
        "clean": all(summary["clean"] for _, summary in audits),
        "startCpuS": start_cpu_s,
        "ingestCpuS": ingest_cpu_s,
        "auditCpuS": [cpu_s for cpu_s, _ in audits],
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
