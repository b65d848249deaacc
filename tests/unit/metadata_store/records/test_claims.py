"""Locks and claims of a SQLite store: shared or alone, freed with all that they took; and holders' signs of life."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from metadata_store.records import claims
from metadata_store.records.claims import FileClaim, Holder, Other, beside
from metadata_store.records.port import Fenced, StoreFailed
from metadata_store.records.sqlite import SqliteRecords
from metadata_store.records.sqlite_watch import BEAT_S, SqliteWatch
from tests.kit.deadlines import eventually


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def taken(store: Path, take: Callable[[Path], int]) -> bool:
    """Checks whether a lock can be taken now; gives it back."""
    try:
        claims.release(take(store))
    except claims.Locked:
        return False
    return True


def test_daemons_share_a_store_and_a_repair_has_it_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "WAIT_S_MAX", 0.0)
    store = tmp_path / "x.db"
    first, second = claims.shared(store), claims.shared(store)
    for held in (first, second):
        assert not taken(store, claims.alone)
        claims.release(held)
    repair = claims.alone(store)
    assert not taken(store, claims.alone)
    assert not taken(store, claims.shared)
    claims.release(repair)
    assert taken(store, claims.shared)
    assert taken(store, claims.alone)
    assert taken(tmp_path / "y.db", claims.alone), "each store has a lock of its own"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.db.lock", "y.db.lock"]


def test_a_daemon_begins_once_a_repair_has_ended(tmp_path: Path) -> None:
    store = tmp_path / "x.db"
    repair = claims.alone(store)
    found: list[int] = []
    daemon = threading.Thread(target=lambda: found.append(claims.shared(store)))
    daemon.start()
    daemon.join(claims.POLL_S * 2)
    assert not found
    claims.release(repair)
    daemon.join(claims.WAIT_S_MAX)
    assert not taken(store, claims.alone)
    claims.release(found[0])


def test_refused_attempts_leave_no_file_open_and_the_file_is_its_owners_alone(tmp_path: Path) -> None:
    store = tmp_path / "x.db"
    lock = claims.alone(store)
    before = open_files()
    for _ in range(20):
        with pytest.raises(claims.Locked, match=r"x\.db\.lock is locked by another process"):
            claims.alone(store)
    assert open_files() == before
    assert os.fstat(lock).st_mode & 0o777 == 0o600
    claims.release(lock)
    assert open_files() == before - 1


def test_a_file_system_that_refuses_to_lock_leaves_no_file_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(_lock: int, _kind: int) -> None:
        raise OSError("no locks available")

    monkeypatch.setattr(fcntl, "flock", refuses)
    before = open_files()
    with pytest.raises(OSError, match="no locks available"):
        claims.alone(tmp_path / "x.db")
    assert open_files() == before


def test_a_lock_stands_while_its_file_is_the_one_at_its_place(tmp_path: Path) -> None:
    store = tmp_path / "x.db"
    lock = claims.alone(store)
    assert claims.stands(store, lock)
    claims.path_of(store).unlink()
    assert not claims.stands(store, lock)
    claims.path_of(store).touch()
    assert not claims.stands(store, lock)
    claims.release(lock)


# -- claims


def test_a_claim_names_its_holder_alone_also_behind_one_with_a_longer_name(tmp_path: Path) -> None:
    store = tmp_path / "x.db"
    for socket in ("/run/a-rather-long-path/regent.sock", "/s", ""):
        claim = FileClaim(store, socket)
        assert claim.path == tmp_path / "x.db-claim.lock"
        assert claims.decode(claim.path.read_bytes()) == claims.this(socket)
        assert claim.stands()
        with pytest.raises(claims.Locked):
            FileClaim(store, "/other")
        assert claims.decode(claim.path.read_bytes()) == claims.this(socket), "the refused one wrote nothing"
        claim.release()
    assert taken(store, claims.alone), "the store itself is not locked by it"


def test_a_claim_that_cannot_name_its_holder_is_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def is_full(_lock: int, _data: bytes, _at: int) -> int:
        raise OSError("No space left on device")

    before = open_files()
    with monkeypatch.context() as disk:
        disk.setattr(os, "pwrite", is_full)
        with pytest.raises(OSError, match="No space left"):
            FileClaim(tmp_path / "x.db")
    assert open_files() == before
    FileClaim(tmp_path / "x.db").release()


def test_a_standby_measures_the_silence_of_each_holder_from_its_latest_sign_of_life(tmp_path: Path) -> None:
    store, now_s = tmp_path / "x.db", [100.0]
    path = claims.path_of(beside(store))
    other = Other(store, lambda: now_s[0])
    now_s[0] += 7
    assert other.look() == 0, "there is none"
    first, second = Holder("a", 1, "/a"), Holder("b", 1, "/a")

    def beats(found: Holder, at_ns: int) -> None:
        path.write_bytes(claims.encode(found))
        os.utime(path, ns=(at_ns, at_ns))

    beats(first, 5_000)
    assert (other.look(), other.holder) == (0, first)
    now_s[0] += 7
    assert other.look() == 7
    now_s[0] += 7
    assert other.look() == 14
    beats(first, 4_000)
    assert other.look() == 0, "its clock was set back, and it lives"
    now_s[0] += 3
    assert other.look() == 3
    beats(second, 4_000)
    assert (other.look(), other.holder) == (0, second)
    now_s[0] += 2
    path.unlink()
    assert other.look() == 0
    path.write_bytes(b"")
    assert (other.look(), other.holder) == (0, Holder())


@pytest.mark.parametrize(("seconds", "beats"), [(BEAT_S * 0.9, 0), (BEAT_S * 1.1, 1)])
async def test_looks_show_the_others_that_the_holder_lives_once_in_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, beats: int
) -> None:
    store, now_s = tmp_path / "x.db", [50.0]
    records = await SqliteRecords.open(store)
    claim = FileClaim(store)
    watch = SqliteWatch(store, records.epoch, claim)
    monkeypatch.setattr("metadata_store.records.sqlite_watch.time.monotonic", lambda: now_s[0])
    await watch.look()
    for _ in range(3):
        os.utime(claim.path, ns=(1, 1))
        now_s[0] += seconds
        await watch.look()
        assert (claim.path.stat().st_mtime_ns != 1) == bool(beats)
        now_s[0] += 0 if beats else BEAT_S
        await watch.look()
        assert claim.path.stat().st_mtime_ns != 1
    await watch.close()
    claim.release()
    await records.close()


async def test_a_look_that_fails_shows_no_sign_of_life(tmp_path: Path) -> None:
    store = tmp_path / "x.db"
    records = await SqliteRecords.open(store)
    claim = FileClaim(store)
    watch = SqliteWatch(store, records.epoch - 1, claim)
    os.utime(claim.path, ns=(1, 1))
    for _ in range(2):
        with pytest.raises(Fenced, match="another daemon took the file over"):
            await watch.look()
    assert claim.path.stat().st_mtime_ns == 1
    await watch.close()
    claim.path.unlink()
    again = SqliteWatch(store, records.epoch, claim)
    with pytest.raises(StoreFailed, match="was removed or replaced"):
        await again.look()
    assert not claim.path.exists()
    await again.close()
    claim.release()
    await records.close()


async def test_a_watch_that_is_closed_leaves_no_file_and_no_thread(tmp_path: Path) -> None:
    store = tmp_path / "x.db"
    records = await SqliteRecords.open(store)
    left: list[int] = []
    for _ in range(5):
        claim = FileClaim(store)
        watch = SqliteWatch(store, records.epoch, claim)
        await watch.look()
        await watch.close()
        claim.release()
        left.append(open_files())
    assert len(set(left)) == 1, "SQLite itself keeps one more for its other connection"
    await eventually(lambda: not [one for one in threading.enumerate() if one.name.startswith("regent-claim")])
    await records.close()


def test_a_lock_whose_file_is_removed_again_and_again_leaves_one_file_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, flock, times = tmp_path / "x.db", fcntl.flock, iter(range(5))

    def is_late(lock: int, found: int) -> None:
        if next(times, None) is not None:
            claims.path_of(store).unlink()
        flock(lock, found)

    before = open_files()
    monkeypatch.setattr(fcntl, "flock", is_late)
    lock = claims.alone(store)
    assert claims.stands(store, lock)
    assert open_files() == before + 1
    claims.release(lock)
