"""Implements the partition state machine (Kafka ``PartitionStateMachine``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from state_machines.machines import selectors
from state_machines.machines.selectors import Election, NoLeader, Replicas, Selector
from state_machines.machines.table import StateMachine
from state_machines.model.types import PartitionState

NEW, ONLINE, OFFLINE, NON_EXISTENT = (
    PartitionState.NEW,
    PartitionState.ONLINE,
    PartitionState.OFFLINE,
    PartitionState.NON_EXISTENT,
)

Unclean = Callable[[int], bool]
"""Whether a topic (by index) allows unclean elections."""


def never_unclean(_topic: int) -> bool:
    """Allows no topic an unclean election, by default."""
    return False


class PartitionStateMachine(StateMachine[PartitionState, int]):
    """State machine of a partition. Entities are row indexes."""

    ENTITY = "partition"
    VALID_PREVIOUS = {
        NEW: frozenset({NON_EXISTENT}),
        ONLINE: frozenset({NEW, ONLINE, OFFLINE}),
        OFFLINE: frozenset({NEW, ONLINE, OFFLINE}),
        NON_EXISTENT: frozenset({OFFLINE}),
    }

    def state(self, entity: int) -> PartitionState:
        """Returns the state on the draft."""
        return self.draft.row(entity).state

    def row_of(self, entity: int) -> int:
        """Returns the entity: a partition is its row."""
        return entity

    def create(self, entities: Iterable[int], why: str) -> None:
        """Moves NonExistent -> New: the assignment is known, nothing is written."""
        self._mark(entities, NEW, why)

    def take_offline(self, entities: Iterable[int], why: str) -> None:
        """Moves New, Online, Offline -> Offline: only marked."""
        self._mark(entities, OFFLINE, why)

    def remove(self, entities: Iterable[int], why: str) -> None:
        """Moves Offline -> NonExistent: only marked."""
        self._mark(entities, NON_EXISTENT, why)

    def _mark(self, entities: Iterable[int], target: PartitionState, why: str) -> None:
        for i in self.movable(entities, target):
            self.draft.move(i, target, why)

    def elect(self, entities: Iterable[int], selector: Selector, unclean: Unclean = never_unclean) -> list[int]:
        """Moves New, Online, Offline -> Online with ``selector``; returns the entities that stay without a leader.

        The selector is called once per distinct (replicas, ISR, failed log directories). ``unclean`` is called only for
        topics where the selector finds no leader although a replica is live, which leads if that is allowed.
        """
        draft, failed_on = self.draft, self.draft.cluster.failed
        seen: dict[tuple[Replicas, Replicas, frozenset[int]], Election | NoLeader] = {}
        dirty_rule = partial(selectors.offline, live=draft.live, unclean=True)
        last_resort = selectors.last(dirty_rule, draft.outranked, draft.drained)
        failed: list[int] = []
        by_isr: dict[tuple[Replicas, Replicas, frozenset[int]], bool] = {}
        for i in self.movable(entities, ONLINE):
            row = draft.row(i)
            key = row.assignment.replicas, row.isr, failed_on(i)
            found = seen.get(key)
            if found is None:
                found = seen[key] = selector(*key)
            if isinstance(found, NoLeader) and unclean is not never_unclean:
                dirty = last_resort(*key)
                found = dirty if isinstance(dirty, Election) and unclean(row.topic) else found
            if isinstance(found, NoLeader):
                if key not in by_isr:
                    by_isr[key] = isinstance(selector(key[0], key[0], key[2]), Election)
                draft.refuse(i, "ONLINE", found.why, by_isr=by_isr[key])
                failed.append(i)
            else:
                draft.lead(i, found.leader, found.isr, found.why, recovering=self._recovering(found))
        return failed

    def elect_leaderless(self, entities: Iterable[int], unclean: Unclean = never_unclean) -> list[int]:
        """Elects missing leaders (triggerOnline): New by the initial rule, Offline by the offline selector.

        Online partitions are passed over. So are partitions of topics to be deleted, unless a reassignment must end
        first.
        """
        new: list[int] = []
        offline: list[int] = []
        deletions, reassigning = self.draft.cluster.deletions, self.draft.cluster.reassigning
        for i in entities:
            row = self.draft.row(i)
            if row.state is not ONLINE and (row.topic not in deletions or i in reassigning):
                (new if row.state is NEW else offline).append(i)
        first, next_one = (
            selectors.last(partial(rule, live=self.draft.live), self.draft.outranked, self.draft.drained)
            for rule in (selectors.initial, selectors.offline)
        )
        return self.elect(new, first) + self.elect(offline, next_one, unclean)

    def _recovering(self, found: Election) -> bool | None:
        """Returns RECOVERING after an unclean election where brokers know it (IBP >= 3.2, KIP-704); else unchanged."""
        return True if found.unclean and self.draft.cluster.recovery_state else None
