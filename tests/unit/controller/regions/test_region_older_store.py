"""What a daemon says where its store is older than its journal, or than what servers list."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from controller.domain import running
from controller.regions.domain import RegionsDomain, RegionsMode
from controller.regions.operator.view import View
from controller.regions.procedures.messages import TABLE_TASK, TableTask
from controller.regions.process import domain_of
from regent_agent import protocol
from state_machines.procedures.record import Caller
from tests.kit.deadlines import eventually
from tests.kit.regions.daemon import settings_of

WITHIN_S = 60.0


def remove(folder: Path) -> None:
    """Removes the store."""
    for one in folder.glob("regions.db*"):
        one.unlink()


@asynccontextmanager
async def started(folder: Path) -> AsyncIterator[tuple[RegionsDomain, View]]:
    """Runs a process's domain with its journal."""
    settings = settings_of(folder)
    domain = domain_of(settings, None)
    async with running(domain):
        await eventually(lambda: domain.mode is RegionsMode.ACTIVE, WITHIN_S)
        yield domain, View(domain, settings)


async def test_an_empty_store_beside_a_journal_of_later_epochs_is_shown_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    for table in ("t", "u"):
        async with started(tmp_path) as (domain, view):
            assert domain.term is not None
            data = TABLE_TASK.encode(TableTask(table, uniform=1))
            await domain.term.engine.submit("create_table", data, Caller("User:ops"))
            assert not [one for one in view.status.status().warnings if "the journal in" in one]
    assert not [one for one in caplog.records if "the journal in" in one.getMessage()]
    await asyncio.to_thread(remove, tmp_path)
    async with started(tmp_path) as (domain, view):
        [shown] = [one for one in view.status.status().warnings if "the journal in" in one]
        assert "the store begins epoch 1, but" in shown
        assert "has rows of epoch 2: the store is new, another one, or was restored from a copy" in shown
    assert len([one for one in caplog.records if shown in one.getMessage()]) == 1


async def test_the_status_shows_that_lists_of_servers_contradict_the_store(tmp_path: Path) -> None:
    async with started(tmp_path) as (domain, _):
        assert domain.term is not None
        await domain.term.service.handle(protocol.Register("s1", 1, "s1:1"))
    async with started(tmp_path) as (domain, view):
        assert domain.term is not None
        owned = [protocol.Owned(1_001, 7)]
        await domain.term.service.handle(protocol.Register("s1", 1, "s1:1", owned=owned))
        [shown] = [one for one in view.status.status().warnings if "contradict" in one]
        assert shown == (
            "lists of servers contradict the store in 1 region (s1,1 has region 1001 with token 7, the store has no "
            "such region): was it restored from a copy? See 'A store that was restored' in the runbook of regions"
        )
