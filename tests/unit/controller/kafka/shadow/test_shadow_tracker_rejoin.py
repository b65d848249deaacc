"""Judges a broker that is away for a moment during preferred elections, and joins the ISR again before the judgement.

Nothing may be expected of the controller then but what it had left to do: its death does not remove a member that
joined after its return.
"""

from __future__ import annotations

import pytest

from controller.kafka.shadow.events import Kind
from controller.kafka.shadow.tracker import ORDER_UNKNOWN, PREFERRED
from state_machines.model.types import Leadership
from tests.kit.shadow_kit import Watcher, watched

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
