"""Deletions that wait name their brokers, since when, and the way to end the wait; an operator ends it for good."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest import mock

import pytest

from brokers.wire.errors import Error
from controller.http.documents import NotFound, ViewRefused
from controller.journal.query import entity, sentence
from controller.operator.counts import Counts
from controller.operator.deletions import DeletionView, GiveUpRequest
from controller.operator.health import troubles
from controller.operator.reasons import explain
from metadata_store import paths
from metadata_store.errors import Code, ZkError
from metadata_store.fencing import fenced
from metadata_store.nodes.stray_nodes import PARENT, PARTITIONS_MAX, Remembered, StrayKey, ops
from metadata_store.port import ANY_VERSION, Create, Op
from state_machines.journal.events import Kind
from state_machines.model.types import Assignment
from tests.kit.kafka.reassignments import remembered
from tests.kit.kafka.world import KafkaWorld, in_world


async def running(w: KafkaWorld) -> None:
    """t: two partitions, both on broker 3; u stays."""
    await w.topic("t", (1, 2, 3), (2, 3, 1), leaders=True)
    await w.topic("u", (1, 2), leaders=True)
    await w.serve()


async def waiting(w: KafkaWorld) -> None:
    """Marks t while broker 3 is gone."""
    await running(w)
    w.die(3)
    await w.propagated()
    await w.mark("t")
    await w.propagated()
    assert w.znodes_of("t"), "its logs on broker 3 are still to be deleted"
    w.forget()


def view(w: KafkaWorld) -> DeletionView:
    return DeletionView(lambda: w.term)


async def give_up(w: KafkaWorld, *brokers: int, topic: str = "t") -> list[str]:
    found = await view(w).given_up(GiveUpRequest(topic=topic, brokers=list(brokers), reason="lost"), "uid 0")
    return [item.topic for item in found]


@in_world(before=waiting)
async def test_a_waiting_deletion_names_its_broker_since_when_and_how_to_end_the_wait(w: KafkaWorld) -> None:
    way = "broker 3 is not registered: start it; only if it never returns: regent deletions give-up t --broker 3"
    [item] = view(w).listed()
    assert (item.topic, item.state, item.waits_for, item.why) == ("t", "waiting", [3], way)
    assert item.since is not None
    [told] = [line for line in troubles(w.term.cluster, Counts(), 0, w.term) if "deletion" in line]
    assert told == f"the deletion of t waits since {item.since:%Y-%m-%d %H:%M:%S} UTC: {way}"
    row = w.term.cluster.find("t", 0)
    assert row is not None
    found = explain(w.term.cluster, row, unclean=False)
    assert found.state == "NON_EXISTENT: its topic is being deleted, and brokers are sent that it is gone"
    assert found.would_change == [f"the deletion of its topic waits: {way}"]
    assert "znode" not in str(found), "nothing is wrong with its state znode"


@in_world(before=waiting)
async def test_the_end_of_a_wait_is_in_the_journal_with_its_author_and_reason(w: KafkaWorld) -> None:
    await give_up(w, 3)
    [row] = [row for row in w.book.read() if row.kind == Kind.WAIT_GIVEN_UP]
    assert (row.topic, row.broker, row.partitions, row.principal, row.reason) == ("t", 3, 2, "uid 0", "lost")
    assert entity(row) == "t"
    assert sentence(row) == "its deletion does not wait for 2 logs on broker 3 any more, by uid 0: lost"


@in_world(before=waiting)
async def test_the_wait_for_a_broker_that_never_returns_ends_for_good(w: KafkaWorld) -> None:
    assert await give_up(w, 3) == []
    await w.propagated()
    assert not w.znodes_of("t")
    assert w.node(f"{PARENT}/3-t") is not None, "the logs there are remembered"
    assert view(w).listed() == []
    with pytest.raises(NotFound, match="topic t does not exist"):
        await give_up(w, 3)
    await w.topic("t", (1, 2))
    await w.propagated()
    await w.boot(3)
    await w.propagated()
    assert sorted(w.wires.deleted(3)) == [("t", 0), ("t", 1)], "it returned after all"
    assert w.node(f"{PARENT}/3-t") is None
    assert w.leaders()["t", 0] == (1, (1, 2))


async def ended_for_one_of_two(w: KafkaWorld) -> None:
    """Topic v is being deleted, brokers 2 and 3 with its logs are dead, and the wait for broker 3 is ended."""
    await w.topic("v", (2, 3), leaders=True)
    await w.propagated()
    w.die(2)
    await w.propagated()
    await w.mark("v")
    await w.propagated()
    assert await give_up(w, 3, topic="v") == ["v"], "it waits for broker 2"


@in_world(before=waiting)
async def test_a_new_term_does_not_wait_again(w: KafkaWorld) -> None:
    """The term ends between the memory and the end of the deletion, which waits for another broker."""
    await ended_for_one_of_two(w)
    await w.active.crash()
    await w.serve()
    [item] = [one for one in view(w).listed() if one.topic == "v"]
    assert item.waits_for == [2]
    await w.boot(2)
    await w.propagated()
    assert not w.znodes_of("v")
    assert w.node(f"{PARENT}/3-v") is not None


@in_world(before=waiting)
async def test_what_another_client_has_written_meanwhile_is_kept_beside_the_logs_that_are_left(w: KafkaWorld) -> None:
    await w.operator.create(PARENT, b"")
    await w.operator.create(f"{PARENT}/3-t", b'{"partitions":{"7":1},"version":1}')
    assert await give_up(w, 3) == []
    await w.propagated()
    assert not w.znodes_of("t")
    assert sorted(remembered(w)["3-t"]["partitions"]) == ["0", "1", "7"]


@in_world(before=waiting)
async def test_a_wait_whose_logs_cannot_be_remembered_is_not_ended(w: KafkaWorld) -> None:
    await w.operator.create(PARENT, b"")
    w.restrict(PARENT)
    with pytest.raises(ViewRefused, match=f"{PARENT}/3-t cannot be written .NO_AUTH.: check its ACL"):
        await give_up(w, 3)
    await w.propagated()
    assert w.znodes_of("t"), "its logs on broker 3 would be nobody's"


@in_world(before=waiting)
async def test_a_topic_that_a_term_could_not_read_at_first_is_not_waited_for_again(w: KafkaWorld) -> None:
    await ended_for_one_of_two(w)
    await w.active.crash()
    node = await w.operator.get(paths.topic("v"))
    assert node is not None
    await w.operator.set(paths.topic("v"), b"{", ANY_VERSION)
    await w.serve()
    await w.operator.set(paths.topic("v"), node.data or b"", ANY_VERSION)
    await w.propagated()
    [item] = [one for one in view(w).listed() if one.topic == "v"]
    assert item.waits_for == [2]


@in_world(before=waiting)
async def test_only_waits_that_there_are_can_be_ended(w: KafkaWorld) -> None:
    for brokers, topic, why in (
        ((2,), "t", r"brokers \[2\] are registered: the deletion of t goes on there by itself"),
        ((9,), "t", r"the deletion of t does not wait for brokers \[9\]: it waits for brokers \[3\]"),
        ((3,), "u", "topic u is not being deleted: delete it first"),
    ):
        with pytest.raises(ViewRefused, match=why):
            await give_up(w, *brokers, topic=topic)
    assert w.znodes_of("t")
    assert w.node(f"{PARENT}/3-t") is None


@in_world(before=running)
async def test_a_broker_that_refused_to_delete_is_not_said_to_go_on_by_itself(w: KafkaWorld) -> None:
    w.wires.refused = {2: {("t", 0): Error.KAFKA_STORAGE_ERROR}}
    await w.mark("t")
    await w.propagated()
    [item] = view(w).listed()
    assert item.waits_for == [2]
    with pytest.raises(ViewRefused, match=r"brokers \[2\] are registered and refused to delete logs: restart them"):
        await give_up(w, 2)
    w.wires.refused = {}
    w.die(2)
    await w.propagated()
    assert await give_up(w, 2) == []
    await w.propagated()
    assert not w.znodes_of("t")


@in_world(before=waiting)
async def test_logs_that_are_too_many_to_be_remembered_have_another_way_out(w: KafkaWorld) -> None:
    way = "more than 1 partitions: start broker 3, or an empty one with its id"
    with (
        mock.patch("controller.kafka.reassignments.strays.PARTITIONS_MAX", 1),
        pytest.raises(ViewRefused, match=way),
    ):
        await give_up(w, 3)
    await w.boot(3)
    await w.propagated()
    assert not w.znodes_of("t")


@in_world(before=waiting)
async def test_logs_of_several_brokers_that_are_too_many_for_one_write_are_remembered_broker_by_broker(
    w: KafkaWorld,
) -> None:
    w.die(2)
    await w.propagated()
    sizes = list[int]()

    async def submit(zk: Any, fence: Any, ops: Sequence[Op]) -> None:
        sizes.append(len(ops))
        if len(ops) > 1:
            raise ZkError(Code.TOO_BIG, PARENT)
        await fenced.submit(zk, fence, ops)

    with mock.patch("controller.kafka.reassignments.given_up.submit", submit):
        assert await give_up(w, 2, 3) == []
    assert sizes == [2, 1, 1]
    await w.propagated()
    assert not w.znodes_of("t")
    assert [row.broker for row in w.book.read() if row.kind == Kind.WAIT_GIVEN_UP] == [2, 3]


@in_world(before=waiting)
async def test_logs_that_are_more_than_one_write_has_are_remembered_broker_by_broker_at_once(w: KafkaWorld) -> None:
    w.die(2)
    await w.propagated()
    submit = mock.AsyncMock(side_effect=fenced.submit)
    with (
        mock.patch("controller.kafka.reassignments.given_up.submit", submit),
        mock.patch("controller.kafka.reassignments.given_up.PARTITIONS_MAX", 3),
    ):
        assert await give_up(w, 2, 3) == []
    assert [len(call.args[2]) for call in submit.await_args_list] == [1, 1], "no write of both is tried"
    await w.propagated()
    assert not w.znodes_of("t")


@in_world(before=waiting)
async def test_the_deletion_goes_on_to_wait_for_the_other_broker(w: KafkaWorld) -> None:
    w.die(2)
    await w.propagated()
    await w.topic("v", (2, 3), leaders=True)
    await w.propagated()
    await w.mark("v")
    await w.propagated()
    [item] = [one for one in view(w).listed() if one.topic == "v"]
    assert item.waits_for == [2, 3]
    assert await give_up(w, 3, topic="v") == ["v"]
    [item] = [one for one in view(w).listed() if one.topic == "v"]
    assert item.waits_for == [2]
    await w.boot(2)
    await w.propagated()
    assert not w.znodes_of("v")


@in_world(before=running)
async def test_a_deletion_that_waits_for_a_reassignment_says_so(w: KafkaWorld) -> None:
    w.term.cluster.observe_assignments("t", w.assignment("t").version, {0: Assignment((1, 2, 3), (), (3,))})
    await w.mark("t")
    await w.propagated()
    [item] = view(w).listed()
    assert (item.state, item.waits_for) == ("waiting", [])
    assert "a reassignment of its topic is in progress" in item.why
    row = w.term.cluster.find("t", 0)
    assert row is not None
    [first, *_] = explain(w.term.cluster, row, unclean=False).would_change
    assert first.startswith("the deletion of its topic waits: a reassignment")


def test_the_largest_memory_of_a_broker_fits_into_one_znode() -> None:
    since_ms = 1_795_924_123_055
    memory = Remembered(dict.fromkeys(range(60_000 - PARTITIONS_MAX, 60_000), since_ms), 2**62, "f" * 32)
    [op] = ops({}, {StrayKey(2**31 - 1, "t" * 249): memory})
    assert isinstance(op, Create)
    assert len(op.data or b"") + 10_000 < 1024 * 1024, "ZooKeeper's jute.maxbuffer"
