"""Runs beside a service's server: registers it, keeps its lease, carries out operations and reports their results."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final, TypeVar

from regent_agent import protocol
from regent_agent.answers import Answers
from regent_agent.attempts import Attempts
from regent_agent.connection import PAUSE_MS_MAX, Channel, Daemons, RequestRefused
from regent_agent.lease import Lease, Moment, machine_s
from regent_agent.news import News
from regent_agent.options import AgentOptions
from regent_agent.outbox import Outbox
from regent_agent.protocol import (
    DEAD,
    FIGURES_MAX,
    NAME_CHARS_MAX,
    NODES,
    REGISTER,
    Accepted,
    Leave,
    Left,
    Operations,
    Owned,
    Poll,
    Published,
    RegionLoad,
    Regions,
    Register,
    Registered,
    Report,
    Result,
)
from regent_agent.service import OpenedRegion, Service
from regent_agent.work import Work

R = TypeVar("R", Accepted, Left)

log = logging.getLogger("regent_agent")

PROOF_BYTES: Final = 16
LEAVE_PAUSE_S: Final = 0.2
TRIES_IN_LEASE: Final = 4
POLL_MARGIN: Final = 0.2
"""Part of the lease that a response to a poll may be late, before the agent tries another daemon."""
WAIT_S_MIN: Final = 0.001
"""Least wait for a time to come: a sum of floats may stay below one that is nearer."""


class Died(Exception):
    """Raised where this process is no member any more: the daemon fenced it, or it left or stopped.

    ``above``: the next process with this name needs an incarnation above this one; 0 where any later one will do.
    """

    def __init__(self, why: str, above: int = 0) -> None:
        super().__init__(why)
        self.above = above


class Agent:
    """Has regions assigned to one process of a server.

    ``died`` is set once the daemon has fenced this process: it must end. ``owned`` has the regions that are open here.
    """

    def __init__(
        self,
        service: Service,
        options: AgentOptions,
        *,
        clock: Callable[[], float] = machine_s,
        wall: Callable[[], float] = time.time,
        load: Callable[[], dict[str, int]] | None = None,
        region_loads: Callable[[], Iterable[RegionLoad]] | None = None,
        jitter: Callable[[], float] = random.random,
        fenced_by: Callable[[str], None] = lambda _: None,
        refused: Callable[[str, str], None] = lambda code, text: None,
        answers: Answers | None = None,
    ) -> None:
        """``clock``, ``wall``: seconds of the machine and of the day; a lease ends by either of them.

        ``load``: figures for the polls. ``region_loads``: the loads of the regions that are open; the agent calls it
        every few seconds.

        ``fenced_by`` gets :attr:`fence` at each registration, before anything is opened; it may have changed since.
        ``refused`` gets code and text of each refusal. The agent goes on trying: a program may end instead.
        ``answers``: where this server answers, instead of by reports, to a daemon that looks there.
        """
        self._options, self._fenced_by = options, fenced_by
        self._answers = answers
        self.load = load
        self.server = options.server
        self._incarnation = options.incarnation or time.time_ns() // 1_000
        self._is_named = bool(options.incarnation)
        """Whether others know the incarnation, so that it stays."""
        self.died = asyncio.Event()
        self._lease = Lease(clock, service.suspend, service.resume, wall)
        self._wake = asyncio.Event()
        self._outbox = Outbox(clock, self._wake.set)
        self._work = Work(
            service,
            self._outbox,
            lambda: self.serving,
            side_by_side_max=options.side_by_side_max,
            queue_max=options.queue_max,
        )
        self.owned: MappingProxyType[int, OpenedRegion] = MappingProxyType(self._work.opened)
        proof = secrets.token_bytes(PROOF_BYTES)
        daemons = self._daemons = Daemons(options.daemons, secret=options.secret, proof=proof, tls=options.tls)
        self._polls, self._reports = Channel(daemons), Channel(daemons)
        self._news = News(clock, region_loads, self.owned)
        self._registration: Registered | None = None
        self._registered = asyncio.Event()
        self._taken = 0
        self._was_member = False
        self._list_regions = False
        self._leaving = asyncio.Lock()
        self._ended_by = Died("it left or stopped")
        self._attempts = Attempts(self.server, jitter, self._die, refused)
        self._ended = self._attempts.ended
        self._tasks: list[asyncio.Task[None]] = []
        self._appearing: asyncio.Task[None] | None = None

    # -- used by the service

    @property
    def serving(self) -> bool:
        """Returns whether the service may answer now: look before each answer to a client."""
        return self._lease.valid

    @property
    def incarnation(self) -> int:
        """Returns the incarnation. It stays from now on: the service may name its log by it."""
        self._is_named = True
        return self._incarnation

    @property
    def above(self) -> int:
        """Returns the incarnation above which the next process with this name has to be; 0 where any later one is."""
        return self._ended_by.above

    @property
    def fence(self) -> str:
        """Returns the daemon's setting ``regions.fence``, empty while this server is not registered."""
        return "" if self._registration is None else _fence_of(self._registration)

    @property
    def published(self) -> Mapping[str, Published]:
        """Returns the values that were published, by name, as this server was told."""
        return MappingProxyType(self._work.published)

    def independent(self, region: OpenedRegion) -> None:
        """Has the daemon know that a region has data of its own, and needs its sources no more.

        It is repeated until the daemon has stored it, and to the next daemon while the region is open. Once all that
        took a region's data have said so, the service is told to discard that data.
        """
        self._news.independents.add(region)
        self._wake.set()

    def owns(self, region: int, token: int | None = None) -> bool:
        """Returns whether a region is open here, with this token if one is given, and may be served now."""
        has = self._work.opened.get(region)
        return has is not None and (token is None or has.token == token) and self.serving

    async def start(self) -> None:
        """Connects and registers, and returns once a daemon has accepted; raises :class:`Died`.

        The agent goes on trying in the background if this call is cancelled.
        """
        if not self._tasks:
            loops = {"polls": self._poll, "reports": self._report, "lease": self._watch_lease}
            self._tasks = [asyncio.create_task(loop(), name=f"regent_agent {name}") for name, loop in loops.items()]
        await self.registered()

    async def registered(self) -> None:
        """Waits until a daemon has accepted this server; raises :class:`Died`."""
        await self._registered.wait()
        if self._ended.is_set():
            why = f"server {self.server} incarnation {self._incarnation} is no member any more: {self._ended_by}"
            raise Died(why, self._ended_by.above)

    async def leave(self, timeout_s: float) -> bool:
        """Has all regions moved away; returns whether they are and this server is no member any more.

        After False the server is a member still, and regions keep moving away. Call :meth:`stop` in both cases.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._attempts.repeat(self._leave, "requests to leave")
        if self._ended.is_set():
            return not self.died.is_set()
        log.warning(
            "server %s still has %d regions after %g s of leaving: look whether other servers can take them",
            self.server,
            len(self._work.owned()),
            timeout_s,
        )
        return False

    async def stop(self) -> None:
        """Ends the agent and suspends the service. Without :meth:`leave` the daemon fences the server later."""
        self._end()
        ending = asyncio.current_task()
        tasks, self._tasks = [task for task in (*self._tasks, *self._work.running) if task is not ending], []
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- polls: registration, lease and operations

    async def _poll(self) -> None:
        async def step() -> None:
            if self._registration is None:
                await self._register()
            await self._fetch()

        await self._attempts.repeat(step, "polls")

    async def _register(self) -> None:
        async with self._leaving:  # the last Left may be on its way: this server is not to come back then
            sent, owned, registration = await self._enter()
        log.info(
            "server %s is registered with epoch %d, its incarnation is %d, it has %d regions",
            self.server,
            registration.epoch,
            self._incarnation,
            len(owned),
        )
        self._fenced_by(_fence_of(registration))  # where it raises, this server registers anew
        self._registration, self._taken, self._was_member = registration, 0, True
        self._attempts.pause_ms_max = min(PAUSE_MS_MAX, registration.lease_ms // TRIES_IN_LEASE)
        self._work.answers = self._answers if registration.nodes else None
        if self._work.answers is not None and (self._appearing is None or self._appearing.done()):
            self._appearing = asyncio.create_task(self._appear(self._work.answers), name="appears")
            self._tasks = [*(one for one in self._tasks if not one.done()), self._appearing]
        self._renew(sent, registration)
        self._news.anew()
        for value in registration.published:
            self._work.has(value)
        self._outbox.repeat_all()
        self._registered.set()

    async def _appear(self, answers: Answers) -> None:
        """Makes the ephemeral znode of this process; a server without it serves all the same."""
        try:
            await answers.appears()
        except Exception as error:
            log.warning("no znode tells that server %s lives, so its lease alone does: %s", self.server, error)

    async def _enter(self) -> tuple[Moment, list[Owned], Registered]:
        """Registers this process; where its clock is behind, it takes the incarnation after one that was fenced.

        It was never a member, and no other process knows its incarnation: so it is no fenced process that comes back.
        """
        options = self._options
        while True:
            await self._polls.open()
            sent, owned = self._lease.sending(), self._work.owned()
            features = [*options.features, *(() if self._answers is None else (NODES,))]
            message = Register(self.server, self._incarnation, options.address, options.software, owned, features)
            try:
                return sent, owned, await self._polls.request(message, Registered, options.request_ms_max / 1000)
            except RequestRefused as refused:
                if self._is_named or self._was_member or refused.code != DEAD or not refused.above:
                    raise
                self._incarnation = refused.above + 1
                log.warning(
                    "%s: server %s takes the incarnation %d, as it was never registered; set the clock of its machine",
                    *(refused, self.server, self._incarnation),
                )

    async def _fetch(self) -> None:
        registration = self._registration
        if registration is None:
            return
        await self._polls.open()
        sent = self._lease.sending()
        timeout_s = (registration.hold_ms + registration.lease_ms * POLL_MARGIN) / 1000
        message = Poll(self.server, self._incarnation, registration.epoch, self._taken, self._load())
        try:
            got = await self._polls.request(message, Operations, timeout_s)
        except RequestRefused as refused:
            if refused.code == REGISTER:
                self._forget(registration)
            raise
        if got.epoch != registration.epoch:
            self._forget(registration)
            return
        self._taken = got.number
        self._renew(sent, registration)
        self._daemons.sent(got.operations)
        for operation in got.operations:
            self._work.add(operation)
        if got.list_regions:
            self._list_regions = True
            self._wake.set()

    def _renew(self, sent: Moment, registration: Registered) -> None:
        self._lease.renew(sent, registration.lease_ms, registration.suspends)
        self._work.begin()

    def _forget(self, registration: Registered) -> None:
        """Has this server registered anew, unless that has happened since ``registration``."""
        if self._registration is registration and not self._ended.is_set():
            self._registration = None
            self._registered.clear()

    def _load(self) -> dict[str, int]:
        try:
            figures = list(self.load().items())[:FIGURES_MAX] if self.load is not None else []
            return {name[:NAME_CHARS_MAX]: int(value) for name, value in figures}
        except Exception:
            log.exception("the service failed to give its load; this poll has none")
            return {}

    # -- reports

    async def _report(self) -> None:
        await self._attempts.repeat(self._send_results, "reports")

    async def _send_results(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._wait_s()):
                await self._wake.wait()
        self._wake.clear()
        await self._registered.wait()
        if (registration := self._registration) is None:
            return
        try:
            if results := self._outbox.due():
                await self._send_report(registration, results)
            if self._list_regions:
                await self._send_list(registration)
            process = self.server, self._incarnation, registration.epoch
            await self._news.send(process, registration.requests, partial(self._accepted, registration))
        except BaseException:
            self._wake.set()
            raise

    def _wait_s(self) -> float | None:
        """Returns the time until something is to be sent to the present daemon; None without."""
        known = () if self._registration is None else self._registration.requests
        waits = self._outbox.wait_s(), self._news.wait_s(known)
        wait_s = min((one for one in waits if one is not None), default=None)
        return max(wait_s, WAIT_S_MIN) if wait_s else wait_s

    async def _accepted(self, registration: Registered, message: protocol.Request) -> Accepted:
        return await self._request(registration, message, Accepted)

    async def _send_list(self, registration: Registered) -> None:
        self._list_regions = False  # another request for a list may come while this one is on its way
        message = Regions(self.server, self._incarnation, registration.epoch, self._work.owned())
        try:
            await self._request(registration, message, Accepted)
        except BaseException:
            self._list_regions = True
            raise

    async def _send_report(self, registration: Registered, results: list[Result]) -> None:
        message = Report(self.server, self._incarnation, registration.epoch, results, self._taken)
        try:
            accepted = await self._request(registration, message, Accepted)
        except BaseException:
            self._outbox.not_sent(results)
            raise
        self._outbox.accepted(results, set(accepted.again))

    async def _request(self, registration: Registered, message: protocol.Request, expected: type[R]) -> R:
        """Sends a request over the connection for reports; has this server registered anew where it must."""
        try:
            return await self._reports.request(message, expected, self._options.request_ms_max / 1000)
        except RequestRefused as refused:
            if refused.code == REGISTER and self._registration is registration:
                self._forget(registration)
                self._polls.close()  # a poll may be held still
            raise

    async def _leave(self) -> None:
        await self._registered.wait()
        async with self._leaving:
            if (registration := self._registration) is None or self._ended.is_set():
                return
            message = Leave(self.server, self._incarnation, registration.epoch)
            left = await self._request(registration, message, Left)
            if left.regions == 0:
                log.info("server %s has left: all its regions are with other servers", self.server)
                self._end()
                return
        await asyncio.sleep(LEAVE_PAUSE_S)

    # -- for all of them

    async def _watch_lease(self) -> None:
        while True:
            self._lease.check()
            await asyncio.sleep(self._lease.wait_s())

    def _die(self, error: Exception) -> None:
        if self._ended.is_set():
            return
        log.critical("server %s is fenced, this process must end and be started again: %s", self.server, error)
        self._ended_by = Died(str(error), error.above if isinstance(error, RequestRefused) else 0)
        self.died.set()
        self._end()

    def _end(self) -> None:
        """Serves nothing any more, at once, and cancels all tasks but the one that calls."""
        self._ended.set()
        self._registered.set()
        self._lease.end()
        self._polls.close()
        self._reports.close()
        caller = asyncio.current_task()
        for task in (*self._tasks, *self._work.running):
            if task is not caller:
                task.cancel()


def _fence_of(registration: Registered) -> str:
    """Returns the daemon's fence; older daemons do not name it."""
    return registration.fence or ("lease" if registration.suspends else "log")
