"""Kafka's own controller and the daemon authorize the same calls of the same users, through TLS and SASL."""

from __future__ import annotations

import ssl
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.errors import KafkaError

from testing.embedded.tools import Tools
from testing.znodes import create_topic
from tests.kit.certificates import Authority
from tests.kit.polling import eventually
from tests.real.cluster.endpoint import admin_client, endpoint, errors_of
from tests.real.cluster.world import world

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
