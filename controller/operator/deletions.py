"""Shows the deletions of topics to operators: which brokers they wait for, since when, and what ends the wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Final

from brokers.listener.controller_listener import NotController
from controller.http.deletion_models import Deletion, GiveUpRequest
from controller.http.errors import NotActive, NotFound, Refused
from controller.kafka.path.agenda import DeletionQueue
from controller.kafka.requests.calls import Calls, GiveUp
from controller.kafka.term.term import Term
from controller.operator.deletion_words import reason_of
from state_machines.model.cluster import Cluster

LISTED_MAX: Final = 100
"""Deletions that are listed; those that wait come first."""
SHOWN_MAX: Final = 5
"""Waiting deletions that a status names; the others are counted."""
ENDS_S_MAX: Final = 10.0
"""Longest wait for the end of a deletion whose wait has ended."""
LIST: Final = "regent deletions list"


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
            raise Refused(why, LIST)
        ends_s = asyncio.get_running_loop().time() + ENDS_S_MAX
        await queue.until(lambda: topic.index not in cluster.deletions or topic.index in queue.resting, ends_s)
        return [_item(cluster, queue, topic.index)] if topic.index in cluster.deletions else []


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
