"""Handles changed configurations, and reads those that a new topic inherits from a live broker.

CreateTopics responses show inherited configurations. Brokers with different settings show a topic differently; one of
them is read, as by Kafka's own controller.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from math import inf
from typing import Final

from brokers.client import BrokerCallFailed
from brokers.queries import BrokerQueries, Dial
from brokers.wire.versions import Api, Ibp, UnknownIbp
from controller.kafka.journal.report import Reason
from controller.kafka.path.controller import Controller
from metadata_store import paths
from state_machines.admin_rules.inherited_configs import BROKER_SETTINGS, Setting, inherited
from state_machines.decisions.leader_election import allow_unclean
from state_machines.model.cluster import Cluster
from state_machines.model.types import Broker
from state_machines.portions import portions

ASK_S_MAX: Final = 1.0
"""Time-out of the request to one broker."""
ASKED_MAX: Final = 3
"""Brokers that are queried in turn before a response goes without configurations."""
PAUSE_S: Final = 5.0
"""Pause after no broker responded. After a change: the time that brokers may take to notice it."""
UNSETTLED_S: Final = 0.5
"""Life of a cached response in that time: clients create many topics in a row, each with configurations."""
FORMAT: Final = "message.format.version"
FORMAT_SINCE_3_0: Final = "3.0-IV1"
"""Value of every topic from IBP 3.0-IV1 on, whichever is set (KIP-724)."""
FETCH_3_9: Final = 17
"""Highest version of Fetch that brokers from 3.9 on offer, and no earlier one."""
TURN_ROWS: Final = 15_000
"""Leaderless partitions of one decision, in one turn of the loop."""


class DefaultConfigs:
    """Caches the inherited configurations until their broker registers anew, or a configuration changes."""

    def __init__(self, cluster: Cluster, dial: Dial | None, ibp: Ibp) -> None:
        self._cluster = cluster
        self._dial = dial
        self._ibp = ibp
        self._known: Mapping[str, Setting] | None = None
        self._of: Broker | None = None
        self._asking = asyncio.Lock()
        self._good_until_s = 0.0
        self._pause_until_s = 0.0
        self._settled_s = 0.0

    def forget(self) -> None:
        """Drops the cache after a configuration changed; a broker that has not noticed may still send old values."""
        self._known = None
        self._settled_s = asyncio.get_running_loop().time() + PAUSE_S

    async def known(self) -> Mapping[str, Setting] | None:
        """Returns the configurations by name; None where no broker responds within a few seconds."""
        if (found := self._remembered()) is not None:
            return found
        async with self._asking:
            return self._remembered() or await self._read()

    def _remembered(self) -> Mapping[str, Setting] | None:
        same = self._of is not None and self._epoch(self._of.id) == self._of.epoch
        return self._known if same and asyncio.get_running_loop().time() < self._good_until_s else None

    def _epoch(self, broker_id: int) -> int | None:
        broker = self._cluster.brokers.get(broker_id)
        return None if broker is None else broker.epoch

    async def _read(self) -> Mapping[str, Setting] | None:
        now = asyncio.get_running_loop().time
        if self._dial is None or now() < self._pause_until_s:
            return None
        for broker in self._candidates():
            if (found := await self._settings(self._dial, broker)) is not None:
                self._of, self._known = broker, found
                self._good_until_s = inf if now() >= self._settled_s else now() + UNSETTLED_S
                return found
        self._pause_until_s = now() + PAUSE_S
        return None

    def _candidates(self) -> list[Broker]:
        """Lists live brokers, the one that responded last first."""
        last = None if self._of is None else self._of.id
        brokers = [self._cluster.brokers[b] for b in sorted(self._cluster.live, key=lambda b: (b != last, b))]
        return brokers[:ASKED_MAX]

    async def _settings(self, dial: Dial, broker: Broker) -> Mapping[str, Setting] | None:
        try:
            async with asyncio.timeout(ASK_S_MAX), dial(broker) as queries:
                found = inherited(await queries.broker_settings(broker.id, BROKER_SETTINGS), is_3_9=_is_3_9(queries))
        except (BrokerCallFailed, TimeoutError):
            return None
        if (told := found.get(FORMAT)) is not None:
            found[FORMAT] = told._replace(value=self._format(told.value))
        return found

    def _format(self, told: str | None) -> str | None:
        """Returns the message format in full, as brokers show it of a topic."""
        if self._ibp >= Ibp.parse(FORMAT_SINCE_3_0):
            return FORMAT_SINCE_3_0
        try:
            return told if told is None else str(Ibp.parse(told))
        except UnknownIbp:
            return told


def _is_3_9(queries: BrokerQueries) -> bool:
    return queries.api_versions.get(int(Api.FETCH), (0, 0))[1] >= FETCH_3_9


async def config_change(c: Controller, configs: DefaultConfigs) -> None:
    """Handles a changed configuration (S4-82): elects leaders uncleanly where allowed, and has caches read again.

    It does not need to know which one changed. The decision reads the present values from ZooKeeper where a partition
    waits, the next call with a quota reads that quota, and the next CreateTopics response queries a broker. So no
    change is missed, and no notification needs to be read. It arms the watch first: a later change is another event.
    """
    await c.zk.exists(paths.CONFIG_CHANGES)
    await c.zk.watch(children=[paths.CONFIG_CHANGES], since_zxid=c.zk.last_zxid)
    c.quotas.forget()
    configs.forget()
    if c.cluster.leaderless:
        decide = partial(allow_unclean, unclean=c.unclean)
        for some in portions(sorted(c.cluster.leaderless), TURN_ROWS):
            await c.carry_out(decide, Reason.UNCLEAN_ALLOWED, "a configuration changed", only=some)
