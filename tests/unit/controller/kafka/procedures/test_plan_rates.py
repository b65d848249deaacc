"""A plan's throttle in the controller's world: rates between two bounds, and replicas that have nearly caught up."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from brokers.client import BrokerCallFailed
from controller.kafka.procedures import throttle_looks
from controller.kafka.procedures.reassign import PlanCommand, encode_plan, plan_of
from controller.operator.health import live_procedures
from controller.operator.plans import planned_item
from controller.operator.throttles import _item
from controller.procedures.requests import ProcedureRefused
from state_machines.decisions.plan_progress import ReassignPlan
from state_machines.decisions.throttling import BEGINS, CALM_MS, SET, Copy, RateBounds
from state_machines.model.types import Broker, LogDirectory, ReplicaLog, TopicPartition
from tests.kit.kafka.plans import (
    LISTS,
    RATES,
    aborted,
    applied,
    commanded,
    config,
    finished,
    gathered,
    in_isr,
    moves,
    record,
    running,
)
from tests.kit.kafka.world import KafkaWorld, in_world

LOW, HIGH = 1_000_000, 4_000_000
PACED = ReassignPlan(moves(), moves_max=1, rate_bytes_per_s=LOW, bounds=RateBounds(LOW, HIGH))


async def lasts(w: KafkaWorld, seconds: float) -> None:
    """Lets time pass in which the plan looks at the cluster."""
    for _ in range(int(seconds // throttle_looks.JUDGEMENT_S)):
        await asyncio.sleep(throttle_looks.JUDGEMENT_S)
        await w.settle()


def rate(w: KafkaWorld, pid: int) -> int:
    """Returns the rate of the plan, which brokers have in force."""
    plan = plan_of(record(w, pid))
    assert plan.rate_in_force == plan.rate_bytes_per_s
    assert {config(w, "brokers", str(broker))[RATES[0]] for broker in (1, 2, 3, 4)} == {str(plan.rate_in_force)}
    return plan.rate_bytes_per_s


def why(w: KafkaWorld, pid: int) -> str:
    bounds = plan_of(record(w, pid)).bounds
    assert bounds is not None
    return bounds.why


async def lags(w: KafkaWorld) -> None:
    """A live replica of a partition that does not move falls out of the ISR."""
    await w.alter_partition(1, w.proposal("b", 2, isr=(1,)))
    await w.settle()


@in_world(1, 2, 3, 4)
async def test_the_rate_rises_while_replicas_keep_up_and_is_halved_when_one_does_not(w: KafkaWorld) -> None:
    await running(w)
    pid = await applied(w, PACED)
    assert (rate(w, pid), why(w, pid)) == (LOW, BEGINS)
    await lasts(w, 120)
    assert (rate(w, pid), why(w, pid)) == (HIGH, "raised: every live replica keeps up")
    await lags(w)
    await lasts(w, 15)
    assert rate(w, pid) < HIGH
    assert why(w, pid).startswith("halved: 1 with a live replica out of sync (b-2 on broker 2)")
    await lasts(w, 60)
    assert rate(w, pid) == LOW
    [told] = live_procedures(w.term, record(w, pid).submitted_ms)
    assert "throttle 1.0 MB/s, between 1.0 MB and 4.0 MB: halved: 1 with a live" in told
    item = _item(record(w, pid), {}, [])
    assert (item.rate_bytes_per_s_min, item.rate_bytes_per_s_max, item.rate_why) == (LOW, HIGH, why(w, pid))
    await w.alter_partition(1, w.proposal("b", 2, isr=(1, 2)))
    await w.settle()
    await lasts(w, CALM_MS / 1_000 + 20)
    assert rate(w, pid) > LOW, "a minute of calm"
    assert (await finished(w, pid)).state.name == "SUCCESS"
    assert RATES[0] not in config(w, "brokers", "1")


@in_world(1, 2, 3, 4)
async def test_the_next_daemon_goes_on_with_the_rate_and_its_cause(w: KafkaWorld) -> None:
    await running(w)
    pid = await applied(w, PACED)
    await lasts(w, 60)
    before = rate(w, pid), why(w, pid)
    assert before[0] > LOW
    await w.active.crash()
    await w.begin_term()
    await w.settle()
    assert (rate(w, pid), why(w, pid)) == before
    await lasts(w, 60)
    assert rate(w, pid) == HIGH


@in_world(1, 2, 3, 4)
async def test_a_change_of_the_rate_is_in_the_record_before_a_line_tells_of_it(
    w: KafkaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await running(w)
    pid = await applied(w, PACED)
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(
        throttle_looks.log, "info", lambda *_: told.append((_[3], plan_of(record(w, pid)).rate_bytes_per_s))
    )
    await lasts(w, 120)
    assert [rate for rate, _ in told] == [1_500_000, 2_250_000, 3_375_000, HIGH]
    assert all(rate == stored for rate, stored in told), told


@in_world(1, 2, 3, 4)
async def test_a_plan_that_stands_calm_at_its_bound_is_not_written_again(w: KafkaWorld) -> None:
    await running(w)
    pid = await applied(w, PACED)
    await lasts(w, 120)
    at_ms = record(w, pid).updated_ms
    await lasts(w, 60)
    assert record(w, pid).updated_ms == at_ms


@in_world(1, 2, 3, 4)
async def test_an_operator_changes_the_bounds_and_a_single_rate_ends_them(w: KafkaWorld) -> None:
    await running(w)
    pid = await applied(w, PACED)
    await lasts(w, 120)
    await commanded(w, pid, rate_bytes_per_s=500_000, rate_bytes_per_s_max=2_000_000)
    assert (rate(w, pid), why(w, pid)) == (2_000_000, SET)
    await commanded(w, pid, moves_max=2)
    assert why(w, pid) == SET, "another change leaves the bounds"
    await commanded(w, pid, rate_bytes_per_s=700_000)
    await lasts(w, 60)
    assert (rate(w, pid), plan_of(record(w, pid)).bounds) == (700_000, None)


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (None, 5, "rate_bytes_per_s_max is 5 without rate_bytes_per_s: give the lower bound"),
        (0, 5, "rate_bytes_per_s_max is 5 without rate_bytes_per_s"),
        (7, 5, "rate_bytes_per_s_max is 5: give 7 or more"),
    ],
)
@in_world(1, 2, 3, 4)
async def test_bounds_that_are_none_are_refused(w: KafkaWorld, low: int | None, high: int, said: str) -> None:
    await running(w)
    pid = await applied(w, PACED)
    data = msgspec.json.encode(PlanCommand(rate_bytes_per_s=low, rate_bytes_per_s_max=high))
    with pytest.raises(ProcedureRefused, match=said):
        await w.term.procedures.engine.command(pid, data)


def test_a_dry_run_names_the_times_at_both_bounds_and_a_plan_without_bounds_is_stored_as_before() -> None:
    sized = tuple(msgspec.structs.replace(move, bytes=8_000_000) for move in PACED.moves)
    found = planned_item(msgspec.structs.replace(PACED, moves=sized))
    assert found.progress.endswith("12 s to 48 s between the bounds of the throttle")
    assert b"bounds" not in encode_plan(msgspec.structs.replace(PACED, bounds=None))


LEADER_BYTES = 1_000
LARGE_BYTES = 1_000_000
SLOW = ReassignPlan(moves(), moves_max=2, rate_bytes_per_s=5_000)
ALL = {LISTS[0]: "0:1,0:2,1:1,1:2", LISTS[1]: "0:3,0:4,1:3,1:4"}


class Disks:
    """Brokers that report the logs of their replicas; 1 and 2 have all of each partition, and a-0 is the small one."""

    def __init__(self, w: KafkaWorld) -> None:
        self.copied: dict[tuple[str, int, int], int] = {}
        self.queried: Counter[int] = Counter()
        self.named: set[tuple[str, int]] = set()
        self.silent: set[int] = set()
        self.responds = asyncio.Event()
        self.responds.set()
        w.term.controller.dial = self._dial

    def has(self, topic: str, partition: int, broker: int, size: int) -> None:
        self.copied[topic, partition, broker] = size

    @asynccontextmanager
    async def _dial(self, broker: Broker) -> AsyncIterator[Any]:
        async def replica_logs(partitions: Any, _max: int) -> tuple[LogDirectory, ...]:
            if broker.id in self.silent:
                raise BrokerCallFailed("CLUSTER_AUTHORIZATION_FAILED")
            await self.responds.wait()
            self.queried[broker.id] += 1
            names = {(topic, number) for topic, numbers in partitions.items() for number in numbers}
            self.named |= names
            logs = [ReplicaLog(*name, self._size(*name, broker.id), 0, False) for name in sorted(names)]
            return (LogDirectory("/data", 0, tuple(log for log in logs if log.size_bytes)),)

        async def broker_configs(_broker: int, names: Any) -> dict[str, str | None]:
            return dict.fromkeys(names)

        yield SimpleNamespace(replica_logs=replica_logs, broker_configs=broker_configs)

    def _size(self, topic: str, partition: int, broker: int) -> int:
        full = LEADER_BYTES if (topic, partition) == ("a", 0) else LARGE_BYTES
        return full if broker < 3 else self.copied.get((topic, partition, broker), 0)


async def look(w: KafkaWorld) -> None:
    """Lets the plan look once, and write its lists."""
    await asyncio.sleep(throttle_looks.LOOK_S)
    await gathered(w)


async def copying(w: KafkaWorld, plan: ReassignPlan = SLOW) -> tuple[Disks, int]:
    """Begins a plan whose replicas gain 100 bytes at most between two looks; that of a-0 on broker 3 is ahead."""
    await running(w)
    disks = Disks(w)
    disks.has("a", 0, 3, LEADER_BYTES - 400)
    pid = await applied(w, plan)
    await look(w)
    disks.has("a", 0, 3, LEADER_BYTES - 300)
    disks.has("a", 0, 4, 100)
    await look(w)
    return disks, pid


@in_world(1, 2, 3, 4)
async def test_a_replica_leaves_the_lists_before_it_has_caught_up_and_stays_out(w: KafkaWorld) -> None:
    disks, _ = await copying(w)
    assert config(w, "topics", "a") == ALL
    disks.has("a", 0, 3, LEADER_BYTES - 200)
    disks.has("a", 0, 4, 200)
    disks.has("a", 1, 4, 100)
    await look(w)
    assert config(w, "topics", "a") == {LISTS[0]: "1:1,1:2", LISTS[1]: "0:4,1:3,1:4"}, "the leader slows all or none"
    disks.has("a", 0, 3, LEADER_BYTES - 900)
    await look(w)
    assert config(w, "topics", "a")[LISTS[1]] == "0:4,1:3,1:4"
    await in_isr(w, "a", 0, 3)
    assert config(w, "topics", "a") == {LISTS[0]: "0:1,0:2,0:3,1:1,1:2", LISTS[1]: "0:4,1:3,1:4"}
    await w.alter_partition(w.states["a", 0].leader, w.proposal("a", 0, (1, 2)))
    await gathered(w)
    assert config(w, "topics", "a") == ALL, "it fell out of the ISR"


@in_world(1, 2, 3, 4)
async def test_a_replica_whose_broker_died_is_throttled_again(w: KafkaWorld) -> None:
    disks, _ = await copying(w)
    disks.has("a", 0, 3, LEADER_BYTES - 200)
    await look(w)
    assert config(w, "topics", "a")[LISTS[1]] == "0:4,1:3,1:4"
    disks.has("a", 0, 3, 0)
    await w.bounce(3)
    await look(w)
    assert config(w, "topics", "a")[LISTS[1]] == ALL[LISTS[1]]


@in_world(1, 2, 3, 4)
async def test_a_size_from_before_a_broker_died_lets_no_replica_go(w: KafkaWorld) -> None:
    disks, _ = await copying(w)
    disks.has("a", 0, 3, LEADER_BYTES - 200)
    disks.responds.clear()
    await look(w)
    await w.bounce(3)
    await w.settle()
    disks.responds.set()
    await gathered(w)
    assert config(w, "topics", "a") == ALL


@pytest.mark.parametrize("silent", [1, 3])
@in_world(1, 2, 3, 4)
async def test_a_broker_that_sends_no_sizes_leaves_its_replicas_throttled_until_they_are_in_the_isr(
    w: KafkaWorld, silent: int
) -> None:
    disks, _ = await copying(w)
    disks.silent = {silent}
    disks.has("a", 0, 3, LEADER_BYTES)
    await look(w)
    assert config(w, "topics", "a") == ALL
    await in_isr(w, "a", 0, 3)
    assert config(w, "topics", "a")[LISTS[1]] == "0:4,1:3,1:4"


@in_world(1, 2, 3, 4)
async def test_brokers_are_queried_for_moves_under_way_alone_and_only_while_there_is_a_throttle(w: KafkaWorld) -> None:
    disks, pid = await copying(w)
    assert disks.named == {("a", 0), ("a", 1)}
    assert set(disks.queried) == {1, 3, 4}, "the leader and the destinations"
    await commanded(w, pid, rate_bytes_per_s=0)
    await look(w)
    disks.queried.clear()
    await look(w)
    assert not disks.queried
    await commanded(w, pid, rate_bytes_per_s=5_000)
    await look(w)
    assert disks.queried
    await aborted(w, pid)
    await look(w)
    disks.queried.clear()
    await look(w)
    assert not disks.queried


@in_world(1, 2, 3, 4)
async def test_a_plan_without_a_throttle_queries_no_broker(w: KafkaWorld) -> None:
    disks, _ = await copying(w, ReassignPlan(moves(), moves_max=2))
    assert not disks.queried


async def test_sizes_that_were_read_for_a_plan_that_has_ended_count_for_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = Copy(TopicPartition("a", 0), 3, 1)
    monkeypatch.setattr(throttle_looks, "_copies", lambda _, rows: iter([one] if rows else []))
    monkeypatch.setattr(throttle_looks, "_epoch", lambda *_: 1)
    monkeypatch.setattr(throttle_looks, "FIRST_LOOK_S", 0.0)
    works: list[Any] = []
    c: Any = SimpleNamespace(dial=object(), cluster=None, spawn=lambda work, at_end: works.append(work))
    found = throttle_looks.CatchUps()
    entered: list[object] = []

    async def sizes(*_: object) -> dict[Any, int]:
        found.near(c, 2, [0], lambda _: None)
        found.stop()
        return {}

    monkeypatch.setattr(found, "_sizes", sizes)
    monkeypatch.setattr(found, "_enter", lambda *of: entered.append(of))
    found.near(c, 1, [0], lambda _: None)
    await works[0]
    assert entered == []


async def test_looks_that_end_late_let_no_second_ones_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Copy(TopicPartition("a", 0), 3, 1)
    monkeypatch.setattr(throttle_looks, "_copies", lambda _, rows: iter([one] if rows else []))
    begun: list[tuple[Any, Any]] = []
    c: Any = SimpleNamespace(dial=object(), cluster=None, spawn=lambda work, at_end: begun.append((work, at_end)))
    found = throttle_looks.CatchUps()

    def near() -> None:
        found.near(c, 1, [0], lambda _: None)

    near()
    found.stop()
    await begun[0][0]
    near()
    assert len(begun) == 2, "the first ones have ended"
    begun[0][1]()
    near()
    assert len(begun) == 2
    begun[1][0].close()
    begun[1][1]()
    near()
    assert len(begun) == 3, "the second ones were cancelled before they began"
    begun[2][0].close()
