"""Finds regions that are in transition for too long, and logs what each waits for (HBase ``RIT`` chore).

It only tells: no region is assigned anew for it, because time says nothing about what a server did.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, NamedTuple

from controller.regions.ages import oldest
from controller.regions.environment import RegionsEnv
from state_machines.procedures.record import Record
from state_machines.regions.model import Region
from state_machines.regions.states import RegionState, ServerState

log = logging.getLogger("regent.regions")

SHOWN_MAX: Final = 20
"""Regions that have a line of their own in one look; the others are counted."""
S = RegionState


class Wait(NamedTuple):
    """What a region in transition waits for, and what an operator can do about it."""

    what: str
    remedy: str


def wait_of(region: Region, env: RegionsEnv) -> Wait:
    """Returns what a region in transition waits for."""
    server = region.server
    if region.pid in env.unplaced:
        return Wait("a server comes that may get regions", "start one: 'regent servers list' has those that are there")
    if region.pid in env.unheard.held:
        what = f"no server can have it: {env.unheard.why_held(region)}"
        return Wait(what, "where such a server is gone for good, 'regent servers expire NAME' has it fenced")
    if server is not None and server.state is ServerState.CRASHED:
        return Wait(f"{server} is fenced and its log split", "see the procedure 'crash' of that server")
    if server is not None and region.state in (S.OPENING, S.CLOSING):
        done = "opened" if region.state is S.OPENING else "closed"
        remedy = f"see its log, and where it hangs end it, or 'regent servers expire {server.name}'"
        return Wait(f"{server} has {done} it", remedy)
    if region.pid and env.causes.of(region.pid):
        return Wait("an open of it succeeds", f"see 'regent regions explain {region.id}'")
    if region.pid:
        return Wait("its procedure goes on", f"see 'regent regions explain {region.id}'")
    return Wait("a procedure begins", f"have it assigned: 'regent regions assign {region.id}'")


async def tell(env: RegionsEnv, records: Mapping[int, Record], threshold_ms: int) -> int:
    """Logs the regions that are late, at most ``SHOWN_MAX`` of them by name; returns how many there are."""
    found, count = await oldest(env, records, SHOWN_MAX, threshold_ms)
    for region, age, record in found:
        ppid = f" ppid={record.parent}" if record is not None and record.parent else ""
        kind = f" {record.kind}" if record is not None else ""
        why = f" after {record.attempts} attempts in vain ({record.error})" if record and record.attempts else ""
        if cause := env.causes.of(region.pid):
            why += f"; in the last attempt {cause}"
        wait = wait_of(region, env)
        log.warning(
            "pid=%d%s%s: region=%s is %s for %.0f s, server=%s; it waits until %s%s: %s",
            *(region.pid, ppid, kind, region, region.state.name, age / 1000, region.server or "none"),
            *(wait.what, why, wait.remedy),
        )
    if count > SHOWN_MAX:
        log.warning(
            "%d more regions are in transition for over %.0f s: see 'regent regions transitions'",
            *(count - SHOWN_MAX, threshold_ms / 1000),
        )
    return count
