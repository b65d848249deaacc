"""Has brokers delete the replicas that they missed to stop, and remembers these until then.

A replica that was removed while its broker was away leaves its log there, and no assignment names it any more. So the
multi that takes the replica out of the topic znode also writes it into ``/regent/strays``. Once its broker is there,
the log is judged, StopReplica by name follows, and only its acknowledgement ends the memory. A term that dies at any
moment leaves one of the two: the assignment that names the replica, or the memory of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, TypeAlias, TypeVar
from weakref import ref

from controller.kafka.path.controller import Controller
from controller.kafka.path.events import EventKind
from controller.kafka.path.remembered import Log, StrayMemory
from controller.kafka.requests.calls import PendingStrays
from controller.process.clock import wall_ms
from controller.process.wording import counted
from metadata_store.errors import Code, ZkError
from metadata_store.fencing.fenced import confirm, submit
from metadata_store.nodes.stray_nodes import (
    ENTRIES_MAX,
    PARENT,
    PARTITIONS_MAX,
    Remembered,
    StrayKey,
    entered,
    ops,
    read_strays,
    without,
)
from metadata_store.port import Create
from state_machines.decisions.strays import Fate, LogJudgement, judge_log
from state_machines.model.types import TopicPartition

log = logging.getLogger("regent.controller")

T = TypeVar("T")
Over: TypeAlias = dict[StrayKey, dict[int, str]]
"""Why replicas are forgotten, by the partitions of each znode."""

AGAIN_S: Final = 60.0
"""Pause before logs are judged again that waited, or that their broker refused to delete."""
FORGOTTEN_MS_MIN: Final = 90 * 24 * 3_600_000
"""Age at which a replica on a broker that never returned is forgotten: 90 days."""
TURN_LOGS: Final = 10_000
"""Logs that are judged in one turn of the loop."""
ZNODES_MAX: Final = 100
"""Znodes that one multi forgets."""
LOGGED_MAX: Final = 20
"""Forgotten replicas that are logged at once."""
CONFLICTS: Final = (Code.BAD_VERSION, Code.NODE_EXISTS, Code.NO_NODE)
NOT_REGISTERED: Final = "the broker is not registered"
NOT_FORGOTTEN: Final = "the memory of a removed replica cannot be deleted: each term has its log deleted again"


async def load_strays(c: Controller) -> None:
    """Reads the remembered replicas; a znode that is not understood stays as it is."""
    found = await read_strays(c.zk)
    for bad in found.unread:
        c.malformed(bad)
    c.strays.load(found)
    known = ref(c)  # the channels, which the controller refers to, must not keep it in memory

    def judge(broker: int, names: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        controller = known()
        return {} if controller is None else deletable(controller, broker, names)

    c.channels.judge_logs_by(judge)


# -- memories that are to be written


async def ensure_parent(c: Controller) -> None:
    """Creates the parent of the memories where this term knows of none."""
    if not c.strays.parent:
        error = await c.write_singly(Create(PARENT, b""))
        c.strays.parent = error is None or error.code is Code.NODE_EXISTS


def topic_id_of(c: Controller, name: str) -> str:
    """Returns the id of a topic as memories have it."""
    topic = c.cluster.topic(name)
    return topic.topic_id.hex() if topic is not None and topic.topic_id is not None else ""


def unwritable(c: Controller, memories: dict[StrayKey, Remembered]) -> str | None:
    """Returns why the memories cannot be written, None where they can."""
    if PARENT in c.strays.unread:
        return f"{PARENT} cannot be read: check its ACL"
    if not c.strays.parent:
        return f"{PARENT} cannot be created: check the ACL of the znode above it"
    for key, content in memories.items():
        if key.path in c.strays.unread:
            return f"{key.path} is not understood: repair or delete it"
        if len(content.partitions) > PARTITIONS_MAX:
            instead = f"start broker {key.broker}, or an empty one with its id"
            return f"{key.path} would have more than {PARTITIONS_MAX} partitions: {instead}"
    if len(c.strays.entries.keys() | memories.keys()) > ENTRIES_MAX:
        return f"{PARENT} would have more than {ENTRIES_MAX} children: start these brokers, or delete their children"
    return None


# -- logs that brokers are to delete


def judged(c: Controller, broker: int, name: TopicPartition) -> LogJudgement:
    """Judges a log on a broker by the present model."""
    known = c.strays.entries.get(StrayKey(broker, name.topic))
    czxid = known.content.czxid if known is not None and name.partition in known.content.partitions else None
    unread = () if name.topic in c.cluster.topic_index else c.unread_topics
    return judge_log(c.cluster, broker, name, unread, czxid=czxid, with_ids=c.ibp.topic_ids)


def deletable(c: Controller, broker: int, names: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    """Returns the logs that a broker may be sent StopReplica for at this moment, with their leader epochs."""
    found = {name: judged(c, broker, name) for name in names}
    return {name: judgement.leader_epoch for name, judgement in found.items() if judgement.fate is Fate.STOP}


# -- brokers that are there


async def stop_strays(c: Controller) -> None:
    """Forgets replicas whose logs are gone or needed again, and sends StopReplica for the others to live brokers."""
    await _forget(c, await _over(c))
    await _send(c)
    if c.strays.on(c.cluster.brokers):
        _again_later(c)


async def _send(c: Controller) -> None:
    """Sends StopReplica for the logs that are strays now; judges them in portions.

    Logs are deleted, so the claim is confirmed before the first ones are judged.
    """
    missed: dict[int, list[TopicPartition]] = {}
    confirmed = False
    async for some in _portions(c, c.strays.logs(c.cluster.brokers)):
        logs = [(key.broker, name) for key, name in some]
        due = [one for one in logs if one not in c.strays.stopped and one not in c.strays.resting]
        if due and not confirmed:
            await confirm(c.zk, c.fence)
            c.gate.check()
            confirmed = True
        _stop(c, due, missed)
    for broker, new in missed.items():
        if new:
            log.info(
                "broker %d missed the removal of %s, the first is %s: it is sent StopReplica, which deletes their logs",
                broker,
                counted(len(new), "replica"),
                new[0],
            )


def _stop(c: Controller, due: Iterable[Log], missed: dict[int, list[TopicPartition]]) -> None:
    """Sends StopReplica for those of the logs that are strays; adds those that are news to ``missed``."""
    strays: dict[int, list[TopicPartition]] = {}
    for broker, name in due:
        if judged(c, broker, name).fate is Fate.STOP:
            strays.setdefault(broker, []).append(name)
    for broker, names in strays.items():
        missed.setdefault(broker, []).extend(name for name in names if (broker, name) not in c.strays.fenced)
        c.channels.stop_logs(broker, names)


async def _portions(c: Controller, logs: Iterable[T]) -> AsyncIterator[list[T]]:
    """Yields logs in portions, each in a turn of the loop of its own: no other handler runs in between."""
    left = iter(logs)
    while some := list(islice(left, TURN_LOGS)):
        yield some
        await asyncio.sleep(0)
        c.gate.check()


def _again_later(c: Controller) -> None:
    """Has the logs that are left judged again after a while."""

    async def signal() -> None:
        await asyncio.sleep(AGAIN_S)
        c.strays.timer = False
        c.strays.resting.clear()
        c.queue.signal(EventKind.STRAYS)

    if not c.strays.timer:
        c.strays.timer = True
        c.spawn(signal())


# -- the end of a memory


async def _over(c: Controller) -> Over:
    """Returns the logs to forget, and why; judges them in portions."""
    found: Over = {}
    oldest_ms = wall_ms() - FORGOTTEN_MS_MIN
    async for some in _portions(c, c.strays.logs()):
        for key, name in some:
            if (why := _why_over(c, key, name, oldest_ms)) is not None:
                found.setdefault(key, {})[name.partition] = why
    return found


def _why_over(c: Controller, key: StrayKey, name: TopicPartition, oldest_ms: int) -> str | None:
    """Returns why a log is forgotten; None where it is still to be remembered."""
    if (key.broker, name) in c.strays.stopped:
        return "its broker deleted the log"
    if judged(c, key.broker, name).fate is Fate.ASSIGNED:
        return "it is assigned again"
    if c.strays.entries[key].content.partitions[name.partition] < oldest_ms and key.broker not in c.cluster.brokers:
        return "its broker did not return for 90 days"
    return None


async def _forget(c: Controller, over: Over) -> None:
    """Deletes memories, each under the condition that its znode did not change; a conflict reads all of them again.

    Each multi has a turn of the loop of its own.
    """
    memory = c.strays
    for keys in _parts(memory, over):
        after = {key: without(memory.entries[key].content, over[key]) for key in keys}
        try:
            failed: ZkError | None = await submit(c.zk, c.fence, ops(memory.entries, after))
        except ZkError as error:
            failed = error
        c.gate.check()
        if failed is not None:
            await _not_forgotten(c, failed)
            return
        memory.entries = entered(memory.entries, after)
        memory.forgotten((key.broker, TopicPartition(key.topic, number)) for key in keys for number in over[key])
        await asyncio.sleep(0)
        c.gate.check()
    every = ((key, number, why) for key, reasons in over.items() for number, why in reasons.items())
    for (broker, topic), number, why in islice(every, LOGGED_MAX):
        name = TopicPartition(topic, number)
        log.info("the removed replica of %s on broker %d is not remembered any more: %s", name, broker, why)


async def _not_forgotten(c: Controller, failed: ZkError) -> None:
    """Reads the memories again where another client wrote them; else has all of it tried again later."""
    if failed.code in CONFLICTS:
        c.strays.load(await read_strays(c.zk))
        c.gate.check()
        c.queue.signal(EventKind.STRAYS)
        return
    c.counters.failures[NOT_FORGOTTEN] += 1
    log.error("%s: %s at %s; check its ACL", NOT_FORGOTTEN, failed.code.name, failed.path)
    _again_later(c)


def _parts(memory: StrayMemory, keys: Iterable[StrayKey]) -> Iterator[list[StrayKey]]:
    """Yields znodes, as many as fit into one multi and one turn: by their number, and by the partitions they have."""
    some: list[StrayKey] = []
    held = 0
    for key in keys:
        count = len(memory.entries[key].content.partitions)
        if some and (len(some) == ZNODES_MAX or held + count > PARTITIONS_MAX):
            yield some
            some, held = [], 0
        some.append(key)
        held += count
    if some:
        yield some


# -- removals by operators


async def remove_strays(c: Controller, pending: PendingStrays) -> None:
    """Handles a call: has a broker delete strays by name; responses reach the removal by themselves."""
    removal = pending.call
    try:
        await confirm(c.zk, c.fence)
        c.gate.check()
        found = {name: judged(c, removal.broker, name) for name in removal.left}
        removal.end({name: judgement.why for name, judgement in found.items() if judgement.fate is not Fate.STOP})
        if removal.left:
            c.strays.removals.append(removal)
            if not c.channels.stop_logs(removal.broker, removal.left):
                removal.end(dict.fromkeys(removal.left, NOT_REGISTERED))
        pending.answer(None)
    finally:
        pending.refuse()
