"""Makes ZooKeeper lose connections, sessions, requests and replies, and slows it down."""

from __future__ import annotations

from typing import Final

from metadata_store.errors import Code
from tests.simulation.kafka import faults
from tests.simulation.kafka.acting import Acting
from tests.simulation.kafka.ensemble import Member, Session

READ_TIMEOUT: Final = 2 / 3
"""Part of its session timeout after which a client without any packet drops its connection."""


class EnsembleActions(Acting):
    """Acts on the ensemble and its sessions. A fault of one session is counted where it takes effect."""

    def do_zk_blip(self, client: str) -> None:
        """Breaks a connection; the session lives."""
        zk = self._client(client)
        if zk is not None:
            zk.hung_up()

    def do_zk_expire(self, client: str) -> None:
        """Ends a session before its timeout."""
        session = self._session(client)
        if session is not None:
            self.w.ensemble.expire(session, forced=True)

    def _session(self, client: str) -> Session | None:
        zk = self._client(client)
        return zk.session if zk is not None else None

    def do_zk_cut(self, client: str, seconds: float, notices: float) -> None:
        """Cuts a client off from the ensemble; the session lives if the cut ends in time."""
        zk = self._client(client)
        if zk is not None:
            zk.cut(notices * READ_TIMEOUT * zk.session_timeout_ms / 1000)
            self._later(seconds, zk.repair)

    def do_zk_lose_replies(self, client: str, times: int, before: int = 0) -> None:
        """Applies writes and breaks the connection before their replies, after ``before`` undisturbed writes."""
        session = self._session(client)
        if session is not None:
            session.replies_to_lose, session.writes_before = times, before

    def do_zk_lose_requests(self, client: str, times: int, before: int = 0) -> None:
        """Breaks the connection before writes reach the server, after ``before`` undisturbed writes."""
        session = self._session(client)
        if session is not None:
            session.requests_to_lose, session.writes_before = times, before

    def do_zk_lose_watches(self, client: str, times: int) -> None:
        """Breaks the connection instead of a watch event."""
        session = self._session(client)
        if session is not None:
            session.watches_to_lose = times

    def do_zk_double_watches(self, client: str, times: int) -> None:
        """Delivers watch events twice."""
        session = self._session(client)
        if session is not None:
            session.watches_to_double = times

    def do_zk_slow_answers(self, client: str, seconds: float, delay_s: float) -> None:
        """Delays replies and watch events."""
        zk = self._client(client)
        if zk is not None:
            zk.reply_delay_s = delay_s
            self._later(seconds, setattr, zk, "reply_delay_s", 0.0)

    def do_zk_lag(self, server: int, seconds: float, lag_s: float) -> None:
        """Makes a follower lag: its clients read old data."""
        if 0 < server < len(self.w.ensemble.members):
            member = self.w.ensemble.members[server]
            member.lag_s = lag_s
            self._later(seconds, setattr, member, "lag_s", 0.0)

    def do_zk_code(self, client: str, code: str, times: int, before: int) -> None:
        """Replies to requests with an error of the server, after ``before`` undisturbed requests."""
        session = self._session(client)
        if session is not None:
            session.codes, session.requests_before = [Code[code]] * times, before

    def do_zk_refuse(self, client: str, seconds: float) -> None:
        """Refuses a client's connections at every server, as a server does at its limit per address."""
        found = self._client(client)
        if found is not None:
            self.w.ensemble.refused_until_s[found.name] = self.w.loop.now_s + seconds
            found.hung_up()

    def do_zk_late(self, seconds: float, late_s: float) -> None:
        """Ends sessions later than their timeouts, as servers do that check in turns or have a new leader."""
        self.w.ensemble.late_s = late_s
        self._later(seconds, setattr, self.w.ensemble, "late_s", 0.0)
        self.w.happened(faults.ZK_LATE)

    def do_zk_freeze(self, server: int, seconds: float) -> None:
        """Freezes a follower: its clients must leave it."""
        ensemble = self.w.ensemble
        if 0 < server < len(ensemble.members) and not ensemble.members[server].frozen:
            member = ensemble.members[server]
            member.freeze()
            for node in self.w.daemons:
                self.w.invariants.must_leave(node, member)
            self._later(seconds, self._thaw, member)
            self.w.happened(faults.ZK_FROZEN)

    def do_zk_leaderless(self, seconds: float, drops_s: float) -> None:
        """Freezes the leader of several servers: none serves until the others have elected another one.

        Followers answer nothing, drop their clients after ``drops_s``, and accept none. No session ends meanwhile.
        """
        ensemble = self.w.ensemble
        if len(ensemble.members) == 1 or not ensemble.available:
            return
        frozen = [member for member in ensemble.members if not member.frozen]
        ensemble.available = False
        for member in frozen:
            member.freeze()
            self._later(min(drops_s, seconds), self._thaw, member)
        self._later(seconds, ensemble.up)
        self.w.happened(faults.ZK_LEADERLESS)

    @staticmethod
    def _thaw(member: Member) -> None:
        if member.frozen:
            member.thaw()

    def do_zk_grant(self, ms_max: int) -> None:
        """Makes the servers grant no longer session, from the next connection of each client on."""
        self.w.ensemble.session_ms_max = ms_max
        self.w.happened(faults.ZK_GRANTED)

    def do_zk_restart(self, seconds: float) -> None:
        """Restarts the servers: every connection breaks."""
        self._down(seconds, faults.ZK_RESTARTED)

    def do_zk_read_only(self, seconds: float) -> None:
        """Takes the quorum away: servers are read-only, no client here accepts that, and no session ends."""
        self._down(seconds, faults.ZK_READ_ONLY)

    def _down(self, seconds: float, what: str) -> None:
        if self.w.ensemble.available:
            self.w.ensemble.down()
            self._later(seconds, self.w.ensemble.up)
            self.w.happened(what)

    def do_zk_slow_disk(self, seconds: float, write_s: float) -> None:
        """Delays each write until the log is free."""
        self.w.ensemble.write_s = write_s
        self._later(seconds, setattr, self.w.ensemble, "write_s", 0.0)
        self.w.happened(faults.ZK_SLOW)
