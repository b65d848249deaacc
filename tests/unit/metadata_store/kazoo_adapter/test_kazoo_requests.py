"""Requests and replies of the adapter: what becomes of them at every end of a connection, and how they are cut."""

from __future__ import annotations

import asyncio
import logging
from typing import Any
from unittest import mock

import pytest
from kazoo.exceptions import ConnectionDropped
from kazoo.protocol.states import KeeperState

from metadata_store.errors import TROUBLE, TROUBLE_PAUSE_S, Code, MultiFailed, NotConnected, OutcomeUnknown
from metadata_store.kazoo_adapter import jute, kazoo_client
from metadata_store.port import (
    Check,
    ConnectionState,
    Create,
)
from tests.kit.deadlines import in_exact_time
from tests.kit.kazoo import STAT, adapter, multi_read_reply, multi_reply, now_s, turns

CONNECTED, SUSPENDED, LOST = ConnectionState.CONNECTED, ConnectionState.SUSPENDED, ConnectionState.LOST
ENDS = (KeeperState.CONNECTING, KeeperState.EXPIRED_SESSION, KeeperState.AUTH_FAILED, KeeperState.CLOSED)


# -- at the end of a connection


@pytest.mark.parametrize(
    ("writes", "sent", "error"),
    [
        (False, False, NotConnected),
        (False, True, NotConnected),
        (True, False, NotConnected),
        (True, True, OutcomeUnknown),
    ],
)
@pytest.mark.parametrize("end", ENDS)
@in_exact_time
async def test_only_a_write_that_was_sent_has_an_unknown_outcome_at_the_end_of_a_connection(
    end: str, writes: bool, sent: bool, error: type[Exception]
) -> None:
    async with adapter() as (zk, wire, _):
        asked: asyncio.Task[Any] = await wire.begin(zk.set("/a", b"", 0) if writes else zk.get("/a"), sends=sent)
        wire.enter(end)
        await turns()
        with pytest.raises(error) as raised:
            await asked
        assert type(raised.value) is error


@in_exact_time
async def test_a_reply_after_the_end_of_a_session_changes_nothing_but_the_zxid() -> None:
    async with adapter() as (zk, wire, recorded):
        asked = await wire.begin(zk.set("/a", b"", 0))
        call = wire.under_way()
        wire.enter(KeeperState.EXPIRED_SESSION)
        call.reply(jute.Reply(0, 900, STAT, 0))
        wire.fire(3, "/a")
        await turns()
        assert recorded.events == [("/a", "CHANGED")], "the reply does not hold up the event after it"
        with pytest.raises(OutcomeUnknown):
            await asked
        assert (zk.last_zxid, zk.state) == (900, LOST)


@pytest.mark.parametrize("replied", [True, False])
@in_exact_time
async def test_a_request_that_its_caller_cancelled_holds_no_state_up(replied: bool) -> None:
    async with adapter() as (zk, wire, recorded):
        for blip in range(1, 4):
            asked = await wire.begin(zk.set("/a", b"", 0))
            asked.cancel()
            await turns()
            if replied:
                wire.reply(STAT)
            await wire.reconnect()
            assert recorded.states == [CONNECTED, *[SUSPENDED, CONNECTED] * blip]


@in_exact_time
async def test_a_reply_an_event_and_the_end_of_the_session_reach_the_loop_in_this_order() -> None:
    async with adapter() as (zk, wire, recorded):
        asked = await wire.begin(zk.exists("/a"))
        wire.reply(STAT)
        wire.fire(3, "/a")
        wire.enter(KeeperState.EXPIRED_SESSION)
        assert (await asked) is not None
        await turns()
        assert recorded.events == [("/a", "CHANGED")]
        assert recorded.states[-1] is LOST


@in_exact_time
async def test_a_reply_to_another_request_ends_the_connection_and_is_not_taken() -> None:
    async with adapter() as (zk, wire, _):
        asked = [await wire.begin(zk.set("/a", b"", version)) for version in (0, 1)]
        with pytest.raises(ConnectionDropped):
            wire.reply(STAT, xid=77)
        await turns()
        assert [task.done() for task in asked] == [True, False]
        wire.enter(KeeperState.CONNECTING)
        for task in asked:
            with pytest.raises(OutcomeUnknown):
                await task


# -- replies


@pytest.mark.parametrize("code", sorted(TROUBLE))
@pytest.mark.parametrize("writes", [True, False])
@in_exact_time
async def test_the_trouble_of_a_server_is_raised_after_a_pause_each_time(code: Code, writes: bool) -> None:
    async with adapter() as (zk, wire, _):
        for _ in range(3):
            begun_s = now_s()
            asked: asyncio.Task[Any] = await wire.begin(zk.set("/a", b"", 0) if writes else zk.get("/a"))
            wire.reply(err=code)
            error = OutcomeUnknown if writes and code is not Code.THROTTLED_OP else NotConnected
            with pytest.raises(error, match=code.name):
                await asked
            assert now_s() - begun_s == pytest.approx(TROUBLE_PAUSE_S, abs=0.05)
            assert zk.state is CONNECTED
        found = await wire.begin(zk.exists("/a"))
        wire.reply(STAT)
        assert await found is not None


@in_exact_time
async def test_a_caller_that_gave_up_during_the_pause_after_trouble_is_not_missed() -> None:
    async with adapter() as (zk, wire, _):
        asked = await wire.begin(zk.get("/a"))
        wire.reply(err=Code.CONNECTION_LOSS)
        await turns()
        asked.cancel()
        failures: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
        await asyncio.sleep(2 * TROUBLE_PAUSE_S)
        assert failures == []


@pytest.mark.parametrize("code", [Code.SESSION_EXPIRED, Code.SESSION_MOVED])
@in_exact_time
async def test_a_write_in_a_session_that_the_server_refuses_changed_nothing(code: Code) -> None:
    async with adapter() as (zk, wire, _):
        asked = await wire.begin(zk.set("/a", b"", 0))
        wire.reply(err=code)
        with pytest.raises(NotConnected, match=code.name):
            await asked


@pytest.mark.parametrize("multi_read", [True, False])
@pytest.mark.parametrize("code", [Code.SESSION_EXPIRED, Code.SESSION_MOVED])
@in_exact_time
async def test_a_session_that_the_server_refuses_is_no_property_of_the_znodes_that_are_read(
    code: Code, multi_read: bool
) -> None:
    async with adapter(multi_read=multi_read) as (zk, wire, _):
        asked = await wire.begin(zk.read_many(["/a"]))
        wire.reply(err=code)
        with pytest.raises(NotConnected, match=code.name):
            await asked


@pytest.mark.parametrize(
    ("codes", "index"),
    [((0, -103), 1), ((-101, -2), 0), ((0, -101, -2), 1), ((-2, -110), 1), ((0, 0, -9_999), 2), ((0, -2), 0)],
)
@in_exact_time
async def test_a_failed_multi_names_the_first_operation_that_failed_by_itself(
    codes: tuple[int, ...], index: int
) -> None:
    async with adapter() as (zk, wire, _):
        asked = await wire.begin(zk.multi([Check(f"/{number}", 0) for number in range(len(codes))]))
        wire.reply(multi_read_reply(*codes))
        with pytest.raises(MultiFailed) as failed:
            await asked
        assert (failed.value.index, failed.value.path) == (index, f"/{index}")
        assert failed.value.codes == list(map(Code, codes))


@in_exact_time
async def test_watch_events_have_their_kind_and_the_path_below_the_chroot(caplog: pytest.LogCaptureFixture) -> None:
    async with adapter("a:1/kafka") as (_, wire, recorded):
        for kind, path in [(1, "/kafka/a"), (2, "/kafka/b"), (3, "/kafka"), (4, "/kafka/c"), (5, "/kafka/d")]:
            wire.fire(kind, path)
        await turns()
        assert recorded.events == [("/a", "CREATED"), ("/b", "DELETED"), ("/", "CHANGED"), ("/c", "CHILD")]
        assert [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING] == [
            "ZooKeeper sent a watch event of the unknown type 5 for /kafka/d: ignored"
        ]


@in_exact_time
async def test_many_messages_wake_the_loop_once_and_the_next_ones_again() -> None:
    async with adapter() as (_, wire, recorded):
        loop = wire.transport.loop
        with mock.patch.object(loop, "call_soon_threadsafe", wraps=loop.call_soon) as woken:
            for cycle in range(1, 4):
                for number in range(10):
                    wire.fire(3, f"/{number}")
                assert woken.call_count == cycle
                await turns()
                assert len(recorded.events) == 10 * cycle


@in_exact_time
async def test_a_create_that_zookeeper_3_5_answers_without_its_stat_has_one_from_the_transaction() -> None:
    async with adapter("a:1/kafka") as (zk, wire, _):
        for ephemeral, owner in ((True, 7), (False, 0)):
            asked = await wire.begin(zk.multi([Create("/a", b"", ephemeral=ephemeral)]))
            wire.reply(multi_reply(jute.CREATE, jute.text("/kafka/a")), zxid=177)
            [created] = await asked
            assert created is not None
            path, stat = created  # type: ignore[misc]
            assert (path, stat.czxid, stat.mzxid, stat.pzxid) == ("/a", 177, 177, 177)
            assert (stat.version, stat.ephemeral_owner, stat.num_children) == (0, owner, 0)


@in_exact_time
async def test_each_connection_queries_its_server_once_for_multi_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers of an ensemble are upgraded one after the other, and back."""
    queried: list[tuple[Any, ...]] = []
    version = (3, 5)

    async def server_version(*at: Any) -> tuple[int, int]:
        queried.append(at)
        return version

    monkeypatch.setattr("metadata_store.kazoo_adapter.session.server_version", server_version)
    monkeypatch.setattr(kazoo_client.Client, "peer", ("10.0.0.1", 2181))
    async with adapter(multi_read=None) as (zk, wire, _):
        assert queried == [("10.0.0.1", 2181, None)]
        for opcode, release in [(jute.GET_DATA, (3, 6)), (jute.MULTI_READ, (3, 5)), (jute.GET_DATA, (3, 6))]:
            before = len(queried)
            for _ in range(2):
                wire.sent.clear()
                reading = await wire.begin(zk.read_many(["/a"]))
                assert [sent for sent, _ in wire.sent] == [opcode]
                wire.reply(multi_read_reply(Code.NO_NODE), err=0 if opcode == jute.MULTI_READ else int(Code.NO_NODE))
                assert await reading == [Code.NO_NODE]
            assert len(queried) <= before + 1
            version = release
            await wire.reconnect()
        assert zk.peer == "10.0.0.1:2181"
