"""Records calls of clients: procedures that have ended when they begin, each stored together with its effect.

The record of a call is one operation in the first multi of its effect, however many entities it names. Where the
records cannot be used, a call is carried out without one, and counted: no call depends on the store of procedures.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import StrEnum
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from msgspec.structs import replace

from controller.procedures.engine import Engine
from controller.procedures.kinds import Kind
from metadata_store.errors import ZkError
from metadata_store.fencing.companion import Companion, CompanionState
from metadata_store.records.port import StoreFailed
from metadata_store.records.zookeeper import ZooKeeperRecords
from state_machines.procedures.locks import CLUSTER, Demand
from state_machines.procedures.record import Caller, Record
from state_machines.procedures.states import State

RESULT_BYTES_MAX: Final = 1_000
"""Bytes of the sentence that a record has of what its call changed."""

UntilRead = Callable[[Callable[[], Awaitable[bool]]], Awaitable[bool]]


class CallKind(StrEnum):
    """Kinds of recorded calls; the values are in stored records."""

    CREATE_TOPICS = "create-topics"
    CREATE_PARTITIONS = "create-partitions"
    DELETE_TOPICS = "delete-topics"
    ALTER_REASSIGNMENTS = "alter-partition-reassignments"
    ALTER_SCRAM_CREDENTIALS = "alter-scram-credentials"
    UPDATE_FEATURES = "update-features"


def _nothing(_: Record) -> Demand:
    """Returns a demand that is never made: a recorded call has ended when it begins."""
    return Demand(CLUSTER, exclusive=False)


CALLS: Final = tuple(Kind[Any](kind.value, (), _nothing) for kind in CallKind)
"""The kinds of recorded calls, so that their records are loaded and their results evicted."""


class Ledger(NamedTuple):
    """Where calls are recorded. ``until_read`` repeats a read after each lost connection.

    ``fail`` is called once the store failed: it ends the engine.
    """

    engine: Engine[Any]
    records: ZooKeeperRecords
    until_read: UntilRead
    fail: Callable[[StoreFailed], None]
    now_ms: Callable[[], int]


class CallCounts(Protocol):
    """Counts calls over all terms, for the metrics of the domain."""

    recorded_calls: int
    unrecorded_calls: int


class Recorder:
    """Gives calls their records. ``ledger`` is None while the records cannot be used, and after the term.

    It refers to nothing of the term otherwise: the model would stay in memory.
    """

    def __init__(self, counters: CallCounts) -> None:
        self.ledger: Ledger | None = None
        self.counters = counters

    def call(self, kind: CallKind, caller: Caller | None, *, again: bool) -> CallRecord:
        """Begins the record of a call; ``caller`` None: no client made it. ``again``: an earlier attempt may have."""
        return CallRecord(self, kind, caller, again=again)


class CallRecord:
    """The record of one call while the call is handled.

    The handler takes :attr:`companion` along with each write, and calls :meth:`close` in the end. Memory has the record
    from then on: never before it is durable.
    """

    def __init__(self, recorder: Recorder, kind: CallKind, caller: Caller | None, *, again: bool) -> None:
        self._recorder = recorder
        self._ledger = recorder.ledger if caller is not None else None
        self._kind = kind
        self._caller = caller or Caller()
        self._again = again
        self._durable = self._earlier() if again else None
        self._entered = self._durable
        self._draft: Record | None = None
        self._companion: Companion | None = None
        self._is_clients = caller is not None

    async def companion(self, result: str) -> Companion | None:
        """Returns the companion of the next write, with the result that the call has if it is applied.

        None once the record is durable, and where there is none.
        """
        await self._settle()
        if self._durable is not None or not await self._drawn(result):
            return None
        assert self._draft is not None
        assert self._ledger is not None
        self._companion = Companion(self._ledger.records.ops((self._draft,)))
        return self._companion

    async def close(self, result: str | None = None, *, changed: bool = False) -> None:
        """Enters the record, after a further write where its result is not as expected.

        ``result`` None: the call did nothing. ``changed``: this attempt wrote something; an attempt that finds all
        done by an earlier one leaves that one's record as it is.
        """
        await self._settle()
        if result is not None and (changed or (self._again and self._durable is None)):
            await self._write(result)
            if changed and self._durable is None and self._is_clients:
                self._recorder.counters.unrecorded_calls += 1
        if self._durable is not None and self._durable is not self._entered and self._is_open:
            assert self._ledger is not None
            self._ledger.engine.recorded(self._durable)
            self._recorder.counters.recorded_calls += self._entered is None
            self._entered = self._durable

    @property
    def _is_open(self) -> bool:
        """Checks whether the store has not failed since the call began."""
        return self._ledger is not None and self._ledger is self._recorder.ledger

    def _earlier(self) -> Record | None:
        if self._ledger is None:
            return None
        pid = self._ledger.engine.pid_of(self._caller)
        return None if pid is None else self._ledger.engine.records.get(pid)

    async def _drawn(self, result: str) -> bool:
        """Draws the record with a result; returns False where the store failed."""
        if not self._is_open:
            return False
        assert self._ledger is not None
        now_ms, sentence = self._ledger.now_ms(), _cut(result)
        before = self._durable or self._draft
        if before is not None:
            self._draft = replace(before, updated_ms=now_ms, result=sentence)
            return True
        born = Record(0, self._kind.value, State.SUCCESS, 0, now_ms, now_ms, result=sentence, caller=self._caller)
        try:
            self._draft = await self._ledger.engine.named(born)
        except StoreFailed as failed:
            self._ledger.fail(failed)
            return False
        return True

    async def _settle(self) -> None:
        """Enters the result of the multi with the last companion; reads the record where the reply was lost."""
        companion, self._companion = self._companion, None
        if companion is None:
            return
        assert self._draft is not None
        assert self._ledger is not None
        if companion.state is CompanionState.APPLIED:
            self._ledger.records.written((self._draft,))
            self._durable = self._draft
        elif companion.state is CompanionState.UNKNOWN:
            if await self._stands(self._ledger, self._draft):
                self._durable = self._draft
        elif companion.state is CompanionState.FAILED and self._is_open:
            pid = self._draft.pid
            why = f"ZooKeeper refused the record of pid {pid} ({companion.code.name})"
            where = self._ledger.records.path(pid)
            self._ledger.fail(StoreFailed(f"{why}: check whether {where} exists, and the ACL of its parent"))

    @staticmethod
    async def _stands(ledger: Ledger, record: Record) -> bool:
        try:
            return await ledger.until_read(partial(ledger.records.stands, (record,)))
        except ZkError:
            return False

    async def _write(self, result: str) -> None:
        """Writes the record by itself, where it is not durable with this result."""
        if self._durable is not None and self._durable.result == _cut(result):
            return
        if not await self._drawn(result):
            return
        assert self._draft is not None
        assert self._ledger is not None
        try:
            await self._ledger.records.write((self._draft,))
        except StoreFailed as failed:
            self._ledger.fail(failed)
        else:
            self._durable = self._draft


def _cut(result: str) -> bytes:
    """Encodes a result, and cuts it between two characters where it is too long."""
    encoded = result.encode()
    if len(encoded) <= RESULT_BYTES_MAX:
        return encoded
    return encoded[: RESULT_BYTES_MAX - 3].decode("utf-8", "ignore").encode() + b"..."
