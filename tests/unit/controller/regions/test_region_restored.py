"""A store that was restored from a copy: servers have seen more than it has, and the daemon goes above that."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from controller.regions import domain as domains
from controller.regions import restored
from controller.regions.claim import Opening
from controller.regions.domain import RegionsDomain, RegionsMode
from controller.regions.environment import Options
from controller.regions.procedures.messages import TABLE_TASK, TableTask
from controller.regions.process import domain_of
from controller.regions.restored import Seen, Serving
from controller.regions.sqlite_store import SqliteOpened
from controller.regions.zookeeper_store import ZooKeeperOpened
from metadata_store.records.port import NOTHING_SEEN, Above, StoreFailed
from regent_agent import protocol
from regent_agent.agent import Agent
from regent_agent.connection import Daemons
from regent_agent.options import AgentOptions
from regent_agent.protocol import Open
from state_machines.procedures.record import Caller
from state_machines.regions.states import RegionState
from tests.contracts.memory import MemoryBackend
from tests.kit.deadlines import eventually
from tests.kit.regions.daemon import Opens, settings_of
from tests.kit.regions.term import Member, stage

WITHIN_S = 60.0


class Store:
    """A term that serves a store, as :class:`Seen` sees it. ``sound``: its claim is."""

    def __init__(self, epoch: int, number: int, began: int | None = None) -> None:
        self.now_s = 1_000.0
        self.sound = True
        self.ended: list[str] = []
        self.seen = Seen(lambda: self.now_s)
        looked = asyncio.Event()
        looked.set()
        began = number if began is None else began
        self.noted: list[int] = []
        self.seen.begin(Serving(epoch, began, lambda: number, lambda: looked, lambda: self.sound, self.note, self._end))

    async def note(self, number: int) -> None:
        self.noted.append(number)

    def _end(self, why: StoreFailed) -> None:
        self.ended.append(str(why))
        self.seen.over()


@pytest.mark.parametrize(("epoch", "token"), [(0, 0), (4, 0), (4, 100), (1, 1)])
async def test_what_the_store_has_itself_ends_nothing(epoch: int, token: int) -> None:
    store = Store(5, 100)
    assert await store.seen.named("p", epoch, token) == ""
    assert (store.ended, store.seen.above) == ([], NOTHING_SEEN)


@pytest.mark.parametrize(
    ("epoch", "token", "above"),
    [
        (6, 7, Above(6, 100 + restored.NUMBERS_ROOM)),
        (1, 101, Above(1, 101 + restored.NUMBERS_ROOM)),
        (9, 0, Above(9, 100 + restored.NUMBERS_ROOM)),
    ],
)
async def test_a_higher_epoch_or_token_ends_the_term_and_the_next_one_goes_above_both(
    epoch: int, token: int, above: Above
) -> None:
    store = Store(5, 100)
    why = await store.seen.named("p", epoch, token)
    assert why.startswith(
        f"a server has seen epoch {epoch} and token {token}, the store has 5 and 100: it was restored"
    )
    assert store.ended == [why]
    assert store.noted == [above.number]
    assert store.seen.above == above, "also where the next term does not begin"
    store.seen.forget(above)
    assert store.seen.above == NOTHING_SEEN, "the store has it by then"


async def test_what_a_server_names_while_a_term_goes_above_another_one_is_kept_for_the_next_term() -> None:
    store = Store(5, 100)
    assert "restored" in await store.seen.named("p", 6, 0)
    opened_above = store.seen.above
    assert await store.seen.named("q", 9, 70_000) == "", "no term serves"
    store.seen.forget(opened_above)
    assert store.seen.above == Above(9, 70_000 + restored.NUMBERS_ROOM)


async def test_the_epoch_of_this_term_is_news_from_a_process_that_comes_for_the_first_time() -> None:
    """The store was restored to the term before: both terms have one epoch, and servers cannot tell them apart."""
    store = Store(5, 100)
    assert await store.seen.named("old", 4, 0) == ""
    assert await store.seen.named("old", 5, 0) == "", "it knows it from this term"
    store.seen.told("registered")
    assert await store.seen.named("registered", 5, 0) == "", "on a connection from before this term"
    assert await store.seen.named("", 5, 0) == "", "an older agent"
    assert "restored from a copy" in await store.seen.named("other", 5, 0)
    assert store.seen.above == Above(5, 100 + restored.NUMBERS_ROOM)


async def test_a_process_that_the_term_before_knew_comes_to_the_next_one_for_the_first_time() -> None:
    store = Store(5, 100)
    store.seen.told("old")
    store.seen.over()
    looked = asyncio.Event()
    looked.set()
    store.seen.begin(Serving(6, 100, lambda: 100, lambda: looked, lambda: True, store.note, store._end))
    assert "restored from a copy" in await store.seen.named("old", 6, 0)


async def test_a_number_of_this_term_is_news_from_a_process_that_comes_for_the_first_time() -> None:
    """The term of the copy went on and reserved the same numbers as this one: the same tokens would be served."""
    store = Store(5, 1_100, began=100)
    assert await store.seen.named("old", 4, 100) == ""
    assert await store.seen.named("old", 5, 101) == "", "it has it from this term"
    store.seen.told("registered")
    assert await store.seen.named("registered", 5, 1_100) == "", "on a connection from before this term"
    why = await store.seen.named("other", 4, 101)
    assert why.startswith("a server has seen epoch 4 and token 101, the store has 5 and 100: it was restored")
    assert store.seen.above == Above(4, 1_100 + restored.NUMBERS_ROOM)


async def test_the_processes_that_a_term_remembers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restored, "WELCOMED_MAX", 3)
    store = Store(5, 100)
    for number in range(9):
        assert await store.seen.named(f"p{number}", 4, 0) == ""
    assert len(store.seen._welcomed) == 3
    assert await store.seen.named("one more", 5, 0) == "", "what cannot be known ends nothing"


async def test_a_daemon_that_has_not_served_yet_judges_nobody() -> None:
    assert await Seen().named("p", 5, 20_000_000) == ""


async def test_what_others_name_until_the_next_term_counts_too() -> None:
    store = Store(5, 100)
    await store.seen.named("p", 6, 0)
    assert await store.seen.named("p", 8, 300) == ""
    assert "not believed" in await store.seen.named("p", 1 << 62, 0)
    assert store.seen.above == Above(8, 300 + restored.NUMBERS_ROOM)
    assert await store.seen.named("q", 7, 200) == "", "another server has seen less"
    assert store.seen.above == Above(8, 300 + restored.NUMBERS_ROOM)


@pytest.mark.parametrize(
    ("epoch", "token"),
    [
        ((1 << 63) - 1, 0),
        (5 + restored.EPOCHS_AHEAD_MAX + 1, 0),
        (0, (1 << 63) - 1),
        (0, 100 + restored.NUMBERS_AHEAD_MAX + 1),
        (6, (1 << 63) - 1),
    ],
)
async def test_what_no_copy_explains_is_not_believed_and_said_once(
    epoch: int, token: int, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(5, 100)
    for _ in range(3):
        assert "more than a copy explains" in await store.seen.named("p", epoch, token)
    assert (store.ended, store.seen.above) == ([], NOTHING_SEEN)
    assert len(caplog.records) == 1


async def test_a_server_that_lies_again_and_again_costs_a_term_a_minute() -> None:
    store = Store(5, 100)
    assert "restored" in await store.seen.named("p", 6, 0)
    looked = asyncio.Event()
    looked.set()
    store.seen.begin(Serving(7, 100, lambda: 100, lambda: looked, lambda: True, store.note, store._end))
    assert "try again" in await store.seen.named("p", 8, 0)
    assert len(store.ended) == 1
    store.now_s += restored.AGAIN_S
    assert "restored" in await store.seen.named("p", 8, 0)
    assert len(store.ended) == 2


@pytest.mark.parametrize(("epoch", "token"), [(7, 0), (4, 150)])
async def test_a_process_that_is_not_served_now_is_not_known_the_next_time(epoch: int, token: int) -> None:
    """Another server's numbers ended a term less than a minute ago."""
    store = Store(5, 100)
    assert "restored" in await store.seen.named("first", 6, 0)
    looked = asyncio.Event()
    looked.set()
    store.seen.begin(Serving(7, 100, lambda: 200, lambda: looked, lambda: True, store.note, store._end))
    for _ in range(2):
        assert "try again" in await store.seen.named("second", epoch, token)
    store.now_s += restored.AGAIN_S
    assert "restored" in await store.seen.named("second", epoch, token)
    assert len(store.ended) == 2


async def test_a_daemon_whose_claim_is_lost_takes_its_successor_for_no_copy() -> None:
    store = Store(5, 100)
    store.sound = False
    assert "another daemon may be the active one" in await store.seen.named("p", 6, 0)
    store.seen.over()
    assert await store.seen.named("p", 7, 0) == ""
    assert (store.ended, store.seen.above) == ([], NOTHING_SEEN)


async def test_a_store_opens_above_what_was_seen(tmp_path: Path) -> None:
    backend = MemoryBackend()
    above = Opening(above=Above(9, 0))
    for found in (
        await SqliteOpened.open(tmp_path / "regions.db", above),
        await ZooKeeperOpened.open(backend.client, above),
    ):
        assert found.epoch == 10
        await found.close()
    for found in (
        await SqliteOpened.open(tmp_path / "regions.db", Opening(above=Above(3, 0))),
        await ZooKeeperOpened.open(backend.client, Opening(above=Above(3, 0))),
    ):
        assert found.epoch == 11, "its own is higher"
        await found.close()


def test_a_server_names_what_it_has_seen_and_a_client_nothing() -> None:
    server, client = (Daemons([("d1", 1)], proof=proof) for proof in (b"p" * 32, b""))
    for one in (server, client):
        one.epoch = 7
        one.sent([Open(1, 1, 30, "t", b"", b""), Open(2, 2, 20, "t", b"", b"")])
        one.sent([])
    assert (server.hello.seen_epoch, server.hello.seen_token) == (7, 30)
    assert (client.hello.seen_epoch, client.hello.seen_token) == (0, 0)


@asynccontextmanager
async def running(folder: Path, port: int) -> AsyncIterator[RegionsDomain]:
    domain = domain_of(settings_of(folder, port=port, lease_ms=10_000), None)
    task = asyncio.ensure_future(domain.run())
    try:
        await eventually(lambda: domain.mode is RegionsMode.ACTIVE, WITHIN_S)
        yield domain
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def restore(folder: Path) -> None:
    """Puts the copy in the place of the store, as the runbook says."""
    for one in folder.glob("regions.db-*"):
        one.unlink()
    (folder / "copy").replace(folder / "regions.db")


async def create(domain: RegionsDomain, table: str, regions: int) -> None:
    assert domain.term is not None
    data = TABLE_TASK.encode(TableTask(table, uniform=regions))
    pid = await domain.term.engine.submit("create_table", data, Caller("User:ops"))
    await asyncio.wait_for(domain.term.engine.result(pid), WITHIN_S)


async def test_servers_go_on_after_a_copy_was_put_in_the_place_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    monkeypatch.setattr(domains, "AGAIN_S", 0.05)
    service = Opens()
    async with running(tmp_path, 0) as domain:
        port = domain.listener.port
        agent = Agent(service, AgentOptions((("127.0.0.1", port),), "s1", "s1:1", incarnation=1))
        await asyncio.wait_for(agent.start(), WITHIN_S)
        await create(domain, "t", 2)
    shutil.copy(tmp_path / "regions.db", tmp_path / "copy")
    for name in ("u", "v"):
        async with running(tmp_path, port) as domain:
            await asyncio.wait_for(agent.registered(), WITHIN_S)
            await create(domain, name, 2)
    seen_epoch, seen_token = agent._daemons.epoch, agent._daemons.token
    assert (seen_epoch, seen_token) == (3, max(one.token for one in service.opened))
    await asyncio.to_thread(restore, tmp_path)
    async with running(tmp_path, port) as domain:
        await eventually(lambda: domain.term is not None and domain.term.manager.epoch > seen_epoch, WITHIN_S)
        await asyncio.wait_for(agent.registered(), WITHIN_S)
        before = len(service.opened)
        await create(domain, "w", 2)
        assert domain.counters.terms == 2
        assert min(one.token for one in service.opened[before:]) > seen_token
    said = [one.getMessage() for one in caplog.records]
    assert [one for one in said if one.startswith(f"regions: the term ends: a server has seen epoch {seen_epoch} and")]
    assert [one for one in said if one.startswith("the polls of server s1") and "restored from a copy" in one]
    await agent.stop()


async def test_an_open_that_the_copy_had_on_its_way_is_chosen_anew_once_a_lease_is_over(tmp_path: Path) -> None:
    """The region may have gone elsewhere since: nothing is sent on to the server, and no token is used again."""
    options = Options(lease_ms=1_000, startup_wait_ms=0)
    async with stage(tmp_path, options=options) as before:
        silent = await before.join("s1")
        silent.answers = False
        before.submit_table("t", 1)
        await before.until(lambda: any(one.opening for one in before.term.env.model.regions.values()))
        [region] = before.term.env.model.regions.values()
        token = region.opening
    async with stage(tmp_path, options=options, above=Above(9, 500)) as after:
        env = after.term.env
        [region] = env.model.regions.values()
        assert env.outdated == {region.pid}
        await after.join("s1")
        assert not env.places, "processes that the copy does not know may serve for a lease"
        await after.until(lambda: region.state is RegionState.OPEN)
        assert env.restored_places
        assert (token <= 500, region.token > 500, not env.outdated) == (True, True, True)


async def test_an_open_that_waited_in_the_copy_repeats_no_token_that_was_used_since(tmp_path: Path) -> None:
    """In the copy no server had come. The term that goes above it ends before one comes, too."""
    options = Options(lease_ms=1_000, startup_wait_ms=0)
    async with stage(tmp_path, options=options) as before:
        before.submit_table("t", 1)
        await before.until(lambda: bool(before.term.env.unplaced))
    shutil.copy(tmp_path / "regions.db", tmp_path / "copy")
    async with stage(tmp_path, options=options) as since:
        [opened] = since.term.env.model.regions.values()
        await since.join("s1")
        await since.until(lambda: opened.state is RegionState.OPEN)
    await asyncio.to_thread(restore, tmp_path)
    async with stage(tmp_path, options=options, above=Above(9, 5_000)) as raised:
        await raised.until(lambda: bool(raised.term.env.unplaced))
    async with stage(tmp_path, options=options) as after:
        [region] = after.term.env.model.regions.values()
        assert (region.state, region.token) == (RegionState.OFFLINE, 0)
        await after.join("s2")
        await after.until(lambda: region.state is RegionState.OPEN)
        assert region.token > 5_000 > opened.token


async def test_an_open_of_the_copy_that_its_server_lists_goes_on(tmp_path: Path) -> None:
    async with stage(tmp_path) as before:
        silent = await before.join("s1")
        silent.answers = False
        before.submit_table("t", 1)
        await before.until(lambda: any(one.opening for one in before.term.env.model.regions.values()))
        [region] = before.term.env.model.regions.values()
        owned = [protocol.Owned(region.id, region.opening)]
    async with stage(tmp_path, above=Above(9, 500)) as after:
        [region] = after.term.env.model.regions.values()
        member = Member(after.term, "s1", 1)
        registered = await after.term.service.handle(protocol.Register("s1", 1, "s1:7000", "1.0", owned))
        assert isinstance(registered, protocol.Registered)
        member._run(member._poll(registered.epoch))
        after.members.append(member)
        await after.until(lambda: region.state is RegionState.OPEN)
        assert region.token == owned[0].token


async def test_a_term_that_ends_within_the_lease_leaves_it_to_the_next_one(tmp_path: Path) -> None:
    options = Options(lease_ms=60_000, startup_wait_ms=0)
    async with stage(tmp_path, options=options, above=Above(9, 500)) as raised:
        await raised.join("s1")
        assert not raised.term.env.places
    async with stage(tmp_path, options=options) as after:
        assert after.term.env.restored
        await after.join("s1")
        assert not after.term.env.places, "processes that the copy does not know may serve for a lease"


async def test_a_restored_store_is_one_like_others_once_the_lease_is_over(tmp_path: Path) -> None:
    options = Options(lease_ms=1_000, startup_wait_ms=0)
    async with stage(tmp_path, options=options, above=Above(9, 500)) as raised:
        await raised.join("s1")
        await raised.create("t", 1)
        await raised.until(lambda: not raised.term.copy.is_noted)
    async with stage(tmp_path, options=options) as after:
        assert not after.term.env.restored


async def test_another_daemon_goes_above_what_the_term_before_noted(tmp_path: Path) -> None:
    async with stage(tmp_path) as before:
        await before.term.copy.note(70_000)
    async with stage(tmp_path) as after:
        assert after.term.env.restored
        assert after.term.engine.last_number >= 70_000


async def test_what_another_daemon_noted_outlives_a_term_that_ends_as_it_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage(tmp_path) as before:
        await before.term.copy.note(70_000)
    with monkeypatch.context() as dies:
        dies.setattr("controller.procedures.engine.Engine.load", lambda *_: _breaks(0))
        with pytest.raises(StoreFailed):
            async with stage(tmp_path, above=Above(9, 500)):
                """Its own servers have seen less than those of the daemon before."""
    async with stage(tmp_path) as after:
        assert after.term.engine.last_number >= 70_000


async def test_a_copy_that_is_noted_as_an_earlier_one_is_settled_stays_noted(tmp_path: Path) -> None:
    options = Options(lease_ms=60_000, startup_wait_ms=0)
    async with stage(tmp_path, options=options, above=Above(9, 500)) as raised:
        await raised.term.copy.note(70_000)
        raised.term.env.restored_places = True  # the lease is over
        await raised.term._settle_copy()
    async with stage(tmp_path, options=options) as after:
        assert after.term.engine.last_number >= 70_000


async def _hangs(_: int) -> None:
    await asyncio.Event().wait()


async def _breaks(_: int) -> None:
    raise StoreFailed("the disk is full")


@pytest.mark.parametrize("note", [_hangs, _breaks])
async def test_a_term_whose_store_takes_no_note_of_the_copy_ends_all_the_same(
    note: Callable[[int], Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restored, "NOTE_S", 0.01)
    monkeypatch.setattr(Store, "note", lambda _, number: note(number))
    store = Store(5, 100)
    assert "restored" in await store.seen.named("p", 6, 0)
    assert len(store.ended) == 1
    assert store.seen.above.epoch == 6, "this daemon goes above it"
