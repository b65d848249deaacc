"""Runs a command that waits for a procedure, and kills the daemon while it waits."""

from __future__ import annotations

import asyncio
import json

from cli.exit_codes import Exit
from tests.kit.polling import eventually
from tests.real.cluster.scene import Scene, regent


async def through_a_failover(stage: Scene, kind: str, *command: str, code: Exit = Exit.DONE) -> dict[str, object]:
    """Kills the daemon once the command's procedure is durable, boots it again; returns the procedure at the end."""
    before = await pids(stage, kind)
    waiting = asyncio.ensure_future(regent(stage.daemon, *command, "--wait", "-o", "json"))
    await eventually(lambda: begun(stage, kind, before, waiting), 60.0)
    await stage.daemon.kill()
    await stage.daemon.boot()
    await stage.active()
    found, out, err = await asyncio.wait_for(waiting, 120.0)
    assert found == code, (command, found, out, err)
    item: dict[str, object] = json.loads(out)["items"][0]
    return item


async def begun(stage: Scene, kind: str, before: set[int], waiting: asyncio.Future[tuple[int, str, str]]) -> bool:
    """Returns whether a further procedure of a kind is listed, or the command has ended."""
    return waiting.done() or bool(await pids(stage, kind) - before)


async def pids(stage: Scene, kind: str) -> set[int]:
    """Returns the pids of procedures of a kind, with kept results."""
    items = (await stage.daemon.get("/v1/procedures"))["items"]
    return {item["pid"] for item in items if item["kind"] == kind}
