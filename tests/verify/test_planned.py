"""Plans of the pipeline, from a snapshot to the report, under load: a broker is added, and log directories change."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from cli.demo.process import SESSION_MS
from cli.exit_codes import Exit
from controller.operator.plan_requests import FAULTS_SHOWN
from tests.kit.cluster.scene import regent
from tests.kit.deadlines import eventually
from tests.verify.plan_kit import (
    SMALL_FETCHES,
    SOON,
    Spot,
    assignments,
    killed,
    moved_by_tool,
    nothing_left,
    ran,
    waited,
)
from tests.verify.system import System, system

pytest.importorskip("pyspark", reason="the extra 'pipeline' is not installed")
pytest.importorskip("numba", reason="the extra 'pipeline' is not installed")

from pipeline.inputs import Loads
from pipeline.session import CannotStart, need_java

RACKS: Final = ("a", "b", "c", "a")
NEW: Final = 4
SIZES_MB: Final = {"large": 5.0, "small": 0.5}
PARTITIONS: Final = 12
RATE: Final = "900000"
"""Bytes per second: the plan lasts for longer than it takes to kill the daemon."""
RECORDS_PER_S: Final = 30
"""Few, because what producers write meanwhile is copied, too, and no plan knows it."""
PREDICTED_WITHIN: Final = 0.10
SPREAD_AFTERWARDS: Final = 0.20
"""Records are written all the time, so brokers that were within 10 % may be a little further by the end."""


@pytest.mark.timeout(900)
async def test_a_broker_that_was_added_gets_its_share_by_the_commands_of_the_pipeline(
    request: pytest.FixtureRequest,
) -> None:
    try:
        need_java()
    except CannotStart as error:
        pytest.skip(str(error))
    async with system(request.node.name, brokers=4, racks=RACKS, properties={**SOON, **SMALL_FETCHES}) as s:
        await grown(s)
        async with s.loaded(dict.fromkeys(SIZES_MB, PARTITIONS), RECORDS_PER_S) as stage:
            folder = s.w.cluster.folder
            before = await assignments(s, SIZES_MB)
            snapshot, loads = await inputs(s, "before")
            plan = folder / "plan.json"
            given = ("--snapshot", str(snapshot), "--loads", str(loads))
            moves = await ran(await s.active(), "pipeline", "plan", *given, "--out", str(plan))
            predicted = sum(move["sizeBytes"] for move in moves)
            with s.times.taken(f"plan of {len(moves)} moves with a kill"):
                ended = await applied(s, plan, len(moves))
            assert (ended["state"], ended["result"]) == ("success", f"{len(moves)} done")
            after = await assignments(s, SIZES_MB)
            assert {(m["topic"], m["partition"]): tuple(m["target"]) for m in moves} == {
                spot: found.replicas for spot, found in after.items() if found != before[spot]
            }
            moved = copied(s, moves)
            s.times.note("bytes", f"{predicted} predicted, {moved} on the disks")
            assert predicted == pytest.approx(moved, rel=PREDICTED_WITHIN)
            await s.w.healed()
            broken(*await inputs(s, "after"))
            await refused(s, plan, moves)
            await nothing_left(s, [*SIZES_MB])
            await s.proven(stage)
        await judged(s, snapshot, loads, plan, moves)


async def grown(s: System) -> None:
    """Fills three brokers, and leaves the fourth one empty."""
    for topic, mb in SIZES_MB.items():
        await s.create(topic, {p: [p % 3 + 1, (p + 1) % 3 + 1] for p in range(PARTITIONS)})
        await s.fill(topic, range(PARTITIONS), mb)


async def inputs(s: System, name: str) -> tuple[Path, Path]:
    """Takes a snapshot and the loads."""
    [taken] = await ran(await s.active(), "snapshot", "--wait")
    assert taken["state"] == "done", taken
    loads = s.w.cluster.folder / f"{name}.csv"
    [read] = await ran(await s.active(), "loads", "--into", str(loads))
    assert not read["lacking"], read
    return Path(taken["file"]), loads


async def applied(s: System, plan: Path, count: int) -> dict[str, Any]:
    """Applies the plan, kills the daemon once a quarter of the moves is done, and waits for the end."""
    [begun] = await ran(await s.active(), "reassign", "apply", str(plan), "--throttle", RATE, "--yes")
    pid = str(begun["pid"])
    await eventually(lambda: done(s, pid, count // 4), 120.0)
    s.times.note("killed", f"{await number_done(s, pid)} of {count} moves were done")
    await killed(s)
    code, ended = await waited(await s.active(), pid)
    assert code == 0, ended
    return ended


async def number_done(s: System, pid: str) -> int:
    return sum(move["status"] == "done" for move in await ran(await s.active(), "reassign", "show", pid))


async def done(s: System, pid: str, count: int) -> bool:
    found = await number_done(s, pid)
    return found >= count


async def refused(s: System, plan: Path, moves: Sequence[dict[str, Any]]) -> None:
    """Applies the plan again: each of its moves is named with the replicas that are there and that it expects."""
    before = await assignments(s, SIZES_MB)
    code, _, err = await regent(await s.active(), "reassign", "apply", str(plan), "--yes")
    said = " ".join(err.split())
    assert (code, "the plan does not match the cluster" in said) == (Exit.REFUSED, True), err
    named = [
        move
        for move in moves
        if f"{move['topic']}-{move['partition']} has replicas {move['target']}, the plan expects {move['origin']}"
        in said
    ]
    assert len(named) == min(len(moves), FAULTS_SHOWN), err
    assert await assignments(s, SIZES_MB) == before
    s.times.note("applied again", f"exit code {code}, {len(named)} of {len(moves)} moves named")


def copied(s: System, moves: Iterable[dict[str, Any]]) -> int:
    """Counts the bytes of the logs that the moves have made, on the disks of the brokers."""
    made: list[tuple[int, Spot]] = [
        (broker, (move["topic"], move["partition"]))
        for move in moves
        for broker in set(move["target"]) - set(move["origin"])
    ]
    folders = (s.w.cluster.brokers[b].folder.glob(f"data-*/{topic}-{number}") for b, (topic, number) in made)
    return sum(log.stat().st_size for found in folders for folder in found for log in folder.glob("*.log"))


def broken(snapshot: Path, loads: Path) -> None:
    """Counts the goals that the cluster breaks now, by the count that certifies plans."""
    from pipeline.loads_file import read_loads
    from pipeline.planner.certifying import certified
    from pipeline.planner.cluster import Wanted, problem_of
    from pipeline.planner.problem import PlanLimits, with_means
    from pipeline.snapshot_file import read_snapshot

    read = read_snapshot(snapshot)
    known: Loads = read_loads(read.partitions, loads)
    problem, _ = with_means(problem_of(read, known, Wanted(limits=PlanLimits(spread=SPREAD_AFTERWARDS))))
    found = certified(problem, problem.replicas)
    assert not [count for count in found.counts if count.broken]


async def judged(s: System, snapshot: Path, loads: Path, plan: Path, moves: Sequence[dict[str, Any]]) -> None:
    """Audits the journals of both daemons, and compares the report's bytes with those of the plan's file."""
    for daemon in s.daemons:
        await daemon.stop()
    merged = str(s.w.cluster.folder / "merged")
    journals = [str(daemon.journal) for daemon in s.daemons]
    await ran(s.daemons[0], "pipeline", "ingest", *journals, "--into", merged, "--master", "local[2]")
    [audit] = await ran(s.daemons[0], "pipeline", "audit", merged, "--racks", "--master", "local[2]")
    assert audit["clean"], audit
    s.times.note("audit", f"{audit['rows']} rows, {audit['violations']} violations")
    bounds = ("--session-timeout", str(SESSION_MS), "--zookeeper-tick", "1000", "--master", "local[2]")
    files = ("--snapshot", str(snapshot), "--loads", str(loads), "--against-plan", str(plan))
    [report] = await ran(s.daemons[0], "pipeline", "report", merged, *bounds, *files)
    reported = sum(move["bytes"] for move in report["moves"])
    s.times.note("report", json.dumps([report["plans"], report["moves"], report["predicted"]]))
    predicted = sum(move["sizeBytes"] for move in moves)
    assert predicted == pytest.approx(reported, rel=0.01)
    beside = report["predicted"]
    adding = sum(set(move["target"]) != set(move["origin"]) for move in moves)
    assert (beside["moves"], beside["leadersOnly"], beside["ended"]) == (len(moves), len(moves) - adding, adding)
    assert (beside["unfinished"], beside["notBegun"], beside["sizeUnknown"]) == (0, 0, 0)
    assert beside["predictedBytes"] == predicted
    assert beside["bytes"] == pytest.approx(predicted, rel=0.01)


TOPIC, DISK_PARTITIONS = "t", 12
RETIRED = 3
Places = dict[tuple[int, int], str]
"""Log directories by partition and broker."""


@pytest.mark.timeout(900)
async def test_kafkas_tool_carries_a_plan_over_log_directories_out_and_back(request: pytest.FixtureRequest) -> None:
    async with system(request.node.name, properties=SOON) as s:
        await s.create(TOPIC, {p: [p % 3 + 1, (p + 1) % 3 + 1] for p in range(DISK_PARTITIONS)})
        first = [p for (p, broker), path in places(s).items() if broker == 1 and path.endswith("data-1")]
        await s.fill(TOPIC, first, 1.0)
        before = places(s)
        plan = await planned(s)
        wanted, back = named(plan), named(plan.with_name("moves.rollback.json"))
        within = {at for at in wanted if at in before}
        s.times.note("directories", f"{len(wanted)} are named, {len(within)} of replicas that stay")
        assert within
        assert len(within) < len(wanted)
        await moved_by_tool(s, plan)
        await eventually(lambda: are_at(s, wanted), 60.0)
        assert RETIRED not in {broker for _, broker in places(s)}
        await moved_by_tool(s, plan.with_name("moves.rollback.json"))
        await eventually(lambda: are_at(s, back), 60.0)
        await eventually(lambda: are_all(s, before), 60.0)


async def planned(s: System) -> Path:
    """Takes snapshot and loads, and plans that the third broker retires."""
    folder = s.w.cluster.folder
    active = await s.active()
    [taken] = await ran(active, "snapshot", "--wait")
    await ran(active, "loads", "--into", str(folder / "loads.csv"))
    lines = [
        f"{broker},{process.folder / disk},100e6"
        for broker, process in s.w.cluster.brokers.items()
        for disk in ("data-1", "data-2")
    ]
    (folder / "brokers.csv").write_text("\n".join(["broker,log_dir,disk_bytes", *lines]))
    files = (
        "--snapshot",
        taken["file"],
        "--loads",
        str(folder / "loads.csv"),
        "--brokers",
        str(folder / "brokers.csv"),
    )
    out = folder / "moves.json"
    await ran(active, "pipeline", "plan", *files, "--retire", str(RETIRED), "--export", "kafka", "--out", str(out))
    return out


def places(s: System) -> Places:
    """Looks where the logs are, without those that are about to be deleted or to be moved."""
    logs = [(broker, log) for broker, process in s.w.cluster.brokers.items() for log in process.folder.glob("data-*/*")]
    names = {f"{TOPIC}-{p}": p for p in range(DISK_PARTITIONS)}
    return {(names[log.name], broker): str(log.parent) for broker, log in logs if log.name in names}


def named(file: Path) -> Places:
    """Reads the directories that a file names."""
    return {
        (one["partition"], broker): path
        for one in json.loads(file.read_bytes())["partitions"]
        for broker, path in zip(one["replicas"], one["log_dirs"], strict=True)
        if path != "any"
    }


async def are_at(s: System, wanted: Places) -> bool:
    found = places(s)
    return all(found.get(at) == path for at, path in wanted.items())


async def are_all(s: System, wanted: Places) -> bool:
    return places(s) == wanted
