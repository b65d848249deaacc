"""The admin endpoint with TLS on both sides: to its clients, and to the brokers behind it."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

from admin.endpoint_tls import EndpointTls, endpoint_tls
from admin.listener import AdminListener
from brokers.security.tls import Tls
from configs.settings import Settings
from tests.certificates import Authority
from tests.core.admin_kit import Addresses, FakeController, ScriptedBroker, Someone, echo
from tests.core.admin_requests import CREATE_TOPICS, PASSED, create
from tests.core.role_kit import settings_for


async def test_both_sides_speak_tls_and_the_endpoint_shows_brokers_no_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own = Tls(authority.signed("endpoint"), None, authority.file)
    seen: list[object] = []

    class Secured(ScriptedBroker):
        async def start(self) -> None:
            server = Tls(authority.signed("broker"), None, authority.file).server()
            server.verify_mode = ssl.CERT_OPTIONAL
            self._server = await asyncio.start_server(self._with_certificate, "127.0.0.1", 0, ssl=server)

        async def _with_certificate(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            seen.append(writer.get_extra_info("peercert"))
            await self._serve(reader, writer)

    broker, controller = Secured(), FakeController()
    await broker.start()
    towards = EndpointTls(own, Tls(None, None, authority.file))
    listener = AdminListener("127.0.0.1", 0, Addresses([broker.address]), controller, tls=towards)
    await listener.start()
    try:
        trusting = ssl.create_default_context(cafile=authority.file)
        client = Someone(*await asyncio.open_connection("127.0.0.1", listener.port, ssl=trusting))
        client.send(PASSED)
        assert await client.frame() == echo(PASSED)
        assert not any(seen)
        assert len(seen) == 1
        await client.ask(CREATE_TOPICS, 7, **create(7))
        client.writer.close()
        plain = Someone(*await asyncio.open_connection("127.0.0.1", listener.port))
        plain.send(PASSED)
        assert await plain.closed()
        plain.writer.close()
    finally:
        await listener.stop()
        await broker.stop()


def test_what_the_settings_make_of_it(tmp_path: Path) -> None:
    authority, settings = Authority(tmp_path), settings_for(tmp_path)
    assert endpoint_tls(settings) is None
    daemon, endpoint = authority.signed("daemon"), authority.signed("endpoint")

    def having(**admin: object) -> Settings:
        security = settings.security.model_copy(update={"certificate_file": daemon, "ca_file": authority.file})
        changed = settings.admin.model_copy(update={"tls": True, **admin})
        return settings.model_copy(update={"security": security, "admin": changed})

    for given, file in (({}, daemon), ({"certificate_file": endpoint}, endpoint)):
        found = endpoint_tls(having(**given))
        assert found is not None
        assert found.clients._certificate == file
        assert found.brokers._certificate is None
