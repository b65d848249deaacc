"""The contract of levels on ZooKeeper: daemons of a store of an earlier release are upgraded one by one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from controller.http.documents import ViewRefused
from controller.regions.domain import RegionsMode
from controller.regions.operator.published import Publication, PublishedView
from controller.regions.operator.requests import Change
from controller.regions.operator.upgrade import UpgradeView
from metadata_store.catalog import znodes
from metadata_store.catalog.rows import MarkRow
from metadata_store.port import ANY_VERSION
from state_machines.procedures.states import State
from state_machines.regions.levels import NEWEST
from state_machines.regions.marks import STORE, MarkKind
from tests.contracts.regions_zookeeper import ROOT, WITHIN_S, Daemon
from tests.contracts.support import Backend, session
from tests.kit.deadlines import eventually

OLD = msgspec.json.encode({"host": "old-host", "pid": 7, "socket": ""})
"""A daemon that stands by, and names no level."""
VALUE = Publication(name="acl", value="all")
ROW = MarkRow(MarkKind.LEVEL, STORE, "3")
PATH = f"{ROOT}/{znodes.path_of(ROW)}"


@asynccontextmanager
async def daemon(backend: Backend) -> AsyncIterator[Daemon]:
    """Runs a daemon."""
    found = Daemon(backend)
    try:
        yield found
    finally:
        await found.stop()


class LevelsContract:
    """Two daemons, and a client that stands for a daemon of an earlier release."""

    @pytest.mark.seed("S1-18", "S1-97", "S3-19")
    async def test_the_level_stays_until_all_daemons_are_upgraded_one_by_one(self, backend: Backend) -> None:
        async with daemon(backend) as first, session(backend) as operator:
            await eventually(lambda: first.is_active, WITHIN_S)
            assert first.term.env.model.marks.level == NEWEST, "a new store"
            await operator.zk.delete(PATH, ANY_VERSION)  # an earlier release names none
        async with daemon(backend) as active, session(backend) as old:
            await eventually(lambda: active.is_active, WITHIN_S)
            assert active.term.env.model.marks.level == 1
            async with daemon(backend) as standby:
                await eventually(lambda: standby.domain.mode is RegionsMode.STANDBY, WITHIN_S)

                async def are_named() -> bool:
                    return len(await active.term.daemons()) == 1

                await eventually(are_named, WITHIN_S)
                assert [one.level for one in await active.term.daemons()] == [NEWEST]
                await old.zk.create(f"{ROOT}/daemons/old", OLD, ephemeral=True)
                with pytest.raises(ViewRefused, match=r"level 2 is not known to daemons of this store: .* on old-host"):
                    await UpgradeView(active.domain).upgrade(Change(), "ops")
                with pytest.raises(ViewRefused, match="publish needs level 2"):
                    await PublishedView(active.domain).publish(VALUE, "ops")
                await old.zk.delete(f"{ROOT}/daemons/old", ANY_VERSION)
                begun = await UpgradeView(active.domain).upgrade(Change(), "ops")
                assert (await active.term.engine.result(begun.pid)).state is State.SUCCESS
                await active.stop()
                await eventually(lambda: standby.is_active, WITHIN_S)
                assert standby.term.env.model.marks.level == NEWEST
                begun = await PublishedView(standby.domain).publish(VALUE, "ops")
                assert (await standby.term.engine.result(begun.pid)).state is State.SUCCESS

    @pytest.mark.seed("S1-18")
    async def test_a_daemon_below_the_level_writes_nothing_and_says_what_helps(self, backend: Backend) -> None:
        async with daemon(backend) as first, session(backend) as operator:
            await eventually(lambda: first.is_active, WITHIN_S)
            await operator.zk.set(PATH, znodes.encode(ROW), ANY_VERSION)
        async with daemon(backend) as older, session(backend) as operator:
            before = await operator.zk.get(f"{ROOT}/marks/clock,domain")
            await eventually(lambda: older.domain.mode is RegionsMode.FAILING, WITHIN_S)
            assert "the store has level 3, and this daemon knows levels up to 2" in older.domain.why
            assert "upgrade this daemon" in older.domain.why
            assert await operator.zk.get(f"{ROOT}/marks/clock,domain") == before
            await operator.zk.set(PATH, znodes.encode(ROW._replace(value="2")), ANY_VERSION)
            await eventually(lambda: older.is_active, WITHIN_S)
