"""ElectLeaders as values (KIP-460): what is asked for, and what became of each partition."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from brokers.wire.errors import Error
from state_machines.decisions.leader_election import ElectionType
from state_machines.model.types import TopicPartition


class ElectLeadersCall(Struct, frozen=True):
    """``partitions`` None: all. ``timeout_s`` bounds the wait for the new leaders, not the election itself.

    ``again``: an earlier attempt of the call may have held the election; then one that is not needed is a success.
    """

    kind: ElectionType
    partitions: Sequence[TopicPartition] | None
    timeout_s: float
    again: bool = False


class Elected(Struct, frozen=True, gc=False):
    """One partition: ``error`` is a Kafka error code, ``why`` what it means here (None: no error)."""

    topic: str
    partition: int
    error: int = Error.NONE
    why: str | None = None


class ElectLeadersReply(Struct, frozen=True):
    """In the order of the call, each partition once.

    Where all were asked for, those that needed no election are left out, as in Kafka.
    """

    results: Sequence[Elected]
