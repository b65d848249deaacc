"""Shows the deletions of topics to operators: which brokers they wait for, since when, and what ends the wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Annotated, Final, Literal

from fastapi import FastAPI, Request, Response
from pydantic import Field

from brokers.listener.controller_listener import NotController
from controller.http.documents import NotActive, NotFound, ViewRefused, document
from controller.http.models import Document, Item, RequestItem, Words
from controller.http.peers import principal_of
from controller.kafka.path.agenda import DeletionQueue
from controller.kafka.requests.calls import Calls, GiveUp
from controller.kafka.term.term import Term
from controller.operator.brokers import BROKERS_MAX, BrokerId
from controller.process.wording import named
from state_machines.decisions.deletion import MOVES, awaited
from state_machines.model.cluster import Cluster
from state_machines.model.types import ReplicaState

LISTED_MAX: Final = 100
"""Deletions that are listed; those that wait come first."""
SHOWN_MAX: Final = 5
"""Waiting deletions that a status names; the others are counted."""
ENDS_S_MAX: Final = 10.0
"""Longest wait for the end of a deletion whose wait has ended."""
LIST: Final = "regent deletions list"


class Deletion(Item):
    """A topic that is being deleted. ``waits_for``: brokers that are gone, or refused to delete their logs."""

    topic: str
    partitions: int
    state: Literal["queued", "under way", "waiting"]
    since: datetime | None = Field(None, description="when its deletion was requested")
    waits_for: list[int] = []
    why: str = Field("", description="what it waits for, and what ends the wait")


class GiveUpRequest(RequestItem):
    """Ends the wait of a topic's deletion for brokers that never return."""

    topic: Annotated[str, Field(min_length=1, max_length=249)]
    brokers: Annotated[list[BrokerId], Field(min_length=1, max_length=BROKERS_MAX)]
    reason: Words = ""


class DeletionView:
    """Deletions as operators see and change them; only the active daemon carries them out."""

    def __init__(self, active: Callable[[], Term]) -> None:
        self._active = active

    def listed(self) -> list[Deletion]:
        """Lists topics that are being deleted, those that wait first."""
        term = self._active()
        cluster, queue = term.cluster, term.controller.deletion_queue
        waiting = [index for index in queue.resting if index in cluster.deletions]
        others = sorted(cluster.deletions.difference(waiting))
        return [_item(cluster, queue, index) for index in (*waiting, *others)[:LISTED_MAX]]

    async def given_up(self, request: GiveUpRequest, principal: str) -> list[Deletion]:
        """Ends waits for brokers that never return; returns what is left of the topic's deletion."""
        term = self._active()
        cluster, queue = term.cluster, term.controller.deletion_queue
        if (topic := cluster.topic(request.topic)) is None:
            raise NotFound(f"topic {request.topic} does not exist", f"its deletion has ended, or never began: {LIST}")
        wanted = GiveUp(request.topic, tuple(sorted(set(request.brokers))), principal, request.reason)
        try:
            why = await Calls(term.queue).give_up(wanted)
        except NotController as ended:
            raise NotActive("the term ended, or its queue is full", "try again; see 'regent status'") from ended
        if why is not None:
            raise ViewRefused(why, LIST)
        ends_s = asyncio.get_running_loop().time() + ENDS_S_MAX
        await queue.until(lambda: topic.index not in cluster.deletions or topic.index in queue.resting, ends_s)
        return [_item(cluster, queue, topic.index)] if topic.index in cluster.deletions else []


def add_deletion_routes(app: FastAPI, deletions: DeletionView) -> None:
    """Adds the routes to the surface of a daemon."""

    @app.get("/v1/deletions", response_model=Document[Deletion])
    async def listed() -> Response:
        return document("Deletion", deletions.listed())

    @app.post("/v1/deletions/give-up", response_model=Document[Deletion])
    async def give_up(wanted: GiveUpRequest, request: Request) -> Response:
        return document("Deletion", await deletions.given_up(wanted, principal_of(request)))


def waiting_deletions(cluster: Cluster, term: Term | None) -> Iterator[str]:
    """Yields a sentence for each deletion that waits for more than responses."""
    queue = term.controller.deletion_queue if term is not None else None
    waiting = [index for index in queue.resting if index in cluster.deletions] if queue is not None else []
    for index in waiting[:SHOWN_MAX]:
        assert queue is not None
        since = _since(queue, index)
        begun = f" since {since:%Y-%m-%d %H:%M:%S} UTC" if since is not None else ""
        yield f"the deletion of {cluster.topics[index].name} waits{begun}: {reason_of(cluster, index)[1]}"
    if len(waiting) > SHOWN_MAX:
        yield f"{len(waiting) - SHOWN_MAX} more deletions wait: {LIST}"


def _item(cluster: Cluster, queue: DeletionQueue, index: int) -> Deletion:
    topic = cluster.topics[index]
    waits = index in queue.resting
    brokers, why = reason_of(cluster, index) if waits else ([], "")
    busy = index in queue.under_way or index in queue.ended
    return Deletion(
        topic=topic.name,
        partitions=len(topic.rows),
        state="waiting" if waits else "under way" if busy else "queued",
        since=_since(queue, index),
        waits_for=brokers,
        why=why,
    )


def _since(queue: DeletionQueue, index: int) -> datetime | None:
    since_ms = queue.since_ms.get(index)
    return None if since_ms is None else datetime.fromtimestamp(since_ms / 1000, UTC)


def deletion_of_row(cluster: Cluster, i: int) -> str:
    """Returns what the deletion of a partition of a topic that is being deleted waits for."""
    row = cluster.rows[i]
    brokers, why = reason_of(cluster, row.topic)
    if brokers or why:
        return f"the deletion of its topic waits: {why}"
    state = cluster.replica_state
    left = [b for b in row.assignment.replicas if state(i, b) is not ReplicaState.DELETION_SUCCESSFUL]
    if left:
        return f"brokers {named(left)} have still to delete its logs: that needs no help while they respond"
    return "its logs are deleted; its znodes go with the last partition of its topic"


def reason_of(cluster: Cluster, index: int) -> tuple[list[int], str]:
    """Returns the brokers that a deletion waits for, and what ends the wait."""
    topic = cluster.topics[index]
    brokers = awaited(cluster, topic.rows)
    gone, here = [b for b in brokers if b not in cluster.brokers], [b for b in brokers if b in cluster.brokers]
    parts: list[str] = []
    if gone:
        options = " ".join(f"--broker {broker}" for broker in gone)
        parts.append(
            f"{_brokers(gone)} not registered: start {_them(gone)}; only if {_them(gone, 'it', 'they')} never "
            f"{_them(gone, 'returns', 'return')}: regent deletions give-up {topic.name} {options}"
        )
    if here:
        parts.append(f"{_brokers(here)} registered and refused to delete logs: see the log there, then restart it")
    if not brokers and cluster.reassigning and any(map(cluster.is_moving, topic.rows)):
        parts.append(MOVES)
    return brokers, "; ".join(parts)


def _brokers(ids: list[int]) -> str:
    return f"broker {ids[0]} is" if len(ids) == 1 else f"brokers {named(ids)} are"


def _them(ids: list[int], one: str = "it", many: str = "them") -> str:
    return one if len(ids) == 1 else many
