"""Measures case DP2: what an audit costs, beside that of another tree: ``python -m benchmarks.audit_cost``.

It makes journals as :mod:`benchmarks.made_journal`, one of them with the first and last rows of terms alone. Each tree
ingests each of them and audits it three times, in a Spark of its own on ``local[2]``; the first audit has a cold JVM.
CPU seconds are those of Python, the JVM and all workers: on a shared machine they mean more than seconds. ``--before``
names a clone at the revision to compare with. It needs the extra ``pipeline`` and Java 17, and prints one JSON object
to standard output.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from benchmarks import made_journal

CHILD: Final = Path(__file__).with_name("audit_child.py")
SLOTS: Final = 2
Measured = dict[str, Any]


def main() -> None:
    """Measures each size with each tree, and prints how many times less CPU this one takes."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.audit_cost", description=__doc__)
    parser.add_argument("--events", type=int, nargs="+", default=[0, 1_000_000, 4_000_000])
    parser.add_argument("--partitions", type=int, default=100_000)
    parser.add_argument("--before", type=Path, help="a clone at another revision")
    chosen = parser.parse_args()
    trees = {"now": Path(__file__).parents[1]} | ({"before": chosen.before.resolve()} if chosen.before else {})
    folder = Path(tempfile.mkdtemp(prefix="regent-audit-"))
    try:
        found = {str(size): _size(folder, size, chosen.partitions, trees) for size in chosen.events}
    finally:
        shutil.rmtree(folder)
    print(json.dumps(found, indent=2))


def _size(folder: Path, events: int, partitions: int, trees: dict[str, Path]) -> Measured:
    journal = folder / f"journal-{events}"
    journals = made_journal.write(journal, events, partitions)
    found: Measured = {name: _measured(tree, journals, folder / f"{name}-{events}") for name, tree in trees.items()}
    shutil.rmtree(journal)
    if "before" in found:
        cold, warm = (found["before"]["auditCpuS"][at] / found["now"]["auditCpuS"][at] for at in (0, -1))
        found["timesLessCpu"] = {"first": round(cold, 1), "third": round(warm, 1)}
    print(f"{events} rows: {json.dumps(found)}", file=sys.stderr, flush=True)
    return found


def _measured(tree: Path, journals: list[str], bronze: Path) -> Measured:
    """Runs the jobs of a tree, and adds rows per second and slot where there are any."""
    environment = os.environ | {"PYTHONPATH": str(tree)}
    command = [sys.executable, "-P", str(CHILD), f"local[{SLOTS}]", str(bronze), *journals]
    ran = subprocess.run(command, cwd=tree, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    found: Measured = json.loads(ran.stdout.splitlines()[-1])
    shutil.rmtree(bronze)
    if not found.pop("clean"):
        raise SystemExit(f"the journal was made wrong: {found}")
    rows = found["rows"]
    return found | {"rowsPerSOfTwoCores": [round(SLOTS * rows / cpu_s) for cpu_s in found["auditCpuS"]]}


if __name__ == "__main__":
    main()
