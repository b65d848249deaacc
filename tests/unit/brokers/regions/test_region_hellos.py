"""Connections that end at their Hello are counted by cause, which the metrics of the domain show."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from brokers.regions.secret import NO_SECRETS, Secrets
from brokers.wire.primitives import Malformed
from controller.regions.metrics.exposition import RegionsCollector
from controller.regions.metrics.gauges import RegionGauges
from controller.regions.process import domain_of
from regent_agent.codec import LENGTH, decode_response, encode
from regent_agent.protocol import INVALID, UNAUTHENTICATED, Hello, Leave, Refused
from tests.kit.polling import eventually
from tests.kit.regions_world import settings_of

SECRET = "s3cret"
SECRETS = Secrets((SECRET,))


class View:
    def region_gauges(self) -> RegionGauges:
        return RegionGauges()


async def last_response(port: int, request: Hello | Leave | bytes) -> bytes:
    """Sends a request or a frame on a connection of its own; returns all that comes until the connection's end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request if isinstance(request, bytes) else encode(request))
    try:
        async with asyncio.timeout(20):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def test_refusals_at_hello_are_counted_by_cause(tmp_path: Path) -> None:
    domain = domain_of(settings_of(tmp_path), None, SECRETS)
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


MANY = b"\xdd\x00\x10\x00\x00" + b"\xa0" * 10
HOSTILE = {
    "a list beyond its bound": b"\x94\xa6follow\x01\x01" + MANY,
    "the same, with a longer form of its tag": b"\x94\xd9\x06follow\x01\x01" + MANY,
    "no request": b"\xc1",
}


@pytest.mark.parametrize("what", HOSTILE)
async def test_bytes_that_are_no_request_before_hello_are_counted_and_leave_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    listener = domain_of(settings_of(tmp_path), None, SECRETS).listener
    await listener.start()
    try:
        for _ in range(3):
            assert await last_response(listener.port, LENGTH.pack(len(HOSTILE[what])) + HOSTILE[what]) == b""
    finally:
        await listener.stop()
    assert listener.hellos_refused == {"missing": 3}
    assert [one.levelname for one in caplog.records if one.name == "regent.listener"] == ["WARNING"]


async def test_bytes_that_are_no_request_after_hello_are_no_refused_hello(tmp_path: Path) -> None:
    listener = domain_of(settings_of(tmp_path), None).listener
    with pytest.raises(Malformed):
        await listener.respond(b"\xc1")
    assert listener.hellos_refused.total() == 0


@pytest.mark.parametrize("secret", ["", SECRET])
async def test_a_fitting_hello_is_not_counted(tmp_path: Path, secret: str) -> None:
    listener = domain_of(settings_of(tmp_path), None, Secrets((secret,)) if secret else NO_SECRETS).listener
    await listener.respond(encode(Hello(1, secret))[LENGTH.size :])
    assert not listener.hellos_refused


@pytest.mark.parametrize(
    ("secrets", "given", "expected"),
    [
        (SECRETS, "wrong", "it is not that of regions.secret_file, which clients give, too"),
        (SECRETS, "", "none was given; give that of regions.secret_file, which clients give, too"),
        (
            Secrets((SECRET,), ("another",)),
            "wrong",
            "it is not that of regions.secret_file, or of regions.clients_secret_file for a client",
        ),
    ],
)
async def test_a_refused_secret_leaves_a_line_with_the_listener_and_the_secrets_that_are_expected(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, secrets: Secrets, given: str, expected: str
) -> None:
    listener = domain_of(settings_of(tmp_path), None, secrets).listener
    await listener.start()
    try:
        for _ in range(4):
            await last_response(listener.port, Hello(1, given))
    finally:
        await listener.stop()
    [line] = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert line.startswith("the listener of regions refused the Hello of 127.0.0.1")
    assert f"secret: {expected}" in line
