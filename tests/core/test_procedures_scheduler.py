"""The scheduler of procedures against a plain model of locks, and the order in which it gives procedures out."""

from __future__ import annotations

import contextlib
import itertools

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from state_machines.procedures.demand import CLUSTER, UPPER, Demand, Resource, Scope
from state_machines.procedures.entity_queue import Entry
from state_machines.procedures.locks import LockOrder
from state_machines.procedures.scheduler import Scheduler

NAMESPACE = Resource(Scope.NAMESPACE, "n")
TABLES = [Resource(Scope.TOPIC, "t", "n"), Resource(Scope.TOPIC, "u", "n"), Resource(Scope.TOPIC, "v")]
SERVERS = [Resource(Scope.SERVER, "1"), Resource(Scope.SERVER, "2")]
RESOURCES = [CLUSTER, NAMESPACE, *TABLES, *SERVERS, Resource(Scope.SYSTEM, "meta")]


def is_above(upper: Resource, lower: Resource) -> bool:
    """Checks whether a lock on ``upper`` covers ``lower``."""
    if upper == lower:
        return False
    return upper == CLUSTER or (upper.scope is Scope.NAMESPACE and lower.namespace == upper.name)


def single(demand: Demand) -> list[Demand]:
    """Returns the demand and its further ones."""
    return [demand, *demand.also]


def conflict(one: Demand, other: Demand) -> bool:
    """Checks whether two procedures, neither of which descends from the other, exclude each other."""
    return any(
        (a.resource == b.resource and (a.exclusive or b.exclusive))
        or (is_above(a.resource, b.resource) and a.exclusive)
        or (is_above(b.resource, a.resource) and b.exclusive)
        or bool(set(a.parts) & set(b.parts))
        for a, b in itertools.product(single(one), single(other))
    )


@st.composite
def demands(draw: st.DrawFn) -> Demand:
    """Draws a demand; parts are of its table."""
    resource, *others = draw(st.lists(st.sampled_from(RESOURCES), min_size=1, max_size=2, unique=True))
    exclusive = draw(st.booleans())
    parts: tuple[tuple[str, int], ...] = ()
    if resource in TABLES and not exclusive:
        numbers = draw(st.sets(st.integers(0, 2), max_size=2))
        parts = tuple((resource.name, number) for number in sorted(numbers))
    also = tuple(Demand(other, draw(st.booleans())) for other in others if other.scope not in UPPER)
    return Demand(resource, exclusive, parts, also)


class Machine(RuleBasedStateMachine):
    """Procedures come, run, have children and end in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.scheduler = Scheduler()
        self.pids = itertools.count(1)
        self.demands: dict[int, Demand] = {}
        self.ancestors: dict[int, tuple[int, ...]] = {}
        self.children: dict[int, int] = {}
        self.waiting: set[int] = set()
        self.running: dict[int, Entry] = {}
        self.parents: dict[int, Entry] = {}

    def enter(self, demand: Demand, ancestors: tuple[int, ...] = ()) -> Entry:
        pid = next(self.pids)
        entry = self.scheduler.entry(pid, demand, ancestors)
        self.demands[pid], self.ancestors[pid] = demand, ancestors
        self.waiting.add(pid)
        return entry

    @rule(demand=demands())
    def submit(self, demand: Demand) -> None:
        self.scheduler.add_back(self.enter(demand))

    @rule(count=st.integers(1, 6))
    def run(self, count: int) -> None:
        for _ in range(count):
            entry = self.scheduler.poll()
            if entry is None:
                self.all_are_blocked()
                return
            assert entry.pid in self.waiting, "given out twice"
            self.waiting.remove(entry.pid)
            self.running[entry.pid] = entry

    @precondition(lambda self: self.running)
    @rule(data=st.data(), wanted=st.lists(demands(), min_size=1, max_size=3))
    def have_children(self, data: st.DataObject, wanted: list[Demand]) -> None:
        pid = data.draw(st.sampled_from(sorted(self.running)))
        ancestors = (pid, *self.ancestors[pid])
        entries = []
        for demand in wanted:
            with contextlib.suppress(LockOrder):
                entries.append(self.enter(demand, ancestors))
        if entries:
            self.parents[pid] = self.running.pop(pid)
            self.children[pid] = len(entries)
            self.scheduler.add_front(entries)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), again=st.booleans())
    def leave(self, data: st.DataObject, again: bool) -> None:
        """Ends a procedure, or has it yield."""
        pid = data.draw(st.sampled_from(sorted(self.running)))
        self.end(pid, again=again)

    def end(self, pid: int, *, again: bool = False) -> None:
        entry = self.running.pop(pid)
        self.scheduler.release(entry)
        if again:
            self.waiting.add(pid)
            self.scheduler.add_back(entry)
            return
        self.scheduler.drop(entry)
        del self.demands[pid]
        for parent in self.ancestors[pid][:1]:
            self.children[parent] -= 1
            if not self.children[parent]:  # it goes on with the locks that it kept
                self.waiting.add(parent)
                self.scheduler.add_front([self.parents.pop(parent)])

    def holding(self) -> set[int]:
        return {entry.pid for entry in self.scheduler.holders}

    @invariant()
    def locks_exclude_each_other(self) -> None:
        holding = self.holding()
        assert self.running.keys() <= holding
        for one, other in itertools.combinations(sorted(holding), 2):
            related = one in self.ancestors[other] or other in self.ancestors[one]
            cousins = set(self.ancestors[one]) & set(self.ancestors[other])
            if not related and not cousins:
                assert not conflict(self.demands[one], self.demands[other]), (one, other)

    def all_are_blocked(self) -> None:
        """A poll without result: each waiting procedure conflicts with a holder, or with one that waits before it."""
        holding = self.holding()
        for pid in self.waiting:
            others = (holding | self.waiting) - {pid, *self.ancestors[pid]}
            assert any(conflict(self.demands[pid], self.demands[other]) for other in others), pid
        assert holding or not self.waiting, "nothing runs and nothing can"

    def teardown(self) -> None:
        for _ in range(1_000):
            self.run(1)
            if not self.running:
                break
            self.end(min(self.running))
        assert not self.waiting, "some never run"
        assert [queue.resource for queue in self.scheduler.queues] == [CLUSTER]
        assert not list(self.scheduler.holders)


Machine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestRandomProcedures = Machine.TestCase
