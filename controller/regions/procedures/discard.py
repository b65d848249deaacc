"""Discard: the data of a region that was split or merged goes, once no region needs it; then the region is forgotten.

A server that names the feature does it, any of them: doing it twice gives the same. Where all have come, and none has
the feature, the service leaves nothing behind. A service that never says that its regions are independent keeps what
they need.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from controller.procedures.kinds import Effect, Kind, Step
from controller.process.wording import named
from controller.regions.dispatcher import said
from controller.regions.environment import RegionsEnv
from controller.regions.procedures import messages
from controller.regions.procedures.messages import TRANSIT, Transit
from metadata_store.catalog.rows import Drop, ParentRow
from regent_agent import protocol
from state_machines.procedures.kernel import Change
from state_machines.procedures.outcome import Done, Next, Outcome, Retry, Wait
from state_machines.procedures.record import Record
from state_machines.regions.entities import Server
from state_machines.regions.model import Regions
from state_machines.regions.states import ServerState

NAME: Final = "discard_parent"
DROP: Final = 1
AGAIN_MS: Final = 1_000
PAUSE_MS_MAX: Final = 60_000
"""Longest pause after a server could not do it."""


def dependents(model: Regions) -> dict[int, list[int]]:
    """Returns the regions whose data begins in that of others, by the id of the other one."""
    found: dict[int, list[int]] = defaultdict(list)
    for heir, sources in model.sources.items():
        for one in sources:
            if not one.snapshot:
                found[one.region].append(heir)
    return found


def due(model: Regions) -> list[ParentRow]:
    """Returns the regions whose data none needs any more.

    There are none while stored rows are left out: one of them may say that a region needs it.
    """
    if not model.parents or model.damages.count.total():
        return []
    needed = {one.region for sources in model.sources.values() for one in sources if not one.snapshot}
    return [one for one in model.parents.values() if one.id not in needed]


def freed_by(model: Regions, region: int) -> list[int]:
    """Returns the regions whose data none needs any more once the catalog has forgotten what one refers to."""
    mine = {one.region for one in model.sources.get(region, ()) if not one.snapshot and one.region in model.parents}
    if mine:
        others = (some for heir, some in model.sources.items() if heir != region)
        mine -= {one.region for some in others for one in some if not one.snapshot}
    return sorted(mine)


def discarding(parent: ParentRow) -> tuple[str, bytes]:
    """Returns kind and message of the procedure that discards the data of a region."""
    return NAME, TRANSIT.encode(Transit(parent.id, parent.table, "no region needs its data"))


def waits_for(model: Regions, parent: int, needed: dict[int, list[int]]) -> str:
    """Returns what a region that was split or merged waits for. ``needed``: see :func:`dependents`."""
    if model.damages.count.total():
        return "stored rows that are left out are restored"
    heirs = needed.get(parent, ())
    if not heirs:
        return f"a server has discarded its data: 'regent regions procedures list --kind {NAME}'"
    return f"heirs {named(f'#{one}' for one in heirs)} are independent of it"


async def work(env: RegionsEnv, record: Record) -> Outcome | Effect:
    """Has a server discard the data."""
    task: Transit = TRANSIT.decode(record.data)
    key, result = env.dispatcher.expects(record.pid), env.results.get(record.pid)

    def over(_: Change) -> None:
        env.results.used(record.pid)
        env.dispatcher.forget(record.pid)

    if task.region not in env.model.parents:
        return Effect(Done(b"it is gone"), (), over)
    if result is not None and result.outcome == protocol.DONE:
        return Effect(Next(DROP, record.data), (), over)
    if result is not None and key is not None:
        return Effect(Retry(said("{},{}".format(*key), result), PAUSE_MS_MAX), (), over)
    online = [one for one in env.model.servers.values() if one.state is ServerState.ONLINE and one.here]
    if not online:
        env.unplaced.add(record.pid)
        return Wait(0, record.data, durable=False)
    able = env.prompt([one for one in online if protocol.DISCARD in one.features])
    if not able and env.unregistered():
        return Wait(env.wall_ms() + AGAIN_MS, record.data, durable=False)
    if not able:
        return Effect(Next(DROP, record.data), (), over)
    if key not in {one.key for one in able}:
        _send(env, record.pid, able[env.draw(len(able))], task)
    return Wait(env.wall_ms() + AGAIN_MS, record.data, durable=False)


def _send(env: RegionsEnv, pid: int, server: Server, task: Transit) -> None:
    env.dispatcher.forget(pid)
    env.dispatcher.send(server, protocol.Work(pid, protocol.DISCARD, table=task.table, data=b"%d" % task.region))


async def drop(env: RegionsEnv, record: Record) -> Outcome | Effect:
    """Forgets the region."""
    task: Transit = TRANSIT.decode(record.data)

    def entered(_: Change) -> None:
        parent = env.model.parents.pop(task.region, None)
        env.parents_ms.pop(task.region, None)
        if parent is not None:
            env.journal.discarded(parent, record.pid)

    return Effect(Done(), (Drop(ParentRow, (task.region,)),), entered)


DISCARD_PARENT: Final[Kind[RegionsEnv]] = Kind(
    NAME,
    (Step("discard", work), Step("drop", drop)),
    lambda record: messages.lock_of_region((task := TRANSIT.decode(record.data)).table, task.region),
    no_return=0,
    members=messages.of_transit,
)
