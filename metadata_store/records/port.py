"""Declares the store of procedure records, as the engine of a domain uses it, and the entries found in one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from metadata_store.records.codec import Unreadable
from state_machines.procedures.record import Caller, Fault, Record, Unusable


class StoreFailed(Exception):
    """The store cannot read or write any more: its domain steps down. The text names the cause and the remedy."""


class Unstorable(StoreFailed):
    """The store takes everything but this write, and never will: its content is refused. Nothing of it was applied."""


class Fenced(StoreFailed):
    """Another daemon has taken the store over since; nothing of the write was applied."""


class Above(NamedTuple):
    """What servers have seen of a store. It goes above both as it opens, so that nothing is given out again."""

    epoch: int = 0
    number: int = 0


NOTHING_SEEN: Final = Above()


class Damaged(NamedTuple):
    """A record that cannot be read: left as it is in the store, and reported. ``caller``: as far as it can be read."""

    pid: int
    why: str
    fault: Fault = Fault.CORRUPT
    caller: Caller = Caller()


class Stored(NamedTuple):
    """The content of a store. ``last_pid``: the highest pid that was ever reserved."""

    records: Sequence[Record]
    damaged: Sequence[Damaged]
    last_pid: int


class RecordStore(Protocol):
    """Keeps records. All methods raise :class:`StoreFailed`; after that the store is of no use any more."""

    @property
    def bytes_max(self) -> int:
        """Returns the most bytes of one write, as :meth:`weigh` counts them; 0 where a write may have any size."""
        ...

    def weigh(self, puts: Iterable[Record], deletes: Iterable[int] = (), rows: Iterable[object] = ()) -> int:
        """Returns at least the bytes that a write has where it is stored, 0 where a write may have any size.

        Raises what the encoding of a record raises.
        """
        ...

    async def load(self) -> Stored:
        """Reads everything, ordered by pid."""
        ...

    async def write(self, puts: Iterable[Record], deletes: Iterable[int] = (), rows: Iterable[object] = ()) -> None:
        """Inserts or replaces records and deletes others, all or nothing; returns once that is durable.

        ``rows``: what the domain writes in the same transaction, in the form of this kind of store.
        """
        ...

    async def reserve(self, count: int) -> int:
        """Reserves pids that were never given before; returns the first of them, durably."""
        ...

    async def close(self) -> None:
        """Finishes the writes that were begun, and closes the store."""
        ...


class Found(NamedTuple):
    """One entry of a store. ``body``: its bytes, without the checksum where that is stored beside them.

    ``pid``: 0 where the place names none. ``unusable``: why there is no ``record``. ``mark``: what tells this content
    from another one at the same place.
    """

    pid: int
    place: str
    body: bytes
    record: Record | None
    unusable: Unusable | None = None
    caller: Caller = Caller()
    mark: int = 0


class Content(NamedTuple):
    """All of a store. ``faults``: sentences on what concerns no single record. ``epoch``: of its present daemon."""

    entries: Sequence[Found]
    last_pid: int
    epoch: int
    faults: Sequence[str] = ()


def read(pid: int, place: str, body: bytes, decode: Callable[[int, bytes], Record], mark: int = 0) -> Found:
    """Decodes an entry."""
    try:
        return Found(pid, place, body, decode(pid, body), mark=mark)
    except Unreadable as error:
        return Found(pid, place, body, None, Unusable(error.fault, str(error)), error.caller, mark)


def unread(pid: int, place: str, fault: Fault, why: str) -> Found:
    """Returns an entry whose bytes are not known."""
    return Found(pid, place, b"", None, Unusable(fault, why))


def damaged(entries: Iterable[Found]) -> list[Damaged]:
    """Returns the entries without a record, as a daemon reports them."""
    return [
        Damaged(one.pid, one.unusable.why, one.unusable.fault, one.caller)
        for one in entries
        if one.unusable is not None
    ]
