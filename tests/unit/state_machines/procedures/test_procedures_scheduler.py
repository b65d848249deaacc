"""The scheduler of procedures against a plain model of locks, and the order in which it gives procedures out."""

from __future__ import annotations

import contextlib
import itertools

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from state_machines.procedures.locks import CLUSTER, UPPER, Demand, Entry, LockOrder, Resource, Scope
from state_machines.procedures.scheduler import LockConflict, Scheduler

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
        (a.resource == b.resource and (a.exclusive or b.exclusive or not set(a.parts).isdisjoint(b.parts)))
        or (is_above(a.resource, b.resource) and a.exclusive)
        or (is_above(b.resource, a.resource) and b.exclusive)
        for a, b in itertools.product(single(one), single(other))
    )


@st.composite
def demands(draw: st.DrawFn) -> Demand:
    """Draws a demand; parts are of its table."""
    resource, *others = draw(st.lists(st.sampled_from(RESOURCES), min_size=1, max_size=2, unique=True))
    exclusive = draw(st.booleans())
    parts: tuple[int, ...] = ()
    if resource in TABLES and not exclusive:
        numbers = draw(st.sets(st.integers(0, 2), max_size=2))
        parts = tuple(sorted(numbers))
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
        self.entries: dict[int, Entry] = {}
        self.parents: dict[int, Entry] = {}

    def enter(self, demand: Demand, ancestors: tuple[int, ...] = ()) -> Entry:
        pid = next(self.pids)
        entry = self.scheduler.entry(pid, demand, ancestors)
        self.demands[pid], self.ancestors[pid] = demand, ancestors
        self.waiting.add(pid)
        self.entries[pid] = entry
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

    @precondition(lambda self: self.waiting - self.holding())
    @rule(data=st.data())
    def end_one_that_waits(self, data: st.DataObject) -> None:
        """Has an operator end a procedure that holds nothing: those that waited behind it may run at once."""
        pid = data.draw(st.sampled_from(sorted(self.waiting - self.holding())))
        given = self.entries[pid]
        self.scheduler.give(given)
        while (entry := self.scheduler.poll()) is not given:  # parents that go on come before it
            assert entry is not None
            self.waiting.remove(entry.pid)
            self.running[entry.pid] = entry
        self.waiting.remove(pid)
        self.gone(given)

    def end(self, pid: int, *, again: bool = False) -> None:
        entry = self.running.pop(pid)
        self.scheduler.release(entry)
        if again:
            self.waiting.add(pid)
            self.scheduler.add_back(entry)
            return
        self.gone(entry)

    def gone(self, entry: Entry) -> None:
        pid = entry.pid
        self.scheduler.drop(entry)
        del self.demands[pid], self.entries[pid]
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


Machine.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
TestRandomProcedures = pytest.mark.seed("S1-60", "S1-61", "S3-10")(Machine.TestCase)


# -- the order, case by case

T, U = Resource(Scope.TOPIC, "t"), Resource(Scope.TOPIC, "u")


def queued(*demands: Demand) -> Scheduler:
    """Returns a scheduler with procedures 1, 2, ... in this order."""
    s = Scheduler()
    for pid, demand in enumerate(demands, 1):
        s.add_back(s.entry(pid, demand))
    return s


def polled(s: Scheduler, count: int = 100) -> list[int]:
    """Polls until nothing can run, and releases nothing."""
    return [entry.pid for entry in itertools.takewhile(bool, (s.poll() for _ in range(count))) if entry]


@pytest.mark.seed("S1-38")
def test_queues_of_a_lane_take_turns() -> None:
    s = queued(*[Demand(T, False)] * 3, *[Demand(U, False)] * 3)
    assert polled(s) == [1, 4, 2, 5, 3, 6]


@pytest.mark.seed("S1-39", "S1-40", "S1-62")
def test_a_server_has_a_queue_of_its_own_that_goes_with_its_last_procedure_and_comes_anew() -> None:
    one, other = SERVERS
    s = queued(Demand(one, True), Demand(one, True), Demand(other, True))
    assert polled(s) == [1, 3], "2 waits for 1, the other server's procedure waits for nobody"
    assert {queue.resource for queue in s.queues} == {CLUSTER, one, other}
    while held := list(s.holders):
        for entry in held:
            s.release(entry)
            s.drop(entry)
        polled(s)
    assert [queue.resource for queue in s.queues] == [CLUSTER]
    s.add_back(s.entry(4, Demand(one, True)))
    assert polled(s) == [4], "the returned server's queue knows nothing of the one before"


@pytest.mark.seed("S1-61")
def test_parts_are_locked_all_or_nothing() -> None:
    s = queued(Demand(T, False, (1,)), Demand(T, False, (0, 1, 2)), Demand(T, False, (0, 2)))
    assert polled(s) == [1, 3], "2 holds neither 0 nor 2 while it waits for 1"
    first, third = s.holders
    s.release(third)
    assert polled(s) == []
    s.release(first)
    assert polled(s) == [2]


def test_a_part_stays_with_its_holder_while_children_that_may_use_it_come_and_go() -> None:
    """A move has the region; its close and its assign demand the same one, and another move waits for it."""
    part = Demand(TABLES[0], exclusive=False, parts=(5,))
    s = Scheduler()
    parent, other = s.entry(1, part), s.entry(9, part)
    s.add_back(parent)
    assert s.poll() is parent
    s.add_back(other)
    for pid in (2, 3):
        child = s.entry(pid, part, (1,))
        s.add_front([child])
        assert s.poll() is child
        assert s.poll() is None
        s.release(child)
        s.drop(child)
        assert s.poll() is None, "the part is the parent's still"
    s.release(parent)
    assert s.poll() is other


def test_lanes_come_in_the_order_of_scopes() -> None:
    lanes = [Scope.TABLE, Scope.TOPIC, Scope.NAMESPACE, Scope.SERVER, Scope.SYSTEM, Scope.CLUSTER]
    s = queued(*(Demand(Resource(scope, "x" if scope else ""), False) for scope in lanes))
    assert polled(s) == [6, 5, 4, 3, 2, 1]


@pytest.mark.seed("S1-57", "S1-60", "S3-10")
def test_a_waiting_exclusive_lock_is_not_passed_by_shared_ones() -> None:
    s = queued(Demand(T, False), Demand(T, True), Demand(T, False), Demand(U, False))
    first, other = s.poll(), s.poll()
    assert first is not None
    assert other is not None
    assert (first.pid, other.pid, s.poll()) == (1, 4, None)
    s.release(first)
    second = s.poll()
    assert second is not None
    assert (second.pid, s.poll()) == (2, None)
    s.release(second)
    assert polled(s) == [3]


@pytest.mark.seed("S3-10")
def test_the_whole_cluster_waits_for_holders_and_their_children_alone() -> None:
    s = queued(Demand(T, False))
    parent = s.poll()
    assert parent is not None
    s.add_back(s.entry(2, Demand(CLUSTER, True)))
    s.add_back(s.entry(3, Demand(U, False)))
    assert s.poll() is None, "3 came after 2, which waits for 1"
    s.add_front([s.entry(4, Demand(U, False), (1,))])
    child = s.poll()
    assert child is not None
    assert (child.pid, s.poll()) == (4, None)
    s.release(child)
    s.release(parent)
    cluster = s.poll()
    assert cluster is not None
    assert (cluster.pid, s.poll()) == (2, None)
    s.release(cluster)
    assert polled(s) == [3]


def test_a_procedure_that_kept_its_locks_goes_on_before_all_others() -> None:
    s = queued(Demand(T, True), Demand(CLUSTER, False))
    assert polled(s) == [2, 1]
    kept = next(entry for entry in s.holders if entry.pid == 1)
    s.add_back(s.entry(3, Demand(T, True)))
    s.add_back(kept)
    assert s.poll() is kept
    assert s.poll() is None


@pytest.mark.parametrize(
    ("held", "child"),
    [
        (Demand(T, False), Demand(T, True)),
        (Demand(U, False), Demand(T, False)),
        (Demand(T, False), Demand(CLUSTER, True)),
        (Demand(T, False, (0,)), Demand(T, False, (1,))),
    ],
)
def test_a_child_may_not_lock_what_comes_before_its_ancestors_locks(held: Demand, child: Demand) -> None:
    s = queued(held)
    assert polled(s) == [1]
    with pytest.raises(LockOrder, match=r"pid 2 demands .* after its ancestor 1 locked"):
        s.entry(2, child, (1,))


def test_an_exclusive_lock_of_an_ancestors_ancestor_does_not_free_a_child_from_the_order() -> None:
    """Siblings share such a lock: one with a topic and one with a server could wait for each other's children."""
    s = queued(Demand(CLUSTER, True))
    assert polled(s) == [1]
    s.add_front([s.entry(2, Demand(CLUSTER, True, also=(Demand(T, True),)), (1,))])
    assert polled(s) == [2]
    with pytest.raises(LockOrder, match=r"pid 3 demands .* after its ancestor 2 locked"):
        s.entry(3, Demand(SERVERS[0], True), (2, 1))
    s.entry(4, Demand(SERVERS[0], True), (1,))


def test_a_cluster_or_namespace_comes_first_in_a_demand() -> None:
    with pytest.raises(LockOrder, match="make it the first demand"):
        queued(Demand(T, True, (), (Demand(CLUSTER, False),)))


def test_locks_are_restored_parents_first_and_two_owners_are_a_conflict() -> None:
    s = Scheduler()
    s.restore(s.entry(1, Demand(T, True)))
    s.restore(s.entry(2, Demand(T, True), (1,)))
    with pytest.raises(LockConflict, match=r"pid 3 held a lock on .* that another record holds, too"):
        s.restore(s.entry(3, Demand(T, False)))
    s.restore(s.entry(4, Demand(U, False, (0,))))
    with pytest.raises(LockConflict):
        s.restore(s.entry(5, Demand(U, False, (0,))))
    s.add_back(s.entry(6, Demand(CLUSTER, True)))
    assert s.poll() is None


WAITS = {
    "the entity": (Demand(TABLES[0], exclusive=True), Demand(TABLES[0], exclusive=True)),
    "a part": (Demand(TABLES[0], exclusive=False, parts=(1,)), Demand(TABLES[0], exclusive=False, parts=(1,))),
    "what is above": (Demand(NAMESPACE, exclusive=True), Demand(TABLES[0], exclusive=False)),
    "what is below": (Demand(TABLES[0], exclusive=False), Demand(NAMESPACE, exclusive=True)),
    "a further entity": (
        Demand(SERVERS[0], exclusive=True),
        Demand(TABLES[0], exclusive=True, also=(Demand(SERVERS[0], exclusive=True),)),
    ),
}


@pytest.mark.parametrize("waits_for", WAITS)
def test_a_procedure_that_only_ends_leaves_whatever_it_waits_in_and_is_given_out_once(waits_for: str) -> None:
    """An operator has ended it: the next one goes on as if it had never waited."""
    held, wanted = WAITS[waits_for]
    s = Scheduler()
    holder = s.entry(1, held)
    s.add_back(holder)
    assert s.poll() is holder
    ended, behind = s.entry(2, wanted), s.entry(3, wanted)
    for one in (ended, behind):
        s.add_back(one)
    assert s.poll() is None
    for _ in range(2):
        s.give(ended)
    assert s.poll() is ended
    s.drop(ended)
    assert s.poll() is None
    s.release(holder)
    s.drop(holder)
    assert s.poll() is behind
    s.release(behind)
    s.drop(behind)
    assert (s.poll(), list(s.holders)) == (None, [])
    assert [one.resource for one in s.queues] == [CLUSTER]


SHARED_BEHIND = {
    "the entity": (Demand(TABLES[0], False), Demand(TABLES[0], True), Demand(TABLES[0], False)),
    "what is below": (Demand(TABLES[0], False), Demand(NAMESPACE, True), Demand(TABLES[1], False)),
    "a further entity": (
        Demand(TABLES[0], False, (1,), (Demand(SERVERS[0], False),)),
        Demand(TABLES[0], False, (), (Demand(SERVERS[0], True),)),
        Demand(TABLES[0], False, (2,), (Demand(SERVERS[0], False),)),
    ),
}


@pytest.mark.parametrize("waits_for", SHARED_BEHIND)
def test_those_that_share_a_lock_go_on_once_one_that_waits_for_it_alone_is_ended(waits_for: str) -> None:
    """The holder may go on for hours, which is why an operator ends the one that waits for it."""
    s = Scheduler()
    holder, ended, behind = (s.entry(pid, one) for pid, one in enumerate(SHARED_BEHIND[waits_for], 1))
    s.add_back(holder)
    assert s.poll() is holder
    s.add_back(ended)
    assert s.poll() is None
    s.add_back(behind)
    assert s.poll() is None
    s.give(ended)
    assert [s.poll(), s.poll()] == [ended, behind]
    s.drop(ended)
    later = s.entry(4, SHARED_BEHIND[waits_for][2]._replace(parts=()))
    s.add_back(later)
    assert s.poll() is later
    for one in (holder, behind, later):
        s.release(one)
        s.drop(one)
    assert ([one.resource for one in s.queues], list(s.holders)) == ([CLUSTER], [])
