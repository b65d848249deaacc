"""Honest servers with agents, as a process of its own: ``python -m tests.verify.honest_agents PORT COUNT``.

They open and close at once. A line of JSON with their fate follows each line of standard input; they end with it.
"""

from __future__ import annotations

import asyncio
import json
import sys

import uvloop

from regent_agent.agent import Agent
from regent_agent.options import AgentOptions
from regent_agent.service import OpenedRegion, RegionService


class Counting(RegionService):
    """Counts how often a lost lease has suspended it."""

    def __init__(self) -> None:
        self.suspended = 0

    async def open(self, region: OpenedRegion) -> int:
        return region.sequence + 1

    async def close(self, region: OpenedRegion) -> None:
        """Closes it."""

    def suspend(self) -> None:
        self.suspended += 1


async def main(port: int, count: int) -> None:
    """Runs so many servers until standard input ends."""
    services = [Counting() for _ in range(count)]
    agents = [
        Agent(service, AgentOptions((("127.0.0.1", port),), f"kv-{number}", f"kv-{number}:1"))
        for number, service in enumerate(services)
    ]
    await asyncio.gather(*(agent.start() for agent in agents))
    print("ready", flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        found = {
            "suspended": sum(service.suspended for service in services),
            "died": sum(agent.died.is_set() for agent in agents),
            "regions": sum(len(agent.owned) for agent in agents),
        }
        print(json.dumps(found), flush=True)
    await asyncio.gather(*(agent.stop() for agent in agents))


if __name__ == "__main__":
    uvloop.run(main(*(int(one) for one in sys.argv[1:3])))
