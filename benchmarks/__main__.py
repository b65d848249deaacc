"""Compares regent with Kafka's own controller on one machine and the same brokers: ``python -m benchmarks``.

Runs the small sizes (some minutes), with ``--full`` all of them. ``--case F1 --size 100kx20 --rounds 5``
runs one. Progress goes to standard error, the table to standard output, figures to ``build/bench.json`` (those of
case O, operations under load, to ``build/operations.json``).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import shutil
import signal
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from benchmarks import in_process, part_cost, rounds
from benchmarks.arena import arena, say
from benchmarks.contestants import OURS, PEER
from benchmarks.controller_death import deaths
from benchmarks.datasets import shape
from benchmarks.machine import machine
from benchmarks.operations import operations
from benchmarks.plan import (
    ADDED,
    BOTH_DIE,
    DEATH,
    FULL,
    MOVED,
    PREFERRED,
    REASSIGNMENTS,
    SHUTDOWN,
    SMALL,
    TOPICS,
    Run,
    goal,
)
from benchmarks.real_split import split
from benchmarks.results import OPERATIONS_RESULTS, RESULTS, Row, Sample, save, show
from benchmarks.throttled_plan import waits
from benchmarks.turns import Wrong
from benchmarks.zookeeper_speed import speeds
from testing.embedded.process import ProcessFailed

EVENTS: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(("F1", "F2", "M1", "L1"), ()),
    "D1": (SHUTDOWN,),
    **dict.fromkeys(("D2", "D3"), (DEATH,)),
    "F3": (BOTH_DIE,),
    **dict.fromkeys(("R1", "R2"), (REASSIGNMENTS,)),
    "P1": (PREFERRED,),
    **dict.fromkeys(("T1", "T2"), (TOPICS,)),
}
CPU_SIZE: Final = {False: "100kx20", True: "400kx50"}
ZOOKEEPER_SIZE: Final = {False: "20kx10", True: "100kx20"}
CPU_ROUNDS: Final = 5
PART_SIZE: Final = "100kx20"
DEATHS: Final = 5
PLANS: Final = 2


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--full", action="store_true", help="all sizes")
    cases = [*EVENTS, "C1", "S", "Z", "K", "W", "O", "J", "I", "all"]
    parser.add_argument("--case", choices=cases, action="append", help="only these")
    parser.add_argument("--size", type=known_size, action="append", help="100kx20 (partitions x brokers) or 25ktopics")
    parser.add_argument("--rounds", type=int, help="warm rounds of both")
    parser.add_argument("--peer-rounds", type=int, help="warm rounds of the peer, -1 leaves it out")
    parser.add_argument("--only", choices=(OURS, PEER), help="one of the two alone; nothing is saved")
    parser.add_argument("--full-answers", action="store_true", help="brokers answer for each partition")
    parser.add_argument("--keep", action="store_true", help="keep the logs")
    return parser.parse_args(arguments)


def known_size(name: str) -> str:
    """The name of a data set that can be made."""
    try:
        shape(name)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return name


async def run(chosen: argparse.Namespace) -> list[Row]:
    """Measures all requested rows; saves those of each data set at once."""
    made: list[Row] = []
    if chosen.full and not chosen.case:
        RESULTS.unlink(missing_ok=True)
    wanted = set(chosen.case or ["all"])
    if wanted & {*EVENTS, "all"}:
        for each in runs(chosen):
            made += await beside_the_peer(each, chosen)
    if wanted & {"S", "Z", "all"}:
        for size in chosen.size or [ZOOKEEPER_SIZE[chosen.full]]:
            made += await on_real_zookeeper(size, wanted, keep=chosen.keep)
    for case in part_cost.PARTS:
        if case in wanted or (chosen.full and "all" in wanted):
            for size in chosen.size or [PART_SIZE]:
                with scratch(chosen.keep) as folder:
                    made += kept([await part_cost.cost(case, size, folder)])
    clusters: set[str] = {"K", "W", "O"} if chosen.full and "all" in wanted else set()
    made += await on_real_brokers(wanted | clusters, chosen.rounds)
    if wanted & {"C1", "all"}:
        for size in chosen.size or [CPU_SIZE[chosen.full]]:
            made += kept([await cpu(size)])
    return made


async def beside_the_peer(each: Run, chosen: argparse.Namespace) -> list[Row]:
    """Measures one data set; saves its rows unless one of the two controllers was left out by hand."""
    say(f"{each.size}: {shape(each.size)}")
    only = (chosen.only,) if chosen.only else (OURS, PEER)
    with scratch(chosen.keep) as folder:
        made = rounds.rows(await rounds.play(each, folder, only, full_answers=chosen.full_answers))
    return made if chosen.only else kept(made)


async def on_real_zookeeper(size: str, wanted: set[str], *, keep: bool) -> list[Row]:
    """Measures the cases that need ZooKeeper and simulated brokers, but no controller process."""
    with scratch(keep) as folder:
        async with arena(shape(size), folder) as found:
            made = kept([await split(found)]) if wanted & {"S", "all"} else []
            return made + (kept(await speeds(found)) if wanted & {"Z", "all"} else [])


async def on_real_brokers(wanted: set[str], rounds_wanted: int | None) -> list[Row]:
    """Measures the cases of clusters of some real brokers."""
    made = kept(await deaths(rounds_wanted or DEATHS)) if "K" in wanted else []
    made += kept_operations([await waits(rounds_wanted or PLANS)]) if "W" in wanted else []
    return made + (await operations(rounds_wanted or 1, kept_operations) if "O" in wanted else [])


def runs(chosen: argparse.Namespace) -> list[Run]:
    """Lists the data sets and their rounds: those of the plan, unless the command line has others."""
    found = [planned(size) for size in chosen.size] if chosen.size else list(FULL if chosen.full else SMALL)
    cases = [case for case in chosen.case or () if case in EVENTS]
    if cases:
        events = tuple(dict.fromkeys(event for case in cases for event in EVENTS[case]))
        planned_for = [each for each in found if chosen.size or not events or set(events) & set(each.events)]
        found = [replace(each, events=events) for each in planned_for]
    if chosen.rounds is not None:
        wanted = chosen.rounds
        found = [replace(each, rounds=wanted, peer_rounds=min(each.peer_rounds, wanted)) for each in found]
    if chosen.peer_rounds is not None:
        found = [replace(each, peer_rounds=chosen.peer_rounds) for each in found]
    return found


def planned(size: str) -> Run:
    """Returns the planned run of a size; for other sizes deaths, and work that suits them."""
    found = next((each for each in (*FULL, *SMALL) if each.size == size), None)
    if found is not None:
        return found
    wanted = shape(size)
    moved, added = min(MOVED, wanted.partitions // 2), min(ADDED, wanted.topics)
    return Run(size, (DEATH, SHUTDOWN), moved=moved, added=added)


async def cpu(size: str) -> Row:
    """Measures C1 and its split."""
    wanted = shape(size)
    bursts = await in_process.run(wanted, "failover", CPU_ROUNDS)
    per = [1e6 * burst.cpu_s / wanted.partitions for burst in bursts]
    row = Row("C1", size, "CPU of one failover per partition", "us", Sample.of(per), goal=goal("C1", size))
    parts = await in_process.split(wanted, "failover", CPU_ROUNDS)
    for stage in [*parts[0].stages, "rest"]:
        values = [burst.stages.get(stage, burst.rest_s) for burst in parts]
        row.phases.setdefault("us per partition", {})[stage] = 1e6 * statistics.median(values) / wanted.partitions
    row.note = "without ZooKeeper's and sockets' system calls"
    return row


def kept(rows: list[Row]) -> list[Row]:
    """Saves rows and returns them."""
    save(rows, machine())
    return rows


def kept_operations(rows: list[Row]) -> list[Row]:
    """Saves rows of operations and returns them."""
    save(rows, machine(), OPERATIONS_RESULTS)
    return rows


@contextmanager
def scratch(keep: bool) -> Iterator[Path]:
    """Makes a folder for data and logs; removes it afterwards unless it was requested or the block failed."""
    folder = Path(tempfile.mkdtemp(prefix="regent-bench-"))
    try:
        yield folder
    except Exception:
        keep = True
        raise
    finally:
        if keep:
            say(f"logs are kept in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


async def _interruptible(chosen: argparse.Namespace) -> list[Row]:
    """Lets Ctrl-C and SIGTERM end all started processes before this one."""
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    return await run(chosen)


def main() -> int:
    """Exits with 0 where every goal is met, 1 where one is not, 2 where an end was wrong, 130 when interrupted."""
    logging.getLogger("regent.metadata_store.kazoo").setLevel(logging.ERROR)
    logging.getLogger("kazoo").setLevel(logging.ERROR)
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    try:
        rows = asyncio.run(_interruptible(parsed()))
    except (Wrong, ProcessFailed) as wrong:
        say(str(wrong))
        return 2
    except (asyncio.CancelledError, KeyboardInterrupt):
        with contextlib.suppress(BrokenPipeError):
            say("interrupted; everything that was started is ended")
        return 130
    show(rows)
    return 1 if any(row.met is False for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
