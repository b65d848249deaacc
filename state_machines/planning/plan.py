"""Declares a plan: its moves, its refusals and its summary."""

from __future__ import annotations

from typing import Annotated, Final

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


class Refused(Struct, frozen=True, gc=False):
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
    refused: tuple[Refused, ...]
    summary: Summary
