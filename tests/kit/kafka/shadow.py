"""Simulates a cluster for the shadow: znodes with zxids, and a controller that writes each step alone, as Kafka's does.

This controller shares no code with the decisions under test: it writes once per partition and step, from the state that
it reads at that moment, with events in the order of their arrival. It advances one write at a time, so that a test
chooses the reads of the shadow in between.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence

from controller.kafka.shadow.events import Kind
from controller.kafka.shadow.judgement import Seen
from controller.kafka.shadow.reading import RoleReading
from controller.kafka.shadow.report import ShadowDifference, Statistics
from controller.kafka.shadow.timeline import Timeline
from controller.kafka.shadow.tracker import Tracker
from state_machines.model.types import NO_LEADER, Assignment, Broker, Leadership, TopicAssignment
from tests.kit.kafka.model import broker

WAIT_S = 10.0
TRIPLES = ((1, 2, 3), (2, 3, 1), (3, 1, 2), (1, 3, 2))
MIXED = (*TRIPLES, (1, 2), (2, 3), (3, 1), (1,), (2,), (3,))
Name = tuple[str, int]
Counts = Mapping[str, int]
NONE: Counts = {}
Tamper = Callable[[Name, Leadership], Leadership]


class ShadowWorld:
    """Holds the content of ZooKeeper. ``holder`` has the role; broker 9 hosts nothing."""

    def __init__(self, brokers: Sequence[int] = (1, 2, 3, 9), holder: int = 9) -> None:
        self.zxid = 100
        self.brokers: dict[int, Broker] = {}
        self.brokers_zxid = 0
        self.topics: dict[str, TopicAssignment] = {}
        self.states: dict[Name, tuple[Leadership, int]] = {}
        self.holder: int | None = None
        self.epoch = 0
        self.epoch_zxid = 0
        self.controller = KafkaLike(self)
        for b in brokers:
            self.register(b)
        self.elect(holder)
        self.controller.finish()

    def tick(self) -> int:
        self.zxid += 1
        return self.zxid

    # -- brokers

    def register(self, b: int) -> None:
        self.brokers_zxid = self.tick()
        self.brokers[b] = broker(b, self.zxid)
        self.controller.post(self.controller.broker_change)

    def deregister(self, *gone: int) -> None:
        """Ends sessions one after the other; the role ends with its holder's session."""
        for b in gone:
            self.brokers_zxid = self.tick()
            del self.brokers[b]
            if self.holder == b:
                self.holder = None
                self.controller.events.clear()
                self.controller.doing = iter(())
        self.controller.post(self.controller.broker_change)

    def elect(self, b: int) -> None:
        """Gives the role to a broker."""
        self.epoch_zxid = self.tick()
        self.epoch += 1
        self.holder = b
        self.controller = KafkaLike(self)
        self.controller.post(self.controller.failover)

    def asks_to_shut_down(self, b: int) -> None:
        self.controller.post(lambda: self.controller.controlled_shutdown(b))

    # -- topics

    def create(self, name: str, *replicas: tuple[int, ...]) -> None:
        partitions = {p: Assignment(r) for p, r in enumerate(replicas)}
        self.topics[name] = TopicAssignment(name, None, partitions, 0, self.tick())
        self.controller.post(self.controller.topic_change)

    def reassign(self, name: str, *replicas: tuple[int, ...], adding: tuple[int, ...] = ()) -> None:
        """Changes replicas or adds partitions; ``adding`` joins the replicas of partition 0."""
        known = self.topics[name]
        partitions = {p: Assignment(r, () if p else adding) for p, r in enumerate(replicas)}
        self.topics[name] = TopicAssignment(name, None, partitions, known.version + 1, known.czxid)
        self.tick()
        self.controller.post(self.controller.topic_change)

    def delete(self, name: str) -> None:
        self.tick()
        del self.topics[name]
        self.states = {key: held for key, held in self.states.items() if key[0] != name}

    def assigned(self) -> Iterator[tuple[Name, tuple[int, ...]]]:
        for topic in self.topics.values():
            for p, assignment in topic.partitions.items():
                yield (topic.name, p), assignment.replicas

    # -- states

    def state(self, name: Name) -> Leadership:
        return self.states[name][0]

    def write(self, name: Name, leader: int, epoch: int, isr: Sequence[int]) -> None:
        version = self.states[name][0].version + 1 if name in self.states else 0
        self.states[name] = Leadership(leader, epoch, tuple(isr), self.epoch, version), self.tick()

    def leader_sets_isr(self, name: Name, *isr: int) -> None:
        """Changes the ISR as a leader does: the leader epoch stays."""
        held = self.state(name)
        self.write(name, held.leader, held.leader_epoch, isr)


def watched(*replicas: tuple[int, ...], holder: int = 9) -> tuple[ShadowWorld, Watcher]:
    """Creates a cluster with topic ``t``, and a shadow that follows it."""
    world = ShadowWorld(holder=holder)
    world.create("t", *replicas)
    world.controller.finish()
    return world, Watcher(world)


class KafkaLike:
    """Plays one term of a controller that writes step by step. ``tamper`` changes its writes, to plant a difference."""

    def __init__(self, world: ShadowWorld) -> None:
        self.world = world
        self.events: deque[Callable[[], Iterator[None]]] = deque()
        self.doing: Iterator[None] = iter(())
        self.known: dict[int, Broker] = {}
        self.shutting_down: set[int] = set()
        self.topics: set[str] = set()
        self.tamper: Tamper = lambda _, written: written
        self.writes = 0

    def post(self, event: Callable[[], Iterator[None]]) -> None:
        if self.world.holder is not None:
            self.events.append(event)

    def step(self) -> bool:
        """Continues until one write is done; returns False where nothing is left to do."""
        while True:
            try:
                next(self.doing)
                return True
            except StopIteration:
                if not self.events:
                    return False
                self.doing = self.events.popleft()()

    def finish(self) -> None:
        while self.step():
            pass

    @property
    def live(self) -> set[int]:
        return set(self.known) - self.shutting_down

    def assigned(self) -> list[tuple[Name, tuple[int, ...]]]:
        """Returns the partitions of topics whose creation it has handled."""
        return [(name, replicas) for name, replicas in self.world.assigned() if name[0] in self.topics]

    # -- events

    def failover(self) -> Iterator[None]:
        self.known = dict(self.world.brokers)
        self.topics = set(self.world.topics)
        gone = {b for _, (held, _) in self.world.states.items() for b in held.isr if b not in self.known}
        for b in sorted(gone):
            yield from self.shrink(b, [name for name, _ in self.assigned()])
        yield from self.trigger_online()

    def broker_change(self) -> Iterator[None]:
        found = dict(self.world.brokers)
        new = [b for b in found if b not in self.known]
        bounced = [b for b in found if b in self.known and found[b].epoch != self.known[b].epoch]
        dead = [b for b in self.known if b not in found]
        if new:
            self.known.update({b: found[b] for b in new})
            yield from self.trigger_online()
        if bounced:
            yield from self.failure(bounced)
            self.known.update({b: found[b] for b in bounced})
            yield from self.trigger_online()
        if dead:
            yield from self.failure(dead)

    def failure(self, dead: list[int]) -> Iterator[None]:
        for b in dead:
            del self.known[b]
            self.shutting_down.discard(b)
        yield from self.trigger_online()
        for b in sorted(dead):
            yield from self.shrink(b, [name for name, replicas in self.assigned() if b in replicas])

    def topic_change(self) -> Iterator[None]:
        self.topics = set(self.world.topics)
        for name, replicas in self.assigned():
            live = [b for b in replicas if b in self.live]
            if name not in self.world.states and live:
                yield from self.write(name, live[0], 0, live)

    def controlled_shutdown(self, b: int) -> Iterator[None]:
        if b not in self.known:
            return
        self.shutting_down.add(b)
        mine = [(n, r) for n, r in self.assigned() if b in r and len(r) > 1 and n in self.world.states]
        led = [(n, r) for n, r in mine if self.world.state(n).leader == b]
        for name, replicas in led:
            held = self.world.state(name)
            isr = [r for r in held.isr if r not in self.shutting_down]
            chosen = next((r for r in replicas if r in isr and r in self.known), None)
            if chosen is not None:
                yield from self.write(name, chosen, held.leader_epoch + 1, isr)
        yield from self.shrink(b, [n for n, r in mine if (n, r) not in led])

    def preferred_election(self) -> Iterator[None]:
        """Gives every partition its preferred leader, where that replica is in sync and live."""
        for name, replicas in self.assigned():
            held = self.world.state(name) if name in self.world.states else None
            first = replicas[0]
            if held is None or held.leader in {first, NO_LEADER} or first not in {*held.isr} & self.live:
                continue
            yield from self.write(name, first, held.leader_epoch + 1, held.isr)

    # -- steps

    def trigger_online(self) -> Iterator[None]:
        for name, replicas in self.assigned():
            if name not in self.world.states:
                live = [b for b in replicas if b in self.live]
                if live:
                    yield from self.write(name, live[0], 0, live)
                continue
            held = self.world.state(name)
            isr = [r for r in held.isr if r in self.live]
            chosen = next((r for r in replicas if r in isr), None)
            if held.leader not in self.known and chosen is not None:
                yield from self.write(name, chosen, held.leader_epoch + 1, isr)

    def shrink(self, b: int, names: list[Name]) -> Iterator[None]:
        for name in names:
            held = self.world.state(name) if name in self.world.states else None
            if held is None or b not in held.isr:
                continue
            leader = NO_LEADER if held.leader == b else held.leader
            isr = [r for r in held.isr if r != b] or list(held.isr)
            yield from self.write(name, leader, held.leader_epoch + 1, isr)

    def write(self, name: Name, leader: int, epoch: int, isr: Sequence[int]) -> Iterator[None]:
        chosen = self.tamper(name, Leadership(leader, epoch, tuple(isr), 0, 0))
        self.writes += 1
        self.world.write(name, chosen.leader, chosen.leader_epoch, chosen.isr)
        yield


class Watcher:
    """Runs the shadow without its loop: a test chooses its reads, and the events between the parts of a reading."""

    def __init__(self, world: ShadowWorld, *, settle: bool = True) -> None:
        self.world = world
        self.now = 1_000.0
        self.statistics = Statistics()
        self.tracker = Tracker(self.statistics, WAIT_S)
        self.timeline = Timeline(self.tracker)
        self.readings = 1
        self.timeline.begin(self._role_reading(), world.topics.values(), self.now)
        list(self.timeline.take(self._role_reading(), self.states(), self.now))
        if settle:
            self.pass_time()

    def read(
        self,
        between: Callable[[], object] = lambda: None,
        seconds: float = 0.01,
        *,
        late: bool = False,
        deleting: Sequence[str] = (),
    ) -> None:
        """Reads everything; ``between`` runs before topics, before states, and amid them."""
        self.now += seconds
        self.readings += 1
        reading = self._role_reading()
        between()
        self._topics()
        between()
        list(self.timeline.take(reading, self.states(between), self.now, late=late, deleting=deleting))

    def read_during(self, seconds: float = 0.01) -> None:
        """Reads everything while the controller finishes its work."""
        self.read(self.world.controller.finish, seconds)

    def kill(self, *brokers: int) -> None:
        """Ends brokers' sessions, and reads while the controller handles that."""
        self.world.deregister(*brokers)
        self.read_during()

    def pass_time(self) -> None:
        """Reads until the wait of every partition is over."""
        for _ in range(4):
            self.now += 3 * WAIT_S
            self.read()

    def differences(self) -> list[ShadowDifference]:
        """Returns the differences once nothing waits any more."""
        self.pass_time()
        assert not self.tracker.waiting
        return self.statistics.differences

    def agrees(
        self,
        compared: Mapping[Kind, int],
        *,
        uncomparable: Mapping[str, int] = NONE,
        not_ours: Mapping[str, int] = NONE,
    ) -> None:
        """Asserts that nothing differs, and these counts: of decisions that agree by event, and of other writes."""
        assert [str(found) for found in self.differences()] == []
        assert {kind: count for kind in Kind if (count := self.agreed(kind))} == compared
        assert (self.statistics.uncomparable, self.statistics.not_ours) == (uncomparable, not_ours)

    def _role_reading(self) -> RoleReading:
        world = self.world
        return RoleReading(
            self.readings,
            dict(world.brokers),
            world.brokers_zxid,
            world.holder,
            world.epoch,
            world.epoch_zxid,
            world.zxid,
        )

    def _topics(self) -> None:
        known = self.tracker.model.topic_index
        for name in sorted(known.keys() - self.world.topics.keys()):
            self.timeline.topic_gone(name)
        for name in sorted(self.world.topics):
            self.timeline.topic(self.world.topics[name], self.world.topics[name].czxid)

    def states(self, between: Callable[[], object] = lambda: None) -> list[tuple[int, Seen]]:
        """Reads the state znodes; ``between`` runs in the middle."""
        model = self.tracker.model
        found: list[tuple[int, Seen]] = []
        for index in model.topic_index.values():
            for i in model.topics[index].rows:
                if i == len(model.rows) // 2:
                    between()
                held = self.world.states.get((model.name(i).topic, model.name(i).partition))
                if held is not None:
                    found.append((i, Seen(held[0], held[1], self.readings)))
        return found

    def agreed(self, event: str) -> int:
        """Counts the decisions of one kind of event that agree."""
        return sum(count for kind, count in self.statistics.compared.items() if kind.event == event)
