"""Which processes may register, in full: members, fenced ones, other ones of a name, proofs, and bounds."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from controller.regions import admission
from controller.regions.admission import (
    AHEAD_MS_MAX,
    Admission,
    IncarnationAhead,
    ServerDead,
    TooMany,
    Unproven,
)
from state_machines.regions.model import Regions, Server
from state_machines.regions.states import ServerState

NOW_MS = 1_700_000_000_000
MOST = (NOW_MS + AHEAD_MS_MAX) * 1_000
"""The highest incarnation that may register now."""


class World:
    """An admission whose wall clock is behind the time that the domain has."""

    def __init__(self) -> None:
        self.expired: list[tuple[str, str]] = []
        self.model = Regions()
        env: Any = SimpleNamespace(
            model=self.model, latest_ms=lambda: NOW_MS, wall_ms=lambda: NOW_MS - 5_000, options=None
        )
        self.admission = Admission(env, lambda server, why: self.expired.append((str(server), why)))

    def member(
        self, name: str, incarnation: int, state: ServerState = ServerState.ONLINE, proof: str | None = "mine"
    ) -> Server:
        found = Server(name, incarnation, "", "", state, {}, proof=proof)
        self.model.servers[found.key] = found
        return found

    def refusal(self, key: tuple[str, int], regions: int = 0, proof: str = "mine") -> type[Exception] | None:
        """Returns the kind of refusal of a process that registers; None where it is admitted."""
        try:
            self.admission.check_entry(key, regions, proof)
        except Exception as error:
            return type(error)
        return None


@pytest.mark.parametrize("state", list(ServerState))
def test_a_member_registers_again_with_its_regions_while_it_is_online(state: ServerState) -> None:
    world = World()
    world.member("a", 1, state)
    assert world.refusal(("a", 1), regions=3) is (None if state is ServerState.ONLINE else ServerDead)


def test_a_process_that_is_no_member_has_no_region() -> None:
    world = World()
    assert [world.refusal(("a", 1), regions=count) for count in (0, 1, 2)] == [None, ServerDead, ServerDead]


def test_a_proof_is_compared_while_it_is_being_stored_and_later() -> None:
    world = World()
    world.member("a", 1, proof="old")
    world.member("b", 1, proof=None)
    world.admission.entering["c", 1] = "mine"
    world.admission.entering["a", 1] = "mine"  # it is being stored with an address of its own
    found = [world.refusal((name, 1), proof=proof) for name in "abc" for proof in ("mine", "other")]
    assert found == [None, Unproven, None, None, None, Unproven]


def test_an_incarnation_may_be_ahead_of_the_latest_time_of_the_domain_by_two_days() -> None:
    world = World()
    assert world.admission.incarnation_max() == MOST
    assert [world.refusal(("a", incarnation)) for incarnation in (MOST, MOST + 1)] == [None, IncarnationAhead]
    world.member("a", MOST + 1)
    assert world.refusal(("a", MOST + 1)) is None, "a member stays one"


def test_those_that_are_being_stored_count_as_members_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "SERVERS_MAX", 3)
    world = World()
    world.member("a", 1)
    world.member("b", 1, ServerState.CRASHED)
    world.admission.entering["a", 1] = "mine"
    assert world.refusal(("c", 1)) is None
    world.admission.entering["d", 1] = "mine"
    assert world.refusal(("c", 1)) is TooMany
    assert world.refusal(("a", 1)) is None


@pytest.mark.parametrize(
    ("last", "others", "incarnation", "above"),
    [
        (5, (), 5, 5),
        (5, (), 4, 5),
        (5, (5, 3), 4, 5),  # the rest of the fenced ones ends, too
        (5, (6,), 4, 0),
        (5, (3, 6), 4, 0),
        (MOST - 1, (), 4, MOST - 1),
        (MOST, (), 4, 0),  # nothing above it may come
    ],
)
def test_a_process_that_was_fenced_is_told_above_which_incarnation_it_may_come_where_it_may(
    last: int, others: tuple[int, ...], incarnation: int, above: int
) -> None:
    world = World()
    world.model.buried["a"] = last
    for one in others:
        world.member("a", one)
    world.member("b", 99)
    with pytest.raises(ServerDead) as found:
        world.admission.check_entry(("a", incarnation), 0, "mine")
    assert found.value.above == above
    assert ("servers forget a" in str(found.value)) is (last == MOST)
    assert world.refusal(("a", last + 1)) in (None, IncarnationAhead)


def test_the_process_of_a_name_that_began_last_stays_and_an_earlier_member_ends() -> None:
    world = World()
    for key in (("a", 1), ("a", 3), ("b", 9)):
        world.member(*key)
    assert {str(one) for one in world.admission.others(("a", 1))} == {"a,3"}
    world.admission.check_alone(("a", 3))
    world.admission.check_alone(("a", 4))
    for incarnation, expired in ((2, []), (1, [("a,1", "a,3 registered")])):
        with pytest.raises(ServerDead, match="a,3 is the later one"):
            world.admission.check_alone(("a", incarnation))
        assert world.expired == expired
