"""Rolling restarts that the daemon keeps: batches by their epochs, through failovers, pauses and queries."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from msgspec.structs import replace

from controller.http.documents import NotFound, ViewRefused
from controller.http.procedures import Procedure
from controller.kafka.procedures import restart as kind
from controller.kafka.procedures.restart import LOOK_AGAIN_MS, PAUSED, encode_restart, name_batches, restart_of
from controller.operator.pauses import PauseRequest, PauseView
from controller.operator.restarts import (
    RestartNext,
    RestartQuery,
    RestartRequest,
    RestartView,
    chosen,
    of_kept,
    over,
    query_of,
)
from metadata_store import paths
from state_machines.decisions import restarts as module
from state_machines.decisions.hindrances import StopCause
from state_machines.decisions.restarts import RestartPlan, RollingRestart
from state_machines.portions import Portions
from state_machines.procedures.outcome import Wait
from state_machines.procedures.record import Caller, Record
from state_machines.procedures.states import State
from tests.kit.kafka.cluster import registration
from tests.kit.kafka.plans import begun, in_sync, passes, restarted, serving
from tests.kit.kafka.reassignments import propagated
from tests.kit.kafka.world import KafkaWorld, in_world
from tests.unit.controller.operator.test_view_procedures import view_of

ALL = RestartQuery({}, 1_000, frozenset())


def view(w: KafkaWorld) -> RestartView:
    present: Any = SimpleNamespace(active=lambda: w.term)
    return RestartView(present, view_of(w))


def record(restart: RollingRestart) -> Record:
    return Record(7, "restart", State.RUNNABLE, 0, 0, 0, data=encode_restart(restart))


async def shown(w: KafkaWorld, pid: int) -> Procedure:
    await passes(w)
    return await view_of(w).one(pid, 0)


@in_world(1, 2, 3, auto_leader_rebalance_enable=False)
async def test_each_broker_is_named_once_and_the_restart_ends_when_all_are_back(w: KafkaWorld) -> None:
    await begun(w)
    pid = (await view(w).begin(RestartRequest(reason="new kernel"), "uid 0")).pid
    named: list[int] = []
    for _ in range(3):
        found = await shown(w, pid)
        [broker] = restart_of(w.term.procedures.engine.records[pid]).batch
        assert found.detail == f"restart broker {broker} now; {len(named)} of 3 were restarted"
        named.append(broker)
        w.die(broker)
        assert (await shown(w, pid)).detail.startswith(f"broker {broker} must come back first")
        await w.boot(broker)
        await w.settle()
        assert "no broker may stop now" in (await shown(w, pid)).detail or broker == named[-1] == 3
        await in_sync(w)
    found = await shown(w, pid)
    assert (sorted(named), found.state, found.result) == ([1, 2, 3], "success", "all 3 brokers were restarted")
    assert found.detail == found.result, "the list has the end, and no broker that has to come back"


@in_world(1, 2, 3, auto_leader_rebalance_enable=False)
async def test_a_restart_goes_on_after_a_failover_with_the_epochs_of_its_begin(w: KafkaWorld) -> None:
    await begun(w)
    pid = (await view(w).begin(RestartRequest(), "uid 0")).pid
    await passes(w)
    await w.active.crash()
    await w.bounce(1)
    await serving(w)
    await in_sync(w)
    assert (await shown(w, pid)).detail == "restart broker 2 now; 1 of 3 were restarted"


@in_world(1, 2, 3, auto_leader_rebalance_enable=False)
async def test_a_pause_names_no_further_batch_and_the_one_that_was_named_stands(w: KafkaWorld) -> None:
    await begun(w)
    pid = (await view(w).begin(RestartRequest(), "uid 0")).pid
    await passes(w)
    pauses = PauseView(lambda: w.term)
    await pauses.pause(PauseRequest(), "uid 0")
    assert (await shown(w, pid)).detail == "restart broker 1 now; 0 of 3 were restarted"
    await restarted(w, 1)
    assert (await shown(w, pid)).detail == PAUSED
    await pauses.resume()
    assert (await shown(w, pid)).detail == "restart broker 2 now; 1 of 3 were restarted"


@in_world(1, 2, 3, auto_leader_rebalance_enable=False)
async def test_a_query_without_a_start_takes_the_one_of_the_restart_that_runs_or_has_ended(w: KafkaWorld) -> None:
    await begun(w)
    assert chosen(w.term, None) is None
    epochs = {broker: w.broker_epoch(broker) for broker in (1, 2)}
    request = RestartRequest(brokers=[2, 1], batch_max=4, accept=[StopCause.SINGLE_REPLICA])
    pid = (await view(w).begin(request, "uid 0")).pid
    await passes(w)
    found = chosen(w.term, None)
    assert found is not None
    expected = RestartQuery(epochs, 4, frozenset({StopCause.SINGLE_REPLICA}))
    assert (found.pid, query_of(found, ALL)) == (pid, expected)
    assert query_of(found, RestartQuery({}, 1, frozenset())).batch_max == 1
    await restarted(w, 1)
    await passes(w)
    await restarted(w, 2)
    await passes(w)
    found = chosen(w.term, None)
    assert found is not None
    assert found.state.is_final
    told = [over(found, named=named) for named in (True, False)]
    done = f"restart {pid} has ended: all 2 brokers were restarted"
    assert [(one.state, one.why) for one in told if one is not None] == [
        ("done", done),
        ("ended", f"{done}; regent restart begin begins another"),
    ]


@in_world(1, 2, 3, auto_leader_rebalance_enable=False)
async def test_an_aborted_restart_has_ended_and_a_second_one_beside_another_is_refused(w: KafkaWorld) -> None:
    await begun(w)
    pid = (await view(w).begin(RestartRequest(), "uid 0")).pid
    with pytest.raises(ViewRefused, match=f"restart {pid} runs already"):
        await view(w).begin(RestartRequest(), "uid 0")
    running = chosen(w.term, pid)
    assert running is not None
    assert over(running, named=True) is None
    await view_of(w).abort(pid, "uid 0", "wrong kernel")
    await passes(w)
    for asked in (None, pid):
        found = chosen(w.term, asked)
        assert found is not None
        told = over(found, named=asked is not None)
        assert told is not None
        why = f"restart {pid} was ended by uid 0 (wrong kernel); regent restart begin begins another"
        assert (told.state, told.pid, told.why, told.batch) == ("ended", pid, why, [])
    with pytest.raises(NotFound, match="no restart has pid 99"):
        chosen(w.term, 99)
    second = (await view(w).begin(RestartRequest(), "uid 0")).pid
    found = chosen(w.term, None)
    assert (found.pid if found is not None else 0) == second, "one that runs comes before one that has ended"
    with pytest.raises(ViewRefused, match=r"brokers \[9\] are not registered"):
        await view(w).begin(RestartRequest(brokers=[9, 1]), "uid 0")


@pytest.mark.parametrize(
    ("paused", "batch", "state"),
    [(False, [2], "restart"), (True, [2], "wait"), (True, [1], "restart"), (True, [1, 2], "wait"), (True, [], "wait")],
)
def test_no_further_batch_is_named_while_moves_are_paused(paused: bool, batch: list[int], state: str) -> None:
    restart = encode_restart(RollingRestart(((1, 10), (2, 20)), batch=(1,)))
    kept = Record(7, "restart", State.WAITING_TIMEOUT, 0, 0, 0, data=restart)
    found = of_kept(RestartNext(state="restart" if batch else "wait", why="", batch=batch), kept, paused=paused)
    assert (found.pid, found.state, found.batch) == (7, state, batch if state == "restart" else [])


@pytest.mark.parametrize(("named", "state"), [(True, "done"), (False, "ended")])
def test_a_complete_restart_is_done_for_queries_that_name_it_alone(named: bool, state: str) -> None:
    kept = record(RollingRestart(((1, 10),)))
    found = of_kept(RestartNext(state="done", why="all 1 brokers were restarted"), kept, paused=False, named=named)
    assert (found.state, "has ended" in found.why) == (state, not named)


@pytest.mark.parametrize(
    ("paused", "stored", "judged", "batch", "why"),
    [
        (False, (1,), (1, 2), (1, 2), "restart brokers 1, 2 now; 0 of 3 were restarted"),
        (False, (1, 2), (3,), (3,), "restart broker 3 now; 0 of 3 were restarted"),
        (False, (1,), (), (), "no broker may stop now, broker 2 is nearest to it; 0 of 3 were restarted"),
        (True, (1,), (1, 2), (), PAUSED),
        (True, (1,), (2,), (), PAUSED),
        (True, (), (3,), (), PAUSED),
        (True, (1, 2), (2,), (2,), "restart broker 2 now; 0 of 3 were restarted"),
        (True, (1,), (), (), "no broker may stop now, broker 2 is nearest to it; 0 of 3 were restarted"),
    ],
)
async def test_each_judgement_is_taken_once_and_stored_where_it_changes_what_is_named(
    paused: bool, stored: tuple[int, ...], judged: tuple[int, ...], batch: tuple[int, ...], why: str
) -> None:
    plan = RestartPlan(judged, None, (1, 2, 3), (), (), nearest=2)
    kept = RollingRestart(((1, 10), (2, 20), (3, 30)), 5, batch=stored, why="before")
    env: Any = SimpleNamespace(
        controller=SimpleNamespace(pauses=SimpleNamespace(in_force=object() if paused else None)),
        judged={7: plan, 8: plan},
        now_ms=lambda: 9_000,
    )
    after = replace(kept, batch=batch, why=why)
    for before, is_durable in ((kept, True), (after, False)):
        env.judged[7] = plan
        found = await name_batches(env, record(before))
        assert found == Wait(9_000 + LOOK_AGAIN_MS, encode_restart(after), durable=is_durable)
        assert env.judged == {8: plan}


@in_world(1, 2, 3, auto_leader_rebalance_enable=False)
async def test_a_judgement_that_fails_is_begun_again_and_holds_the_restart_up_no_longer(w: KafkaWorld) -> None:
    await begun(w)
    with mock.patch.object(kind, "restarting", side_effect=ValueError("a test")) as judgements:
        pid = (await view(w).begin(RestartRequest(), "uid 0")).pid
        await passes(w, kind.JUDGED_WITHIN_MS / 1_000 * 2)
        assert judgements.call_count in (2, 3), "not at once, and not never"
    await passes(w, kind.JUDGED_WITHIN_MS / 1_000 + 1)
    assert (await shown(w, pid)).detail == "restart broker 1 now; 0 of 3 were restarted"


@in_world(1, 2, 3, auto_leader_rebalance_enable=False)
async def test_a_second_restart_names_nothing_before_the_first_has_ended(w: KafkaWorld) -> None:
    await begun(w)
    engine = w.term.procedures.engine
    first = (await view(w).begin(RestartRequest(brokers=[1]), "uid 0")).pid
    data = encode_restart(RollingRestart(((2, w.broker_epoch(2)),)))
    second = await engine.submit("restart", data, Caller(principal="User:ops", nonce="two"))
    await passes(w)
    assert [restart_of(engine.records[pid]).batch for pid in (first, second)] == [(1,), ()]
    await restarted(w, 1)
    await passes(w)
    assert (engine.records[first].state, restart_of(engine.records[second]).batch) == (State.SUCCESS, (2,))


@in_world(1, 2, 3, auto_leader_rebalance_enable=False)
async def test_a_new_term_knows_min_insync_replicas_before_a_restart_names_a_broker(w: KafkaWorld) -> None:
    """Its first judgement must not take the value for unknown, which this restart accepts."""
    await w.topic("t", (1, 2, 3), leaders=True)
    await w.begin_term()
    await propagated(w)
    for broker in (1, 2, 3):
        w.knows[broker], w.reports[broker] = {}, {"min.insync.replicas": "3"}
    since = tuple((broker, w.broker_epoch(broker)) for broker in (1, 2, 3))
    data = encode_restart(RollingRestart(since, accepted=(StopCause.MIN_ISR_UNKNOWN,)))
    pid = await w.term.procedures.engine.submit("restart", data, Caller(principal="User:ops", nonce="one"))
    for _ in range(3):
        await passes(w)
        kept = restart_of(w.term.procedures.engine.records[pid])
        assert kept.batch == ()
        assert kept.why.startswith("no broker may stop now")


@pytest.mark.parametrize(
    ("batch_max", "accept", "batch"),
    [(1, [StopCause.SINGLE_REPLICA], (1,)), (2, [StopCause.SINGLE_REPLICA], (1, 2)), (2, [], ())],
)
@in_world(1, 2, 3, auto_leader_rebalance_enable=False)
async def test_a_batch_is_as_large_as_the_request_allows_and_takes_what_it_accepts(
    w: KafkaWorld, batch_max: int, accept: list[StopCause], batch: tuple[int, ...]
) -> None:
    for broker in (1, 2):
        await w.brokers[broker].set(paths.broker(broker), registration(broker, rack="a"), -1)
    await w.topic("t", (1,), (2,), (3,), leaders=True)
    await serving(w)
    pid = (await view(w).begin(RestartRequest(batch_max=batch_max, accept=accept), "uid 0")).pid
    await passes(w)
    assert restart_of(w.term.procedures.engine.records[pid]).batch == batch


@in_world(1, 2, 3, auto_leader_rebalance_enable=False)
async def test_a_judgement_during_which_a_broker_goes_is_begun_anew(w: KafkaWorld) -> None:
    await begun(w)
    judged: list[list[int]] = []

    def restarting(*given: Any) -> Portions[RestartPlan]:
        judged.append(sorted(w.term.cluster.live))
        found = yield from module.restarting(*given)
        if len(judged) == 1:
            assert found.batch == (1,)
            w.die(3)
        for _ in range(50):
            yield
        return found

    with mock.patch.object(kind, "restarting", restarting):
        pid = (await view(w).begin(RestartRequest(), "uid 0")).pid
        await passes(w, LOOK_AGAIN_MS / 2_000)
    kept = restart_of(w.term.procedures.engine.records[pid])
    assert judged == [[1, 2, 3], [1, 2]]
    assert (kept.batch, kept.why) == ((), "broker 3 must come back first; 0 of 3 were restarted")
