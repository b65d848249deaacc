"""Declares ElectLeaders as values (KIP-460): the requested partitions, and the outcome of each."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from brokers.wire.errors import Error
from state_machines.decisions.leader_election import ElectionType
from state_machines.model.types import TopicPartition
from state_machines.procedures.record import Caller


class ElectLeadersCall(Struct, frozen=True):
    """``partitions`` None: all. ``timeout_s`` bounds the wait for the new leaders, not the election itself.

    ``again``: an earlier attempt of the call may have held the election; then one that is not needed is a success.
    ``caller``: for the journal.
    """

    kind: ElectionType
    partitions: Sequence[TopicPartition] | None
    timeout_s: float
    again: bool = False
    caller: Caller = Caller()


class Elected(Struct, frozen=True, gc=False):
    """Outcome of one partition: ``error`` is a Kafka error code, ``why`` its cause here (None: no error)."""

    topic: str
    partition: int
    error: int = Error.NONE
    why: str | None = None


class ElectLeadersReply(Struct, frozen=True):
    """Results in the order of the call, each partition once.

    A request for all partitions leaves out those that needed no election, as in Kafka.
    """

    results: Sequence[Elected]
