"""Quotas on mutations in a term: what clients are refused, or told to wait for, and when rates are read (KIP-599)."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest import mock

import pytest
from msgspec import Struct

from brokers.wire.messages import topics as t
from brokers.wire.primitives import ZERO_ID
from metadata_store import paths
from metadata_store.codecs.cluster import encode_config
from metadata_store.codecs.notifications import encode_config_change
from metadata_store.nodes.entity_configs import read_rates
from tests.kit.kafka.calls import carried, create, grow, topic
from tests.kit.kafka.cluster import id_of
from tests.kit.kafka.world import KafkaWorld, in_world

DEFAULT = "<default>"
THROTTLED = 89
BURST: dict[str, Any] = {"quota_window_num": 5, "quota_window_size_seconds": 2}
"""A bucket holds what its rate gives in 10 s."""


def delete(*names: str) -> t.DeleteTopicsRequest:
    return t.DeleteTopicsRequest(30_000, names, tuple(t.TopicToDelete(name, ZERO_ID) for name in names))


async def asked(
    w: KafkaWorld, body: Struct, *, user: str = "alice", client: str = "c", version: int | None = None, attempt: int = 0
) -> tuple[dict[str, int], int]:
    """Error by topic, and the throttle time in seconds, rounded: brokers take some milliseconds to learn."""
    if isinstance(body, t.DeleteTopicsRequest):
        old = version is not None and version < 6
        body = t.DeleteTopicsRequest(body.timeout_ms, body.topic_names if old else (), () if old else body.topics)
    answer: Any = await carried(
        w,
        body,
        version=version,
        principal=f"User:{user}",
        client_id=client,
        attempt=attempt,
        call_id=repr(body).encode(),
    )
    found = next(getattr(answer, field) for field in ("topics", "results", "responses") if hasattr(answer, field))
    return {one.name: int(one.error_code) for one in found}, round(answer.throttle_time_ms / 1000)


async def set_rate(w: KafkaWorld, kind: str, name: str, value: str | None) -> None:
    """As kafka-configs does it."""
    parts = name.split("/")
    for depth in range(1, len(parts) + 1):
        path = paths.config(kind, "/".join(parts[:depth]))
        if await w.operator.exists(path) is None:
            await w.operator.create(path, None)
    data = encode_config({} if value is None else {"controller_mutation_rate": value})
    await w.operator.set(paths.config(kind, name), data, -1)
    note = encode_config_change(f"{kind}/{name}")
    await w.operator.create(paths.CONFIG_CHANGE_PREFIX, note, sequential=True)


async def rate(w: KafkaWorld, kind: str, name: str, value: str | None = "1") -> None:
    """Sets a rate, and waits until the daemon has heard of it."""
    await set_rate(w, kind, name, value)
    await w.settle()


async def running(w: KafkaWorld) -> None:
    await w.topic("old", (1, 2), (2, 3), leaders=True)
    await w.serve()


@pytest.mark.kafka("ControllerMutationQuotaTest.testStrict*")
@in_world(before=running, **BURST)
async def test_strict_callers_overdraw_once_and_are_refused_until_the_bucket_is_filled_again(w: KafkaWorld) -> None:
    """``ControllerMutationQuotaTest``, the strict half: what was refused is not there."""
    await rate(w, "users", "alice")
    assert await asked(w, create(topic("a", 8, 1), topic("b", 8, 1), topic("d", 1, 1))) == (
        {"a": 0, "b": 0, "d": THROTTLED},
        6,
    )
    assert await asked(w, grow("a", 9)) == ({"a": THROTTLED}, 6)
    assert await asked(w, delete("a", "old")) == ({"a": THROTTLED, "old": THROTTLED}, 6)
    assert sorted(w.assignments()) == ["a", "b", "old"]
    assert len(w.assignment("a").partitions) == 8
    await asyncio.sleep(4.0)
    assert await asked(w, grow("a", 9)) == ({"a": THROTTLED}, 2)
    await asyncio.sleep(2.0)
    assert await asked(w, grow("a", 13)) == ({"a": 0}, 0)
    assert await asked(w, delete("b")) == ({"b": THROTTLED}, 5)
    w.agreed()


@pytest.mark.kafka("ControllerMutationQuotaTest.testPermissive*", "ControllerMutationQuotaTest.testStrict*")
@pytest.mark.parametrize(
    ("body", "version"),
    [(create(topic("new", 13, 1)), 5), (grow("old", 15), 2), (delete("wide"), 4)],
    ids=["CreateTopics", "CreatePartitions", "DeleteTopics"],
)
@in_world(**BURST)
async def test_older_clients_are_let_through_with_a_throttle_time(w: KafkaWorld, body: Struct, version: int) -> None:
    """The permissive half; one version later the same call is refused."""
    await w.topic("wide", *[(1, 2)] * 13, leaders=True)
    await running(w)
    await rate(w, "clients", "c")
    assert await asked(w, body, version=version) == ({_name(body): 0}, 3)
    assert await asked(w, create(topic("more", 2, 1)), version=6) == ({"more": THROTTLED}, 3)
    assert await asked(w, create(topic("more", 2, 1)), version=5) == ({"more": 0}, 5)


def _name(body: Any) -> str:
    return str(body.topic_names[0] if isinstance(body, t.DeleteTopicsRequest) else body.topics[0].name)


@pytest.mark.kafka("ControllerMutationQuotaTest.testUnbounded*")
@pytest.mark.parametrize("version", [6, 7])
@in_world(before=running, **BURST)
async def test_without_a_rate_nothing_is_throttled(w: KafkaWorld, version: int) -> None:
    await rate(w, "users", "bob", "0")
    assert await asked(w, create(topic("a", 500, 1)), version=version) == ({"a": 0}, 0)
    assert await asked(w, grow("a", 600)) == ({"a": 0}, 0)
    assert await asked(w, delete("a")) == ({"a": 0}, 0)


@in_world(before=running, **BURST)
async def test_failed_and_validating_calls_are_not_charged(w: KafkaWorld) -> None:
    await rate(w, "users", DEFAULT, "0.1")
    assert await asked(w, create(topic("a", 50, 1), validate_only=True)) == ({"a": 0}, 0)
    assert await asked(w, grow("old", 50, validate_only=True)) == ({"old": 0}, 0)
    assert await asked(w, create(topic("old", 50, 1), topic("b", 50, 9))) == ({"old": 36, "b": 38}, 0)
    assert await asked(w, delete("never")) == ({"never": 3}, 0)
    assert await asked(w, create(topic("a", 1, 1))) == ({"a": 0}, 0)
    assert await asked(w, create(topic("b", 5, 1))) == ({"b": 0}, 0)
    assert await asked(w, create(topic("d", 1, 1))) == ({"d": THROTTLED}, 50)
    assert await asked(w, create(topic("d", 1, 1), validate_only=True)) == ({"d": 0}, 0)


@in_world(**BURST)
async def test_a_repeated_call_is_not_refused_for_its_earlier_attempt(w: KafkaWorld) -> None:
    await w.topic("going", *[(1, 2)] * 5, leaders=True)
    await running(w)
    await rate(w, "users", "alice", "0.1")
    made = create(topic("a", 3, 1))
    assert await asked(w, made) == ({"a": 0}, 0)
    assert await asked(w, made, attempt=1) == ({"a": 0}, 0)
    assert await asked(w, grow("old", 3)) == ({"old": THROTTLED}, 20)
    assert await asked(w, grow("old", 2), attempt=1) == ({"old": 0}, 0)
    w.wires.silent = {1}
    await w.mark("going")
    await w.settle()
    waiting = asyncio.create_task(asked(w, delete("going"), attempt=1))
    await w.settle()
    w.wires.respond(1)
    assert await waiting == ({"going": 0}, 0)


@in_world(before=running, **BURST)
async def test_users_clients_and_defaults_have_buckets_of_their_own(w: KafkaWorld) -> None:
    await rate(w, "users", DEFAULT, "0.1")
    await rate(w, "users", "alice/clients/tool", "0.1")
    names = iter("abcdefgh")

    async def code(user: str, client: str) -> int:
        [(_, found)] = (await asked(w, create(topic(next(names), 2, 1)), user=user, client=client))[0].items()
        return found

    assert await code("alice", "tool") == 0
    assert await code("alice", "tool") == THROTTLED
    assert await code("alice", "other") == 0
    assert await code("alice", "") == THROTTLED
    assert await code("bob", "tool") == 0
    assert await code("bob", "other") == THROTTLED


@pytest.mark.kafka("ControllerMutationQuotaTest.testSetUnsetQuota")
@in_world(before=running, **BURST)
async def test_rates_are_read_once_for_each_caller_and_again_when_something_changed(w: KafkaWorld) -> None:
    with mock.patch("controller.kafka.requests.admission.read_rates", side_effect=read_rates) as reads:
        for name in ("a", "b"):
            assert await asked(w, create(topic(name, 20, 1))) == ({name: 0}, 0)
            assert await asked(w, delete(name)) == ({name: 0}, 0)
        assert reads.call_count == 1
        await rate(w, "clients", DEFAULT)
        assert reads.call_count == 1
        assert await asked(w, create(topic("a", 15, 1))) == ({"a": 0}, 0)
        assert await asked(w, create(topic("b", 1, 1))) == ({"b": THROTTLED}, 5)
        assert reads.call_count == 2
        assert await asked(w, create(topic("b", 1, 1)), client="d") == ({"b": 0}, 0)
        assert reads.call_count == 3
        await rate(w, "clients", DEFAULT, "5")
        assert await asked(w, create(topic("d", 1, 1))) == ({"d": THROTTLED}, 1)
        await rate(w, "clients", DEFAULT, None)
        assert await asked(w, create(topic("d", 90, 1))) == ({"d": 0}, 0)


@in_world(before=running, **BURST)
async def test_calls_that_wait_together_are_charged_one_after_the_other(w: KafkaWorld) -> None:
    await rate(w, "clients", "c", "0.2")
    calls = [asyncio.create_task(asked(w, create(topic(f"n{n}", 2, 1)), user=f"u{n}")) for n in range(4)]
    codes = [next(iter((await call)[0].values())) for call in calls]
    assert codes == [0, 0, THROTTLED, THROTTLED]


@pytest.mark.parametrize("value", ["soon", "-1", "nan", "inf"])
@in_world(before=running, **BURST)
async def test_a_malformed_rate_is_reported_and_throttles_nothing(w: KafkaWorld, value: str) -> None:
    await rate(w, "users", "alice", value)
    assert await asked(w, create(topic("a", 50, 1))) == ({"a": 0}, 0)
    assert list(w.counters.malformed) == ["/config/users/alice"]
    await rate(w, "users", "alice", "0")
    assert await asked(w, create(topic("b", 1, 1))) == ({"b": 0}, 0)
    assert await asked(w, create(topic("d", 1, 1))) == ({"d": THROTTLED}, 2_147_484)
    assert not w.counters.malformed


@in_world(before=running, **BURST)
async def test_a_rate_that_changed_while_the_connection_was_lost_is_found(w: KafkaWorld) -> None:
    assert await asked(w, create(topic("a", 1, 1))) == ({"a": 0}, 0)
    w.server.suspend(w.active.zk.session_id)
    await set_rate(w, "users", "alice", "0.1")
    w.server.resume(w.active.zk.session_id)
    w.active.renew()
    await w.settle()
    assert await asked(w, create(topic("b", 5, 1))) == ({"b": 0}, 0)
    assert await asked(w, create(topic("d", 1, 1))) == ({"d": THROTTLED}, 40)


@in_world(before=running, **BURST)
async def test_callers_and_buckets_that_are_kept_are_bounded(w: KafkaWorld) -> None:
    await rate(w, "clients", DEFAULT, "0.1")
    with mock.patch("controller.kafka.access.CALLERS_MAX", 2):
        for n, client in enumerate(["x", "y", "x", "z"]):
            await asked(w, create(topic(f"n{n}", 3, 1)), client=client)
        assert (await asked(w, create(topic("more", 1, 1)), client="x"))[0] == {"more": THROTTLED}
        assert (await asked(w, create(topic("more", 1, 1)), client="y"))[0] == {"more": 0}


@in_world(before=running, **BURST)
async def test_what_is_judged_again_after_a_foreign_write_is_charged_once(w: KafkaWorld) -> None:
    await rate(w, "users", "alice", "0.1")
    w.active.script.at(paths.topic("old"), lambda: w.expand("old", (3, 1)))
    assert await asked(w, grow("old", 6)) == ({"old": 0}, 0)
    assert len(w.assignment("old").partitions) == 6
    assert await asked(w, grow("old", 7)) == ({"old": THROTTLED}, 30)


@in_world(before=running, **BURST)
async def test_a_topic_that_is_named_by_its_id_too_is_charged_once(w: KafkaWorld) -> None:
    await rate(w, "users", "alice", "0.1")
    both = (t.TopicToDelete("old", ZERO_ID), t.TopicToDelete(None, id_of("old")))
    assert await asked(w, t.DeleteTopicsRequest(30_000, (), both)) == ({"old": 0}, 0)
    assert await asked(w, create(topic("a", 1, 1))) == ({"a": THROTTLED}, 10)
