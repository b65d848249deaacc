"""States and sessions of the adapter at every end of a connection, the second and third time too."""

from __future__ import annotations

import asyncio
import logging

import pytest
from kazoo.protocol.states import KeeperState

from metadata_store.errors import NotConnected, SessionLost, ZxidWentBack
from metadata_store.kazoo_adapter.adapter import LOOKS
from metadata_store.kazoo_adapter.transport import CLOSE_S_MAX
from metadata_store.port import ConnectionState
from tests.kit.deadlines import in_exact_time
from tests.kit.kazoo import CONNECT_S, STAT, adapter, connect, now_s, stuck, turns

CONNECTED, SUSPENDED, LOST = ConnectionState.CONNECTED, ConnectionState.SUSPENDED, ConnectionState.LOST
ENDS = (KeeperState.EXPIRED_SESSION, KeeperState.AUTH_FAILED, KeeperState.CLOSED)


# -- blips


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
            found = await wire.begin(zk.exists("/"))
            wire.reply(STAT)
            assert await found is not None
        assert len(wire.sent) == 3, "nothing that was refused is sent later"


@in_exact_time
async def test_a_blip_that_the_loop_did_not_see_yet_refuses_requests() -> None:
    async with adapter() as (zk, wire, _):
        for _ in range(3):
            wire.enter(KeeperState.CONNECTING)
            wire.up()
            with pytest.raises(NotConnected):
                await zk.exists("/")
            assert not wire.queued
            await turns()


@pytest.mark.parametrize("fails", [False, True])
@in_exact_time
async def test_a_callback_on_the_thread_that_fails_does_not_keep_the_state_from_the_loop(fails: bool) -> None:
    def fail(_: ConnectionState) -> None:
        raise RuntimeError("a callback of the daemon failed")

    async with adapter() as (zk, wire, recorded):
        zk.on_state_thread = fail if fails else None
        for _ in range(2):
            await wire.reconnect()
        assert recorded.states == [CONNECTED, *[SUSPENDED, CONNECTED] * 2]


# -- ends of sessions


@pytest.mark.parametrize("end", ENDS)
@in_exact_time
async def test_after_the_end_of_a_session_every_request_is_refused_and_no_other_session_begins(end: str) -> None:
    async with adapter() as (zk, wire, recorded):
        wire.enter(KeeperState.CONNECTING)
        await turns()
        wire.enter(end)
        assert recorded.flags == [SUSPENDED, LOST]
        assert wire.opens_no_other_session
        await turns()
        assert (zk.state, recorded.states[-2:]) == (LOST, [SUSPENDED, LOST])
        for request in (zk.exists("/"), zk.set("/", b"", 0), zk.sync(), zk.heartbeat(), zk.read_many(["/"])):
            with pytest.raises(SessionLost):
                await request
        assert not wire.queued
        assert zk.session_id == 7, "until the next connect it is the session that ended"


@in_exact_time
async def test_each_lost_session_is_replaced_by_a_connect_and_a_live_one_is_kept() -> None:
    async with adapter() as (zk, wire, recorded):
        for number in range(1, 4):
            wire.enter(KeeperState.EXPIRED_SESSION)
            await turns()
            wire.enter(KeeperState.CLOSED)
            await turns()
            lost = wire.client
            await connect(wire, session_id=100 + number)
            assert wire.client is not lost
            assert (zk.state, zk.session_id) == (CONNECTED, 100 + number)
            await zk.connect(CONNECT_S)
            assert zk.session_id == 100 + number
        assert recorded.states == [CONNECTED, *[LOST, CONNECTED] * 3]


@in_exact_time
async def test_a_session_with_less_than_every_earlier_one_has_seen_is_refused() -> None:
    async with adapter() as (zk, wire, _):
        for zxid in (500, 400):
            asked = await wire.begin(zk.sync())
            wire.reply(zxid=zxid)
            await asked
            assert zk.last_zxid == 500, "a reply with a smaller zxid does not lower it"
        await zk.close()
        assert (zk.last_zxid, zk.zxid_seen) == (0, 500)
        for seen in (499, 1):
            wire.zxid = seen - 1
            with pytest.raises(ZxidWentBack) as error:
                await connect(wire)
            assert (error.value.seen, error.value.now) == (500, seen)
            assert (zk.state, zk.zxid_seen) == (LOST, 500)
        wire.zxid = 499
        await connect(wire)
        assert zk.state is CONNECTED


# -- closes


@in_exact_time
async def test_after_a_close_nothing_is_called_back() -> None:
    async with adapter() as (zk, wire, recorded):
        before = len(recorded.states), len(recorded.flags)
        assert wire.transport.connected
        closing = await wire.begin(zk.close(), sends=False)
        wire.fire(3, "/a")
        wire.enter(KeeperState.CLOSED)
        await closing
        wire.fire(3, "/b")
        await turns()
        assert (recorded.events, (len(recorded.states), len(recorded.flags))) == ([], before)
        with pytest.raises(SessionLost):
            await zk.exists("/")


@pytest.mark.parametrize(("ended_s", "cut_s", "closed_s"), [(1.9, 1.9, 1.9), (2.1, 2.0, 2.1), (None, 2.0, 4.0)])
@in_exact_time
async def test_a_close_waits_two_seconds_for_the_server_and_two_for_the_thread(
    ended_s: float | None, cut_s: float, closed_s: float, caplog: pytest.LogCaptureFixture
) -> None:
    assert CLOSE_S_MAX == 2.0
    async with adapter() as (zk, wire, _):
        begun_s, client = now_s(), wire.client
        if ended_s is not None:
            asyncio.get_running_loop().call_later(ended_s, wire.enter, KeeperState.CLOSED)
        await zk.close()
        assert now_s() - begun_s == pytest.approx(closed_s, abs=0.05)
        assert wire.cuts[0] - begun_s == pytest.approx(cut_s, abs=0.05)
        assert client.release.called == (ended_s is not None)  # type: ignore[attr-defined]
        assert stuck(caplog) == ([] if ended_s is not None else [logging.WARNING])


# -- silent servers


@pytest.mark.parametrize(("granted_ms", "left_s"), [(18_000, 6.0), (6_000, 2.0)])
@in_exact_time
async def test_a_silent_server_is_left_after_a_third_of_the_session_that_it_granted(
    granted_ms: int, left_s: float, caplog: pytest.LogCaptureFixture
) -> None:
    async with adapter() as (zk, wire, _):
        for _ in range(3):
            caplog.clear()
            await wire.reconnect(granted_ms=granted_ms)
            assert zk.session_timeout_ms == granted_ms
            wire.cuts.clear()
            begun_s = now_s()
            beat = await wire.begin(zk.heartbeat())
            await asyncio.sleep(left_s - 0.1)
            assert not wire.cuts
            await asyncio.sleep(0.2)
            assert [cut - begun_s for cut in wire.cuts] == [pytest.approx(left_s, abs=0.05 * LOOKS)]
            [line] = caplog.messages
            assert f"sent no reply for {left_s:.1f} s: its connection is closed" in line
            assert "or healthy while the ensemble has no leader: query every server for its mode" in line
            wire.enter(KeeperState.CONNECTING)
            with pytest.raises(NotConnected):
                await beat


@in_exact_time
async def test_a_new_connection_is_not_left_for_the_silence_of_the_one_before() -> None:
    async with adapter() as (_, wire, _):
        for _ in range(2):
            wire.enter(KeeperState.CONNECTING)
            wire.up()
            assert not wire.transport.leave(6.0)
            await turns()
            assert not wire.cuts
        assert wire.transport.leave(6.0)


@in_exact_time
async def test_the_only_server_is_not_left() -> None:
    async with adapter("a:1") as (zk, wire, _):
        beat = await wire.begin(zk.heartbeat())
        await asyncio.sleep(60.0)
        assert not wire.cuts
        wire.reply()
        await beat
