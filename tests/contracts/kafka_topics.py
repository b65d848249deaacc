"""Contract of the store: commits and the deletion of topics."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from metadata_store import paths
from metadata_store.acl import digest_acl
from metadata_store.codecs.topic import decode_topic, encode_topic
from metadata_store.commits.topic_deletion import TopicToDelete, delete_topics, mark_topics
from metadata_store.errors import Code
from metadata_store.fencing.fenced import WRITES_MAX
from metadata_store.fencing.outcome import Fence
from metadata_store.port import WRITE_BYTES_MAX, Created, Delete
from state_machines.model.decision import TopicChange
from state_machines.model.types import Assignment, TopicAssignment
from tests.contracts.kafka_support import ASSIGNMENT, ContractWorld, kafka
from tests.contracts.support import ALL_READ, Backend, NthWrite, session

TOPIC_ID = bytes(range(16))


MOVED = {0: Assignment((2, 3, 1), (3,), (1,))}


def moved(created: Created, partitions: dict[int, Assignment] | None = None) -> TopicChange:
    return TopicChange(created.path.rpartition("/")[2], 0, created.stat.czxid, partitions or MOVED, None, "reassigned")


async def make(k: ContractWorld, name: str, data: bytes = encode_topic({0: ASSIGNMENT}, None)) -> Created:
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


async def make_three(k: ContractWorld, topics: int) -> list[TopicToDelete]:
    """Topics with ten partitions each, a configuration and a marker, but for the first, which has neither."""
    await k.make_topics(topics * k.per_topic)
    topics_to_delete: list[TopicToDelete] = []
    for n in range(topics):
        stat = await k.zk.exists(paths.topic(f"t{n}"))
        assert stat is not None
        topics_to_delete.append(TopicToDelete(f"t{n}", stat.czxid, range(k.per_topic)))
        if n:
            await k.zk.create(paths.topic_config(f"t{n}"), b"{}")
            await k.zk.create(paths.deletion(f"t{n}"), None)
    return topics_to_delete


async def left(k: ContractWorld) -> list[str]:
    """Lists topics, their configurations and markers."""
    parents = (paths.TOPICS, f"{paths.CONFIG}/topics", paths.DELETE_TOPICS)
    return [f"{parent}/{child}" for parent in parents for child in await k.s.names(parent)]


class TopicDeletionContract:
    """Fenced, conditional deletes of everything that a topic has."""

    @pytest.mark.seed("S4-78")
    async def test_all_znodes_of_topics_are_deleted_and_the_marker_last(self, backend: Backend) -> None:
        async with kafka(backend) as k:
            topics_to_delete = await make_three(k, 60)
            hooks = k.zk.hooks = NthWrite(at=-1)
            outcome = await delete_topics(k.zk, topics_to_delete[:-1], k.fence)
            assert sorted(outcome.applied) == sorted(topic.name for topic in topics_to_delete[:-1])
            assert await left(k) == [paths.topic("t59"), paths.topic_config("t59"), paths.deletion("t59")]
            assert len(await k.states(range(590, 600))) == 10
            deletes = [[op for op in ops if isinstance(op, Delete)] for ops in hooks.writes]
            assert max(map(len, deletes)) <= WRITES_MAX
            assert len(deletes) == -(-1_180 // WRITES_MAX) + 1, "znodes of partitions, then the rest in one"
            assert [op.path for op in deletes[-1][-4:]] == [
                paths.partitions("t58"), paths.topic("t58"), paths.topic_config("t58"), paths.deletion("t58"),
            ]  # fmt: skip
            again = await delete_topics(k.zk, topics_to_delete[:-1], k.fence)
            assert len(again.applied) == 59, "what is gone counts as deleted"

    @pytest.mark.seed("S4-78")
    async def test_unexpected_znodes_below_a_topic_are_deleted_too(self, backend: Backend) -> None:
        async with kafka(backend, per_topic=3) as k:
            topics_to_delete = await make_three(k, 3)
            for path in (
                paths.partition("t1", 7),
                paths.state("t1", 7),
                paths.state("t1", 0) + "/note",
                paths.topic("t1") + "/notes",
                paths.topic("t1") + "/notes/deep",
                paths.partitions("t2") + "/odd",
            ):
                await k.zk.create(path, None)
            await k.zk.delete(paths.state("t2", 1), 0)
            outcome = await delete_topics(k.zk, topics_to_delete, k.fence)
            assert (sorted(outcome.applied), outcome.refused, outcome.conflicts) == (["t0", "t1", "t2"], [], [])
            assert await left(k) == []

    @pytest.mark.seed("S4-78")
    async def test_another_incarnation_of_a_topic_is_a_conflict_and_stays(self, backend: Backend) -> None:
        async with kafka(backend, per_topic=2) as k:
            topics_to_delete = await make_three(k, 2)
            former = [topics_to_delete[0], topics_to_delete[1]._replace(czxid=topics_to_delete[1].czxid - 1)]
            outcome = await delete_topics(k.zk, former, k.fence)
            assert (outcome.applied, outcome.conflicts) == (["t0"], ["t1"])
            assert await k.zk.exists(paths.state("t1", 0)) is not None

    @pytest.mark.seed("S4-78")
    async def test_a_topic_without_permission_is_refused_and_the_others_are_deleted(self, backend: Backend) -> None:
        async with kafka(backend, per_topic=2) as k:
            topics_to_delete = await make_three(k, 3)
            _, stat = await k.zk.get_acls(paths.partition("t1", 0))
            await k.zk.set_acls(paths.partition("t1", 0), [digest_acl("brokers", "other"), ALL_READ], stat.acl_version)
            outcome = await delete_topics(k.zk, topics_to_delete, k.fence)
            assert sorted(outcome.applied) == ["t0", "t2"]
            assert outcome.refused == [("t1", Code.NO_AUTH)]

    @pytest.mark.seed("S4-78")
    async def test_missing_markers_are_created(self, backend: Backend) -> None:
        async with kafka(backend) as k:
            names = [f"t{n}" for n in range(WRITES_MAX + 20)]
            await k.zk.create(paths.deletion("t7"), None)
            k.zk.hooks = NthWrite(at=0, before=lambda: k.zk.create(paths.deletion("t9"), None))
            assert (await mark_topics(k.zk, names, k.fence)).refused == []
            assert await left(k) == sorted(map(paths.deletion, names))
