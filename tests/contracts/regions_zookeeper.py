"""The contract of the regions' domain on ZooKeeper: the claim, the lease behind it, and daemons that stand by."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from types import SimpleNamespace
from typing import cast

import pytest

from brokers.regions.listener import RegionListener
from controller.http.documents import NotActive
from controller.regions.claim import Opening
from controller.regions.dispatcher import DispatchLimits
from controller.regions.domain import RegionsDomain, RegionsMode, shown
from controller.regions.environment import Options
from controller.regions.operator.requests import acting_term
from controller.regions.procedures.messages import TABLE_TASK, TableTask
from controller.regions.term import RegionsTerm
from controller.regions.zookeeper_store import ZooKeeperOpened
from controller.role.lease import LEASE_FRACTION, Lease
from metadata_store import closing
from metadata_store.acl import CREATE, READABLE, digest_acl
from metadata_store.catalog.rows import NewRegions, PutNamespace, PutServer, PutTable
from metadata_store.errors import Code
from metadata_store.port import ANY_VERSION, ZooKeeper
from metadata_store.records.port import StoreFailed
from regent_agent import protocol
from regent_agent.agent import Agent
from regent_agent.options import AgentOptions
from regent_agent.service import OpenedRegion, RegionService
from state_machines.procedures.record import Caller
from state_machines.procedures.states import State
from tests.contracts.catalog import SERVER, TABLE
from tests.contracts.catalog_zookeeper import regions
from tests.contracts.closing import CLOSING, LOCK, acls_below, writable
from tests.contracts.records import record
from tests.contracts.support import Backend, refused, session
from tests.kit.deadlines import eventually

ROOT = "/regent/regions"
WITHIN_S = 60.0


@asynccontextmanager
async def opened(backend: Backend) -> AsyncIterator[ZooKeeperOpened]:
    """Opens the domain's store for the time of a block."""
    found = await ZooKeeperOpened.open(backend.client)
    try:
        yield found
    finally:
        await found.close()


class Opens(RegionService):
    """A service whose regions open and close at once, and that counts opens."""

    def __init__(self, opens: Counter[int]) -> None:
        self._opens = opens

    async def open(self, region: OpenedRegion) -> int:
        self._opens[region.region] += 1
        return region.sequence + 1

    async def close(self, region: OpenedRegion) -> None:
        """Closes it."""


class Daemon:
    """A daemon with a listener of its own. ``zks``: its sessions, the latest last. ``may_open``: the store."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.zks: list[ZooKeeper] = []
        self.may_open = asyncio.Event()
        self.may_open.set()
        self.domain = RegionsDomain(
            self._open,
            RegionListener("127.0.0.1", 0),
            Options(lease_ms=6_000),
            wall_ms=lambda: int(time.time() * 1000),
            limits=DispatchLimits(delay_ms=5),
            placement="retain",
        )
        self._task = asyncio.ensure_future(self.domain.run())

    async def _open(self, opening: Opening) -> ZooKeeperOpened:
        await self.may_open.wait()
        return await ZooKeeperOpened.open(self._connect, opening)

    def _connect(self) -> ZooKeeper:
        self.zks.append(self._backend.client())
        return self.zks[-1]

    @property
    def is_active(self) -> bool:
        return self.domain.mode is RegionsMode.ACTIVE

    @property
    def term(self) -> RegionsTerm:
        assert self.domain.term is not None
        return self.domain.term

    async def stop(self) -> None:
        """Ends the process cleanly."""
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def create(self, table: str, regions: int) -> None:
        """Creates a table as an operator does."""
        data = TABLE_TASK.encode(TableTask(table, uniform=regions))
        pid = await self.term.engine.submit("create_table", data, Caller("User:ops", nonce=table))
        record = await self.term.engine.result(pid)
        assert (record.state, record.result) == (State.SUCCESS, b"0")


class ZooKeeperRegionsContract:
    """Runs on a ``backend``."""

    @pytest.mark.seed("S1-2", "S3-2")
    async def test_one_daemon_has_the_domain_and_the_next_one_fences_it(self, backend: Backend) -> None:
        async with opened(backend) as first:
            assert (first.epoch, first.leads()) == (1, True)
            waiting = asyncio.ensure_future(ZooKeeperOpened.open(backend.client))
            await first.store.write((), (), [PutNamespace("a")])
            assert not waiting.done()
            await first.close()
        second = await waiting
        assert (second.epoch, second.leads(), first.leads()) == (2, True, False)
        assert (await second.catalog.read()).namespaces == ["a"]
        with pytest.raises(StoreFailed):
            await first.store.write((), (), [PutNamespace("b")])
        await second.close()

    async def test_a_daemon_that_waits_names_the_command_that_reaches_the_other_one(self, backend: Backend) -> None:
        said: list[str] = []
        first = await ZooKeeperOpened.open(backend.client, Opening(socket="/run/first.sock"))
        waiting = asyncio.ensure_future(ZooKeeperOpened.open(backend.client, Opening(waits=said.append)))
        await eventually(lambda: said)
        assert said[0].endswith("; 'regent --server /run/first.sock' on this machine sends requests to it")
        await first.close()
        await (await waiting).close()

    async def test_a_domain_of_an_open_time_is_closed_before_its_records_are_read(self, backend: Backend) -> None:
        """A stranger's crash record would release a server's regions without a fence."""
        async with opened(backend) as open_:
            await open_.store.write([record(1)], (), [PutNamespace("a"), NewRegions(regions(3)), PutServer(SERVER)])
        closed = await ZooKeeperOpened.open(partial(backend.client, **CLOSING))
        async with session(backend) as stranger:
            for path in (f"{ROOT}/procedures/0000000009", f"{ROOT}/servers/s9,1", f"{ROOT}/regions/0000009"):
                await refused(stranger.zk.create(path, b""), Code.NO_AUTH, path)
            await refused(stranger.zk.set(f"{ROOT}/epoch", b"9", ANY_VERSION), Code.NO_AUTH, f"{ROOT}/epoch")

            async def is_closed() -> bool:
                return not writable(await acls_below(stranger.zk, ROOT))

            await eventually(is_closed, WITHIN_S)
            await closed.store.load()
            await closed.store.write([record(2)], (), [NewRegions(regions(1, first=7_000)), PutTable(TABLE)])
            assert await is_closed(), "what comes later is created so"
        await closed.close()

    async def test_what_another_identity_may_write_in_the_domain_is_shown_until_its_command_is_given(
        self, backend: Backend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(closing, "AGAIN_S", 0.05)
        async with session(backend, **CLOSING) as s:
            for path in ("/regent", ROOT):
                await s.zk.create(path, b"")
            await s.zk.set_acls(ROOT, [*LOCK, digest_acl("ops", "theirs", CREATE)], ANY_VERSION)
        shared = await ZooKeeperOpened.open(partial(backend.client, **CLOSING))

        async def is_shown() -> bool:
            return f"{ROOT} by digest:ops (c), until 'setAcl {ROOT} auth::cdrwa,world:anyone:r'" in shared.complaint()

        await eventually(is_shown, WITHIN_S)
        async with session(backend, **CLOSING) as s:
            await s.zk.set_acls(ROOT, READABLE, ANY_VERSION)  # as the command does
        await eventually(lambda: not shared.complaint(), WITHIN_S)
        await shared.close()

    async def test_a_session_that_ends_ends_the_term(self, backend: Backend) -> None:
        zks: list[ZooKeeper] = []

        def connect() -> ZooKeeper:
            zks.append(backend.client())
            return zks[-1]

        found = await ZooKeeperOpened.open(connect)
        lost = asyncio.ensure_future(found.lost())
        await backend.expire(zks[0])
        with pytest.raises(StoreFailed, match="is over: another daemon may have it"):
            await asyncio.wait_for(lost, WITHIN_S)
        assert not found.leads()
        with pytest.raises(StoreFailed):
            await found.store.write((), (), [PutNamespace("b")])
        await found.close()

    async def test_a_claim_whose_reply_is_lost_is_made_again_with_the_next_epoch(self, backend: Backend) -> None:
        async with opened(backend):
            pass
        zk = backend.client()
        lost: list[bool] = []

        class Loses:
            async def before(self, ops: object) -> None:
                if not lost:
                    lost.append(True)
                    backend.lose_reply(zk)

            async def after(self, ops: object) -> None:
                """Does nothing."""

        zk.hooks = Loses()
        found = await ZooKeeperOpened.open(lambda: zk)
        assert (found.epoch, found.leads()) == (3, True)
        await found.store.write((), (), [PutNamespace("a")])
        await found.close()

    async def test_a_claim_that_an_overloaded_server_refuses_is_made_again(self, backend: Backend) -> None:
        """Such a reply ends no connection, so nothing is reported after it.

        Before a real server a proxy changes the reply of a claim that was carried out: its epoch is used up.
        """
        async with opened(backend):
            pass
        zk = backend.client()
        refused: list[bool] = []

        class Refuses:
            async def before(self, ops: object) -> None:
                if not refused:
                    refused.append(True)
                    backend.reply_with(zk, Code.THROTTLED_OP)

            async def after(self, ops: object) -> None:
                """Does nothing."""

        zk.hooks = Refuses()
        found = await asyncio.wait_for(ZooKeeperOpened.open(lambda: zk), WITHIN_S)
        assert refused == [True]
        assert found.epoch in (2, 3)
        await found.close()

    @pytest.mark.parametrize(
        ("path", "data", "why"),
        [
            (f"{ROOT}/daemon", b"", f"{ROOT}/daemon belongs to no session, so it would never end: delete it"),
            (f"{ROOT}/epoch", b"many", f"{ROOT}/epoch holds 'many' and no number: write the highest epoch"),
            (f"{ROOT}/epoch", b"9" * 5_000, f"{ROOT}/epoch holds '9{{60}}' and no number: write the highest epoch"),
        ],
    )
    async def test_what_another_client_wrote_is_named(self, backend: Backend, path: str, data: bytes, why: str) -> None:
        async with opened(backend):
            pass
        async with session(backend) as s:
            if await s.zk.exists(path) is None:
                await s.zk.create(path, data)
            else:
                await s.zk.set(path, data, ANY_VERSION)
            with pytest.raises(StoreFailed, match=why):
                await ZooKeeperOpened.open(backend.client)

    async def test_a_daemon_that_was_frozen_answers_no_server_after_its_session(self, backend: Backend) -> None:
        """Its poll, held over the freeze, would renew a lease that the next daemon does not know of."""
        now_s = [100.0]
        zk = backend.client()
        frozen = await ZooKeeperOpened.open(
            lambda: zk, new_lease=lambda timeout_s, fraction: Lease(timeout_s, lambda: now_s[0], fraction)
        )
        lost = asyncio.ensure_future(frozen.lost())
        service = (await term_of(frozen)).service
        registered = await service.handle(protocol.Register("s1", 1, "s1:1"))
        requests = ["independent", "loads"]
        assert registered == protocol.Registered(1, 2_000, 500, suspends=True, fence="lease", requests=requests)
        assert await service.handle(protocol.Poll("s1", 1, 1, 0)) == protocol.Operations(1, 0)
        held = asyncio.ensure_future(service.handle(protocol.Poll("s1", 1, 1, 0)))
        await asyncio.sleep(0)
        freeze(frozen, zk)
        now_s[0] += zk.session_timeout_ms / 1000
        await backend.expire(zk)
        async with opened(backend) as second:
            assert second.epoch == 2
            begun_s = asyncio.get_running_loop().time()
            term = await term_of(second)
            loaded_s = term.env.model.servers["s1", 1].deadline_s - 2.0
            assert begun_s < loaded_s <= term.env.clock(), "a full lease from the load"
            for response in (
                await held,
                await service.handle(protocol.Poll("s1", 1, 1, 0)),
                await service.handle(protocol.Register("s1", 1, "s1:1")),
                await service.handle(protocol.Report("s1", 1, 1, [])),
                await service.handle(protocol.Leave("s1", 1, 1)),
            ):
                assert isinstance(response, protocol.Refused)
                assert response.code in (protocol.NOT_ACTIVE, protocol.REGISTER)
            assert len((await second.catalog.read()).servers) == 1
        with pytest.raises(StoreFailed):
            await asyncio.wait_for(lost, WITHIN_S)
        await frozen.close()

    @pytest.mark.parametrize("deleted", [True, False])
    async def test_a_claim_that_another_client_took_away_ends_the_term_and_answers_no_server(
        self, backend: Backend, deleted: bool
    ) -> None:
        """The session lives on, so its lease proves nothing: only a look at the claim does."""
        zk = backend.client()
        first = await ZooKeeperOpened.open(lambda: zk)
        term = await term_of(first)
        lost = asyncio.ensure_future(first.lost())
        assert isinstance(await term.service.handle(protocol.Register("s1", 1, "s1:1")), protocol.Registered)
        held = asyncio.ensure_future(term.service.handle(protocol.Poll("s1", 1, 1, 0)))
        await asyncio.sleep(0)
        async with session(backend) as s:
            if deleted:
                await s.zk.delete(f"{ROOT}/daemon", ANY_VERSION)
            else:
                await s.zk.set(f"{ROOT}/epoch", b"1", ANY_VERSION)
        late = await term.service.handle(protocol.Poll("s1", 1, 1, 0))
        assert isinstance(late, protocol.Refused)
        assert late.code == protocol.NOT_ACTIVE
        why = "was deleted or made anew" if deleted else "another daemon has the domain"
        with pytest.raises(StoreFailed, match=why):
            await asyncio.wait_for(lost, WITHIN_S)
        assert not first.leads()
        await held
        await first.close()

    async def test_a_look_at_the_claim_outlives_a_lost_connection(self, backend: Backend) -> None:
        zk = backend.client()
        first = await ZooKeeperOpened.open(lambda: zk)
        term = await term_of(first)
        lost = asyncio.ensure_future(first.lost())
        backend.suspend(zk)
        registering = asyncio.ensure_future(term.service.handle(protocol.Register("s1", 1, "s1:1")))
        await asyncio.sleep(0.05)
        assert not registering.done(), "only an answer of ZooKeeper proves anything"
        backend.resume(zk)
        assert isinstance(await asyncio.wait_for(registering, WITHIN_S), protocol.Registered)
        lost.cancel()
        await asyncio.wait({lost})
        await first.close()

    async def test_a_term_outlives_its_lease_where_its_session_does(self, backend: Backend) -> None:
        now_s = [100.0]
        zk = backend.client()
        first = await ZooKeeperOpened.open(
            lambda: zk, new_lease=lambda timeout_s, fraction: Lease(timeout_s, lambda: now_s[0], fraction)
        )
        lost = asyncio.ensure_future(first.lost())
        term = await term_of(first)
        domain = cast("RegionsDomain", SimpleNamespace(term=term, mode=RegionsMode.ACTIVE, why="epoch 1"))
        await term.service.handle(protocol.Register("s1", 1, "s1:1"))
        assert shown(domain) == (RegionsMode.ACTIVE, "epoch 1")
        backend.suspend(zk)
        now_s[0] += zk.session_timeout_ms / 1000 * LEASE_FRACTION + 1.0
        assert not first.leads()
        for request in (protocol.Poll("s1", 1, 1, 0), protocol.Register("s2", 1, "s2:1"), protocol.Leave("s1", 1, 1)):
            at_once = await asyncio.wait_for(term.service.handle(request), 3.0)
            assert isinstance(at_once, protocol.Refused)
            assert (at_once.code, "and the lease ran out 1 s ago" in at_once.text) == (protocol.NOT_ACTIVE, True)
        mode, why = shown(domain)
        assert mode is RegionsMode.SUSPENDED
        assert why.endswith("epoch 1 goes on once ZooKeeper answers, unless session or claim are lost by then")
        with pytest.raises(NotActive, match=r"is suspended: ZooKeeper has answered no heartbeat for \d+ s"):
            acting_term(domain)
        stored = asyncio.ensure_future(first.store.write((), (), (PutNamespace("late"),)))
        await asyncio.sleep(0.05)
        assert not stored.done()
        backend.resume(zk)
        await asyncio.wait_for(stored, WITHIN_S)
        await eventually(first.leads, WITHIN_S)
        assert (shown(domain), lost.done()) == ((RegionsMode.ACTIVE, "epoch 1"), False)
        assert await term.service.handle(protocol.Poll("s1", 1, 1, 0)) == protocol.Operations(1, 0)
        assert acting_term(domain) is term
        lost.cancel()
        await asyncio.wait({lost})
        await first.close()

    @pytest.mark.parametrize("deleted", [True, False])
    async def test_a_claim_lost_behind_the_lease_ends_the_term_before_it_does_anything(
        self, backend: Backend, deleted: bool
    ) -> None:
        now_s = [100.0]
        zk = backend.client()
        first = await ZooKeeperOpened.open(
            lambda: zk, new_lease=lambda timeout_s, fraction: Lease(timeout_s, lambda: now_s[0], fraction)
        )
        lost = asyncio.ensure_future(first.lost())
        term = await term_of(first)
        await term.service.handle(protocol.Register("s1", 1, "s1:1"))
        backend.suspend(zk)
        now_s[0] += zk.session_timeout_ms / 1000
        held = asyncio.ensure_future(first.store.write((), (), (PutNamespace("late"),)))
        async with session(backend) as s:
            if deleted:
                await s.zk.delete(f"{ROOT}/daemon", ANY_VERSION)
            await s.zk.set(f"{ROOT}/epoch", b"2", ANY_VERSION)
            backend.resume(zk)
            with pytest.raises(StoreFailed):
                await asyncio.wait_for(held, WITHIN_S)
            with pytest.raises(StoreFailed):
                await asyncio.wait_for(lost, WITHIN_S)
            late = await term.service.handle(protocol.Poll("s1", 1, 1, 0))
            assert (isinstance(late, protocol.Refused), first.leads()) == (True, False)
            assert await s.zk.exists(f"{ROOT}/namespaces/late") is None
        await first.close()

    @pytest.mark.seed("S1-4", "S1-42", "S2-3")
    async def test_the_standby_takes_over_and_regions_stay_where_they_are(self, backend: Backend) -> None:
        opens: Counter[int] = Counter()
        daemons = [Daemon(backend), Daemon(backend)]
        await eventually(lambda: sum(one.is_active for one in daemons) == 1, WITHIN_S)
        addresses = tuple(("127.0.0.1", one.domain.listener.port) for one in daemons)
        agents = [Agent(Opens(opens), AgentOptions(addresses, f"s{n}", f"s{n}:1", incarnation=1)) for n in range(1, 4)]
        await asyncio.gather(*(one.start() for one in agents))
        active = next(one for one in daemons if one.is_active)
        await active.create("t", 9)
        owners = [set(one.owned) for one in agents]
        assert sorted(map(len, owners)) == [3, 3, 3]
        epoch = active.term.manager.epoch

        active.may_open.clear()
        await backend.expire(active.zks[-1])
        standby = next(one for one in daemons if one is not active)
        await eventually(lambda: standby.is_active, WITHIN_S)
        active.may_open.set()
        await eventually(lambda: here(standby) == 3, WITHIN_S)
        assert standby.term.manager.epoch > epoch
        await standby.create("u", 3)
        assert [set(one.owned) & set().union(*owners) for one in agents] == owners

        await eventually(lambda: active.domain.mode is RegionsMode.STANDBY, WITHIN_S)
        await standby.stop()
        await eventually(lambda: active.is_active, WITHIN_S)
        await eventually(lambda: here(active) == 3, WITHIN_S)
        await active.create("v", 3)
        assert set(opens.values()) == {1}, "no region was opened twice"
        assert len(opens) == 15
        await asyncio.gather(*(one.stop() for one in agents))
        await active.stop()


async def term_of(found: ZooKeeperOpened) -> RegionsTerm:
    """Loads a term, which nothing runs."""
    options = Options(lease_ms=2_000)
    term = RegionsTerm(
        found.store, found.catalog, found.epoch, options, wall_ms=lambda: 1_000_000, leads=found.leads, look=found.look,
        suspended=found.suspended,
    )  # fmt: skip
    await term.load()
    return term


def freeze(found: ZooKeeperOpened, zk: ZooKeeper) -> None:
    """Has a daemon notice nothing any more, as a process does that is stopped, and then goes on."""
    found._heartbeats.cancel()
    zk.on_watch = zk.on_state = zk.on_state_thread = None


def here(daemon: Daemon) -> int:
    """Returns how many servers have registered."""
    return sum(one.here for one in daemon.term.env.model.servers.values()) if daemon.domain.term else 0
