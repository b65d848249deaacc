"""Finds brokers that have seen a controller epoch above ours, and decides how many of them end a term.

One broker may have it from another cluster's controller that found it at a recycled address. Then the cluster is sound:
elections take that broker last (:mod:`state_machines.machines.selectors`). Or it obeys our successor already, so the
claim is compared with ZooKeeper. Where more than half of the live brokers report it, ZooKeeper's epoch is behind. One
broker alone proves nothing about a cluster whose other brokers are down and come back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from state_machines.model.cluster import Cluster
from state_machines.model.facts import NOTHING, Entered, Fact, HigherEpochTold, RequestAccepted

log = logging.getLogger("regent.role")


class Outranked:
    """Notes the brokers of one term that responded STALE_CONTROLLER_EPOCH, until they restart or accept a request."""

    def __init__(self, cluster: Cluster, enter: Callable[[Fact], Entered]) -> None:
        self._cluster = cluster
        self._enter = enter

    @property
    def brokers(self) -> list[int]:
        """Returns the ids of these brokers."""
        return sorted(self._cluster.outranked)

    @property
    def most(self) -> bool:
        """Checks whether they are most of the live brokers; one does not suffice where others have replicas."""
        say_so, live = len(self._cluster.outranked), self._cluster.brokers.keys()
        return 2 * say_so > len(live) and (say_so > 1 or len(live | self._cluster.hosts()) == 1)

    def says_so(self, broker: int, broker_epoch: int) -> bool:
        """Notes a STALE_CONTROLLER_EPOCH response; returns whether it is the first of this incarnation of the broker.

        The first one is logged as an error. Responses of an earlier incarnation do not count.
        """
        if self._enter(HigherEpochTold(broker, broker_epoch)) is NOTHING:
            return False
        log.error(
            "broker %d answers STALE_CONTROLLER_EPOCH: it has seen a controller epoch above ours (%d), and does "
            "nothing that this controller sends; leaderships go to it last. Remedy: restart that broker, which makes "
            "it forget the epoch; then look for the controller of another cluster that has its address among its "
            "brokers",
            broker,
            self._cluster.epoch,
        )
        return True

    def accepts(self, broker: int) -> None:
        """Removes a broker that executed a request."""
        if broker in self._cluster.outranked:
            self._enter(RequestAccepted(broker))
