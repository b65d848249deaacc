"""A process whose ephemeral znode has ended counts as crashed where it is silent, and somebody else is not."""

from __future__ import annotations

import pytest

from controller.regions.fencing import Silence
from controller.regions.transport.presence import Presence
from metadata_store.catalog.unassigned import region_of, server_of, server_path, servers_of
from metadata_store.errors import NotConnected
from state_machines.regions.entities import Server
from state_machines.regions.model import Regions
from state_machines.regions.states import ServerState
from testing.memory import MemoryServer, MemoryZooKeeper
from tests.kit.deadlines import eventually

LEASE_MS = 10_000
ROOT = "/regions"


class Servers:
    """Three members that polled at 0 s."""

    def __init__(self) -> None:
        self.model = Regions()
        for name in "abc":
            server = self.model.servers[name, 1] = Server(name, 1, f"{name}:1", "1", ServerState.ONLINE, {})
            server.deadline_s = LEASE_MS / 1000
        self.busy: set[tuple[str, int]] = set()
        self.silence = Silence(self.model, LEASE_MS, self.busy.__contains__)

    def polls(self, name: str, at_s: float) -> None:
        self.model.servers[name, 1].deadline_s = at_s + LEASE_MS / 1000

    def gone(self, now_s: float) -> list[str]:
        return [one.name for one in self.silence.gone(now_s)]


def test_it_counts_as_crashed_after_half_a_lease_without_a_poll() -> None:
    servers = Servers()
    servers.polls("b", 4.0)
    servers.silence.absent = {("a", 1), ("x", 1)}
    assert servers.gone(4.9) == []
    assert servers.gone(5.1) == ["a"]
    assert servers.silence.absent == {("a", 1)}, "the other one is no member"
    assert servers.silence.over(5.1) == [], "its lease is not over"
    servers.polls("a", 5.1)
    assert servers.gone(5.2) == [], "it polls again"


def test_one_that_waits_for_the_daemon_is_not_silent() -> None:
    servers = Servers()
    servers.polls("b", 4.0)
    servers.silence.absent = {("a", 1)}
    servers.busy.add(("a", 1))
    assert servers.gone(9.0) == []


def test_leases_decide_where_nobody_polls() -> None:
    """All are on the other side of a network that has failed, with their sessions."""
    servers = Servers()
    servers.silence.absent = {("a", 1), ("b", 1), ("c", 1)}
    assert servers.gone(9.9) == []
    servers.polls("c", 9.9)
    assert servers.gone(10.0) == ["a", "b"], "one of them is back: the others are not"


def test_one_whose_crash_goes_on_is_no_news() -> None:
    servers = Servers()
    servers.polls("b", 4.0)
    servers.silence.absent = {("a", 1)}
    servers.model.servers["a", 1].state = ServerState.CRASHED
    assert servers.gone(9.0) == []


class Told:
    """What the folder of servers tells."""

    def __init__(self) -> None:
        self.server = MemoryServer()
        self.zk, self.member = MemoryZooKeeper(self.server), MemoryZooKeeper(self.server)
        self.presence = Presence(self.zk, ROOT)
        self.news: list[tuple[str, str]] = []
        self.presence.gone = lambda key: self.news.append(("gone", key[0]))
        self.presence.back = lambda key: self.news.append(("back", key[0]))
        self.zk.on_watch = lambda event: setattr(self.presence, "is_due", event.path == self.presence.folder)

    async def begin(self) -> None:
        for zk in (self.zk, self.member):
            await zk.connect(1.0)
        for path in (ROOT, servers_of(ROOT)):
            await self.zk.create(path, None)
        await self.presence.look()


@pytest.fixture
async def told() -> Told:
    found = Told()
    await found.begin()
    return found


async def test_each_znode_that_comes_or_goes_is_told_once(told: Told) -> None:
    for name in ("a", "b/1"):
        await told.member.create(server_path(ROOT, name, 1), None, ephemeral=True)
    await told.member.create(f"{servers_of(ROOT)}/no server", None, ephemeral=True)
    await eventually(lambda: told.presence.is_due)
    await told.presence.look()
    assert sorted(told.news) == [("back", "a"), ("back", "b/1")]
    told.news.clear()
    await told.presence.look()
    assert told.news == [], "nothing is due"
    told.server.expire(told.member.session_id)
    await eventually(lambda: told.presence.is_due)
    await told.presence.look()
    assert sorted(told.news) == [("gone", "a"), ("gone", "b/1")]


async def test_a_list_that_failed_is_due_again(told: Told) -> None:
    told.presence.is_due = True
    told.server.suspend(told.zk.session_id)
    with pytest.raises(NotConnected):
        await told.presence.look()
    assert told.presence.is_due


@pytest.mark.parametrize("digits", [20, 5_000])
def test_a_name_with_a_long_number_stands_for_nothing(digits: int) -> None:
    assert server_of("a," + "9" * digits) is None
    assert region_of("9" * digits) is None
    assert region_of("9" * 18) == 10**18 - 1
