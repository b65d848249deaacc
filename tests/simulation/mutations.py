"""Bugs planted in the product, one at a time: the simulation must catch every one of them.

Each is a small patch of one place, as an engineer might have written it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import ExitStack, aclosing
from typing import Any
from unittest import mock

from brokers.channel import Channel
from brokers.channels import Channels
from brokers.link import Link
from brokers.sealing import Sealer
from brokers.snapshot import Snapshots, Turn
from controller.claim_watch import ClaimWatch
from controller.controller import Controller
from controller.lease import Lease
from controller.office import Claim, Office
from controller.reign import Reign
from controller.report import Report
from metadata_store import fenced, paths, state_commit
from metadata_store.errors import MultiFailed, NotConnected
from metadata_store.fenced import Batch
from metadata_store.outcome import Fence, MultiOutcome
from metadata_store.port import ANY_VERSION, Op, SetData, ZooKeeper
from state_machines import broker_change, selectors
from state_machines.audience import Audience, Outbox
from state_machines.broker_change import BrokerDelta
from state_machines.decision import Change, Decision
from state_machines.draft import Draft
from state_machines.replica import ReplicaStateMachine
from state_machines.types import Broker, PartitionRow

Plant = Callable[[ExitStack], None]
MUTATIONS: dict[str, Plant] = {}


def mutation(plant: Plant) -> Plant:
    """Registers one under its name."""
    MUTATIONS[plant.__name__.replace("_", "-")] = plant
    return plant


def _set(stack: ExitStack, target: object, name: str, value: object) -> None:
    stack.enter_context(mock.patch.object(target, name, value))


# -- writing


@mutation
def skip_the_fence(stack: ExitStack) -> None:
    """Writes go out without a check of the controller epoch."""

    async def submit(zk: ZooKeeper, fence: Fence, ops: Sequence[Op]) -> MultiFailed | None:
        fenced.require_open(fence)
        try:
            await zk.apply(ops)
        except MultiFailed as failed:
            failed.index += 1
            return failed
        return None

    for module in ("metadata_store.fenced", "metadata_store.state_commit", "metadata_store.cluster_nodes"):
        stack.enter_context(mock.patch(f"{module}.submit", submit))


@mutation
def fence_with_the_latest_epoch(stack: ExitStack) -> None:
    """The fence is whatever epoch ZooKeeper holds now, not the one that was claimed."""
    submit = fenced.submit

    async def follow(zk: ZooKeeper, fence: Fence, ops: Sequence[Op]) -> MultiFailed | None:
        stat = await zk.exists(paths.CONTROLLER_EPOCH)
        return await submit(zk, Fence(stat.version if stat is not None else 0, fence.open), ops)

    for module in ("metadata_store.fenced", "metadata_store.state_commit", "metadata_store.cluster_nodes"):
        stack.enter_context(mock.patch(f"{module}.submit", follow))


@mutation
def tell_before_commit(stack: ExitStack) -> None:
    """Changes enter the model and are told before they are written."""
    _commit_after(stack, told=True)


@mutation
def apply_before_commit(stack: ExitStack) -> None:
    """Changes enter the model before they are written, and are told after."""
    _commit_after(stack, told=False)


def _commit_after(stack: ExitStack, *, told: bool) -> None:
    async def commit(self: Controller, decision: Decision, report: Report, writes_max: int) -> set[int]:
        self._enter(decision.moves, decision.replica_moves, report)
        self.channels.metadata_changed(decision.metadata)
        self.cluster.apply(decision.writes)
        if told:
            self.channels.tell(decision.writes, ())
        pending = {change.entity for change in decision.writes}
        found = self.store.commit(decision.writes, self.cluster.name, self.fence, writes_max=writes_max)
        try:
            async with aclosing(found) as outcomes:
                async for outcome in outcomes:
                    if not told:
                        self.channels.tell(outcome.applied, ())
                    self._settle(outcome, pending, report)
        except NotConnected:
            self.term.check()
        return pending

    _set(stack, Controller, "_commit", commit)


@mutation
def ignore_badversion(stack: ExitStack) -> None:
    """A conflict is taken for a success."""

    def judged(batch: Batch[Any, Any], failed: MultiFailed) -> MultiOutcome[Any, Any]:
        return MultiOutcome(applied=batch.changes)

    stack.enter_context(mock.patch("metadata_store.fenced.judged", judged))


@mutation
def forget_unknown_outcomes(stack: ExitStack) -> None:
    """What is read again after a lost reply enters the model and is told to nobody."""

    def observed(self: Controller, changes: Iterable[Change | None]) -> list[Change]:
        return [change for change in changes if change is not None]

    _set(stack, Controller, "observed", observed)


@mutation
def write_with_any_version(stack: ExitStack) -> None:
    """State znodes are written whatever they hold."""

    def updates(changes: Sequence[Change], names: Any, *_: Any) -> Any:
        for change in changes:
            op = SetData(paths.state(*names(change.entity)), state_commit.state_data(change), ANY_VERSION)
            yield Batch([change.entity], [change], [op], range(1))

    _set(stack, state_commit, "_updates", updates)


# -- deciding


@mutation
def keep_the_leader_epoch(stack: ExitStack) -> None:
    """A new leader has the leader epoch of the old one."""
    lead = Draft.lead

    def same_epoch(self: Draft, i: int, leader: int, isr: tuple[int, ...], why: str, **more: Any) -> None:
        lead(self, i, leader, isr, why, **more)
        row = self._drawn.get(i)
        if row is not None and self.rows[i].has_leadership:
            self._drawn[i] = _with(row, leader_epoch=self.rows[i].leader_epoch)

    _set(stack, Draft, "lead", same_epoch)


def _with(row: PartitionRow, **changes: Any) -> PartitionRow:
    return PartitionRow(**({name: getattr(row, name) for name in row.__struct_fields__} | changes))


@mutation
def elect_outside_of_the_isr(stack: ExitStack) -> None:
    """The first live replica leads, in sync or not."""

    def offline(
        replicas: tuple[int, ...], isr: tuple[int, ...], *, live: Collection[int], unclean: bool = False
    ) -> selectors.Election | selectors.NoLeader:
        for replica in replicas:
            if replica in live:
                return selectors.Election(replica, tuple(dict.fromkeys((replica, *isr))), selectors.OFFLINE_IN_ISR)
        return selectors.NoLeader(selectors.NO_LIVE_ISR)

    _set(stack, selectors, "offline", offline)


@mutation
def empty_the_isr(stack: ExitStack) -> None:
    """The last member leaves the ISR like every other."""
    take_offline = ReplicaStateMachine.take_offline

    def emptied(self: ReplicaStateMachine, broker: int, rows: Iterable[int], why: str) -> None:
        rows = list(rows)
        take_offline(self, broker, rows, why)
        for i in rows:
            row = self.draft.row(i)
            if row.isr == (broker,) and row.has_leadership:
                self.draft.lead(i, -1, (), why, state=row.state)

    _set(stack, ReplicaStateMachine, "take_offline", emptied)


@mutation
def forget_a_bounced_broker(stack: ExitStack) -> None:
    """A registration with another epoch is no news."""

    def compare(known: dict[int, Broker], found: dict[int, Broker]) -> BrokerDelta:
        delta = broker_change.compare(known, found)
        return BrokerDelta(delta.new, delta.dead, (), delta.modified)

    stack.enter_context(mock.patch("controller.handlers.broker_change.compare", compare))


@mutation
def elect_nobody_on_return(stack: ExitStack) -> None:
    """A broker that comes back gives no leaderless partition a leader."""

    def broker_return(draft: Draft, returned: Collection[int], **_: Any) -> None:
        for broker in sorted(returned):
            draft.tell_metadata(draft.cluster.hosted(broker))

    stack.enter_context(mock.patch("controller.handlers.broker_change.broker_return", broker_return))


# -- telling


@mutation
def snapshot_tells_new_as_old(stack: ExitStack) -> None:
    """A turn of a snapshot goes ahead of the word that a replica is new."""
    _set(stack, Outbox, "take_new", lambda self, limit: {})


@mutation
def drop_is_new(stack: ExitStack) -> None:
    """New replicas are told as if they were old."""

    def add_lead(self: Outbox, i: int, *, is_new: bool) -> None:
        (self.after if i in self.stop else self.lead)[i] = False

    _set(stack, Outbox, "add_lead", add_lead)


@mutation
def no_snapshot(stack: ExitStack) -> None:
    """A new controller does not tell everything, nor does a returned broker hear it."""
    _set(stack, Channels, "snapshot", lambda self, broker_ids=None: None)


@mutation
def stale_broker_epoch(stack: ExitStack) -> None:
    """Requests carry the epoch of the first registration that was ever seen of a broker."""
    first: dict[int, int] = {}
    deliver = Link.deliver

    async def old_epoch(self: Link, api: Any, request: Any) -> Any:
        epoch = first.setdefault(self.broker.id, self.broker.epoch)
        return await deliver(self, api, lambda correlation, _: request(correlation, epoch))

    _set(stack, Link, "deliver", old_epoch)


@mutation
def resend_old_rows(stack: ExitStack) -> None:
    """What was encoded of a row once is sent again when the row has changed."""

    def told(self: Sealer, wanted: Iterable[int]) -> Any:
        for i in wanted:
            row = self._view.rows[i]
            known = self._heads.get(i)
            if known is None and row.has_leadership:
                from brokers.wire.partitions import head

                known = self._heads[i] = row, head(row)
            if known is not None:
                yield i, row, known[1]

    _set(stack, Sealer, "_told", told)


@mutation
def keep_old_turns(stack: ExitStack) -> None:
    """A turn of a snapshot is sent as it was encoded, whatever changed since."""

    def current(self: Snapshots, turn: Turn) -> bool:
        return True

    _set(stack, Snapshots, "_current", current)


@mutation
def live_list_last(stack: ExitStack) -> None:
    """LeaderAndIsr goes out before the live list that it needs, and to followers when to leaders."""
    stack.enter_context(mock.patch("brokers.channel.LEADER_FIRST_S_MAX", -1.0))
    seal = Channel._seal

    async def late(self: Channel) -> None:
        with mock.patch.object(self, "_tell_live_list", _nothing):
            await seal(self)
        await self._tell_live_list()

    _set(stack, Channel, "_seal", late)


async def _nothing() -> None:
    return


@mutation
def forget_the_feed(stack: ExitStack) -> None:
    """Metadata is dropped as soon as one broker has it."""

    def prune(self: Audience) -> None:
        self.feed.forget(max((outbox.position for outbox in self.outboxes.values()), default=0))

    _set(stack, Audience, "prune", prune)


# -- the role


@mutation
def act_after_the_lease(stack: ExitStack) -> None:
    """The lease never runs out."""
    _set(stack, Lease, "valid", lambda self: True)
    _set(stack, Lease, "remaining_s", lambda self: self.session_timeout_s)


@mutation
def act_while_suspended(stack: ExitStack) -> None:
    """A lost connection is nobody's business."""
    _set(stack, ClaimWatch, "connected", lambda self: True)


@mutation
def no_watches_after_a_blip(stack: ExitStack) -> None:
    """After a reconnect everything is read again, and the watches of topics are not armed."""

    async def rearm(self: Reign) -> None:
        for kind in ("broker_change", "topic_change", "isr_notification"):
            self.queue.signal(kind)

    _set(stack, Reign, "_rearm", rearm)


@mutation
def adopt_a_claim(stack: ExitStack) -> None:
    """A daemon that finds its own id in ``/controller`` goes on with the epoch that it finds."""
    claim = Office.claim

    async def adopting(self: Office) -> Claim:
        record, _ = await self.controller()
        node = await self.zk.get(paths.CONTROLLER_EPOCH)
        if record is not None and record.brokerid == self.me.id and node is not None:
            return Claim(int(node.data or b"0"), node.stat.version, None, node.stat.mzxid)
        return await claim(self)

    async def is_ours(self: Office, won: Claim) -> bool:
        node = await self.zk.exists(paths.CONTROLLER_EPOCH)
        record, _ = await self.controller()
        return (
            node is not None
            and node.version == won.fence_version
            and record is not None
            and record.brokerid == self.me.id
        )

    _set(stack, Office, "claim", adopting)
    _set(stack, Office, "is_ours", is_ours)
