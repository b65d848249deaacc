"""Kafka's own controller and the daemon authorize the same calls, and hold the same quotas."""

from __future__ import annotations

import ssl
import uuid
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.errors import KafkaError

from metadata_store.reads import topic_names
from testing.embedded.tools import Finished, Tools
from testing.znodes import create_topic
from tests.kit.certificates import Authority
from tests.kit.cluster.endpoint import admin_client, endpoint, errors_of
from tests.kit.cluster.scene import Scene, scene
from tests.kit.cluster.world import world
from tests.kit.deadlines import eventually

LOGIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
USERS = ("root", "alice", "bob", "carol", "dora")
DENIED = 29
GRANTS = (
    ("--allow-principal", "User:alice", "--operation", "Create", "--operation", "Alter", "--operation", "Delete",
     "--topic", "mine-", "--resource-pattern-type", "prefixed"),
    ("--deny-principal", "User:alice", "--operation", "All", "--topic", "mine-not"),
    ("--allow-principal", "User:bob", "--operation", "Create", "--cluster"),
    ("--allow-principal", "User:carol", "--operation", "All", "--topic", "*", "--allow-host", "127.0.0.1"),
    ("--allow-principal", "User:dora", "--operation", "All", "--topic", "*", "--allow-host", "10.9.9.9"),
)  # fmt: skip


def properties(authority: Authority) -> dict[str, object]:
    users = " ".join(f'user_{name}="secret-{name}"' for name in USERS)
    return {
        "listener.security.protocol.map": "CLIENT:SASL_SSL,INTERNAL:PLAINTEXT",
        "listener.name.client.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.client.plain.sasl.jaas.config": f"{LOGIN_MODULE} required {users};",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.signed("broker")),
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS;User:root",
    }


def command_config(authority: Authority, folder: Path) -> str:
    """Writes the configuration with which tools authenticate as root."""
    lines = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{LOGIN_MODULE} required username="root" password="secret-root";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.file),
    }
    path = folder / "root.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in lines.items()), encoding="utf-8")
    return str(path)


def admin(address: str, name: str, authority: Authority) -> AbstractAsyncContextManager[AIOKafkaAdminClient]:
    return admin_client(
        address,
        security_protocol="SASL_SSL",
        ssl_context=ssl.create_default_context(cafile=authority.file),
        sasl_mechanism="PLAIN",
        sasl_plain_username=name,
        sasl_plain_password=f"secret-{name}",
    )


async def judged(address: str, authority: Authority) -> dict[tuple[str, str, str], int]:
    """Returns the error of each call of each user by topic; no call changes anything."""
    found: dict[tuple[str, str, str], int] = {}
    for name in USERS:
        async with admin(address, name, authority) as client:
            new = [NewTopic(topic, 1, 1) for topic in ("mine-1", "mine-not", "other")]
            created = await client.create_topics(new, validate_only=True)
            found |= {(name, "creates", topic): code for topic, code in errors_of(created)}
            for topic in ("mine-0", "orders"):
                grown = client.create_partitions({topic: NewPartitions(total_count=3)}, validate_only=True)
                found[name, "grows", topic] = await error(grown)
            for topic in ("mine-gone", "mine-not", "gone"):
                found[name, "deletes", topic] = await error(client.delete_topics([topic]))
    return found


async def error(asking: Coroutine[Any, Any, Any]) -> int:
    """Returns the error code of a call, which the client raises or returns."""
    try:
        answer = await asking
    except KafkaError as refused:
        return int(refused.errno)
    [(_, code, *_)] = getattr(answer, "topic_error_codes", None) or answer.topic_errors
    return int(code)


async def test_both_controllers_authorize_the_same_calls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with world(1, replication=1, properties=properties(authority)) as w:
        for topic in ("mine-0", "orders"):
            await create_topic(w.zk, topic, {0: [1]})
        await w.healed()
        at = w.cluster.brokers[1].address
        tools, config = Tools(at, tmp_path), command_config(authority, tmp_path)
        for grant in GRANTS:
            done = await tools.run("kafka-acls", "--command-config", config, "--add", *grant)
            assert done.code == 0, done
        settings = {
            "controller.super_users": "User:ANONYMOUS;User:root",
            "security.ca_file": str(authority.file),
            "admin.tls": True,
            "admin.certificate_file": str(authority.signed("endpoint")),
        }
        kafka = await judged(at, authority)
        assert set(kafka.values()) == {0, 3, DENIED}

        daemon = w.daemon(flags=["--takeover"], settings=settings)
        await daemon.boot()
        await w.healed()
        async with endpoint(daemon) as carried:
            ours = await judged(carried.address, authority)
            assert ours == kafka

            more = ("--allow-principal", "User:dora", "--operation", "Create", "--topic", "other")
            tools = Tools(carried.address, tmp_path)
            done = await tools.run("kafka-acls", "--command-config", config, "--add", *more)
            assert done.code == 0, done

            async def noticed() -> bool:
                async with admin(carried.address, "dora", authority) as client:
                    created = await client.create_topics([NewTopic("other", 1, 1)], validate_only=True)
                return errors_of(created) == [("other", 0)]

            await eventually(noticed, 30.0)


REFUSED = "The throttling quota has been exceeded."
ALMOST_NOTHING = "controller_mutation_rate=0.0001"
"""The first call finds its bucket above zero; a partition is paid back in three hours."""


@pytest.mark.kafka(
    "kafkatest.controller_mutation_quota_test", "TopicCommandTest.test*DoesNotRetryThrottlingQuotaExceededException"
)
async def test_tools_are_throttled_while_their_client_has_a_quota(tmp_path: Path) -> None:
    async with scene() as stage:
        await throttled(stage, tmp_path)


async def throttled(stage: Scene, tmp_path: Path) -> None:
    name, client = f"quota-{uuid.uuid4().hex[:6]}", f"tool-{uuid.uuid4().hex[:6]}"
    identity = tmp_path / "client.properties"
    identity.write_text(f"client.id={client}\n", encoding="utf-8")
    async with endpoint(stage.daemon) as at:
        tools = Tools(at.address, tmp_path)

        async def topics(*arguments: str) -> Finished:
            return await tools.run("kafka-topics", "--command-config", str(identity), *arguments)

        async def quota(*change: str) -> None:
            done = await tools.run(
                "kafka-configs", "--alter", *change, "--entity-type", "clients", "--entity-name", client
            )
            assert done.code == 0, done

        await quota("--add-config", ALMOST_NOTHING)
        made = await topics("--create", "--topic", name, "--partitions", "4", "--replication-factor", "2")
        assert made.code == 0, made
        for refused in (
            await topics("--create", "--topic", f"{name}-2"),
            await topics("--alter", "--topic", name, "--partitions", "5"),
            await topics("--delete", "--topic", name),
        ):
            assert refused.code == 1, refused
            assert REFUSED in refused.out + refused.err, refused
        assert sorted(topic for topic in await topic_names(stage.w.zk) if topic.startswith(name)) == [name]
        other = await tools.run("kafka-topics", "--alter", "--topic", name, "--partitions", "5")
        assert other.code == 0, other
        await quota("--delete-config", "controller_mutation_rate")

        async def deleted() -> bool:
            return (await topics("--delete", "--topic", name)).code == 0

        await eventually(deleted, 60.0)
        made = await topics("--create", "--topic", name, "--partitions", "40")
        assert made.code == 0, made
    await stage.proven()
