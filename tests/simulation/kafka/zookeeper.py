"""Simulates a client's session with the ensemble: requests and replies, each of which takes time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from controller.role.lease import LEASE_FRACTION
from metadata_store.errors import TROUBLE, TROUBLE_PAUSE_S, Code, NotConnected, SessionLost, ZkError, trouble
from metadata_store.kazoo_adapter import adapter
from metadata_store.port import ConnectionState, OpResult, Write
from testing.memory.permissions import Identity
from tests.simulation.kafka import faults
from tests.simulation.kafka.ensemble import Member
from tests.simulation.kafka.link import LATENCY_S_MAX, Request, SimLink

T = TypeVar("T")

APPLIED_ALL_THE_SAME: Final = 0.5
"""Share of the writes that are carried out although their reply is an error of the server."""


class SimZooKeeper(SimLink):
    """Implements the ZooKeeper port for one process."""

    # -- requests

    def _admit(self) -> Identity:
        if self._link is ConnectionState.LOST:
            self.ensemble.loop.turned_away()
            raise SessionLost("no ZooKeeper session: nothing was sent")
        if self.state is not ConnectionState.CONNECTED:
            self.ensemble.loop.turned_away()
            raise NotConnected("not connected to ZooKeeper: nothing was sent")
        assert self.session is not None
        return self.session.identity

    async def _read(self, read: Callable[[Identity], T]) -> T:
        identity = self._admit()
        found: T = await self._send(Request(lambda: read(identity)))
        return found

    async def sync(self, path: str = "/") -> None:
        """Waits until the connected server has everything that the leader had."""
        self._admit()
        await self._send(Request(None))

    async def heartbeat(self) -> None:
        """Makes a round trip through the leader."""
        sent_s = self._time()
        self._admit()
        self.heartbeat_waits_s = sent_s
        try:
            await adapter.answered_or_left(self, self._send(Request(None)), self.session_timeout_ms / 1000)
        finally:
            self.heartbeat_waits_s = None
        if self._time() > self.heartbeat_s + LEASE_FRACTION * self.session_timeout_ms / 1000:
            self.in_doubt_s = self._time()
            self.renewed()
        self.heartbeat_s = max(self.heartbeat_s, sent_s)

    async def watch(
        self, data: Sequence[str] = (), exists: Sequence[str] = (), children: Sequence[str] = (), *, since_zxid: int
    ) -> None:
        """Arms one-shot watches in bulk."""
        self._admit()
        await self._send(
            Request(lambda: self.server.arm(self.session_id, data, exists, children, since_zxid=since_zxid))
        )

    async def _submit(self, ops: Sequence[Write], single: bool) -> list[OpResult]:
        self._admit()
        reply = self._send(Request(None, ops, single=single))
        self.submitted(self, ops)
        results: list[OpResult] = await reply
        return results

    def _send(self, request: Request) -> asyncio.Future[Any]:
        self._pending[request] = None
        self.ensemble.requested(self)
        self._arrives_s = max(self._arrives_s, self._time() + LATENCY_S_MAX * self._chance.random())
        self._at(self._arrives_s, self._arrived, self._connection, request, context=self._outside)
        return request.future

    def _in_trouble(self, request: Request, code: Code) -> None:
        if not request.future.done():
            request.future.set_exception(trouble(code, "a request", writes=request.ops is not None))

    # -- on the server

    def _arrived(self, connection: int, request: Request) -> None:
        session = self.session
        if not self._stands(connection) or self.cut_off or session is None:
            return
        if self.server_now.held_up(partial(self._arrived, connection, request)):
            return
        if session.id not in self.ensemble.sessions or not self.ensemble.available:
            self.hung_up()
            return
        self.ensemble.touch(session)
        request.code = session.next_code()
        self._inbox.append(request)
        if len(self._inbox) == 1:
            self._begin(request)

    def _begin(self, request: Request) -> None:
        """Carries out the requests of a session in order, one after the other."""
        if request.code is not None and (request.ops is None or request.code is Code.THROTTLED_OP):
            self._done(self._connection, request, None, ZkError(request.code, "/"))
        elif request.ops is not None:
            self.ensemble.when_writable(partial(self._commit, self._connection, request))
        elif request.work is None:
            target = self.ensemble.leader.tree.zxid
            self.server_now.when_applied(target, partial(self._done, self._connection, request, None, None))
        else:
            try:
                self._done(self._connection, request, request.work(), None)
            except ZkError as error:
                self._done(self._connection, request, None, error)

    @property
    def server_now(self) -> Member:
        """Returns the server of the connection."""
        assert self._member is not None
        return self._member

    def _stands(self, connection: int) -> bool:
        """Returns whether the server still serves a connection."""
        return connection == self._connection and connection != self._severed

    def _commit(self, connection: int, request: Request) -> None:
        session = self.session
        if not self._stands(connection) or session is None or session.id not in self.ensemble.sessions:
            return
        assert request.ops is not None
        if self.void(request.ops):
            self.hung_up()
            return
        loses = not session.writes_before
        session.writes_before -= not loses
        if loses and session.requests_to_lose:
            session.requests_to_lose -= 1
            self.ensemble.happened(faults.ZK_REQUEST_LOST)
            self.hung_up()
            return
        found: list[OpResult] | None = None
        failed: ZkError | None = None
        if request.code is not None:
            failed = ZkError(request.code, request.ops[0].path)
        try:
            if failed is None or self._chance.random() < APPLIED_ALL_THE_SAME:
                found = self.ensemble.write(session, request.ops, single=request.single)
        except ZkError as error:
            failed = failed or error
        if loses and session.replies_to_lose:
            session.replies_to_lose -= 1
            self.ensemble.happened(faults.ZK_REPLY_LOST)
            self.hung_up()
        elif self._stands(connection):
            zxid = self.ensemble.leader.tree.zxid
            self.server_now.when_applied(zxid, partial(self._done, connection, request, found, failed))

    def _done(self, connection: int, request: Request, found: object, failed: ZkError | None) -> None:
        if not self._stands(connection):
            return
        if self.server_now.held_up(partial(self._done, connection, request, found, failed)):
            return
        zxid = self.server_now.tree.zxid
        self._inbox.popleft()
        if not self.cut_off:
            self._come_back(partial(self._replied, connection, request, found, failed, zxid))
        if self._inbox:
            self._begin(self._inbox[0])

    def _replied(self, connection: int, request: Request, found: object, failed: ZkError | None, zxid: int) -> None:
        if connection != self._connection or self.cut_off:
            return
        del self._pending[request]
        self.received += 1
        self.last_zxid = max(self.last_zxid, zxid)
        if request.future.done():
            return
        if failed is not None and failed.code in TROUBLE:
            self.ensemble.happened(faults.ZK_TROUBLE)
            self._at(
                self._time() + TROUBLE_PAUSE_S, self._in_trouble, request, failed.code, context=self.process.context
            )
        elif failed is not None:
            request.future.set_exception(failed)
        else:
            request.future.set_result(found)
