"""Plays one run: an ensemble, brokers, daemons and a script in one process, on virtual time."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from brokers.client import BrokerCallFailed, ClusterMetadata, PartitionMetadata, TopicMetadata
from brokers.queries import BrokerQueries
from brokers.wire.log_dirs import REPLICAS_MAX
from brokers.wire.versions import TOPIC_IDS_SENT, Ibp
from controller.kafka.term.term import Term
from controller.role import own_znodes as own
from controller.role.own_znodes import RoleFlag
from metadata_store import paths
from metadata_store.acl import ALL, OPEN, READ, Acl, digest_id
from metadata_store.errors import ZooKeeperError
from metadata_store.nodes.cluster_nodes import ensure_top_level_paths
from metadata_store.port import Check, OpResult, WatchKind, Write
from state_machines.admin_rules.inherited_configs import Setting
from state_machines.journal.events import Row
from state_machines.model.types import NO_LEADER, Broker, LogDirectory
from testing.memory.tree import Touched
from testing.simulated.values import Request
from tests.kit.simulation.loop import Process, SimLoop
from tests.kit.simulation.seeds import ERROR, Violation
from tests.simulation.kafka import faults, sizes
from tests.simulation.kafka.actions import Actions
from tests.simulation.kafka.brokers import BrokerNode
from tests.simulation.kafka.daemons import DIGEST, STRANGE_DIGEST, DaemonNode, settings_of
from tests.simulation.kafka.ensemble import Ensemble, Session
from tests.simulation.kafka.invariants import Invariants
from tests.simulation.kafka.liveness import Liveness
from tests.simulation.kafka.network import Network, SimConnection
from tests.simulation.kafka.plan import Plan
from tests.simulation.kafka.quiescence import Quiescence
from tests.simulation.kafka.surroundings import surroundings
from tests.simulation.kafka.unmerged import Unmerged
from tests.simulation.kafka.zookeeper import SimZooKeeper

RESPONSE_S_MAX: Final = 0.3
"""Longest time of a broker's response; requests that it receives before count in the response."""
START_S: Final = 2.0
"""Daemons and brokers are started within this time."""


class QueriedBroker:
    """Responds as a broker to an operator's requests."""

    def __init__(self, node: BrokerNode) -> None:
        self._node = node
        self.api_versions: Mapping[int, tuple[int, int]] = {}

    async def metadata(self, topics: Iterable[str] | None = None) -> ClusterMetadata:
        """Returns the controller that the broker knows, and the ids and partitions of topics (None: all)."""
        world = self._node.world
        await world.on_its_way(self._node, world.looks if topics is None else None)
        cache = self._node.core.cache
        shown: dict[str, dict[int, PartitionMetadata]] = {}
        for topic, partition in sorted(cache.partitions):
            shown.setdefault(topic, {})[partition] = PartitionMetadata(0, NO_LEADER, 0, (), (), ())
        wanted = shown.keys() if topics is None else shown.keys() & set(topics)
        found = {name: TopicMetadata(0, cache.topic_ids.get(name), shown[name]) for name in sorted(wanted)}
        return ClusterMetadata(None, self._node.core.controller_id, (), found)

    async def broker_configs(self, broker_id: int, names: Iterable[str] | None = None) -> dict[str, str | None]:
        """Returns nothing."""
        return {}

    async def broker_settings(self, broker_id: int, names: Iterable[str] | None = None) -> dict[str, Setting]:
        """Returns nothing."""
        return {}

    async def static_configs(self, broker_id: int, names: Iterable[str] | None = None) -> dict[str, str | None]:
        """Returns the plan's settings of the broker."""
        return {"delete.topic.enable": "false"} if self._node.world.plan.keeps else {}

    async def log_dirs(self) -> dict[str, int]:
        """Returns nothing."""
        return {}

    async def offsets(
        self, partitions: Mapping[str, Collection[int]], *, earliest: bool = False
    ) -> dict[tuple[str, int], int | str]:
        """Returns nothing."""
        return {}

    async def replica_logs(
        self, partitions: Mapping[str, Collection[int]] | None, replicas_max: int = REPLICAS_MAX
    ) -> tuple[LogDirectory, ...]:
        """Returns the logs that the broker has."""
        await self._node.world.on_its_way(self._node)
        wanted = None if partitions is None else [(topic, p) for topic, those in partitions.items() for p in those]
        return self._node.core.hosting.directories(wanted)


@dataclass
class Outcome:
    """The result of a run. ``digest`` covers every traced event with its time."""

    seed: int
    violation: Violation | None
    digest: str
    simulated_s: float
    events: int
    handles: int
    counts: Counter[str]
    views: str = ""
    trace: list[str] = field(default_factory=list)


class SimulatedKafka:
    """Holds everything of a run. ``keep``: keeps the trace; ``compare``: sends other brokers each change alone.

    ``recorded`` takes the rows of all daemons' journals, in the order in which they are made.
    """

    def __init__(
        self, plan: Plan, *, keep: bool = False, compare: bool = False, recorded: list[Row] | None = None
    ) -> None:
        self.plan = plan
        self.loop = SimLoop()
        self.chance = random.Random(f"{plan.seed} world")
        self.queries = random.Random(f"{plan.seed} asked")
        self.looks = random.Random(f"{plan.seed} looked")
        self.ensemble = Ensemble(self.loop, random.Random(f"{plan.seed} ensemble"), plan.servers)
        self.network = Network(self.loop, random.Random(f"{plan.seed} network"))
        self.ibp = Ibp.parse(plan.ibp)
        self.counts: Counter[str] = Counter()
        self.events = 0
        self.violation: Violation | None = None
        self.wall_offset_s = 0.0
        self.made_up_epochs = 0
        self.handed_over = 0
        self.removing = 0
        self.scribbling = 0
        self.calling = 0
        self.acted = 0
        self.interfered: set[str] = set()
        """Paths at which an action writes garbage, or deletes a znode that the controller needs."""
        self.interposed: list[tuple[int, str, tuple[object, ...]]] = []
        self.one_removes = asyncio.Lock()
        self.invariants = Invariants(self)
        self.lines: list[str] | None = [] if keep else None
        self.recorded = recorded
        self._hash = hashlib.blake2b(digest_size=16)
        racks = dict(zip(plan.brokers, plan.racks, strict=False))
        self.brokers = {b: BrokerNode(self, b, racks.get(b)) for b in plan.brokers}
        hold = plan.absence == "hold"
        odd = dict(enumerate(plan.odd))
        self.daemons = [
            DaemonNode(self, n, settings_of(n, ibp=plan.ibp, hold=hold, odd=odd.get(n, "-")))
            for n in range(plan.daemons)
        ]
        self.unmerged = Unmerged(self) if compare else None
        self.operators = Process(self.loop, "operator")
        self.operator = SimZooKeeper(
            self.ensemble, self.operators, "operator", session_timeout_ms=30_000, credentials=DIGEST
        )
        self.actions = Actions(self)
        self.quiescence = Quiescence(self)
        self.liveness = Liveness(self)
        self.ensemble.happened = self.happened
        self.loop.spun = self.invariants.spun
        self.ensemble.requested = self.actions.requested
        self.ensemble.committed, self.ensemble.ended = self._committed, self._session_ended
        self.network.sent, self.network.connecting = self._sent, self.invariants.connecting

    # -- the run

    def run(self) -> Outcome:
        """Plays the script, heals everything, and waits until the cluster is quiet and right."""
        with surroundings(self):
            self.operators.start(self._begin())
            self.loop.run_forever()
        quiet = self.violation is None
        return Outcome(
            self.plan.seed,
            self.violation,
            self._hash.hexdigest(),
            self.loop.now_s,
            self.events,
            self.loop.handled,
            self.counts,
            self.quiescence.digest() if quiet else "",
            self.lines or [],
        )

    async def _begin(self) -> None:
        zk = self.operator
        await zk.connect(10.0)
        await ensure_top_level_paths(zk)
        assert zk.session is not None
        zk.session.identity |= {("digest", digest_id(*STRANGE_DIGEST.split(":")))}
        locked = (Acl(ALL, "digest", digest_id(*DIGEST.split(":"))), Acl(READ, "world", "anyone"))
        closed = bool(self.plan.odd) and self.plan.absence == "hold"
        await zk.create(paths.CONTROLLER_EPOCH, b"0", acl=locked if closed else OPEN)
        if self.plan.odd:
            self.happened(faults.DAEMON_ODD)
        await zk.create(own.ROOT, b"")
        await zk.create(own.ROLE, own.encode(RoleFlag("regent", reason="a script")))
        for start in [node.start for node in self.brokers.values()] + [node.start for node in self.daemons]:
            self.network.later(START_S * self.chance.random(), start)
        for action in self.plan.actions:
            self.network.later(max(0.0, action.at_s - self.loop.now_s), self.act, action.verb, action.words)
        self.liveness.begin()
        last_s = max((action.at_s for action in self.plan.actions), default=0.0)
        self.network.later(max(START_S, last_s) + 1.0, self.quiescence.begin)

    def act(self, verb: str, words: Sequence[object]) -> None:
        """Performs an action of the script."""
        self.acted += 1
        self.trace(" ".join(["----", verb, *map(str, words)]))
        self.actions.perform(verb, *words)
        self.event()

    def operate(self, work: Coroutine[Any, Any, object]) -> None:
        """Runs an operator's work; work that a fault spoils is not tried again."""
        self.operators.start(self._operated(work))

    async def _operated(self, work: Coroutine[Any, Any, object]) -> None:
        try:
            await self.operator.connect(10.0)
            await work
        except ZooKeeperError as error:
            self.trace(f"the operator failed: {error}")

    # -- events

    def trace(self, line: str) -> None:
        """Hashes one line of the trace, and keeps it if the run keeps its trace."""
        line = f"{self.loop.now_s:.6f} {line}"
        self._hash.update(line.encode())
        if self.lines is not None:
            self.lines.append(line)

    def event(self) -> None:
        """Counts an event, and checks every model."""
        self.events += 1
        for node in self.daemons:
            if (term := node.term) is not None:
                self.invariants.model(term)

    def happened(self, fault: str) -> None:
        """Counts a fault that took effect."""
        self.counts[fault] += 1

    def violated(self, violation: Violation) -> None:
        """Ends the run at the first violation."""
        if self.violation is None:
            self.violation = violation
            self.trace(f"VIOLATED {violation}")
            self.loop.halt()

    def unexpected(self, what: str, error: BaseException | None) -> None:
        """Reports an error of the product that no fault explains. I18: no reply of ZooKeeper is such an error."""
        of_zookeeper = isinstance(innermost(error), ZooKeeperError)
        self.violated(Violation("I18" if of_zookeeper else ERROR, f"{what}: {error!r}"))

    def started_ticks(self, pid: int) -> int | None:
        """Returns the start time of a daemon's process, None where it is gone."""
        for node in self.daemons:
            if node.process is not None and node.pid == pid:
                return node.lives
        return None

    @asynccontextmanager
    async def dial(self, broker: Broker) -> AsyncIterator[BrokerQueries]:
        """Connects to a broker as an operator's command does."""
        node = self.brokers[broker.id]
        if not node.listening or node.wire.refuses:
            raise BrokerCallFailed(f"{node} refuses")
        await self._unless_silent(node)
        yield QueriedBroker(node)

    async def on_its_way(self, node: BrokerNode, chance: random.Random | None = None) -> None:
        """Waits for the time of a request; the broker may be silent by then."""
        await asyncio.sleep(RESPONSE_S_MAX * (chance or self.queries).random())
        await self._unless_silent(node)

    async def _unless_silent(self, node: BrokerNode) -> None:
        if node.wire.cut or not node.awake or not node.listening:
            if self.invariants.history.lost_ids():
                self.happened(faults.BROKER_SILENT)
            await self.loop.create_future()

    @property
    def sends_ids(self) -> bool:
        """Returns whether brokers are sent topic ids."""
        return self.ibp >= TOPIC_IDS_SENT

    def rules_besides(self, process: Process) -> bool:
        """Returns whether another daemon still acts as the controller."""
        return any(
            node.process is not process and node.term is not None and not node.term.gate.ended for node in self.daemons
        )

    def registered(self, broker: int, epoch: int) -> None:
        """Notes a registration; its broker is about to learn of it."""
        if self.unmerged is not None:
            self.unmerged.registered(broker, epoch, fresh=self.brokers[broker].fresh)

    def registrations_known_to(self, process: Process) -> dict[int, int]:
        """Returns the broker epochs in the model of a daemon."""
        terms = [node.term for node in self.daemons if node.process is process and node.term is not None]
        return {b: known.epoch for term in terms for b, known in term.cluster.brokers.items()}

    def registrations_known_to_the_active(self) -> dict[int, int]:
        """Returns the broker epochs in the model of the active daemon; none without one."""
        term = self.serving_term()
        return {b: known.epoch for b, known in term.cluster.brokers.items()} if term is not None else {}

    def serving_daemon(self) -> DaemonNode | None:
        """Returns the first daemon whose term serves."""
        return next((d for d in self.daemons if d.term is not None and d.term.serving.is_set()), None)

    def serving_term(self) -> Term | None:
        """Returns the term of the first daemon whose term serves."""
        daemon = self.serving_daemon()
        return daemon.term if daemon is not None else None

    def serves(self, epoch: int) -> bool:
        """Returns whether a daemon's term of this epoch serves."""
        terms = (daemon.term for daemon in self.daemons)
        return any(t is not None and t.claim.epoch == epoch and t.serving.is_set() for t in terms)

    def topic_known_to(self, process: Process, topic: str) -> int | None:
        """Returns the incarnation (czxid) of a topic in the model of a daemon."""
        models = [node.term.cluster for node in self.daemons if node.process is process and node.term is not None]
        found = [known.czxid for model in models if (known := model.topic(topic)) is not None]
        return found[0] if found else None

    def daemon_gone(self, node: DaemonNode) -> None:
        """Counts the end of a daemon's process."""
        self.event()

    def _committed(self, session: Session, ops: Sequence[Write], results: Sequence[OpResult]) -> None:
        written = [f"{op.path} {getattr(op, 'data', b'-')!r}" for op in ops if not isinstance(op, Check)]
        self.trace(f"{session.client.name} writes {'; '.join(written)}")
        self.invariants.committed(session, ops, results)
        self.event()

    def _session_ended(self, session: Session, touched: Sequence[Touched]) -> None:
        self.trace(f"session of {session.client.name} ended")
        for kind, path, _ in touched:
            if kind is WatchKind.DELETED:
                self.invariants.deregistered(path)
        self.event()

    def _sent(self, connection: SimConnection, request: Request) -> None:
        head = request.head
        what = f"e{head.controller_epoch} -> {connection.broker} {head.api.name} {len(request.entries)}"
        self.trace(f"{connection.daemon} {what}")
        sizes.sent(self, self.plan.limits, request)
        self.invariants.sent(connection, request)
        self.event()


def innermost(error: BaseException | None) -> BaseException | None:
    """Returns the first error inside of nested groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


_PLAYED: Final[list[SimulatedKafka]] = []
"""Kept for ever, some MB each: collecting the tasks of dead processes would run their ``finally`` blocks."""


def play(plan: Plan, *, keep: bool = False, compare: bool = False, recorded: list[Row] | None = None) -> Outcome:
    """Runs a plan."""
    world = SimulatedKafka(plan, keep=keep, compare=compare, recorded=recorded)
    _PLAYED.append(world)
    return world.run()


Play = Callable[[Plan], Outcome]
