"""Drains of several brokers beside each other: those that share a broker wait, and undone ones take all marks back."""

from __future__ import annotations

import asyncio
from unittest import mock

from controller.http.drain_models import DrainRequest
from controller.http.procedure_models import CordonRequest
from controller.kafka.kinds import drain as kind
from metadata_store.acl import ALL
from metadata_store.nodes.cordon_node import PATH, Cordons, DrainMark, read_cordons
from tests.kit.controller_world import World, in_world
from tests.kit.reassignment_kit import propagated
from tests.unit.controller.kafka.kinds.test_drain import ended, marked, views
from tests.unit.controller.operator.test_view_procedures import view_of


async def running(w: World) -> None:
    """Each of five brokers leads one partition, and has a follower."""
    await w.topic("t", (1, 2), (2, 3), (3, 4), (4, 5), (5, 1), leaders=True)
    await w.begin_term()
    await propagated(w)


async def draining(w: World, *brokers: int, reason: str = "") -> int:
    """Begins a drain; returns its pid."""
    found = await views(w)[0].drain(DrainRequest(brokers=list(brokers), reason=reason), "uid 0")
    await w.settle()
    return found.pid


async def drain_marks(w: World) -> dict[int, DrainMark]:
    """Returns the marks of drains that are stored, by broker."""
    found = await read_cordons(w.operator)
    assert isinstance(found, Cordons)
    return {broker: one.drain for broker, one in found.brokers.items() if one.drain is not None}


@in_world(1, 2, 3, 4, 5)
async def test_a_drain_waits_for_another_one_of_any_of_its_brokers_and_a_third_one_goes_on(w: World) -> None:
    await running(w)
    with mock.patch.object(kind, "brokers_are_behind", return_value=True):
        first = await draining(w, 1, 3)
        second = await draining(w, 2, 3)
        third = await draining(w, 4)
        assert {broker: one.pid for broker, one in (await drain_marks(w)).items()} == {1: first, 3: first, 4: third}
        await view_of(w).abort(first)
        assert (await ended(w, first)).state == "rolledback"
        await w.settle()
        assert {broker: one.pid for broker, one in (await drain_marks(w)).items()} == {2: second, 3: second, 4: third}
    assert [(await ended(w, pid)).state for pid in (second, third)] == ["success"] * 2
    assert marked(w) == ({2, 3, 4}, {2, 3, 4})
    w.agreed()


@in_world(1, 2, 3, 4, 5)
async def test_a_mark_names_the_drain_its_caller_its_reason_and_its_time(w: World) -> None:
    await running(w)
    pid = await draining(w, 2, 1, reason="new disks")
    submitted_ms = w.term.procedures.engine.records[pid].submitted_ms
    mark = DrainMark("new disks", "uid 0", submitted_ms, pid, cordons=True)
    assert await drain_marks(w) == {1: mark, 2: mark}


@in_world(1, 2, 3, 4, 5)
async def test_an_undone_drain_does_not_end_before_its_marks_are_gone(w: World) -> None:
    await running(w)
    await views(w)[1].cordon(CordonRequest(brokers=[5]), "uid 1")
    with mock.patch.object(kind, "brokers_are_behind", return_value=True):
        pid = await draining(w, 1, 2)
        w.restrict(PATH)
        await view_of(w).abort(pid)
        await asyncio.sleep(5)
        await w.settle()
        found = await view_of(w).one(pid, 0)
        assert not found.ended
        assert "/regent/cordons cannot be written (NO_AUTH): check its ACL" in found.error
        assert marked(w)[0] == {1, 2}
        w.restrict(PATH, ALL)
        await asyncio.sleep(60)
        assert (await ended(w, pid)).state == "rolledback"
    assert await drain_marks(w) == {}
    assert marked(w) == (set(), {5})
