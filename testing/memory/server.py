"""Plays the in-memory ZooKeeper's server side: sessions, and faults on request.

It is deterministic: it has no randomness, and no clock but for sessions that a test leaves to their time-out. Only a
test causes a fault. Sessions are named by their id (``zk.session_id``).
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from metadata_store.acl import READ, digest_id
from metadata_store.errors import Code, ConnectFailed, ZkError
from metadata_store.port import OpResult, WatchEvent, Write
from testing.memory.permissions import Identity, allowed
from testing.memory.tree import Touched, Tree
from testing.memory.watches import Follower, Transaction, Watches, skip

FIRST_SESSION_ID: Final = 0x1000


class Connection(Protocol):
    """Calls of the server on a client; made synchronously while a request or a fault is handled."""

    def event(self, event: WatchEvent) -> None:
        """Delivers a watch event."""

    def dropped(self) -> None:
        """Ends the connection; the session may live."""

    def restored(self) -> None:
        """Connects again with the same session."""

    def expired(self) -> None:
        """Ends the session."""


class _Session:
    def __init__(self, connection: Connection, identity: Identity, timeout_s: float = 0.0) -> None:
        self.connection = connection
        self.identity = identity
        self.timeout_s = timeout_s
        self.connected = True
        self.time_out: asyncio.TimerHandle | None = None
        self.follower: Follower | None = None
        self.held: list[WatchEvent] | None = None
        self.replies_to_lose = 0
        self.requests_to_lose = 0
        self.codes: list[Code] = []
        self.carried_out = False
        self.between: Callable[[int], object] | None = None
        self.requests = 0

    def stop_clock(self) -> None:
        """Stops the clock of a session that was cut off."""
        if self.time_out is not None:
            self.time_out.cancel()
            self.time_out = None


class MemoryServer:
    """A ZooKeeper that many :class:`testing.memory.MemoryZooKeeper` share."""

    def __init__(self) -> None:
        self.tree = Tree()
        self.down = False
        """While True no client gets a new session."""
        self.lags = False
        """While True each new session is with a server that is behind (:meth:`lag`)."""
        self._sessions: dict[int, _Session] = {}
        self._timed_out: dict[int, Connection] = {}
        self._next_session = FIRST_SESSION_ID
        self.watches = Watches()

    # -- faults

    def expire(self, session: int) -> None:
        """Ends a session: its ephemeral znodes vanish, its client sees SUSPENDED, then LOST."""
        ended = self._sessions.pop(session)
        self._unwatch(session)
        ended.stop_clock()
        if ended.connected:
            ended.connection.dropped()
        ended.connection.expired()
        self._end(session)

    def suspend(self, session: int) -> None:
        """Ends the connection, and with it every watch; the session lives."""
        found = self._sessions[session]
        if found.connected:
            found.connected = False
            self._unwatch(session)
            found.held = None
            found.connection.dropped()

    def cut_off(self, session: int) -> None:
        """Ends the connection; without :meth:`resume` the session ends at its time-out, unknown to its client."""
        self.suspend(session)
        found = self._sessions[session]
        if found.time_out is None:
            found.time_out = asyncio.get_running_loop().call_later(found.timeout_s, self._times_out, session)

    def resume(self, session: int) -> None:
        """Connects the client again: with the same session, or to learn that it timed out."""
        if (connection := self._timed_out.pop(session, None)) is not None:
            connection.expired()
            return
        found = self._sessions[session]
        found.stop_clock()
        if not found.connected:
            found.connected = True
            found.connection.restored()

    def reconnect(self, session: int) -> None:
        """Ends the connection and restores it at once."""
        self.suspend(session)
        self.resume(session)

    def hold_watches(self, session: int) -> None:
        """Holds watch events of the session until :meth:`release_watches`."""
        self._sessions[session].held = []

    def release_watches(self, session: int) -> None:
        """Delivers the events that waited, in order."""
        found = self._sessions[session]
        held, found.held = found.held or [], None
        for event in held:
            found.connection.event(event)

    def lose_replies(self, session: int, writes: int = 1) -> None:
        """Applies the next writes, but ends the connection for a moment before their reply."""
        self._sessions[session].replies_to_lose = writes

    def lose_requests(self, session: int, writes: int = 1) -> None:
        """Ends the connection for a moment before the next writes reach the server; their sender cannot know."""
        self._sessions[session].requests_to_lose = writes

    def reply_with(self, session: int, code: Code, requests: int = 1, *, carried_out: bool = False) -> None:
        """Replies to the next requests with a code; of them writes are ``carried_out`` all the same, or nothing is."""
        found = self._sessions[session]
        found.codes, found.carried_out = [code] * requests, carried_out

    def lag(self, session: int) -> None:
        """Has the session read from a server that is behind, from now on.

        It catches up when the session syncs or has the reply to a write, and is behind again at the next transaction of
        another session. Watch events are as late.
        """
        found = self._sessions[session]
        assert found.follower is None
        found.follower = Follower(self.tree)
        self._unwatch(session)

    def catch_up(self, session: int) -> None:
        """Has the server of a session apply what the others wrote."""
        follower = self._sessions[session].follower
        if follower is not None:
            self._pass_on(follower.watches, follower.catch_up())

    def between(self, session: int, act: Callable[[int], object] | None) -> None:
        """Has ``act`` called, or awaited, before each further request of a session is carried out, numbered from 0.

        So another client writes, or a fault happens, between any two requests.
        """
        found = self._sessions[session]
        found.between, found.requests = act, 0

    # -- calls of clients

    def open(self, connection: Connection, credentials: str | None, timeout_s: float = 0.0) -> int:
        """Opens a session; returns its id."""
        if self.down:
            raise ConnectFailed("no ZooKeeper gave a session: the in-memory server is down")
        session, self._next_session = self._next_session, self._next_session + 1
        identity = {("world", "anyone")}
        if credentials is not None:
            user, _, password = credentials.partition(":")
            identity.add(("digest", digest_id(user, password)))
        self._sessions[session] = _Session(connection, frozenset(identity), timeout_s)
        if self.lags:
            self.lag(session)
        return session

    def close(self, session: int) -> None:
        """Ends the session at its client's request, which does not arrive where the client is cut off."""
        self._timed_out.pop(session, None)
        found = self._sessions.get(session)
        if found is not None and found.time_out is None:
            del self._sessions[session]
            self._unwatch(session)
            self._end(session)

    def _times_out(self, session: int) -> None:
        self._timed_out[session] = self._sessions.pop(session).connection
        self._end(session)

    def _end(self, session: int) -> None:
        self._committed(None, self.tree.end_session(session), lambda tree: tree.end_session(session))

    def tree_of(self, session: int) -> Tree:
        """Returns the znodes as the server of the session has them."""
        found = self._sessions.get(session)
        return self.tree if found is None or found.follower is None else found.follower.tree

    async def arrives(self, session: int) -> None:
        """Lets others act before a request of the session is carried out (:meth:`between`)."""
        found = self._sessions[session]
        if found.between is not None:
            number, found.requests = found.requests, found.requests + 1
            acted = found.between(number)
            if inspect.isawaitable(acted):
                await acted

    def identity(self, session: int) -> Identity:
        """Returns the identities that the session has proven."""
        return self._sessions[session].identity

    def code_of(self, session: int) -> Code | None:
        """Returns the code of a test that replaces the reply to the present request, if any."""
        codes = self._sessions[session].codes
        return codes.pop() if codes else None

    def carries_out(self, session: int) -> bool:
        """Whether a write is carried out although its reply is an error."""
        return self._sessions[session].carried_out

    def write(self, session: int, ops: Sequence[Write], *, single: bool) -> list[OpResult] | None:
        """Carries out one write; None where its request or its reply was lost."""
        found = self._sessions[session]
        if found.requests_to_lose:
            found.requests_to_lose -= 1
            self.reconnect(session)
            return None
        try:
            results, touched = self._carry_out(self.tree, found, session, ops, single)
        except ZkError:
            self._committed(session, (), skip)
            if self._reply_lost(session):
                return None
            raise
        self._committed(session, touched, lambda tree: self._carry_out(tree, found, session, ops, single)[1])
        return None if self._reply_lost(session) else results

    @staticmethod
    def _carry_out(
        tree: Tree, found: _Session, session: int, ops: Sequence[Write], single: bool
    ) -> tuple[list[OpResult], list[Touched]]:
        if not single:
            return tree.multi(ops, found.identity, session)
        result, touched = tree.single(ops[0], found.identity, session)
        return [result], touched

    def _committed(self, writer: int | None, touched: Iterable[Touched], transaction: Transaction) -> None:
        """Fires the watches of a transaction, and hands it to the servers that are behind."""
        self._fire(touched)
        for session, found in list(self._sessions.items()):
            if found.follower is not None:
                found.follower.follow(transaction)
                if session == writer and not found.replies_to_lose:
                    self.catch_up(session)

    def _reply_lost(self, session: int) -> bool:
        found = self._sessions[session]
        if not found.replies_to_lose:
            return False
        found.replies_to_lose -= 1
        self.reconnect(session)
        return True

    def arm(
        self, session: int, data: Iterable[str], exists: Iterable[str], children: Iterable[str], *, since_zxid: int
    ) -> None:
        """Arms one-shot watches; changes after ``since_zxid`` fire at once."""
        follower = self._sessions[session].follower
        watches, tree = (self.watches, self.tree) if follower is None else (follower.watches, follower.tree)
        for event in watches.arm(tree, session, data, exists, children, since_zxid):
            self._deliver(session, event)

    def _fire(self, touched: Iterable[Touched]) -> None:
        self._pass_on(self.watches, touched)

    def _pass_on(self, watches: Watches, touched: Iterable[Touched]) -> None:
        for session, event, acls in watches.fire(touched):
            if allowed(acls, READ, self._sessions[session].identity):
                self._deliver(session, event)

    def _deliver(self, session: int, event: WatchEvent) -> None:
        found = self._sessions[session]
        if found.held is not None:
            found.held.append(event)
        else:
            found.connection.event(event)

    def _unwatch(self, session: int) -> None:
        self.watches.drop(session)
        found = self._sessions.get(session)
        if found is not None and found.follower is not None:
            found.follower.watches.drop(session)
