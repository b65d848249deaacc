"""A broker's controlled shutdown by command: what the broker's own request does, and how it is undone."""

from __future__ import annotations

import logging

import pytest

from brokers.wire.errors import Error
from cli.exit_codes import Exit
from controller.http.documents import NotActive, ViewRefused
from controller.operator.drains import STAYING_MAX, ShutdownRequest, UndrainRequest
from state_machines.decisions.hindrances import StopCause
from state_machines.decisions.stopping import can_stop
from state_machines.machines.selectors import NO_OTHER_ISR, ONLY_REPLICA
from state_machines.model.min_isr import MinIsr
from state_machines.model.types import ReplicaState
from tests.kit.answering import Answering, daemon_in_thread
from tests.kit.command import items, regent
from tests.kit.kafka.parts import LEADER_AND_ISR
from tests.kit.kafka.world import KafkaWorld, in_world
from tests.unit.controller.kafka.procedures.test_drain import views

SHUTDOWN = ShutdownRequest(broker=1)
ACCEPTED = ShutdownRequest(broker=1, accept=[StopCause.SINGLE_REPLICA])
UNDO = UndrainRequest(brokers=[1])


async def running(w: KafkaWorld) -> None:
    """t-0 led by 1, t-1 by 2, both in sync on 1, 2, 3; u-0 has one replica."""
    await w.topic("t", (1, 2, 3), (2, 3, 1), leaders=True)
    await w.topic("u", (1,), leaders=True)
    await w.serve()
    w.forget()


@in_world(before=running)
async def test_the_command_does_what_the_brokers_own_request_does(w: KafkaWorld) -> None:
    found = await views(w)[0].shutdown(SHUTDOWN)
    assert (found.leaders_moved, found.staying_total) == (1, 1)
    assert found.staying == [f"u-0: {ONLY_REPLICA}"]
    by_command = w.leaders(), [multi[1:] for multi in w.active.script.writes]
    assert by_command[0] == {("t", 0): (2, (2, 3)), ("t", 1): (2, (2, 3)), ("u", 0): (1, (1,))}
    assert w.term.cluster.shutting_down == {1}
    await w.propagated()
    assert w.wires.stopped(1) == {("t", 1)}
    w.forget()
    assert (await w.controlled_shutdown(1)).error is Error.NONE
    assert not w.active.script.writes, "the broker's own request finds all of it done"


@in_world()
async def test_partitions_that_another_broker_could_lead_keep_the_broker_from_its_stop(w: KafkaWorld) -> None:
    await w.topic("alone", *[(1, 2)] * (STAYING_MAX + 5), leaders=True, isr=(1,))
    await running(w)
    found = await views(w)[0].shutdown(SHUTDOWN)
    assert (found.may_stop, found.staying_total, len(found.staying)) == (False, STAYING_MAX + 6, STAYING_MAX)
    assert found.staying[0] == f"alone-0: {NO_OTHER_ISR}"


@pytest.mark.parametrize("accept", [[], [StopCause.SINGLE_REPLICA], [StopCause.OFFLINE]])
@in_world(before=running)
async def test_a_shutdown_and_can_stop_have_one_verdict(w: KafkaWorld, accept: list[StopCause]) -> None:
    """The topic u has one replica: it would be offline, which one of the lists accepts."""
    found = await views(w)[0].shutdown(ShutdownRequest(broker=1, accept=accept))
    judged = can_stop(w.term.cluster, [1], w.term.cluster.min_isr, accept)
    assert found.may_stop is judged.allowed is (StopCause.SINGLE_REPLICA in accept)
    assert [one.cause for one in found.hindrances] == [one.cause for one in judged.hindrances]
    assert found.leaders_moved == 1, "leaders leave in any case"


@in_world(before=running)
async def test_a_shutdown_that_takes_partitions_below_min_isr_says_so(w: KafkaWorld) -> None:
    w.term.cluster.min_isr = MinIsr(3, {})
    request = ShutdownRequest(broker=1, accept=[StopCause.SINGLE_REPLICA])
    found = await views(w)[0].shutdown(request)
    assert (found.may_stop, [one.cause for one in found.hindrances]) == (False, ["below-min-isr"])
    assert found.hindrances[0].count == 2
    assert (await views(w)[0].shutdown(request)).may_stop, "repeated, it takes nothing further below it"


@in_world(before=running)
async def test_undrain_lets_the_broker_follow_and_lead_again(w: KafkaWorld) -> None:
    drains, _ = views(w)
    await drains.shutdown(SHUTDOWN)
    await w.propagated()
    w.forget()
    assert await drains.undrain(UNDO) == []
    await w.propagated()
    assert w.term.cluster.shutting_down == set()
    assert not [key for key, state in w.term.cluster.replica_states.items() if state is ReplicaState.OFFLINE]
    assert ("t", 1) in w.wires.last_sent(1, LEADER_AND_ISR), "the follower that was stopped fetches again"
    reply = await w.alter_partition(2, w.proposal("t", 1, (2, 3, 1)))
    assert reply.partitions[0].error == Error.NONE
    w.die(2)
    w.die(3)
    await w.settle()
    assert w.leaders()["t", 1] == (1, (1,))
    w.forget()
    await drains.undrain(UNDO)
    assert not w.active.script.writes, "undone again, it changes nothing"


@in_world(before=running)
async def test_a_partition_that_lost_its_leader_meanwhile_gets_one_when_the_shutdown_is_undone(w: KafkaWorld) -> None:
    await w.topic("p", (1, 2), leaders=True, isr=(1,))
    await w.settle()
    drains, _ = views(w)
    await drains.shutdown(SHUTDOWN)
    await drains.undrain(UNDO)
    assert w.leaders()["p", 0] == (1, (1,))
    w.agreed()


@in_world(before=running)
async def test_the_shutdown_that_the_broker_requests_itself_is_not_undone(w: KafkaWorld) -> None:
    drains, _ = views(w)
    await drains.shutdown(SHUTDOWN)
    await w.controlled_shutdown(1)
    await drains.undrain(UNDO)
    assert w.term.cluster.shutting_down == {1}


@in_world(before=running)
async def test_a_command_after_the_brokers_own_request_cannot_be_undone(w: KafkaWorld) -> None:
    drains, _ = views(w)
    await w.controlled_shutdown(1)
    assert (await drains.shutdown(ACCEPTED)).may_stop
    w.forget()
    await drains.undrain(UNDO)
    assert w.term.cluster.shutting_down == {1}
    assert not w.active.script.writes


@in_world(before=running)
async def test_a_follower_outside_of_the_isr_goes_on_because_it_could_not_begin_again(w: KafkaWorld) -> None:
    await w.topic("late", (2, 1), leaders=True, isr=(2,))
    await w.settle()
    drains, _ = views(w)
    await drains.shutdown(SHUTDOWN)
    await w.propagated()
    assert w.wires.stopped(1) == {("t", 1)}
    await w.controlled_shutdown(1)
    await w.propagated()
    assert w.wires.stopped(1) == {("t", 0), ("t", 1), ("late", 0)}, "the broker is about to stop"


@in_world(before=running)
async def test_the_restart_of_the_broker_ends_its_shutdown(w: KafkaWorld) -> None:
    drains, _ = views(w)
    await drains.shutdown(SHUTDOWN)
    await w.bounce(1)
    await w.settle()
    assert w.term.cluster.live == {1, 2, 3}
    w.forget()
    await drains.undrain(UNDO)
    assert not w.active.script.writes


@in_world(before=running)
async def test_a_drained_broker_is_no_leader_of_what_another_one_leaves(w: KafkaWorld) -> None:
    await w.term.controller.connected()
    w.term.cluster.observe_drained({2})
    await views(w)[0].shutdown(SHUTDOWN)
    assert w.leaders()["t", 0] == (3, (2, 3))


@in_world(before=running)
async def test_an_unknown_broker_is_refused_and_a_term_that_ends_is_named(w: KafkaWorld) -> None:
    drains, _ = views(w)
    with pytest.raises(ViewRefused, match="broker 9 is not registered"):
        await drains.shutdown(ShutdownRequest(broker=9))
    w.term.gate.end("a test")
    with pytest.raises(NotActive, match="the term ended"):
        await drains.shutdown(SHUTDOWN)


@in_world(before=running)
async def test_log_lines_name_the_operator(w: KafkaWorld, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "regent.controller")
    drains, _ = views(w)
    await drains.shutdown(SHUTDOWN)
    await drains.undrain(UNDO)
    assert "an operator shuts broker 1 down" in caplog.text
    assert "an operator undid its shutdown" in caplog.text


def test_the_command_ends_by_whether_the_broker_may_stop(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    double = Answering()
    with daemon_in_thread(tmp_path_factory.mktemp("daemon"), double) as socket:
        monkeypatch.setenv("REGENT_SERVER", str(socket))
        [found] = items("shutdown", 1)
        assert (found["mayStop"], found["leadersMoved"], found["broker"]) == (True, 3, 1)
        said = regent("shutdown", 2, "--accept", "offline", code=Exit.REFUSED)
        assert "regent undrain 2" in said.stderr
        assert "Remedy for no-leader: wait" in said.stderr
        assert double.of("drains")[-1] == ("shutdown", ShutdownRequest(broker=2, accept=[StopCause.OFFLINE]))
        [refused] = items("shutdown", 2, code=Exit.REFUSED)
        assert refused["hindrances"][0]["cause"] == "no-leader"
        regent("shutdown", code=Exit.USAGE)
        double.answers["drains.shutdown"] = ViewRefused("broker 9 is not registered", "correct the id")
        assert "correct the id" in regent("shutdown", 9, code=Exit.REFUSED).stderr
