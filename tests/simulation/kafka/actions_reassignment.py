"""Requests reassignments as operators do: by call through an admin endpoint, and by znode with old tools."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from brokers.listener.controller_listener import NotController
from controller.kafka.requests.calls import Calls
from controller.kafka.requests.values import AlterReassignments, ListReassignments
from metadata_store import paths
from metadata_store.errors import ZkError
from metadata_store.nodes.reassignment_node import encode_reassignments
from state_machines.model.types import TopicPartition
from tests.simulation.kafka import faults
from tests.simulation.kafka.acting import Acting, ids
from tests.simulation.kafka.liveness import PATIENCE_S

if TYPE_CHECKING:
    from tests.simulation.kafka.daemons import DaemonNode

CANCEL: Final = "-"


class ReassignmentActions(Acting):
    """Requests reassignments. Each word is ``topic/partition/replicas``; ``-`` as replicas cancels."""

    def do_reassign(self, *words: object) -> None:
        """Calls the active daemon."""
        daemon = self.w.serving_daemon()
        if daemon is not None and daemon.term is not None:
            self.w.operate(self._call(daemon, Calls(daemon.term.queue), dict(map(_target, words))))

    async def _call(
        self, daemon: DaemonNode, calls: Calls, targets: dict[TopicPartition, tuple[int, ...] | None]
    ) -> None:
        with suppress(NotController, TimeoutError), self.w.liveness.call("reassign", daemon):
            async with asyncio.timeout(PATIENCE_S):
                refused = (await calls.alter_reassignments(AlterReassignments(targets))).refused
                self.w.trace(f"reassigned {targets}, refused {[(name, why.error) for name, why in refused.items()]}")
                for name in targets.keys() - refused.keys():
                    cancels = targets[name] is None
                    self.w.happened(faults.OPERATOR_CANCELLED if cancels else faults.OPERATOR_REASSIGNED)
                await calls.list_reassignments(ListReassignments())

    def do_reassign_by_znode(self, *words: object) -> None:
        """Creates the znode, unless it exists."""
        targets = {name: target for name, target in map(_target, words) if target is not None}
        self.w.operate(self._create_request(encode_reassignments(targets)))

    async def _create_request(self, data: bytes) -> None:
        with suppress(ZkError):
            await self.w.operator.create(paths.REASSIGN_PARTITIONS, data)
            self.w.happened(faults.OPERATOR_ZNODE)


def _target(word: object) -> tuple[TopicPartition, tuple[int, ...] | None]:
    topic, partition, replicas = str(word).split("/")
    return TopicPartition(topic, int(partition)), None if replicas == CANCEL else ids(replicas)
