"""Puts a backup in the place of a SQLite store that no daemon has, and keeps the store that was there.

The new store is made aside, whole and durable. The present one is made a single file, and copied under another name.
Then one rename replaces it. A process that is killed in between leaves the present store, or the new one.
The caller has the claim of the store.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

from metadata_store.catalog.rows import Write
from metadata_store.catalog.sqlite import SqliteCatalog
from metadata_store.catalog.sqlite_backup import ROOM, copy_of, judged
from metadata_store.records import claims
from metadata_store.records import sqlite_offline as records_offline
from metadata_store.records.files import copied, made, room_wanted, synced
from metadata_store.records.port import StoreFailed
from metadata_store.records.sqlite import BUSY_MS
from metadata_store.records.sqlite_watch import BESIDE

LOGS: Final = ("-journal", *(end for end in BESIDE if end))
"""Files beside a store that SQLite would apply to whatever file has its name."""


class Held(NamedTuple):
    """What a store has, by name: the token of each region by its id, and the kind of each live procedure by its pid."""

    tables: frozenset[str]
    regions: dict[int, int]
    procedures: dict[int, str]


class Difference(NamedTuple):
    """What one store has and another lacks; ``moved``: regions of both with another token there."""

    tables: Sequence[str]
    regions: Sequence[int]
    procedures: Sequence[tuple[int, str]]
    moved: Sequence[int]


class Restored(NamedTuple):
    """The store that is in place. ``aside``: file with the one before it, None where there was none.

    ``trouble``: why that one could not be made a single file, empty where it could.
    """

    aside: Path | None
    trouble: str = ""


def held(path: Path) -> Held:
    """Reads what a store has; raises :class:`StoreFailed`."""
    with records_offline.opened(path, "ro") as db:
        tables = frozenset(str(name) for [name] in db.execute("SELECT name FROM tbl"))
        regions = dict(db.execute("SELECT id, token FROM region"))
    records = (one.record for one in records_offline.read(path).entries)
    return Held(tables, regions, {one.pid: one.kind for one in records if one is not None and not one.state.is_final})


def difference(one: Held, other: Held) -> Difference:
    """Returns what ``one`` has and ``other`` lacks."""
    return Difference(
        sorted(one.tables - other.tables),
        sorted(one.regions.keys() - other.regions.keys()),
        sorted((pid, kind) for pid, kind in one.procedures.items() if pid not in other.procedures),
        sorted(id_ for id_, token in one.regions.items() if other.regions.get(id_, token) != token),
    )


def restore(backup: Path, store: Path, epoch: int, rows: Iterable[Write], stamp: str) -> Restored:
    """Puts a copy of a backup in the place of a store; raises :class:`StoreFailed`, and changes nothing then.

    ``epoch``: below that of the next daemon; ``rows``: added to the copy; ``stamp``: in the name of the former store.
    """
    new = Path(f"{store}.restoring")
    with _alone(store):
        try:
            _make(backup, new, epoch, rows)
            kept = _kept(store, stamp) if store.exists() else Restored(None)
            for end in LOGS:
                Path(f"{store}{end}").unlink(missing_ok=True)
            new.replace(store)
            synced(store.absolute().parent)
        except (OSError, sqlite3.Error) as error:
            remedy = ROOM if room_wanted(error) else "run the command as the daemon's user, and end what has it open"
            raise StoreFailed(f"{store} was not replaced: {error}: {remedy}") from error
        finally:
            for end in ("", *LOGS):
                Path(f"{new}{end}").unlink(missing_ok=True)
    return kept


@contextmanager
def _alone(store: Path) -> Iterator[None]:
    """Keeps backups and repairs out."""
    try:
        lock = claims.alone(store)
    except (OSError, claims.Locked) as error:
        raise StoreFailed(f"{error}: wait until the backup or the repair that has {store} open has ended") from error
    try:
        yield
    finally:
        claims.release(lock)


def _make(backup: Path, new: Path, epoch: int, rows: Iterable[Write]) -> None:
    """Makes the new store of a backup: one file that is whole and durable."""
    made(new)
    with records_offline.opened(backup, "ro") as source, copy_of(source, new) as db:
        db.execute("BEGIN")
        db.execute("UPDATE fence SET epoch = max(epoch, ?)", (epoch,))
        SqliteCatalog().put(db, rows)
        db.execute("COMMIT")
    synced(new)
    judged(new)


def _kept(store: Path, stamp: str) -> Restored:
    """Copies the present store under a name of its own; one that SQLite cannot open with all files beside it."""
    trouble = _single(store)
    names = (Path(f"{store}.before-{stamp}{f'-{n}' if n else ''}") for n in count())
    aside = next(one for one in names if not one.exists())
    for end in reversed(("", *LOGS) if trouble else ("",)):
        if (part := Path(f"{store}{end}")).exists():
            copied(part, Path(f"{aside}{end}"))
    synced(store.absolute().parent)
    return Restored(aside, trouble)


def _single(store: Path) -> str:
    """Has SQLite move what its log has into the file; returns why it cannot, where the file is damaged."""
    try:
        with closing(sqlite3.connect(store, timeout=BUSY_MS / 1_000, isolation_level=None)) as db:
            db.execute("PRAGMA synchronous = FULL")
            db.execute("PRAGMA journal_mode = DELETE").fetchone()
    except sqlite3.OperationalError:
        raise
    except sqlite3.DatabaseError as error:
        return str(error)
    return ""
