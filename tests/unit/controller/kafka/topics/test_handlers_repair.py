"""What brokers wrote wrongly is mended before it starts: missing topic ids, a daemon among the replicas."""

from __future__ import annotations

import asyncio
from unittest import mock

import pytest

from metadata_store import paths
from metadata_store.acl import ALL, CREATE, READ
from tests.kit.deadlines import eventually
from tests.kit.kafka.cluster import id_of
from tests.kit.kafka.parts import DAEMON
from tests.kit.kafka.world import KafkaWorld, in_world


async def running(w: KafkaWorld, ibp: str = "3.9") -> None:
    await w.topic("t", (1, 2, 3), leaders=True)
    await w.serve(ibp)
    w.forget()


@pytest.mark.kafka(
    "ControllerIntegrationTest.testTopicIdsAreAdded", "ControllerIntegrationTest.testTopicIdsAreNotAdded"
)
@pytest.mark.seed("S4-85")
@pytest.mark.parametrize(("ibp", "given"), [("2.7-IV1", False), ("2.8-IV0", True), ("3.9", True)])
@in_world()
async def test_a_missing_topic_id_is_given_from_ibp_2_8_on(w: KafkaWorld, ibp: str, given: bool) -> None:
    await w.topic("old", (1, 2), topic_id=None, leaders=True)
    w.knows = {broker: {"old": None} for broker in w.brokers}
    await w.serve(ibp)
    await w.topic("new", (2, 3), topic_id=None)
    await w.propagated()
    for name in ("old", "new"):
        assert (w.assignment(name).topic_id is not None) is given
    assert w.leaders()["new", 0] == (2, (2, 3))
    known = w.term.cluster.topic("old")
    assert known is not None
    assert known.topic_id == w.assignment("old").topic_id
    assert known.version == w.assignment("old").version


@pytest.mark.seed("S4-88")
@in_world(1, 2, 3, 4, before=running)
async def test_a_daemon_among_the_replicas_is_replaced_before_the_topic_starts(w: KafkaWorld) -> None:
    starts: list[dict[int, tuple[int, ...]]] = []
    w.active.script.at("auto/partitions/0/state", lambda: starts.append(w.assignments()["auto"]))
    await w.topic("auto", (DAEMON, 1), (2, DAEMON), (3, 1))
    await w.propagated()
    assert starts == [{0: (4, 1), 1: (2, 4), 2: (3, 1)}], "the least loaded broker, and written before it starts"
    assert w.leaders()["auto", 0] == (4, (4, 1))
    assert w.counters.repaired_assignments == 1
    w.agreed()


@pytest.mark.seed("S4-88")
@in_world(1, 2, 3, 4)
async def test_many_auto_created_topics_found_at_once_are_spread(w: KafkaWorld) -> None:
    for number in range(6):
        await w.topic(f"auto-{number}", (DAEMON, 1))
    await running(w)
    chosen = [w.assignments()[f"auto-{number}"][0][0] for number in range(6)]
    assert sorted(chosen) == [2, 2, 3, 3, 4, 4]


@pytest.mark.seed("S4-88")
@in_world(before=running)
async def test_a_fresh_topic_with_more_replicas_than_brokers_is_deleted_with_its_configuration(w: KafkaWorld) -> None:
    await w.topic("auto", (1, 2, 3, DAEMON))
    await w.propagated()
    assert w.node(paths.topic("auto")) is None
    assert w.node(paths.topic_config("auto")) is None
    await w.topic("auto", (1, 2, 3))
    await w.propagated()
    assert w.leaders()["auto", 0] == (1, (1, 2, 3))


@pytest.mark.seed("S4-88")
@pytest.mark.parametrize("found_at", ["failover", "watch"])
@in_world()
async def test_added_partitions_that_no_broker_can_host_wait_and_do_not_harm_the_running_ones(
    w: KafkaWorld, found_at: str
) -> None:
    await w.topic("t", (1, 2, 3), leaders=True)
    if found_at == "failover":
        await w.expand("t", (1, 2, 3, DAEMON), (3, 2))
        await w.begin_term()
    else:
        await w.begin_term()
        await w.expand("t", (1, 2, 3, DAEMON), (3, 2))
    await w.propagated()
    assert w.leaders() == {("t", 0): (1, (1, 2, 3)), ("t", 2): (3, (3, 2))}
    assert not any(DAEMON in r for i in w.term.cluster.rows for r in [i.assignment.replicas])
    w.die(1)
    await w.propagated()
    assert w.leaders()["t", 0] == (2, (2, 3)), "it is controlled all the same"
    await w.boot(1, 4)
    await w.propagated()
    assert w.assignments()["t"][1] == (1, 2, 3, 4), "a broker came: it is mended now"
    assert w.leaders()["t", 1] == (1, (1, 2, 3, 4))
    assert not w.term.controller.waiting_topics
    w.agreed()


@in_world(before=running)
async def test_a_fresh_topic_that_cannot_be_deleted_is_left_alone(w: KafkaWorld) -> None:
    w.active.script.at("auto", lambda: w.operator.create(paths.partitions("auto"), None))
    await w.topic("auto", (1, 2, 3, DAEMON))
    await w.propagated()
    assert w.node(paths.topic("auto")) is not None
    assert ("auto", 0) not in w.leaders()
    assert not w.term.gate.ended


@in_world(before=running)
async def test_partitions_added_while_the_topic_is_repaired_are_repaired_too(w: KafkaWorld) -> None:
    w.active.script.at("auto", lambda: w.expand("auto", (DAEMON, 2)))
    await w.topic("auto", (3, DAEMON))
    await w.propagated()
    replicas = [b for r in w.assignments()["auto"].values() for b in r]
    assert DAEMON not in replicas
    assert len(w.assignments()["auto"]) == 2
    assert {name for name in w.leaders() if name[0] == "auto"} == {("auto", 0), ("auto", 1)}
    w.agreed()


@in_world(before=running)
async def test_a_topic_recreated_while_it_is_repaired_is_taken_as_the_new_one(w: KafkaWorld) -> None:
    async def recreate() -> None:
        await w.delete_topic("auto")
        await w.topic("auto", (2, 1))
        await w.expand("auto", (1, 3))

    w.active.script.at("auto", recreate)
    await w.topic("auto", (3, DAEMON))
    await w.propagated()
    assert w.leaders()["auto", 0] == (2, (2, 1))
    assert w.leaders()["auto", 1] == (1, (1, 3))
    w.agreed()


@pytest.mark.parametrize("fault", ["reconnect", "lose_replies", "lose_requests"])
@in_world(before=running)
async def test_a_connection_lost_while_mending_starts_every_topic_in_the_end(w: KafkaWorld, fault: str) -> None:
    session = w.active.zk.session_id
    w.active.script.at("b-topic", lambda: getattr(w.server, fault)(session))
    w.server.hold_watches(session)
    await w.topic("a-topic", (1, 2))
    await w.topic("b-topic", (2, DAEMON))
    w.server.release_watches(session)
    await eventually(lambda: {("a-topic", 0), ("b-topic", 0)} <= set(w.leaders()))
    await w.propagated()
    assert not w.term.gate.ended
    w.agreed()


@in_world()
async def test_a_topic_znode_that_may_not_be_written_is_served_as_far_as_it_runs(w: KafkaWorld) -> None:
    await w.topic("t", (1, 2, 3), leaders=True, topic_id=None)
    await w.topic("auto", (2, 3), leaders=True)
    w.knows[2] = {"t": id_of("t")}
    await w.expand("auto", (3, DAEMON))
    for name in ("t", "auto"):
        w.restrict(paths.topic(name), CREATE | READ)
    await w.serve()
    assert not w.term.gate.ended
    w.die(1)
    await w.propagated()
    assert w.leaders() == {("t", 0): (2, (2, 3)), ("auto", 0): (2, (2, 3))}
    for name in ("t", "auto"):
        w.restrict(paths.topic(name), ALL)
    await w.boot(1)
    await w.propagated()
    assert w.assignment("t").topic_id == id_of("t")
    assert w.leaders()["auto", 1] == (3, (3, 1))
    w.agreed()


@in_world(before=running)
async def test_unknown_fields_of_a_topic_znode_survive_the_mending(w: KafkaWorld) -> None:
    data = b'{"version":3,"partitions":{"0":[2,1000001]},"adding_replicas":{},"removing_replicas":{},"later":{"x":1}}'
    await w.operator.create(paths.topic("auto"), data)
    await w.propagated()
    found = w.assignment("auto")
    assert found.unknown == {"later": {"x": 1}}
    assert found.topic_id is not None
    assert found.partitions[0].replicas == (2, 1)


@in_world(before=running)
async def test_thousands_of_new_partitions_are_a_few_writes(w: KafkaWorld) -> None:
    w.active.script.writes.clear()
    await w.topic("wide", *[(1, 2)] * 1000)
    await w.propagated()
    assert len([name for name in w.leaders() if name[0] == "wide"]) == 1000
    assert len(w.active.script.writes) <= 10
    assert all(isinstance(found, list) for found in w.active.script.writes)


@in_world(before=running)
async def test_a_term_that_ends_while_mending_starts_nothing(w: KafkaWorld) -> None:
    may_write = asyncio.Event()
    w.active.script.at("auto", may_write.wait)
    await w.topic("auto", (3, DAEMON))
    await eventually(lambda: w.term.handling == "topic_change")
    w.term.gate.end("a test")
    may_write.set()
    assert await w.active.ended() == "a test"
    assert ("auto", 0) not in w.leaders()
    with mock.patch.object(w.term.channels, "propagate", side_effect=AssertionError("a dead term speaks")):
        await asyncio.sleep(0.1)


@pytest.mark.seed("S4-85")
@in_world()
async def test_missing_topic_ids_of_many_topics_are_given_in_a_few_writes(w: KafkaWorld) -> None:
    for number in range(60):
        await w.topic(f"old-{number}", (1, 2), topic_id=None, leaders=True)
    w.knows = {broker: {f"old-{number}": None for number in range(60)} for broker in w.brokers}
    await w.serve()
    assert len({w.assignment(f"old-{number}").topic_id for number in range(60)}) == 60
    assert len([ops for ops in w.active.script.writes if "/old-" in str(ops)]) <= 3


@pytest.mark.seed("S4-88")
@in_world()
async def test_a_running_partition_that_names_a_daemon_gets_a_broker_in_its_place(w: KafkaWorld) -> None:
    """A broker that held the role meanwhile started it: what runs is only changed by a reassignment."""
    await w.topic("late", (1, DAEMON), leaders=True, isr=(1,))
    await w.expand("late", (2, DAEMON))
    await running(w)
    assert w.leaders()["late", 0] == (1, (1,))
    [replica] = {2, 3} & {*w.assignment("late").partitions[0].replicas}
    assert w.assignment("late").partitions[0].adding == (replica,)
    await w.alter_partition(1, w.proposal("late", 0, isr=(1, replica)))
    await w.propagated()
    assert w.assignments()["late"] == {0: (1, replica), 1: (2, 3)}
    assert w.leaders()["late", 0] == (1, (1, replica))
    w.agreed()


@pytest.mark.seed("S4-88")
@in_world(1, 2)
async def test_a_daemon_among_running_replicas_is_replaced_once_a_broker_is_free(w: KafkaWorld) -> None:
    await w.topic("late", (1, 2, DAEMON), leaders=True, isr=(1, 2))
    await running(w)
    assert w.assignments()["late"] == {0: (1, 2, DAEMON)}
    await w.boot(3)
    await w.propagated()
    assert w.assignment("late").partitions[0].adding == (3,)
