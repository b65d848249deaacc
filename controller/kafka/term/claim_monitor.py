"""Compares a term's claim with ZooKeeper whenever it is in doubt.

Doubts are a lost connection, a lease that ran out, one of our own watches that fired, and brokers that have seen a
higher epoch. ``ready`` of the gate is clear while the connection is down, the lease is over, or the claim was not
compared since: nothing is written or sent. An outage ends no term, however long it is; only the session's end or
another claim does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from controller.kafka.journal.term_journal import KafkaJournal
from controller.kafka.metrics.values import Counters
from controller.kafka.path.events import EventKind, EventQueue
from controller.kafka.path.gate import Gate
from controller.role.claim import Claim, Role
from controller.role.lease import Outage
from metadata_store import paths
from metadata_store.errors import NotConnected, OutcomeUnknown
from metadata_store.port import ConnectionState
from state_machines.journal.events import Kind

log = logging.getLogger("regent.role")

WATCHED = (paths.CONTROLLER, paths.CONTROLLER_EPOCH)
OUTRANKED = (
    "most brokers have seen a higher controller epoch than ZooKeeper holds: was the ensemble restored from a backup, "
    f"or is this the wrong one? Once its data is known to be right, raise {paths.CONTROLLER_EPOCH} above the brokers' "
    "epoch; or restart those brokers, which makes them forget it, and then this daemon"
)
"""Reason of a term's end after which the daemon claims no other one before an operator acted."""
WITHIN = "within the lease"


class ClaimMonitor:
    """Watches a term's claim, and its lease.

    ``end`` ends the term. ``stood_still`` runs when the lease runs out; ``back`` when connection, lease and claim hold
    again, with whether the lease had run out.
    """

    def __init__(
        self,
        role: Role,
        claim: Claim,
        gate: Gate,
        *,
        end: Callable[[str], None],
        stood_still: Callable[[], None],
        back: Callable[[bool], None],
    ) -> None:
        self._role = role
        self._claim = claim
        self._gate = gate
        self._end = end
        self._stood_still = stood_still
        self._back = back
        self.stands_still = False
        """Whether the lease ran out, and the claim was not compared since it was renewed."""
        self._doubts = 0
        self._outranked = False
        self._comparing: asyncio.Task[None] | None = None
        self._lease_timer: asyncio.TimerHandle | None = None
        self._outage = Outage()

    async def arm(self) -> bool:
        """Watches lease and claim, the claim from the zxid on at which it was won; returns whether it still holds."""
        self._watch_lease()
        await self._role.zk.watch(data=WATCHED, since_zxid=self._claim.zxid)
        return await self._role.is_ours(self._claim)

    def suspended(self) -> None:
        """Holds writes and requests back: the connection is lost."""
        log.warning(
            "the connection to ZooKeeper server %s is lost: writes, requests and calls wait until it is back, and "
            "calls are refused after the %.1f s that are left of the lease",
            self._role.zk.peer,
            max(0.0, self._gate.lease.remaining_s()),
        )
        self._outage.begin(self._gate.lease)
        self._gate.ready.clear()
        self._doubts += 1
        self._watch_lease()

    def reconnected(self) -> None:
        """Has the claim compared: the same session is up again."""
        self._watch_lease()
        if not self._gate.ready.is_set():
            self.doubt()

    def outranked(self) -> None:
        """Has the claim compared: most brokers have seen a higher controller epoch."""
        self._outranked = True
        self.doubt()

    def doubt(self) -> None:
        """Has the claim compared soon; one comparison at a time."""
        self._doubts += 1
        if self._comparing is None or self._comparing.done():
            self._comparing = asyncio.get_running_loop().create_task(self._compare_until_sure())

    def close(self) -> None:
        """Ends the comparison and the watch of the lease."""
        if self._comparing is not None:
            self._comparing.cancel()
        if self._lease_timer is not None:
            self._lease_timer.cancel()

    def _watch_lease(self) -> None:
        """Looks at the lease whenever it may run out."""
        lease = self._gate.lease
        if self._lease_timer is not None:
            self._lease_timer.cancel()
        if self._gate.ended or self.stands_still:
            return
        if lease.valid():
            self._lease_timer = asyncio.get_running_loop().call_later(lease.remaining_s(), self._watch_lease)
        else:
            self._stand_still()

    def _stand_still(self) -> None:
        """Stops acting, and keeps the term: ZooKeeper ends no session while it has no leader.

        Another controller may be elected from now on (KAFKA-1096): only a comparison of the claim shows that none was.
        """
        log.warning(
            "the lease ran out: ZooKeeper has answered no heartbeat for %.1f s, so this daemon writes and sends "
            "nothing, and refuses calls; epoch %d goes on once ZooKeeper answers, unless session or claim are lost by "
            "then",
            self._gate.lease.silent_s(),
            self._claim.epoch,
        )
        self.stands_still = True
        self._gate.ready.clear()
        self._stood_still()
        self.doubt()

    async def _compare_until_sure(self) -> None:
        """Compares until no new doubt came up meanwhile and the lease holds; then writes and requests go on."""
        compared, lease = 0, self._gate.lease
        while (compared != self._doubts or not lease.valid()) and not self._gate.ended:
            await lease.until_valid()
            if self._role.zk.state is not ConnectionState.CONNECTED:
                return
            compared = self._doubts
            try:
                await self._compare()
            except (NotConnected, OutcomeUnknown):
                compared = 0
            except Exception as error:
                log.exception("the claim cannot be compared with ZooKeeper")
                self._end(f"error: {type(error).__name__}: {error}")
        if not self._gate.ready.is_set() and not self._gate.ended:
            self._go_on()

    def _go_on(self) -> None:
        length = self._outage.end()
        log.info(
            "ZooKeeper server %s %s, %s: epoch %d goes on",
            self._role.zk.peer,
            "answers heartbeats again" if length is None else f"is connected after {length}",
            "after the lease had run out, and session and claim are unchanged" if self.stands_still else WITHIN,
            self._claim.epoch,
        )
        stood_still, self.stands_still = self.stands_still, False
        self._gate.ready.set()
        self._watch_lease()
        self._back(stood_still)

    async def _compare(self) -> None:
        """Ends the term where the claim is lost; stops the daemon where it holds but brokers saw a higher epoch."""
        since = self._role.zk.last_zxid
        if not await self._role.is_ours(self._claim):
            self._end("another controller was elected: /controller or /controller_epoch is no longer ours")
        elif self._outranked:
            log.critical("%s", OUTRANKED)
            self._end(OUTRANKED)
        else:
            await self._role.zk.watch(data=WATCHED, since_zxid=since)


def stand_still(queue: EventQueue, journal: KafkaJournal, counters: Counters) -> None:
    """Refuses callers: it may be long until the term goes on."""
    counters.standstills += 1
    journal.event(Kind.CTL_PHASE, why="suspended: the lease ran out, nothing is written or sent, calls are refused")
    queue.refuse_calls()


def go_on(queue: EventQueue, journal: KafkaJournal, stood_still: bool) -> None:
    """Has everything read again that may have changed; calls are taken after that."""
    if stood_still:
        journal.event(Kind.CTL_PHASE, why="ZooKeeper answers again, session and claim are unchanged: the term goes on")
    queue.signal(EventKind.RECONNECTED)
