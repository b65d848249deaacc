"""Child processes start, freeze and end on request, and never outlive their parent; no Java is needed."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from testing.embedded.process import ChildProcess, ProcessFailed, accepts, free_port
from tests.kit.polling import eventually

ON_SIGTERM = 'lambda *_: (print("bye", flush=True), sys.exit(0))'
SERVER = f"""
import signal, socket, sys, time
signal.signal(signal.SIGTERM, {ON_SIGTERM})
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("serving", flush=True)
while True: time.sleep(1)
"""


class Server(ChildProcess):
    def __init__(self, folder: Path, script: str = SERVER) -> None:
        self.port = free_port()
        super().__init__("server", [sys.executable, "-c", script, str(self.port)], folder / "server.log")

    async def boot(self) -> float:
        return await self.start(lambda: accepts(self.port), within_s=20)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    server = Server(tmp_path)
    yield server
    await server.kill()


async def test_a_second_start_has_the_same_port_and_log_and_is_refused_while_the_process_runs(server: Server) -> None:
    await server.boot()
    first = server.pid
    with pytest.raises(ProcessFailed, match="already running"):
        await server.boot()
    await server.stop()
    assert not server.running
    assert server.log_has("bye")
    await server.boot()
    assert server.pid != first
    assert not server.log_has("bye"), "what is read of the log begins at the last start"
    assert server.log.read_text().count("serving") == 2


async def test_a_killed_process_logs_nothing_more(server: Server) -> None:
    await server.boot()
    await server.kill()
    assert not server.running
    assert not server.log_has("bye")
    assert not await accepts(server.port)


async def test_a_paused_process_keeps_its_port_and_can_be_resumed_stopped_and_killed(server: Server) -> None:
    await server.boot()
    server.pause()
    await eventually(lambda: process_state(server.pid) == "T")
    assert await accepts(server.port), "the kernel still accepts for it"
    server.resume()
    await eventually(lambda: process_state(server.pid) != "T")
    server.pause()
    await server.stop()
    assert server.log_has("bye")
    await server.boot()
    server.pause()
    await server.kill()
    assert not server.running


async def test_process_that_ends_while_starting_shows_its_log(tmp_path: Path) -> None:
    broken = Server(tmp_path, "print('port is taken'); raise SystemExit(1)")
    with pytest.raises(ProcessFailed, match="port is taken"):
        await broken.boot()
    assert not broken.running


async def test_process_that_ignores_sigterm_is_killed_and_reported(tmp_path: Path) -> None:
    stubborn = Server(tmp_path, SERVER.replace(ON_SIGTERM, "signal.SIG_IGN"))
    await stubborn.boot()
    with pytest.raises(ProcessFailed, match="SIGTERM"):
        await stubborn.stop(within_s=0.3)
    assert not stubborn.running


async def test_signals_to_a_process_that_does_not_run_do_nothing(server: Server) -> None:
    server.pause()
    server.resume()
    await server.kill()
    assert await server.stop() == 0.0
    with pytest.raises(ProcessFailed, match="start it first"):
        _ = server.pid


async def test_child_dies_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    script = f"""
import asyncio, pathlib, tests.unit.testing.test_process as this
async def main():
    server = this.Server(pathlib.Path({str(tmp_path)!r}))
    await server.boot()
    print(server.pid, flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)  # noqa: ASYNC220
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert process_state(child) != ""
    parent.kill()
    parent.wait()
    await eventually(lambda: process_state(child) in ("", "Z"))


def test_free_ports_are_free_and_outside_the_range_of_outgoing_connections() -> None:
    lowest_outgoing = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for port in (free_port() for _ in range(20)):
        assert port < lowest_outgoing
        with socket.create_server(("127.0.0.1", port)):
            pass


def process_state(pid: int) -> str:
    """Returns the kernel's letter for the process's state; empty where it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""
