"""What becomes of the records of a store: sound families go on, the others are named and left alone."""

from __future__ import annotations

import pytest

from state_machines.procedures.record import VERSION, Record
from state_machines.procedures.recovery import Loaded, load
from state_machines.procedures.states import State


def record(pid: int, state: State = State.RUNNABLE, parent: int = 0, *above: int, **more: object) -> Record:
    ancestors = (parent, *above) if parent else ()
    return Record(pid, "known", state, 0, 0, 0, parent=parent, ancestors=ancestors, **more)  # type: ignore[arg-type]


def loaded(*records: Record) -> Loaded:
    return load(records, lambda record: None if record.kind == "known" else "its kind is not known")


@pytest.mark.seed("S2-49")
def test_an_empty_store_starts_clean() -> None:
    assert loaded() == Loaded({}, (), (), (), {})


def test_families_go_on_in_the_order_of_pids_and_failed_ones_first() -> None:
    found = loaded(
        record(9),
        record(4),
        record(5, State.SUCCESS),
        record(6, State.FAILED),
        record(7, State.FAILED, deadline_ms=50),
        record(2, State.WAITING_TIMEOUT, deadline_ms=70),
        record(3, State.WAITING_TIMEOUT),
    )
    assert found.ready == (6, 3, 4, 9), "a wait for an event alone is looked at again"
    assert found.later == (2, 7)
    assert not found.unusable


@pytest.mark.seed("S1-50", "S2-11")
def test_a_parent_that_was_not_woken_before_the_crash_is_woken_now() -> None:
    assert loaded(record(1, State.WAITING)).ready == (1,)
    assert loaded(record(1, State.WAITING), record(2, State.RUNNABLE, 1)).ready == (2,)


def test_descendants_of_a_failed_root_undo_their_steps_at_once() -> None:
    found = loaded(
        record(1, State.FAILED),
        record(2, State.WAITING, 1),
        record(3, State.WAITING_TIMEOUT, 2, 1, deadline_ms=90),
        record(4, State.RUNNABLE, 1),
    )
    assert (found.ready, found.later) == ((3, 4), ())


def test_what_an_operator_has_ended_waits_for_no_time() -> None:
    """Without a restart it ends at once, too."""
    found = loaded(
        record(1, State.WAITING_TIMEOUT, deadline_ms=90, bypassed=True),
        record(2, State.FAILED, deadline_ms=90, bypassed=True),
        record(3, State.WAITING_TIMEOUT, deadline_ms=90, aborted=True),
        record(4, State.WAITING, aborted=True),
        record(5, State.WAITING_TIMEOUT, 4, deadline_ms=90),
        record(6, State.WAITING_TIMEOUT, deadline_ms=90),
    )
    assert (found.ready, found.later) == ((2, 1, 3, 5), (6,))


@pytest.mark.seed("S1-36")
def test_locks_are_restored_from_the_root_to_the_leaves() -> None:
    found = loaded(
        record(8, State.WAITING, locked=True),
        record(1, State.RUNNABLE, 3, 8, locked=True),
        record(3, State.WAITING, 8, locked=True),
        record(4, locked=True),
        record(5, State.SUCCESS, locked=True),
        record(6),
    )
    assert found.locked == (4, 8, 3, 1)


@pytest.mark.parametrize(
    ("records", "pid", "why"),
    [
        ([record(1, version=VERSION + 1)], 1, "format 2 is newer than this daemon's (1): upgrade the daemon"),
        ([record(2, State.RUNNABLE, 1)], 2, "its parent, pid 1, is missing"),
        ([record(1), record(2, State.RUNNABLE, 1, 7)], 2, "its ancestors (1, 7) are not those of its parent, pid 1"),
        ([record(1, State.SUCCESS), record(2, State.RUNNABLE, 1)], 2, "its parent, pid 1, has ended"),
        ([record(1), record(2, State.SUCCESS, 1)], 2, "a child that has ended is not kept"),
        (
            [Record(1, "gone", State.RUNNABLE, 0, 0, 0)],
            1,
            "its kind is not known",
        ),
        (
            [record(1, State.RUNNABLE, 2), record(2, State.RUNNABLE, 1)],
            1,
            "its ancestors (2,) are not those of its parent, pid 2",
        ),
        ([Record(1, "known", State.RUNNABLE, 0, 0, 0, ancestors=(5,))], 1, "it names ancestors and no parent"),
    ],
)
def test_a_record_that_cannot_be_used_takes_its_family_along_and_no_other(
    records: list[Record], pid: int, why: str
) -> None:
    found = loaded(*records, record(90), record(91, State.RUNNABLE, 90))
    assert found.unusable[pid].why == why
    assert found.records.keys() == {90, 91}
    for other in {one.pid for one in records} - {pid}:
        assert other in found.unusable
