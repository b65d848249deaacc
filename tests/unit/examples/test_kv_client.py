"""The client: follows regions to their owner, and says what is unclear at a deadline."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from examples.kv.client import Client, Conflict, Failed, Invalid
from examples.kv.connections import Connections
from examples.kv.listener import Listener
from examples.kv.protocol import (
    FRAME_BYTES_MAX,
    LENGTH,
    NOT_OWNER,
    PUT_COUNT_MAX,
    SUSPENDED,
    VALUE_BYTES_MAX,
    Found,
    Get,
    Refused,
    Scan,
)
from examples.kv.service import KeyValueService
from regent_agent import protocol
from regent_agent.protocol import Hello
from tests.kit.deadlines import eventually
from tests.kit.examples.daemon import Daemon
from tests.kit.examples.processes import region, service
from tests.unit.regent_agent.kit import StandIn
from tests.unit.regent_agent.test_connection import responding


class Served:
    """Services in this process with their listeners, and a client that finds them by the daemon's routes."""

    def __init__(
        self,
        daemon: Daemon,
        client: Client,
        services: list[KeyValueService],
        listeners: list[Listener],
        addresses: list[str],
    ) -> None:
        self.daemon, self.client, self.services = daemon, client, services
        self.listeners, self.addresses = listeners, addresses

    async def open(self, number: int, token: int, at: int) -> None:
        """Opens a region, and has the daemon know that."""
        route = self.daemon.routes[number]
        await self.services[at].open(region(token, number, route.start, route.end))
        self.daemon.routes[number] = replace(route, token=token, server=f"s{at}", address=self.addresses[at])


@asynccontextmanager
async def served(data: Path, timeout_s: float = 20) -> AsyncIterator[Served]:
    async with Daemon().running() as daemon, service(data, "s0") as first, service(data, "s1") as second:
        listeners = [Listener(first), Listener(second)]
        addresses = [f"127.0.0.1:{await listener.start('127.0.0.1', 0)}" for listener in listeners]
        client = Client([daemon.address], timeout_s=timeout_s)
        daemon.create(1, end=b"m")
        daemon.create(2, start=b"m")
        try:
            yield Served(daemon, client, [first, second], listeners, addresses)
        finally:
            await client.close()
            for listener in listeners:
                await listener.stop()


async def test_a_scan_goes_through_all_regions_of_a_table(tmp_path: Path) -> None:
    async with served(tmp_path) as kv:
        await kv.open(1, 5, at=0)
        await kv.open(2, 6, at=1)
        keys = [b"%c%d" % (letter, number) for letter in b"az" for number in range(700)]
        await asyncio.gather(*(kv.client.put("t", key, bytes(1_000)) for key in keys))
        assert [key async for key, _ in kv.client.scan("t")] == sorted(keys)
        assert [key async for key, _ in kv.client.scan("t", b"z9")] == [key for key in sorted(keys) if key >= b"z9"]


async def test_many_puts_go_to_the_regions_of_their_keys(tmp_path: Path) -> None:
    """Bytes bound the requests for the first region, and the count bounds those for the second one."""
    async with served(tmp_path) as kv:
        await kv.open(1, 5, at=0)
        await kv.open(2, 6, at=1)
        large = {b"a%d" % number: bytes(VALUE_BYTES_MAX) for number in range(5)}
        many = {b"z%d" % number: b"v" for number in range(PUT_COUNT_MAX + 1)}
        await kv.client.put_many("t", large | many)
        assert {key: found.value async for key, found in kv.client.scan("t")} == large | many


async def test_many_puts_follow_a_region_that_moves(tmp_path: Path) -> None:
    async with served(tmp_path) as kv:
        await kv.open(1, 5, at=0)
        await kv.client.put("t", b"a", b"v")
        await kv.services[0].close(region(5))
        put = asyncio.create_task(kv.client.put_many("t", {b"a": b"w", b"b": b"w"}))
        await kv.open(1, 6, at=1)
        await put
        assert await kv.client.get("t", b"b") == Found(b"w", 5)


async def test_a_region_that_moved_is_found_again(tmp_path: Path) -> None:
    async with served(tmp_path) as kv:
        await kv.open(1, 5, at=0)
        await kv.client.put("t", b"a", b"v")
        await kv.services[0].close(region(5))
        put = asyncio.create_task(kv.client.put("t", b"a", b"w"))
        await kv.open(1, 6, at=1)
        assert await put == 4
        assert await kv.client.get("t", b"a") == Found(b"w", 4)


async def test_a_server_that_ends_is_not_needed_any_more(tmp_path: Path) -> None:
    """Its connections are idle at the client, and closed."""
    async with served(tmp_path) as kv:
        await kv.open(1, 5, at=0)
        await kv.client.put("t", b"a", b"v")
        await kv.services[0].close(region(5))
        kv.daemon.routes[1] = replace(kv.daemon.routes[1], address="127.0.0.1:1")
        get = asyncio.create_task(kv.client.get("t", b"a"))
        await kv.open(1, 6, at=1)
        assert await get == Found(b"v", 2)


async def test_a_conflict_has_what_is_there(tmp_path: Path) -> None:
    async with served(tmp_path) as kv:
        await kv.open(1, 5, at=0)
        assert await kv.client.compare_and_put("t", b"a", b"v", 0) == 2
        for version, key, found in ((0, b"a", Found(b"v", 2)), (7, b"b", None)):
            with pytest.raises(Conflict) as conflict:
                await kv.client.compare_and_put("t", key, b"w", version)
            assert (conflict.value.found, conflict.value.repeated) == (found, False)


async def test_a_conflict_after_a_lost_response_says_so(tmp_path: Path) -> None:
    """The write was done, its response was lost: the second attempt finds the key with the new version."""
    async with served(tmp_path) as kv:
        await kv.open(1, 5, at=0)
        exchange = kv.client._connections.exchange
        lost = iter([True])

        async def losing(address: str, request: object) -> object:
            response = await exchange(address, request)  # type: ignore[arg-type]
            if next(lost, False):
                raise ConnectionResetError
            return response

        kv.client._connections.exchange = losing  # type: ignore[method-assign, assignment]
        with pytest.raises(Conflict) as conflict:
            await kv.client.compare_and_put("t", b"a", b"v", 0)
        assert (conflict.value.found, conflict.value.repeated) == (Found(b"v", 2), True)


async def test_a_deadline_names_the_last_cause(tmp_path: Path) -> None:
    async with served(tmp_path, timeout_s=4) as kv:
        await kv.open(1, 5, at=0)
        kv.services[0].suspend()
        with pytest.raises(Failed, match=r"no response for key b'a' of table t within 4 s: s0: .* lost its lease"):
            await kv.client.get("t", b"a")


async def test_a_region_without_an_owner_is_waited_for_until_the_deadline(tmp_path: Path) -> None:
    async with served(tmp_path, timeout_s=0.5) as kv:
        with pytest.raises(Failed, match="before: no attempt"):
            await kv.client.get("t", b"a")


async def test_a_value_that_is_too_long_is_an_error_at_once(tmp_path: Path) -> None:
    async with served(tmp_path) as kv:
        await kv.open(1, 5, at=0)
        with pytest.raises(Invalid, match="at most"):
            await kv.client.put("t", b"a", bytes(VALUE_BYTES_MAX + 1))


async def test_refusals_name_their_code(tmp_path: Path) -> None:
    async with served(tmp_path) as kv:
        await kv.open(1, 5, at=0)
        connections = Connections()
        stale = await connections.exchange(kv.addresses[0], Get(1, 4, b"a"))
        kv.services[0].suspend()
        suspended = await connections.exchange(kv.addresses[0], Scan(1, 5))
        connections.close()
        assert isinstance(stale, Refused)
        assert isinstance(suspended, Refused)
        assert (stale.code, suspended.code) == (NOT_OWNER, SUSPENDED)


async def test_a_server_that_ends_with_open_connections_logs_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(tmp_path) as kv:
        await kv.open(1, 5, at=0)
        await kv.client.put("t", b"a", b"v")
        [(reader, _)] = kv.client._connections._idle[kv.addresses[0]]
        await kv.listeners[0].stop()
        assert await reader.read() == b""
    assert not [line for line in caplog.records if line.name == "asyncio"]


@pytest.mark.parametrize("sent", [LENGTH.pack(FRAME_BYTES_MAX + 1), LENGTH.pack(3) + b"abc", LENGTH.pack(1) + b"\x90"])
async def test_bytes_that_are_no_request_end_their_connection_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, sent: bytes
) -> None:
    async with served(tmp_path) as kv:
        await kv.open(1, 5, at=0)
        host, _, port = kv.addresses[0].rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(sent)
        assert await reader.read() == b""
        writer.close()
        await eventually(lambda: "use a client of this version" in caplog.text)
        await kv.client.put("t", b"a", b"v")


async def test_a_client_whose_secret_is_refused_ends_at_once_with_the_refusal_alone() -> None:
    async with StandIn().running() as daemon:
        daemon.responses[Hello] = responding(protocol.Refused(protocol.UNAUTHENTICATED, "secret: none was given"))
        client = Client([daemon.address], timeout_s=60)
        try:
            async with asyncio.timeout(30):
                with pytest.raises(
                    Failed, match=r"^127\.0\.0\.1:\d+ refused: secret: none was given \(unauthenticated\)$"
                ):
                    await client.get("t", b"alice")
        finally:
            await client.close()
