"""A daemon is the controller of brokers with TLS and SASL between them, and of clients that authenticate."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError

from metadata_store.nodes.delegation_tokens import token_ids
from testing.embedded.tools import Finished, Tools
from testing.znodes import create_topic
from tests.kit.admin import CREATE_TOPICS, KafkaClient, create
from tests.kit.cluster.endpoint import EndpointProcess, admin_client, endpoint, errors_of
from tests.kit.cluster.scene import agreed, regent
from tests.kit.cluster.secured import Secured, serving, works_both_ways
from tests.kit.cluster.world import world
from tests.kit.deadlines import eventually


async def test_both_directions(tmp_path: Path) -> None:
    await works_both_ways(tmp_path, "SASL_SSL", "SCRAM-SHA-512")


async def test_renewed_certificates_are_read_and_a_preflight_with_wrong_credentials_is_refused(tmp_path: Path) -> None:
    secured = Secured(tmp_path, "SASL_SSL", "SCRAM-SHA-512")
    async with world(2, replication=2, properties=secured.properties()) as w:
        await secured.introduce(w)
        daemon = w.daemon(flags=["--takeover"], settings=secured.settings())
        await daemon.boot()
        await serving(w, daemon)

        secured.authority.signed("renewed", into=secured.daemon)
        await w.cluster.brokers[2].restart()
        await w.healed()
        await agreed(daemon)
        assert "certificates were read again" in daemon.log_text()

        wrong = tmp_path / "wrong"
        wrong.write_text("kafka:nobody-knows\n", encoding="utf-8")
        refused = (
            ({"security.sasl_file": str(wrong)}, "SASL SCRAM-SHA-512 as kafka is refused"),
            ({"security.sasl_mechanism": "PLAIN"}, "SASL PLAIN is not offered, but SCRAM-SHA-512"),
            ({"security.ca_file": str(tmp_path / "broker.pem")}, "certificate is not accepted"),
            ({"security.protocol": "PLAINTEXT"}, "security.protocol is PLAINTEXT"),
            ({"security.sasl_file": str(tmp_path / "none")}, "cannot be read"),
        )
        strangers = [w.daemon(settings=secured.settings() | settings) for settings, _ in refused]
        ends = await asyncio.gather(*(regent(stranger, "preflight") for stranger in strangers))
        for (_, text), (code, out, err) in zip(refused, ends, strict=True):
            assert code, out
            assert text in out + err, (text, out + err)


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

                await eventually(listed)
                for client, code in ((bob, TOPIC_AUTHORIZATION_FAILED), (alice, 0)):
                    assert errors_of(await client.create_topics([NewTopic("x", 1, 1)])) == [("x", code)]
            with pytest.raises(KafkaError):
                async with admin(at, "wrong"):
                    pass
            stranger = KafkaClient(*await asyncio.open_connection("127.0.0.1", at.port))
            stranger.request(CREATE_TOPICS, 7, **create(7))
            assert await stranger.closed()
            stranger.writer.close()


SHORT_MS, LONG_MS = "3000", "3600000"


async def test_an_expired_token_is_removed_from_zookeeper_and_from_the_broker(tmp_path: Path) -> None:
    tokens = {"delegation.token.secret.key": "a secret of all brokers"}
    async with world(1, replication=1, properties=SECURED | tokens) as w:
        every = {"controller.delegation_token_expiry_check_interval_ms": 500}
        daemon = w.daemon(flags=["--takeover"], settings=every)
        await daemon.boot()
        client = tmp_path / "client.properties"
        client.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
            f'sasl.jaas.config={LOGIN_MODULE} required username="alice" password="secret";\n',
            encoding="utf-8",
        )
        tools = Tools(w.cluster.bootstrap[0], tmp_path)

        async def run(*arguments: str) -> Finished:
            done = await tools.run("kafka-delegation-tokens", "--command-config", str(client), *arguments)
            assert done.code == 0, done
            return done

        made = [await run("--create", "--max-life-time-period", life) for life in (LONG_MS, SHORT_MS)]

        async def one_left() -> bool:
            return len(await token_ids(w.zk)) == 1

        await eventually(one_left, 60.0)
        [left] = await token_ids(w.zk)
        assert [left in token.out for token in made] == [True, False]

        async def forgotten() -> bool:
            known = (await run("--describe", "--owner-principal", "User:alice")).out
            return "Total number of tokens : 1" in known and left in known

        await eventually(forgotten, 60.0)
