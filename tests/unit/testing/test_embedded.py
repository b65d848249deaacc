"""Parts of the embedded cluster: child processes, a broker's files, and the ledger of acknowledged records."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from testing.embedded import jvm, kafka
from testing.embedded.kafka import ControlledShutdown, EmbeddedBroker
from testing.embedded.ledger import Ledger, Spot, Stall, Verdict
from testing.embedded.process import ChildProcess, ProcessFailed, accepts, free_port
from testing.embedded.zookeeper import digest
from tests.kit.deadlines import eventually

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
        return await self.start(lambda: accepts(self.port), within_s=60)


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
import asyncio, pathlib, tests.unit.testing.test_embedded as this
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


BEGIN = "INFO [KafkaServer id=1] Starting controlled shutdown (kafka.server.KafkaServer)\n"
RETRY = "INFO [KafkaServer id=1] Retrying controlled shutdown (2 retries remaining) (kafka.server.KafkaServer)\n"
DONE = "INFO [KafkaServer id=1] Controlled shutdown request returned successfully after 24ms (kafka.server)\n"


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EmbeddedBroker:
    monkeypatch.setattr(kafka, "java_command", lambda options, main, *rest, classes=(): ["java", *options, main, *rest])
    return EmbeddedBroker(7, tmp_path, "127.0.0.1:1/kafka", ibp="2.7-IV1", rack="a", properties={"num.io.threads": 9})


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (BEGIN + DONE, ControlledShutdown(tries=1, succeeded=True, took_ms=24)),
        (BEGIN + RETRY + RETRY + DONE, ControlledShutdown(tries=3, succeeded=True, took_ms=24)),
        (BEGIN + RETRY + RETRY, ControlledShutdown(tries=3, succeeded=False, took_ms=None)),
        ("started\n", ControlledShutdown(tries=0, succeeded=False, took_ms=None)),
    ],
)
def test_a_controlled_shutdown_is_read_from_the_log(
    broker: EmbeddedBroker, log: str, expected: ControlledShutdown
) -> None:
    broker.log.write_text(log)
    assert broker.controlled_shutdown() == expected
    assert expected.first_try == (expected.succeeded and expected.tries == 1)


def test_the_settings_file_has_the_options_and_given_properties_override(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    lines = dict(line.split("=", 1) for line in (tmp_path / "server.properties").read_text().splitlines())
    assert lines["inter.broker.protocol.version"] == "2.7-IV1"
    assert lines["broker.rack"] == "a"
    assert lines["num.io.threads"] == "9", "given properties override"
    assert lines["zookeeper.connect"] == "127.0.0.1:1/kafka"
    assert re.fullmatch(r"CLIENT://127.0.0.1:\d+,INTERNAL://127.0.0.1:\d+", lines["listeners"])


def test_digest_as_zookeeper_computes_it() -> None:
    assert digest("super", "test") == "super:D/InIHSb7yEEbrWz8b9l71RjZJU="


def test_properties_are_one_per_line(tmp_path: Path) -> None:
    assert jvm.write_properties(tmp_path / "p", {"a": 1, "b.c": "x"}).read_text() == "a=1\nb.c=x\n"


HERE, THERE = Spot("orders", 0), Spot("orders", 1)
Records = list[tuple[Spot, int]]

READ: dict[str, tuple[list[int], list[int], Records, Records, int]] = {
    "everything": ([0, 2], [1, 3], [], [], 0),
    "one is missing": ([0], [1, 3], [(HERE, 2)], [], 0),
    "a partition is missing": ([0, 2], [], [(THERE, 1), (THERE, 3)], [], 0),
    "one is in another partition": ([0], [1, 2, 3], [(HERE, 2)], [], 1),
    "one twice": ([0, 2, 2], [1, 3], [], [(HERE, 2)], 0),
    "a failed send was stored": ([0, 2, 4], [1, 3], [], [], 1),
}
"""Numbers read in each partition, with those that are lost and duplicated, and how many were never acknowledged."""


@pytest.mark.parametrize("case", READ)
def test_records_are_compared_with_the_acknowledged_ones(case: str) -> None:
    ledger = Ledger(sent=5, acknowledged={HERE: {0, 2}, THERE: {1, 3}})
    ledger.errors["RequestTimedOutError"] += 1
    here, there, lost, duplicated, unconfirmed = READ[case]
    read = {spot: Counter(numbers) for spot, numbers in ((HERE, here), (THERE, there)) if numbers}
    assert ledger.judge(read) == Verdict(
        sent=5, acknowledged=4, failed=1, read=len(here) + len(there), lost=lost, duplicated=duplicated,
        unconfirmed=unconfirmed,
    )  # fmt: skip


@pytest.mark.parametrize("foreign", [b"", None, b"other:1", b"\xff\xfe", b"1", b"mine:x"])
def test_records_of_other_loads_have_no_number(foreign: bytes | None) -> None:
    ledger = Ledger(tag="mine")
    assert ledger.number(foreign) is None
    assert ledger.number(ledger.value(17)) == 17


def test_stall_names_the_partition() -> None:
    assert str(Stall(1.234, HERE)) == "1.23 s (orders-0)"
    assert str(Stall(0.0, None)) == "nothing sent"
