"""Builders for tests of the pure core: clusters in one line each, and a naive ZooKeeper."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from state_machines.machines.draft import Decide, Draft
from state_machines.model.cluster import Cluster, leadership_of
from state_machines.model.decision import Change, Decision, TopicChange
from state_machines.model.types import (
    NO_LEADER,
    Assignment,
    Broker,
    Endpoint,
    Leadership,
    PartitionState,
    TopicAssignment,
)

EPOCH = 7
"""Controller epoch of every cluster made here."""


class P(Struct, frozen=True):
    """A partition. ``leader`` None: no state znode; without ``isr`` all replicas are in sync."""

    replicas: tuple[int, ...]
    leader: int | None = None
    isr: tuple[int, ...] = ()
    epoch: int = 0
    version: int = 0
    recovering: bool = False

    def leadership(self) -> Leadership | None:
        """Returns its state znode, as an earlier controller wrote it."""
        if self.leader is None:
            return None
        isr = self.isr or self.replicas
        return Leadership(self.leader, self.epoch, isr, EPOCH - 1, self.version, self.recovering)


def broker(broker_id: int, epoch: int = 100, rack: str | None = None) -> Broker:
    """Makes a registered broker; each incarnation has its own epoch."""
    return Broker(broker_id, epoch, (Endpoint("INTERNAL", f"host-{broker_id}", 9093),), rack)


def registered(ids: Iterable[int], epoch: int = 100) -> dict[int, Broker]:
    """Makes registrations of ``ids``."""
    return {i: broker(i, epoch) for i in ids}


def topic(name: str, replicas: Iterable[tuple[int, ...]], *, version: int = 0, czxid: int = 50) -> TopicAssignment:
    """Makes a topic znode with partitions 0, 1, ..."""
    partitions = {p: Assignment(r) for p, r in enumerate(replicas)}
    return TopicAssignment(name, bytes(15) + bytes([len(name)]), partitions, version, czxid)


def topic_gone(cluster: Cluster, name: str) -> list[int]:
    """Ends the rows of a topic whose znode vanished, and then the topic; returns the rows."""
    if (topic := cluster.topic(name)) is not None:
        cluster.end_rows(list(topic.rows))
    return cluster.observe_topic_gone(name)


def make_cluster(*partitions: P, brokers: Iterable[int] = (1, 2, 3), recovery_state: bool = True) -> Cluster:
    """Loads a model: topic ``t`` with the given partitions on registered ``brokers``."""
    cluster = Cluster(EPOCH, recovery_state=recovery_state)
    cluster.observe_brokers(registered(brokers))
    rows = cluster.observe_topic(topic("t", [p.replicas for p in partitions])) if partitions else []
    cluster.load_leadership(rows, [p.leadership() for p in partitions])
    return cluster


def die(cluster: Cluster, *dead: int) -> None:
    """Observes that the registrations of ``dead`` are gone."""
    cluster.observe_brokers({b: known for b, known in cluster.brokers.items() if b not in dead})


def come_back(cluster: Cluster, *returned: int, epoch: int = 200) -> None:
    """Observes new registrations beside the present ones."""
    cluster.observe_brokers({**cluster.brokers, **registered(returned, epoch)})


def decided(cluster: Cluster, decide: Decide, only: Iterable[int] | None = None) -> Decision:
    """Decides; applies nothing."""
    draft = Draft(cluster, list(only) if only is not None else None)
    decide(draft)
    return draft.finish()


def enter(cluster: Cluster, decision: Decision) -> Decision:
    """Applies a decision as if every write of it had been committed."""
    cluster.apply(decision.moves)
    cluster.apply(decision.writes)
    cluster.apply_replicas(decision.replica_moves)
    return decision


def carried_out(cluster: Cluster, decide: Decide) -> Decision:
    """Decides and applies."""
    return enter(cluster, decided(cluster, decide))


def shown(change: Change) -> tuple[int, tuple[int, ...], int, int]:
    """Returns leader, ISR, leader epoch and partition epoch of a write."""
    after = change.after
    return after.leader, after.isr, after.leader_epoch, after.version


def writes_of(decision: Decision) -> dict[int, tuple[int, tuple[int, ...], int, int]]:
    """Returns the writes by row; fails where a row is written twice."""
    written = {change.entity: shown(change) for change in decision.writes}
    assert len(written) == len(decision.writes), "a znode is written twice by one decision"
    return written


class NaiveZooKeeper:
    """State and topic znodes as dicts, with the check of the version alone."""

    def __init__(self) -> None:
        self.states: dict[tuple[str, int], Leadership] = {}
        self.topics: dict[str, TopicAssignment] = {}

    def read_all(self, epoch: int, brokers: Mapping[int, Broker]) -> Cluster:
        """Builds the model of a new term from everything that is stored."""
        cluster = Cluster(epoch)
        cluster.observe_brokers(brokers)
        rows = [i for found in self.topics.values() for i in cluster.observe_topic(found)]
        cluster.load_leadership(rows, [self.states.get(cluster.name(i)) for i in rows])
        cluster.observe_strays()
        return cluster

    def write(self, cluster: Cluster, change: Change) -> bool:
        """Writes a state znode; False where its version is not the decision's (-1: there is no znode)."""
        name = cluster.name(change.entity)
        held = self.states.get(name)
        if (held.version if held is not None else -1) != change.before.version:
            return False
        written = leadership_of(change.after)
        assert written is not None
        assert written.version == change.before.version + 1, "ZooKeeper adds one to the version of a written znode"
        self.states[name] = written
        return True

    def rewrite(self, change: TopicChange) -> bool:
        """Rewrites a topic znode; False where its version is not the decision's."""
        held = self.topics[change.topic]
        if held.version != change.version:
            return False
        partitions = {**held.partitions, **change.partitions}
        self.topics[change.topic] = replace(held, partitions=partitions, version=held.version + 1)
        return True

    def set_isr(self, name: tuple[str, int], isr: tuple[int, ...]) -> None:
        """Writes an ISR as its leader does (IBP below 2.7-IV2): the leader epoch stays."""
        held = self.states[name]
        self.states[name] = Leadership(
            held.leader, held.leader_epoch, isr, held.controller_epoch, held.version + 1, held.recovering
        )


def check_model(cluster: Cluster, zookeeper: NaiveZooKeeper, unobserved: Collection[tuple[str, int]] = ()) -> None:
    """Checks after a step that memory equals ZooKeeper, and that each partition is sound.

    ``unobserved``: partitions whose leader wrote its ISR without a notification so far.
    """
    present = {cluster.name(i): i for t in cluster.topic_index.values() for i in cluster.topics[t].rows}
    held: Mapping[tuple[str, int], Leadership] = zookeeper.states
    for name, i in present.items():
        row = cluster.rows[i]
        if row.topic in cluster.deletions and row.state is PartitionState.NON_EXISTENT:
            assert i not in cluster.leaderless, f"{name}: waits for a leader although it is being deleted"
            continue
        assert name in unobserved or leadership_of(row) == held.get(name), f"{name}: memory and ZooKeeper differ"
        serves = row.leader in cluster.brokers and row.leader not in cluster.failed(i)
        online = row.has_leadership and serves
        assert (row.state is PartitionState.ONLINE) == online, f"{name}: {row.state.name} under leader {row.leader}"
        assert (i in cluster.leaderless) == (not online), f"{name}: leaderless is not kept"
        assert len(set(row.assignment.replicas)) == len(row.assignment.replicas), f"{name}: a replica twice"
        if row.has_leadership:
            assert row.isr, f"{name}: the ISR is empty"
            assert set(row.isr) <= set(row.assignment.replicas), f"{name}: the ISR is not assigned"
            assert len(set(row.isr)) == len(row.isr), f"{name}: a broker twice in the ISR"
            assert row.leader == NO_LEADER or row.leader in row.isr, f"{name}: the leader is not in the ISR"
    assert cluster.leaderless <= set(present.values()), "rows of a vanished topic wait for a leader"
