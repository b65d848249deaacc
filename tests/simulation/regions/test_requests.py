"""Requests of operators do what they say: to the server that they name, once, and to no other region or process."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from controller.http.documents import ViewRefused
from controller.http.procedures import Procedure
from controller.regions.domain import RegionsDomain
from controller.regions.operator.marks import MarkRemoval, MarkRequest, MarkView
from controller.regions.operator.namespaces import NamespaceCreation
from controller.regions.operator.region_changes import RegionChange, region_problem
from controller.regions.operator.requests import Change, server_of
from controller.regions.operator.servers import ServerChange, drain_remedy
from controller.regions.operator.table_checks import table_problem
from controller.regions.operator.tables import TableCreation
from controller.regions.operator.view import View, gauges_of
from controller.regions.operator.ways import held_until_ms
from controller.regions.term import RegionsTerm
from state_machines.procedures.record import Record
from state_machines.regions.entities import Region, Table
from state_machines.regions.entities import Server as Process
from state_machines.regions.marks import Mark, MarkKind
from state_machines.regions.model import Regions
from state_machines.regions.states import RegionState, ServerState, TableKind, TableState
from testing.memory.region_store import MemoryRegionStore, RegionDisk
from tests.kit.regions.term import view_of
from tests.kit.regions.world import OPTIONS, Server, creates, ended, regions_of, running, serving, until, virtual

S = RegionState
LONG = replace(OPTIONS, lease_ms=100_000)


class Slow(MemoryRegionStore):
    """A store whose writes take long."""

    async def write(self, puts: Iterable[Record], deletes: Iterable[int] = (), rows: Iterable[object] = ()) -> None:
        await asyncio.sleep(0.1)
        await super().write(puts, deletes, rows)


def changes_of(term: RegionsTerm) -> View:
    return view_of(cast("RegionsDomain", SimpleNamespace(term=term)))


async def changed(term: RegionsTerm, act: Any, region: Region, **request: Any) -> None:
    begun = await changes_of(term).region_changes.change_region(act, region.id, RegionChange(**request), "uid 0")
    await term.engine.result(begun.pid)


@virtual
async def test_a_region_is_opened_where_its_operator_wants_it_and_reopened_where_it_is() -> None:
    async with running(RegionDisk(), LONG) as term, serving(Server(term, "a"), Server(term, "b"), Server(term, "c")):
        await ended(term, creates(term))
        [region] = regions_of(term)
        for name in ("c", "a", "b"):
            await changed(term, "unassign", region)
            await changed(term, "assign", region, server=name)
            assert (region.state, str(region.server)) == (S.OPEN, f"{name},1")
            token = region.token
            await changed(term, "reopen", region)
            assert (region.state, str(region.server)) == (S.OPEN, f"{name},1"), "it stays"
            assert region.token > token, "it was opened again"


@virtual
async def test_one_nonce_for_two_servers_expires_one_of_them() -> None:
    """The second request arrives before the first one is stored: its server counts as a member."""
    async with running(RegionDisk(), LONG, store=Slow) as term:
        for name in ("a", "b"):
            await Server(term, name).register()
        changes, request = changes_of(term), ServerChange(nonce="n1")
        first, second = await asyncio.gather(
            *(changes.servers.change_server("expire", name, request, "uid 0") for name in ("a", "b")),
            return_exceptions=True,
        )
        assert isinstance(first, Procedure)
        assert isinstance(second, ViewRefused)
        assert f"that of procedure {first.pid} (crash, server a,1" in second.message
        states = {name: term.env.model.servers[name, 1].state for name in ("a", "b")}
        assert states == {"a": ServerState.CRASHED, "b": ServerState.ONLINE}


@virtual
async def test_a_nonce_of_another_request_is_refused_and_one_of_the_same_is_answered_as_before() -> None:
    """A response with the procedure of the first request would say that the second one was carried out, too."""
    async with running(RegionDisk(), LONG) as term, serving(Server(term, "a"), Server(term, "b")):
        await ended(term, creates(term, regions=2))
        one, two = regions_of(term)
        changes, marks = changes_of(term), MarkView(cast("RegionsDomain", SimpleNamespace(term=term)))
        plain, of_region, of_server = Change(nonce="n"), RegionChange(nonce="n"), ServerChange(nonce="n")
        begun = await changes.region_changes.change_region("reopen", one.id, of_region, "uid 0")
        await term.engine.result(begun.pid)
        assert (await changes.region_changes.change_region("reopen", one.id, of_region, "uid 0")).pid == begun.pid
        for other in (
            changes.region_changes.change_region("reopen", two.id, of_region, "uid 0"),
            changes.region_changes.change_region("unassign", one.id, of_region, "uid 0"),
            changes.tables.change_table("disable", "t", plain, "uid 0"),
            changes.tables.create_table(TableCreation(name="u", nonce="n"), "uid 0"),
            changes.namespaces.create_namespace(NamespaceCreation(name="shop", nonce="n"), "uid 0"),
            changes.namespaces.delete_namespace("shop", plain, "uid 0"),
            changes.servers.change_server("drain", "a", of_server, "uid 0"),
            changes.servers.change_server("expire", "a,1", of_server, "uid 0"),
            changes.servers.change_server("forget", "a", of_server, "uid 0"),
            marks.mark(MarkRequest(kind="cordon", subject="a", nonce="n"), "uid 0"),
            marks.unmark(MarkRemoval(kind="cordon", subject="a", nonce="n"), "uid 0"),
        ):
            with pytest.raises(ViewRefused, match=rf"the nonce 'n' is that of procedure {begun.pid} \(move, region t#"):
                await other
        assert (one.state, two.state, len(term.env.model.tables)) == (S.OPEN, S.OPEN, 1)
        theirs = await changes.region_changes.change_region("reopen", two.id, of_region, "uid 7")
        assert theirs.pid != begun.pid, "another caller's nonce is another one"


@virtual
async def test_each_request_is_known_by_its_nonce_when_it_is_repeated() -> None:
    async with running(RegionDisk(), LONG) as term, serving(Server(term, "a"), Server(term, "b")):
        await ended(term, creates(term))
        [region] = regions_of(term)
        changes, marks = changes_of(term), MarkView(cast("RegionsDomain", SimpleNamespace(term=term)))

        def requests() -> list[Coroutine[Any, Any, Procedure]]:
            cordon = {"kind": "cordon", "subject": "a"}
            return [
                changes.region_changes.change_region("move", region.id, RegionChange(server="b", nonce="1"), "uid 0"),
                changes.region_changes.change_region("unassign", region.id, RegionChange(nonce="2"), "uid 0"),
                changes.region_changes.change_region("assign", region.id, RegionChange(server="a", nonce="3"), "uid 0"),
                changes.namespaces.create_namespace(NamespaceCreation(name="shop", nonce="4"), "uid 0"),
                changes.tables.create_table(TableCreation(name="shop:u", nonce="5"), "uid 0"),
                changes.tables.change_table("disable", "shop:u", Change(nonce="6"), "uid 0"),
                changes.tables.change_table("enable", "shop:u", Change(nonce="7"), "uid 0"),
                changes.tables.change_table("disable", "shop:u", Change(nonce="8"), "uid 0"),
                changes.tables.change_table("delete", "shop:u", Change(nonce="9"), "uid 0"),
                changes.namespaces.delete_namespace("shop", Change(nonce="10"), "uid 0"),
                marks.mark(MarkRequest(**cordon, nonce="11"), "uid 0"),
                marks.unmark(MarkRemoval(**cordon, nonce="12"), "uid 0"),
                changes.servers.change_server("drain", "a,1", ServerChange(nonce="13"), "uid 0"),
            ]

        begun = list[int]()
        for request in requests():
            found = await request
            await term.engine.result(found.pid)
            begun.append(found.pid)
        assert [(await request).pid for request in requests()] == begun


@virtual
@pytest.mark.parametrize("dry_run", [True, False])
async def test_a_table_whose_keys_are_too_many_bytes_is_refused_also_in_a_dry_run(dry_run: bool) -> None:
    async with running(RegionDisk(), LONG) as term:
        changes = changes_of(term)
        keys = [f"{number:01000}" for number in range(260)]
        begun = await changes.tables.create_table(TableCreation(name="fits", splits=keys, dry_run=True), "uid 0")
        assert begun.detail == "table fits with 261 regions"
        keys += [f"{number:01000}" for number in range(260, 270)]
        with pytest.raises(ViewRefused, match=r"270,\d+ bytes of split keys .* 262,144 are stored") as refused:
            await changes.tables.create_table(TableCreation(name="t", splits=keys, dry_run=dry_run), "uid 0")
        assert refused.value.remedy == "give fewer or shorter split keys or options"


@virtual
async def test_a_wanted_server_that_is_named_with_its_incarnation_is_not_said_to_be_away() -> None:
    async with running(RegionDisk(), LONG) as term, serving(Server(term, "a"), Server(term, "b")):
        await ended(term, creates(term))
        [region] = regions_of(term)
        changes = changes_of(term)
        for server, why in (("b,1", "name 'b'"), ("c,1", "'c,1' is not online"), ("c", "'c' is not online")):
            with pytest.raises(ViewRefused, match=why):
                await changes.region_changes.change_region("move", region.id, RegionChange(server=server), "uid 0")


@virtual
async def test_a_table_is_enabled_while_another_one_is_created() -> None:
    async with running(RegionDisk(), LONG) as term:
        async with serving(Server(term, "a")):
            await ended(term, creates(term))
            changes = changes_of(term)
            disabled = await changes.tables.change_table("disable", "t", Change(), "uid 0")
            await term.engine.result(disabled.pid)
        await creates(term, "u")
        await until(lambda: "u" in term.env.model.tables)
        with pytest.raises(ViewRefused, match=r"table 'u' is creating: procedure \d+ opens its regions"):
            await changes.tables.change_table("enable", "u", Change(), "uid 0")
        assert (await changes.tables.change_table("enable", "t", Change(), "uid 0")).kind == "enable_table"


@virtual
async def test_the_metrics_have_the_age_of_the_oldest_transition_in_seconds_and_parked_procedures() -> None:
    async with running(RegionDisk(), replace(LONG, transit_warning_ms=20_000)) as term:
        await creates(term, regions=2)
        term.engine._parking.parked[7] = "it ended terms"
        domain = cast("RegionsDomain", SimpleNamespace(term=term, listener=SimpleNamespace(connections=0)))
        began_s = asyncio.get_running_loop().time()
        await until(lambda: gauges_of(domain).overdue == 2)
        found = gauges_of(domain)
        assert 20 < found.oldest_transition_s < asyncio.get_running_loop().time() - began_s + 1
        assert found.in_transition == 2
        assert (found.procedures_parked, found.procedures_unusable) == (1, 0)


# -- judged by the model alone


def model_of(*servers: tuple[str, int, ServerState]) -> tuple[Regions, Region]:
    """Returns a model with one region, open at the first of some processes."""
    model = Regions()
    table = Table("t", TableKind.USER, TableState.ENABLED, {}, [])
    model.add_table(table)
    region = Region(1, table, b"", b"", S.OFFLINE)
    model.add_regions(table, [region])
    for name, incarnation, _ in servers:
        one = Process(name, incarnation, f"{name}:1", "", ServerState.ONLINE, {})
        one.here = True
        model.servers[one.key] = one
    first = model.servers[servers[0][:2]]
    model.move(region, S.OPENING, first, 0)
    model.move(region, S.OPEN, first, 0)
    for name, incarnation, state in servers:
        model.servers[name, incarnation].state = state
    return model, region


def env_of(model: Regions, now_ms: int = 0, rests_ms: int = 0) -> Any:
    cooldown = SimpleNamespace(left_ms=lambda *_: rests_ms)
    return SimpleNamespace(
        model=model, cooldown=cooldown, draining={}, now_ms=lambda: now_ms, wall_ms=lambda: 1_000 + now_ms
    )


def test_a_name_alone_means_the_newest_process_of_a_server() -> None:
    model, _ = model_of(("a", 1, ServerState.FENCED), ("a", 3, ServerState.ONLINE), ("a", 2, ServerState.CRASHED))
    assert [str(server_of(model, named)) for named in ("a", "a,1", "a,2", "a,3")] == ["a,3", "a,1", "a,2", "a,3"]


def test_a_region_of_a_fenced_process_that_is_held_moves_to_a_server_that_is_no_longer_cordoned() -> None:
    model, region = model_of(("a", 1, ServerState.FENCED), ("b", 1, ServerState.ONLINE))
    env = env_of(model)
    assert region_problem(env, region, "move", "b") is None
    model.marks.put(Mark(MarkKind.CORDON, "b"))
    why = region_problem(env, region, "move", "b")
    assert why is not None
    assert "'regent servers uncordon b' ends that" in why
    region.state = S.CLOSING
    assert "sees to it itself" in str(region_problem(env, region, "move", "b"))


@pytest.mark.parametrize(
    ("act", "force", "refused"), [("move", False, True), ("move", True, False), ("reopen", False, False)]
)
def test_a_region_that_rests_is_moved_by_force_and_reopened_at_any_time(act: Any, force: bool, refused: bool) -> None:
    model, region = model_of(("a", 1, ServerState.ONLINE), ("b", 1, ServerState.ONLINE))
    to = "b" if act == "move" else ""
    why = region_problem(env_of(model, rests_ms=5_000), region, act, to, force=force)
    assert ("rests for 5.0 s more" in str(why)) is refused


@pytest.mark.parametrize("state", [S.CLOSED, S.FAILED_OPEN, S.OPEN])
def test_a_region_that_no_server_has_is_not_closed_a_second_time(state: S) -> None:
    model, region = model_of(("a", 1, ServerState.ONLINE))
    if state is not S.OPEN:
        region.state, region.server = state, None
    why = region_problem(env_of(model), region, "unassign", "")
    assert (why is None) is (state is S.OPEN)


def test_a_table_with_a_part_of_its_regions_is_disabled_and_not_enabled() -> None:
    model, region = model_of(("a", 1, ServerState.ONLINE))
    region.table.state, region.end = TableState.DISABLED, b"m"
    assert "its creation was ended: delete it" in str(table_problem(model, region.table, "enable"))
    region.table.state = TableState.CREATING
    assert table_problem(model, region.table, "disable") is None
    region.table.state, region.end = TableState.DISABLED, b""
    assert table_problem(model, region.table, "enable") is None


def test_the_last_server_that_is_cordoned_needs_another_one_to_be_drained() -> None:
    model, _ = model_of(("a", 1, ServerState.ONLINE), ("b", 1, ServerState.ONLINE))
    server = model.servers["a", 1]
    model.marks.put(Mark(MarkKind.CORDON, "a"))
    assert drain_remedy(model, server) == "start another server"
    model.marks.put(Mark(MarkKind.CORDON, "b"))
    assert drain_remedy(model, server).endswith("'regent servers uncordon b'")


def test_a_hold_keeps_regions_of_a_fenced_process_until_its_server_is_back() -> None:
    model, region = model_of(("a", 1, ServerState.FENCED))
    model.marks.put(Mark(MarkKind.HOLD, "a", until_ms=9_000))
    env = env_of(model)
    assert held_until_ms(region.server, env) == 9_000
    back = Process("a", 2, "a:1", "", ServerState.ONLINE, {})
    model.servers[back.key] = back
    assert held_until_ms(region.server, env) == 0
