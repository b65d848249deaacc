"""Queries brokers that registered, beside the queue: for their settings, and for partitions that ZooKeeper lacks."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final

import anyio

from brokers.queries import Dial
from controller.kafka.access.authorizer import Authorizer
from controller.kafka.brokers.broker_settings import query_settings
from controller.kafka.path.adoption import IBP, WAIT_S_MAX, judge_ibp
from controller.kafka.path.controller import Controller
from controller.kafka.path.events import EventKind
from controller.kafka.path.gate import weakly
from controller.kafka.topics.ghosts import find_ghosts
from state_machines.admin_rules.broker_settings import Reported
from state_machines.model.types import Broker

TOLD_S_MAX: Final = 30.0
"""Longest wait of queries to brokers for the requests that are being sent."""


async def serve_clients(settled: asyncio.Event, authorizer: Authorizer) -> None:
    """Holds clients' calls back until brokers' settings are known, but not for ever."""
    with anyio.move_on_after(WAIT_S_MAX):
        await settled.wait()
    authorizer.serve()


class Newcomers:
    """Queries brokers once they have registered, or a term has begun. ``dial``: None where none is queried."""

    def __init__(self, c: Controller, dial: Dial | None) -> None:
        self._c = c
        self._dial = dial
        self._unqueried: set[int] = set()
        """Brokers that are to be queried for partitions that ZooKeeper lacks."""
        self._querying = False

    def registered(self, brokers: Collection[int]) -> None:
        """Queries brokers for their settings and their metadata."""
        live, counters = self._c.cluster.brokers, self._c.counters
        counters.lowered_ibp_brokers.intersection_update(live)
        for gone in counters.broker_requests.keys() - live.keys():
            del counters.broker_requests[gone]
        if self._dial is not None and brokers:
            self._c.spawn(self._query_settings(self._dial, tuple(brokers)))
            self._find_ghosts(self._dial, brokers)

    async def _query_settings(self, dial: Dial, brokers: Collection[int]) -> None:
        """Sends pending requests before the query, unless clients wait for its responses."""
        c = self._c
        if c.adoption.settled.is_set():
            await c.channels.quiesced(TOLD_S_MAX)

        def heard(broker: Broker, told: Reported) -> None:
            judge_ibp(broker.id, told.get(IBP), c.ibp, c.counters)
            c.adoption.hear(broker, told)
            c.queue.signal(EventKind.BROKER_SETTINGS)

        await query_settings(dial, c.cluster, brokers, heard)

    def _find_ghosts(self, dial: Dial, brokers: Collection[int]) -> None:
        """Has brokers queried for partitions that ZooKeeper lacks, by one task at a time."""
        self._unqueried.update(brokers)
        if not self._querying:
            self._querying = True
            self._c.spawn(find_ghosts(self._c, dial, self._unqueried), weakly(self._queried, None))

    def _queried(self) -> None:
        """Begins another task for brokers that have registered since the last one found nothing left to do."""
        self._querying = False
        if self._unqueried and self._dial is not None and not self._c.gate.ended:
            self._find_ghosts(self._dial, ())
