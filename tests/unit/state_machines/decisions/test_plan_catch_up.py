"""Replicas that have nearly caught up: what one look knows, what two know, and how long gains count."""

from __future__ import annotations

import pytest

from state_machines.decisions.plan_catch_up import LOOKS_MAX, PAUSES, Copy, Looks, Sizes
from state_machines.model.types import TopicPartition

ORDERS, EVENTS = TopicPartition("orders", 0), TopicPartition("events", 0)
LEADER, FIRST, SECOND = 1, 3, 4
COPIES = (Copy(ORDERS, FIRST, LEADER), Copy(ORDERS, SECOND, LEADER), Copy(EVENTS, FIRST, LEADER))


def sizes(leader: int, *copied: int, events: int = 1_000_000) -> Sizes:
    """Returns what brokers report: the log at the leader, and what the copies have of it."""
    found = {(ORDERS, LEADER): leader, (EVENTS, LEADER): events}
    return found | {(name, broker): size for (name, broker, _), size in zip(COPIES, copied, strict=False)}


def looked(*looks: Sizes) -> set[Copy]:
    """Returns the copies that are near after these looks, at which all are throttled."""
    found = Looks()
    for one in looks:
        found = found.plus(COPIES, one)
    return found.near(COPIES)


def test_a_story_of_two_replicas_that_catch_up() -> None:
    """A replica gains 60 at most between two looks, so it is near once it lacks 120 at most."""
    story = [
        (sizes(500, 0, 0, 0), "", "one look tells nothing of gains"),
        (sizes(500, 60, 0, 0), "", "it lacks 440"),
        (sizes(500, 120, 30, 0), "", "it lacks 380"),
        (sizes(510, 180, 60, 0), "", "producers write"),
        (sizes(510, 389, 60, 0), "orders 3", "a fetch brought more, and shows how much one may bring"),
    ]
    looks = Looks()
    for found, near, why in story:
        looks = looks.plus(COPIES, found)
        assert " ".join(f"{one.name.topic} {one.broker}" for one in looks.near(COPIES)) == near, why


@pytest.mark.parametrize(("lacks", "near"), [(0, True), (119, True), (120, True), (121, False), (-5, True)])
def test_a_replica_is_near_that_lacks_what_two_pauses_may_bring(lacks: int, near: bool) -> None:
    assert PAUSES == 2
    now = sizes(1_000, 1_000 - lacks)
    before = {**now, (ORDERS, FIRST): 1_000 - lacks - 60}
    assert (COPIES[0] in looked(before, now)) is near


@pytest.mark.parametrize(("lacks", "near"), [(250, True), (251, False)])
def test_three_quarters_of_a_replica_are_throttled_however_much_a_fetch_brings(lacks: int, near: bool) -> None:
    found = looked(sizes(1_000, 1_000 - lacks, 0, 0), sizes(1_000, 1_000 - lacks, 0, 500_000))
    assert (COPIES[0] in found) is near


def test_the_most_that_any_replica_of_the_broker_gained_counts() -> None:
    """Turns are taken: a replica that gains nothing now may be the next one."""
    assert looked(sizes(1_000, 900, 900, 0), sizes(1_000, 900, 900, 50)) == {COPIES[0]}, "broker 4 gained nothing"


def test_a_gain_is_forgotten_after_some_looks() -> None:
    looks = Looks().plus(COPIES, sizes(1_000, 0)).plus(COPIES, sizes(1_000, 800))
    for _ in range(LOOKS_MAX - 1):
        looks = looks.plus(COPIES, sizes(1_000, 800))
    assert looks.near(COPIES) == {COPIES[0]}
    assert looks.plus(COPIES, sizes(1_000, 800)).near(COPIES) == set()


@pytest.mark.parametrize("missing", [LEADER, FIRST])
def test_a_replica_of_which_a_size_is_unknown_is_never_near(missing: int) -> None:
    def known(size: int) -> Sizes:
        return {key: value for key, value in sizes(1_000, size).items() if key[1] != missing}

    assert looked(known(900), known(990)) == set()


def test_gains_of_copies_that_are_not_throttled_count_for_nothing() -> None:
    looks = Looks().plus(COPIES, sizes(1_000, 0, 0, 0))
    looks = looks.plus(COPIES[1:], sizes(1_000, 1_000, 10, 10))
    assert looks.gained[-1] == {FIRST: 10, SECOND: 10}
