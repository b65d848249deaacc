"""Queries brokers for their settings, applies those of the live ones, and keeps them for the next term.

A term loads the kept settings before it decides anything. It queries the brokers after its elections, and each one that
registers, beside the queue: newcomers also for partitions that ZooKeeper lacks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Final

import anyio
import msgspec

from brokers.client import BrokerCallFailed
from brokers.queries import RESPONSE_S_MAX, BrokerQueries, Dial, query_each
from controller.kafka.access import Authorizer
from controller.kafka.path.adoption import ASKED, IBP, WAIT_S_MAX, Values, judge_ibp
from controller.kafka.path.controller import ConflictRounds, Controller
from controller.kafka.path.events import EventKind
from controller.kafka.path.gate import weakly
from controller.kafka.topics.ghosts import find_ghosts
from controller.role.own_znodes import BROKER_SETTINGS
from metadata_store.errors import Code
from metadata_store.port import Create, Op, SetData
from state_machines.admin_rules import broker_settings as s
from state_machines.admin_rules.broker_settings import Reported, Value, adopted_sentence, advice
from state_machines.admin_rules.create_topics import TopicDefaults
from state_machines.model.cluster import Cluster
from state_machines.model.types import Broker

log = logging.getLogger("regent.controller")

TRIES_MAX: Final = 3
TOKEN_CHECK_MS_MIN: Final = 1_000
"""Shortest interval, which brokers do not bound; each check reads every token."""
NOT_KEPT: Final = "settings of the brokers could not be kept in ZooKeeper"
_MOVED: Final = (Code.BAD_VERSION, Code.NODE_EXISTS, Code.NO_NODE)
QUERIES_MAX: Final = 30
PAUSE_S: Final = 1.0
TOLD_S_MAX: Final = 30.0
"""Longest wait of queries to brokers for the requests that are being sent."""


async def load_kept_settings(c: Controller) -> None:
    """Reads the settings that an earlier term kept, and applies those of the live brokers."""
    node = await c.zk.get(BROKER_SETTINGS)
    if node is not None:
        try:
            c.adoption.recall(node.data or b"")
        except (msgspec.DecodeError, IndexError) as error:
            log.warning("%s cannot be used (%s): the brokers are queried again", BROKER_SETTINGS, error)
    apply_settings(c)


async def broker_settings(c: Controller) -> None:
    """Takes the settings from new responses of brokers, applies and keeps them.

    Where ZooKeeper is away, the next event of this kind keeps them.
    """
    c.adoption.take()
    apply_settings(c)
    if c.adoption.unkept:
        await _keep(c)


def apply_settings(c: Controller) -> None:
    """Judges the live brokers' settings, and applies the result if it has changed."""
    adoption, live = c.adoption, c.cluster.brokers
    if not adoption.silent(live):
        adoption.settled.set()
    before, found = adoption.found, adoption.judge(_guards(c))
    if found == before:
        return
    adoption.found = found
    _set_values(c, {key: one.value for key, one in found.items()}, first=not before)
    if (sentence := adopted_sentence(before, found)) is not None:
        log.info("%s", sentence)
    advised = {text for one in found.values() if (text := advice(one)) is not None}
    for text in sorted(advised - adoption.advised):
        log.warning("%s", text)
    adoption.advised = frozenset(advised)


def _guards(c: Controller) -> Collection[int]:
    """Returns the brokers whose settings count: live ones, and absent ones with assigned replicas.

    A guard must not vanish with the death of the broker that has it.
    """
    live = c.cluster.brokers
    absent = c.adoption.known - live.keys()
    return live.keys() | (absent & c.cluster.hosts()) if absent else live.keys()


def _set_values(c: Controller, values: Mapping[str, Value | None], *, first: bool) -> None:
    """Sets the values that handlers read; no other code sets them. ``first``: the term has decided nothing yet."""
    deletes, unclean = _switch(values[s.DELETE]), bool(values[s.UNCLEAN])
    if deletes is not c.deletion_queue.enabled and not first:
        c.queue.signal(EventKind.TOPIC_DELETION)
    if unclean and not c.unclean.default and not first:
        c.queue.signal(EventKind.CONFIG_CHANGE)
    c.deletion_queue.enabled, c.unclean.default = deletes, unclean
    c.quotas.window_s = _number(values[s.WINDOWS]) * _number(values[s.WINDOW_SECONDS])
    check_ms = _number(values[s.EXPIRY_CHECK])
    c.adoption.values = Values(
        new_topics=TopicDefaults(_known(values[s.PARTITIONS]), _known(values[s.REPLICATION])),
        policy=c.adoption.topics_refused(values[s.POLICY]),
        remote_storage=_switch(values[s.REMOTE]),
        token_check_s=max(TOKEN_CHECK_MS_MIN, check_ms) / 1000 if check_ms else 0.0,
        balances=bool(values[s.BALANCE]),
        balance_interval_s=max(1, _number(values[s.BALANCE_INTERVAL])),
        balance_percentage_max=_number(values[s.BALANCE_PERCENTAGE]),
    )


def _switch(value: Value | None) -> bool | None:
    return None if value is None else bool(value)


def _number(value: Value | None) -> int:
    return int(value or 0)


def _known(value: Value | None) -> int | None:
    return None if value is None else int(value)


async def _keep(c: Controller) -> None:
    """Writes the settings. This term has the newest ones, so it also replaces a znode that changed meanwhile."""
    for _ in ConflictRounds(TRIES_MAX):
        data = c.adoption.kept(_guards(c))
        stat = await c.zk.exists(BROKER_SETTINGS)
        op: Op = Create(BROKER_SETTINGS, data) if stat is None else SetData(BROKER_SETTINGS, data, stat.version)
        failed = await c.write_singly(op)
        if failed is None:
            c.adoption.unkept = False
            return
        if failed.code not in _MOVED:
            c.counters.failures[NOT_KEPT] += 1
            log.error("%s (%s): check the ACL of %s", NOT_KEPT, failed.code.name, BROKER_SETTINGS)
            c.adoption.unkept = False
            return


async def query_settings(
    dial: Dial, cluster: Cluster, brokers: Collection[int], heard: Callable[[Broker, Reported], None]
) -> None:
    """Queries ``brokers`` until each responds: they register before they listen.

    ``heard`` takes each response at once, unless another registration has taken the broker's place.
    """

    async def query(queries: BrokerQueries, broker: Broker) -> None:
        told = await queries.static_configs(broker.id, ASKED)
        if _same(cluster, broker):
            heard(broker, told)

    waiting = {broker: cluster.brokers[broker] for broker in brokers if broker in cluster.brokers}
    failed: dict[int, BrokerCallFailed] = {}
    for _ in range(QUERIES_MAX):
        answers = await query_each(dial, waiting, query, RESPONSE_S_MAX)
        failed = {broker: found for broker, found in answers.items() if isinstance(found, BrokerCallFailed)}
        waiting = {b: known for b, known in waiting.items() if b in failed and _same(cluster, known)}
        if not waiting:
            return
        await asyncio.sleep(PAUSE_S)
    for broker in waiting:
        log.warning(
            "broker %d does not report its settings (%s): earlier reports hold, and where nothing is known the "
            "strictest value. Remedy: allow this daemon's user DescribeConfigs on the cluster there, or set the "
            "controller.* keys (regent config show names them); its next registration repeats the query",
            broker,
            failed[broker],
        )


def _same(cluster: Cluster, broker: Broker) -> bool:
    """Checks whether the registration still stands."""
    found = cluster.brokers.get(broker.id)
    return found is not None and found.epoch == broker.epoch


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
