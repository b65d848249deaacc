"""Looks after every event whether the invariants hold; names are those of HBase's TLA+ model where it has one.

What servers do is looked at after each of their events; what daemons know, after each event of a daemon that has no
write under way, because memory follows the store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final
from unittest import mock

from controller.regions import admission
from controller.regions.manager import Manager
from controller.regions.procedures import assign, close, crash, many
from controller.regions.procedures.messages import CRASH, TRANSIT, Crash, Transit
from controller.regions.term import RegionsTerm
from metadata_store.records import codec
from regent_agent import protocol
from state_machines.procedures.record import Record
from state_machines.regions.entities import Region, Server
from state_machines.regions.marks import MarkKind
from state_machines.regions.model import Regions
from state_machines.regions.states import FINAL, OWNED, REPLACED, RegionState, ServerState, TableState
from testing.simulated.regions.storage import Key
from tests.kit.simulation.loop import Process
from tests.simulation.regions.balances import Balances
from tests.simulation.regions.levels import Levels
from tests.simulation.regions.locks import lock_faults, work_faults
from tests.simulation.regions.opens import Opens
from tests.simulation.regions.order import Order
from tests.simulation.regions.shaped import Shapes

if TYPE_CHECKING:
    from tests.simulation.regions.servers import ServerProcess
    from tests.simulation.regions.world import SimulatedRegions

S = RegionState
CORDONED_S: Final = 10.0
"""Time after which no server that was chosen before its cordon gets its regions still: longer than a freeze."""
ENDS_S: Final = 7.0
"""Longest time from a bypass to the end of a procedure: longer than a freeze."""
LASTING: Final = frozenset({protocol.OPENED, protocol.CLOSED, protocol.FAILED_OPEN})
"""Outcomes that end a dispatch."""


class Judge:
    """Judges one run."""

    def __init__(self, world: SimulatedRegions) -> None:
        self._world = world
        self.opens = Opens(world)
        self.shapes = Shapes(world)
        self.order = Order(world)
        self.balances = Balances(world)
        self.levels = Levels(world)
        self._writes = 0
        self._seen: object = None
        self._crash_steps: dict[int, int] = {}
        self._crashed: set[Key] = set()
        self._early: dict[tuple[str, int, int], str] = {}
        self._cordoned: dict[str, float] = {}
        """Since when this term knows of the cordon of a server."""
        self._cordoned_in: RegionsTerm | None = None
        self._ending: dict[int, float] = {}
        """Since when this term knows that a procedure is to end as it is."""
        self._ending_in: RegionsTerm | None = None

    def forget(self) -> None:
        """Forgets what was durable: the store was restored from a copy."""
        self.opens.restored()
        self.shapes.restored()
        self.balances.restored()
        self.levels.restored()
        self._world.damage.restored()
        self._crash_steps.clear()
        self._crashed.clear()
        self._early.clear()

    # -- servers

    def look(self, process: Process | None) -> None:
        """Looks after an event of a process."""
        if process is None:
            return
        if process.name.startswith("s"):
            self._owners(process)
        elif process is self._world.claimant:
            self._daemon()

    def _owners(self, process: Process) -> None:
        """Looks for others that serve a region of this process: both serve from an event of one of them on."""
        processes = self._world.processes
        here = next((one for one in processes if one.process is process), None)
        if here is None or not here.agent or not here.agent.owned:
            return
        self.opens.owns(here.key, here.agent.owned.values())
        if not self._serves(here):
            return
        others = [one for one in processes if one is not here and one.agent and one.process.alive]
        for region, owned in here.agent.owned.items():
            for other in others:
                found = other.agent.owned.get(region) if other.agent else None
                if found is None or not self._serves(other):
                    continue
                if not any(self.opens.knows_nothing_of(region, token) for token in (owned.token, found.token)):
                    self._world.violated(
                        "NoDoubleAssignment", f"region {region} is served by {other.key} and {here.key}"
                    )

    def _serves(self, one: ServerProcess) -> bool:
        """Checks whether a process answers clients, and its edits count."""
        if one.agent is None or not one.process.alive or not one.agent.serving:
            return False
        return not (self._world.storage.logged and self._world.storage.is_fenced(one.key))

    # -- daemons

    def accepted(self, report: protocol.Report, response: protocol.Accepted) -> None:
        """Looks whether results that their server may forget were durable."""
        for result in report.results:
            early = self._early.pop((report.server, report.incarnation, result.pid), "")
            if early and result.pid not in response.again:
                self._fail("AcceptedIsDurable", early)

    def _taken(self, key: Key, results: Sequence[protocol.Result], awaited: Mapping[int, int]) -> None:
        """Notes which results are not durable as the daemon is about to accept them; their response comes later.

        ``awaited``: the tokens whose results these are. An open that failed may be at the same process again by now,
        with a token of its own: other results of the report took longer.
        """
        for result in results:
            self._early.pop((*key, result.pid), None)
            token = self._awaited(key, result.pid)
            if token is not None and token == awaited.get(result.pid) and result.outcome in LASTING:
                self._early[*key, result.pid] = f"{result} of {key}, pid {result.pid} waits for it still"

    def _awaited(self, key: Key, pid: int) -> int | None:
        """Returns the token with which a process is to open or close a region; None where it is to do nothing."""
        body = self._world.disk.bodies.get(pid)
        record = None if body is None else readable(pid, body)
        if record is None or not _is_dispatched(record) or record.root in self._world.spoiled:
            return None
        task: Transit = TRANSIT.decode(record.data)
        return assign.token_of(record, task) if (task.server, task.incarnation) == key else None

    def written(self, puts: Sequence[Record], rows: Sequence[object]) -> None:
        """Looks at a write, and at the durable records after it."""
        self.shapes.written(puts, rows)
        self.balances.written(puts)
        self.levels.written(puts, rows)
        self._world.damage.written(puts, rows)
        self._writes += 1
        dispatched: dict[int, int] = {}
        crashes: dict[Key, int] = {}
        for pid, body in self._world.disk.bodies.items():
            record = readable(pid, body)
            if record is None or record.state.is_final or record.root in self._world.spoiled:
                continue
            if _is_dispatched(record):
                task: Transit = TRANSIT.decode(record.data)
                if (other := dispatched.setdefault(task.region, pid)) != pid:
                    self._fail("OneProcedure", f"pids {other} and {pid} are dispatched for region {task.region}")
            elif record.kind == crash.NAME:
                self._crash(record, crashes)
        self._keyspace()

    def _crash(self, record: Record, crashes: dict[Key, int]) -> None:
        task: Crash = CRASH.decode(record.data)
        key = task.server, task.incarnation
        self._crashed.add(key)
        if (other := crashes.setdefault(key, record.pid)) != record.pid:
            self._fail("OneCrash", f"pids {other} and {record.pid} deal with the crash of {key}")
        if record.step < self._crash_steps.get(record.pid, 0) and record.step >= crash.RELEASE:
            self._fail("SCPMonotonicity", f"pid {record.pid} went back to step {record.step}")
        self._crash_steps[record.pid] = record.step

    def _keyspace(self) -> None:
        damage = self._world.damage
        rows = sorted(self._world.disk.regions.values(), key=lambda one: (one.table, one.start))
        by_table: dict[str, list[tuple[bytes, bytes]]] = {}
        for row in rows:
            by_table.setdefault(row.table, []).append((row.start, row.end))
        for name, bounds in by_table.items():
            table = self._world.disk.tables.get(name)
            if table is None:
                self._fail("KeyspaceCoverage", f"regions of table {name}, which is gone")
                continue
            starts = [b"", *(end for _, end in bounds[:-1])]
            if [start for start, _ in bounds] == starts and not bounds[-1][1]:
                damage.whole(name)
            elif not damage.is_known(name):
                self._fail("KeyspaceCoverage", f"table {name} has {bounds}")

    def _daemon(self) -> None:
        term, world = self._world.term, self._world
        node = next((one for one in world.daemons.values() if one.process is world.claimant), None)
        if term is None or node is None or node.store is None or node.store.busy:
            return
        seen = self._writes, term
        if self._seen == seen:
            return
        self._seen = seen
        self.opens.look(term)
        self._catalog(term)
        self._model(term)
        self._cordons(term)
        self._bypassed(term)
        self.shapes.told()
        for fault in lock_faults(term):
            self._fail("LockExclusivity", fault)

    def _catalog(self, term: RegionsTerm) -> None:
        disk, model = self._world.disk, term.env.model
        if model.regions.keys() != disk.regions.keys() or model.tables.keys() != disk.tables.keys():
            self._fail("CatalogConsistency", f"{sorted(disk.regions)} are stored, memory has {sorted(model.regions)}")
            return
        for name, table in model.tables.items():
            if int(table.state) != disk.tables[name].state:
                self._fail("CatalogConsistency", f"{name} is {table.state.name} in memory, not in the catalog")
        for id_, region in model.regions.items():
            row = disk.regions[id_]
            key = ("", 0) if region.server is None else region.server.key
            memory = (int(region.state), *key, region.token)
            if not region.pid and region.state in FINAL and memory != (row.state, *row[5:8]):
                self._fail("CatalogConsistency", f"{region} is {memory} in memory, {row} in the catalog")
        stored = {key: row for key, row in disk.marks.items() if key[0] in set(MarkKind)}
        if {(one.kind.value, one.subject): (one.value, one.until_ms) for one in model.marks} != {
            key: (row.value, row.until_ms) for key, row in stored.items()
        }:
            self._fail("CatalogConsistency", f"marks {list(model.marks)} in memory, {stored} in the catalog")
        known = {key: one.proof for key, one in model.servers.items() if one.proof}
        if known != (found := admission.proofs_in(disk.marks.values())):
            self._fail("CatalogConsistency", f"proofs {known} in memory, {found} in the catalog")
        if model.servers.keys() != disk.servers.keys():
            self._fail("CatalogConsistency", f"servers {sorted(model.servers)}, {sorted(disk.servers)} in the catalog")

    def _model(self, term: RegionsTerm) -> None:
        model, records = term.env.model, term.engine.records
        for region in model.regions.values():
            self._region(region, records.get(region.pid))
        for table in model.tables.values():
            found = Counter(region.state for region in table.regions)
            if wrong := [one.name for one in S if table.count(one) != found[one]]:
                self._fail("Counted", f"table {table.name} has other regions than it counts: {wrong}")
        for record in records.values():
            if record.kind == many.ASSIGN_MANY and not record.state.is_final:
                self.order.look(term, record)
        for server in model.servers.values():
            for region in server.regions.values():
                if region.server is not server:
                    self._fail("ServerRegions", f"{server} has {region}, which is at {region.server}")
            if server.key in self._crashed and server.state is ServerState.ONLINE:
                self._fail("SCPMonotonicity", f"{server} is online after its crash")

    def _bypassed(self, term: RegionsTerm) -> None:
        """Looks whether what an operator has ended as it is ends, whatever locks it waits for (BypassEnds)."""
        before = self._ending if term is self._ending_in else {}
        parents = {one.parent for one in term.engine.live()}
        now_s = self._world.loop.now_s
        pids = [one.pid for one in term.engine.live() if one.bypassed and one.pid not in parents]
        self._ending = {pid: before.get(pid, now_s) for pid in pids}
        self._ending_in = term
        for pid, since_s in self._ending.items():
            if now_s > since_s + ENDS_S:
                self._fail(
                    "BypassEnds", f"pid {pid} was bypassed {now_s - since_s:.1f} s ago: {term.engine.records[pid]}"
                )

    def _cordons(self, term: RegionsTerm) -> None:
        before = self._cordoned if term is self._cordoned_in else {}
        names = [one.subject for one in term.env.model.marks if one.kind is MarkKind.CORDON]
        self._cordoned = {name: before.get(name, self._world.loop.now_s) for name in names}
        self._cordoned_in = term

    def _region(self, region: Region, record: Record | None) -> None:
        self.order.region(region)
        if region.pid and (record is None or record.state.is_final):
            self._fail("OneProcedure", f"{region} is attached to pid {region.pid}, which is over")
        if region.server is not None and region.server.regions.get(region.id) is not region:
            self._fail("ServerRegions", f"{region} is not in the list of {region.server}")
        if region.table.state is TableState.DISABLED and region.state in OWNED:
            self._fail("TableStateConsistency", f"{region} of a disabled table is {region.state.name}")

    def _fail(self, invariant: str, what: str) -> None:
        self._world.violated(invariant, what)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Looks at transitions of the model and at reports for the time of a run."""
        move = Regions.move

        def watched(model: Regions, region: Region, state: RegionState, server: Server | None, now_ms: int) -> None:
            term = self._world.term
            if term is not None and model is term.env.model:
                self._transition(region, state, server)
                if state in REPLACED:
                    self.shapes.leaves(term, region)
            move(model, region, state, server, now_ms)

        report = Manager.report

        async def reported(
            manager: Manager, server: Server, results: Sequence[protocol.Result], taken: int
        ) -> list[int]:
            found = {one.pid: self._awaited(server.key, one.pid) for one in results}
            awaited = {pid: token for pid, token in found.items() if token is not None}
            again = await report(manager, server, results, taken)
            self._taken(server.key, results, awaited)
            return again

        with (
            mock.patch.object(Regions, "move", watched),
            mock.patch.object(Manager, "report", reported),
            self.order.watching(),
        ):
            yield

    def _transition(self, region: Region, state: RegionState, server: Server | None) -> None:
        """Looks whether a region leaves a server that may have it still (ZombieFencingOrder)."""
        world, owner = self._world, region.server
        where = "nowhere" if server is None else str(server)
        world.note(f"{region} {region.state.name} at {owner} -> {state.name} at {where}, pid {region.pid}")
        if state is S.OPENING and region.state is S.OPEN and owner is not None:
            self._fail("TransitionValid", f"{region} is open at {owner} and is opened at {where}")
        term = world.term
        if term is not None and owner is not None and state in (S.CLOSING, S.OPENING):
            for fault in work_faults(term, region, owner):
                self._fail("WorkLocksMove", fault)
        if state is S.OPENING and server is not None and term is not None and self._cordoned_in is term:
            since_s = self._cordoned.get(server.name, world.loop.now_s)
            # a look takes place once a write is durable, so the end of a cordon may have been entered since
            if term.env.model.marks.is_cordoned(server.name) and world.loop.now_s > since_s + CORDONED_S:
                self._fail("CordonKept", f"{region} is opened at {server}, which is cordoned since {since_s:.1f} s")
        if state is not S.ABNORMALLY_CLOSED or owner is None:
            return
        if owner.state is not ServerState.FENCED and owner.key in world.disk.servers:
            self._fail("ZombieFencingOrder", f"{region} leaves {owner}, which is {owner.state.name}")
        storage = world.storage
        if storage.logged and not (storage.is_fenced(owner.key) and storage.is_split(owner.key)):
            self._fail("ZombieFencingOrder", f"{region} leaves {owner}, whose log is not fenced and split")


def readable(pid: int, body: bytes) -> Record | None:
    """Returns a stored record; None where it was spoiled."""
    try:
        return codec.unsealed(pid, body)
    except codec.Unreadable:
        return None


def _is_dispatched(record: Record) -> bool:
    """Checks whether a procedure waits for the answer of a server that has, or may have, a region."""
    kinds = (assign.NAME, close.NAME)
    return record.kind in kinds and record.step == assign.DISPATCH and not record.state.is_final
