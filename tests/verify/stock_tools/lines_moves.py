"""The command lines of reassignments and elections, and of what is asked while brokers are away."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from tests.verify.stock_tools.steps import Act, Does, Group, Line


def _moves(*partitions: tuple[str, int, Sequence[int]]) -> str:
    listed = [{"topic": topic, "partition": number, "replicas": list(to)} for topic, number, to in partitions]
    return json.dumps({"version": 1, "partitions": listed})


def _partitions(*names: tuple[str, int]) -> str:
    return json.dumps({"partitions": [{"topic": topic, "partition": number} for topic, number in names]})


FILES: Final[Mapping[str, str]] = {
    "broken.json": '{"version": 1, "partitions": [',
    "empty.json": _moves(),
    "records.json": json.dumps({"version": 1, "partitions": [{"topic": "orders", "partition": 0, "offset": 4}]}),
    "topics.json": json.dumps({"version": 1, "topics": [{"topic": "orders"}, {"topic": "single"}]}),
    "topics-missing.json": json.dumps({"version": 1, "topics": [{"topic": "missing"}]}),
    "topics-twice.json": json.dumps({"version": 1, "topics": [{"topic": "orders"}, {"topic": "orders"}]}),
    "move.json": _moves(("orders", 0, (2, 3)), ("orders", 1, (3, 1))),
    "back.json": _moves(("orders", 0, (1, 2, 3)), ("orders", 1, (2, 3, 1))),
    "large.json": _moves(("large", 0, (2, 3))),
    "large-else.json": _moves(("large", 0, (3,))),
    "missing-topic.json": _moves(("missing", 0, (1, 2))),
    "missing-partition.json": _moves(("orders", 17, (1, 2))),
    "unknown-broker.json": _moves(("orders", 0, (1, 9))),
    "no-replica.json": _moves(("orders", 0, ())),
    "negative.json": _moves(("orders", 0, (1, -2))),
    "replica-twice.json": _moves(("orders", 0, (1, 1))),
    "partition-twice.json": _moves(("orders", 0, (1, 2)), ("orders", 0, (2, 3))),
    "one-good-one-missing.json": _moves(("orders", 2, (3, 1)), ("missing", 0, (1, 2))),
    "elect.json": _partitions(("orders", 0), ("orders", 1)),
    "elect-missing.json": _partitions(("orders", 0), ("missing", 0)),
    "elect-twice.json": _partitions(("orders", 0), ("orders", 0)),
}
"""The JSON files of the lines, by name."""

REASSIGN: Final = "kafka-reassign-partitions"
ELECT: Final = "kafka-leader-election"

MOVES: Final = Group(
    "Reassignments",
    (
        Line(f"{REASSIGN} --list"),
        Line(f"{REASSIGN} --generate --topics-to-move-json-file {{files}}/topics.json --broker-list 1,2,3"),
        Line(
            f"{REASSIGN} --generate --topics-to-move-json-file {{files}}/topics.json --broker-list 1,2,3 "
            "--disable-rack-aware"
        ),
        Line(f"{REASSIGN} --generate --topics-to-move-json-file {{files}}/topics.json --broker-list 1"),
        Line(f"{REASSIGN} --generate --topics-to-move-json-file {{files}}/topics.json --broker-list 1,1"),
        Line(f"{REASSIGN} --generate --topics-to-move-json-file {{files}}/topics.json --broker-list 1,2,9"),
        Line(f"{REASSIGN} --generate --topics-to-move-json-file {{files}}/topics-missing.json --broker-list 1,2,3"),
        Line(f"{REASSIGN} --generate --topics-to-move-json-file {{files}}/topics-twice.json --broker-list 1,2,3"),
        Line(f"{REASSIGN} --generate --topics-to-move-json-file {{files}}/broken.json --broker-list 1,2,3"),
        Line(f"{REASSIGN} --execute --reassignment-json-file {{files}}/broken.json"),
        Line(f"{REASSIGN} --execute --reassignment-json-file {{files}}/empty.json"),
        Line(f"{REASSIGN} --execute --reassignment-json-file {{files}}/missing-topic.json"),
        Line(f"{REASSIGN} --execute --reassignment-json-file {{files}}/missing-partition.json"),
        Line(f"{REASSIGN} --execute --reassignment-json-file {{files}}/unknown-broker.json"),
        Line(f"{REASSIGN} --execute --reassignment-json-file {{files}}/no-replica.json"),
        Line(f"{REASSIGN} --execute --reassignment-json-file {{files}}/negative.json"),
        Line(f"{REASSIGN} --execute --reassignment-json-file {{files}}/replica-twice.json"),
        Line(f"{REASSIGN} --execute --reassignment-json-file {{files}}/partition-twice.json"),
        Line(f"{REASSIGN} --execute --reassignment-json-file {{files}}/one-good-one-missing.json"),
        Line(f"{REASSIGN} --execute --verify --reassignment-json-file {{files}}/move.json"),
        Line(f"{REASSIGN} --execute --reassignment-json-file {{files}}/move.json"),
        Line(f"{REASSIGN} --verify --reassignment-json-file {{files}}/move.json", until="(?s)-0 is comp.*-1 is comp"),
        Line("kafka-topics --describe --topic orders"),
        Line(f"{REASSIGN} --verify --reassignment-json-file {{files}}/back.json"),
        Line(f"{REASSIGN} --execute --reassignment-json-file {{files}}/back.json --throttle 100000000"),
        Line(
            f"{REASSIGN} --verify --reassignment-json-file {{files}}/back.json --preserve-throttles",
            until="(?s)-0 is comp.*-1 is comp",
        ),
        Line("kafka-configs --describe --topic orders"),
        Line(f"{REASSIGN} --verify --reassignment-json-file {{files}}/back.json"),
        Line("kafka-configs --describe --topic orders", until=r"orders are:\n$"),
        Line(f"{REASSIGN} --verify --reassignment-json-file {{files}}/missing-topic.json"),
        Line("kafka-topics --create --topic large --replica-assignment 1 --config min.insync.replicas=1"),
        Act(Does.WRITES, "large", 40, 50_000),
        Line(f"{REASSIGN} --execute --reassignment-json-file {{files}}/large.json --throttle 1"),
        Line(f"{REASSIGN} --list"),
        Line(f"{REASSIGN} --verify --reassignment-json-file {{files}}/large.json"),
        Line("kafka-topics --describe --topic large"),
        Line("kafka-topics --describe --under-replicated-partitions --topic large"),
        Line("kafka-topics --alter --topic large --partitions 3"),
        Line(f"{REASSIGN} --execute --reassignment-json-file {{files}}/large-else.json"),
        Line(f"{REASSIGN} --execute --reassignment-json-file {{files}}/large-else.json --additional --throttle 2"),
        Line(f"{REASSIGN} --list"),
        Line(f"{REASSIGN} --cancel --reassignment-json-file {{files}}/large-else.json --preserve-throttles"),
        Line(f"{REASSIGN} --cancel --reassignment-json-file {{files}}/large-else.json"),
        Line(f"{REASSIGN} --cancel --reassignment-json-file {{files}}/missing-topic.json"),
        Line(f"{REASSIGN} --cancel --reassignment-json-file {{files}}/broken.json"),
        Line(f"{REASSIGN} --cancel"),
        Line(f"{REASSIGN} --list"),
        Line("kafka-topics --describe --topic large"),
        Line("kafka-configs --describe --topic large"),
    ),
)
ELECTIONS: Final = Group(
    "Elections",
    (
        Line(f"{ELECT} --election-type preferred --all-topic-partitions"),
        Line(f"{ELECT} --election-type preferred --all-topic-partitions"),
        Line(f"{ELECT} --election-type preferred --topic orders --partition 0"),
        Line(f"{ELECT} --election-type unclean --topic orders --partition 0"),
        Line(f"{ELECT} --election-type unclean --all-topic-partitions"),
        Line(f"{ELECT} --election-type preferred --topic missing --partition 0"),
        Line(f"{ELECT} --election-type unclean --topic missing --partition 0"),
        Line(f"{ELECT} --election-type preferred --topic orders --partition 17"),
        Line(f"{ELECT} --election-type preferred --path-to-json-file {{files}}/elect.json"),
        Line(f"{ELECT} --election-type preferred --path-to-json-file {{files}}/elect-missing.json"),
        Line(f"{ELECT} --election-type preferred --path-to-json-file {{files}}/elect-twice.json"),
        Line(f"{ELECT} --election-type preferred --path-to-json-file {{files}}/broken.json"),
        Line(f"{ELECT} --election-type fair --all-topic-partitions"),
        Line(f"{ELECT} --election-type preferred"),
        Line(f"{ELECT} --election-type preferred --topic orders"),
        Line(f"{ELECT} --all-topic-partitions"),
    ),
)
OUTAGES: Final = Group(
    "Brokers are away",
    (
        Line("kafka-topics --create --topic risky --replica-assignment 3:1 --config min.insync.replicas=1"),
        Act(Does.STOPS, "1"),
        Line("kafka-topics --describe --topic orders"),
        Line("kafka-topics --describe --under-replicated-partitions --topic orders"),
        Line("kafka-topics --describe --unavailable-partitions --exclude-internal"),
        Line("kafka-topics --describe --at-min-isr-partitions --topic orders"),
        Line(f"{ELECT} --election-type preferred --topic orders --partition 0"),
        Line(f"{ELECT} --election-type unclean --topic single --partition 0"),
        Line("kafka-topics --create --topic wide --replication-factor 3"),
        Line("kafka-topics --create --topic narrow --replica-assignment 2:3,3:2"),
        Line("kafka-topics --delete --topic narrow"),
        Line(f"{REASSIGN} --execute --reassignment-json-file {{files}}/back.json"),
        Line("kafka-log-dirs --describe --topic-list orders"),
        Act(Does.WRITES, "risky", 5),
        Act(Does.STOPS, "3"),
        Act(Does.STARTS, "1"),
        Line("kafka-topics --describe --topic risky"),
        Line("kafka-topics --describe --unavailable-partitions --topic risky"),
        Line("kafka-topics --describe --under-min-isr-partitions --topic risky"),
        Line(f"{ELECT} --election-type preferred --topic risky --partition 0"),
        Line(f"{ELECT} --election-type unclean --topic risky --partition 0"),
        Line("kafka-topics --describe --topic risky"),
        Act(Does.STARTS, "3"),
        Line("kafka-topics --describe --under-replicated-partitions", until="^$"),
        Line(f"{ELECT} --election-type preferred --path-to-json-file {{files}}/elect.json"),
        Line(f"{ELECT} --election-type preferred --all-topic-partitions"),
    ),
)
