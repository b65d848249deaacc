"""Probes without credentials over TCP: a crowd of them keeps no request with credentials out."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from unittest import mock

import pytest
from starlette.types import Receive, Scope, Send

from configs.connections import HttpSettings
from configs.values import Address
from controller.http import remote, tcp
from controller.http.peers import RemoteProtocol
from controller.http.tcp import serving_remotely
from tests.kit.deadlines import eventually
from tests.unit.controller.http.test_http_tcp import TOKEN, client, client_from, connections

WAVES = 5
"""Each wave takes all slots."""
PROBE = b"GET /readiness HTTP/1.1\r\nHost: a\r\n\r\n"


class BusyDaemon:
    """Serves no probe until the test releases it; ``begun`` counts requests by path."""

    def __init__(self) -> None:
        self.begun = Counter[str]()
        self.may_respond = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.begun[scope["path"]] += 1
        if scope["path"] in remote.PROBES:
            await self.may_respond.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})


@asynccontextmanager
async def crowd(at: Address, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """Sends probes of strangers, wave after wave; each wave evicts the one before."""
    read, real = 0, RemoteProtocol.data_received

    def counting(protocol: RemoteProtocol, data: bytes) -> None:
        nonlocal read
        real(protocol, data)
        read += data == PROBE

    def was_read(waves: int) -> bool:
        return read >= waves * tcp.CONNECTIONS_MAX

    monkeypatch.setattr(RemoteProtocol, "data_received", counting)
    with ExitStack() as stack:
        for wave in range(1, WAVES + 1):
            sources = "127.0.0.2", "127.0.0.3"
            stack.enter_context(connections(at, tcp.CONNECTIONS_MAX // len(sources), *sources, sent=PROBE))
            await eventually(partial(was_read, wave))
        yield


async def test_strangers_that_probe_a_busy_daemon_keep_no_scrape_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token_file, app = tmp_path / "token", BusyDaemon()
    token_file.write_text(TOKEN)
    token_file.chmod(0o600)
    settings = HttpSettings(address="127.0.0.1:0", token_file=token_file)
    with mock.patch.object(tcp, "KEEP_ALIVE_S", 600):
        async with serving_remotely(app, settings) as at:
            assert at is not None
            async with crowd(at, monkeypatch):
                for _ in range(2 * remote.AT_A_TIME_MAX):
                    async with client(at, token=TOKEN) as http:
                        assert (await http.get("/metrics")).status_code == 200
                assert app.begun["/readiness"] == 1
                app.may_respond.set()
                async with client_from("127.0.0.4", at) as http:
                    assert (await http.get("/readiness")).status_code == 200
    assert app.begun["/readiness"] <= 1 + tcp.CONNECTIONS_MAX, "connections that gave way do not wait any more"
