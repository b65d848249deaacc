"""Leaves writes uncompared whose order, base or owner is unknown: they are counted by reason, not as differences."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from controller.kafka.shadow.events import Kind
from controller.kafka.shadow.timeline import FORGOTTEN, READ_LATE, SEVERAL, UNSEEN_TERM
from controller.kafka.shadow.tracker import BARE_EPOCH, BEGUN_BEFORE, BEHIND, ISR_UNSEEN, PREFERRED, PREFERRED_UNSEEN
from controller.kafka.shadow.unmatched import BEING_DELETED, BEING_REASSIGNED
from state_machines.model.types import NO_LEADER, Leadership
from tests.kit.kafka.shadow import TRIPLES, WAIT_S, ShadowWorld, Watcher, watched

T0 = ("t", 0)


def test_a_bare_epoch_of_an_offline_partition_is_counted_apart() -> None:
    w, watcher = watched((1, 2, 3), (3,))
    watcher.kill(3)
    assert w.state(("t", 1)).leader == NO_LEADER
    w.elect(2)
    w.controller.finish()
    watcher.read()
    watcher.agrees({Kind.DEATH: 2}, not_ours={BARE_EPOCH: 1})


def test_an_unread_isr_change_is_uncomparable_only_where_it_could_explain_the_state() -> None:
    w, watcher = watched((1, 2, 3), (1, 2, 3))
    w.leader_sets_isr(T0, 1, 3)
    w.deregister(1)
    w.controller.step()
    w.controller.step()
    watcher.read()
    assert w.state(T0).leader == 3
    watcher.agrees({Kind.DEATH: 1}, uncomparable={ISR_UNSEEN: 1})


def test_a_preferred_election_is_not_compared() -> None:
    w, watcher = watched((1, 2, 3))
    watcher.kill(1)
    w.elect(2)
    w.register(1)
    watcher.read_during()
    w.leader_sets_isr(T0, 2, 3, 1)
    watcher.read()
    held = w.state(T0)
    w.write(T0, 1, held.leader_epoch + 1, held.isr)
    watcher.agrees({Kind.DEATH: 1}, not_ours={PREFERRED: 1})


@pytest.mark.parametrize("before", [True, False])
def test_an_unread_preferred_election_beside_a_decision_is_uncomparable(before: bool) -> None:
    w, _ = watched((1, 2, 3), (2, 1, 3))
    w.write(T0, 2, 1, (1, 2, 3))
    watcher = Watcher(w)
    if before:
        w.write(T0, 1, 2, (1, 2, 3))
    w.asks_to_shut_down(3)
    w.controller.finish()
    if not before:
        w.write(T0, 1, 3, (1, 2))
    w.deregister(3)
    w.controller.finish()
    watcher.read()
    assert w.state(T0) == Leadership(1, 3, (1, 2), 1, 3)
    watcher.agrees({Kind.SHUTDOWN: 1}, uncomparable={PREFERRED_UNSEEN: 1})


def test_a_deleted_topic_takes_its_waiting_partitions_with_it() -> None:
    w, watcher = watched(*TRIPLES)
    w.deregister(1)
    watcher.read()
    w.delete("t")
    watcher.read()
    w.controller.finish()
    watcher.agrees({}, uncomparable={FORGOTTEN: len(TRIPLES)})


@pytest.mark.parametrize("deleting", [True, False])
def test_a_write_to_a_topic_that_is_being_deleted_is_uncomparable(deleting: bool) -> None:
    w, watcher = watched(*TRIPLES)
    w.write(T0, NO_LEADER, 1, (1, 2, 3))
    for _ in range(4):
        watcher.read(seconds=3 * WAIT_S, deleting=["t"] if deleting else ["other"])
    assert watcher.statistics.uncomparable == ({BEING_DELETED: 1} if deleting else {})
    assert watcher.statistics.differing == (0 if deleting else 1)


def test_a_reassignment_is_uncomparable_while_it_runs() -> None:
    w, watcher = watched((1, 2), (2, 3))
    w.reassign("t", (1, 2, 3), (2, 3), adding=(3,))
    w.write(T0, 1, 1, (1, 2))
    watcher.read()
    w.write(T0, 1, 2, (1, 2, 3))
    watcher.agrees({}, uncomparable={BEING_REASSIGNED: 1})
    w.reassign("t", (3, 2), (2, 3))
    watcher.read()
    watcher.kill(2)
    watcher.agrees({Kind.DEATH: 2}, uncomparable={BEING_REASSIGNED: 1})


def test_writes_that_were_due_when_the_shadow_began_are_uncomparable() -> None:
    w, _ = watched(*TRIPLES)
    w.deregister(1)
    w.controller.step()
    watcher = Watcher(w, settle=False)
    w.controller.finish()
    watcher.read()
    watcher.agrees({}, uncomparable={BEGUN_BEFORE: len(TRIPLES) - 1})


@pytest.mark.parametrize("behind", [True, False])
def test_another_decision_of_a_controller_that_is_several_events_behind_is_uncomparable(behind: bool) -> None:
    w = ShadowWorld((1, 2, 3, 4, 5, 9))
    w.create("t", (1, 2, 3, 4, 5), (2, 3, 1, 5, 4))
    w.controller.finish()
    watcher = Watcher(w)
    for broker in (1, 2, 3):
        w.deregister(broker)
        watcher.read()
        if not behind and broker < 3:
            w.controller.finish()
            watcher.read()
    w.controller.tamper = lambda name, found: found if name != T0 else Leadership(5, found.leader_epoch, (5,), 0, 0)
    w.controller.finish()
    watcher.read()
    assert bool(watcher.differences()) is not behind
    assert (BEHIND in watcher.statistics.uncomparable) is behind


def late(w: ShadowWorld) -> None:
    w.deregister(1)


def several(w: ShadowWorld) -> None:
    w.write(T0, 3, 1, (2, 3))
    w.deregister(1)
    w.register(4)


def unseen_term(w: ShadowWorld) -> None:
    w.deregister(1)
    w.elect(9)
    w.elect(9)


@pytest.mark.parametrize(("doubt", "cause"), [(READ_LATE, late), (SEVERAL, several), (UNSEEN_TERM, unseen_term)])
def test_a_state_that_unread_events_may_explain_is_uncomparable(
    doubt: str, cause: Callable[[ShadowWorld], None]
) -> None:
    w, watcher = watched((1, 2, 3), (2, 3, 1))
    cause(w)
    w.controller.tamper = lambda name, found: found if name != T0 else Leadership(3, found.leader_epoch, (2, 3), 0, 0)
    w.controller.finish()
    watcher.read(late=cause is late)
    assert not watcher.differences()
    assert doubt in watcher.statistics.uncomparable
