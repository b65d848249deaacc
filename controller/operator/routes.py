"""Routes the requests of operators about a Kafka cluster."""

from __future__ import annotations

from typing import Annotated

from fastapi import FastAPI, Query, Request, Response
from pydantic import Field, StringConstraints

from controller.http.deletions import add_deletion_routes
from controller.http.documents import document
from controller.http.drains import add_drain_routes
from controller.http.elections import add_election_routes
from controller.http.errors import NotFound, Refused
from controller.http.models import (
    Broker,
    Cluster,
    Document,
    Explanation,
    Operation,
    OperationRequest,
    Partition,
    Setting,
    Status,
    Topic,
    Verification,
)
from controller.http.pauses import add_pause_routes
from controller.http.ports import DaemonView, Only, PartitionQuery, RestartQuery
from controller.http.procedures import add_cordon_routes, add_routes, principal_of
from controller.http.restart_models import RestartNext, SetOfBrokers
from controller.http.restarts import add_restart_routes
from controller.http.role_history import add_role_history_route
from controller.http.snapshots import add_snapshot_routes
from controller.http.strays import add_stray_routes
from controller.http.throttles import add_throttle_routes
from state_machines.decisions.hindrances import StopCause
from state_machines.decisions.restarts import BATCH_MAX

PAGE_DEFAULT = 500
PAGE_MAX = 5_000
BROKERS_MAX = 500
"""Brokers that one query names; with their epochs they fit into the headers that are read."""

Limit = Annotated[int, Query(ge=1, le=PAGE_MAX)]
After = Annotated[str | None, Query(max_length=300)]
Filters = Annotated[list[Only] | None, Query(max_length=len(Only))]
BrokerId = Annotated[int, Field(ge=0, le=2**31 - 1)]
Brokers = Annotated[list[BrokerId], Query(alias="broker", min_length=1, max_length=BROKERS_MAX)]
Accepted = Annotated[list[StopCause] | None, Query(max_length=len(StopCause))]
Epoch = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,10}:[0-9]{1,19}$")]
Since = Annotated[list[Epoch] | None, Query(max_length=BROKERS_MAX, description="ID:EPOCH of each broker")]
BatchMax = Annotated[int, Query(alias="batchMax", ge=1, le=BATCH_MAX)]

RestartPid = Annotated[int | None, Query(ge=1, description="pid of a rolling restart that the daemon keeps")]


def add_kafka_routes(app: FastAPI, view: DaemonView) -> None:
    """Adds every route about the cluster and its controller."""
    _reading(app, view)
    _restarting(app, view)
    _changing(app, view)
    add_routes(app, view.procedures)
    add_cordon_routes(app, view.cordons)
    add_drain_routes(app, view.drains)
    add_throttle_routes(app, view.throttles)
    add_election_routes(app, view.elections)
    add_restart_routes(app, view.restarts)
    add_pause_routes(app, view.pauses)
    add_role_history_route(app, view.role_history)
    add_snapshot_routes(app, view.snapshots)
    add_stray_routes(app, view.strays)
    add_deletion_routes(app, view.deletions)


def _reading(app: FastAPI, view: DaemonView) -> None:
    @app.get("/v1/status", response_model=Document[Status])
    async def status() -> Response:
        return document("Status", [view.status()])

    @app.get("/v1/settings", response_model=Document[Setting])
    async def settings() -> Response:
        return document("Setting", view.list_settings())

    @app.get("/v1/cluster", response_model=Document[Cluster])
    async def cluster() -> Response:
        return document("Cluster", [view.describe_cluster()], stale=view.stale())

    @app.get("/v1/brokers", response_model=Document[Broker])
    async def brokers() -> Response:
        return document("Broker", view.list_brokers(), stale=view.stale())

    @app.get("/v1/brokers/{broker}", response_model=Document[Broker])
    async def broker(broker: int) -> Response:
        return document("Broker", [view.describe_broker(broker)], stale=view.stale())

    @app.get("/v1/topics", response_model=Document[Topic])
    async def topics(limit: Limit = PAGE_DEFAULT, after: After = None) -> Response:
        page = view.list_topics(limit, after)
        return document("Topic", page.items, page.next, stale=view.stale())

    @app.get("/v1/topics/{topic}", response_model=Document[Topic])
    async def topic(topic: str) -> Response:
        return document("Topic", [view.describe_topic(topic)], stale=view.stale())

    _reading_partitions(app, view)


def _reading_partitions(app: FastAPI, view: DaemonView) -> None:
    verifying = False

    @app.get("/v1/partitions", response_model=Document[Partition])
    async def partitions(
        topic: str | None = None,
        only: Filters = None,
        limit: Limit = PAGE_DEFAULT,
        after: After = None,
        broker: int | None = None,
    ) -> Response:
        page = view.list_partitions(PartitionQuery(topic, frozenset(only or ()), limit, after, broker))
        return document("Partition", page.items, page.next, stale=view.stale())

    @app.get("/v1/topics/{topic}/partitions/{partition}", response_model=Document[Partition])
    async def partition(topic: str, partition: int) -> Response:
        return document("Partition", [view.describe_partition(topic, partition)], stale=view.stale())

    @app.get("/v1/topics/{topic}/partitions/{partition}/explanation", response_model=Document[Explanation])
    async def explanation(topic: str, partition: int) -> Response:
        return document("Explanation", [await view.explain(topic, partition)], stale=view.stale())

    @app.get("/v1/verification", response_model=Document[Verification])
    async def verification() -> Response:
        nonlocal verifying
        if verifying:
            raise Refused("a verification is running already", "wait for it, then try again")
        verifying = True
        try:
            return document("Verification", [await view.verify()])
        finally:
            verifying = False


def _restarting(app: FastAPI, view: DaemonView) -> None:
    @app.get("/v1/can-stop", response_model=Document[SetOfBrokers])
    async def can_stop(brokers: Brokers, accept: Accepted = None) -> Response:
        return document("CanStop", [await view.can_stop(frozenset(brokers), frozenset(accept or ()))])

    @app.get("/v1/can-remove", response_model=Document[SetOfBrokers])
    async def can_remove(brokers: Brokers) -> Response:
        return document("CanRemove", [await view.can_remove(frozenset(brokers))])

    @app.get("/v1/restart-next", response_model=Document[RestartNext])
    async def restart_next(
        since: Since = None, batch_max: BatchMax = BATCH_MAX, accept: Accepted = None, pid: RestartPid = None
    ) -> Response:
        epochs = {int(broker): int(epoch) for broker, _, epoch in (one.partition(":") for one in since or ())}
        if epochs and pid is not None:
            raise Refused("since and pid name two restarts", "give one of them")
        found = await view.restart_next(RestartQuery(epochs, batch_max, frozenset(accept or ()), pid))
        return document("RestartNext", [found])


def _changing(app: FastAPI, view: DaemonView) -> None:
    @app.post("/v1/role/takeover", response_model=Document[Operation])
    async def takeover(wanted: OperationRequest, request: Request) -> Response:
        return document("Operation", [await view.takeover(wanted, principal_of(request))])

    @app.post("/v1/role/handback", response_model=Document[Operation])
    async def handback(wanted: OperationRequest, request: Request) -> Response:
        return document("Operation", [await view.handback(wanted, principal_of(request))])

    @app.get("/v1/role/operation", response_model=Document[Operation])
    async def operation() -> Response:
        found = view.operation()
        if found is None:
            raise NotFound("no take-over and no hand-back since this daemon started", "see `regent status`")
        return document("Operation", [found])
