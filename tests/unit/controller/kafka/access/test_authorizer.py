"""Permissions of principals through the admin endpoint: by call, by topic, and as lists change."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from itertools import count, product
from typing import Any

import pytest

from brokers.listener.controller_listener import NotController
from brokers.wire.messages import partitions as p
from brokers.wire.messages import security as s
from brokers.wire.messages import topics as t
from brokers.wire.primitives import ZERO_ID
from brokers.wire.versions import Api
from controller.kafka.access import AGAIN_S, RETRY_S, Authorizer, Principals
from metadata_store.acl import ADMIN, Acl
from metadata_store.errors import NotConnected
from state_machines.admin_rules.acls import Operation, Resource
from testing.memory import MemoryServer, MemoryZooKeeper
from tests.kit.deadlines import eventually, in_virtual_time
from tests.kit.kafka.acls import (
    ALICE,
    ANONYMOUS,
    BOB,
    ROOT,
    allow,
    authorizer_starts,
    carried,
    deny,
    on_cluster,
    on_topic,
    put,
    ruled,
)
from tests.kit.kafka.calls import create, grow, topic
from tests.kit.kafka.cluster import id_of
from tests.kit.kafka.world import KafkaWorld, world

TOPIC_DENIED, CLUSTER_DENIED = 29, 31
ALL = "*"


async def creates(w: KafkaWorld, principal: str, *names: str) -> dict[str, int]:
    """Validates the creation of topics; returns the error by topic."""
    body = create(*(topic(name, 1, 1) for name in names), validate_only=True)
    response = await carried(w, principal, Api.CREATE_TOPICS, body, 7)
    return {one.name: one.error_code for one in response.topics}


async def until(w: KafkaWorld, code: int, name: str = "x", within_s: float = 10.0) -> None:
    """Waits until Alice's creation of a topic has this error."""

    async def seen() -> bool:
        return await creates(w, ALICE, name) == {name: code}

    await eventually(seen, within_s=within_s)


# -- principals and settings


@in_virtual_time
async def test_without_lists_only_super_users_are_allowed_anything() -> None:
    async with ruled(super_users=ROOT) as w:
        wanted = {ALICE: TOPIC_DENIED, ROOT: 0, ANONYMOUS: TOPIC_DENIED}
        assert {principal: (await creates(w, principal, "x"))["x"] for principal in wanted} == wanted


@in_virtual_time
async def test_without_an_authorizer_anonymous_is_allowed_everything_until_one_starts() -> None:
    async with world() as w:
        await w.begin_term()
        assert await creates(w, ANONYMOUS, "x") == {"x": 0}
        assert await creates(w, ALICE, "x") == {"x": TOPIC_DENIED}
        await authorizer_starts(w.operator)
        await put(w.operator, on_topic("x", allow(ALICE, "Create")))
        await until(w, 0)
        assert await creates(w, ANONYMOUS, "x") == {"x": TOPIC_DENIED}


@pytest.mark.parametrize(("settings", "code"), [({}, TOPIC_DENIED), ({"allow_everyone_if_no_acl_found": True}, 0)])
@in_virtual_time
async def test_a_setting_decides_on_resources_without_a_list(settings: dict[str, Any], code: int) -> None:
    rules = on_cluster(allow(BOB, "Create")), on_topic("taken", allow(BOB, "All"))
    async with ruled(*rules, **settings) as w:
        assert await creates(w, ALICE, "x", "taken") == {"x": code, "taken": TOPIC_DENIED}


@in_virtual_time
async def test_lists_do_not_count_where_the_settings_exclude_them() -> None:
    async with ruled(on_topic(ALL, allow(ALICE, "All")), acls="none", super_users=ROOT) as w:
        assert [await creates(w, who, "x") for who in (ALICE, ROOT)] == [{"x": TOPIC_DENIED}, {"x": 0}]


# -- calls


@in_virtual_time
async def test_topics_are_created_one_by_one_as_far_as_is_allowed() -> None:
    rules = (
        on_topic("mine-", allow(ALICE, "Create"), prefixed=True),
        on_topic("mine-not", deny(ALICE, "Create")),
        on_topic("mine-b", allow(ALICE, "DescribeConfigs")),
    )
    async with ruled(*rules) as w:
        body = create(*(topic(name, 2, 1) for name in ("other", "mine-a", "mine-not", "mine-b", "twice", "twice")))
        response = await carried(w, ALICE, Api.CREATE_TOPICS, body, 7)
        found = {one.name: (one.error_code, one.topic_config_error_code, one.num_partitions) for one in response.topics}
        assert found == {
            "other": (TOPIC_DENIED, 0, -1),
            "mine-a": (0, TOPIC_DENIED, -1),
            "mine-not": (TOPIC_DENIED, 0, -1),
            "mine-b": (0, 8, 2),
            "twice": (42, 0, -1),
        }
        assert [one.name for one in response.topics] == list(dict.fromkeys(each.name for each in body.topics))
        assert w.node("/brokers/topics/mine-a") is not None
        assert w.node("/brokers/topics/other") is None


@in_virtual_time
async def test_create_on_the_cluster_allows_every_topic() -> None:
    """As in Kafka the cluster's list decides before a topic's."""
    async with ruled(on_cluster(allow(ALICE, "Create")), on_topic("x", deny(ALICE, "Create"))) as w:
        assert await creates(w, ALICE, "x", "y") == {"x": 0, "y": 0}
        assert await creates(w, BOB, "y") == {"y": TOPIC_DENIED}


@in_virtual_time
async def test_partitions_are_added_to_topics_that_may_be_altered() -> None:
    async with ruled(on_topic("a", allow(ALICE, "Alter")), topics=("a", "b")) as w:
        body = t.CreatePartitionsRequest(grow("b", 2).topics + grow("a", 2).topics, 5_000, True)
        response = await carried(w, ALICE, Api.CREATE_PARTITIONS, body, 3)
        assert [(one.name, one.error_code) for one in response.results] == [("b", TOPIC_DENIED), ("a", 0)]


@in_virtual_time
async def test_topics_are_deleted_by_name_and_by_id_as_far_as_is_allowed() -> None:
    rules = on_topic("gone", allow(ALICE, "Delete")), on_topic("seen", allow(ALICE, "Describe"))
    async with ruled(*rules, topics=("gone", "seen", "hidden")) as w:
        named = t.DeleteTopicsRequest(0, topics=tuple(t.TopicToDelete(name, ZERO_ID) for name in ("seen", "hidden")))
        response = await carried(w, ALICE, Api.DELETE_TOPICS, named, 6)
        denied = [(one.name, one.error_code) for one in response.responses]
        assert denied == [("seen", TOPIC_DENIED), ("hidden", TOPIC_DENIED)]
        ids = [id_of("gone"), id_of("seen"), id_of("hidden"), b"no topic has it!"]
        by_id = t.DeleteTopicsRequest(0, topics=tuple(t.TopicToDelete(None, one) for one in ids))
        response = await carried(w, ALICE, Api.DELETE_TOPICS, by_id, 6)
        assert {one.topic_id: (one.name, one.error_code) for one in response.responses} == {
            ids[0]: ("gone", 7),
            ids[1]: ("seen", TOPIC_DENIED),
            ids[2]: (None, TOPIC_DENIED),
            ids[3]: (None, 100),
        }
        again = await carried(w, ALICE, Api.DELETE_TOPICS, by_id, 6, attempt=1)
        assert {one.topic_id: one.error_code for one in again.responses}[ids[3]] == 0, "the first attempt may have"
        assert [w.node(f"/admin/delete_topics/{name}") is not None for name in ("seen", "hidden")] == [False, False]


ON_CLUSTER = [
    (Api.ELECT_LEADERS, p.ElectLeadersRequest((), 0), "Alter"),
    (Api.ALTER_PARTITION_REASSIGNMENTS, p.AlterPartitionReassignmentsRequest(0, ()), "Alter"),
    (Api.LIST_PARTITION_REASSIGNMENTS, p.ListPartitionReassignmentsRequest(0, None), "Describe"),
    (Api.ALTER_USER_SCRAM_CREDENTIALS, s.AlterUserScramCredentialsRequest((), ()), "Alter"),
]


@pytest.mark.parametrize(("api", "body", "operation"), ON_CLUSTER)
@in_virtual_time
async def test_calls_that_concern_the_cluster_are_refused_as_a_whole(api: Api, body: Any, operation: str) -> None:
    async with ruled(on_cluster(allow(ALICE, operation), allow(BOB, "Create"))) as w:
        denied = await carried(w, BOB, api, body, 0)
        if hasattr(denied, "error_code"):
            assert denied.error_code == CLUSTER_DENIED
            assert (await carried(w, ALICE, api, body, 0)).error_code != CLUSTER_DENIED
        assert w.term.authorizer.unrestricted(ALICE) is False


@in_virtual_time
async def test_a_call_waits_for_lists_and_topics_and_ends_with_the_term() -> None:
    for lists, served in product((False, True), repeat=2):
        authorizer = Authorizer(Principals(), lists=lists, served=served)
        waiting = asyncio.ensure_future(authorizer.ready())
        await asyncio.sleep(60.0)
        assert waiting.done() is (served and not lists)
        if not lists:
            authorizer.serve()
            await waiting
        authorizer.close()
        with pytest.raises(NotController):
            await (waiting if lists else authorizer.ready())


# -- changes of the lists


@in_virtual_time
async def test_changes_hold_one_by_one_and_after_a_lost_connection() -> None:
    async with ruled() as w:
        prefixed = on_topic("x", allow(ALICE, "All"), prefixed=True)
        for rules, code, name in (
            ([on_topic("x", allow(ALICE, "Create"))], 0, "x"),
            ([on_topic("x", allow(ALICE, "Create"), deny(ALICE, "Create"))], TOPIC_DENIED, "x"),
            ([on_topic("x"), prefixed], 0, "xyz"),
        ):
            for rule in rules:
                await put(w.operator, rule)
            await until(w, code, name)
        w.server.suspend(w.active.zk.session_id)
        await put(w.operator, prefixed._replace(lines=()))
        w.server.resume(w.active.zk.session_id)
        await w.settle()
        w.active.renew()
        await until(w, TOPIC_DENIED, "xyz")


class LossyZooKeeper(MemoryZooKeeper):
    """Loses its connection at one of the next operations, counted by ``left``, without any event."""

    left: Iterator[int] = iter(())

    def __getattribute__(self, name: str) -> Any:
        if name in ("exists", "watch", "sync", "children", "read_many") and next(self.left, None) == 0:
            raise NotConnected
        return super().__getattribute__(name)


@pytest.mark.parametrize("lost_at", range(12))
@in_virtual_time
async def test_all_lists_are_read_again_after_a_connection_was_lost_at_any_step_of_reading_them(lost_at: int) -> None:
    """Notifications of the time without a connection may be gone."""
    server = MemoryServer()
    operator, zk = MemoryZooKeeper(server), LossyZooKeeper(server)
    await operator.connect(1.0)
    await zk.connect(1.0)
    await authorizer_starts(operator)
    authorizer = Authorizer(Principals(), lists=True)
    following = asyncio.ensure_future(authorizer.follow(zk))
    await authorizer.ready()
    for allowed in (True, False, True):
        zk.left = count(lost_at, -1)
        authorizer.look_again(everything=True)
        await asyncio.sleep(1.0)
        await put(operator, on_topic("x", allow(ALICE, "Create") if allowed else deny(ALICE, "All")), notify=False)
        authorizer.look_again(everything=False)
        await asyncio.sleep(1.0)
        assert next(zk.left) < 0, "the connection was lost"
        assert authorizer.may(ALICE, "10.0.0.7", Operation.CREATE, Resource.TOPIC, "x") is allowed
    following.cancel()


@pytest.mark.parametrize("failed_at", range(7))
@in_virtual_time
async def test_the_first_lists_are_read_again_without_an_event_after_any_step_failed(failed_at: int) -> None:
    """A server in trouble refuses a request on a connection that stands: no reconnect follows."""
    server = MemoryServer()
    operator, zk = MemoryZooKeeper(server), LossyZooKeeper(server)
    await operator.connect(1.0)
    await zk.connect(1.0)
    await authorizer_starts(operator)
    await put(operator, on_topic("x", allow(ALICE, "Create")))
    authorizer = Authorizer(Principals(), lists=True)
    zk.left = count(failed_at, -1)
    following = asyncio.ensure_future(authorizer.follow(zk))
    async with asyncio.timeout(2 * RETRY_S):
        await authorizer.ready()
    assert next(zk.left) < 0, "a step failed"
    assert authorizer.may(ALICE, "10.0.0.7", Operation.CREATE, Resource.TOPIC, "x")
    following.cancel()


@in_virtual_time
async def test_a_malformed_list_allows_only_super_users_until_it_is_replaced(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    rules = on_topic(ALL, allow(ALICE, "Create")), on_topic("broken", raw=b"{")
    async with ruled(*rules, super_users=ROOT) as w:
        assert await creates(w, ALICE, "x", "broken") == {"x": 0, "broken": TOPIC_DENIED}
        assert await creates(w, ROOT, "broken") == {"broken": 0}
        assert "/kafka-acl/Topic/broken" in caplog.text
        await put(w.operator, on_topic("broken", allow(ALICE, "Create")))
        await until(w, 0, "broken")


@pytest.mark.parametrize(
    ("path", "others"), [("/kafka-acl/Topic", TOPIC_DENIED), ("/kafka-acl/Topic/x", 0)], ids=["all lists", "one list"]
)
@in_virtual_time
async def test_lists_that_zookeeper_does_not_give_allow_nothing_until_they_are_readable_again(
    path: str, others: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A repaired ACL of a znode fires no watch, and a lasting refusal is logged once."""
    caplog.set_level(logging.INFO)
    async with ruled(on_topic("x", allow(ALICE, "Create")), on_topic(ALL, allow(ALICE, "Create"))) as w:
        for round_ in (1, 2, 3):
            before, stat = await w.operator.get_acls(path)
            closed = await w.operator.set_acls(path, [Acl(ADMIN, "world", "anyone")], stat.acl_version)
            w.term.authorizer.look_again(everything=True)
            await until(w, TOPIC_DENIED)
            assert await creates(w, ALICE, "y") == {"y": others}
            await asyncio.sleep(5 * AGAIN_S)
            if path == "/kafka-acl/Topic":
                assert caplog.text.count("cannot be read") == round_
            else:
                assert caplog.text.count("NO_AUTH") == 1
            await w.operator.set_acls(path, before, closed.acl_version)
            await asyncio.sleep(2 * AGAIN_S)
            assert await creates(w, ALICE, "x") == {"x": 0}


@in_virtual_time
async def test_a_notification_that_cannot_be_read_has_all_lists_read_again() -> None:
    async with ruled() as w:
        assert await creates(w, ALICE, "x") == {"x": TOPIC_DENIED}
        await put(w.operator, on_topic("x", allow(ALICE, "Create")), notify=False)
        closed = [Acl(ADMIN, "world", "anyone")]
        await w.operator.create("/kafka-acl-changes/acl_changes_", b"TOPIC:x", sequential=True, acl=closed)
        await until(w, 0)
