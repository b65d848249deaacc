"""The benchmarks' oracle: its expectations are those of the product's core, and it detects wrong ends."""

from __future__ import annotations

import re
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from benchmarks import request_znodes, znodes
from benchmarks.__main__ import parsed
from benchmarks.canned import NullBrokers
from benchmarks.contestants import Regent
from benchmarks.datasets import DataSet, Shape, data_set, shape
from benchmarks.in_process import Bench
from benchmarks.oracle import Oracle, initial
from benchmarks.plan import FULL, GOALS, SMALL
from benchmarks.plot import svg
from benchmarks.requested import moved
from benchmarks.results import Goal, Row, Sample
from benchmarks.stages import STAGES, Stages
from controller.kafka.term.failover import fail_over
from metadata_store import paths
from state_machines.decisions.alter_partition import IsrRequest, alter_partitions
from state_machines.decisions.broker_change import broker_death, controlled_shutdown
from state_machines.decisions.failover import failover
from state_machines.decisions.leader_election import ElectionType, elect
from state_machines.decisions.reassignment import ReassignmentRequest, due, judge, reassign, rewrites
from state_machines.machines.draft import Decide, Draft
from state_machines.model.cluster import Cluster
from state_machines.model.types import Assignment, Broker, Leadership, TopicAssignment
from testing.memory import MemoryServer, MemoryZooKeeper

SIZE = "1kx7"
ROOT = Path(__file__).parents[3]
METRICS = ("regent_loop_lag_longest_seconds", "regent_loop_lag_seconds")
EPOCH = 5


def model(data: DataSet) -> Cluster:
    cluster = Cluster(EPOCH)
    cluster.observe_brokers({b: Broker(b, 1, ()) for b in data.brokers})
    per_topic = data.shape.per_topic
    for number, name in enumerate(data.topics):
        placed = data.replicas[number * per_topic : (number + 1) * per_topic]
        cluster.observe_topic(TopicAssignment(name, None, {p: Assignment(r) for p, r in enumerate(placed)}, 0, 1))
    states = [Leadership(r[0], 0, r, 1, 0) for r in data.replicas]
    cluster.load_leadership(range(len(states)), states)
    return cluster


def carry_out(cluster: Cluster, decide: Decide) -> None:
    draft = Draft(cluster)
    decide(draft)
    decision = draft.finish()
    cluster.apply(decision.moves)
    cluster.apply(decision.writes)


def agrees(oracle: Oracle, cluster: Cluster) -> bool:
    found = [(row.leader, row.leader_epoch, row.isr, row.version) for row in cluster.rows]
    return found == [tuple(state) for state in oracle.states]


def test_the_oracle_agrees_with_the_core_on_deaths_and_shutdowns() -> None:
    data = data_set(shape(SIZE))
    oracle, cluster = initial(data), model(data)
    assert agrees(oracle, cluster)

    cluster.observe_brokers({b: Broker(b, 1, ()) for b in data.brokers if b != 1})
    carry_out(cluster, partial(broker_death, dead=[1]))
    assert not agrees(oracle, cluster)
    oracle.dies(1)
    assert agrees(oracle, cluster)

    cluster.observe_shutting_down(2)
    carry_out(cluster, partial(controlled_shutdown, broker=2))
    oracle.shuts_down(2)
    assert agrees(oracle, cluster)
    assert oracle.reachable == frozenset(data.brokers) - {1, 2}
    assert oracle.live_list == frozenset(data.brokers) - {1}


def reassign_all(cluster: Cluster, targets: dict[int, tuple[int, ...]]) -> None:
    """Takes steps 1 to 3 of reassignments as the handler does."""
    wanted = {i: judge(cluster, ReassignmentRequest(i, target)) for i, target in targets.items()}
    assignments = {i: found for i, found in wanted.items() if isinstance(found, Assignment)}
    assert assignments.keys() == wanted.keys()
    for change in rewrites(cluster, assignments):
        cluster.observe_assignments(change.topic, change.version + 1, change.partitions)
    carry_out(cluster, partial(reassign, rows=list(targets)))


def test_the_oracle_agrees_with_the_core_on_reassignments() -> None:
    data = data_set(shape(SIZE))
    oracle, cluster = initial(data), model(data)
    targets = moved(data, 300)
    assert {len(set(data.replicas[row]) - set(target)) for row, target in targets.items()} == {1}

    reassign_all(cluster, targets)
    oracle.reassigns(targets)
    assert agrees(oracle, cluster)
    assert [row.assignment.replicas for row in cluster.rows] == oracle.assigned

    caught_up = {i: (*cluster.rows[i].isr, *(b for b in t if b not in cluster.rows[i].isr)) for i, t in targets.items()}
    requests = [
        IsrRequest(i, cluster.rows[i].leader_epoch, cluster.rows[i].version, isr, None, by_id=True)
        for i, isr in caught_up.items()
    ]
    carry_out(cluster, partial(alter_partitions, requests=requests))
    carry_out(cluster, partial(reassign, rows=due(cluster, range(len(cluster.rows)))))
    oracle.completes(writes=1)
    assert agrees(oracle, cluster)
    assert [row.assignment.replicas for row in cluster.rows] == oracle.assigned


def test_the_oracle_agrees_with_the_core_on_displaced_and_dead_leaders() -> None:
    data = data_set(shape(SIZE))
    oracle, cluster = initial(data, displaced=600), model(data)
    states = [Leadership(s.leader, s.epoch, s.isr, 1, s.version) for s in oracle.states]
    cluster.load_leadership(range(len(states)), states)
    assert agrees(oracle, cluster)
    carry_out(cluster, partial(elect, rows=range(600), kind=ElectionType.PREFERRED))
    oracle.prefers()
    assert (agrees(oracle, cluster), len(oracle.changed)) == (True, 600)

    cluster = model(data)
    cluster.observe_brokers({b: Broker(b, 1, ()) for b in data.brokers if b != 3})
    cluster.load_leadership(range(len(data.replicas)), [Leadership(r[0], 0, r, 1, 0) for r in data.replicas])
    carry_out(cluster, failover)
    oracle = initial(data)
    oracle.was_dead(3, writes=1)
    assert agrees(oracle, cluster)


def test_created_and_deleted_topics_leave_the_expectation_unchanged() -> None:
    data = data_set(shape(SIZE))
    oracle, added = initial(data), data_set(Shape("added", 4, 50, 3, 7, prefix="added"))
    before = oracle.metadata(), oracle.replicas()
    oracle.creates(added)
    assert (len(oracle.changed), oracle.data.name(1_050)) == (200, ("added-00001", 0))
    assert oracle.metadata() != before[0]
    oracle.deletes(added)
    assert (oracle.metadata(), oracle.replicas(), oracle.changed) == (*before, set())


async def test_remaining_requests_and_wrong_topic_znodes_are_detected() -> None:
    data = data_set(shape("500x5"))
    zk = MemoryZooKeeper(MemoryServer())
    await zk.connect(1.0)
    await znodes.lay_out(zk)
    await znodes.write(zk, data)
    oracle, targets = initial(data), moved(data, 20)
    await request_znodes.ask_for_reassignments(zk, oracle, targets)
    assert await request_znodes.left_over(zk, oracle) == [f"{paths.REASSIGN_PARTITIONS} is there"]

    oracle.reassigns(targets)
    unwritten = await request_znodes.left_over(zk, oracle)
    assert "partitions" in unwritten[0]
    await zk.delete(paths.REASSIGN_PARTITIONS, 0)
    oracle.completes(writes=2)
    back = await znodes.put_back(zk, oracle)
    assert await request_znodes.left_over(zk, back) == []

    added = data_set(Shape("added", 2, 50, 3, 5, prefix="added"))
    await request_znodes.create_topics(zk, added)
    assert len(await request_znodes.left_over(zk, back)) == 4
    await request_znodes.delete_topics(zk, added)
    with pytest.raises(TimeoutError, match="still there"):
        await request_znodes.until_empty(zk, paths.DELETE_TOPICS, 0.0)


def test_one_wrong_partition_changes_the_digests() -> None:
    data = data_set(shape(SIZE))
    right, wrong = initial(data), initial(data)
    row = len(data.replicas) // 2
    wrong.states[row] = wrong.states[row]._replace(epoch=1)
    assert right.metadata() != wrong.metadata()
    differing = {b for b in data.brokers if right.replicas()[b] != wrong.replicas()[b]}
    assert differing == set(data.replicas[row])


def test_an_offline_replica_is_part_of_the_metadata_alone() -> None:
    data = data_set(shape(SIZE))
    here, away = initial(data), initial(data)
    away.leaving.add(3)
    assert here.metadata() != away.metadata()
    assert here.replicas() == away.replicas()


async def test_written_states_match_the_expectation_and_a_difference_is_detected() -> None:
    data = data_set(shape("500x5"))
    zk = MemoryZooKeeper(MemoryServer())
    await zk.connect(1.0)
    await znodes.lay_out(zk)
    await znodes.write(zk, data)
    oracle = initial(data)
    assert await znodes.differences(zk, oracle, EPOCH) == []

    oracle.dies(1)
    missing = await znodes.differences(zk, oracle, EPOCH)
    assert len(missing) == 5
    assert "where" in missing[0]

    for row in oracle.changed:
        leader, epoch, isr, _ = oracle.states[row]
        await zk.set(paths.state(*data.name(row)), znodes.state_text(leader, epoch, isr, EPOCH), 0)
    assert await znodes.differences(zk, oracle, EPOCH) == []
    assert await znodes.differences(zk, oracle, EPOCH + 1) != []

    back = await znodes.put_back(zk, oracle)
    assert await znodes.differences(zk, back, EPOCH) == []
    assert {state.version for state in back.states} == {0, 2}


def test_a_data_set_is_balanced_and_reproducible() -> None:
    data = data_set(shape("10kx20"))
    led = Counter(replicas[0] for replicas in data.replicas)
    assert max(led.values()) <= 1.2 * min(led.values())
    assert data.replicas == data_set(shape("10kx20")).replicas
    assert data.name(51) == (data.topics[1], 1)
    assert {len(r) for r in data_set(shape("25ktopics")).replicas} == {2}


@pytest.mark.parametrize("size", ["100x", "1kx2", "75x3", "topics"])
def test_an_impossible_size_is_refused(size: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="size"):
        shape(size)
    with pytest.raises(SystemExit) as ended:
        parsed(["--size", size])
    assert (ended.value.code, f"--size: size '{size}': " in capsys.readouterr().err) == (2, True)


def test_every_planned_size_exists_and_goals_are_at_planned_sizes() -> None:
    sizes = {run.size for run in (*SMALL, *FULL)}
    assert all(shape(size).partitions for size in sizes)
    assert {size for _, size in GOALS} <= sizes


async def test_a_term_runs_on_the_canned_cluster() -> None:
    bench = Bench(shape("1kx5"))
    for event in ("failover", "shutdown", "death", "failover"):
        burst = await bench.burst(event)
        assert burst.requests >= 2 * 4, event
    controller, wires = bench.term()
    assert isinstance(wires, NullBrokers)
    await fail_over(controller)
    assert len(controller.cluster.rows) == 1_000
    assert set(controller.cluster.brokers) == set(range(1, 6))
    assert paths.broker(1).encode() in bench.table.nodes
    await controller.channels.close()


def test_every_timed_seam_exists_and_is_restored() -> None:
    before = Draft.finish
    with Stages() as stages:
        assert Draft.finish is not before
        assert stages.spent() == dict.fromkeys(STAGES, 0.0)
    assert Draft.finish is before


@pytest.mark.parametrize("handlers", ["reassignment", "isr_changes", "elections", "topic_change", "deletion"])
def test_decisions_of_requests_have_timed_seams(handlers: str) -> None:
    """Without a seam its decisions would count as *rest*."""
    assert any(re.match(rf"controller\.kafka\.\w+\.{handlers}\.", seam) for seam in STAGES["decide"])


@pytest.mark.parametrize("text", [Regent.ready_pattern, "claimed epoch", "read in %.2f s", *METRICS])
def test_the_log_lines_and_metrics_of_the_harness_exist_in_the_product(text: str) -> None:
    assert any(text in file.read_text(encoding="utf-8") for file in (ROOT / "controller").rglob("*.py"))


def test_a_goal_is_met_or_missed_by_its_ratio_or_its_bound() -> None:
    fast, slow = Sample.of([1.0, 1.1, 0.9]), Sample.of([20.0, 19.0, 22.0])
    row = Row("F1", SIZE, "failover", "s", fast, slow, Goal(ratio=15))
    assert row.ratio == pytest.approx(20.0)
    assert row.met is True
    assert Row("F1", SIZE, "failover", "s", slow, fast, Goal(ratio=15)).met is False
    assert Row("Z1", SIZE, "reads", "per second", slow, fast, Goal(ratio=15), higher_is_better=True).met is True
    assert Row("M1", SIZE, "memory", "MiB", slow, goal=Goal(most=19)).met is False
    assert Row("F1", SIZE, "failover", "s", fast).met is None


def test_the_plot_has_a_line_for_each_controller() -> None:
    drawn = svg({"regent": [(1e4, 0.1), (1e6, 8.0)], "kafka": [(1e4, 1.0), (1e5, 9.0)]}, 50)
    assert drawn.count("<polyline") == 2
    assert drawn.count("<circle") == 4
    assert "Kafka&apos;s own controller" in drawn or "Kafka's own controller" in drawn
