"""The regions' manager: what servers and operators request becomes a procedure or a change of the model.

All of it runs on the loop between turns of the engine, and never waits for a server.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Sequence
from typing import Final

from controller.procedures.engine import Engine
from controller.procedures.requests import ProcedureRefused
from controller.regions import admission, independence
from controller.regions.admission import Admission, ServerDead, ServerUnknown
from controller.regions.comparison import LIST_EVERY_S, Comparison
from controller.regions.dispatcher import Key
from controller.regions.environment import RegionsEnv
from controller.regions.fencing import Silence
from controller.regions.journal.journal import CRASHED, LEFT, ONLINE
from controller.regions.procedures import crash, servers
from controller.regions.procedures.messages import CRASH, Crash
from metadata_store.catalog.rows import DropServer, PutServer, ServerRow, Write
from metadata_store.records.port import RecordStore, StoreFailed
from regent_agent import protocol
from regent_agent.protocol import Owned, Result
from state_machines.procedures.record import Caller
from state_machines.regions.damage import RowKind
from state_machines.regions.entities import Server
from state_machines.regions.marks import LostParts
from state_machines.regions.states import ServerState

log = logging.getLogger("regent.regions")

SUCCESSES: Final = frozenset({protocol.OPENED, protocol.CLOSED, protocol.DONE})
"""Outcomes of operations that change nothing when they are done again."""
ITSELF: Final = "regent"
ARRIVED: Final = sys.maxsize
"""Number of a batch behind all others."""


class Manager:
    """Registers servers, takes their reports, and starts procedures. ``epoch``: of this daemon."""

    def __init__(self, env: RegionsEnv, engine: Engine[RegionsEnv], store: RecordStore, epoch: int) -> None:
        self.env = env
        self.engine = engine
        self.epoch = epoch
        self._store = store
        self.comparison = Comparison(env, self.start, self.expire, epoch)
        self.silence = Silence(env.model, env.options.lease_ms, self.comparison.is_under_way)
        self.admission = Admission(env, self.expire)
        self.discards = independence.Discards(env, self.start, self._goes_on)
        self.broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Raises once the store has failed a write that is no procedure's: the term is over."""

    # -- servers

    async def register(self, request: protocol.Register, proof: str = "") -> Server:
        """Enters a process, durably; raises :class:`ServerDead` for one that is to end.

        ``proof``: digest of the connection's proof. From now on no connection with another one speaks for the process.
        """
        env = self.env
        key = request.server, request.incarnation
        self.admission.check_entry(key, len(request.owned), proof)
        new = key not in env.model.servers
        row = ServerRow(*key, request.address, request.software)
        server = env.model.servers.get(key)
        row_differs = server is not None and (server.address, server.software, server.stored) != (*row[2:], True)
        if server is None or row_differs or (server.proof is None and proof):
            self.admission.check_alone(key)
            await self._enter(row, proof)
            server = env.model.servers.setdefault(key, Server(*row, ServerState.ONLINE, {}))
            self.admission.check_proof(
                key, server.proof, proof
            )  # again: its first registration at this daemon may have come twice
            server.address, server.software, server.stored = request.address, request.software, True
        server.proof, server.features = proof, frozenset(request.features)
        self.admission.check_alone(key)  # again: another process may have registered during the write
        if server.state is not ServerState.ONLINE:
            raise ServerDead(f"{server} counts as crashed: this process must end, another one may start")
        self._renew(server)
        about = f"registered at {server.address} ({server.software or 'no version'})"
        env.journal.server(server, ("" if new else ONLINE, ONLINE), about, troubles=False)
        for older in [one for one in self.admission.others(key) if one.incarnation < server.incarnation]:
            self.expire(older, f"{server} registered")
        compared = await self.comparison.take(server, request.owned)
        if server.state is not ServerState.ONLINE:
            raise ServerDead(f"{server} counts as crashed: this process must end")
        if not compared:
            raise ServerUnknown(f"{server} has left, or registered once more meanwhile: it registers again")
        server.here = True
        self._renew(server)
        self.place_if_enough()
        env.wake_unplaced()
        return server

    def server(self, name: str, incarnation: int, epoch: int, proof: str = "") -> Server:
        """Returns a registered process; raises :class:`ServerUnknown`, :class:`ServerDead` and :class:`Unproven`."""
        server = self.env.model.servers.get((name, incarnation))
        if server is not None:
            self.admission.check_proof(server.key, server.proof, proof)
        if server is not None and server.state is not ServerState.ONLINE:
            raise ServerDead(f"{server} counts as crashed: this process must end")
        self.admission.check_buried((name, incarnation))
        if server is None or epoch != self.epoch or not server.here:
            raise ServerUnknown(f"{name},{incarnation} is not registered at this daemon (epoch {self.epoch})")
        return server

    def is_gone(self, name: str, incarnation: int) -> bool:
        """Checks whether a process is no member, and was not fenced."""
        key = name, incarnation
        return key not in self.env.model.servers and not self.env.model.is_buried(key)

    async def _enter(self, row: ServerRow, proof: str) -> None:
        """Stores a process, which counts as a member meanwhile."""
        key = row.name, row.incarnation
        self.admission.entering[key] = proof
        try:
            await self._write((PutServer(row), *admission.keep_proof(key, proof)))
        finally:
            self.admission.entering.pop(key, None)
        self.env.model.damages.drop_named(RowKind.SERVER, f"{row.name},{row.incarnation}")

    async def poll(self, server: Server, taken: int, hold_s: float) -> protocol.Operations:
        """Renews the lease; returns operations, and from time to time the request for a list of its regions."""
        server.confirmed = True
        self.silence.absent.discard(server.key)
        self._renew(server)
        if self.env.clock() - server.listed_s > LIST_EVERY_S:
            server.listed_s = self.env.clock()
            self.env.dispatcher.list_regions(server)
        return await self.env.dispatcher.poll(server, taken, hold_s)

    def absent(self, key: Key) -> None:
        """Takes a process whose ephemeral znode has ended."""
        server = self.env.model.servers.get(key)
        if server is not None and server.state is ServerState.ONLINE:
            log.info("server %s: its ephemeral znode has ended: it counts as crashed unless it polls", server)
            self.silence.absent.add(key)

    def _renew(self, server: Server) -> None:
        server.deadline_s = self.env.clock() + self._lease_ms(server) / 1000

    def _lease_ms(self, server: Server) -> int:
        """Returns the lease under which a process serves."""
        return self.env.options.lease_ms if server.confirmed else self.env.former.lease_ms

    def expire(self, server: Server, why: str) -> None:
        """Begins the crash of a process, once."""
        if server.key in self.env.crashing or server.key in self.env.expiring:
            return
        if self.start(crash.NAME, self.crash_of(server, why), ""):
            self.crashed(server, why)
        # else the next check of leases begins it

    def crash_of(self, server: Server, why: str) -> bytes:
        """Returns the message of the crash of a process. Parts of its log that were left out stay out."""
        lost = self.env.left_out.get(server.key, LostParts())
        return CRASH.encode(Crash(*server.key, self.fence_of(server), why, lost=lost))

    def crashed(self, server: Server, why: str) -> None:
        """Enters that the crash of a process has begun: it gets nothing any more."""
        if server.key in self.env.crashing or self.env.model.servers.get(server.key) is not server:
            return
        self.env.crashing.add(server.key)
        if server.state is ServerState.FENCED:
            return  # its procedure is ahead of this
        before, server.state = server.state.name, ServerState.CRASHED
        self.env.dispatcher.drop(server)
        for region in server.regions.values():
            self.env.routes.changed(region)
        self.env.journal.server(server, (before, CRASHED), f"{why}; it gets nothing any more until it is fenced")

    def fence_of(self, server: Server) -> str:
        """Returns the fences under which a process serves."""
        return self.env.options.fence if server.confirmed else self.env.former.fence

    def grant_leases(self) -> None:
        """Gives each process a full lease: this daemon took no polls for a while, so silence means nothing."""
        for server in self.env.model.servers.values():
            if server.state is ServerState.ONLINE:
                self._renew(server)

    def check_leases(self) -> None:
        """Begins the crash of each process whose lease ran out, anew where an operator has ended it.

        One whose list waits for its comparison is not silent: it waits for the response.
        """
        for server in self.silence.gone(self.env.clock()):
            self.expire(server, "its ephemeral znode has ended, and no poll has come since, for half a lease")
        for server, spared in self.silence.over(self.env.clock()):
            more = f" and one lease more, {self.env.options.lease_ms} ms, as most servers were silent" if spared else ""
            self.expire(server, f"no poll for {self._lease_ms(server)} ms{more}")

    def place_if_enough(self) -> None:
        """Lets regions be placed once enough servers have come."""
        env = self.env
        if env.restored and not env.restored_places:
            return
        if not env.places and len(list(env.model.online())) >= env.options.servers_min:
            self.place()

    def place(self) -> None:
        """Lets regions be placed from now on."""
        self.env.places = True
        self.env.wake_unplaced()

    async def leave(self, server: Server) -> int:
        """Has all regions of a process moved away; returns how many it has still. Without any it is gone."""
        server.leaving = server.forced = True
        drain = f"drain of {server} in term {self.epoch}"
        if not self._goes_on(drain):
            # A region may be on its way to it by a step of this turn; when the drain has begun, that is entered.
            # Forced: a process that is about to stop would crash with the regions that rest after a move.
            self.start(servers.DRAIN, CRASH.encode(Crash(*server.key, force=True)), drain)
            return max(1, len(server.regions))
        if left := self._regions_of(server):
            return left
        await self._write((DropServer(*server.key), *admission.drop_proof(server.key, server.proof)))
        if left := self._regions_of(server):  # it listed a region during the write: it is a member until that is closed
            row = ServerRow(*server.key, server.address, server.software)
            await self._write((PutServer(row), *admission.keep_proof(server.key, server.proof or "")))
            return left
        self.env.claimants.gone(server.key)
        self.env.dispatcher.drop(server)
        self.env.model.drop_server(server.key)
        self.env.journal.server(server, (ONLINE, LEFT), "it asked to leave, and has no regions", troubles=False)
        return 0

    def _regions_of(self, server: Server) -> int:
        """Returns how many regions a process has, or has against the model; at least one while a list is compared."""
        found = len(server.regions) or self.env.claimants.claims(server.key)
        return found or int(self.comparison.is_under_way(server.key))

    # -- reports

    async def report(self, server: Server, results: Sequence[Result], taken: int) -> list[int]:
        """Takes results; returns, once the others are durable, the pids of those to be sent again.

        ``taken``: batches that the server had when it made the report. A failure of an operation that is on its way to
        it is not accepted: the server could still do it, while the region goes to another one.
        """
        again, durable = self._take(server, results, taken)
        if durable is not None:
            await durable
        return again

    def answered(self, server: Server, result: Result) -> None:
        """Takes a result that a server has written where the daemon reads it: the operation has arrived there.

        That of one that crashed is of no use, as its reports are: the region is forced away once it is fenced.
        """
        if server.state is ServerState.ONLINE:
            self._take(server, [result], ARRIVED)

    def _take(self, server: Server, results: Sequence[Result], taken: int) -> tuple[list[int], Awaitable[None] | None]:
        """Takes results; returns pids to be sent again, and what ends once the others are durable."""
        dispatcher, key = self.env.dispatcher, server.key
        again: list[int] = []
        mine: list[Result] = []
        for one in results:
            record = self.engine.records.get(one.pid)
            if (record is None or record.state.is_final) and not self.env.bus.awaits(one.pid):
                continue  # it was durable before, or no procedure waits for it
            expected = dispatcher.expects(one.pid)
            if expected is None:
                again.append(one.pid)
            elif expected != key and not (one.outcome == protocol.DONE and dispatcher.is_worker(one.pid, key)):
                continue  # this server was left, and what it did is of no use; work on a log is done all the same
            elif one.outcome in SUCCESSES or dispatcher.has_arrived(one.pid, taken):
                dispatcher.hold_back(one.pid)
                mine.append(one)
            else:
                again.append(one.pid)
        self.env.journal.reported(server, [one for one in mine if self.env.results.get(one.pid) is None])
        durable = self.env.results.add(mine)
        self.engine.wake_all(one.pid for one in mine)
        self.env.bus.came(mine)
        return again, durable

    async def independent(self, server: Server, regions: Sequence[Owned]) -> list[int]:
        """Takes which regions have data of their own, durably; returns those that are to be named again."""
        return await independence.take(self.env, self._write, server, regions)

    # -- procedures

    def start(self, kind: str, data: bytes, nonce: str, reason: str = "") -> bool:
        """Submits a procedure of the daemon's own; a nonce keeps a second one like it out. False: not now."""
        try:
            self.engine.submit_soon(kind, data, Caller(ITSELF, "", reason, self._unended(nonce)))
        except ProcedureRefused as refused:
            log.warning("%s is not started yet: %s", nonce, refused)
            return False
        return True

    def submitted(self, kind: str, data: bytes, nonce: str) -> bool:
        """Submits a procedure of the daemon's own, where it is not yet; returns whether it is stored by now."""
        pid = self.engine.pid_of(Caller(ITSELF, "", "", nonce))
        if pid is None:
            self.start(kind, data, nonce)
        return pid is not None and pid in self.engine.records

    def _goes_on(self, nonce: str) -> bool:
        """Checks whether the daemon's own procedure with a nonce has begun, and no operator has ended it as it is."""
        return self.engine.pid_of(Caller(ITSELF, "", "", self._unended(nonce))) is not None

    def _unended(self, nonce: str) -> str:
        """Returns a nonce, or another one where an operator has ended its procedure as it is: that is done again."""
        found = nonce
        while found and (pid := self.engine.pid_of(Caller(ITSELF, "", "", found))) is not None:
            record = self.engine.records.get(pid)
            if record is None or not record.bypassed:
                break
            found = f"{nonce} after {pid}"
        return found

    def end(self, why: StoreFailed) -> None:
        """Ends the term."""
        if not self.broken.done():
            self.broken.set_exception(why)

    async def _write(self, rows: Sequence[Write]) -> None:
        try:
            await self._store.write((), (), rows)
        except StoreFailed as failed:
            self.end(failed)
            raise
