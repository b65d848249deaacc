"""Declares the goals that an operator may give a plan, and chooses the topics that one is limited to."""

from __future__ import annotations

from collections.abc import Collection
from fnmatch import fnmatchcase
from typing import Final

from msgspec import Struct

from state_machines.planning.plan import Move

LISTED_MAX: Final = 10
"""Names or numbers that a text lists before it gives the count of the others."""

Topics = tuple[str, ...] | None
"""Topics that a goal is limited to: names, patterns such as ``orders-*``, exclusions as ``!PATTERN``; None: all."""


class TargetReplicas(Struct, frozen=True, gc=False):
    """The replicas that one partition is to have, the preferred leader first."""

    topic: str
    partition: int
    replicas: tuple[int, ...]


class Target(Struct, frozen=True):
    """Given replicas for each named partition, as in the JSON of Kafka's tool."""

    partitions: tuple[TargetReplicas, ...]


class Decommission(Struct, frozen=True):
    """All replicas leave ``brokers``, which may be dead."""

    brokers: tuple[int, ...]
    topics: Topics = None


class Add(Struct, frozen=True):
    """``brokers``, which host few replicas, take their share from the others."""

    brokers: tuple[int, ...]
    topics: Topics = None


class ReplicationFactor(Struct, frozen=True):
    """Each partition of ``topics`` has ``factor`` replicas."""

    topics: tuple[str, ...]
    factor: int


class RestoreRacks(Struct, frozen=True):
    """Replicas of one partition that share a rack move to racks without one."""

    topics: Topics = None


class Rebalance(Struct, frozen=True):
    """Replicas, leaders and bytes are even over all brokers that may take replicas."""

    topics: Topics = None


class Undo(Struct, frozen=True):
    """Partitions return to the replicas that they had before ``moves``; ``source`` names the plan in words."""

    moves: tuple[Move, ...]
    source: str


Goal = Target | Decommission | Add | ReplicationFactor | RestoreRacks | Rebalance | Undo


def in_words(goal: Goal) -> str:
    """Describes a goal in one line, for people and for the plan's file."""
    match goal:
        case Target():
            return f"given replicas of {len(goal.partitions)} partitions"
        case Decommission():
            return f"decommission brokers {listed(goal.brokers)}{_limit(goal.topics)}"
        case Add():
            return f"add brokers {listed(goal.brokers)}{_limit(goal.topics)}"
        case ReplicationFactor():
            return f"replication factor {goal.factor}{_limit(goal.topics)}"
        case RestoreRacks():
            return f"restore racks{_limit(goal.topics)}"
        case Rebalance():
            return f"rebalance all brokers{_limit(goal.topics)}"
        case Undo():
            return f"undo {goal.source}"


def _limit(topics: Topics) -> str:
    return "" if topics is None else f" of topics {listed(topics)}"


def listed(values: Collection[object]) -> str:
    """Lists values in their order, the first :data:`LISTED_MAX` of them and the count of the others."""
    shown = [str(value) for _, value in zip(range(LISTED_MAX), values, strict=False)]
    more = len(values) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


EXCLUDED: Final = "!"
"""Begin of a pattern whose topics are left out; no topic's name has it."""
_WILD: Final = frozenset("*?[")


def chosen_topics(given: Topics, existing: Collection[str]) -> Topics:
    """Returns the topics that names and patterns choose, None for all; exclusions alone leave all others.

    A name or pattern that no topic has stays as it is, so that a plan refuses it.
    """
    if not given:
        return given
    wanted = [one for one in given if not one.startswith(EXCLUDED)]
    left_out = [one[len(EXCLUDED) :] for one in given if one.startswith(EXCLUDED)]
    found: dict[str, None] = {}
    for one in wanted or ["*"]:
        matching = [topic for topic in existing if fnmatchcase(topic, one)] if _WILD.intersection(one) else [one]
        found |= dict.fromkeys(matching or [one])
    return tuple(topic for topic in found if not any(fnmatchcase(topic, one) for one in left_out))
