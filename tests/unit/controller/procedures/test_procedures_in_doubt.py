"""A term that ends in a write: its procedures are in doubt where the store gave no response, and only there."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

import pytest

from controller.procedures.kinds import Kind
from metadata_store.records.port import Fenced, StoreFailed, Unstorable
from state_machines.procedures.record import Caller, Record
from testing.memory.records import Disk, MemoryRecords
from tests.kills.harness import Clock, Daemon
from tests.kills.kinds import Notes, last, step, topic

CALLER = Caller(principal="User:ops")
REQUEST, STEP = 1, 2
"""The first write has the request, the second one what the first step made."""


class Failing(MemoryRecords):
    """A store whose write with a number fails."""

    def __init__(self, at: int, error: StoreFailed | None) -> None:
        super().__init__(Disk())
        self._at = at
        self._error = error

    async def write(self, puts: Iterable[Record], deletes: Iterable[int] = (), rows: Iterable[object] = ()) -> None:
        """Writes, and raises where its turn has come."""
        self._at -= 1
        if not self._at and self._error is not None:
            raise self._error
        await super().write(puts, deletes, rows)


async def played(at: int, error: StoreFailed | None) -> list[int]:
    """Plays a procedure; returns what is in doubt once the term has ended by the error, or the procedure has."""
    daemon = Daemon(Notes(), (Kind("root", (step(), step(last)), topic),), Failing(at, error), Clock())
    engine = daemon.engine
    await engine.load()
    engine.submit_soon("root", b"t", CALLER)
    with pytest.raises(type(error)) if error is not None else contextlib.nullcontext():
        await daemon.until(lambda: any(one.state.is_final for one in engine.records.values()))
    return engine.unanswered


@pytest.mark.parametrize("at", [REQUEST, STEP])
async def test_a_write_without_a_response_leaves_its_procedure_in_doubt(at: int) -> None:
    assert await played(at, StoreFailed("the connection was lost")) == [1]


@pytest.mark.parametrize("at", [REQUEST, STEP])
@pytest.mark.parametrize("error", [Fenced("another daemon has the store"), Unstorable("it is too large")])
async def test_a_write_that_was_refused_leaves_nothing_in_doubt(at: int, error: StoreFailed) -> None:
    assert await played(at, error) == []


async def test_writes_that_were_stored_leave_nothing_in_doubt() -> None:
    assert await played(0, None) == []
