"""Data sets: clusters of a given size as plain lists, placed as Kafka places new topics."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from random import Random
from typing import Final

from state_machines.admin_rules.placement import place

SEED: Final = 20_260
PARTITIONS_PER_TOPIC: Final = 50
REPLICATION: Final = 3
_SIZE: Final = re.compile(r"(?P<partitions>\d+)(?P<unit>[km]?)x(?P<brokers>\d+)")
_UNITS: Final = {"": 1, "k": 1_000, "m": 1_000_000}

SINGLE_TOPICS: Final = "25ktopics"
"""25,000 topics of one partition with two replicas on five brokers: the layout of Kafka 1.1's published figures."""


@dataclass(frozen=True)
class Shape:
    """A cluster of ``topics`` with ``per_topic`` partitions of ``replication`` replicas, on ``brokers`` brokers.

    ``prefix``: begin of the topics' names.
    """

    name: str
    topics: int
    per_topic: int
    replication: int
    brokers: int
    prefix: str = "topic"

    @property
    def partitions(self) -> int:
        """Returns the number of partitions of all topics."""
        return self.topics * self.per_topic

    def __str__(self) -> str:
        return (
            f"{self.partitions:,} partitions in {self.topics:,} topics, RF {self.replication}, {self.brokers} brokers"
        )


def shape(name: str) -> Shape:
    """Parses ``100kx20`` (100,000 partitions in topics of 50, three replicas, 20 brokers), or ``25ktopics``."""
    if name == SINGLE_TOPICS:
        return Shape(name, 25_000, 1, 2, 5)
    found = _SIZE.fullmatch(name)
    if found is None:
        raise ValueError(f"size {name!r}: write it as 100kx20 (partitions x brokers) or {SINGLE_TOPICS}")
    partitions = int(found["partitions"]) * _UNITS[found["unit"]]
    if partitions % PARTITIONS_PER_TOPIC or not partitions or int(found["brokers"]) < REPLICATION:
        raise ValueError(
            f"size {name!r}: partitions come in topics of {PARTITIONS_PER_TOPIC}, brokers are {REPLICATION} or more"
        )
    topics = partitions // PARTITIONS_PER_TOPIC
    return Shape(name, topics, PARTITIONS_PER_TOPIC, REPLICATION, int(found["brokers"]))


@dataclass(frozen=True)
class DataSet:
    """A placed shape. ``replicas[row]`` belongs to partition ``row % per_topic`` of topic ``row // per_topic``."""

    shape: Shape
    topics: list[str] = field(repr=False)
    replicas: list[tuple[int, ...]] = field(repr=False)

    @property
    def brokers(self) -> range:
        """Returns the ids of the brokers."""
        return range(1, self.shape.brokers + 1)

    def name(self, row: int) -> tuple[str, int]:
        """Returns topic and partition of a row."""
        topic, partition = divmod(row, self.shape.per_topic)
        return self.topics[topic], partition

    def rows_of(self, number: int) -> slice:
        """Returns the rows of a topic by its number."""
        return slice(number * self.shape.per_topic, (number + 1) * self.shape.per_topic)


def topic_id(name: str) -> bytes:
    """Returns the 16 bytes of a topic's id, the same in every run."""
    return hashlib.md5(name.encode(), usedforsecurity=False).digest()


def data_set(wanted: Shape, seed: int = SEED) -> DataSet:
    """Places the topics of a shape, each with a start and a shift drawn from ``seed``."""
    random = Random(seed)
    brokers = dict.fromkeys(range(1, wanted.brokers + 1))
    replicas: list[tuple[int, ...]] = []
    shared: dict[tuple[int, ...], tuple[int, ...]] = {}
    for _ in range(wanted.topics):
        start, shift = random.randrange(wanted.brokers), random.randrange(wanted.brokers)
        placed = place(brokers, wanted.per_topic, wanted.replication, start=start, shift=shift)
        replicas += (shared.setdefault(found, found) for found in placed.values())
    return DataSet(wanted, [f"{wanted.prefix}-{number:05d}" for number in range(wanted.topics)], replicas)
