"""Stores the proof of each process beside its row: after a failover, too, no other connection speaks for it.

A row is a mark of a kind of its own, which daemons that do not know it leave alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

from metadata_store.catalog.rows import DropMark, MarkRow, PutMark, Write

KIND: Final = "proof"
Key: TypeAlias = tuple[str, int]


def _subject(key: Key) -> str:
    return f"{key[0]},{key[1]}"


def put(key: Key, proof: str) -> tuple[Write, ...]:
    """Returns the write that stores the digest of a proof; none for a process without one."""
    return (PutMark(MarkRow(KIND, _subject(key), proof)),) if proof else ()


def drop(key: Key, proof: str | None) -> tuple[Write, ...]:
    """Returns the write that goes with the removal of a process."""
    return (DropMark(KIND, _subject(key)),) if proof else ()


def stored(marks: Iterable[MarkRow]) -> dict[Key, str]:
    """Finds the proofs among the marks of a catalog, by process."""
    found: dict[Key, str] = {}
    for one in marks:
        name, comma, incarnation = one.subject.rpartition(",")
        if one.kind == KIND and comma and incarnation.isdecimal():
            found[name, int(incarnation)] = one.value
    return found


def left_over(proofs: Iterable[Key], members: Iterable[Key]) -> Iterator[Write]:
    """Yields the removal of proofs whose process is gone: a daemon that does not know them removed it."""
    return (DropMark(KIND, _subject(key)) for key in sorted(set(proofs).difference(members)))
