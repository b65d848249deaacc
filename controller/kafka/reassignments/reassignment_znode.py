"""Handles ``/admin/reassign_partitions``, the request of old tools: reads it, rewrites it as partitions are done.

Its writer may take a partition for done, or refused, once the znode no longer names it (S4-61).
"""

from __future__ import annotations

import logging
from collections.abc import Container
from typing import Final

from controller.kafka.path.controller import ConflictRounds, Controller
from controller.kafka.path.events import EventKind
from metadata_store import paths
from metadata_store.codecs.base import Malformed
from metadata_store.nodes.reassignment_node import Request, read_reassignments, write_reassignments
from state_machines.decisions.reassignment import unfinished
from state_machines.model.types import TopicPartition

log = logging.getLogger("regent.controller")

ROUNDS_MAX: Final = 10
"""Rewrites of the znode against other writers."""
CONTENDED: Final = "/admin/reassign_partitions could not be rewritten: check its ACL, and look for another writer"


async def read_request(c: Controller) -> Request | None:
    """Reads the znode, and watches it; a malformed one is reported and requests nothing."""
    path, since = paths.REASSIGN_PARTITIONS, c.zk.last_zxid
    found = await read_reassignments(c.zk)
    if found is None:
        await c.zk.watch(exists=[path], since_zxid=since)
    else:
        await c.zk.watch(data=[path], since_zxid=since)
    c.gate.check()
    if isinstance(found, Malformed):
        c.malformed(found)
        return None
    return found


async def withdraw(c: Controller, names: Container[TopicPartition]) -> None:
    """Removes targets that a later request by API replaces, before anything of that request is written.

    Otherwise the successor of a controller that dies in between would begin the znode's targets again. If another
    client writes the znode at the same time, that is the later request, and its own event will judge it.
    """
    request = c.reassignment_queue.request
    for _ in ConflictRounds(ROUNDS_MAX):
        if request is None or not any(name in names for name in request.targets):
            return
        left = {name: target for name, target in request.targets.items() if name not in names}
        if await _write(c, request, left):
            return
        request = await read_request(c)
    _contended(c)


async def shrink_request(c: Controller) -> None:
    """Removes done, refused, superseded and unusable targets; deletes the znode with the last of them."""
    request = c.reassignment_queue.request
    if request is None:
        return
    left = unfinished(c.cluster, request.targets)
    if left and len(left) == len(request.targets) and not request.unusable:
        return
    if await _write(c, request, left):
        return
    found = await read_request(c)
    if found is not None and found.version == request.version:
        _contended(c)
    else:
        c.queue.signal(EventKind.REASSIGN_PARTITIONS)


async def _write(c: Controller, request: Request, left: dict[TopicPartition, tuple[int, ...]]) -> bool:
    """Writes the remaining targets; a znode that another client wrote meanwhile has yet to be judged."""
    written = await write_reassignments(c.zk, request._replace(targets=left), c.fence)
    c.gate.check()
    judged = written and request is c.reassignment_queue.request
    after = Request(left, request.unknown, request.version + 1)
    c.reassignment_queue.request = after if judged and left else None
    return written


def _contended(c: Controller) -> None:
    c.counters.failures[CONTENDED] += 1
    log.error("%s", CONTENDED)
