"""Reports the outcome of a decision, in numbers and in one sentence, and names the reasons of decisions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Final

from controller.process.wording import counted
from state_machines.decisions.alter_partition import ISR_CHANGED
from state_machines.journal.audit import BY_LEADER
from state_machines.model.decision import Change, Refusal
from state_machines.model.types import TopicPartition

UNCLEAN_SHOWN: Final = 5
"""Partitions of unclean elections that are named."""
BROKERS_SHOWN: Final = 5
"""Brokers that a sentence about ISRs names."""


class Reason(StrEnum):
    """The cause of a decision, in the column ``reason`` of a row. Rows of changes that were only read have others."""

    BROKER_FAILURE = "broker_failure"
    BROKER_RETURN = "broker_return"
    CONTROLLED_SHUTDOWN = "controlled_shutdown"
    NEW_TOPIC = "new_topic"
    ISR_BY_LEADER = BY_LEADER
    FAILOVER = "failover"
    TAKEN_UP = "taken_up"
    REASSIGNMENT = "reassignment"
    ELECTION = "election"
    UNCLEAN_ALLOWED = "unclean_allowed"
    LOG_DIRECTORY = "log_directory"
    DELETION = "deletion"
    DRAIN = "drain"


class Report:
    """Counts of one committed decision. ``why`` is the event that caused it, ``reason`` the same in one word.

    ``doubted``: rows that were read again because their ISR prevented an election.
    """

    def __init__(self, why: str, reason: str = "") -> None:
        self.why = why
        self.reason = reason
        self.decided_us = 0
        self.done: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.unclean = 0
        self.uncleanly: list[int] = []
        self.written = 0
        self.conflicts = 0
        self.unknown = 0
        self.failed: Counter[str] = Counter()
        self.moved_leaders = 0
        self.joined: Counter[int] = Counter()
        self.left: Counter[int] = Counter()
        self.doubted: frozenset[int] = frozenset()

    def applied(self, changes: Iterable[Change]) -> None:
        """Counts changes that ZooKeeper holds now."""
        for change in changes:
            self.done[change.why] += 1
            if change.why == ISR_CHANGED:
                self._isr_changed(change)
            elif change.after.leader != change.before.leader:
                self.moved_leaders += change.after.leader >= 0
            if change.after.leader not in change.before.isr:
                self._unclean(change)

    def _isr_changed(self, change: Change) -> None:
        self.joined.update(set(change.after.isr).difference(change.before.isr))
        self.left.update(set(change.before.isr).difference(change.after.isr))

    def read_back(self, changes: Iterable[Change], epoch: int) -> None:
        """Counts changes that were read again: those of this controller ``epoch`` are ours, with a lost reply."""
        for change in changes:
            if change.after.controller_epoch == epoch:
                self._unclean(change)

    def _unclean(self, change: Change) -> None:
        before, after = change.before, change.after
        if after.leader < 0 or after.leader == before.leader or not before.has_leadership or after.leader in before.isr:
            return
        self.unclean += 1
        if len(self.uncleanly) < UNCLEAN_SHOWN:
            self.uncleanly.append(change.entity)

    def refuse(self, refusals: Iterable[Refusal]) -> None:
        """Counts refused transitions by reason."""
        self.refused.update(refusal.why for refusal in refusals)

    def unclean_sentence(self, name: Callable[[int], TopicPartition]) -> str:
        """Returns a sentence about unclean elections, with some partitions by name."""
        shown = ", ".join(str(name(i)) for i in self.uncleanly)
        more = f" and {self.unclean - len(self.uncleanly)} more" if self.unclean > len(self.uncleanly) else ""
        return (
            f"{self.why}: unclean elections, as allowed or requested: {shown}{more} are led by replicas that were not "
            "in sync; records may be lost"
        )

    def add(self, other: Report) -> None:
        """Adds the counts of another portion of the same decision."""
        for mine, more in ((self.done, other.done), (self.refused, other.refused), (self.failed, other.failed)):
            mine.update(more)
        self.joined.update(other.joined)
        self.left.update(other.left)
        self.uncleanly += other.uncleanly[: UNCLEAN_SHOWN - len(self.uncleanly)]
        self.unclean += other.unclean
        self.written += other.written
        self.conflicts += other.conflicts
        self.unknown += other.unknown
        self.moved_leaders += other.moved_leaders
        self.doubted |= other.doubted

    def sentence(self) -> str:
        """Returns one line for the log."""
        parts = [f"{count} x {why}" for why, count in self.done.most_common() if why != ISR_CHANGED]
        parts += isr_sentences(self.joined, self.left)
        if self.refused:
            parts.append("not done: " + ", ".join(f"{n} x {why}" for why, n in self.refused.most_common(4)))
        if self.failed:
            parts.append("failed: " + ", ".join(f"{n} x {why}" for why, n in self.failed.most_common(4)))
        if self.conflicts:
            parts.append(f"{self.conflicts} decided again after a conflict")
        if self.unknown:
            parts.append(f"{self.unknown} read back after a lost reply")
        return f"{self.why}: {'; '.join(parts) or 'nothing to change'}"


def isr_sentences(joined: Counter[int], left: Counter[int]) -> list[str]:
    """Describes the ISRs that brokers left and joined; names the brokers with most partitions."""
    return [*_of_brokers(left, "left"), *_of_brokers(joined, "joined")]


def _of_brokers(counts: Counter[int], verb: str) -> list[str]:
    named = [
        f"broker {broker} {verb} the ISR of {counted(n, 'partition')}"
        for broker, n in counts.most_common(BROKERS_SHOWN)
    ]
    more = len(counts) - len(named)
    return [*named, f"{more} more brokers {verb} ISRs"] if more else named
