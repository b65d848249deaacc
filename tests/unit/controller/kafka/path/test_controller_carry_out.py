"""The one path of a change: decide, commit, apply, tell, whatever ZooKeeper makes of the writes.

The witness in :mod:`tests.kit.kafka.world` checks at every word that is told that ZooKeeper holds it already.
"""

from __future__ import annotations

import asyncio
from unittest import mock

import pytest

from controller.kafka.path.controller import CONTENDED
from metadata_store import paths
from metadata_store.acl import ALL
from metadata_store.errors import Code, ZkError
from metadata_store.port import SetData, Write
from state_machines.model.cluster import READ as WAS_READ
from state_machines.model.types import PartitionState
from tests.kit.deadlines import eventually
from tests.kit.kafka.parts import LEADER_AND_ISR
from tests.kit.kafka.world import KafkaWorld, in_world

STATE_0 = "t/partitions/0/state"


async def running(w: KafkaWorld, partitions: int = 4) -> None:
    """Topic t with equal partitions, led by broker 1, and a term that has told everything."""
    await w.topic("t", *[(1, 2, 3)] * partitions, leaders=True)
    await w.serve()
    w.forget()


def multis(w: KafkaWorld) -> list[set[str]]:
    """The state znodes in each multi that was submitted."""
    found = [
        {path.split("/")[5] for path in paths_of if path.endswith("/state")} for paths_of in w.active.script.writes
    ]
    return [multi for multi in found if multi]


async def shrink_or_grow(w: KafkaWorld) -> None:
    """The leader of t-0 changes its ISR once more."""
    isr = w.states["t", 0].isr
    await w.leader_writes("t", 0, (1, 2) if len(isr) == 3 else (1, 2, 3))


@pytest.mark.seed("S4-9", "S4-45", "S4-46")
@in_world(before=running)
async def test_applied_writes_enter_the_model_and_are_propagated(w: KafkaWorld) -> None:
    w.die(1)
    await w.propagated()
    assert w.leaders() == {("t", p): (2, (2, 3)) for p in range(4)}
    assert multis(w) == [{"0", "1", "2", "3"}], "one multi, whatever the number of partitions"
    assert {change.entity for change in w.witness.propagated} == {0, 1, 2, 3}
    assert w.wires.last_sent(3, LEADER_AND_ISR) == {("t", p): (2, 4) for p in range(4)}
    w.agreed()


@in_world(before=running)
async def test_nothing_is_propagated_while_the_commit_is_under_way(w: KafkaWorld) -> None:
    may_commit = asyncio.Event()
    w.active.script.at(STATE_0, may_commit.wait)
    w.die(1)
    await eventually(lambda: multis(w))
    await w.term.channels.quiesced(5.0)
    assert w.witness.propagated == []
    assert all(epoch == 3 for _, epoch in w.wires.last_sent(2, LEADER_AND_ISR).values())
    may_commit.set()
    await w.propagated()
    assert w.wires.last_sent(2, LEADER_AND_ISR)["t", 0] == (2, 4)


@pytest.mark.seed("S4-80")
@in_world(before=running)
async def test_a_leaders_own_write_among_many_is_read_propagated_and_decided_on(w: KafkaWorld) -> None:
    w.active.script.at(STATE_0, lambda: w.leader_writes("t", 0, (1, 2)))
    w.die(1)
    await w.propagated()
    assert multis(w) == [{"0", "1", "2", "3"}] * 2, "all of a failed multi are decided again in one new multi"
    read = [change for change in w.witness.propagated if change.why == WAS_READ]
    assert [(change.entity, change.after.isr) for change in read] == [(0, (1, 2))]
    assert w.leaders() == {("t", 0): (2, (2,))} | {("t", p): (2, (2, 3)) for p in (1, 2, 3)}
    assert w.counters.conflicts == 4
    w.agreed()


@in_world(before=running)
async def test_after_three_rounds_the_writes_go_singly(w: KafkaWorld) -> None:
    w.active.script.at(STATE_0, lambda: shrink_or_grow(w), times=3)
    w.die(1)
    await w.propagated()
    together, singly = multis(w)[:3], multis(w)[3:]
    assert together == [{"0", "1", "2", "3"}] * 3
    assert sorted(singly, key=min) == [{"0"}, {"1"}, {"2"}, {"3"}]
    assert {leader for leader, _ in w.leaders().values()} == {2}
    assert not w.counters.failures
    w.agreed()


@in_world(before=running)
async def test_a_partition_that_stays_contended_is_given_up_and_tried_again_at_the_next_event(w: KafkaWorld) -> None:
    w.active.script.at(STATE_0, lambda: shrink_or_grow(w), times=6)
    w.die(1)
    await w.propagated()
    assert not w.term.gate.ended, "it never resigns the role"
    assert w.counters.failures[CONTENDED] == 1
    assert {w.leaders()["t", p] for p in (1, 2, 3)} == {(2, (2, 3))}
    assert w.states["t", 0].leader == 1
    assert w.term.cluster.rows[0].state is PartitionState.OFFLINE, "its leader is dead, whatever was written"
    await w.boot(4)
    await w.propagated()
    assert w.leaders()["t", 0][0] == 2
    w.agreed()


@pytest.mark.kafka("PartitionStateMachineTest.testOfflinePartitionToOnlinePartitionTransitionErrorCodeFromStateLookup")
@in_world(before=running)
async def test_a_state_znode_that_vanished_is_given_up_alone(w: KafkaWorld) -> None:
    await w.delete_state("t", 0)
    w.die(1)
    await w.propagated()
    assert not w.term.gate.ended
    [why] = w.counters.failures
    assert "restart the daemon, the next term creates it anew" in why
    assert {w.leaders()["t", p] for p in (1, 2, 3)} == {(2, (2, 3))}
    assert w.term.cluster.rows[0].state is PartitionState.OFFLINE
    await w.active.crash()
    await w.serve()
    assert w.leaders()["t", 0] == (2, (2, 3)), "what the text promises"


@in_world(before=running)
async def test_a_state_znode_without_permission_is_given_up_alone_with_the_remedy(w: KafkaWorld) -> None:
    w.restrict(paths.state("t", 0))
    w.die(1)
    await w.propagated()
    assert not w.term.gate.ended
    assert w.counters.failures == {"ZooKeeper refused the write (NO_AUTH): check jute.maxbuffer and the znode's ACL": 1}
    assert w.wires.offline(2)["t", 0] == w.wires.offline(3)["t", 0] == (1,), "brokers receive that its leader is gone"
    assert {w.leaders()["t", p] for p in (1, 2, 3)} == {(2, (2, 3))}
    w.restrict(paths.state("t", 0), ALL)
    await w.boot(4)
    await w.propagated()
    assert w.leaders()["t", 0] == (2, (2, 3))


@in_world(before=running)
async def test_a_write_that_is_too_large_for_zookeeper_is_given_up_alone(w: KafkaWorld) -> None:
    def too_big() -> None:
        raise ZkError(Code.TOO_BIG, paths.state("t", 0))

    with mock.patch("controller.kafka.path.controller.WRITES_MAX", 1):
        w.active.script.at(STATE_0, too_big)
        w.die(1)
        await w.propagated()
    assert [why for why in w.counters.failures if "TOO_BIG" in why and "jute.maxbuffer" in why]
    assert {w.leaders()["t", p][0] for p in (1, 2, 3)} == {2}
    await w.boot(4)
    await w.propagated()
    assert w.leaders()["t", 0] == (2, (2, 3))


@pytest.mark.seed("S4-86")
@in_world(before=running)
async def test_an_applied_write_whose_reply_was_lost_is_propagated(w: KafkaWorld) -> None:
    w.server.lose_replies(w.active.zk.session_id)
    w.die(1)
    await w.propagated()
    assert multis(w) == [{"0", "1", "2", "3"}], "it is read back, not written again"
    assert {change.entity for change in w.witness.propagated} == {0, 1, 2, 3}
    assert w.wires.last_sent(3, LEADER_AND_ISR) == {("t", p): (2, 4) for p in range(4)}
    assert w.counters.unknown_outcomes == 4
    w.agreed()


@pytest.mark.kafka("PartitionStateMachineTest.testNewPartitionToOnlinePartitionTransitionErrorCodeFromCreateStates")
@in_world(before=running)
async def test_a_lost_reply_of_a_creation_starts_the_replicas_as_new(w: KafkaWorld) -> None:
    w.active.script.at("fresh/partitions/0/state", lambda: w.server.lose_replies(w.active.zk.session_id))
    await w.topic("fresh", (3, 1))
    await w.propagated()
    [started] = [change for change in w.witness.propagated if w.term.cluster.name(change.entity).topic == "fresh"]
    assert started.is_new
    assert w.wires.last_sent(3, LEADER_AND_ISR)["fresh", 0] == (3, 0)
    w.agreed()


@pytest.mark.kafka(
    "PartitionStateMachineTest.testOfflinePartitionToOnlinePartitionTransitionZooKeeperClientExceptionFromStateLookup"
)
@in_world(before=running)
async def test_a_request_that_never_arrived_is_decided_again(w: KafkaWorld) -> None:
    w.server.lose_requests(w.active.zk.session_id)
    w.die(1)
    await w.propagated()
    assert multis(w) == [{"0", "1", "2", "3"}] * 2
    assert w.leaders() == {("t", p): (2, (2, 3)) for p in range(4)}
    assert {state.leader_epoch for state in w.states.values()} == {4}, "one election each"
    w.agreed()


@in_world()
async def test_a_connection_lost_in_the_middle_leaves_nothing_undone_and_nothing_done_twice(w: KafkaWorld) -> None:
    await running(w, partitions=12)
    session = w.active.zk.session_id
    with mock.patch("controller.kafka.path.controller.WRITES_MAX", 2):
        w.active.script.at("t/partitions/6/state", lambda: w.server.suspend(session))
        w.die(1)
        await eventually(lambda: not w.term.gate.ready.is_set())
        assert 0 < sum(state.leader == 2 for state in w.states.values()) < 12
        w.server.resume(session)
        await w.propagated()
    assert w.leaders() == {("t", p): (2, (2, 3)) for p in range(12)}
    assert {state.leader_epoch for state in w.states.values()} == {4}, "one election each"
    w.agreed()


@in_world(before=running)
async def test_many_lost_connections_are_no_reason_to_give_up(w: KafkaWorld) -> None:
    session = w.active.zk.session_id

    async def cut() -> None:
        w.server.suspend(session)
        asyncio.get_running_loop().call_later(0.5, w.server.resume, session)

    w.active.script.at(STATE_0, cut, times=20)
    w.die(1)
    await eventually(lambda: {leader for leader, _ in w.leaders().values()} == {2})
    await w.propagated()
    assert not w.counters.failures
    w.agreed()


class HangsUp:
    """A server that cuts the connection at large requests (a small ``jute.maxbuffer``)."""

    def __init__(self, w: KafkaWorld, ops_max: int) -> None:
        self.w, self.ops_max = w, ops_max

    async def before(self, ops: list[Write]) -> None:
        if sum(isinstance(op, SetData) for op in ops) > self.ops_max:
            self.w.server.lose_requests(self.w.active.zk.session_id)

    async def after(self, ops: list[Write]) -> None: ...


@in_world(before=running)
async def test_a_server_that_hangs_up_at_large_requests_gets_small_ones(w: KafkaWorld) -> None:
    w.active.zk.hooks = HangsUp(w, ops_max=1)  # type: ignore[assignment]
    w.die(1)
    await w.propagated()
    assert w.leaders() == {("t", p): (2, (2, 3)) for p in range(4)}
    assert not w.counters.failures


async def unseen(w: KafkaWorld) -> None:
    """Another controller is elected, and our own watch is late."""
    w.server.hold_watches(w.active.zk.session_id)
    await w.seize()


@pytest.mark.seed("S4-86")
@in_world(before=running)
async def test_a_fenced_write_ends_the_term_with_nothing_applied_or_propagated(w: KafkaWorld) -> None:
    before, rows, written = w.leaders(), list(w.term.cluster.rows), w.counters.writes
    w.active.script.at(STATE_0, lambda: unseen(w))
    w.die(1)
    why = await w.active.ended()
    assert "/controller_epoch" in why
    assert "another controller was elected" in why
    assert w.leaders() == before
    assert w.term.cluster.rows == rows
    assert w.witness.propagated == []
    assert (w.counters.fenced, w.counters.writes) == (1, written)


@in_world(before=running)
async def test_a_commit_at_the_end_of_a_term_is_propagated_by_the_next_term_alone(
    w: KafkaWorld,
) -> None:
    w.active.script.at(STATE_0, lambda: w.term.gate.end("a test"), when="after")
    w.die(1)
    assert await w.active.ended() == "a test"
    assert {leader for leader, _ in w.leaders().values()} == {2}, "ZooKeeper has it"
    assert [change for change in w.witness.propagated if change.writes] == []
    assert {row.leader for row in w.term.cluster.rows} == {1}
    await w.active.crash()
    await w.serve()
    assert w.wires.last_sent(3, LEADER_AND_ISR) == {("t", p): (2, 4) for p in range(4)}
    w.agreed()
