"""Simulates a ZooKeeper ensemble in memory: a leader that orders writes, and followers that apply them later.

A follower's clients read the writes that it has applied so far: reads may be out of date, and watches fire late. Only
``sync`` and the reply to a write show the present state. Followers repeat the leader's transactions on trees of their
own.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from metadata_store.acl import digest_id
from metadata_store.errors import Code, ZkError
from metadata_store.port import OpResult, WatchEvent, Write
from testing.memory.permissions import Identity
from testing.memory.server import FIRST_SESSION_ID, MemoryServer, _Session
from testing.memory.tree import Touched
from tests.kit.simulation.loop import Life, SimLoop
from tests.simulation.kafka import faults

if TYPE_CHECKING:
    from tests.simulation.kafka.link import SimLink
    from tests.simulation.kafka.zookeeper import SimZooKeeper

LAG_S_MAX: Final = 0.004
"""Longest delay of a healthy follower."""
PINGS_PER_SESSION: Final = 3
SESSION_MS_MAX: Final = 60_000
"""Longest session that the servers grant; an action may lower it."""


class Session:
    """A session as the ensemble's leader knows it.

    ``silent``: the leader receives nothing from its client at present. ``writes_before``: writes that succeed before
    one is lost.
    """

    def __init__(self, number: int, client: SimLink, identity: Identity, now_s: float) -> None:
        self.id = number
        self.client = client
        self.identity = identity
        self.timeout_s = client.session_timeout_ms / 1000
        self.seen_s = now_s
        self.silent = False
        self.forced = False
        self.replies_to_lose = 0
        self.requests_to_lose = 0
        self.writes_before = 0
        self.watches_to_lose = 0
        self.watches_to_double = 0
        self.codes: list[Code] = []
        self.requests_before = 0

    def next_code(self) -> Code | None:
        """Returns the error code of the next reply, or None where the request is carried out."""
        if not self.codes:
            return None
        if self.requests_before:
            self.requests_before -= 1
            return None
        return self.codes.pop()


Transaction = Callable[["Member"], None]
"""Changes a member's tree and its watches."""


class Member(MemoryServer):
    """Serves clients as one server: with the leader's tree, or with a follower's, applied so far."""

    def __init__(self, ensemble: Ensemble, name: str) -> None:
        super().__init__()
        self.name = name
        self.lag_s = 0.0
        self.frozen = False
        self.freezes = 0
        self._held: list[Callable[[], None]] = []
        self._ensemble = ensemble
        self._waiting: deque[Transaction] = deque()
        self._applies_s = 0.0
        self._until: list[tuple[int, Callable[[], None]]] = []

    def freeze(self) -> None:
        """Sends SIGSTOP: connections stay, the server replies to nothing and applies nothing."""
        self.frozen = True
        self.freezes += 1
        for session in self._sessions:
            if session in self._ensemble.sessions:
                self._ensemble.silent(self._ensemble.sessions[session])

    def thaw(self) -> None:
        """Sends SIGCONT: the server handles everything that arrived meanwhile, in order."""
        self.frozen = False
        for session in self._sessions:
            client = self._ensemble.sessions_client(session)
            if session in self._ensemble.sessions and client.process.life is not Life.FROZEN:
                client.awoken()
        held, self._held = self._held, []
        for go_on in held:
            go_on()

    def held_up(self, go_on: Callable[[], None]) -> bool:
        """Returns whether the server is frozen; then it goes on later."""
        if self.frozen:
            self._held.append(go_on)
        return self.frozen

    def attach(self, session: Session) -> None:
        """Attaches a session whose client connected here."""
        self._sessions[session.id] = _Session(session.client, session.identity)

    def detach(self, session: int) -> None:
        """Detaches a session whose connection ended: its watches end too, as with kazoo."""
        if self._sessions.pop(session, None) is not None:
            self._unwatch(session)

    def follow(self, transaction: Transaction) -> None:
        """Repeats a transaction of the leader, later and in order."""
        loop, chance = self._ensemble.loop, self._ensemble.chance
        self._applies_s = max(self._applies_s, loop.now_s + self.lag_s + LAG_S_MAX * chance.random())
        self._waiting.append(transaction)
        loop.call_at(self._applies_s, self._apply, context=self._ensemble.context)

    def _apply(self) -> None:
        if self.held_up(self._apply):
            return
        self._waiting.popleft()(self)
        self.caught_up()

    def caught_up(self) -> None:
        """Calls back every waiter whose transaction is applied now."""
        if self._until:
            due = [go_on for zxid, go_on in self._until if zxid <= self.tree.zxid]
            self._until = [(zxid, go_on) for zxid, go_on in self._until if zxid > self.tree.zxid]
            for go_on in due:
                go_on()

    def when_applied(self, zxid: int, go_on: Callable[[], None]) -> None:
        """Calls back once a transaction was applied here."""
        if self.tree.zxid >= zxid:
            go_on()
        else:
            self._until.append((zxid, go_on))

    def _deliver(self, session: int, event: WatchEvent) -> None:
        self._ensemble.sessions_client(session).fired(self, event)

    def fire(self, touched: Sequence[Touched]) -> None:
        """Fires the watches of touched znodes."""
        self._fire(touched)


Committed = Callable[[Session, Sequence[Write], Sequence[OpResult]], None]
"""Receives the session, the writes and the results of each applied request."""


class Ensemble:
    """Holds the servers and the sessions, and decides the moments when sessions expire."""

    def __init__(self, loop: SimLoop, chance: random.Random, members: int) -> None:
        self.loop = loop
        self.chance = chance
        self.context = loop.root
        self.leader = Member(self, "zk1")
        self.members = [self.leader, *(Member(self, f"zk{n}") for n in range(2, members + 1))]
        self.sessions: dict[int, Session] = {}
        self.committed: Committed = lambda *_: None
        self.ended: Callable[[Session, Sequence[Touched]], None] = lambda *_: None
        self.happened: Callable[[str], None] = lambda _: None
        self.requested: Callable[[SimZooKeeper], None] = lambda _: None
        """Receives each request when its client sends it."""
        self.late_s = 0.0
        """Longest time between a session's timeout and its end."""
        self.refused_until_s: dict[str, float] = {}
        """Clients, by name, that no server accepts until then."""
        self.available = True
        self.write_s = 0.0
        self.session_ms_max = SESSION_MS_MAX
        self._next = FIRST_SESSION_ID
        self._busy_s = 0.0
        self._clients: dict[int, SimLink] = {}

    # -- sessions

    def open(self, client: SimLink, credentials: str | None) -> Session:
        """Opens a session."""
        identity = {("world", "anyone")}
        if credentials is not None:
            user, _, password = credentials.partition(":")
            identity.add(("digest", digest_id(user, password)))
        session = Session(self._next, client, frozenset(identity), self.loop.now_s)
        self._next += 1
        self.sessions[session.id] = session
        self._clients[session.id] = client
        return session

    def sessions_client(self, session: int) -> SimLink:
        """Returns the client of a session, also of an ended one."""
        return self._clients[session]

    def touch(self, session: Session) -> None:
        """Renews a session whose request arrived."""
        session.seen_s = self.loop.now_s

    def silent(self, session: Session) -> None:
        """Marks a client as silent from now on; its last ping was up to a third of the timeout ago."""
        if not session.silent:
            session.silent = True
            ping_s = self.loop.now_s - self.chance.random() * session.timeout_s / PINGS_PER_SESSION
            session.seen_s = max(session.seen_s, ping_s)
            self._watch(session)

    def present(self, session: Session) -> None:
        """Marks a client as present again."""
        session.silent = False
        session.seen_s = self.loop.now_s

    def _watch(self, session: Session) -> None:
        late_s = self.late_s * self.chance.random() if self.late_s else 0.0
        self.loop.call_at(
            session.seen_s + session.timeout_s + late_s, self._perhaps_expire, session, context=self.context
        )

    def _perhaps_expire(self, session: Session) -> None:
        if session.id not in self.sessions or not session.silent:
            return
        if self.available and self.loop.now_s >= session.seen_s + session.timeout_s:
            self.expire(session)
        else:
            session.seen_s = session.seen_s if self.available else self.loop.now_s
            self._watch(session)

    def expire(self, session: Session, *, forced: bool = False) -> None:
        """Ends a session; its client learns of it when it connects again. ``forced``: before its timeout."""
        session.forced = forced
        self.end(session)
        session.client.hung_up()

    def end(self, session: Session) -> None:
        """Ends a session, and deletes its ephemeral znodes."""
        if self.sessions.pop(session.id, None) is None:
            return
        for member in self.members:
            member.detach(session.id)
        touched = self.leader.tree.end_session(session.id)
        self.ended(session, touched)
        self.leader.fire(touched)
        self.leader.caught_up()
        for member in self.members[1:]:
            member.follow(lambda m: m.fire(m.tree.end_session(session.id)))

    # -- writes

    def when_writable(self, go_on: Callable[[], None]) -> None:
        """Calls back when the log is free for the next write: at once, unless the disk is slow."""
        if not self.write_s:
            go_on()
            return
        self._busy_s = max(self._busy_s, self.loop.now_s) + self.write_s * self.chance.random()
        self.loop.call_at(self._busy_s, go_on, context=self.context)

    def write(self, session: Session, ops: Sequence[Write], *, single: bool) -> list[OpResult]:
        """Orders a write as the leader and carries it out; raises ``ZkError``."""
        tree = self.leader.tree
        try:
            results, touched = self._carry_out(self.leader, session, ops, single)
        except ZkError:
            for member in self.members[1:]:
                member.follow(_skip)
            raise
        finally:
            assert tree.zxid
        self.committed(session, ops, results)
        self.leader.fire(touched)
        self.leader.caught_up()
        for member in self.members[1:]:
            member.follow(lambda m: m.fire(self._carry_out(m, session, ops, single)[1]))
        return results

    @staticmethod
    def _carry_out(
        member: Member, session: Session, ops: Sequence[Write], single: bool
    ) -> tuple[list[OpResult], list[Touched]]:
        if not single:
            return member.tree.multi(ops, session.identity, session.id)
        result, touched = member.tree.single(ops[0], session.identity, session.id)
        return [result], touched

    # -- connections

    def choose(self, client: SimLink) -> Member | None:
        """Returns a server for a client to connect to, which is not behind the client's last zxid."""
        if not self.available or client.cut_off or client.process.life is Life.FROZEN:
            return None
        if self.loop.now_s < self.refused_until_s.get(client.name, 0.0):
            self.happened(faults.ZK_REFUSED)
            return None
        fit = [member for member in self.members if member.tree.zxid >= client.last_zxid and not member.frozen]
        return self.chance.choice(fit) if fit else None

    def down(self) -> None:
        """Stops every server: restarted, or read-only without a quorum, which no client here accepts."""
        self.available = False
        for session in list(self.sessions.values()):
            session.client.hung_up()

    def up(self) -> None:
        """Starts the servers with a quorum: every session gets its whole timeout anew."""
        self.available = True
        for session in self.sessions.values():
            session.seen_s = self.loop.now_s


def _skip(member: Member) -> None:
    """Counts a failed write: it takes its zxid all the same."""
    member.tree.zxid += 1
