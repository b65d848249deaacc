"""Servers that register, leave and come back: what seeds of the simulation have shown."""

from __future__ import annotations

import asyncio

import pytest

from regent_agent import protocol
from regent_agent.protocol import Refused, Registered
from testing.memory.region_store import RegionDisk
from tests.region_simulation.kit import Server, creates, ended, lists, regions_of, running, serving, until, virtual


@pytest.mark.seed("S1-91")
@virtual
async def test_a_process_that_was_fenced_never_registers_again() -> None:
    """Its regions are with others, and it would serve them as soon as its lease is valid."""
    disk = RegionDisk()
    async with running(disk) as term:
        zombie, other = Server(term, "s1", 5), Server(term, "s2")
        async with serving(zombie):
            await ended(term, creates(term))
        had = lists(regions_of(term))
        async with serving(other):
            await until(lambda: len(term.env.model.servers) == 1)
            found = await zombie.register(*had)
            assert isinstance(found, Refused)
            assert (found.code, "must end" in found.text) == (protocol.DEAD, True)
            older = await Server(term, "s1", 4).register()
            assert isinstance(older, Refused)
    async with running(disk) as term:
        found = await Server(term, "s1", 5).register()
        assert isinstance(found, Refused)
        assert found.code == protocol.DEAD
        assert isinstance(await Server(term, "s1", 6).register(), Registered)
        await asyncio.sleep(0)
