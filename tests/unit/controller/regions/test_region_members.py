"""Which processes may register and are members, also by damaged rows, and their leases at a slow daemon."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from controller.regions import admission, damaged
from controller.regions.admission import (
    AHEAD_MS_MAX,
    Admission,
    IncarnationAhead,
    ServerDead,
    TooMany,
    Unproven,
)
from controller.regions.damaged import Unknown
from controller.regions.environment import Options
from controller.regions.fencing import LeaseAndFence
from controller.regions.term import RegionsTerm
from metadata_store.catalog.judging import INT_MAX
from regent_agent import protocol
from state_machines.regions.damage import Damage, RowKind
from state_machines.regions.entities import Server
from state_machines.regions.model import Regions
from state_machines.regions.states import ServerState
from testing.memory.region_store import MemoryRegionStore, RegionDisk
from tests.kit.deadlines import eventually

NOW_MS = 1_700_000_000_000
MOST = (NOW_MS + AHEAD_MS_MAX) * 1_000
"""The highest incarnation that may register now."""


class MembersWorld:
    """An admission whose wall clock is behind the time that the domain has."""

    def __init__(self) -> None:
        self.expired: list[tuple[str, str]] = []
        self.model = Regions()
        env: Any = SimpleNamespace(
            model=self.model, latest_ms=lambda: NOW_MS, wall_ms=lambda: NOW_MS - 5_000, options=None
        )
        self.admission = Admission(env, lambda server, why: self.expired.append((str(server), why)))

    def member(
        self, name: str, incarnation: int, state: ServerState = ServerState.ONLINE, proof: str | None = "mine"
    ) -> Server:
        found = Server(name, incarnation, "", "", state, {}, proof=proof)
        self.model.servers[found.key] = found
        return found

    def refusal(self, key: tuple[str, int], regions: int = 0, proof: str = "mine") -> type[Exception] | None:
        """Returns the kind of refusal of a process that registers; None where it is admitted."""
        try:
            self.admission.check_entry(key, regions, proof)
        except Exception as error:
            return type(error)
        return None


@pytest.mark.parametrize("state", list(ServerState))
def test_a_member_registers_again_with_its_regions_while_it_is_online(state: ServerState) -> None:
    world = MembersWorld()
    world.member("a", 1, state)
    assert world.refusal(("a", 1), regions=3) is (None if state is ServerState.ONLINE else ServerDead)


def test_a_process_that_is_no_member_has_no_region() -> None:
    world = MembersWorld()
    assert [world.refusal(("a", 1), regions=count) for count in (0, 1, 2)] == [None, ServerDead, ServerDead]


def test_a_proof_is_compared_while_it_is_being_stored_and_later() -> None:
    world = MembersWorld()
    world.member("a", 1, proof="old")
    world.member("b", 1, proof=None)
    world.admission.entering["c", 1] = "mine"
    world.admission.entering["a", 1] = "mine"  # it is being stored with an address of its own
    found = [world.refusal((name, 1), proof=proof) for name in "abc" for proof in ("mine", "other")]
    assert found == [None, Unproven, None, None, None, Unproven]


def test_an_incarnation_may_be_ahead_of_the_latest_time_of_the_domain_by_two_days() -> None:
    world = MembersWorld()
    assert world.admission.incarnation_max() == MOST
    assert [world.refusal(("a", incarnation)) for incarnation in (MOST, MOST + 1)] == [None, IncarnationAhead]
    world.member("a", MOST + 1)
    assert world.refusal(("a", MOST + 1)) is None, "a member stays one"


def test_those_that_are_being_stored_count_as_members_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "SERVERS_MAX", 3)
    world = MembersWorld()
    world.member("a", 1)
    world.member("b", 1, ServerState.CRASHED)
    world.admission.entering["a", 1] = "mine"
    assert world.refusal(("c", 1)) is None
    world.admission.entering["d", 1] = "mine"
    assert world.refusal(("c", 1)) is TooMany
    assert world.refusal(("a", 1)) is None


@pytest.mark.parametrize(
    ("last", "others", "incarnation", "above"),
    [
        (5, (), 5, 5),
        (5, (), 4, 5),
        (5, (5, 3), 4, 5),  # the rest of the fenced ones ends, too
        (5, (6,), 4, 0),
        (5, (3, 6), 4, 0),
        (MOST - 1, (), 4, MOST - 1),
        (MOST, (), 4, 0),  # nothing above it may come
    ],
)
def test_a_process_that_was_fenced_is_told_above_which_incarnation_it_may_come_where_it_may(
    last: int, others: tuple[int, ...], incarnation: int, above: int
) -> None:
    world = MembersWorld()
    world.model.buried["a"] = last
    for one in others:
        world.member("a", one)
    world.member("b", 99)
    with pytest.raises(ServerDead) as found:
        world.admission.check_entry(("a", incarnation), 0, "mine")
    assert found.value.above == above
    assert ("servers forget a" in str(found.value)) is (last == MOST)
    assert world.refusal(("a", last + 1)) in (None, IncarnationAhead)


def test_the_process_of_a_name_that_began_last_stays_and_an_earlier_member_ends() -> None:
    world = MembersWorld()
    for key in (("a", 1), ("a", 3), ("b", 9)):
        world.member(*key)
    assert {str(one) for one in world.admission.others(("a", 1))} == {"a,3"}
    world.admission.check_alone(("a", 3))
    world.admission.check_alone(("a", 4))
    for incarnation, expired in ((2, []), (1, [("a,1", "a,3 registered")])):
        with pytest.raises(ServerDead, match="a,3 is the later one"):
            world.admission.check_alone(("a", incarnation))
        assert world.expired == expired


def damage(name: str, kind: RowKind = RowKind.SERVER) -> Damage:
    return Damage(kind, f"row {name}", "address", "'x'", "it is no address", name)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("a,1", ("a", 1)),
        (f"a,{INT_MAX}", ("a", INT_MAX)),
        ("a,b,7", ("a,b", 7)),
        (f"a,{INT_MAX + 1}", None),
        ("a,0", None),
        ("a,-1", None),
        ("a,x", None),
        ("a,\u0661", None),
        ("a,", None),
        (",1", None),
        ("a", None),
        ("", None),
    ],
)
def test_a_row_names_a_process_by_a_name_and_an_incarnation_that_can_be(name: str, key: tuple[str, int] | None) -> None:
    assert list(damaged.members([damage(name)])) == ([] if key is None else [key])
    assert bool(Unknown.of([damage(name)])) is (key is None)


def test_a_region_stays_at_each_server_that_a_row_may_name() -> None:
    named = Unknown.of([damage("a,x"), damage("b,1"), damage("c,0"), damage("d,x", RowKind.BURIED)])
    assert [named.may_be(name) for name in "abcd"] == [True, False, True, False]
    for rows in ([damage("")], [damage("b,1"), damage(""), damage("a,x")]):
        unknown = Unknown.of(rows)
        assert unknown
        assert [unknown.may_be(name) for name in "ab"] == [True, True]
    assert not Unknown.of([damage("b,1"), damage("", RowKind.BURIED), damage("", RowKind.TABLE)])
    assert not Unknown.of([])


def test_damaged_members_and_names_are_kept_and_sound_members_stay_as_they_are() -> None:
    model = Regions()
    sound = model.servers["b", 1] = Server("b", 1, "b:1", "2.0", ServerState.ONLINE, {})
    rows = [damage("a,3"), damage("b,1"), damage("c,x"), damage("", RowKind.BURIED)]
    rows += [damage("d", RowKind.BURIED), damage("t,1", RowKind.TABLE), damage("e", RowKind.BURIED)]
    damaged.keep_away(model, rows)
    assert model.servers.keys() == {("a", 3), ("b", 1)}
    assert model.servers["b", 1] is sound
    assert model.servers["a", 3].state is ServerState.ONLINE
    assert model.buried == {"d": INT_MAX, "e": INT_MAX}


LEASE_S = 1.0
STEP_S = 0.1


class Daemon:
    """A term with one server, and a clock of its own. ``leads``: its claim holds for certain."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.leads = True
        store = MemoryRegionStore(RegionDisk())
        options = Options(lease_ms=int(LEASE_S * 1000))
        self.term = RegionsTerm(
            store, store, store.epoch, options, wall_ms=lambda: int(self.now_s * 1000), leads=lambda: self.leads
        )
        self.term.env.clock = lambda: self.now_s

    def is_online(self) -> bool:
        """Returns whether the server counts as alive; a crash without regions is soon over."""
        server = self.term.env.model.servers.get(("s1", 1))
        return server is not None and server.state is ServerState.ONLINE

    def has_full_lease(self) -> bool:
        return self.term.env.model.servers["s1", 1].deadline_s == self.now_s + LEASE_S

    async def passes(self, seconds: float) -> None:
        """Lets time pass in which the daemon runs."""
        for _ in range(round(seconds / STEP_S)):
            self.now_s += STEP_S
            await asyncio.sleep(LEASE_S / 15)


@asynccontextmanager
async def running() -> AsyncIterator[Daemon]:
    daemon = Daemon()
    await daemon.term.load()
    await daemon.term.service.handle(protocol.Register("s1", 1, "s1:1"))
    task = asyncio.ensure_future(daemon.term.run())
    await asyncio.sleep(0)
    try:
        yield daemon
    finally:
        task.cancel()
        await asyncio.wait({task})


async def test_a_server_that_is_silent_while_the_daemon_runs_counts_as_crashed() -> None:
    async with running() as daemon:
        await daemon.passes(LEASE_S - 2 * STEP_S)
        assert daemon.is_online()
        await daemon.passes(4 * STEP_S)
        assert not daemon.is_online()


async def test_the_sentence_of_an_expired_lease_names_the_lease_of_that_server(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as daemon:
        sentences: list[str] = []
        env = daemon.term.env
        monkeypatch.setattr(env.journal, "server", lambda server, change, why, **more: sentences.append(why))
        env.former = LeaseAndFence(3_000, "lease")
        await daemon.passes(4 * LEASE_S)
        assert sentences[0].startswith("no poll for 3000 ms"), "it never polled under the lease of this daemon"


@pytest.mark.parametrize("before_s", [0.0, LEASE_S / 2], ids=["before its first check", "later"])
async def test_a_daemon_that_was_frozen_gives_each_server_a_full_lease(before_s: float) -> None:
    async with running() as daemon:
        await daemon.passes(before_s)
        daemon.now_s += 10 * LEASE_S
        await eventually(daemon.has_full_lease)
        await daemon.passes(2 * LEASE_S)
        assert not daemon.is_online()


@pytest.mark.parametrize("seconds", [0.5 * LEASE_S, 3 * LEASE_S])
async def test_a_daemon_whose_claim_was_in_doubt_gives_each_server_a_full_lease(seconds: float) -> None:
    async with running() as daemon:
        daemon.leads = False
        refused = await daemon.term.service.handle(protocol.Poll("s1", 1, 1, 0))
        assert isinstance(refused, protocol.Refused)
        assert refused.code == protocol.NOT_ACTIVE
        await daemon.passes(seconds)
        daemon.leads = True
        await daemon.passes(LEASE_S - 2 * STEP_S)
        assert daemon.is_online()
        await daemon.passes(4 * STEP_S)
        assert not daemon.is_online()
