"""The in-memory ZooKeeper's server side: sessions, one-shot watches, and faults on request.

Deterministic: no clock and no randomness; only a test ends a session or loses a reply. Sessions are named by their id
(``zk.session_id``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from metadata_store.acl import READ, digest_id
from metadata_store.errors import Code, ConnectFailed, ZkError
from metadata_store.port import OpResult, WatchEvent, WatchKind, Write
from testing.memory.permissions import Identity, allowed
from testing.memory.tree import Touched, Tree

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
    def __init__(self, connection: Connection, identity: Identity) -> None:
        self.connection = connection
        self.identity = identity
        self.connected = True
        self.held: list[WatchEvent] | None = None
        self.replies_to_lose = 0
        self.requests_to_lose = 0
        self.codes: list[Code] = []


class MemoryServer:
    """A ZooKeeper that many :class:`testing.memory.MemoryZooKeeper` share."""

    def __init__(self) -> None:
        self.tree = Tree()
        self.down = False
        """While True no client gets a new session."""
        self._sessions: dict[int, _Session] = {}
        self._next_session = FIRST_SESSION_ID
        self._data: dict[str, dict[int, None]] = {}
        self._children: dict[str, dict[int, None]] = {}

    # -- faults

    def expire(self, session: int) -> None:
        """Ends a session: its ephemeral znodes vanish, its client sees SUSPENDED, then LOST."""
        ended = self._sessions.pop(session)
        self._unwatch(session)
        if ended.connected:
            ended.connection.dropped()
        ended.connection.expired()
        self._fire(self.tree.end_session(session))

    def suspend(self, session: int) -> None:
        """Ends the connection, and with it every watch; the session lives."""
        found = self._sessions[session]
        if found.connected:
            found.connected = False
            self._unwatch(session)
            found.held = None
            found.connection.dropped()

    def resume(self, session: int) -> None:
        """Connects the client of a suspended session again."""
        found = self._sessions[session]
        if not found.connected:
            found.connected = True
            found.connection.restored()

    def blip(self, session: int) -> None:
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

    def reply_with(self, session: int, code: Code, requests: int = 1) -> None:
        """Replies to the next requests with a code; nothing of them is carried out."""
        self._sessions[session].codes = [code] * requests

    # -- calls of clients

    def open(self, connection: Connection, credentials: str | None) -> int:
        """Opens a session; returns its id."""
        if self.down:
            raise ConnectFailed("no ZooKeeper gave a session: the in-memory server is down")
        session, self._next_session = self._next_session, self._next_session + 1
        identity = {("world", "anyone")}
        if credentials is not None:
            user, _, password = credentials.partition(":")
            identity.add(("digest", digest_id(user, password)))
        self._sessions[session] = _Session(connection, frozenset(identity))
        return session

    def close(self, session: int) -> None:
        """Ends the session at its client's request."""
        if self._sessions.pop(session, None) is not None:
            self._unwatch(session)
            self._fire(self.tree.end_session(session))

    def identity(self, session: int) -> Identity:
        """Returns the identities that the session has proven."""
        return self._sessions[session].identity

    def code_of(self, session: int) -> Code | None:
        """Returns the code of a test that replaces the reply to the present request, if any."""
        codes = self._sessions[session].codes
        return codes.pop() if codes else None

    def write(self, session: int, ops: Sequence[Write], *, single: bool) -> list[OpResult] | None:
        """Carries out one write; None where its request or its reply was lost."""
        found = self._sessions[session]
        if found.requests_to_lose:
            found.requests_to_lose -= 1
            self.blip(session)
            return None
        try:
            results, touched = self._carry_out(found, session, ops, single)
        except ZkError:
            if self._reply_lost(session):
                return None
            raise
        self._fire(touched)
        return None if self._reply_lost(session) else results

    def _carry_out(
        self, found: _Session, session: int, ops: Sequence[Write], single: bool
    ) -> tuple[list[OpResult], list[Touched]]:
        if not single:
            return self.tree.multi(ops, found.identity, session)
        result, touched = self.tree.single(ops[0], found.identity, session)
        return [result], touched

    def _reply_lost(self, session: int) -> bool:
        found = self._sessions[session]
        if not found.replies_to_lose:
            return False
        found.replies_to_lose -= 1
        self.blip(session)
        return True

    def arm(
        self, session: int, data: Iterable[str], exists: Iterable[str], children: Iterable[str], *, since_zxid: int
    ) -> None:
        """Arms one-shot watches; changes after ``since_zxid`` fire at once (``DataTree.setWatches``)."""
        for path in data:
            stat = self.tree.stat(path)
            changed = stat is not None and stat.mzxid > since_zxid
            self._arm(session, self._data, path, _fired(stat is None, changed, WatchKind.CHANGED))
        for path in exists:
            there = self.tree.stat(path) is not None
            self._arm(session, self._data, path, WatchKind.CREATED if there else None)
        for path in children:
            stat = self.tree.stat(path)
            changed = stat is not None and stat.pzxid > since_zxid
            self._arm(session, self._children, path, _fired(stat is None, changed, WatchKind.CHILD))

    def _arm(self, session: int, table: dict[str, dict[int, None]], path: str, fired: WatchKind | None) -> None:
        if fired is None:
            table.setdefault(path, {})[session] = None
        else:
            self._deliver(session, WatchEvent(path, fired))

    def _fire(self, touched: Iterable[Touched]) -> None:
        for kind, path, acls in touched:
            sessions = self._children.pop(path, {}) if kind in (WatchKind.CHILD, WatchKind.DELETED) else {}
            if kind is not WatchKind.CHILD:
                sessions = self._data.pop(path, {}) | sessions
            for session in sessions:
                if allowed(acls, READ, self._sessions[session].identity):
                    self._deliver(session, WatchEvent(path, kind))

    def _deliver(self, session: int, event: WatchEvent) -> None:
        found = self._sessions[session]
        if found.held is not None:
            found.held.append(event)
        else:
            found.connection.event(event)

    def _unwatch(self, session: int) -> None:
        for table in (self._data, self._children):
            for path in [path for path, sessions in table.items() if session in sessions]:
                del table[path][session]
                if not table[path]:
                    del table[path]


def _fired(gone: bool, changed: bool, kind: WatchKind) -> WatchKind | None:
    if gone:
        return WatchKind.DELETED
    return kind if changed else None
