"""Runs simulated brokers: ``python -m testing.simulated --zookeeper HOST:PORT[/chroot] --brokers 1-50``.

Commands come on a unix socket (``--control``) or on its standard input, see :mod:`testing.simulated.commands`. SIGTERM,
SIGINT, the command ``stop`` and the end of its input end it.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from brokers.wire.versions import DEFAULT, Ibp
from testing.simulated.bodies import Bodies
from testing.simulated.broker_server import BrokerServer, Options
from testing.simulated.commands import Commands
from testing.simulated.connection import Room
from testing.simulated.fleet import Fleet

LINE_BYTES_MAX: Final = 1 << 20
SESSION_MS: Final = 60_000
GC_THRESHOLDS: Final = (200_000, 20, 20)
"""Views are millions of objects without cycles: with the usual thresholds half of their time went to looking."""

log = logging.getLogger("regent.simulated")


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the command line; exits with 2 where it is wrong."""
    parser = argparse.ArgumentParser(prog="python -m testing.simulated", description="Simulated Kafka brokers.")
    parser.add_argument("--zookeeper", required=True, metavar="HOST:PORT[/CHROOT]")
    parser.add_argument("--brokers", type=_range, metavar="FIRST-LAST", help="ids, such as 1-50")
    parser.add_argument("--count", type=int, default=1, help="how many brokers, where --brokers is not given")
    parser.add_argument("--first-id", type=int, default=1)
    parser.add_argument("--control", type=Path, help="unix socket for commands; default: standard input and output")
    parser.add_argument("--session-ms", type=int, default=SESSION_MS)
    parser.add_argument("--own-sessions", action="store_true", help="one ZooKeeper session per broker, not one for all")
    parser.add_argument("--listeners", default="INTERNAL", help="names of the PLAINTEXT listeners, by commas")
    parser.add_argument("--ibp", type=Ibp.parse, default=DEFAULT)
    parser.add_argument("--exact", action="store_true", help="decode every request at once and respond from the state")
    parser.add_argument("--full-answers", action="store_true", help="lean responses list every partition")
    found = parser.parse_args(given)
    if found.brokers is None:
        found.brokers = range(found.first_id, found.first_id + found.count)
    return found


def _range(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


async def serve(given: argparse.Namespace) -> int:
    """Runs until it is stopped; returns the exit code."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    bodies, room = Bodies(), Room()
    options = Options(given.ibp, tuple(given.listeners.split(",")), given.exact, given.full_answers)
    servers = [BrokerServer(broker, options, bodies, room) for broker in given.brokers]
    fleet = Fleet(servers, bodies, given.zookeeper, given.session_ms, own_sessions=given.own_sessions)
    fleet.on_lost = stop.set
    try:
        await fleet.start()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        control = asyncio.create_task(_control(given.control, Commands(fleet, stop.set)))
        control.add_done_callback(lambda _: stop.set())
        await stop.wait()
        control.cancel()
        await asyncio.wait([control])
        if not control.cancelled():
            control.result()
    finally:
        await fleet.close()
    if fleet.lost:
        log.error("a ZooKeeper session is lost, and registrations with it")
    return 1 if fleet.lost else 0


async def _control(socket: Path | None, commands: Commands) -> None:
    """Takes commands until cancelled, or until the end of the input."""
    if socket is None:
        await _standard_input(commands)
        return
    server = await asyncio.start_unix_server(
        lambda reader, writer: _converse(reader, writer, commands), str(socket), limit=LINE_BYTES_MAX
    )
    try:
        await asyncio.Event().wait()
    finally:
        server.close()


async def _standard_input(commands: Commands) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=LINE_BYTES_MAX)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        print((await commands.response(line)).decode(), flush=True)


async def _converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, commands: Commands) -> None:
    try:
        while line := await reader.readline():
            writer.write(await commands.response(line) + b"\n")
            await writer.drain()
    except (ConnectionError, ValueError):
        log.info("a connection for commands ended in the middle")
    finally:
        writer.close()


def main() -> int:
    """Runs the command."""
    import uvloop

    logging.getLogger("kazoo").setLevel(logging.WARNING)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    return uvloop.run(serve(arguments()))
