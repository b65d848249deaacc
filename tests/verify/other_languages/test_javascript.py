"""A server in JavaScript, which was made from the page of the protocol, with a real daemon."""

from __future__ import annotations

import asyncio
import shutil
import signal
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from tests.kit.deadlines import eventually
from tests.verify.test_kv_with_regent import created, done, free_port, regent, regions

NODE = shutil.which("node")
SERVER = Path(__file__).parent / "server.js"
KEYS = ("alice", "bob", "carol", "dave", "mary", "zoe")

pytestmark = pytest.mark.skipif(NODE is None, reason="needs Node.js")


@pytest.mark.timeout(180)
async def test_its_regions_are_split_and_merged_and_outlive_their_server(tmp_path: Path) -> None:
    port = free_port()
    data = tmp_path / "data"
    data.mkdir()
    async with regent(tmp_path, port, fence="lease") as http, servers(data, port) as processes:
        await created(http)
        for key in KEYS:
            await work(http, key, "x-put", f"{key}={key} 1")
        first, *others = [one["id"] for one in await regions(http)]
        await done(http, f"/v1/regions/{first}/split", {})
        assert [one["start"] for one in await regions(http)] == ["", "carol", "g", "n"]
        await done(http, "/v1/regions/merge", {"regions": others})
        await eventually(lambda: files_are_those_of_regions(http, data), within_s=30)

        killed = (await regions(http))[0]["server"]
        processes[killed].send_signal(signal.SIGKILL)
        await eventually(lambda: all_are_at_others(http, killed), within_s=30)
        assert [await work(http, key, "x-get", key) for key in KEYS] == [f"{key} 1" for key in KEYS]

        [left] = [process for name, process in processes.items() if name != killed][:1]
        left.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(left.wait(), 30) == 0
        assert [await work(http, key, "x-get", key) for key in KEYS] == [f"{key} 1" for key in KEYS]


@asynccontextmanager
async def servers(data: Path, port: int) -> AsyncIterator[dict[str, Process]]:
    """Runs three servers; gives their processes by name once all have registered."""
    assert NODE is not None
    found: dict[str, Process] = {}
    said = data.parent / "servers.txt"
    with said.open("w") as log:
        try:
            for name in ("js-1", "js-2", "js-3"):
                words = (NODE, str(SERVER), name, str(data), f"127.0.0.1:{port}")
                found[name] = await asyncio.create_subprocess_exec(*words, stdout=log, stderr=log)
            await eventually(lambda: said.read_text().count("registered") == len(found), within_s=30)
            yield found
        finally:
            for process in found.values():
                if process.returncode is None:
                    process.kill()
                await process.wait()


async def work(http: httpx.AsyncClient, key: str, what: str, data: str) -> str:
    """Has the owner of a key do work, and returns its result."""
    [region] = [one for one in await regions(http) if one["start"] <= key and (not one["end"] or key < one["end"])]
    ended = await done(http, f"/v1/regions/{region['id']}/work", {"work": what, "data": data})
    return str(ended["result"])


async def files_are_those_of_regions(http: httpx.AsyncClient, data: Path) -> bool:
    """Returns whether heirs have data of their own, and that of their parents is discarded."""
    return stored(data) == {str(one["id"]) for one in await regions(http)}


def stored(data: Path) -> set[str]:
    """Returns the ids of regions that have a file."""
    return {path.stem for path in data.glob("*.json")}


async def all_are_at_others(http: httpx.AsyncClient, killed: str) -> bool:
    return all(one["state"] == "OPEN" and one["server"] != killed for one in await regions(http))
