"""Handles AllocateProducerIds (S4-87; KIP-730): gives out blocks of producer ids, never one twice."""

from __future__ import annotations

import logging

from brokers.wire.errors import Error
from brokers.wire.replies import AllocateProducerIdsReply
from controller.kafka.path.controller import Controller
from controller.kafka.requests.calls import PendingProducerIds
from metadata_store import paths
from metadata_store.codecs.base import Malformed
from metadata_store.nodes import cluster_nodes
from metadata_store.nodes.cluster_nodes import Contended, Exhausted

log = logging.getLogger("regent.controller")


async def allocate_producer_ids(c: Controller, pending: PendingProducerIds) -> None:
    """Allocates one block per conditional write; it skips a block whose write has an unknown outcome."""
    call = pending.call
    broker = c.cluster.brokers.get(call.broker_id)
    if broker is None:
        pending.answer(AllocateProducerIdsReply(Error.BROKER_ID_NOT_REGISTERED))
        return
    if broker.epoch != call.broker_epoch:
        pending.answer(AllocateProducerIdsReply(Error.STALE_BROKER_EPOCH))
        return
    try:
        block = await cluster_nodes.allocate_producer_ids(c.zk, call.broker_id, c.fence)
        c.gate.check()
        if isinstance(block, Malformed):
            c.malformed(block)
            pending.answer(AllocateProducerIdsReply(Error.UNKNOWN_SERVER_ERROR))
            return
        c.counters.malformed.pop(paths.PRODUCER_IDS, None)
        pending.answer(AllocateProducerIdsReply(Error.NONE, block.start, block.end - block.start + 1))
    except Contended:
        pending.answer(AllocateProducerIdsReply(Error.REQUEST_TIMED_OUT))
    except Exhausted as exhausted:
        log.error("broker %d gets no producer ids: %s", call.broker_id, exhausted)
        pending.answer(AllocateProducerIdsReply(Error.UNKNOWN_SERVER_ERROR))
    finally:
        pending.refuse()
