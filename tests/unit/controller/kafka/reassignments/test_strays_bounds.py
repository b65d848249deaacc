"""Missed removals at their bounds: short turns, writes that are too large, and a daemon that dies at any write."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Iterator
from typing import Any
from unittest import mock

import pytest

from brokers.outbound.delivery import LogsStopped
from brokers.wire.errors import Error
from controller.kafka.path.events import EventKind
from controller.kafka.path.remembered import StrayMemory
from controller.kafka.reassignments import strays
from controller.kafka.reassignments.topic_rewrites import NOT_REMEMBERED
from metadata_store.nodes.stray_nodes import PARENT, Found, Remembered, StrayKey
from state_machines.model.types import Assignment, TopicPartition
from testing.memory.session import MemorySession
from tests.kit.deadlines import in_virtual_time
from tests.kit.kafka.reassignments import (
    alter,
    caught_up,
    moved_while_away,
    propagated,
    remembered,
    request_by_znode,
    written,
)
from tests.kit.kafka.world import KafkaWorld, in_world
from tests.unit.controller.kafka.path.test_controller_kills import Scenario, deaths, first_term, next_term, once_more

NAMES = "rstuv"


class LookedUp(dict[StrayKey, Found]):
    """Entries of which none but those asked for may be looked at."""

    def __iter__(self) -> Iterator[StrayKey]:
        raise AssertionError("all entries are looked at")

    items = values = keys = __iter__  # type: ignore[assignment]


def memory_of(*keys: tuple[int, str]) -> tuple[StrayMemory, mock.Mock]:
    queue = mock.Mock()
    memory = StrayMemory(queue)
    memory.entries = LookedUp((StrayKey(*key), Found(Remembered({0: 1, 1: 1}), 0)) for key in keys)
    return memory, queue.signal


def response(
    acknowledged: Collection[TopicPartition] = (),
    refused: Collection[TopicPartition] = (),
    spared: Collection[TopicPartition] = (),
) -> LogsStopped:
    errors = dict.fromkeys(refused, int(Error.KAFKA_STORAGE_ERROR))
    return LogsStopped(1, 101, 0, tuple(acknowledged), errors, tuple(spared))


def test_a_response_looks_up_the_partitions_that_it_names_and_no_others() -> None:
    memory, signal = memory_of((1, "t"), (1, "u"), (2, "v"))
    here, refused = TopicPartition("t", 0), TopicPartition("u", 1)
    others = TopicPartition("v", 0), TopicPartition("t", 2)
    memory.answered(response((here, *others), (refused,)))
    assert memory.stopped == {(1, here)}
    assert set(memory.resting) == {(1, refused)}
    signal.assert_called_once_with(EventKind.STRAYS)


@pytest.mark.parametrize(("name", "signals"), [(TopicPartition("t", 0), 1), (TopicPartition("t", 2), 0)])
def test_a_remembered_replica_that_was_spared_is_judged_again(name: TopicPartition, signals: int) -> None:
    memory, signal = memory_of((1, "t"))
    memory.answered(response(spared=[name]))
    assert signal.call_count == signals
    assert not memory.stopped
    assert not memory.resting


@in_world(1, 2, 3)
async def test_replicas_that_rest_or_whose_brokers_are_away_go_by_in_portions(
    w: KafkaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await moved_while_away(w, *NAMES)
    w.wires.refused = {1: {(name, 0): Error.KAFKA_STORAGE_ERROR for name in NAMES}}
    await w.boot(1)
    await propagated(w)
    c = w.term.controller
    assert len(c.strays.resting) == len(NAMES)
    c.strays.entries |= {StrayKey(9, name): Found(Remembered(dict.fromkeys(range(50), 2**50)), 0) for name in NAMES}
    sizes, turn, loop = list[int](), list[str](), asyncio.get_running_loop()
    really = StrayMemory.logs

    def logs(memory: StrayMemory, brokers: Collection[int] | None = None) -> Iterator[tuple[StrayKey, TopicPartition]]:
        for found in really(memory, brokers):
            if not turn:
                loop.call_soon(turn.clear)
            turn.append(found[0].topic)
            sizes.append(len(turn))
            yield found

    monkeypatch.setattr(strays, "TURN_LOGS", 2)
    monkeypatch.setattr(StrayMemory, "logs", logs)
    w.forget()
    await strays.stop_strays(c)
    assert max(sizes) == 2
    assert len(sizes) == len(NAMES) * 51 + len(NAMES), "those of the absent broker are judged, and not sent"
    assert w.wires.deleted(1) == []


@in_world(1, 2, 3)
async def test_a_multi_forgets_a_bounded_number_of_partitions(w: KafkaWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    await moved_while_away(w, *NAMES)
    monkeypatch.setattr(strays, "PARTITIONS_MAX", 2)
    w.forget()
    await w.boot(1)
    await propagated(w)
    assert remembered(w) == {}
    c = w.term.controller
    assert not c.strays.stopped
    multis = [ops for ops in w.active.script.writes if any(path.startswith(f"{PARENT}/") for path in ops)]
    assert [len(ops) for ops in multis] == [1 + 2, 1 + 2, 1 + 1]


@in_world(1, 2, 3)
async def test_a_memory_that_is_too_large_for_a_write_with_its_topic_has_a_way_out(
    w: KafkaWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in "tu":
        await w.topic(name, (1, 2), leaders=True)
    await w.begin_term()
    await propagated(w)
    w.die(1)
    await w.settle()
    large = json.dumps({"version": 1, "partitions": dict.fromkeys(range(5_000, 8_000), 2**50)}).encode()
    for path, data in (("/regent", b""), (PARENT, b""), (f"{PARENT}/1-t", large)):
        if w.node(path) is None:
            await w.operator.create(path, data)
    monkeypatch.setattr(MemorySession, "write_bytes_max", property(lambda _: 40_000))
    await alter(w, dict.fromkeys((("t", 0), ("u", 0)), (2, 3)))
    await caught_up(w)
    assert written(w, "t") == written(w, "u") == Assignment((2, 3))
    assert list(remembered(w)["1-u"]["partitions"]) == ["0"], "it took no other along"
    assert dict(w.counters.failures) == {NOT_REMEMBERED: 1}
    [line] = [text for one in caplog.records if NOT_REMEMBERED in (text := one.getMessage())]
    assert "t: the topic and what is remembered of it have too many bytes for one write: start broker 1, or" in line


async def two_topics(w: KafkaWorld) -> None:
    await w.topic("m", (1, 2), (1, 2), leaders=True)
    await w.topic("n", (1, 2), leaders=True)
    w.die(1)


async def both_move(w: KafkaWorld) -> None:
    """m-0 and n-0 move away from broker 1 while it is away; then it returns."""
    await alter(w, {("m", 0): (2, 3), ("n", 0): (2, 3)})
    await caught_up(w)
    await is_back(w)


async def one_goes_back(w: KafkaWorld) -> None:
    """m-0 moves away from broker 1 and back to it before the broker returns; n-0 stays away."""
    await alter(w, {("m", 0): (2, 3), ("n", 0): (2, 3)})
    await caught_up(w)
    await request_by_znode(w, {("m", 0): (2, 1)})
    await is_back(w)
    await caught_up(w)


async def is_back(w: KafkaWorld) -> None:
    if 1 not in w.brokers:
        await w.boot(1)
    await propagated(w)


SCENARIOS = [
    Scenario("both move", two_topics, both_move, both_move),
    Scenario("one goes back", two_topics, one_goes_back, one_goes_back),
]
DELETED = {"both move": {("m", 0), ("n", 0)}, "one goes back": {("n", 0)}}


def ended(w: KafkaWorld) -> dict[str, Any]:
    return {
        "assigned": {name: written(w, *name).replicas for name in (("m", 0), ("m", 1), ("n", 0))},
        "remembered": remembered(w),
        "under way": dict(w.term.cluster.reassigning),
    }


@pytest.mark.seed("S4-59", "S4-64", "S4-69")
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
@in_virtual_time
async def test_killed_before_and_after_every_write(scenario: Scenario) -> None:
    async with first_term(scenario, 10_000, "") as w:
        writes = len(w.active.script.writes)
        clean = ended(w)
        assert (clean["remembered"], clean["under way"]) == ({}, {})
        assert clean["assigned"]["m", 0] == ((2, 1) if scenario.name == "one goes back" else (2, 3))
        assert DELETED[scenario.name] <= set(w.wires.deleted(1))
        assert ("m", 1) not in w.wires.deleted(1)
        await once_more(w)
    assert writes >= 8
    for number, when in deaths(writes):
        async with first_term(scenario, number, when) as w:
            await next_term(scenario, w)
            assert ended(w) == clean, f"killed {when} write {number}"
            assert DELETED[scenario.name] <= set(w.wires.deleted(1)), f"killed {when} write {number}"
            assert ("m", 1) not in w.wires.deleted(1)
