"""Secures the listener between brokers with TLS, SASL or both, and gives the daemon the credentials."""

from __future__ import annotations

import base64
import secrets
from pathlib import Path

import msgspec

from brokers.security.scram import HASHES, credential
from cli.demo.process import RegentProcess
from metadata_store import paths
from tests.kit.certificates import Authority
from tests.real.cluster.world import World

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

    async def introduce(self, w: World) -> None:
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
