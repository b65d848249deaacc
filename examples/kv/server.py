"""Runs one server: ``python -m examples.kv.server --name kv-1 --port 7001 --data DIR --daemons 127.0.0.1:9190``."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from examples.kv.listener import Listener
from examples.kv.logs import folder_of
from examples.kv.options import add_daemons, add_transport, check_transport
from examples.kv.service import FEATURES, KeyValueService
from examples.kv.writer import SEGMENT_BYTES_MAX, Fenced, Log, Segments
from regent_agent.agent import Agent
from regent_agent.options import AgentOptions
from regent_agent.protocol import INVALID, UNAUTHENTICATED, Published
from regent_agent.service import OpenedRegion

if TYPE_CHECKING:
    from examples.kv.znodes import Znodes

LEFT: Final = 0
USAGE: Final = 2
"""Exit code: an option is wrong, as the parser of options has it."""
FENCED: Final = 3
"""Exit code: other servers have the regions. Start this one again."""
BROKEN: Final = 4
"""Exit code: a file could not be written. Other servers recover the regions from the log."""
NOT_LEFT: Final = 5
"""Exit code: regions were left at the end. Other servers recover them from the log."""
UNSAFE: Final = 6
"""Exit code: the daemon does not fence servers by their log, so that acknowledged edits would be lost."""
REFUSED: Final = 8
"""Exit code: the daemon refuses this process, and would do so again. It had no region."""
BEHIND: Final = 7
"""Result of a run: this process was not above a fenced one, and begins anew with the next incarnation."""
FENCE: Final = "log"
HOPELESS: Final = frozenset({INVALID, UNAUTHENTICATED})
"""Codes of refusals that the same process gets again."""

logger = logging.getLogger("kv.server")


class Server:
    """Holds the parts of a server: its log, its regions, the listener for clients, and regent's agent."""

    def __init__(self, options: argparse.Namespace, above: int = 0) -> None:
        """``above``: the incarnation has to be above this one, whatever the clock says."""
        self._options = options
        self.above = above
        self._incarnation = max(time.time_ns() // 1_000, above + 1)
        self._joined = False
        self._log = Log(Segments(options.data, options.name, self._incarnation, options.segment_bytes))
        self._agent: Agent | None = None
        self._znodes = self._made_znodes()
        self._service = KeyValueService(
            options.data, self._log, independent=self._independent, published=self._published
        )
        self._listener = Listener(self._service)
        self._stopping = asyncio.Event()
        self._unsafe = asyncio.Event()
        self._refused: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def run(self) -> int:
        """Serves until SIGTERM or SIGINT, or until nothing may be answered any more; returns the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._stopping.set)
        try:
            port = await self._listener.start(self._options.host, self._options.port)
        except OSError as error:
            logger.critical("server ends: %s: %s; correct --host and --port", self._options.name, error)
            return USAGE
        if self._znodes is not None:
            await self._znodes.start()
        agent = self._agent = self._agent_at(f"{self._options.host}:{port}")
        serving = asyncio.create_task(self._serve(agent))
        died = asyncio.create_task(agent.died.wait())
        ends: list[asyncio.Future[Any]] = [serving, died, self._log.failed]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        self.above = agent.above
        behind = agent.died.is_set() and self.above and not self._joined  # its log is empty
        if not behind and (agent.died.is_set() or self._log.failed.done()):
            self._abandon()
        await self._listener.stop()
        await agent.stop()
        if self._znodes is not None:
            await self._znodes.stop()
        await self._log.close()
        if not behind:
            return serving.result()
        await asyncio.gather(serving, return_exceptions=True)
        return BEHIND

    def _made_znodes(self) -> Znodes | None:
        """Returns what answers by znodes; None where this server reports, and needs no ZooKeeper client."""
        options = self._options
        if options.transport == "poll":
            return None
        from examples.kv.znodes import Znodes

        return Znodes(options.zookeeper, options.digest, options.name, self._incarnation)

    def _agent_at(self, address: str) -> Agent:
        options = AgentOptions(
            daemons=self._options.daemons,
            server=self._options.name,
            address=address,
            software="kv 1",
            incarnation=self._incarnation,
            secret=self._options.secret,
            features=FEATURES,
        )
        return Agent(
            self._service,
            options,
            load=self._service.load,
            region_loads=self._service.loads,
            fenced_by=self._fenced_by,
            refused=self._refuse,
            answers=None if self._znodes is None else self._znodes.answers,
        )

    def _independent(self, region: OpenedRegion) -> None:
        assert self._agent is not None, "it had the region opened"
        self._agent.independent(region)

    def _published(self) -> Mapping[str, Published]:
        return {} if self._agent is None else self._agent.published

    def _refuse(self, code: str, text: str) -> None:
        """Notes a refusal of a process that is no member yet, where no later attempt has success."""
        if code in HOPELESS and not self._joined and not self._refused.done():
            self._refused.set_result(text)

    def _fenced_by(self, fence: str) -> None:
        """Serves nothing from now on where the daemon has another fence, also where it had the right one before."""
        if fence == FENCE and not self._unsafe.is_set():
            self._service.admit(True)
            return
        self._service.admit(False)
        self._unsafe.set()

    async def _serve(self, agent: Agent) -> int:
        starting = asyncio.create_task(agent.start())
        stopping = asyncio.create_task(self._stopping.wait())
        ends: list[asyncio.Future[Any]] = [starting, stopping, self._refused]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            return LEFT if stopping.done() else self._end_refused()  # no daemon knows this process
        starting.result()
        self._joined = True
        name = self._options.name
        if not self._unsafe.is_set():
            print(f"kv server {name} serves clients, incarnation {self._incarnation}", flush=True)
        unsafe = asyncio.create_task(self._unsafe.wait())
        await asyncio.wait([stopping, unsafe], return_when=asyncio.FIRST_COMPLETED)
        if unsafe.done():
            return await self._end_unsafe(agent.fence)
        logger.info("server leaves: %s got a signal; it ends once other servers have its regions", name)
        return LEFT if await agent.leave(self._options.leave_s) else NOT_LEFT

    def _end_refused(self) -> int:
        logger.critical(
            "server ends: %s: %s; correct its options, then start it", self._options.name, self._refused.result()
        )
        return REFUSED

    async def _end_unsafe(self, fence: str) -> int:
        """Writes all edits to the files of their regions: a daemon with another fence has no log split."""
        logger.critical(
            'server ends: %s: the daemon has regions.fence = "%s", which recovers no edits from logs: '
            'set fence = "%s" in the section [regions] of its settings, restart it, and start this server again',
            *(self._options.name, fence, FENCE),
        )
        try:
            await self._service.save()
        except OSError as error:
            self._log.fail(error)
        return UNSAFE

    def _abandon(self) -> None:
        """Ends the process at once: the regions may be with other servers, so it must write and answer nothing."""
        error = self._log.failed.result() if self._log.failed.done() else Fenced("the daemon says so")
        if isinstance(error, Fenced):
            code, remedy = FENCED, "start the server again"
        else:
            code, remedy = (
                BROKEN,
                "repair the disk, then start the server again; its regions are recovered from its log",
            )
        logger.critical("server ends: %s, incarnation %d: %s; %s", self._options.name, self._incarnation, error, remedy)
        logging.shutdown()
        os._exit(code)  # threads may be busy with files still: an ordinary end would wait for them


def main() -> None:
    """Runs a server with the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m examples.kv.server", description="Runs one key-value server.")
    parser.add_argument("--name", type=_name, required=True, help="name of this server, which no other has")
    parser.add_argument("--host", default="127.0.0.1", help="address that clients reach")
    parser.add_argument("--port", type=int, default=0, help="port for clients; 0 takes a free one")
    parser.add_argument("--data", type=Path, required=True, help="folder that all servers see")
    add_daemons(parser)
    add_transport(parser)
    parser.add_argument("--leave-s", type=float, default=30.0, help="longest wait at the end, in seconds")
    parser.add_argument("--segment-bytes", type=int, default=SEGMENT_BYTES_MAX, help="size of a segment of the log")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr)
    options = parser.parse_args()
    check_transport(parser, options)
    sys.exit(asyncio.run(_run(options)))


def _name(text: str) -> str:
    try:
        folder_of(Path(), text, 0)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


async def _run(options: argparse.Namespace) -> int:
    try:
        server = Server(options)
    except OSError as error:
        logger.critical("server ends: %s: %s; repair the disk, or correct --data", options.name, error)
        return BROKEN
    while (code := await server.run()) == BEHIND:
        logger.warning("server %s begins above incarnation %d: set its machine's clock", options.name, server.above)
        server = Server(options, server.above)
    return code


if __name__ == "__main__":
    main()
