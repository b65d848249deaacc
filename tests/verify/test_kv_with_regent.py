"""The service with a real daemon: kills and ends of servers, splits, merges, snapshots, and published values."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from examples.kv.client import Client, Failed
from examples.kv.protocol import Found
from examples.kv.server import FENCED, LEFT
from examples.kv.service import NO, READ_ONLY, YES
from regent_agent.protocol import FLUSH
from tests.kit.deadlines import eventually
from tests.kit.examples.processes import ROOT, Servers, Started

KEYS = (b"alice", b"mary", b"zoe")
SETTINGS = """
[state]
directory = "{folder}/state"
[http]
socket = "{short}/regent.sock"
[regions]
host = "127.0.0.1"
port = {port}
fence = "{fence}"
lease_ms = 1500
servers_min = 2
"""


@asynccontextmanager
async def regent(folder: Path, port: int, fence: str = "log") -> AsyncIterator[httpx.AsyncClient]:
    """Runs a daemon, and returns a client of its socket."""
    with tempfile.TemporaryDirectory() as short:  # the path of a socket has at most 96 bytes
        (folder / "state").mkdir()
        settings = folder / "regent.toml"
        settings.write_text(SETTINGS.format(folder=folder, short=short, port=port, fence=fence))
        with (folder / "regent.txt").open("w") as log:
            daemon = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "cli.main", "run", "--config", str(settings)), cwd=ROOT, stdout=log, stderr=log
            )
        transport = httpx.AsyncHTTPTransport(uds=f"{short}/regent.sock")
        try:
            async with httpx.AsyncClient(transport=transport, base_url="http://regent") as http:
                yield http
        finally:
            daemon.terminate()
            await daemon.wait()


async def created(http: httpx.AsyncClient) -> None:
    """Creates the table "t" with three regions, and waits until all are open, and clients see the table."""
    made = await http.post("/v1/regions/tables", json={"name": "t", "splits": ["g", "n"]})
    assert made.is_success, made.text

    async def are_open() -> bool:
        tables = (await http.get("/v1/regions/tables")).json()["items"]
        states = [region["state"] for region in await regions(http)]
        return states == ["OPEN"] * 3 and tables[0]["state"] == "enabled"

    await eventually(are_open, within_s=20)


async def regions(http: httpx.AsyncClient) -> list[dict[str, Any]]:
    listed = await http.get("/v1/regions/list")
    items: list[dict[str, Any]] = listed.json()["items"]
    return items


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.mark.timeout(180)
async def test_a_table_survives_its_servers(tmp_path: Path) -> None:
    port = free_port()
    async with regent(tmp_path, port) as http, Servers(("127.0.0.1", port), tmp_path).running() as servers:
        client = Client([("127.0.0.1", port)], timeout_s=30)
        await servers.start("kv-1", "kv-2", "kv-3")
        await created(http)
        await survives(http, client, servers, signal.SIGKILL)
        frozen = await survives(http, client, servers, signal.SIGSTOP)
        frozen.signal(signal.SIGCONT)
        assert await frozen.ended() == FENCED
        await servers.start("kv-4")
        left = await survives(http, client, servers, signal.SIGTERM)
        assert await left.ended() == LEFT
        await client.close()


@pytest.mark.timeout(180)
async def test_regions_are_split_merged_and_copied(tmp_path: Path) -> None:
    port = free_port()
    async with regent(tmp_path, port) as http, Servers(("127.0.0.1", port), tmp_path).running() as servers:
        client = Client([("127.0.0.1", port)], timeout_s=30)
        await servers.start("kv-1", "kv-2", "kv-3")
        await created(http)
        keys = {b"%c%d" % (letter, number): b"before" for letter in b"ahz" for number in range(10)}
        await client.put_many("t", keys)
        versions = {key: found.version async for key, found in client.scan("t")}
        first, *others = [one["id"] for one in await regions(http)]
        await done(http, f"/v1/regions/{first}/split", {})
        await done(http, "/v1/regions/merge", {"regions": others})
        assert {key: found.version async for key, found in client.scan("t")} == versions
        await done(http, "/v1/regions/snapshots", {"name": "s", "table": "t"})
        await client.put_many("t", dict.fromkeys(keys, b"after"))
        await done(http, "/v1/regions/tables/t/work", {"work": FLUSH})
        await done(http, "/v1/regions/tables/copy/clone", {"snapshot": "s"})
        assert {key: found.value async for key, found in client.scan("copy")} == keys
        assert {key: found.value async for key, found in client.scan("t")} == dict.fromkeys(keys, b"after")
        await nothing_is_left_of_parents(http, tmp_path)
        await done(http, "/v1/regions/snapshots/s/delete", {})
        assert list((tmp_path / "data/snapshots").iterdir()) == []
        assert {key: found.value async for key, found in client.scan("copy")} == keys
        await client.close()


@pytest.mark.timeout(180)
async def test_a_published_value_makes_all_servers_read_only(tmp_path: Path) -> None:
    port = free_port()
    async with regent(tmp_path, port) as http, Servers(("127.0.0.1", port), tmp_path).running() as servers:
        client = Client([("127.0.0.1", port)], timeout_s=30)
        hasty = Client([("127.0.0.1", port)], timeout_s=1)
        await servers.start("kv-1", "kv-2")
        await created(http)
        await client.put("t", b"k", b"1")
        await done(http, "/v1/regions/published", {"name": READ_ONLY, "value": YES.decode()})
        await servers.start("kv-3")
        [route] = [one for one in await regions(http) if one["start"] == "g"]
        await done(http, f"/v1/regions/{route['id']}/move", {"server": "kv-3"})
        for key in KEYS:
            with pytest.raises(Failed, match="the service is read-only"):
                await hasty.put("t", key, b"2")
        assert await client.get("t", b"k") == Found(b"1", 2)
        await done(http, "/v1/regions/published", {"name": READ_ONLY, "value": NO.decode()})
        for key in KEYS:
            await client.put("t", key, b"3")
        await hasty.close()
        await client.close()


async def done(http: httpx.AsyncClient, path: str, body: dict[str, object]) -> dict[str, Any]:
    """Requests a change, waits until it has ended well, and returns its procedure."""
    response = await http.post(path, json=body)
    assert response.is_success, response.text
    begun: dict[str, Any] = response.json()["items"][0]

    async def ended() -> bool:
        nonlocal begun
        [begun] = (await http.get(f"/v1/regions/procedures/{begun['pid']}")).json()["items"]
        return bool(begun["ended"])

    await eventually(ended, within_s=30)
    assert begun["state"] == "success", begun
    return begun


async def nothing_is_left_of_parents(http: httpx.AsyncClient, folder: Path) -> None:
    async def are_discarded() -> bool:
        return not (await http.get("/v1/regions/parents")).json()["items"]

    await eventually(are_discarded, within_s=30)
    files = {int(path.parent.name) for path in (folder / "data/regions").glob("*/*.sqlite")}
    assert files == {one["id"] for one in await regions(http)}


async def survives(http: httpx.AsyncClient, client: Client, servers: Servers, number: signal.Signals) -> Started:
    """Sends a signal to the owner of the first region, and reads and writes all regions after that."""
    for key in KEYS:
        await client.put("t", key, b"before " + number.name.encode())
    server = servers.all[(await regions(http))[0]["server"]]
    server.signal(number)
    found = [(key, entry.value) async for key, entry in client.scan("t")]
    assert found == [(key, b"before " + number.name.encode()) for key in KEYS]
    for key in KEYS:
        await client.put("t", key, b"after")
    return server
