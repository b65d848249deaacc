"""Splits a problem by sets of brokers: what one set's topics need is planned and counted on its brokers alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import msgspec

from pipeline.inputs import BadInput
from pipeline.planner.arrays import Array, np
from pipeline.planner.problem import MAY_MOVE, Problem

SETS_MAX: Final = 1_000
FORM: Final = '[{"name": "payments", "topics": ["payments", "payments-*"], "brokers": [1, 2, 3]}]'


class BrokerSet(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A set of brokers, and the names and patterns of the topics that are to be on these brokers alone."""

    name: Annotated[str, msgspec.Meta(min_length=1)]
    topics: tuple[str, ...]
    brokers: tuple[Annotated[int, msgspec.Meta(ge=0, lt=2**31)], ...]


class OfSet(NamedTuple):
    """The problem of one set. All other brokers retire in it. ``rows``: places of its partitions in the whole problem.

    ``own`` (bool): partitions of the set's topics. Others are on its brokers, may not move, and count as load.
    """

    problem: Problem
    rows: Array
    own: Array


def read_sets(path: Path) -> tuple[BrokerSet, ...]:
    """Reads a JSON list of sets; raises :class:`BadInput`, also for a broker in two of them."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=tuple[BrokerSet, ...])
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror or error}") from None
    except msgspec.DecodeError as error:
        raise BadInput(f"{path}: {error}: give the form {FORM}") from None
    if not 1 <= len(found) <= SETS_MAX:
        raise BadInput(f"{path} has {len(found)} sets of brokers: give 1 to {SETS_MAX}")
    names: set[str] = set()
    holders: dict[int, str] = {}
    for one in found:
        if one.name in names:
            raise BadInput(f"{path}: name = {one.name!r} is there twice: give each set a name of its own")
        names.add(one.name)
        for broker in one.brokers:
            if (other := holders.setdefault(broker, one.name)) != one.name:
                raise BadInput(f"{path}: broker {broker} is in the sets {other} and {one.name}: keep it in one of them")
    return found


def by_set(problem: Problem) -> Iterator[OfSet]:
    """Yields the problem of each set that has partitions; that of the whole, where there are no sets."""
    sets = problem.sets
    if sets is None:
        yield OfSet(problem, np.arange(len(problem.topic)), np.ones(len(problem.topic), bool))
        return
    there = problem.replicas >= 0
    for number in range(len(sets.names)):
        others = sets.of_broker != number
        own = sets.of_topic[problem.topic] == number
        guests = ~own & (problem.stuck != MAY_MOVE) & (there & ~others[problem.replicas]).any(axis=1)
        rows = np.nonzero(own | guests)[0]
        if len(rows):
            brokers = replace(problem.brokers, retiring=problem.brokers.retiring | others)
            yield OfSet(replace(problem.only(rows), brokers=brokers), rows, own[rows])


def astray(problem: Problem, replicas: Array) -> Array:
    """Returns how many replicas of each partition are on brokers of other sets (int64, P)."""
    if problem.sets is None:
        return np.zeros(len(replicas), np.int64)
    wanted = problem.sets.of_topic[problem.topic]
    return ((problem.sets.of_broker[replicas] != wanted[:, None]) & (replicas >= 0)).sum(axis=1)
