"""What fails of a procedure of regions is counted over all of its parts, and told of those alone that go on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from controller.http.procedure_models import Procedure
from controller.regions.causes import Causes
from controller.regions.kinds.messages import LOG_TASK, TRANSIT, LogTask, Transit
from controller.regions.operator.crashes import failures_of
from controller.regions.operator.failing import Failing, failing_of, shown
from state_machines.procedures.kernel import STUCK_ATTEMPTS
from state_machines.procedures.record import Record
from state_machines.procedures.states import State


def assign(pid: int, retries: int, state: State = State.WAITING) -> Record:
    """Returns a part of the part 2 of the procedure 1, whose opens have failed so often."""
    data = TRANSIT.encode(Transit(100 + pid, "t", retries=retries))
    return Record(pid, "assign", state, 1, 0, 0, data=data, parent=2, ancestors=(2, 1))


def engine_of(*records: Record) -> Any:
    live = [one for one in records if not one.state.is_final]
    return SimpleNamespace(records={one.pid: one for one in records}, live=lambda: iter(live))


def test_the_attempts_of_a_procedure_are_those_of_the_part_that_has_most_and_the_cause_is_the_latest() -> None:
    causes = Causes()
    engine = engine_of(assign(3, 4), assign(4, 9), assign(5, 2), assign(6, 99, State.SUCCESS))
    for pid in (3, 4, 5, 6):
        causes.noted(pid, 100 + pid, f"said {pid}")
    env: Any = SimpleNamespace(causes=causes, model=SimpleNamespace(regions={}))
    found = failing_of(env, engine)
    assert found.keys() == {1, 2, 3, 4, 5}, "what has ended fails no more"
    assert found[1] == found[2] == Failing(3, 9, "on 105: said 5")
    assert found[4] == Failing(1, 9, "on 104: said 4")


def test_an_item_that_goes_on_has_the_attempts_of_its_parts_and_is_stuck_from_a_number_on() -> None:
    def item(attempts: int = 0, **fields: Any) -> Procedure:
        return shown(Procedure(pid=1, kind="create_table", state="waiting", attempts=attempts, **fields), {1: failing})

    failing = Failing(3, STUCK_ATTEMPTS - 1, "on 105: said 5")
    assert (item().attempts, item().stuck) == (STUCK_ATTEMPTS - 1, False)
    assert (item(STUCK_ATTEMPTS).attempts, item(STUCK_ATTEMPTS).stuck) == (STUCK_ATTEMPTS, True)
    assert item().error.endswith("3 parts fail, the last one on 105: said 5")
    assert item(error="its own").error == "its own"
    failing = failing._replace(attempts=STUCK_ATTEMPTS)
    assert item().stuck
    ended = item(ended=True)
    assert (ended.attempts, ended.stuck, ended.error) == (0, False, "")


def test_of_many_parts_of_a_log_some_are_named_and_the_others_counted() -> None:
    def log(pid: int, failed: str) -> Record:
        data = LOG_TASK.encode(LogTask("a", 1, part=f"p{pid}", failed=failed))
        return Record(pid, "split_log", State.WAITING, 1, 0, 0, data=data)

    parts = [log(pid, "the disk is full") for pid in (3, 4, 5, 6)]
    found = failures_of(("a", 1), engine_of(*parts, log(7, "")))
    assert [one.partition(" (")[0] for one in found] == ["procedure 3", "procedure 4", "procedure 5", "and 1 more"]
    assert len(failures_of(("a", 1), engine_of(*parts[:3]))) == 3
    assert failures_of(("a", 2), engine_of(*parts)) == []
