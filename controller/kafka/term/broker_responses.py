"""Counts and logs brokers' responses in a term; some of them end it.

A broker that has seen a higher controller epoch may have it from another cluster's controller that found it at a
recycled address. Then the cluster is sound: elections take that broker last (:mod:`state_machines.machines.selectors`).
Or it obeys our successor already, so the claim is compared with ZooKeeper. Where more than half of the live brokers
report it, ZooKeeper's epoch is behind. One broker alone proves nothing about a cluster whose other brokers are down and
come back.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from brokers.outbound.delivery import BrokerResponse, ChannelFailed, LogsStopped
from brokers.wire.errors import Error, error_name
from brokers.wire.versions import Api
from controller.kafka.brokers.log_directories import Failed
from controller.kafka.metrics.values import Counters
from controller.kafka.path.events import EventKind, EventQueue
from controller.kafka.term.claim_monitor import ClaimMonitor
from controller.process.clock import wall_ms
from state_machines.model.cluster import Cluster
from state_machines.model.facts import (
    NOTHING,
    Entered,
    Fact,
    HigherEpochTold,
    IdRefused,
    LeadersAnswered,
    LogsDeleted,
    RequestAccepted,
)

log = logging.getLogger("regent.role")

STALE_CONTROLLER_EPOCH: Final = 11
REMEDIES: Final[Mapping[int, str]] = {
    Error.INCONSISTENT_TOPIC_ID: "its logs have another topic id than the topic's znode, as of an earlier topic of "
    "this name: regent explain TOPIC PARTITION has the safe way out",
}
"""Remedies where a broker refuses partitions."""


class Outranked:
    """Notes the brokers of one term that responded STALE_CONTROLLER_EPOCH, until they restart or accept a request."""

    def __init__(self, cluster: Cluster, enter: Callable[[Fact], Entered]) -> None:
        self._cluster = cluster
        self._enter = enter

    @property
    def brokers(self) -> list[int]:
        """Returns the ids of these brokers."""
        return sorted(self._cluster.outranked)

    @property
    def most(self) -> bool:
        """Checks whether they are most of the live brokers; one does not suffice where others have replicas."""
        say_so, live = len(self._cluster.outranked), self._cluster.brokers.keys()
        return 2 * say_so > len(live) and (say_so > 1 or len(live | self._cluster.hosts()) == 1)

    def says_so(self, broker: int, broker_epoch: int) -> bool:
        """Notes a STALE_CONTROLLER_EPOCH response; returns whether it is the first of this incarnation of the broker.

        The first one is logged as an error. Responses of an earlier incarnation do not count.
        """
        if self._enter(HigherEpochTold(broker, broker_epoch)) is NOTHING:
            return False
        log.error(
            "broker %d answers STALE_CONTROLLER_EPOCH: it has seen a controller epoch above ours (%d), and does "
            "nothing that this controller sends; leaderships go to it last. Remedy: restart that broker, which makes "
            "it forget the epoch; then look for the controller of another cluster that has its address among its "
            "brokers",
            broker,
            self._cluster.epoch,
        )
        return True

    def accepts(self, broker: int) -> None:
        """Removes a broker that executed a request."""
        if broker in self._cluster.outranked:
            self._enter(RequestAccepted(broker))


class BrokerResponses:
    """Handles brokers' responses. ``end`` ends the term, ``stopped`` takes the responses to StopReplica by row.

    ``logs_stopped`` takes those by name, ``enter`` the facts; ``queue`` gets an event for failed log directories.
    """

    def __init__(
        self,
        cluster: Cluster,
        enter: Callable[[Fact], Entered],
        claim_monitor: ClaimMonitor,
        counters: Counters,
        end: Callable[[str], None],
        stopped: Callable[[BrokerResponse], None],
        queue: EventQueue,
        logs_stopped: Callable[[LogsStopped], None],
    ) -> None:
        self._cluster = cluster
        self._enter = enter
        self._claim_monitor = claim_monitor
        self._counters = counters
        self._end = end
        self._stopped = stopped
        self._queue = queue
        self._logs_stopped = logs_stopped
        self._refused: set[tuple[int, str]] = set()
        self.outranked = Outranked(cluster, enter)

    def on_response(self, answer: BrokerResponse | LogsStopped | ChannelFailed) -> None:
        """Takes a broker's response, or the end of a channel by an error."""
        if isinstance(answer, ChannelFailed):
            self._end(f"error: the channel to broker {answer.broker_id} failed: {answer.reason}")
            return
        if isinstance(answer, LogsStopped):
            self._logs_refused(answer)
            self._logs_stopped(answer)
            return
        if answer.error:
            self._counters.answers[f"{answer.api.name}: {error_name(answer.error)}"] += 1
        if answer.api is Api.STOP_REPLICA:
            self._deleted(answer)
            self._stopped(answer)
        for error, count in Counter(error for _, error in answer.failed).items():
            self._partitions_refused(answer, error, count)
        if answer.api is Api.LEADER_AND_ISR:
            self._storage_failed(answer)
            self._judged(answer)
        if answer.error == STALE_CONTROLLER_EPOCH:
            first = self.outranked.says_so(answer.broker_id, answer.broker_epoch)
            if self.outranked.most:
                self._claim_monitor.outranked()
            elif first:
                self._claim_monitor.doubt()
        elif not answer.error:
            self.outranked.accepts(answer.broker_id)

    def _deleted(self, answer: BrokerResponse) -> None:
        """Enters the logs that a broker has deleted, which may end the doubt of a topic's id."""
        if answer.error or not self._cluster.ids_refused or not isinstance(answer.rows, Mapping):
            return
        failed = {row for row, _ in answer.failed}
        deleted = [row for row, is_deleted in answer.rows.items() if is_deleted and row not in failed]
        self._enter(LogsDeleted(answer.broker_id, deleted))

    def _logs_refused(self, answer: LogsStopped) -> None:
        """Counts logs that a broker refused to delete in an accepted request; logs each broker and error once."""
        for error, count in Counter(answer.refused.values()).items() if not answer.error else ():
            what = f"{Api.STOP_REPLICA.name} partition: {error_name(error)}"
            self._counters.answers[what] += count
            if (answer.broker_id, what) not in self._refused:
                self._refused.add((answer.broker_id, what))
                first = next(name for name, code in answer.refused.items() if code == error)
                log.warning(
                    "broker %d refused to delete %d logs by %s, the first is %s; they are tried again after a while, "
                    "and when it restarts",
                    answer.broker_id,
                    count,
                    error_name(error),
                    first,
                )

    def _storage_failed(self, answer: BrokerResponse) -> None:
        rows = tuple(row for row, error in answer.failed if error == Error.KAFKA_STORAGE_ERROR)
        if rows:
            self._queue.signal(EventKind.REPLICAS_FAILED, Failed(answer.broker_id, answer.broker_epoch, rows))

    def _judged(self, answer: BrokerResponse) -> None:
        """Enters which rows a broker refused and accepted; failed log directories are entered by another event."""
        known = self._cluster.brokers.get(answer.broker_id)
        if answer.error or known is None or known.epoch != answer.broker_epoch:
            return
        refused = {row: error for row, error in answer.failed if error != Error.KAFKA_STORAGE_ERROR}
        before = bool(self._cluster.refusals.on(answer.broker_id))
        self._enter(LeadersAnswered(answer.broker_id, answer.rows, refused, wall_ms()))
        if before and not self._cluster.refusals.on(answer.broker_id):
            self._refused = {one for one in self._refused if one[0] != answer.broker_id}
            log.info("broker %d refuses no partition any more", answer.broker_id)

    def _partitions_refused(self, answer: BrokerResponse, error: int, count: int) -> None:
        """Counts partitions that a broker refused in an accepted request; logs each broker and error once."""
        what = f"{answer.api.name} partition: {error_name(error)}"
        self._counters.answers[what] += count
        if error == Error.INCONSISTENT_TOPIC_ID:
            self._enter(IdRefused(answer.broker_id, [row for row, code in answer.failed if code == error]))
        if (answer.broker_id, what) not in self._refused:
            self._refused.add((answer.broker_id, what))
            log.warning(
                "broker %d refused %s for %d partitions, the first is %s; %s",
                answer.broker_id,
                what,
                count,
                self._cluster.name(next(row for row, code in answer.failed if code == error)),
                REMEDIES.get(error, "see its log"),
            )
