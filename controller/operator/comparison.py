"""Compares one topic in ZooKeeper, in the daemon's model and in a broker's metadata, without I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct

from brokers.client import ClusterMetadata, PartitionMetadata, TopicMetadata
from brokers.wire.errors import error_name
from metadata_store.codecs.base import MalformedNode
from state_machines.model.cluster import Cluster, leadership_of
from state_machines.model.types import (
    NO_LEADER,
    Assignment,
    Leadership,
    PartitionRow,
    TopicAssignment,
)

States = Mapping[int, Leadership | MalformedNode | None]
"""State znodes by partition; None where there is none."""
WHOLE_TOPIC = -1
"""Partition number of a difference in a whole topic, or in the whole cluster (then the topic is empty)."""

DIFFERENCES_MAX: Final = 100
"""Differences that are listed; all are counted."""


class CopyDifference(Struct, frozen=True, gc=False):
    """A field that two places hold differently. ``broker`` is None for ZooKeeper itself."""

    topic: str
    partition: int
    field: str
    expected: str
    found: str
    broker: int | None = None


class Findings:
    """Differences of one pass: the first ones, their total number, and their topics."""

    def __init__(self) -> None:
        self.listed: list[CopyDifference] = []
        self.total = 0
        self.topics: dict[str, None] = {}
        self.whole = False

    def add(self, differences: Iterable[CopyDifference]) -> None:
        """Adds the differences of a comparison."""
        for difference in differences:
            self.total += 1
            if len(self.listed) < DIFFERENCES_MAX:
                self.listed.append(difference)
            if difference.topic:
                self.topics[difference.topic] = None
            else:
                self.whole = True


class Liveness(Struct, frozen=True):
    """Live brokers: ``registered`` as brokers see them; ``live`` without those that shut down."""

    registered: frozenset[int]
    live: frozenset[int]


def unsettled(topic: TopicAssignment, states: States, liveness: Liveness) -> Iterator[CopyDifference]:
    """Finds decisions that a controller should have made by now, and states that no writer should have written."""
    for partition, assignment in topic.partitions.items():
        state = states.get(partition)
        if isinstance(state, MalformedNode):
            yield CopyDifference(topic.name, partition, "state znode", "readable", state.why)
        elif state is None:
            ready = [b for b in assignment.replicas if b in liveness.live]
            if ready:
                yield CopyDifference(
                    topic.name, partition, "leader", f"one of {ready}, which are live", "never elected"
                )
        elif state.leader not in liveness.registered:
            ready = [b for b in assignment.replicas if b in state.isr and b in liveness.live]
            if ready:
                found = "none" if state.leader == NO_LEADER else f"{state.leader}, which is gone"
                yield CopyDifference(
                    topic.name, partition, "leader", f"one of {ready}, which are live and in sync", found
                )
        elif state.leader not in state.isr or not set(state.isr) <= set(assignment.replicas):
            yield CopyDifference(
                topic.name,
                partition,
                "isr",
                f"some of {list(assignment.replicas)}, with leader {state.leader}",
                str(list(state.isr)),
            )


def with_memory(name: str, topic: TopicAssignment | None, states: States, memory: Cluster) -> Iterator[CopyDifference]:
    """Compares the daemon's rows, which are expected, with ZooKeeper."""
    known = memory.topic(name)
    if known is None or topic is None:
        if known is not None:
            yield CopyDifference(name, WHOLE_TOPIC, "topic", "known", "not in ZooKeeper")
        elif topic is not None:
            yield CopyDifference(name, WHOLE_TOPIC, "topic", "unknown", "in ZooKeeper")
        return
    if known.topic_id != topic.topic_id:
        yield CopyDifference(name, WHOLE_TOPIC, "topic id", _id(known.topic_id), _id(topic.topic_id))
    indexes = {memory.rows[i].partition: i for i in known.rows}
    for partition in sorted(indexes.keys() | topic.partitions.keys()):
        i, assignment = indexes.get(partition), topic.partitions.get(partition)
        if i is None:
            yield CopyDifference(name, partition, "partition", "unknown", "in ZooKeeper")
        else:
            yield from row_with_memory(memory, i, assignment, states.get(partition))


def row_with_memory(
    memory: Cluster, i: int, assignment: Assignment | None, state: Leadership | MalformedNode | None
) -> Iterator[CopyDifference]:
    """Compares one row, which is expected, with ZooKeeper, and finds the brokers that refuse it."""
    row, name = memory.rows[i], memory.topics[memory.rows[i].topic].name
    if assignment is None:
        yield CopyDifference(name, row.partition, "partition", "known", "not in ZooKeeper")
        return
    if row.assignment != assignment:
        yield CopyDifference(name, row.partition, "replicas", _ids(row.assignment.replicas), _ids(assignment.replicas))
    yield from _refused(name, i, row, memory)
    yield from _leadership(name, row, state)


def _refused(name: str, i: int, row: PartitionRow, memory: Cluster) -> Iterator[CopyDifference]:
    for broker in memory.refusals.refusing(i, row.assignment.replicas):
        if (found := memory.refusals.of(i, broker)) is not None:
            text = f"refused with {error_name(found.error)}"
            yield CopyDifference(name, row.partition, "LeaderAndIsr", "accepted", text, broker)


def _leadership(name: str, row: PartitionRow, state: Leadership | MalformedNode | None) -> Iterator[CopyDifference]:
    held = leadership_of(row)
    if held == state or isinstance(state, MalformedNode):
        return
    if held is None or state is None:
        texts = ("none", "there") if held is None else ("there", "none")
        yield CopyDifference(name, row.partition, "state znode", *texts)
        return
    for field in Leadership.__struct_fields__:
        ours, theirs = getattr(held, field), getattr(state, field)
        if ours != theirs:
            yield CopyDifference(name, row.partition, field.replace("_", " "), str(ours), str(theirs))


def with_metadata(
    broker: int,
    name: str,
    topic: TopicAssignment | None,
    states: States,
    found: TopicMetadata | None,
    liveness: Liveness,
    *,
    ids_sent: bool,
) -> Iterator[CopyDifference]:
    """Compares ZooKeeper's state, which is expected, with a broker's metadata. ``ids_sent``: topic ids are known."""
    seen = found.partitions if found is not None else {}
    started = {p: s for p, s in states.items() if isinstance(s, Leadership)} if topic is not None else {}
    if topic is None or not started:
        if seen:
            yield CopyDifference(name, WHOLE_TOPIC, "topic", "unknown", "known", broker)
        return
    if not seen:
        yield CopyDifference(name, WHOLE_TOPIC, "topic", "known", "unknown", broker)
        return
    if ids_sent and found is not None and found.topic_id != topic.topic_id:
        yield CopyDifference(name, WHOLE_TOPIC, "topic id", _id(topic.topic_id), _id(found.topic_id), broker)
    for partition, state in started.items():
        shown = seen.get(partition)
        if shown is None:
            yield CopyDifference(name, partition, "partition", "known", "unknown", broker)
        else:
            yield from _shown(broker, name, partition, topic, state, shown, liveness)
    for partition in sorted(seen.keys() - topic.partitions.keys()):
        yield CopyDifference(name, partition, "partition", "unknown", "known", broker)


def _shown(
    broker: int,
    name: str,
    partition: int,
    topic: TopicAssignment,
    state: Leadership,
    shown: PartitionMetadata,
    liveness: Liveness,
) -> Iterator[CopyDifference]:
    leader = state.leader if state.leader in liveness.registered else NO_LEADER
    replicas = topic.partitions[partition].replicas if partition in topic.partitions else ()
    if shown.leader != leader:
        yield CopyDifference(name, partition, "leader", str(leader), str(shown.leader), broker)
    if shown.leader_epoch != state.leader_epoch:
        yield CopyDifference(name, partition, "leader epoch", str(state.leader_epoch), str(shown.leader_epoch), broker)
    if shown.replicas != replicas:
        yield CopyDifference(name, partition, "replicas", _ids(replicas), _ids(shown.replicas), broker)
    if shown.isr != state.isr and set(shown.isr) != set(state.isr):
        yield CopyDifference(name, partition, "isr", _ids(state.isr), _ids(shown.isr), broker)
    offline = [r for r in replicas if r not in liveness.live]
    if (offline or shown.offline) and set(offline) != set(shown.offline):
        yield CopyDifference(name, partition, "offline replicas", _ids(offline), _ids(shown.offline), broker)


def with_cluster_metadata(
    broker: int, seen: ClusterMetadata, holder: int, live: frozenset[int], cluster_id: str | MalformedNode | None
) -> Iterator[CopyDifference]:
    """Compares the cluster as ZooKeeper has it, which is expected, with a broker's metadata."""
    nodes = frozenset(int(node.id) for node in seen.nodes)
    if seen.controller_id != holder:
        yield CopyDifference("", WHOLE_TOPIC, "controller", str(holder), str(seen.controller_id), broker)
    if nodes != live:
        yield CopyDifference("", WHOLE_TOPIC, "live brokers", str(sorted(live)), str(sorted(nodes)), broker)
    if seen.cluster_id != cluster_id:
        yield CopyDifference("", WHOLE_TOPIC, "cluster id", str(cluster_id), str(seen.cluster_id), broker)


def _ids(brokers: Collection[int]) -> str:
    return str([int(broker) for broker in brokers])


def _id(topic_id: bytes | None) -> str:
    return topic_id.hex() if topic_id is not None else "none"
