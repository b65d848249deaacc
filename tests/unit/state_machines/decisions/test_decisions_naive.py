"""Decisions on many partitions against a reference that takes one partition, one step and one epoch at a time."""

from __future__ import annotations

from functools import partial

from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from state_machines.decisions.broker_change import broker_death
from state_machines.decisions.controlled_shutdown import controlled_shutdown
from state_machines.decisions.failover import failover
from state_machines.model.types import NO_LEADER
from tests.kit.model import P, decided, die, make_cluster, shown

IDS = (1, 2, 3, 4, 5)


class Reference(Struct):
    """One partition as Kafka's controller treats it: each step is a write of its own."""

    replicas: tuple[int, ...]
    leader: int
    isr: tuple[int, ...]
    epoch: int
    written: bool = False

    def write(self, leader: int, isr: tuple[int, ...]) -> None:
        self.leader, self.isr, self.epoch, self.written = leader, isr, self.epoch + 1, True

    def elect(self, live: set[int], unclean: bool) -> None:
        """Elects by the offline rule."""
        in_sync = [r for r in self.replicas if r in live and r in self.isr]
        if in_sync:
            self.write(in_sync[0], tuple(r for r in self.isr if r in live))
        elif unclean and any(r in live for r in self.replicas):
            first = next(r for r in self.replicas if r in live)
            self.write(first, (first,))

    def remove(self, broker: int) -> None:
        """Takes a replica offline; a first write that would move nothing but the epoch is saved."""
        if broker not in self.isr:
            return
        leader = NO_LEADER if broker == self.leader else self.leader
        isr = self.isr if len(self.isr) == 1 else tuple(r for r in self.isr if r != broker)
        if self.written or (leader, isr) != (self.leader, self.isr):
            self.write(leader, isr)


@st.composite
def partitions(draw: st.DrawFn, live: tuple[int, ...] = IDS) -> P:
    """Draws a partition whose leader is live; with ``live`` empty, any leader or none."""
    replicas = tuple(draw(st.permutations(IDS))[: draw(st.integers(1, 4))])
    isr = tuple(draw(st.permutations(replicas))[: draw(st.integers(1, len(replicas)))])
    leader = draw(st.sampled_from(isr if live else (NO_LEADER, *isr)))
    return P(replicas, leader, isr, epoch=draw(st.integers(0, 3)), version=draw(st.integers(0, 3)))


many = st.lists(partitions(), min_size=1, max_size=12)
anyhow = st.lists(partitions(live=()), min_size=1, max_size=12)
some = st.sets(st.sampled_from(IDS), min_size=1)


def references(made: list[P]) -> list[Reference]:
    return [Reference(p.replicas, p.leader if p.leader is not None else NO_LEADER, p.isr, p.epoch) for p in made]


def expected(made: list[P], after: list[Reference]) -> dict[int, tuple[int, tuple[int, ...], int, int]]:
    """Returns one write for each partition that was written, one partition epoch above the former."""
    return {i: (r.leader, r.isr, r.epoch, made[i].version + 1) for i, r in enumerate(after) if r.written}


@given(made=many, dead=some, unclean=st.booleans())
def test_a_death_decides_as_the_reference_does(made: list[P], dead: set[int], unclean: bool) -> None:
    after = references(made)
    live = set(IDS) - dead
    for reference in after:
        if reference.leader in dead:
            reference.elect(live, unclean)
        for broker in sorted(dead & set(reference.replicas)):
            reference.remove(broker)
    cluster = make_cluster(*made, brokers=IDS)
    die(cluster, *dead)
    decision = decided(cluster, partial(broker_death, dead=dead, unclean=lambda _: unclean))
    assert {change.entity: shown(change) for change in decision.writes} == expected(made, after)


@given(made=anyhow, dead=st.sets(st.sampled_from(IDS)), unclean=st.booleans())
def test_a_failover_decides_as_the_reference_does(made: list[P], dead: set[int], unclean: bool) -> None:
    after = references(made)
    live = set(IDS) - dead
    for reference in after:
        leaderless = reference.leader not in live
        for broker in sorted(dead & set(reference.replicas)):
            reference.remove(broker)
        if leaderless:
            reference.elect(live, unclean)
    cluster = make_cluster(*made, brokers=live)
    decision = decided(cluster, partial(failover, unclean=lambda _: unclean))
    assert {change.entity: shown(change) for change in decision.writes} == expected(made, after)


@given(made=many, leaving=st.permutations(IDS), earlier=st.integers(0, 3))
def test_a_controlled_shutdown_decides_as_the_reference_does(made: list[P], leaving: list[int], earlier: int) -> None:
    broker, away = leaving[0], set(leaving[: earlier + 1])
    after = references(made)
    for reference in after:
        if len(reference.replicas) == 1 or broker not in reference.replicas:
            continue
        if reference.leader == broker:
            remaining = tuple(r for r in reference.isr if r not in away)
            able = [r for r in reference.replicas if r in remaining]
            if able:
                reference.write(able[0], remaining)
        else:
            reference.remove(broker)
    cluster = make_cluster(*made, brokers=IDS)
    for leaver in away:
        cluster.observe_shutting_down(leaver)
    decision = decided(cluster, partial(controlled_shutdown, broker=broker))
    assert {change.entity: shown(change) for change in decision.writes} == expected(made, after)
    assert all(move.broker == broker and move.stop and not move.delete for move in decision.replica_moves)
