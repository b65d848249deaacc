"""Plants bugs in electing leaders: permissions, preferred leaders, failed log directories."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import ExitStack
from typing import Any

from controller.kafka.partitions import elections
from controller.kafka.path.controller import Controller
from controller.kafka.path.topic_settings import UncleanElectionPolicy
from state_machines.decisions.leader_election import to_balance
from state_machines.machines import selectors
from state_machines.machines.selectors import Election, NoLeader
from state_machines.model.cluster import Cluster
from tests.kit.simulation.planting import put
from tests.simulation.kafka.planting import mutation

Replicas = tuple[int, ...]


@mutation
def unclean_without_permission(stack: ExitStack) -> None:
    """Allows unclean elections to topics whose configuration was not read."""
    put(stack, UncleanElectionPolicy, "__call__", lambda self, topic: True)


@mutation
def prefer_replicas_behind(stack: ExitStack) -> None:
    """Elects a preferred replica as soon as it is live."""

    def preferred(
        replicas: Replicas, isr: Replicas, down: Collection[int] = (), *, live: Collection[int]
    ) -> Election | NoLeader:
        if replicas[0] not in live or replicas[0] in down:
            return NoLeader(selectors.PREFERRED_DOWN)
        return Election(replicas[0], tuple(dict.fromkeys((replicas[0], *isr))), selectors.PREFERRED)

    put(stack, selectors, "preferred", preferred)


@mutation
def elect_on_failed_directories(stack: ExitStack) -> None:
    """Takes every replica of a live broker as live, its log directory failed or not."""
    offline = selectors.offline

    def not_down(
        replicas: Replicas, isr: Replicas, _down: object, *, live: Collection[int], unclean: bool = False
    ) -> Election | NoLeader:
        return offline(replicas, isr, (), live=live, unclean=unclean)

    put(stack, selectors, "offline", not_down)


@mutation
def trust_the_known_isr(stack: ExitStack) -> None:
    """Refuses every transition that the ISR in memory forbids, although leaders write ISRs to ZooKeeper themselves."""
    put(stack, Controller, "_doubted", lambda self, decision, report: frozenset())


@mutation
def forget_outranked_brokers(stack: ExitStack) -> None:
    """Logs a broker that obeys a higher controller epoch, and elects it as any other."""
    last = selectors.last
    put(stack, selectors, "last", lambda select, _outranked, spared=(): last(select, (), spared))


@mutation
def balance_to_outranked_brokers(stack: ExitStack) -> None:
    """Elects a preferred replica although its broker refuses every request."""

    def loads(cluster: Cluster, percentage_max: int, *more: Any, **how: Any) -> list[int]:
        outranked, cluster.outranked = cluster.outranked, frozenset()
        try:
            return to_balance(cluster, percentage_max, *more, **how)
        finally:
            cluster.outranked = outranked

    put(stack, selectors, "never", lambda select, outranked: select)
    put(stack, elections, "to_balance", loads)
