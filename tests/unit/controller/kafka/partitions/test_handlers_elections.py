"""Preferred elections by znode, and elections by ElectLeaders (S4-70, S4-71, S4-82)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any
from unittest import mock

import pytest

from brokers.listener.controller_listener import NotController
from brokers.outbound.channels import Channels
from brokers.wire.errors import Error
from metadata_store import paths
from metadata_store.acl import CREATE, READ
from metadata_store.codecs.notifications import encode_partitions
from state_machines.decisions.leader_election import ElectionType
from state_machines.model.types import TopicPartition
from tests.kit.kafka.parts import LEADER_AND_ISR
from tests.kit.kafka.world import KafkaWorld, in_world

PREFERRED, UNCLEAN = ElectionType.PREFERRED, ElectionType.UNCLEAN


async def led_by_others(w: KafkaWorld) -> None:
    """Nobody is preferred: t is led by 3, u by its preferred replica, and v's is not in sync."""
    await w.topic("t", (1, 2, 3), (2, 1, 3), leaders=True, led_by=3)
    await w.topic("u", (3, 1), leaders=True)
    await w.topic("v", (1, 3), leaders=True, led_by=3, isr=(3,))


async def running(w: KafkaWorld) -> None:
    await led_by_others(w)
    await w.serve()
    w.forget()


def leaders(w: KafkaWorld) -> dict[str, int]:
    return {f"{topic}-{partition}": leader for (topic, partition), (leader, _) in w.leaders().items()}


BEFORE = {"t-0": 3, "t-1": 3, "u-0": 3, "v-0": 3}


# -- by znode


@pytest.mark.kafka(
    "ControllerIntegrationTest.testPreferredReplicaLeaderElection",
    "ControllerIntegrationTest.testBackToBackPreferredReplicaLeaderElections",
)
@pytest.mark.seed("S4-71")
@in_world(before=running)
async def test_each_request_by_znode_is_carried_out_in_one_write_and_deleted(w: KafkaWorld) -> None:
    await w.request_preferred(("u", 0), ("v", 0))
    await w.settle()
    assert (leaders(w), w.node(paths.PREFERRED_ELECTION)) == (BEFORE, None)
    await w.request_preferred(("t", 0), ("t", 1), ("u", 0), ("v", 0), ("gone", 0))
    await w.propagated()
    assert leaders(w) == BEFORE | {"t-0": 1, "t-1": 2}
    assert w.node(paths.PREFERRED_ELECTION) is None
    states = [[path for path in multi if path.endswith("/state")] for multi in w.active.script.writes]
    assert [sorted(found) for found in states if found] == [[paths.state("t", 0), paths.state("t", 1)]]
    assert w.wires.last_sent(1, LEADER_AND_ISR)["t", 0] == (1, 4)
    w.agreed()


@pytest.mark.seed("S4-70")
@in_world(before=led_by_others)
async def test_a_request_that_a_controller_before_us_left_is_carried_out(w: KafkaWorld) -> None:
    await w.request_preferred(("t", 0), ("u", 0))
    await w.begin_term()
    assert leaders(w) == BEFORE | {"t-0": 1}
    assert w.node(paths.PREFERRED_ELECTION) is None
    await w.request_preferred(("t", 1))
    await w.settle()
    assert leaders(w)["t-1"] == 2


@pytest.mark.kafka("ControllerIntegrationTest.testPreferredReplicaLeaderElectionWithOfflinePreferredReplica")
@pytest.mark.seed("S4-71")
@in_world(before=running)
async def test_a_preferred_replica_that_is_gone_costs_nothing_but_the_request(w: KafkaWorld) -> None:
    """testPreferredReplicaLeaderElectionWithOfflinePreferredReplica."""
    w.die(1)
    await w.settle()
    before = w.states
    await w.request_preferred(("t", 0), ("v", 0))
    await w.settle()
    assert w.states == before
    assert w.node(paths.PREFERRED_ELECTION) is None


@pytest.mark.parametrize("data", [b"", b"{", b'{"version":1}', b'{"version":7,"partitions":[]}'])
@in_world(before=running)
async def test_a_request_that_cannot_be_understood_is_dropped(
    w: KafkaWorld, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    await w.operator.create(paths.PREFERRED_ELECTION, data)
    await w.settle()
    assert w.node(paths.PREFERRED_ELECTION) is None
    assert "cannot be understood" in caplog.text
    await w.request_preferred(("t", 0))
    await w.settle()
    assert leaders(w)["t-0"] == 1


@in_world(before=running)
async def test_an_unusable_entry_of_a_request_holds_up_no_other(
    w: KafkaWorld, caplog: pytest.LogCaptureFixture
) -> None:
    entries = b'{"topic":"t","partition":-1},{"topic":"t","partition":0},{"topic":"t"},{"topic":"t","partition":1}'
    await w.operator.create(paths.PREFERRED_ELECTION, b'{"version":1,"partitions":[%s]}' % entries)
    await w.settle()
    assert leaders(w) == BEFORE | {"t-0": 1, "t-1": 2}
    assert w.node(paths.PREFERRED_ELECTION) is None
    assert "2 of 4 entries cannot be used (partitions[0]: Expected `int` >= 0" in caplog.text


@in_world(before=running)
async def test_a_request_that_was_replaced_meanwhile_is_carried_out_too(w: KafkaWorld) -> None:
    other = encode_partitions([TopicPartition("t", 1)])
    w.active.script.at(paths.PREFERRED_ELECTION, lambda: w.operator.set(paths.PREFERRED_ELECTION, other, -1))
    await w.request_preferred(("t", 0))
    await w.settle()
    assert leaders(w) == BEFORE | {"t-0": 1, "t-1": 2}
    assert w.node(paths.PREFERRED_ELECTION) is None


@in_world(before=running)
async def test_a_request_that_cannot_be_deleted_ends_no_term(w: KafkaWorld, caplog: pytest.LogCaptureFixture) -> None:
    w.restrict(paths.ADMIN, CREATE | READ)
    await w.request_preferred(("t", 0))
    await w.settle()
    assert leaders(w)["t-0"] == 1
    assert "cannot be deleted" in caplog.text
    assert not w.term.gate.ended
    await w.operator.set(paths.PREFERRED_ELECTION, encode_partitions([TopicPartition("t", 1)]), -1)
    await w.settle()
    assert leaders(w)["t-1"] == 2, "what it says next is heard"


@in_world(before=running)
async def test_a_request_while_suspended_is_carried_out_afterwards(w: KafkaWorld) -> None:
    w.server.suspend(w.active.zk.session_id)
    await w.request_preferred(("t", 0))
    await asyncio.sleep(1.0)
    assert leaders(w) == BEFORE
    w.server.resume(w.active.zk.session_id)
    await w.propagated()
    assert leaders(w) == BEFORE | {"t-0": 1}
    assert w.node(paths.PREFERRED_ELECTION) is None


@in_world(before=running)
async def test_a_lost_reply_to_the_deletion_of_the_request_repeats_no_election(w: KafkaWorld) -> None:
    w.active.script.at(paths.PREFERRED_ELECTION, lambda: w.server.lose_replies(w.active.zk.session_id))
    await w.request_preferred(("t", 0))
    await w.propagated()
    assert w.states["t", 0].leader_epoch == 4
    assert w.node(paths.PREFERRED_ELECTION) is None
    await w.request_preferred(("t", 1))
    await w.propagated()
    assert leaders(w) == BEFORE | {"t-0": 1, "t-1": 2}


# -- by ElectLeaders


@pytest.mark.kafka(
    "LeaderElectionCommandTest.testElectionResultOutput", "LeaderElectionCommandTest.testTopicDoesNotExist"
)
@pytest.mark.seed("S4-71")
@in_world(before=running)
async def test_each_partition_gets_its_error(w: KafkaWorld) -> None:
    await w.topic("leaving", (1, 2), leaders=True, led_by=2)
    await w.settle()
    w.term.cluster.observe_deletions(["leaving"])
    found = await w.elect(PREFERRED, ("t", 0), ("u", 0), ("v", 0), ("t", 9), ("gone", 0), ("leaving", 0), ("t", 0))
    assert found == {
        ("t", 0): 0, ("u", 0): 84, ("v", 0): 80, ("t", 9): 3, ("gone", 0): 3, ("leaving", 0): 17,
    }  # fmt: skip
    assert leaders(w) == BEFORE | {"t-0": 1, "leaving-0": 2}
    assert w.wires.last_sent(1, LEADER_AND_ISR)["t", 0] == (1, 4), "it knows when the caller does"
    assert await w.elect(PREFERRED, ("t", 0)) == {("t", 0): 84}


@pytest.mark.kafka("LeaderElectionCommandTest.testAllTopicPartition")
@pytest.mark.seed("S4-71")
@in_world(before=running)
async def test_of_all_those_that_need_no_election_are_left_out(w: KafkaWorld) -> None:
    assert await w.elect(PREFERRED, everything=True) == {("t", 0): 0, ("t", 1): 0, ("v", 0): 80}
    assert await w.elect(PREFERRED, everything=True) == {("v", 0): 80}
    await w.topic("leaving", (1, 2), leaders=True, led_by=2)
    await w.settle()
    w.term.cluster.observe_deletions(["leaving"])
    assert await w.elect(PREFERRED, everything=True) == {("v", 0): 80}, "brokers have forgotten what is being deleted"
    assert await w.elect(PREFERRED) == {}
    assert await w.elect(UNCLEAN, everything=True) == {}


@pytest.mark.kafka("LeaderElectionCommandTest.testTopicPartition")
@pytest.mark.seed("S4-82")
@in_world()
async def test_an_unclean_election_by_request_is_counted_and_logged(
    w: KafkaWorld, caplog: pytest.LogCaptureFixture
) -> None:
    await w.topic("t", (1, 2), (1, 2), (1, 9), leaders=True, isr=(1,))
    await w.begin_term()
    w.die(1)
    await w.propagated()
    with caplog.at_level(logging.WARNING):
        found = await w.elect(UNCLEAN, ("t", 0), ("t", 2))
    assert found == {("t", 0): 0, ("t", 2): 83}
    assert w.leaders() == {("t", 0): (2, (2,)), ("t", 1): (-1, (1,)), ("t", 2): (-1, (1,))}
    assert w.states["t", 0].recovering
    assert w.counters.unclean_elections == 1
    [line] = [r.getMessage() for r in caplog.records if "unclean elections" in r.getMessage()]
    assert "t-0 are led by replicas that were not in sync; records may be lost" in line
    assert await w.elect(UNCLEAN, ("t", 0)) == {("t", 0): 84}
    w.agreed()


@pytest.mark.seed("S4-82")
@in_world()
async def test_an_unclean_election_whose_reply_is_lost_is_counted_once(w: KafkaWorld) -> None:
    await w.topic("t", (1, 2), leaders=True, isr=(1,))
    await w.begin_term()
    w.die(1)
    await w.propagated()
    w.active.script.at("t/partitions/0/state", lambda: w.server.lose_replies(w.active.zk.session_id))
    assert await w.elect(UNCLEAN, ("t", 0)) == {("t", 0): 0}
    assert (w.leaders()["t", 0], w.counters.unclean_elections) == ((2, (2,)), 1)


@pytest.mark.seed("S4-71")
@in_world(before=running)
async def test_a_leader_that_changes_its_isr_meanwhile_is_decided_on_anew(w: KafkaWorld) -> None:
    w.active.script.at("t/partitions/0/state", lambda: w.leader_writes("t", 0, (2, 3)))
    assert await w.elect(PREFERRED, ("t", 0), ("t", 1)) == {("t", 0): 80, ("t", 1): 0}
    assert w.leaders()["t", 0] == (3, (2, 3))
    w.agreed()


@in_world(before=running)
async def test_an_election_waits_for_new_leaders_until_the_calls_time_out(w: KafkaWorld) -> None:
    async def unreachable(*_: Any) -> Any:
        await asyncio.sleep(3_600)

    with mock.patch("tests.kit.kafka.parts.Wire.exchange", unreachable):
        asked = asyncio.create_task(w.elect(PREFERRED, ("t", 0), ("u", 0), timeout_s=2.0))
        other = asyncio.create_task(w.producer_ids(2))
        assert (await other).error == Error.NONE, "the queue goes on meanwhile"
        assert leaders(w)["t-0"] == 1
        assert not asked.done()
        assert await asked == {("t", 0): Error.REQUEST_TIMED_OUT, ("u", 0): 84}


@in_world(before=running)
async def test_a_partition_that_no_broker_shows_times_out_alone(w: KafkaWorld) -> None:
    told = Channels.metadata_shown

    async def late(channels: Channels, rows: Sequence[int], timeout_s: float) -> frozenset[int]:
        await told(channels, rows, timeout_s)
        return frozenset(i for i in rows if w.term.cluster.name(i) == ("t", 1))

    with mock.patch.object(Channels, "metadata_shown", late):
        found = await w.elect(PREFERRED, ("t", 0), ("t", 1))
    assert found == {("t", 0): 0, ("t", 1): Error.REQUEST_TIMED_OUT}


@in_world(before=running)
async def test_an_election_waits_a_second_for_a_silent_new_leader(w: KafkaWorld) -> None:
    w.wires.silent_to = None
    w.wires.silent.add(1)
    before_s = asyncio.get_running_loop().time()
    assert await w.elect(PREFERRED, ("t", 0)) == {("t", 0): 0}, "others show it, as Kafka's controller would"
    assert leaders(w)["t-0"] == 1
    assert asyncio.get_running_loop().time() - before_s < 2.5


@in_world(before=running)
async def test_an_election_is_refused_when_the_term_ends_first(w: KafkaWorld) -> None:
    w.active.script.kill_at(1, "after")
    with pytest.raises(NotController):
        await w.elect(PREFERRED, ("t", 0))
    await w.active.crash()
    await w.begin_term()
    assert await w.elect(PREFERRED, ("t", 0)) == {("t", 0): 84}, "asked again it is done"


@in_world()
async def test_many_partitions_are_several_decisions(w: KafkaWorld) -> None:
    await w.topic("t", *[(1, 2, 3)] * 10, leaders=True, led_by=2)
    await w.begin_term()
    w.active.script.writes.clear()
    patched = mock.patch.multiple("controller.kafka.partitions.elections", ROWS_MAX=4, TURN_ROWS=3)
    with patched:
        found = await w.elect(PREFERRED, everything=True)
    assert (len(found), set(found.values())) == (10, {0})
    assert [len(multi) for multi in w.active.script.writes] == [5, 5, 3]
