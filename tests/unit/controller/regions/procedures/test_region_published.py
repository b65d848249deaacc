"""So many values are published that a server can register with all of them."""

from __future__ import annotations

import pytest

from controller.procedures.requests import ProcedureRefused
from controller.regions.procedures.publish import NAME, PUBLISH_TASK, PublishTask
from regent_agent import protocol
from regent_agent.protocol import PUBLISHED_MAX, VALUE_BYTES_MAX, Registered
from testing.memory.region_store import RegionDisk
from tests.kit.regions.world import Server, procedure, running, serving, until, virtual


class Publishing(Server):
    """A server that has published values."""

    features = (protocol.PUBLISH,)


async def publishes(server: Server, number: int) -> int:
    return await procedure(server.term, NAME, PUBLISH_TASK.encode(PublishTask(f"v{number}", bytes(VALUE_BYTES_MAX))))


@virtual
async def test_values_that_wait_for_a_process_count_as_those_that_are_published() -> None:
    async with running(RegionDisk()) as term:
        server = Publishing(term, "a")
        assert isinstance(await server.register(), Registered)
        for number in range(PUBLISHED_MAX):
            await publishes(server, number)
        with pytest.raises(
            ProcedureRefused, match=f"{PUBLISHED_MAX} values are on their way to processes, which is the most"
        ):
            await publishes(server, PUBLISHED_MAX)
        async with serving(server):
            await until(lambda: not list(term.engine.live()))
            assert len(term.env.model.published) == PUBLISHED_MAX
            assert isinstance(found := await Publishing(term, "b").register(), Registered)
            assert len(found.published) == PUBLISHED_MAX
