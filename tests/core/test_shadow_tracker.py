"""The shadow beside a controller that writes step by step: it reports what differs, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from controller.shadow.events import Kind
from controller.shadow.tracker import BARE_EPOCH, ISR_UNSEEN, PREFERRED, PREFERRED_UNSEEN
from state_machines.model.types import NO_LEADER, Leadership
from tests.core.shadow_kit import KafkaLike, Name, Watcher, World

TRIPLES = ((1, 2, 3), (2, 3, 1), (3, 1, 2), (1, 3, 2))
MIXED = (*TRIPLES, (1, 2), (2, 3), (3, 1), (1,), (2,), (3,))


def world(*replicas: tuple[int, ...], holder: int = 9) -> World:
    made = World(holder=holder)
    made.create("t", *(replicas or MIXED))
    made.controller.finish()
    return made


def finish(made: World) -> None:
    made.controller.finish()


def clean(watcher: Watcher) -> None:
    """Nothing differs, nothing waits, nothing was left uncompared."""
    watcher.pass_time()
    assert [str(d) for d in watcher.statistics.differences] == []
    assert not watcher.tracker.waiting
    assert not watcher.statistics.uncomparable


def killed(watcher: Watcher, b: int) -> None:
    watcher.world.deregister(b)
    watcher.read(lambda: finish(watcher.world))


@pytest.mark.seed("S4-44", "S4-45", "S4-46", "S4-49")
def test_death_and_return_agree_with_what_the_controller_writes_step_by_step() -> None:
    w = world()
    watcher = Watcher(w)
    killed(watcher, 2)
    w.register(2)
    watcher.read(lambda: finish(w))
    clean(watcher)
    assert watcher.agreed(Kind.DEATH) == w.controller.writes - watcher.agreed(Kind.RETURN) - len(MIXED)
    assert watcher.agreed(Kind.RETURN) == 1, "the single replica of the returned broker leads again"


@pytest.mark.seed("S4-72", "S4-74")
@pytest.mark.parametrize("seen_before_it_leaves", [True, False])
def test_a_clean_shutdown_is_recognised_before_and_after_the_broker_left(seen_before_it_leaves: bool) -> None:
    w = world()
    watcher = Watcher(w)
    w.asks_to_shut_down(3)
    finish(w)
    if seen_before_it_leaves:
        watcher.read()
        watcher.read()
        assert watcher.statistics.events[Kind.SHUTDOWN] == 1
    w.deregister(3)
    watcher.read()
    finish(w)
    clean(watcher)
    assert +watcher.statistics.events == {"clean shutdown": 1, "broker departure": 1}, "a stop is not called a death"
    assert watcher.agreed(Kind.SHUTDOWN) == 6
    assert watcher.agreed(Kind.DEATH) == 1, "only the single replica is left to the death of the broker"


@pytest.mark.seed("S4-42")
def test_topic_creation_agrees_whether_the_state_znodes_are_there_at_the_first_look_or_later() -> None:
    w = world()
    watcher = Watcher(w)
    w.create("early", *TRIPLES)
    finish(w)
    watcher.read()
    w.create("late", *MIXED)
    watcher.read()
    watcher.read(w.controller.step)
    finish(w)
    clean(watcher)
    assert watcher.agreed(Kind.CREATION) == len(TRIPLES) + len(MIXED)


def test_a_topic_created_before_a_death_starts_with_the_broker_that_dies() -> None:
    w = world()
    watcher = Watcher(w)
    w.create("new", *TRIPLES)
    finish(w)
    w.deregister(1)
    finish(w)
    watcher.read()
    clean(watcher)
    assert watcher.agreed(Kind.CREATION) == 0, "the states were overwritten before they were read"
    assert watcher.statistics.unseen == len(TRIPLES)
    assert watcher.agreed(Kind.DEATH) == 3 + len(TRIPLES) + 4


@pytest.mark.seed("S4-65", "S4-68")
def test_the_controllers_own_death_is_answered_by_the_failover_of_the_next() -> None:
    w = world(holder=1)
    watcher = Watcher(w)
    w.deregister(1)
    watcher.read()
    watcher.pass_time()
    assert not watcher.statistics.differing, "nobody holds the role, nothing is late"
    w.elect(2)
    watcher.read(w.controller.step)
    finish(w)
    clean(watcher)
    assert watcher.agreed(Kind.FAILOVER) == 7
    assert watcher.agreed(Kind.DEATH) == 0


def test_a_failover_that_only_raises_the_epoch_of_an_offline_partition_is_listed_apart() -> None:
    w = world((1, 2, 3), (3,))
    watcher = Watcher(w)
    killed(watcher, 3)
    assert w.state(("t", 1)).leader == NO_LEADER
    w.elect(2)
    finish(w)
    watcher.read()
    clean(watcher)
    assert watcher.statistics.not_ours[BARE_EPOCH] == 1


def test_an_isr_change_of_the_leader_that_comes_first_is_what_the_decision_stands_on() -> None:
    w = world((1, 2, 3))
    watcher = Watcher(w)
    w.deregister(3)
    watcher.read()
    assert len(watcher.tracker.waiting) == 1
    w.leader_sets_isr(("t", 0), 1, 2)
    finish(w)
    watcher.read()
    clean(watcher)
    assert watcher.statistics.isr_changes == 1
    assert not watcher.statistics.compared, "the leader was faster: there was nothing left to decide"


def test_an_isr_change_between_two_reads_is_counted_as_uncomparable_only_where_it_could_explain_the_state() -> None:
    w = world((1, 2, 3), (1, 2, 3))
    watcher = Watcher(w)
    w.leader_sets_isr(("t", 0), 1, 3)
    w.deregister(1)
    w.controller.step()
    w.controller.step()
    watcher.read()
    assert w.state(("t", 0)).leader == 3
    watcher.pass_time()
    assert not watcher.statistics.differing
    assert watcher.statistics.uncomparable == {ISR_UNSEEN: 1}
    assert watcher.agreed(Kind.DEATH) == 1


def test_a_preferred_election_is_not_compared_and_not_a_difference() -> None:
    w = world((1, 2, 3))
    watcher = Watcher(w)
    killed(watcher, 1)
    w.elect(2)
    w.register(1)
    watcher.read(lambda: finish(w))
    w.leader_sets_isr(("t", 0), 2, 3, 1)
    watcher.read()
    held = w.state(("t", 0))
    w.write(("t", 0), 1, held.leader_epoch + 1, held.isr)
    clean(watcher)
    assert watcher.statistics.not_ours == {PREFERRED: 1}


@pytest.mark.parametrize("before", [True, False])
def test_a_preferred_election_beside_a_decision_between_two_reads_is_uncomparable(before: bool) -> None:
    w = world((1, 2, 3), (2, 1, 3))
    name = ("t", 0)
    w.write(name, 2, 1, (1, 2, 3))
    watcher = Watcher(w)
    if before:
        w.write(name, 1, 2, (1, 2, 3))
    w.asks_to_shut_down(3)
    finish(w)
    if not before:
        w.write(name, 1, 3, (1, 2))
    w.deregister(3)
    finish(w)
    watcher.read()
    watcher.pass_time()
    assert w.state(name) == Leadership(1, 3, (1, 2), 1, 3)
    assert not watcher.statistics.differing
    assert watcher.statistics.uncomparable == {PREFERRED_UNSEEN: 1}
    assert watcher.agreed(Kind.SHUTDOWN) == 1


@pytest.mark.parametrize(("split", "order"), [(True, (2, 3)), (True, (3, 2)), (False, (2, 3))])
def test_two_deaths_agree_whether_the_controller_saw_one_snapshot_or_two(split: bool, order: tuple[int, int]) -> None:
    w = world((2, 3, 1), (3, 2, 1), (1, 2, 3))
    watcher = Watcher(w)
    if split:
        for b in order:
            w.deregister(b)
            finish(w)
        watcher.read()
    else:
        w.deregister(order[0])
        watcher.read()
        w.deregister(order[1])
        w.controller.finish()
        watcher.read()
    watcher.pass_time()
    assert not watcher.statistics.differing
    assert watcher.agreed(Kind.DEATH) + sum(watcher.statistics.uncomparable.values()) == 3


def planted(change: Mapping[str, object], at: int = 0) -> Watcher:
    """A death of broker 1 in which the controller writes one state otherwise."""
    w = world(*TRIPLES)
    watcher = Watcher(w)

    def tamper(name: Name, written: Leadership) -> Leadership:
        if name != ("t", at):
            return written
        values = {"leader": written.leader, "leader_epoch": written.leader_epoch, "isr": written.isr, **change}
        return Leadership(values["leader"], values["leader_epoch"], values["isr"], 0, 0)  # type: ignore[arg-type]

    w.controller.tamper = tamper
    killed(watcher, 1)
    watcher.pass_time()
    return watcher


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        ({"leader": 3}, "leader"),
        ({"isr": (2,)}, "ISR"),
        ({"leader_epoch": 2}, "leader epoch"),
        ({"leader": 3, "isr": (3,), "leader_epoch": 5}, "leader, ISR, leader epoch"),
    ],
)
def test_a_decision_that_the_controller_takes_otherwise_is_found(change: Mapping[str, object], fields: str) -> None:
    watcher = planted(change)
    [found] = watcher.statistics.differences
    assert found.path == "/brokers/topics/t/partitions/0/state"
    assert found.fields == fields
    assert found.event == "broker departure of 1"
    assert (found.ours.leader, found.ours.isr, found.ours.leader_epoch) == (2, (2, 3), 1)  # type: ignore[union-attr]
    assert watcher.agreed(Kind.DEATH) == len(TRIPLES) - 1, "the others are not touched by it"
    assert not watcher.tracker.waiting


def test_a_decision_without_its_counterpart_is_missing_after_its_time_and_not_before() -> None:
    w = world(*TRIPLES)
    watcher = Watcher(w)
    w.deregister(1)
    for _ in range(3):
        w.controller.step()
    for _ in range(8):
        watcher.read(seconds=1)
    assert not watcher.statistics.differing
    watcher.pass_time()
    [found] = watcher.statistics.differences
    assert found.theirs == found.before
    assert found.ours is not None
    assert found.ours.leader_epoch == 1


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
def test_a_state_written_by_hand_on_a_quiet_cluster_is_found(
    leader: int, epochs: int, isr: tuple[int, ...], fields: str
) -> None:
    w = world(*MIXED)
    watcher = Watcher(w)
    w.write(("t", 0), leader, epochs, isr)
    watcher.read()
    watcher.pass_time()
    [found] = watcher.statistics.differences
    assert found.fields == fields
    assert found.event == "no event explains it"
    assert not watcher.tracker.waiting
    assert not watcher.tracker.model.shutting_down, "one moved partition is no clean shutdown"


def test_after_a_planted_state_and_a_withdrawn_inference_the_next_events_agree_again() -> None:
    w = world(*MIXED)
    watcher = Watcher(w)
    w.write(("t", 0), 1, 1, (1, 2))
    watcher.read()
    watcher.read()
    assert watcher.tracker.model.shutting_down == {3}
    w.create("during", *TRIPLES)
    watcher.read(lambda: finish(w))
    watcher.pass_time()
    assert watcher.statistics.differing == 1
    killed(watcher, 3)
    watcher.pass_time()
    assert watcher.statistics.differing == 1
    assert watcher.agreed(Kind.DEATH) == 6 + len(TRIPLES)
    assert watcher.agreed(Kind.CREATION) == len(TRIPLES)


def test_a_vanished_topic_takes_what_waited_with_it() -> None:
    w = world(*TRIPLES)
    watcher = Watcher(w)
    w.deregister(1)
    watcher.read()
    w.delete("t")
    watcher.read()
    finish(w)
    watcher.pass_time()
    assert not watcher.statistics.differing
    assert sum(watcher.statistics.uncomparable.values()) == len(TRIPLES)


def test_what_was_under_way_when_the_shadow_began_is_no_difference() -> None:
    w = world(*TRIPLES)
    w.deregister(1)
    w.controller.step()
    watcher = Watcher(w, settle=False)
    finish(w)
    watcher.read()
    watcher.pass_time()
    assert not watcher.statistics.differing
    assert sum(watcher.statistics.uncomparable.values()) == len(TRIPLES) - 1


def test_the_controller_of_this_kit_takes_each_step_alone() -> None:
    w = world((1, 2, 3), (2, 1, 3))
    w.deregister(1)
    assert isinstance(w.controller, KafkaLike)
    assert w.controller.step()
    assert w.state(("t", 0)).leader == 2
    assert w.state(("t", 1)).isr == (2, 1, 3)
