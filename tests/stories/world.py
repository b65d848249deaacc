"""The controller of the stories: decide, commit, apply and tell as the daemon does, without a wait in between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from state_machines.machines.draft import Decide, Draft
from state_machines.model.cluster import Cluster, leadership_of
from state_machines.model.decision import Change, Decision, Refusal, TopicChange, Transition
from state_machines.model.types import Assignment, Broker, Leadership
from state_machines.propagation.propagation import Propagation
from tests.core.model import NaiveZooKeeper
from tests.stories.brokers import STOP_REPLICA, Entry, NaiveBroker, parsed, shown
from tests.stories.post import lines, post

ROUNDS_MAX = 3


class StoryWorld:
    """Model, audience, ZooKeeper and brokers. ``sent`` counts requests per broker by whether they are live lists."""

    def __init__(self) -> None:
        self.zookeeper = NaiveZooKeeper()
        self.registered: dict[int, Broker] = {}
        self.cluster = Cluster(0)
        self.propagation = Propagation(self.cluster)
        self.brokers: dict[int, NaiveBroker] = {}
        self.sent: dict[int, Counter[bool]] = {}
        self.out: list[str] = []
        self.unclean: set[str] = set()
        self.unobserved: set[tuple[str, int]] = set()
        self.trouble: dict[str, tuple[str, ...]] = {}
        self.markers: set[str] = set()
        self.asked_to_delete: dict[int, list[str]] = {}
        self._zxid = 100

    def begin(self) -> None:
        """A step begins."""
        self.out = []
        self.sent = {b: Counter() for b in self.brokers}

    def new_zxid(self) -> int:
        """A zxid that was never used."""
        self._zxid += 1
        return self._zxid

    def assignment(self, name: str) -> Assignment:
        """What the topic znode says of a partition."""
        topic, partition = split(name)
        return self.zookeeper.topics[topic].partitions[partition]

    def allows_unclean(self, topic: int) -> bool:
        """Whether the topic with that index allows unclean elections."""
        return self.cluster.topics[topic].name in self.unclean

    # -- terms and brokers

    def load(self, epoch: int) -> None:
        """A term begins: everything is read."""
        self.cluster = self.zookeeper.read_all(epoch, self.registered)
        self.propagation = Propagation(self.cluster)
        self.unobserved.clear()
        for broker_id in self.registered:
            self.propagation.add(broker_id)

    def join(self, broker_id: int) -> None:
        """A new life of a broker, which knows nothing."""
        self.propagation.add(broker_id)
        self.brokers[broker_id] = NaiveBroker(broker_id)
        self.sent[broker_id] = Counter()

    def leave(self, broker_id: int) -> None:
        """A life of a broker ended."""
        self.propagation.remove(broker_id)
        del self.brokers[broker_id]

    def snapshot(self, brokers: Iterable[int]) -> None:
        """The brokers are to hear everything."""
        for broker_id in brokers:
            self.propagation.snapshot(broker_id)

    # -- the one path

    def carry_out(self, decide: Decide) -> None:
        """Decides, commits, applies and queues what is to be told, until everything is settled."""
        only: set[int] | None = None
        for _ in range(ROUNDS_MAX):
            draft = Draft(self.cluster, only)
            draft.trace = []
            decide(draft)
            decision = draft.finish()
            self._note(draft.trace, decision.refusals)
            only = self._commit(decision)
            if not only:
                return
            for i in sorted(only):
                self.reread(i)
        raise AssertionError("the conflicts of a story come to an end")

    def rewrite(self, changes: Iterable[TopicChange]) -> None:
        """Topic znodes are rewritten, and observed as they are then."""
        for change in changes:
            assert self.zookeeper.rewrite(change), "nobody else rewrites the topic znodes of a story"
            said = "; ".join(f"{change.topic}-{p} {shown(a)}" for p, a in change.partitions.items())
            self.out.append(f"topic {said} ({change.why})")
            self.cluster.observe_assignments(change.topic, change.version + 1, change.partitions)

    def _commit(self, decision: Decision) -> set[int]:
        """Returns the rows whose outcome is a conflict or unknown."""
        self.cluster.apply(decision.moves)
        self.propagation.propagate(decision.moves, ())
        self.propagation.metadata_changed(decision.metadata)
        outcomes = [(change, self._write(change)) for change in decision.writes]
        applied = [change for change, outcome in outcomes if outcome == "write"]
        failed = {change.entity for change, outcome in outcomes if outcome != "write"}
        settled = [move for move in decision.replica_moves if move.entity not in failed]
        self.cluster.apply(applied)
        self.cluster.apply_replicas(settled)
        self.propagation.propagate(applied, settled)
        given_up = {change.entity for change, outcome in outcomes if outcome == "refused"}
        self.cluster.observe_undecided(given_up)
        return failed - given_up

    def _write(self, change: Change) -> str:
        name = self.name(change.entity)
        trouble, *rest = self.trouble.pop(name, ("none",))
        if trouble == "conflict":
            self.leader_writes(name, *rest)
        outcome = "write"
        if trouble == "refused":
            outcome = "refused"
        elif not self.zookeeper.write(self.cluster, change):
            outcome = "conflict"
        elif trouble == "reply-lost":
            outcome = "reply lost"
        held = leadership_of(change.after)
        assert held is not None
        self.out.append(f"{outcome} {name}: {_shown(held)} ({change.why})")
        return outcome

    def leader_writes(self, name: str, _isr: str, isr: str) -> None:
        """The leader writes its ISR itself."""
        self.zookeeper.set_isr(split(name), parsed(isr))
        self.unobserved.add(split(name))

    def reread(self, i: int) -> None:
        """What is in ZooKeeper is observed, and told where it differs."""
        held = self.zookeeper.states.get(self.cluster.name(i))
        change = self.cluster.observe_leadership(i, held)
        self.unobserved.discard(self.cluster.name(i))
        if change is not None and held is not None:
            self.out.append(f"read {self.name(i)}: {_shown(held)}")
            self.propagation.propagate([change], ())

    def tell_brokers(self) -> None:
        """One seal per broker leaves."""
        sent = list(post(self.propagation))
        for _, broker_id, request in sent:
            self.brokers[broker_id].take(request)
            if request.kind == STOP_REPLICA:
                deleted = [name for name, entry in request.entries.items() if entry.delete]
                self.asked_to_delete.setdefault(broker_id, []).extend(deleted)
            self.sent.setdefault(broker_id, Counter())[request.live_list_only] += 1
        self.out += lines(sent)

    def _note(self, trace: Sequence[Transition], refusals: Iterable[Refusal]) -> None:
        refused = {(refusal.entity, refusal.target) for refusal in refusals}
        for entity, on, state, target in trace:
            if (entity, target) not in refused:
                self.out.append(f"{self.name(entity)}{'' if on is None else f'/{on}'} {state} -> {target}")
        self.out += [f"not done {self.name(r.entity)} {r.target}: {r.why}" for r in refusals]

    def row(self, name: str) -> int:
        """Row index of a partition that there is."""
        row = self.cluster.find(*split(name))
        assert row is not None, f"there is no partition {name}"
        return row

    def name(self, i: int) -> str:
        """Topic and partition of a row."""
        return str(self.cluster.name(i))


def split(name: str) -> tuple[str, int]:
    """Topic and partition of ``t-0``."""
    topic, _, partition = name.rpartition("-")
    return topic, int(partition)


def _shown(held: Leadership) -> str:
    return f"{Entry.of(held, Assignment(()))} version {held.version}"
