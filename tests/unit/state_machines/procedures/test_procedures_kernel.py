"""Families of procedures that succeed, fail, wait, are aborted and bypassed, over crashes at every write."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from state_machines.procedures.kernel import DONE_MAX, STUCK_ATTEMPTS, Act, Change, Procedures, is_stuck
from state_machines.procedures.outcome import RETRY_MS_MAX, Children, Done, Failed, Next, Outcome, Retry, Wait, Yield
from state_machines.procedures.record import Ending, Record
from state_machines.procedures.recovery import load
from state_machines.procedures.states import VALID_PREVIOUS, State

SAFE, COMMITTING = "safe", "committing"
"""Kinds: every step of the first can be undone, the second is not undone from step 2 on."""


def no_return(kind: str) -> int | None:
    return 2 if kind == COMMITTING else None


def record(pid: int, kind: str = SAFE, state: State = State.RUNNABLE, **more: object) -> Record:
    return Record(pid, kind, state, 0, 0, 0, **more)  # type: ignore[arg-type]


def at(procedures: Procedures, change: Change) -> Procedures:
    procedures.apply(change)
    return procedures


def started(*records: Record) -> Procedures:
    """Returns procedures with these records."""
    return at(Procedures(no_return), Change(puts=records))


def family() -> Procedures:
    """Returns a root that waits for two children, which have one step behind them."""
    p = started(record(1))
    p.apply(p.executed(1, Children((record(2), record(3)), 1, b""), 10))
    for pid in (2, 3):
        p.apply(p.executed(pid, Next(1, b""), 20))
    return p


# -- one family, step by step


@pytest.mark.seed("S1-28", "S1-50", "S2-19", "S2-20", "S2-26")
def test_a_parent_waits_for_its_children_and_goes_on_with_the_last_one() -> None:
    p = family()
    assert p.records[1].state is State.WAITING
    assert p.records[3].ancestors == (1,)
    end = p.executed(2, Done(), 30)
    assert (end.puts, end.deletes) == ((), (2,))
    assert [(one.pid, one.state) for one in end.ends] == [(2, State.SUCCESS)]
    both = p.executed(2, Done(), 30), p.executed(3, Done(), 40)  # neither is durable when the other is decided
    assert p.apply(both[0]) == ()
    assert p.apply(both[1]) == (1,)
    p.apply(p.executed(1, Done(b"42"), 50))
    assert (p.records[1].state, p.records[1].result, p.children) == (State.SUCCESS, b"42", {})


def test_a_parent_finds_the_results_of_children_that_tell_in_its_next_step_alone() -> None:
    """Each is stored in the write that removes the child; of two in one group the second one has both."""
    p = started(record(1))
    p.apply(p.executed(1, Children((record(2, tells=True), record(3), record(4, tells=True)), 1, b""), 10))
    ends = []
    for pid, result in ((4, b"k"), (2, b""), (3, b"unheard")):
        ends.append(p.executed(pid, Done(result), 20))
        p.stage(ends[-1])
    assert [(one.deletes, [put.told for put in one.puts]) for one in ends] == [
        ((4,), [((4, b"k"),)]),
        ((2,), [((4, b"k"), (2, b""))]),
        ((3,), []),
    ]
    assert [p.apply(one) for one in ends] == [(), (), (1,)]
    assert p.records[1].told == ((4, b"k"), (2, b""))
    p.apply(p.executed(1, Next(2, b""), 30))
    assert not p.records[1].told


def test_a_child_that_failed_tells_nothing() -> None:
    p = started(record(1))
    p.apply(p.executed(1, Children((record(2, tells=True),), 1, b""), 10))
    p.apply(p.executed(2, Failed("no"), 20))
    assert p.due(2, 30) is Act.UNDO
    assert p.undone(2, Done(), 40).puts == ()


def test_a_step_without_children_goes_on_at_once() -> None:
    p = started(record(1))
    change = p.executed(1, Children((), 1, b""), 10)
    assert change.puts[0].state is State.RUNNABLE
    assert change.ready == (1,)


@pytest.mark.seed("S1-50", "S2-5")
def test_a_child_that_fails_undoes_its_steps_and_has_siblings_and_parent_undo_theirs() -> None:
    p = family()
    failed = p.executed(2, Failed("no room"), 30)
    assert {one.pid: one.state for one in failed.puts} == {2: State.FAILED, 1: State.FAILED}
    p.apply(failed)
    assert p.records[1].error == "no room"
    assert p.due(2, 40) is Act.UNDO
    sibling = p.due(3, 40)
    assert isinstance(sibling, Change)
    p.apply(sibling)
    assert p.due(3, 40) is Act.UNDO
    for step in (1, 0):
        assert p.records[2].done[-1] == step
        p.apply(p.undone(2, Done(), 50))
    assert 2 not in p.records
    p.apply(p.undone(3, Done(), 60))
    assert p.apply(p.undone(3, Done(), 60)) == (1,)
    for step in (1, 0):
        assert p.due(1, 70) is Act.UNDO
        assert p.records[1].done[-1] == step
        p.apply(p.undone(1, Done(), 80))
    assert (p.records[1].state, p.records[1].error) == (State.ROLLEDBACK, "no room")


def test_a_child_behind_its_point_of_no_return_goes_on_where_its_family_fails() -> None:
    """Its parent is undone once it has ended; a sibling before that point is undone at once, whatever the root's is."""
    p = started(record(1, COMMITTING))
    p.apply(p.executed(1, Next(1, b""), 10))
    p.apply(p.executed(1, Children((record(2), record(3), record(4, COMMITTING)), 2, b""), 20))
    p.apply(p.executed(3, Children((replace(record(5, COMMITTING), step=2),), 1, b""), 30))
    p.apply(p.executed(2, Failed("no room"), 40))
    assert p.due(5, 50) is Act.EXECUTE
    undoing = p.due(4, 50)
    assert isinstance(undoing, Change)
    assert undoing.puts[0].state is State.FAILED
    assert p.apply(p.executed(5, Done(), 60)) == (3,)
    p.apply(p.due(3, 70))  # type: ignore[arg-type]
    assert p.due(3, 70) is Act.UNDO


def test_the_step_that_failed_is_undone_first_because_it_may_have_been_executed_in_part() -> None:
    p = started(record(1))
    p.apply(p.executed(1, Next(7, b""), 10))
    p.apply(p.executed(1, Failed("no"), 20))
    for left in ((0, 7), (0,)):
        assert p.records[1].done == left
        assert p.due(1, 30) is Act.UNDO
        p.apply(p.undone(1, Done(), 30))
    assert (p.records[1].done, p.records[1].state) == ((), State.ROLLEDBACK)


def test_nothing_is_undone_behind_the_point_of_no_return() -> None:
    p = started(record(1, COMMITTING))
    p.apply(p.executed(1, Next(1, b""), 10))
    assert p.executed(1, Failed("no"), 20).puts[0].state is State.FAILED
    p.apply(p.executed(1, Next(2, b""), 20))
    again = p.executed(1, Failed("no"), 30).puts[0]
    assert (again.state, again.error, again.attempts) == (State.WAITING_TIMEOUT, "no", 1)
    assert p.aborted(1, 40) is None
    p.apply(p.executed(1, Children((record(2),), 3, b""), 50))
    assert p.executed(2, Failed("no"), 60).puts[0].state is State.WAITING_TIMEOUT, "nor is a child's step"


def test_a_step_back_before_the_point_of_no_return_is_behind_it_still() -> None:
    """An assign whose region has first to be closed begins anew, with the close as its child."""
    p = at(Procedures(lambda kind: 0 if kind == COMMITTING else None), Change(puts=(record(1, COMMITTING),)))
    p.apply(p.executed(1, Children((record(2),), 0, b""), 10))
    assert p.aborted(1, 20) is None
    p.apply(p.executed(2, Done(), 30))
    assert p.executed(1, Failed("no"), 40).puts[0].state is State.WAITING_TIMEOUT


def test_pauses_between_attempts_double_up_to_a_bound_and_a_stuck_procedure_is_shown() -> None:
    p = started(record(1))
    pauses = []
    for attempt in range(1, 13):
        p.apply(p.executed(1, Retry("away"), 1_000))
        pauses.append(p.records[1].deadline_ms - 1_000)
        assert is_stuck(p.records[1]) == (attempt >= STUCK_ATTEMPTS)
    assert pauses == [1_000 * 2**n for n in range(10)] + [RETRY_MS_MAX] * 2
    p.apply(p.executed(1, Next(1, b""), 2_000))
    assert (p.records[1].attempts, p.records[1].deadline_ms, p.records[1].error) == (0, 0, "")


def test_a_failed_undo_is_tried_again() -> None:
    p = family()
    p.apply(p.executed(2, Failed("no room"), 30))
    again = p.undone(2, Retry("away"), 40)
    assert (again.puts[0].state, again.puts[0].deadline_ms, again.later) == (State.FAILED, 1_040, (2,))
    p.apply(again)
    assert p.due(2, 1_040) is Act.UNDO


@pytest.mark.seed("S2-30")
def test_a_procedure_that_expires_fails_and_one_that_is_committed_does_not() -> None:
    for kind, step, state in ((SAFE, 1, State.FAILED), (COMMITTING, 1, State.FAILED), (COMMITTING, 2, None)):
        p = started(record(1, kind, expires_ms=100))
        p.apply(p.executed(1, Next(step, b""), 10))
        assert p.due(1, 99) is Act.EXECUTE
        found = p.due(1, 100)
        if state is None:
            assert found is Act.EXECUTE
        else:
            assert isinstance(found, Change)
            assert (found.puts[0].state, found.puts[0].error) == (state, "timed out")


def test_an_abort_ends_the_family_at_the_next_step_of_each() -> None:
    p = family()
    abort = p.aborted(3, 30)
    assert abort is not None
    assert [(one.pid, one.aborted) for one in abort.puts] == [(1, True)]
    p.apply(abort)
    found = p.due(2, 40)
    assert isinstance(found, Change)
    p.apply(found)
    assert {pid: one.state for pid, one in p.records.items()} == {
        1: State.FAILED,
        2: State.FAILED,
        3: State.RUNNABLE,
    }
    assert p.aborted(1, 50) is None, "it has failed already"


def test_the_latest_request_to_end_is_kept_with_its_time_and_later_commands_leave_it() -> None:
    p = started(record(1))
    for act, now_ms in (("cancel", 20), ("abort", 30)):
        ending = Ending(act, "uid 7", "wrong rack")
        change = p.aborted(1, now_ms, ending) if act == "abort" else p.commanded(1, b"", now_ms, ending)
        assert change is not None
        assert change.puts[0].ending == replace(ending, at_ms=now_ms)
        p.apply(change)
    change = p.commanded(1, b"", 40)
    assert change is not None
    assert (change.puts[0].ending.act, change.puts[0].ending.at_ms) == ("abort", 30)


def test_an_abort_wakes_a_procedure_that_waits() -> None:
    p = started(record(1))
    p.apply(p.executed(1, Wait(0, b""), 10))
    abort = p.aborted(1, 20)
    assert abort is not None
    assert abort.ready == (1,)


def test_a_bypass_marks_all_ancestors_in_one_write_and_is_refused_to_those_with_children() -> None:
    p = family()
    assert p.bypassed(1, 30) is None
    bypass = p.bypassed(2, 30)
    assert bypass is not None
    assert {one.pid for one in bypass.puts if one.bypassed} == {1, 2}
    p.apply(bypass)
    for pid in (2, 3):
        if pid == 3:
            p.apply(p.executed(3, Done(), 35))
            continue
        found = p.due(pid, 40)
        assert isinstance(found, Change)
        p.apply(found)
    found = p.due(1, 50)
    assert isinstance(found, Change)
    p.apply(found)
    assert p.records[1].state is State.SUCCESS
    assert p.bypassed(1, 60) is None


def test_a_wait_with_another_message_is_progress_and_one_with_the_same_is_none() -> None:
    for data, attempts, error in ((b"same", 1, "slow"), (b"other", 0, "")):
        p = started(record(1, data=b"same"))
        p.apply(p.executed(1, Retry("slow"), 10))
        p.apply(p.executed(1, Wait(50, data), 20))
        assert (p.records[1].attempts, p.records[1].error) == (attempts, error)


def test_a_bypass_reaches_the_root_from_the_lowest_part_and_no_other_branch() -> None:
    p = family()
    p.apply(p.executed(2, Children((record(4),), 1, b""), 30))
    p.apply(p.executed(4, Children((record(5),), 1, b""), 30))
    bypass = p.bypassed(5, 40)
    assert bypass is not None
    assert [one.pid for one in bypass.puts if one.bypassed] == [5, 4, 2, 1]


def test_a_wait_that_is_not_durable_and_a_yield_write_nothing() -> None:
    p = started(record(1))
    assert p.executed(1, Wait(500, b"", durable=False), 10) == Change(later=(1,))
    assert p.executed(1, Yield(), 10) == Change()


@pytest.mark.seed("S1-33")
@pytest.mark.parametrize(("previous", "state"), list(itertools.product(State, State)))
def test_a_record_goes_only_where_the_table_allows(previous: State, state: State) -> None:
    p = started(record(1, state=previous))
    if previous in VALID_PREVIOUS[state]:
        p.apply(Change(puts=(record(1, state=state),)))
        assert p.records[1].state is state
    else:
        with pytest.raises(ValueError, match=f"pid 1 cannot go from {previous.name} to {state.name}"):
            p.apply(Change(puts=(record(1, state=state),)))


def test_only_roots_that_have_ended_are_evicted() -> None:
    p = started(record(1), record(2, state=State.SUCCESS), record(3, state=State.ROLLEDBACK))
    assert p.evicted([1, 2, 3]).deletes == (2, 3)


# -- random families, killed at every write


@dataclass
class KernelWorld:
    """A store, effects of steps by pid and step, and what each step returns the first time and later."""

    dice: random.Random
    stored: dict[int, Record] = field(default_factory=dict)
    effects: set[tuple[int, int, int]] = field(default_factory=set)
    descendants: dict[int, set[int]] = field(default_factory=dict)
    pids: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    plans: dict[tuple[int, int], Outcome] = field(default_factory=dict)

    def write(self, change: Change) -> None:
        for one in change.puts:
            self.stored[one.pid] = one
        for pid in change.deletes:
            del self.stored[pid]

    def execute(self, one: Record) -> Outcome:
        """Executes a step: the same outcome however often it is repeated."""
        self.effects.add((one.root, one.pid, one.step))
        key = (one.pid, one.step)
        if key not in self.plans:
            self.plans[key] = self.plan(one)
        outcome = self.plans[key]
        if isinstance(outcome, Retry | Wait | Yield | Failed):
            del self.plans[key]  # the next attempt finds another one
        return outcome

    def plan(self, one: Record) -> Outcome:
        depth = len(one.ancestors)
        onwards: Outcome = Next(one.step + 1, b"")
        choices: list[Outcome] = [Retry("away"), Wait(one.updated_ms + 10, b""), Yield()]
        choices += [onwards] * 3
        if one.step >= 1:
            choices += [Done(b"ok")] * 4
        if one.step >= 4:
            return Done(b"ok")
        if depth < 2:
            kinds = [self.dice.choice((SAFE, SAFE, COMMITTING)) for _ in range(self.dice.randint(0, 3))]
            choices.append(Children(tuple(record(next(self.pids), kind) for kind in kinds), one.step + 1, b""))
        if self.dice.random() < 0.3:
            choices += [Failed("broken")] * 2
        return self.dice.choice(choices)

    def undo(self, one: Record) -> Outcome:
        """Undoes the latest step, with what children that have ended had done for it."""
        family = {pid for pid in self.descendants.get(one.pid, ()) if pid not in self.stored}
        self.effects -= {(one.root, one.pid, one.done[-1])}
        self.effects -= {effect for effect in self.effects if effect[1] in family}
        return Retry("away") if self.dice.random() < 0.2 else Done()


class Engine:
    """Runs procedures in random order and dies before or after some of its writes."""

    def __init__(self, world: KernelWorld) -> None:
        self.world = world
        self.now_ms = 0
        self.restart()

    def restart(self) -> None:
        loaded = load(self.world.stored.values(), lambda _: None)
        assert not loaded.unusable
        self.procedures = Procedures(no_return)
        self.procedures.apply(Change(puts=tuple(loaded.records.values())))
        self.ready, self.later = list(loaded.ready), set(loaded.later)

    def commit(self, change: Change) -> bool:
        """Writes and applies; returns whether the daemon died before or after the write."""
        fate = self.world.dice.random()
        if fate < 0.1:
            self.restart()
            return True
        self.world.write(change)
        for one in change.puts:
            for ancestor in one.ancestors:
                self.world.descendants.setdefault(ancestor, set()).add(one.pid)
        if fate < 0.2:
            self.restart()
            return True
        ready = self.procedures.apply(change)
        assert self.procedures.records == self.world.stored
        self.ready += [pid for pid in ready if pid not in self.ready]
        self.later |= set(change.later)
        return False

    def turn(self) -> None:
        p, world = self.procedures, self.world
        self.now_ms += 1
        due = {pid for pid in self.later if pid in p.records and self.now_ms >= p.records[pid].deadline_ms}
        if not self.ready and not due:
            self.now_ms += 1_000
            return
        self.later -= due
        self.ready += [pid for pid in due if pid not in self.ready]
        pid = self.ready.pop(world.dice.randrange(len(self.ready)))
        if pid not in p.records or p.records[pid].state.is_final or pid in p.children:
            return
        found = p.due(pid, self.now_ms)
        if isinstance(found, Change):
            self.commit(found)
        elif found is Act.UNDO:
            self.commit(p.undone(pid, world.undo(p.records[pid]), self.now_ms))
        else:
            change = p.executed(pid, world.execute(p.records[pid]), self.now_ms)
            if not self.commit(change) and not change.ready and not change.later and not change.deletes:
                self.ready += [pid] if not p.records[pid].state.is_final else []


@pytest.mark.parametrize("seed", range(150))
def test_every_family_ends_as_a_whole_or_leaves_nothing(seed: int) -> None:
    world = KernelWorld(random.Random(seed))
    engine = Engine(world)
    roots = [next(world.pids) for _ in range(3)]
    for pid in roots:
        while pid not in world.stored:
            engine.commit(engine.procedures.submitted(record(pid, world.dice.choice((SAFE, COMMITTING)))))
    for _ in range(5_000):
        engine.turn()
        if world.dice.random() < 0.01 and (living := [pid for pid in roots if not world.stored[pid].state.is_final]):
            abort = engine.procedures.aborted(world.dice.choice(living), engine.now_ms)
            if abort is not None:
                engine.commit(abort)
        if all(one.state.is_final for one in world.stored.values()):
            break
    assert sorted(world.stored) == roots, "only roots are kept"
    for pid in roots:
        steps = {step for root, one, step in world.effects if root == pid and one == pid}
        if world.stored[pid].state is State.SUCCESS:
            assert steps == set(world.stored[pid].done)
        else:
            assert world.stored[pid].state is State.ROLLEDBACK
            assert not any(root == pid for root, _, _ in world.effects), "something was not undone"


def test_a_procedure_of_many_steps_undoes_all_of_them() -> None:
    p = started(record(1))
    for number in range(3 * DONE_MAX):
        p.apply(p.executed(1, Next(1 - number % 2, b""), 10))
    assert p.aborted(1, 10) is not None
    assert p.records[1].done == (0, 1) * (3 * DONE_MAX // 2)


def test_a_procedure_that_goes_round_keeps_its_latest_steps_alone() -> None:
    p = Procedures(lambda _: 0)
    p.apply(p.submitted(record(1)))
    for number in range(3 * DONE_MAX):
        p.apply(p.executed(1, Next(1 - number % 2, b""), 10))
    assert p.records[1].done == (0, 1) * (DONE_MAX // 2)
    assert p.aborted(1, 10) is None, "it stays behind its point of no return"
