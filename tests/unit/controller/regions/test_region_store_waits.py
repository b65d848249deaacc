"""What a daemon says of the regions' store while it waits for it, also where another process locks the file."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import pytest

from controller.http.documents import NotActive
from controller.regions import domain as domains
from controller.regions.domain import RegionsDomain, RegionsMode
from controller.regions.operator.requests import active_term
from controller.regions.operator.view import View
from controller.regions.process import domain_of
from metadata_store.records import sqlite, sqlite_watch
from tests.kit.deadlines import eventually
from tests.kit.regions.daemon import settings_of


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[tuple[RegionsDomain, View]]:
    settings = settings_of(folder)
    domain = domain_of(settings, None)
    task = asyncio.ensure_future(domain.run())
    try:
        yield domain, View(domain, settings)
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "BUSY_MS", 50)
    monkeypatch.setattr(sqlite_watch, "BUSY_S", 0.05)
    monkeypatch.setattr(domains, "AGAIN_S", 0.05)


async def test_status_and_commands_name_the_lock_of_another_process_and_no_other_daemon(tmp_path: Path) -> None:
    async with running(tmp_path) as (domain, view):
        await eventually(lambda: domain.mode is RegionsMode.ACTIVE)
    seen: set[tuple[str, str]] = set()
    with closing(sqlite3.connect(tmp_path / "regions.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        async with running(tmp_path) as (domain, view):

            def failed_twice() -> bool:
                found = view.status.status()
                seen.add((found.mode, found.why))
                return domain.mode is RegionsMode.FAILING and "locked" in found.why

            await eventually(failed_twice)
            for _ in range(20):
                await asyncio.sleep(0.01)
                failed_twice()
            with pytest.raises(NotActive) as refused:
                active_term(domain)
            assert not [why for _, why in seen if "another daemon has" in why]
            assert not [mode for mode, why in seen if mode == "standby" and "whether another" not in why]
            assert "another process keeps the file locked: find it (fuser, lsof) and end it" in str(refused.value)
            assert refused.value.remedy.startswith("remove the cause: the daemon tries again by itself")
            other.execute("ROLLBACK")
            await eventually(lambda: domain.mode is RegionsMode.ACTIVE)


async def test_a_second_daemon_at_the_file_says_who_has_it(tmp_path: Path) -> None:
    async with running(tmp_path) as (first, _):
        await eventually(lambda: first.mode is RegionsMode.ACTIVE)
        (tmp_path / "two").mkdir()
        settings = settings_of(tmp_path / "two", file=tmp_path / "regions.db")
        second = domain_of(settings, None)
        task = asyncio.ensure_future(second.run())
        await eventually(lambda: "has the store" in second.why)
        assert second.mode is RegionsMode.STANDBY
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
