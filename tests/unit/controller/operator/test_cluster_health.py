"""What a status says first: dead brokers, plans that wait for them, throttles in force; nothing where all is well."""

from __future__ import annotations

from msgspec.structs import replace

from controller.kafka.path.remembered import BROKERS_MAX, Departed
from controller.operator.brokers import dead, dead_broker_item, dead_brokers
from controller.operator.counts import Counts
from controller.operator.health import live_procedures, throttles_in_force, troubles
from state_machines.decisions.plan_progress import ReassignPlan
from tests.kit.kafka.plans import OPS, applied, moves, record, running
from tests.kit.kafka.world import KafkaWorld, in_world


def said(w: KafkaWorld, under_min_isr: int | None = 0) -> list[str]:
    counts = Counts()
    counts.count(list(w.term.cluster.rows))
    return list(troubles(w.term.cluster, counts, under_min_isr, w.term))


@in_world(1, 2, 3, 4)
async def test_nothing_is_said_of_a_cluster_that_is_well(w: KafkaWorld) -> None:
    await running(w)
    assert (said(w), live_procedures(w.term, 0), throttles_in_force(w.term)) == ([], [], [])


@in_world(1, 2, 3, 4)
async def test_a_dead_broker_is_named_with_its_replicas_and_the_plans_that_wait_for_it(w: KafkaWorld) -> None:
    await running(w)
    pid = await applied(w, ReassignPlan(moves(), moves_max=1, rate_bytes_per_s=5_000))
    w.die(4)
    await w.settle()
    w.die(2)
    await w.settle()
    departed = w.term.controller.departed
    assert [departed.since_ms(broker) is None for broker in (1, 2, 3, 4)] == [True, False, True, False]
    departed.learn({2: 1, 1: 7_000})
    assert departed.since_ms(2) != 1, "what the term saw itself stays"
    departed.gone([4], 1_764_334_203_000)
    departed.gone([2], 1_764_334_263_000)
    first, *others = said(w, under_min_isr=3)
    assert first == (
        "3 partitions below min.insync.replicas, producers with acks=all wait: regent list partitions --under-min-isr"
    )
    assert others == [
        "broker 2 is dead since 2025-11-28 12:51:03 UTC: it hosts 6 replicas",
        f"broker 4 is dead since 2025-11-28 12:50:03 UTC: it hosts 1 replica, and plan {pid} waits for it",
        "6 partitions under-replicated, a replica is not in the ISR: regent list partitions --under-replicated",
    ]
    [told] = live_procedures(w.term, record(w, pid).submitted_ms + 65_000)
    assert told.startswith(f"reassign {pid}, for 65 s: ")
    assert throttles_in_force(w.term) == [f"brokers 1, 2, 3, 4 at 5000 bytes/s, by reassign {pid}"]


@in_world(1, 2, 3, 4)
async def test_a_plan_that_waits_behind_another_one_waits_for_no_broker(w: KafkaWorld) -> None:
    await running(w)
    await applied(w, ReassignPlan(moves()[:1], paused=True))
    second = replace(OPS, nonce="two")
    await applied(w, ReassignPlan(moves((1, 3))[1:2], moves_max=1), second)
    w.die(3)
    await w.settle()
    w.term.controller.departed.gone([3], 1_764_334_203_000)
    since = "since 2025-11-28 12:50:03 UTC"
    assert [told for told in said(w) if "dead" in told] == [f"broker 3 is dead {since}: plan 1 waits for it"]
    [item] = [dead_broker_item(one, Counts()) for one in dead_brokers(w.term.cluster, None, w.term)]
    assert (item.id, item.hosts, item.awaited_by, item.dead_before) == (3, 0, [1], None)
    assert str(item.dead_since) == "2025-11-28 12:50:03+00:00"


@in_world(1, 2, 3, 4)
async def test_a_broker_that_was_dead_before_the_term_is_so_since_before_the_term(w: KafkaWorld) -> None:
    await running(w)
    w.die(2)
    await w.settle()
    departed = w.term.controller.departed = Departed()
    departed.began_ms = 1_764_334_203_000
    [told, _] = said(w)
    assert told == "broker 2 is dead since before this term began at 2025-11-28 12:50:03 UTC: it hosts 6 replicas"
    item = dead_broker_item(dead(2, w.term), Counts())
    assert (str(item.dead_before), item.dead_since) == ("2025-11-28 12:50:03+00:00", None)


def test_dead_brokers_are_remembered_up_to_a_bound_and_forgotten_when_they_return() -> None:
    departed = Departed()
    departed.gone(range(BROKERS_MAX + 2), 5)
    assert [departed.since_ms(broker) for broker in (0, 1, 2, BROKERS_MAX + 1)] == [None, None, 5, 5]
    departed.back([2])
    assert departed.since_ms(2) is None


@in_world(1, 2, 3, 4)
async def test_partitions_without_a_leader_come_first(w: KafkaWorld) -> None:
    await running(w)
    w.die(1)
    await w.settle()
    w.die(2)
    await w.settle()
    assert said(w)[0] == "6 partitions without a leader: regent list partitions --offline"
