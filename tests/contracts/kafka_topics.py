"""Contract of the store: commits of topic znodes."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from metadata_store import paths
from metadata_store.codecs.topic import decode_topic, encode_topic
from metadata_store.errors import Code
from metadata_store.fencing.outcome import Fence
from metadata_store.port import WRITE_BYTES_MAX, Created
from state_machines.model.decision import TopicChange
from state_machines.model.types import Assignment, TopicAssignment
from tests.contracts.kafka_support import ASSIGNMENT, World, kafka
from tests.contracts.support import Backend, NthWrite, session

TOPIC_ID = bytes(range(16))


MOVED = {0: Assignment((2, 3, 1), (3,), (1,))}


def moved(created: Created, partitions: dict[int, Assignment] | None = None) -> TopicChange:
    return TopicChange(created.path.rpartition("/")[2], 0, created.stat.czxid, partitions or MOVED, None, "reassigned")


async def make(k: World, name: str, data: bytes = encode_topic({0: ASSIGNMENT}, None)) -> Created:
    return await k.zk.create(paths.topic(name), data)


class TopicCommitContract:
    """Fenced, conditional rewrites of topic znodes."""

    async def test_a_rewrite_keeps_unknown_fields_and_other_partitions(self, backend: Backend) -> None:
        async with kafka(backend) as k:
            topic = await make(k, "t", encode_topic({0: ASSIGNMENT, 1: ASSIGNMENT}, TOPIC_ID, {"vendor": {"a": [1]}}))
            outcome = await k.store.commit_topics([moved(topic)], k.fence)
            assert [change.topic for change in outcome.applied] == ["t"]
            [found] = await k.store.load_topics(["t"])
            assert isinstance(found, TopicAssignment)
            assert found.partitions == {**MOVED, 1: ASSIGNMENT}
            assert (found.topic_id, found.unknown, found.version) == (TOPIC_ID, {"vendor": {"a": [1]}}, 1)

    @pytest.mark.seed("S4-78")
    async def test_a_rewrite_drops_partitions(self, backend: Backend) -> None:
        async with kafka(backend) as k:
            topic = await make(k, "t", encode_topic(dict.fromkeys(range(4), ASSIGNMENT), TOPIC_ID))
            change = replace(moved(topic, {0: Assignment((2, 1))}), dropped=(2, 3, 9))
            assert (await k.store.commit_topics([change], k.fence)).applied == [change]
            [found] = await k.store.load_topics(["t"])
            assert isinstance(found, TopicAssignment)
            assert (found.partitions, found.topic_id) == ({0: Assignment((2, 1)), 1: ASSIGNMENT}, TOPIC_ID)

    @pytest.mark.seed("S4-85")
    async def test_a_missing_topic_id_is_written(self, backend: Backend) -> None:
        async with kafka(backend) as k:
            topic = await make(k, "t", b'{"version":1,"partitions":{"0":[1,2,3]}}')
            change = TopicChange("t", 0, topic.stat.czxid, {}, TOPIC_ID, "topic id given")
            await k.store.commit_topics([change], k.fence)
            found = decode_topic("", "t", await k.s.data(paths.topic("t")), 1, 0)
            assert found == TopicAssignment("t", TOPIC_ID, {0: ASSIGNMENT}, 1, 0)

    async def test_each_topic_has_its_own_outcome(self, backend: Backend) -> None:
        async with kafka(backend) as k:
            topics = [await make(k, name) for name in ("fine", "changed", "absent")] + [await make(k, "broken", b"{")]
            await k.zk.set(paths.topic("changed"), b"", 0)
            await k.zk.set(paths.topic("changed"), encode_topic({0: ASSIGNMENT}, None), 1)
            await k.zk.delete(paths.topic("absent"), 0)
            huge = {p: Assignment(tuple(range(1_000_000_000, 1_000_000_050))) for p in range(2_000)}
            changes = [moved(topic) for topic in topics] + [moved(await make(k, "huge"), huge)]
            outcome = await k.store.commit_topics(changes, k.fence)
            assert [change.topic for change in outcome.applied] == ["fine"]
            assert (outcome.conflicts, outcome.gone) == (["changed"], ["absent"])
            assert outcome.refused == [("broken", Code.DATA_INCONSISTENCY), ("huge", Code.TOO_BIG)]

    async def test_large_topics_are_sent_in_several_multis(self, backend: Backend) -> None:
        async with kafka(backend) as k:
            topics = [await make(k, f"t{n}") for n in range(4)]
            big = {p: Assignment(tuple(range(1_000_000, 1_000_050))) for p in range(500)}
            hooks = k.zk.hooks = NthWrite(at=-1)
            outcome = await k.store.commit_topics([moved(topic, big) for topic in topics], k.fence)
            assert len(outcome.applied) == 4
            assert hooks.count > 1
            assert all(sum(len(getattr(op, "data", b"")) for op in ops) < WRITE_BYTES_MAX for ops in hooks.writes)

    async def test_a_topic_of_the_same_name_but_another_czxid_is_gone(self, backend: Backend) -> None:
        async with kafka(backend) as k:
            present = moved(await make(k, "t"))
            former = replace(present, czxid=present.czxid - 1)
            assert (await k.store.commit_topics([former], k.fence)).gone == ["t"]
            assert (await k.store.commit_topics([present], k.fence)).applied == [present]

    async def test_a_write_over_a_topic_that_was_created_again_in_between_is_logged_and_counts_as_gone(
        self, backend: Backend, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with kafka(backend) as k, session(backend) as other:
            changes = [moved(await make(k, name)) for name in ("again", "fine")]

            async def recreated() -> None:
                await other.zk.delete(paths.topic("again"), 0)
                await other.zk.create(paths.topic("again"), encode_topic({0: Assignment((9,))}, None))

            k.zk.hooks = NthWrite(at=0, before=recreated)
            outcome = await k.store.commit_topics(changes, k.fence)
            assert (outcome.applied, outcome.gone, outcome.unsettled) == (changes[1:], ["again"], set())
            assert [record.message.partition(":")[0] for record in caplog.records] == ["again"]

    async def test_of_topics_sent_singly_only_the_contended_one_fails(self, backend: Backend) -> None:
        async with kafka(backend) as k, session(backend) as other:
            changes = [moved(await make(k, name)) for name in ("busy", "fine")]
            k.zk.hooks = NthWrite(at=0, before=lambda: other.zk.set(paths.topic("busy"), b"", 0))
            outcome = await k.store.commit_topics(changes, k.fence, writes_max=1)
            assert ([change.topic for change in outcome.applied], outcome.conflicts) == (["fine"], ["busy"])

    async def test_a_rewrite_behind_a_closed_fence_is_a_conflict(self, backend: Backend) -> None:
        async with kafka(backend) as k:
            topic = await make(k, "t")
            k.fence = Fence(0, lambda: False)
            outcome = await k.store.commit_topics([moved(topic)], k.fence)
            assert (outcome.applied, outcome.conflicts) == ([], ["t"])
