"""ZooKeeper loses connections, sessions, requests and answers, and is slow."""

from __future__ import annotations

from typing import Final

from metadata_store.errors import Code
from tests.simulation import faults
from tests.simulation.acting import Acting
from tests.simulation.ensemble import Member, Session

READ_TIMEOUT: Final = 2 / 3
"""Part of its session timeout after which a client that hears nothing takes its connection for lost."""


class EnsembleActions(Acting):
    """What hits one session is counted where it happens."""

    def do_zk_blip(self, who: str) -> None:
        """A connection breaks, the session lives."""
        zk = self._client(who)
        if zk is not None:
            zk.hung_up()

    def do_zk_expire(self, who: str) -> None:
        """A session ends before its time."""
        session = self._session(who)
        if session is not None:
            self.w.ensemble.expire(session, forced=True)

    def _session(self, who: str) -> Session | None:
        zk = self._client(who)
        return zk.session if zk is not None else None

    def do_zk_cut(self, who: str, seconds: float, notices: float) -> None:
        """A partition between a client and the ensemble: the session lives if it ends in time."""
        zk = self._client(who)
        if zk is not None:
            zk.cut(notices * READ_TIMEOUT * zk.session_timeout_ms / 1000)
            self._later(seconds, zk.repair)

    def do_zk_lose_replies(self, who: str, times: int, before: int = 0) -> None:
        """Writes are applied, their answers are lost with the connection; ``before``: so many go well first."""
        session = self._session(who)
        if session is not None:
            session.replies_to_lose, session.writes_before = times, before

    def do_zk_lose_requests(self, who: str, times: int, before: int = 0) -> None:
        """The connection breaks before writes reach the server; ``before``: so many go well first."""
        session = self._session(who)
        if session is not None:
            session.requests_to_lose, session.writes_before = times, before

    def do_zk_lose_watches(self, who: str, times: int) -> None:
        """The connection breaks where a watch event was due."""
        session = self._session(who)
        if session is not None:
            session.watches_to_lose = times

    def do_zk_double_watches(self, who: str, times: int) -> None:
        """Watch events come twice."""
        session = self._session(who)
        if session is not None:
            session.watches_to_double = times

    def do_zk_slow_answers(self, who: str, seconds: float, delay_s: float) -> None:
        """Answers and watch events are late."""
        zk = self._client(who)
        if zk is not None:
            zk.answer_delay_s = delay_s
            self._later(seconds, setattr, zk, "answer_delay_s", 0.0)

    def do_zk_lag(self, server: int, seconds: float, lag_s: float) -> None:
        """A follower is behind: who reads there reads what is out of date."""
        if 0 < server < len(self.w.ensemble.members):
            member = self.w.ensemble.members[server]
            member.lag_s = lag_s
            self._later(seconds, setattr, member, "lag_s", 0.0)

    def do_zk_code(self, who: str, code: str, times: int, before: int) -> None:
        """Requests are answered with an error that is not their own; ``before``: so many go well first."""
        session = self._session(who)
        if session is not None:
            session.codes, session.requests_before = [Code[code]] * times, before

    def do_zk_refuse(self, who: str, seconds: float) -> None:
        """No server lets a client connect, for instance because its address has too many connections."""
        client = self._client(who)
        if client is not None:
            self.w.ensemble.refused_until_s[client.name] = self.w.loop.now_s + seconds
            client.hung_up()

    def do_zk_late(self, seconds: float, late_s: float) -> None:
        """Sessions end later than at their time-out: servers look at them in turns, and a new leader begins anew."""
        self.w.ensemble.late_s = late_s
        self._later(seconds, setattr, self.w.ensemble, "late_s", 0.0)
        self.w.happened(faults.ZK_LATE)

    def do_zk_freeze(self, server: int, seconds: float) -> None:
        """A follower is frozen: whoever is connected there must leave it."""
        ensemble = self.w.ensemble
        if 0 < server < len(ensemble.members) and not ensemble.members[server].frozen:
            member = ensemble.members[server]
            member.freeze()
            for node in self.w.daemons:
                self.w.invariants.must_leave(node, member)
            self._later(seconds, self._thaw, member)
            self.w.happened(faults.ZK_FROZEN)

    @staticmethod
    def _thaw(member: Member) -> None:
        if member.frozen:
            member.thaw()

    def do_zk_grant(self, ms_max: int) -> None:
        """From the next connection of each client on the servers grant no longer session."""
        self.w.ensemble.session_ms_max = ms_max
        self.w.happened(faults.ZK_GRANTED)

    def do_zk_restart(self, seconds: float) -> None:
        """The servers restart: every connection breaks."""
        self._down(seconds, faults.ZK_RESTARTED)

    def do_zk_read_only(self, seconds: float) -> None:
        """No quorum: servers are read-only, which no client here accepts; no session ends meanwhile."""
        self._down(seconds, faults.ZK_READ_ONLY)

    def _down(self, seconds: float, what: str) -> None:
        if self.w.ensemble.available:
            self.w.ensemble.down()
            self._later(seconds, self.w.ensemble.up)
            self.w.happened(what)

    def do_zk_slow_disk(self, seconds: float, write_s: float) -> None:
        """Each write waits for the log."""
        self.w.ensemble.write_s = write_s
        self._later(seconds, setattr, self.w.ensemble, "write_s", 0.0)
        self.w.happened(faults.ZK_SLOW)
