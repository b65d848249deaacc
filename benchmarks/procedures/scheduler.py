"""S1: the scheduler by the method of HBase's ``MasterProcedureSchedulerPerformanceEvaluation``, beside that tool.

Five tables with ten regions each, operations drawn from all 55. First all are made and enqueued, then all are polled,
locked and released. The tool uses ten threads, regent one loop; results are printed in the tool's format.
"""

from __future__ import annotations

import gc
import math
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.arena import say
from benchmarks.procedures import hbase
from benchmarks.procedures.plan import Sizes, goal
from benchmarks.procedures.rows import paired
from benchmarks.results import Row
from state_machines.procedures.locks import Demand, Resource, Scope
from state_machines.procedures.scheduler import Scheduler

TABLES: Final = 5
REGIONS: Final = 10
THREADS: Final = 10
_LINE: Final = "*" * 42


class Report(NamedTuple):
    """What the tool reports, and the CPU seconds of both phases together."""

    operations: int
    completed: int
    yields: int
    add_back_ms: int
    poll_ms: int
    threads: int
    cpu_s: float

    @classmethod
    def of(cls, run: hbase.Run) -> Report:
        """Reads the result of HBase's tool, which completes all operations."""
        operations = run.number("num_ops")
        return cls(
            operations,
            operations,
            run.number("num_yield"),
            run.number("time_addback_ms"),
            run.number("time_poll_ms"),
            run.number("threads"),
            run.cpu_s,
        )

    def add_backs_per_s(self) -> float:
        """Returns the rate of the first phase."""
        return 1_000 * self.operations / max(1, self.add_back_ms)

    def polls_per_s(self) -> float:
        """Returns the rate of the second phase."""
        return 1_000 * self.completed / max(1, self.poll_ms)


def block(report: Report) -> str:
    """Returns a report as HBase's tool prints it, the line for scripts included."""
    raw = (
        f"RESULT [num_ops={report.operations}, ops_type=both, num_table={TABLES}, regions_per_table={REGIONS}, "
        f"threads={report.threads}, num_yield={report.yields}, time_addback_ms={report.add_back_ms}, "
        f"time_poll_ms={report.poll_ms}]"
    )
    lines = (
        _LINE,
        f"Time - addBack     : {report.add_back_ms / 1_000:.4f} sec",
        f"Ops/sec - addBack  : {humanised(report.add_backs_per_s())}",
        f"Time - poll        : {report.poll_ms / 1_000:.4f} sec",
        f"Ops/sec - poll     : {humanised(report.polls_per_s())}",
        f"Num Operations     : {report.operations}",
        f"Completed          : {report.completed}",
        f"Yield              : {report.yields}",
        f"Num Tables         : {TABLES}",
        f"Regions per table  : {REGIONS}",
        "Operations type    : both",
        f"Threads            : {report.threads}",
        _LINE,
        "Raw format for scripts",
        raw,
    )
    return "\n".join(lines)


def humanised(number: float) -> str:
    """Returns a number as Hadoop prints it: K and M are powers of 1,024."""
    units = "KMG"
    exponent = min(len(units), int(math.log(number, 1_024))) if number >= 1_024 else 0
    return f"{number / 1_024**exponent:.1f}{units[exponent - 1] if exponent else ''}"


def demands() -> list[Demand]:
    """Returns an operation for each table, which locks all of it, and for each region, which shares its table."""
    found: list[Demand] = []
    for table in range(TABLES):
        resource = Resource(Scope.TOPIC, f"table{table}")
        found.append(Demand(resource, exclusive=True))
        found += [Demand(resource, exclusive=False, parts=(region,)) for region in range(REGIONS)]
    return found


def play(operations: int) -> Report:
    """Plays both phases."""
    choices, scheduler = demands(), Scheduler()
    draw, count = random.Random(operations).random, len(choices)
    gc.collect()
    cpu_s, began_s = time.process_time(), time.perf_counter()
    for pid in range(1, operations + 1):
        scheduler.add_back(scheduler.entry(pid, choices[int(draw() * count)]))
    added_s, completed = time.perf_counter(), 0
    poll, release = scheduler.poll, scheduler.release
    while (entry := poll()) is not None:
        release(entry)
        completed += 1
    ended_s = time.perf_counter()
    assert completed == operations, f"{completed} of {operations} operations were given out"
    add_ms, poll_ms = (max(1, round(1_000 * s)) for s in (added_s - began_s, ended_s - added_s))
    return Report(operations, completed, 0, add_ms, poll_ms, 1, time.process_time() - cpu_s)


async def measure(sizes: Sizes, folder: Path, *, peer: bool) -> list[Row]:
    """Plays rounds of both in turn."""
    ours: list[Report] = []
    theirs: list[Report] = []
    for _ in range(sizes.scheduler_rounds):
        ours.append(play(sizes.operations))
        say(f"S1, regent\n{block(ours[-1])}")
        if peer:
            theirs.append(Report.of(await hbase.scheduler(folder, sizes.operations, threads=THREADS)))
            say(f"S1, {hbase.VERSION}\n{block(theirs[-1])}")
    size = f"{sizes.operations:,} operations"
    return [
        _row("S1a", size, "scheduler: made and enqueued", ours, theirs, Report.add_backs_per_s),
        _row("S1p", size, "scheduler: polled, locked, released", ours, theirs, Report.polls_per_s),
    ]


def _row(
    case: str,
    size: str,
    what: str,
    ours: Sequence[Report],
    theirs: Sequence[Report],
    rate: Callable[[Report], float],
) -> Row:
    row = paired(
        case,
        size,
        what,
        "per second",
        list(map(rate, ours)),
        list(map(rate, theirs)),
        goal=goal(case),
        peer_is=f"{hbase.VERSION}, {THREADS} threads",
        higher_is_better=True,
    )
    for name, reports in (("regent", ours), ("peer", theirs)):
        if reports:
            per_us = 1e6 * sum(one.cpu_s for one in reports) / sum(one.operations for one in reports)
            row.phases[name] = {"us of CPU for an operation, both phases": per_us}
    return row
