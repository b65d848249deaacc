"""``regent run`` with regions alone, with TLS: agents on TCP register and get regions, HTTP and commands show them."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import httpx
import pytest

from regent_agent.agent import Agent
from regent_agent.connection import Channel, Daemons, Unreachable
from regent_agent.options import AgentOptions
from regent_agent.protocol import Locate, Routes
from testing.embedded.process import free_port
from tests.kit.certificates import Authority
from tests.kit.regions.daemon import Opens
from tests.unit.cli.test_regions_story import Process, processes

SECURITY = """
[security]
protocol = "SSL"
ca_file = "{ca}"
certificate_file = "{certificate}"
"""


def context(authority: Authority, certificate: Path | None) -> ssl.SSLContext:
    """Returns what an agent trusts, and shows."""
    found = ssl.create_default_context(cafile=authority.file)
    if certificate is not None:
        found.load_cert_chain(certificate)
    return found


async def test_agents_and_a_daemon_of_regions_alone_speak_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority, strange = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs", "strange")
    more = SECURITY.format(ca=authority.file, certificate=authority.signed("daemon"))
    monkeypatch.setenv("REGENT_HTTP__ADDRESS", f"127.0.0.1:{(http := free_port())}")
    trusted = context(authority, authority.signed("kv"))
    daemon = Process(tmp_path / "daemon", tmp_path / "regions.db", more)
    with processes(daemon):
        await daemon.mode("active")
        address = await asyncio.to_thread(lambda: daemon.address)
        for tls in (None, context(authority, None), context(authority, strange.signed("kv")), context(strange, None)):
            with pytest.raises(Unreachable):
                await Channel(Daemons([address], tls=tls)).open()
        service = Opens()
        agent = Agent(service, AgentOptions((address,), "s1", "s1:7000", incarnation=7, tls=trusted))
        await agent.start()
        await asyncio.to_thread(daemon.items, "tables", "create", "t", "--regions", 4, "--wait", "--timeout", 60)
        listed = await asyncio.to_thread(daemon.items, "regions", "list")
        assert [(one["state"], one["server"]) for one in listed] == [("OPEN", "s1")] * 4
        assert {one["id"]: one["token"] for one in listed} == {one.region: one.token for one in agent.owned.values()}
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{http}") as client:
            [server] = (await client.get("/v1/regions/servers")).json()["items"]
            assert (server["name"], server["incarnation"], server["regions"]) == ("s1", 7, 4)
            assert 'regent_region_servers{state="online"} 1' in (await client.get("/metrics")).text
        router = Channel(Daemons([address], tls=trusted))
        await router.open()
        [route] = (await router.request(Locate("t", b"f"), Routes, 10)).routes
        assert (route.server, route.address) == ("s1", "s1:7000")
        router.close()
        await agent.stop()
