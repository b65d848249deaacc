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
from typing import Final, TypeVar
from weakref import ref

from controller.engine.controller import Controller
from controller.engine.event_kinds import EventKind
from controller.engine.stray_memory import Log
from controller.process.wall_clock import wall_ms
from controller.process.wording import counted
from controller.requests.calls import PendingStrays
from metadata_store.errors import Code, ZkError
from metadata_store.fencing.fenced import confirm, submit
from metadata_store.nodes.stray_nodes import PARTITIONS_MAX, Remembered, StrayKey, entered, ops, read_strays, without
from state_machines.decisions.strays import Fate, LogJudgement, judge_log
from state_machines.model.types import TopicPartition

log = logging.getLogger("regent.controller")

T = TypeVar("T")

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
    """Forgets replicas whose logs are gone or needed again, and sends StopReplica for the others to live brokers.

    Logs are deleted, so the claim is confirmed first.
    """
    await forget(c, await _over(c))
    if any(True for _ in _due(c)):
        await confirm(c.zk, c.fence)
        c.gate.check()
        await _send(c)
    if c.strays.on(c.cluster.brokers):
        _again_later(c)


def _due(c: Controller) -> Iterator[Log]:
    """Yields logs on live brokers, without those that are gone by now or rest."""
    memory, live = c.strays, c.cluster.brokers
    for key, name in memory.logs():
        known = key.broker, name
        if key.broker in live and known not in memory.stopped and known not in memory.resting:
            yield known


async def _send(c: Controller) -> None:
    """Sends StopReplica for the logs that are strays now; judges them in portions."""
    missed: dict[int, list[TopicPartition]] = {}
    async for some in _portions(c, _due(c)):
        due: dict[int, list[TopicPartition]] = {}
        for broker, name in some:
            if judged(c, broker, name).fate is Fate.STOP:
                due.setdefault(broker, []).append(name)
        for broker, names in due.items():
            missed.setdefault(broker, []).extend(name for name in names if (broker, name) not in c.strays.fenced)
            c.channels.stop_logs(broker, names)
    for broker, new in missed.items():
        if new:
            log.info(
                "broker %d missed the removal of %s, the first is %s: it is sent StopReplica, which deletes their logs",
                broker,
                counted(len(new), "replica"),
                new[0],
            )


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


async def _over(c: Controller) -> dict[Log, str]:
    """Returns the logs to forget, and why; judges them in portions."""
    found: dict[Log, str] = {}
    oldest_ms = wall_ms() - FORGOTTEN_MS_MIN
    async for some in _portions(c, c.strays.logs()):
        found |= _over_of(c, some, oldest_ms)
    return found


def _over_of(c: Controller, logs: Iterable[tuple[StrayKey, TopicPartition]], oldest_ms: int) -> dict[Log, str]:
    found: dict[Log, str] = {}
    for key, name in logs:
        since_ms = c.strays.entries[key].content.partitions[name.partition]
        if (key.broker, name) in c.strays.stopped:
            found[key.broker, name] = "its broker deleted the log"
        elif judged(c, key.broker, name).fate is Fate.ASSIGNED:
            found[key.broker, name] = "it is assigned again"
        elif since_ms < oldest_ms and key.broker not in c.cluster.brokers:
            found[key.broker, name] = "its broker did not return for 90 days"
    return found


async def forget(c: Controller, logs: Mapping[Log, str]) -> None:
    """Deletes memories, each under the condition that its znode did not change; a conflict reads all of them again."""
    memory, gone = c.strays, dict[StrayKey, set[int]]()
    for broker, name in logs:
        gone.setdefault(StrayKey(broker, name.topic), set()).add(name.partition)
    after = {key: without(memory.entries[key].content, numbers) for key, numbers in gone.items()}
    for some in _parts(after):
        try:
            failed: ZkError | None = await submit(c.zk, c.fence, ops(memory.entries, some))
        except ZkError as error:
            failed = error
        c.gate.check()
        if failed is None:
            memory.entries = entered(memory.entries, some)
            memory.forgotten([log for log in logs if StrayKey(log[0], log[1].topic) in some])
            continue
        if failed.code not in CONFLICTS:
            c.counters.failures[NOT_FORGOTTEN] += 1
            log.error("%s: %s at %s; check its ACL", NOT_FORGOTTEN, failed.code.name, failed.path)
            _again_later(c)
        else:
            memory.load(await read_strays(c.zk))
            c.gate.check()
            c.queue.signal(EventKind.STRAYS)
        return
    for (broker, name), why in list(logs.items())[:LOGGED_MAX]:
        log.info("the removed replica of %s on broker %d is not remembered any more: %s", name, broker, why)


def _parts(after: Mapping[StrayKey, Remembered]) -> Iterator[dict[StrayKey, Remembered]]:
    """Yields znodes, as many as fit into one multi: by their number, and by the partitions that they keep."""
    some: dict[StrayKey, Remembered] = {}
    kept = 0
    for key, content in after.items():
        if some and (len(some) == ZNODES_MAX or kept + len(content.partitions) > PARTITIONS_MAX):
            yield some
            some, kept = {}, 0
        some[key] = content
        kept += len(content.partitions)
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
