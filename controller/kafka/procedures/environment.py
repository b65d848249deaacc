"""Gives the steps of procedures on a Kafka cluster their environment, and has what several kinds do with it.

Brokers are queried beside the event queue for what plans and rolling restarts must know before they decide: the sizes
of partitions that other clients reassign, for a plan's caps in bytes, and ``min.insync.replicas``. The status for
operators reads the latter, too, but may not have looked yet when a term begins.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from brokers.client import BrokerCallFailed
from brokers.loads import PARTITIONS_PER_REQUEST_MAX, ReplicaSize, sizes_on
from brokers.queries import Dial
from controller.kafka.path.controller import Controller
from controller.kafka.path.gate import TermEnded
from controller.kafka.path.topic_settings import read_min_isr
from controller.kafka.procedures.throttle_looks import CatchUps, RatePacer
from controller.kafka.reassignments.topic_rewrites import observe_rewrites
from controller.procedures.broadcast import Responses
from metadata_store.errors import NotConnected, SessionLost
from metadata_store.records.zookeeper import ZooKeeperRecords
from state_machines.decisions.drain import Leading
from state_machines.decisions.plan_progress import ReassignPlan
from state_machines.decisions.restarts import RestartPlan
from state_machines.model.decision import TopicChange
from state_machines.model.facts import MinIsrRead
from state_machines.model.types import TopicPartition
from state_machines.procedures.kernel import Change
from state_machines.procedures.record import Record

log = logging.getLogger("regent.procedures")

REPORT_S_MAX: Final = 5.0
"""Longest wait for the report of one leader."""
LOOK_MS: Final = 500
"""Pause of a step while the brokers are queried."""
LOOK_AGAIN_MS: Final = 100
"""Pause of a procedure while brokers are behind."""
BEHIND_S_MAX: Final = 10.0
"""Age of a broker's oldest unacknowledged change after which no procedure waits for it any more."""


class KafkaEnv(NamedTuple):
    """What steps work with: the controller of a term, the store of its procedures, the wall clock in milliseconds."""

    controller: Controller
    records: ZooKeeperRecords
    now_ms: Callable[[], int]
    foreign: ForeignSizes
    guard: MinIsrGuard
    unwritable: dict[str, str]
    """Topics whose znodes ZooKeeper refuses to write in this term, and why."""
    responses: Responses
    """Messages of procedures to brokers that are under way, and their responses."""
    judged: dict[int, RestartPlan]
    """The latest judgement of each rolling restart, until its step takes it."""
    leading: dict[int, Leading]
    """Leaders of brokers as each drain that moves leaders has counted them in this term."""
    pacer: RatePacer
    """Keeps throttles of plans between their bounds."""
    catch_ups: CatchUps
    """Finds replicas that leave the lists of a throttled plan before they have caught up."""
    live: Callable[[], Iterable[Record]]
    """Returns the records of procedures that have not ended, as the next write finds them."""
    known: Callable[[], Iterable[Record]]
    """Returns the durable records of procedures and recorded calls, also of those that have ended."""


async def rewrite_with_record(env: KafkaEnv, changes: Sequence[TopicChange], change: Change) -> str | None:
    """Rewrites topic znodes and the record of a procedure in one multi; returns why nothing was written, else None.

    Topics that another client changed are read back, so that the step decides anew. Raises Fenced and TermEnded, and
    ``MultiFailed`` where the record cannot be written.
    """
    c = env.controller
    await c.connected()
    companion = env.records.ops(change.puts, change.deletes)
    try:
        outcome = await c.store.commit_topics_with(changes, c.fence, companion)
    except NotConnected:
        c.gate.check()
        return "the connection to ZooKeeper was lost"
    applied = len(outcome.applied) == len(changes)
    if not applied and (outcome.unknown or outcome.gone):  # a topic that was created again may have been written
        applied = await c.until_read(lambda: env.records.stands(change.puts))
    await observe_rewrites(c, changes, outcome)
    if applied:
        env.records.written(change.puts, change.deletes)
        return None
    for topic, code in outcome.refused:
        env.unwritable[topic] = f"ZooKeeper refused the write ({code.name}): check jute.maxbuffer and the znode's ACL"
    if outcome.refused:
        return f"ZooKeeper refused topics {sorted(topic for topic, _ in outcome.refused)}"
    return "another client changed the topics at the same time"


def brokers_are_behind(env: KafkaEnv, partitions_max: int) -> bool:
    """Checks whether a broker that can be reached has yet to acknowledge more than so many partitions."""
    lags = env.controller.channels.lag().values()
    return any(lag.partitions > partitions_max and lag.oldest_s < BEHIND_S_MAX and not lag.unreachable for lag in lags)


# -- what steps must know before they decide


class ForeignSizes:
    """Sizes by partition. One that no leader reports counts as 0 bytes: it holds up no plan.

    A leader is queried once for each reassignment. Until it has responded the plan begins nothing.
    """

    def __init__(self) -> None:
        self.known: dict[TopicPartition, int] = {}
        self._reading = False

    def are_known(self, c: Controller, plan: ReassignPlan) -> bool:
        """Checks whether all sizes are known that the plan's caps need; begins to read those that are not."""
        if not plan.bytes_max and not plan.broker_bytes_max:
            return True
        own = {(move.topic, move.partition) for move in plan.moves}
        moving = {row: c.cluster.name(row) for row, written in c.cluster.reassigning.items() if written.kept.adding}
        foreign = {row: name for row, name in moving.items() if name not in own}
        names = set(foreign.values())
        self.known = {name: size for name, size in self.known.items() if name in names}
        unread = {row: name for row, name in foreign.items() if name not in self.known}
        if unread and not self._reading:
            self._reading = True
            c.spawn(self._read(c, dict(list(unread.items())[:PARTITIONS_PER_REQUEST_MAX])))
        return not unread

    async def _read(self, c: Controller, unread: dict[int, TopicPartition]) -> None:
        by_leader: dict[int, list[TopicPartition]] = {}
        for row, name in unread.items():
            by_leader.setdefault(c.cluster.rows[row].leader, []).append(name)
        try:
            if c.dial is not None:
                found = await sizes_on(c.dial, c.cluster.brokers, by_leader, REPORT_S_MAX)
                self._enter(found)
        finally:
            self.known |= {name: self.known.get(name, 0) for name in unread.values()}
            self._reading = False

    def _enter(self, found: Mapping[int, dict[TopicPartition, ReplicaSize] | BrokerCallFailed]) -> None:
        for leader, sizes in found.items():
            if isinstance(sizes, BrokerCallFailed):
                why = f"broker {leader} sends no sizes of partitions that other clients reassign"
                log.warning("%s: they count as 0 bytes against the caps of plans (%s)", why, sizes)
            else:
                self.known |= {name: size.size_bytes for name, size in sizes.items()}


class MinIsrGuard:
    """Queries the brokers once in a term, beside its queue, where the term does not know the value yet."""

    def __init__(self) -> None:
        self._waiting: dict[int, Callable[[int], None]] = {}
        self._looked = False

    def is_known(self, c: Controller, pid: int, wake: Callable[[int], None]) -> bool:
        """Checks whether a step may decide; else queries the brokers and wakes it. Without a response it goes on."""
        if self._looked or c.cluster.min_isr.default is not None or c.dial is None:
            return True
        if not self._waiting:
            c.spawn(self._look(c, c.dial))
        self._waiting[pid] = wake
        return False

    async def _look(self, c: Controller, dial: Dial) -> None:
        try:
            found = await c.until_read(lambda: read_min_isr(c.store, dial, c.cluster))
        except (TermEnded, SessionLost):
            return
        finally:
            self._looked = True
            waiting, self._waiting = self._waiting, {}
            for pid, wake in waiting.items():
                wake(pid)
        if c.cluster.min_isr.default is None:
            c.enter(MinIsrRead(found))
        if c.cluster.min_isr.default is None:
            log.warning(
                "no broker sends min.insync.replicas: plans and restarts go on without it; let this daemon's user "
                "describe the brokers' configurations"
            )
