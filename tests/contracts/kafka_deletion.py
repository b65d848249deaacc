"""Contract of the store: the deletion of topics."""

from __future__ import annotations

import pytest

from metadata_store import paths
from metadata_store.acl import digest_acl
from metadata_store.commits.topic_deletion import TopicToDelete, delete_topics, mark_topics
from metadata_store.errors import Code
from metadata_store.fencing.fenced import WRITES_MAX
from metadata_store.port import Delete
from tests.contracts.kafka_support import World, kafka
from tests.contracts.support import ALL_READ, Backend, NthWrite


async def make(k: World, topics: int) -> list[TopicToDelete]:
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


async def left(k: World) -> list[str]:
    """Lists topics, their configurations and markers."""
    parents = (paths.TOPICS, f"{paths.CONFIG}/topics", paths.DELETE_TOPICS)
    return [f"{parent}/{child}" for parent in parents for child in await k.s.names(parent)]


class TopicDeletionContract:
    """Fenced, conditional deletes of everything that a topic has."""

    @pytest.mark.seed("S4-78")
    async def test_all_znodes_of_topics_are_deleted_and_the_marker_last(self, backend: Backend) -> None:
        async with kafka(backend) as k:
            topics_to_delete = await make(k, 60)
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
            topics_to_delete = await make(k, 3)
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
            topics_to_delete = await make(k, 2)
            former = [topics_to_delete[0], topics_to_delete[1]._replace(czxid=topics_to_delete[1].czxid - 1)]
            outcome = await delete_topics(k.zk, former, k.fence)
            assert (outcome.applied, outcome.conflicts) == (["t0"], ["t1"])
            assert await k.zk.exists(paths.state("t1", 0)) is not None

    @pytest.mark.seed("S4-78")
    async def test_a_topic_without_permission_is_refused_and_the_others_are_deleted(self, backend: Backend) -> None:
        async with kafka(backend, per_topic=2) as k:
            topics_to_delete = await make(k, 3)
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
