"""One channel: order within a batch, one request in flight, endless retry, the gate, responses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import uvloop
from kio.schema.errors import ErrorCode

from brokers.outbound import channel
from brokers.outbound.delivery import BrokerResponse, ChannelFailed, Shared
from brokers.transport import Connection
from brokers.wire.versions import Api, Ibp
from state_machines.model.decision import ReplicaMove
from state_machines.model.types import Broker, Endpoint, ReplicaState
from tests.core.channel_world import CONTROLLER, OWN, knows_the_model, settled, world
from tests.core.fake_broker import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA
from tests.core.wire_kit import part, to_uuid
from tests.polling import eventually


@pytest.mark.seed("S4-47", "S4-76")
async def test_first_contact_is_the_live_list_then_leadership_then_metadata() -> None:
    async with world(1, 2) as w:
        w.add_topic("t", [(1, 2), (2, 1), (2,)])
        w.channels.snapshot()
        await settled(w)
        assert w.brokers[1].apis() == "ULu"
        assert [heard.correlation for heard in w.brokers[1].heard] == [1, 2, 3]
        for broker in w.brokers.values():
            knows_the_model(w, broker)
        leaders = w.brokers[1].of(LEADER_AND_ISR)[0]
        assert leaders.partitions() == [("t", 0), ("t", 1)]
        assert (leaders.version, leaders.entity.broker_epoch) == (7, 101)
        assert (leaders.entity.controller_id, leaders.entity.controller_epoch) == (CONTROLLER, 7)


@pytest.mark.seed("S4-76")
async def test_the_controller_lists_itself_with_its_own_listener_and_is_never_told_anything() -> None:
    async with world(1) as w:
        w.add_topic("t", [(1, CONTROLLER)])
        w.channels.snapshot()
        await settled(w)
        live = w.brokers[1].of(UPDATE_METADATA)[0].entity.live_brokers
        (own,) = [b for b in live if b.id_ == CONTROLLER]
        assert [(e.listener, e.host, e.port) for e in own.endpoints] == [(OWN.listener, OWN.host, OWN.port)]
        assert {e.listener for b in live if b.id_ == 1 for e in b.endpoints} == {"CLIENT", "INTERNAL"}
        assert w.channels.lag().keys() == {1}


async def test_without_own_endpoints_the_controller_is_not_listed() -> None:
    async with world(1, own_endpoints=()) as w:
        await settled(w)
        assert [b.id_ for b in w.brokers[1].of(UPDATE_METADATA)[0].entity.live_brokers] == [1]


@pytest.mark.parametrize(
    ("racks", "chosen", "own"),
    [({}, "r9", None), ({2: "r2"}, "r9", "r9"), ({1: "r1", 2: "r2", 3: "r2"}, None, "r2")],
)
async def test_the_controller_has_a_rack_as_soon_as_a_broker_has_one(
    racks: dict[int, str], chosen: str | None, own: str | None
) -> None:
    async with world(1, 2, 3, racks=racks, rack=chosen) as w:
        await settled(w)
        live = w.brokers[1].of(UPDATE_METADATA)[-1].entity.live_brokers
        assert {b.id_: b.rack for b in live} == {1: None, 2: None, 3: None} | racks | {CONTROLLER: own}


@pytest.mark.seed("S4-22", "S4-23")
async def test_an_election_goes_to_its_replicas_and_its_metadata_to_everybody() -> None:
    async with world(1, 2, 3) as w:
        rows = w.add_topic("t", [(1, 2), (3,)])
        w.channels.snapshot()
        await settled(w)
        w.elect(rows[0], leader=2)
        await settled(w)
        told = [b.apis().removeprefix("ULu") for b in w.brokers.values()]
        assert told in (["Lu", "Lu", "u"], ["uL", "Lu", "u"])
        entry = w.brokers[1].of(LEADER_AND_ISR)[-1].entity.topic_states[0].partition_states[0]
        assert (entry.leader, entry.leader_epoch, entry.is_new) == (2, 4, False)


async def test_followers_are_told_after_their_leader_and_nothing_else_waits_for_it() -> None:
    async with world(1, 2) as w:
        rows = w.add_topic("t", [(1, 2), (1,)])
        await settled(w)
        w.brokers[2].hold()
        w.elect(rows[0], leader=2)
        w.elect(rows[1])
        await eventually(lambda: w.brokers[2].apis() == "UL" and w.brokers[1].apis() == "ULu")
        assert w.brokers[1].of(LEADER_AND_ISR)[0].partitions() == [("t", 1)]
        w.brokers[2].let_go.set()
        await settled(w)
        assert w.brokers[1].apis() == "ULu" + "L"
        assert w.brokers[1].of(LEADER_AND_ISR)[1].partitions() == [("t", 0)]


async def test_a_leader_that_does_not_answer_holds_its_followers_up_for_a_bounded_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(channel, "LEADER_FIRST_S_MAX", 0.05)
    async with world(1, 2) as w:
        rows = w.add_topic("t", [(1, 2)])
        await settled(w)
        w.brokers[2].hold()
        w.elect(rows[0], leader=2)
        await eventually(lambda: "L" in w.brokers[1].apis())
        assert await w.channels.leaders_acknowledged(rows, 0.01) == frozenset(rows)
        w.brokers[2].let_go.set()
        assert await w.channels.leaders_acknowledged(rows, 10) == frozenset()
        await settled(w)


async def test_within_a_seal_live_list_leadership_metadata_and_stops_keep_their_order() -> None:
    async with world(1, 2) as w:
        rows = w.add_topic("t", [(1, 2), (2, 1)])
        w.channels.snapshot()
        await settled(w)
        w.brokers[1].hold()
        w.channels.metadata_changed([rows[0]])
        await eventually(lambda: w.brokers[1].apis() == "ULuu")
        w.elect(rows[0])
        w.channels.propagate((), [ReplicaMove(rows[1], 1, ReplicaState.OFFLINE, "x", stop=True)])
        w.channels.live_list_changed()
        w.brokers[1].let_go.set()
        await settled(w)
        assert w.brokers[1].apis() == "ULuu" + "ULuS"
        assert w.brokers[1].in_flight_max == 1


async def test_what_is_told_during_a_seal_waits_for_the_next_one_in_its_order() -> None:
    async with world(1, 2) as w:
        rows = w.add_topic("t", [(1, 2), (1, 2), (2, 1)])
        w.channels.snapshot()
        await settled(w)
        w.brokers[1].hold()
        w.elect(rows[0])
        await eventually(lambda: w.brokers[1].apis() == "ULuL")
        w.elect(rows[1])
        w.channels.propagate((), [ReplicaMove(rows[2], 1, ReplicaState.OFFLINE, "x", stop=True)])
        w.brokers[1].let_go.set()
        await settled(w)
        assert w.brokers[1].apis() == "ULu" + "Lu" + "LuS"


async def test_a_request_holds_a_bounded_number_of_partitions_and_the_rest_follows_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(channel, "REQUEST_ROWS_MAX", 2)
    clock = stopped_clock(monkeypatch)
    async with world(1) as w:
        rows = w.add_topic("t", [(1,)] * 5)
        await settled(w)
        clock[0] += 10
        w.elect(*rows)
        w.channels.propagate((), [ReplicaMove(rows[0], 1, ReplicaState.OFFLINE, "x", stop=True)])
        await settled(w)
        assert w.brokers[1].apis() == "U" + "LLuS"
        assert [len(heard.partitions()) for heard in w.brokers[1].of(LEADER_AND_ISR)] == [2, 2]


def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The channels' clock, which moves only by hand."""
    clock = [100.0]
    monkeypatch.setattr(Shared, "now_s", staticmethod(lambda: clock[0]))
    return clock


async def test_without_leadership_the_metadata_carries_the_live_list() -> None:
    async with world(1) as w:
        rows = w.add_topic("t", [(1,)])
        w.channels.snapshot()
        await settled(w)
        w.channels.metadata_changed(rows)
        w.channels.live_list_changed()
        await settled(w)
        assert w.brokers[1].apis() == "ULu" + "u"


async def test_what_happens_while_a_broker_is_slow_reaches_it_merged() -> None:
    async with world(1) as w:
        rows = w.add_topic("t", [(1,)] * 3)
        w.channels.snapshot()
        await settled(w)
        w.brokers[1].hold()
        w.elect(rows[0])
        await eventually(lambda: w.brokers[1].apis() == "ULuL")
        for _ in range(50):
            w.elect(*rows)
        w.brokers[1].let_go.set()
        await settled(w)
        assert w.brokers[1].apis() == "ULuLLu"
        assert w.brokers[1].of(LEADER_AND_ISR)[-1].epochs() == {
            ("t", p): (3 + 50 + (p == 0), 58 + (p == 0)) for p in range(3)
        }


async def test_the_first_seal_after_quiet_goes_at_once_and_the_next_one_waits_for_the_interval() -> None:
    async with world(1, seal_interval_ms=600) as w:
        rows = w.add_topic("t", [(1,)] * 3)
        await settled(w)
        assert w.brokers[1].apis() == "U"
        for i in rows:
            w.elect(i)
            await asyncio.sleep(0.01)
        assert w.brokers[1].apis() == "U"
        await settled(w)
        assert w.brokers[1].apis() == "ULu"
        assert w.brokers[1].of(LEADER_AND_ISR)[0].partitions() == [("t", 0), ("t", 1), ("t", 2)]


@pytest.mark.kafka(
    "ControllerChannelManagerTest.testStopReplicaRequestSent",
    "ControllerChannelManagerTest.testMixedDeleteAndNotDeleteStopReplicaRequests",
    "ControllerChannelManagerTest.testStopReplicaRequestWithAlreadyDefinedDeletedPartition",
)
@pytest.mark.seed("S4-34", "S4-73")
@pytest.mark.parametrize(("ibp", "version"), [("2.7-IV1", 3), ("3.9", 4)])
async def test_stops_carry_the_leader_epoch_and_whether_to_delete(ibp: str, version: int) -> None:
    async with world(1, ibp=Ibp.parse(ibp)) as w:
        rows = w.add_topic("t", [(1, 2), (2, 1)])
        moves = [
            ReplicaMove(rows[0], 1, ReplicaState.OFFLINE, "x", stop=True),
            ReplicaMove(rows[1], 1, ReplicaState.DELETION_STARTED, "x", stop=True, delete=True),
            ReplicaMove(rows[1], 1, ReplicaState.OFFLINE, "x", stop=True),
        ]
        w.channels.propagate((), moves)
        await settled(w)
        (stop,) = w.brokers[1].of(STOP_REPLICA)
        states = stop.entity.topic_states[0].partition_states
        assert stop.version == version
        assert [(s.partition_index, s.leader_epoch, s.delete_partition) for s in states] == [
            (0, 3, False),
            (1, 3, True),
        ]
        (answer,) = [a for a in w.answers() if a.api is Api.STOP_REPLICA]
        assert answer == BrokerResponse(1, 101, Api.STOP_REPLICA, 0, (), {rows[0]: False, rows[1]: True})


async def test_how_long_a_change_took_to_be_acknowledged_is_reported() -> None:
    """From the change on, however long the broker was unreachable; a broker that goes first reports nothing."""
    async with world(1, 2) as w:
        rows = w.add_topic("t", [(1,)])
        w.channels.snapshot()
        await settled(w)
        w.brokers[1].mute = w.brokers[2].mute = True
        began_s = asyncio.get_running_loop().time()
        w.lags.clear()
        w.elect(*rows)
        await eventually(lambda: w.channels.lag()[1].oldest_s > 0.1)
        assert w.lags == []
        w.deregister(2)
        w.brokers[1].mute = False
        await w.brokers[1].stop_listening()
        await w.brokers[1].listen()
        await settled(w)
        took_s = asyncio.get_running_loop().time() - began_s
        assert 0.1 < max(w.lags) <= took_s


# -- retry


async def test_a_broker_that_does_not_accept_yet_is_told_as_soon_as_it_does() -> None:
    async with world(1, register=False) as w:
        await w.brokers[1].stop_listening()
        w.register(1)
        w.add_topic("t", [(1,)])
        w.channels.snapshot()
        await eventually(lambda: "Connection refused" in str(w.channels.lag()[1].last_error))
        assert w.channels.lag()[1].unreachable
        assert w.channels.lag()[1].connected is False
        await w.brokers[1].listen()
        await settled(w)
        knows_the_model(w, w.brokers[1])
        assert w.channels.lag()[1].last_error is None
        assert not w.channels.lag()[1].unreachable


async def test_a_request_whose_answer_was_lost_is_sent_again_before_anything_newer() -> None:
    async with world(1) as w:
        rows = w.add_topic("t", [(1,)])
        w.channels.snapshot()
        await settled(w)
        w.brokers[1].hold()
        w.elect(rows[0])
        await eventually(lambda: w.brokers[1].apis() == "ULuL")
        w.brokers[1].cut()
        w.elect(rows[0])
        await eventually(lambda: w.brokers[1].apis() == "ULuLL")
        w.brokers[1].let_go.set()
        await settled(w)
        assert w.brokers[1].apis() == "ULuLLLu"
        epochs = [heard.epochs()["t", 0][0] for heard in w.brokers[1].of(LEADER_AND_ISR)]
        assert epochs == [3, 4, 4, 5]


@pytest.mark.parametrize("sent", [False, True])
async def test_a_log_is_not_deleted_that_an_unclean_election_made_the_leader_s_meanwhile(sent: bool) -> None:
    """Also where the request was sent, and was lost: a retry would delete what is left."""
    async with world(1) as w:
        kept, deleted = w.add_topic("t", [(2, 1), (2, 1)])
        await settled(w)
        stops = [ReplicaMove(i, 1, ReplicaState.OFFLINE, "x", stop=True, delete=True) for i in (kept, deleted)]
        w.brokers[1].hold()
        if not sent:
            w.channels.live_list_changed()
            await eventually(lambda: w.brokers[1].apis() == "UU")
        w.channels.propagate((), stops)
        if sent:
            await eventually(lambda: w.brokers[1].apis() == "US")
        w.elect(kept, leader=1)
        w.brokers[1].cut()
        w.brokers[1].let_go.set()
        await settled(w)
        stop = w.brokers[1].of(STOP_REPLICA)[-1]
        assert stop.partitions() == [("t", 1)]
        assert [a.rows for a in w.answers() if a.api is Api.STOP_REPLICA] == [{deleted: True}]
        assert w.brokers[1].of(LEADER_AND_ISR)[-1].entity.topic_states[0].partition_states[0].leader == 1


async def test_an_answer_that_does_not_come_in_time_costs_the_connection_and_a_second_try() -> None:
    async with world(1, request_timeout_ms=100) as w:
        w.brokers[1].mute = True
        await eventually(lambda: w.brokers[1].connections >= 2)
        assert "UPDATE_METADATA: no response in time" in str(w.channels.lag()[1].last_error)
        w.brokers[1].mute = False
        await settled(w)
        assert w.brokers[1].in_flight_max == 1


@pytest.mark.parametrize("garbage", [b"", b"\0\0", b"\0\0\0\x63\0\0\0", b"HTTP/1.1 400 Bad Request"])
async def test_garbage_for_an_answer_costs_the_connection_and_a_second_try(garbage: bytes) -> None:
    async with world(1) as w:
        w.brokers[1].raw_answer = garbage
        await eventually(lambda: w.brokers[1].connections >= 3)
        assert "UPDATE_METADATA" in str(w.channels.lag()[1].last_error)
        w.brokers[1].raw_answer = None
        await settled(w)


async def test_retries_end_with_the_incarnation() -> None:
    async with world(1, 2) as w:
        await settled(w)
        await w.brokers[1].stop_listening()
        w.channels.live_list_changed()
        await eventually(lambda: w.channels.lag()[1].last_error)
        assert await w.channels.quiesced(0.05) == {1}
        w.deregister(1)
        await settled(w)
        await w.brokers[1].listen()
        heard = len(w.brokers[1].heard)
        w.channels.live_list_changed()
        await settled(w)
        assert len(w.brokers[1].heard) == heard
        assert w.channels.lag().keys() == {2}


async def test_a_broker_that_hangs_holds_nobody_else_up() -> None:
    async with world(1, 2) as w:
        rows = w.add_topic("t", [(1, 2)])
        w.brokers[1].hold()
        w.channels.snapshot()
        w.elect(rows[0])
        await eventually(lambda: w.channels.lag()[2].partitions == 0 and "u" in w.brokers[2].apis())
        knows_the_model(w, w.brokers[2])
        assert await w.channels.quiesced(0.05) == {1}
        behind = w.channels.lag()[1]
        assert behind.partitions >= 1
        assert behind.oldest_s > 0


async def test_a_new_incarnation_gets_a_new_channel_with_its_own_epoch() -> None:
    async with world(1) as w:
        rows = w.add_topic("t", [(1,)])
        w.brokers[1].hold()
        w.elect(rows[0])
        await eventually(lambda: w.brokers[1].heard)
        w.brokers[1].epoch = 900
        w.brokers[1].let_go.set()
        w.register(1)
        w.channels.snapshot([1])
        await settled(w)
        assert w.brokers[1].connections == 2
        assert {heard.entity.broker_epoch for heard in w.brokers[1].of(LEADER_AND_ISR)} == {900}
        knows_the_model(w, w.brokers[1])


async def test_other_endpoints_of_the_same_incarnation_are_told_to_all_and_used() -> None:
    async with world(1, 2) as w:
        await settled(w)
        await w.brokers[1].stop_listening()
        w.brokers[1].port = 0
        await w.brokers[1].listen()
        w.register(1)
        await settled(w)
        for broker in w.brokers.values():
            live = broker.of(UPDATE_METADATA)[-1].entity.live_brokers
            ports = {e.port for b in live if b.id_ == 1 for e in b.endpoints if e.listener == "INTERNAL"}
            assert ports == {w.brokers[1].port}


@pytest.mark.parametrize(
    ("endpoint", "why"),
    [
        (Endpoint("OTHER", "127.0.0.1", 1), "no listener named CONTROL or INTERNAL"),
        (Endpoint("INTERNAL", "127.0.0.1", 1, 3), "is SASL_SSL, security.protocol is PLAINTEXT"),
    ],
)
async def test_a_broker_without_a_usable_listener_says_why(endpoint: Endpoint, why: str) -> None:
    async with world(listeners=("CONTROL", "INTERNAL")) as w:
        w.channels.add(Broker(1, 5, (endpoint,)))
        await eventually(lambda: why in str(w.channels.lag()[1].last_error))


@pytest.mark.kafka("ControllerIntegrationTest.testMetadataPropagationOnControlPlane")
async def test_the_control_plane_listener_is_preferred() -> None:
    async with world(1, register=False, listeners=("CONTROL", "INTERNAL")) as w:
        endpoints = (Endpoint("INTERNAL", "127.0.0.1", 1), Endpoint("CONTROL", "127.0.0.1", w.brokers[1].port))
        w.channels.add(Broker(1, 101, endpoints))
        await settled(w)
        assert w.brokers[1].apis() == "U"


# -- the gate


async def test_nothing_is_written_while_the_gate_is_closed() -> None:
    async with world(1) as w:
        rows = w.add_topic("t", [(1,)])
        w.channels.snapshot()
        await settled(w)
        w.open = False
        w.elect(rows[0])
        assert await w.channels.quiesced(0.2) == {1}
        assert w.brokers[1].apis() == "ULu"
        w.open = True
        await settled(w)
        assert w.brokers[1].apis() == "ULuLu"


async def test_the_gate_is_asked_again_for_each_request_of_a_seal() -> None:
    async with world(1) as w:
        rows = w.add_topic("t", [(1,)])
        w.channels.snapshot()
        await settled(w)
        w.brokers[1].hold()
        w.elect(rows[0])
        await eventually(lambda: w.brokers[1].apis() == "ULuL")
        w.open = False
        w.brokers[1].let_go.set()
        assert await w.channels.quiesced(0.2) == {1}
        assert w.brokers[1].apis() == "ULuL"


# -- answers


def failing(errors: dict[int, int], version: int) -> Callable[[int, Any], dict[str, Any]]:
    """Answers LeaderAndIsr with errors by partition of topic t."""

    def respond(api: int, entity: Any) -> dict[str, Any]:
        if api != LEADER_AND_ISR:
            return {}
        state = entity.topic_states[0]
        kind = "LeaderAndIsrPartitionError"
        entries = tuple(
            part(4, version, kind, response=True, topic_name="t", partition_index=p, error_code=ErrorCode(code))
            for p, code in errors.items()
        )
        if version < 5:
            return {"partition_errors": entries}
        kind = "LeaderAndIsrTopicError"
        return {"topics": (part(4, version, kind, response=True, topic_id=state.topic_id, partition_errors=entries),)}

    return respond


@pytest.mark.kafka("ControllerChannelManagerTest.testLeaderAndIsrRequestSent")
@pytest.mark.parametrize(("ibp", "version"), [("2.7-IV1", 4), ("3.9", 7)])
async def test_failed_partitions_are_reported_by_row_from_seals_and_snapshots(ibp: str, version: int) -> None:
    async with world(1, ibp=Ibp.parse(ibp)) as w:
        w.add_topic("other", [(1,)] * 2)
        rows = w.add_topic("t", [(1,)] * 4)
        w.brokers[1].respond = lambda api, entity: {}
        await settled(w)
        w.brokers[1].respond = failing({0: 0, 1: 11, 2: 56, 3: 3}, version)
        w.elect(*rows)
        await settled(w)
        (answer,) = w.answers()
        assert (answer.broker_id, answer.broker_epoch, answer.error) == (1, 101, 0)
        assert answer.failed == ((rows[2], 56), (rows[3], 3))
        assert answer.rows == dict.fromkeys(rows, False)
        w.channels.snapshot()
        w.brokers[1].respond = (
            failing({2: 56}, version) if version < 5 else snapshot_failing(w.cluster.topics[1].topic_id)
        )
        await settled(w)
        assert w.answers()[-1].failed == ((rows[2], 56),)
        assert w.answers()[-1].rows == range(6)


def snapshot_failing(topic_id: bytes | None) -> Callable[[int, Any], dict[str, Any]]:
    entry = part(4, 7, "LeaderAndIsrPartitionError", response=True, partition_index=2, error_code=ErrorCode(56))
    group = part(4, 7, "LeaderAndIsrTopicError", response=True, topic_id=to_uuid(topic_id), partition_errors=(entry,))
    return lambda api, entity: {"topics": (group,)} if api == LEADER_AND_ISR else {}


@pytest.mark.seed("S4-86")
@pytest.mark.parametrize("code", [11, 77])
async def test_a_stale_epoch_at_top_level_is_reported_and_not_retried(code: int) -> None:
    async with world(1) as w:
        w.brokers[1].respond = lambda api, entity: {"error_code": ErrorCode(code)}
        await settled(w)
        assert w.answers() == [BrokerResponse(1, 101, Api.UPDATE_METADATA, code, (), range(0))]
        assert w.brokers[1].apis() == "U"
        assert str(code) in str(w.channels.lag()[1].last_error)


# -- the end


@pytest.mark.kafka("ServerShutdownTest.testControllerShutdownDuringSend")
async def test_closing_ends_a_request_in_flight_and_its_connection() -> None:
    async with world(1) as w:
        w.brokers[1].hold()
        await eventually(lambda: w.brokers[1].heard)
        await asyncio.wait_for(w.channels.close(), 5)
        w.brokers[1].let_go.set()
        await eventually(lambda: not w.brokers[1]._writers)
        assert w.channels.lag() == {}
        assert not w.events


class Broken:
    """A transport with a bug."""

    async def connect(self, host: str, port: int, on_lost: Callable[[], None]) -> Connection:
        raise ZeroDivisionError("a bug")


async def test_an_error_in_the_program_is_reported_and_not_swallowed() -> None:
    async with world() as w:
        channels = w.make(Broken())
        channels.add(Broker(1, 5, (Endpoint("INTERNAL", "127.0.0.1", 1),)))
        await eventually(lambda: w.events)
        assert w.events == [ChannelFailed(1, "ZeroDivisionError('a bug')")]
        assert await channels.quiesced(0.01) == {1}
        await channels.close()


async def test_a_connection_that_the_broker_closes_when_idle_is_made_again() -> None:
    async with world(1) as w:
        await settled(w)
        w.brokers[1].cut()
        await eventually(lambda: w.brokers[1].connections == 2 and w.channels.lag()[1].connected)
        assert w.brokers[1].apis() == "U"


def test_channels_run_on_uvloop_too() -> None:
    uvloop.run(test_first_contact_is_the_live_list_then_leadership_then_metadata())
    uvloop.run(test_a_request_whose_answer_was_lost_is_sent_again_before_anything_newer())
