"""Servers for the kill tests of regions: they speak the protocol, answer at once, and outlive daemons."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from controller.regions.zookeeper_claim import ROOT
from metadata_store.catalog.answers import NodeAnswers
from metadata_store.port import ZooKeeper
from regent_agent import protocol
from regent_agent.protocol import Close, Open, Operation, Owned, Result, Task, Work

COMPACT: Final = "x-compact"
"""Work of the service's own."""
CONNECT_S: Final = 10.0
PARTS: Final = ["part-0", "part-1"]
"""Parts of the log of each server."""


class Service:
    """What the servers of a service share: who has which region, tokens, logs.

    ``connect``: makes a ZooKeeper session where servers answer by znodes below ``root``, None where they report.
    ``appears``: each has an ephemeral znode; without these each daemon takes its term for a start.
    ``failing``: answers that opens get before they succeed, by region. ``strays``: servers with a region that is not
    theirs. ``works``: work that was done. ``faults``: what must never happen.
    """

    def __init__(
        self, connect: Callable[[], ZooKeeper] | None = None, root: str = ROOT, *, appears: bool = True
    ) -> None:
        self.connect, self.root, self.appears = connect, root, appears
        self.sessions: list[ZooKeeper] = []
        self.ending: list[asyncio.Task[None]] = []
        self.servers: dict[tuple[str, int], QuickServer] = {}
        self.tokens: dict[int, int] = {}
        self.failing: dict[int, list[str]] = {}
        self.fenced: set[tuple[str, int]] = set()
        self.split: set[tuple[str, int, str]] = set()
        self.features = [protocol.INHERIT, protocol.PUBLISH, *sorted(protocol.WORKS), COMPACT]
        if connect is not None:
            self.features.append(protocol.NODES)
        self.works: list[tuple[tuple[str, int], Work]] = []
        self.strays: list[QuickServer] = []
        self.faults: list[str] = []

    def start(self, name: str, incarnation: int = 1) -> QuickServer:
        """Starts a process."""
        server = self.servers[name, incarnation] = QuickServer(self, name, incarnation)
        return server

    async def run_command(self, words: Sequence[str], _timeout_s: float) -> None:
        """Stands in for the operator's command that fences a process."""
        dead = words[-3], int(words[-2])
        await asyncio.sleep(0)
        if self.servers[dead].alive:
            self.faults.append(f"{dead} is fenced while it lives")

    @property
    def alive(self) -> list[QuickServer]:
        """Returns the processes that live."""
        return [one for one in self.servers.values() if one.alive]

    @property
    def owners(self) -> Mapping[int, QuickServer]:
        """Returns the process that has each region."""
        return {region: one for one in self.alive for region in one.owned}

    def opens(self, server: QuickServer, operation: Open) -> str:
        """Judges an open before it is done; returns its outcome."""
        region = operation.region
        if failing := self.failing.get(region):
            return failing.pop(0)
        owner = self.owners.get(region)
        if owner is not None and owner is not server:
            self.faults.append(f"region {region} is open at {owner.key}, and opens at {server.key}")
        if self.tokens.get(region, 0) > operation.token:
            self.faults.append(f"region {region} opens with token {operation.token}, after {self.tokens[region]}")
        self.tokens[region] = operation.token
        return protocol.OPENED


class QuickServer:
    """One process. ``owned``: its regions and their tokens; ``results``: those that no daemon has accepted yet.

    ``lists``: a daemon wants a list of its regions. ``staged``: values that it has prepared; ``published``: those that
    it has, by name.
    """

    def __init__(self, service: Service, name: str, incarnation: int) -> None:
        self.service = service
        self.key = name, incarnation
        self.alive = True
        self.epoch = self.taken = 0
        self.owned: dict[int, int] = {}
        self.results: dict[int, Result] = {}
        self.lists = False
        self.staged: set[bytes] = set()
        self.published: dict[str, protocol.Published] = {}
        self._answers: NodeAnswers | None = None
        self._zk: ZooKeeper | None = None

    def dies(self) -> None:
        """Ends the process, and all that it had."""
        self.alive = False
        self.owned.clear()
        if self._zk is not None:
            self.service.ending.append(asyncio.ensure_future(self._zk.close()))

    def register(self) -> protocol.Register:
        """Returns the registration with all that it has."""
        owned = [Owned(region, token) for region, token in sorted(self.owned.items())]
        return protocol.Register(*self.key, f"{self.key[0]}:1", "1", owned, self.service.features)

    def registered(self, found: protocol.Registered) -> None:
        """Notes a daemon, and the values that it has published."""
        self.epoch, self.taken = found.epoch, 0
        for one in found.published:
            self._has(one)

    async def take(self, operations: protocol.Operations) -> None:
        """Does operations whose result it does not have, and has a result of each that no znode tells."""
        self.taken = max(self.taken, operations.number)
        self.lists |= operations.list_regions
        for one in operations.operations:
            if one.pid in self.results:
                continue
            found = self._do(one) if self.service.connect is None else await self._by_znode(one, self.service.connect)
            if found is not None and self.alive:
                self.results[one.pid] = found

    async def _by_znode(self, operation: Operation, connect: Callable[[], ZooKeeper]) -> Result | None:
        """Does an operation as the agent does; returns what is to be reported, None where a znode says it."""
        if self._answers is None:
            zk = connect()
            await zk.connect(CONNECT_S)
            self.service.sessions.append(zk)
            self._answers = NodeAnswers(zk, self.service.root, lambda: self.key)
            self._zk = zk
            if self.service.appears:
                await self._answers.appears()
        answers = self._answers
        if isinstance(operation, Open):
            repeats = self.owned.get(operation.region) == operation.token
            if not repeats and not await answers.begins(operation):
                return Result(operation.pid, protocol.FAILED_OPEN, text="its znode is another server's")
            found = self._do(operation)
            told = found.outcome == protocol.OPENED and await answers.opened(operation, found.sequence)
            if found.outcome == protocol.OPENED and not (told or repeats):
                self.owned.pop(operation.region, None)
                return Result(operation.pid, protocol.FAILED_OPEN, text="its znode is another server's by now")
            return None if told else found
        if isinstance(operation, Close) and not operation.reported:
            mine = self.owned.get(operation.region, operation.token + 1) <= operation.token
            if not await answers.begins(operation) and mine:
                return Result(operation.pid, protocol.FAILED, text="its znode is another server's")
            found = self._do(operation)
            return None if await answers.closed(operation) else found
        return self._do(operation)

    def accepted(self, sent: list[Result], again: list[int]) -> None:
        """Forgets results that a daemon has."""
        for one in sent:
            if one.pid not in again and self.results.get(one.pid) is one:
                del self.results[one.pid]

    def _do(self, operation: Operation) -> Result:
        match operation:
            case Open():
                outcome = self.service.opens(self, operation)
                if outcome == protocol.OPENED:
                    self.owned[operation.region] = operation.token
                return Result(
                    operation.pid, outcome, operation.sequence + 1, "" if outcome == protocol.OPENED else "no"
                )
            case Close():
                if self.owned.get(operation.region, operation.token + 1) <= operation.token:
                    del self.owned[operation.region]
                return Result(operation.pid, protocol.CLOSED)
            case Task():
                return self._task(operation)
            case Work():
                if operation.region and self.owned.get(operation.region) != operation.token:
                    return Result(operation.pid, protocol.FAILED, text=f"region {operation.region} is not here")
                if failing := self.service.failing.get(operation.region):
                    return Result(operation.pid, failing.pop(0), text="no room")
                self.service.works.append((self.key, operation))
                if operation.what == protocol.STAGE and not operation.region:
                    self.staged.add(operation.data)
                if operation.what in (protocol.UNSTAGE, protocol.COMMIT) and not operation.region:
                    self.staged.discard(operation.data)
                if operation.what == protocol.COMMIT and not operation.region:
                    self._has(msgspec.msgpack.decode(operation.data, type=protocol.Published))
                return Result(operation.pid, protocol.DONE, data=operation.data)

    def _has(self, value: protocol.Published) -> None:
        known = self.published.get(value.name)
        if known is not None and known.number == value.number and known != value:
            self.service.faults.append(f"{self.key} got {known} and {value}")
        if known is None or known.number <= value.number:
            self.published[value.name] = value

    def _task(self, task: Task) -> Result:
        dead = task.server, task.incarnation
        if self.service.servers[dead].alive:
            self.service.faults.append(f"the log of {dead} is fenced while it lives")
        if task.what == "fence":
            self.service.fenced.add(dead)
            return Result(task.pid, protocol.DONE, parts=PARTS)
        if dead not in self.service.fenced:
            self.service.faults.append(f"the log of {dead} is split before it is fenced")
        self.service.split.add((*dead, task.part))
        return Result(task.pid, protocol.DONE)
