"""Measures bounds in their real units: settings reach their places as seconds, and each wait ends at its value."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from unittest import mock

import pytest

from admin.carrier import Carrier
from admin.endpoint import limits as endpoint_limits
from admin.ports import EndpointLimits, NotController
from admin.streams import Stream
from brokers.client import BrokerCallFailed
from brokers.listener.connection_slots import ConnectionSlots
from brokers.listener.controller_listener import ControllerListener
from brokers.listener.inbound import InboundConnection, ListenerLimits
from brokers.queries import QUERIES_AT_ONCE_MAX, dial_for, query_each
from brokers.rate_limited_log import RateLimitedLog
from brokers.wire.calls import AllocateProducerIdsCall
from brokers.wire.envelope import OVERHEAD_BYTES_MAX
from brokers.wire.errors import Error
from brokers.wire.frames import FRAMES_MAX, FrameBuffer
from brokers.wire.primitives import BadMessage
from brokers.wire.versions import Ibp
from configs.settings import Settings
from controller.daemon.daemon import Daemon
from controller.daemon.state import listener_limits
from controller.journal.journal import Journal
from controller.kafka.metrics.values import Counters
from controller.kafka.term.setup import channel_settings, parts_of
from controller.process.zookeeper import connection
from controller.role.holder import until
from metadata_store.errors import NotConnected
from metadata_store.kazoo_adapter.servers import server_limits, server_version
from metadata_store.kazoo_adapter.tls import ZooKeeperTls, why_not
from state_machines.model.types import Broker, Endpoint
from tests.kit.deadlines import in_exact_time
from tests.kit.kafka.world import world
from tests.unit.admin.test_retries import Peer, Role, a_call

SLACK_S: Final = 0.05
SETTINGS: Final = Settings.model_validate(
    {
        "zookeeper": {"connect": "zk1:2181", "session_timeout_ms": 20_011, "connect_timeout_ms": 7_013},
        "controller": {
            "drain_timeout_ms": 4_007,
            "handback_timeout_ms": 9_011,
            "loop_stall_ms_max": 2_503,
            "leader_imbalance_check_interval_seconds": 307,
            "leader_imbalance_per_broker_percentage": 11,
            "leader_rebalance_moves_per_minute": 10_007,
        },
        "listener": {
            "advertised_host": "regent1",
            "frame_bytes_max": 16_777_259,
            "frame_timeout_ms": 10_007,
            "idle_timeout_ms": 600_011,
            "connections_max": 2_003,
            "connections_per_address_max": 503,
        },
        "admin": {
            "frame_bytes_max": 16_777_213,
            "buffered_bytes_max": 134_217_757,
            "frame_timeout_ms": 10_009,
            "idle_timeout_ms": 600_043,
            "connections_max": 1_009,
            "connections_per_address_max": 509,
        },
        "brokers": {
            "connect_timeout_ms": 3_001,
            "request_timeout_ms": 29_009,
            "retry_backoff_ms": 101,
            "retry_backoff_ms_max": 1_009,
            "seal_interval_ms": 23,
            "snapshot_turn_partitions": 20_011,
        },
        "shadow": {"poll_s": 5.5},
        "journal": {
            "bytes_max": 4_294_967_311,
            "age_days_max": 31,
            "segment_bytes": 67_108_879,
            "segment_s_max": 601,
            "queue_rows_max": 200_003,
        },
    }
)


def now_s() -> float:
    return asyncio.get_running_loop().time()


async def takes(work: Awaitable[Any]) -> float:
    """Measures the seconds until a work ends, by a result or an error."""
    begun_s = now_s()
    await asyncio.gather(work, return_exceptions=True)
    return now_s() - begun_s


# -- from the settings to their places


def picked(found: object, *names: str) -> dict[str, Any]:
    return {name: getattr(found, name) for name in names}


SAME: Final = ("frame_timeout_ms", "idle_timeout_ms", "connections_max", "connections_per_address_max")
CHANNEL: Final = (
    "connect_timeout_ms",
    "request_timeout_ms",
    "retry_backoff_ms",
    "retry_backoff_ms_max",
    "seal_interval_ms",
    "snapshot_turn_partitions",
)


def test_both_listeners_and_channels_have_the_limits_of_their_sections() -> None:
    admin, listener, brokers = SETTINGS.admin, SETTINGS.listener, SETTINGS.brokers
    found = listener_limits(SETTINGS)
    assert picked(found, *SAME) == picked(listener, *SAME)
    assert found.frame_bytes_max == admin.frame_bytes_max + OVERHEAD_BYTES_MAX, "the larger one"
    wide = SETTINGS.model_copy(update={"listener": listener.model_copy(update={"frame_bytes_max": 90_000_000})})
    assert listener_limits(wide).frame_bytes_max == 90_000_000
    names = (*SAME, "frame_bytes_max", "buffered_bytes_max")
    assert picked(endpoint_limits(SETTINGS), *names) == picked(admin, *names)
    assert endpoint_limits(SETTINGS).connect_timeout_ms == brokers.connect_timeout_ms
    found_channel = channel_settings(SETTINGS, 1, Ibp.parse("3.9"), ("regent1", 9095))
    assert picked(found_channel, *CHANNEL) == picked(brokers, *CHANNEL)


async def test_times_and_sizes_of_the_rest_are_in_their_units(tmp_path: Path) -> None:
    parts = parts_of(mock.Mock(), SETTINGS.controller, None, mock.Mock())
    assert parts.balance._budget.left(0.0) == 10_007
    assert connection(SETTINGS).session_timeout_ms == 20_011
    journal = Journal(tmp_path, SETTINGS.journal, Counters())
    bounds = journal._segments._bounds
    assert tuple(bounds) == (4_294_967_311, 31 * 86_400.0, 67_108_879, 601)
    assert journal._rows_max == 200_003
    with mock.patch("controller.daemon.daemon.Shadow") as shadow:
        Daemon(SETTINGS, mock.Mock(), shadow=True)
    assert shadow.call_args.kwargs["poll_s"] == 5.5


@pytest.mark.parametrize(("setting_ms", "seconds"), [(90_000, 90.0), (500, 1.0), (1_001, 1.001), (0, 0.0)])
@in_exact_time
async def test_expired_tokens_are_deleted_at_most_once_a_second(setting_ms: int, seconds: float) -> None:
    async with world(delegation_token_expiry_check_interval_ms=setting_ms) as w:
        await w.begin_term()
        assert w.term.controller.adoption.values.token_check_s == seconds


# -- the controller listener


class Wire:
    """Stands for the transport of an accepted connection; records its end."""

    def __init__(self) -> None:
        self.ends_s: list[float] = []
        self._connection: InboundConnection | None = None

    def accept(self, found: InboundConnection) -> None:
        self._connection = found
        found.connection_made(self)  # type: ignore[arg-type]

    def get_extra_info(self, _name: str) -> None:
        return None

    def abort(self) -> None:
        if not self.ends_s:
            self.ends_s.append(now_s())
            assert self._connection is not None
            self._connection.connection_lost(None)

    def is_closing(self) -> bool:
        return bool(self.ends_s)

    def write(self, _data: bytes) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class Listener:
    """Stands for a listener with the default limits whose calls take ``call_s``."""

    def __init__(self, call_s: float = 0.0) -> None:
        self.limits = ListenerLimits()
        self.limited_log = RateLimitedLog()
        self.slots = ConnectionSlots(10, 10, 1_000_000_000, lambda _: False)
        self._call_s = call_s

    async def respond(self, frame: bytes, connection: InboundConnection | None = None) -> bytes:
        await asyncio.sleep(self._call_s)
        return b"answer"

    def expects(self, head: bytes, connection: InboundConnection) -> bool:
        return True

    def opened(self, connection: InboundConnection) -> None: ...

    def closed(self, connection: InboundConnection) -> None: ...

    def connect(self, *, proven: bool) -> tuple[InboundConnection, Wire]:
        slot = self.slots.enter("10.0.0.7", lambda: None)
        assert slot is not None
        wire, found = Wire(), InboundConnection(self, slot)
        if proven:
            slot.prove()
        wire.accept(found)
        return found, wire


FRAME: Final = b"\0\0\0\3abc"
Play = Callable[[InboundConnection], None]


def stubborn(found: InboundConnection) -> None:
    """Sends a request and reads no response."""
    found.pause_writing()
    found.data_received(FRAME)


@pytest.mark.parametrize(
    ("proven", "call_s", "play", "ends_s"),
    [
        (False, 0.0, lambda _: None, 10.0),
        (False, 0.0, lambda found: found.data_received(FRAME), 10.0),
        (False, 50.0, lambda found: found.data_received(FRAME), 35.0),
        (True, 0.0, lambda _: None, 600.0),
        (True, 0.0, lambda found: found.data_received(FRAME[:1]), 10.0),
        (True, 0.0, lambda found: found.data_received(FRAME + FRAME[:6]), 10.0),
        (True, 0.0, stubborn, 10.0),
        (True, 50.0, lambda found: found.data_received(FRAME), 650.0),
    ],
)
@in_exact_time
async def test_a_connection_to_the_controller_listener_ends_at_its_bound(
    proven: bool, call_s: float, play: Play, ends_s: float
) -> None:
    """10 s for a request, a response and the first call, 25 s more for a call in progress, 600 s idle."""
    found, wire = Listener(call_s).connect(proven=proven)
    begun_s = now_s()
    play(found)
    await asyncio.sleep(ends_s - SLACK_S)
    assert wire.ends_s == []
    await asyncio.sleep(2 * SLACK_S)
    assert wire.ends_s == [pytest.approx(begun_s + ends_s, abs=SLACK_S)]


@in_exact_time
async def test_bounds_of_a_connection_begin_anew_with_each_request() -> None:
    found, wire = Listener().connect(proven=True)
    for _ in range(3):
        await asyncio.sleep(599.0)
        found.data_received(FRAME[:4])
        await asyncio.sleep(9.0)
        found.data_received(FRAME[4:])
        await asyncio.sleep(0.1)
    assert wire.ends_s == []
    last_s = now_s() - 0.1
    await asyncio.sleep(601.0)
    assert wire.ends_s == [pytest.approx(last_s + 600.0, abs=SLACK_S)]


@pytest.mark.parametrize(("call_s", "error"), [(24.9, Error.NONE), (25.1, Error.REQUEST_TIMED_OUT)])
@in_exact_time
async def test_a_call_of_a_broker_has_a_response_within_25_seconds(call_s: float, error: Error) -> None:
    class Handlers:
        async def allocate_producer_ids(self, call: AllocateProducerIdsCall) -> Any:
            await asyncio.sleep(call_s)
            return SimpleNamespace(error=Error.NONE)

    listener = ControllerListener("127.0.0.1", 0)
    listener.serve(Handlers())  # type: ignore[arg-type]
    for _ in range(3):
        begun_s = now_s()
        found: Any = await listener._reply(AllocateProducerIdsCall(0, 1, 1))
        assert found.error == error
        assert now_s() - begun_s == pytest.approx(min(call_s, 25.0), abs=SLACK_S)


@pytest.mark.parametrize("limit", [65_536, 16_777_216, 104_857_600])
def test_a_frame_of_the_limit_is_read_and_a_longer_one_refused(limit: int) -> None:
    frames = FrameBuffer(limit)
    assert frames.feed(limit.to_bytes(4, "big")) == []
    assert frames.announced == limit
    for wrong in (limit + 1, -1):
        with pytest.raises(BadMessage, match=f"a frame of {wrong} bytes where at most {limit}"):
            FrameBuffer(limit).feed(wrong.to_bytes(4, "big", signed=True))


def test_a_hundred_frames_may_arrive_at_once() -> None:
    assert FRAMES_MAX == 100
    assert len(FrameBuffer(10).feed(FRAME * 100)) == 100
    with pytest.raises(BadMessage, match="more than 100 frames"):
        FrameBuffer(10).feed(FRAME * 101)


# -- the admin endpoint


class Writer:
    """Stands for a peer that reads nothing."""

    def __init__(self) -> None:
        self.transport = mock.Mock()

    def get_extra_info(self, _name: str) -> None: ...

    def writelines(self, _parts: object) -> None: ...

    def close(self) -> None: ...

    async def drain(self) -> None:
        await asyncio.sleep(3_600)


@pytest.mark.parametrize(
    ("wait", "ends_s"),
    [
        (lambda stream: stream.wait(4, 600_000), 600.0),
        (lambda stream: stream.exactly(4), 10.0),
        (lambda stream: stream.some(4), 10.0),
        (lambda stream: stream.send(b"x"), 10.0),
    ],
)
@in_exact_time
async def test_waits_for_a_client_of_the_endpoint_end_at_the_defaults(
    wait: Callable[[Stream], Coroutine[Any, Any, Any]], ends_s: float
) -> None:
    assert (EndpointLimits().frame_timeout_ms, EndpointLimits().idle_timeout_ms) == (10_000, 600_000)
    stream = Stream(asyncio.StreamReader(), Writer(), EndpointLimits().frame_timeout_ms)  # type: ignore[arg-type]
    for _ in range(3):
        begun_s = now_s()
        with pytest.raises(TimeoutError):
            await wait(stream)
        assert now_s() - begun_s == pytest.approx(ends_s, abs=SLACK_S)


@in_exact_time
async def test_a_client_that_reads_nothing_is_disconnected_ten_seconds_after_the_close() -> None:
    writer = Writer()
    stream = Stream(asyncio.StreamReader(), writer, EndpointLimits().frame_timeout_ms)  # type: ignore[arg-type]
    stream.close()
    await asyncio.sleep(10.0 - SLACK_S)
    assert not writer.transport.abort.called
    await asyncio.sleep(2 * SLACK_S)
    assert writer.transport.abort.call_count == 1


@pytest.mark.parametrize(("timeout_ms", "ends_s"), [(0, 5.0), (10_000, 15.0), (299_000, 304.0), (600_000, 305.0)])
@in_exact_time
async def test_the_wait_for_a_response_is_five_seconds_longer_than_the_time_out_of_the_call(
    timeout_ms: int, ends_s: float
) -> None:
    role = Role()
    line = mock.Mock(holder=role.holder())
    line.exchange = hangs
    with mock.patch("admin.carrier._Line.open", mock.AsyncMock(return_value=line)):
        carrying = Carrier(role, b"secret", Peer()).carry(a_call(timeout_ms))
        begun_s = now_s()
        with pytest.raises(NotController):
            await carrying
    assert now_s() - begun_s == pytest.approx(ends_s, abs=SLACK_S)


async def hangs(*_: object, **__: object) -> Any:
    await asyncio.sleep(3_600)


@in_exact_time
async def test_a_relayed_call_may_take_40_seconds_and_its_connection_5() -> None:
    role = Role()
    line = mock.Mock(holder=role.holder())
    line.exchange = hangs
    carrier = Carrier(role, b"secret", Peer())
    with mock.patch("admin.carrier._Line.open", mock.AsyncMock(return_value=line)):
        assert await takes(carrier.relay(b"frame", "User:broker", "10.0.0.7")) == pytest.approx(40.0, abs=SLACK_S)
    for does in ("hangs", "mute"):
        peer = Peer()
        peer.does[:] = [does]
        taken_s = await takes(Carrier(role, b"secret", peer).relay(b"frame", "User:broker", "10.0.0.7"))
        assert taken_s == pytest.approx(5.0, abs=SLACK_S)


# -- questions to brokers and servers


@pytest.mark.parametrize(("request_timeout_ms", "ends_s"), [(30_000, 10.0), (9_500, 9.5)])
@pytest.mark.parametrize("does", ["hangs", "mute"])
@in_exact_time
async def test_a_broker_is_queried_for_ten_seconds_or_the_shorter_time_of_the_settings(
    does: str, request_timeout_ms: int, ends_s: float
) -> None:
    brokers = SETTINGS.brokers.model_copy(update={"request_timeout_ms": request_timeout_ms})
    peer = Peer()
    peer.does[:] = [does]
    with (
        mock.patch("brokers.queries.access_of", return_value=SimpleNamespace(transport=peer)),
        mock.patch("brokers.queries.asyncio.to_thread", mock.AsyncMock()),
        mock.patch("brokers.client.kio_messages.encode_request", return_value=b""),
    ):
        dial = dial_for(SETTINGS.model_copy(update={"brokers": brokers}))
        begun_s = now_s()
        with pytest.raises(BrokerCallFailed, match=f"within {ends_s:g} s"):
            async with dial(Broker(1, 1, (Endpoint("INTERNAL", "broker1", 9093),))):
                pass
    assert now_s() - begun_s == pytest.approx(ends_s, abs=SLACK_S)


@in_exact_time
async def test_sixteen_brokers_are_queried_at_once() -> None:
    assert QUERIES_AT_ONCE_MAX == 16
    brokers = {number: Broker(number, 1, ()) for number in range(33)}
    most = under_way = 0

    async def query(_: Any, __: Broker) -> None:
        nonlocal most, under_way
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(1.0)
        under_way -= 1

    dial = mock.MagicMock()
    assert await takes(query_each(dial, brokers, query, 5.0)) == pytest.approx(3.0, abs=SLACK_S)
    assert most == 16


@pytest.mark.parametrize(("answers_s", "found"), [(1.9, (3, 8)), (2.1, None)])
@in_exact_time
async def test_the_query_of_a_servers_release_may_take_two_seconds(
    answers_s: float, found: tuple[int, int] | None
) -> None:
    reader, writer = mock.Mock(), mock.Mock()

    async def readline() -> bytes:
        await asyncio.sleep(answers_s)
        return b"Zookeeper version: 3.8.4-abc, built on 2024\n"

    reader.readline = readline
    with mock.patch("metadata_store.kazoo_adapter.servers.asyncio.open_connection") as opened:
        opened.return_value = reader, writer
        begun_s = now_s()
        assert await server_version("zk1", 2181) == found
        assert now_s() - begun_s == pytest.approx(min(answers_s, 2.0), abs=SLACK_S)
        assert await takes(server_limits("zk1", 2181)) == pytest.approx(2.0, abs=SLACK_S)


@in_exact_time
async def test_each_server_is_probed_for_tls_for_two_seconds() -> None:
    with mock.patch("metadata_store.kazoo_adapter.tls.asyncio.open_connection", hangs):
        assert await takes(why_not("a:1,b:2,c:3", ZooKeeperTls())) == pytest.approx(6.0, abs=0.5)


@in_exact_time
async def test_the_holder_of_the_role_is_read_every_200_ms_until_the_deadline() -> None:
    look = mock.AsyncMock(side_effect=NotConnected)
    with mock.patch("controller.role.holder.look", look):
        taken_s = await takes(until(mock.Mock(), mock.Mock(), lambda _: False, 9.0))
    assert taken_s == pytest.approx(9.0, abs=0.25)
    assert look.await_count == pytest.approx(46, abs=1)
    with mock.patch("controller.role.holder.look", hangs):
        assert await takes(until(mock.Mock(), mock.Mock(), lambda _: False, 7.0)) == pytest.approx(7.2, abs=0.3)


# -- lines of the log


def test_a_warning_about_a_peer_is_repeated_after_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    clock = [0.0]
    quiet = RateLimitedLog(lambda: clock[0])
    for cycle in range(1, 4):
        for later_s in (0.0, 30.0, 29.9):
            clock[0] += later_s
            quiet.warn("10.0.0.7", "slow", "it is slow")
        assert len(caplog.records) == cycle
        clock[0] += 0.1
    assert caplog.messages[1:] == ["it is slow (2 more of these in the last minute or longer)"] * 2


def test_two_hundred_lines_about_peers_are_written_in_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    clock = [0.0]
    quiet = RateLimitedLog(lambda: clock[0])
    for cycle in range(3):
        caplog.clear()
        for peer in range(201):
            quiet.warn(f"{cycle}.{peer}", "slow", "it is slow")
        assert len([text for text in caplog.messages if text == "it is slow"]) == 200
        assert ("1 warnings about other peers were suppressed" in caplog.text) == (cycle > 0)
        clock[0] += 60.0
