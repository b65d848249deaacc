"""The admin endpoint with TLS on both sides: to its clients, and to the brokers behind it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from admin.endpoint_tls import EndpointTls, endpoint_tls
from admin.listener import AdminListener
from brokers.security.tls import Tls
from tests.kit.admin_kit import Addresses, FakeController, KafkaClient, ScriptedBroker, echo
from tests.kit.admin_requests import CREATE_TOPICS, PASSED, create
from tests.kit.certificates import Authority
from tests.kit.role_kit import settings_for


class SecuredBroker(ScriptedBroker):
    """A broker with TLS that collects the certificates of its clients."""

    def __init__(self, authority: Authority) -> None:
        super().__init__()
        self.seen: list[object] = []
        self._context = Tls(authority.signed("broker"), None, authority.file).server()
        self._context.verify_mode = ssl.CERT_OPTIONAL

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._with_certificate, "127.0.0.1", 0, ssl=self._context)

    async def _with_certificate(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.seen.append(writer.get_extra_info("peercert"))
        await self._serve(reader, writer)


@asynccontextmanager
async def listening(tls: EndpointTls, broker: ScriptedBroker) -> AsyncIterator[AdminListener]:
    await broker.start()
    listener = AdminListener("127.0.0.1", 0, Addresses([broker.address]), FakeController(), tls=tls)
    await listener.start()
    try:
        yield listener
    finally:
        await listener.stop()
        await broker.stop()


@pytest.mark.parametrize("named", ["daemon", "endpoint"])
async def test_the_endpoint_presents_clients_its_own_certificate_or_the_daemons_and_brokers_none(
    tmp_path: Path, named: str
) -> None:
    authority, settings = Authority(tmp_path), settings_for(tmp_path)
    security = {"certificate_file": authority.signed("daemon"), "ca_file": authority.file}
    admin = {"tls": True, "certificate_file": authority.signed("endpoint") if named == "endpoint" else None}
    changed = {"security": settings.security.model_copy(update=security)}
    tls = endpoint_tls(settings.model_copy(update=changed | {"admin": settings.admin.model_copy(update=admin)}))
    assert tls is not None
    broker = SecuredBroker(authority)
    async with listening(tls, broker) as listener:
        trusting = ssl.create_default_context(cafile=authority.file)
        client = KafkaClient(*await asyncio.open_connection("127.0.0.1", listener.port, ssl=trusting))
        assert client.writer.get_extra_info("peercert")["subject"] == ((("commonName", named),),)
        assert await client.exchange(PASSED) == echo(PASSED)
        assert broker.seen in ([None], [{}]), "else all clients would have the endpoint's identity"
        await client.call(CREATE_TOPICS, 7, **create(7))
        client.writer.close()
        plain = KafkaClient(*await asyncio.open_connection("127.0.0.1", listener.port))
        assert await plain.refused(PASSED)
        plain.writer.close()


def test_without_the_setting_the_endpoint_has_no_tls(tmp_path: Path) -> None:
    assert endpoint_tls(settings_for(tmp_path)) is None
