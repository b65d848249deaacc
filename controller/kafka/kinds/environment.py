"""The environment of the steps of procedures on a Kafka cluster, and what several kinds do with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from controller.kafka.kinds.broker_queries import ForeignSizes, MinIsrGuard
from controller.kafka.kinds.throttle_looks import CatchUps, RatePacer
from controller.kafka.path.controller import Controller
from controller.kafka.reassignments.topic_rewrites import observe_rewrites
from controller.procedures.broadcast import Responses
from metadata_store.errors import NotConnected
from metadata_store.records.zookeeper import ZooKeeperRecords
from state_machines.decisions.drain import Leading
from state_machines.decisions.restarts import RestartPlan
from state_machines.model.decision import TopicChange
from state_machines.procedures.kernel import Change
from state_machines.procedures.record import Record

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
    rider = env.records.ops(change.puts, change.deletes)
    try:
        outcome = await c.store.commit_topics_with(changes, c.fence, rider)
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
