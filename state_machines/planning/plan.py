"""Declares a plan: its moves, its refusals and its summary, and estimates how long its moves take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Annotated, Final, NamedTuple, Protocol

from msgspec import Meta, Struct

INT32_MAX: Final = 2**31 - 1
TOPIC_CHARS_MAX: Final = 249
"""Characters of a topic's name (Kafka ``Topic``)."""

Number = Annotated[int, Meta(ge=0, le=INT32_MAX)]
TopicName = Annotated[str, Meta(min_length=1, max_length=TOPIC_CHARS_MAX)]


class Move(Struct, frozen=True, gc=False):
    """The replicas of one partition before and after, the preferred leader first.

    ``bytes``: what its added replicas copy together; None where the size of the partition is unknown.
    """

    topic: TopicName
    partition: Number
    origin: tuple[Number, ...]
    target: tuple[Number, ...]
    bytes: Annotated[int, Meta(ge=0)] | None = None

    @property
    def name(self) -> str:
        """Returns topic and partition as Kafka's tools print them."""
        return f"{self.topic}-{self.partition}"

    @property
    def added(self) -> tuple[int, ...]:
        """Returns the brokers that get a replica."""
        return tuple(b for b in self.target if b not in self.origin)

    @property
    def removed(self) -> tuple[int, ...]:
        """Returns the brokers that lose their replica."""
        return tuple(b for b in self.origin if b not in self.target)


class NotMoved(Struct, frozen=True, gc=False):
    """A partition (``orders-3``), topic, broker or field without a move; ``why`` names what would make it succeed."""

    subject: str
    why: str


class BrokerLoad(Struct, frozen=True, gc=False):
    """Counts of one broker before and after; ``first`` replicas are preferred leaders.

    ``bytes_in``: what it copies, without partitions of unknown size.
    """

    broker: int
    replicas_before: int
    replicas_after: int
    first_before: int
    first_after: int
    moves_in: int
    moves_out: int
    bytes_in: int


class Summary(Struct, frozen=True):
    """What a plan costs and gains.

    ``bytes_to_move`` leaves out the ``sizes_unknown`` moves whose size is not known. Rack violations count partitions
    whose replicas could be on more racks than they are.
    """

    bytes_to_move: int
    sizes_unknown: int
    brokers: tuple[BrokerLoad, ...]
    rack_violations_before: int
    rack_violations_after: int


class Plan(Struct, frozen=True):
    """Moves by topic and partition. A plan with refusals is valid for what it moves, but does not reach its goal."""

    cluster_id: str
    goal: str
    moves: tuple[Move, ...]
    refused: tuple[NotMoved, ...]
    summary: Summary


class CopyingMove(Protocol):
    """A move that copies ``bytes`` in all, None or 0 where that is not known."""

    @property
    def origin(self) -> tuple[int, ...]:
        """Replicas before."""

    @property
    def added(self) -> tuple[int, ...]:
        """Brokers that get a replica."""

    @property
    def bytes(self) -> int | None:
        """Bytes of all added replicas."""


class CopyingPartition(Protocol):
    """A move of a partition."""

    @property
    def topic(self) -> str:
        """Name of the topic."""

    @property
    def partition(self) -> int:
        """Number of the partition."""

    @property
    def added(self) -> tuple[int, ...]:
        """Brokers that get a replica."""


class Expected(NamedTuple):
    """The time of a plan, and the broker and direction (``receives``, ``sends``) that it depends on."""

    seconds: int
    broker: int
    direction: str
    bytes: int


def expected(moves: Iterable[CopyingMove], rate_bytes_per_s: int) -> Expected | None:
    """Returns the time that the busiest broker needs; None where nothing is to be copied.

    The first replica counts as the source, because it usually leads. Replication beside the plan is not counted.
    """
    busy: Counter[tuple[int, str]] = Counter()
    for move in moves:
        for broker in move.added:
            share = (move.bytes or 0) // len(move.added)
            busy[broker, "receives"] += share
            busy[move.origin[0] if move.origin else broker, "sends"] += share
    if not busy.total():
        return None
    (broker, direction), most = min(busy.items(), key=lambda item: (-item[1], item[0]))
    return Expected(-(-most // rate_bytes_per_s), broker, direction, most)


class Received(NamedTuple):
    """What producers write at the same time to the partitions that a broker copies."""

    broker: int
    bytes_per_s: int


def received(moves: Iterable[CopyingPartition], traffic: Mapping[tuple[str, int], float], most: int) -> Received | None:
    """Returns the broker that has to copy most traffic, with ``most`` moves at a time; None where there is none.

    A throttled copy at a lower rate than this never catches up. ``traffic``: bytes per second by topic and partition.
    """
    by_broker: dict[int, list[float]] = {}
    for move in moves:
        for broker in move.added:
            by_broker.setdefault(broker, []).append(traffic.get((move.topic, move.partition), 0.0))
    sums = {broker: round(sum(sorted(found, reverse=True)[:most])) for broker, found in by_broker.items()}
    busiest = min(sums.items(), key=lambda item: (-item[1], item[0]), default=(0, 0))
    return Received(*busiest) if busiest[1] else None
