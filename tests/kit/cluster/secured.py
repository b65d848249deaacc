"""Secures the listener between brokers with TLS, SASL or both, and checks requests in both directions."""

from __future__ import annotations

import base64
import secrets
from pathlib import Path

import msgspec
from aiokafka.admin import NewTopic

from brokers.security.access import SecureTransport
from brokers.security.scram import HASHES, credential
from brokers.security.tls import Tls
from cli.demo.process import RegentProcess
from metadata_store import paths
from testing.simulated.calls import controlled_shutdown, shutdown_response
from testing.znodes import create_topic
from tests.kit.certificates import Authority
from tests.kit.cluster.endpoint import admin_client, endpoint, errors_of
from tests.kit.cluster.scene import agreed
from tests.kit.cluster.world import ClusterWorld, world

USER, PASSWORD = "kafka", "brokers-secret"
_MODULE = "org.apache.kafka.common.security.{}LoginModule required"


class Secured:
    """Holds certificates and credentials below ``folder``; brokers name ``protocol`` and ``mechanism`` the same."""

    def __init__(self, folder: Path, protocol: str, mechanism: str) -> None:
        self.folder = folder
        self.protocol, self.mechanism = protocol, mechanism
        self.authority = Authority(folder)
        self._broker = self.authority.signed("broker")
        self.daemon = self.authority.signed("daemon")
        self.users = folder / "sasl"
        self.users.write_text(f"{USER}:{PASSWORD}\n", encoding="utf-8")

    def properties(self) -> dict[str, object]:
        """Returns settings of every broker."""
        found: dict[str, object] = {"listener.security.protocol.map": f"CLIENT:PLAINTEXT,INTERNAL:{self.protocol}"}
        if self.protocol.startswith("SASL"):
            low = self.mechanism.lower()
            found["sasl.mechanism.inter.broker.protocol"] = self.mechanism
            found["listener.name.internal.sasl.enabled.mechanisms"] = self.mechanism
            found[f"listener.name.internal.{low}.sasl.jaas.config"] = self._jaas()
        if self.protocol.endswith("SSL"):
            found |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(self._broker),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(self.authority.file),
                "ssl.client.auth": "required",
            }
        return found

    def _jaas(self) -> str:
        if self.mechanism == "PLAIN":
            module = _MODULE.format("plain.Plain")
            return f'{module} username="{USER}" password="{PASSWORD}" user_{USER}="{PASSWORD}";'
        return f'{_MODULE.format("scram.Scram")} username="{USER}" password="{PASSWORD}";'

    def settings(self) -> dict[str, object]:
        """Returns settings of the daemon."""
        return {
            "security.protocol": self.protocol,
            "security.sasl_mechanism": self.mechanism,
            "security.sasl_file": str(self.users),
            "security.ca_file": str(self.authority.file),
            "security.certificate_file": str(self.daemon),
        }

    async def introduce(self, w: ClusterWorld) -> None:
        """Writes the user's credential and its notification as Kafka's tool does."""
        if self.mechanism not in HASHES:
            return
        made = credential(self.mechanism, PASSWORD, secrets.token_bytes(16))
        salt, stored, server = (base64.b64encode(v).decode() for v in (made.salt, made.stored_key, made.server_key))
        value = f"salt={salt},stored_key={stored},server_key={server},iterations={made.iterations}"
        config = {"version": 1, "config": {self.mechanism: value}}
        await w.zk.create(paths.config("users", USER), msgspec.json.encode(config))
        notice = {"version": 2, "entity_path": f"users/{USER}"}
        await w.zk.create(paths.CONFIG_CHANGE_PREFIX, msgspec.json.encode(notice), sequential=True)


def stored_password(daemon: RegentProcess, text: str) -> None:
    """Writes another line into the daemon's file of its own user."""
    (daemon.folder / "sasl").write_text(text, encoding="utf-8")


async def serving(w: ClusterWorld, daemon: RegentProcess) -> None:
    """Waits until the daemon has started a topic and every broker has its metadata."""
    await create_topic(w.zk, "t", {0: [1, 2], 1: [2, 1]})
    await w.healed()
    await agreed(daemon)


async def works_both_ways(tmp_path: Path, protocol: str, mechanism: str) -> None:
    """Sends requests to brokers, and ISR changes, a controlled shutdown and a client's call to the daemon."""
    secured = Secured(tmp_path, protocol, mechanism)
    async with world(2, replication=2, properties=secured.properties()) as w:
        await secured.introduce(w)
        daemon = w.daemon(flags=["--takeover"], settings=secured.settings())
        await daemon.boot()
        await serving(w, daemon)
        async with endpoint(daemon) as at, admin_client(at.address) as client:
            assert errors_of(await client.create_topics([NewTopic("carried", 1, 2)])) == [("carried", 0)]
        if protocol == "SSL":
            await drains_nothing(w, secured, daemon)
        gone = await w.cluster.brokers[1].shut_down()
        assert gone.first_try
        await w.leads_nothing(1)
        await w.cluster.brokers[1].boot()
        await w.healed()
        await agreed(daemon)


async def drains_nothing(w: ClusterWorld, secured: Secured, daemon: RegentProcess) -> None:
    """Sends a ControlledShutdown with an application's certificate of the same authority; the daemon refuses it."""
    tls = Tls(secured.authority.signed("application"), None, secured.authority.file)
    registered = await w.zk.exists(paths.broker(1))
    assert registered is not None
    connection = await SecureTransport(tls, None).connect("127.0.0.1", daemon.port, lambda: None)
    frame = controlled_shutdown(1, 1, registered.czxid)
    response = shutdown_response(await connection.exchange([len(frame).to_bytes(4, "big"), frame]))
    connection.close()
    assert (response.error, "no broker presents the certificate" in daemon.log_text()) == (31, True)
    assert {state.leader for _, state in (await w.states()).values() if state is not None} == {1, 2}
