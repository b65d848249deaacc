"""Plants bugs in sending and in holding the role."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any
from unittest import mock

from brokers.outbound.batches import Batcher
from brokers.outbound.channel import Channel
from brokers.outbound.channels import Channels
from brokers.outbound.link import Link
from brokers.outbound.snapshot import Snapshots, Turn
from controller.kafka.path.events import EventKind
from controller.kafka.path.gate import Gate
from controller.kafka.term.claim_monitor import ClaimMonitor
from controller.kafka.term.term import Term
from controller.role.claim import Claim, Role
from controller.role.lease import Lease
from metadata_store import paths
from metadata_store.port import ConnectionState
from state_machines.propagation.pending_requests import PendingRequests
from state_machines.propagation.propagation import Propagation
from tests.kit.simulation.planting import put
from tests.simulation.kafka.planting import mutation

# -- sending


@mutation
def snapshot_tells_new_as_old(stack: ExitStack) -> None:
    """Sends a turn of a snapshot before the request that marks a replica as new."""
    put(stack, PendingRequests, "take_new", lambda self, limit: {})


@mutation
def drop_is_new(stack: ExitStack) -> None:
    """Sends new replicas as if they were old."""

    def add_lead(self: PendingRequests, i: int, *, is_new: bool) -> None:
        (self.after if i in self.stop else self.lead)[i] = False

    put(stack, PendingRequests, "add_lead", add_lead)


@mutation
def no_snapshot(stack: ExitStack) -> None:
    """Sends no snapshot, neither as a new controller nor to a returned broker."""
    put(stack, Channels, "snapshot", lambda self, broker_ids=None, came_up=False: None)


@mutation
def stale_broker_epoch(stack: ExitStack) -> None:
    """Sends requests with the epoch of a broker's first registration."""
    first: dict[int, int] = {}
    deliver = Link.deliver

    async def old_epoch(self: Link, api: Any, partitions: int, request: Any) -> Any:
        epoch = first.setdefault(self.broker.id, self.broker.epoch)
        return await deliver(self, api, partitions, lambda correlation, _: request(correlation, epoch))

    put(stack, Link, "deliver", old_epoch)


@mutation
def resend_old_rows(stack: ExitStack) -> None:
    """Sends a row's first encoding again when the row has changed."""

    encode_now = Batcher._encode
    put(stack, Batcher, "_encode", lambda self, i, row: self._kept.get(i) or encode_now(self, i, row))


@mutation
def keep_old_turns(stack: ExitStack) -> None:
    """Sends a turn of a snapshot as it was encoded, although rows have changed since."""

    def current(self: Snapshots, turn: Turn) -> bool:
        return True

    put(stack, Snapshots, "_current", current)


@mutation
def live_list_last(stack: ExitStack) -> None:
    """Sends LeaderAndIsr before the live list that it needs, and to followers and leaders at once."""
    stack.enter_context(mock.patch("brokers.outbound.channel.LEADER_FIRST_S_MAX", -1.0))
    batch = Channel._batch

    async def late(self: Channel) -> None:
        with mock.patch.object(self, "_send_live_list", _nothing):
            await batch(self)
        await self._send_live_list()

    put(stack, Channel, "_batch", late)


async def _nothing() -> None:
    return


@mutation
def forget_the_feed(stack: ExitStack) -> None:
    """Drops metadata as soon as one broker has it."""

    def prune(self: Propagation) -> None:
        self.feed.forget(max((pending.position for pending in self.pending.values()), default=0))

    put(stack, Propagation, "prune", prune)


# -- the role


@mutation
def act_after_the_lease(stack: ExitStack) -> None:
    """Keeps the lease valid for ever."""
    put(stack, Lease, "valid", lambda self: True)
    put(stack, Lease, "remaining_s", lambda self: self.session_timeout_s)


@mutation
def act_while_suspended(stack: ExitStack) -> None:
    """Ignores a lost connection."""
    put(stack, Gate, "connected", lambda self: True)


@mutation
def resign_with_the_lease(stack: ExitStack) -> None:
    """Ends the term when its lease runs out, although its session may live."""

    def stand_still(self: ClaimMonitor) -> None:
        self._end("the lease ran out while the connection to ZooKeeper was suspended")

    put(stack, ClaimMonitor, "_stand_still", stand_still)


@mutation
def go_on_without_comparing(stack: ExitStack) -> None:
    """Goes on as soon as the lease is renewed, although the claim may be another's."""

    async def renewed(self: ClaimMonitor) -> None:
        await self._gate.lease.until_valid()
        if self._role.zk.state is ConnectionState.CONNECTED and not self._gate.ready.is_set():
            self._go_on()

    put(stack, ClaimMonitor, "_compare_until_sure", renewed)


@mutation
def no_watches_after_a_blip(stack: ExitStack) -> None:
    """Reads everything again after a reconnect, and does not arm the watches of topics."""

    async def rearm(self: Term) -> None:
        for kind in (EventKind.BROKER_CHANGE, EventKind.TOPIC_CHANGE, EventKind.ISR_NOTIFICATION):
            self.queue.signal(kind)

    put(stack, Term, "rearm", rearm)


@mutation
def adopt_a_claim(stack: ExitStack) -> None:
    """Goes on with any epoch whose ``/controller`` has the daemon's own id."""
    claim = Role.claim

    async def adopting(self: Role) -> Claim:
        record, _ = await self.controller()
        node = await self.zk.get(paths.CONTROLLER_EPOCH)
        if record is not None and record.broker == self.me.id and node is not None:
            return Claim(int(node.data or b"0"), node.stat.version, None, node.stat.mzxid)
        return await claim(self)

    async def is_ours(self: Role, won: Claim) -> bool:
        node = await self.zk.exists(paths.CONTROLLER_EPOCH)
        record, _ = await self.controller()
        return (
            node is not None
            and node.version == won.fence_version
            and record is not None
            and record.broker == self.me.id
        )

    put(stack, Role, "claim", adopting)
    put(stack, Role, "is_ours", is_ours)
