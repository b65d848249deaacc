"""Has a term stand still when its lease runs out, and go on afterwards; neither keeps the term in memory."""

from __future__ import annotations

from controller.kafka.journal.term_journal import KafkaJournal
from controller.kafka.path.event_kinds import EventKind
from controller.kafka.path.event_queue import EventQueue
from controller.metrics.counters import Counters
from state_machines.journal.events import Kind


def stand_still(queue: EventQueue, journal: KafkaJournal, counters: Counters) -> None:
    """Refuses callers: it may be long until the term goes on."""
    counters.standstills += 1
    journal.event(Kind.CTL_PHASE, why="suspended: the lease ran out, nothing is written or sent, calls are refused")
    queue.refuse_calls()


def go_on(queue: EventQueue, journal: KafkaJournal, stood_still: bool) -> None:
    """Has everything read again that may have changed; calls are taken after that."""
    if stood_still:
        journal.event(Kind.CTL_PHASE, why="ZooKeeper answers again, session and claim are unchanged: the term goes on")
    queue.signal(EventKind.RECONNECTED)
