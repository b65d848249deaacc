"""A broker is away for a moment while preferred leaders are elected, and joins the ISR again before that is judged.

Nothing may be expected of the controller then but what it had left to do: a member that joined after its return is
not to be removed for its death before it.
"""

from __future__ import annotations

import pytest

from controller.shadow.events import Kind
from controller.shadow.tracker import ORDER_UNKNOWN, PREFERRED
from state_machines.model.types import Leadership
from tests.core.shadow_kit import Watcher, World

NAME = ("t", 0)
SINGLE = (2,)
"""A partition whose leader is lost with broker 2: that write shows that the controller handles the death."""


def stopped(*others: tuple[int, ...], handled: bool = True) -> Watcher:
    """Broker 2 has shut down cleanly and is gone; broker 1 leads what broker 3 is the preferred leader of."""
    w = World()
    w.create("t", (3, 1, 2), *others)
    w.controller.finish()
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
    """Broker 3 leads again; the shadow waits for what may explain that before it takes it for an election."""
    watcher.world.write(NAME, 3, 5, (1, 3))
    watcher.read()
    assert watcher.tracker.waiting


def returned(watcher: Watcher, *, handled: bool = True) -> None:
    """Broker 2 is back."""
    watcher.world.register(2)
    watcher.read()
    if handled:
        watcher.world.controller.finish()
        watcher.read()


def joined(watcher: Watcher) -> None:
    watcher.world.leader_sets_isr(NAME, 1, 3, 2)
    watcher.read()


def uncomparable(watcher: Watcher) -> None:
    """That one partition, and nothing differs."""
    assert [str(d) for d in watcher.statistics.differences] == []
    assert not watcher.tracker.waiting
    assert watcher.statistics.uncomparable == {ORDER_UNKNOWN: 1}


@pytest.mark.parametrize("read_as_one", [False, True])
def test_nothing_is_left_to_decide_once_the_broker_whose_death_was_handled_has_joined_again(read_as_one: bool) -> None:
    watcher = stopped(SINGLE)
    if read_as_one:
        watcher.world.write(NAME, 3, 5, (1, 3))
        watcher.world.register(2)
        watcher.world.controller.finish()
    else:
        elected(watcher)
        returned(watcher)
    joined(watcher)
    watcher.pass_time()
    assert [str(d) for d in watcher.statistics.differences] == []
    assert not watcher.tracker.waiting
    assert not watcher.statistics.uncomparable
    assert watcher.statistics.not_ours == {PREFERRED: 1}
    assert [watcher.agreed(kind) for kind in (Kind.SHUTDOWN, Kind.DEATH, Kind.RETURN)] == [1, 1, 1]


def test_a_removal_that_nobody_decided_is_found_after_the_broker_has_joined_again() -> None:
    watcher = stopped(SINGLE)
    elected(watcher)
    returned(watcher)
    joined(watcher)
    watcher.world.write(NAME, 3, 6, (1, 3))
    watcher.read()
    watcher.pass_time()
    [found] = watcher.statistics.differences
    assert found.path == "/brokers/topics/t/partitions/0/state"
    assert found.event == "no event explains it"
    assert not watcher.tracker.waiting


def test_without_a_sign_that_the_death_was_handled_the_partition_is_uncomparable() -> None:
    watcher = stopped()
    elected(watcher)
    returned(watcher)
    joined(watcher)
    watcher.pass_time()
    uncomparable(watcher)


def test_several_isr_changes_that_are_read_as_one_leave_the_partition_uncomparable() -> None:
    watcher = stopped(SINGLE)
    watcher.world.write(NAME, 3, 5, (1, 3))
    watcher.world.register(2)
    watcher.world.controller.finish()
    watcher.world.leader_sets_isr(NAME, 3)
    watcher.world.leader_sets_isr(NAME, 3, 1)
    joined(watcher)
    watcher.pass_time()
    uncomparable(watcher)


def test_the_next_death_is_not_held_against_what_the_partition_may_have_left_to_answer() -> None:
    watcher = stopped()
    elected(watcher)
    returned(watcher)
    joined(watcher)
    watcher.world.deregister(3)
    watcher.read(watcher.world.controller.finish)
    assert watcher.world.state(NAME).isr == (1, 2)
    watcher.pass_time()
    assert [str(d) for d in watcher.statistics.differences] == []
    assert not watcher.tracker.waiting
    assert watcher.statistics.uncomparable
    assert watcher.statistics.not_ours == {PREFERRED: 1}


def test_a_controller_that_is_behind_may_answer_the_death_after_the_joining() -> None:
    watcher = stopped(handled=False)
    elected(watcher)
    returned(watcher, handled=False)
    joined(watcher)
    watcher.world.controller.finish()
    assert watcher.world.state(NAME) == Leadership(3, 6, (1, 3), 1, 5)
    watcher.pass_time()
    assert [str(d) for d in watcher.statistics.differences] == []
    assert not watcher.tracker.waiting
    assert not watcher.statistics.uncomparable
    assert watcher.agreed(Kind.DEATH) == 1
