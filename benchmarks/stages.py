"""Times the stages of a change by wrapping the functions at their seams, for as long as a ``with`` block lasts.

Stages do not overlap: where one seam is called inside another, its time counts for the inner one only.
"""

from __future__ import annotations

import pkgutil
import time
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Final, Self
from unittest import mock

STAGES: Final[dict[str, tuple[str, ...]]] = {
    "decode": (
        "metadata_store.kazoo_adapter.jute.decode_each",
        "metadata_store.kazoo_adapter.jute.nodes_each",
        "metadata_store.codecs.topic.TopicDecoder.decode",
    ),
    "model": (
        "state_machines.model.cluster.Cluster.observe_topic",
        "state_machines.model.cluster.Cluster.load_leadership",
        "state_machines.model.cluster.Cluster.observe_brokers",
        "state_machines.model.cluster.Cluster.observe_assignments",
        "state_machines.model.cluster.Cluster.observe_deletions",
    ),
    "decide": (
        "controller.kafka.term.failover.failover",
        "controller.kafka.brokers.broker_change.broker_death",
        "controller.kafka.brokers.broker_change.broker_return",
        "controller.kafka.partitions.controlled_shutdown.move_leaders",
        "controller.kafka.partitions.controlled_shutdown.stop_followers",
        "controller.kafka.reassignments.reassignment_requests.judge",
        "controller.kafka.reassignments.reassignment_requests.rewrites",
        "controller.kafka.reassignments.reassignment.final_rewrites",
        "controller.kafka.reassignments.reassignment.due",
        "controller.kafka.reassignments.reassignment.reassign",
        "controller.kafka.partitions.isr_changes.judge",
        "controller.kafka.partitions.isr_changes.alter_partitions",
        "controller.kafka.partitions.elections.judge",
        "controller.kafka.partitions.elections.elect",
        "controller.kafka.topics.topic_change.new_partitions",
        "controller.kafka.topics.deletion.advance",
        "controller.kafka.topics.deletion.answered",
        "state_machines.machines.draft.Draft.finish",
    ),
    "apply": ("state_machines.model.cluster.Cluster.apply", "state_machines.model.cluster.Cluster.apply_replicas"),
    "tell": ("brokers.outbound.channels.Channels.propagate", "brokers.outbound.channels.Channels.metadata_changed"),
    "requests": (
        "metadata_store.kazoo_adapter.jute.multi_read",
        "metadata_store.kazoo_adapter.jute.multi",
        "metadata_store.kazoo_adapter.jute.set_watches",
        "metadata_store.commits.state_commit.state_data",
    ),
    "encode": (
        "brokers.outbound.snapshot.encode_turn",
        "brokers.outbound.batches.Batcher.leader_and_isr",
        "brokers.outbound.batches.Batcher.update_metadata",
        "brokers.outbound.batches.Batcher.stop_replica",
    ),
    "gc": ("gc.collect", "gc.freeze", "gc.unfreeze"),
}


class Stages:
    """Wraps the seams inside a block ``with Stages() as stages``; :meth:`spent` returns seconds by stage."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._spent: dict[str, float] = {}
        self._running: list[str] = []
        self._since_s = 0.0

    def clear(self) -> None:
        """Resets the times."""
        self._spent = dict.fromkeys(STAGES, 0.0)

    def spent(self) -> dict[str, float]:
        """Returns seconds by stage since :meth:`clear`."""
        return dict(self._spent)

    def __enter__(self) -> Self:
        self.clear()
        for stage, seams in STAGES.items():
            for seam in seams:
                original = _resolve(seam)
                self._stack.enter_context(mock.patch(seam, self._timed(stage, original)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _timed(self, stage: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **more: Any) -> Any:
            self._switch(stage)
            try:
                return original(*args, **more)
            finally:
                self._switch(None)

        return timed

    def _switch(self, stage: str | None) -> None:
        now_s = time.thread_time()
        if self._running:
            self._spent[self._running[-1]] += now_s - self._since_s
        if stage is None:
            self._running.pop()
        else:
            self._running.append(stage)
        self._since_s = now_s


def _resolve(seam: str) -> Callable[..., Any]:
    found: Callable[..., Any] = pkgutil.resolve_name(seam)
    return found
