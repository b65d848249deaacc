"""Contract of the store: operations that go in the multi of another change, and never hold it up."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from metadata_store import paths
from metadata_store.codecs.cluster import Config, FeatureRange, Features, encode_features
from metadata_store.codecs.topic import encode_topic
from metadata_store.commits.topic_commit import create_topics
from metadata_store.commits.topic_deletion import mark_topics
from metadata_store.errors import Code, OutcomeUnknown
from metadata_store.fencing.companion import Companion, CompanionState
from metadata_store.fencing.fenced import WRITES_MAX
from metadata_store.fencing.outcome import Fenced
from metadata_store.nodes.cluster_nodes import delete_features
from metadata_store.nodes.entity_configs import ConfigChange, commit_entities
from metadata_store.port import Create
from state_machines.admin_rules.create_topics import NewTopic
from state_machines.model.decision import TopicChange
from state_machines.model.types import Assignment
from tests.contracts.kafka_support import ASSIGNMENT, ContractWorld, kafka
from tests.contracts.support import Backend, NthWrite

ROOT: Final = "/records"
RECORD: Final = f"{ROOT}/0000000001"
MOVED: Final = {0: Assignment((2, 3, 1), (3,), (1,))}

Commit = Callable[[Companion], Awaitable[object]]
Prepare = Callable[[ContractWorld], Awaitable[tuple[Commit, str]]]
"""Prepares a change; returns its commit, and the path that it writes."""


async def creating(k: ContractWorld) -> tuple[Commit, str]:
    new = NewTopic("t", None, {0: ASSIGNMENT}, {})
    return lambda one: create_topics(k.zk, [(new, None)], k.fence, companions={"t": one}), paths.topic("t")


async def rewriting(k: ContractWorld) -> tuple[Commit, str]:
    made = await k.zk.create(paths.topic("t"), encode_topic({0: ASSIGNMENT}, None))
    change = TopicChange("t", 0, made.stat.czxid, MOVED, None, "reassigned")
    return lambda one: k.store.commit_topics([change], k.fence, companions={"t": one}), paths.topic("t")


async def marking(k: ContractWorld) -> tuple[Commit, str]:
    return lambda one: mark_topics(k.zk, ["t"], k.fence, one), paths.deletion("t")


async def configuring(k: ContractWorld) -> tuple[Commit, str]:
    change = ConfigChange("u", Config({"SCRAM-SHA-256": "x"}), None)
    return lambda one: commit_entities(k.zk, "users", [change], k.fence, {"u": one}), paths.config("users", "u")


async def disabling(k: ContractWorld) -> tuple[Commit, str]:
    await k.zk.create(paths.FEATURE, encode_features(Features(2, True, {"f": FeatureRange(1, 1)})))
    return lambda one: delete_features(k.zk, ["f"], k.fence, [one]), paths.FEATURE


COMMITS: Final = (creating, rewriting, marking, configuring, disabling)
EACH = pytest.mark.parametrize("prepare", COMMITS, ids=lambda prepare: prepare.__name__)


def made() -> Companion:
    return Companion([Create(RECORD, b"a call")])


async def content(k: ContractWorld, path: str) -> tuple[bytes | None, int] | None:
    node = await k.zk.get(path)
    return None if node is None else (node.data, node.stat.version)


class CompanionContract:
    """A companion is applied with the first of its entities, or not at all; its failure is never theirs."""

    @EACH
    async def test_a_companion_is_in_the_multi_of_its_effect(self, backend: Backend, prepare: Prepare) -> None:
        async with kafka(backend) as k:
            await k.zk.create(ROOT, None)
            commit, path = await prepare(k)
            before = await content(k, path)
            hooks = k.zk.hooks = NthWrite(at=-1)
            found = made()
            await commit(found)
            assert found.state is CompanionState.APPLIED
            [ops] = hooks.writes
            assert [ops[0].path, ops[-1].path] == [paths.CONTROLLER_EPOCH, RECORD]
            assert path in [op.path for op in ops]
            assert await content(k, path) != before
            assert await k.s.data(RECORD) == b"a call"

    @EACH
    @pytest.mark.parametrize("code", [Code.NO_NODE, Code.NODE_EXISTS])
    async def test_a_companion_that_fails_leaves_its_effect_alone(
        self, backend: Backend, prepare: Prepare, code: Code
    ) -> None:
        async with kafka(backend) as k:
            if code is Code.NODE_EXISTS:
                await k.zk.create(ROOT, None)
                await k.zk.create(RECORD, b"of another client")
            commit, path = await prepare(k)
            before = await content(k, path)
            found = made()
            outcome: Any = await commit(found)
            assert (found.state, found.code) == (CompanionState.FAILED, code)
            assert outcome is None or not outcome.unsettled | {*outcome.gone} | dict(outcome.refused).keys()
            assert await content(k, path) != before
            assert await content(k, RECORD) == (None if code is Code.NO_NODE else (b"of another client", 0))

    @EACH
    async def test_the_reply_to_both_is_lost(self, backend: Backend, prepare: Prepare) -> None:
        async with kafka(backend) as k:
            await k.zk.create(ROOT, None)
            commit, path = await prepare(k)
            before = await content(k, path)
            k.zk.hooks = NthWrite(at=0, after=OutcomeUnknown("lost"))
            found = made()
            try:
                outcome: Any = await commit(found)
                assert outcome.unknown
            except OutcomeUnknown:
                assert prepare in (marking, disabling), "their callers send the call again"
            assert found.state is CompanionState.UNKNOWN
            assert await content(k, path) != before
            assert await k.s.data(RECORD) == b"a call"

    @EACH
    async def test_a_fenced_write_has_no_rider(self, backend: Backend, prepare: Prepare) -> None:
        async with kafka(backend) as k:
            await k.zk.create(ROOT, None)
            commit, path = await prepare(k)
            before = await content(k, path)
            await k.zk.set(paths.CONTROLLER_EPOCH, b"2", 0)
            found = made()
            with pytest.raises(Fenced):
                await commit(found)
            assert found.state is CompanionState.WAITING
            assert await content(k, path) == before
            assert await k.zk.exists(RECORD) is None

    async def test_an_entity_that_conflicts_leaves_the_companion_waiting(self, backend: Backend) -> None:
        async with kafka(backend) as k:
            await k.zk.create(ROOT, None)
            commit, path = await creating(k)
            k.zk.hooks = NthWrite(at=0, before=lambda: k.zk.create(path, b"{}"))
            found = made()
            outcome: Any = await commit(found)
            assert (outcome.conflicts, found.state) == (["t"], CompanionState.WAITING)
            assert await k.zk.exists(RECORD) is None

    async def test_one_call_of_many_topics_rides_once_and_several_calls_ride_together(self, backend: Backend) -> None:
        async with kafka(backend) as k:
            await k.zk.create(ROOT, None)
            names = [f"t{n}" for n in range(WRITES_MAX)]
            large, small = made(), Companion([Create(f"{ROOT}/0000000002", b"")])
            topics = [(NewTopic(name, None, {0: ASSIGNMENT}, {}), None) for name in [*names, "last"]]
            hooks = k.zk.hooks = NthWrite(at=-1)
            companions = {**dict.fromkeys(names, large), "last": small}
            outcome = await create_topics(k.zk, topics, k.fence, companions=companions)
            assert len(outcome.applied) == len(topics)
            sent = [[op.path for op in ops if op.path.startswith(ROOT)] for ops in hooks.writes]
            assert sorted(sent) == [[], [RECORD], [f"{ROOT}/0000000002"]]

    async def test_a_companion_goes_with_no_entity_that_fills_its_multi(self, backend: Backend) -> None:
        async with kafka(backend) as k:
            await k.zk.create(ROOT, None)
            big = dict.fromkeys(range(k.zk.request_bytes_max // 20), ASSIGNMENT)
            topics = [(NewTopic("big", None, big, {}), None), (NewTopic("small", None, {0: ASSIGNMENT}, {}), None)]
            found = Companion([Create(RECORD, b"x" * (k.zk.request_bytes_max // 2))])
            hooks = k.zk.hooks = NthWrite(at=-1)
            outcome = await create_topics(k.zk, topics, k.fence, companions=dict.fromkeys(("big", "small"), found))
            assert {topic.name for topic in outcome.applied} == {"big", "small"}
            assert found.state is CompanionState.APPLIED
            [ops] = [ops for ops in hooks.writes if ops[-1].path == RECORD]
            assert paths.topic("small") in [op.path for op in ops]
