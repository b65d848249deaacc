"""Kinds of procedures for tests. Their steps only note that they happened, so that ends can be compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from controller.procedures.kinds import Execute, Step
from state_machines.procedures.demand import Demand, Resource, Scope
from state_machines.procedures.outcome import Children, Done, Failed, Next, Outcome, Retry, Wait
from state_machines.procedures.record import Record, child


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
