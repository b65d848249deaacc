"""Records facts: the one table of what a fact writes to the journal."""

from __future__ import annotations

from collections.abc import Callable

from controller.kafka.journal.term_journal import KafkaJournal
from state_machines.journal.events import Kind
from state_machines.model import facts, topic_facts
from state_machines.model.cluster import Cluster
from state_machines.model.facts import Entered, Fact
from state_machines.model.types import Broker


def record(
    journal: KafkaJournal, cluster: Cluster, fact: Fact, entered: Entered, session_ms: Callable[[Broker], int | None]
) -> None:
    """Records a fact that is in the model; most facts have no row.

    ``session_ms``: time-out of a broker's session, None: unknown.
    """
    match fact:
        case topic_facts.StatesRead() | topic_facts.WritesGivenUp():
            journal.observed(cluster, entered.changes)
        case topic_facts.TopicRead():
            for _ in entered.topics if not fact.loaded else ():
                journal.event(Kind.TOPIC_CREATE, topic=fact.topic.name)
        case topic_facts.TopicGone():
            journal.event(Kind.TOPIC_DELETE, topic=fact.topic)
        case facts.BrokersRead():
            journal.gone(entered.gone, session_ms)
            journal.brokers(Kind.BROKER_UP, entered.back)
        case facts.BrokersUp() | facts.ShutdownUndone():
            journal.brokers(Kind.BROKER_UP, entered.back)
        case facts.ShutdownRequested():
            journal.brokers(Kind.BROKER_SHUTDOWN_BEGIN, [fact.broker])
        case facts.ShutdownEnded():
            journal.brokers(Kind.BROKER_SHUTDOWN_END, [fact.broker])
        case topic_facts.WaitsGivenUp():
            journal.given_up(fact.topic, fact.logs, fact.principal, fact.reason)
        case _:
            pass
