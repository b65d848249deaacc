"""Compares our decisions with a controller that writes step by step: the shadow reports real differences alone."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from controller.kafka.shadow.events import Kind
from controller.kafka.shadow.tracker import ORDER_UNKNOWN, PREFERRED
from state_machines.model.types import Leadership
from tests.kit.kafka.shadow import MIXED, TRIPLES, WAIT_S, Name, ShadowWorld, Watcher, watched

T0 = ("t", 0)


# -- decisions that agree


@pytest.mark.seed("S4-44", "S4-45", "S4-46", "S4-49")
def test_death_and_return_agree_with_the_controllers_single_steps() -> None:
    w, watcher = watched(*MIXED)
    watcher.kill(2)
    deaths = w.controller.writes - len(MIXED)
    w.register(2)
    watcher.read_during()
    watcher.agrees({Kind.DEATH: deaths, Kind.RETURN: 1})


@pytest.mark.seed("S4-72", "S4-74")
@pytest.mark.parametrize("read_before_it_leaves", [True, False])
def test_a_clean_shutdown_is_recognised_before_and_after_the_broker_left(read_before_it_leaves: bool) -> None:
    w, watcher = watched(*MIXED)
    w.asks_to_shut_down(3)
    w.controller.finish()
    if read_before_it_leaves:
        watcher.read()
        watcher.read()
        assert watcher.statistics.events[Kind.SHUTDOWN] == 1
    w.deregister(3)
    watcher.read()
    w.controller.finish()
    watcher.agrees({Kind.SHUTDOWN: 6, Kind.DEATH: 1})
    assert +watcher.statistics.events == {"clean shutdown": 1, "broker departure": 1}, "a stop is not called a death"


@pytest.mark.seed("S4-42")
def test_topic_creation_agrees_with_states_that_precede_or_follow_the_first_read() -> None:
    w, watcher = watched(*MIXED)
    w.create("early", *TRIPLES)
    w.controller.finish()
    watcher.read()
    w.create("late", *MIXED)
    watcher.read()
    watcher.read(w.controller.step)
    w.controller.finish()
    watcher.agrees({Kind.CREATION: len(TRIPLES) + len(MIXED)})


def test_added_partitions_are_creations() -> None:
    w, watcher = watched((1, 2))
    w.reassign("t", (1, 2), (2, 3), (3, 1))
    watcher.read_during()
    watcher.agrees({Kind.CREATION: 2})


def test_a_topic_created_before_a_death_starts_with_the_broker_that_dies() -> None:
    w, watcher = watched(*MIXED)
    w.create("new", *TRIPLES)
    w.controller.finish()
    w.deregister(1)
    w.controller.finish()
    watcher.read()
    watcher.agrees({Kind.DEATH: 7 + len(TRIPLES)})
    assert watcher.statistics.unseen == len(TRIPLES), "the first states were overwritten before they were read"


@pytest.mark.seed("S4-65", "S4-68")
@pytest.mark.parametrize("begun", [False, True])
def test_without_a_controller_no_write_is_late_and_the_next_ones_failover_agrees(begun: bool) -> None:
    w, watcher = watched(*MIXED, holder=1)
    if begun:
        w.deregister(3)
        watcher.read()
        assert watcher.tracker.waiting
    w.deregister(1)
    for _ in range(3):
        watcher.read(seconds=3 * WAIT_S)
        assert not watcher.statistics.differing
    w.elect(2)
    watcher.read(w.controller.step)
    w.controller.finish()
    if begun:
        assert not watcher.differences()
        assert watcher.agreed(Kind.FAILOVER)
    else:
        watcher.agrees({Kind.FAILOVER: 7})


def test_a_decision_follows_an_isr_change_of_the_leader() -> None:
    w, watcher = watched((1, 2, 3))
    w.leader_sets_isr(T0, 1, 3)
    watcher.read()
    watcher.kill(1)
    assert w.state(T0).leader == 3
    watcher.agrees({Kind.DEATH: 1})


def test_the_base_of_a_decision_is_the_isr_that_the_leader_has_changed_before() -> None:
    w, watcher = watched((1, 2, 3))
    w.deregister(3)
    watcher.read()
    assert len(watcher.tracker.waiting) == 1
    w.leader_sets_isr(T0, 1, 2)
    w.controller.finish()
    watcher.read()
    watcher.agrees({})
    assert watcher.statistics.isr_changes == 1, "the leader was faster: nothing is left to decide"


@pytest.mark.parametrize(("split", "order"), [(True, (2, 3)), (True, (3, 2)), (False, (2, 3))])
def test_two_deaths_agree_whether_the_controller_read_one_snapshot_or_two(split: bool, order: tuple[int, int]) -> None:
    w, watcher = watched((2, 3, 1), (3, 2, 1), (1, 2, 3))
    for b in order:
        w.deregister(b)
        if split:
            w.controller.finish()
        else:
            watcher.read()
    w.controller.finish()
    watcher.read()
    assert not watcher.differences()
    assert watcher.agreed(Kind.DEATH) + watcher.statistics.uncomparable.total() == 3


# -- differences


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        ({"leader": 3}, "leader"),
        ({"isr": (2,)}, "ISR"),
        ({"leader_epoch": 2}, "leader epoch"),
        ({"leader": 3, "isr": (3,), "leader_epoch": 5}, "leader, ISR, leader epoch"),
    ],
)
def test_another_decision_of_the_controller_is_a_difference(change: Mapping[str, object], fields: str) -> None:
    w, watcher = watched(*TRIPLES)

    def tamper(name: Name, written: Leadership) -> Leadership:
        values = {"leader": written.leader, "leader_epoch": written.leader_epoch, "isr": written.isr, **change}
        return Leadership(**values, controller_epoch=0, version=0) if name == T0 else written  # type: ignore[arg-type]

    w.controller.tamper = tamper
    watcher.kill(1)
    [found] = watcher.differences()
    assert (found.path, found.fields) == ("/brokers/topics/t/partitions/0/state", fields)
    assert found.event == "broker departure of 1"
    assert str(found.ours) == "leader 2, ISR [2, 3], leader epoch 1"
    assert watcher.agreed(Kind.DEATH) == len(TRIPLES) - 1, "the other partitions agree"


def test_a_missing_write_is_a_difference_after_its_wait_and_not_before() -> None:
    w, watcher = watched(*TRIPLES)
    w.deregister(1)
    for _ in range(3):
        w.controller.step()
    for _ in range(8):
        watcher.read(seconds=1)
    assert not watcher.statistics.differing
    [found] = watcher.differences()
    assert found.theirs == found.before
    assert found.ours is not None
    assert found.ours.leader_epoch == 1


def test_the_wait_for_a_missing_write_begins_anew_with_the_next_decision() -> None:
    w, watcher = watched((1, 2, 3))
    for broker in (1, 2):
        w.deregister(broker)
        watcher.read()
        watcher.read(seconds=0.9 * WAIT_S)
        assert not watcher.statistics.differing
    watcher.read(seconds=0.2 * WAIT_S)
    assert len(watcher.statistics.differences) == 1


def test_the_wait_of_an_unexplained_read_ends_in_spite_of_the_next_decision() -> None:
    w, watcher = watched((1, 2, 3))
    w.write(T0, 3, 0, (1, 2, 3))
    watcher.read()
    watcher.read(seconds=0.9 * WAIT_S)
    w.deregister(1)
    watcher.read()
    assert not watcher.statistics.differing
    watcher.read(seconds=0.2 * WAIT_S)
    assert len(watcher.statistics.differences) == 1


@pytest.mark.parametrize(
    ("leader", "epochs", "isr", "fields"),
    [
        (2, 1, (1, 2, 3), "leader, leader epoch"),
        (1, 1, (1, 2), "ISR, leader epoch"),
        (1, 1, (1, 2, 3), "leader epoch"),
        (1, 3, (1, 2, 3), "leader epoch"),
        (3, 0, (1, 2, 3), "leader"),
    ],
)
def test_a_state_written_by_hand_on_a_quiet_cluster_is_a_difference(
    leader: int, epochs: int, isr: tuple[int, ...], fields: str
) -> None:
    w, watcher = watched(*MIXED)
    w.write(T0, leader, epochs, isr)
    watcher.read()
    [found] = watcher.differences()
    assert (found.fields, found.event) == (fields, "no event explains it")
    assert not watcher.tracker.model.shutting_down, "one moved partition is no clean shutdown"


def test_an_inferred_shutdown_is_withdrawn_once_its_wait_is_over() -> None:
    w, watcher = watched(*MIXED)
    watcher.now = 4_096.0
    w.write(T0, 1, 1, (1, 2))
    watcher.read(seconds=1.0)
    watcher.read(seconds=1.0)
    assert watcher.tracker.model.shutting_down == {3}
    watcher.read(seconds=WAIT_S - 1.0)
    assert watcher.tracker.model.shutting_down == {3}
    watcher.read(seconds=1.0)
    assert not watcher.tracker.model.shutting_down


def test_after_a_planted_state_and_a_withdrawn_inference_the_next_events_agree() -> None:
    w, watcher = watched(*MIXED)
    w.write(T0, 1, 1, (1, 2))
    watcher.read()
    watcher.read()
    assert watcher.tracker.model.shutting_down == {3}
    w.create("during", *TRIPLES)
    watcher.read_during()
    assert len(watcher.differences()) == 1
    watcher.kill(3)
    assert len(watcher.differences()) == 1
    assert watcher.agreed(Kind.DEATH) == 6 + len(TRIPLES)
    assert watcher.agreed(Kind.CREATION) == len(TRIPLES)


def test_the_controller_of_this_kit_writes_each_step_alone() -> None:
    w = ShadowWorld()
    w.create("t", (1, 2, 3), (2, 1, 3))
    w.controller.finish()
    w.deregister(1)
    assert w.controller.step()
    assert w.state(T0).leader == 2
    assert w.state(("t", 1)).isr == (2, 1, 3)


NAME = ("t", 0)
SINGLE = (2,)
"""A partition whose leader is lost with broker 2: that write shows that the controller handles the death."""


def stopped(*others: tuple[int, ...], handled: bool = True) -> Watcher:
    """Shuts broker 2 down; broker 1 leads the partition whose preferred leader is broker 3."""
    w, _ = watched((3, 1, 2), *others)
    w.write(NAME, 1, 3, (1, 3, 2))
    watcher = Watcher(w)
    w.asks_to_shut_down(2)
    w.controller.finish()
    w.deregister(2)
    watcher.read()
    if handled:
        w.controller.finish()
    watcher.read()
    assert w.state(NAME) == Leadership(1, 4, (1, 3), 1, 2)
    return watcher


def elected(watcher: Watcher) -> None:
    """Elects broker 3; the shadow waits for other explanations before it counts a preferred election."""
    watcher.world.write(NAME, 3, 5, (1, 3))
    watcher.read()
    assert watcher.tracker.waiting


def returned_and_joined(watcher: Watcher, *, handled: bool = True) -> None:
    """Registers broker 2 again and lets it join the ISR."""
    watcher.world.register(2)
    watcher.read()
    if handled:
        watcher.read_during()
    watcher.world.leader_sets_isr(NAME, 1, 3, 2)
    watcher.read()


@pytest.mark.parametrize("read_as_one", [False, True])
def test_no_write_is_missing_once_a_broker_whose_death_was_handled_has_joined_again(read_as_one: bool) -> None:
    watcher = stopped(SINGLE)
    if read_as_one:
        watcher.world.write(NAME, 3, 5, (1, 3))
        watcher.world.register(2)
        watcher.world.controller.finish()
        watcher.world.leader_sets_isr(NAME, 1, 3, 2)
        watcher.read()
    else:
        elected(watcher)
        returned_and_joined(watcher)
    watcher.agrees({Kind.SHUTDOWN: 1, Kind.DEATH: 1, Kind.RETURN: 1}, not_ours={PREFERRED: 1})


def test_a_removal_that_no_event_requires_is_a_difference_after_the_broker_has_joined_again() -> None:
    watcher = stopped(SINGLE)
    elected(watcher)
    returned_and_joined(watcher)
    watcher.world.write(NAME, 3, 6, (1, 3))
    watcher.read()
    [found] = watcher.differences()
    assert (found.path, found.event) == ("/brokers/topics/t/partitions/0/state", "no event explains it")


def test_without_a_sign_that_the_death_was_handled_the_partition_is_uncomparable() -> None:
    watcher = stopped()
    elected(watcher)
    returned_and_joined(watcher)
    watcher.agrees({Kind.SHUTDOWN: 1}, uncomparable={ORDER_UNKNOWN: 1}, not_ours={PREFERRED: 1})


def test_several_isr_changes_that_are_read_as_one_leave_the_partition_uncomparable() -> None:
    watcher = stopped(SINGLE)
    watcher.world.write(NAME, 3, 5, (1, 3))
    watcher.world.register(2)
    watcher.world.controller.finish()
    for isr in ((3,), (3, 1), (1, 3, 2)):
        watcher.world.leader_sets_isr(NAME, *isr)
    watcher.read()
    compared = {Kind.SHUTDOWN: 1, Kind.DEATH: 1, Kind.RETURN: 1}
    watcher.agrees(compared, uncomparable={ORDER_UNKNOWN: 1}, not_ours={PREFERRED: 1})


def test_after_an_uncertain_death_the_next_one_is_no_difference() -> None:
    watcher = stopped()
    elected(watcher)
    returned_and_joined(watcher)
    watcher.kill(3)
    assert watcher.world.state(NAME).isr == (1, 2)
    assert not watcher.differences()
    assert watcher.statistics.uncomparable
    assert watcher.statistics.not_ours == {PREFERRED: 1}


def test_a_controller_that_is_behind_may_handle_the_death_after_the_broker_has_joined() -> None:
    watcher = stopped(handled=False)
    elected(watcher)
    returned_and_joined(watcher, handled=False)
    watcher.world.controller.finish()
    assert watcher.world.state(NAME) == Leadership(3, 6, (1, 3), 1, 5)
    watcher.agrees({Kind.SHUTDOWN: 1, Kind.DEATH: 1}, not_ours={PREFERRED: 1})
