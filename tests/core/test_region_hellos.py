"""Connections that end at their Hello are counted by cause, which the metrics of the domain show."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from controller.metrics.region_gauges import RegionGauges
from controller.metrics.region_metrics import RegionsCollector
from controller.regions.process import domain_of
from regent_agent.protocol import INVALID, LENGTH, UNAUTHENTICATED, Hello, Leave, Refused, decode_response, encode
from tests.core.regions_world import settings_of
from tests.polling import eventually

SECRET = "s3cret"


class View:
    def region_gauges(self) -> RegionGauges:
        return RegionGauges()


async def last_response(port: int, request: Hello | Leave) -> bytes:
    """Sends a request on a connection of its own; returns all that comes until the connection's end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(encode(request))
    try:
        async with asyncio.timeout(20):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def test_refusals_at_hello_are_counted_by_cause(tmp_path: Path) -> None:
    domain = domain_of(settings_of(tmp_path), None, SECRET)
    listener = domain.listener
    await listener.start()
    try:
        for hello, code in ((Hello(0, SECRET), INVALID), (Hello(1, "x"), UNAUTHENTICATED), (Hello(1), UNAUTHENTICATED)):
            found = decode_response((await last_response(listener.port, hello))[LENGTH.size :])
            assert isinstance(found, Refused)
            assert found.code == code
        assert await last_response(listener.port, Leave("s1", 5, 1)) == b"", "nothing is read before Hello"
        _, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(encode(Hello(1, SECRET)))
        await eventually(lambda: listener.connections == 1)
        writer.close()
    finally:
        await listener.stop()
    assert domain.counters.hellos_refused == {"version": 1, "secret": 2, "missing": 1}
    [metric] = [one for one in RegionsCollector(domain.counters, View()).collect() if "hellos" in one.name]
    assert {one.labels["cause"]: one.value for one in metric.samples if one.name.endswith("_total")} == {
        "version": 1, "secret": 2, "missing": 1,
    }  # fmt: skip


@pytest.mark.parametrize("secret", ["", SECRET])
async def test_a_fitting_hello_is_not_counted(tmp_path: Path, secret: str) -> None:
    listener = domain_of(settings_of(tmp_path), None, secret).listener
    await listener.respond(encode(Hello(1, secret))[LENGTH.size :])
    assert not listener.hellos_refused
