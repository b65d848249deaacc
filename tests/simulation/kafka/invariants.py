"""Checks invariants after every event. Each check names its invariant and the demand in its docstring.

The checks are incremental: they look at one ZooKeeper write, one request or one changed row, never at everything.
(:mod:`tests.simulation.kafka.invariants_writes` has the writes,
:mod:`tests.simulation.kafka.invariants_requests` the requests.) They know ZooKeeper's content from the
writes themselves (:mod:`tests.simulation.kafka.history`), and the lease from the heartbeats with a reply.

| | |
|---|---|
| I1 | one controller writes under an epoch; the epoch grows; a write under an old epoch fails |
| I2 | one leader is sent per partition and leader epoch; leader epochs never go down |
| I3 | the leader is in the ISR or there is none; the ISR is assigned, and never empty |
| I4 | a new leader was in the last committed ISR, unless an unclean election was allowed or requested |
| I5 | at quiescence partitions are led, brokers have ZooKeeper's content (:mod:`tests.simulation.kafka.quiescence`) |
| I6 | only transitions of the tables; Online exactly while the leader is registered |
| I7 | no change of an ISR is overwritten |
| I8 | replies to admin clients are true, and only requested topics are created or deleted |
| I10 | no replica is assigned twice |
| I11 | requests go in order, one in flight, to the present incarnation |
| I12 | logs and znodes of deleted topics are deleted, the znodes only after the logs |
| I14 | a daemon writes and sends nothing without a connection, or after the lease |
| I15 | queues, windows and retries keep their bounds |
| I17 | a topic keeps its first id, and a term marks only partitions as new that it has begun |
| A1 to A11 | every row of every journal is sound by itself (:mod:`tests.simulation.kafka.journals`) |
| I18 | no reply of ZooKeeper ends a daemon, or a term by an error |
| I19 | a term ends for a higher epoch that brokers saw only where most of them report it |
| I20 | a broker that obeys a higher epoch is elected last, or not at all (:mod:`tests.simulation.kafka.electing`) |
| I21 | a drained broker is elected last; marks of drains are what drains and operators made of them |
| I21 | no leader goes on requesting a follower whose broker shuts down |
| I22 | at quiescence no live broker has the log of a replica that a daemon removed |
| I23 | a daemon leaves a frozen ZooKeeper server; a daemon that may not claim keeps no other out (I5) |
| I24 | a term goes on after an outage only if its claim is unchanged, and no outage ends it while its session lives |
| I16 | equal seeds have equal digests (``test_simulation.py``) |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from controller.kafka.path.events import EVENTS_MAX
from controller.kafka.term.claim_monitor import OUTRANKED
from controller.kafka.term.term import Term
from state_machines.model.types import NO_VERSION, PartitionState
from tests.kit.simulation.loop import Life
from tests.simulation.kafka.electing import Electing
from tests.simulation.kafka.invariants_requests import RequestInvariants

if TYPE_CHECKING:
    from tests.kit.simulation.loop import Process
    from tests.simulation.kafka.daemons import DaemonNode
    from tests.simulation.kafka.ensemble import Member
    from tests.simulation.kafka.world import SimulatedKafka


LEAVES_SESSIONS: Final = 0.65
"""Session timeouts until a frozen server is left: a sixth to the next heartbeat, a third of silence, and some."""

LOST: Final = "the ZooKeeper session is lost"
CAUSES: Final = (
    "another controller was elected",
    "the connection to ZooKeeper was lost while taking office",
    "the daemon stops",
    "the role was handed back",
    "error: ",
    "renewed: ",
    OUTRANKED,
)
"""Causes of a term's end besides the end of its session."""


class Invariants(RequestInvariants):
    """Checks all invariants of one run."""

    def __init__(self, world: SimulatedKafka) -> None:
        super().__init__(world)
        self.electing = Electing(world)
        self._rows: dict[int, Sequence[object]] = {}
        self._settled: dict[int, tuple[object, object]] = {}

    def spun(self, times: int) -> None:
        """Reports a violation of I15: a task turns the loop for ever without waiting for anything."""
        self._fail("I15", f"{times} turns of the loop, or refused requests, without any time passing")

    def claimed(self, what: str) -> None:
        """Reports a violation of I8: a reply to an admin client is not true."""
        self._fail("I8", f"a reply to an admin client is not true: {what}")

    def resigned(self, epoch: int, why: str) -> None:
        """Checks I24: a term ends for a cause, and an outage that its session and its claim outlive is none."""
        if why.startswith(CAUSES):
            return
        node = next((one for one in self.world.daemons if one.term is not None and one.term.claim.epoch == epoch), None)
        lives = node is not None and node.zk is not None and node.zk.session_id in self.world.ensemble.sessions
        if not why.startswith(LOST) or lives:
            self._fail("I24", f"{node} gives epoch {epoch} up, its session {'lives' if lives else 'is over'}: {why}")

    def outranked(self) -> bool:
        """Returns whether so many brokers report a higher epoch that a term must end; one more may be unknown."""
        live = self.history.registered
        return 2 * sum(self.world.brokers[b].foreign for b in live) > len(live) - 2

    def must_leave(self, node: DaemonNode, member: Member) -> None:
        """Checks I23: a running daemon leaves a server that freezes. Each freeze is judged apart.

        A daemon whose new session is not confirmed yet sends no heartbeats: its timeout for connecting applies. Slow
        replies under way arrive after the freeze: the silence begins so much later. A heartbeat that waits for a whole
        session is given up, and the next one begins the silence anew.
        """
        zk, process, connecting = node.zk, node.process, node.daemon is None or node.daemon.lease is None
        if zk is None or process is None or zk.server_of_connection is not member or connecting:
            return
        if process.life is not Life.RUNNING:
            return
        at = zk, zk.connection, process.halts, member.freezes
        session_s, now_s = zk.session_timeout_ms / 1000, self.world.loop.now_s
        within_s = LEAVES_SESSIONS * session_s + zk.reply_delay_s
        if zk.heartbeat_waits_s is not None:
            given_up_s = zk.heartbeat_waits_s + session_s - now_s
            within_s += given_up_s if given_up_s < within_s else 0.0
        self.world.network.later(within_s, self._must_have_left, node, member, process, at)

    def _must_have_left(self, node: DaemonNode, member: Member, process: Process, at: tuple[object, ...]) -> None:
        zk, daemon = node.zk, node.daemon
        if node.process is not process or zk is None or daemon is None or daemon.stopping.is_set():
            return
        there = zk.server_of_connection is member and member.frozen and daemon.zk is zk
        if there and (zk, zk.connection, process.halts, member.freezes) == at and not zk.cut_off:
            self._fail("I23", f"{node} is still connected to {member.name}, which is frozen")

    def model(self, term: Term) -> None:
        """Checks the model of a term after an event.

        I6: a partition is Online exactly while its leader is registered in the model (checked between handlers). Its
        state znode may not have another leader yet where another client wrote the znode.

        I15: the queue is bounded. Besides, a row equals ZooKeeper's content at its partition epoch, and is never ahead
        of it.
        """
        if len(term.queue) > EVENTS_MAX:
            self._fail("I15", f"{len(term.queue)} events wait")
        self.electing.model(term)
        rows, epoch = term.cluster.rows, term.claim.epoch
        seen = self._rows.get(epoch, ())
        if rows != seen:
            for i, row in enumerate(rows):
                if (i >= len(seen) or row is not seen[i]) and row.version != NO_VERSION:
                    self._row(term, i)
            self._rows[epoch] = list(rows)
        settled = self._rows.get(epoch), term.cluster.brokers
        if term.handling is None and term.serving.is_set() and not term.gate.ended:
            known = self._settled.get(epoch)
            if known is None or known[0] is not settled[0] or known[1] is not settled[1]:
                self._settled[epoch] = settled
                self._online(term)

    def _row(self, term: Term, i: int) -> None:
        row, key = term.cluster.rows[i], term.cluster.name(i)
        if row.state is PartitionState.NON_EXISTENT or term.gate.ended:
            return
        name = key.topic, key.partition
        if not self.history.lives(name, row.version, row.leader, row.leader_epoch, row.isr):
            self._fail("I7", f"the model has {row} for {key}, ZooKeeper held {self.history.ever(name, row.version)}")

    def _online(self, term: Term) -> None:
        for i, row in enumerate(term.cluster.rows):
            if row.state is PartitionState.NON_EXISTENT:
                continue
            serves = row.leader in term.cluster.brokers and row.leader not in term.cluster.failed(i)
            led = row.has_leadership and serves
            name = term.cluster.name(i)
            mistaken = name in self.history.spoilt or name in self.history.scribbled
            if (row.state is PartitionState.ONLINE) != led and not mistaken:
                self._fail("I6", f"{name} is {row.state.name} and led by {row.leader}")
