"""The shadow on a ZooKeeper port: what it reads when, what it never does, and how it survives the connection."""

from __future__ import annotations

import errno
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import pytest

from controller.metrics.counters import Counters
from controller.shadow.deadlines import BEING_DELETED, BEING_REASSIGNED
from controller.shadow.events import Kind
from controller.shadow.read_only import ReadOnly, WriteRefused
from controller.shadow.report_file import LINE_S, load, report_path
from controller.shadow.shadow import Shadow
from controller.shadow.statistics import Report
from controller.shadow.timeline import FORGOTTEN
from controller.shadow.tracker import BEGUN_BEFORE
from metadata_store import paths
from metadata_store.errors import SessionLost
from metadata_store.port import Check, Create, WatchEvent, WatchKind
from testing.memory import MemoryServer, MemoryZooKeeper
from tests.core.shadow_store import StoredWorld, shadowing
from tests.polling import eventually

TRIPLES = ((1, 2, 3), (2, 3, 1), (3, 1, 2))
MIXED = (*TRIPLES, (1, 2), (2, 3), (3, 1), (1,), (2,), (3,))


def world(*replicas: tuple[int, ...], holder: int = 9) -> StoredWorld:
    made = StoredWorld(holder=holder)
    made.create("t", *(replicas or MIXED))
    made.controller.finish()
    return made


@asynccontextmanager
async def run(shadow: Shadow, zk: MemoryZooKeeper) -> AsyncIterator[list[Exception]]:
    """A shadow that runs inside the block; what ended it before is in the list."""
    ended: list[Exception] = []

    async def follow() -> None:
        try:
            await shadow.run(zk)
        except SessionLost as lost:
            ended.append(lost)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow)
        yield ended
        tasks.cancel_scope.cancel()
    await zk.close()


async def reported(shadow: Shadow, check: Callable[[Report], bool], within_s: float = 10.0) -> Report:
    """The report once it is as it should be and nothing waits."""
    await eventually(lambda: check(shadow.report()) and not shadow.tracker.waiting, within_s)
    return shadow.report()


def compared(count: int, report: Report) -> bool:
    return report.compared_total == count


def agreed(report: Report, event: str) -> int:
    return sum(count for kind, count in report.compared.items() if kind.startswith(event))


async def test_it_compares_creation_death_return_shutdown_and_failover_and_finds_nothing() -> None:
    w = world(holder=1)
    async with shadowing(w) as (shadow, _):
        w.create("new", *TRIPLES)
        w.controller.finish()
        await reported(shadow, lambda r: agreed(r, Kind.CREATION) == 3)
        w.deregister(2)
        w.controller.finish()
        await reported(shadow, lambda r: agreed(r, Kind.DEATH) == 9)
        w.register(2)
        w.controller.finish()
        await reported(shadow, lambda r: agreed(r, Kind.RETURN) == 1)
        w.asks_to_shut_down(3)
        w.controller.finish()
        w.deregister(3)
        w.controller.finish()
        await reported(shadow, lambda r: agreed(r, Kind.SHUTDOWN) > 3)
        w.register(3)
        w.controller.finish()
        await reported(shadow, lambda r: r.events[Kind.RETURN] == 2)
        w.deregister(1)
        w.elect(9)
        w.controller.finish()
        report = await reported(shadow, lambda r: agreed(r, Kind.FAILOVER) > 3)
    assert report.differing == 0
    assert not report.uncomparable
    assert report.controller == 9
    assert report.partitions == len(MIXED) + 3
    assert report.lines()[0].endswith("0 differences, 0 uncomparable, 0 waiting")
    assert report.compared_total == sum(report.compared.values()) == int(report.lines()[0].split()[0])


async def test_a_planted_leader_isr_and_epoch_are_found_logged_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    w = world((1, 2, 3), (1, 2, 3), (1, 2, 3), (2, 1, 3))
    caplog.set_level(logging.WARNING, "regent.shadow")
    async with shadowing(w) as (shadow, _):
        w.write(("t", 0), 2, 1, (1, 2, 3))
        w.write(("t", 1), 1, 1, (1, 3))
        w.write(("t", 2), 1, 1, (1, 2, 3))
        report = await reported(shadow, lambda r: r.differing == 3)
    found = {d.path[len("/brokers/topics/t/partitions/") :]: d for d in report.differences}
    assert {path: d.fields for path, d in found.items()} == {
        "0/state": "leader, leader epoch",
        "1/state": "ISR, leader epoch",
        "2/state": "leader epoch",
    }
    planted = found["1/state"]
    assert planted.ours is not None
    assert planted.theirs is not None
    assert (planted.ours.isr, planted.theirs.isr, planted.event) == ((1, 2, 3), (1, 3), "no event explains it")
    lines = [r.getMessage() for r in caplog.records if "difference from Kafka's controller at" in r.getMessage()]
    assert len(lines) == 3, "a line for each"
    assert "/brokers/topics/t/partitions/0/state" in caplog.text


async def test_a_controller_that_elects_somebody_else_is_found_beside_those_that_agree() -> None:
    w = world(*TRIPLES)
    async with shadowing(w) as (shadow, _):
        w.controller.tamper = lambda name, s: s if name[1] else type(s)(3, s.leader_epoch, s.isr, 0, 0)
        w.deregister(1)
        w.controller.finish()
        report = await reported(shadow, lambda r: r.differing == 1)
    [difference] = report.differences
    assert (difference.fields, difference.event) == ("leader", "broker departure of 1")
    assert agreed(report, Kind.DEATH) == 2


async def test_a_controller_that_does_nothing_is_late_after_the_wait_and_not_before() -> None:
    w = world(*TRIPLES)
    async with shadowing(w) as (shadow, _):
        w.deregister(1)
        await eventually(lambda: len(shadow.tracker.waiting) == 3)
        assert shadow.report().differing == 0
        report = await reported(shadow, lambda r: r.differing == 3)
    assert {d.theirs for d in report.differences} == {d.before for d in report.differences}


async def test_isr_changes_are_facts_that_later_decisions_stand_on() -> None:
    w = world((1, 2, 3))
    async with shadowing(w) as (shadow, _):
        w.leader_sets_isr(("t", 0), 1, 3)
        await reported(shadow, lambda r: r.isr_changes == 1)
        w.deregister(1)
        w.controller.finish()
        report = await reported(shadow, lambda r: agreed(r, Kind.DEATH) == 1)
    assert not report.uncomparable
    assert w.state(("t", 0)).leader == 3


async def test_added_partitions_are_creations_and_moved_replicas_are_not_compared() -> None:
    w = world((1, 2), (2, 3))
    async with shadowing(w) as (shadow, _):
        w.rewrite("t", (1, 2), (2, 3), (3, 1))
        w.controller.finish()
        await reported(shadow, lambda r: agreed(r, Kind.CREATION) == 1)
        w.rewrite("t", (1, 2, 3), (2, 3), (3, 1), adding=(3,))
        held = w.state(("t", 0))
        w.write(("t", 0), held.leader, held.leader_epoch + 1, held.isr)
        await eventually(lambda: any(row.assignment.adding for row in shadow.tracker.model.rows))
        await reported(shadow, lambda r: r.partitions == 3)
        w.write(("t", 0), held.leader, held.leader_epoch + 2, held.isr)
        report = await reported(shadow, lambda r: BEING_REASSIGNED in r.uncomparable)
    assert report.differing == 0


async def test_a_topic_that_is_deleted_or_made_anew_is_no_difference() -> None:
    w = world(*TRIPLES)
    w.create("other", *TRIPLES)
    w.controller.finish()
    async with shadowing(w) as (shadow, _):
        w.mark_deleted("t")
        held = w.state(("t", 0))
        w.write(("t", 0), -1, held.leader_epoch + 1, held.isr)
        await reported(shadow, lambda r: r.uncomparable == {BEING_DELETED: 1})
        w.delete("t")
        await eventually(lambda: shadow.report().partitions == 3)
        held = w.state(("other", 0))
        w.write(("other", 0), -1, held.leader_epoch + 1, held.isr)
        await eventually(lambda: len(shadow.tracker.waiting) == 1)
        w.delete("other")
        w.create("other", *TRIPLES)
        w.controller.finish()
        report = await reported(shadow, lambda r: agreed(r, Kind.CREATION) == 3)
    assert report.differing == 0
    assert report.uncomparable == {BEING_DELETED: 1, FORGOTTEN: 1}


async def test_a_blip_of_the_connection_starts_over_and_goes_on() -> None:
    w = world(*TRIPLES)
    async with shadowing(w) as (shadow, zk):
        w.deregister(1)
        await eventually(lambda: len(shadow.tracker.waiting) == 3)
        w.server.suspend(zk.session_id)
        w.controller.finish()
        w.server.resume(zk.session_id)
        report = await reported(shadow, lambda r: r.uncomparable == {BEGUN_BEFORE: 3})
        w.register(1)
        w.deregister(2)
        w.controller.finish()
        report = await reported(shadow, lambda r: agreed(r, Kind.DEATH) == 3)
    assert report.differing == 0


async def test_a_lost_session_is_raised_and_another_one_goes_on_counting() -> None:
    w = world(*TRIPLES)
    counters = Counters()
    shadow = Shadow(poll_s=0.2, wait_s=1.0, counters=counters)
    for expected, broker in ((3, 1), (6, 2)):
        zk = MemoryZooKeeper(w.server)
        await zk.connect(1)
        async with run(shadow, zk) as ended:
            await eventually(shadow.following.is_set)
            w.deregister(broker)
            w.controller.finish()
            await reported(shadow, partial(compared, expected))
            w.server.expire(zk.session_id)
            await eventually(ended.copy)
        assert isinstance(ended[0], SessionLost)
        w.register(broker)
        w.controller.finish()
    assert counters.shadow_compared == shadow.report().compared_total == 6


async def test_its_report_outlives_the_process_and_the_next_one_goes_on_counting(tmp_path: Path) -> None:
    w = world(*TRIPLES)
    file = report_path(tmp_path)
    for expected, broker in ((3, 1), (6, 2)):
        shadow = Shadow(poll_s=0.2, wait_s=1.0, file=file)
        zk = MemoryZooKeeper(w.server)
        await zk.connect(1)
        async with run(shadow, zk):
            await eventually(shadow.following.is_set)
            w.deregister(broker)
            w.controller.finish()
            await reported(shadow, partial(compared, expected))
        kept = load(file)
        assert kept is not None
        assert (kept.compared_total, kept.since_ms) == (expected, shadow.statistics.since_ms)
        w.register(broker)
        w.controller.finish()
    assert not await anyio.to_thread.run_sync(lambda: [p for p in tmp_path.iterdir() if p != file]), "no draft is left"


async def test_a_report_that_cannot_be_read_or_saved_is_logged_and_ends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    w = world(*TRIPLES)
    file = tmp_path / "folder" / "report.json"
    file.mkdir(parents=True)
    shadow = Shadow(poll_s=0.2, wait_s=1.0, file=file)
    zk = MemoryZooKeeper(w.server)
    await zk.connect(1)
    async with run(shadow, zk):
        await eventually(shadow.following.is_set)
        w.deregister(1)
        w.controller.finish()
        await reported(shadow, partial(compared, 3))
    assert "cannot be read, counting begins anew" in caplog.text
    assert "the shadow's report cannot be saved" in caplog.text


def test_a_folder_that_is_closed_is_not_taken_for_a_report(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(path: Path) -> bytes:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", closed)
    assert load(tmp_path / "shadow-report.json") is None
    assert "is not known (Permission denied)" in caplog.text
    assert f"Remedy: give {tmp_path} to the daemon's user" in caplog.text
    assert "earlier report cannot be read" not in caplog.text


async def test_counts_are_logged_once_an_hour(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "regent.shadow")
    shadow = Shadow(poll_s=0.2)
    for now_s in (1.0, 1.0 + LINE_S - 1, 1.0 + LINE_S, 2.0 + LINE_S, 1.0 + 2 * LINE_S):
        await shadow._keeper.keep(now_s)
    assert [r.getMessage().partition(":")[0] for r in caplog.records] == ["shadow so far"] * 2


async def test_an_ensemble_without_a_cluster_is_followed_until_there_is_one() -> None:
    server = MemoryServer()
    zk = MemoryZooKeeper(server)
    await zk.connect(1)
    shadow = Shadow(poll_s=0.1, wait_s=1.0)
    async with run(shadow, zk):
        await eventually(shadow.following.is_set)
        other = MemoryZooKeeper(server)
        await other.connect(1)
        for path in (paths.BROKERS, *sorted(paths.PERSISTENT)):
            parts = path.strip("/").split("/")
            for depth in range(1, len(parts) + 1):
                parent = "/" + "/".join(parts[:depth])
                if await other.exists(parent) is None:
                    await other.create(parent, None)
        await other.create(paths.topic("t"), b'{"version":3,"partitions":{"0":[1]}}')
        await eventually(lambda: shadow.report().partitions == 1)
        assert shadow.report().lines()[0].startswith("0 decisions compared, 0 differences")


async def test_a_state_znode_that_cannot_be_read_is_named_once_and_the_rest_is_compared(
    caplog: pytest.LogCaptureFixture,
) -> None:
    w = world((2, 3), *TRIPLES)
    caplog.set_level(logging.WARNING, "regent.shadow")
    async with shadowing(w) as (shadow, _):
        w.spoil(("t", 0))
        w.deregister(1)
        w.controller.finish()
        await eventually(lambda: agreed(shadow.report(), Kind.DEATH) == 3)
    assert sum("/brokers/topics/t/partitions/0/state cannot be read" in r.message for r in caplog.records) == 1


async def test_every_write_is_refused_by_its_port_before_anything_is_sent() -> None:
    server = MemoryServer()
    zk = MemoryZooKeeper(server)
    await zk.connect(1)
    await zk.create("/a", b"1")
    port = ReadOnly(zk)
    for attempt in (
        port.create("/b", None),
        port.set("/a", b"2", -1),
        port.delete("/a", -1),
        port.multi([Create("/b", None)]),
        port.apply([Check("/a", 0)]),
        port.set_acls("/a", [], -1),
    ):
        with pytest.raises(WriteRefused, match="a shadow never writes"):
            await attempt
    node = await port.get("/a")
    assert node is not None
    assert node.data == b"1"
    assert await port.exists("/b") is None


async def test_its_port_passes_reads_watches_and_the_session_on() -> None:
    zk = MemoryZooKeeper(MemoryServer())
    port = ReadOnly(zk)
    await port.connect(1)
    await zk.create("/a", b"1")
    events: list[WatchEvent] = []
    port.on_watch, port.on_state, port.on_state_thread, port.hooks = events.append, None, None, None
    assert zk.on_watch is not None
    assert port.on_watch is zk.on_watch
    assert (port.on_state, port.on_state_thread, port.hooks) == (None, None, None)
    await port.watch(data=["/a"], since_zxid=port.last_zxid)
    await zk.set("/a", b"2", 0)
    await port.heartbeat()
    assert events == [WatchEvent("/a", WatchKind.CHANGED)]
    assert (port.state, port.session_id, port.session_timeout_ms) == (zk.state, zk.session_id, zk.session_timeout_ms)
    assert await port.children("/") == await zk.children("/")
    assert await port.read_many(["/a"]) == await zk.read_many(["/a"])
    assert await port.read_decoded(["/a"], lambda data, version: (data, version)) == [(b"2", 1)]
    assert await port.get_acls("/a") == await zk.get_acls("/a")
    await port.close()
