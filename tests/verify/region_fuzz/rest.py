"""Looks, once no fault is left, whether all comes to rest, with the commands that operators have."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from tests.verify.region_fuzz.daemons import Away, Response
from tests.verify.region_fuzz.operators import Items, Operator
from tests.verify.region_fuzz.servers import BROKEN

END_S_MAX: Final = 90.0
"""Longest wait for procedures that end by themselves, and for those that a command has begun."""
LOOK_S: Final = 0.3


class NotAtRest(AssertionError):
    """Something is left that no operator can end; the text names it."""


async def rested(operator: Operator) -> None:
    """Ends what does not end by itself, brings all tables back; raises :class:`NotAtRest`.

    A table that no server can open is deleted. What else lives after a while has no reason to.
    """
    await until(lambda: _served(operator), "no daemon is active")
    await operator.remove_marks()
    await _delete_broken(operator)
    await until(lambda: _quiet(operator), "procedures live on")
    await _restored(operator)
    await until(lambda: _quiet(operator), "procedures live on after the last commands")
    await _judge(operator)


async def until(holds: Callable[[], Awaitable[object]], what: str, within_s: float = END_S_MAX) -> None:
    """Waits; ``holds`` returns what is in the way, or something false."""
    ends_s, left = time.monotonic() + within_s, object()
    while left:
        try:
            left = await holds()
        except (Away, Response) as error:
            left = str(error)
        if left and time.monotonic() > ends_s:
            raise NotAtRest(f"{what} after {within_s:g} s: {left}")
        if left:
            await asyncio.sleep(LOOK_S)


async def _served(operator: Operator) -> str:
    status = await operator.status()
    return "" if status["mode"] == "active" else str(status)


async def _quiet(operator: Operator) -> Items | str:
    """Returns procedures that live, or what is in transition or locked without one."""
    if live := await operator.procedures():
        return [{key: one.get(key) for key in SHOWN if one.get(key)} for one in live[:5]]
    status = await operator.status()
    if status["inTransition"] or status["crashedServers"]:
        return f"{status}, {await operator.items('/v1/regions/transitions')}"
    return await operator.items("/v1/regions/locks")


SHOWN: Final = ("pid", "kind", "state", "step", "detail", "parent", "attempts", "error", "progress", "unusable")


async def _delete_broken(operator: Operator) -> None:
    """Has tables deleted that cannot be opened, from whatever state they are in, and waits for it."""
    broken = [one["name"] for one in await operator.items("/v1/regions/tables") if BROKEN in one["options"]]
    for name in broken:
        await until(partial(_deleted, operator, name), f"table {name} cannot be deleted")


async def _deleted(operator: Operator, name: str) -> str:
    """Takes the next step towards the deletion of a table; returns its state until it is gone."""
    found = [one for one in await operator.items("/v1/regions/tables") if one["name"] == name]
    if not found:
        return ""
    for act in ("delete", "disable"):
        if await operator.send(f"rest: {act} table", f"/v1/regions/tables/{name}/{act}") is not None:
            break
    return str(found[0])


async def _restored(operator: Operator) -> None:
    """Brings tables out of states on the way, and has closed regions of enabled tables assigned."""
    for table in await operator.items("/v1/regions/tables"):
        if table["state"].lower() not in ("enabled", "disabled"):
            await until(partial(_settled, operator, table["name"]), f"table {table} stays on the way")
    enabled = {one["name"] for one in await operator.items("/v1/regions/tables") if one["state"].lower() == "enabled"}
    status = await operator.status()
    closed = [one for one in await operator.regions() if one["table"] in enabled and one["state"] != "OPEN"]
    counted = status["strandedRegions"] + status["failedRegions"]
    if counted < len(closed):
        raise NotAtRest(
            f"{len(closed)} regions of enabled tables have no owner, the status has {counted}: {closed[:3]}"
        )
    for region in closed:
        operator.counts["regions without owner at rest"] += 1
        if await operator.send("rest: assign", f"/v1/regions/{region['id']}/assign") is None:
            await until(partial(_assigned, operator, region["id"]), f"region {region} cannot be assigned")


async def _settled(operator: Operator, name: str) -> str:
    """Takes the next step out of a state on the way."""
    found = [one for one in await operator.items("/v1/regions/tables") if one["name"] == name]
    if not found or found[0]["state"].lower() in ("enabled", "disabled"):
        return ""
    for act in ("enable", "disable", "delete"):
        if await operator.send(f"rest: {act} table", f"/v1/regions/tables/{name}/{act}") is not None:
            break
    return str(found[0])


async def _assigned(operator: Operator, region: int) -> str:
    found = [one for one in await operator.regions() if one["id"] == region]
    if not found or found[0]["state"] == "OPEN":
        return ""
    await operator.send("rest: assign", f"/v1/regions/{region}/assign")
    return str(found[0])


async def _judge(operator: Operator) -> None:
    """Checks that all is in order."""
    enabled = {one["name"] for one in await operator.items("/v1/regions/tables") if one["state"].lower() == "enabled"}
    online = {(one["name"], one["incarnation"]) for one in await operator.items("/v1/regions/servers")}
    for region in await operator.regions():
        if region["table"] in enabled and region["state"] != "OPEN":
            raise NotAtRest(f"{region} of an enabled table is not open")
        if region["table"] not in enabled and region.get("server"):
            raise NotAtRest(f"{region} of a disabled table has an owner")
        if region.get("server") and (region["server"], region["incarnation"]) not in online:
            raise NotAtRest(f"{region} is at a server that is no member")
