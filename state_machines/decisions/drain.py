"""Decides how leaders leave drained brokers: in waves, in the order of names, each partition once.

A partition whose turn is over is not touched again: where a client elects the drained broker afterwards, that stands.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from state_machines.decisions.hindrances import ROWS_PER_TURN
from state_machines.decisions.plan_progress import ReassignPlan
from state_machines.machines import selectors
from state_machines.machines.draft import Draft
from state_machines.machines.partition import PartitionStateMachine
from state_machines.machines.selectors import NoLeader
from state_machines.model.cluster import Cluster
from state_machines.model.types import PartitionState, TopicPartition
from state_machines.portions import Portions

WAVE_MAX: Final = 1_000
"""Partitions of one wave."""
NAMED_MAX: Final = 20
"""Partitions that the result names for each reason; all are counted."""
COULD_MOVE: Final = "a client elected the drained broker, or the write failed: drain it again"
HOSTED: Final = "they did not move, or came since: see 'regent describe partition', and drain the broker again"


class Drain(Struct, frozen=True, omit_defaults=True):
    """A drain as it is stored. ``after``: the last partition whose turn is over.

    ``led``: partitions that the brokers led when they were marked. ``plan``: moves all replicas away, None where they
    stay; ``hosted``: replicas on the brokers when it began; ``moved_by``: the pid of the child that carried it out.
    """

    brokers: tuple[int, ...]
    after: tuple[str, int] | None = None
    led: int = 0
    plan: ReassignPlan | None = None
    hosted: int = 0
    moved_by: int = 0


class Foretold(NamedTuple):
    """Replicas and leaders of a broker, and by reason the leaders that a drain would leave there."""

    hosted: int
    led: int
    stay: Mapping[str, int]


def wave(cluster: Cluster, drain: Drain) -> list[int]:
    """Returns the rows of the next wave, by name: at most :data:`WAVE_MAX`, none where all have had their turn."""
    names = ((cluster.name(i), i) for i in led(cluster, drain.brokers))
    after = drain.after
    return [i for _, i in heapq.nsmallest(WAVE_MAX, (one for one in names if after is None or one[0] > after))]


def led(cluster: Cluster, brokers: Iterable[int]) -> list[int]:
    """Returns the rows that those of ``brokers`` lead that are drained."""
    rows, deletions = cluster.rows, cluster.deletions
    return [
        i
        for broker in cluster.drained.intersection(brokers)
        for i in cluster.hosted(broker)
        if rows[i].leader == broker and rows[i].state is PartitionState.ONLINE and rows[i].topic not in deletions
    ]


class Leading(Struct, frozen=True):
    """Leaders and replicas of brokers, by which a drain spreads what it moves.

    The replicas that a broker hosts stand for its capacity: nothing else is known of it.
    """

    leaders: dict[int, int]
    replicas: dict[int, int]

    def load(self, broker: int) -> float:
        """Returns the share of its replicas that a broker leads."""
        return self.leaders.get(broker, 0) / max(1, self.replicas.get(broker, 0))


def leading(cluster: Cluster) -> Leading:
    """Counts the leaders and the replicas of all brokers, in one pass."""
    return Leading(dict(Counter(map(attrgetter("leader"), cluster.rows))), cluster.replicas_by_broker())


def followed(before: Leading, cluster: Cluster, rows: Iterable[int]) -> Leading:
    """Returns the counts after a wave: what its ``rows`` lead now is added, wherever it came from."""
    leaders = dict(before.leaders)
    for i in rows:
        leader = cluster.rows[i].leader
        leaders[leader] = leaders.get(leader, 0) + 1
    return replace(before, leaders=leaders)


def move_leaders(draft: Draft, rows: Iterable[int], known: Leading | None = None) -> None:
    """Moves leaderships from drained brokers to other live ISR members; rows that have none are refused.

    With ``known`` each goes to the member with the fewest leaders for the replicas that it hosts.
    """
    online, drained = PartitionState.ONLINE, draft.drained
    wanted = [i for i in rows if draft.rows[i].leader in drained and draft.rows[i].state is online]
    machine, rule = PartitionStateMachine(draft), partial(selectors.drained, live=draft.live, avoided=_avoided(draft))
    if known is None:
        machine.elect(wanted, rule)
        return
    spread = replace(known, leaders=dict(known.leaders))
    for i in wanted:
        machine.elect([i], partial(rule, load=spread.load))
        leader = draft.row(i).leader
        spread.leaders[leader] = spread.leaders.get(leader, 0) + 1


def advanced(cluster: Cluster, drain: Drain, rows: Iterable[int]) -> Drain:
    """Returns the drain after a wave was carried out; ``rows`` are not empty."""
    return replace(drain, after=tuple(max(cluster.name(i) for i in rows)))


def staying(cluster: Cluster, brokers: Iterable[int]) -> dict[str, list[TopicPartition]]:
    """Returns the partitions that drained brokers still lead, by name under their reasons."""
    found: dict[str, list[TopicPartition]] = {}
    for i in led(cluster, brokers):
        row = cluster.rows[i]
        chosen = selectors.drained(
            row.assignment.replicas, row.isr, cluster.failed(i), live=cluster.live, avoided=_avoided(cluster)
        )
        found.setdefault(chosen.why if isinstance(chosen, NoLeader) else COULD_MOVE, []).append(cluster.name(i))
    return {why: sorted(names) for why, names in sorted(found.items())}


def foretold(cluster: Cluster, brokers: Collection[int]) -> Portions[dict[int, Foretold]]:
    """Counts by broker what a drain would find and leave there, in turns; topics in deletion do not count."""
    found: dict[int, Foretold] = {}
    avoided = _avoided(cluster).union(brokers)
    for broker in sorted(brokers):
        there, led, stay = 0, 0, Counter[str]()
        for count, i in enumerate(list(cluster.hosted(broker)), 1):
            row = cluster.rows[i]
            kept = row.topic not in cluster.deletions
            there += kept
            if row.leader == broker and row.state is PartitionState.ONLINE and kept:
                led += 1
                replicas = row.assignment.replicas
                chosen = selectors.drained(replicas, row.isr, cluster.failed(i), live=cluster.live, avoided=avoided)
                stay.update([chosen.why] if isinstance(chosen, NoLeader) else ())
            if count % ROWS_PER_TURN == 0:
                yield
        found[broker] = Foretold(there, led, dict(stay))
    return found


def hosted(cluster: Cluster, brokers: Iterable[int]) -> list[TopicPartition]:
    """Returns the partitions with replicas on ``brokers``, by name; one for each replica."""
    deletions, rows = cluster.deletions, cluster.rows
    found = [i for broker in brokers for i in cluster.hosted(broker) if rows[i].topic not in deletions]
    return sorted(map(cluster.name, found))


def sentence(drain: Drain, left: Mapping[str, Sequence[TopicPartition]]) -> str:
    """Returns how many leaders moved, and the partitions whose leaders stay with their reasons."""
    stay = sum(map(len, left.values()))
    return "; ".join(
        [
            f"{max(0, drain.led - stay)} of {drain.led} leaders moved",
            *(_named(why, names) for why, names in left.items()),
        ]
    )


def replicas_sentence(drain: Drain, left: Sequence[TopicPartition]) -> str:
    """Returns how many replicas moved, and the partitions whose replicas stay."""
    moved = f"{max(0, drain.hosted - len(left))} of {drain.hosted} replicas moved"
    return f"{moved}; {_named(HOSTED, left)}" if left else moved


def _named(why: str, names: Sequence[TopicPartition]) -> str:
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return f"{len(names)} stay ({', '.join(map(str, names[:NAMED_MAX]))}{more}): {why}"


def why_not(cluster: Cluster, brokers: Collection[int]) -> tuple[str, str] | None:
    """Returns why these brokers cannot be drained, and what would make it succeed; None where they can."""
    unknown = sorted(set(brokers) - cluster.brokers.keys() - cluster.hosts())
    if unknown:
        return f"brokers {unknown} are not registered and host no replica", "correct the ids"
    if not cluster.live - cluster.drained - cluster.outranked - set(brokers):
        found = f"no live broker would be left to lead: brokers {sorted(cluster.drained)} are drained already"
        return found if cluster.drained else found.partition(":")[0], "drain fewer brokers, or undrain some"
    return None


def _avoided(cluster: Cluster | Draft) -> frozenset[int]:
    return cluster.drained | cluster.outranked
