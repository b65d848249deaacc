"""The operators' view of procedures: of the engine on the active daemon, of ZooKeeper's records on any other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from brokers.client import BrokerCallFailed
from controller.daemon.state import Mode
from controller.http.documents import NotActive, NotFound, ViewRefused
from controller.kafka.procedures import reassign
from controller.operator.gauges import procedures_of
from controller.operator.plan_requests import Move, ReassignCommand, ReassignRequest
from controller.operator.plans import PlanView
from controller.operator.procedures import ProcedureView
from controller.procedures import parking
from controller.procedures.engine import Engine
from controller.procedures.parking import TERMS_MAX
from controller.procedures.stepping import Stepping
from controller.role import own_znodes as own
from metadata_store import paths
from metadata_store.records.port import StoreFailed, Unstorable
from state_machines.model.min_isr import UNKNOWN, MinIsr
from state_machines.model.types import Broker, LogDirectory, ReplicaLog, TopicPartition
from state_machines.procedures.record import Record
from tests.kit.kafka.reassignments import alter, caught_up, propagated, written
from tests.kit.kafka.world import KafkaWorld, Seat, in_world


def view_of(w: KafkaWorld, seat: Seat | None = None) -> ProcedureView:
    """Returns the view of the active daemon, or of another one that stands by with a session of its own."""
    mode = Mode.ACTIVE if seat is None else Mode.STANDBY
    daemon: Any = SimpleNamespace(
        role=(seat or w.active).role, mode=mode, why="it waits in the queue", parking=w.parking
    )
    return ProcedureView(daemon, lambda: w.term if seat is None else None, lambda: "query the active daemon")


def plans(view: ProcedureView) -> PlanView:
    return PlanView(view, lambda: "here")


def request(**more: Any) -> ReassignRequest:
    return ReassignRequest(moves=[Move(topic="t", partition=number, target=(3,)) for number in range(2)], **more)


async def running(w: KafkaWorld) -> ProcedureView:
    await w.topic("t", (1, 2), (1, 2), leaders=True)
    await w.begin_term()
    await propagated(w)
    return view_of(w)


@contextmanager
def faulty(kind: str) -> Iterator[None]:
    """Has each step of a kind end the term, as a fault of the kernel, a codec or the model does."""
    changed = Stepping._changed

    def broken(self: Any, record: Record, act: Any, outcome: Any) -> Any:
        if record.kind == kind:
            raise KeyError(99)
        return changed(self, record, act, outcome)

    with mock.patch.object(Stepping, "_changed", broken):
        yield


@in_world(1, 2, 3)
async def test_a_plan_that_ends_terms_is_parked_and_the_cluster_is_controlled(w: KafkaWorld) -> None:
    view = await running(w)
    with faulty("reassign"):
        await plans(view).apply(request(), "uid 0")
        for _ in range(TERMS_MAX):
            await w.settle()
            assert w.active.running is not None
            await asyncio.wait_for(w.active.running, 10)
            await w.active.crash()
            await w.begin_term()
        view = view_of(w)
        await propagated(w)
        [listed] = await view.list_all()
        assert "ended 3 terms in a row: KeyError: 99" in listed.parked
        assert procedures_of(w.term).parked == 1
        assert await w.term.procedures.hold(1.0) == [], "a hand-back leaves it alone"
        assert list(w.parking.parked) == [listed.pid]
        w.die(1)
        await w.settle()
        assert w.states["t", 0].leader == 2, "leaders are elected as ever"
        assert (await view.bypass(listed.pid, "uid 0", "it ends terms")).bypassed
        await w.settle()
        assert (await view.one(listed.pid, 1)).ended


@in_world(1, 2, 3)
async def test_a_plan_is_bypassed_before_the_records_are_used_again(w: KafkaWorld) -> None:
    """Its record is refused: procedures stand still, and the next load would run the same step."""
    view = await running(w)
    begun = await plans(view).apply(request(), "uid 0")
    await w.settle()
    refused = Unstorable("its record is refused")
    w.term.procedures.parking.blame([begun.pid], refused)
    w.term.procedures._fail(refused)
    with pytest.raises(NotActive):
        view.locks()
    found = await view.bypass(begun.pid, "uid 0", "it is refused")
    assert (found.bypassed, found.end_reason) == (True, "it is refused")
    await w.settle()
    assert (await view.one(begun.pid, 1)).ended


@in_world(1, 2, 3)
async def test_a_record_that_cannot_be_used_is_removed_before_the_records_are_used_again(w: KafkaWorld) -> None:
    view = await running(w)
    await plans(view).apply(request(paused=True), "uid 0")
    w.term.procedures._fail(StoreFailed("ZooKeeper is slow"))
    path = f"{own.PROCEDURES}/0000009999"
    await w.operator.create(path, b"{")
    found = await view.remove(9999, "uid 0", "it was damaged")
    assert (found.state, found.end_requested, found.end_reason) == ("removed", "remove", "it was damaged")
    assert await w.operator.exists(path) is None
    assert (await view.remove(9999, "uid 0", "again")).state == "removed"


@in_world(1, 2, 3)
async def test_a_request_while_the_records_cannot_be_read_is_refused_with_the_cause(w: KafkaWorld) -> None:
    view = await running(w)
    begun = await plans(view).apply(request(), "uid 0")
    await w.settle()
    w.term.procedures._fail(StoreFailed("the first cause"))
    with (
        mock.patch.object(parking, "EARLY_S", 0.1),
        mock.patch.object(Engine, "load", side_effect=StoreFailed("ZooKeeper is full")),
        pytest.raises(
            ViewRefused, match=r"no term of this daemon began .* \(procedures stand still: ZooKeeper is full\)"
        ),
    ):
        await view.bypass(begun.pid, "uid 0", "")


@in_world(1, 2, 3)
async def test_a_standby_whose_term_has_ended_by_a_procedure_answers_at_once(w: KafkaWorld) -> None:
    """It remembers suspects, and another daemon is active: no term of this one comes."""
    begun = await plans(await running(w)).apply(request(), "uid 0")
    w.parking.blame([begun.pid, 99], Unstorable("its record is refused"))
    standby = view_of(w, await w.seat())
    for act in (standby.abort, standby.bypass, standby.remove):
        with pytest.raises(NotActive, match="this daemon is standby: it waits in the queue"):
            await asyncio.wait_for(act(begun.pid, "uid 0", ""), 2)


@pytest.mark.seed("S2-9", "S2-14")
@in_world(1, 2, 3)
async def test_a_plan_is_applied_listed_followed_and_has_its_result(w: KafkaWorld) -> None:
    view = await running(w)
    begun = await plans(view).apply(request(reason="rack 3 is full", moves_max=1), "uid 0")
    await w.settle()
    [listed] = await view.list_all()
    assert (listed.pid, listed.kind, listed.principal, listed.reason) == (
        begun.pid,
        "reassign",
        "uid 0",
        "rack 3 is full",
    )
    assert (listed.detail, listed.step, listed.ended) == ("1 queued, 1 begun", "move replicas", False)
    assert [(move.origin, move.status) for move in await plans(view).moves(begun.pid)] == [
        ((1, 2), "begun"),
        ((1, 2), "queued"),
    ]
    [lock] = view.locks()
    assert (lock.pid, lock.resource, lock.exclusive, lock.waiting) == (begun.pid, "server reassignments", True, False)
    waiting = asyncio.ensure_future(view.one(begun.pid, 60.0))
    for _ in range(4):
        await caught_up(w)
        await w.settle()
    ended = await waiting
    assert (ended.state, ended.result, ended.ended) == ("success", "2 done", True)
    assert written(w, "t").replicas == (3,)


@in_world(1, 2, 3)
async def test_a_standby_shows_the_records_in_zookeeper_and_changes_nothing(w: KafkaWorld) -> None:
    begun = await plans(await running(w)).apply(request(paused=True), "uid 0")
    await w.settle()
    standby = view_of(w, await w.seat())
    [found] = await standby.list_all()
    assert (found.pid, found.detail) == (begun.pid, "2 queued; paused")
    assert (await standby.one(begun.pid, 5.0)).pid == begun.pid
    for work in (standby.abort(begun.pid), plans(standby).apply(request(), "uid 0")):
        with pytest.raises(NotActive, match="this daemon is standby: it waits in the queue"):
            await work


@in_world(1, 2, 3)
async def test_a_plan_that_the_cluster_does_not_match_is_refused_with_every_difference(w: KafkaWorld) -> None:
    view = await running(w)
    moves = [
        Move(topic="t", partition=0, origin=(2, 1), target=(3,)),
        Move(topic="t", partition=1, target=(3, 9)),
        Move(topic="t", partition=1, target=(3,)),
        Move(topic="gone", partition=0, target=(3,)),
    ]
    with pytest.raises(ViewRefused) as refused:
        await plans(view).apply(ReassignRequest(moves=moves), "uid 0")
    for part in (
        "t-0 has replicas [1, 2], the plan expects [2, 1]",
        "t-1 cannot have replicas [3, 9]: an added replica's broker is not live: start it first",
        "t-1 is named twice",
        "gone-0 does not exist",
    ):
        assert part in refused.value.message
    assert not await view.list_all()


@in_world(1, 2, 3)
async def test_a_plan_with_many_differences_names_some_and_counts_the_others(w: KafkaWorld) -> None:
    view = await running(w)
    moves = [Move(topic="gone", partition=number, target=(3,)) for number in range(25)]
    with pytest.raises(ViewRefused, match=r"gone-19 does not exist; and 5 more$") as refused:
        await plans(view).apply(ReassignRequest(moves=moves), "uid 0")
    assert "from a new snapshot: regent snapshot" in refused.value.remedy


@in_world(1, 2, 3)
async def test_a_plan_of_another_cluster_is_refused(w: KafkaWorld) -> None:
    view = await running(w)
    with pytest.raises(ViewRefused, match="the plan is for cluster there, and this is here"):
        await plans(view).apply(request(cluster_id="there"), "uid 0")
    assert (await plans(view).apply(request(cluster_id="here"), "uid 0")).pid


@in_world(1, 2, 3)
async def test_a_dry_run_starts_nothing(w: KafkaWorld) -> None:
    view = await running(w)
    assert (await plans(view).apply(request(dry_run=True), "uid 0")).state == "planned"
    await w.settle()
    assert w.node(own.PROCEDURES) is None


@in_world(1, 2, 3)
async def test_a_repeated_call_finds_its_plan_although_the_cluster_has_changed_since(w: KafkaWorld) -> None:
    view = await running(w)
    begun = await plans(view).apply(request(nonce="n"), "uid 0")
    await w.settle()
    assert (await plans(view).apply(request(nonce="n"), "uid 0")).pid == begun.pid
    with pytest.raises(ViewRefused, match=rf"plan {begun.pid} moves 2 of these 2 partitions: t-0, t-1"):
        await plans(view).apply(request(nonce="other"), "uid 0")


@in_world(1, 2, 3)
async def test_a_call_that_is_repeated_while_its_plan_is_stored_finds_that_plan(w: KafkaWorld) -> None:
    view = await running(w)
    calls = [asyncio.ensure_future(plans(view).apply(request(nonce="n"), "uid 0"))]
    while not calls[0].done():
        await asyncio.sleep(0)
        calls.append(asyncio.ensure_future(plans(view).apply(request(nonce="n"), "uid 0")))
    assert len(calls) > 4
    assert {one.pid for one in await asyncio.gather(*calls)} == {calls[0].result().pid}


@in_world(1, 2, 3)
async def test_of_two_plans_of_a_partition_that_are_applied_at_the_same_moment_the_second_is_refused(
    w: KafkaWorld,
) -> None:
    view = await running(w)
    both = [plans(view).apply(request(), "uid 0"), plans(view).apply(request(), "uid 1")]
    found = await asyncio.gather(*both, return_exceptions=True)
    [begun] = [one for one in found if not isinstance(one, BaseException)]
    [refused] = [one for one in found if isinstance(one, ViewRefused)]
    assert f"plan {begun.pid} moves 2 of these 2 partitions: t-0, t-1" in refused.message
    assert f"regent procedures wait {begun.pid}" in refused.message
    assert [one.pid for one in await view.list_all()] == [begun.pid]


@in_world(1, 2, 3)
async def test_operations_on_what_is_not_there_name_it(w: KafkaWorld) -> None:
    view = await running(w)
    with pytest.raises(NotFound, match="procedure 7 is not known"):
        await view.one(7, 0)
    with pytest.raises(NotFound, match="no reassign plan has pid 7"):
        await plans(view).moves(7)
    for work in (view.abort(7), view.bypass(7), plans(view).command(7, ReassignCommand(paused=True))):
        with pytest.raises(ViewRefused, match="pid 7: it is not known"):
            await work


@in_world(1, 2, 3)
async def test_what_has_ended_is_neither_aborted_nor_bypassed_nor_changed(w: KafkaWorld) -> None:
    view = await running(w)
    begun = await plans(view).apply(request(), "uid 0")
    for _ in range(4):
        await caught_up(w)
        await w.settle()
    for work in (
        view.abort(begun.pid),
        view.bypass(begun.pid),
        plans(view).command(begun.pid, ReassignCommand(stop=True)),
    ):
        with pytest.raises(ViewRefused, match=f"pid {begun.pid}: it has "):
            await work


@in_world(1, 2, 3)
async def test_records_that_cannot_be_used_are_listed_with_the_reason_and_removed_by_the_command_of_the_refusals(
    w: KafkaWorld,
) -> None:
    view = await running(w)
    begun = await plans(view).apply(request(paused=True), "uid 0")
    await w.settle()
    await w.operator.create(f"{own.PROCEDURES}/0000009999", b"{")
    await w.active.crash()
    await w.begin_term()
    found = {item.pid: item.unusable for item in await view_of(w).list_all()}
    assert found[begun.pid] == ""
    assert "JSON" in found[9999] or "Input data" in found[9999]
    view = view_of(w)
    for work in (view.abort(9999), view.bypass(9999), view.cancel(9999)):
        with pytest.raises(ViewRefused, match="pid 9999: ") as refused:
            await work
        assert refused.value.remedy == "'regent procedures remove 9999' removes it"
    with pytest.raises(ViewRefused, match=f"pid {begun.pid}: its record can be used"):
        await view.remove(begun.pid, "uid 7", "")
    removed = await view.remove(9999, "uid 7", " a stray\n record ")
    assert (removed.pid, removed.state, removed.end_principal, removed.end_reason) == (
        9999, "removed", "uid 7", "a stray record",
    )  # fmt: skip
    assert [one.pid for one in await view.list_all()] == [begun.pid]
    assert await w.operator.exists(f"{own.PROCEDURES}/0000009999") is None
    [told] = [row.why for row in w.book.read() if row.pid == 9999]
    assert told == "its record could not be used, and is removed by uid 7 (a stray record): all else stays as it is"


# -- progress


def measured_by(w: KafkaWorld, logs: dict[int, dict[TopicPartition, int]], growth_bytes: int = 0) -> list[int]:
    """Lets brokers report logs of so many bytes, 50 records behind; returns the brokers that are queried.

    ``growth_bytes``: what each log gains in a second.
    """
    queried: list[int] = []
    began_s = asyncio.get_running_loop().time()

    @asynccontextmanager
    async def dial(broker: Broker) -> AsyncIterator[Any]:
        queried.append(broker.id)
        if broker.id not in logs:
            raise BrokerCallFailed("connection refused")

        async def replica_logs(partitions: Any, replicas_max: int) -> tuple[LogDirectory, ...]:
            gained = growth_bytes * round(asyncio.get_running_loop().time() - began_s)
            found = [ReplicaLog(*name, size + gained, 50, False) for name, size in logs[broker.id].items()]
            return (
                LogDirectory("/data", 0, tuple(log for log in found if log.partition in partitions.get(log.topic, ()))),
            )

        yield SimpleNamespace(replica_logs=replica_logs)

    w.term.controller.dial = dial
    w.term.cluster.min_isr = MinIsr(1, {})
    return queried


SIZED = [Move(topic="t", partition=number, target=(3,), size_bytes=4_000_000) for number in range(2)]
T0 = TopicPartition("t", 0)


@in_world(1, 2, 3)
async def test_a_throttle_below_the_traffic_that_a_broker_would_copy_is_refused(w: KafkaWorld) -> None:
    view = await running(w)
    logs = {1: {T0: 0, TopicPartition("t", 1): 0}}
    measured_by(w, logs, growth_bytes=60_000)
    began_s = asyncio.get_running_loop().time()
    slow = ReassignRequest(moves=SIZED, rate_bytes_per_s=100_000)
    for dry_run in (True, False):
        with pytest.raises(ViewRefused, match=r"is below the 120\.0 kB/s that producers write to .* which broker 3"):
            await plans(view).apply(slow.model_copy(update={"dry_run": dry_run}), "uid 0")
    assert asyncio.get_running_loop().time() - began_s == pytest.approx(2.0)
    one_at_a_time = slow.model_copy(update={"broker_moves_max": 1})
    assert (await plans(view).apply(one_at_a_time, "uid 0")).state == "runnable"


@in_world(1, 2, 3)
async def test_a_plan_that_runs_gets_no_throttle_below_the_traffic_of_its_moves(w: KafkaWorld) -> None:
    view = await running(w)
    measured_by(w, {1: {T0: 0, TopicPartition("t", 1): 0}}, growth_bytes=60_000)
    begun = await plans(view).apply(ReassignRequest(moves=SIZED, rate_bytes_per_s=500_000), "uid 0")
    for slow in (ReassignCommand(rate_bytes_per_s=100_000), ReassignCommand(paused=False, rate_bytes_per_s=100_000)):
        with pytest.raises(ViewRefused, match=r"is below the 120\.0 kB/s that producers") as refused:
            await plans(view).command(begun.pid, slow)
        assert "give --throttle 240000 or more" in refused.value.remedy
        assert "regent reassign pause" in refused.value.remedy
    assert reassign.plan_of(w.term.procedures.engine.records[begun.pid]).rate_bytes_per_s == 500_000
    for taken in (ReassignCommand(rate_bytes_per_s=0), ReassignCommand(rate_bytes_per_s=100_000, broker_moves_max=1)):
        await plans(view).command(begun.pid, taken)
    with pytest.raises(ViewRefused, match=r"is below the 120\.0 kB/s"):
        await plans(view).command(begun.pid, ReassignCommand(broker_moves_max=2))


@in_world(1, 2, 3)
async def test_a_throttle_between_bounds_is_judged_by_the_upper_one_and_wrong_bounds_are_refused(
    w: KafkaWorld,
) -> None:
    view = await running(w)
    measured_by(w, {1: {T0: 0, TopicPartition("t", 1): 0}}, growth_bytes=60_000)
    slow = ReassignRequest(moves=SIZED, rate_bytes_per_s=10_000, rate_bytes_per_s_max=100_000)
    with pytest.raises(ViewRefused, match=r"throttle of 100\.0 kB/s is below the 120\.0 kB/s"):
        await plans(view).apply(slow, "uid 0")
    for wrong in ({"rate_bytes_per_s": 200_000}, {"rate_bytes_per_s": 0}):
        with pytest.raises(ViewRefused, match="rate_bytes_per_s_max is 100000") as refused:
            await plans(view).apply(slow.model_copy(update=wrong), "uid 0")
        assert "--throttle 1M..50M" in refused.value.remedy
    begun = await plans(view).apply(slow.model_copy(update={"rate_bytes_per_s_max": 500_000}), "uid 0")
    assert "throttle 10.0 kB/s, between 10.0 kB and 500.0 kB: it begins at the lower bound" in begun.detail
    with pytest.raises(ViewRefused, match=r"throttle of 90\.0 kB/s is below"):
        await plans(view).command(begun.pid, ReassignCommand(rate_bytes_per_s=1_000, rate_bytes_per_s_max=90_000))
    changed = await plans(view).command(
        begun.pid, ReassignCommand(rate_bytes_per_s=1_000, rate_bytes_per_s_max=900_000)
    )
    assert "between 1.0 kB and 900.0 kB: an operator has set its bounds" in changed.detail


@in_world(1, 2, 3)
async def test_a_throttle_is_taken_where_no_leader_reports_its_logs(w: KafkaWorld) -> None:
    view = await running(w)
    measured_by(w, {})
    assert (await plans(view).apply(ReassignRequest(moves=SIZED, rate_bytes_per_s=1), "uid 0")).pid


@in_world(1, 2, 3)
async def test_progress_is_measured_at_destinations_alone_and_stands_for_some_seconds(w: KafkaWorld) -> None:
    view = await running(w)
    logs = {3: {T0: 1_000_000}}
    queried = measured_by(w, logs)
    begun = await plans(view).apply(ReassignRequest(moves=SIZED, moves_max=1), "uid 0")
    await w.settle()
    first, second = await plans(view).moves(begun.pid)
    assert queried == [3, 3], "two measurements, for a rate"
    assert (first.copied_bytes, first.size_bytes, first.rate_bytes_per_s) == (1_000_000, 4_000_000, 0)
    assert (first.records_behind, second.copied_bytes) == (50, 0)
    assert second.why == "1 moves are under way, moves_max is 1"
    await asyncio.gather(*(plans(view).moves(begun.pid) for _ in range(5)))
    assert queried == [3, 3]
    logs[3][T0] = 3_000_000
    await asyncio.sleep(4)
    found = await view.one(begun.pid, 0)
    assert queried == [3, 3, 3]
    assert (found.copied_bytes, found.size_bytes, found.detail) == (3_000_000, 8_000_000, "1 queued, 1 begun")
    assert (found.rate_bytes_per_s, found.remaining_s) == (400_000, 13)
    assert found.progress == "3.0 MB of 8.0 MB copied, 400.0 kB/s, 13 s to go"


@in_world(1, 2, 3)
async def test_a_destination_that_sends_no_report_is_named(w: KafkaWorld) -> None:
    view = await running(w)
    measured_by(w, {})
    begun = await plans(view).apply(ReassignRequest(moves=SIZED), "uid 0")
    await w.settle()
    assert {move.why for move in await plans(view).moves(begun.pid)} == {"broker 3 sends no report: connection refused"}


@in_world(1, 2, 3)
async def test_a_standby_shows_what_is_stored_and_says_so(w: KafkaWorld) -> None:
    begun = await plans(await running(w)).apply(ReassignRequest(moves=SIZED), "uid 0")
    await w.settle()
    standby = view_of(w, await w.seat())
    found = await standby.one(begun.pid, 0)
    assert found.progress == "not measured: this daemon is not active, and shows what is stored"
    assert [(move.status, move.copied_bytes) for move in await plans(standby).moves(begun.pid)] == [("begun", None)] * 2


# -- reassignments of other clients


@in_world(1, 2, 3)
async def test_a_reassignment_of_another_client_is_listed_adopted_throttled_and_taken_back(w: KafkaWorld) -> None:
    view = await running(w)
    assert await alter(w, {("t", 0): (3, 2)}) == {}
    [found] = plans(view).reassignments()
    assert (found.by, found.pid, found.origin, found.target, found.adding, found.removing) == (
        "another client", None, (2, 1), (3, 2), (3,), (1,),
    )  # fmt: skip
    move = Move(topic="t", partition=0, target=(3, 2))
    with pytest.raises(ViewRefused, match=r"t-0 is being reassigned to \[3, 2\]: .* adopt it"):
        await plans(view).apply(ReassignRequest(moves=[move]), "uid 0")
    for other, why in (
        (Move(topic="t", partition=0, target=(3,)), r"t-0 is being reassigned to \[3, 2\]"),
        (move.model_copy(update={"origin": (1, 2)}), r"t-0 moves away from \[2, 1\], the plan expects \[1, 2\]"),
    ):
        with pytest.raises(ViewRefused, match=why):
            await plans(view).apply(ReassignRequest(moves=[other], adopts=True), "uid 0")
    begun = await plans(view).apply(ReassignRequest(moves=[move], adopts=True, rate_bytes_per_s=7), "uid 0")
    await w.settle()
    [found] = plans(view).reassignments()
    assert (found.by, found.pid) == ("plan of uid 0", begun.pid)
    rate = b'"follower.replication.throttled.rate":"7"'
    assert rate in (w.node(paths.config("brokers", "3")).data or b"")  # type: ignore[union-attr]
    await view.abort(begun.pid)
    for _ in range(4):
        await caught_up(w)
        await w.settle()
    ended = await view.one(begun.pid, 0)
    assert (ended.state, written(w, "t").replicas, plans(view).reassignments()) == ("rolledback", (2, 1), [])
    assert rate not in (w.node(paths.config("brokers", "3")).data or b"")  # type: ignore[union-attr]


@in_world(1, 2, 3)
async def test_a_bypassed_plan_names_the_throttles_that_it_leaves_and_their_removal(w: KafkaWorld) -> None:
    view = await running(w)
    begun = await plans(view).apply(request(rate_bytes_per_s=7), "uid 0")
    await w.settle()
    await view.bypass(begun.pid)
    await w.settle()
    found = await view.one(begun.pid, 0)
    assert found.bypassed
    assert "throttle settings may still stand, regent throttle clear removes them:" in found.detail
    assert "leader.replication.throttled.rate of broker 1" in found.detail


# -- sizes, time and min.insync.replicas when a plan is applied


@in_world(1, 2, 3)
async def test_sizes_that_a_plan_leaves_out_come_from_leaders_and_a_dry_run_has_bytes_and_time(w: KafkaWorld) -> None:
    view = await running(w)
    queried = measured_by(w, {1: {T0: 5_000_000, TopicPartition("t", 1): 1_000_000}})
    found = await plans(view).apply(request(dry_run=True, rate_bytes_per_s=100_000), "uid 0")
    assert (queried, found.size_bytes, found.remaining_s) == ([1] * 3, 6_000_000, 60), "twice for its traffic"
    assert (found.detail, found.progress) == ("2 queued", "6.0 MB to copy, about 60 s at the throttle")
    begun = await plans(view).apply(request(), "uid 0")
    await w.settle()
    assert [move.size_bytes for move in await plans(view_of(w, await w.seat())).moves(begun.pid)] == [
        5_000_000,
        1_000_000,
    ]


@in_world(1, 2, 3)
async def test_sizes_that_no_leader_reports_hold_up_no_plan(w: KafkaWorld) -> None:
    view = await running(w)
    measured_by(w, {})
    found = await plans(view).apply(request(dry_run=True), "uid 0")
    assert found.progress == "0 B to copy, without 2 moves of unknown size"


@in_world(1, 2, 3)
async def test_a_move_never_goes_below_min_insync_replicas(w: KafkaWorld) -> None:
    view = await running(w)
    w.term.cluster.min_isr = MinIsr(2, {})
    why = (
        r"t-0 cannot have replicas \[3\]: 1 replicas are below min.insync.replicas = 2: give 2 or more, or lower the s"
    )
    with pytest.raises(ViewRefused, match=why):
        await plans(view).apply(request(), "uid 0")
    w.term.cluster.min_isr = MinIsr(2, {"t": 1})
    begun = await plans(view).apply(request(paused=True), "uid 0")
    w.term.cluster.min_isr = MinIsr(2, {})
    await plans(view).command(begun.pid, ReassignCommand(paused=False))
    await w.settle()
    refused = {(move.status, move.why.partition(":")[0]) for move in await plans(view).moves(begun.pid)}
    assert refused == {("refused", "1 replicas are below min.insync.replicas = 2")}
    assert written(w, "t").replicas == (1, 2)


@pytest.mark.parametrize("respond", [True, False], ids=["brokers respond", "no broker responds"])
@in_world(1, 2, 3)
async def test_a_new_term_knows_min_insync_replicas_before_a_plan_begins_a_move(w: KafkaWorld, respond: bool) -> None:
    """The status for operators, which reads it, too, has not looked yet when a term begins."""
    view = await running(w)
    begun = await plans(view).apply(request(paused=True), "uid 0")
    for broker in (1, 2, 3) if respond else ():
        w.knows[broker], w.reports[broker] = {}, {"min.insync.replicas": "2"}
    await w.active.crash()
    await w.begin_term()
    await propagated(w)
    assert w.term.cluster.min_isr is UNKNOWN, "nothing has asked yet"
    view = view_of(w)
    await plans(view).command(begun.pid, ReassignCommand(paused=False))
    await w.settle()
    found = {(move.status, move.why.partition(":")[0]) for move in await plans(view).moves(begun.pid)}
    if respond:
        assert found == {("refused", "1 replicas are below min.insync.replicas = 2")}
        assert written(w, "t").replicas == (1, 2)
    else:  # else no plan would ever go on where the daemon may not describe configurations
        assert "refused" not in {status for status, _ in found}
        assert {1, 2, 3} <= set(w.queried)


@pytest.mark.seed("S3-32")
@in_world(1, 2, 3)
async def test_procedures_are_found_by_what_they_lock_and_what_they_are_about(w: KafkaWorld) -> None:
    view = await running(w)
    begun = await plans(view).apply(request(paused=True), "uid 0")
    await w.settle()
    for topic, broker in (("t", None), (None, 3), ("t", 1)):
        assert [one.pid for one in await view.list_all(topic, broker)] == [begun.pid]
    for topic, broker in (("other", None), (None, 9), ("t", 9)):
        assert not await view.list_all(topic, broker)


# -- requests to end


async def end_told(view: ProcedureView, pid: int) -> tuple[str, str, str, bool]:
    """Returns act, principal and reason of the latest request to end, and whether it has its time."""
    found = await view.one(pid, 0)
    return found.end_requested, found.end_principal, found.end_reason, found.end_at is not None


@in_world(1, 2, 3)
async def test_who_ended_a_procedure_and_why_is_in_its_record_and_in_the_journal(w: KafkaWorld) -> None:
    view = await running(w)
    said = {"abort": "an abort is requested", "cancel": "its end is requested", "bypass": "a bypass is requested"}
    pid = 0
    for act, sentence in said.items():
        begun = await plans(view).apply(request(paused=True, nonce=act), "uid 0")
        await w.settle()
        assert await end_told(view, begun.pid) == ("", "", "", False)
        await getattr(view, act)(begun.pid, "uid 7", " wrong\n rack ")
        await w.settle()
        for daemon in (view, view_of(w, await w.seat())):
            assert await end_told(daemon, begun.pid) == (act, "uid 7", "wrong rack", True)
        told = [row.why or "" for row in w.book.read() if row.pid == begun.pid]
        assert any(why.startswith(f"{sentence} by uid 7 (wrong rack)") for why in told), told
        pid = begun.pid
    await w.active.crash()
    await w.begin_term()
    assert (await end_told(view_of(w), pid))[:3] == ("bypass", "uid 7", "wrong rack")


@in_world(1, 2, 3)
async def test_a_plan_that_is_taken_back_already_is_named_so(w: KafkaWorld) -> None:
    view = await running(w)
    begun = await plans(view).apply(request(), "uid 0")
    await w.settle()
    pid = begun.pid
    with pytest.raises(ViewRefused, match=f"plan {pid} moves . of these") as refused:
        await plans(view).apply(request(nonce="another"), "uid 0")
    assert refused.value.remedy == (
        f"wait for its end, 'regent procedures wait {pid}', or end it with 'regent procedures cancel {pid}'; "
        "then make a new plan"
    )
    await view.abort(pid)
    with pytest.raises(ViewRefused, match=f"pid {pid} is being taken back already") as refused:
        await view.abort(pid)
    assert refused.value.remedy == f"regent procedures wait {pid}"
    assert (await view.one(pid, 0)).detail.endswith("; being taken back")
    for _ in range(4):
        await caught_up(w)
        await w.settle()
    assert (await view.one(pid, 0)).detail.endswith("; taken back")


@in_world(1, 2, 3)
async def test_a_plan_that_ended_while_it_was_paused_is_not_shown_as_paused(w: KafkaWorld) -> None:
    view = await running(w)
    begun = await plans(view).apply(request(), "uid 0")
    await w.settle()
    await plans(view).command(begun.pid, ReassignCommand(paused=True), "uid 0")
    assert (await view.one(begun.pid, 0)).detail.endswith("; paused")
    for _ in range(4):
        await caught_up(w)
        await w.settle()
    ended = await view.one(begun.pid, 0)
    assert (ended.state, ended.detail) == ("success", ended.result)


@in_world(1, 2, 3)
async def test_a_plan_whose_role_was_given_back_shows_no_throttle_for_it_was_lifted(w: KafkaWorld) -> None:
    view = await running(w)
    measured_by(w, {1: {T0: 0, TopicPartition("t", 1): 0}})
    begun = await plans(view).apply(
        ReassignRequest(moves=SIZED, rate_bytes_per_s=10_000, rate_bytes_per_s_max=50_000), "uid 0"
    )
    holding = asyncio.ensure_future(w.term.procedures.hold(5.0))
    await w.settle()
    await holding
    assert (await view.one(begun.pid, 0)).detail.endswith("; paused")


@in_world(1, 2, 3)
async def test_a_cancelled_plan_ends_with_what_it_has_done(w: KafkaWorld) -> None:
    view = await running(w)
    begun = await plans(view).apply(request(moves_max=1), "uid 0")
    await w.settle()
    await plans(view).command(begun.pid, ReassignCommand(stop=True, reason="too slow"), "uid 7")
    assert await end_told(view, begun.pid) == ("cancel", "uid 7", "too slow", True)
    await caught_up(w)
    await w.settle()
    ended = await view.one(begun.pid, 0)
    assert (ended.state, ended.aborted, ended.end_requested) == ("success", False, "cancel")
    assert (written(w, "t", 0).replicas, written(w, "t", 1).replicas) == ((3,), (1, 2))
    with pytest.raises(ViewRefused, match=f"pid {begun.pid}: it has failed or ended"):
        await view.cancel(begun.pid)
    with pytest.raises(ViewRefused, match="pid 7: it is not known"):
        await view.cancel(7)


@in_world(1, 2, 3)
async def test_a_plan_that_waits_for_a_lock_is_listed_with_the_pid_that_holds_it_until_that_is_cancelled(
    w: KafkaWorld,
) -> None:
    view = await running(w)
    requests = [
        ReassignRequest(moves=[Move(topic="t", partition=number, target=(3,))], paused=True) for number in range(2)
    ]
    first = await plans(view).apply(requests[0], "uid 0")
    await w.settle()
    second = await plans(view).apply(requests[1], "uid 0")
    await w.settle()
    found = {(lock.pid, lock.waiting): lock.held_by for lock in view.locks()}
    assert found == {(first.pid, False): [], (second.pid, True): [first.pid]}
    await view.cancel(first.pid)
    await w.settle()
    assert {(lock.pid, lock.waiting): lock.held_by for lock in view.locks()} == {(second.pid, False): []}


@in_world(1, 2, 3)
async def test_a_plan_over_partitions_that_another_one_has_still_to_move_is_refused_with_its_number(
    w: KafkaWorld,
) -> None:
    view = await running(w)
    begun = await plans(view).apply(request(moves_max=1), "uid 0")
    await w.settle()
    later = ReassignRequest(moves=[Move(topic="t", partition=1, target=(1, 3))])
    with pytest.raises(ViewRefused, match=rf"plan {begun.pid} moves 1 of these 1 partitions: t-1"):
        await plans(view).apply(later, "uid 0")
    with pytest.raises(ViewRefused, match=f"plan {begun.pid} moves"):
        await plans(view).apply(later.model_copy(update={"dry_run": True}), "uid 0")
    await plans(view).command(begun.pid, ReassignCommand(stop=True), "uid 0")
    await w.settle()
    assert (await plans(view).apply(later, "uid 0")).pid > begun.pid, "what is left of the first one is elsewhere"


@in_world(1, 2, 3)
async def test_what_a_plan_did_not_move_is_unmet_with_its_cause(w: KafkaWorld) -> None:
    view = await running(w)
    begun = await plans(view).apply(request(moves_max=1), "uid 0")
    await w.settle()
    await plans(view).command(begun.pid, ReassignCommand(stop=True), "uid 0")
    await caught_up(w)
    await w.settle()
    ended = await view.one(begun.pid, 0)
    assert (ended.state, ended.unmet) == (
        "success",
        "1 of 2 moves were not done; t-1: the plan was cancelled before the move began",
    )
    done = await plans(view).apply(ReassignRequest(moves=[Move(topic="t", partition=1, target=(3,))]), "uid 0")
    await caught_up(w)
    await asyncio.sleep(6)
    await caught_up(w)
    assert ((await view.one(done.pid, 0)).state, (await view.one(done.pid, 0)).unmet) == ("success", "")
