"""Elects leaders: by ElectLeaders, by ``/admin/preferred_replica_election``, and to balance them.

The znode is the request. It is read when the event is handled and at failover, and deleted in the version that was read
once the elections are committed: the next controller finds it again, or finds it done (S4-70, S4-71, S4-82). The
automatic balance is Kafka's ``checkAndTriggerAutoLeaderRebalance`` (S4-83).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from brokers.wire.errors import Error
from controller.kafka.journal.report import Reason
from controller.kafka.partitions.await_leaders import shown
from controller.kafka.path.controller import Controller, carry_out_portions
from controller.kafka.path.events import EventKind, EventQueue
from controller.kafka.requests.calls import PendingElection
from controller.kafka.requests.values import Elected, ElectLeadersReply
from metadata_store import paths
from metadata_store.codecs.base import MalformedNode
from metadata_store.errors import Code
from metadata_store.nodes.cluster_nodes import delete_as_read, read_preferred_election
from state_machines.decisions.leader_election import (
    UNKNOWN,
    ElectionError,
    ElectionType,
    Imbalance,
    NotElected,
    elect,
    imbalance,
    judge,
    outcome,
    to_balance,
)
from state_machines.model.types import TopicPartition
from state_machines.portions import portions

log = logging.getLogger("regent.controller")

ROWS_MAX: Final = 20_000
"""Partitions of one decision: some 50 ms."""
TURN_ROWS: Final = 20_000
"""Partitions that are checked between two turns of the loop."""
UNSAID: Final = frozenset({ElectionError.ELECTION_NOT_NEEDED, ElectionError.INVALID_TOPIC_EXCEPTION})
"""Errors left out of the response to a request for all partitions. A Kafka broker names those in its metadata."""
TOLD_S_MAX: Final = 60.0
"""Longest wait of a response for the new leaders, however long the caller would wait."""
NOT_TOLD: Final = "it is elected, and no broker has acknowledged its metadata in time"
Asked = Mapping[TopicPartition, int | None]
"""Rows of requested partitions; None for those that do not exist."""
Became = Mapping[int, NotElected | None]
"""Outcomes by row; None where the leader is new."""
FIRST_LOOK_S: Final = 5.0
"""From taking office to the first look, as in Kafka."""
BUDGET_S: Final = 60.0
"""The period of the budget."""
LOOK_S_MIN: Final = 1.0
"""Shortest time between two looks, however clocks round."""


async def elect_leaders(c: Controller, pending: PendingElection) -> None:
    """Elects, and responds beside the queue once brokers show the new leaders."""
    call = pending.call
    try:
        asked = await _rows(c, call.partitions)
        became = await _elect(c, asked, call.kind, f"{call.kind.name.lower()} election by request")
        if call.again and call.partitions is not None:
            became = _with_earlier(became)
        results = await _results(asked, became, everything=call.partitions is None)
    except BaseException:
        pending.refuse()
        raise
    elected = [i for i, found in became.items() if found is None]
    refused = sum(bool(one.error) for one in results)
    c.journal.call("ELECT_LEADERS", call.caller, partitions=len(asked), elected=len(elected), refused=refused)
    c.spawn(_answer_when_told(c, pending, elected, results), pending.refuse)


def _with_earlier(became: Became) -> Became:
    """Adds rows that need no election any more: an earlier attempt of the call may have elected them."""
    not_needed = ElectionError.ELECTION_NOT_NEEDED
    return {i: None if found is not None and found.error is not_needed else found for i, found in became.items()}


async def _rows(c: Controller, partitions: Iterable[TopicPartition] | None) -> Asked:
    found: dict[TopicPartition, int | None] = {}
    if partitions is not None:
        for some in portions(list(partitions), TURN_ROWS):
            found.update((TopicPartition(*name), c.cluster.find(*name)) for name in some)
            await asyncio.sleep(0)
        return found
    for index in c.cluster.topic_index.values():
        for rows in portions(c.cluster.topics[index].rows, TURN_ROWS):
            found.update((c.cluster.name(i), i) for i in rows)
            await asyncio.sleep(0)
    return found


async def _elect(c: Controller, asked: Asked, kind: ElectionType, why: str) -> Became:
    """Carries out the needed elections."""
    became: dict[int, NotElected | None] = {}
    rows = [i for i in asked.values() if i is not None]
    for at in range(0, len(rows), TURN_ROWS):
        became.update((i, judge(c.cluster, i, kind)) for i in rows[at : at + TURN_ROWS])
        await asyncio.sleep(0)
    wanted = [i for i in rows if became[i] is None]
    for at in range(0, len(wanted), ROWS_MAX):
        some = wanted[at : at + ROWS_MAX]
        decide = partial(elect, rows=some, kind=kind)
        await c.carry_out(decide, Reason.ELECTION, f"{why} of {len(some)} partitions")
    for at in range(0, len(wanted), TURN_ROWS):
        became.update((i, outcome(c.cluster, i, kind)) for i in wanted[at : at + TURN_ROWS])
        await asyncio.sleep(0)
    return became


async def _results(asked: Asked, became: Became, *, everything: bool) -> list[Elected]:
    """Builds the results. Of ``everything``, it leaves out rows without need, or that brokers no longer show."""
    results: list[Elected] = []
    for at, (name, i) in enumerate(asked.items()):
        if i is None:
            results.append(Elected(*name, Error.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN))
        elif (found := became[i]) is None:
            results.append(Elected(*name))
        elif not everything or found.error not in UNSAID:
            results.append(Elected(*name, int(found.error), found.why))
        if at % TURN_ROWS == TURN_ROWS - 1:
            await asyncio.sleep(0)
    return results


async def _answer_when_told(
    c: Controller,
    pending: PendingElection,
    rows: Sequence[int],
    results: Sequence[Elected],
) -> None:
    """Responds once brokers show the new leaders: the caller may query them at once."""
    call = pending.call
    deadline_s = asyncio.get_running_loop().time() + min(call.timeout_s, TOLD_S_MAX)
    try:
        if late := {c.cluster.name(i) for i in await shown(c, rows, deadline_s)}:
            results = [
                Elected(one.topic, one.partition, Error.REQUEST_TIMED_OUT, NOT_TOLD)
                if not one.error and (one.topic, one.partition) in late
                else one
                for one in results
            ]
        pending.answer(ElectLeadersReply(results))
    finally:
        pending.refuse()


# -- by znode


async def preferred_election(c: Controller) -> None:
    """Carries out the znode's elections and deletes it; without a znode it waits for the next.

    A malformed znode requests nothing and is deleted, as by Kafka's controller: it would keep out the next one. It
    deletes the version that was read alone: a request that was replaced meanwhile is read again.
    """
    path = paths.PREFERRED_ELECTION
    since = c.zk.last_zxid
    found = await read_preferred_election(c.zk)
    c.gate.check()
    if found is None:
        await c.zk.watch(exists=[path], since_zxid=since)
    elif isinstance(found, MalformedNode):
        c.malformed(found)
        await c.zk.watch(data=[path], since_zxid=since)
    elif isinstance(found.value, MalformedNode):
        log.error("%s is deleted, because it cannot be understood: %s", path, found.value.why)
        await _done(c, found.stat.version)
    else:
        if found.value.unusable:
            log.error("%s: %s; the others are carried out", path, found.value.unusable)
        await _by_znode(c, found.value.named)
        await _done(c, found.stat.version)


async def _by_znode(c: Controller, partitions: Sequence[TopicPartition]) -> None:
    asked = await _rows(c, partitions)
    became = await _elect(c, asked, ElectionType.PREFERRED, "preferred election by znode")
    passed = Counter(found.why for found in became.values() if found is not None)
    passed.update({UNKNOWN: len(asked) - len(became)})
    log.info(
        "%s: %d partitions are led by their preferred replicas now%s",
        paths.PREFERRED_ELECTION,
        sum(found is None for found in became.values()),
        "".join(f"; {count} not: {why}" for why, count in passed.items() if count),
    )


async def _done(c: Controller, version: int) -> None:
    path, since = paths.PREFERRED_ELECTION, c.zk.last_zxid
    code = await delete_as_read(c.zk, path, version, c.fence)
    if code in (Code.NO_NODE, Code.BAD_VERSION):
        await c.zk.sync(path)
    elif code is not None:
        log.error(
            "%s was carried out and cannot be deleted (%s): until it is, no other one can be requested", path, code.name
        )
        await c.zk.watch(data=[path], since_zxid=since)
        return
    c.queue.signal(EventKind.PREFERRED_ELECTION)


class Budget:
    """Counts the moved leaders of the last minute."""

    def __init__(self, moves_per_minute: int) -> None:
        self._moves_per_minute = moves_per_minute
        self._spent: deque[tuple[float, int]] = deque()

    def left(self, now_s: float) -> int:
        """Returns how many leaders may be moved now."""
        while self._spent and self._spent[0][0] + BUDGET_S <= now_s:
            self._spent.popleft()
        return self._moves_per_minute - sum(moves for _, moves in self._spent)

    def spend(self, now_s: float, moves: int) -> None:
        """Notes moved leaders."""
        if moves:
            self._spent.append((now_s, moves))

    def next_look_s(self, now_s: float, interval_s: float, *, left: bool) -> float:
        """Returns the seconds until the next look: where moves are ``left``, until the budget allows more."""
        if not left or not self._spent:
            return interval_s
        return min(interval_s, max(LOOK_S_MIN, self._spent[0][0] + BUDGET_S - now_s))


class AutoBalance:
    """Looks at the leaders of a term from time to time. Its settings are those in force at each look."""

    def __init__(self, c: Controller, moves_per_minute: int) -> None:
        self._c = c
        self._budget = Budget(moves_per_minute)

    def begin(self) -> None:
        """Schedules the first look of a term."""
        self._look_after(FIRST_LOOK_S)

    async def look(self) -> None:
        """Moves the leaders that the budget allows, the worst brokers first, and schedules the next look."""
        c, values = self._c, self._c.adoption.values
        if not values.balances or c.pauses.in_force is not None:
            self._look_after(values.balance_interval_s)
            return
        clock = asyncio.get_running_loop().time
        counted: dict[int, Imbalance] = {}
        for at in range(0, len(c.cluster.rows), TURN_ROWS):
            imbalance(c.cluster, range(at, min(at + TURN_ROWS, len(c.cluster.rows))), counted)
            await asyncio.sleep(0)
        budget, percentage_max = self._budget.left(clock()), values.balance_percentage_max
        await c.reread_isrs(to_balance(c.cluster, percentage_max, budget, counted, behind=True))
        found = to_balance(c.cluster, percentage_max, budget + 1, counted)
        moves = found[:budget]
        if moves:
            decide, why = partial(elect, kind=ElectionType.PREFERRED), "automatic balance of leaders"
            await carry_out_portions(c, decide, moves, Reason.ELECTION, why, rows_max=TURN_ROWS)
            self._budget.spend(clock(), len(moves))
        left = len(found) > budget
        self._look_after(self._budget.next_look_s(clock(), values.balance_interval_s, left=left))

    def _look_after(self, seconds: float) -> None:
        self._c.spawn(_signal_after(self._c.queue, seconds))


async def _signal_after(queue: EventQueue, seconds: float) -> None:
    await asyncio.sleep(seconds)
    queue.signal(EventKind.AUTO_BALANCE)
