"""Derives the views of lean brokers from the requests that they kept.

Brokers that were sent the same metadata share one cache, and each shared body is decoded once. The views of 100 brokers
of 100,000 partitions take seconds, not minutes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from brokers.wire.versions import Api
from testing.simulated.bodies import Body
from testing.simulated.broker import SimulatedBroker
from testing.simulated.broker_server import BrokerServer
from testing.simulated.metadata import MetadataCache
from testing.simulated.values import Head, LeaderAndIsr, StopReplica, UpdateMetadata

Listed = dict[Body, frozenset[int]]
"""Live lists by the body that they came in: a million small requests are few bodies."""


def known(servers: Iterable[BrokerServer]) -> Iterator[tuple[BrokerServer, SimulatedBroker]]:
    """Yields each broker with its present view; brokers with equal metadata follow each other and share their cache.

    Raises :class:`Malformed` where a request that was kept cannot be read.
    """
    groups: dict[tuple[Body, ...], list[BrokerServer]] = {}
    listed: Listed = {}
    for server in servers:
        if server.options.exact:
            yield server, server.broker
        else:
            groups.setdefault(_metadata_of(server), []).append(server)
    try:
        for group in groups.values():
            cache = _cache(group[0])
            for server in group:
                yield server, _replayed(server, cache, listed)
    finally:
        for bodies in groups:
            for body in bodies:
                body.release()


def _metadata_of(server: BrokerServer) -> tuple[Body, ...]:
    return tuple(body for head, body in server.log if head.api is Api.UPDATE_METADATA)


def _cache(server: BrokerServer) -> MetadataCache:
    cache = MetadataCache()
    for head, body in server.log:
        if head.api is Api.UPDATE_METADATA:
            request = body.request(head, keep=True)
            assert isinstance(request, UpdateMetadata)
            cache.update(request)
    return cache


def _replayed(server: BrokerServer, cache: MetadataCache, listed: Listed) -> SimulatedBroker:
    """Returns the broker after its requests, in their order: the effect of a LeaderAndIsr depends on the live list."""
    broker = SimulatedBroker(server.id, server.epoch, ibp=server.options.ibp)
    broker.controller_epoch = server.broker.controller_epoch
    live: frozenset[int] = frozenset()
    for head, body in server.log:
        if head.api is Api.UPDATE_METADATA:
            live = listed[body] if body in listed else listed.setdefault(body, _live(head, body))
            continue
        match body.request(head):
            case LeaderAndIsr() as request:
                broker.hosting.lead(request, live)
            case StopReplica() as request:
                broker.hosting.stop(request)
    broker.adopt(cache)
    return broker


def _live(head: Head, body: Body) -> frozenset[int]:
    request = body.request(head, keep=True)
    assert isinstance(request, UpdateMetadata)
    return frozenset(known.id for known in request.live)
