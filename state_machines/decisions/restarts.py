"""Decides which brokers a rolling restart takes next: of one rack, as many as may stop together.

It keeps no state: the broker epochs at the start of the restart show which brokers were restarted since.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from state_machines.decisions.hindrances import Hindrance, StopCause
from state_machines.decisions.stopping import StopJudge
from state_machines.model.cluster import Cluster
from state_machines.model.min_isr import MinIsr
from state_machines.portions import Portions, at_once

BATCH_MAX: Final = 1_000
"""Brokers of one batch, where no lower bound is given."""


class RollingRestart(Struct, frozen=True, omit_defaults=True):
    """A rolling restart as it is stored. ``since``: the broker epoch of each broker at the start.

    ``batch``: the brokers to stop now; ``why``: these in words, or what the restart waits for.
    """

    since: tuple[tuple[int, int], ...]
    batch_max: int = BATCH_MAX
    accepted: tuple[StopCause, ...] = ()
    batch: tuple[int, ...] = ()
    why: str = ""


class RestartPlan(Struct, frozen=True):
    """Brokers to restart now, or why none may be restarted.

    ``pending`` are still to be restarted, the batch among them; ``restarted`` are back with another broker epoch.
    ``down`` are neither: they stopped and are not back yet, or are shutting down. Where there is no batch although
    brokers are pending, ``nearest`` is the one that fewest partitions hinder, with its ``hindrances``.
    """

    batch: tuple[int, ...]
    rack: str | None
    pending: tuple[int, ...]
    restarted: tuple[int, ...]
    down: tuple[int, ...]
    nearest: int | None = None
    hindrances: tuple[Hindrance, ...] = ()

    @property
    def done(self) -> bool:
        """Checks whether every broker was restarted and is back."""
        return not self.pending and not self.down


def restart_next(
    cluster: Cluster,
    since: Mapping[int, int],
    min_isr: MinIsr,
    batch_max: int = BATCH_MAX,
    accepted: Collection[StopCause] = (),
    controller: int | None = None,
) -> RestartPlan:
    """Decides the next batch of at most ``batch_max`` brokers (1 or more).

    ``since`` has the broker epoch of each broker at the start. No batch is given while a broker of ``since`` is down.
    Racks are taken one after the other, those that were begun first; a broker without a rack is taken alone. The
    broker that is the ``controller``, if any, comes last, so the role moves once. Causes that are ``accepted`` hinder
    nothing.
    """
    return at_once(restarting(cluster, since, min_isr, batch_max, accepted, controller))


def restarting(
    cluster: Cluster,
    since: Mapping[int, int],
    min_isr: MinIsr,
    batch_max: int = BATCH_MAX,
    accepted: Collection[StopCause] = (),
    controller: int | None = None,
) -> Portions[RestartPlan]:
    """Decides the same in turns; visits the partitions of each pending broker at most once."""
    if batch_max < 1:
        raise ValueError(f"batch_max is {batch_max}: give at least 1 broker")
    brokers, live = cluster.brokers, cluster.live
    down = tuple(sorted(since.keys() - live))
    pending = tuple(b for b in sorted(since) if b in live and brokers[b].epoch == since[b])
    restarted = tuple(b for b in sorted(since) if b not in down and b not in pending)
    nothing = RestartPlan((), None, pending, restarted, down)
    if down or not pending:
        return nothing
    nearest: tuple[int, int] | None = None
    hindrances: tuple[Hindrance, ...] = ()
    for group in _groups(cluster, pending, restarted, controller):
        batch: list[int] = []
        for broker in group:
            judge = StopJudge(cluster, [*batch, broker], min_isr, accepted)
            yield from judge.judge(broker)
            total = judge.tally.total
            if not total:
                batch.append(broker)
            elif nearest is None or (total, broker) < nearest:
                nearest, hindrances = (total, broker), judge.tally.hindrances(cluster)
            if len(batch) == batch_max:
                break
        if batch:
            return RestartPlan(tuple(batch), brokers[batch[0]].rack, pending, restarted, down)
    assert nearest is not None
    return RestartPlan((), None, pending, restarted, down, nearest[1], hindrances)


def _groups(
    cluster: Cluster, pending: Sequence[int], restarted: Iterable[int], controller: int | None
) -> list[list[int]]:
    """Returns the pending brokers by rack, in the order in which the racks are tried."""
    begun = {cluster.brokers[b].rack for b in restarted}
    groups: dict[tuple[bool, bool, bool, str, int], list[int]] = {}
    for broker in pending:
        rack = cluster.brokers[broker].rack
        alone = broker if rack is None or broker == controller else -1
        place = (broker == controller, rack is None, rack not in begun, rack or "", alone)
        groups.setdefault(place, []).append(broker)
    return [groups[place] for place in sorted(groups)]


def sentence(plan: RestartPlan) -> str:
    """Returns the brokers to restart now, or what the restart waits for, and how far it is."""
    total = len(plan.pending) + len(plan.restarted) + len(plan.down)
    if plan.done:
        return f"all {total} brokers were restarted"
    progress = f"{len(plan.restarted)} of {total} were restarted"
    if plan.batch:
        rack = f" of rack {plan.rack}" if plan.rack is not None else ""
        return f"restart {_named(plan.batch)}{rack} now; {progress}"
    if plan.down:
        return f"{_named(plan.down)} must come back first; {progress}"
    return f"no broker may stop now, broker {plan.nearest} is nearest to it; {progress}"


def _named(brokers: tuple[int, ...]) -> str:
    return f"broker{'s' if len(brokers) > 1 else ''} {', '.join(map(str, brokers))}"
