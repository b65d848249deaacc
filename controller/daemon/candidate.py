"""Leads a daemon to the role, session after session: queue position, turn, claims and terms."""

from __future__ import annotations

import asyncio
import logging
import math

import anyio

from brokers.queries import Dial, dial_for
from controller.daemon.admission import PermissionProbe, QueueAdmission
from controller.daemon.handback import finish
from controller.daemon.state import DaemonState, Mode
from controller.daemon.takeover import TakeoverRefused, take_over
from controller.kafka.journal.term_journal import KafkaJournal
from controller.kafka.path.adoption import ibp_of_term
from controller.kafka.term.claim_monitor import OUTRANKED
from controller.kafka.term.term import Term
from controller.process.zookeeper import through_tls
from controller.role import own_znodes as own
from controller.role.claim import Claim, Role
from controller.role.lease import Lease
from controller.role.queue import ClaimRefused
from metadata_store import paths
from metadata_store.errors import NotConnected, OutcomeUnknown, SessionLost, ZkError, ZooKeeperError
from metadata_store.kazoo_adapter.servers import server_version

log = logging.getLogger("regent.daemon")

RECLAIM_PAUSE_S_MAX = 30.0
STANDBY_POLL_S = 2.0
REFUSED_PAUSE_S_MAX = 16.0
"""Longest pause of a refused daemon before it queues again at the end; the first pause is one poll."""
EARLY_END_PAUSE_S = 0.2
"""Pause after a term that ended before it was active: claims never follow each other without one."""
EARLY_ENDS_MAX = 5
"""Consecutive such terms; further ones count as errors, because their cause does not pass by itself."""
STEADY_TERM_S = 60.0
"""A term that was active for so long resets the count of errors; so long without a refusal resets that count."""
REFUSED_EXIT = 3


class Candidate:
    """One daemon as a candidate for the role. Its counts of errors and refusals outlive a session.

    ``takeover``: it sets the flag first, after the checks. ``endpoint_beside``: it queues once the admin endpoint
    beside it has announced itself, or did not in time.
    """

    def __init__(self, daemon: DaemonState, dial: Dial | None, *, takeover: bool, endpoint_beside: bool) -> None:
        self._d = daemon
        self._admission = QueueAdmission(daemon, endpoint_beside=endpoint_beside)
        self._dial = dial
        self._takeover = takeover
        self._failures = 0
        self._early_ends = 0
        self._refusals = 0
        self._refused_s = -math.inf
        self._serving_since_s: float | None = None

    async def run(self, role: Role, lease: Lease) -> None:
        """Waits for the turn, claims and serves, repeatedly on one session, until the session or the daemon ends."""
        d, probe = self._d, PermissionProbe(role.zk)
        while not d.stopping.is_set():
            d.changed.clear()
            try:
                await self._wait_and_serve(role, lease, probe)
            except ClaimRefused as refused:
                await self._step_back(role, str(refused))
            except ZkError as error:
                await self._step_back(
                    role,
                    f"ZooKeeper refused a request of this daemon ({error}): check the ACL of {error.path}, and "
                    "zookeeper.digest_file; tried again every few seconds",
                )
            except SessionLost:
                raise
            except (NotConnected, OutcomeUnknown) as lost:
                d.become(Mode.STANDBY, f"the connection to ZooKeeper is suspended ({lost})", logging.DEBUG)
                with d.until_stopped(), anyio.move_on_after(STANDBY_POLL_S):
                    await d.changed.wait()

    async def _step_back(self, role: Role, why: str) -> None:
        """Logs the reason and gives up the queue position, because another daemon may have the missing permission."""
        self._d.become(Mode.BLOCKED, why)
        try:
            await role.leave_queue()
        except SessionLost:
            raise
        except ZooKeeperError as error:
            log.debug("the queue position is kept, because it could not be given up: %s", error)
        now_s = asyncio.get_running_loop().time()
        if now_s - self._refused_s >= STEADY_TERM_S:
            self._refusals = 0
        pause_s = min(STANDBY_POLL_S * 2.0**self._refusals, REFUSED_PAUSE_S_MAX)
        self._refusals, self._refused_s = self._refusals + 1, now_s
        await self._d.pause(pause_s)

    async def _wait_and_serve(self, role: Role, lease: Lease, probe: PermissionProbe) -> None:
        """Waits for one turn in the queue and serves one term."""
        d = self._d
        if role.position_path is None:
            if not self._takeover:
                await probe.require()
            if not await self._admission.admits(role):
                return
            await role.enter_queue()
        if self._takeover:
            await self._take_over(role)
        with d.until_stopped():
            await self._until_turn(role, probe)
            if not lease.valid():
                d.become(Mode.STANDBY, "first in the queue, but ZooKeeper has not answered a heartbeat in time")
                await lease.until_valid()
        if not d.stopping.is_set():
            await self._claim_and_serve(role, lease)

    async def _take_over(self, role: Role) -> None:
        """Sets the flag for ``run --takeover``, after the checks of ``regent takeover``; a refusal ends the process."""
        d = self._d
        try:
            await take_over(
                d.settings,
                role,
                dial=dial_for(d.settings),
                release_of=through_tls(server_version, d.settings.zookeeper),
                reason="regent run --takeover",
                by=own.this_user(),
                own_listener=True,
            )
        except TakeoverRefused as refused:
            log.error("the role is not taken: %s; %s", refused.why, refused.remedy)
            d.exit_code = REFUSED_EXIT
            d.stop()
        self._takeover = False

    async def _until_turn(self, role: Role, probe: PermissionProbe) -> None:
        """Returns when this daemon is first in the queue and the flag is regent. Watches only wake the loop."""
        d = self._d
        while True:
            d.changed.clear()
            try:
                since = role.zk.last_zxid
                await probe.require()
                before = await role.predecessor()
                flag, stat = await role.flag()
                if before is None and flag.holder == "regent":
                    return
                if before is None and stat is not None:
                    await self._finish_handback(role)
                why = (
                    f"{own.ROLE} is {flag.holder}: 'regent takeover' gives the role to regent"
                    if flag.holder != "regent"
                    else f"another daemon is before us in the queue: {before}"
                )
                d.become(Mode.STANDBY, why)
                present, absent = ([own.ROLE], []) if stat is not None else ([], [own.ROLE])
                await role.zk.watch(
                    data=[before.path if before is not None else own.LOCKS, *present], exists=absent, since_zxid=since
                )
            except NotConnected:
                d.become(Mode.STANDBY, "the connection to ZooKeeper is suspended", logging.DEBUG)
            with anyio.move_on_after(STANDBY_POLL_S):
                await d.changed.wait()

    async def _finish_handback(self, role: Role) -> None:
        """Completes the hand-back of a daemon that may have died meanwhile: the flag is brokers and we are first."""
        try:
            done = await finish(role)
        except OutcomeUnknown as error:
            log.warning("an interrupted hand-back is not completed yet: %s", error)
        except ZkError as error:
            raise ClaimRefused(
                f"this daemon cannot complete an interrupted hand-back ({error}): check the ACL of "
                f"{error.path}, and zookeeper.digest_file; another daemon gets its turn"
            ) from error
        else:
            if done is not None:
                log.warning("an interrupted hand-back is completed: %s", done)

    async def _claim_and_serve(self, role: Role, lease: Lease) -> None:
        """Claims and serves one term."""
        d = self._d
        d.become(Mode.CLAIMING, "first in the queue, and the role is regent's")
        d.ibp = await ibp_of_term(role.zk, d.settings.controller)
        claim = await role.claim()
        if (seals := await role.seals()) is not None:
            d.listener.identify(seals.cluster_id, d.me.id)
        self._refusals = 0
        daemons = await role.daemons()
        d.counters.terms += 1
        if claim.displaced is not None and claim.displaced not in daemons:
            d.counters.interim_terms += 1
            log.info("the role was held by broker %d", claim.displaced)
        why = await self._serve(self._term(role, claim, lease, daemons))
        d.counters.resignations[why.partition(":")[0]] += 1
        level = logging.INFO if d.stopping.is_set() else logging.WARNING
        log.log(level, "resigned from epoch %d: %s", claim.epoch, why)
        await self._after_term(role, claim, why)

    def _term(self, role: Role, claim: Claim, lease: Lease, daemons: frozenset[int]) -> Term:
        """Creates a term. No reference to it may outlive it, so that its model leaves memory."""
        d = self._d
        return Term(
            settings=d.settings,
            zk=role.zk,
            role=role,
            claim=claim,
            lease=lease,
            counters=d.counters,
            ibp=d.ibp,
            daemons=daemons,
            advertised=d.advertised(),
            dial=self._dial,
            transport=d.transport,
            journal=d.journal.term(d.me.id, claim.epoch, KafkaJournal) if d.journal is not None else None,
            parking=d.parking,
        )

    async def _serve(self, term: Term) -> str:
        """Runs a term; returns why it ended."""
        self._serving_since_s = None
        self._d.begin_term(term)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._announce, term.serving, term.claim.epoch)
                why = await term.run()
                tasks.cancel_scope.cancel()
        finally:
            self._d.end_term(term)
        return why

    async def _announce(self, serving: asyncio.Event, epoch: int) -> None:
        """Enters the active mode. Takes no term: a cancelled task keeps its arguments in memory for a while."""
        await serving.wait()
        self._serving_since_s = asyncio.get_running_loop().time()
        self._d.become(Mode.ACTIVE, f"controller at epoch {epoch}")

    async def _after_term(self, role: Role, claim: Claim, why: str) -> None:
        """Frees the role at once for a stop in mode ``brokers``, and for another daemon after repeated errors."""
        d, since_s = self._d, self._serving_since_s
        if since_s is not None and asyncio.get_running_loop().time() - since_s >= STEADY_TERM_S:
            self._failures = 0
        self._early_ends = self._early_ends + 1 if since_s is None else 0
        if d.stopping.is_set():
            if not role.hold:
                await self._release(role, claim)
        elif why == OUTRANKED:
            await self._wait_for_operator(role, claim)
        elif why.startswith("error:"):
            await self._after_error(role, claim, why)
        elif since_s is None:
            await d.pause(EARLY_END_PAUSE_S)
            if self._early_ends > EARLY_ENDS_MAX:
                await self._after_error(role, claim, why)

    async def _after_error(self, role: Role, claim: Claim, why: str) -> None:
        """Claims again at once after the first error; after later ones frees the role for growing pauses."""
        self._failures += 1
        if self._failures > 1:
            await self._release(role, claim)
            pause_s = min(2.0**self._failures, RECLAIM_PAUSE_S_MAX)
            self._d.become(Mode.BLOCKED, f"error {self._failures} in a row, the next try is in {pause_s:g} s: {why}")
            await self._d.pause(pause_s)

    async def _wait_for_operator(self, role: Role, claim: Claim) -> None:
        """Claims no more until an operator has raised the epoch; a restart queries the brokers again."""
        while not self._d.stopping.is_set():
            self._d.become(Mode.BLOCKED, OUTRANKED)
            try:
                epoch = await role.zk.exists(paths.CONTROLLER_EPOCH)
                if epoch is None or epoch.version != claim.fence_version:
                    return
            except SessionLost:
                raise
            except ZooKeeperError as error:
                log.debug("/controller_epoch could not be read, it is read again soon: %s", error)
            await self._d.pause(STANDBY_POLL_S)

    async def _release(self, role: Role, claim: Claim) -> None:
        with anyio.move_on_after(2.0, shield=True):
            try:
                await role.release(claim)
            except ZooKeeperError as error:
                log.warning("the role could not be released (%s): it ends with the session", error)
