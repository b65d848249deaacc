"""What one read state znode is to the last explained one and to our decisions since: pure functions of values."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from controller.shadow import judgement as compare
from controller.shadow.judgement import Judgement, Outcome, Step, hidden_isr_explains, judge
from controller.shadow.statistics import DIFFERENCES_MAX, SHOWN_MAX, Statistics, difference
from state_machines.model.types import NO_LEADER, Leadership

DEATH = 1
REPLICAS = (1, 2, 3)


def state(leader: int, isr: Sequence[int], epoch: int = 0, version: int = 0, controller: int = 7) -> Leadership:
    return Leadership(leader, epoch, tuple(isr), controller, version)


def step(leader: int, isr: Sequence[int], epochs: int = 1, number: int = DEATH, controller: int = 7) -> Step:
    return Step(number, controller, 0, leader, tuple(isr), epochs, "a rule")


BASE = state(1, REPLICAS, epoch=4, version=9)


class TestJudge:
    """Version and leader epoch tell how many writes of each sort lie between two reads."""

    def test_the_same_znode_is_unchanged(self) -> None:
        assert judge(BASE, [step(2, (2, 3))], BASE) == Judgement(Outcome.UNCHANGED)

    def test_a_write_without_a_new_epoch_is_the_leaders(self) -> None:
        found = judge(BASE, [], state(1, (1, 2), epoch=4, version=10))
        assert found == Judgement(Outcome.ISR_CHANGES, 0, 1)

    def test_several_of_them_are_counted(self) -> None:
        assert judge(BASE, [], state(1, REPLICAS, epoch=4, version=12)).isr_changes == 3

    @pytest.mark.parametrize("seen", [state(2, REPLICAS, 4, 10), state(1, (2, 3), 4, 10), state(-1, REPLICAS, 4, 10)])
    def test_a_leader_is_not_changed_without_a_new_epoch_nor_outside_of_its_isr(self, seen: Leadership) -> None:
        assert judge(BASE, [], seen).outcome is Outcome.DIFFERS

    def test_our_decision_agrees(self) -> None:
        found = judge(BASE, [step(2, (2, 3))], state(2, (2, 3), epoch=5, version=10))
        assert found == Judgement(Outcome.AGREES, 1, 0)

    def test_the_order_of_the_isr_means_nothing(self) -> None:
        assert judge(BASE, [step(2, (2, 3))], state(2, (3, 2), 5, 10)).outcome is Outcome.AGREES

    @pytest.mark.parametrize("seen", [state(3, (2, 3), 5, 10), state(2, (2,), 5, 10), state(2, (2, 3, 1), 5, 10)])
    def test_another_leader_or_isr_differs(self, seen: Leadership) -> None:
        assert judge(BASE, [step(2, (2, 3))], seen) == Judgement(Outcome.DIFFERS, 1, 0)

    def test_more_epochs_than_we_decided_are_beyond(self) -> None:
        assert judge(BASE, [step(2, (2, 3))], state(2, (2, 3), 6, 11)).outcome is Outcome.BEYOND
        assert judge(BASE, [], state(1, REPLICAS, 5, 10)).outcome is Outcome.BEYOND
        assert judge(BASE, [step(2, (2, 3))], state(2, (2, 3), 6, 10)).outcome is Outcome.BEYOND, (
            "one write, two epochs"
        )

    def test_several_decisions_are_compared_at_the_epoch_that_was_read(self) -> None:
        steps = [step(2, (2, 3)), step(3, (3,), number=2)]
        assert judge(BASE, steps, state(2, (2, 3), 5, 10)) == Judgement(Outcome.AGREES, 1, 0)
        assert judge(BASE, steps, state(3, (3,), 6, 11)) == Judgement(Outcome.AGREES, 2, 0)
        assert judge(BASE, steps, state(2, (2,), 6, 11)) == Judgement(Outcome.DIFFERS, 2, 0)

    def test_a_decision_of_two_epochs_has_no_middle_of_its_own(self) -> None:
        steps = [step(2, (2, 3), epochs=2)]
        assert judge(BASE, steps, state(NO_LEADER, (2, 3), 5, 10)).outcome is Outcome.UNDER_WAY
        assert judge(BASE, steps, state(2, (2, 3), 6, 11)).outcome is Outcome.AGREES
        assert judge(BASE, steps, state(2, (2, 3), 6, 10)).outcome is Outcome.AGREES, "as regent writes it: at once"

    def test_a_creation_is_one_epoch(self) -> None:
        assert judge(None, [step(1, REPLICAS)], state(1, REPLICAS)) == Judgement(Outcome.AGREES, 1, 0)
        assert judge(None, [], state(1, REPLICAS)).outcome is Outcome.BEYOND
        assert judge(None, [step(1, REPLICAS)], state(1, (1, 2), 0, 1)) == Judgement(Outcome.DIFFERS, 1, 1)

    @pytest.mark.parametrize("seen", [state(1, REPLICAS, 3, 10), state(1, REPLICAS, 4, 8), state(1, (1,), 4, 9)])
    def test_nothing_goes_back(self, seen: Leadership) -> None:
        assert judge(BASE, [step(1, (1,))], seen).outcome is Outcome.WENT_BACK

    def test_a_controller_before_the_event_cannot_have_answered_it(self) -> None:
        seen = state(2, (2, 3), 5, 10, controller=6)
        assert judge(BASE, [step(2, (2, 3), controller=7)], seen).outcome is Outcome.DIFFERS
        assert judge(BASE, [step(2, (2, 3), controller=6)], seen).outcome is Outcome.AGREES


def dies(broker: int, among: Sequence[int] = REPLICAS) -> Callable[[Leadership | None], list[Step]]:
    """Our rule for a death, on any base."""

    def decide(base: Leadership | None) -> list[Step]:
        if base is None or broker not in base.isr:
            return []
        isr = [r for r in base.isr if r != broker] or list(base.isr)
        leader = (
            next((r for r in among if r in isr and r != broker), NO_LEADER) if base.leader == broker else base.leader
        )
        return [step(leader, isr)]

    return decide


class TestHiddenIsrChanges:
    """A leader that changes its ISR between two reads hides what a decision stood on."""

    def test_a_change_before_the_decision(self) -> None:
        seen = state(3, (3,), epoch=5, version=11)
        assert hidden_isr_explains(BASE, seen, REPLICAS, dies(1))

    def test_a_change_after_the_decision(self) -> None:
        assert hidden_isr_explains(BASE, state(2, (2,), 5, 11), REPLICAS, dies(1))

    def test_it_takes_a_write_more_than_there_are_epochs(self) -> None:
        assert not hidden_isr_explains(BASE, state(3, (3,), 5, 10), REPLICAS, dies(1))

    def test_one_change_cannot_lie_before_and_after(self) -> None:
        outcome = state(3, (3, 2), epoch=5, version=11)
        assert not hidden_isr_explains(BASE, outcome, REPLICAS, dies(1))
        assert hidden_isr_explains(BASE, state(3, (3, 2), 5, 12), REPLICAS, dies(1)), "two can"

    def test_no_change_makes_a_dead_broker_lead(self) -> None:
        assert not hidden_isr_explains(BASE, state(1, (1, 2), 5, 11), REPLICAS, dies(1))

    def test_a_member_that_joined_unseen_and_died(self) -> None:
        base = state(2, (2, 3), 4, 9)
        assert hidden_isr_explains(base, state(2, (2, 3), 5, 11), REPLICAS, dies(1))
        assert not hidden_isr_explains(base, state(2, (2, 3), 5, 11), REPLICAS, lambda _: [])

    def test_the_middle_of_a_decision_only_where_that_is_asked_for(self) -> None:
        def twice(_: Leadership | None) -> list[Step]:
            return [step(2, (2,), epochs=2)]

        seen = state(NO_LEADER, (2,), 5, 11)
        assert not hidden_isr_explains(BASE, seen, REPLICAS, twice)
        assert hidden_isr_explains(BASE, seen, REPLICAS, twice, within=True)

    def test_a_partition_with_very_many_replicas_is_not_tried_out(self) -> None:
        assert hidden_isr_explains(BASE, state(1, (1,), 5, 11), tuple(range(1, 9)), lambda _: [])


class TestOthersDecisions:
    """Writes that regent does not decide by itself."""

    @pytest.mark.parametrize(
        ("seen", "is_one"),
        [
            (state(1, REPLICAS, 5, 10), True),
            (state(1, (3, 2, 1), 5, 10), True),
            (state(1, (1, 3), 5, 10), False),
            (state(3, REPLICAS, 5, 10), False),
            (state(1, REPLICAS, 6, 11), False),
            (state(1, REPLICAS, 4, 10), False),
            (state(1, REPLICAS, 5, 11), True),
        ],
    )
    def test_a_preferred_election_keeps_the_isr_and_the_leader_before(self, seen: Leadership, is_one: bool) -> None:
        base = state(2, REPLICAS, 4, 9)
        assert compare.is_preferred_election(base, seen, REPLICAS) is is_one

    def test_the_preferred_replica_must_have_been_in_sync(self) -> None:
        base = state(2, (2, 3), 4, 9)
        assert not compare.is_preferred_election(base, state(1, REPLICAS, 5, 10), REPLICAS)
        assert compare.is_preferred_election(base, state(1, REPLICAS, 5, 11), REPLICAS), "it joined, then led"
        assert not compare.is_preferred_election(None, state(1, REPLICAS), REPLICAS)

    def test_bare_epochs_are_those_of_an_offline_partition_with_one_member(self) -> None:
        offline = state(NO_LEADER, (1,), 4, 9)
        assert compare.bare_epochs(offline, [], state(NO_LEADER, (1,), 5, 10)) == 1
        assert compare.bare_epochs(BASE, [step(NO_LEADER, (1,))], state(NO_LEADER, (1,), 7, 12)) == 2
        assert compare.bare_epochs(offline, [], state(1, (1,), 5, 10)) == 0
        assert compare.bare_epochs(BASE, [], state(1, REPLICAS, 5, 10)) == 0
        assert compare.bare_epochs(state(NO_LEADER, (1, 2), 4, 9), [], state(NO_LEADER, (1, 2), 5, 10)) == 0
        assert compare.bare_epochs(None, [], offline) == 0

    def test_lost_members_are_the_mark_of_a_broker_that_was_moved_off(self) -> None:
        assert compare.lost_members(BASE, state(2, (2, 3), 5, 10)) == {1}
        assert compare.lost_members(BASE, state(1, REPLICAS, 5, 10)) == frozenset()
        assert compare.lost_members(state(NO_LEADER, (1,)), state(1, (1,), 1, 1)) == frozenset()
        assert compare.lost_members(None, BASE) == frozenset()

    def test_what_steps_lead_to(self) -> None:
        assert compare.after(BASE, []) == BASE
        assert compare.after(BASE, [step(2, (2, 3)), step(3, (3,), 2)]) == state(3, (3,), 7, 12)
        assert compare.after(None, [step(1, REPLICAS)]) == state(1, REPLICAS, controller=0)


class TestTally:
    """Counts and the bounded list."""

    def test_a_difference_names_the_fields_that_differ(self) -> None:
        ours = state(2, (2, 3), 5, 10)
        for theirs, fields in (
            (state(3, (3, 2), 5, 10), "leader"),
            (state(2, (2,), 5, 10), "ISR"),
            (state(2, (2, 3), 6, 10), "leader epoch"),
            (state(3, (3,), 6, 10), "leader, ISR, leader epoch"),
            (state(2, (2, 3), 5, 11), "version"),
        ):
            assert difference("/a", BASE, ours, theirs, "an event", "a rule").fields == fields
        assert difference("/a", None, ours, None, "an event", "a rule").fields == (
            "the state znode exists on one side only"
        )

    def test_a_difference_reads_as_one_line_with_everything_in_it(self) -> None:
        found = difference("/brokers/topics/t/partitions/0/state", BASE, None, state(2, (2,), 5, 10), "a death", "rule")
        assert "\n" not in str(found)
        for part in ("/brokers/topics/t/partitions/0/state", "ours: none", "theirs: leader 2, ISR [2]", "a death"):
            assert part in str(found)

    def test_differences_are_kept_up_to_their_bound_and_counted_beyond_it(self) -> None:
        statistics = Statistics()
        for number in range(DIFFERENCES_MAX + 5):
            statistics.differs(difference(f"/{number}", BASE, BASE, None, "e", "w"))
        assert (statistics.differing, len(statistics.differences)) == (DIFFERENCES_MAX + 5, DIFFERENCES_MAX)
        assert [d.path for d in statistics.differences[:2]] == ["/0", "/1"]
        assert len(statistics.news()) == SHOWN_MAX + 1
        assert statistics.news() == []
