"""Serves a view that notes each call and gives the answers of a test, for tests of the command line and of routes.

Its parts have the methods of the real ones, by their signatures. :data:`ANSWERS` has what no test sets: three brokers,
two topics of five partitions, one plan of two moves with pid 12.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final, cast

import httpx
import uvloop
from fastapi import FastAPI

from configs.connections import HttpSettings
from controller.domain import create_app
from controller.http.documents import NotActive, NotFound, ViewError
from controller.http.models import Health, Operation
from controller.http.procedures import Lock, PlannedChange, Procedure, ServerResult
from controller.http.server import serving
from controller.kafka.metrics.exposition import KafkaCollector
from controller.kafka.metrics.values import Counters, Gauges, ShownMode
from controller.kafka.term.dispatch import KAFKA_STATES
from controller.metrics import registry
from controller.operator.brokers import Broker, BrokerView, Listener
from controller.operator.cordons import CordonedBroker, CordonView
from controller.operator.deletions import Deletion, DeletionView
from controller.operator.drains import DrainView, Shutdown
from controller.operator.elections import ElectionView
from controller.operator.explain import ExplainView, Explanation, HistoryRow
from controller.operator.partitions import Only, Partition, PartitionPage, PartitionView, Topic, TopicPage
from controller.operator.pauses import PauseItem, PauseView
from controller.operator.plan_requests import Move
from controller.operator.plans import PlanView, Reassignment
from controller.operator.procedures import ProcedureView
from controller.operator.restarts import Hindrance, RestartNext, RestartView, SetOfBrokers
from controller.operator.role import RoleChangeItem, RoleView
from controller.operator.snapshots import SnapshotItem, SnapshotView
from controller.operator.status import Cluster, Setting, Status, StatusView
from controller.operator.stray_removal import StrayRemoval, StrayRemovalView
from controller.operator.strays import StrayReport, StrayView
from controller.operator.throttles import ThrottleItem, ThrottleView
from controller.operator.verify import Difference, Verification, VerifyView
from controller.operator.view import View

PARTS: Final[dict[str, type]] = {
    "whole": StatusView, "brokers": BrokerView, "partitions": PartitionView, "explanations": ExplainView,
    "verifications": VerifyView, "role": RoleView, "cordons": CordonView, "procedures": ProcedureView,
    "plans": PlanView, "drains": DrainView, "throttles": ThrottleView, "elections": ElectionView,
    "restarts": RestartView, "pauses": PauseView, "snapshots": SnapshotView, "strays": StrayView,
    "stray_removal": StrayRemovalView, "deletions": DeletionView,
}  # fmt: skip
"""Parts of a view."""
SINCE: Final = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
ENDS: Final = [f"procedures.{act}" for act in ("abort", "cancel", "bypass", "remove")]
Call = tuple[Any, ...]
"""Part and method as ``part.method``, then its arguments."""


class Part:
    """Stands for a part of a view: notes each call with its arguments, and answers."""

    def __init__(self, name: str, of: type, answer: Callable[[Call], object]) -> None:
        self._name, self._of, self._answer = name, of, answer

    def __getattr__(self, name: str) -> Callable[..., Any]:
        declared = getattr(self._of, name)

        def called(*given: object, **named: object) -> object:
            bound = inspect.signature(declared).bind(self, *given, **named)
            bound.apply_defaults()
            return self._answer((f"{self._name}.{name}", *list(bound.arguments.values())[1:]))

        async def awaited(*given: object, **named: object) -> object:
            found = called(*given, **named)
            return await found if inspect.isawaitable(found) else found

        return awaited if inspect.iscoroutinefunction(declared) else called


class Answering:
    """A view of a daemon that notes its calls. ``answers``: values, errors or functions by ``part.method``.

    A function gets the arguments of the call; those of :data:`ANSWERS` get this object before them.
    """

    name = "kafka"

    def __init__(self, answers: Mapping[str, Any] | None = None, mode: ShownMode = ShownMode.ACTIVE) -> None:
        self.mode, self.ready = mode, True
        self.calls: list[Call] = []
        self.answers: dict[str, Any] = dict(answers or {})
        self.marks: dict[int, CordonedBroker] = {}
        self.pause = PauseItem(paused=False)
        self.differences: list[Difference] = []
        self.hindrances: list[Hindrance] = []
        self.procedure = Procedure(pid=12, kind="reassign", state="runnable", detail="2 queued", principal="uid 0")
        """The procedure that requests begin, change and wait for."""
        self.others: list[Procedure] = []
        """Further procedures of lists, before that one."""
        self.refuse: ViewError | None = None
        """Error of requests about procedures."""
        self.batches: list[RestartNext] = []
        """Answers of the next queries for a batch; the last one stays."""
        self.operation: Operation | None = None
        for part, of in PARTS.items():
            setattr(self, part, Part(part, of, self._answer))

    def _answer(self, call: Call) -> object:
        self.calls.append(call)
        name, *given = call
        if name in self.answers:
            found = self.answers[name]
            found = found(*given) if callable(found) else found
        else:
            found = ANSWERS[name]
            found = found(self, *given) if callable(found) else found
        if isinstance(found, Exception):
            raise found
        return found

    def reset(self) -> None:
        """Forgets all calls and answers."""
        vars(self).update({name: value for name, value in vars(Answering()).items() if name not in PARTS})

    def noted(self, *names: str) -> list[Any]:
        """Returns the first argument of each call of these methods."""
        return [call[1] if len(call) > 1 else None for call in self.calls if call[0] in names]

    def of(self, *parts: str) -> list[Call]:
        """Returns the calls of these parts by method; the change of a plan by its fields, an end by its pid alone."""
        found = [(*call[0].split("."), *call[1:]) for call in self.calls]
        return [_short(call[1:]) for call in found if call[0] in parts]

    @property
    def reasons(self) -> list[tuple[str, str]]:
        """Returns the principals and reasons of requests to end procedures."""
        return [call[2:4] for call in self.calls if call[0] in ENDS]

    def progresses(self, **fields: Any) -> None:
        """Changes the procedure."""
        self.procedure = self.procedure.model_copy(update=fields)

    def ends(self, state: str) -> None:
        """Has the procedure be in a final state."""
        self.progresses(state=state, ended=True)

    def grows_old(self, why: str) -> None:
        """Has responses from the model say that they may be old."""
        self.answers |= {f"{part}.stale": why for part in ("whole", "brokers", "partitions", "explanations")}

    def add_routes(self, app: FastAPI) -> None:
        View.add_routes(cast("View", self), app)

    def liveness(self) -> Health:
        return Health(ok=self.mode is not ShownMode.STOPPING, mode=self.mode, why="the loop turns")

    def readiness(self) -> Health:
        return Health(ok=self.ready, mode=self.mode, why="holds the role" if self.ready else "waits for ZooKeeper")

    def gauges(self) -> Gauges:
        return Gauges(mode=self.mode)


def _short(call: Call) -> Call:
    if call[0] == "command":
        return (*call[:2], call[2].model_dump(exclude_defaults=True))
    return call[:2] if f"procedures.{call[0]}" in ENDS else call


def _of_model(answer: Callable[..., object]) -> Callable[..., object]:
    """Refuses where the daemon is not active."""

    def found(daemon: Answering, *given: Any) -> object:
        if daemon.mode is not ShownMode.ACTIVE:
            return NotActive(f"this daemon is {daemon.mode}", "ask daemon 1000002 on host b")
        return answer(daemon, *given)

    return found


def _status(daemon: Answering) -> Status:
    known = {"brokers": 3, "topics": 2, "partitions": 10, "offline_partitions": 2, "health": ["2 are offline"]}
    return Status(
        mode=daemon.mode, why="no other controller held the role", version="0.1.0", controller_id=1_000_001,
        controller_epoch=7, role_flag="regent", holder=1_000_001, holder_kind="daemon", ibp="3.9-IV0",
        session_timeout_ms=18_000, zookeeper_connected=True, **(known if daemon.mode is ShownMode.ACTIVE else {}),
    )  # fmt: skip


CLUSTER: Final = Cluster(
    cluster_id="abc", controller_id=1_000_001, controller_epoch=7, ibp="3.9-IV0", on_absence="brokers",
    role_flag="regent", brokers=[1, 2, 3],
)  # fmt: skip
LISTENER: Final = Listener(name="INTERNAL", host="b", port=9093)
BROKERS: Final = [Broker(id=i, epoch=100 + i, listeners=[LISTENER], leads=3, hosts=9) for i in (1, 2, 3)]
TOPICS: Final = {
    name: Topic(name=name, partitions=5, replication_factor=3, offline=1) for name in ("orders", "payments")
}
PARTITIONS: Final = [
    Partition(
        topic=topic, partition=number, state="OFFLINE" if number == 4 else "ONLINE", leader=None if number == 4 else 1,
        leader_epoch=3, replicas=[1, 2, 3], isr=[1] if number == 4 else [1, 2, 3], under_replicated=number == 4,
    )
    for topic in TOPICS for number in range(5)
]  # fmt: skip
MOVES: Final = [Move(topic="orders", partition=number, origin=(1, 2), target=(3,)) for number in range(2)]
WHOLE: Final[dict[str, Any]] = {"topic": "orders", "origin": (1, 2), "target": (3, 2), "adding": (3,), "removing": (1,)}


def _broker(_: Answering, broker: int) -> object:
    found = [one for one in BROKERS if one.id == broker]
    return found[0] if found else NotFound(f"broker {broker} is not registered", "see `regent list brokers`")


def _topics(_: Answering, limit: int, after: str | None) -> TopicPage:
    names = [name for name in TOPICS if name > (after or "")]
    return TopicPage([TOPICS[name] for name in names[:limit]], names[limit - 1] if len(names) > limit else None)


def _topic(_: Answering, topic: str) -> object:
    return TOPICS.get(topic, NotFound(f"topic {topic} does not exist", "see `regent list topics`"))


def _partitions(_: Answering, query: Any) -> PartitionPage:
    first = int(query.after or 0)
    taken = [one for one in PARTITIONS[first : first + query.limit] if query.topic in (None, one.topic)]
    following = str(first + query.limit) if first + query.limit < len(PARTITIONS) else None
    return PartitionPage(
        [one for one in taken if not query.only or (Only.OFFLINE in query.only and one.leader is None)], following
    )


def _partition(_: Answering, topic: str, partition: int) -> object:
    found = [one for one in PARTITIONS if (one.topic, one.partition) == (topic, partition)]
    return found[0] if found else NotFound(f"{topic} has no partition {partition}", f"see `regent describe {topic}`")


def _explanation(daemon: Answering, topic: str, partition: int) -> object:
    found = _partition(daemon, topic, partition)
    if not isinstance(found, Partition):
        return found
    row = HistoryRow(at="2026-01-02 03:04:05.678", controller_epoch=6, daemon=1, kind="ISR", told="shrank")
    return Explanation(
        partition=found, state_because="its leader lives", leader_because="first replica in the ISR",
        isr_because="all have caught up", would_change=["broker 1 dies"], history=[row],
    )  # fmt: skip


def _verification(daemon: Answering) -> Verification:
    return Verification(
        memory=daemon.mode is ShownMode.ACTIVE, partitions=10, brokers=[1, 2, 3], differences=daemon.differences,
        differences_total=len(daemon.differences),
    )  # fmt: skip


def _set(daemon: Answering, brokers: frozenset[int], *_: object) -> SetOfBrokers:
    unknown, found = sorted(brokers - {1, 2, 3}), daemon.hindrances
    return SetOfBrokers(allowed=not found, brokers=sorted(brokers), partitions=7, hindrances=found, unknown=unknown)


def _begun(kind: str) -> Callable[..., Operation]:
    def begun(daemon: Answering, request: Any, _principal: str) -> Operation:
        state = "planned" if request.dry_run else "running"
        found = Operation.model_validate(
            {"kind": kind, "state": state, "message": f"{kind} {state}", "steps": ["set the flag", "drain"]}
        )
        daemon.operation = daemon.operation or found
        return found

    return begun


def _cordoned(daemon: Answering, request: Any, principal: str) -> list[CordonedBroker]:
    marks = {b: CordonedBroker(broker=b, reason=request.reason, principal=principal) for b in request.brokers}
    daemon.marks |= marks
    return list(daemon.marks.values())


def _uncordoned(daemon: Answering, brokers: Any) -> list[CordonedBroker]:
    named = getattr(brokers, "brokers", brokers)
    daemon.marks = {broker: mark for broker, mark in daemon.marks.items() if broker not in named}
    return list(daemon.marks.values())


def _paused(daemon: Answering, request: Any, principal: str) -> PauseItem:
    daemon.pause = PauseItem(paused=True, reason=request.reason, principal=principal)
    return daemon.pause


def _resumed(daemon: Answering) -> PauseItem:
    daemon.pause = PauseItem(paused=False)
    return daemon.pause


def _shut_down(_: Answering, request: Any) -> Shutdown:
    names = ["orders-0: no other ISR member can lead"] if request.broker == 2 else []
    causes = [Hindrance(cause="no-leader", count=1, meaning="no other can lead", remedy="wait")] if names else []
    return Shutdown(broker=request.broker, may_stop=not causes, leaders_moved=3, staying=names, hindrances=causes)


def _procedure(daemon: Answering, *_: object) -> object:
    return daemon.refuse or daemon.procedure


def _procedures(daemon: Answering, *_: object) -> object:
    more = Procedure(pid=13, kind="reassign", state="success", ended=True)
    return daemon.refuse or [*daemon.others, daemon.procedure, more]


def _batch(daemon: Answering, _: object) -> RestartNext:
    return daemon.batches.pop(0) if len(daemon.batches) > 1 else daemon.batches[0]


def _begins(kind: str) -> Callable[..., Procedure]:
    def begun(_: Answering, request: Any, _principal: str) -> Procedure:
        return Procedure(pid=12, kind=kind, state="planned" if getattr(request, "dry_run", False) else "runnable")

    return begun


THROTTLE: Final = Procedure(
    pid=12, kind="throttle", state="waiting_timeout", step="in force",
    results=[ServerResult(broker=1, ok=True, text="in force")],
)  # fmt: skip
STAYS: Final = PlannedChange(entity="broker 3", what="leaders", before="4", after="1", why="1 stay: it is alone")
THROTTLED: Final = ThrottleItem(pid=12, kind="throttle", rate_bytes_per_s=7, brokers=[1], results=THROTTLE.results)
ANSWERS: Final[dict[str, Any]] = {
    "whole.status": _status,
    "whole.settings": [Setting(key="controller.num_partitions", broker_setting="num.partitions", value="3", source="")],
    "whole.cluster": _of_model(lambda _: CLUSTER),
    **dict.fromkeys(("whole.stale", "brokers.stale", "partitions.stale", "explanations.stale"), None),
    "brokers.listed": _of_model(lambda _: BROKERS),
    "brokers.described": _of_model(_broker),
    "partitions.list_topics": _of_model(_topics),
    "partitions.describe_topic": _of_model(_topic),
    "partitions.list_partitions": _of_model(_partitions),
    "partitions.describe_partition": _of_model(_partition),
    "explanations.explain": _of_model(_explanation),
    "verifications.verify": _verification,
    "restarts.can_stop": _of_model(_set),
    "restarts.can_remove": _of_model(_set),
    "restarts.next": _of_model(_batch),
    "restarts.begin": _begins("restart"),
    "role.takeover": _begun("takeover"),
    "role.handback": _begun("handback"),
    "role.operation": lambda daemon: daemon.operation,
    "role.changes": [
        RoleChangeItem(at=SINCE, holder="regent", principal="uid 0", reason="trying regent"),
        RoleChangeItem(at=SINCE + timedelta(days=1), holder="brokers", principal="uid 1000"),
    ],
    "cordons.listed": lambda daemon: list(daemon.marks.values()),
    "cordons.cordon": _cordoned,
    "cordons.uncordon": _uncordoned,
    "procedures.list_all": _procedures,
    **dict.fromkeys((f"procedures.{name}" for name in ("one", "abort", "cancel", "bypass", "remove")), _procedure),
    "procedures.locks": [
        Lock(pid=12, resource="server reassignments", exclusive=True),
        Lock(pid=13, resource="server reassignments", exclusive=True, waiting=True, held_by=[12]),
    ],
    "plans.moves": lambda daemon, _: daemon.refuse or MOVES,
    "plans.way_back": lambda daemon, _: daemon.refuse or [],
    "plans.reassignments": [
        Reassignment(partition=0, pid=12, by="plan of uid 0", **WHOLE),
        Reassignment(partition=1, by="another client", **WHOLE),
    ],
    "plans.apply": _procedure,
    "plans.command": _procedure,
    "drains.drain": _procedure,
    "drains.planned": lambda daemon, _: daemon.refuse or [STAYS],
    "drains.undrain": _uncordoned,
    "drains.shutdown": _shut_down,
    "throttles.listed": [THROTTLED],
    "throttles.set_rates": THROTTLE,
    "throttles.planned": [PlannedChange(entity="broker 1", what="leader.replication.throttled.rate", after="7")],
    "throttles.lift": [THROTTLE],
    "throttles.clear": [],
    "elections.elect": _begins("elect"),
    "pauses.shown": lambda daemon: daemon.pause,
    "pauses.pause": _paused,
    "pauses.resume": _resumed,
    **dict.fromkeys(("snapshots.described", "snapshots.requested"), SnapshotItem(
        number=1, state="waiting", cause="command", since=SINCE
    )),
    "snapshots.listed": [SnapshotItem(number=1, state="waiting", cause="command", since=SINCE)],
    "strays.listed": StrayReport(brokers=[1, 2, 3]),
    "stray_removal.removed": lambda _, request, __: StrayRemoval(dry_run=request.dry_run, brokers=[1, 2, 3]),
    "deletions.listed": [
        Deletion(topic="orders", partitions=3, state="waiting", since=SINCE, waits_for=[4], why="gone")
    ],
    "deletions.given_up": [],
}  # fmt: skip
"""What a call is answered with unless a test sets another answer."""


def socket_of(folder: Path, stop_timeout_ms: int = 500) -> HttpSettings:
    return HttpSettings(socket=folder / "run" / "regent.sock", stop_timeout_ms=stop_timeout_ms)


@asynccontextmanager
async def served(
    folder: Path, view: Answering | View, owner: int | None = None, stop_timeout_ms: int = 500
) -> AsyncIterator[httpx.AsyncClient]:
    """Serves a view on a real unix socket; yields a client of it."""
    settings = socket_of(folder, stop_timeout_ms)
    metrics = registry(KafkaCollector(Counters(), view, KAFKA_STATES))
    async with serving(create_app([view], metrics, owner), settings):
        transport = httpx.AsyncHTTPTransport(uds=str(settings.socket))
        async with httpx.AsyncClient(transport=transport, base_url="http://regent", timeout=60) as client:
            yield client


@contextmanager
def daemon_in_thread(folder: Path, view: Answering) -> Iterator[Path]:
    """Serves a view in a thread, for the blocking ``regent`` command; yields the socket's path."""
    serves, over = Event(), Event()

    async def serve() -> None:
        async with served(folder, view):
            serves.set()
            await asyncio.to_thread(over.wait)

    thread = Thread(target=lambda: uvloop.run(serve()))
    thread.start()
    try:
        assert serves.wait(60)
        yield socket_of(folder).socket
    finally:
        over.set()
        thread.join(60)
