"""The table of events: every kind has a row, and every watch one kind."""

from __future__ import annotations

from collections import Counter

import pytest

from brokers.wire.messages import CARRIED
from controller.kafka.path.events import EventKind
from controller.kafka.requests.calls import AS_CARRIED
from controller.kafka.requests.codec import TRANSLATIONS
from controller.kafka.term.dispatch import EVENTS, HANDLERS, RAISED, REREAD, Watched, changed, controller_state
from controller.metrics.kafka_metrics import KafkaState
from metadata_store import paths
from metadata_store.nodes.cordon_node import PATH as CORDONS
from metadata_store.nodes.endpoint_znode import endpoint_path
from metadata_store.nodes.pause_node import PATH as PAUSE
from metadata_store.port import WatchEvent, WatchKind

DAEMON = 1_000_001
STATE = paths.state("t", 3)

ZNODES: list[tuple[str, list[tuple[EventKind, str | None]]]] = [
    (paths.BROKER_IDS, [(EventKind.BROKER_CHANGE, None)]),
    (paths.broker(7), [(EventKind.BROKER_CHANGE, None)]),
    (paths.TOPICS, [(EventKind.TOPIC_CHANGE, None)]),
    (paths.topic("t"), [(EventKind.PARTITION_MODIFICATIONS, "t")]),
    (STATE, [(EventKind.REASSIGNED_STATE, None)]),
    (paths.DELETE_TOPICS, [(EventKind.TOPIC_DELETION, None)]),
    (paths.ISR_CHANGES, [(EventKind.ISR_NOTIFICATION, None)]),
    (paths.REASSIGN_PARTITIONS, [(EventKind.REASSIGN_PARTITIONS, None)]),
    (paths.LOG_DIR_EVENTS, [(EventKind.LOG_DIR_EVENT, None)]),
    (paths.PREFERRED_ELECTION, [(EventKind.PREFERRED_ELECTION, None)]),
    (paths.CONFIG_CHANGES, [(EventKind.CONFIG_CHANGE, None)]),
    (paths.topic_config("t"), [(EventKind.CONFIG_CHANGE, None)]),
    (endpoint_path(DAEMON), [(EventKind.ENDPOINT_CHANGE, None)]),
    (CORDONS, [(EventKind.CORDON_CHANGE, None)]),
    (PAUSE, [(EventKind.PAUSE_CHANGE, None)]),
    ("/kafka-acl-changes", [(EventKind.ACL_CHANGE, "/kafka-acl-changes")]),
    (paths.CONTROLLER, []),
]


def raised(path: str, kind: WatchKind = WatchKind.CHANGED, *, repaired: bool = False) -> list[tuple[str, str | None]]:
    found = changed(WatchEvent(path, kind), DAEMON, repaired=repaired)
    return [(RAISED[watched], detail) for watched, detail in found]


def test_every_kind_has_a_row() -> None:
    assert EVENTS.keys() == set(EventKind)
    own = {EventKind.FAILOVER, EventKind.RECONNECTED, EventKind.PROCEDURES}
    assert set(EventKind) - HANDLERS.keys() == own, "the term's own"


def test_every_watch_raises_one_kind() -> None:
    assert Counter(row.watch for row in EVENTS.values() if row.watch is not None) == Counter(Watched)


@pytest.mark.parametrize(("path", "expected"), ZNODES, ids=[path for path, _ in ZNODES])
def test_a_watch_raises_the_event_that_reads_the_znode(path: str, expected: list[tuple[str, str | None]]) -> None:
    assert raised(path) == expected


def test_a_topic_that_is_deleted_is_missed_in_the_list_of_topics() -> None:
    assert raised(paths.topic("t"), WatchKind.DELETED) == [
        (EventKind.TOPIC_CHANGE, None),
        (EventKind.PARTITION_MODIFICATIONS, "t"),
    ]


def test_a_state_znode_that_was_malformed_is_read_singly() -> None:
    assert raised(STATE, repaired=True) == [(EventKind.REPAIRED_STATE, STATE)]


def test_registrations_are_read_first_after_a_reconnect() -> None:
    """Elections after it know which brokers are live."""
    assert REREAD[0] is EventKind.BROKER_CHANGE
    unwatched = {EventKind.PARTITION_MODIFICATIONS, EventKind.REASSIGNED_STATE, EventKind.REPAIRED_STATE}
    assert set(REREAD) == set(RAISED.values()) - unwatched | {EventKind.REASSIGNED_STATES}


def test_every_carried_call_waits_in_one_kind_of_event() -> None:
    assert AS_CARRIED.keys() | TRANSLATIONS.keys() == CARRIED
    assert not AS_CARRIED.keys() & TRANSLATIONS.keys()
    kinds = [*AS_CARRIED.values(), *(translation.kind for translation in TRANSLATIONS.values())]
    assert len(set(kinds)) == len(CARRIED)
    assert set(kinds) <= HANDLERS.keys()


@pytest.mark.kafka("ControllerEventManagerTest.testEventWithoutRateMetrics")
def test_the_state_of_kafkas_controller_while_an_event_is_handled() -> None:
    assert controller_state(None) == controller_state(EventKind.LOST_IDS) == 0
    assert controller_state(EventKind.FAILOVER) == 1
    assert controller_state(EventKind.CONTROLLED_SHUTDOWN) == 8
    assert len({state.timer for state in KafkaState}) == len({state.number for state in KafkaState}) == 16
