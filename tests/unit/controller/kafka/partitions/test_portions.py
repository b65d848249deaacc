"""Topics that are larger than a portion: no decision has more rows than one, and a term may end between any two."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

import pytest

from brokers.outbound import channel
from controller.kafka.brokers import broker_change, log_directories
from controller.kafka.partitions import controlled_shutdown, elections, isr_changes
from controller.kafka.path import agenda
from controller.kafka.path.events import EventKind
from controller.kafka.reassignments import reassignment, reassignment_requests, strays
from controller.kafka.term import failover
from controller.kafka.topics import configurations, deletion, ghosts, topic_change
from metadata_store.commits import topic_deletion
from state_machines.decisions.leader_election import ElectionType
from state_machines.machines.draft import Draft
from state_machines.model.cluster import Cluster
from state_machines.model.decision import Decision
from testing.znodes import remove_by_hand
from tests.kit.deadlines import in_virtual_time
from tests.kit.kafka.reassignments import alter, caught_up, propagated
from tests.kit.kafka.world import KafkaWorld, in_world
from tests.unit.controller.kafka.path.test_controller_kills import SCENARIOS, Scenario, ends_as_a_clean_run

PORTION = 10
SIZE = 40
BOUNDS = [
    (topic_change, "TURN_ROWS"),
    (ghosts, "TURN_ROWS"),
    (broker_change, "TURN_ROWS"),
    (elections, "TURN_ROWS"),
    (failover, "DECIDED_ROWS"),
    (failover, "SCANNED_ROWS"),
    (controlled_shutdown, "TURN_ROWS"),
    (isr_changes, "TURN_PROPOSALS"),
    (configurations, "TURN_ROWS"),
    (log_directories, "TURN_ROWS"),
    (topic_change, "LATE_ROWS"),
    (reassignment, "TURN_ROWS"),
    (reassignment_requests, "JUDGED_MAX"),
    (elections, "TURN_ROWS"),
    (elections, "ROWS_MAX"),
    (deletion, "TURN_PARTITIONS"),
    (deletion, "COUNTED_MAX"),
    (channel, "REQUEST_ROWS_MAX"),
    (agenda, "PART_ROWS"),
    (topic_deletion, "UNITS_MAX"),
    (strays, "TURN_LOGS"),
]
"""Everything that bounds the rows of a turn of the loop."""


def cut_at(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    for module, name in BOUNDS:
        monkeypatch.setattr(module, name, rows)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Collects how many rows each decision changes."""
    sizes: list[int] = []
    really = Draft.finish

    def finish(draft: Draft) -> Decision:
        found = really(draft)
        rows = {change.entity for change in (*found.writes, *found.moves)}
        sizes.append(len(rows.union(move.entity for move in found.replica_moves)))
        return found

    monkeypatch.setattr(Draft, "finish", finish)
    cut_at(monkeypatch, PORTION)
    return sizes


def replicas(count: int) -> list[tuple[int, ...]]:
    return [tuple((p + k) % 3 + 1 for k in range(3)) for p in range(count)]


async def large(w: KafkaWorld) -> None:
    await w.topic("t", *replicas(SIZE), leaders=True)
    await w.serve()


@pytest.mark.parametrize("recreated", [False, True])
def test_a_topic_that_is_removed_by_hand_leaves_the_model_in_portions(
    monkeypatch: pytest.MonkeyPatch, recreated: bool
) -> None:
    sizes: list[int] = []
    really = Cluster.end_rows

    def end_rows(cluster: Cluster, rows: Collection[int]) -> None:
        sizes.append(len(rows))
        really(cluster, rows)

    monkeypatch.setattr(Cluster, "end_rows", end_rows)
    cut_at(monkeypatch, PORTION)

    @in_world(before=large)
    async def story(w: KafkaWorld) -> None:
        await remove_by_hand(w.operator, "t")
        if recreated:
            await w.topic("t", *replicas(SIZE))
        await w.propagated()
        assert len(w.leaders()) == SIZE * recreated

    story()
    assert sizes == [PORTION] * (SIZE // PORTION)


# -- what happens to the topic


async def is_created(w: KafkaWorld) -> None:
    await w.topic("new", *replicas(SIZE))
    await w.propagated()
    assert w.leaders()["new", SIZE - 1] == (1, (1, 2, 3))


async def grows(w: KafkaWorld) -> None:
    await w.expand("t", *replicas(SIZE))
    await w.propagated()
    assert len(w.leaders()) == 2 * SIZE


async def loses_a_broker(w: KafkaWorld) -> None:
    w.die(1)
    await w.propagated()
    assert not any(1 in isr for _, isr in w.leaders().values())


async def loses_all_brokers_but_one_returns(w: KafkaWorld) -> None:
    w.die(1, 2)
    await w.propagated()
    w.die(3)
    await w.propagated()
    assert {leader for leader, _ in w.leaders().values()} == {-1}
    await w.boot(3)
    await w.propagated()
    assert {leader for leader, _ in w.leaders().values()} == {3}


async def has_its_isrs_changed(w: KafkaWorld) -> None:
    names = [name for name, (leader, _) in w.leaders().items() if leader == 1]
    await w.alter_partition(1, *(w.proposal(*name, isr=(1, 2)) for name in names))
    await w.propagated()
    assert {w.leaders()[name] for name in names} == {(1, (1, 2))}


async def is_shut_down_on_a_broker(w: KafkaWorld) -> None:
    assert not (await w.controlled_shutdown(1)).remaining
    await w.propagated()
    assert not any(leader == 1 for leader, _ in w.leaders().values())


async def gets_preferred_leaders(w: KafkaWorld) -> None:
    await led_by_others(w)
    await w.elect(ElectionType.PREFERRED, everything=True)
    await w.propagated()
    assert [w.leaders()["t", p][0] for p in range(SIZE)] == [r[0] for r in replicas(SIZE)]


async def is_balanced(w: KafkaWorld) -> None:
    await led_by_others(w)
    adoption = w.term.controller.adoption
    adoption.values = adoption.values._replace(balances=True)
    w.term.queue.signal(EventKind.AUTO_BALANCE)
    await w.propagated()
    assert [w.leaders()["t", p][0] for p in range(SIZE)] == [r[0] for r in replicas(SIZE)]


async def led_by_others(w: KafkaWorld) -> None:
    """Broker 1 was away, and leads nothing."""
    w.die(1)
    await w.propagated()
    await w.boot(1)
    await w.propagated()
    for leader in (2, 3):
        names = [name for name, found in w.leaders().items() if found[0] == leader]
        await w.alter_partition(leader, *(w.proposal(*name, isr=(1, 2, 3)) for name in names))
    await w.propagated()


async def is_moved(w: KafkaWorld) -> None:
    assert not await alter(w, {("t", p): (2, 3) for p in range(SIZE)})
    await propagated(w)
    await caught_up(w)
    assert {a.replicas for a in w.assignment("t").partitions.values()} == {(2, 3)}


async def is_deleted(w: KafkaWorld) -> None:
    await w.mark("t")
    await w.propagated()
    assert w.leaders() == {}


async def gets_another_controller(w: KafkaWorld) -> None:
    await w.active.crash()
    w.die(1)
    await w.serve()
    assert not any(1 in isr for _, isr in w.leaders().values())


@pytest.mark.parametrize(
    "happens",
    [
        is_created,
        grows,
        loses_a_broker,
        loses_all_brokers_but_one_returns,
        has_its_isrs_changed,
        is_shut_down_on_a_broker,
        gets_preferred_leaders,
        is_balanced,
        is_moved,
        is_deleted,
        gets_another_controller,
    ],
    ids=lambda act: act.__name__,
)
def test_no_decision_has_more_rows_than_a_portion(
    drawn: list[int], happens: Callable[[KafkaWorld], Awaitable[None]]
) -> None:
    @in_world(before=large)
    async def story(w: KafkaWorld) -> None:
        drawn.clear()
        await happens(w)
        w.agreed()

    story()
    assert max(drawn) <= PORTION
    assert sum(drawn) >= PORTION / 2


@pytest.mark.seed("S4-65", "S4-86")
@pytest.mark.parametrize(
    "scenario", [one for one in SCENARIOS if not one.may_be_missed], ids=lambda scenario: scenario.name
)
@in_virtual_time
async def test_a_term_that_ends_between_two_portions_is_continued_by_the_next(
    monkeypatch: pytest.MonkeyPatch, scenario: Scenario
) -> None:
    """Each partition is a portion of its own: killed at any write, the next term ends where a clean run does.

    Left out is a broker that is back before the next term: nothing is left to decide for the other portions.
    """
    cut_at(monkeypatch, 1)
    await ends_as_a_clean_run(scenario)
