"""Connects a client with the simulated ensemble: the connection begins, breaks, returns, and carries its traffic.

As with the real adapter, replies, watch events and states reach the client in the order of the wire. A write whose
connection broke before its reply has an unknown outcome; such a read was not carried out.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from metadata_store.errors import Code, ConnectFailed, NotConnected, OutcomeUnknown
from metadata_store.port import Check, ConnectionState, WatchEvent, Write, WriteHooks
from testing.memory import MemoryZooKeeper
from tests.kit.simulation.loop import Process
from tests.simulation.kafka import faults
from tests.simulation.kafka.ensemble import Ensemble, Member, Session

LATENCY_S_MAX: Final = 0.002
RECONNECT_S_MAX: Final = 0.3
ATTEMPT_S: Final = 0.5
"""Time of an attempt at a frozen server; the client makes one at each before it tries another server."""
CLOSE_S_MAX: Final = 2.0


class Request:
    """One request on its way. ``ops`` is None for reads; ``syncs``: the server catches up before it replies."""

    __slots__ = ("code", "future", "ops", "single", "syncs", "work")

    def __init__(
        self, work: Callable[[], Any] | None, ops: Sequence[Write] | None = None, *, single: bool = False
    ) -> None:
        self.work = work
        self.ops = ops
        self.single = single
        self.code: Code | None = None
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()


class SimLink(MemoryZooKeeper):
    """Holds the session of one process. ``cut_off``: no packet passes between it and the ensemble."""

    def __init__(
        self,
        ensemble: Ensemble,
        process: Process,
        name: str,
        *,
        session_timeout_ms: int,
        credentials: str | None = None,
        hooks: WriteHooks | None = None,
    ) -> None:
        super().__init__(ensemble.leader, session_timeout_ms=session_timeout_ms, credentials=credentials, hooks=hooks)
        self.ensemble = ensemble
        self.process = process
        self.name = name
        self.received = 0
        self.cut_off = False
        self._requested_ms = session_timeout_ms
        self.reply_delay_s = 0.0
        self.session: Session | None = None
        self.by_daemon = False
        self.heartbeat_s = 0.0
        """Time at which the last heartbeat with a reply was sent."""
        self.in_doubt_s = 0.0
        """Time at which the present connection began, or a heartbeat renewed a lease that had run out."""
        self.renewed: Callable[[], None] = lambda: None
        """Called when a heartbeat renews such a lease."""
        self.heartbeat_waits_s: float | None = None
        """Time at which the heartbeat under way was sent."""
        self.submitted: Callable[[SimLink, Sequence[Write]], None] = lambda *_: None
        self.void: Callable[[Sequence[Write]], bool] = lambda _: False
        """Returns whether writes are lost on their way."""
        self._member: Member | None = None
        self._connection = 0
        self._severed = -1
        self._muted = -1
        """Connection without further replies, because an earlier packet of it was lost."""
        self._pending: dict[Request, None] = {}
        self._tries = 0
        self._inbox: deque[Request] = deque()
        self._arrives_s = 0.0
        self._replies_s = 0.0
        self._time = ensemble.loop.time
        self._chance = ensemble.chance
        self._at = ensemble.loop.call_at
        self._outside = ensemble.context

    # -- session

    async def connect(self, timeout_s: float) -> None:
        """Opens a session; raises ``ConnectFailed``."""
        if self._link is not ConnectionState.LOST:
            return
        self._loop = self.ensemble.loop
        self._closed = False
        until_s = self._time() + timeout_s
        while (member := self.ensemble.choose(self)) is None:
            if self._time() >= until_s:
                raise ConnectFailed("no server of the ensemble gave a session")
            await asyncio.sleep(RECONNECT_S_MAX * self._chance.random())
        self.session = self.ensemble.open(self, self._credentials)
        self.session_id = self.session.id
        self._attach(member)
        self._enter(ConnectionState.CONNECTED)
        try:
            await asyncio.sleep(LATENCY_S_MAX)
            await self.sync("/")
        except NotConnected as error:
            await self.close()
            raise ConnectFailed(f"the connection was dropped at once: {error}") from error
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Ends the session; without a reply it ends by itself."""
        session, connected = self.session, self._link is ConnectionState.CONNECTED
        if session is None or self._closed:
            self._closed = True
            return
        self._closed = True
        if connected and not self.cut_off:
            self._at(self._time() + LATENCY_S_MAX, self.ensemble.end, session, context=self._outside)
            await asyncio.sleep(2 * LATENCY_S_MAX)
        elif connected:
            await asyncio.sleep(CLOSE_S_MAX)
        self._break("the session was closed")
        self._link = self._told = ConnectionState.LOST
        self.ensemble.silent(session)

    def abandon(self) -> None:
        """Drops the connection of a dead process; the session lives for its timeout."""
        self._closed = True
        if self.session is not None:
            self._detach()
            self.ensemble.silent(self.session)

    @property
    def writes_in_flight(self) -> int:
        """Counts the fenced writes with a waiting task: not those of an ended term, nor an operator's."""
        return sum(r.ops is not None and isinstance(r.ops[0], Check) and not r.future.done() for r in self._pending)

    @property
    def server_of_connection(self) -> Member | None:
        """Returns the server of the connection, None without one."""
        return self._member

    @property
    def connection(self) -> int:
        """Returns the number of the present connection."""
        return self._connection

    def _attach(self, member: Member) -> None:
        assert self.session is not None
        self._member = self.server = member
        self.session_timeout_ms = min(self._requested_ms, self.ensemble.session_ms_max)
        self.session.timeout_s = self.session_timeout_ms / 1000
        member.attach(self.session)
        self.ensemble.present(self.session)
        self.in_doubt_s = self._time()

    def _detach(self) -> None:
        self._connection += 1
        self._inbox.clear()
        if self._member is not None:
            self._member.detach(self.session_id)
            self._member = None

    def _break(self, why: str) -> None:
        """Fails every request that waits for a reply: the connection is gone."""
        self._detach()
        pending, self._pending = self._pending, {}
        for request in pending:
            self._hand_over(partial(_fail, request, why))

    # -- faults

    def hung_up(self, within_s: float = LATENCY_S_MAX) -> None:
        """Closes the connection as the server; a connected client notices soon."""
        if self._member is None or self._closed:
            return
        self._member.detach(self.session_id)
        self._severed = self._connection
        if self.session is not None and self.session.id in self.ensemble.sessions:
            self.ensemble.silent(self.session)
        self._at(self._time() + within_s * self._chance.random(), self._notice, self._connection, context=self._outside)

    def cut(self, notices_s: float) -> None:
        """Cuts the client off from the ensemble; the client notices after ``notices_s``."""
        self.cut_off = True
        if self.session is not None:
            self.ensemble.silent(self.session)
        self._at(self._time() + notices_s, self._notice, self._connection, context=self._outside)

    def repair(self) -> None:
        """Ends a cut: a connection that still seemed to stand is reset."""
        self.cut_off = False
        self._notice(self._connection)

    def awoken(self) -> None:
        """Sends pings again for a process that runs again, unless the session is over."""
        if self.session is not None and self._member is not None and not self.cut_off and not self._member.frozen:
            self.ensemble.present(self.session)

    def leave(self, silent_s: float) -> bool:
        """Leaves a silent server, where there is another one."""
        if len(self.ensemble.members) == 1:
            return False
        if self._member is not None and self._member.frozen:
            self.ensemble.happened(faults.ZK_LEFT)
        self._lost_connection(self._connection)
        return True

    def _notice(self, connection: int) -> None:
        self.process.on_thread(partial(self._lost_connection, connection))

    def _lost_connection(self, connection: int) -> None:
        if connection != self._connection or self._closed or self._link is not ConnectionState.CONNECTED:
            return
        self._break("the connection was lost")
        self._enter(ConnectionState.SUSPENDED)
        self._reconnect_later()

    def _reconnect_later(self, tried_s: float = 0.0) -> None:
        delay_s = tried_s + RECONNECT_S_MAX * (0.1 + self._chance.random())
        self._at(self._time() + delay_s, self.process.on_thread, self._reconnect, context=self._outside)

    def _reconnect(self) -> None:
        if self._closed or self._link is not ConnectionState.SUSPENDED:
            return
        member = self.ensemble.choose(self)
        frozen = sum(server.frozen for server in self.ensemble.members)
        if member is None:
            self._reconnect_later()
        elif frozen and self._tries % len(self.ensemble.members) < frozen:
            self._tries += 1
            self._reconnect_later(ATTEMPT_S)
        elif self.session_id not in self.ensemble.sessions:
            self.ensemble.happened(faults.ZK_EXPIRED)
            self._enter(ConnectionState.LOST)
        else:
            self.ensemble.happened(faults.ZK_KEPT)
            self._tries = 0
            self._attach(member)
            self._enter(ConnectionState.CONNECTED)

    # -- replies and events

    def _hand_over(self, item: Callable[[], None]) -> None:
        """Delivers an item in the order of the wire, after everything before it."""
        self._replies_s = max(self._replies_s, self._time())
        self._at(self._replies_s, item, context=self.process.context)

    def _come_back(self, item: Callable[[], None]) -> None:
        if self._connection == self._muted:
            return
        latency_s = LATENCY_S_MAX * self._chance.random() + self.reply_delay_s
        self._replies_s = max(self._replies_s, self._time() + latency_s)
        self._at(self._replies_s, item, context=self.process.context)

    def fired(self, member: Member, event: WatchEvent) -> None:
        """Sends the event of a watch that fired on a server."""
        session = self.session
        if member is not self._member or session is None:
            return
        if session.watches_to_lose:
            session.watches_to_lose -= 1
            self.ensemble.happened(faults.ZK_WATCH_LOST)
            self._muted = self._connection
            self._at(self._time(), self.hung_up, context=self._outside)
            return
        if member.lag_s:
            self.ensemble.happened(faults.ZK_WATCH_STALE)
        if self.reply_delay_s:
            self.ensemble.happened(faults.ZK_WATCH_DELAYED)
        if session.watches_to_double:
            session.watches_to_double -= 1
            self.ensemble.happened(faults.ZK_WATCH_TWICE)
            self._come_back(partial(self._event, self._connection, event))
        self._come_back(partial(self._event, self._connection, event))

    def _event(self, connection: int, event: WatchEvent) -> None:
        if connection == self._connection and not self.cut_off:
            self.received += 1
            self._watch_fired(self.session_id, event)


def _fail(request: Request, why: str) -> None:
    if request.future.done():
        return
    if request.ops is not None:
        request.future.set_exception(OutcomeUnknown(why))
    else:
        request.future.set_exception(NotConnected(why))
