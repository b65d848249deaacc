"""Writes a new topic's znodes as a broker that auto-creates topics does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from metadata_store import paths
from metadata_store.codecs.config import encode_config
from metadata_store.codecs.topic import encode_topic
from metadata_store.port import Create, Op, SetData, ZooKeeper
from state_machines.model.types import Assignment


async def create_topic(
    zk: ZooKeeper,
    name: str,
    assignment: Mapping[int, Sequence[int]],
    topic_id: bytes | None = None,
    config: Mapping[str, str] | None = None,
) -> None:
    """Writes the znodes of a new topic as a broker's auto-creation does; the controller starts it.

    Raises ``ZkError`` with NODE_EXISTS where the topic exists.
    """
    data = encode_topic({p: Assignment(tuple(replicas)) for p, replicas in assignment.items()}, topic_id)
    settings = encode_config(config or {})
    stale = await zk.exists(paths.topic_config(name))
    first: Op = (
        Create(paths.topic_config(name), settings)
        if stale is None
        else SetData(paths.topic_config(name), settings, stale.version)
    )
    await zk.multi([first, Create(paths.topic(name), data)])
