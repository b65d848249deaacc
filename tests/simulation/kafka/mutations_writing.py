"""Plants bugs in deciding and writing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import ExitStack, aclosing
from typing import Any
from unittest import mock

from controller.kafka.journal.report import Report
from controller.kafka.path.controller import Controller
from metadata_store import paths
from metadata_store.commits import state_commit
from metadata_store.errors import MultiFailed, NotConnected
from metadata_store.fencing import fenced
from metadata_store.fencing.companion import Companion
from metadata_store.fencing.fenced import Batch
from metadata_store.fencing.outcome import Fence, MultiOutcome
from metadata_store.port import ANY_VERSION, Op, SetData, ZooKeeper
from state_machines.decisions import broker_change
from state_machines.decisions.broker_change import BrokerDelta
from state_machines.machines import selectors
from state_machines.machines.draft import Draft
from state_machines.machines.replica import ReplicaStateMachine
from state_machines.model.decision import Change, Decision
from state_machines.model.facts import Entered, Fact
from state_machines.model.topic_facts import StatesRead
from state_machines.model.types import Broker, PartitionRow
from tests.kit.simulation.planting import put
from tests.simulation.kafka.planting import mutation

Send = Callable[[Sequence[Op]], Awaitable[Any]]

# -- writing


@mutation
def skip_the_fence(stack: ExitStack) -> None:
    """Writes without a check of the controller epoch."""

    async def submit(send: Send, fence: Fence, ops: Sequence[Op], _companions: Sequence[Companion] = ()) -> Any:
        fenced.require_open(fence)
        try:
            results = await send(ops)
        except MultiFailed as failed:
            failed.index += 1
            return failed
        return results and [None, *results]  # callers skip the result of the check

    put(stack, fenced, "_submit", submit)


@mutation
def fence_with_the_latest_epoch(stack: ExitStack) -> None:
    """Fences with the epoch that ZooKeeper holds now, not with the claimed one."""
    submit = fenced._submit

    async def follow(send: Send, fence: Fence, ops: Sequence[Op], companions: Sequence[Companion] = ()) -> Any:
        zk: ZooKeeper = send.__self__  # type: ignore[attr-defined]  # zk.apply or zk.multi
        stat = await zk.exists(paths.CONTROLLER_EPOCH)
        return await submit(send, Fence(stat.version if stat is not None else 0, fence.open), ops, companions)

    put(stack, fenced, "_submit", follow)


@mutation
def send_before_commit(stack: ExitStack) -> None:
    """Enters changes into the model and sends them before they are written."""
    _commit_after(stack, sent=True)


@mutation
def apply_before_commit(stack: ExitStack) -> None:
    """Enters changes into the model before they are written, and sends them after."""
    _commit_after(stack, sent=False)


def _commit_after(stack: ExitStack, *, sent: bool) -> None:
    async def commit(self: Controller, decision: Decision, report: Report, writes_max: int) -> set[int]:
        self._enter(decision.moves, decision.replica_moves, report)
        self.channels.metadata_changed(decision.metadata)
        self.cluster.apply(decision.writes)
        if sent:
            self.channels.propagate(decision.writes, ())
        pending = {change.entity for change in decision.writes}
        found = self.store.commit(decision.writes, self.cluster.name, self.fence, writes_max=writes_max)
        try:
            async with aclosing(found) as outcomes:
                async for outcome in outcomes:
                    if not sent:
                        self.channels.propagate(outcome.applied, ())
                    self._settle(outcome, pending, report)
        except NotConnected:
            self.gate.check()
        return pending

    put(stack, Controller, "_commit", commit)


@mutation
def ignore_badversion(stack: ExitStack) -> None:
    """Takes a conflict for a success."""

    def judged(batch: Batch[Any, Any], failed: MultiFailed) -> MultiOutcome[Any, Any]:
        return MultiOutcome(applied=batch.changes)

    stack.enter_context(mock.patch("metadata_store.fencing.fenced.judged", judged))


@mutation
def forget_unknown_outcomes(stack: ExitStack) -> None:
    """Enters a state that was read after a lost reply into the model, and sends it to no broker."""

    enter = Controller.enter

    def entered(self: Controller, fact: Fact) -> Entered:
        return fact.enter(self.cluster) if isinstance(fact, StatesRead) else enter(self, fact)

    put(stack, Controller, "enter", entered)


@mutation
def write_with_any_version(stack: ExitStack) -> None:
    """Writes state znodes at any version."""

    def updates(changes: Sequence[Change], names: Any, *_: Any) -> Any:
        for change in changes:
            op = SetData(paths.state(*names(change.entity)), state_commit.state_data(change), ANY_VERSION)
            yield Batch([change.entity], [change], [op], range(1))

    put(stack, state_commit, "_updates", updates)


# -- deciding


@mutation
def keep_the_leader_epoch(stack: ExitStack) -> None:
    """Gives a new leader the leader epoch of the old one."""
    lead = Draft._lead

    def same_epoch(self: Draft, i: int, *of: Any) -> None:
        lead(self, i, *of)
        row = self._drawn.get(i)
        if row is not None and self.rows[i].has_leadership:
            self._drawn[i] = _with(row, leader_epoch=self.rows[i].leader_epoch)

    put(stack, Draft, "_lead", same_epoch)


def _with(row: PartitionRow, **changes: Any) -> PartitionRow:
    return PartitionRow(**({name: getattr(row, name) for name in row.__struct_fields__} | changes))


@mutation
def elect_outside_of_the_isr(stack: ExitStack) -> None:
    """Elects the first live replica, in sync or not."""

    def offline(
        replicas: tuple[int, ...], isr: tuple[int, ...], _down: object, *, live: Collection[int], unclean: bool = False
    ) -> selectors.Election | selectors.NoLeader:
        for replica in replicas:
            if replica in live:
                return selectors.Election(replica, tuple(dict.fromkeys((replica, *isr))), selectors.OFFLINE_IN_ISR)
        return selectors.NoLeader(selectors.NO_LIVE_ISR)

    put(stack, selectors, "offline", offline)


@mutation
def empty_the_isr(stack: ExitStack) -> None:
    """Removes the last member from the ISR like every other."""
    take_offline = ReplicaStateMachine.take_offline

    def emptied(self: ReplicaStateMachine, broker: int, rows: Iterable[int], why: str) -> None:
        rows = list(rows)
        take_offline(self, broker, rows, why)
        for i in rows:
            row = self.draft.row(i)
            if row.isr == (broker,) and row.has_leadership:
                self.draft.renew(i, -1, (), why)

    put(stack, ReplicaStateMachine, "take_offline", emptied)


@mutation
def forget_a_bounced_broker(stack: ExitStack) -> None:
    """Ignores a registration with another epoch."""

    def compare(known: dict[int, Broker], found: dict[int, Broker]) -> BrokerDelta:
        delta = broker_change.compare(known, found)
        return BrokerDelta(delta.new, delta.dead, (), delta.modified)

    stack.enter_context(mock.patch("controller.kafka.brokers.broker_change.compare", compare))


@mutation
def elect_no_leader_on_return(stack: ExitStack) -> None:
    """Elects no leader for a leaderless partition when its broker comes back."""

    def broker_return(draft: Draft, returned: Collection[int], **_: Any) -> None:
        for broker in sorted(returned):
            draft.send_metadata(draft.cluster.hosted(broker))

    stack.enter_context(mock.patch("controller.kafka.brokers.broker_change.broker_return", broker_return))
