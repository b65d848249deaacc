"""Plans that live beside each other move no partition in common; one that waits is decoded once."""

from __future__ import annotations

from collections.abc import Iterator
from unittest import mock

import msgspec
import pytest
from msgspec.structs import replace

from controller.kafka.kinds import plan_conflicts, reassign
from controller.kafka.kinds.reassign import NAME, admit, demand, encode_plan
from state_machines.decisions.plan_progress import PlannedMove, ReassignPlan, Status
from state_machines.procedures.record import Record
from state_machines.procedures.states import State

MANY = reassign.DECODED_MAX + 10


def planned(pid: int, *partitions: int, status: Status = Status.QUEUED) -> Record:
    moves = tuple(PlannedMove("t", number, (1, 2), (2, 3), status=status) for number in partitions)
    data = encode_plan(ReassignPlan(moves, moves_max=4, broker_moves_max=2))
    return Record(pid, NAME, State.RUNNABLE, 0, 0, 0, data=data)


@pytest.fixture
def decoder(monkeypatch: pytest.MonkeyPatch) -> Iterator[mock.Mock]:
    """Counts the messages that are decoded; none is kept from an earlier test."""
    found = mock.Mock(wraps=msgspec.json.Decoder(ReassignPlan))
    monkeypatch.setattr(reassign, "_decoder", found)
    reassign._decoded.cache_clear()
    reassign.LEFT.keep(())
    yield found
    reassign._decoded.cache_clear()
    reassign.LEFT.keep(())


def test_a_further_plan_decodes_none_of_those_that_wait(decoder: mock.Mock) -> None:
    waiting = [planned(pid, pid) for pid in range(1, MANY + 1)]
    for at, record in enumerate(waiting):
        assert admit(record, waiting[:at]) is None
    decoder.decode.reset_mock()
    assert admit(planned(MANY + 1, MANY + 1), waiting) is None
    assert decoder.decode.call_count == 1, "its own"


def test_a_term_that_begins_has_decoded_the_plans_before_one_is_added(decoder: mock.Mock) -> None:
    waiting = [planned(pid, pid) for pid in range(1, MANY + 1)]
    for record in waiting:
        demand(record)
    decoder.decode.reset_mock()
    assert admit(planned(MANY + 1, MANY + 1), waiting) is None
    assert decoder.decode.call_count == 1


def test_a_plan_that_goes_on_leaves_what_it_has_moved_to_others(decoder: mock.Mock) -> None:
    first, second = planned(1, 0, 1, 2), planned(2, 2, 1, 7)
    why = admit(second, [first])
    assert why is not None
    assert why.startswith("plan 1 moves 2 of these 3 partitions: t-1, t-2: wait for its end, ")
    assert admit(second, [planned(1, 0, 1, 2, status=Status.DONE)]) is None
    assert (admit(second, [replace(first, state=State.FAILED)]) or "").count("cancel") == 0


def test_a_message_that_cannot_be_read_is_not_taken_for_the_one_before(decoder: mock.Mock) -> None:
    record = planned(1, 0)
    demand(record)
    with pytest.raises(msgspec.DecodeError):
        demand(replace(record, data=b"{"))


def test_a_plan_beyond_the_most_is_refused_with_the_one_to_wait_for(
    decoder: mock.Mock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_conflicts, "PLANS_MAX", 2)
    assert admit(planned(3, 3), [planned(1, 1)]) is None
    assert admit(planned(3, 3), [planned(2, 2), planned(1, 1)]) == (
        "2 plans run or wait, at most 2 may: "
        "wait for the end of one, 'regent procedures wait 1'; then apply this one again"
    )


def test_the_partitions_of_some_plans_are_kept_and_no_more(decoder: mock.Mock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon that has given the role back admits no plan, so nothing else would forget those that have ended."""
    monkeypatch.setattr(plan_conflicts, "KNOWN_MAX", 2)
    records = [planned(pid, pid) for pid in (1, 2, 3)]
    for record in records:
        demand(record)
    reassign._decoded.cache_clear()
    decoder.decode.reset_mock()
    for record in reversed(records[1:]):
        demand(record)
    assert decoder.decode.call_count == 0
    demand(records[0])
    assert decoder.decode.call_count == 1
