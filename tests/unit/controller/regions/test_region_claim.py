"""A claim on the SQLite store that is lost without a word: the daemon serves no server any more, and its term ends."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import math
import os
import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import pytest

from controller.regions.claim import LOOKS_MISSED_MAX, ClaimLooks, Opening
from controller.regions.environment import Options
from controller.regions.sqlite_store import SqliteOpened
from controller.regions.term import RegionsTerm
from metadata_store.records import claims
from metadata_store.records.port import StoreFailed
from regent_agent import protocol
from tests.kit.deadlines import eventually

LEASE_MS = 4_000
WITHIN_S = 60.0


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[SqliteOpened]:
    found = await SqliteOpened.open(folder / "regions.db", lease_ms=LEASE_MS)
    try:
        yield found
    finally:
        await found.close()


class Daemon:
    """A term on an open store, whose claim is looked at."""

    def __init__(self, found: SqliteOpened) -> None:
        self.found = found
        self.term = RegionsTerm(
            found.store, found.catalog, found.epoch, Options(lease_ms=LEASE_MS), wall_ms=lambda: 1_000_000,
            leads=found.leads, look=found.look,
        )  # fmt: skip

    async def register(self) -> protocol.Response:
        return await self.term.service.handle(protocol.Register("s1", 1, "s1:1"))

    async def poll(self) -> protocol.Response:
        return await self.term.service.handle(protocol.Poll("s1", 1, self.found.epoch, 0))


@asynccontextmanager
async def daemon(folder: Path) -> AsyncIterator[tuple[Daemon, asyncio.Future[None]]]:
    """Yields a daemon with one server, and what ends with its term."""
    async with opened(folder) as found:
        one = Daemon(found)
        await one.term.load()
        running = asyncio.ensure_future(one.term.run(found.lost()))
        assert isinstance(await one.register(), protocol.Registered)
        try:
            yield one, running
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError, StoreFailed):
                await running


def remove_lock(folder: Path) -> None:
    (folder / "regions.db-claim.lock").unlink()


def replace_lock(folder: Path) -> None:
    (folder / "other").touch()
    (folder / "other").replace(folder / "regions.db-claim.lock")


def replace_store(folder: Path) -> None:
    """Puts a copy in the place of the file, as a restore does."""
    shutil.copy(folder / "regions.db", folder / "copy")
    (folder / "copy").replace(folder / "regions.db")


def remove_log(folder: Path) -> None:
    (folder / "regions.db-wal").unlink()


def go_back(folder: Path) -> None:
    """Stands for an older copy that was written over the file."""
    with closing(sqlite3.connect(folder / "regions.db", isolation_level=None)) as db:
        db.execute("UPDATE fence SET epoch = 0")


FAULTS: dict[Callable[[Path], None], str] = {
    remove_lock: "regions.db-claim.lock was removed or replaced, so another daemon may have",
    replace_lock: "regions.db-claim.lock was removed or replaced, so another daemon may have",
    replace_store: "regions.db was removed or replaced",
    remove_log: "regions.db-wal was removed or replaced",
    go_back: "an older copy was put in its place",
}


@pytest.mark.seed("S1-2", "S3-2")
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_daemon_whose_claim_was_lost_without_a_word_answers_no_server(
    tmp_path: Path, fault: Callable[[Path], None]
) -> None:
    async with daemon(tmp_path) as (one, running):
        held = asyncio.ensure_future(one.poll())
        await asyncio.sleep(0)
        fault(tmp_path)
        late = await one.register()  # it writes nothing, and waits for nothing but a look
        assert isinstance(late, protocol.Refused)
        assert late.code == protocol.NOT_ACTIVE
        await asyncio.wait({running}, timeout=WITHIN_S)
        with pytest.raises(StoreFailed, match=FAULTS[fault]):
            running.result()
        again = await held
        assert isinstance(again, protocol.Refused | protocol.Operations)
        assert not one.found.leads()


async def test_where_the_file_system_does_not_lock_the_first_daemon_ends_by_the_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "flock", lambda *_: None)
    async with daemon(tmp_path) as (first, running), opened(tmp_path):
        refused = await first.poll()
        assert isinstance(refused, protocol.Refused)
        assert refused.code == protocol.NOT_ACTIVE
        await asyncio.wait({running}, timeout=WITHIN_S)
        with pytest.raises(StoreFailed, match=r"another daemon took the file over \(epoch 2, ours 1\)"):
            running.result()


async def test_the_claim_is_looked_at_where_no_server_asks(tmp_path: Path) -> None:
    async with daemon(tmp_path) as (_, running):
        remove_lock(tmp_path)
        await asyncio.wait({running}, timeout=WITHIN_S)
        assert running.done()


async def begun_looks() -> tuple[list[asyncio.Future[None]], list[float], ClaimLooks, asyncio.Future[None]]:
    """Begins looks that the test ends, on its own clock; returns them and the clock, with the first look under way."""
    looks: list[asyncio.Future[None]] = []
    now_s = [0.0]

    async def look() -> None:
        looks.append(asyncio.get_running_loop().create_future())
        await looks[-1]

    looking = ClaimLooks(look, LEASE_MS, lambda: now_s[0])
    keeping = asyncio.ensure_future(looking.keep())
    await eventually(lambda: len(looks) == 1)
    return looks, now_s, looking, keeping


async def test_a_response_waits_for_a_look_that_began_after_its_request() -> None:
    """One that began before proves nothing: the claim may have been lost since."""
    looks, now_s, looking, keeping = await begun_looks()
    asked = looking.ask()
    looks[0].set_result(None)
    await eventually(lambda: len(looks) == 2)
    assert not asked.is_set(), "the first look had begun before it"
    assert looking.ask() is not asked
    looks[1].set_result(None)
    await asked.wait()
    assert looking.hold()
    now_s[0] += LOOKS_MISSED_MAX * LEASE_MS / 1000
    assert not looking.hold(), "a disk that hangs proves nothing"
    await eventually(lambda: len(looks) == 3)
    asked = looking.ask()
    looks[2].set_exception(StoreFailed("it is lost"))
    with pytest.raises(StoreFailed, match="it is lost"):
        await keeping
    await asked.wait()
    assert not looking.hold()
    assert looking.ask().is_set(), "nobody waits for a look that does not come"


async def test_a_look_proves_the_claim_from_its_begin_on_however_long_it_took() -> None:
    looks, now_s, looking, keeping = await begun_looks()
    asked = looking.ask()
    now_s[0] = LOOKS_MISSED_MAX * LEASE_MS / 1000
    looks[0].set_result(None)
    await eventually(lambda: len(looks) == 2)
    assert not looking.hold()
    looks[1].set_result(None)
    await asked.wait()
    assert looking.hold()
    keeping.cancel()
    with suppress(asyncio.CancelledError):
        await keeping


async def test_one_look_serves_all_that_asked_before_it() -> None:
    begun = 0

    async def look() -> None:
        nonlocal begun
        begun += 1
        await asyncio.sleep(0)

    looking = ClaimLooks(look, LEASE_MS)
    keeping = asyncio.ensure_future(looking.keep())
    await eventually(lambda: begun == 1)
    await asyncio.gather(*(looking.ask().wait() for _ in range(1_000)))
    assert begun == 2
    keeping.cancel()
    with suppress(asyncio.CancelledError):
        await keeping


def waiting(folder: Path, said: list[str]) -> asyncio.Task[SqliteOpened]:
    return asyncio.ensure_future(SqliteOpened.open(folder / "regions.db", Opening(waits=said.append)))


async def test_a_standby_names_the_holder_and_its_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("controller.regions.sqlite_store.SILENT_S", 0.3)
    caplog.set_level(logging.INFO, "regent.regions")
    said: list[str] = []
    first = await SqliteOpened.open(tmp_path / "regions.db")
    await first._watch.look()
    standby = waiting(tmp_path, said)
    await eventually(lambda: any("shows no sign of life for" in one for one in said), WITHIN_S)
    assert said[0].endswith(f"(pid {os.getpid()}) has the store")
    assert f"'kill -9 {os.getpid()}' ends it" in next(one for one in said if "no sign" in one)
    first._watch._beat_s = -math.inf
    await first._watch.look()
    await eventually(lambda: said[-1].endswith("has the store"), WITHIN_S)
    lines = [one.getMessage() for one in caplog.records]
    assert [one.levelno for one in caplog.records][:2] == [logging.INFO, logging.WARNING], lines
    assert len([one for one in lines if "no sign of life" in one]) <= 2, "a line for each silence, not each look"
    await first.close()
    second = await asyncio.wait_for(standby, WITHIN_S)
    assert second.epoch == 2
    await second.close()


async def test_a_standby_of_an_older_daemon_says_that_it_does_not_name_itself(tmp_path: Path) -> None:
    said: list[str] = []
    lock = claims.alone(tmp_path / "regions.db-claim")
    standby = waiting(tmp_path, said)
    await eventually(lambda: said, WITHIN_S)
    assert said[-1] == "the daemon on a host that it does not name (pid 0) has the store"
    claims.release(lock)
    await (await standby).close()


async def test_a_lock_whose_file_was_removed_while_it_was_taken_is_taken_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, flock = claims.path_of(tmp_path / "x"), fcntl.flock
    removed: list[Path] = []

    def slow(lock: int, kind: int) -> None:
        if not removed:
            removed.append(path)
            path.unlink()
        flock(lock, kind)

    monkeypatch.setattr(fcntl, "flock", slow)
    lock = claims.alone(tmp_path / "x")
    assert removed
    assert claims.stands(tmp_path / "x", lock)
    with pytest.raises(claims.Locked):
        claims.alone(tmp_path / "x")
    claims.release(lock)
