"""The service in the README of the agent works."""

from __future__ import annotations

import asyncio
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import regent_agent
from regent_agent.protocol import DEAD, OPENED, Poll, Refused, Request, Response, Result
from regent_agent.service import Service
from tests.unit.regent_agent.kit import opens
from tests.unit.regent_agent.stand_in import StandIn

README = Path(regent_agent.__file__).with_name("README.md")


async def test_the_service_opens_a_region_and_ends_when_it_is_fenced() -> None:
    (source,) = re.findall(
        r"(?s)```python\n(import asyncio.*?)asyncio\.run\(main\(\)\)\n```", README.read_text("utf-8")
    )
    names: dict[str, Any] = {}
    async with StandIn(hold_ms=20).running() as daemon:
        exec(source.replace('("127.0.0.1", 9190)', repr(daemon.address)), names)
        running = asyncio.create_task(ended(names))
        daemon.send(opens(7, 1, sequence=3))
        assert await daemon.result(7) == Result(7, OPENED, 4)

        async def dead(request: Request) -> Response:
            return Refused(DEAD, "fenced")

        daemon.responses[Poll] = dead
        assert await running == "fenced: start this process again"


async def ended(names: dict[str, Any]) -> str:
    with pytest.raises(SystemExit) as caught:
        await names["main"]()
    return str(caught.value)


def test_the_callbacks_of_a_log_are_told_as_they_are_declared() -> None:
    told = re.findall(r"async def (fence|split)\(self, (.*)\) -> (.*):\n", README.read_text("utf-8"))
    declared = [(one.__name__, inspect.signature(one)) for one in (Service.fence, Service.split)]
    assert [(name, f"(self, {given}) -> {back}") for name, given, back in told] == [
        (name, str(found).replace("'", "")) for name, found in declared
    ]
