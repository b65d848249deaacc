"""Contract of the store: commits of topic znodes."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from metadata_store import paths
from metadata_store.codecs.topic import decode_topic, encode_topic
from metadata_store.errors import Code
from metadata_store.fencing.outcome import Fence, Fenced
from metadata_store.port import WRITE_BYTES_MAX, Create
from state_machines.model.decision import TopicChange
from state_machines.model.types import Assignment, TopicAssignment
from tests.contracts.kafka_support import (
    ASSIGNMENT,
    NthWrite,
    data_of,
    kafka,
)
from tests.contracts.support import Backend, session

TOPIC_ID = bytes(range(16))


def moved(topic: str, version: int, partitions: dict[int, Assignment] | None = None) -> TopicChange:
    return TopicChange(topic, version, partitions or {0: Assignment((2, 3, 1), (3,), (1,))}, None, "reassigned")


class TopicCommitContract:
    """Fenced, conditional rewrites of topic znodes."""

    async def test_a_rewrite_keeps_what_it_does_not_know(self, backend: Backend) -> None:
        async with kafka(backend) as k:
            data = encode_topic({0: ASSIGNMENT, 1: ASSIGNMENT}, TOPIC_ID, {"vendor": {"a": [1]}})
            await k.zk.create(paths.topic("t"), data)
            outcome = await k.store.commit_topics([moved("t", 0)], k.fence)
            assert [change.topic for change in outcome.applied] == ["t"]
            [found] = await k.store.load_topics(["t"])
            assert isinstance(found, TopicAssignment)
            assert found.partitions == {0: Assignment((2, 3, 1), (3,), (1,)), 1: ASSIGNMENT}
            assert (found.topic_id, found.unknown, found.version) == (TOPIC_ID, {"vendor": {"a": [1]}}, 1)

    @pytest.mark.seed("S4-78")
    async def test_partitions_can_be_taken_out(self, backend: Backend) -> None:
        async with kafka(backend) as k:
            await k.zk.create(paths.topic("t"), encode_topic(dict.fromkeys(range(4), ASSIGNMENT), TOPIC_ID))
            change = TopicChange("t", 0, {0: Assignment((2, 1))}, None, "restored", dropped=(2, 3, 9))
            assert (await k.store.commit_topics([change], k.fence)).applied == [change]
            [found] = await k.store.load_topics(["t"])
            assert isinstance(found, TopicAssignment)
            assert (found.partitions, found.topic_id) == ({0: Assignment((2, 1)), 1: ASSIGNMENT}, TOPIC_ID)

    @pytest.mark.seed("S4-85")
    async def test_a_missing_topic_id_is_written(self, backend: Backend) -> None:
        async with kafka(backend) as k:
            await k.zk.create(paths.topic("t"), b'{"version":1,"partitions":{"0":[1,2,3]}}')
            await k.store.commit_topics([TopicChange("t", 0, {}, TOPIC_ID, "topic id given")], k.fence)
            node = await k.zk.get(paths.topic("t"))
            assert decode_topic("", "t", data_of(node), 1, 0) == TopicAssignment("t", TOPIC_ID, {0: ASSIGNMENT}, 1, 0)

    async def test_each_topic_gets_its_own_outcome(self, backend: Backend) -> None:
        async with kafka(backend) as k:
            data = encode_topic({0: ASSIGNMENT}, None)
            for name in ("fine", "changed"):
                await k.zk.create(paths.topic(name), data)
            await k.zk.set(paths.topic("changed"), data, 0)
            await k.zk.create(paths.topic("broken"), b"{")
            await k.zk.create(paths.topic("huge"), encode_topic({0: ASSIGNMENT}, None))
            huge = {p: Assignment(tuple(range(1_000_000_000, 1_000_000_050))) for p in range(2_000)}
            changes = [moved(n, 0) for n in ("fine", "changed", "absent", "broken")] + [moved("huge", 0, huge)]
            outcome = await k.store.commit_topics(changes, k.fence)
            assert [change.topic for change in outcome.applied] == ["fine"]
            assert (outcome.conflicts, outcome.gone) == (["changed"], ["absent"])
            assert outcome.refused == [("broken", Code.DATA_INCONSISTENCY), ("huge", Code.TOO_BIG)]

    async def test_large_topics_go_in_several_multis(self, backend: Backend) -> None:
        async with kafka(backend) as k:
            data = encode_topic({0: ASSIGNMENT}, None)
            await k.zk.apply([Create(paths.topic(f"t{n}"), data) for n in range(4)])
            big = {p: Assignment(tuple(range(1_000_000, 1_000_050))) for p in range(500)}
            hooks = k.zk.hooks = NthWrite(at=-1)
            outcome = await k.store.commit_topics([moved(f"t{n}", 0, big) for n in range(4)], k.fence)
            assert len(outcome.applied) == 4
            assert hooks.count > 1
            assert all(sum(len(getattr(op, "data", b"")) for op in ops) < WRITE_BYTES_MAX for ops in hooks.writes)

    async def test_the_next_topic_of_that_name_is_another_one(self, backend: Backend) -> None:
        async with kafka(backend) as k:
            found = await k.zk.create(paths.topic("t"), encode_topic({0: ASSIGNMENT}, None))
            former = replace(moved("t", 0), czxid=found.stat.czxid - 1)
            assert (await k.store.commit_topics([former], k.fence)).gone == ["t"]
            present = replace(moved("t", 0), czxid=found.stat.czxid)
            assert (await k.store.commit_topics([present], k.fence)).applied == [present]

    async def test_sent_singly_a_contended_topic_holds_nobody_up(self, backend: Backend) -> None:
        async with kafka(backend) as k, session(backend) as other:
            data = encode_topic({0: ASSIGNMENT}, None)
            for name in ("busy", "fine"):
                await k.zk.create(paths.topic(name), data)
            k.zk.hooks = NthWrite(at=0, before=lambda: other.zk.set(paths.topic("busy"), data, 0))
            outcome = await k.store.commit_topics([moved("busy", 0), moved("fine", 0)], k.fence, writes_max=1)
            assert ([change.topic for change in outcome.applied], outcome.conflicts) == (["fine"], ["busy"])

    @pytest.mark.seed("S4-86")
    async def test_a_stale_epoch_is_fenced(self, backend: Backend) -> None:
        async with kafka(backend) as k:
            await k.zk.create(paths.topic("t"), encode_topic({0: ASSIGNMENT}, None))
            await k.zk.set(paths.CONTROLLER_EPOCH, b"2", 0)
            with pytest.raises(Fenced):
                await k.store.commit_topics([moved("t", 0)], k.fence)

    async def test_what_was_not_sent_is_to_be_decided_again(self, backend: Backend) -> None:
        async with kafka(backend) as k:
            await k.zk.create(paths.topic("t"), encode_topic({0: ASSIGNMENT}, None))
            k.fence = Fence(0, lambda: False)
            outcome = await k.store.commit_topics([moved("t", 0)], k.fence)
            assert (outcome.applied, outcome.conflicts) == ([], ["t"])
