"""Servers as processes: killed, frozen, fenced, full disks, and an ordinary end."""

from __future__ import annotations

import asyncio
import resource
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from examples.kv.client import Client, Conflict
from examples.kv.connections import Connections
from examples.kv.protocol import Found, Put, Response, Written
from examples.kv.server import BROKEN, FENCED, LEFT, NOT_LEFT, UNSAFE
from tests.kit.deadlines import eventually
from tests.kit.examples.processes import ROOT, Cluster, cluster, command

WRITERS = 8


class Writers:
    """Put keys without an end. ``acknowledged`` has each key whose put was answered."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.acknowledged: list[bytes] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Writers]:
        async with asyncio.TaskGroup() as group:
            writers = [group.create_task(self._write(number)) for number in range(WRITERS)]
            try:
                yield self
            finally:
                for writer in writers:
                    writer.cancel()

    async def more(self, count: int) -> None:
        bound = len(self.acknowledged) + count
        await eventually(lambda: len(self.acknowledged) >= bound, within_s=30)

    async def _write(self, writer: int) -> None:
        number = 0
        while True:
            key = b"%d-%d" % (writer, number)
            await self._client.put("t", key, b"value of " + key)
            self.acknowledged.append(key)
            number += 1


async def expect_all(kv: Cluster, keys: list[bytes]) -> None:
    found = {key: entry.value async for key, entry in kv.client.scan("t")}
    lost = [key for key in keys if found.get(key) != b"value of " + key]
    assert not lost


async def test_a_killed_server_loses_no_acknowledged_put(tmp_path: Path) -> None:
    """Each server is killed in the middle of puts, and the next one recovers from a log of many segments."""
    async with cluster(tmp_path) as kv:
        await kv.start("a", "b", "c", arguments=("--segment-bytes", "5000"))
        kv.daemon.create(1, end=b"4")
        kv.daemon.create(2, start=b"4")
        for region in (1, 2):
            await kv.daemon.open(region, "a")
        async with Writers(kv.client).running() as writers:
            for dead, successor in (("a", "b"), ("b", "c")):
                await writers.more(300)
                kv.servers[dead].signal(signal.SIGKILL)
                await kv.servers[dead].ended()
                await kv.daemon.take_over(dead, successor)
            await writers.more(300)
        await expect_all(kv, writers.acknowledged)


async def test_a_server_that_wakes_up_acknowledges_and_overwrites_nothing(tmp_path: Path) -> None:
    async with cluster(tmp_path) as kv:
        await kv.start("a", "b", "c")
        kv.daemon.create(1)
        await kv.daemon.open(1, "a")
        keys = [b"%d" % number for number in range(50)]
        for key in keys:
            await kv.client.put("t", key, b"first")
        stale = kv.daemon.routes[1]
        kv.servers["a"].signal(signal.SIGSTOP)
        late = [asyncio.create_task(put(stale.address, Put(1, stale.token, key, b"late"))) for key in keys]
        await kv.daemon.take_over("a", "b")
        for key in keys:
            assert (await kv.client.get("t", key) or Found(b"", 0)).value == b"first"
            await kv.client.put("t", key, b"value of " + key)
        kv.servers["a"].signal(signal.SIGCONT)
        answers = await asyncio.gather(*late)
        assert not [answer for answer in answers if isinstance(answer, Written)]
        assert await kv.servers["a"].ended() == FENCED
        assert "start the server again" in kv.servers["a"].text.read_text()
        await expect_all(kv, keys)
        kv.servers["b"].signal(signal.SIGKILL)
        await kv.servers["b"].ended()
        await kv.daemon.take_over("b", "c")
        await expect_all(kv, keys)


async def put(address: str, request: Put) -> Response | None:
    connections = Connections()
    try:
        return await connections.exchange(address, request)
    except (OSError, EOFError):
        return None
    finally:
        connections.close()


async def test_a_server_that_is_stopped_leaves_first(tmp_path: Path) -> None:
    async with cluster(tmp_path) as kv:
        await kv.start("a", "b")
        kv.daemon.create(1)
        await kv.daemon.open(1, "a")
        async with Writers(kv.client).running() as writers:
            await writers.more(100)
            kv.servers["a"].signal(signal.SIGTERM)
            assert await kv.servers["a"].ended() == LEFT
            await writers.more(100)
        assert kv.daemon.routes[1].server == "b"
        await expect_all(kv, writers.acknowledged)


async def test_a_server_ends_although_nobody_takes_its_regions(tmp_path: Path) -> None:
    async with cluster(tmp_path) as kv:
        await kv.start("a", arguments=("--leave-s", "0.3"))
        kv.daemon.create(1)
        await kv.daemon.open(1, "a")
        await kv.client.put("t", b"k", b"value of k")
        kv.servers["a"].signal(signal.SIGTERM)
        assert await kv.servers["a"].ended() == NOT_LEFT
        await kv.start("b")
        await kv.daemon.take_over("a", "b")
        await expect_all(kv, [b"k"])


async def test_a_server_that_is_dead_for_the_daemon_ends(tmp_path: Path) -> None:
    async with cluster(tmp_path) as kv:
        await kv.start("a")
        kv.daemon.dead.add("a")
        assert await kv.servers["a"].ended() == FENCED
        text = kv.servers["a"].text.read_text()
        assert "server ends: a, incarnation" in text
        assert "the daemon says so; start the server again" in text


async def test_a_server_that_cannot_write_ends_and_loses_nothing(tmp_path: Path) -> None:
    async with cluster(tmp_path) as kv:
        await kv.start("a", "b")
        kv.daemon.create(1)
        await kv.daemon.open(1, "a")
        async with Writers(kv.client).running() as writers:
            await writers.more(100)
            resource.prlimit(kv.servers["a"].process.pid, resource.RLIMIT_FSIZE, (20_000, 20_000))
            assert await kv.servers["a"].ended() == BROKEN
            await kv.daemon.take_over("a", "b")
            await writers.more(100)
        await expect_all(kv, writers.acknowledged)
        assert "repair the disk" in kv.servers["a"].text.read_text()


@pytest.mark.parametrize("fence", ["lease", "command"])
async def test_a_server_refuses_to_serve_under_another_fence_than_its_log(tmp_path: Path, fence: str) -> None:
    """It opens nothing and ends, and names the setting: as a zombie it could write after its fence."""
    async with cluster(tmp_path) as kv:
        kv.daemon.fence = fence
        server = await kv.started.launch("a")
        assert await server.ended() == UNSAFE
        text = server.text.read_text()
        assert f'server ends: a: the daemon has regions.fence = "{fence}"' in text
        assert 'set fence = "log" in the section [regions]' in text
        assert "region opened" not in text


async def test_a_server_ends_and_loses_nothing_where_the_fence_is_another_at_a_later_registration(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as kv:
        await kv.start("a", "b")
        kv.daemon.create(1)
        await kv.daemon.open(1, "a")
        async with Writers(kv.client).running() as writers:
            await writers.more(100)
            kv.daemon.fence = "lease"
            del kv.daemon.members["a"]
            assert await kv.servers["a"].ended() == UNSAFE
            await kv.daemon.open(1, "b")  # nobody splits the log
            await writers.more(100)
        await expect_all(kv, writers.acknowledged)
        assert 'server ends: a: the daemon has regions.fence = "lease"' in kv.servers["a"].text.read_text()


async def test_the_command_line_reads_and_writes(tmp_path: Path) -> None:
    async with cluster(tmp_path) as kv:
        await kv.start("a")
        kv.daemon.create(1)
        await kv.daemon.open(1, "a")
        assert await run(kv, "put", "k", "some value") == (0, "2\n")
        assert await run(kv, "get", "k") == (0, "some value\n")
        assert await run(kv, "get", "other") == (1, "no such key\n")
        assert await run(kv, "scan") == (0, "k some value\n")


async def run(kv: Cluster, *arguments: str) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        *command("client", kv.daemon.address), "--table", "t", *arguments, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    return process.returncode, out.decode()


async def test_counters_count_each_call_once_over_a_crash(tmp_path: Path) -> None:
    """Compare-and-put adds one: what the counter has at the end is between the answers and the attempts."""
    async with cluster(tmp_path) as kv:
        await kv.start("a", "b")
        kv.daemon.create(1)
        await kv.daemon.open(1, "a")
        added, unclear = 0, 0

        async def add() -> None:
            nonlocal added, unclear
            while True:
                found = await kv.client.get("t", b"counter")
                value, version = (int(found.value), found.version) if found else (0, 0)
                try:
                    await kv.client.compare_and_put("t", b"counter", b"%d" % (value + 1), version)
                    added += 1
                except Conflict as conflict:
                    unclear += conflict.repeated

        async with asyncio.TaskGroup() as group:
            adders = [group.create_task(add()) for _ in range(4)]
            await eventually(lambda: added >= 50, within_s=30)
            kv.servers["a"].signal(signal.SIGKILL)
            await kv.daemon.take_over("a", "b")
            await eventually(lambda: added >= 100, within_s=30)
            for adder in adders:
                adder.cancel()
        found = await kv.client.get("t", b"counter")
        assert found is not None
        assert added <= int(found.value) <= added + unclear + len(adders)
