"""Measures how fast the pipeline ingests journals (DP1): ``python -m benchmarks.ingest_speed``.

It makes journals of several sizes and ingests each, every time in a new process: the tree of a clone of an earlier
revision (``--before``) and this one take turns. CPU seconds are those of all processes of Spark, without its start; on
a shared machine only their ratio means anything. It needs the extra ``pipeline`` and Java 17, and prints one JSON
object to standard output.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.made_journal import write

HERE: Final = Path(__file__).parents[1]
RUN_S_MAX: Final = 1_800
TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")
CHILD: Final = """
import json, os, sys, time
from pathlib import Path
from pipeline.session import start

def tree():
    of, spent = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        of[int(path.parent.name)], spent[int(path.parent.name)] = int(fields[1]), sum(map(int, fields[11:15]))
    within = {os.getpid()}
    while more := {pid for pid, parent in of.items() if parent in within} - within:
        within |= more
    return sum(spent[pid] for pid in within)

if __name__ == "__main__":
    master, memory, into, *journals = sys.argv[1:]
    spark = start(master, {"spark.driver.memory": memory})
    from pipeline import jobs
    before, begun = tree(), time.monotonic()
    rows = jobs.ingest(spark, journals, into)["rows"]
    print(json.dumps({"rows": rows, "s": time.monotonic() - begun, "ticks": tree() - before}))
    spark.stop()
"""
"""Runs in any revision of the tree."""


def main() -> None:
    """Makes each journal, and ingests it in both trees."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ingest_speed", description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 4_000_000])
    parser.add_argument("--partitions", type=int, default=100_000)
    parser.add_argument("--before", type=Path, help="a clone at an earlier revision, such as 2558b706")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--memory", default="4g", help="of the driver")
    chosen = parser.parse_args()
    found = []
    for rows in chosen.rows:
        folder = Path(tempfile.mkdtemp(prefix="regent-ingest-"))
        try:
            journals = write(folder / "journals", rows, chosen.partitions)
            found.append(compared(journals, folder, chosen.before, [chosen.master, chosen.memory]))
        finally:
            shutil.rmtree(folder)
    print(json.dumps({"DP1": found}, indent=2))


def compared(journals: Sequence[str], folder: Path, earlier: Path | None, options: Sequence[str]) -> dict[str, Any]:
    """Returns the measures of both trees, and how many times less CPU this one takes."""
    before = ingested(earlier, journals, folder / "before", options) if earlier is not None else None
    now = ingested(HERE, journals, folder / "now", options)
    if before is None:
        return {"now": now}
    if before["rows"] != now["rows"]:
        raise SystemExit(f"{before['rows']} rows before and {now['rows']} now: one of them is wrong")
    return {"before": before, "now": now, "timesLessCpu": round(before["cpuUsPerRow"] / now["cpuUsPerRow"], 1)}


def ingested(tree: Path, journals: Sequence[str], into: Path, options: Sequence[str]) -> dict[str, Any]:
    """Ingests in a process of its own, with the code of ``tree`` and the libraries of this Python."""
    environment = os.environ | {"PYTHONPATH": str(tree), "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, "-c", CHILD, *options, str(into), *journals]
    ran = subprocess.run(
        command, cwd=tree, env=environment, stdout=subprocess.PIPE, text=True, timeout=RUN_S_MAX, check=True
    )
    found = json.loads(ran.stdout.splitlines()[-1])
    shutil.rmtree(into)
    took = {
        "rows": found["rows"],
        "s": round(found["s"], 2),
        "rowsPerS": round(found["rows"] / found["s"]),
        "cpuS": round(found["ticks"] * TICK_S, 2),
        "cpuUsPerRow": round(found["ticks"] * TICK_S / found["rows"] * 1e6, 2),
    }
    print(f"{tree.name}: {took}", file=sys.stderr, flush=True)
    return took


if __name__ == "__main__":
    main()
