"""The endpoint and its daemons: the role moves during a call, and one listener serves clients and brokers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec import Struct

from admin.carrier import Carrier
from admin.cluster_view import ClusterView
from admin.ports import Call
from admin.routes import offer
from brokers.wire.messages import request_codec
from brokers.wire.messages.cluster import ApiVersion, ApiVersionsResponse
from brokers.wire.messages.topics import CreateTopicsRequest
from brokers.wire.versions import Api
from metadata_store import paths
from testing.memory import MemoryZooKeeper
from tests.kit.admin import endpoint_world
from tests.kit.deadlines import eventually, in_virtual_time
from tests.kit.kafka.calls import create, grow, topic
from tests.kit.kafka.daemons import DaemonRun, daemon, regent_has_role
from tests.kit.kafka.parts import DAEMON, SECRET
from tests.kit.kafka.world import KafkaWorld, world


@asynccontextmanager
async def carrier(w: KafkaWorld) -> AsyncIterator[Carrier]:
    """Runs an endpoint that follows the role."""
    zk = MemoryZooKeeper(w.server)
    await zk.connect(1.0)
    view = ClusterView("CLIENT", SECRET)
    following = asyncio.create_task(view.run(zk))
    made = Carrier(view, SECRET)
    try:
        await view.known()
        yield made
    finally:
        following.cancel()
        await asyncio.wait({following})
        made.close()


async def carry(endpoint: Carrier, body: Struct) -> dict[str, int]:
    """Returns the error codes by topic as the client receives them."""
    api, version = (Api.CREATE_TOPICS, 7) if isinstance(body, CreateTopicsRequest) else (Api.CREATE_PARTITIONS, 3)
    head = int(api).to_bytes(2, "big") + version.to_bytes(2, "big") + b"\0\0\0\1" + b"\xff\xff" + b"\0"
    frame = head + request_codec(api, version).write(body)
    response: Any = await endpoint.carry(Call(api, version, body, "User:ANONYMOUS", None, "10.0.0.7", frame))
    results = response.topics if api is Api.CREATE_TOPICS else response.results
    return {result.name: int(result.error_code) for result in results}


def dies_at(run: DaemonRun, path: str, when: str) -> None:
    """Kills the daemon before or after it writes ``path``."""

    async def dies() -> None:
        crashes.append(asyncio.ensure_future(run.crash()))
        await asyncio.Event().wait()

    crashes: list[asyncio.Future[None]] = []
    run.script.at(path, dies, when=when)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("written", [paths.topic("new"), paths.state("new", 0)])
@in_virtual_time
async def test_a_topic_is_created_once_though_its_daemon_dies(when: str, written: str) -> None:
    async with world() as w:
        await regent_has_role(w)
        async with daemon(w) as first:
            await first.serving()
            async with daemon(w, DAEMON + 1) as second, carrier(w) as endpoint:
                dies_at(first, written, when)
                assert await carry(endpoint, create(topic("new", 2, 2), timeout_ms=20_000)) == {"new": 0}
                assert (await second.serving()).claim.epoch == 2
                await eventually(lambda: ("new", 1) in w.leaders())
                assert await carry(endpoint, create(topic("new", 2, 2))) == {"new": 36}


@pytest.mark.parametrize("when", ["before", "after"])
@in_virtual_time
async def test_a_topic_grows_once_though_its_daemon_dies(when: str) -> None:
    async with world() as w:
        await regent_has_role(w)
        async with daemon(w) as first:
            await first.serving()
            async with daemon(w, DAEMON + 1) as second, carrier(w) as endpoint:
                dies_at(first, paths.topic("t"), when)
                assert await carry(endpoint, grow("t", 4, timeout_ms=20_000)) == {"t": 0}
                await second.serving()
                assert sorted(w.assignment("t").partitions) == [0, 1, 2, 3]
                assert await carry(endpoint, grow("t", 4)) == {"t": 37}


ALTER_PARTITION = b"\x00\x38\x00\x03\x00\x00\x00\x09" + b"\xff\xff\x00the rest"
RESPONSE = b"\x00\x00\x00\x10\x00\x00\x00\x09the response"


async def test_a_brokers_call_and_its_response_are_relayed_unchanged() -> None:
    async with endpoint_world(shared=True) as w:
        w.controller.relay_response = RESPONSE
        broker = await w.connect()
        for _ in range(2):
            assert await broker.exchange(ALTER_PARTITION) == RESPONSE[4:]
        assert w.controller.relayed == [(ALTER_PARTITION, "User:ANONYMOUS", "127.0.0.1")] * 2
        assert w.broker.frames == [], "no broker receives it"


@pytest.mark.parametrize("shared", [True, False])
async def test_without_a_daemon_or_a_shared_listener_a_brokers_call_ends_the_connection(shared: bool) -> None:
    async with endpoint_world(shared=shared) as w:
        assert await (await w.connect()).refused(ALTER_PARTITION)
        assert len(w.controller.relayed) == shared


async def test_a_caller_without_a_principal_is_not_relayed() -> None:
    async with endpoint_world(shared=True) as w:
        w.directory.sasl = True
        w.controller.relay_response = RESPONSE
        assert await (await w.connect()).refused(ALTER_PARTITION)
        assert w.controller.relayed == []


def test_a_shared_listener_offers_brokers_calls_in_the_daemons_versions() -> None:
    theirs = ApiVersionsResponse(0, tuple(ApiVersion(key, 0, 9) for key in (3, 7, 18, 56, 58)))
    offered = {key.api_key: (key.min_version, key.max_version) for key in offer(theirs, shared=True).api_keys}
    assert {key: offered[key] for key in (7, 56, 67)} == {7: (2, 3), 56: (0, 3), 67: (0, 0)}
    assert 58 not in offered
    plain = {key.api_key for key in offer(theirs).api_keys}
    assert offered.keys() - plain == {7, 56, 67}
