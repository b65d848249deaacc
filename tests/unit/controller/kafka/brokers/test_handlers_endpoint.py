"""The admin endpoint's znode: brokers list the daemon on their client listener as long as it is there."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from msgspec import structs

from brokers.security.attested import Seals
from controller.kafka.brokers.endpoint_change import GONE_S
from controller.kafka.path.events import EventKind
from metadata_store.nodes.endpoint_znode import AdminEndpoint, announce, decode_endpoint, endpoint_path
from testing.memory import MemoryZooKeeper
from tests.kit.controller_parts import DAEMON, SECRET, UPDATE_METADATA
from tests.kit.controller_world import World, in_world

AT = AdminEndpoint("CLIENT", "regent1", 9096)
SEALS = Seals(SECRET, "")


async def endpoint(w: World, daemon: int = DAEMON, at: AdminEndpoint = AT) -> MemoryZooKeeper:
    zk = MemoryZooKeeper(w.server)
    await zk.connect(1.0)
    assert await announce(zk, daemon, SEALS.announced(daemon, zk.session_id, at)) is None
    return zk


def listed(w: World, broker: int = 2) -> dict[str, tuple[str, int]]:
    """The daemon's endpoints by listener, as a broker was told last."""
    told = w.wires.requests(broker, UPDATE_METADATA)[-1]
    [mine] = [entry for entry in told.live_brokers if entry.id_ == DAEMON]
    return {e.listener: (e.host, e.port) for e in mine.endpoints}


def entries(w: World, broker: int = 2) -> list[Any]:
    """The daemon's entries in all lists that a broker was sent."""
    told = w.wires.requests(broker, UPDATE_METADATA)
    return [entry for request in told for entry in request.live_brokers if entry.id_ == DAEMON]


def shown(w: World) -> str | None:
    """As status says it."""
    found = w.term.controller.endpoint.found
    return None if found is None else str(found)


INTERNAL = {"INTERNAL": ("127.0.0.1", 9095)}
BOTH = INTERNAL | {"CLIENT": ("regent1", 9096)}


@in_world()
async def test_it_is_shown_from_the_terms_beginning_and_not_much_longer_than_it_lives(w: World) -> None:
    zk = await endpoint(w)
    await w.serve()
    assert listed(w) == BOTH
    assert shown(w) == "regent1:9096 on listener CLIENT"
    w.server.expire(zk.session_id)
    await asyncio.sleep(GONE_S + 0.1)
    await w.propagated()
    assert listed(w) == INTERNAL
    assert shown(w) is None
    await endpoint(w)
    await w.propagated()
    assert listed(w) == BOTH


@in_world()
async def test_it_comes_in_a_term_and_a_second_life_replaces_the_first(w: World) -> None:
    await w.serve()
    assert listed(w) == INTERNAL
    first = await endpoint(w)
    await w.propagated()
    assert listed(w) == BOTH
    second = await endpoint(w)
    w.server.expire(first.session_id)
    await w.propagated()
    assert listed(w) == BOTH
    w.server.expire(second.session_id)
    await w.propagated()
    await endpoint(w, at=AdminEndpoint("CLIENT", "regent1", 9999))
    await w.propagated()
    assert listed(w)["CLIENT"] == ("regent1", 9999)
    told = {tuple(sorted(e.listener for e in entry.endpoints)) for entry in entries(w)}
    assert told == {("INTERNAL",), ("CLIENT", "INTERNAL")}


@in_world()
async def test_an_endpoint_that_restarts_is_listed_all_the_time(w: World) -> None:
    """Brokers log an error at each UpdateMetadata that lists a node without one of the others' listeners."""
    zk = await endpoint(w)
    await w.begin_term()
    for _ in range(3):
        w.server.expire(zk.session_id)
        await asyncio.sleep(GONE_S - 1.0)
        w.die(3)
        await w.propagated()
        await w.boot(3)
        zk = await endpoint(w)
        await asyncio.sleep(2.0)
        await w.propagated()
    assert len(entries(w)) > 3, "brokers were sent a list meanwhile"
    assert {tuple(sorted(e.listener for e in entry.endpoints)) for entry in entries(w)} == {("CLIENT", "INTERNAL")}
    assert shown(w) == "regent1:9096 on listener CLIENT"


@in_world()
async def test_another_daemons_endpoint_and_a_scribble_are_not_shown(w: World) -> None:
    await w.begin_term()
    await endpoint(w, DAEMON + 1)
    await w.propagated()
    assert listed(w) == INTERNAL
    await w.operator.create(endpoint_path(DAEMON), b"scribble")
    await w.propagated()
    assert listed(w) == INTERNAL


@pytest.mark.parametrize("how", ["unsealed", "other secret", "other cluster", "other daemon", "copied", "moved"])
@in_world()
async def test_an_address_that_no_endpoint_of_ours_has_sealed_is_not_shown(
    w: World, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    await w.begin_term()
    zk = MemoryZooKeeper(w.server)
    await zk.connect(1.0)
    session = zk.session_id + (how == "copied")
    seals = Seals(b"x" * 32 if how == "other secret" else SECRET, "another" if how == "other cluster" else "")
    sealed = seals.announced(DAEMON + (how == "other daemon"), session, AT)
    if how in ("unsealed", "moved"):
        sealed = structs.replace(sealed, **({"seal": ""} if how == "unsealed" else {"host": "stranger"}))
    assert await announce(zk, DAEMON, sealed) is None
    await w.propagated()
    assert listed(w) == INTERNAL
    assert "is not sealed with this daemon's secret" in caplog.text
    await zk.close()
    await endpoint(w)
    await w.propagated()
    assert listed(w) == BOTH


@in_world()
async def test_a_listener_that_no_broker_has_is_complained_of(w: World, caplog: pytest.LogCaptureFixture) -> None:
    await w.begin_term()
    await endpoint(w, at=AdminEndpoint("OUTSIDE", "regent1", 9096))
    await w.propagated()
    assert "no broker has a listener OUTSIDE" in caplog.text


@in_world()
async def test_on_a_listener_that_brokers_share_with_clients_it_stands_for_the_daemon(w: World) -> None:
    """It passes brokers' calls on; without it brokers find the daemon itself."""
    await w.begin_term()
    zk = await endpoint(w, at=AdminEndpoint("INTERNAL", "regent1", 9096))
    await w.propagated()
    assert listed(w) == {"INTERNAL": ("regent1", 9096)}
    w.server.expire(zk.session_id)
    await w.propagated()
    assert listed(w) == INTERNAL


@in_world()
async def test_the_endpoints_znode_is_read_again_after_a_reconnect(w: World) -> None:
    await w.serve()
    w.term.queue.signal(EventKind.RECONNECTED)
    await endpoint(w)
    await w.propagated()
    assert listed(w) == BOTH


def test_an_endpoint_without_listener_host_or_port_is_malformed() -> None:
    good = {"listener": "CLIENT", "host": "h", "port": 1}
    assert decode_endpoint(json.dumps(good).encode()) == AdminEndpoint("CLIENT", "h", 1)
    for bad in ({"port": 0}, {"port": 65_536}, {"host": ""}, {"listener": ""}, {"port": "9"}, {"host": None}):
        assert decode_endpoint(json.dumps(good | bad).encode()) is None
    assert decode_endpoint(None) is None
