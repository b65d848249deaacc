"""Backs the SQLite store of regions up, and puts a backup in its place; makes sentences of failures."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cli.exit_codes import Exit, Failure
from cli.store_claim import claimed
from controller.process.wording import counted
from controller.regions.restored import NUMBERS_ROOM, noted
from metadata_store.catalog import sqlite_backup, sqlite_restore
from metadata_store.catalog.sqlite_restore import Difference
from metadata_store.records.port import StoreFailed

if TYPE_CHECKING:
    from cli.client import Json
    from configs.settings import Settings
    from metadata_store.catalog.sqlite_backup import Summary

NAMED_MAX: Final = 20
"""Tables, regions and procedures of a kind that an answer names; all are counted."""
STOP: Final = "stop all daemons of this store first"
ZOOKEEPER: Final = (
    'regions.store is "zookeeper": the store is below /regent/regions there',
    (
        "back ZooKeeper itself up, with its snapshots and transaction logs (see 'Back the store up' in "
        "docs/how-to/assign-regions.md); or name a SQLite file with --store"
    ),
)
UNKNOWN: Final = (
    "no present store names the epoch and the number that servers may have seen: where no server lives that has seen "
    "them, give --epoch and --number, see 'A store that was restored' in the runbook of regions"
)


class Plan(NamedTuple):
    """What a restore would do. ``present``: None where there is no store, or none that can be read."""

    backup: Summary
    present: Summary | None
    epoch: int
    number: int
    lost: Difference
    returns: Difference
    trouble: str


def store_of(settings: Callable[[], Settings], named: Path | None) -> Path:
    """Returns the store that a command names, else that of the settings."""
    if named is not None:
        return named
    found = settings()
    if found.regions.store != "sqlite":
        raise Failure(Exit.USAGE, *ZOOKEEPER)
    return found.regions_file


@contextmanager
def _failures() -> Iterator[None]:
    """Makes a failure of an error of a store: the end of its text says what would succeed."""
    try:
        yield
    except StoreFailed as error:
        raise Failure(Exit.FAILED, str(error)) from error


def back_up(store: Path, into: Path, *, replaces: bool) -> Json:
    """Copies a store into a file; returns what the copy has."""
    with _failures():
        found = sqlite_backup.back_up(store, into, replaces=replaces)
    return {"file": str(into.absolute()), "store": str(store)} | _item(found)


@contextmanager
def planned(backup: Path, store: Path, epoch: int, number: int) -> Iterator[Plan]:
    """Has the claim of a store, and judges what a restore would do to it; raises :class:`Failure`."""
    if not store.absolute().parent.is_dir():
        remedy = "make it, with the daemon's user as its owner, or name another store"
        raise Failure(Exit.FAILED, f"{store.parent} is no folder", remedy)
    if backup.exists() and store.exists() and backup.samefile(store):
        raise Failure(Exit.USAGE, f"{backup} is the store itself", "name a file of 'regent regions backup'")
    if not backup.is_file():
        raise Failure(Exit.FAILED, f"{backup} is no file", "name a file of 'regent regions backup'")
    with _failures():
        found, after = sqlite_backup.judged(backup), sqlite_restore.held(backup)
    with claimed(store, STOP):
        present, trouble = None, ""
        before = sqlite_restore.Held(frozenset(), {}, {})
        if store.exists():
            try:
                present, before = sqlite_backup.judged(store), sqlite_restore.held(store)
            except StoreFailed as error:
                trouble = str(error)
        yield Plan(
            found,
            present,
            max(epoch, found.epoch, present.epoch if present else 0),
            max(number, found.last_pid, present.last_pid if present else 0) + NUMBERS_ROOM,
            sqlite_restore.difference(before, after),
            sqlite_restore.difference(after, before),
            trouble,
        )


def carry_out(plan: Plan, backup: Path, store: Path) -> Json:
    """Replaces the store by the backup; returns the plan with the name of the file that keeps the former store."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    with _failures():
        done = sqlite_restore.restore(backup, store, plan.epoch, [noted(plan.number)], stamp)
    return item_of(plan, backup, store) | ({} if done.aside is None else {"aside": str(done.aside)})


def item_of(plan: Plan, backup: Path, store: Path) -> Json:
    """Returns a plan as the command shows it."""
    item: dict[str, Any] = {"file": str(backup), "store": str(store)} | _item(plan.backup)
    item |= {"epochAbove": plan.epoch, "numbersAbove": plan.number}
    if plan.present is not None:
        item |= {"presentEpoch": plan.present.epoch, "presentHighestNumber": plan.present.last_pid}
        item |= {"lost": _named(plan.lost), "returns": _named(plan.returns), "moved": len(plan.lost.moved)}
    if plan.trouble:
        item["presentTrouble"] = plan.trouble
    return item


def sentences(plan: Plan) -> Iterator[str]:
    """Yields sentences about what only the present store has, and what only the backup has."""
    if plan.trouble:
        yield f"what is lost is not known, for the present store cannot be read: {plan.trouble}"
    if plan.present is None:
        yield UNKNOWN
        return
    yield f"lost, for only the present store has it: {_told(plan.lost)}"
    if plan.returns.tables or plan.returns.regions or plan.returns.procedures:
        yield f"comes back, for only the backup has it: {_told(plan.returns)}; servers may have discarded its data"
    if plan.lost.moved:
        moved = f"{counted(len(plan.lost.moved), 'region')} {'was' if len(plan.lost.moved) == 1 else 'were'}"
        yield f"{moved} opened anew since the backup: servers are asked who has them"


def _item(found: Summary) -> Json:
    names = {"form": "format", "last_pid": "highestNumber", "token": "highestToken", "region": "highestRegion"}
    return {names.get(name, name): value for name, value in found._asdict().items()}


def _named(found: Difference) -> Json:
    return {
        "tables": len(found.tables),
        "regions": len(found.regions),
        "procedures": len(found.procedures),
        "names": list(found.tables[:NAMED_MAX]),
        "ids": list(found.regions[:NAMED_MAX]),
        "pids": [f"{pid} {kind}" for pid, kind in found.procedures[:NAMED_MAX]],
    }


def _told(found: Difference) -> str:
    parts = [
        _count("table", len(found.tables), found.tables),
        _count("region", len(found.regions), [str(one) for one in found.regions]),
        _count("procedure", len(found.procedures), [f"{pid} {kind}" for pid, kind in found.procedures]),
    ]
    return ", ".join(part for part in parts if part) or "no table, region or procedure"


def _count(noun: str, count: int, names: Any) -> str:
    """Returns a number of things with the first of their names, nothing where there are none."""
    if not count:
        return ""
    more = ", ..." if count > NAMED_MAX else ""
    return f"{count:,} {noun}{'' if count == 1 else 's'} ({', '.join(names[:NAMED_MAX])}{more})"
