"""Takes up partitions whose malformed state znodes were written or deleted again."""

from __future__ import annotations

from functools import partial

from controller.kafka.journal.report import Reason
from controller.kafka.path.controller import Controller
from metadata_store import paths
from metadata_store.codecs.base import Malformed
from state_machines.decisions.topic_change import new_partitions
from state_machines.model.topic_facts import StatesRead
from state_machines.model.types import PartitionState, TopicPartition


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
