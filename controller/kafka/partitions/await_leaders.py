"""Delays responses of admin calls, beside the queue, until written partitions have leaders, or time is over.

Kafka's controller responds when its own broker's metadata shows the leaders. Here one broker has to show them. The
response waits up to a second longer for the leaders and all other brokers: the client may turn to any of them next. A
broker that does not respond holds up no connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Final

from controller.kafka.path.controller import Controller
from state_machines.model.types import NO_LEADER

WAIT_S_MAX: Final = 300.0
"""Longest wait of a call, however long its client would wait."""
METADATA_S_MAX: Final = 1.0
"""How much longer a response waits for all brokers, once one of them shows the leaders."""
LEADERS_POLL_S: Final = 0.05
"""Interval of the checks for partitions without a leader: their brokers may never start."""


async def topics_without_leaders(
    c: Controller, topics: Collection[str], timeout_ms: int, counts: Mapping[str, int] | None = None
) -> frozenset[str]:
    """Waits until all partitions of ``topics`` are shown with leaders; returns those that are not within the time-out.

    ``counts``: partitions that topics must have by then; the model may not know of all that was written.
    """
    least = counts or {}
    deadline_s = asyncio.get_running_loop().time() + min(timeout_ms / 1000, WAIT_S_MAX)
    late = {name for name in topics if not await _has_leaders(c, name, least.get(name, 1), deadline_s)}
    unshown = await shown(c, [i for name in topics if name not in late for i in _rows(c, name)], deadline_s)
    return frozenset(late | {c.cluster.name(i).topic for i in unshown})


def _rows(c: Controller, name: str) -> Collection[int]:
    topic = c.cluster.topic(name)
    return () if topic is None else topic.rows


async def _has_leaders(c: Controller, name: str, count: int, deadline_s: float) -> bool:
    """Waits until ``count`` partitions, and all, have a leader, as no deleted one has; False at the deadline."""
    now = asyncio.get_running_loop().time
    while len(rows := _rows(c, name)) < count or any(c.cluster.rows[i].leader <= NO_LEADER for i in rows):
        if now() >= deadline_s:
            return False
        await asyncio.sleep(min(LEADERS_POLL_S, max(0.0, deadline_s - now())))
    return True


async def shown(c: Controller, rows: Collection[int], deadline_s: float) -> frozenset[int]:
    """Waits until a broker shows rows as they are by now; returns those that none shows at the deadline."""
    now = asyncio.get_running_loop().time
    late = await c.channels.metadata_shown(rows, deadline_s - now())
    done = [i for i in rows if i not in late]
    rest_s = min(deadline_s, now() + METADATA_S_MAX)
    await c.channels.leaders_acknowledged(done, rest_s - now())
    await c.channels.metadata_acknowledged(done, rest_s - now())
    return late
