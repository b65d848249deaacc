"""Declares the parts of a decision as values: changes, moves, refusals (see :mod:`state_machines.machines.draft`)."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from msgspec import Struct

from state_machines.model.types import Assignment, PartitionRow, PartitionState, ReplicaState


class Change(Struct, frozen=True, gc=False):
    """A row before and after, with the constant reason of the rule that changed it.

    It serves as the conditional write (where ``writes``), as the move that is applied to the model and as what the
    brokers are sent. ``after`` carries the partition epoch that the znode has once the write is applied. ``steps`` has
    the reason of each leader epoch that was drawn, ``states`` each state that was entered, both in order: a write may
    merge several. Facts have neither.
    """

    entity: int
    before: PartitionRow
    after: PartitionRow
    why: str
    is_new: bool = False
    steps: tuple[str, ...] = ()
    states: tuple[PartitionState, ...] = ()

    @property
    def creates(self) -> bool:
        """Checks whether the write creates the state znode (NewPartition -> OnlinePartition)."""
        return not self.before.has_leadership and self.after.has_leadership

    @property
    def is_late(self) -> bool:
        """Checks whether a partition has an unknown history: brokers may know its leader epoch with another content.

        A broker ignores a leader epoch that it knows, and may create an empty log for a replica that is sent as new.
        """
        return not self.before.has_leadership and self.after.has_leadership and not self.is_new

    @property
    def writes(self) -> bool:
        """Checks whether the change needs a write: the partition epoch moves exactly when the znode is written."""
        return self.after.version != self.before.version


class ReplicaMove(Struct, frozen=True, gc=False):
    """A replica's transition.

    ``stop``: its broker is sent StopReplica (with ``delete`` or without). ``order``: its broker is sent the present
    leadership by LeaderAndIsr (``is_new``: as of a replica that may have no log yet), every broker the metadata.
    ``passed``: the states that were entered before ``state``, where several transitions are one move.
    """

    entity: int
    broker: int
    state: ReplicaState
    why: str
    stop: bool = False
    delete: bool = False
    order: bool = False
    is_new: bool = False
    passed: tuple[ReplicaState, ...] = ()


class TopicChange(Struct, frozen=True, gc=False):
    """A conditional rewrite of a topic znode: new assignments by partition number and, if given, a topic id.

    ``czxid`` is of the incarnation that it changes: the next one of the same name may have the same ``version``.
    ``dropped``: partitions that are taken out.
    """

    topic: str
    version: int
    czxid: int
    partitions: dict[int, Assignment]
    topic_id: bytes | None
    why: str
    dropped: tuple[int, ...] = ()


class Transition(NamedTuple):
    """A requested transition that the machine's table allows; ``broker`` is None for a partition."""

    entity: int
    broker: int | None
    state: str
    target: str


class Refusal(Struct, frozen=True, gc=False):
    """A change that was not made: its row, its target state, and the reason, which names the remedy."""

    entity: int
    target: str
    why: str


class Decision(Struct, frozen=True):
    """The result of a decide function: at most one write per znode.

    ``metadata`` lists rows that did not change themselves but whose offline replicas did: brokers are sent those.
    ``doubted``: rows that are not written and would be decided otherwise with another ISR.
    """

    writes: list[Change]
    moves: list[Change]
    replica_moves: list[ReplicaMove]
    metadata: list[int]
    refusals: list[Refusal]
    doubted: frozenset[int] = frozenset()

    def without(self, rows: Collection[int]) -> Decision:
        """Returns the decision without some rows."""
        return Decision(
            self.writes,
            [change for change in self.moves if change.entity not in rows],
            [move for move in self.replica_moves if move.entity not in rows],
            [i for i in self.metadata if i not in rows],
            [refusal for refusal in self.refusals if refusal.entity not in rows],
        )

    @property
    def empty(self) -> bool:
        """Checks whether there is nothing to write, to move or to send."""
        return not (self.writes or self.moves or self.replica_moves or self.metadata)
