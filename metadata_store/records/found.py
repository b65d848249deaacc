"""Describes the entries of a store: records, and unreadable ones, each at its place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from metadata_store.records.codec import Unreadable
from metadata_store.records.port import Damaged
from state_machines.procedures.faults import Fault, Unusable
from state_machines.procedures.record import Caller, Record


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
