"""``regent run`` for regions as real processes: two daemons on one file, a kill, a clean stop; and beside Kafka."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cli.exit_codes import Exit
from regent_agent.agent import Agent
from regent_agent.options import AgentOptions
from tests.kit.command import items, regent
from tests.kit.deadlines import eventually
from tests.kit.regions.daemon import Opens

START_S: float = 60.0
"""Longest start of a process beside other tests."""
KAFKA = """
[zookeeper]
connect = "127.0.0.1:1"
[listener]
advertised_host = "127.0.0.1"
port = 0
[admin]
beside_daemon = false
"""


class Process:
    """One ``regent run``, with a socket of its own in ``folder``."""

    def __init__(self, folder: Path, store: Path, more: str = "", port: int = 0) -> None:
        folder.mkdir()
        self.socket = folder / "regent.sock"
        self.log = folder / "log"
        file = folder / "regent.toml"
        file.write_text(
            f'[regions]\nhost = "127.0.0.1"\nport = {port}\nlease_ms = 60000\nfile = "{store}"\n'
            f'[http]\nsocket = "{self.socket}"\n[state]\ndirectory = "{folder}"\n[log]\nformat = "console"\n{more}'
        )
        with self.log.open("w") as log:
            line = [sys.executable, "-m", "cli.main", "run", "--config", str(file)]
            self.running = subprocess.Popen(line, stderr=log, stdout=log)

    def items(self, *words: object, code: Exit = Exit.DONE) -> list[dict[str, Any]]:
        return items(*words, "--server", self.socket, code=code)

    def status(self) -> dict[str, Any]:
        assert self.running.poll() is None, self.log.read_text()
        assert self.socket.exists()
        [found] = self.items("regions", "status")
        return found

    async def mode(self, wanted: str) -> dict[str, Any]:
        """Waits for a mode; returns the status."""

        async def reached() -> dict[str, Any]:
            found = await asyncio.to_thread(self.status)
            assert found["mode"] == wanted, found
            return found

        return await eventually(reached, START_S)

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.status()["listener"].rpartition(":")
        return host, int(port)


@contextmanager
def processes(*found: Process) -> Iterator[tuple[Process, ...]]:
    """Ends what is left of them."""
    try:
        yield found
    finally:
        for one in found:
            one.running.kill()
            one.running.wait()


async def registered(name: str, *daemons: Process) -> Agent:
    """Starts a server that knows these daemons."""
    addresses = tuple(await asyncio.to_thread(lambda: [one.address for one in daemons]))
    agent = Agent(Opens(), AgentOptions(daemons=addresses, server=name, address=f"{name}:7000", incarnation=1))
    await agent.start()
    return agent


@pytest.mark.seed("S3-7")
async def test_a_second_daemon_on_the_same_file_takes_over(tmp_path: Path) -> None:
    first = Process(tmp_path / "first", tmp_path / "regions.db")
    with processes(first):
        assert (await first.mode("active"))["epoch"] == 1
        second = Process(tmp_path / "second", tmp_path / "regions.db")
        with processes(second):
            stands_by = await second.mode("standby")
            assert f"(pid {first.running.pid}) has the store" in stands_by["why"]
            assert f"'regent --server {first.socket}' on this machine" in stands_by["why"]
            assert stands_by["daemon"] == f"{socket.gethostname()}:{second.running.pid}"
            await _failover(first, second)
            second.running.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(second.running.wait, 30) == 0
            log = second.log.read_text()
            assert "SIGTERM received" in log
            assert f"starts as daemon {stands_by['daemon']}," in log
            assert f"listening on {stands_by['listener']}," in log
            assert "regent has stopped" in log


async def _failover(first: Process, second: Process) -> None:
    agents = [await registered(name, first, second) for name in ("s1", "s2")]
    create = ("tables", "create", "t", "--regions", 6, "--nonce", "n-1", "--wait", "--timeout", 60)
    [made] = await asyncio.to_thread(first.items, *create)
    before = await asyncio.to_thread(first.items, "regions", "list")
    assert {one["state"] for one in before} == {"OPEN"}
    refused = await asyncio.to_thread(regent, "regions", "list", "--server", second.socket, code=Exit.UNREACHABLE)
    assert f"(pid {first.running.pid}) has the store" in refused.stderr
    first.running.kill()
    await asyncio.to_thread(first.running.wait)
    assert (await second.mode("active"))["epoch"] == 2
    [again] = await asyncio.to_thread(second.items, *create)
    assert again["pid"] == made["pid"]

    async def served() -> bool:
        found = await asyncio.to_thread(second.items, "servers", "list")
        return [one["regions"] for one in found] == [3, 3]

    await eventually(served)
    after = await asyncio.to_thread(second.items, "regions", "list")
    owners = [[(one["id"], one["server"], one["token"]) for one in some] for some in (before, after)]
    assert owners[0] == owners[1]

    async def drains() -> bool:
        with contextlib.suppress(AssertionError):  # it is refused until s2 has registered, too
            await asyncio.to_thread(second.items, "servers", "drain", "s1", "--dry-run")
            return True
        return False

    await eventually(drains)
    [moved] = await asyncio.to_thread(second.items, "servers", "drain", "s1", "--wait", "--timeout", 60)
    assert moved["state"] == "success"
    assert {one["server"] for one in await asyncio.to_thread(second.items, "regions", "list")} == {"s2"}
    for agent in agents:
        await agent.stop()


@pytest.mark.seed("S1-27")
async def test_regions_are_assigned_beside_kafka_without_its_role(tmp_path: Path) -> None:
    """ZooKeeper does not respond: the Kafka part of the daemon connects, and the regions have their owners."""
    daemon = Process(tmp_path / "daemon", tmp_path / "regions.db", KAFKA)
    with processes(daemon):
        await daemon.mode("active")
        agent = await registered("s1", daemon)
        [made] = await asyncio.to_thread(daemon.items, "tables", "create", "t", "--wait", "--timeout", 60)
        assert made["state"] == "success"
        assert (await asyncio.to_thread(daemon.items, "status"))[0]["mode"] == "connecting"
        await agent.stop()
        daemon.running.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(daemon.running.wait, 30) == 0


def test_without_kafka_commands_about_it_say_so(tmp_path: Path) -> None:
    daemon = Process(tmp_path / "daemon", tmp_path / "regions.db")
    with processes(daemon):
        asyncio.run(daemon.mode("active"))
        assert "regent regions status" in regent("status", "--server", daemon.socket, code=Exit.FAILED).stderr
        assert json.loads(regent("health", "--ready", "--server", daemon.socket, "-o", "json").stdout)["items"][0]["ok"]


@pytest.mark.parametrize("more", ["", KAFKA])
def test_a_taken_port_ends_the_start_with_the_remedy(tmp_path: Path, more: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        daemon = Process(tmp_path / "daemon", tmp_path / "regions.db", more, port)
        with processes(daemon):
            assert daemon.running.wait(START_S) == 1
    text = daemon.log.read_text()
    assert f"the listener of regions cannot listen on 127.0.0.1:{port}: another process listens there" in text
    assert "set another regions.port" in text
    assert "Traceback" not in text
