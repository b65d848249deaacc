"""The end of a run: faults are healed, time passes, and then the cluster must be right (I5)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from controller.role import own_znodes as own
from controller.role.mode import Mode
from controller.term.claim_monitor import OUTRANKED
from state_machines.model.types import NO_LEADER, NO_VERSION, Assignment
from testing.simulated.digest import Truth, View, differences, expected_view, view
from tests.simulation import faults
from tests.simulation.checking import Violation
from tests.simulation.ensemble import SESSION_MS_MAX
from tests.simulation.history import Key
from tests.simulation.leading import LISTENER

if TYPE_CHECKING:
    from controller.term.term import Term
    from tests.simulation.brokers import BrokerNode
    from tests.simulation.world import World

HEAL_S: Final = 120.0
"""After this time everything must be right: sessions, time-outs of calls and pauses of daemons are shorter."""
POLL_S: Final = 0.25
STEADY_S: Final = 1.5
SHOWN_MAX: Final = 5


class Quiescence:
    """Heals, waits and judges."""

    def __init__(self, world: World) -> None:
        self.w = world
        self._until_s = 0.0
        self._since_s: float | None = None

    def begin(self) -> None:
        """Everything is healed at once."""
        self.w.trace("---- heal")
        self._heal_zookeeper()
        for node in self.w.brokers.values():
            self._heal_broker(node)
        for daemon in self.w.daemons:
            daemon.hooks.disarm()
            daemon.resume(daemon.lives)
            daemon.start()
        self._until_s = self.w.loop.now_s + HEAL_S
        self._poll()

    def _heal_zookeeper(self) -> None:
        ensemble = self.w.ensemble
        ensemble.write_s = 0.0
        ensemble.session_ms_max = SESSION_MS_MAX
        for member in ensemble.members:
            member.lag_s = 0.0
            if member.frozen:
                member.thaw()
        if not ensemble.available:
            ensemble.up()
        for session in ensemble.sessions.values():
            session.replies_to_lose = session.requests_to_lose = 0
            session.watches_to_lose = session.watches_to_double = 0
            session.codes.clear()
            session.client.answer_delay_s = 0.0
        for zk in [zk for d in self.w.daemons for zk in d.sessions] + [b.zk for b in self.w.brokers.values() if b.zk]:
            if zk.cut_off:
                zk.repair()

    def _heal_broker(self, node: BrokerNode) -> None:
        wire = node.wire
        wire.refuses = wire.cut = node.lagging = False
        wire.slow_s = 0.0
        wire.requests_to_drop = wire.replies_to_lose = 0
        wire.errors.clear()
        node.resume(node.lives)
        if node.id in self.w.plan.dead:
            node.retired = True
            node.crash()
            return
        if node.foreign:  # an operator restarts it, as the log says
            node.crash()
        if node.core.hosting.failed or node.core.hosting.offline:
            node.core.recover()
            node.crash()
        node.start()

    def _operate(self) -> None:
        """What an operator does: starts what is down, and takes back what a script did.

        The role, where it was given away; and the epoch is raised where epochs of others blocked a daemon.
        """
        for start in [node.start for node in self.w.daemons] + [node.start for node in self.w.brokers.values()]:
            start()
        waiting = any(d.daemon is not None and d.daemon.why.startswith(own.ROLE) for d in self.w.daemons)
        if waiting and self.w.handed_over:
            self.w.operate(self.w.actions.give_role("regent"))
        if self.w.ibp.topic_ids and (term := self._term()) is not None and not term.controller.lost_ids.asking:
            for name, topic_id in self.w.invariants.history.lost_ids().items():
                known = term.cluster.topic(name)
                if known is not None and known.topic_id is None:
                    self.w.operate(self.w.actions.give_back(name, topic_id))
        blocked = any(d.daemon is not None and d.daemon.why == OUTRANKED for d in self.w.daemons)
        if blocked and (self.w.made_up_epochs or self.w.counts[faults.BROKER_FOREIGN]):
            self.w.operate(self.w.actions.raise_epoch())

    def _term(self) -> Term | None:
        """The term that is in office."""
        return next((d.term for d in self.w.daemons if d.term is not None and d.term.serving.is_set()), None)

    def _poll(self) -> None:
        self._operate()
        wrong = self.wrong()
        now_s = self.w.loop.now_s
        if wrong:
            self._since_s = None
            if now_s >= self._until_s:
                self.w.violated(Violation("I5", f"after {HEAL_S:g} s without faults: {'; '.join(wrong[:SHOWN_MAX])}"))
                return
        elif self._since_s is None:
            self._since_s = now_s
        elif now_s - self._since_s >= STEADY_S:
            self._end()
            return
        self.w.network.later(POLL_S, self._poll)

    def _end(self) -> None:
        """All is well; merged and unmerged telling must have come to the same."""
        history, unmerged = self.w.invariants.history, self.w.unmerged
        if unmerged is not None:
            leaderless = {key for key, known in self._truth().items() if known.leader == NO_LEADER}
            for broker in sorted(history.registered):
                core, hosts = self.w.brokers[broker].core, history.hosts
                refused = {key for key, brokers in hosts.items() if broker in brokers}  # it has logs with another id
                ended = history.untold(broker) | history.strays(broker) | refused
                wrong = unmerged.compared(broker, core, leaderless, ended)
                if wrong:
                    self.w.violated(Violation("merged", f"broker {broker}: {'; '.join(wrong)}"))
        self.w.loop.halt()

    # -- what is wrong

    def wrong(self) -> list[str]:
        """What keeps the cluster from being quiet and right; the cheapest checks first."""
        return self._role() or self._leaders() or self._reassigned() or self._brokers()

    def _role(self) -> list[str]:
        if self.w.removing:
            return ["a topic is being removed"]
        if self.w.scribbling:
            return ["a state znode is garbage"]
        history = self.w.invariants.history
        if self.w.ibp.topic_ids and (lost := history.lost_ids().keys() - history.markers):
            return [f"{sorted(lost)} have lost their ids"]
        if self.w.calling:
            return [f"{self.w.calling} admin clients wait for an answer"]
        active = [d for d in self.w.daemons if d.daemon is not None and d.daemon.mode is Mode.ACTIVE]
        term = active[0].term if len(active) == 1 else None
        if term is None:
            modes = [f"{d}: {d.daemon.mode}, {d.daemon.why}" if d.daemon else f"{d} down" for d in self.w.daemons]
            return [f"{len(active)} daemons are active", *modes]
        if term.claim.epoch != self.w.invariants.history.epoch:
            return [f"{active[0]} is active at epoch {term.claim.epoch}"]
        away = [str(node) for node in self.w.brokers.values() if node.running and not node.listening]
        missing = [b for b in self.w.brokers if b not in self.w.plan.dead and not self._registered(b)]
        lingering = [b for b in self.w.plan.dead if b in self.w.invariants.history.registered]
        if away or missing or lingering:
            return [f"not listening {away}, not registered {missing}, still registered {lingering}"]
        busy = [str(node) for node in self.w.brokers.values() if node.stopping]
        return [f"{busy} are stopping"] if busy else []

    def _registered(self, broker: int) -> bool:
        epoch = self.w.invariants.history.registered.get(broker)
        return epoch is not None and self.w.brokers[broker].core.epoch == epoch

    def _leaders(self) -> list[str]:
        """I5: every partition with a live ISR member has a leader, and a live one. I12: what is marked is deleted."""
        history = self.w.invariants.history
        found = [f"{name} has a marker and does not exist" for name in sorted(history.markers - history.topics.keys())]
        for topic in history.topics.values():
            if topic.name in history.markers:
                live = all(b in history.registered for a in topic.partitions.values() for b in a.replicas)
                if live and not self._held_up(topic.name):
                    found.append(f"{topic.name} is still not deleted")
                continue
            for partition, assignment in topic.partitions.items():
                key = topic.name, partition
                state = history.current(key)
                if state is None:
                    if any(b in history.registered for b in assignment.replicas):
                        found.append(f"{key} never started, its replicas are {assignment.replicas}")
                elif key in history.spoilt:
                    continue
                elif state.leader not in history.registered and any(b in history.registered for b in state.isr):
                    found.append(f"{key} has no live leader: {state}")
        return found

    def _held_up(self, name: str) -> bool:
        """Whether a deletion waits, as with Kafka's controller, for a reassignment that does not come to its end."""
        topic = self.w.invariants.history.topics.get(name)
        moving = {p: a for p, a in topic.partitions.items() if a.moving} if topic is not None else {}
        return any(not self._can_end((name, partition), moved) for partition, moved in moving.items())

    def _reassigned(self) -> list[str]:
        """I5: what can be reassigned is, no ISR has a member that was dropped, and the znode names nothing else."""
        history, moving = self.w.invariants.history, self.w.invariants.history.moving()
        found = [f"{key} is still reassigned: {moved}" for key, moved in moving.items() if self._can_end(key, moved)]
        for key, states in history.states.items():
            strays = set(states[-1].isr) - set(history.assignment(key))
            if strays and key not in history.spoilt:
                found.append(f"{key} has {strays} in the ISR, which are not assigned")
        for name, target in history.request.items():
            if name not in moving or moving[name].target != target:
                found.append(f"{name} to {target} is still asked for")
        return found

    def _can_end(self, key: Key, moved: Assignment) -> bool:
        """Nobody joins the ISR of a partition without a leader, nor where brokers refuse its topic id or epochs."""
        history = self.w.invariants.history
        state = history.current(key)
        led = state is not None and state.leader in history.registered
        unheeded = key in history.former or key in history.spoilt
        return led and not unheeded and all(broker in history.registered for broker in moved.target)

    def _brokers(self) -> list[str]:
        """I5: what every broker was told last equals ZooKeeper."""
        truth, live = self._truth(), sorted(self.w.invariants.history.registered)
        found: list[str] = []
        for broker in live:
            node = self.w.brokers[broker]
            if node.core.controller_epoch != self.w.invariants.history.epoch:
                found.append(f"{node} knows epoch {node.core.controller_epoch}")
            found += [
                f"{node} takes {node.core.live.get(other)} for broker {other}"
                for other in live
                if not self._reaches(node, other)
            ]
            mine, expected = view(node.core), expected_view(broker, live, truth)
            lines = differences(self._comparable(broker, mine, truth), self._comparable(broker, expected, truth), 3)
            found += [f"{node}: {line}" for line in lines]
            found += [f"{node}: {line}" for line in self._topic_ids(broker, truth)]
        return found

    def _topic_ids(self, broker: int, truth: dict[Key, Truth]) -> list[str]:
        """I5: a broker knows the id that the znode has of each topic that it was told of."""
        if not self.w.sends_ids:
            return []
        core, history = self.w.brokers[broker].core, self.w.invariants.history
        told = {name for name, _ in core.metadata.keys() & truth.keys() - history.untold(broker) - self._unnoticed()}
        return [
            f"the id of {name} is {core.cache.topic_ids.get(name)!r} instead of {topic.topic_id!r}"
            for name, topic in history.topics.items()
            if name in told and topic.topic_id is not None and core.cache.topic_ids.get(name) != topic.topic_id
        ][:SHOWN_MAX]

    def _comparable(self, broker: int, found: View, truth: dict[Key, Truth]) -> View:
        """What a broker must know.

        Not what followers know of partitions that have no leader: brokers take no notice of such a leadership. Nor
        what was removed by hand, of which no broker hears, nor what comes after it where the former one was hosted:
        brokers refuse another topic id, and lower leader epochs. Nor the order of replicas in LeaderAndIsr: where the
        controller died between writing another one and the new leader epoch, only UpdateMetadata brings it.
        """
        history = self.w.invariants.history
        hosts, spoilt, untold = history.hosts, history.spoilt, history.untold(broker)
        unnoticed = self._unnoticed()
        metadata = {k: known for k, known in found.metadata.items() if k in truth or k not in untold}
        metadata = {k: known for k, known in metadata.items() if k not in unnoticed}
        unheeded = (
            spoilt | unnoticed | {key for key, brokers in hosts.items() if broker in brokers} | history.strays(broker)
        )
        led = {
            key: (epoch, isr, partition_epoch, _sorted(replicas))
            for key, (epoch, isr, partition_epoch, replicas) in found.led.items()
            if key not in unheeded
        }
        unheeded |= {key for key, known in truth.items() if known.leader == NO_LEADER}
        followed = {
            key: (leader, epoch, _sorted(replicas))
            for key, (leader, epoch, replicas) in found.followed.items()
            if key not in unheeded
        }
        return View(found.live, metadata, led, followed)

    def _unnoticed(self) -> set[Key]:
        """Scribbled state znodes that are what they were, and that this term has not met late: nobody knows."""
        history, term = self.w.invariants.history, self._term()
        return {
            key
            for key, epoch in history.scribbled.items()
            if term is None or epoch < history.epoch or _version(term, key) < history.states[key][-1].version
        }

    def _reaches(self, node: BrokerNode, other: int) -> bool:
        """Whether a broker knows the present address of another."""
        entry = node.core.live.get(other)
        endpoint = entry.endpoint(LISTENER) if entry is not None else None
        return endpoint is not None and (endpoint.host, endpoint.port) == self.w.brokers[other].address

    def _truth(self) -> dict[tuple[str, int], Truth]:
        history = self.w.invariants.history
        return {
            key: Truth(state.leader, state.leader_epoch, state.isr, state.version, history.assignment(key))
            for key, states in history.states.items()
            if key not in history.spoilt and (key[0] not in history.markers or self._held_up(key[0]))
            for state in states[-1:]
        }

    def views(self) -> str:
        """Digest of what every broker knows at the end."""
        hashed = hashlib.blake2b(digest_size=16)
        for broker in sorted(self.w.invariants.history.registered):
            hashed.update(f"{broker} {view(self.w.brokers[broker].core).digest()}\n".encode())
        return hashed.hexdigest()


def _sorted(ids: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(ids))


def _version(term: Term, key: Key) -> int:
    i = term.cluster.find(*key)
    return NO_VERSION if i is None else term.cluster.rows[i].version
