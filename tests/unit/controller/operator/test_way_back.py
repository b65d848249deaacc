"""The way back of plans and drains that have ended: planned by the daemon, also by the next one, and carried out."""

from __future__ import annotations

import pytest

from controller.http.documents import NotFound, ViewRefused
from controller.http.procedures import Procedure
from controller.operator.drains import UndrainRequest
from controller.operator.plan_requests import Move, ReassignRequest
from tests.kit.kafka.reassignments import alter, caught_up, written
from tests.kit.kafka.world import KafkaWorld, in_world
from tests.unit.controller.kafka.procedures.test_drain import drained, ended, running, views
from tests.unit.controller.operator.test_view_procedures import plans, view_of

AT_FIRST = {**{("t", number): (1, 2, 3) for number in range(4)}, ("u", 0): (1,)}


def placed(w: KafkaWorld) -> dict[tuple[str, int], tuple[int, ...]]:
    return {name: written(w, *name).replicas for name in w.states}


async def applied(w: KafkaWorld, moves: list[Move]) -> Procedure:
    """Applies planned moves as the command does, and plays brokers to the end."""
    planned = [move.model_copy(update={"status": "queued"}) for move in moves if move.status == "planned"]
    return await ended(w, (await plans(view_of(w)).apply(ReassignRequest(moves=planned), "uid 0")).pid)


@pytest.mark.parametrize("restarted", [False, True])
@in_world(1, 2, 3, 4)
async def test_a_drain_with_replicas_is_taken_back_after_its_end_also_by_another_daemon(
    w: KafkaWorld, restarted: bool
) -> None:
    await running(w)
    found = await drained(w, 1, replicas=True)
    assert all(1 not in replicas for replicas in placed(w).values())
    if restarted:
        await w.active.crash()
        await w.begin_term()
    before = await plans(view_of(w)).way_back(found.pid)
    assert {(move.topic, move.partition): move.target for move in before} == AT_FIRST
    assert {move.status for move in before} == {"planned"}, "its brokers take replicas again once they are undrained"
    await views(w)[0].undrain(UndrainRequest(brokers=[1]))
    await w.settle()
    assert (await applied(w, before)).result == "5 done"
    assert placed(w) == AT_FIRST
    w.agreed()


@in_world(1, 2, 3, 4)
async def test_a_drain_without_replicas_has_no_way_back_but_its_marks(w: KafkaWorld) -> None:
    await running(w)
    assert await plans(view_of(w)).way_back((await drained(w, 2)).pid) == []


@in_world(1, 2, 3, 4)
async def test_what_another_client_has_moved_since_is_refused_and_stays(w: KafkaWorld) -> None:
    await running(w)
    moves = [Move(topic="t", partition=number, target=(4, 2, 3)) for number in range(2)]
    plan = await plans(view_of(w)).apply(ReassignRequest(moves=moves), "uid 0")
    with pytest.raises(ViewRefused, match="has not ended"):
        await plans(view_of(w)).way_back(plan.pid)
    await ended(w, plan.pid)
    assert not await alter(w, {("t", 0): (1, 4)})
    for _ in range(3):
        await caught_up(w)
        await w.settle()
    back = await plans(view_of(w)).way_back(plan.pid)
    assert [(one.partition, one.status) for one in back] == [(1, "planned"), (0, "refused")]
    assert "it was moved since" in back[1].why
    await applied(w, back)
    assert (placed(w)["t", 0], placed(w)["t", 1]) == ((1, 4), (1, 2, 3))
    with pytest.raises(NotFound):
        await plans(view_of(w)).way_back(99)
