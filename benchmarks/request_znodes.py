"""Writes the znodes by which people and old tools send requests to either controller, and reads their completion.

``/admin/reassign_partitions``, ``/admin/preferred_replica_election``, topic znodes, ``/admin/delete_topics``.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable, Iterator
from typing import Final

from benchmarks.datasets import DataSet
from benchmarks.oracle import Oracle
from benchmarks.znodes import in_multis, topic_text
from metadata_store import paths
from metadata_store.codecs.notifications import encode_partitions
from metadata_store.nodes.reassignment_node import encode_reassignments
from metadata_store.port import Create, Node, Op, ZooKeeper
from state_machines.model.types import TopicPartition

ELECTIONS_MAX: Final = 25_000
"""Partitions of one request for elections: ZooKeeper accepts a megabyte in one znode."""
POLL_S_MIN: Final = 0.005
POLL_S_MAX: Final = 0.05
_POLL_SHARE: Final = 0.01

_REQUESTS: Final = (paths.REASSIGN_PARTITIONS, paths.PREFERRED_ELECTION)


async def ask_for_reassignments(zk: ZooKeeper, oracle: Oracle, targets: dict[int, tuple[int, ...]]) -> None:
    """Writes one request for all reassignments, by row."""
    named = {TopicPartition(*oracle.data.name(row)): target for row, target in targets.items()}
    await zk.create(paths.REASSIGN_PARTITIONS, encode_reassignments(named))


async def ask_for_elections(zk: ZooKeeper, oracle: Oracle, rows: Iterable[int]) -> None:
    """Writes one request for preferred leaders."""
    named = [TopicPartition(*oracle.data.name(row)) for row in rows]
    await zk.create(paths.PREFERRED_ELECTION, encode_partitions(named))


async def create_topics(zk: ZooKeeper, added: DataSet) -> None:
    """Creates topics as brokers do: a configuration and an assignment for each."""
    await in_multis(zk, _topics(added))


def _topics(added: DataSet) -> Iterator[Op]:
    for number, name in enumerate(added.topics):
        yield Create(paths.topic_config(name), b'{"version":1,"config":{}}')
        yield Create(paths.topic(name), topic_text(name, added.replicas[added.rows_of(number)]))


async def delete_topics(zk: ZooKeeper, added: DataSet) -> None:
    """Writes a deletion marker for each topic."""
    await in_multis(zk, (Create(paths.deletion(name), None) for name in added.topics))


async def until_gone(zk: ZooKeeper, path: str, s_max: float) -> float:
    """Returns when the request was gone, on the monotonic clock; raises TimeoutError.

    The result is exact to a hundredth of the wait, or to some milliseconds.
    """
    return await _until(zk, path, s_max, children=False)


async def until_empty(zk: ZooKeeper, path: str, s_max: float) -> float:
    """Returns when the children of ``path`` were gone; raises TimeoutError."""
    return await _until(zk, path, s_max, children=True)


async def _until(zk: ZooKeeper, path: str, s_max: float, *, children: bool) -> float:
    began_s = time.monotonic()
    while True:
        stat = await zk.exists(path)
        now_s = time.monotonic()
        if stat is None or (children and not stat.num_children):
            return now_s
        if now_s - began_s > s_max:
            raise TimeoutError(f"{path} is still there after {s_max:g} s")
        await asyncio.sleep(min(POLL_S_MAX, max(POLL_S_MIN, _POLL_SHARE * (now_s - began_s))))


async def left_over(zk: ZooKeeper, oracle: Oracle, *, shown_max: int = 5) -> list[str]:
    """Lists the first unexpected topic znodes, and requests that should have gone."""
    wrong = [] if oracle.targets else [f"{path} is there" for path in _REQUESTS if await zk.exists(path) is not None]
    numbers = sorted({row // oracle.data.shape.per_topic for row in oracle.rewritten})
    found = await zk.read_many([paths.topic(oracle.data.topics[number]) for number in numbers])
    for number, node in zip(numbers, found, strict=True):
        wrong += _topic_differences(oracle, number, node)
    listed = await zk.children(paths.TOPICS)
    names = set(listed[0]) if listed is not None else set()
    strangers = sorted(names.symmetric_difference(oracle.data.topics))
    configs = await zk.children(paths.topic_config("").rstrip("/"))
    strangers += sorted(set(configs[0] if configs is not None else ()) - set(oracle.data.topics))
    return [*wrong, *(f"topic {name} is there and should not be, or the reverse" for name in strangers)][:shown_max]


def _topic_differences(oracle: Oracle, number: int, node: object) -> list[str]:
    name = oracle.data.topics[number]
    if not isinstance(node, Node):
        return [f"topic {name}: {node}"]
    fields = json.loads(node.data or b"{}")
    rows = range(*oracle.data.rows_of(number).indices(len(oracle.assigned)))
    origins = {row: oracle.data.replicas[row] for row in rows if row in oracle.targets}
    adding = {row: [b for b in oracle.targets[row] if b not in origin] for row, origin in origins.items()}
    removing = {row: [b for b in origin if b not in oracle.targets[row]] for row, origin in origins.items()}
    expected = {
        "partitions": {row: list(oracle.assigned[row]) for row in rows},
        "adding_replicas": adding,
        "removing_replicas": removing,
    }
    wrong = []
    for field, by_row in expected.items():
        right = {str(oracle.data.name(row)[1]): found for row, found in by_row.items()}
        if fields.get(field, {}) != right:
            wrong.append(f"topic {name}: {field} {fields.get(field)} where {right} is right")
    return wrong
