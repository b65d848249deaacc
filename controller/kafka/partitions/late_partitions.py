"""Handles partitions with a history that a term finds late: restored by hand, or not readable before."""

from __future__ import annotations

from functools import partial
from typing import Final

from controller.kafka.journal.report import Reason
from controller.kafka.path.controller import Controller
from controller.kafka.reassignments.reassignment import go_on
from controller.process.wording import abbreviate
from metadata_store import paths
from metadata_store.codecs.base import Malformed
from state_machines.decisions.failover import take_up
from state_machines.decisions.topic_change import new_partitions
from state_machines.model.topic_facts import StatesRead
from state_machines.model.types import PartitionState, TopicPartition

TURN_ROWS: Final = 10_000
"""Rows in one decision, which is one turn of the loop."""


async def late_partitions(c: Controller) -> None:
    """Writes another leader epoch for each, or a new leader where its own is gone, and sends that to brokers.

    Reassignments of these partitions go on from the present ISR.
    """
    rows = sorted(c.late)
    c.late.clear()
    for at in range(0, len(rows), TURN_ROWS):
        some = rows[at : at + TURN_ROWS]
        names = abbreviate(sorted({c.cluster.name(i).topic for i in some}))
        decide = partial(take_up, rows=some, unclean=c.unclean)
        await c.carry_out(decide, Reason.TAKEN_UP, f"{len(some)} partitions of {names} are taken up")
    moving = [i for i in rows if i in c.cluster.reassigning]
    await go_on(c, moving, f"{len(moving)} reassignments go on", again=True)


async def repaired_state(c: Controller, path: str) -> None:
    """Reads the state znode; one that is still malformed stays watched."""
    name = paths.partition_of_state(path)
    row = c.cluster.find(*name) if name is not None else None
    if name is None or row is None:
        return
    [found] = await c.read_states([TopicPartition(*name)])
    if isinstance(found, Malformed):
        return
    if found is not None:
        c.enter(StatesRead([(row, found)]))
        c.take_up([row])
    elif _is_unread(c, row):
        decide = partial(new_partitions, rows=[row])
        await c.carry_out(decide, Reason.NEW_TOPIC, f"{path} can be created again")


def _is_unread(c: Controller, row: int) -> bool:
    found = c.cluster.rows[row]
    return found.state is PartitionState.NON_EXISTENT and found.topic not in c.cluster.deletions
