"""Clients that authenticate with a real broker through the admin endpoint."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError

from tests.cluster.endpoint import EndpointProcess, endpoint
from tests.cluster.world import world
from tests.core.admin_kit import Someone
from tests.core.admin_requests import CREATE_TOPICS, create
from tests.polling import eventually

LOGIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SECURED = {
    "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,INTERNAL:PLAINTEXT",
    "listener.name.client.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.client.plain.sasl.jaas.config": f'{LOGIN_MODULE} required user_alice="secret";',
}
NOT_CONTROLLER, CLUSTER_AUTHORIZATION_FAILED = 41, 31


def admin(at: EndpointProcess, password: str) -> AIOKafkaAdminClient:
    return AIOKafkaAdminClient(
        bootstrap_servers=at.address,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_plain_username="alice",
        sasl_plain_password=password,
    )


async def test_who_a_broker_lets_in_may_ask_and_nobody_else() -> None:
    async with world(1, replication=1, properties=SECURED) as w:
        daemon = w.daemon(flags=["--takeover"])
        await daemon.boot()
        await w.store.create_topic("t", {0: [1]})
        async with endpoint(daemon) as at:
            alice = admin(at, "secret")
            await alice.start()
            try:

                async def listed() -> bool:
                    return "t" in await alice.list_topics()

                await eventually(listed, 30.0)
                answered = await alice.create_topics([NewTopic("x", 1, 1)])
                assert answered.topic_errors[0][1] == NOT_CONTROLLER, "she may ask, and is told that nobody answers yet"
            finally:
                await alice.close()
            with pytest.raises(KafkaError):
                await admin(at, "wrong").start()
            nobody = Someone(*await asyncio.open_connection("127.0.0.1", at.port))
            refused = await nobody.ask(CREATE_TOPICS, 7, **create(7))
            assert [topic.error_code for topic in refused.topics] == [CLUSTER_AUTHORIZATION_FAILED]
            nobody.writer.close()
