"""Honest servers with agents, as a process of its own: ``python -m tests.verify.honest_agents PORT COUNT``.

They open and close at once. A line of JSON with their fate follows each line of standard input; they end with it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from typing import Final

import uvloop

from regent_agent.agent import Agent
from regent_agent.options import AgentOptions
from regent_agent.service import OpenedRegion, RegionService

LOST: Final = "the lease has ended"
"""Begin of the line of an agent whose polls no daemon has acknowledged; a pause of this process has another line."""


class Suspensions(logging.Handler):
    """Counts the leases that were lost because no daemon responded."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Counts a line about a lost lease, and shows all lines."""
        self.count += record.getMessage().startswith(LOST)
        print(record.getMessage(), file=sys.stderr)


class Opens(RegionService):
    """Opens and closes at once."""

    async def open(self, region: OpenedRegion) -> int:
        return region.sequence + 1

    async def close(self, region: OpenedRegion) -> None:
        """Closes it."""


async def main(port: int, count: int) -> None:
    """Runs so many servers until standard input ends."""
    suspensions = Suspensions()
    logging.getLogger("regent_agent").addHandler(suspensions)
    agents = [
        Agent(Opens(), AgentOptions((("127.0.0.1", port),), f"kv-{number}", f"kv-{number}:1"))
        for number in range(count)
    ]
    await asyncio.gather(*(agent.start() for agent in agents))
    print("ready", flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        found = {
            "suspended": suspensions.count,
            "died": sum(agent.died.is_set() for agent in agents),
            "regions": sum(len(agent.owned) for agent in agents),
        }
        print(json.dumps(found), flush=True)
    await asyncio.gather(*(agent.stop() for agent in agents))


if __name__ == "__main__":
    uvloop.run(main(*(int(one) for one in sys.argv[1:3])))
