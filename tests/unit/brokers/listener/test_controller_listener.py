"""The controller listener over real sockets: brokers' calls, the loss of the role, start and stop."""

from __future__ import annotations

import asyncio
import gc

import pytest
import uvloop

from brokers.listener.controller_listener import ControllerListener, NotController
from brokers.wire.calls import AllocateProducerIdsCall, AlterPartitionCall, ControlledShutdownCall
from tests.kit.deadlines import eventually
from tests.kit.listener import ALLOCATE, ALTER, SHUTDOWN, VERSIONS, desk, isr_change


@pytest.mark.seed("S4-80", "S4-87")
async def test_a_connection_serves_versions_and_then_calls_of_every_version() -> None:
    async with desk() as d:
        peer = await d.connect()
        software = {"client_software_name": "apache-kafka-java", "client_software_version": "3.9.1"}
        versions = await peer.call(VERSIONS, 4, **software)
        assert {key.api_key: key.max_version for key in versions.api_keys} == {7: 3, 18: 4, 56: 3, 67: 0}
        for version in range(4):
            response = await peer.call(ALTER, version, **isr_change(version))
            (state,) = response.topics[0].partitions
            assert (response.error_code, state.isr, state.partition_epoch) == (0, (1, 2), 9)
        block = await peer.allocate()
        assert (block.error_code, block.producer_id_start, block.producer_id_len) == (0, 7_000, 1_000)
        assert [type(call) for call in d.double.calls] == [AlterPartitionCall] * 4 + [AllocateProducerIdsCall]


@pytest.mark.seed("S4-72")
@pytest.mark.parametrize("version", [2, 3])
async def test_a_controlled_shutdown_is_served_without_a_request_for_versions(version: int) -> None:
    async with desk() as d:
        peer = await d.connect()
        response = await peer.call(SHUTDOWN, version, broker_id=2, broker_epoch=57)
        assert [(p.topic_name, p.partition_index) for p in response.remaining_partitions] == [("left", 4)]
        assert d.double.calls == [ControlledShutdownCall(version, 2, 57)]


async def test_an_unknown_version_of_api_versions_gets_the_known_ones_and_the_connection_goes_on() -> None:
    async with desk() as d:
        peer = await d.connect()
        peer.send(bytes.fromhex("0012 0007 00000000 0001 32 00") + b"fields of version 7")
        response = await peer.response(VERSIONS, 0)
        assert response.error_code == 35
        assert {key.api_key: key.max_version for key in response.api_keys}[VERSIONS] == 4
        assert (await peer.call(VERSIONS, 0)).error_code == 0


async def test_calls_of_one_connection_are_handled_one_after_the_other() -> None:
    async with desk() as d:
        peer = await d.connect()
        d.double.gate.clear()
        for broker in (1, 2, 3):
            peer.begin(broker_id=broker, broker_epoch=1)
        await d.in_progress()
        d.double.gate.set()
        for peer.correlation in (1, 2, 3):
            assert (await peer.response(ALLOCATE, 0)).error_code == 0
        assert d.double.at_once_max == 1
        assert d.double.calls == [AllocateProducerIdsCall(0, broker, 1) for broker in (1, 2, 3)]


async def test_no_more_is_read_from_a_connection_while_its_call_is_in_progress() -> None:
    async with desk() as d:
        peer, other = await d.connect(), await d.connect()
        d.double.gate.clear()
        peer.begin()
        await d.in_progress()
        for _ in range(20):
            peer.send(bytes(1_000_000))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(peer.writer.drain(), 0.5)
        assert (await other.call(VERSIONS, 0)).error_code == 0, "other connections go on"


# -- the role


@pytest.mark.seed("S4-86")
@pytest.mark.parametrize("why", ["never held", "resigned", "lost in the handler", "a bug"])
async def test_calls_without_a_term_get_the_errors_on_which_brokers_look_for_the_controller(
    why: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with desk(serving=why != "never held") as d:
        if why == "resigned":
            d.listener.resign()
        d.double.error = {"lost in the handler": NotController(), "a bug": ZeroDivisionError()}.get(why)
        peer = await d.connect()
        assert (await peer.call(SHUTDOWN, 3, broker_id=1, broker_epoch=1)).error_code == 11
        assert (await peer.call(ALTER, 3, **isr_change())).error_code == 41
        assert (await peer.allocate()).error_code == 41
    assert len(caplog.records) == (3 if why == "a bug" else 0)


async def test_resigning_closes_every_connection() -> None:
    async with desk() as d:
        peers = [await d.connect() for _ in range(3)]
        for peer in peers:
            await peer.call(VERSIONS, 0)
        d.double.gate.clear()
        peers[0].begin()
        await d.in_progress()
        d.listener.resign()
        assert all([await peer.closed() for peer in peers])
        await d.left(0)


@pytest.mark.parametrize("hangs_up", [False, True])
async def test_a_call_goes_on_after_its_time_out_and_without_its_connection(hangs_up: bool) -> None:
    async with desk(call_timeout_ms=50) as d:
        d.double.gate.clear()
        peer = await d.connect()
        peer.begin(SHUTDOWN, 3)
        await d.in_progress()
        if hangs_up:
            peer.writer.transport.abort()
            await d.left(0)
        else:
            assert (await peer.response(SHUTDOWN, 3)).error_code == 7
        assert d.double.finished == 0
        d.double.gate.set()
        await eventually(lambda: d.double.finished == 1)


@pytest.mark.parametrize(
    ("error", "lines"), [(NotController(), []), (ZeroDivisionError(), ["ControlledShutdownCall failed"])]
)
async def test_a_call_that_fails_without_its_connection_is_logged_where_it_has_a_fault(
    error: Exception, lines: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    async with desk(call_timeout_ms=50) as d:
        d.double.gate.clear()
        d.double.error = error
        peer = await d.connect()
        peer.begin(SHUTDOWN, 3)
        await d.in_progress()
        peer.writer.transport.abort()
        await d.left(0)
        d.double.gate.set()
        await eventually(lambda: d.double.finished == 1)
    gc.collect()  # asyncio tells of an error that nothing has looked at
    await asyncio.sleep(0)
    assert [one.message for one in caplog.records if one.levelname == "ERROR"] == lines


async def test_calls_above_the_bound_are_refused_until_one_ends() -> None:
    async with desk(calls_max=2) as d:
        d.double.gate.clear()
        first, second, third = [await d.connect() for _ in range(3)]
        first.begin(SHUTDOWN, 3)
        second.begin(SHUTDOWN, 3)
        await d.in_progress(2)
        assert (await third.call(SHUTDOWN, 3, broker_id=2, broker_epoch=1)).error_code == 7
        d.double.gate.set()
        assert (await first.response(SHUTDOWN, 3)).error_code == 0
        assert (await third.call(SHUTDOWN, 3, broker_id=2, broker_epoch=1)).error_code == 0
        assert len(d.double.calls) == 3


# -- start and stop


async def test_a_stopped_listener_can_be_started_again() -> None:
    async with desk() as d:
        peer = await d.connect()
        await peer.call(VERSIONS, 0)
        await d.listener.stop()
        assert await peer.closed()
        with pytest.raises(RuntimeError, match="not started"):
            assert d.listener.port
        await d.listener.start()
        again = await d.connect()
        assert (await again.allocate()).error_code == 41


async def test_a_listener_starts_on_a_port_whose_last_connections_are_still_in_time_wait() -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    assert await reader.read() == b""  # the server closes first: its side waits
    writer.close()
    server.close()
    await server.wait_closed()
    listener = ControllerListener("127.0.0.1", port)
    await listener.start()
    assert listener.port == port
    await listener.stop()


async def test_stopping_abandons_the_calls_in_progress() -> None:
    async with desk() as d:
        d.double.gate.clear()
        peer = await d.connect()
        peer.begin()
        await d.in_progress()
        await d.listener.stop()
        d.double.gate.set()
        await asyncio.sleep(0)
        assert d.double.finished == 0


async def test_an_address_that_cannot_be_bound_is_named_with_the_remedy() -> None:
    async with desk() as d:
        other = ControllerListener("127.0.0.1", d.listener.port)
        with pytest.raises(OSError, match=rf":{d.listener.port}: another process listens there\. Remedy: stop that"):
            await other.start()
    with pytest.raises(OSError, match=r"192\.0\.2\.1:9096: .+\. Remedy: correct listener\.host, or set another"):
        await ControllerListener("192.0.2.1", 9096).start()


def test_the_listener_runs_on_uvloop_too() -> None:
    uvloop.run(test_a_connection_serves_versions_and_then_calls_of_every_version())
