"""A daemon's HTTP surface on a real unix socket, with a double of the daemon behind it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import httpx
import uvloop
from fastapi import FastAPI

from configs.connections import HttpSettings
from controller.app import create_app
from controller.http.errors import NotActive, NotFound, Refused, ViewError
from controller.http.models import Health, Operation, OperationRequest
from controller.http.procedures import Lock, PlannedChange, Procedure, ServerResult
from controller.http.server import serving
from controller.kafka.metrics.exposition import KafkaCollector
from controller.kafka.metrics.values import Counters, Gauges, ShownMode
from controller.kafka.term.dispatch import KAFKA_STATES
from controller.metrics import registry
from controller.operator.brokers import Broker, Listener
from controller.operator.cordons import CordonedBroker, CordonRequest
from controller.operator.drains import DrainRequest, Shutdown, ShutdownRequest, UndrainRequest
from controller.operator.elections import ElectionRequest
from controller.operator.explain import Explanation, HistoryRow
from controller.operator.partitions import Only, Partition, PartitionPage, PartitionQuery, Topic, TopicPage
from controller.operator.pauses import PauseItem, PauseRequest
from controller.operator.plan_requests import Move, ReassignCommand, ReassignRequest
from controller.operator.plans import Reassignment
from controller.operator.restarts import Hindrance, RestartNext, RestartQuery, RestartRequest, SetOfBrokers
from controller.operator.role import RoleChangeItem
from controller.operator.snapshots import SnapshotItem, SnapshotRequest
from controller.operator.status import Cluster, Setting, Status
from controller.operator.stray_removal import StrayRemoval, StrayRemovalRequest
from controller.operator.strays import StrayReport
from controller.operator.throttle_settings import ClearRequest, ThrottleSetting
from controller.operator.throttles import LiftRequest, ThrottleItem, ThrottleRequest
from controller.operator.verify import Difference, Verification, VerifyView
from controller.operator.view import View
from state_machines.decisions.hindrances import StopCause
from tests.kit.deletions_double import DeletionsDouble


class CordonsDouble:
    """Marks of brokers in memory."""

    def __init__(self) -> None:
        self.marks: dict[int, CordonedBroker] = {}

    async def listed(self) -> list[CordonedBroker]:
        return list(self.marks.values())

    async def cordon(self, request: CordonRequest, principal: str) -> list[CordonedBroker]:
        self.marks |= {b: CordonedBroker(broker=b, reason=request.reason, principal=principal) for b in request.brokers}
        return await self.listed()

    async def uncordon(self, brokers: Collection[int]) -> list[CordonedBroker]:
        self.marks = {b: mark for b, mark in self.marks.items() if b not in brokers}
        return await self.listed()


class ProceduresDouble:
    """One plan of two moves, pid 12; ``seen`` has the requests."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []
        self.reasons: list[tuple[str, str]] = []
        """Principals and reasons of requests to end."""
        self.state = "runnable"
        self.refuse: ViewError | None = None
        self.progress: dict[str, Any] = {}
        self.item: Procedure | None = None
        self.others: list[Procedure] = []
        self.back: list[Move] = []

    def _item(self, *request: Any) -> Procedure:
        self.seen.append(request)
        if self.refuse is not None:
            raise self.refuse
        if self.item is not None:
            return self.item
        ended = self.state in ("success", "rolledback")
        return Procedure(
            pid=12,
            kind="reassign",
            state=self.state,
            detail="2 queued",
            ended=ended,
            principal="uid 0",
            **self.progress,
        )

    def _ended(self, act: str, pid: int, principal: str, reason: str) -> Procedure:
        self.reasons.append((principal, reason))
        return self._item(act, pid)

    async def list_all(self, topic: str | None = None, broker: int | None = None) -> list[Procedure]:
        return [
            *self.others,
            self._item("list", topic, broker),
            Procedure(pid=13, kind="reassign", state="success", ended=True),
        ]

    async def one(self, pid: int, wait_s: float) -> Procedure:
        return self._item("one", pid, wait_s)

    async def moves(self, pid: int) -> list[Move]:
        self._item("moves", pid)
        return [Move(topic="orders", partition=n, origin=(1, 2), target=(3,)) for n in range(2)]

    async def way_back(self, pid: int) -> list[Move]:
        self._item("way_back", pid)
        return self.back

    def reassignments(self) -> list[Reassignment]:
        self.seen.append(("reassignments",))
        whole = {"origin": (1, 2), "target": (3, 2), "adding": (3,), "removing": (1,)}
        return [
            Reassignment(topic="orders", partition=0, pid=12, by="plan of uid 0", **whole),
            Reassignment(topic="orders", partition=1, by="another client", **whole),
        ]

    def locks(self) -> list[Lock]:
        waits = Lock(pid=13, resource="server reassignments", exclusive=True, waiting=True, held_by=[12])
        return [Lock(pid=12, resource="server reassignments", exclusive=True), waits]

    async def apply(self, request: ReassignRequest, principal: str) -> Procedure:
        return self._item("apply", request, principal)

    async def command(self, pid: int, command: ReassignCommand, principal: str) -> Procedure:
        return self._item("command", pid, command.model_dump(exclude_defaults=True))

    async def abort(self, pid: int, principal: str = "", reason: str = "") -> Procedure:
        return self._ended("abort", pid, principal, reason)

    async def cancel(self, pid: int, principal: str = "", reason: str = "") -> Procedure:
        return self._ended("cancel", pid, principal, reason)

    async def bypass(self, pid: int, principal: str = "", reason: str = "") -> Procedure:
        return self._ended("bypass", pid, principal, reason)

    async def remove(self, pid: int, principal: str = "", reason: str = "") -> Procedure:
        return self._ended("remove", pid, principal, reason)


class PausesDouble:
    """A pause in memory; ``seen`` has the requests."""

    def __init__(self) -> None:
        self.seen: list[PauseRequest | None] = []
        self.item = PauseItem(paused=False)

    async def shown(self) -> PauseItem:
        return self.item

    async def pause(self, request: PauseRequest, principal: str) -> PauseItem:
        self.seen.append(request)
        self.item = PauseItem(paused=True, reason=request.reason, principal=principal)
        return self.item

    async def resume(self) -> PauseItem:
        self.seen.append(None)
        self.item = PauseItem(paused=False)
        return self.item


class SnapshotsDouble:
    """One snapshot in memory, ``ends`` after so many looks; ``seen`` has the requests."""

    def __init__(self) -> None:
        self.seen: list[tuple[SnapshotRequest, str]] = []
        self.left = 1
        self.end: dict[str, Any] = {
            "state": "done", "file": "/s/1.jsonl.gz", "partitions": 5, "brokers": 3, "file_bytes": 700, "took_ms": 12
        }  # fmt: skip
        self.item = SnapshotItem(number=1, state="waiting", cause="command", since=datetime(2026, 1, 1, tzinfo=UTC))

    def listed(self) -> list[SnapshotItem]:
        return [self.item]

    def described(self, number: int) -> SnapshotItem:
        self.left -= 1
        if self.left <= 0:
            self.item = self.item.model_copy(update=self.end)
        return self.item

    def requested(self, request: SnapshotRequest, principal: str) -> SnapshotItem:
        self.seen.append((request, principal))
        return self.item


class RoleHistoryDouble:
    """Two changes of the role."""

    async def changes(self) -> list[RoleChangeItem]:
        begun = datetime(2026, 1, 1, tzinfo=UTC)
        first = RoleChangeItem(at=begun, holder="regent", principal="uid 0", reason="trying regent")
        return [first, RoleChangeItem(at=begun + timedelta(days=1), holder="brokers", principal="uid 1000")]


class ThrottlesDouble:
    """Throttles in memory; ``seen`` has the requests, and procedure 12 is the one that was set."""

    def __init__(self) -> None:
        self.seen: list[ThrottleRequest | LiftRequest | ClearRequest] = []
        self.planned_ones: list[ThrottleRequest] = []
        self.left: list[ThrottleSetting] = []
        self.step = "in force"
        self.results = [ServerResult(broker=1, ok=True, text="in force")]

    def item(self) -> Procedure:
        return Procedure(pid=12, kind="throttle", state="waiting_timeout", step=self.step, results=self.results)

    async def listed(self) -> list[ThrottleItem]:
        own = ThrottleItem(pid=12, kind="throttle", rate_bytes_per_s=7, brokers=[1], results=self.results)
        total = len(self.left)
        rest = ThrottleItem(kind="nobody", rate_bytes_per_s=0, brokers=[], settings=self.left, settings_total=total)
        return [own, rest] if self.left else [own]

    async def set_rates(self, request: ThrottleRequest, principal: str) -> Procedure:
        self.seen.append(request)
        return self.item()

    async def planned(self, request: ThrottleRequest) -> list[PlannedChange]:
        self.planned_ones.append(request)
        return [PlannedChange(entity="broker 1", what="leader.replication.throttled.rate", after="7")]

    async def lift(self, request: LiftRequest, principal: str) -> list[Procedure]:
        self.seen.append(request)
        return [self.item()]

    async def clear(self, request: ClearRequest, principal: str) -> list[ThrottleSetting]:
        self.seen.append(request)
        outcome = "planned" if request.dry_run else "cleared"
        return [one if one.outcome == "kept" else one.model_copy(update={"outcome": outcome}) for one in self.left]


class ElectionsDouble:
    """Elections of a daemon's double; ``seen`` has the requests."""

    def __init__(self) -> None:
        self.seen: list[ElectionRequest] = []

    async def elect(self, request: ElectionRequest, principal: str) -> Procedure:
        self.seen.append(request)
        return Procedure(pid=12, kind="elect", state="planned" if request.dry_run else "runnable")


class RestartsDouble:
    """Rolling restarts of a daemon's double, which notes the requests."""

    def __init__(self, daemon: DaemonDouble) -> None:
        self._daemon = daemon

    async def begin(self, request: RestartRequest, principal: str) -> Procedure:
        self._daemon.restarts_begun.append(request)
        return Procedure(pid=12, kind="restart", state="runnable")


class DrainsDouble:
    """Drains of a daemon's double, which notes the requests."""

    def __init__(self, daemon: DaemonDouble) -> None:
        self._daemon = daemon

    async def drain(self, request: DrainRequest, principal: str) -> Procedure:
        self._daemon.drained.append(("drain", request, principal))
        return await self._daemon.running.one(12, 0)

    async def planned(self, request: DrainRequest) -> list[PlannedChange]:
        self._daemon.drained.append(("planned", request))
        await self._daemon.running.one(12, 0)
        return [PlannedChange(entity="broker 3", what="leaders", before="4", after="1", why="1 stay: it is alone")]

    async def undrain(self, request: UndrainRequest) -> list[CordonedBroker]:
        self._daemon.drained.append(("undrain", request))
        return await self._daemon.marks.uncordon(request.brokers)

    async def shutdown(self, request: ShutdownRequest) -> Shutdown:
        self._daemon.drained.append(("shutdown", request))
        if self._daemon.refuse:
            raise Refused(self._daemon.refuse, "correct the id")
        names = ["orders-0: no other ISR member can lead"] if request.broker == 2 else []
        causes = [Hindrance(cause="no-leader", count=1, meaning="no other can lead", remedy="wait")] if names else []
        return Shutdown(broker=request.broker, may_stop=not causes, leaders_moved=3, staying=names, hindrances=causes)


class StraysDouble:
    """Strays of a daemon's double, which notes the brokers of a request."""

    def __init__(self) -> None:
        self.report = StrayReport(brokers=[1, 2, 3])
        self.seen: list[list[int]] = []
        self.removal = StrayRemoval(dry_run=False, brokers=[1, 2, 3])
        self.requests: list[StrayRemovalRequest] = []

    async def listed(self, brokers: Sequence[int]) -> StrayReport:
        self.seen.append(list(brokers))
        return self.report

    async def removed(self, request: StrayRemovalRequest, principal: str) -> StrayRemoval:
        self.requests.append(request)
        return self.removal.model_copy(update={"dry_run": request.dry_run})


@dataclass
class DaemonDouble:
    """A daemon with three brokers and two topics of five partitions; tests change its fields."""

    mode: ShownMode = ShownMode.ACTIVE
    ready: bool = True
    differences: list[Difference] = field(default_factory=list)
    requests: list[OperationRequest] = field(default_factory=list)
    queries: list[PartitionQuery] = field(default_factory=list)
    current: Operation | None = None
    refuse: str = ""
    verification_may_end: asyncio.Event | None = None
    broken: bool = False
    old: str | None = None
    elections: ElectionsDouble = field(default_factory=ElectionsDouble)
    restarts_begun: list[RestartRequest] = field(default_factory=list)
    throttles: ThrottlesDouble = field(default_factory=ThrottlesDouble)
    pause: PausesDouble = field(default_factory=PausesDouble)
    taken: SnapshotsDouble = field(default_factory=SnapshotsDouble)
    marks: CordonsDouble = field(default_factory=CordonsDouble)
    running: ProceduresDouble = field(default_factory=ProceduresDouble)
    strays: StraysDouble = field(default_factory=StraysDouble)
    deletions: DeletionsDouble = field(default_factory=DeletionsDouble)
    drained: list[tuple[Any, ...]] = field(default_factory=list)
    """Requests to drain and undrain."""
    hindrances: list[Hindrance] = field(default_factory=list)
    judged: list[tuple[frozenset[int], frozenset[StopCause]]] = field(default_factory=list)
    plans: list[RestartNext] = field(default_factory=list)
    """Answers of the next queries for a batch; the last one stays."""
    restart_queries: list[RestartQuery] = field(default_factory=list)

    name: ClassVar[str] = "kafka"

    def add_routes(self, app: FastAPI) -> None:
        View.add_routes(parts_of(self), app)

    def liveness(self) -> Health:
        return Health(ok=self.mode is not ShownMode.STOPPING, mode=self.mode, why="the loop turns")

    def readiness(self) -> Health:
        return Health(ok=self.ready, mode=self.mode, why="holds the role" if self.ready else "waits for ZooKeeper")

    def gauges(self) -> Gauges:
        if self.broken:
            raise RuntimeError("no model yet")
        return Gauges(mode=self.mode)

    def status(self) -> Status:
        if self.broken:
            raise RuntimeError("no model yet")
        known = {"brokers": 3, "topics": 2, "partitions": 10, "offline_partitions": 2, "health": ["2 are offline"]}
        return Status(
            mode=self.mode, why="no other controller held the role", version="0.1.0", controller_id=1_000_001,
            controller_epoch=7, role_flag="regent", holder=1_000_001, holder_kind="daemon", ibp="3.9-IV0",
            session_timeout_ms=18_000, zookeeper_connected=True, **(known if self.mode is ShownMode.ACTIVE else {}),
        )  # fmt: skip

    def stale(self) -> str | None:
        return self.old

    def describe_cluster(self) -> Cluster:
        self._active()
        return Cluster(
            cluster_id="abc", controller_id=1_000_001, controller_epoch=7, ibp="3.9-IV0", on_absence="brokers",
            role_flag="regent", brokers=[1, 2, 3],
        )  # fmt: skip

    def list_settings(self) -> list[Setting]:
        return [
            Setting(key="controller.num_partitions", broker_setting="num.partitions", value="3", source="set by us")
        ]

    def list_brokers(self) -> list[Broker]:
        self._active()
        listener = Listener(name="INTERNAL", host="b", port=9093)
        return [Broker(id=i, epoch=100 + i, rack=None, listeners=[listener], leads=3, hosts=9) for i in (1, 2, 3)]

    def describe_broker(self, broker: int) -> Broker:
        for found in self.list_brokers():
            if found.id == broker:
                return found
        raise NotFound(f"broker {broker} is not registered", "see `regent list brokers`")

    def list_topics(self, limit: int, after: str | None) -> TopicPage:
        names = [name for name in ("orders", "payments") if name > (after or "")]
        more = names[limit - 1] if len(names) > limit else None
        return TopicPage([self.describe_topic(name) for name in names[:limit]], more)

    def describe_topic(self, topic: str) -> Topic:
        self._active()
        if topic not in ("orders", "payments"):
            raise NotFound(f"topic {topic} does not exist", "see `regent list topics`")
        return Topic(name=topic, partitions=5, replication_factor=3, offline=1)

    def list_partitions(self, query: PartitionQuery) -> PartitionPage:
        self._active()
        self.queries.append(query)
        rows = [(topic, number) for topic in ("orders", "payments") for number in range(5)]
        first = int(query.after or 0)
        taken = rows[first : first + query.limit]
        following = str(first + query.limit) if first + query.limit < len(rows) else None
        items = [self.describe_partition(*row) for row in taken if query.topic in (None, row[0])]
        return PartitionPage([item for item in items if _matches(item, query.only)], following)

    def describe_partition(self, topic: str, partition: int) -> Partition:
        self.describe_topic(topic)
        if partition not in range(5):
            raise NotFound(f"{topic} has no partition {partition}", f"see `regent describe topic {topic}`")
        offline = partition == 4
        return Partition(
            topic=topic, partition=partition, state="OFFLINE" if offline else "ONLINE", leader=None if offline else 1,
            leader_epoch=3, replicas=[1, 2, 3], isr=[1] if offline else [1, 2, 3], under_replicated=offline,
        )  # fmt: skip

    async def explain(self, topic: str, partition: int) -> Explanation:
        return Explanation(
            partition=self.describe_partition(topic, partition), state_because="its leader lives",
            leader_because="first replica in the ISR", isr_because="all have caught up", would_change=["broker 1 dies"],
            history=[HistoryRow(at="2026-01-02 03:04:05.678", controller_epoch=6, daemon=1, kind="ISR", told="shrank")],
        )  # fmt: skip

    async def verify(self) -> Verification:
        if self.verification_may_end:
            await self.verification_may_end.wait()
        return Verification(
            memory=self.mode is ShownMode.ACTIVE, partitions=10, brokers=[1, 2, 3], differences=self.differences,
            differences_total=len(self.differences),
        )  # fmt: skip

    @property
    def cordons(self) -> CordonsDouble:
        return self.marks

    @property
    def pauses(self) -> PausesDouble:
        return self.pause

    @property
    def snapshots(self) -> SnapshotsDouble:
        return self.taken

    @property
    def role_history(self) -> RoleHistoryDouble:
        return RoleHistoryDouble()

    @property
    def restarts(self) -> RestartsDouble:
        return RestartsDouble(self)

    @property
    def drains(self) -> DrainsDouble:
        return DrainsDouble(self)

    @property
    def procedures(self) -> ProceduresDouble:
        return self.running

    async def can_stop(self, brokers: frozenset[int], accepted: frozenset[StopCause]) -> SetOfBrokers:
        self._active()
        self.judged.append((brokers, accepted))
        unknown = sorted(brokers - {1, 2, 3})
        allowed, found = not self.hindrances, self.hindrances
        return SetOfBrokers(allowed=allowed, brokers=sorted(brokers), partitions=7, hindrances=found, unknown=unknown)

    async def can_remove(self, brokers: frozenset[int]) -> SetOfBrokers:
        return await self.can_stop(brokers, frozenset())

    async def restart_next(self, query: RestartQuery) -> RestartNext:
        self._active()
        self.restart_queries.append(query)
        return self.plans.pop(0) if len(self.plans) > 1 else self.plans[0]

    async def takeover(self, request: OperationRequest, principal: str) -> Operation:
        return self._begin("takeover", request)

    async def handback(self, request: OperationRequest, principal: str) -> Operation:
        return self._begin("handback", request)

    def operation(self) -> Operation | None:
        return self.current

    def _begin(self, kind: str, request: OperationRequest) -> Operation:
        self.requests.append(request)
        if self.refuse:
            raise Refused(self.refuse, "finish the reassignment first")
        state = "planned" if request.dry_run else "running"
        found = Operation.model_validate(
            {"kind": kind, "state": state, "message": f"{kind} {state}", "steps": ["set the flag", "drain"]}
        )
        self.current = self.current or found
        return found

    def _active(self) -> None:
        if self.mode is not ShownMode.ACTIVE:
            raise NotActive(f"this daemon is {self.mode}", "ask daemon 1000002 on host b")


def _matches(partition: Partition, only: frozenset[Only]) -> bool:
    return not only or (Only.OFFLINE in only and partition.leader is None)


def parts_of(double: DaemonDouble) -> View:
    """Returns the double as the parts of a view."""
    whole = {"status": double.status, "settings": double.list_settings, "cluster": double.describe_cluster}
    partitions = ("list_topics", "describe_topic", "list_partitions", "describe_partition")
    restarts = {
        "can_stop": double.can_stop, "can_remove": double.can_remove, "next": double.restart_next,
        "begin": double.restarts.begin,
    }  # fmt: skip
    role = {
        "takeover": double.takeover, "handback": double.handback, "operation": double.operation,
        "changes": double.role_history.changes,
    }  # fmt: skip
    verifications = VerifyView(cast("Any", None), cast("Any", None), cast("Any", None))
    verifications._verified = double.verify  # type: ignore[method-assign]
    found = SimpleNamespace(
        liveness=double.liveness,
        readiness=double.readiness,
        whole=SimpleNamespace(**whole, stale=double.stale),
        brokers=SimpleNamespace(
            listed=lambda: type(double).list_brokers(double), described=double.describe_broker, stale=double.stale
        ),
        partitions=SimpleNamespace(**{name: getattr(double, name) for name in partitions}, stale=double.stale),
        explanations=SimpleNamespace(explain=double.explain, stale=double.stale),
        verifications=verifications,
        role=SimpleNamespace(**role),
        restarts=SimpleNamespace(**restarts),
        plans=double.procedures,
        stray_removal=double.strays,
    )
    for name in (
        "cordons",
        "pauses",
        "snapshots",
        "drains",
        "procedures",
        "throttles",
        "elections",
        "strays",
        "deletions",
    ):
        setattr(found, name, getattr(double, name))
    return cast("View", found)


def app_settings(folder: Path) -> HttpSettings:
    return HttpSettings(socket=folder / "run" / "regent.sock", stop_timeout_ms=500)


@asynccontextmanager
async def http_world(folder: Path, view: DaemonDouble, owner: int | None = None) -> AsyncIterator[httpx.AsyncClient]:
    """Serves the double; yields a client of its socket."""
    settings = app_settings(folder)
    metrics = registry(KafkaCollector(Counters(), view, KAFKA_STATES))
    async with serving(create_app([view], metrics, owner), settings):
        transport = httpx.AsyncHTTPTransport(uds=str(settings.socket))
        async with httpx.AsyncClient(transport=transport, base_url="http://regent", timeout=10) as client:
            yield client


@contextmanager
def daemon_in_thread(folder: Path, view: DaemonDouble) -> Iterator[Path]:
    """Serves the double in a thread, for the blocking ``regent`` command; yields the socket's path."""
    serves, over = Event(), Event()

    async def serve() -> None:
        async with http_world(folder, view):
            serves.set()
            await asyncio.to_thread(over.wait)

    thread = Thread(target=lambda: uvloop.run(serve()))
    thread.start()
    try:
        assert serves.wait(10)
        yield app_settings(folder).socket
    finally:
        over.set()
        thread.join(10)
