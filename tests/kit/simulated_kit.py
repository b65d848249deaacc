"""Makes simulated brokers that were sent leaderships and metadata, in one line each."""

from __future__ import annotations

from collections.abc import Iterable

from brokers.wire.versions import Api, Ibp
from state_machines.model.types import Broker, Endpoint
from testing.simulated.broker import SimulatedBroker
from testing.simulated.values import (
    Head,
    Key,
    LeaderAndIsr,
    LeaderAndIsrEntry,
    MetadataEntry,
    StopEntry,
    StopReplica,
    UpdateMetadata,
)

ID = bytes(range(1, 17))
KEY: Key = ("orders", 0)
CONTROLLER = 1_000_001
CONTROLLER_EPOCH = 5
EPOCH = 10


def head(api: Api, version: int, broker_epoch: int = -1, controller_epoch: int = CONTROLLER_EPOCH) -> Head:
    return Head(api, version, 1, "c", CONTROLLER, False, controller_epoch, broker_epoch)


def lead(
    partition: int = 0,
    *,
    leader: int = 1,
    epoch: int = 4,
    isr: tuple[int, ...] = (1, 2, 3),
    topic_id: bytes | None = ID,
    controller_epoch: int = CONTROLLER_EPOCH,
    partition_epoch: int = 6,
) -> LeaderAndIsrEntry:
    """Returns the entry of a partition of topic orders on brokers 1, 2 and 3."""
    replicas = (1, 2, 3)
    return LeaderAndIsrEntry(
        "orders", topic_id, partition, controller_epoch, leader, epoch, isr, partition_epoch, replicas
    )


def leaders(*entries: LeaderAndIsrEntry, controller_epoch: int = CONTROLLER_EPOCH) -> LeaderAndIsr:
    return LeaderAndIsr(head(Api.LEADER_AND_ISR, 7, controller_epoch=controller_epoch), 0, list(entries))


def metadata(
    *entries: MetadataEntry, live: Iterable[int] = (1, 2, 3), controller_epoch: int = CONTROLLER_EPOCH
) -> UpdateMetadata:
    listed = (*live, CONTROLLER)
    brokers = tuple(Broker(b, -1, (Endpoint("INTERNAL", "127.0.0.1", 9_000 + b % 100),)) for b in listed)
    topics = {entry.topic: entry.topic_id for entry in entries}
    return UpdateMetadata(
        head(Api.UPDATE_METADATA, 8, controller_epoch=controller_epoch), 0, list(entries), topics, brokers
    )


def known(entry: LeaderAndIsrEntry, offline: tuple[int, ...] = ()) -> MetadataEntry:
    """Returns the same partition as an entry of UpdateMetadata."""
    return MetadataEntry(
        entry.topic,
        entry.topic_id,
        entry.partition,
        entry.controller_epoch,
        entry.leader,
        entry.leader_epoch,
        entry.isr,
        entry.partition_epoch,
        entry.replicas,
        offline,
    )


def stop(partition: int = 0, *, epoch: int = 4, delete: bool = False) -> StopReplica:
    return StopReplica(head(Api.STOP_REPLICA, 4), [StopEntry("orders", partition, epoch, delete)])


def broker_with(
    *entries: LeaderAndIsrEntry,
    live: Iterable[int] = (1, 2, 3),
    ibp: str = "3.9",
    broker: SimulatedBroker | None = None,
    broker_id: int = 1,
) -> SimulatedBroker:
    """Returns a broker that was sent the live list, and leadership and metadata of these partitions."""
    found = broker or SimulatedBroker(broker_id, EPOCH, ibp=Ibp.parse(ibp))
    assert found.apply(metadata(live=live))[0] == 0
    error, errors = found.apply(leaders(*entries))
    assert error == 0
    assert not any(errors.values()), errors
    assert found.apply(metadata(*map(known, entries), live=live))[0] == 0
    return found
