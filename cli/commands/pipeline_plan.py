"""Adds regent pipeline plan, which balances a cluster from files: a snapshot, loads, racks and capacities."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from cli.commands import pipeline_plan_options as options
from cli.commands.pipeline_plan_shown import scenario_row, show, worse_in_words
from cli.commands.reassign import MOVES_MAX
from cli.commands.spark import Conf, running
from cli.exit_codes import Exit, Failure
from cli.planner_needs import agreeing, needed, snapshot_named, warn_of_strangers
from cli.rates import TimeRate
from cli.session import Session

if TYPE_CHECKING:
    from pipeline.planner.cluster import Wanted
    from pipeline.planner.disks import OnDisks
    from pipeline.planner.planning import Planned
    from pipeline.planner.problem import Problem
    from pipeline.planner.scenarios import Each

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
    snapshot: options.Snapshot = None,
    from_assignment: options.Assignment = None,
    loads: options.Loads = None,
    loads_before: options.LoadsBefore = None,
    brokers: options.Brokers = None,
    broker_sets: options.BrokerSets = None,
    cluster_id: options.ClusterId = "",
    retire: options.Retire = None,
    exclude_broker: options.ExcludeBroker = None,
    exclude_topic: options.ExcludeTopic = None,
    spread: options.Spread = 0.10,
    replicas_max: options.ReplicasMax = 10_000,
    disk_max: options.DiskMax = 0.80,
    in_max: options.InMax = 0.80,
    out_max: options.OutMax = 0.80,
    cpu_max: options.CpuMax = 0.70,
    seeds: options.Seeds = 4,
    seed: options.Seed = 0,
    rate: TimeRate = None,
    scenarios: options.Scenarios = None,
    master: options.Master = None,
    conf: Conf = None,
    out: options.Out = None,
    export: options.Form = options.Export.REGENT,
    parts: options.Parts = 1,
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
        from pipeline.planner.problem import Limits
        from pipeline.planner.scenarios import read_scenarios
    if scenarios is not None and out is not None:
        what = "--scenarios compares plans and writes none"
        raise Failure(Exit.USAGE, what, "repeat the command with the options of one scenario and --out")
    limits = Limits(spread, disk_max, in_max, out_max, cpu_max, replicas_max)
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
    if out is not None and export is options.Export.REGENT and not first.cluster_id:
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
        placed = on_disks(best)
        rows = [scenario_row("", best, placed, rate)]
        show(session, best, placed, rate)
        if out is not None:
            _write(session, best, placed, out, (export, parts))
    if any(row["hardBroken"] for row in rows):
        raise typer.Exit(Exit.REFUSED)


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


def _write(
    session: Session, found: Planned, placed: OnDisks | None, out: Path, form: tuple[options.Export, int]
) -> None:
    from pipeline.planner.output import left_over, log_dirs_of, moves_by_part, moves_within, write_kafka, write_plan
    from pipeline.planner.parting import in_parts
    from state_machines.planning.json_file import UnusableFile

    export, parts = form
    kafkas = export is options.Export.KAFKA
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


def _next(files: list[Path], export: options.Export, moves: int) -> str:
    """Returns where the moves are, and the command that comes next."""
    if export is options.Export.KAFKA:
        there = files[::2]
        named = f"{there[0]}" if len(there) == 1 else f"{there[0]} to {there[-1]}"
        order = "" if len(there) == 1 else ", each once the one before is complete, and back in the opposite order"
        return f"{moves} moves are in {named}: kafka-reassign-partitions --execute{order}"
    if len(files) == 1:
        return f"{moves} moves are in {files[0]}: regent reassign apply {files[0]}"
    return f"{moves} moves are in {files[0]} to {files[-1]}: regent reassign apply {files[0]}, then the others in order"
