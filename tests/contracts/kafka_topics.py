"""Contract of the store: commits of topic znodes."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from metadata_store import paths
from metadata_store.codecs.topic import decode_topic, encode_topic
from metadata_store.errors import Code
from metadata_store.fencing.outcome import Fence
from metadata_store.port import WRITE_BYTES_MAX, Create
from state_machines.model.decision import TopicChange
from state_machines.model.types import Assignment, TopicAssignment
from tests.contracts.kafka_support import ASSIGNMENT, kafka
from tests.contracts.support import Backend, NthWrite, session

TOPIC_ID = bytes(range(16))


def moved(topic: str, version: int, partitions: dict[int, Assignment] | None = None) -> TopicChange:
    return TopicChange(topic, version, partitions or {0: Assignment((2, 3, 1), (3,), (1,))}, None, "reassigned")


class TopicCommitContract:
    """Fenced, conditional rewrites of topic znodes."""

    async def test_a_rewrite_keeps_unknown_fields_and_other_partitions(self, backend: Backend) -> None:
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
    async def test_a_rewrite_drops_partitions(self, backend: Backend) -> None:
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
            found = decode_topic("", "t", await k.s.data(paths.topic("t")), 1, 0)
            assert found == TopicAssignment("t", TOPIC_ID, {0: ASSIGNMENT}, 1, 0)

    async def test_each_topic_has_its_own_outcome(self, backend: Backend) -> None:
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

    async def test_large_topics_are_sent_in_several_multis(self, backend: Backend) -> None:
        async with kafka(backend) as k:
            data = encode_topic({0: ASSIGNMENT}, None)
            await k.zk.apply([Create(paths.topic(f"t{n}"), data) for n in range(4)])
            big = {p: Assignment(tuple(range(1_000_000, 1_000_050))) for p in range(500)}
            hooks = k.zk.hooks = NthWrite(at=-1)
            outcome = await k.store.commit_topics([moved(f"t{n}", 0, big) for n in range(4)], k.fence)
            assert len(outcome.applied) == 4
            assert hooks.count > 1
            assert all(sum(len(getattr(op, "data", b"")) for op in ops) < WRITE_BYTES_MAX for ops in hooks.writes)

    async def test_a_topic_of_the_same_name_but_another_czxid_is_gone(self, backend: Backend) -> None:
        async with kafka(backend) as k:
            found = await k.zk.create(paths.topic("t"), encode_topic({0: ASSIGNMENT}, None))
            former = replace(moved("t", 0), czxid=found.stat.czxid - 1)
            assert (await k.store.commit_topics([former], k.fence)).gone == ["t"]
            present = replace(moved("t", 0), czxid=found.stat.czxid)
            assert (await k.store.commit_topics([present], k.fence)).applied == [present]

    async def test_of_topics_sent_singly_only_the_contended_one_fails(self, backend: Backend) -> None:
        async with kafka(backend) as k, session(backend) as other:
            data = encode_topic({0: ASSIGNMENT}, None)
            for name in ("busy", "fine"):
                await k.zk.create(paths.topic(name), data)
            k.zk.hooks = NthWrite(at=0, before=lambda: other.zk.set(paths.topic("busy"), data, 0))
            outcome = await k.store.commit_topics([moved("busy", 0), moved("fine", 0)], k.fence, writes_max=1)
            assert ([change.topic for change in outcome.applied], outcome.conflicts) == (["fine"], ["busy"])

    async def test_a_rewrite_behind_a_closed_fence_is_a_conflict(self, backend: Backend) -> None:
        async with kafka(backend) as k:
            await k.zk.create(paths.topic("t"), encode_topic({0: ASSIGNMENT}, None))
            k.fence = Fence(0, lambda: False)
            outcome = await k.store.commit_topics([moved("t", 0)], k.fence)
            assert (outcome.applied, outcome.conflicts) == ([], ["t"])
