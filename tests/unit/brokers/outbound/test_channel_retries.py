"""One channel whose broker fails: retries, other brokers, the gate, and the end of an incarnation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import uvloop

from brokers.outbound.delivery import ChannelFailed
from brokers.transport import Connection
from brokers.wire.versions import Api
from state_machines.model.types import Broker, Endpoint
from tests.kit.deadlines import eventually
from tests.kit.kafka.brokers import LEADER_AND_ISR, STOP_REPLICA
from tests.kit.kafka.channels import in_flight, knows_the_model, nothing_for, settled, stop, world
from tests.unit.brokers.outbound.test_channel import (
    test_the_first_requests_are_the_live_list_then_leadership_then_metadata,
)


async def test_a_broker_that_does_not_accept_yet_gets_everything_as_soon_as_it_does() -> None:
    async with world(1, register=False) as w:
        await w.one.stop_listening()
        w.register(1)
        w.add_topic("t", [(1,)])
        w.channels.snapshot()
        await eventually(lambda: "Connection refused" in str(w.channels.lag()[1].last_error))
        assert (w.channels.lag()[1].unreachable, w.channels.lag()[1].connected) == (True, False)
        await w.one.listen()
        await settled(w)
        knows_the_model(w, w.one)
        assert (w.channels.lag()[1].unreachable, w.channels.lag()[1].last_error) == (False, None)


async def test_a_request_whose_response_was_lost_is_sent_again_before_newer_changes() -> None:
    async with world(1) as w:
        rows = await w.load((1,))
        w.one.hold()
        w.elect(rows[0])
        await in_flight(w.one, "L")
        w.one.cut()
        w.elect(rows[0])
        await in_flight(w.one, "LL")
        w.one.let_go.set()
        await settled(w)
        assert w.one.apis() == "LLLu"
        epochs = [request.epochs()["t", 0][0] for request in w.one.of(LEADER_AND_ISR)]
        assert epochs == [3, 4, 4, 5]


@pytest.mark.parametrize("sent", [False, True])
async def test_a_log_is_not_deleted_after_an_unclean_election_made_it_the_leaders(sent: bool) -> None:
    """Also where the request was sent, and was lost: a retry would delete the last copy."""
    async with world(1) as w:
        kept, deleted = await w.load((2, 1), (2, 1), snapshot=False)
        w.one.hold()
        if not sent:
            w.channels.live_list_changed()
            await in_flight(w.one, "U")
        w.channels.propagate((), [stop(i, delete=True) for i in (kept, deleted)])
        if sent:
            await in_flight(w.one, "S")
        w.elect(kept, leader=1)
        w.one.cut()
        w.one.let_go.set()
        await settled(w)
        assert w.one.of(STOP_REPLICA)[-1].partitions() == [("t", 1)]
        assert [one.rows for one in w.responses() if one.api is Api.STOP_REPLICA] == [{deleted: True}]
        assert w.one.of(LEADER_AND_ISR)[-1].states()["t", 0].leader == 1


async def test_a_request_without_a_response_in_time_is_sent_again_on_another_connection() -> None:
    async with world(1, request_timeout_ms=100) as w:
        w.one.mute = True
        await eventually(lambda: w.one.connections >= 2)
        assert "UPDATE_METADATA: no response in time" in str(w.channels.lag()[1].last_error)
        w.one.mute = False
        await settled(w)
        assert w.one.in_flight_max == 1


@pytest.mark.parametrize("garbage", [b"", b"\0\0", b"\0\0\0\x63\0\0\0", b"HTTP/1.1 400 Bad Request"])
async def test_a_request_with_a_malformed_response_is_sent_again_on_another_connection(garbage: bytes) -> None:
    async with world(1) as w:
        w.one.raw_response = garbage
        await eventually(lambda: w.one.connections >= 3)
        assert "UPDATE_METADATA" in str(w.channels.lag()[1].last_error)
        w.one.raw_response = None
        await settled(w)


async def test_a_broker_that_hangs_delays_no_other_broker() -> None:
    async with world(1, 2) as w:
        rows = w.add_topic("t", [(1, 2)])
        w.one.hold()
        w.channels.snapshot()
        w.elect(rows[0])
        await eventually(lambda: w.channels.lag()[2].partitions == 0 and "u" in w.brokers[2].apis())
        knows_the_model(w, w.brokers[2])
        await nothing_for(w, 1)
        assert w.channels.lag()[1].partitions >= 1
        assert w.channels.lag()[1].oldest_s > 0


async def test_a_connection_that_the_broker_closes_when_idle_is_opened_again() -> None:
    async with world(1) as w:
        await settled(w)
        for _ in range(3):
            w.one.connections = 0
            w.one.cut()
            await eventually(lambda: w.one.connections == 1 and w.channels.lag()[1].connected)
        assert w.one.apis() == "U"


# -- incarnations


async def test_retries_end_with_the_incarnation() -> None:
    async with world(1, 2) as w:
        await settled(w)
        await w.one.stop_listening()
        w.channels.live_list_changed()
        await eventually(lambda: w.channels.lag()[1].last_error)
        await nothing_for(w, 1)
        w.deregister(1)
        await settled(w)
        await w.one.listen()
        w.one.mark()
        w.channels.live_list_changed()
        await settled(w)
        assert w.one.apis() == ""
        assert w.channels.lag().keys() == {2}


async def test_a_new_incarnation_gets_a_new_channel_with_its_own_epoch() -> None:
    async with world(1) as w:
        rows = w.add_topic("t", [(1,)])
        w.one.hold()
        w.elect(rows[0])
        await eventually(lambda: w.one.requests)
        w.one.epoch = 900
        w.one.let_go.set()
        w.register(1)
        w.channels.snapshot([1])
        await settled(w)
        assert w.one.connections == 2
        assert {request.entity.broker_epoch for request in w.one.of(LEADER_AND_ISR)} == {900}
        knows_the_model(w, w.one)


@pytest.mark.parametrize(
    ("endpoint", "why"),
    [
        (Endpoint("OTHER", "127.0.0.1", 1), "no listener named CONTROL or INTERNAL"),
        (Endpoint("INTERNAL", "127.0.0.1", 1, 3), "is SASL_SSL, security.protocol is PLAINTEXT"),
    ],
)
async def test_a_broker_without_a_usable_listener_is_unreachable_with_the_reason(endpoint: Endpoint, why: str) -> None:
    async with world(listeners=("CONTROL", "INTERNAL")) as w:
        w.channels.add(Broker(1, 5, (endpoint,)))
        await eventually(lambda: why in str(w.channels.lag()[1].last_error))


@pytest.mark.kafka("ControllerIntegrationTest.testMetadataPropagationOnControlPlane")
async def test_the_control_plane_listener_is_preferred() -> None:
    async with world(1, register=False, listeners=("CONTROL", "INTERNAL")) as w:
        endpoints = (Endpoint("INTERNAL", "127.0.0.1", 1), Endpoint("CONTROL", "127.0.0.1", w.one.port))
        w.channels.add(Broker(1, 101, endpoints))
        await settled(w)
        assert w.one.apis() == "U"


# -- the gate


async def test_no_request_is_sent_while_the_gate_is_shut() -> None:
    async with world(1) as w:
        rows = await w.load((1,))
        for _ in range(3):
            w.one.mark()
            w.open = False
            w.elect(rows[0])
            await nothing_for(w, 1)
            assert w.one.apis() == ""
            w.open = True
            await settled(w)
            assert w.one.apis() == "Lu"


async def test_a_gate_that_shuts_within_a_batch_stops_its_further_requests() -> None:
    async with world(1) as w:
        rows = await w.load((1,))
        w.one.hold()
        w.elect(rows[0])
        await in_flight(w.one, "L")
        w.open = False
        w.one.let_go.set()
        await nothing_for(w, 1)
        assert w.one.apis() == "L"


# -- the end


@pytest.mark.kafka("ServerShutdownTest.testControllerShutdownDuringSend")
async def test_closing_ends_a_request_in_flight_and_its_connection() -> None:
    async with world(1) as w:
        w.one.hold()
        await eventually(lambda: w.one.requests)
        await asyncio.wait_for(w.channels.close(), 60)
        assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("channel to")]
        w.one.let_go.set()
        await eventually(lambda: not w.one.connected)
        assert w.channels.lag() == {}
        assert not w.events


class Broken:
    """A transport with a bug."""

    async def connect(self, host: str, port: int, on_lost: Callable[[], None]) -> Connection:
        raise ZeroDivisionError("a bug")


async def test_an_error_in_the_program_is_reported() -> None:
    async with world() as w:
        channels = w.make(Broken())
        channels.add(Broker(1, 5, (Endpoint("INTERNAL", "127.0.0.1", 1),)))
        await eventually(lambda: w.events)
        assert w.events == [ChannelFailed(1, "ZeroDivisionError('a bug')")]
        assert await channels.quiesced(0.01) == {1}
        await channels.close()


def test_channels_run_on_uvloop_too() -> None:
    uvloop.run(test_the_first_requests_are_the_live_list_then_leadership_then_metadata())
    uvloop.run(test_a_request_whose_response_was_lost_is_sent_again_before_newer_changes())
