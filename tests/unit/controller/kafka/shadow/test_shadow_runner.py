"""Runs the shadow on a ZooKeeper port: when it reads what, lost connections, its read-only port, and its report."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import anyio
import pytest

from controller.kafka.metrics.values import Counters
from controller.kafka.shadow.events import Kind
from controller.kafka.shadow.read_only import ReadOnly, WriteRefused
from controller.kafka.shadow.reading import Reader
from controller.kafka.shadow.report import (
    LINE_S,
    SAVE_S,
    SHOWN_MAX,
    Report,
    ReportKeeper,
    Statistics,
    load,
    report_path,
)
from controller.kafka.shadow.shadow import AGAIN_S_MAX, AGAIN_S_MIN, CATCHING_UP_S, LATE_S, LOAD_MAX, Shadow
from controller.kafka.shadow.timeline import FORGOTTEN, READ_LATE
from controller.kafka.shadow.tracker import BEGUN_BEFORE
from controller.kafka.shadow.unmatched import BEING_DELETED, BEING_REASSIGNED
from metadata_store import paths
from metadata_store.errors import SessionLost
from metadata_store.port import Check, Create, WatchEvent, WatchKind
from testing.memory import MemoryServer, MemoryZooKeeper
from tests.kit.deadlines import eventually, in_exact_time
from tests.kit.kafka.shadow import MIXED, TRIPLES
from tests.kit.kafka.shadow_store import POLL_S, StoredWorld, agreed, reported, shadowing, stored


@in_exact_time
async def test_creation_death_return_shutdown_and_failover_agree() -> None:
    w = stored(*MIXED, holder=1)
    async with shadowing(w.server) as (shadow, _):
        w.create("new", *TRIPLES)
        w.controller.finish()
        await reported(shadow, lambda r: agreed(r, Kind.CREATION) == 4)
        w.deregister(2)
        w.controller.finish()
        await reported(shadow, lambda r: agreed(r, Kind.DEATH) == 11)
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
    assert (report.differing, report.uncomparable, report.controller) == (0, {}, 9)
    assert report.partitions == len(MIXED) + len(TRIPLES)
    total = sum(report.compared.values())
    assert report.lines()[0] == f"{total} decisions compared, 0 differences, 0 uncomparable, 0 waiting"


@in_exact_time
async def test_each_difference_of_a_reading_is_a_line_up_to_a_bound(caplog: pytest.LogCaptureFixture) -> None:
    for count in (SHOWN_MAX, SHOWN_MAX + 1):
        caplog.clear()
        w = stored(*[(1, 2, 3)] * count)
        async with shadowing(w.server) as (shadow, _):
            for partition in range(count):
                w.write(("t", partition), 1, 1, (1, 2, 3))
            report = await reported(shadow, lambda r: r.differing == count)  # noqa: B023 - awaited here
        assert {(d.fields, d.event) for d in report.differences} == {("leader epoch", "no event explains it")}
        lines = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
        assert (
            sum("difference from Kafka's controller at /brokers/topics/t/partitions/" in x for x in lines) == SHOWN_MAX
        )
        assert ("more differences at the same time, 11 in all: see the report" in lines) == (count > SHOWN_MAX)


@in_exact_time
async def test_rewritten_marked_deleted_and_recreated_topics_are_read_when_their_znodes_change() -> None:
    w = stored((1, 2), (2, 3))
    w.create("other", *TRIPLES)
    w.controller.finish()
    async with shadowing(w.server) as (shadow, _):
        w.rewrite("t", (1, 2), (2, 3), (3, 1))
        w.controller.finish()
        await reported(shadow, lambda r: agreed(r, Kind.CREATION) == 1)
        w.rewrite("t", (1, 2, 3), (2, 3), (3, 1), adding=(3,))
        w.write(("t", 0), 1, 1, (1, 2))
        await eventually(lambda: any(row.assignment.adding for row in shadow.tracker.model.rows))
        await reported(shadow, lambda r: r.partitions == 7)
        w.write(("t", 0), 1, 2, (1, 2))
        await reported(shadow, lambda r: r.uncomparable == {BEING_REASSIGNED: 1})
        w.mark_deleted("t")
        w.write(("t", 1), -1, 1, (2, 3))
        await reported(shadow, lambda r: BEING_DELETED in r.uncomparable)
        w.delete("t")
        await eventually(lambda: shadow.report().partitions == 4)
        w.write(("other", 0), -1, 1, (1, 2, 3))
        await eventually(lambda: len(shadow.tracker.waiting) == 1)
        w.delete("other")
        w.create("other", *TRIPLES)
        w.controller.finish()
        report = await reported(shadow, lambda r: agreed(r, Kind.CREATION) == 5)
    assert (report.differing, report.uncomparable) == (0, {BEING_REASSIGNED: 1, BEING_DELETED: 1, FORGOTTEN: 1})


# -- connection and session


@in_exact_time
async def test_after_a_lost_connection_the_shadow_starts_over() -> None:
    w = stored(*TRIPLES)
    async with shadowing(w.server) as (shadow, zk):
        w.deregister(1)
        await eventually(lambda: len(shadow.tracker.waiting) == 4)
        w.server.suspend(zk.session_id)
        w.controller.finish()
        w.server.resume(zk.session_id)
        await reported(shadow, lambda r: r.uncomparable == {BEGUN_BEFORE: 4})
        w.register(1)
        w.deregister(2)
        w.controller.finish()
        report = await reported(shadow, lambda r: agreed(r, Kind.DEATH) == 4)
    assert report.differing == 0


@in_exact_time
async def test_a_lost_session_is_raised_and_the_next_one_continues_the_counts() -> None:
    w, counters = stored(*TRIPLES), Counters()
    shadow = Shadow(poll_s=0.2, wait_s=1.0, counters=counters)
    for expected, broker in ((4, 1), (8, 2)):
        with pytest.RaisesGroup(SessionLost):
            async with shadowing(w.server, shadow) as (_, zk):
                w.deregister(broker)
                w.controller.finish()
                await reported(shadow, lambda r: r.compared_total == expected)  # noqa: B023 - awaited here
                w.server.expire(zk.session_id)
                await asyncio.Event().wait()
        w.register(broker)
        w.controller.finish()
    assert counters.shadow_compared == shadow.report().compared_total == 8


@in_exact_time
async def test_an_ensemble_without_a_cluster_is_followed_until_there_is_one() -> None:
    server = MemoryServer()
    async with shadowing(server) as (shadow, _):
        w = StoredWorld(server=server)
        w.create("t", (1,))
        await eventually(lambda: shadow.report().partitions == 1)
        assert shadow.report().lines()[0].startswith("0 decisions compared, 0 differences")


@in_exact_time
async def test_a_malformed_state_znode_is_named_once_and_the_others_are_compared(
    caplog: pytest.LogCaptureFixture,
) -> None:
    w = stored((2, 3), *TRIPLES)
    async with shadowing(w.server) as (shadow, _):
        w.spoil(("t", 0))
        w.deregister(1)
        w.controller.finish()
        await eventually(lambda: agreed(shadow.report(), Kind.DEATH) == 4)
    assert sum("/brokers/topics/t/partitions/0/state cannot be read" in r.message for r in caplog.records) == 1


@pytest.mark.parametrize(
    ("controller", "epoch", "expected"),
    [(None, None, (None, 0)), (b"{", b"nonsense", (-1, 0)), (b'{"version":2,"brokerid":3}', b"7", (3, 7))],
)
async def test_a_reading_names_the_holder_and_the_epoch_of_the_role(
    controller: bytes | None, epoch: bytes | None, expected: tuple[int | None, int]
) -> None:
    zk = MemoryZooKeeper(MemoryServer())
    await zk.connect(1)
    for path, data in ((paths.CONTROLLER, controller), (paths.CONTROLLER_EPOCH, epoch)):
        if data is not None:
            await zk.create(path, data)
    found = await Reader(zk).role_seen(None)
    assert (found.holder, found.epoch) == expected
    assert (found.epoch_zxid > 0) == (found.epoch > 0)
    assert (found.reading, found.brokers, found.zxid) == (1, {}, 0)


# -- the port


async def test_the_port_refuses_every_write_before_it_is_sent() -> None:
    zk = MemoryZooKeeper(MemoryServer())
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


async def test_the_port_delegates_reads_watches_and_the_session() -> None:
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


class Readings:
    """Records time and size of each read of state znodes; a reading takes ``takes_s``."""

    def __init__(self, takes_s: float = 0.0) -> None:
        self.found: list[tuple[float, int]] = []
        really = Reader.states

        async def states(reader: Reader, named: Sequence[tuple[int, str, int]]) -> Any:
            self.found.append((round(asyncio.get_running_loop().time(), 3), len(named)))
            await asyncio.sleep(takes_s)
            return await really(reader, named)

        self.patch = mock.patch.object(Reader, "states", states)

    def pauses(self) -> list[float]:
        return [round(after - before, 3) for (before, _), (after, _) in pairwise(self.found)]


@in_exact_time
async def test_a_quiet_cluster_is_read_at_each_poll() -> None:
    readings = Readings()
    with readings.patch:
        async with shadowing(stored(*TRIPLES).server):
            await asyncio.sleep(10 * POLL_S)
    assert set(readings.pauses()[:8]) == {POLL_S}
    assert {size for _, size in readings.found} == {len(TRIPLES)}


@in_exact_time
async def test_a_waiting_partition_is_read_again_after_growing_pauses() -> None:
    readings, w = Readings(), stored(*TRIPLES)
    with readings.patch:
        async with shadowing(w.server, Shadow(poll_s=60.0, wait_s=30.0)):
            w.write(("t", 0), 1, 1, (1, 2, 3))
            w.register(8)
            await asyncio.sleep(5.0)
    begin = next(at for at, pause in enumerate(readings.pauses()) if pause == AGAIN_S_MIN)
    assert readings.pauses()[begin : begin + 7] == [AGAIN_S_MIN, 0.04, 0.08, 0.16, 0.32, AGAIN_S_MAX, AGAIN_S_MAX]
    assert {size for _, size in readings.found[begin + 1 :]} == {1}, "the other partitions are not read"


@in_exact_time
async def test_partitions_whose_isr_a_live_replica_may_join_are_read_often() -> None:
    readings, w = Readings(), stored(*TRIPLES)
    w.leader_sets_isr(("t", 1), 2, 3)
    with readings.patch:
        async with shadowing(w.server, Shadow(poll_s=60.0)):
            await asyncio.sleep(0.5)
            w.leader_sets_isr(("t", 1), 2, 3, 1)
            await asyncio.sleep(30.0)
    assert readings.pauses()[:9] == [CATCHING_UP_S] * 9
    assert [size for _, size in readings.found][:10] == [len(TRIPLES), *[1] * 9]
    assert len(readings.found) < 15, "it has joined"


@in_exact_time
async def test_slow_readings_take_a_bounded_share_of_the_time() -> None:
    readings, w = Readings(takes_s=1.0), stored(*TRIPLES)
    with readings.patch:
        async with shadowing(w.server, Shadow(poll_s=600.0, wait_s=600.0)):
            w.write(("t", 0), 1, 1, (1, 2, 3))
            w.register(8)
            await asyncio.sleep(60.0)
    assert readings.pauses()[-3:] == [1.0 + 1.0 / LOAD_MAX] * 3


@pytest.mark.parametrize(("takes_s", "late"), [(LATE_S / 2, False), (2.5 * LATE_S, True)])
@in_exact_time
async def test_an_event_that_is_read_late_may_hide_others(takes_s: float, late: bool) -> None:
    w = stored(*TRIPLES)
    w.controller.tamper = lambda name, s: s if name[1] else type(s)(3, s.leader_epoch, s.isr, 0, 0)
    readings = Readings(takes_s)
    with readings.patch:
        async with shadowing(w.server) as (shadow, _):
            started = len(readings.found)
            await eventually(lambda: len(readings.found) > started)
            w.deregister(1)
            w.controller.finish()
            report = await reported(shadow, lambda r: bool(r.differing or r.uncomparable))
    assert (report.differing, report.uncomparable) == ((0, {READ_LATE: 1}) if late else (1, {}))


async def test_the_next_process_continues_the_report_of_the_last_one(tmp_path: Path) -> None:
    w, file = stored(*TRIPLES), report_path(tmp_path)
    for expected, broker in ((4, 1), (8, 2)):
        shadow = Shadow(poll_s=0.2, wait_s=1.0, file=file)
        async with shadowing(w.server, shadow):
            w.deregister(broker)
            w.controller.finish()
            await reported(shadow, lambda r: r.compared_total == expected)  # noqa: B023 - awaited here
        kept = load(file)
        assert kept is not None
        assert (kept.compared_total, kept.since_ms) == (expected, shadow.statistics.since_ms)
        w.register(broker)
        w.controller.finish()
    assert not await anyio.to_thread.run_sync(lambda: [p for p in tmp_path.iterdir() if p != file]), "no draft is left"


async def test_a_report_that_cannot_be_read_or_saved_is_logged_and_counting_continues(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "folder" / "report.json"
    file.mkdir(parents=True)
    async with shadowing(stored(*TRIPLES).server, Shadow(poll_s=0.2, wait_s=1.0, file=file)):
        pass
    assert "cannot be read, counting begins anew" in caplog.text
    assert "the shadow's report cannot be saved" in caplog.text


def test_a_closed_folder_is_named_with_its_remedy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    denied = PermissionError(errno.EACCES, "Permission denied")
    monkeypatch.setattr(Path, "read_bytes", mock.Mock(side_effect=denied))
    assert load(tmp_path / "shadow-report.json") is None
    assert "is not known (Permission denied)" in caplog.text
    assert f"Remedy: give {tmp_path} to the daemon's user" in caplog.text
    assert "earlier report cannot be read" not in caplog.text


async def test_changed_counts_are_saved_each_minute_and_logged_each_hour(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "regent.shadow")
    statistics, file = Statistics(), tmp_path / "report.json"

    def report() -> Report:
        return Report({}, 0, [], {}, {}, 0, statistics.isr_changes, 0, {}, 0, None, 1)

    keeper = ReportKeeper(file, report)
    for cycle in range(3):
        begin_s = 1.0 + cycle * SAVE_S
        saved = []
        for now_s in (begin_s, begin_s + SAVE_S - 0.1):
            statistics.isr_changes += 1
            await keeper.keep(now_s)
            kept = load(file)
            saved.append(kept.isr_changes if kept is not None else 0)
        assert saved == [2 * cycle + 1] * 2
    for now_s in (LINE_S + 0.9, LINE_S + 1.0, LINE_S + 2.0, 2 * LINE_S + 1.0):
        await keeper.keep(now_s)
    assert [r.getMessage().partition(":")[0] for r in caplog.records] == ["shadow so far"] * 2
