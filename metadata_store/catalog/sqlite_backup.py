"""Copies a SQLite store beside a daemon that runs, and judges copies.

The copy is what one read transaction sees, so it is consistent, and writes of the daemon neither wait for it nor
begin it anew. Meanwhile the log beside the file grows. No claim is taken: a daemon may start, stop and write.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from metadata_store.catalog import sqlite_offline as catalog_offline
from metadata_store.catalog.sqlite_schema import VERSION
from metadata_store.records import claims
from metadata_store.records import sqlite_offline as records_offline
from metadata_store.records.files import room_wanted, synced
from metadata_store.records.port import StoreFailed
from metadata_store.records.sqlite_watch import BESIDE

PAGES_TOGETHER: Final = 1_024
"""Pages of one piece of a copy: 8 MiB."""
NEEDED: Final = frozenset({"record", "fence", "tbl", "region", "server", "mark"})
"""Tables that each release has made."""
ROOM: Final = "make room on that disk, or name a file on another one"


class Summary(NamedTuple):
    """What a store has. ``form``: version of the catalog; ``last_pid``: the highest number that was ever reserved.

    ``token``, ``region``: the highest of regions; ``procedures``: those that go on; ``damaged``: rows that no daemon
    can use.
    """

    bytes: int
    form: int
    epoch: int
    last_pid: int
    token: int
    region: int
    tables: int
    regions: int
    servers: int
    procedures: int
    damaged: int


def back_up(store: Path, into: Path, *, replaces: bool = False) -> Summary:
    """Copies a store into a file durably, and judges the copy before it has its name; raises :class:`StoreFailed`.

    ``replaces``: also where the file exists.
    """
    _refuse(store, into, replaces=replaces)
    try:
        lock = claims.shared(store)
    except (OSError, claims.Locked) as error:
        raise StoreFailed(f"{error}: run the command as the daemon's user, and once no restore goes on") from error
    draft: Path | None = None
    try:
        handle, name = tempfile.mkstemp(".part", f".{into.name}-", into.absolute().parent)
        os.close(handle)
        draft = Path(name)
        _copy(store, draft)
        synced(draft)
        found = judged(draft)
        _name(draft, into, replaces=replaces)
        return found
    except OSError as error:
        remedy = ROOM if room_wanted(error) else "name a file in a folder where this user may write"
        raise StoreFailed(f"no backup in {into}: {error}: {remedy}") from error
    finally:
        claims.release(lock)
        if draft is not None:
            for end in (*BESIDE, "-journal"):
                Path(f"{draft}{end}").unlink(missing_ok=True)


def _refuse(store: Path, into: Path, *, replaces: bool) -> None:
    if not store.is_file():
        raise StoreFailed(f"{store} is no file: name the file of a SQLite store; 'regent regions status' shows it")
    if any(_same(into, Path(f"{store}{end}")) for end in BESIDE):
        raise StoreFailed(f"{into} is a file of the store itself: name another file")
    if claims.path_of(claims.beside(into)).exists():
        raise StoreFailed(f"{into} is the store of a daemon, for it has a claim beside it: name another file")
    if into.exists() and not (replaces and into.is_file()):
        raise StoreFailed(f"{into} exists: name a new file, or replace that one with --force")


def _same(one: Path, other: Path) -> bool:
    return one.absolute() == other.absolute() or (one.exists() and other.exists() and one.samefile(other))


def _copy(store: Path, into: Path) -> None:
    """Copies what one read transaction sees."""
    with records_offline.opened(store, "live") as source:
        source.execute("BEGIN")
        source.execute("SELECT count(*) FROM sqlite_master").fetchone()  # from here on it sees one state
        with copy_of(source, into):
            source.execute("ROLLBACK")


@contextmanager
def copy_of(source: sqlite3.Connection, into: Path) -> Iterator[sqlite3.Connection]:
    """Copies all pages into a file that stands alone, and yields a connection to it; the caller has it synced."""
    try:
        with closing(sqlite3.connect(into, isolation_level=None)) as target:
            target.execute("PRAGMA synchronous = OFF")
            source.backup(target, pages=PAGES_TOGETHER)
            target.execute("PRAGMA journal_mode = DELETE")
            yield target
    except sqlite3.Error as error:
        if not room_wanted(error):
            raise
        raise StoreFailed(f"no copy in {into.absolute().parent}: {error}: {ROOM}") from error


def _name(draft: Path, into: Path, *, replaces: bool) -> None:
    """Gives a copy its name; one that another process has made meanwhile stays."""
    if replaces:
        draft.replace(into)
    else:
        os.link(draft, into)
        draft.unlink()
    synced(into.absolute().parent)


def judged(path: Path) -> Summary:
    """Reads a copy, or a store that no daemon has, as a daemon would; raises :class:`StoreFailed` where none could."""
    try:
        with records_offline.opened(path, "ro") as db:
            form, token, region, servers = _looked_at(db, path)
    except StoreFailed as error:
        if "malformed" not in str(error):
            raise
        raise StoreFailed(_torn(path, str(error.__cause__))) from error
    records, content = records_offline.read(path), catalog_offline.read(path)
    going = [one.record for one in records.entries if one.record is not None and not one.record.state.is_final]
    unread = sum(one.record is None for one in records.entries)
    return Summary(
        path.stat().st_size,
        form,
        records.epoch,
        records.last_pid,
        token,
        region,
        len(content.tables),
        len(content.regions),
        servers,
        len(going),
        len(content.damaged) + unread,
    )


def _looked_at(db: sqlite3.Connection, path: Path) -> tuple[int, int, int, int]:
    """Returns form, highest token, highest region and the number of servers."""
    missing = NEEDED - {name for [name] in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if missing:
        tables = ", ".join(sorted(missing))
        raise StoreFailed(
            f"{path} is no store of regions, for it lacks {tables}: name a file of 'regent regions backup'"
        )
    [form] = db.execute("PRAGMA user_version").fetchone()
    if form > VERSION:
        raise StoreFailed(
            f"a later release wrote {path}: its format {form} is newer than this one's ({VERSION}): "
            "take the command of that release"
        )
    [fault] = db.execute("PRAGMA integrity_check(1)").fetchone()
    if fault != "ok":
        raise StoreFailed(_torn(path, fault.splitlines()[-1]))
    [token, region] = db.execute("SELECT max(token), max(id) FROM region").fetchone()
    [servers] = db.execute("SELECT count(*) FROM server").fetchone()
    return form, _number(token), _number(region), servers


def _number(value: object) -> int:
    """Returns a number; 0 for what no daemon can use."""
    return value if isinstance(value, int) else 0


def _torn(path: Path, why: str) -> str:
    return f"{path} is torn or damaged: {why}: take another backup"
