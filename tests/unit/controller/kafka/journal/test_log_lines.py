"""Logs decisions: each line names its event, the entity and the cause."""

from __future__ import annotations

import io
import json
import logging

import pytest
from msgspec.structs import replace

from configs.sections import LogSettings
from controller.kafka.journal.report import BROKERS_SHOWN, Report
from controller.process.logs import logging_to
from controller.process.watchdogs import stacks
from controller.process.wording import NAMED_MAX, abbreviate, named
from state_machines.decisions.alter_partition import ISR_CHANGED
from state_machines.model.decision import Change
from state_machines.model.min_isr import UNKNOWN, MinIsr, led_but_under
from tests.kit.kafka.calls import create, created, topic
from tests.kit.kafka.model import P, die, make_cluster
from tests.kit.kafka.reassignments import alter
from tests.kit.kafka.world import KafkaWorld, in_world

CONTROLLER = "regent.controller"


@pytest.fixture(autouse=True)
def every_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "regent")


def lines(caplog: pytest.LogCaptureFixture, logger: str = CONTROLLER) -> list[tuple[str, str]]:
    return [(r.levelname, r.getMessage()) for r in caplog.records if r.name == logger]


async def running(w: KafkaWorld) -> None:
    await w.topic("t", (1, 2, 3), (2, 3, 1), (3, 1, 2), leaders=True)
    await w.topic("single", (2,), leaders=True)
    await w.begin_term()
    await w.propagated()


def gone(caplog: pytest.LogCaptureFixture, broker: int) -> tuple[str, str]:
    """Returns level and text of the line on the end of a broker's session."""
    [found] = [line for line in lines(caplog) if line[1].startswith(f"broker {broker} is gone")]
    return found


@in_world(before=running)
async def test_the_end_of_a_brokers_session_is_a_warning_with_the_effects(
    w: KafkaWorld, caplog: pytest.LogCaptureFixture
) -> None:
    w.die(1)
    await w.propagated()
    text = "broker 1 is gone (session ended): 1 leader moved, 3 partitions lost an in-sync replica"
    assert gone(caplog, 1) == ("WARNING", text)
    w.die(2)
    await w.propagated()
    level, line = gone(caplog, 2)
    assert level == "WARNING"
    assert line.endswith("; without a leader: 1 partition (regent list partitions --offline)")
    await w.boot(1)
    await w.propagated()
    assert ("INFO", "broker 1 is registered and gets the metadata of all partitions") in lines(caplog)


@pytest.mark.parametrize("producers_wait", [False, True])
@in_world(before=running)
async def test_a_clean_stop_of_a_broker_is_a_warning_only_where_producers_wait(
    w: KafkaWorld, caplog: pytest.LogCaptureFixture, producers_wait: bool
) -> None:
    waits = "below min.insync.replicas, so that acks=all producers wait: "
    if producers_wait:
        w.term.cluster.min_isr = MinIsr(2, {"single": 1})
        w.die(1)
        await w.propagated()
        assert waits not in gone(caplog, 1)[1], "two of three replicas are enough"
    await w.controlled_shutdown(3)
    assert ("INFO", "broker 3 is free to stop: every partition that others can lead has moved away") in lines(caplog)
    w.die(3)
    await w.propagated()
    level, line = gone(caplog, 3)
    assert level == ("WARNING" if producers_wait else "INFO")
    assert "session ended after a controlled shutdown" in line
    effect = f"; {waits}3 partitions (regent list partitions --under-min-isr)"
    assert line.endswith(effect) is producers_wait


def test_partitions_below_min_insync_replicas_are_counted_by_the_setting_of_each_topic() -> None:
    cluster = make_cluster(
        P((1, 2, 3), leader=1, isr=(1, 2)),
        P((1, 2, 3), leader=1, isr=(1,)),
        P((1, 3), leader=1, isr=(1,)),
        P((3,), leader=3),
        P((1, 2), leader=1, isr=(1,)),
    )
    die(cluster, 3)
    assert led_but_under(cluster, [3], UNKNOWN) is None
    counts = [led_but_under(cluster, [3], found) for found in (MinIsr(1, {}), MinIsr(2, {}), MinIsr(1, {"t": 3}))]
    assert counts == [0, 2, 3], "of the partitions on broker 3 that have a leader, none counted twice"
    assert led_but_under(cluster, [2, 3], MinIsr(2, {})) == 3


@in_world(before=running)
async def test_created_topics_are_counted_and_named(w: KafkaWorld, caplog: pytest.LogCaptureFixture) -> None:
    await created(w, create(topic("new")))
    await created(w, create(*(topic(f"n{i}") for i in range(7))))
    found = [line for _, line in lines(caplog)]
    assert "created 1 topic: new" in found
    assert "created 7 topics: n0, n1, n2, n3, n4 and 2 more topics" in found


@in_world(before=running)
async def test_an_isr_line_names_the_brokers_that_joined_and_left(
    w: KafkaWorld, caplog: pytest.LogCaptureFixture
) -> None:
    await w.alter_partition(1, w.proposal("t", 0, (1, 3)))
    await w.alter_partition(1, w.proposal("t", 0, (1, 3, 2)))
    found = [line for _, line in lines(caplog, "regent.state-change")]
    assert "ISR changes of leaders: broker 2 left the ISR of 1 partition" in found
    assert "ISR changes of leaders: broker 2 joined the ISR of 1 partition" in found


@pytest.mark.parametrize(
    ("count", "shown"), [(0, ""), (1, "0"), (NAMED_MAX, "0, 1, 2, 3, 4"), (NAMED_MAX + 1, "0, 1, 2, 3, 4 and 1 more")]
)
def test_names_beyond_a_bound_are_counted(count: int, shown: str) -> None:
    assert named(range(count)) == shown
    names = [str(number) for number in range(count)]
    assert abbreviate(names) == shown.replace("more", "more topics")


def test_an_isr_line_names_a_bounded_number_of_brokers() -> None:
    report = Report("ISR changes of leaders")
    members = tuple(range(1, BROKERS_SHOWN + 4))
    [before] = make_cluster(P(members, leader=1)).rows
    report.applied([Change(0, before, replace(before, isr=(1,)), ISR_CHANGED)])
    assert report.sentence().endswith(f"; {len(members) - 1 - BROKERS_SHOWN} more brokers left ISRs")


@in_world()
async def test_a_cancelled_reassignment_is_logged_with_its_principal_and_the_replicas_to_stop(
    w: KafkaWorld, caplog: pytest.LogCaptureFixture
) -> None:
    await w.topic("t", (1, 2), leaders=True)
    await w.begin_term()
    await w.propagated()
    await alter(w, {("t", 0): (2, 3)})
    await alter(w, {("t", 0): None})
    found = [line for _, line in lines(caplog)]
    assert "reassignment: begun for 1 partition, requested by an admin client" in found
    assert "reassignment: cancelled for 1 partition, requested by an admin client" in found
    assert "reassignment: 1 partition with the final replicas; 1 replica to stop" in found
    decided = [line for _, line in lines(caplog, "regent.state-change")]
    assert [line for line in decided if "reassignment cancelled: the replicas that it added stop" in line]
    assert not [line for line in decided if "reassignment complete" in line]
    assert any(line.startswith("reassignment cancelled for 1 partition, requested by ") for line in decided)
    kept = dict.fromkeys(row.why for row in w.book.read() if row.reason == "reassignment")
    assert [why for why in kept if why and "requested by" in why] == [
        "reassignment begun for 1 partition, requested by an admin client",
        "reassignment cancelled for 1 partition, requested by an admin client",
    ]


@in_world(1, 2, 3, 4)
async def test_a_new_target_of_a_reassignment_is_logged_as_an_override(
    w: KafkaWorld, caplog: pytest.LogCaptureFixture
) -> None:
    await w.topic("t", (1, 2), leaders=True)
    await w.begin_term()
    await w.propagated()
    await alter(w, {("t", 0): (2, 3)})
    await alter(w, {("t", 0): (2, 4)})
    decided = [line for _, line in lines(caplog, "regent.state-change")]
    assert [line for line in decided if "reassignment overridden: a new target replaces the one under way" in line]


def test_the_last_words_of_a_stalled_process_are_one_line_of_json() -> None:
    stream = io.StringIO()
    with logging_to(LogSettings(format="json"), stream) as queued:
        queued.log_last(logging.getLogger("regent.daemon"), f"the event loop stood still\n{stacks()}")
        [line] = stream.getvalue().splitlines()
    found = json.loads(line)
    assert (found["level"], "Thread MainThread:" in found["event"]) == ("critical", True)
    assert "test_log_lines.py" in found["event"]
