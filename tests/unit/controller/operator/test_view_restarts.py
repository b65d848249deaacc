"""Brokers that stop or are restarted, as a daemon answers its operators: active, standby, suspended, while they go."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from controller.http.documents import NotActive, ViewRefused
from controller.operator.restarts import ATTEMPTS_MAX, RestartQuery, in_turns, restart_item
from controller.operator.view import View
from state_machines.decisions.restarts import RestartPlan
from state_machines.portions import Portions
from tests.kit.deadlines import eventually
from tests.kit.kafka.model import die, make_cluster
from tests.kit.kafka.role import DAEMON, kafka
from tests.kit.view_kit import dies, governed

ALL = RestartQuery({}, 1_000, frozenset())


async def test_an_active_daemon_judges_by_its_model_and_the_brokers_min_isr(tmp_path: Path) -> None:
    """The topic payments is on brokers 3 and 1 alone, and min.insync.replicas is 2."""
    async with governed(tmp_path) as (cluster, _, view):
        allowed = await view.restarts.can_stop(frozenset({2}), frozenset())
        assert (allowed.allowed, allowed.partitions, allowed.hindrances) == (True, 2, [])
        refused = await view.restarts.can_stop(frozenset({1}), frozenset())
        [one] = refused.hindrances
        assert (refused.allowed, one.cause, one.count, one.examples) == (False, "below-min-isr", 1, ["payments-0"])
        assert "min.insync.replicas" in one.remedy
        removal = await view.restarts.can_remove(frozenset({2, DAEMON}))
        assert [one.cause for one in removal.hindrances] == ["assigned", "controller"]
        plan = await view.restarts.next(ALL)
        assert (plan.state, plan.batch, plan.pending) == ("restart", [2], [1, 2, 3])
        epoch = cluster.brokers[2].epoch
        earlier = await view.restarts.next(RestartQuery({1: -1, 2: epoch}, 1, frozenset()))
        assert (earlier.batch, earlier.restarted) == ([2], [1])
        await dies(cluster, 2)
        await eventually(lambda: [b.id for b in view.brokers.listed() if b.state == "live"] == [1, 3])
        waits = await view.restarts.next(RestartQuery({1: -1, 2: epoch}, 1, frozenset()))
        assert (waits.state, waits.why) == ("wait", "broker 2 must come back first; 1 of 2 were restarted")


async def test_a_standby_answers_by_the_name_of_the_active_daemon(tmp_path: Path) -> None:
    async with kafka(tmp_path) as cluster, cluster.daemon() as daemon:
        view = View(daemon, cluster.dial, cluster.release_of)
        for asked in (
            view.restarts.can_stop(frozenset({1}), frozenset()),
            view.restarts.can_remove(frozenset({1})),
            view.restarts.next(ALL),
        ):
            with pytest.raises(NotActive, match="this daemon is"):
                await asked


async def test_a_model_that_may_be_old_gives_no_yes(tmp_path: Path) -> None:
    async with governed(tmp_path) as (_, daemon, view):
        assert daemon.lease is not None
        with (
            mock.patch.object(daemon.lease, "silent_s", return_value=26.0),
            pytest.raises(ViewRefused, match=r"the model may be old: .* no heartbeat for 26 s"),
        ):
            await view.restarts.can_stop(frozenset({2}), frozenset())


@pytest.mark.parametrize("changes", [0, ATTEMPTS_MAX - 1, ATTEMPTS_MAX])
async def test_a_judgement_is_begun_again_where_brokers_go_meanwhile(changes: int) -> None:
    cluster = make_cluster(brokers=range(10))
    begun: list[int] = []

    def turns() -> Portions[int]:
        begun.append(len(begun))
        if len(begun) <= changes:
            die(cluster, len(begun))
        yield
        return len(begun)

    if changes < ATTEMPTS_MAX:
        assert await in_turns(cluster, turns) == changes + 1
    else:
        with pytest.raises(ViewRefused, match="no answer would hold"):
            await in_turns(cluster, turns)
        assert len(begun) == ATTEMPTS_MAX


def plans() -> Iterator[tuple[RestartPlan, str, str]]:
    batch = RestartPlan((1, 4), "a", (1, 2, 4), (3,), ())
    yield batch, "restart", "restart brokers 1, 4 of rack a now; 1 of 4 were restarted"
    alone = RestartPlan((1,), None, (1,), (), ())
    yield alone, "restart", "restart broker 1 now; 0 of 1 were restarted"
    yield RestartPlan((), None, (), (1, 2), ()), "done", "all 2 brokers were restarted"
    down = RestartPlan((), None, (1,), (), (2, 3))
    yield down, "wait", "brokers 2, 3 must come back first; 0 of 3 were restarted"
    blocked = RestartPlan((), None, (1, 2), (), (), nearest=2)
    yield blocked, "wait", "no broker may stop now, broker 2 is nearest to it; 0 of 2 were restarted"


@pytest.mark.parametrize(("plan", "state", "why"), list(plans()))
def test_a_plan_has_its_state_and_one_sentence(plan: RestartPlan, state: str, why: str) -> None:
    found = restart_item(plan)
    assert (found.state, found.why) == (state, why)
