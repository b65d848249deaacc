"""Runs procedures of kinds for tests, and kills their daemon at any write (HBase ``ProcedureTestingUtility``)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

from controller.procedures.engine import Engine
from controller.procedures.kinds import Env, Execute, Kind, Step
from controller.procedures.parking import Parking
from controller.procedures.running import Entered
from metadata_store.port import Kill
from metadata_store.records.port import RecordStore, Stored
from state_machines.procedures.locks import Demand, Resource, Scope
from state_machines.procedures.outcome import Children, Done, Failed, Next, Outcome, Retry, Wait
from state_machines.procedures.record import Record, child
from tests.contracts.records import Stores

TURNS_MAX = 20_000
IDLE_MS = 500
"""Time that passes where nothing is to be done."""

End = TypeVar("End")


class Death(NamedTuple):
    """The write at which the daemon is killed, counted from 1, and on which side of it."""

    write: int
    after: bool


class Deaths:
    """Counts the writes of a run, over all its daemons, and kills at some of them. ``killed``: how often it did.

    ``always``: before each write, when it is tried for the first time.
    """

    def __init__(self, deaths: Iterable[Death] = (), *, always: bool = False) -> None:
        self.writes = self.killed = 0
        self._deaths = set(deaths)
        self._always = always
        self._tried: set[Hashable] = set()

    def before(self, content: Hashable) -> None:
        """Kills before a write, or lets it happen."""
        self.writes += 1
        first = content not in self._tried
        self._tried.add(content)
        if Death(self.writes, after=False) in self._deaths or (self._always and first):
            self._kill()

    def after(self) -> None:
        """Kills after a write."""
        if Death(self.writes, after=True) in self._deaths:
            self._kill()

    def _kill(self) -> None:
        self.killed += 1
        raise Kill


def content_of(puts: Sequence[Record], deletes: Sequence[int], _rows: Sequence[object] = ()) -> Hashable:
    """Returns what a write is about, without pids and times: these differ when it is tried again."""
    found = [(put.kind, put.data, put.state, put.step, put.done, put.attempts, put.locked) for put in puts]
    return tuple(sorted(found)), len(deletes)


class KillingStore:
    """A store whose daemon dies at some writes. ``content``: returns what a write is about, in each of its tries."""

    def __init__(self, store: RecordStore, deaths: Deaths, content: Callable[..., Hashable] = content_of) -> None:
        self._store = store
        self._deaths = deaths
        self._content = content

    @property
    def bytes_max(self) -> int:
        """Returns the bound of the store."""
        return self._store.bytes_max

    def weigh(self, puts: Iterable[Record], deletes: Iterable[int] = (), rows: Iterable[object] = ()) -> int:
        """Weighs as the store does."""
        return self._store.weigh(puts, deletes, rows)

    async def load(self) -> Stored:
        """Reads everything."""
        return await self._store.load()

    async def write(self, puts: Iterable[Record], deletes: Iterable[int] = (), rows: Iterable[object] = ()) -> None:
        """Writes between two chances to die."""
        puts, deletes, rows = tuple(puts), tuple(deletes), tuple(rows)
        self._deaths.before(self._content(puts, deletes, rows))
        await self._store.write(puts, deletes, rows)
        self._deaths.after()

    async def reserve(self, count: int) -> int:
        """Reserves between two chances to die."""
        self._deaths.before("reserve")
        first = await self._store.reserve(count)
        self._deaths.after()
        return first

    async def close(self) -> None:
        """Closes the store."""
        await self._store.close()


class Clock:
    """The time of all daemons of a run."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        """Returns the time."""
        return self.ms


class Daemon(Generic[Env]):
    """One life of an engine, which a run drives by hand."""

    def __init__(
        self,
        env: Env,
        kinds: Sequence[Kind[Env]],
        store: RecordStore,
        clock: Clock,
        entered: Entered = lambda _moved: None,
        parking: Parking | None = None,
    ) -> None:
        self._clock = clock
        self.wanted = False
        self.turns = 0
        self.engine = Engine(
            env, kinds, store, wanted=self._want, now_ms=clock.now_ms, entered=entered, parking=parking
        )

    def _want(self) -> None:
        self.wanted = True

    async def until(self, done: Callable[[], bool]) -> None:
        """Runs turns until ``done``; time passes where none is wanted."""
        while not done():
            await asyncio.sleep(0)
            if not self.wanted:
                self._clock.ms += IDLE_MS
            self.wanted = False
            await self.engine.turn()
            self.turns += 1
            assert self.turns < TURNS_MAX, f"it does not end: {list(self.engine.records.values())}"

    async def run(self, work: Awaitable[End]) -> End:
        """Runs turns until ``work``, which waits for the engine, has ended."""
        task = asyncio.ensure_future(work)
        try:
            await self.until(task.done)
            return task.result()
        finally:
            task.cancel()


Scenario = Callable[[Engine[Env]], Awaitable[End]]
"""What a client does: it submits with a nonce and waits. A client whose daemon dies does all of it again."""


async def play(
    stores: Stores, env: Env, kinds: Sequence[Kind[Env]], scenario: Scenario[Env, End], deaths: Deaths
) -> End:
    """Plays a scenario to its end, with a new daemon after each death; returns the scenario's result."""
    clock = Clock()
    while True:
        async with stores() as store:
            try:
                daemon = Daemon(env, kinds, KillingStore(store, deaths), clock)
                await daemon.engine.load()
                assert not daemon.engine.unusable
                return await daemon.run(scenario(daemon.engine))
            except Kill:
                continue


class Notes:
    """What steps have done: ``there`` has (kind, message, step) of each that was not undone; ``runs`` counts them."""

    def __init__(self) -> None:
        self.there: set[tuple[str, bytes, int]] = set()
        self.runs: Counter[tuple[str, bytes, int]] = Counter()
        self.arrived = False
        self.broken = False

    def note(self, record: Record, step: int) -> None:
        """Notes a step."""
        key = (record.kind, record.data, step)
        self.runs[key] += 1
        self.there.add(key)


def topic(record: Record) -> Demand:
    """Demands the topic that the message names, exclusively."""
    return Demand(Resource(Scope.TOPIC, record.data.decode()), exclusive=True)


def part(record: Record) -> Demand:
    """Demands a part of the topic ``t``."""
    return Demand(Resource(Scope.TOPIC, "t"), exclusive=False, parts=(record.data.decode(),))


def noting(outcome: Callable[[Notes, Record], Outcome]) -> Execute[Notes]:
    """Returns a step that notes that it happened."""

    async def execute(notes: Notes, record: Record) -> Outcome:
        notes.note(record, record.step)
        return outcome(notes, record)

    return execute


async def undo(notes: Notes, record: Record) -> Outcome:
    """Undoes the latest step."""
    notes.there.discard((record.kind, record.data, record.done[-1]))
    return Done()


def onwards(_: Notes, record: Record) -> Outcome:
    """Goes on with the next step."""
    return Next(record.step + 1, record.data)


def step(outcome: Callable[[Notes, Record], Outcome] = onwards, name: str = "step") -> Step[Notes]:
    """Returns a step that can be undone."""
    return Step(name, noting(outcome), undo)


def last(_: Notes, record: Record) -> Outcome:
    """Ends."""
    return Done(b"made " + record.data)


def fails(_: Notes, record: Record) -> Outcome:
    """Fails."""
    return Failed(f"no room for {record.data.decode()}")


def raises(_: Notes, record: Record) -> Outcome:
    """Raises what no step should."""
    raise LookupError(record.data.decode())


def arrives(notes: Notes, record: Record) -> Outcome:
    """Waits for an event."""
    return onwards(notes, record) if notes.arrived else Wait(0, record.data)


def twice(notes: Notes, record: Record) -> Outcome:
    """Fails for now, the first time."""
    return onwards(notes, record) if record.attempts else Retry("a broker is away")


def pauses(notes: Notes, record: Record) -> Outcome:
    """Waits for ten seconds, once."""
    return onwards(notes, record) if record.deadline_ms else Wait(record.updated_ms + 10_000, record.data)


def spreads(kind: str, count: int) -> Callable[[Notes, Record], Outcome]:
    """Returns a step with children, which have messages of their own."""

    def outcome(_: Notes, record: Record) -> Outcome:
        children = tuple(child(kind, record.data + b"/%d" % n) for n in range(count))
        return Children(children, record.step + 1, record.data)

    return outcome
