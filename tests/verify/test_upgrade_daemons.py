"""A daemon of an earlier revision is killed with procedures under way; one of this revision carries them on, and back.

Both run on a real ZooKeeper and real brokers, with the same folder and settings. The earlier revision comes from the
history of this clone; a shallow clone has none.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Any, Final

import pytest

from cli.demo.process import RegentProcess
from controller.journal.reader import CUT_SHORT, Gap, read
from controller.journal.segments import regions_folder_in
from regent_agent.agent import Agent
from regent_agent.options import AgentOptions
from regent_agent.service import OpenedRegion, RegionService
from state_machines.journal.audit import judge
from state_machines.journal.events import Row
from testing.embedded.process import free_port
from tests.kit.cluster.scene import TOPIC, Scene, scene
from tests.kit.deadlines import eventually
from tests.kit.documented import statement_for_going_back
from tests.verify.former import Revision, unpacked

REGIONS: Final = 12
KINDS: Final = {"drain", "elect", "reassign", "restart", "throttle"}
ENDED: Final = {"success", "rolledback"}
STORES: Final = ("sqlite", "zookeeper")


@pytest.fixture(scope="module")
def revisions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Revision]:
    """Both revisions, by name."""
    return unpacked(tmp_path_factory.mktemp("former"))


class Gated(RegionService):
    """A service whose opens and closes wait until the test lets them end."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.waiting: set[int] = set()

    async def open(self, region: OpenedRegion) -> int:
        """Opens a region once it may."""
        await self._pass(region)
        return region.sequence + 1

    async def close(self, region: OpenedRegion) -> None:
        """Closes a region once it may."""
        await self._pass(region)

    async def _pass(self, region: OpenedRegion) -> None:
        self.waiting.add(region.region)
        await self.gate.wait()
        self.waiting.discard(region.region)


class Handover:
    """One scene whose daemon is of one revision, then of the other one."""

    def __init__(self, stage: Scene, settings: dict[str, object], first: Revision, second: Revision) -> None:
        self.stage = stage
        self.revision = first
        self._settings = settings
        self._second = second

    async def regent(self, *arguments: str) -> list[dict[str, Any]]:
        """Runs a command of the present daemon's revision."""
        return await self.revision.items(self.stage.daemon, *arguments)

    async def kill(self) -> None:
        """Kills the daemon, and boots one of the other revision in its place."""
        killed = self.stage.daemon
        await killed.kill()
        store = killed.folder / "state" / "regions.db"
        if self.revision.name == "present" and store.exists():
            await asyncio.to_thread(back_to_the_first_release, store)
        self.revision = self._second
        self.stage.daemon = RegentProcess(
            killed.folder,
            self.stage.w.cluster.connect,
            controller_id=killed.id,
            settings=self._settings,
            command=(*self.revision.command, "run"),
        )
        self.stage.w.daemons[:] = [self.stage.daemon]
        await self.stage.daemon.boot()
        await self.stage.active()


def back_to_the_first_release(store: Path) -> None:
    """Gives a file the columns of the former revision, as the documentation says."""
    with closing(sqlite3.connect(store, isolation_level=None)) as db:
        db.executescript(statement_for_going_back())


@asynccontextmanager
async def handover(first: Revision, second: Revision, **settings: object) -> AsyncIterator[Handover]:
    """Runs a scene of four brokers whose daemon is of the first revision."""
    async with scene(brokers=4, settings=settings, command=(*first.command, "run")) as stage:
        yield Handover(stage, settings, first, second)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("names", [("former", "present"), ("present", "former")], ids=" to ".join)
async def test_procedures_of_each_kind_outlive_a_daemon_of_another_revision(
    revisions: dict[str, Revision], names: tuple[str, str], tmp_path: Path
) -> None:
    first, second = (revisions[name] for name in names)
    async with handover(first, second) as over:
        begun = await begin_each(over, tmp_path / "plan.json")
        await over.kill()
        listed = {one["pid"]: one for one in await over.regent("procedures", "list")}
        assert {listed[pid]["kind"] for pid in begun.values()} == KINDS
        assert not {one["state"] for pid, one in listed.items() if pid in begun.values()} & ENDED
        await over.regent("resume")
        await over.regent("throttle", "lift", str(begun["throttle"]), "--wait")
        for kind in ("reassign", "drain", "elect"):
            [ended] = await over.regent("procedures", "wait", str(begun[kind]))
            assert ended["state"] == "success", ended
        await over.regent("undrain", "2")
        await restart_all(over, begun["restart"])
        check_history(over.stage.daemon.journal)
        await over.stage.proven()


async def begin_each(over: Handover, file: Path) -> dict[str, int]:
    """Begins a procedure of each kind, and pauses what goes on by itself; returns the pids by kind."""
    brokers = over.stage.w.cluster.brokers
    [throttle] = await over.regent("throttle", "set", "--all", "--rate", "50000000", "--topic", TOPIC, "--wait")
    await over.regent("pause", "--reason", "an upgrade")
    states = await over.stage.w.states()
    moves = [
        {
            "topic": TOPIC,
            "partition": number,
            "replicas": [*replicas[1:], min(brokers.keys() - set(replicas))],
        }
        for (topic, number), (replicas, _) in sorted(states.items())
        if topic == TOPIC and number < 4
    ]
    await asyncio.to_thread(file.write_text, json.dumps({"version": 1, "partitions": moves}))
    [reassign] = await over.regent("reassign", "apply", str(file), "--moves-max", "1", "--yes")
    [drain] = await over.regent("drain", "2", "--reason", "an upgrade")
    [elect] = await over.regent("elect", "preferred", "--all")
    [restart] = await over.regent("restart", "begin", "--reason", "an upgrade")
    found = {"throttle": throttle, "reassign": reassign, "drain": drain, "elect": elect, "restart": restart}
    return {kind: one["pid"] for kind, one in found.items()}


async def restart_all(over: Handover, pid: int) -> None:
    """Restarts the brokers that the daemon names, until it names none."""
    cluster, restarted = over.stage.w.cluster, list[int]()
    while len(restarted) < len(cluster.brokers):
        batch = [int(one) for one in (await over.revision.run(over.stage.daemon, "restart-next", "--wait")).split()]
        assert not set(restarted).intersection(batch)
        for broker in batch:
            await cluster.brokers[broker].stop()
            await cluster.revive(broker)
        restarted += batch
    [ended] = await over.regent("procedures", "wait", str(pid))
    assert ended["state"] == "success", ended


def check_history(journal: Path) -> None:
    """Judges the rows of both daemons as one history; only the end of the killed term may be missing."""
    found = list(read(journal))
    assert {gap.why for gap in found if isinstance(gap, Gap)} <= {CUT_SHORT}
    rows = [row for row in found if isinstance(row, Row)]
    assert len({row.ctl_epoch for row in rows}) == 2
    assert [str(violation) for violation in judge(rows)] == []


@pytest.mark.timeout(900)
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("names", [("former", "present"), ("present", "former")], ids=" to ".join)
async def test_regions_stay_where_they_are_and_procedures_on_them_go_on(
    revisions: dict[str, Revision], names: tuple[str, str], store: str
) -> None:
    first, second = (revisions[name] for name in names)
    port = free_port()
    settings: dict[str, object] = {
        "regions.host": "127.0.0.1", "regions.port": port, "regions.startup_wait_ms": 0, "regions.store": store,
    }  # fmt: skip
    services = {f"s{number}": Gated() for number in (1, 2, 3)}
    agents = [
        Agent(service, AgentOptions((("127.0.0.1", port),), name, f"{name}:7000", side_by_side_max=REGIONS))
        for name, service in services.items()
    ]
    async with AsyncExitStack() as stack:
        over = await stack.enter_async_context(handover(first, second, **settings))
        await asyncio.gather(*(agent.start() for agent in agents))
        try:
            await regions_story(over, services)
        finally:
            for service in services.values():
                service.gate.set()
            await asyncio.gather(*(agent.stop() for agent in agents))
        assert not any(agent.died.is_set() for agent in agents)
        check_history(regions_folder_in(over.stage.daemon.folder / "state"))
        await over.stage.proven()


async def regions_story(over: Handover, services: dict[str, Gated]) -> None:
    """Kills the daemon while a table is created, another one is disabled, and a server is drained."""
    await over.regent("namespaces", "create", "n")
    for table in ("t", "u"):
        await over.regent("tables", "create", table, "--regions", str(REGIONS), "--wait")
    await over.regent("servers", "cordon", "s3", "--reason", "an upgrade")
    before = await owners(over, "t")
    for service in services.values():
        service.gate.clear()
    pids = [
        (await over.regent(*command))[0]["pid"]
        for command in (
            ("tables", "create", "v", "--regions", str(REGIONS)),
            ("tables", "disable", "u", "--yes"),
            ("servers", "drain", "s1"),
        )
    ]
    await eventually(lambda: sum(len(service.waiting) for service in services.values()) >= REGIONS, 60.0)
    await over.kill()
    for service in services.values():
        service.gate.set()
    for pid in pids:
        [ended] = (await over.stage.daemon.get(f"/v1/regions/procedures/{pid}", waitS=30))["items"]
        assert ended["state"] == "success", ended
    after = await owners(over, "t")
    kept = {region for region, (server, _) in before.items() if server != "s1"}
    assert {region: after[region] for region in kept} == {region: before[region] for region in kept}
    assert {server for server, _ in after.values()} <= {"s2", "s3"}
    listed = {one["name"]: one["state"] for one in await over.regent("tables", "list")}
    assert (listed["u"], listed["v"]) == ("disabled", "enabled")


async def owners(over: Handover, table: str) -> dict[int, tuple[str, int]]:
    """Returns servers and tokens of a table's regions, once all are open."""

    async def opened() -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = (await over.stage.daemon.get("/v1/regions/list", table=table))["items"]
        found = [one for one in listed if one["table"] == table]
        assert [one["state"] for one in found] == ["OPEN"] * REGIONS
        return found

    return {one["id"]: (one["server"], one["token"]) for one in await eventually(opened, 60.0)}
