"""Plays random interleavings of brokers, leaders, a controller that writes step by step, and reads of the shadow."""

from __future__ import annotations

from collections import Counter
from itertools import cycle

from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

from controller.kafka.shadow.unmatched import EXCUSE_SHARE
from state_machines.model.types import NO_LEADER, Leadership
from tests.kit.kafka.shadow import WAIT_S, Name, ShadowWorld, Watcher

REPLICAS = ((1, 2, 3), (2, 3, 1), (3, 1, 2), (2, 1), (3, 2), (1, 3), (1,), (2,), (3,))
BROKERS = st.sampled_from((1, 2, 3))

DIE, RETURN = st.tuples(st.just("die"), BROKERS), st.tuples(st.just("return"), BROKERS)
ISR = st.tuples(st.just("isr"), st.tuples(st.integers(0, 20), st.integers(0, 2)))
READ = st.tuples(st.just("read"), st.lists(st.integers(0, 3), min_size=1, max_size=3))
ACTION = st.one_of(
    *(DIE, DIE, RETURN, RETURN, ISR, ISR, READ, READ),
    st.tuples(st.just("shut down"), BROKERS),
    st.tuples(st.just("create"), st.sampled_from(REPLICAS)),
    st.tuples(st.just("step"), st.integers(1, 6)),
    st.tuples(st.just("failover"), BROKERS),
    *(st.tuples(st.just(kind), st.none()) for kind in ("finish", "prefer", "wait")),
)


class Play:
    """Carries out the possible actions and skips the others. ``tame``: the shadow reads after every action."""

    def __init__(self, *, tame: bool) -> None:
        self.world = ShadowWorld()
        self.world.create("t", *REPLICAS)
        self.world.controller.finish()
        self.watcher = Watcher(self.world)
        self.tame = tame
        self.topics = 0
        self.holder = 9
        self.unread: set[int] = set()

    def act(self, kind: str, detail: object) -> None:
        getattr(self, kind.replace(" ", "_"))(detail)
        if self.tame and kind not in {"step", "finish", "read", "wait"}:
            self.read([1])
            self.finish(None)
            self.read([0])
            self.read([0])
            if kind == "prefer":
                self.watcher.read(seconds=2 * WAIT_S / EXCUSE_SHARE)

    def die(self, b: int) -> None:
        if b in self.world.brokers:
            self.changes(b)
            self.world.deregister(b)

    def return_(self, b: int) -> None:
        if b not in self.world.brokers:
            self.changes(b)
            self.world.register(b)

    def changes(self, b: int) -> None:
        """Reads before a second change of one broker: a process takes longer to return than the shadow to read."""
        if b in self.unread:
            self.read([0])
        self.unread.add(b)

    def shut_down(self, b: int) -> None:
        if b not in self.world.brokers:
            return
        self.world.asks_to_shut_down(b)
        self.finish(None)
        if self.tame:
            self.read([0])
        self.changes(b)
        self.world.deregister(b)

    def create(self, replicas: tuple[int, ...]) -> None:
        self.topics += 1
        self.world.create(f"t{self.topics}", replicas)

    def isr(self, which: tuple[int, int]) -> None:
        """Changes an ISR as its leader does: a live replica joins, or a member leaves."""
        names: list[Name] = sorted(self.world.states)
        name = names[which[0] % len(names)]
        held, replicas = self.world.state(name), dict(self.world.assigned())[name]
        member = replicas[which[1] % len(replicas)]
        if held.leader == NO_LEADER or held.leader not in self.world.brokers or member == held.leader:
            return
        if member in held.isr:
            self.world.leader_sets_isr(name, *(r for r in held.isr if r != member))
        elif member in self.world.controller.live & self.world.brokers.keys():
            self.world.leader_sets_isr(name, *held.isr, member)

    def step(self, count: int) -> None:
        for _ in range(count):
            self.world.controller.step()

    def finish(self, _: object) -> None:
        self.world.controller.finish()

    def read(self, between: list[int]) -> None:
        steps = cycle(between)
        self.unread.clear()
        self.watcher.read(lambda: self.step(next(steps)))

    def failover(self, b: int) -> None:
        if b in self.world.brokers:
            self.elect(b)

    def elect(self, b: int) -> None:
        """Gives the role to a broker; only the death of its predecessor may be read together with that."""
        if self.unread - {self.holder}:
            self.read([0])
        self.world.elect(b)
        self.holder = b

    def prefer(self, _: object) -> None:
        """Lets the controller elect preferred leaders at some moment among its other events."""
        self.world.controller.post(self.world.controller.preferred_election)

    def wait(self, _: object) -> None:
        if self.world.holder is None:
            self.elect(next(iter(self.world.brokers), 0))
        self.finish(None)
        self.read([0])
        self.watcher.pass_time()

    def end(self) -> Counter[str]:
        self.wait(None)
        assert [str(d) for d in self.watcher.statistics.differences] == []
        assert not self.watcher.tracker.waiting
        for i, held in self.watcher.states():
            row, read = self.watcher.tracker.model.rows[i], held.leadership
            assert (row.leader, row.isr, row.version) == (read.leader, read.isr, read.version), "the model is as read"
        return Counter(
            compared=self.watcher.statistics.compared.total(), uncomparable=self.watcher.statistics.uncomparable.total()
        )


def play(actions: list[tuple[str, object]], *, tame: bool) -> Counter[str]:
    scene = Play(tame=tame)
    for kind, detail in actions:
        scene.act("return_" if kind == "return" else kind, detail)
    return scene.end()


@settings(max_examples=300, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(ACTION, max_size=14))
def test_no_interleaving_yields_a_false_difference(actions: list[tuple[str, object]]) -> None:
    counts = play(actions, tame=False)
    event("something was compared" if counts["compared"] else "nothing was compared")


@settings(max_examples=100, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(ACTION, max_size=12))
def test_with_a_read_after_every_event_nothing_stays_uncompared(actions: list[tuple[str, object]]) -> None:
    assert play(actions, tame=True)["uncomparable"] == 0


class Tamper:
    """Changes one of a controller's writes."""

    def __init__(self, at: int, field: str) -> None:
        self.at, self.field = at, field
        self.writes = 0
        self.changed: Name | None = None

    def __call__(self, name: Name, written: Leadership) -> Leadership:
        self.writes += 1
        if self.writes != self.at:
            return written
        self.changed = name
        leader, epoch, isr = written.leader, written.leader_epoch, written.isr
        if self.field == "leader epoch":
            epoch += 1
        elif self.field == "leader":
            leader = next(b for b in (1, 2, 3) if b != leader)
        else:
            isr = tuple(b for b in isr if b == leader) if len(isr) > 1 else (*isr, 7)
        return Leadership(leader, epoch, isr, 0, 0)


@settings(max_examples=200, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    st.lists(ACTION.filter(lambda action: action[0] not in {"failover", "prefer"}), min_size=1, max_size=8),
    st.integers(1, 20),
    st.sampled_from(("leader", "ISR", "leader epoch")),
)
def test_one_tampered_write_is_found_and_nothing_else(actions: list[tuple[str, object]], at: int, field: str) -> None:
    scene, tamper = Play(tame=True), Tamper(at, field)
    scene.world.controller.tamper = tamper
    for kind, detail in actions:
        scene.act("return_" if kind == "return" else kind, detail)
        scene.wait(None)
    assume(tamper.changed is not None)
    assert tamper.changed is not None
    topic, partition = tamper.changed
    assert {d.path for d in scene.watcher.statistics.differences} == {
        f"/brokers/topics/{topic}/partitions/{partition}/state"
    }
