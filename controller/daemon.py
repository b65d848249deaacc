"""The daemon: sessions, standby, terms, and the surfaces around them.

A session that is lost is replaced by a new one; each starts with a place in the queue of daemons. Being first in it
and the role flag saying ``regent`` make a daemon claim.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum

import anyio

from brokers.controller_listener import ControllerListener
from brokers.inbound import ListenerLimits
from brokers.wire.versions import Ibp
from configs.settings import Settings
from controller import own_znodes as own
from controller.calls import Calls
from controller.counters import Counters
from controller.lease import Lease
from controller.office import Claim, ClaimRefused, Office, PlaceLost
from controller.own_znodes import this_process
from controller.questions import Ask, asker
from controller.reign import OUTRANKED, Reign
from controller.shadow.shadow import Shadow
from controller.stall import StallGuard
from metadata_store import paths
from metadata_store.errors import NotConnected, OutcomeUnknown, SessionLost, ZkError, ZooKeeperError
from metadata_store.kazoo_adapter.server_version import server_version
from metadata_store.port import ConnectionState, WatchEvent, ZooKeeper

log = logging.getLogger("regent.daemon")

RECLAIM_PAUSE_S_MAX = 30.0
STANDBY_POLL_S = 2.0
EARLY_END_PAUSE_S = 0.2
"""Pause after a term that did not come into office: claims never follow each other without one."""
STEADY_TERM_S = 60.0
"""A term that lasted so long in office makes the errors before it forgotten."""
REFUSED_EXIT = 3


class Mode(StrEnum):
    """What the daemon is doing."""

    CONNECTING = "connecting"
    STANDBY = "standby"
    BLOCKED = "blocked"
    CLAIMING = "claiming"
    TAKING_OFFICE = "taking office"
    ACTIVE = "active"
    HANDING_BACK = "handing back"
    SHADOW = "shadow"
    STOPPING = "stopping"


def digest_pair(settings: Settings) -> tuple[str, str] | None:
    """User and password of ZooKeeper's digest scheme, or None where none are set."""
    secret = settings.zookeeper.digest
    if secret is None:
        return None
    user, _, password = secret.get_secret_value().partition(":")
    return user, password


def listener_limits(settings: Settings) -> ListenerLimits:
    """The bounds of the controller listener."""
    wanted = settings.listener
    return ListenerLimits(
        frame_bytes_max=wanted.frame_bytes_max,
        connections_max=wanted.connections_max,
        frame_timeout_ms=wanted.frame_timeout_ms,
        idle_timeout_ms=wanted.idle_timeout_ms,
    )


class Daemon:
    """One process. ``connect`` makes a ZooKeeper session object (not yet connected)."""

    def __init__(
        self,
        settings: Settings,
        connect: Callable[[], ZooKeeper],
        *,
        takeover: bool = False,
        shadow: bool = False,
        ask: Ask | None = None,
        guard: StallGuard | None = None,
        new_lease: Callable[[float, float], Lease] = Lease.of_session,
    ) -> None:
        self.settings = settings
        self._new_lease = new_lease
        self.counters = Counters()
        self.me = this_process(settings.controller.id)
        self.ibp = Ibp.parse(settings.controller.ibp)
        self.guard = guard
        self.mode = Mode.CONNECTING
        self.why = "not connected to ZooKeeper yet"
        self.zk: ZooKeeper | None = None
        self.office: Office | None = None
        self.lease: Lease | None = None
        self.reign: Reign | None = None
        self.listener = ControllerListener(settings.listener.host, settings.listener.port, listener_limits(settings))
        self.stopping = asyncio.Event()
        self.exit_code = 0
        self._draining: asyncio.Task[None] | None = None
        self._connect = connect
        self._ask = ask
        self._takeover = takeover
        self.shadow = Shadow(poll_s=settings.shadow.poll_s, counters=self.counters) if shadow else None
        self._failures = 0
        self._in_office_since_s: float | None = None
        self._waiting = anyio.CancelScope()
        self._lost, self._changed = asyncio.Event(), asyncio.Event()

    def become(self, mode: Mode, why: str) -> None:
        """Changes the mode and says why, once. A daemon that stops stays at that."""
        if self.stopping.is_set() and mode is not Mode.STOPPING:
            return
        if (mode, why) != (self.mode, self.why):
            log.info("%s: %s", mode, why)
        self.mode, self.why = mode, why

    async def run(self) -> None:
        """Serves until stopped. Raises what makes going on pointless; a lost session is not such a thing."""
        await self.listener.start()
        try:
            async with anyio.create_task_group() as tasks:
                if self.guard is not None:
                    tasks.start_soon(self.guard.tick)
                tasks.start_soon(self._stop_on_signal)
                while not self.stopping.is_set():
                    await self._session()
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await self.listener.stop()

    def stop(self) -> None:
        """Begins a clean stop: what waits is carried out and told, then the role is given up (in mode ``brokers``).

        Asked again it does not wait any more.
        """
        again = self.stopping.is_set()
        self.become(Mode.STOPPING, "asked to stop")
        self.stopping.set()
        self._waiting.cancel()
        reign = self.reign
        if reign is None:
            return
        if again or not reign.in_office.is_set():
            reign.term.end("the daemon stops")
        else:
            self._draining = asyncio.get_running_loop().create_task(self._drain(reign), name="drain")

    async def _drain(self, reign: Reign) -> None:
        """Bounded by ``controller.drain_timeout_ms``; a term that ends by itself meanwhile ends it, too."""
        from controller.handback import drain

        try:
            await drain(self, reign, log.info)
        finally:
            reign.term.end("the daemon stops")

    async def _stop_on_signal(self) -> None:
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as received:
            async for number in received:
                log.info("%s received", signal.Signals(number).name)
                self.stop()

    @contextmanager
    def _until_stopped(self) -> Iterator[None]:
        """A wait that a stop cuts short; afterwards ``stopping`` tells."""
        self._waiting = anyio.CancelScope()
        with self._waiting:
            if self.stopping.is_set():
                self._waiting.cancel()
            yield

    # -- one session

    async def _session(self) -> None:
        """Connects, queues, and claims whenever it is our turn; returns when the session is over."""
        self.become(Mode.CONNECTING, f"connecting to ZooKeeper at {self.settings.zookeeper.connect}")
        zk = self.zk = self._connect()
        self._lost, self._changed = asyncio.Event(), asyncio.Event()
        zk.on_watch, zk.on_state = self._watched, self._state_changed
        zk.on_state_thread = self._state_changed_at_once
        try:
            with self._until_stopped():
                await zk.connect(self.settings.zookeeper.connect_timeout_ms / 1000)
        except ZooKeeperError as error:
            self.become(Mode.CONNECTING, f"no ZooKeeper session: {error}; tried again every second")
            await self._pause(1.0)
            await zk.close()
            return
        if self.stopping.is_set():
            await zk.close()
            return
        lease = self.lease = self._new_lease(zk.session_timeout_ms / 1000, self.settings.controller.lease_fraction)
        office = self.office = Office(
            zk,
            self.me,
            hold=self.settings.controller.on_absence == "hold",
            digest=digest_pair(self.settings),
        )
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lease.keep, zk.heartbeat, NotConnected)
                tasks.start_soon(self._end_when_lost, tasks.cancel_scope)
                if self.shadow is not None:
                    await self._follow(zk, self.shadow)
                else:
                    await self._candidacy(zk, office, lease)
                tasks.cancel_scope.cancel()
        except* (NotConnected, PlaceLost) as lost:
            log.warning("the ZooKeeper session is over: %s", _first(lost))
        finally:
            await self._leave(zk, office)

    async def _leave(self, zk: ZooKeeper, office: Office) -> None:
        """Gives the place up and closes; with the session gone there is nothing to give up."""
        with anyio.move_on_after(2.0, shield=True):
            try:
                await office.leave_queue()
            except ZooKeeperError:
                log.debug("the place in the queue goes with the session")
        with anyio.CancelScope(shield=True):
            await zk.close()
        zk.on_watch = zk.on_state = zk.on_state_thread = None
        self.zk = self.office = self.lease = None

    async def _end_when_lost(self, scope: anyio.CancelScope) -> None:
        """Ends the session's scope once the session is lost; a term ends in its own way first."""
        await self._lost.wait()
        if self.reign is not None:
            self.reign.term.end("the ZooKeeper session is lost")
            await self.reign.finished.wait()
        scope.cancel()

    def _watched(self, event: WatchEvent) -> None:
        if self.reign is not None:
            self.reign.watched(event)
        self._changed.set()

    def _state_changed(self, state: ConnectionState) -> None:
        if state is ConnectionState.LOST:
            self._lost.set()
        if self.reign is not None:
            self.reign.state_changed(state)
        self._changed.set()

    def _state_changed_at_once(self, state: ConnectionState) -> None:
        """On the adapter's thread."""
        reign = self.reign
        if reign is not None and state is ConnectionState.LOST:
            reign.term.end("the ZooKeeper session is lost")

    async def _candidacy(self, zk: ZooKeeper, office: Office, lease: Lease) -> None:
        """Waits for the turn, claims, serves; again and again on one session."""
        while not self.stopping.is_set():
            self._changed.clear()
            try:
                await self._stand(zk, office, lease)
            except ClaimRefused as refused:
                self.become(Mode.BLOCKED, str(refused))
                await self._pause(STANDBY_POLL_S)
            except ZkError as error:
                self.become(
                    Mode.BLOCKED,
                    f"ZooKeeper refused a request of this daemon ({error}): check the ACL of {error.path}, and "
                    "zookeeper.digest; tried again every few seconds",
                )
                await self._pause(STANDBY_POLL_S)
            except SessionLost:
                raise
            except (NotConnected, OutcomeUnknown) as lost:
                self.become(Mode.STANDBY, f"the connection to ZooKeeper is suspended ({lost})")
                with self._until_stopped(), anyio.move_on_after(STANDBY_POLL_S):
                    await self._changed.wait()

    async def _stand(self, zk: ZooKeeper, office: Office, lease: Lease) -> None:
        """One turn in the queue, and one term."""
        if office.lock_path is None:
            await office.enter_queue()
        if self._takeover:
            await self._take_over(office)
        with self._until_stopped():
            await self._turn(zk, office)
            if not lease.valid():
                self.become(Mode.STANDBY, "first in the queue, but ZooKeeper has not answered a heartbeat in time")
                await lease.until_valid()
        if not self.stopping.is_set():
            await self._rule(zk, office, lease)

    async def _follow(self, zk: ZooKeeper, shadow: Shadow) -> None:
        """Shadow mode: no place in the queue, no write, nothing sent."""
        self.become(Mode.SHADOW, "deciding beside Kafka's own controller; nothing is written or sent")
        with self._until_stopped():
            await shadow.run(zk)

    async def _take_over(self, office: Office) -> None:
        """``run --takeover``: the same checks and the same flag as ``regent takeover``; a refusal ends the process."""
        from controller.takeover import TakeoverRefused, take_over

        try:
            await take_over(
                self.settings,
                office,
                ask=asker(self.settings),
                release_of=server_version,
                reason="regent run --takeover",
                own_listener=True,
            )
        except TakeoverRefused as refused:
            log.error("the role is not taken: %s; %s", refused.why, refused.remedy)
            self.exit_code = REFUSED_EXIT
            self.stop()
        self._takeover = False

    async def _turn(self, zk: ZooKeeper, office: Office) -> None:
        """Returns when we are first in the queue and the flag says regent. The watches only wake it up."""
        while True:
            self._changed.clear()
            try:
                since = zk.last_zxid
                before = await office.predecessor()
                flag, stat = await office.role()
                if before is None and flag.holder == "regent":
                    return
                if before is None and stat is not None:
                    await self._finish_handback(office)
                why = (
                    f"{own.ROLE} says {flag.holder}: 'regent takeover' gives the role to regent"
                    if flag.holder != "regent"
                    else f"another daemon is before us in the queue ({before})"
                )
                self.become(Mode.STANDBY, why)
                present, absent = ([own.ROLE], []) if stat is not None else ([], [own.ROLE])
                await zk.watch(data=[before or own.LOCKS, *present], exists=absent, since_zxid=since)
            except NotConnected:
                self.become(Mode.STANDBY, "the connection to ZooKeeper is suspended")
            with anyio.move_on_after(STANDBY_POLL_S):
                await self._changed.wait()

    async def _finish_handback(self, office: Office) -> None:
        """The flag says brokers and we are first: a daemon before us may have died while it handed the role back."""
        from controller.handback import finish

        try:
            done = await finish(office)
        except (ZkError, OutcomeUnknown) as error:
            log.warning("a hand-back that was cut short is not ended yet: %s", error)
        else:
            if done is not None:
                log.warning("a hand-back that was cut short is ended: %s", done)

    async def _rule(self, zk: ZooKeeper, office: Office, lease: Lease) -> None:
        """Claims and serves one term."""
        self.become(Mode.CLAIMING, "first in the queue, and the role is regent's")
        claim = await office.claim()
        self.counters.terms += 1
        if claim.displaced is not None and not await self._is_daemon(office, claim.displaced):
            self.counters.interim_terms += 1
            log.info("the role was held by broker %d", claim.displaced)
        reign = self.reign = Reign(
            settings=self.settings,
            zk=zk,
            office=office,
            claim=claim,
            lease=lease,
            counters=self.counters,
            ibp=self.ibp,
            daemons=await office.daemons(),
            advertised=self.advertised(),
            ask=self._ask,
        )
        if self.stopping.is_set():
            reign.term.end("the daemon stops")
        else:
            self.become(Mode.TAKING_OFFICE, f"claimed epoch {claim.epoch}")
        self.listener.serve(Calls(reign.queue))
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._announce, reign)
                why = await reign.run()
                tasks.cancel_scope.cancel()
        finally:
            self.listener.resign()
            if self._draining is not None:
                self._draining.cancel()
            self.reign = None
            reign.finished.set()
        self.counters.resignations[why.partition(":")[0]] += 1
        log.warning("resigned from epoch %d: %s", claim.epoch, why)
        await self._after_term(zk, office, claim, why)

    async def _announce(self, reign: Reign) -> None:
        self._in_office_since_s = None
        await reign.in_office.wait()
        self._in_office_since_s = asyncio.get_running_loop().time()
        self.become(Mode.ACTIVE, f"controller at epoch {reign.claim.epoch}")

    async def _after_term(self, zk: ZooKeeper, office: Office, claim: Claim, why: str) -> None:
        """A stop in mode ``brokers`` frees the role at once; after repeated errors another daemon gets its turn."""
        since_s, now_s = self._in_office_since_s, asyncio.get_running_loop().time()
        if since_s is not None and now_s - since_s >= STEADY_TERM_S:
            self._failures = 0
        if self.stopping.is_set() and not office.hold:
            await self._release(office, claim)
        elif why == OUTRANKED:
            await self._wait_for_operator(zk, claim)
        elif since_s is None and not why.startswith("error:"):
            await self._pause(EARLY_END_PAUSE_S)
        elif why.startswith("error:"):
            self._failures += 1
            if self._failures > 1:
                await self._release(office, claim)
                pause_s = min(2.0**self._failures, RECLAIM_PAUSE_S_MAX)
                self.become(Mode.BLOCKED, f"error {self._failures} in a row, the next try is in {pause_s:g} s: {why}")
                await self._pause(pause_s)

    async def _wait_for_operator(self, zk: ZooKeeper, claim: Claim) -> None:
        """Claims no more until somebody has raised the epoch; a restart asks the brokers again."""
        while not self.stopping.is_set():
            self.become(Mode.BLOCKED, OUTRANKED)
            try:
                epoch = await zk.exists(paths.CONTROLLER_EPOCH)
                if epoch is None or epoch.version != claim.fence_version:
                    return
            except SessionLost:
                raise
            except NotConnected:
                log.debug("it is looked at again when the connection is back")
            await self._pause(STANDBY_POLL_S)

    async def _release(self, office: Office, claim: Claim) -> None:
        with anyio.move_on_after(2.0, shield=True):
            try:
                await office.release(claim)
            except ZooKeeperError as error:
                log.warning("the role could not be given up by itself (%s): it goes with the session", error)

    def advertised(self) -> tuple[str, int]:
        """Where brokers reach the controller listener."""
        wanted = self.settings.listener
        return wanted.advertised_host, wanted.advertised_port or self.listener.port

    async def _is_daemon(self, office: Office, holder: int) -> bool:
        return holder in await office.daemons()

    async def _pause(self, seconds: float) -> None:
        with anyio.move_on_after(seconds):
            await self.stopping.wait()


def _first(group: BaseExceptionGroup[Exception]) -> BaseException:
    """The first error inside of nested groups."""
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner
