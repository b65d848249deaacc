"""Judges a read state znode, and yields the orders in which another controller may have handled events."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from controller.kafka.shadow import judgement as compare
from controller.kafka.shadow.events import ORDERS_MAX, PERMUTED_BROKERS_MAX, ClusterEvent, Kind, other_orders
from controller.kafka.shadow.judgement import HIDDEN_REPLICAS_MAX, Outcome, Step, hidden_isr_explains, judge
from controller.kafka.shadow.report import DIFFERENCES_MAX, SHOWN_MAX, Statistics, difference
from state_machines.model.types import NO_LEADER, Leadership
from tests.kit.kafka.model import broker

REPLICAS = (1, 2, 3)


def state(leader: int, isr: Sequence[int], epoch: int = 0, version: int = 0, controller: int = 7) -> Leadership:
    return Leadership(leader, epoch, tuple(isr), controller, version)


def step(leader: int, isr: Sequence[int], epochs: int = 1, number: int = 1, controller: int = 7) -> Step:
    return Step(number, controller, 0, leader, tuple(isr), epochs, "a rule")


BASE = state(1, REPLICAS, epoch=4, version=9)
MOVED = step(2, (2, 3))
TWICE = [MOVED, step(3, (3,), number=2)]
BY_TWO = step(2, (2, 3), epochs=2)
CREATED = step(1, REPLICAS)

AGREES, DIFFERS, BEYOND = Outcome.AGREES, Outcome.DIFFERS, Outcome.BEYOND
JUDGED: dict[str, list[tuple[Leadership | None, list[Step], Leadership, tuple[Outcome, int, int]]]] = {
    "the same znode": [(BASE, [MOVED], BASE, (Outcome.UNCHANGED, 0, 0))],
    "writes without a new epoch are ISR changes of the leader": [
        (BASE, [], state(1, (1, 2), 4, 10), (Outcome.ISR_CHANGES, 0, 1)),
        (BASE, [], state(1, REPLICAS, 4, 12), (Outcome.ISR_CHANGES, 0, 3)),
    ],
    "without a new epoch the leader stays, in the ISR": [
        (BASE, [], state(2, REPLICAS, 4, 10), (DIFFERS, 0, 1)),
        (BASE, [], state(1, (2, 3), 4, 10), (DIFFERS, 0, 1)),
        (BASE, [], state(-1, REPLICAS, 4, 10), (DIFFERS, 0, 1)),
        (state(-1, (1,), 4, 9), [], state(-1, (1,), 4, 10), (DIFFERS, 0, 1)),
    ],
    "an equal decision agrees, in any order of the ISR": [
        (BASE, [MOVED], state(2, (2, 3), 5, 10), (AGREES, 1, 0)),
        (BASE, [MOVED], state(2, (3, 2), 5, 10), (AGREES, 1, 0)),
        (BASE, [MOVED], state(2, (2, 3), 5, 12), (AGREES, 1, 2)),
    ],
    "another leader or ISR differs": [
        (BASE, [MOVED], state(3, (2, 3), 5, 10), (DIFFERS, 1, 0)),
        (BASE, [MOVED], state(2, (2,), 5, 10), (DIFFERS, 1, 0)),
        (BASE, [MOVED], state(2, (2, 3, 1), 5, 10), (DIFFERS, 1, 0)),
    ],
    "more epochs than decided, in as many writes or one": [
        (BASE, [MOVED], state(2, (2, 3), 6, 11), (BEYOND, 0, 0)),
        (BASE, [MOVED], state(2, (2, 3), 6, 10), (BEYOND, 0, 0)),
        (BASE, [], state(1, REPLICAS, 5, 10), (BEYOND, 0, 0)),
    ],
    "several decisions are compared at the epoch that was read": [
        (BASE, TWICE, state(2, (2, 3), 5, 10), (AGREES, 1, 0)),
        (BASE, TWICE, state(3, (3,), 6, 11), (AGREES, 2, 0)),
        (BASE, TWICE, state(2, (2,), 6, 11), (DIFFERS, 2, 0)),
    ],
    "a decision of two epochs is under way after one": [
        (BASE, [BY_TWO], state(NO_LEADER, (2, 3), 5, 10), (Outcome.UNDER_WAY, 0, 0)),
        (BASE, [BY_TWO], state(2, (2, 3), 6, 11), (AGREES, 1, 0)),
        (BASE, [BY_TWO], state(2, (2, 3), 6, 10), (AGREES, 1, 0)),
    ],
    "a creation is one epoch": [
        (None, [CREATED], state(1, REPLICAS), (AGREES, 1, 0)),
        (None, [CREATED], state(1, (1, 2), 0, 1), (DIFFERS, 1, 1)),
        (None, [], state(1, REPLICAS), (BEYOND, 0, 0)),
    ],
    "neither epoch nor version goes back": [
        (BASE, [step(1, (1,))], seen, (Outcome.WENT_BACK, 0, 0))
        for seen in (state(1, REPLICAS, 3, 10), state(1, REPLICAS, 4, 8), state(1, (1,), 4, 9))
    ],
    "a controller before the event did not handle it": [
        (BASE, [MOVED], state(2, (2, 3), 5, 10, controller=6), (DIFFERS, 1, 0)),
        (BASE, [step(2, (2, 3), controller=6)], state(2, (2, 3), 5, 10, controller=6), (AGREES, 1, 0)),
        (BASE, [MOVED], state(2, (2, 3), 5, 10, controller=8), (AGREES, 1, 0)),
    ],
}  # fmt: skip


@pytest.mark.parametrize("rule", JUDGED)
def test_a_read_is_judged_by_its_version_and_leader_epoch(rule: str) -> None:
    for base, steps, seen, expected in JUDGED[rule]:
        assert judge(base, steps, seen) == expected, seen


def death_of_1(base: Leadership | None) -> list[Step]:
    """Decides the death of broker 1 on any base."""
    if base is None or 1 not in base.isr:
        return []
    isr = [r for r in base.isr if r != 1] or list(base.isr)
    leader = next((r for r in REPLICAS if r in isr and r != 1), NO_LEADER) if base.leader == 1 else base.leader
    return [step(leader, isr)]


def nothing(_: Leadership | None) -> list[Step]:
    return []


def by_two(_: Leadership | None) -> list[Step]:
    return [step(2, (2,), epochs=2)]


LED_BY_2 = state(2, (2, 3), 4, 9)
HIDDEN = {
    "a change before the decision": (BASE, state(3, (3,), 5, 11), death_of_1, True),
    "a change after it": (BASE, state(2, (2,), 5, 11), death_of_1, True),
    "no write left for a change": (BASE, state(3, (3,), 5, 10), death_of_1, False),
    "one change cannot lie before and after": (BASE, state(3, (3, 2), 5, 11), death_of_1, False),
    "two changes can": (BASE, state(3, (3, 2), 5, 12), death_of_1, True),
    "no change makes a dead broker lead": (BASE, state(1, (1, 2), 5, 11), death_of_1, False),
    "a member that joined unseen and died": (LED_BY_2, state(2, (2, 3), 5, 11), death_of_1, True),
    "no decision, no explanation": (LED_BY_2, state(2, (2, 3), 5, 11), nothing, False),
    "no new epoch": (BASE, state(1, (1,), 4, 11), death_of_1, False),
    "a state inside a decision": (BASE, state(NO_LEADER, (2,), 5, 11), by_two, False),
}


@pytest.mark.parametrize("case", HIDDEN)
def test_unread_isr_changes_explain_a_state_that_one_of_their_orders_leads_to(case: str) -> None:
    base, seen, decide, explained = HIDDEN[case]
    assert hidden_isr_explains(base, seen, REPLICAS, decide) is explained


def test_a_state_inside_a_decision_is_explained_on_request() -> None:
    base, seen, decide, _ = HIDDEN["a state inside a decision"]
    assert hidden_isr_explains(base, seen, REPLICAS, decide, within=True)
    assert not hidden_isr_explains(base, state(2, (2,), 7, 13), REPLICAS, decide, within=True), "beyond its end"


def test_too_many_replicas_count_as_explained_untried() -> None:
    for count, explained in ((HIDDEN_REPLICAS_MAX, False), (HIDDEN_REPLICAS_MAX + 1, True)):
        replicas = tuple(range(1, count + 1))
        assert hidden_isr_explains(BASE, state(1, (1,), 5, 11), replicas, nothing) is explained


@pytest.mark.parametrize(
    ("base", "seen", "is_one"),
    [
        (state(2, REPLICAS, 4, 9), state(1, REPLICAS, 5, 10), True),
        (state(2, REPLICAS, 4, 9), state(1, (3, 2, 1), 5, 10), True),
        (state(2, REPLICAS, 4, 9), state(1, (1, 3), 5, 10), False),
        (state(2, REPLICAS, 4, 9), state(1, (1, 3), 5, 11), False),
        (state(2, REPLICAS, 4, 9), state(3, REPLICAS, 5, 10), False),
        (state(2, REPLICAS, 4, 9), state(1, REPLICAS, 6, 11), False),
        (state(2, REPLICAS, 4, 9), state(1, REPLICAS, 4, 10), False),
        (state(2, REPLICAS, 4, 9), state(1, REPLICAS, 5, 9), False),
        (state(2, REPLICAS, 4, 9), state(1, REPLICAS, 5, 11), True),
        (state(1, REPLICAS, 4, 9), state(1, REPLICAS, 5, 10), False),
        (state(2, (2, 3), 4, 9), state(1, REPLICAS, 5, 10), False),
        (state(2, (2, 3), 4, 9), state(1, REPLICAS, 5, 11), True),
        (None, state(1, REPLICAS), False),
    ],
)
def test_a_preferred_election_keeps_the_isr_and_its_leader_joined_before(
    base: Leadership | None, seen: Leadership, is_one: bool
) -> None:
    assert compare.is_preferred_election(base, seen, REPLICAS) is is_one


OFFLINE = state(NO_LEADER, (1,), 4, 9)


@pytest.mark.parametrize(
    ("base", "steps", "seen", "count"),
    [
        (OFFLINE, [], state(NO_LEADER, (1,), 5, 10), 1),
        (OFFLINE, [], OFFLINE, 0),
        (BASE, [step(NO_LEADER, (1,))], state(NO_LEADER, (1,), 7, 12), 2),
        (OFFLINE, [], state(1, (1,), 5, 10), 0),
        (OFFLINE, [], state(NO_LEADER, (2,), 5, 10), 0),
        (BASE, [], state(1, REPLICAS, 5, 10), 0),
        (state(NO_LEADER, (1, 2), 4, 9), [], state(NO_LEADER, (1, 2), 5, 10), 0),
        (None, [], OFFLINE, 0),
    ],
)
def test_bare_epochs_are_those_of_an_offline_partition_with_one_member(
    base: Leadership | None, steps: list[Step], seen: Leadership, count: int
) -> None:
    assert compare.bare_epochs(base, steps, seen) == count


def test_lost_members_are_former_leaders_and_members() -> None:
    assert compare.lost_members(BASE, state(2, (2, 3), 5, 10)) == {1}
    assert compare.lost_members(state(1, (2,)), state(2, (2,), 1, 1)) == {1}
    assert compare.lost_members(BASE, state(1, REPLICAS, 5, 10)) == frozenset()
    assert compare.lost_members(state(NO_LEADER, (1,)), state(1, (1,), 1, 1)) == frozenset()
    assert compare.lost_members(None, BASE) == frozenset()


def test_steps_lead_to_the_last_leader_with_all_their_epochs() -> None:
    assert compare.after(BASE, []) == BASE
    assert compare.after(BASE, [MOVED, step(3, (3,), 2)]) == state(3, (3,), 7, 12)
    assert compare.after(None, [CREATED]) == state(1, REPLICAS, controller=0)


@pytest.mark.parametrize(
    ("theirs", "fields"),
    [
        (state(3, (3, 2), 5, 10), "leader"),
        (state(2, (2,), 5, 10), "ISR"),
        (state(2, (2, 3), 6, 10), "leader epoch"),
        (state(3, (3,), 6, 10), "leader, ISR, leader epoch"),
        (state(2, (2, 3), 5, 11), "version"),
        (None, "the state znode exists on one side only"),
    ],
)
def test_a_difference_names_the_differing_fields(theirs: Leadership | None, fields: str) -> None:
    assert difference("/a", BASE, state(2, (2, 3), 5, 10), theirs, "an event", "a rule").fields == fields


def test_a_difference_is_one_line() -> None:
    found = difference("/a/state", BASE, None, state(2, (2,), 5, 10), "a death", "rule")
    assert str(found) == (
        "/a/state: the state znode exists on one side only; ours: none; theirs: leader 2, ISR [2], leader epoch 5; "
        "before: leader 1, ISR [1, 2, 3], leader epoch 4; event: a death; our reason: rule"
    )


def test_differences_are_kept_up_to_their_bound_and_counted_beyond_it() -> None:
    statistics = Statistics()
    for number in range(DIFFERENCES_MAX + 5):
        statistics.differs(difference(f"/{number}", BASE, BASE, None, "e", "w"))
    assert (statistics.differing, len(statistics.differences)) == (DIFFERENCES_MAX + 5, DIFFERENCES_MAX)
    assert [d.path for d in statistics.differences[:2]] == ["/0", "/1"]
    assert len(statistics.news()) == SHOWN_MAX + 1
    assert statistics.news() == []


Outline = list[tuple[Kind, tuple[int, ...], list[int]]]
"""Kind, subjects and registered brokers of each event."""


def event(number: int, kind: Kind, subjects: tuple[int, ...], *live: int) -> ClusterEvent:
    return ClusterEvent(number, 7, kind, subjects, {b: broker(b, 1) for b in live}, frozenset(), 0.0)


def orders(*events: ClusterEvent) -> list[Outline]:
    return [[(e.kind, e.subjects, sorted(e.brokers)) for e in order] for order in other_orders(events)]


D, R, C, F = Kind.DEATH, Kind.RETURN, Kind.CREATION, Kind.FAILOVER
ORDERS: dict[str, tuple[list[ClusterEvent], list[Outline]]] = {
    "one event": ([event(1, D, (1,), 2, 3)], []),
    "two deaths of one snapshot": (
        [event(1, D, (1, 2), 3)],
        [[(D, (1,), [2, 3]), (D, (2,), [3])], [(D, (2,), [1, 3]), (D, (1,), [3])]],
    ),
    "two returns of one snapshot": (
        [event(1, R, (1, 2), 1, 2, 3)],
        [[(R, (1,), [1, 3]), (R, (2,), [1, 2, 3])], [(R, (2,), [2, 3]), (R, (1,), [1, 2, 3])]],
    ),
    "two deaths after each other": (
        [event(1, D, (1,), 2, 3), event(2, D, (2,), 3)],
        [[(D, (1, 2), [3])], [(D, (2,), [1, 3]), (D, (1,), [3])]],
    ),
    "a death and a return": (
        [event(1, D, (1,), 3), event(2, R, (2,), 2, 3)],
        [[(R, (2,), [1, 2, 3]), (D, (1,), [2, 3])]],
    ),
    "a return and a death": (
        [event(1, R, (1,), 1, 2, 3), event(2, D, (2,), 1, 3)],
        [[(D, (2,), [3]), (R, (1,), [1, 3])]],
    ),
    "a return that a death undoes": ([event(1, R, (1,), 1, 2), event(2, D, (1,), 2)], [[]]),
    "a death before a failover": (
        [event(1, D, (1,), 2, 3), event(2, F, (), 2, 3)],
        [[(F, (), [2, 3])]],
    ),
    "a failover that reads the dead broker": (
        [event(1, F, (1,), 2, 3)],
        [[(F, (), [1, 2, 3]), (D, (1,), [2, 3])]],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ORDERS)
def test_events_split_join_and_swap_with_the_registrations_of_each_moment(case: str) -> None:
    events, nearest = ORDERS[case]
    assert orders(*events)[: len(nearest)] == nearest


@pytest.mark.parametrize(("count", "split"), [(PERMUTED_BROKERS_MAX, True), (PERMUTED_BROKERS_MAX + 1, False)])
def test_a_large_snapshot_is_not_split(count: int, split: bool) -> None:
    assert bool(orders(event(1, Kind.DEATH, tuple(range(count)), 9))) is split


def test_orders_are_distinct_and_bounded() -> None:
    events = [event(number, Kind.DEATH, (number,), *range(number + 1, 9)) for number in range(1, 8)]
    found = [[(e.number, e.subjects, sorted(e.brokers)) for e in order] for order in other_orders(events)]
    assert len(found) == ORDERS_MAX
    assert all(found.count(order) == 1 for order in found)
