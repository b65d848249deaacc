"""Lists calls of clients that leave records, and reads those records and what the calls changed."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from msgspec import Struct

from brokers.wire.messages.partitions import (
    AlterPartitionReassignmentsRequest,
    ReassignedPartition,
    ReassignedTopic,
)
from brokers.wire.messages.security import FeatureUpdate, UpdateFeaturesRequest
from brokers.wire.messages.topics import DeleteTopicsRequest
from controller.procedures.recorder import CallKind
from controller.role import own_znodes as own
from metadata_store import paths
from metadata_store.codecs.cluster import FeatureRange, Features, encode_features
from metadata_store.records import codec
from state_machines.procedures.record import Record
from tests.kit.kafka.calls import create, grow, scram, topic, upsert
from tests.kit.kafka.world import KafkaWorld

FIRST: Final = f"{own.PROCEDURES}/0000000001"
ALICE: Final = {"principal": "User:alice", "client_id": "admin-1"}


class Call(NamedTuple):
    """A call. ``writes``: the paths of its multi besides the fence and the record; ``result``: in its record."""

    kind: CallKind
    body: Struct
    writes: tuple[str, ...]
    result: str


CALLS: Final = (
    Call(
        CallKind.CREATE_TOPICS,
        create(topic("new", -1, -1, (1, 2)), topic("t", 1, 1)),
        (paths.topic_config("new"), paths.topic("new")),
        "created 1 topic: new; refused: 1 x TOPIC_ALREADY_EXISTS",
    ),
    Call(
        CallKind.CREATE_PARTITIONS,
        grow("t", 3, (2, 1)),
        (paths.topic("t"),),
        "added partitions to 1 topic: t to 3",
    ),
    Call(
        CallKind.DELETE_TOPICS,
        DeleteTopicsRequest(5_000, ("t",)),
        (paths.deletion("t"),),
        "marked for deletion 1 topic: t",
    ),
    Call(
        CallKind.ALTER_REASSIGNMENTS,
        AlterPartitionReassignmentsRequest(
            5_000,
            (ReassignedTopic("t", (ReassignedPartition(0, (2, 3)), ReassignedPartition(9, (1,)))),),
        ),
        (paths.topic("t"),),
        "begun 1 partition: t-0 to [2, 3]; refused: 1 x UNKNOWN_TOPIC_OR_PARTITION",
    ),
    Call(
        CallKind.ALTER_SCRAM_CREDENTIALS,
        scram(upsert("bob")),
        (paths.config("users", "bob"), paths.CONFIG_CHANGE_PREFIX),
        "changed the SCRAM credentials of 1 user: bob",
    ),
    Call(
        CallKind.UPDATE_FEATURES,
        UpdateFeaturesRequest(5_000, (FeatureUpdate("f", 0, upgrade_type=3),)),
        (paths.FEATURE,),
        "deleted 1 finalised feature: f",
    ),
)


async def prepared(w: KafkaWorld) -> None:
    """Creates a topic and finalises a feature."""
    await w.topic("t", (1, 2), (2, 1), leaders=True)
    await w.operator.create(paths.FEATURE, encode_features(Features(2, True, {"f": FeatureRange(1)})))


def stored(w: KafkaWorld) -> dict[int, Record]:
    """Reads the records in ZooKeeper."""
    if w.node(own.PROCEDURES) is None:
        return {}
    found: dict[int, Record] = {}
    for name in w.children(own.PROCEDURES):
        node = w.node(f"{own.PROCEDURES}/{name}")
        assert node is not None
        found[int(name)] = codec.unsealed(int(name), node.data or b"")
    return found


def in_memory(w: KafkaWorld) -> dict[int, Record]:
    return dict(w.term.procedures.engine.records)


async def warmed(w: KafkaWorld) -> None:
    """Begins a term whose pids are reserved: the first call of a term does that."""
    await prepared(w)
    await w.serve()
    await w.term.procedures.engine._pids.reserve(1)
    w.forget()


async def begun(w: KafkaWorld) -> None:
    await prepared(w)
    await w.serve()
    w.forget()


def effect(w: KafkaWorld) -> Any:
    feature, bob = w.node(paths.FEATURE), w.node(paths.config("users", "bob"))
    return w.assignments(), w.children(paths.DELETE_TOPICS), feature and feature.data, bob and bob.data
