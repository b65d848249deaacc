"""States, requests and answers of the adapter at every end of a connection, the second and third time too."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable
from unittest import mock

import pytest
from kazoo.exceptions import ConnectionDropped
from kazoo.protocol.states import KeeperState

from metadata_store.errors import (
    TROUBLE,
    TROUBLE_PAUSE_S,
    Code,
    ConnectFailed,
    NotConnected,
    OutcomeUnknown,
    SessionLost,
    ZxidWentBack,
)
from metadata_store.kazoo_adapter import KazooZooKeeper, jute
from metadata_store.kazoo_adapter.session import REFUSED_S_MAX
from metadata_store.kazoo_adapter.silence import LOOKS
from metadata_store.kazoo_adapter.transport import CLOSE_S_MAX
from metadata_store.port import ConnectionState
from tests.core.kazoo_kit import CONNECT_S, SESSION_MS, Recorded, Wire, adapter, begun, no_thread, turns
from tests.core.virtual_time import in_exact_time

CONNECTED, SUSPENDED, LOST = ConnectionState.CONNECTED, ConnectionState.SUSPENDED, ConnectionState.LOST
ENDS = (KeeperState.EXPIRED_SESSION, KeeperState.AUTH_FAILED, KeeperState.CLOSED)
STAT = bytes(68)


def now_s() -> float:
    return asyncio.get_running_loop().time()


@in_exact_time
async def test_each_blip_is_flagged_at_once_and_then_reported_in_order() -> None:
    async with adapter() as (zk, wire, recorded):
        for blip in range(1, 4):
            wire.enter(KeeperState.CONNECTING)
            assert recorded.flags == [SUSPENDED] * blip, "on kazoo's thread, before the loop turns"
            assert zk.state is SUSPENDED
            with pytest.raises(NotConnected):
                await zk.exists("/")
            wire.up()
            assert zk.state is SUSPENDED, "the loop does not know of the new connection yet"
            with pytest.raises(NotConnected):
                await zk.exists("/")
            await turns()
            assert zk.state is CONNECTED
            assert recorded.states == [CONNECTED, *[SUSPENDED, CONNECTED] * blip]
            found = asyncio.ensure_future(zk.exists("/"))
            await turns()
            assert wire.write() == 1, "the queue of the connection before it is empty"
            wire.answer(STAT)
            assert await found is not None
        assert len(wire.sent) == 3


@in_exact_time
async def test_a_blip_that_ends_before_the_loop_turns_still_refuses_what_was_meant_for_the_first_connection() -> None:
    async with adapter() as (zk, wire, _):
        for _ in range(3):
            wire.enter(KeeperState.CONNECTING)
            wire.up()
            assert wire.client.connected
            with pytest.raises(NotConnected):
                await zk.exists("/")
            assert not wire.client._queue
            await turns()


@pytest.mark.parametrize("end", ENDS)
@in_exact_time
async def test_after_the_end_of_a_session_everything_is_refused_and_no_second_one_begins(end: str) -> None:
    async with adapter() as (zk, wire, recorded):
        wire.enter(KeeperState.CONNECTING)
        await turns()
        wire.enter(end)
        assert recorded.flags == [SUSPENDED, LOST]
        assert wire.client._stopped.is_set(), "kazoo would open another session"
        await turns()
        assert (zk.state, recorded.states[-2:]) == (LOST, [SUSPENDED, LOST])
        for request in (zk.exists("/"), zk.set("/", b"", 0), zk.sync(), zk.heartbeat(), zk.read_many(["/"])):
            with pytest.raises(SessionLost):
                await request
        assert not wire.client._queue
        assert zk.session_id == 7, "until the next connect it is the session that ended"


@in_exact_time
async def test_a_new_session_after_each_lost_one() -> None:
    async with adapter() as (zk, wire, recorded):
        for number in range(1, 4):
            wire.enter(KeeperState.EXPIRED_SESSION)
            await turns()
            wire.enter(KeeperState.CLOSED)
            await turns()
            lost = wire.client
            await begun(wire, session_id=100 + number)
            assert wire.client is not lost
            assert (zk.state, zk.session_id) == (CONNECTED, 100 + number)
            await zk.connect(CONNECT_S)
            assert zk.session_id == 100 + number, "a session that stands is kept"
        assert recorded.states == [CONNECTED, *[LOST, CONNECTED] * 3]


@in_exact_time
async def test_a_later_session_must_know_what_every_earlier_one_has_seen() -> None:
    async with adapter() as (zk, wire, _):
        for zxid in (500, 400):
            wire.zxid = max(wire.zxid, zxid)
            asked = asyncio.ensure_future(zk.sync())
            await turns()
            wire.write()
            wire.answer(zxid=zxid)
            await asked
            assert zk.last_zxid == 500, "an answer with a smaller zxid does not lower it"
        await zk.close()
        assert (zk.last_zxid, zk.zxid_seen) == (0, 500)
        for seen in (499, 1):
            wire.zxid = seen - 1
            with pytest.raises(ZxidWentBack) as error:
                await begun(wire)
            assert (error.value.seen, error.value.now) == (500, seen)
            assert (zk.state, zk.zxid_seen) == (LOST, 500)
        wire.zxid = 499
        await begun(wire)
        assert zk.state is CONNECTED


@pytest.mark.parametrize(
    ("writes", "sent", "error"),
    [
        (False, False, NotConnected),
        (False, True, NotConnected),
        (True, False, NotConnected),
        (True, True, OutcomeUnknown),
    ],
)
@pytest.mark.parametrize("end", [KeeperState.CONNECTING, *ENDS])
@in_exact_time
async def test_requests_under_way_at_the_end_of_a_connection(
    end: str, writes: bool, sent: bool, error: type[Exception]
) -> None:
    async with adapter() as (zk, wire, _):
        asked = asyncio.ensure_future(zk.set("/a", b"", 0) if writes else zk.get("/a"))
        await turns()
        if sent:
            wire.write()
        wire.enter(end)
        await turns()
        with pytest.raises(error) as raised:
            await asked
        assert type(raised.value) is error


@in_exact_time
async def test_an_answer_that_comes_after_the_end_changes_nothing_but_the_zxid() -> None:
    async with adapter() as (zk, wire, recorded):
        asked = asyncio.ensure_future(zk.set("/a", b"", 0))
        await turns()
        wire.write()
        call = wire.under_way()
        wire.enter(KeeperState.EXPIRED_SESSION)
        call.reply(jute.Reply(0, 900, STAT, 0))
        wire.client._connection._read_watch_event(event(3, "/a"), 0)
        await turns()
        assert recorded.events == [("/a", "CHANGED")], "what came after it is not held up"
        with pytest.raises(OutcomeUnknown):
            await asked
        assert zk.last_zxid == 900
        assert zk.state is LOST


@pytest.mark.parametrize("answered", [True, False])
@in_exact_time
async def test_a_request_that_its_caller_gave_up_holds_nothing_up(answered: bool) -> None:
    async with adapter() as (zk, wire, recorded):
        for blip in range(1, 4):
            asked = asyncio.ensure_future(zk.set("/a", b"", 0))
            await turns()
            wire.write()
            asked.cancel()
            await turns()
            if answered:
                wire.answer(STAT)
            wire.enter(KeeperState.CONNECTING)
            await turns()
            assert recorded.states == [CONNECTED, *[SUSPENDED, CONNECTED] * (blip - 1), SUSPENDED]
            wire.up()
            await turns()


@in_exact_time
async def test_an_answer_and_the_end_after_it_reach_the_loop_in_this_order() -> None:
    async with adapter() as (zk, wire, recorded):
        asked = asyncio.ensure_future(zk.exists("/a"))
        await turns()
        wire.write()
        wire.answer(STAT)
        wire.client._connection._read_watch_event(event(3, "/a"), 0)
        wire.enter(KeeperState.EXPIRED_SESSION)
        assert (await asked) is not None
        await turns()
        assert recorded.events == [("/a", "CHANGED")]
        assert recorded.states[-1] is LOST


@in_exact_time
async def test_an_answer_to_another_request_ends_the_connection_and_is_not_taken() -> None:
    async with adapter() as (zk, wire, _):
        asked = [asyncio.ensure_future(zk.set("/a", b"", version)) for version in (0, 1)]
        await turns()
        assert wire.write() == 2
        with pytest.raises(ConnectionDropped):
            wire.answer(STAT, xid=77)
        await turns()
        assert [future.done() for future in asked] == [True, False]
        wire.enter(KeeperState.CONNECTING)
        for future in asked:
            with pytest.raises(OutcomeUnknown):
                await future


@pytest.mark.parametrize("code", sorted(TROUBLE))
@pytest.mark.parametrize("writes", [True, False])
@in_exact_time
async def test_a_server_in_trouble_is_reported_after_a_pause_each_time(code: Code, writes: bool) -> None:
    async with adapter() as (zk, wire, _):
        for _ in range(3):
            begun_s = now_s()
            asked = asyncio.ensure_future(zk.set("/a", b"", 0) if writes else zk.get("/a"))
            await turns()
            wire.write()
            wire.answer(err=code)
            with pytest.raises(OutcomeUnknown if writes and code is not Code.THROTTLED_OP else NotConnected) as raised:
                await asked
            assert code.name in str(raised.value)
            assert now_s() - begun_s == pytest.approx(TROUBLE_PAUSE_S, abs=0.05)
            assert zk.state is CONNECTED
        asked = asyncio.ensure_future(zk.exists("/a"))
        await turns()
        wire.write()
        wire.answer(STAT)
        assert await asked is not None


@pytest.mark.parametrize("code", [Code.SESSION_EXPIRED, Code.SESSION_MOVED])
@in_exact_time
async def test_a_session_that_the_server_refuses_changed_nothing(code: Code) -> None:
    async with adapter() as (zk, wire, _):
        asked = asyncio.ensure_future(zk.set("/a", b"", 0))
        await turns()
        wire.write()
        wire.answer(err=code)
        with pytest.raises(NotConnected, match=code.name):
            await asked


def event(kind: int, path: str) -> bytes:
    """Body of a watch event."""
    return struct.pack("!ii", kind, 3) + jute.text(path)


@in_exact_time
async def test_watch_events_by_kind_below_the_chroot(caplog: pytest.LogCaptureFixture) -> None:
    async with adapter("a:1/kafka") as (_, wire, recorded):
        for kind, path in [(1, "/kafka/a"), (2, "/kafka/b"), (3, "/kafka"), (4, "/kafka/c"), (5, "/kafka/d")]:
            wire.client._connection._read_watch_event(event(kind, path), 0)
        await turns()
        assert recorded.events == [("/a", "CREATED"), ("/b", "DELETED"), ("/", "CHANGED"), ("/c", "CHILD")]
        assert [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING] == [
            "ZooKeeper sent a watch event of the unknown type 5 for /kafka/d: ignored"
        ]


@in_exact_time
async def test_many_messages_wake_the_loop_once_and_the_next_ones_again() -> None:
    async with adapter() as (zk, wire, recorded):
        assert zk._transport is not None
        with mock.patch.object(zk._transport.loop, "call_soon_threadsafe", wraps=zk._transport.loop.call_soon) as woken:
            for cycle in range(1, 4):
                for number in range(10):
                    wire.client._connection._read_watch_event(event(3, f"/{number}"), 0)
                assert woken.call_count == cycle
                await turns()
                assert len(recorded.events) == 10 * cycle


@in_exact_time
async def test_after_a_close_nothing_is_called_back() -> None:
    async with adapter() as (zk, wire, recorded):
        client = wire.client
        before = len(recorded.states), len(recorded.flags)
        closing = asyncio.ensure_future(zk.close())
        await turns()
        client._connection._read_watch_event(event(3, "/a"), 0)
        client._session_callback(KeeperState.CLOSED)
        await closing
        client._connection._read_watch_event(event(3, "/b"), 0)
        await turns()
        assert (recorded.events, (len(recorded.states), len(recorded.flags))) == ([], before)
        with pytest.raises(SessionLost):
            await zk.exists("/")


@pytest.mark.parametrize(("ended_s", "cut_s", "closed_s"), [(1.9, 1.9, 1.9), (2.1, 2.0, 2.1), (None, 2.0, 4.0)])
@in_exact_time
async def test_a_close_waits_two_seconds_for_the_server_and_two_for_the_thread(
    ended_s: float | None, cut_s: float, closed_s: float
) -> None:
    assert CLOSE_S_MAX == 2.0
    async with adapter() as (zk, wire, _):
        begun_s, client = now_s(), wire.client
        if ended_s is not None:
            asyncio.get_running_loop().call_later(ended_s, client._session_callback, KeeperState.CLOSED)
        await zk.close()
        assert now_s() - begun_s == pytest.approx(closed_s, abs=0.05)
        assert wire.cuts[0] - begun_s == pytest.approx(cut_s, abs=0.05)
        assert client.release.called == (ended_s is not None)  # type: ignore[attr-defined]


@in_exact_time
async def test_a_connect_is_given_up_at_its_time_out_and_may_be_tried_again() -> None:
    """18 s, and at most twice the 2 s of a close."""
    zk = KazooZooKeeper("a:1", session_timeout_ms=SESSION_MS, multi_read=True)
    wire = Wire(zk)
    async with no_thread():
        for _ in range(3):
            begun_s = now_s()
            with pytest.raises(ConnectFailed, match="within 18 s"):
                await zk.connect(18.0)
            assert now_s() - begun_s == pytest.approx(18.0 + 2 * CLOSE_S_MAX, abs=0.05)
            assert zk.state is LOST
        await begun(wire)
        assert zk.state is CONNECTED


@pytest.mark.parametrize(("refused_s", "words"), [(0.9, "refused the credentials"), (1.1, "dropped the connection")])
@in_exact_time
async def test_a_login_by_sasl_that_failed_is_waited_for_after_the_connection_was_dropped(
    refused_s: float, words: str
) -> None:
    assert REFUSED_S_MAX == 1.0
    zk = KazooZooKeeper("a:1", session_timeout_ms=SESSION_MS, multi_read=True, sasl="u:p")
    wire = Wire(zk)
    async with no_thread():
        connecting = asyncio.ensure_future(zk.connect(CONNECT_S))
        await turns()
        wire.up()
        await turns()
        client = wire.client
        client._session_callback(KeeperState.CONNECTING)

        def end() -> None:
            client._session_callback(KeeperState.AUTH_FAILED)
            client._session_callback(KeeperState.CLOSED)

        asyncio.get_running_loop().call_later(refused_s, end)
        with pytest.raises(ConnectFailed, match=words):
            await connecting


@pytest.mark.parametrize(
    ("state", "words"),
    [(KeeperState.AUTH_FAILED, "refused the credentials"), (KeeperState.EXPIRED_SESSION, "dropped the connection")],
)
@in_exact_time
async def test_a_first_session_that_ends_at_once(state: str, words: str) -> None:
    zk = KazooZooKeeper("a:1", session_timeout_ms=SESSION_MS, multi_read=True)
    wire = Wire(zk)
    async with no_thread():
        for _ in range(3):
            connecting = asyncio.ensure_future(zk.connect(CONNECT_S))
            await turns()
            wire.up()
            wire.enter(state)
            with pytest.raises(ConnectFailed, match=words):
                await connecting
        await begun(wire)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (KeeperState.EXPIRED_SESSION, "no ZooKeeper of a:1 gave a session: is it running"),
        (KeeperState.CLOSED, "no ZooKeeper of a:1 gave a session: is it running"),
        (KeeperState.AUTH_FAILED, "ZooKeeper a:1: it refused the credentials"),
    ],
)
@in_exact_time
async def test_a_session_that_ends_before_it_begins_fails_the_connect_at_once(state: str, words: str) -> None:
    zk = KazooZooKeeper("a:1", session_timeout_ms=SESSION_MS, multi_read=True)
    wire, recorded = Wire(zk), Recorded(zk)
    async with no_thread():
        for _ in range(3):
            begun_s = now_s()
            connecting = asyncio.ensure_future(zk.connect(CONNECT_S))
            await turns()
            wire.enter(KeeperState.CONNECTING)
            wire.enter(state)
            wire.enter(KeeperState.CLOSED)
            with pytest.raises(ConnectFailed, match=words):
                await connecting
            assert (now_s(), zk.state, recorded.states) == (begun_s, LOST, [])
        await begun(wire)
        assert recorded.states == [CONNECTED]


@pytest.mark.parametrize(("granted_ms", "left_s"), [(18_000, 6.0), (6_000, 2.0)])
@in_exact_time
async def test_a_silent_server_is_left_after_a_third_of_the_session_that_it_granted(
    granted_ms: int, left_s: float
) -> None:
    async with adapter() as (zk, wire, _):
        wire.client.servers.round([("a", "10.0.0.1", 1), ("b", "10.0.0.2", 2)])
        for _ in range(3):
            wire.enter(KeeperState.CONNECTING)
            wire.up(granted_ms=granted_ms)
            await turns()
            assert zk.session_timeout_ms == granted_ms
            wire.cuts.clear()
            begun_s = now_s()
            beat = asyncio.ensure_future(zk.heartbeat())
            await asyncio.sleep(left_s - 0.1)
            wire.write()
            assert not wire.cuts
            await asyncio.sleep(0.2)
            assert [cut - begun_s for cut in wire.cuts] == [pytest.approx(left_s, abs=0.05 * LOOKS)]
            wire.enter(KeeperState.CONNECTING)
            with pytest.raises(NotConnected):
                await beat


@in_exact_time
async def test_a_connection_that_is_new_is_not_left_for_the_silence_of_the_one_before() -> None:
    async with adapter() as (zk, wire, _):
        wire.client.servers.round([("a", "10.0.0.1", 1), ("b", "10.0.0.2", 2)])
        for _ in range(2):
            wire.enter(KeeperState.CONNECTING)
            wire.up()
            assert zk._transport is not None
            assert not zk._transport.leave(6.0)
            await turns()
            assert not wire.cuts
        assert wire.zk._transport is not None
        assert wire.zk._transport.leave(6.0)


@in_exact_time
async def test_the_only_server_is_not_left() -> None:
    async with adapter() as (zk, wire, _):
        beat = asyncio.ensure_future(zk.heartbeat())
        await asyncio.sleep(60.0)
        assert not wire.cuts
        wire.write()
        wire.answer()
        await beat


@pytest.mark.parametrize("fails", [lambda _: None, lambda zk: setattr(zk, "on_state_thread", boom)])
@in_exact_time
async def test_a_callback_on_the_thread_that_fails_does_not_keep_the_state_from_the_loop(
    fails: Callable[[KazooZooKeeper], None],
) -> None:
    async with adapter() as (zk, wire, recorded):
        fails(zk)
        for _ in range(2):
            wire.enter(KeeperState.CONNECTING)
            wire.up()
            await turns()
        assert recorded.states == [CONNECTED, *[SUSPENDED, CONNECTED] * 2]


def boom(_: ConnectionState) -> None:
    raise RuntimeError("a callback of the daemon failed")
