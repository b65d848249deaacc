"""Ends a run: heals all faults, waits, and then the cluster must be right (I5)."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from controller.daemon.state import Mode
from controller.kafka.term.claim_monitor import OUTRANKED
from controller.role import own_znodes as own
from state_machines.model.types import NO_LEADER
from testing.simulated.digest import view
from tests.kit.simulation.seeds import Violation
from tests.simulation.kafka import faults
from tests.simulation.kafka.ensemble import SESSION_MS_MAX
from tests.simulation.kafka.unfinished import unfinished
from tests.simulation.kafka.views import Views

if TYPE_CHECKING:
    from tests.simulation.kafka.brokers import BrokerNode
    from tests.simulation.kafka.world import SimulatedKafka

HEAL_S: Final = 120.0
"""Time after which everything must be right: sessions, timeouts of calls and pauses of daemons are shorter."""
POLL_S: Final = 0.25
STEADY_S: Final = 1.5
SHOWN_MAX: Final = 5


class Quiescence:
    """Heals, waits and judges."""

    def __init__(self, world: SimulatedKafka) -> None:
        self.w = world
        self.views = Views(world)
        self._until_s = 0.0
        self._since_s: float | None = None

    def begin(self) -> None:
        """Heals everything at once."""
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
        ensemble.write_s = ensemble.late_s = 0.0
        ensemble.refused_until_s.clear()
        self.w.interposed.clear()
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
            session.client.reply_delay_s = 0.0
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
        if node.foreign:  # an operator restarts it, as the log recommends
            node.crash()
        if node.core.hosting.failed or node.core.hosting.offline:
            node.core.recover()
            node.crash()
        node.start()

    def _operate(self) -> None:
        """Acts as an operator: starts stopped processes, and reverts actions of the script.

        The operator takes the role back, and raises the epoch where epochs of other controllers blocked a daemon.
        """
        for start in [node.start for node in self.w.daemons] + [node.start for node in self.w.brokers.values()]:
            start()
        waiting = any(d.daemon is not None and d.daemon.why.startswith(own.ROLE) for d in self.w.daemons)
        if waiting and self.w.handed_over:
            self.w.operate(self.w.actions.give_role("regent"))
        if self.w.ibp.topic_ids and (term := self.w.serving_term()) is not None and not term.controller.lost_ids.asking:
            for name, topic_id in self.w.invariants.history.lost_ids().items():
                known = term.cluster.topic(name)
                if known is not None and known.topic_id is None:
                    self.w.operate(self.w.actions.give_back(name, topic_id))
        self.w.actions.stop_plans()
        self.w.actions.undo_shutdowns()
        blocked = any(d.daemon is not None and d.daemon.why == OUTRANKED for d in self.w.daemons)
        if blocked and (self.w.made_up_epochs or self.w.counts[faults.BROKER_FOREIGN]):
            self.w.operate(self.w.actions.raise_epoch())

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
        """Ends the run; merged and unmerged requests must have led to the same state."""
        history, unmerged = self.w.invariants.history, self.w.unmerged
        if unmerged is not None:
            leaderless = {key for key, known in self.views.truth().items() if known.leader == NO_LEADER}
            for broker in sorted(history.registered):
                ended = history.unsent(broker) | history.strays(broker) | history.hosted_by(broker)
                wrong = unmerged.compared(broker, self.w.brokers[broker].core, leaderless, ended)
                if wrong:
                    self.w.violated(Violation("merged", f"broker {broker}: {'; '.join(wrong)}"))
        self.w.loop.halt()

    # -- faults of the cluster

    def wrong(self) -> list[str]:
        """Returns all that keeps the cluster from being quiet and right; the cheapest checks first."""
        plans = self.w.invariants.plans
        return self._role() or [work.what for work in unfinished(self.w)] or list(plans.unfinished()) or self._views()

    def _views(self) -> list[str]:
        return [line for broker in sorted(self.w.invariants.history.registered) for line in self.views.wrong(broker)]

    def _role(self) -> list[str]:
        if self.w.removing:
            return ["a topic is being removed"]
        if self.w.scribbling:
            return ["a state znode is garbage"]
        history = self.w.invariants.history
        if self.w.ibp.topic_ids and (lost := history.lost_ids().keys() - history.markers):
            return [f"{sorted(lost)} have lost their ids"]
        if self.w.calling:
            return [f"{self.w.calling} admin clients wait for a reply"]
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

    def digest(self) -> str:
        """Returns the digest of all brokers' replicas and metadata at the end."""
        hashed = hashlib.blake2b(digest_size=16)
        for broker in sorted(self.w.invariants.history.registered):
            hashed.update(f"{broker} {view(self.w.brokers[broker].core).digest()}\n".encode())
        return hashed.hexdigest()
