"""Ends the wait of deletions for brokers that never return, at an operator's request.

The logs that are left there are remembered in ``/regent/strays``, in one fenced transaction. So the wait stays ended in
every later term, and the logs are deleted if such a broker starts after all.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Final

from msgspec.structs import replace

from controller.kafka.path.controller import Controller
from controller.kafka.path.events import EventKind
from controller.kafka.reassignments.strays import CONFLICTS, ensure_parent, topic_id_of, unwritable
from controller.kafka.requests.calls import GiveUp, PendingGiveUp
from controller.process.clock import wall_ms
from controller.process.wording import named
from metadata_store.errors import Code, ZkError
from metadata_store.fencing.fenced import submit
from metadata_store.nodes.stray_nodes import (
    PARTITIONS_MAX,
    SEVERAL,
    Remembered,
    StrayKey,
    added,
    entered,
    ops,
    read_strays,
)
from state_machines.decisions.deletion import ended_waits
from state_machines.model.topic_facts import WaitsGivenUp, WaitsRecalled
from state_machines.model.types import Topic

log = logging.getLogger("regent.controller")

ROUNDS_MAX: Final = 5
"""How often the memories are read and written while other clients write them."""


def recall_given_up(c: Controller, topics: Collection[int]) -> None:
    """Enters waits that a former term has ended, as ZooKeeper has them, for topics whose deletion is queued now."""
    for key, found in c.strays.entries.items() if topics else ():
        topic = c.cluster.topic(key.topic)
        if topic is not None and topic.index in topics and found.content.czxid in (topic.czxid, SEVERAL):
            rows = (c.cluster.row_in(topic, number) for number in found.content.partitions)
            c.enter(WaitsRecalled([(i, key.broker) for i in rows if i is not None]))


async def give_up_call(c: Controller, pending: PendingGiveUp) -> None:
    """Handles a call: the reply is why nothing was done, None where the waits have ended."""
    try:
        pending.answer(await _give_up(c, pending.call))
    finally:
        pending.refuse()


async def _give_up(c: Controller, wanted: GiveUp) -> str | None:
    for _ in range(ROUNDS_MAX):
        await c.connected()
        topic = c.cluster.topic(wanted.topic)
        if topic is None:
            return None if wanted.known else f"topic {wanted.topic} does not exist: its deletion has ended"
        if (why := ended_waits(c.cluster, topic, wanted.brokers)) is not None:
            return why
        logs = _left(c, topic, wanted.brokers)
        if len(logs) > 1 and _size(c, topic, logs) > PARTITIONS_MAX:
            return await _one_by_one(c, wanted)
        await ensure_parent(c)
        memories = _memories(c, topic, logs)
        if (why := unwritable(c, memories)) is not None:
            return why
        failed = await _failure(c, memories)
        c.gate.check()
        if failed is None:
            _entered(c, topic, logs, memories, wanted)
            return None
        if failed.code is Code.TOO_BIG and len(logs) > 1:
            return await _one_by_one(c, wanted)
        if failed.code is Code.TOO_BIG:
            instead = "start it, or an empty one with its id"
            return f"the logs on broker {named(sorted(logs))} are too many for one write: {instead}"
        if failed.code not in CONFLICTS:
            return f"{failed.path} cannot be written ({failed.code.name}): check its ACL"
        c.strays.load(await read_strays(c.zk))
        c.gate.check()
    return "other clients write /regent/strays all the time: try again"


async def _one_by_one(c: Controller, wanted: GiveUp) -> str | None:
    """Ends the wait for one broker after the other, each by its own write; a refusal leaves earlier ones ended."""
    for at, broker in enumerate(wanted.brokers):
        if (why := await _give_up(c, replace(wanted, brokers=(broker,)))) is not None:
            done = f"the wait for brokers {list(wanted.brokers[:at])} has ended; " if at else ""
            return f"{done}{why}"
    return None


async def _failure(c: Controller, memories: Mapping[StrayKey, Remembered]) -> ZkError | None:
    """Writes memories; returns why they are not written."""
    try:
        return await submit(c.zk, c.fence, ops(c.strays.entries, memories)) if memories else None
    except ZkError as refused:
        return refused


def _left(c: Controller, topic: Topic, brokers: Collection[int]) -> dict[int, list[int]]:
    """Returns the rows of a topic by those of the brokers that have a log of them."""
    rows = c.cluster.rows
    found = {broker: [i for i in topic.rows if broker in rows[i].assignment.replicas] for broker in brokers}
    return {broker: some for broker, some in found.items() if some}


def _size(c: Controller, topic: Topic, logs: Mapping[int, Collection[int]]) -> int:
    """Returns how many partitions the memories of a topic have together, at most."""
    known = (c.strays.entries.get(StrayKey(broker, topic.name)) for broker in logs)
    kept = sum(len(found.content.partitions) for found in known if found is not None)
    return kept + sum(len(some) for some in logs.values())


def _memories(c: Controller, topic: Topic, logs: Mapping[int, Collection[int]]) -> dict[StrayKey, Remembered]:
    now_ms, topic_id = wall_ms(), topic_id_of(c, topic.name)
    found: dict[StrayKey, Remembered] = {}
    for broker, some in logs.items():
        known = c.strays.entries.get(key := StrayKey(broker, topic.name))
        more = Remembered({c.cluster.rows[i].partition: now_ms for i in some}, topic.czxid, topic_id)
        found[key] = added(known.content if known is not None else None, more)
    return found


def _entered(
    c: Controller,
    topic: Topic,
    logs: Mapping[int, Collection[int]],
    memories: Mapping[StrayKey, Remembered],
    wanted: GiveUp,
) -> None:
    """Enters written memories; the deletion goes on with the next event."""
    c.strays.entries = entered(c.strays.entries, memories)
    c.enter(WaitsGivenUp(topic.name, logs, wanted.principal, wanted.reason))
    log.warning(
        "deletion of %s does not wait for broker %s any more, as %s requested%s: the logs there are remembered, and "
        "deleted if it starts",
        topic.name,
        named(sorted(logs)),
        wanted.principal,
        f" ({wanted.reason})" if wanted.reason else "",
    )
    c.deletion_queue.resume([topic.index])
    c.queue.signal(EventKind.DELETION_PROGRESS)
