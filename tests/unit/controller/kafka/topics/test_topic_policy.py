"""A policy that is asked before topics of admin clients are created: its verdicts, its failures, and nobody waits."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from brokers.listener.controller_listener import NotController
from controller.process.policy_hooks import CommandHook, PolicyFailed
from metadata_store import paths
from tests.kit.deadlines import eventually
from tests.kit.kafka.calls import carried, create, created, topic
from tests.kit.kafka.world import KafkaWorld, in_world

POLICY = ("/bin/policy",)
Asked = list[dict[str, Any]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Collects the fields that the policy gets; it refuses topics whose name begins with ``no``."""
    found: Asked = []

    async def ask(_: CommandHook, fields: bytes) -> str | None:
        found.append(json.loads(fields))
        name: str = found[-1]["topic"]
        await asyncio.sleep(0.1)
        if name == "faulty":
            raise ZeroDivisionError
        if name == "broken":
            raise PolicyFailed("its disk is full")
        return f"{name} is no name of ours" if name.startswith("no") else None

    monkeypatch.setattr(CommandHook, "ask", ask)
    return found


def story(test: Callable[[KafkaWorld], Any]) -> None:
    in_world(create_topic_policy=POLICY, create_topic_policy_timeout_ms=2_000)(test)()


def test_a_policy_allows_and_refuses_each_topic_of_a_call(asked: Asked) -> None:
    async def told(w: KafkaWorld) -> None:
        await w.begin_term()
        answer = await carried(
            w, create(topic("t", 3, 2, retention_ms="7"), topic("no-t", 1, 1), topic("u", -1, -1, (1, 2)))
        )
        made = {one.name: (one.error_code, one.error_message) for one in answer.topics}
        assert made == {"t": (0, None), "no-t": (44, "no-t is no name of ours"), "u": (0, None)}
        assert w.node(paths.topic("no-t")) is None
        assert w.node(paths.topic_config("no-t")) is None
        assert len(w.assignment("t").partitions) == 3
        fields = {one["topic"]: one for one in asked}
        assert fields["t"] == {
            "topic": "t", "numPartitions": 3, "replicationFactor": 2, "replicasAssignments": None,
            "configs": {"retention.ms": "7"},
        }  # fmt: skip
        assert (fields["u"]["numPartitions"], fields["u"]["replicasAssignments"]) == (None, {"0": [1, 2]})
        w.agreed()

    story(told)


def test_a_policy_is_not_asked_for_what_is_refused_anyway_and_is_for_what_is_only_validated(asked: Asked) -> None:
    async def told(w: KafkaWorld) -> None:
        await w.begin_term()
        assert await created(w, create(topic("t", 0, 1), topic("u", 1, 9))) == {"t": 37, "u": 38}
        assert asked == []
        [refused] = (await carried(w, create(topic("no", 1, 1), validate_only=True))).topics
        assert (refused.error_code, refused.error_message) == (44, "no is no name of ours")
        assert await created(w, create(topic("yes", 1, 1), validate_only=True)) == {"yes": 0}
        assert w.node(paths.topic("yes")) is None

    story(told)


def test_a_policy_that_gives_no_answer_refuses_with_the_cause(asked: Asked) -> None:
    async def told(w: KafkaWorld) -> None:
        await w.begin_term()
        [refused] = (await carried(w, create(topic("broken", 1, 1)))).topics
        assert refused.error_code == 44
        assert refused.error_message == (
            "controller.create_topic_policy gave no answer, so nothing is created: its disk is full; try again"
        )

    story(told)


def test_a_fault_of_asking_refuses_its_topic_alone(asked: Asked) -> None:
    async def told(w: KafkaWorld) -> None:
        await w.begin_term()
        answer = await carried(w, create(topic("faulty", 1, 1), topic("t", 1, 1)))
        faulty, sound = answer.topics
        assert (faulty.error_code, sound.error_code) == (44, 0)
        assert "the daemon could not ask it (ZeroDivisionError)" in str(faulty.error_message)

    story(told)


def test_a_call_waits_no_longer_for_a_policy_that_hangs_than_its_caller_does(
    asked: Asked, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def ask(_: CommandHook, fields: bytes) -> str | None:
        asked.append(json.loads(fields))
        await asyncio.sleep(3_600)
        return None

    monkeypatch.setattr(CommandHook, "ask", ask)

    async def told(w: KafkaWorld) -> None:
        await w.begin_term()
        now = asyncio.get_running_loop().time
        began_s = now()
        answer = await carried(w, create(*(topic(f"t{number}", 1, 1) for number in range(50)), timeout_ms=10_000))
        assert now() - began_s < 11
        assert {one.error_code for one in answer.topics} == {44}
        texts = [str(one.error_message) for one in answer.topics]
        hung = sum("it did not answer within 2 s" in text for text in texts)
        assert hung >= 16, "four at a time, for five times 2 s"
        assert sum("its turn did not come within 10 s" in text for text in texts) == 50 - hung
        [line] = [line for line in caplog.messages if "gave no answer" in line]
        assert line.startswith("50 topics not created, because the policy gave no answer, the first is t")

    story(told)


def test_no_other_event_waits_for_a_policy(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    let_go = asyncio.Event()

    async def ask(_: CommandHook, fields: bytes) -> str | None:
        asked.append(json.loads(fields))
        await let_go.wait()
        return None

    monkeypatch.setattr(CommandHook, "ask", ask)

    async def told(w: KafkaWorld) -> None:
        await w.topic("known", (1, 2), leaders=True)
        await w.begin_term()
        call = asyncio.ensure_future(created(w, create(topic("t", 1, 1))))
        await eventually(lambda: bool(asked))
        w.die(1)
        await w.settle()
        assert w.leaders()["known", 0] == (2, (2,)), "a leader is elected meanwhile"
        let_go.set()
        assert await call == {"t": 0}

    story(told)


def test_a_topic_that_was_created_while_the_policy_was_asked_exists(asked: Asked) -> None:
    async def told(w: KafkaWorld) -> None:
        await w.begin_term()
        call = asyncio.ensure_future(created(w, create(topic("t", 1, 1))))
        await eventually(lambda: bool(asked))
        await w.topic("t", (1, 2), leaders=True)
        assert await call == {"t": 36}
        assert len(w.assignment("t").partitions[0].replicas) == 2

    story(told)


def test_a_term_that_ends_while_the_policy_is_asked_refuses_the_call(asked: Asked) -> None:
    async def told(w: KafkaWorld) -> None:
        await w.begin_term()
        call = asyncio.ensure_future(created(w, create(topic("t", 1, 1))))
        await eventually(lambda: bool(asked))
        await w.active.crash()
        with pytest.raises(NotController):
            await call
        await w.begin_term()
        assert await created(w, create(topic("t", 1, 1)), attempt=1) == {"t": 0}

    story(told)
