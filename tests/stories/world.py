"""This controller's side of a story: the core, brokers that take its requests, and lines of what happened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from state_machines.model.cluster import leadership_of
from state_machines.model.decision import Change, Refusal, TopicChange, Transition
from state_machines.model.types import Assignment, Leadership
from tests.kit.kafka.core import REFUSED, REPLY_LOST, WRITTEN, CoreWorld
from tests.stories.brokers import STOP_REPLICA, Entry, NaiveBroker, parsed, shown
from tests.stories.post import lines, post


class StoryWorld(CoreWorld):
    """The core with brokers. ``requests`` counts those to each broker by whether they are live lists alone."""

    def __init__(self) -> None:
        super().__init__()
        self.brokers: dict[int, NaiveBroker] = {}
        self.requests: dict[int, Counter[bool]] = {}
        self.out: list[str] = []
        self.trouble: dict[str, tuple[str, ...]] = {}
        """What befalls the next write of a state znode, by partition."""
        self.deleting: dict[int, list[str]] = {}
        """Partitions of StopReplica with deletion that a broker has not responded to."""

    def begin(self) -> None:
        """Begins a step."""
        self.out = []
        self.requests = {b: Counter() for b in self.brokers}

    def assignment(self, name: str) -> Assignment:
        """Returns a partition's assignment in the topic znode."""
        topic, partition = split(name)
        return self.zookeeper.topics[topic].partitions[partition]

    def row(self, name: str) -> int:
        """Returns the row of a partition that exists."""
        row = self.cluster.find(*split(name))
        assert row is not None, f"there is no partition {name}"
        return row

    def name(self, i: int) -> str:
        """Returns topic and partition of a row."""
        return str(self.cluster.name(i))

    # -- brokers

    def join(self, broker_id: int) -> None:
        super().join(broker_id)
        self.brokers[broker_id] = NaiveBroker(broker_id)
        self.requests[broker_id] = Counter()

    def leave(self, broker_id: int) -> None:
        super().leave(broker_id)
        del self.brokers[broker_id]

    def send(self) -> None:
        """Sends every broker all that waits for it."""
        sent = list(post(self.propagation))
        for _, broker_id, request in sent:
            self.brokers[broker_id].take(request)
            if request.kind == STOP_REPLICA:
                deleted = [name for name, entry in request.entries.items() if entry.delete]
                self.deleting.setdefault(broker_id, []).extend(deleted)
            self.requests.setdefault(broker_id, Counter())[request.live_list_only] += 1
        self.out += lines(sent)

    # -- the one path

    def write(self, change: Change) -> str:
        name = self.name(change.entity)
        trouble, *rest = self.trouble.pop(name, ("none",))
        if trouble == "conflict":
            self.leader_writes(name, *rest)
        outcome = REFUSED if trouble == "refused" else super().write(change)
        if outcome == WRITTEN and trouble == "reply-lost":
            outcome = REPLY_LOST
        held = leadership_of(change.after)
        assert held is not None
        self.out.append(f"{outcome} {name}: {_shown(held)} ({change.why})")
        return outcome

    def leader_writes(self, name: str, _isr: str, isr: str) -> None:
        """The leader writes its ISR itself."""
        self.zookeeper.set_isr(split(name), parsed(isr))
        self.unobserved.add(split(name))

    def reread(self, i: int) -> Change | None:
        change = super().reread(i)
        if change is not None and (held := leadership_of(change.after)) is not None:
            self.out.append(f"read {self.name(i)}: {_shown(held)}")
        return change

    def note_decision(self, trace: Sequence[Transition], refusals: Iterable[Refusal]) -> None:
        refused = {(refusal.entity, refusal.target) for refusal in refusals}
        for entity, on, state, target in trace:
            if (entity, target) not in refused:
                self.out.append(f"{self.name(entity)}{'' if on is None else f'/{on}'} {state} -> {target}")
        self.out += [f"not done {self.name(r.entity)} {r.target}: {r.why}" for r in refusals]

    def note_rewrite(self, change: TopicChange) -> None:
        rewritten = "; ".join(f"{change.topic}-{p} {shown(a)}" for p, a in change.partitions.items())
        self.out.append(f"topic {rewritten} ({change.why})")

    def note_markers(self, removed: Iterable[str]) -> None:
        self.out += [f"marker of {topic} removed" for topic in removed]


def split(name: str) -> tuple[str, int]:
    """Returns topic and partition of ``t-0``."""
    topic, _, partition = name.rpartition("-")
    return topic, int(partition)


def _shown(held: Leadership) -> str:
    return f"{Entry.of(held, Assignment(()))} version {held.version}"
