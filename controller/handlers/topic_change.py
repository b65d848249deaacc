"""Topics come and go, partitions are added (S4-39..S4-43, S4-79, S4-85, S4-88).

A topic is started only from what was read back or written by us, after :mod:`controller.handlers.mending`.
"""

from __future__ import annotations

import logging
from functools import partial

from controller.controller import Controller
from controller.handlers.mending import Load, State, States, mend, read_new, warn_of_running
from metadata_store import paths
from metadata_store.kafka_store import Malformed
from state_machines.topic_change import new_partitions
from state_machines.types import PartitionState, TopicAssignment

log = logging.getLogger("regent.controller")


async def topic_change(c: Controller) -> None:
    """Children of ``/brokers/topics`` changed: new topics are started, vanished ones forgotten."""
    since = c.zk.last_zxid
    listed = await c.zk.children(paths.TOPICS)
    await c.zk.watch(children=[paths.TOPICS], since_zxid=since)
    c.term.check()
    found = set(listed[0]) if listed is not None else set()
    known = set(c.cluster.topic_index)
    for name in sorted(known - found):
        rows = c.cluster.observe_topic_gone(name)
        c.waiting_topics.discard(name)
        log.info("topic %s is gone from ZooKeeper: its %d partitions are forgotten", name, len(rows))
    await start_topics(c, sorted(found - known))


async def partition_modifications(c: Controller, name: str) -> None:
    """The data of a topic znode changed: added partitions are started; a recreated topic is a new incarnation."""
    since = c.zk.last_zxid
    [found] = await c.store.load_topics([name])
    c.term.check()
    known = c.cluster.topic(name)
    if isinstance(found, Malformed):
        c.malformed(found)
        await c.zk.watch(data=[paths.topic(name)], since_zxid=since)
        return
    if found is None or known is None:
        c.cluster.observe_topic_gone(name)
        c.queue.signal("topic_change")
        return
    if found.czxid != known.czxid:
        c.cluster.observe_topic_gone(name)
        await start_topics(c, [name])
        return
    await c.zk.watch(data=[paths.topic(name)], since_zxid=since)
    await start(c, [found])


async def start_topics(c: Controller, names: list[str]) -> None:
    """Reads topics that the model does not have, and starts their partitions."""
    if not names:
        return
    since = c.zk.last_zxid
    topics: list[TopicAssignment] = []
    for found in await c.store.load_topics(names):
        if isinstance(found, Malformed):
            c.malformed(found)
        elif found is not None:
            topics.append(found)
    await c.zk.watch(data=[paths.topic(name) for name in names], since_zxid=since)
    await start(c, topics)


async def start(c: Controller, topics: list[TopicAssignment]) -> None:
    """Brings topics in, tells what was found to run already, and elects leaders for what has none."""
    rows, states = await bring_in(c, topics)
    found = [(i, state) for i, state in zip(rows, states, strict=True) if not isinstance(state, Malformed)]
    c.observed([c.cluster.observe_leadership(i, state) for i, state in found if state is not None])
    waiting = [i for i, _ in found if c.cluster.rows[i].state is not PartitionState.ONLINE]
    if waiting:
        names = sorted({c.cluster.name(i).topic for i in waiting})
        shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
        await c.carry_out(partial(new_partitions, rows=waiting), f"{len(waiting)} new partitions of {shown}")


async def bring_in(c: Controller, topics: list[TopicAssignment]) -> tuple[list[int], list[State]]:
    """Enters topics into the model, mended where needed; returns the new rows and the state znodes read for them.

    The model changes only after the last read and write: where the connection is lost before, the event is repeated.
    """
    states: States = {}
    await read_new(c, topics, states)
    load = Load(c, topics)
    mended = await mend(c, topics, states, load)
    warn_of_running(c, mended, states)
    rows: list[int] = []
    found: list[State] = []
    for topic in mended:
        added, read = c.cluster.observe_topic(topic), states[topic.name]
        rows += added
        found += [read[c.cluster.rows[i].partition] for i in added]
    return rows, found


def load(c: Controller, rows: list[int], found: list[State]) -> None:
    """Initial states of rows; those of malformed znodes stay NonExistent, so that nothing is decided on them."""
    bad = {i for i, state in zip(rows, found, strict=True) if type(state) is Malformed}
    if bad:
        rows = [i for i in rows if i not in bad]
    c.cluster.load_leadership(rows, [state for state in found if not isinstance(state, Malformed)])
