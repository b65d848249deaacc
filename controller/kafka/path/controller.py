"""Carries decisions of one term out, and propagates them to the brokers.

The one path of a partition's change is :meth:`Controller.carry_out`: decide, commit, apply, propagate. The one way in
for all else is :meth:`controller.kafka.path.facts.Facts.enter`. Handlers read ZooKeeper, enter facts, and carry out.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import aclosing, nullcontext
from functools import partial
from itertools import islice
from typing import Self, TypeVar

from controller.kafka.access import QuotaBuckets
from controller.kafka.journal.report import Reason, Report
from controller.kafka.path.facts import BrokerSide, Facts, StoreSide, TermMemory
from controller.kafka.path.remembered import Departed, Pauses
from controller.kafka.path.topic_settings import UncleanElectionPolicy
from controller.procedures.recorder import Recorder
from metadata_store.commits.state_commit import StateOutcome
from metadata_store.errors import NotConnected
from metadata_store.fencing.fenced import WRITES_MAX
from state_machines.machines.draft import Decide, Draft
from state_machines.model.decision import Change, Decision, ReplicaMove
from state_machines.model.topic_facts import WritesGivenUp
from state_machines.portions import portions

log = logging.getLogger("regent.controller")
state_change = logging.getLogger("regent.state-change")

T = TypeVar("T")

DOUBTED_MAX = 20_000
"""Rows of a decision that are read again because their ISR stands in the way: some 200 ms."""
STATE_GONE = "its state znode is gone, which another client deleted: restart the daemon, the next term creates it anew"
CONTENDED = "contended: tried again at its next event"


class ConflictRounds(Iterator[int]):
    """Yields how many writes each round may put into one multi, for a bounded number of rounds.

    In the first ``together`` rounds writes share multis. In the last ``alone`` rounds each write has a multi of its
    own, so that a contended znode does not hold up those that shared a multi with it.
    """

    def __init__(self, together: int, alone: int = 0) -> None:
        self._together = together
        self._most = together + alone
        self._begun = 0

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> int:
        if self._begun >= self._most:
            raise StopIteration
        self._begun += 1
        return WRITES_MAX if self._begun <= self._together else 1

    def repeat(self) -> None:
        """Does not count the round: it met no other writer, and the lease bounds lost connections."""
        self._begun -= 1


class Controller(Facts):
    """Gives handlers all they need in one term. Single writer: only the queue's consumer calls into it.

    :mod:`controller.kafka.brokers.broker_settings` sets the values that depend on brokers' settings.
    """

    def __init__(self, store: StoreSide, brokers: BrokerSide, memory: TermMemory) -> None:
        super().__init__(store, brokers, memory)
        self.daemons = brokers.daemons
        self.dial = brokers.dial
        self.deletion_queue = memory.deletion_queue
        self.unclean = UncleanElectionPolicy(self.store, self.cluster, default=False)
        self.quotas = QuotaBuckets()
        self.pauses = Pauses()
        self.shut_by_operator: dict[int, int] = {}
        """Broker epochs of brokers that operators have shut down by command, and that have not requested it."""
        self.waiting_topics: set[str] = set()
        self.departed = Departed()
        self.recorder = Recorder(self.counters)
        self._conflict_rounds_max = store.conflict_rounds_max
        self._beside: set[asyncio.Task[None]] = set()

    # -- beside the queue

    def spawn(self, work: Coroutine[None, None, None], at_end: Callable[[], None] | None = None) -> None:
        """Runs a coroutine beside the queue until the term ends. It never changes the model: its errors end no term.

        Where the term ends first it may not even begin; ``at_end`` is called in any case.
        """
        task = asyncio.get_running_loop().create_task(work)
        self._beside.add(task)
        task.add_done_callback(self._spawned_ended)
        if at_end is not None:
            task.add_done_callback(lambda _: at_end())

    def _spawned_ended(self, task: asyncio.Task[None]) -> None:
        self._beside.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("an error beside the queue: %s", error, exc_info=error)

    async def close(self) -> None:
        """Cancels the tasks that run beside the queue."""
        for task in self._beside:
            task.cancel()
        if self._beside:
            await asyncio.wait(self._beside)

    # -- the one path

    def conflict_rounds(self) -> ConflictRounds:
        """Returns the rounds that the settings allow: first writes share multis, then each has its own."""
        return ConflictRounds(self._conflict_rounds_max, alone=self._conflict_rounds_max)

    async def carry_out(
        self, decide: Decide, reason: Reason, why: str, *, only: Collection[int] | None = None
    ) -> Report:
        """Decides, commits, applies and propagates until every row is settled; raises Fenced or TermEnded.

        ``only``: rows that may be drawn; None: all of them.
        After ``conflict_rounds_max`` rounds each remaining write is sent alone, so that a contended partition holds up
        no other. After as many again the row waits for its next event, which never ends the term. Rounds that a lost
        connection cut short do not count: the next one waits until connection, lease and claim hold.
        """
        report = Report(why, reason.value)
        rounds = self.conflict_rounds()
        for writes_max in rounds:
            before = report.conflicts, report.unknown, report.written
            only = await self._round(decide, only, report, writes_max)
            if not only:
                break
            if not _stuck(before, report):
                rounds.repeat()
        else:
            self._give_up(only or (), CONTENDED, report)
        self._count(report)
        return report

    async def _round(
        self, decide: Decide, only: Collection[int] | None, report: Report, writes_max: int
    ) -> Collection[int]:
        """Decides, commits, applies and propagates once; returns unsettled rows, which it has read again."""
        decision = await self._drawn(decide, only)
        report.decided_us = self.journal.now_us()
        if doubted := self._doubted(decision, report):
            decision = decision.without(doubted)
        report.refuse(decision.refusals)
        unsettled = sorted(doubted.union(await self._commit(decision, report, writes_max)))
        if unsettled:
            report.read_back(await self.reread(unsettled), self.cluster.epoch)
        return unsettled

    async def _drawn(self, decide: Decide, only: Collection[int] | None) -> Decision:
        """Decides on the present model, and again where an election depends on its topic's configuration."""
        self.unclean.forget()
        while True:
            await self.connected()
            draft = Draft(self.cluster, only)
            decide(draft)
            if not self.unclean.wanted:
                return draft.finish()
            await self.until_read(partial(self.unclean.read, self.malformed))

    def _doubted(self, decision: Decision, report: Report) -> frozenset[int]:
        """Returns rows to read again, once, before the decision leaves them alone: their leaders may have an ISR there.

        Below IBP 2.7-IV2 leaders write the ISR to ZooKeeper themselves and notify the controller seconds later. The
        rest of the decision goes first.
        """
        if self.ibp.alter_partition or not decision.doubted:
            return frozenset()
        doubted = frozenset(islice(sorted(decision.doubted - report.doubted), DOUBTED_MAX))
        report.doubted |= doubted
        return doubted

    async def _commit(self, decision: Decision, report: Report, writes_max: int) -> set[int]:
        stops: dict[int, list[ReplicaMove]] = {}
        for move in decision.replica_moves:
            stops.setdefault(move.entity, []).append(move)
        written = {change.entity for change in decision.writes}
        unwritten = [move for i, moves in stops.items() if i not in written for move in moves]
        self._enter(decision.moves, unwritten, report)
        self.channels.metadata_changed(decision.metadata)
        pending = set(written)
        with self.channels.more_coming() if len(written) > writes_max else nullcontext():
            await self._write(decision.writes, stops, pending, report, writes_max)
        return pending

    async def _write(
        self,
        writes: Sequence[Change],
        stops: Mapping[int, Sequence[ReplicaMove]],
        pending: set[int],
        report: Report,
        writes_max: int,
    ) -> None:
        """Commits writes; applies and settles each outcome, and removes settled rows from ``pending``."""
        began_s = time.monotonic()
        commit = self.store.commit(writes, self.cluster.name, self.fence, writes_max=writes_max)
        try:
            async with aclosing(commit) as outcomes:
                async for outcome in outcomes:
                    self.gate.check()
                    moves = [move for change in outcome.applied for move in stops.get(change.entity, ())]
                    self._enter(outcome.applied, moves, report)
                    self._settle(outcome, pending, report)
        except NotConnected:
            self.gate.check()
        else:
            self.counters.commit_time.record(time.monotonic() - began_s)

    def _settle(self, outcome: StateOutcome, pending: set[int], report: Report) -> None:
        """Counts an outcome and gives up rows that this decision cannot change, until their next event."""
        self.counters.commits += 1
        self.counters.writes += len(outcome.applied)
        report.written += len(outcome.applied)
        report.conflicts += len(outcome.conflicts)
        report.unknown += len(outcome.unknown)
        pending.difference_update(change.entity for change in outcome.applied)
        pending.difference_update(outcome.gone, (entity for entity, _ in outcome.refused))
        self._give_up(outcome.gone, STATE_GONE, report)
        for entity, code in outcome.refused:
            why = f"ZooKeeper refused the write ({code.name}): check jute.maxbuffer and the znode's ACL"
            self._give_up([entity], why, report)

    def _give_up(self, rows: Collection[int], why: str, report: Report) -> None:
        """Updates model and brokers for abandoned rows, too: a partition under a dead leader is Offline."""
        if rows:
            report.failed[why] += len(rows)
            self.enter(WritesGivenUp(rows))

    def _enter(self, changes: Sequence[Change], moves: Sequence[ReplicaMove], report: Report) -> None:
        """Applies changes, then propagates them. An ended term does neither."""
        self.gate.check()
        before = self.journal.before(self.cluster, moves) if moves else []
        self.cluster.apply(changes)
        self.cluster.apply_replicas(moves)
        report.applied(change for change in changes if change.writes)
        self.recent.add(changes)
        self.journal.decided(self.cluster, changes, moves, before, report)
        self.channels.propagate(changes, moves)
        self._wake_reassignments(changes)

    def _count(self, report: Report) -> None:
        self.counters.conflicts += report.conflicts
        self.counters.unknown_outcomes += report.unknown
        self.counters.unclean_elections += report.unclean
        self.counters.refusals.update(report.refused)
        self.counters.failures.update(report.failed)
        if report.unclean:
            log.warning("%s", report.unclean_sentence(self.cluster.name))
        if report.done or report.refused or report.failed:
            state_change.info("%s", report.sentence())


def _stuck(before: tuple[int, int, int], report: Report) -> bool:
    """Returns whether a round met other writers, or wrote nothing (a server that hangs up at large requests)."""
    conflicts, unknown, written = before
    return report.conflicts > conflicts or (report.unknown > unknown and report.written == written)


async def carry_out_portions(
    c: Controller, decide: Callable[..., None], rows: Sequence[int], reason: Reason, why: str, *, rows_max: int
) -> Report:
    """Carries ``decide`` out, which takes ``rows``, for some rows after the others; returns all reports as one.

    Brokers receive several portions together, as they do the multis of one.
    """
    total = Report(why, reason.value)
    with c.channels.more_coming() if len(rows) > rows_max else nullcontext():
        for some in portions(rows, rows_max):
            total.add(await c.carry_out(partial(decide, rows=some), reason, why))
    return total
