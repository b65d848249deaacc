"""Adds regent pipeline plan, which balances a cluster from files: a snapshot, loads, racks and capacities."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cli.commands.pipeline_plan_shown import scenario_row, show, worse_in_words
from cli.commands.reassign import MOVES_MAX
from cli.exit_codes import Exit, Failure
from cli.rates import TimeRate
from cli.session import Session
from cli.verbs import Conf, agreeing, needed, running, snapshot_named, warn_of_strangers

if TYPE_CHECKING:
    from pipeline.planner.cluster import Wanted
    from pipeline.planner.disks import OnDisks
    from pipeline.planner.planning import Planned
    from pipeline.planner.problem import Problem
    from pipeline.planner.scenarios import Each


class Export(StrEnum):
    """Form of the files."""

    REGENT = "regent"
    KAFKA = "kafka"


# -- cluster and loads

Snapshot = Annotated[
    Path | None, typer.Option("--snapshot", help="Snapshot of a daemon, or a folder of them: the newest counts.")
]
Assignment = Annotated[
    Path | None, typer.Option("--from-assignment", help="Instead: a file of kafka-reassign-partitions.")
]
Loads = Annotated[Path | None, typer.Option("--loads", help="Loads of partitions: CSV, JSON lines or Parquet.")]
LoadsBefore = Annotated[
    Path | None, typer.Option("--loads-before", help="An earlier file of 'regent loads': two of them give rates.")
]
Brokers = Annotated[
    Path | None, typer.Option("--brokers", help="Racks and capacities of brokers, CSV; may name new brokers.")
]
BrokerSets = Annotated[
    Path | None,
    typer.Option("--broker-sets", help="JSON list of sets: brokers that are for some topics alone."),
]
ClusterId = Annotated[str, typer.Option("--cluster-id", help="Id of the cluster, where the input does not have it.")]
Retire = Annotated[
    list[int] | None, typer.Option("--retire", min=0, help="A broker that all replicas leave; repeatable.")
]
ExcludeBroker = Annotated[
    list[int] | None,
    typer.Option("--exclude-broker", min=0, help="A broker that takes no further replica; repeatable."),
]
ExcludeTopic = Annotated[
    list[str] | None,
    typer.Option("--exclude-topic", help="A topic, or those of a pattern, that stay as they are; repeatable."),
]

# -- goals

Spread = Annotated[
    float, typer.Option("--spread", min=0.01, max=1, help="How far a broker may be from its share, as a share.")
]
ReplicasMax = Annotated[int, typer.Option("--replicas-max", min=1, help="Replicas of one broker.")]
DiskMax = Annotated[float, typer.Option(min=0.01, max=1, help="Share of a disk that may be full.")]
InMax = Annotated[float, typer.Option(min=0.01, max=1, help="Share of the capacity for bytes in.")]
OutMax = Annotated[float, typer.Option(min=0.01, max=1, help="Share of the capacity for bytes out.")]
CpuMax = Annotated[float, typer.Option(min=0.01, max=1, help="Share of the CPU.")]

# -- searches

Seeds = Annotated[int, typer.Option("--seeds", min=1, max=64, help="Searches, of which the best counts.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="First seed: the same ones give the same plan.")]
Scenarios = Annotated[
    Path | None, typer.Option("--scenarios", help="JSON list of scenarios, which are compared; writes no plan.")
]
Master = Annotated[
    str | None,
    typer.Option("--master", help="Runs the searches as tasks of Spark: local[2], spark://host:7077, yarn, ..."),
]

# -- files

Out = Annotated[Path | None, typer.Option("--out", help="File of the plan; without it nothing is written.")]
Form = Annotated[
    Export, typer.Option("--export", help="kafka: files of kafka-reassign-partitions, each with its way back.")
]
Parts = Annotated[int, typer.Option("--parts", min=1, max=10_000, help="Number of files at least.")]


KAFKA_MOVES_MAX: Final = 200_000
"""Moves of one file for Kafka's tool."""
NAMED_MAX: Final = 5
"""Files that a warning names."""
EXAMPLES: Final = (
    "regent pipeline plan --snapshot /var/lib/regent/snapshots --loads loads.csv --out plan.json",
    "regent pipeline plan --snapshot snapshot.jsonl --loads loads.csv --brokers brokers.csv --retire 7 --rate 50M",
    "regent pipeline plan --from-assignment now.json --brokers brokers.csv --export kafka --parts 4 --out moves.json",
    "regent pipeline plan --snapshot snapshot.jsonl --loads loads.csv --scenarios scenarios.json --master local[4]",
)


def plan(
    session: Session,
    snapshot: Snapshot = None,
    from_assignment: Assignment = None,
    loads: Loads = None,
    loads_before: LoadsBefore = None,
    brokers: Brokers = None,
    broker_sets: BrokerSets = None,
    cluster_id: ClusterId = "",
    retire: Retire = None,
    exclude_broker: ExcludeBroker = None,
    exclude_topic: ExcludeTopic = None,
    spread: Spread = 0.10,
    replicas_max: ReplicasMax = 10_000,
    disk_max: DiskMax = 0.80,
    in_max: InMax = 0.80,
    out_max: OutMax = 0.80,
    cpu_max: CpuMax = 0.70,
    seeds: Seeds = 4,
    seed: Seed = 0,
    rate: TimeRate = None,
    scenarios: Scenarios = None,
    master: Master = None,
    conf: Conf = None,
    out: Out = None,
    export: Form = Export.REGENT,
    parts: Parts = 1,
) -> None:
    """Plan moves that balance replicas, bytes, CPU and leaders; changes nothing. Needs neither a daemon nor Spark.

    Exit code 3 where a hard goal cannot be reached.
    """
    with needed():
        from pipeline.inputs import BadInput
        from pipeline.planner.broker_file import read_brokers
        from pipeline.planner.broker_sets import read_sets
        from pipeline.planner.cluster import Wanted
        from pipeline.planner.disks import on_disks
        from pipeline.planner.problem import PlanLimits
        from pipeline.planner.scenarios import read_scenarios
    if scenarios is not None and out is not None:
        what = "--scenarios compares plans and writes none"
        raise Failure(Exit.USAGE, what, "repeat the command with the options of one scenario and --out")
    limits = PlanLimits(spread, disk_max, in_max, out_max, cpu_max, replicas_max)
    try:
        given = read_brokers(brokers) if brokers is not None else {}
        sets = read_sets(broker_sets) if broker_sets is not None else ()
        wanted = Wanted(retire or (), exclude_broker or (), exclude_topic or (), given, sets, limits)
        several = read_scenarios(scenarios) if scenarios is not None else ()
        disks = any(one.log_dirs for one in given.values())
        make = _input(session, snapshot, from_assignment, (loads, loads_before), cluster_id, disks=disks)
        first = make(wanted)
        for one in several:
            make(one.added_to(wanted))  # a wrong one is refused before the first search, and none is kept
    except BadInput as error:
        raise Failure(Exit.USAGE, str(error)) from None
    if out is not None and export is Export.REGENT and not first.cluster_id:
        raise Failure(Exit.USAGE, "the input does not name its cluster", "give --cluster-id, or --export kafka")
    compiles = "the first one after an installation compiles for 10 to 60 s"
    session.output.message(f"{seeds * max(1, len(several))} searches of {len(first.topic)} partitions; {compiles}")
    problems = (make(one.added_to(wanted)) for one in several) if several else iter((first,))
    results = _searched(problems, seeds, seed, master, conf)
    if several:  # the results of one group are kept at a time
        rows = [scenario_row(one.name, each, on_disks(each), rate) for one, each in zip(several, results, strict=True)]
        session.output.listing("Scenario", rows)
    else:
        [best] = results
        rows = [_one(session, best, rate, out, (export, parts))]
    if any(row["hardBroken"] for row in rows):
        raise typer.Exit(Exit.REFUSED)


def _one(
    session: Session, best: Planned, rate: int | None, out: Path | None, form: tuple[Export, int]
) -> dict[str, Any]:
    """Shows one plan, and writes it where a file is given; returns its row."""
    from pipeline.planner.disks import on_disks

    placed = on_disks(best)
    show(session, best, placed, rate)
    if out is not None:
        _write(session, best, placed, out, form)
    return scenario_row("", best, placed, rate)


def _searched(
    problems: Iterator[Problem], seeds: int, seed: int, master: str | None, conf: list[str] | None
) -> Iterator[Planned]:
    """Yields the best plan for each problem."""
    from pipeline.planner.scenarios import side_by_side

    with agreeing(), _side_by_side(master, conf) as each:
        yield from side_by_side(problems, seeds, seed, each)


@contextmanager
def _side_by_side(master: str | None, conf: list[str] | None) -> Iterator[Each]:
    """Provides what runs searches side by side: threads, or with a master the executors of Spark."""
    if master is None:
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            yield lambda function, values: list(pool.map(function, values))
        return
    with running(master, conf) as spark:
        from pipeline.executors import Unfit, workers_of

        try:
            yield workers_of(spark).each
        except Unfit as error:
            raise Failure(Exit.FAILED, str(error)) from None


def _input(
    session: Session,
    snapshot: Path | None,
    assignment: Path | None,
    loads: tuple[Path | None, Path | None],
    cluster_id: str,
    *,
    disks: bool,
) -> Callable[[Wanted], Problem]:
    """Reads partitions and loads once; returns what makes a problem of them. ``disks``: read log directories, too."""
    from pipeline.assignment_file import read_assignment
    from pipeline.inputs import Loads
    from pipeline.loads_file import read_loads, read_log_dirs
    from pipeline.planner.cluster import problem_of

    if (snapshot is None) == (assignment is None):
        what = "no partitions are given" if snapshot is None else "two inputs of partitions are given"
        raise Failure(Exit.USAGE, what, "give one of --snapshot and --from-assignment")
    if loads[0] is None and loads[1] is not None:
        raise Failure(Exit.USAGE, "--loads-before has no --loads beside it", "give the newer file with --loads")
    read = snapshot_named(session, snapshot) if snapshot is not None else read_assignment(assignment or "")
    table = read.partitions
    known = read_loads(table, loads[0], loads[1]) if loads[0] is not None else Loads.none(len(table))
    warn_of_strangers(session, known.unknown, loads[0])
    log_dirs = list(read_log_dirs(table, loads[0])) if disks and loads[0] is not None else []
    return partial(problem_of, read, known, cluster_id=cluster_id, log_dirs=log_dirs)


def _write(session: Session, found: Planned, placed: OnDisks | None, out: Path, form: tuple[Export, int]) -> None:
    from pipeline.planner.output import left_over, log_dirs_of, moves_by_part, moves_within, write_kafka, write_plan
    from pipeline.planner.parting import in_parts
    from state_machines.planning.json_files import UnusableFile

    export, parts = form
    kafkas = export is Export.KAFKA
    within = moves_within(found, placed) if kafkas and placed is not None else []
    if not len(found.rows) and not within:
        session.output.message(f"nothing is to be moved: {out} is not written", style="yellow")
        return
    cut = in_parts(found, parts, KAFKA_MOVES_MAX if kafkas else MOVES_MAX)
    moves = moves_by_part(cut)
    try:
        if kafkas:
            moves[-1] += within
            files = write_kafka(out, moves, log_dirs_of(found, placed) if placed is not None else None)
        else:
            files = write_plan(out, found.problem.cluster_id, moves)
    except (OSError, UnusableFile) as error:
        raise Failure(Exit.FAILED, f"{out} cannot be written: {error}", "name another file with --out") from error
    session.output.message(_next(files, export, sum(map(len, moves))))
    if placed is not None and not kafkas:
        what = "this file names no log directory, brokers choose it: --export kafka names those of the plan"
        session.output.message(what, style="yellow")
    if len(cut.ends) > 1 and not cut.worse:
        session.output.message("after each part no hard goal is worse than before the first one")
    for worse in cut.worse[:NAMED_MAX]:
        session.output.message(worse_in_words(worse, found, len(cut.ends)), style="yellow")
    if others := left_over(out, files):
        named = ", ".join(map(str, others[:NAMED_MAX])) + (" and others" if len(others) > NAMED_MAX else "")
        session.output.message(f"not of this plan, remove what an earlier one left: {named}", style="yellow")


def _next(files: list[Path], export: Export, moves: int) -> str:
    """Returns where the moves are, and the command that comes next."""
    if export is Export.KAFKA:
        there = files[::2]
        named = f"{there[0]}" if len(there) == 1 else f"{there[0]} to {there[-1]}"
        order = "" if len(there) == 1 else ", each once the one before is complete, and back in the opposite order"
        return f"{moves} moves are in {named}: kafka-reassign-partitions --execute{order}"
    if len(files) == 1:
        return f"{moves} moves are in {files[0]}: regent reassign apply {files[0]}"
    return f"{moves} moves are in {files[0]} to {files[-1]}: regent reassign apply {files[0]}, then the others in order"
