"""Clients that authenticate with a real broker through the admin endpoint."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError

from testing.znodes import create_topic
from tests.kit.admin_kit import KafkaClient
from tests.kit.admin_requests import CREATE_TOPICS, create
from tests.kit.polling import eventually
from tests.real.cluster.endpoint import EndpointProcess, admin_client, endpoint, errors_of
from tests.real.cluster.world import world

LOGIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SECURED = {
    "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,INTERNAL:PLAINTEXT",
    "listener.name.client.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.client.plain.sasl.jaas.config": (f'{LOGIN_MODULE} required user_alice="secret" user_bob="secret";'),
}
TOPIC_AUTHORIZATION_FAILED = 29


def admin(at: EndpointProcess, password: str, name: str = "alice") -> AbstractAsyncContextManager[AIOKafkaAdminClient]:
    user = {"sasl_plain_username": name, "sasl_plain_password": password}
    return admin_client(at.address, security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN", **user)


async def test_only_principals_that_a_broker_authenticates_and_the_daemon_authorizes_create_topics() -> None:
    async with world(1, replication=1, properties=SECURED) as w:
        daemon = w.daemon(flags=["--takeover"], settings={"controller.super_users": "User:alice"})
        await daemon.boot()
        await create_topic(w.zk, "t", {0: [1]})
        async with endpoint(daemon) as at:
            async with admin(at, "secret") as alice, admin(at, "secret", "bob") as bob:

                async def listed() -> bool:
                    return "t" in await alice.list_topics()

                await eventually(listed, 30.0)
                for client, code in ((bob, TOPIC_AUTHORIZATION_FAILED), (alice, 0)):
                    assert errors_of(await client.create_topics([NewTopic("x", 1, 1)])) == [("x", code)]
            with pytest.raises(KafkaError):
                async with admin(at, "wrong"):
                    pass
            stranger = KafkaClient(*await asyncio.open_connection("127.0.0.1", at.port))
            stranger.request(CREATE_TOPICS, 7, **create(7))
            assert await stranger.closed()
            stranger.writer.close()
