"""Checks liveness at every moment of a run: no work stays stuck for a minute without an obstacle.

Work that may be stuck is looked at once a second, together with its *circumstances*: everything that must stay the same
for the minute. A lost connection, a restart or a new term begins the minute anew. A fault that lasts keeps the minute
from beginning.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from controller.daemon.state import Mode
from controller.kafka.term.claim_monitor import OUTRANKED
from controller.role import own_znodes as own
from metadata_store import paths
from tests.kit.simulation.loop import Life, Process
from tests.kit.simulation.seeds import Violation
from tests.simulation.kafka.history import Key
from tests.simulation.kafka.unfinished import Unfinished, has_failed, unfinished

if TYPE_CHECKING:
    from tests.simulation.kafka.daemons import DaemonNode
    from tests.simulation.kafka.world import SimulatedKafka
    from tests.simulation.kafka.zookeeper import SimZooKeeper

STUCK_S: Final = 60.0
POLL_S: Final = 1.0
PATIENCE_S: Final = 1.5 * STUCK_S
"""Time that clients wait for responses: longer than a daemon may take."""
VIEWS_EVERY: Final = 8
"""Looks per comparison of a broker's metadata and replicas with ZooKeeper."""
NAME: Final = "liveness"

Circumstances = Hashable | None
"""The state that must stay the same; None: there is an obstacle."""
Perhaps = tuple[Unfinished, Circumstances]


class Liveness:
    """Looks at daemons, their queues and calls, the controller's work, and the brokers' metadata."""

    def __init__(self, world: SimulatedKafka) -> None:
        self.w = world
        self._looks = 0
        self._numbers = itertools.count()
        self._calls: dict[int, tuple[str, DaemonNode, Process | None]] = {}
        self._since: dict[Hashable, tuple[Hashable, float]] = {}
        self._before: dict[Hashable, tuple[Hashable, float]] = {}

    def begin(self) -> None:
        """Begins to look."""
        self.w.network.later(POLL_S, self._look)

    @contextmanager
    def call(self, what: str, node: DaemonNode) -> Iterator[None]:
        """Holds a call for which the daemon owes a response."""
        number = next(self._numbers)
        self._calls[number] = what, node, node.process
        try:
            yield
        finally:
            del self._calls[number]

    def _look(self) -> None:
        self._looks += 1
        self._before, self._since = self._since, {}
        for (what, _, patience_s), circumstances in self._perhaps_stuck():
            within_s = STUCK_S + patience_s
            if circumstances is not None and self._for_s(what, circumstances) >= within_s:
                self.w.violated(Violation(NAME, f"for {within_s:g} s {what}"))
        self._views()
        self.w.network.later(POLL_S, self._look)

    def _for_s(self, what: Hashable, circumstances: Hashable) -> float:
        """Returns the time that the circumstances have lasted, without a look that found others."""
        now_s, before = self.w.loop.now_s, self._before.get(what)
        since_s = before[1] if before is not None and before[0] == circumstances else now_s
        self._since[what] = circumstances, since_s
        return now_s - since_s

    def _perhaps_stuck(self) -> Iterator[Perhaps]:
        yield from self._daemons()
        for number, (what, node, process) in self._calls.items():
            if node.process is process:
                yield Unfinished(f"call {number} has no response: {what}"), self._daemon(node)
        serving = self.w.serving_daemon()
        if serving is None:
            yield Unfinished("no daemon serves"), self._role()
            return
        yield from self._queue(serving)
        if not self.w.removing and not self.w.scribbling:
            term = self._term(serving)
            for work in unfinished(self.w) if term is not None else ():
                well = tuple(self._broker(broker) for broker in sorted(work.brokers))
                yield work, None if None in well else (term, well)

    # -- circumstances

    def _session(self, zk: SimZooKeeper | None) -> Circumstances:
        """Returns the circumstances of a connection without faults, None otherwise."""
        if zk is None or zk.session is None or zk.session_id not in self.w.ensemble.sessions:
            return None
        ensemble, member, session = self.w.ensemble, zk.server_of_connection, zk.session
        troubled = not ensemble.available or ensemble.write_s or zk.cut_off or zk.reply_delay_s or session.codes
        if troubled or member is None or member.frozen or member.lag_s:
            return None
        return zk.session_id, zk.connection

    def _daemon(self, node: DaemonNode) -> Circumstances:
        """Returns the circumstances of a process that runs, with a session."""
        session = self._session(node.zk)
        if session is None or node.process is None or node.process.life is not Life.RUNNING:
            return None
        return node.lives, node.process.halts, session

    def _connecting(self, node: DaemonNode) -> Circumstances:
        """Returns the circumstances of a process that runs without a session, although servers would open one."""
        zk, ensemble = node.zk, self.w.ensemble
        if node.process is None or node.process.life is not Life.RUNNING or zk is None:
            return None
        refused = self.w.loop.now_s < ensemble.refused_until_s.get(zk.name, 0.0)
        if refused or zk.cut_off or not ensemble.available or zk.session_id in ensemble.sessions:
            return None
        return node.lives, node.process.halts

    def _term(self, node: DaemonNode) -> Circumstances:
        """Returns the circumstances of a term that has not ended."""
        daemon = self._daemon(node)
        return None if daemon is None or node.term is None else (node.term.claim.epoch, daemon)

    def _broker(self, broker: int) -> Circumstances:
        """Returns the circumstances of a broker that fetches, and responds to every request at once."""
        node, wire = self.w.brokers[broker], self.w.brokers[broker].wire
        session, troubled = self._session(node.zk), wire.refuses or wire.slow_s or wire.errors or node.foreign
        if session is None or troubled or not node.fetching or node.stopping or node.process is None:
            return None
        if self.w.invariants.history.registered.get(broker) != node.core.epoch or wire.stale_epoch >= node.core.epoch:
            return None
        return node.lives, node.process.halts, node.core.epoch, node.address, session

    def _role(self) -> Circumstances:
        """Returns the circumstances of all daemons, if the role is regent's and one of them may claim.

        A daemon that waits for an operator is an obstacle.
        """
        daemons = tuple(self._daemon(node) for node in self.w.daemons)
        able = any(c is not None and not self._may_be_refused(n) for c, n in zip(daemons, self.w.daemons, strict=True))
        waits = any(node.daemon is not None and node.daemon.why == OUTRANKED for node in self.w.daemons)
        return daemons if able and not waits and self.w.invariants.history.holder == "regent" else None

    def _may_be_refused(self, node: DaemonNode) -> bool:
        """Returns whether daemons have different credentials, and this one is blocked."""
        return bool(self.w.plan.odd) and node.daemon is not None and node.daemon.mode is Mode.BLOCKED

    # -- work that may be stuck

    def _daemons(self) -> Iterator[Perhaps]:
        """Yields daemons that neither lead nor wait in the queue of daemons."""
        for node in self.w.daemons:
            circumstances = self._daemon(node)
            if circumstances is None:
                circumstances = self._connecting(node)
            if node.daemon is None or circumstances is None:
                continue
            mode, why, term = node.daemon.mode, node.daemon.why, node.term
            if mode is Mode.ACTIVE and term is not None and not term.gate.ended:
                continue
            if mode is Mode.STANDBY and self._queues(node):
                continue
            if self._may_be_refused(node) or (mode is Mode.BLOCKED and why == OUTRANKED):
                continue
            yield Unfinished(f"{node} is {mode}: {why}"), circumstances

    def _queues(self, node: DaemonNode) -> bool:
        assert node.zk is not None
        owned = self.w.ensemble.leader.tree.ephemerals(node.zk.session_id)
        return any(path.startswith(own.LOCKS) for path in owned)

    def _queue(self, node: DaemonNode) -> Iterator[Perhaps]:
        """Yields a queue that does not drain, and one that is never idle although the script does nothing."""
        daemon, term = node.daemon, self._term(node)
        if daemon is None or node.term is None or term is None:
            return
        handled = sum(timer.count for timer in daemon.counters.events.values())
        if len(node.term.queue) or node.term.handling is not None:
            what = f"{node} handles {node.term.handling}, {len(node.term.queue)} events wait"
            yield Unfinished(what), (term, handled)
        if not node.term.idle.is_set():
            yield Unfinished(f"{node} is never idle"), (term, self.w.acted)

    def _views(self) -> None:
        """Compares each broker without obstacles for a minute with ZooKeeper."""
        serving, history = self.w.serving_daemon(), self.w.invariants.history
        term = self._term(serving) if serving is not None else None
        if term is None or self.w.removing or self.w.scribbling or history.lost_ids():
            return
        if self._is_recent(paths.CONTROLLER_EPOCH):  # another client may have raised it, which ends the term soon
            return
        recent: frozenset[Key] | None = None
        for broker in history.registered:
            well = self._broker(broker)
            steady = well is not None and self._for_s(f"broker {broker}", (term, well)) >= STUCK_S
            if steady and (self._looks + broker) % VIEWS_EVERY == 0:
                recent = self._recent() if recent is None else recent
                live_list = not any(self._is_recent(paths.broker(other)) for other in self.w.brokers)
                if wrong := self.w.quiescence.views.wrong(broker, recent, live_list=live_list):
                    self.w.violated(Violation(NAME, f"for {STUCK_S:g} s {'; '.join(wrong)}"))

    def _recent(self) -> frozenset[Key]:
        """Returns partitions with a recent write, a broker that came, went or is stopping, or a failed log.

        Reassignments that may wait for a leader which obeys a higher controller epoch are among them.
        """
        history = self.w.invariants.history
        foreign = any(self.w.brokers[broker].foreign for broker in history.registered)
        found = set(history.moving()) if foreign else set[Key]()
        for key in history.partitions():
            name, brokers = key[0], map(paths.broker, history.assignment(key))
            written = paths.topic(name), paths.deletion(name), paths.state(*key), *brokers
            stopping = any(broker.stopping for broker in map(self.w.brokers.get, history.assignment(key)) if broker)
            failed = any(has_failed(self.w, broker, key) for broker in history.assignment(key))
            if stopping or failed or name in history.markers or any(map(self._is_recent, written)):
                found.add(key)
        return frozenset(found)

    def _is_recent(self, path: str) -> bool:
        return self.w.loop.now_s - self.w.invariants.history.changed_s.get(path, 0.0) < STUCK_S
