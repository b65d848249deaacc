"""A backup takes the place of a store at once: a kill leaves the store before it or the new one, never none."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Final
from unittest import mock

import pytest

from metadata_store.catalog import sqlite_restore
from metadata_store.catalog.rows import MarkRow, PutMark
from metadata_store.catalog.sqlite import SqliteCatalog
from metadata_store.catalog.sqlite_backup import back_up, judged
from metadata_store.catalog.sqlite_restore import Held, difference, held, restore
from metadata_store.records import claims
from metadata_store.records.port import StoreFailed
from metadata_store.records.sqlite import SqliteRecords
from tests.unit.metadata_store.catalog.test_sqlite_backup import executed, filled, names, within
from tests.unit.metadata_store.catalog.test_sqlite_versions import FIRST

ROWS: Final = (PutMark(MarkRow("restored", "domain", "70000")),)
STEPS_MAX: Final = 200


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with the table "new", whose backup has the table "old"."""
    folder = tmp_path / "state"
    folder.mkdir()
    back_up(filled(tmp_path / "former.db", "old", 50), tmp_path / "backup.db")
    return filled(folder / "regions.db", "new", 60)


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    return tmp_path / "backup.db"


def in_log(store: Path, statement: str) -> None:
    """Changes a store as a daemon that is killed then: the change is in the log beside the file alone."""
    pid = os.fork()
    if not pid:
        db = sqlite3.connect(store, isolation_level=None)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(statement)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    assert store.with_name(f"{store.name}-wal").stat().st_size > 0


def tables(path: Path) -> list[str]:
    return sorted(held(path).tables)


def test_the_backup_is_in_place_and_the_store_before_it_is_kept_whole(store: Path, backup: Path) -> None:
    in_log(store, "INSERT INTO tbl VALUES ('last', 2, 0, '{}', 0)")
    done = restore(backup, store, 40, ROWS, "20260101T000000Z")
    assert done.aside == store.with_name("regions.db.before-20260101T000000Z")
    assert (tables(store), judged(store).epoch) == (["old"], 40)
    assert tables(done.aside) == ["last", "new"], "also what only the log had"
    assert names(store.parent) == {"regions.db", done.aside.name}
    assert judged(backup).epoch == 1, "the backup is as it was"
    again = restore(done.aside, store, 0, (), "20260101T000000Z")
    assert (tables(store), again.aside) == (["last", "new"], Path(f"{done.aside}-1"))


async def test_a_daemon_opens_what_was_restored_above_its_epoch(store: Path, backup: Path) -> None:
    restore(backup, store, 40, ROWS, "x")
    rows = SqliteCatalog()
    records = await SqliteRecords.open(store, rows)
    content = await rows.of(records).read()
    await records.close()
    assert (records.epoch, content.marks, content.damaged) == (41, [ROWS[0].row], ())


async def test_a_backup_of_the_first_release_is_restored_and_gets_the_present_form(tmp_path: Path) -> None:
    executed(tmp_path / "old.db", *FIRST)
    restore(tmp_path / "old.db", tmp_path / "regions.db", 9, ROWS, "x")
    assert judged(tmp_path / "regions.db").form == 0
    records = await SqliteRecords.open(tmp_path / "regions.db", SqliteCatalog())
    await records.close()
    assert (judged(tmp_path / "regions.db").form, records.epoch) == (2, 10)


def killed(step: int, work: Callable[[], object]) -> bool:
    """Runs work in a process that is killed before its step with this number; returns whether it was."""
    pid = os.fork()
    if not pid:
        left = step

        def count(*_: object) -> None:
            nonlocal left
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)

        def hook(event: str, _: object) -> None:
            if event in {"open", "os.rename", "os.remove", "sqlite3.connect", "shutil.copyfile"}:
                count()

        sys.addaudithook(hook)
        with mock.patch.object(os, "fsync", count), suppress(BaseException):
            work()
            os._exit(0)
        os._exit(1)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


@pytest.mark.parametrize("in_the_log", [False, True])
def test_a_kill_at_any_step_leaves_the_store_before_or_the_new_one(in_the_log: bool, store: Path, backup: Path) -> None:
    seen = set()
    before = store.read_bytes()
    for step in range(1, STEPS_MAX):
        if in_the_log:
            in_log(store, "UPDATE tbl SET version = 5")
        was_killed = killed(step, lambda: restore(backup, store, 40, ROWS, "x"))
        found = tables(store)
        assert found in (["new"], ["old"]), f"step {step}"
        assert judged(store).damaged == 0
        seen.add((was_killed, found[0]))
        if found == ["old"]:
            asides = [one for one in store.parent.glob("*.before-*") if one.suffix != ".part"]
            assert any(tables(one) == ["new"] for one in asides), f"step {step}"
        if not was_killed:
            break
        restore(backup, store, 40, ROWS, "y")
        assert tables(store) == ["old"], f"a second restore goes through after a kill at step {step}"
        for one in [one for one in store.parent.iterdir() if one.suffix != ".lock"]:
            one.unlink()
        store.write_bytes(before)
    assert seen == {(True, "new"), (True, "old"), (False, "old")}
    assert step > 15


def test_a_store_that_cannot_be_read_is_kept_with_its_log_which_does_not_touch_the_new_one(
    store: Path, backup: Path
) -> None:
    in_log(store, "UPDATE region SET token = 77")
    log = store.with_name("regions.db-wal").read_bytes()
    store.write_bytes(b"no database " * 2_000)
    done = restore(backup, store, 0, (), "x")
    assert "not a database" in done.trouble
    assert done.aside is not None
    assert done.aside.read_bytes() == b"no database " * 2_000
    assert Path(f"{done.aside}-wal").read_bytes() == log
    assert (tables(store), judged(store).token) == (["old"], 50)


def test_a_store_that_another_process_has_open_is_not_replaced(store: Path, backup: Path) -> None:
    lock = claims.shared(store)
    with pytest.raises(StoreFailed, match="wait until the backup or the repair"):
        restore(backup, store, 0, (), "x")
    claims.release(lock)
    with closing(sqlite3.connect(store)) as shell:
        shell.execute("PRAGMA journal_mode = WAL")
        shell.execute("BEGIN IMMEDIATE")
        locked = pytest.raises(StoreFailed, match=re.escape("was not replaced: database is locked"))
        with mock.patch.object(sqlite_restore, "BUSY_MS", 10), locked:
            restore(backup, store, 0, (), "x")
    assert (tables(store), names(store.parent)) == (["new"], {"regions.db"})


@pytest.mark.parametrize("bytes_max", [20_000, 65_536])
def test_a_full_disk_changes_nothing(bytes_max: int, store: Path, backup: Path) -> None:
    told = within(bytes_max, lambda: restore(backup, store, 0, (), "x"))
    assert "make room on that disk" in told
    assert (tables(store), names(store.parent)) == (["new"], {"regions.db"})


def test_a_disk_that_is_full_at_the_copy_of_the_present_store_changes_nothing(store: Path, backup: Path) -> None:
    full = OSError(28, "No space left on device")
    with mock.patch("shutil.copyfile", side_effect=full), pytest.raises(StoreFailed, match="make room"):
        restore(backup, store, 0, (), "x")
    assert (tables(store), names(store.parent)) == (["new"], {"regions.db"})


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_root_makes_belongs_to_the_owner_of_the_folder(tmp_path: Path, backup: Path, store: Path) -> None:
    folder = tmp_path / "of-another"
    folder.mkdir()
    os.chown(folder, 65_534, 65_534)
    restore(backup, folder / "regions.db", 0, (), "x")
    restore(backup, folder / "regions.db", 0, (), "x")
    claims.FileClaim(folder / "regions.db").release()
    made = {one.name: one.stat().st_uid for one in folder.iterdir()}
    assert len(made) == 4
    assert set(made.values()) == {65_534}, made


def test_a_difference_names_what_the_other_lacks() -> None:
    one = Held(frozenset({"a", "b"}), {1: 10, 2: 20, 3: 30}, {7: "move", 8: "split"})
    other = Held(frozenset({"b"}), {2: 21, 3: 30}, {8: "split"})
    assert difference(one, other) == (["a"], [1], [(7, "move")], [2])
