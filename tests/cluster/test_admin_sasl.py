"""Clients that authenticate with a real broker through the admin endpoint."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError

from testing.znodes import create_topic
from tests.cluster.endpoint import EndpointProcess, endpoint
from tests.cluster.world import world
from tests.core.admin_kit import KafkaClient
from tests.core.admin_requests import CREATE_TOPICS, create
from tests.polling import eventually

LOGIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SECURED = {
    "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,INTERNAL:PLAINTEXT",
    "listener.name.client.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.client.plain.sasl.jaas.config": (f'{LOGIN_MODULE} required user_alice="secret" user_bob="secret";'),
}
TOPIC_AUTHORIZATION_FAILED = 29


def admin(at: EndpointProcess, password: str, name: str = "alice") -> AIOKafkaAdminClient:
    return AIOKafkaAdminClient(
        bootstrap_servers=at.address,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_plain_username=name,
        sasl_plain_password=password,
    )


async def test_who_a_broker_lets_in_may_ask_and_nobody_else() -> None:
    async with world(1, replication=1, properties=SECURED) as w:
        daemon = w.daemon(flags=["--takeover"], settings={"controller.super_users": "User:alice"})
        await daemon.boot()
        await create_topic(w.zk, "t", {0: [1]})
        async with endpoint(daemon) as at:
            alice, bob = admin(at, "secret"), admin(at, "secret", "bob")
            await alice.start()
            await bob.start()
            try:

                async def listed() -> bool:
                    return "t" in await alice.list_topics()

                await eventually(listed, 30.0)
                for asking, code in ((bob, TOPIC_AUTHORIZATION_FAILED), (alice, 0)):
                    answered = await asking.create_topics([NewTopic("x", 1, 1)])
                    assert answered.topic_errors[0][1] == code
            finally:
                await alice.close()
                await bob.close()
            with pytest.raises(KafkaError):
                await admin(at, "wrong").start()
            nobody = KafkaClient(*await asyncio.open_connection("127.0.0.1", at.port))
            nobody.request(CREATE_TOPICS, 7, **create(7))
            assert await nobody.closed()
            nobody.writer.close()
