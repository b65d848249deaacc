"""Answers operators that stop, remove or restart brokers: from the model, in turns of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from controller.http.errors import Refused
from controller.http.restart_models import Hindrance, RestartNext, SetOfBrokers
from state_machines.decisions import hindrances as found
from state_machines.decisions.hindrances import MEANINGS, REMEDIES, Judgement, Turns
from state_machines.decisions.restarts import RestartPlan, sentence
from state_machines.model.cluster import Cluster

ATTEMPTS_MAX: Final = 3
"""Times that a judgement is begun where brokers come or go meanwhile."""

T = TypeVar("T")


async def in_turns(cluster: Cluster, begin: Callable[[], Turns[T]]) -> T:
    """Runs the work with turns of the event loop, again where brokers come or go; raises :class:`Refused`."""
    for _ in range(ATTEMPTS_MAX):
        live, turns = cluster.live, begin()
        while cluster.live is live:
            try:
                next(turns)
            except StopIteration as ended:
                result: T = ended.value
                return result
            await asyncio.sleep(0)
    raise Refused("brokers come and go, so no answer would hold", "try again once 'regent list brokers' stays the same")


def set_of_brokers(judged: Judgement) -> SetOfBrokers:
    """Builds the item of a judgement."""
    return SetOfBrokers(
        allowed=judged.allowed,
        brokers=list(judged.brokers),
        partitions=judged.partitions,
        hindrances=[hindrance_item(one) for one in judged.hindrances],
        unregistered=list(judged.unregistered),
        shutting_down=list(judged.shutting_down),
        unknown=list(judged.unknown),
    )


def restart_item(plan: RestartPlan) -> RestartNext:
    """Builds the item of the next batch."""
    return RestartNext(
        state="done" if plan.done else "restart" if plan.batch else "wait",
        why=sentence(plan),
        batch=list(plan.batch),
        rack=plan.rack,
        pending=list(plan.pending),
        restarted=list(plan.restarted),
        down=list(plan.down),
        nearest=plan.nearest,
        hindrances=[hindrance_item(one) for one in plan.hindrances],
    )


def hindrance_item(one: found.Hindrance) -> Hindrance:
    """Builds the item of a cause."""
    return Hindrance(
        cause=one.cause.value,
        count=one.count,
        meaning=MEANINGS[one.cause],
        remedy=REMEDIES[one.cause],
        examples=[str(name) for name in one.examples],
        waits_for=list(one.waits_for),
    )
