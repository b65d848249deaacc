"""Topics: they appear, grow, vanish and come back under the same name; what brokers wrote wrongly is mended first."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest import mock

import pytest

from controller.handlers import mending
from metadata_store import paths
from metadata_store.acl import OPEN, READ, Acl
from metadata_store.codecs.topic import encode_topic
from state_machines.types import Assignment, PartitionState
from tests.core.controller_world import DAEMON, LEADER_AND_ISR, UPDATE_METADATA, World, world
from tests.core.virtual_time import in_virtual_time
from tests.polling import eventually


async def running(w: World, ibp: str = "3.9") -> None:
    await w.topic("t", (1, 2, 3), leaders=True)
    await w.take_office(ibp)
    await w.told()
    w.wires.frames.clear()
    w.witness.told.clear()


def is_new(w: World, broker: int) -> dict[tuple[str, int], bool]:
    """The flag that a broker was told with each partition."""
    return {
        (t.topic_name, p.partition_index): p.is_new
        for entity in w.wires.heard(broker, LEADER_AND_ISR)
        for t in entity.topic_states
        for p in t.partition_states
    }


@pytest.mark.seed("S4-39", "S4-40", "S4-41", "S4-42", "S4-43", "S4-7", "S4-8")
@in_virtual_time
async def test_a_new_topic_starts_on_its_live_replicas() -> None:
    async with world() as w:
        await running(w)
        await w.topic("new", (3, 1, 9), (9, 2))
        await w.told()
        assert w.led()["new", 0] == (3, (3, 1))
        assert w.led()["new", 1] == (2, (2,))
        assert w.states["new", 0].leader_epoch == w.states["new", 0].version == 0
        assert is_new(w, 1) == {("new", 0): True}
        assert is_new(w, 2) == {("new", 1): True}
        assert w.wires.last_word(2, UPDATE_METADATA) == {("new", 0): (3, 0), ("new", 1): (2, 0)}


@in_virtual_time
async def test_a_new_topic_without_a_live_replica_waits_for_one() -> None:
    async with world() as w:
        await running(w)
        await w.topic("waits", (8, 9))
        await w.told()
        assert ("waits", 0) not in w.led()
        row = w.reign.cluster.find("waits", 0)
        assert row is not None
        assert w.reign.cluster.rows[row].state is PartitionState.NEW
        await w.boot(9)
        await w.told()
        assert w.led()["waits", 0] == (9, (9,))
        assert is_new(w, 9)["waits", 0]


@pytest.mark.seed("S4-79")
@in_virtual_time
async def test_added_partitions_start_and_the_others_stay_as_they_are() -> None:
    async with world() as w:
        await running(w)
        before = w.states["t", 0]
        await w.expand("t", (2, 3), (3, 1))
        await w.told()
        assert w.states["t", 0] == before
        assert w.led()["t", 1] == (2, (2, 3))
        assert w.led()["t", 2] == (3, (3, 1))
        assert set(is_new(w, 3)) == {("t", 1), ("t", 2)}
        await w.expand("t", (1, 2))
        await w.told()
        assert w.led()["t", 3] == (1, (1, 2)), "the watch is armed again"
        w.agreed()


@in_virtual_time
async def test_a_topic_that_vanished_is_forgotten_and_one_of_the_same_name_starts_anew() -> None:
    async with world() as w:
        await running(w)
        old = w.assignment("t").topic_id
        await w.delete_topic("t")
        await w.settle()
        assert w.reign.cluster.topic("t") is None
        await w.topic("t", (2, 1), (3, 1), topic_id=bytes(15) + b"x")
        await w.told()
        assert w.led() == {("t", 0): (2, (2, 1)), ("t", 1): (3, (3, 1))}
        [told] = [t for e in w.wires.heard(2, LEADER_AND_ISR) for t in e.topic_states if t.topic_name == "t"]
        assert told.topic_id.bytes != old
        w.agreed()


@in_virtual_time
async def test_a_topic_recreated_before_anybody_looked_is_a_new_one() -> None:
    async with world() as w:
        await running(w)
        w.server.hold_watches(w.active.zk.session_id)
        await w.delete_topic("t")
        await w.topic("t", (2, 1), topic_id=bytes(15) + b"x")
        w.server.release_watches(w.active.zk.session_id)
        await w.told()
        assert w.led() == {("t", 0): (2, (2, 1))}
        w.agreed()


@in_virtual_time
async def test_a_topic_recreated_between_two_looks_is_a_new_one() -> None:
    """Its data watch fired for a growth; before that is handled it is gone, and back before the next look."""
    async with world() as w:
        await running(w)
        really = w.reign.controller.store.load_topics

        async def gone_then_back(*names: Any) -> Any:
            w.reign.controller.store.load_topics = really  # type: ignore[method-assign]
            await w.delete_topic("t")
            found = await really(*names)
            await w.topic("t", (2, 1), topic_id=bytes(15) + b"x")
            return found

        w.reign.controller.store.load_topics = gone_then_back  # type: ignore[method-assign,assignment]
        await w.expand("t", (2, 3))
        await w.told()
        assert w.led() == {("t", 0): (2, (2, 1))}
        w.agreed()


@pytest.mark.parametrize("ibp", ["2.7-IV1", "3.9"])
@pytest.mark.seed("S4-85")
@in_virtual_time
async def test_state_znodes_created_while_no_daemon_ran_are_taken_as_they_are(ibp: str) -> None:
    async with world() as w:
        await w.topic("t", (1, 2, 3), (2, 3, 1), leaders=True, isr=(1, 2, 3), epoch=9)
        await w.take_office(ibp)
        await w.told()
        assert w.states["t", 0].leader_epoch == 9
        assert w.wires.last_word(2, LEADER_AND_ISR)["t", 0] == (1, 9)
        w.agreed()


@in_virtual_time
async def test_a_topic_that_appears_with_states_is_told_and_led() -> None:
    """Restored by hand: what runs there is told to its replicas, what is led by nobody alive is elected."""
    async with world() as w:
        await running(w)
        w.server.hold_watches(w.active.zk.session_id)
        await w.topic("restored", (2, 3), (7, 1), leaders=True, isr=None)
        w.server.release_watches(w.active.zk.session_id)
        await w.told()
        assert w.led()["restored", 0] == (2, (2, 3))
        assert w.led()["restored", 1] == (1, (1,))
        assert w.wires.last_word(3, LEADER_AND_ISR)["restored", 0] == (2, 3)
        assert w.wires.last_word(1, LEADER_AND_ISR)["restored", 1] == (1, 4)
        w.agreed()


MALFORMED = {
    "no JSON": b"{",
    "NULL": None,
    "unknown version": b'{"version":9,"partitions":{"0":[1]}}',
    "a replica twice": b'{"version":3,"partitions":{"0":[1,1]}}',
    "no replicas": b'{"version":3,"partitions":{"0":[]}}',
    "bad id": b'{"version":3,"partitions":{"0":[1]},"topic_id":"short"}',
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED)
@pytest.mark.parametrize("found_at", ["failover", "watch"])
@in_virtual_time
async def test_a_topic_that_cannot_be_understood_waits_until_it_is_mended(data: bytes | None, found_at: str) -> None:
    async with world() as w:
        if found_at == "failover":
            await w.operator.create(paths.topic("bad"), data)
            await running(w)
        else:
            await running(w)
            await w.operator.create(paths.topic("bad"), data)
        await w.topic("good", (2, 3))
        await w.settle()
        assert not w.reign.term.ended
        assert paths.topic("bad") in w.counters.malformed
        assert w.led()["good", 0] == (2, (2, 3))
        w.server.blip(w.active.zk.session_id)
        await w.settle()
        await w.operator.set(paths.topic("bad"), encode_topic({0: Assignment((3, 1))}, bytes(15) + b"b"), -1)
        await w.told()
        assert w.led()["bad", 0] == (3, (3, 1))
        assert paths.topic("bad") not in w.counters.malformed
        await w.operator.set(paths.topic("good"), b"broken", -1)
        await w.settle()
        assert w.led()["good", 0] == (2, (2, 3)), "what ran goes on"
        assert not w.reign.term.ended


@in_virtual_time
async def test_a_state_that_cannot_be_understood_leaves_its_partition_alone_until_it_is_mended() -> None:
    async with world() as w:
        await w.topic("t", (1, 2), (1, 2), leaders=True)
        await w.operator.set(paths.state("t", 0), b"{}", 0)
        await w.take_office()
        await w.told()
        w.die(1)
        await w.told()
        assert w.led() == {("t", 1): (2, (2,))}
        node = w.node(paths.state("t", 0))
        assert node is not None
        assert (node.data, node.stat.version) == (b"{}", 1)
        await w.operator.set(
            paths.state("t", 0), b'{"version":1,"leader":1,"leader_epoch":5,"controller_epoch":0,"isr":[1,2]}', 1
        )
        await w.told()
        assert w.led()["t", 0] == (2, (2,))
        w.agreed()


# -- mended before it starts


@pytest.mark.seed("S4-85")
@pytest.mark.parametrize(("ibp", "given"), [("2.7-IV1", False), ("2.8-IV0", True), ("3.9", True)])
@in_virtual_time
async def test_a_missing_topic_id_is_given_from_ibp_2_8_on(ibp: str, given: bool) -> None:
    async with world() as w:
        await w.topic("old", (1, 2), topic_id=None, leaders=True)
        await running(w, ibp)
        await w.topic("new", (2, 3), topic_id=None)
        await w.told()
        for name in ("old", "new"):
            assert (w.assignment(name).topic_id is not None) is given
        assert w.led()["new", 0] == (2, (2, 3))
        known = w.reign.cluster.topic("old")
        assert known is not None
        assert known.topic_id == w.assignment("old").topic_id
        assert known.version == w.assignment("old").version


@pytest.mark.seed("S4-88")
@in_virtual_time
async def test_a_daemon_among_the_replicas_is_replaced_before_the_topic_starts() -> None:
    async with world(1, 2, 3, 4) as w:
        await running(w)
        starts: list[dict[int, tuple[int, ...]]] = []
        w.active.script.at("auto/partitions/0/state", lambda: starts.append(w.assignments()["auto"]))
        await w.topic("auto", (DAEMON, 1), (2, DAEMON), (3, 1))
        await w.told()
        assert starts == [{0: (4, 1), 1: (2, 4), 2: (3, 1)}], "the least loaded broker, and written before it starts"
        assert w.led()["auto", 0] == (4, (4, 1))
        assert w.counters.repaired_assignments == 1
        w.agreed()


@pytest.mark.seed("S4-88")
@in_virtual_time
async def test_many_auto_created_topics_found_at_once_are_spread() -> None:
    async with world(1, 2, 3, 4) as w:
        for number in range(6):
            await w.topic(f"auto-{number}", (DAEMON, 1))
        await running(w)
        chosen = [w.assignments()[f"auto-{number}"][0][0] for number in range(6)]
        assert sorted(chosen) == [2, 2, 3, 3, 4, 4]


@pytest.mark.seed("S4-88")
@in_virtual_time
async def test_a_fresh_topic_with_more_replicas_than_brokers_is_deleted_with_its_configuration() -> None:
    async with world() as w:
        await running(w)
        await w.topic("auto", (1, 2, 3, DAEMON))
        await w.told()
        assert w.node(paths.topic("auto")) is None
        assert w.node(paths.topic_config("auto")) is None
        await w.topic("auto", (1, 2, 3))
        await w.told()
        assert w.led()["auto", 0] == (1, (1, 2, 3))


@pytest.mark.seed("S4-88")
@pytest.mark.parametrize("found_at", ["failover", "watch"])
@in_virtual_time
async def test_added_partitions_that_no_broker_can_host_wait_and_do_not_harm_the_running_ones(found_at: str) -> None:
    async with world() as w:
        await w.topic("t", (1, 2, 3), leaders=True)
        if found_at == "failover":
            await w.expand("t", (1, 2, 3, DAEMON), (3, 2))
            await w.take_office()
        else:
            await w.take_office()
            await w.expand("t", (1, 2, 3, DAEMON), (3, 2))
        await w.told()
        assert w.led() == {("t", 0): (1, (1, 2, 3)), ("t", 2): (3, (3, 2))}
        assert not any(DAEMON in r for i in w.reign.cluster.rows for r in [i.assignment.replicas])
        w.die(1)
        await w.told()
        assert w.led()["t", 0] == (2, (2, 3)), "it is controlled all the same"
        await w.boot(1, 4)
        await w.told()
        assert w.assignments()["t"][1] == (1, 2, 3, 4), "a broker came: it is mended now"
        assert w.led()["t", 1] == (1, (1, 2, 3, 4))
        assert not w.reign.controller.waiting_topics
        w.agreed()


@in_virtual_time
async def test_a_fresh_topic_that_cannot_be_deleted_is_left_alone() -> None:
    async with world() as w:
        await running(w)
        w.active.script.at("auto", lambda: w.operator.create(paths.partitions("auto"), None))
        await w.topic("auto", (1, 2, 3, DAEMON))
        await w.told()
        assert w.node(paths.topic("auto")) is not None
        assert ("auto", 0) not in w.led()
        assert not w.reign.term.ended


@in_virtual_time
async def test_partitions_added_while_the_topic_is_mended_are_mended_too() -> None:
    async with world() as w:
        await running(w)
        w.active.script.at("auto", lambda: w.expand("auto", (DAEMON, 2)))
        await w.topic("auto", (3, DAEMON))
        await w.told()
        replicas = [b for r in w.assignments()["auto"].values() for b in r]
        assert DAEMON not in replicas
        assert len(w.assignments()["auto"]) == 2
        assert {name for name in w.led() if name[0] == "auto"} == {("auto", 0), ("auto", 1)}
        w.agreed()


@in_virtual_time
async def test_a_topic_recreated_while_it_is_mended_is_taken_as_the_new_one() -> None:
    async with world() as w:
        await running(w)

        async def recreate() -> None:
            await w.delete_topic("auto")
            await w.topic("auto", (2, 1))
            await w.expand("auto", (1, 3))

        w.active.script.at("auto", recreate)
        await w.topic("auto", (3, DAEMON))
        await w.told()
        assert w.led()["auto", 0] == (2, (2, 1))
        assert w.led()["auto", 1] == (1, (1, 3))
        w.agreed()


@in_virtual_time
async def test_a_connection_lost_while_mending_starts_every_topic_in_the_end() -> None:
    async with world() as w:
        await running(w)
        for fault in (w.server.blip, w.server.lose_replies, w.server.lose_requests):
            session = w.active.zk.session_id
            name = fault.__name__
            w.active.script.at(f"{name}-b", lambda fault=fault, session=session: fault(session))
            w.server.hold_watches(session)
            await w.topic(f"{name}-a", (1, 2))
            await w.topic(f"{name}-b", (2, DAEMON))
            w.server.release_watches(session)
            await eventually(lambda name=name: {(f"{name}-a", 0), (f"{name}-b", 0)} <= set(w.led()))
            await w.told()
            assert not w.reign.term.ended
            w.agreed()


@in_virtual_time
async def test_a_topic_znode_that_may_not_be_written_is_served_as_far_as_it_runs() -> None:
    async with world() as w:
        await w.topic("t", (1, 2, 3), leaders=True, topic_id=None)
        await w.topic("auto", (2, 3), leaders=True)
        await w.expand("auto", (3, DAEMON))
        for name in ("t", "auto"):
            await w.operator.set_acls(paths.topic(name), [Acl(READ | 4 | 16, "world", "anyone")], 0)
        await w.take_office()
        await w.told()
        assert not w.reign.term.ended
        w.die(1)
        await w.told()
        assert w.led() == {("t", 0): (2, (2, 3)), ("auto", 0): (2, (2, 3))}
        for name in ("t", "auto"):
            await w.operator.set_acls(paths.topic(name), OPEN, 1)
        await w.boot(1)
        await w.told()
        assert w.assignment("t").topic_id is not None
        assert w.led()["auto", 1] == (3, (3, 1))
        w.agreed()


@in_virtual_time
async def test_a_topic_znode_that_somebody_keeps_rewriting_never_ends_the_term() -> None:
    async with world() as w:
        await running(w)
        left = 2 * mending.MEND_ROUNDS_MAX

        async def touch() -> None:
            nonlocal left
            node = w.node(paths.topic("auto"))
            assert node is not None
            await w.operator.set(paths.topic("auto"), node.data, node.stat.version)
            left -= 1
            if left:
                w.active.script.at("auto", touch)

        w.active.script.at("auto", touch)
        await w.topic("auto", (3, DAEMON))
        await eventually(lambda: ("auto", 0) in w.led())
        assert left == 0
        assert not w.reign.term.ended
        assert DAEMON not in w.assignments()["auto"][0]


@in_virtual_time
async def test_unknown_fields_of_a_topic_znode_survive_the_mending() -> None:
    async with world() as w:
        await running(w)
        data = b'{"version":3,"partitions":{"0":[2,1000001]},"adding_replicas":{},"removing_replicas":{},"later":{"x":1}}'
        await w.operator.create(paths.topic("auto"), data)
        await w.told()
        found = w.assignment("auto")
        assert found.unknown == {"later": {"x": 1}}
        assert found.topic_id is not None
        assert found.partitions[0].replicas == (2, 1)


@in_virtual_time
async def test_thousands_of_new_partitions_are_a_few_writes() -> None:
    async with world() as w:
        await running(w)
        w.active.script.writes.clear()
        await w.topic("wide", *[(1, 2)] * 1000)
        await w.told()
        assert len([name for name in w.led() if name[0] == "wide"]) == 1000
        assert len(w.active.script.writes) <= 10
        assert all(isinstance(found, list) for found in w.active.script.writes)


@in_virtual_time
async def test_a_term_that_ends_while_mending_starts_nothing() -> None:
    async with world() as w:
        await running(w)
        may_write = asyncio.Event()
        w.active.script.at("auto", may_write.wait)
        await w.topic("auto", (3, DAEMON))
        await eventually(lambda: w.reign.handling == "topic_change")
        w.reign.term.end("a test")
        may_write.set()
        assert await w.active.ended() == "a test"
        assert ("auto", 0) not in w.led()
        with mock.patch.object(w.reign.channels, "tell", side_effect=AssertionError("a dead term speaks")):
            await asyncio.sleep(0.1)
