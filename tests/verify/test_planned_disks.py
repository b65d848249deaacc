"""A plan over log directories, carried out by Kafka's own tool on real brokers, and taken back by the plan's files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.kit.polling import eventually
from tests.verify.plan_kit import SOON, moved_by_tool, ran
from tests.verify.system import System, system

pytest.importorskip("numba", reason="the extra 'pipeline' is not installed")

TOPIC, PARTITIONS = "t", 12
RETIRED = 3
Places = dict[tuple[int, int], str]
"""Log directories by partition and broker."""


@pytest.mark.timeout(900)
async def test_kafkas_tool_carries_a_plan_over_log_directories_out_and_back(request: pytest.FixtureRequest) -> None:
    async with system(request.node.name, properties=SOON) as s:
        await s.create(TOPIC, {p: [p % 3 + 1, (p + 1) % 3 + 1] for p in range(PARTITIONS)})
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
    names = {f"{TOPIC}-{p}": p for p in range(PARTITIONS)}
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
