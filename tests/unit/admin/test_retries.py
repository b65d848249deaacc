"""What is tried again outside the queue: failed three times, done, failed again, done; each pause in virtual time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from kio.schema.errors import ErrorCode
from msgspec.structs import replace

from admin.carrier import Carrier
from admin.cluster_view import ClusterView
from admin.ports import Call, Holder, Node, NotController
from brokers.client import BrokerCallFailed
from brokers.listener.entrance import Entrance
from brokers.outbound.delivery import ChannelSettings, Delivered, OnRequest, Shared
from brokers.outbound.link import Link
from brokers.wire.frames import ConnectionLost
from brokers.wire.messages.topics import CreateTopicsRequest
from brokers.wire.versions import Api, Ibp
from cli.endpoint_child import keep_endpoint
from controller.kafka.brokers.broker_settings import query_settings
from controller.kafka.path.gate import Gate
from controller.kafka.term.claim_monitor import ClaimMonitor
from controller.role.lease import Lease
from metadata_store.errors import ConnectFailed, NotConnected, OutcomeUnknown
from metadata_store.port import ConnectionState
from state_machines.model.cluster import Cluster
from state_machines.model.types import Broker, Endpoint
from state_machines.propagation.propagation import Propagation
from tests.kit.deadlines import in_exact_time
from tests.kit.wire import write_response

LISTENER = "INTERNAL"
BROKER = Broker(1, 100, (Endpoint(LISTENER, "broker1", 9093),))
ABOUT = 0.02


def now_s() -> float:
    return asyncio.get_running_loop().time()


def pauses(times: Sequence[float]) -> list[float]:
    """What lies between."""
    return [round(after - before, 2) for before, after in pairwise(times)]


# -- a broker


class Peer:
    """A transport to one broker; ``does``: what each attempt meets (refuses, hangs, cuts, mute, garbage, answers)."""

    def __init__(self) -> None:
        self.does: list[str] = []
        self.tried_s: list[float] = []
        self.closed = False

    async def connect(self, _host: str, _port: int, _on_lost: Callable[[], None]) -> Peer:
        if self.does[0] in ("refuses", "hangs"):
            self.tried_s.append(now_s())
            await self._meet(self.does.pop(0))
        self.closed = False
        return self

    async def exchange(self, parts: Sequence[bytes]) -> bytes:
        self.tried_s.append(now_s())
        await self._meet(what := self.does.pop(0))
        correlation = int.from_bytes(b"".join(parts)[8:12], "big")
        answer = write_response(Api.UPDATE_METADATA, 8, correlation, error_code=ErrorCode.none)
        return answer if what == "answers" else b"garbage"

    async def _meet(self, what: str) -> None:
        if what == "refuses":
            raise ConnectionRefusedError
        if what == "cuts":
            raise ConnectionLost("cut")
        if what in ("hangs", "mute"):
            await asyncio.sleep(3_600)

    def close(self) -> None:
        self.closed = True


def link(peer: Peer, on_request: OnRequest = lambda _delivered: None) -> tuple[Link, Callable[[int, int], list[bytes]]]:
    """A link with the default settings, and a request."""
    cluster = Cluster(1)
    chosen = ChannelSettings(controller_id=9, controller_epoch=1, ibp=Ibp.parse("3.9"), listeners=(LISTENER,))
    shared = Shared(Propagation(cluster), chosen, peer, lambda: True, lambda _: None, on_request)

    def request(correlation: int, broker_epoch: int) -> list[bytes]:
        return shared.requests.update_metadata(correlation, broker_epoch, b"\1", b"\1")

    return Link(BROKER, shared, lambda: None), request


@pytest.mark.parametrize(
    ("fault", "takes_s"), [("refuses", 0), ("hangs", 10), ("cuts", 0), ("mute", 30), ("garbage", 0)]
)
@in_exact_time
async def test_a_request_to_a_broker_is_repeated_with_growing_pauses_that_begin_anew(
    fault: str, takes_s: float, caplog: pytest.LogCaptureFixture
) -> None:
    """From 100 ms to 1 s; a connect may take 10 s, an answer 30 s."""
    caplog.set_level(logging.INFO, "regent.brokers")
    peer = Peer()
    sending, request = link(peer)
    for outage, fails in enumerate((3, 6, 1), 1):
        peer.tried_s.clear()
        peer.closed = fault in ("refuses", "hangs")
        peer.does[:] = [fault] * fails + ["answers"]
        await sending.deliver(Api.UPDATE_METADATA, 0, request)
        grown = [0.1, 0.2, 0.4, 0.8, 1.0, 1.0][:fails]
        assert pauses(peer.tried_s) == [pytest.approx(takes_s + pause_s, abs=ABOUT) for pause_s in grown]
        assert (sending.last_error, sending.connected) == (None, True)
        words = [record.levelname for record in caplog.records]
        lasted = sum(grown[:-1]) + takes_s * fails >= 1.0
        assert words == ["WARNING", "INFO"] * lasted, f"outage {outage}"
        caplog.clear()
        await asyncio.sleep(1.0)


@in_exact_time
async def test_each_request_is_reported_once_with_its_time_or_as_given_up() -> None:
    peer, ended = Peer(), list[Delivered]()
    sending, request = link(peer, ended.append)
    peer.does[:] = ["cuts", "answers"]
    await sending.deliver(Api.UPDATE_METADATA, 7, request)
    [acknowledged] = ended
    assert (acknowledged.acknowledged, acknowledged.partitions, acknowledged.broker_epoch) == (True, 7, 100)
    assert acknowledged.seconds == pytest.approx(0.1, abs=ABOUT), "from the first attempt on"
    peer.does[:] = ["cuts", "mute"]
    given_up = asyncio.ensure_future(sending.deliver(Api.STOP_REPLICA, 2, request))
    await asyncio.sleep(5.0)
    given_up.cancel()
    await asyncio.wait([given_up])
    assert (ended[1].api, ended[1].acknowledged, ended[1].why) == (Api.STOP_REPLICA, False, "STOP_REPLICA: cut")


@in_exact_time
async def test_a_connection_that_is_lost_while_nothing_is_sent_is_made_again_each_time() -> None:
    peer = Peer()
    sending, _ = link(peer)
    for fails in (3, 0, 2):
        peer.tried_s.clear()
        peer.does[:] = ["refuses"] * fails + ["answers"]
        begun_s = now_s()
        await sending.reopen()
        assert pauses([*peer.tried_s, now_s()]) == [0.1, 0.2, 0.4][:fails]
        assert peer.tried_s[:1] in ([], [pytest.approx(begun_s, abs=ABOUT)])
        peer.closed = True
        assert sending.lost
        await asyncio.sleep(5.0)


# -- the active daemon, as an admin endpoint reaches it


class Role:
    """A daemon in office as the endpoint sees it; ``number`` counts its lives."""

    number = 1

    def node(self) -> Node | None:
        return None

    def holder(self) -> Holder | None:
        return Holder(self.number, "nonce", "daemon", 9095, "cluster")

    def vacant(self) -> bool:
        return False

    async def changed(self) -> None:
        await asyncio.sleep(3_600)


def a_call(timeout_ms: int) -> Call:
    body = CreateTopicsRequest((), timeout_ms)
    return Call(Api.CREATE_TOPICS, 7, body, "User:alice", None, "10.0.0.7", b"frame")


@in_exact_time
async def test_a_call_is_carried_again_after_growing_pauses_which_begin_anew_with_another_daemon() -> None:
    peer, role = Peer(), Role()
    carrier = Carrier(role, b"secret", peer)
    for _ in range(2):
        peer.tried_s.clear()
        peer.does[:] = ["refuses"] * 100
        carrying = asyncio.ensure_future(carrier.carry(a_call(20_000)))
        await asyncio.sleep(8.0)
        role.number += 1
        with pytest.raises(NotController):
            await carrying
        grown = [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
        assert pauses(peer.tried_s)[: len(grown)] == grown
        again = pauses(peer.tried_s)[len(grown) :]
        assert again[:7] == [2.0, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0]
        assert peer.tried_s[-1] - peer.tried_s[0] == pytest.approx(20.0, abs=2.0)
        assert not carrier._idle


@pytest.mark.parametrize(("timeout_ms", "given_up_s"), [(0, 0.0), (1_500, 1.5), (29_900, 29.9), (30_100, 30.0)])
@in_exact_time
async def test_a_call_is_carried_again_for_its_own_time_out_and_half_a_minute_at_most(
    timeout_ms: int, given_up_s: float
) -> None:
    peer = Peer()
    peer.does[:] = ["refuses"] * 100
    begun_s = now_s()
    with pytest.raises(NotController):
        await Carrier(Role(), b"secret", peer).carry(a_call(timeout_ms))
    assert now_s() - begun_s == pytest.approx(given_up_s, abs=ABOUT)


# -- the cluster, as an admin endpoint follows it


@in_exact_time
async def test_the_cluster_is_followed_with_one_session_after_the_other() -> None:
    begun: list[float] = []
    closed = 0

    class Session:
        async def connect(self, timeout_s: float) -> None:
            begun.append(now_s())
            if len(begun) not in (4, 6):
                raise ConnectFailed("nobody there")

        async def close(self) -> None:
            nonlocal closed
            closed += 1

    async def run(_: ClusterView, _zk: object) -> None:
        await asyncio.sleep(10.0)
        raise NotConnected

    view = ClusterView.__new__(ClusterView)
    with mock.patch.object(ClusterView, "run", run):
        following = asyncio.ensure_future(view.follow(Session, 1.0))  # type: ignore[arg-type]
        await asyncio.sleep(25.5)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    assert pauses(begun) == [1.0, 1.0, 1.0, 11.0, 1.0]
    assert closed == len(begun)


# -- connections that are let in


@in_exact_time
async def test_connections_are_accepted_again_after_each_failure() -> None:
    tried: list[float] = []
    fails: list[Exception | None] = [OSError(24, "Too many open files")] * 3 + [None, ValueError("a bug"), None, None]

    async def let_in(_: Entrance, __: object) -> None:
        tried.append(now_s())
        error = fails.pop(0)
        if error is not None:
            raise error
        await asyncio.sleep(5.0)

    entrance = Entrance.__new__(Entrance)
    with mock.patch.object(Entrance, "_accept_one", let_in):
        letting = asyncio.ensure_future(entrance._accept_all(mock.Mock()))
        await asyncio.sleep(12.0)
        letting.cancel()
    assert pauses(tried) == [0.2, 0.2, 0.2, 5.0, 0.2, 5.0]


# -- heartbeats


@in_exact_time
async def test_heartbeats_follow_each_other_by_how_the_last_one_ended() -> None:
    """Six in a session of 12 s; one that was not sent is repeated after 0.2 s, one without an answer after 12 s."""
    meets = ["refused"] * 3 + ["answered", "refused", "answered", "silent", "silent", "answered", "refused", "answered"]
    expected = [0.2, 0.2, 0.2, 2.0, 0.2, 2.0, 14.0, 14.0, 2.0, 0.2]
    lease, sent = Lease(12.0, now_s), []

    async def heartbeat() -> None:
        sent.append(now_s())
        meets.append("answered")
        what = meets.pop(0)
        if what == "refused":
            raise NotConnected
        if what == "silent":
            await asyncio.sleep(3_600)

    keeping = asyncio.ensure_future(lease.keep(heartbeat, NotConnected))
    await asyncio.sleep(sum(expected) + 1.0)
    keeping.cancel()
    assert pauses(sent) == expected
    assert lease.valid()


# -- the claim


class Watched:
    """A term's claim: what each comparison meets, and what became of the term."""

    def __init__(self, session_s: float = 10.0) -> None:
        self.compares: list[bool | Exception] = []
        self.ended: list[tuple[float, str]] = []
        self.backs = 0
        self.stood_still: list[float] = []
        self.state = ConnectionState.CONNECTED
        self.watches = 0
        self.lease = Lease(session_s, now_s)
        self.lease.answered(now_s())
        self.gate = Gate(5, 1, self.lease, lambda: self.state is ConnectionState.CONNECTED)
        claim = SimpleNamespace(epoch=5, zxid=1)
        calls: dict[str, Any] = {"end": self._end, "stood_still": self._stand_still, "back": self._back}
        self.monitor = ClaimMonitor(self, claim, self.gate, **calls)  # type: ignore[arg-type]

    @property
    def zk(self) -> Any:
        """The session."""

        async def watch(**_: object) -> None:
            self.watches += 1

        return SimpleNamespace(state=self.state, peer="zk1:2181", last_zxid=1, watch=watch)

    async def is_ours(self, _claim: object) -> bool:
        await asyncio.sleep(0)
        found = self.compares.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    def _end(self, why: str) -> None:
        self.ended.append((now_s(), why))

    def _stand_still(self) -> None:
        self.stood_still.append(now_s())

    def _back(self, _stood_still: bool) -> None:
        self.backs += 1

    def down(self) -> None:
        self.state = ConnectionState.SUSPENDED
        self.monitor.suspended()

    async def up(self, *compares: bool | Exception) -> None:
        self.state = ConnectionState.CONNECTED
        self.compares[:] = compares
        self.monitor.reconnected()
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("compares", [(True,), (NotConnected(), True), (OutcomeUnknown(), NotConnected(), True)])
@in_exact_time
async def test_each_blip_within_the_lease_is_compared_and_leaves_nothing_behind(
    compares: tuple[bool | Exception, ...],
) -> None:
    w = Watched()
    for blip in range(1, 4):
        w.down()
        assert not w.gate.ready.is_set()
        assert not w.gate.connected()
        await asyncio.sleep(7.8)
        assert not w.stood_still
        await w.up(*compares)
        assert (w.backs, w.watches, w.compares) == (blip, blip, [])
        assert w.gate.ready.is_set()
        assert w.gate.connected()
        w.lease.answered(now_s())
        await asyncio.sleep(1.0)
        w.lease.answered(now_s())
    ends_s = now_s() + w.lease.remaining_s()
    await asyncio.sleep(60.0)
    assert w.stood_still == [pytest.approx(ends_s, abs=ABOUT)], "the timer of no blip is left"
    assert not w.ended


@pytest.mark.parametrize("blips", [0, 1, 2])
@in_exact_time
async def test_the_lease_is_watched_at_each_blip_and_a_renewed_one_holds_longer(blips: int) -> None:
    """8 s of a session of 10 s; an answer that came meanwhile counts from its own sending."""
    w = Watched()
    for _ in range(blips):
        w.down()
        await asyncio.sleep(1.0)
        await w.up(True)
        w.lease.answered(now_s())
    renewed_s = now_s()
    w.lease.answered(renewed_s)
    w.down()
    await asyncio.sleep(7.9)
    w.lease.answered(renewed_s + 4.0)
    await asyncio.sleep(4.0)
    assert not w.monitor.stands_still
    await asyncio.sleep(60.0)
    assert w.stood_still == [pytest.approx(renewed_s + 12.0, abs=ABOUT)]
    assert (w.monitor.stands_still, w.ended) == (True, [])
    w.lease.answered(now_s())
    await w.up(True)
    assert (w.monitor.stands_still, w.gate.ready.is_set(), w.backs) == (False, True, blips + 1)


@pytest.mark.parametrize("blips", [0, 1, 2])
@in_exact_time
async def test_a_foreign_claim_is_found_at_each_blip(blips: int) -> None:
    w = Watched()
    for _ in range(blips):
        w.down()
        await w.up(True)
    w.down()
    await w.up(False)
    [(_, why)] = w.ended
    assert why.startswith("another controller was elected")


@in_exact_time
async def test_each_doubt_is_compared_also_one_that_comes_during_a_comparison() -> None:
    w = Watched()
    for cycle in range(1, 4):
        w.compares[:] = [True, True]
        w.monitor.doubt()
        await asyncio.sleep(0)
        w.monitor.doubt()
        await asyncio.sleep(0.1)
        assert (w.watches, w.compares) == (2 * cycle, [])
    assert w.backs == 0, "nothing waited"


# -- settings of brokers


@pytest.mark.parametrize(("fails", "asked", "complains"), [(3, 4, False), (29, 30, False), (30, 30, True)])
@in_exact_time
async def test_brokers_are_queried_for_their_settings_every_second_thirty_times_and_anew_when_they_register(
    fails: int, asked: int, complains: bool, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster(1)
    cluster.observe_brokers({1: BROKER})
    times: list[float] = []
    heard: list[int] = []

    async def query_each(_dial: Any, waiting: Any, query: Any, _within_s: float) -> Any:
        times.append(now_s())
        if len(times) <= fails:
            return {broker: BrokerCallFailed("not yet") for broker in waiting}
        queries = SimpleNamespace(static_configs=mock.AsyncMock(return_value={}))
        return {broker: await query(queries, known) for broker, known in waiting.items()}

    for epoch in (100, 200, 300):
        for record in (caplog, times, heard):
            record.clear()
        cluster.observe_brokers({1: replace(BROKER, epoch=epoch)})
        with mock.patch("controller.kafka.brokers.broker_settings.query_each", query_each):
            await query_settings(mock.Mock(), cluster, [1], lambda broker, _: heard.append(broker.epoch))
        assert len(times) == asked
        assert set(pauses(times)) == {1.0}
        assert heard == ([] if complains else [epoch])
        assert bool(caplog.records) == complains


# -- the admin endpoint beside the daemon


@in_exact_time
async def test_an_endpoint_that_ends_is_started_again_after_pauses_that_begin_anew_after_a_steady_life() -> None:
    lives = [0.0] * 6 + [61.0, 0.0, 59.0, 0.0, 61.0]
    ends: list[float] = []
    starts: list[float] = []

    async def one_life(*_: object) -> int:
        starts.append(now_s())
        await asyncio.sleep(lives.pop(0) if lives else 3_600)
        ends.append(now_s())
        return 1

    with (
        mock.patch("cli.endpoint_child._one_life", one_life),
        mock.patch("cli.endpoint_child.time", SimpleNamespace(monotonic=now_s)),
    ):
        keeping = asyncio.ensure_future(keep_endpoint(None))
        await asyncio.sleep(400.0)
        keeping.cancel()
    between = [round(start - end, 1) for end, start in zip(ends, starts[1:], strict=False)]
    assert between == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 1.0, 2.0, 4.0, 8.0, 1.0]
