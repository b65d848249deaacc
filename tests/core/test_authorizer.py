"""Who may do what through the admin endpoint: by call, by topic, and as lists change."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from brokers.listener.controller_listener import NotController
from brokers.wire.messages import partitions as p
from brokers.wire.messages import security as s
from brokers.wire.messages import topics as t
from brokers.wire.primitives import ZERO_ID
from brokers.wire.versions import Api
from controller.access.authorizer import AGAIN_S
from metadata_store.acl import ADMIN, READ, Acl
from tests.core.acl_kit import asked, authorizer_starts, encoded, put, put_raw
from tests.core.carried_kit import create, grow, topic
from tests.core.controller_kafka import id_of
from tests.core.controller_world import World, world
from tests.core.virtual_time import in_virtual_time
from tests.polling import eventually

ALICE, BOB, ROOT, ANONYMOUS = "User:alice", "User:bob", "User:root", "User:ANONYMOUS"
TOPIC_DENIED, CLUSTER_DENIED = 29, 31


async def creates(w: World, principal: str, *names: str) -> dict[str, int]:
    """Error by topic; nothing is written."""
    body = create(*(topic(name, 1, 1) for name in names), validate_only=True)
    answer = await asked(w, principal, Api.CREATE_TOPICS, body, 7)
    return {one.name: one.error_code for one in answer.topics}


async def role(w: World) -> None:
    await authorizer_starts(w.operator)
    await w.begin_term()


@in_virtual_time
async def test_nobody_but_super_users_may_without_lists() -> None:
    async with world(super_users=ROOT) as w:
        await role(w)
        wanted = {ALICE: TOPIC_DENIED, ROOT: 0, ANONYMOUS: TOPIC_DENIED}
        assert {who: (await creates(w, who, "x"))["x"] for who in wanted} == wanted


@in_virtual_time
async def test_where_no_authorizer_was_used_whoever_need_not_authenticate_may() -> None:
    async with world() as w:
        await w.begin_term()
        assert await creates(w, ANONYMOUS, "x") == {"x": 0}
        assert await creates(w, ALICE, "x") == {"x": TOPIC_DENIED}
        await authorizer_starts(w.operator)
        await put(w.operator, "x", (ALICE, "Create", "Allow"))

        async def noticed() -> bool:
            return (await creates(w, ALICE, "x"))["x"] == 0

        await eventually(noticed)
        assert await creates(w, ANONYMOUS, "x") == {"x": TOPIC_DENIED}


@pytest.mark.parametrize(("settings", "code"), [({}, TOPIC_DENIED), ({"allow_everyone_if_no_acl_found": True}, 0)])
@in_virtual_time
async def test_resources_without_a_list(settings: dict[str, Any], code: int) -> None:
    async with world(**settings) as w:
        await authorizer_starts(w.operator)
        await put(w.operator, "kafka-cluster", (BOB, "Create", "Allow"), kind="Cluster")
        await put(w.operator, "taken", (BOB, "All", "Allow"))
        await w.begin_term()
        assert await creates(w, ALICE, "x", "taken") == {"x": code, "taken": TOPIC_DENIED}


@in_virtual_time
async def test_lists_are_not_read_where_the_settings_say_so() -> None:
    async with world(acls="none", super_users=ROOT) as w:
        await authorizer_starts(w.operator)
        await put(w.operator, "*", (ALICE, "All", "Allow"))
        await w.begin_term()
        assert await creates(w, ALICE, "x") == {"x": TOPIC_DENIED}
        assert await creates(w, ROOT, "x") == {"x": 0}


@in_virtual_time
async def test_topics_are_created_one_by_one_as_far_as_is_allowed() -> None:
    async with world() as w:
        await authorizer_starts(w.operator)
        await put(w.operator, "mine-", (ALICE, "Create", "Allow"), pattern="prefixed")
        await put(w.operator, "mine-not", (ALICE, "Create", "Deny"))
        await put(w.operator, "mine-b", (ALICE, "DescribeConfigs", "Allow"))
        await w.begin_term()
        body = create(*(topic(name, 2, 1) for name in ("other", "mine-a", "mine-not", "mine-b", "twice", "twice")))
        answer = await asked(w, ALICE, Api.CREATE_TOPICS, body, 7)
        found = {one.name: (one.error_code, one.topic_config_error_code, one.num_partitions) for one in answer.topics}
        assert found == {
            "other": (TOPIC_DENIED, 0, -1),
            "mine-a": (0, TOPIC_DENIED, -1),
            "mine-not": (TOPIC_DENIED, 0, -1),
            "mine-b": (0, 8, 2),
            "twice": (42, 0, -1),
        }
        assert [one.name for one in answer.topics] == list(dict.fromkeys(each.name for each in body.topics))
        assert w.node("/brokers/topics/mine-a") is not None
        assert w.node("/brokers/topics/other") is None


@in_virtual_time
async def test_create_on_the_cluster_is_for_every_topic() -> None:
    async with world() as w:
        await authorizer_starts(w.operator)
        await put(w.operator, "kafka-cluster", (ALICE, "Create", "Allow"), kind="Cluster")
        await put(w.operator, "x", (ALICE, "Create", "Deny"))
        await w.begin_term()
        assert await creates(w, ALICE, "x", "y") == {"x": 0, "y": 0}, "as in Kafka: the cluster is asked first"
        assert await creates(w, BOB, "y") == {"y": TOPIC_DENIED}


@in_virtual_time
async def test_partitions_are_added_to_what_may_be_altered() -> None:
    async with world() as w:
        await authorizer_starts(w.operator)
        await put(w.operator, "a", (ALICE, "Alter", "Allow"))
        for name in ("a", "b"):
            await w.topic(name, (1, 2, 3), leaders=True)
        await w.begin_term()
        body = t.CreatePartitionsRequest(grow("b", 2).topics + grow("a", 2).topics, 5_000, True)
        answer = await asked(w, ALICE, Api.CREATE_PARTITIONS, body, 3)
        assert [(one.name, one.error_code) for one in answer.results] == [("b", TOPIC_DENIED), ("a", 0)]


@in_virtual_time
async def test_topics_are_deleted_by_name_and_by_id_as_far_as_is_allowed() -> None:
    async with world() as w:
        await authorizer_starts(w.operator)
        await put(w.operator, "gone", (ALICE, "Delete", "Allow"))
        await put(w.operator, "seen", (ALICE, "Describe", "Allow"))
        for name in ("gone", "seen", "hidden"):
            await w.topic(name, (1, 2, 3), leaders=True)
        await w.begin_term()
        named = t.DeleteTopicsRequest(0, topics=tuple(t.TopicToDelete(name, ZERO_ID) for name in ("seen", "hidden")))
        answer = await asked(w, ALICE, Api.DELETE_TOPICS, named, 6)
        assert [(one.name, one.error_code) for one in answer.responses] == [
            ("seen", TOPIC_DENIED),
            ("hidden", TOPIC_DENIED),
        ]
        ids = [id_of("gone"), id_of("seen"), id_of("hidden"), b"no topic has it!"]
        by_id = t.DeleteTopicsRequest(0, topics=tuple(t.TopicToDelete(None, one) for one in ids))
        answer = await asked(w, ALICE, Api.DELETE_TOPICS, by_id, 6)
        assert {one.topic_id: (one.name, one.error_code) for one in answer.responses} == {
            ids[0]: ("gone", 7),
            ids[1]: ("seen", TOPIC_DENIED),
            ids[2]: (None, TOPIC_DENIED),
            ids[3]: (None, 100),
        }
        again = await asked(w, ALICE, Api.DELETE_TOPICS, by_id, 6, attempt=1)
        assert {one.topic_id: one.error_code for one in again.responses}[ids[3]] == 0, "it may have deleted it before"
        assert [w.node(f"/admin/delete_topics/{name}") is not None for name in ("seen", "hidden")] == [False, False]


ON_CLUSTER = [
    (Api.ELECT_LEADERS, p.ElectLeadersRequest((), 0), "Alter"),
    (Api.ALTER_PARTITION_REASSIGNMENTS, p.AlterPartitionReassignmentsRequest(0, ()), "Alter"),
    (Api.LIST_PARTITION_REASSIGNMENTS, p.ListPartitionReassignmentsRequest(0, None), "Describe"),
    (Api.ALTER_USER_SCRAM_CREDENTIALS, s.AlterUserScramCredentialsRequest((), ()), "Alter"),
]


@pytest.mark.parametrize(("api", "body", "operation"), ON_CLUSTER)
@in_virtual_time
async def test_what_concerns_the_cluster_is_refused_as_a_whole(api: Api, body: Any, operation: str) -> None:
    async with world() as w:
        await authorizer_starts(w.operator)
        await put(w.operator, "kafka-cluster", (ALICE, operation, "Allow"), (BOB, "Create", "Allow"), kind="Cluster")
        await w.begin_term()
        denied = await asked(w, BOB, api, body, 0)
        if hasattr(denied, "error_code"):
            assert denied.error_code == CLUSTER_DENIED
            assert (await asked(w, ALICE, api, body, 0)).error_code != CLUSTER_DENIED
        assert w.term.authorizer.unrestricted(ALICE) is False


@in_virtual_time
async def test_changes_are_noticed_one_by_one_and_after_a_blip() -> None:
    async with world() as w:
        await role(w)

        async def until(code: int, name: str = "x") -> None:
            async def seen() -> bool:
                return (await creates(w, ALICE, name))[name] == code

            await eventually(seen)

        await put(w.operator, "x", (ALICE, "Create", "Allow"))
        await until(0)
        await put(w.operator, "x", (ALICE, "Create", "Allow"), (ALICE, "Create", "Deny"))
        await until(TOPIC_DENIED)
        await put(w.operator, "x")
        await put(w.operator, "x", (ALICE, "All", "Allow"), pattern="prefixed")
        await until(0, "xyz")
        w.server.suspend(w.active.zk.session_id)
        await put(w.operator, "x", pattern="prefixed")
        w.server.resume(w.active.zk.session_id)
        await w.settle()
        w.active.renew()
        await until(TOPIC_DENIED, "xyz")


@in_virtual_time
async def test_a_list_that_cannot_be_understood_allows_nobody_anything(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    async with world(super_users=ROOT) as w:
        await authorizer_starts(w.operator)
        await put(w.operator, "*", (ALICE, "Create", "Allow"))
        await put_raw(w.operator, "broken", b"{")
        await w.begin_term()
        assert await creates(w, ALICE, "x", "broken") == {"x": 0, "broken": TOPIC_DENIED}
        assert await creates(w, ROOT, "broken") == {"broken": 0}
        assert "/kafka-acl/Topic/broken" in caplog.text
        await put(w.operator, "broken", (ALICE, "Create", "Allow"))

        async def repaired() -> bool:
            return (await creates(w, ALICE, "broken"))["broken"] == 0

        await eventually(repaired)


@in_virtual_time
async def test_lists_that_may_not_be_read_allow_nobody_anything(caplog: pytest.LogCaptureFixture) -> None:
    async with world() as w:
        await authorizer_starts(w.operator)
        await put(w.operator, "x", (ALICE, "Create", "Allow"))
        await put(w.operator, "*", (ALICE, "Create", "Allow"))
        _, stat = await w.operator.get_acls("/kafka-acl/Topic/x")
        await w.operator.set_acls("/kafka-acl/Topic/x", [Acl(READ, "digest", "somebody:else")], stat.acl_version)
        await w.begin_term()
        assert await creates(w, ALICE, "x", "y") == {"x": TOPIC_DENIED, "y": 0}
        assert "NO_AUTH" in caplog.text


@in_virtual_time
async def test_a_call_that_waits_for_the_lists_ends_with_the_term() -> None:
    async with world() as w:
        await role(w)
        w.term.authorizer._known.clear()
        w.term.gate.end("a test")
        await w.active.ended()
        with pytest.raises(NotController):
            await creates(w, ALICE, "x")


@pytest.mark.parametrize("path", ["/kafka-acl/Topic", "/kafka-acl/Topic/x"])
@in_virtual_time
async def test_lists_that_were_refused_are_asked_for_again_without_a_word(path: str) -> None:
    async with world() as w:
        await authorizer_starts(w.operator)
        await put(w.operator, "x", (ALICE, "Create", "Allow"))
        before, stat = await w.operator.get_acls(path)
        closed = await w.operator.set_acls(path, [Acl(ADMIN, "world", "anyone")], stat.acl_version)
        await w.begin_term()
        assert await creates(w, ALICE, "x") == {"x": TOPIC_DENIED}
        await w.operator.set_acls(path, before, closed.acl_version)

        async def noticed() -> bool:
            return (await creates(w, ALICE, "x"))["x"] == 0

        await eventually(noticed, within_s=60.0)


@in_virtual_time
async def test_lists_that_stay_refused_are_complained_of_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with world() as w:
        await authorizer_starts(w.operator)
        before, stat = await w.operator.get_acls("/kafka-acl/Topic")
        closed = await w.operator.set_acls("/kafka-acl/Topic", [Acl(ADMIN, "world", "anyone")], stat.acl_version)
        await w.begin_term()
        assert await creates(w, ALICE, "x") == {"x": TOPIC_DENIED}
        await asyncio.sleep(5 * AGAIN_S)
        assert caplog.text.count("cannot be read") == 1
        await w.operator.set_acls("/kafka-acl/Topic", before, closed.acl_version)
        await asyncio.sleep(2 * AGAIN_S)
        assert caplog.text.count("readable again") == 1


@in_virtual_time
async def test_a_notification_that_cannot_be_read_makes_everything_be_read() -> None:
    async with world() as w:
        await role(w)
        assert await creates(w, ALICE, "x") == {"x": TOPIC_DENIED}
        await w.operator.create("/kafka-acl/Topic/x", encoded((ALICE, "Create", "Allow")))
        await w.operator.create(
            "/kafka-acl-changes/acl_changes_", b"TOPIC:x", sequential=True, acl=[Acl(ADMIN, "world", "anyone")]
        )

        async def noticed() -> bool:
            return (await creates(w, ALICE, "x"))["x"] == 0

        await eventually(noticed)
