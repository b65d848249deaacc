"""Assign or close the regions that an operator names by their ids, of any tables, thousands in one request.

Each region is judged as its turn comes, and again by the batch that opens or closes it (:mod:`.many`). One that is open
already, is gone, is moved by another procedure, or whose table is not enabled, is left out and counted. The record has
the ids that are not begun, and those under way; the end has none any more, since results are kept for a while.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from controller.procedures.kinds import Kind, Step
from controller.process.wording import counted
from controller.regions.environment import RegionsEnv
from controller.regions.procedures import many
from controller.regions.procedures.messages import Codec, Message
from state_machines.procedures.locks import Demand, Resource, Scope
from state_machines.procedures.outcome import Children, Done, Next, Outcome
from state_machines.procedures.record import Record
from state_machines.procedures.transition import Members
from state_machines.regions import choosing
from state_machines.regions.choosing import MET, Cause, LeftOut
from state_machines.regions.entities import Region
from state_machines.regions.overlaps import served_beside

ASSIGN: Final = "assign_regions"
CLOSE: Final = "close_regions"
NAMES: Final = frozenset({ASSIGN, CLOSE})
BEGIN: Final = 0
END: Final = 1
VERBS: Final = {ASSIGN: "assigned", CLOSE: "closed"}
DIGEST_BYTES: Final = 8


class ByIds(Message, frozen=True):
    """Regions that are opened or closed. ``ids``: those that are not judged yet; ``begun``: those under way.

    ``count``: how many were named, ``digest``: of their ids, which tells the request from others. ``done``: how many
    have ended, and are as they were to be. ``left``: those that were left out, or came to nothing.
    """

    ids: tuple[int, ...] = ()
    why: str = ""
    begun: tuple[int, ...] = ()
    count: int = 0
    digest: str = ""
    done: int = 0
    left: tuple[LeftOut, ...] = ()


BY_IDS = Codec(ByIds)


def naming(ids: Iterable[int], why: str) -> ByIds:
    """Returns the message about some regions; one that is named twice counts once."""
    some = tuple(dict.fromkeys(ids))
    digest = hashlib.blake2b(" ".join(map(str, sorted(some))).encode(), digest_size=DIGEST_BYTES).hexdigest()
    return ByIds(some, why, count=len(some), digest=digest)


def judged(env: RegionsEnv, kind: str, ids: Iterable[int]) -> tuple[list[Region], list[tuple[Cause, int]]]:
    """Returns the regions to begin with, and why others are left out."""
    opens, chosen, left = kind == ASSIGN, list[Region](), list[tuple[Cause, int]]()
    for id_ in ids:
        region = env.model.regions.get(id_)
        ends = bool(env.endings) and region is not None and env.endings.of(region.table) is not None
        cause = choosing.left_out(region, opens=opens, ends=ends)
        if opens and cause is None and region is not None and served_beside(env.model, region) is not None:
            cause = Cause.SHARED
        if cause is not None:
            left.append((cause, id_))
        elif region is not None:
            chosen.append(region)
    return chosen, left


async def begin(env: RegionsEnv, record: Record) -> Outcome:
    """Counts the regions that have ended, and begins all others: in several rounds where a write does not hold them."""
    task = settled(env, record.kind, BY_IDS.decode(record.data))
    chosen, left = judged(env, record.kind, task.ids)
    if not chosen:
        ended = replace(task, ids=(), left=choosing.added(task.left, left))
        return Next(END, BY_IDS.encode(ended))
    chosen.sort(key=lambda one: (one.table.kind, one.table.name))
    batches = _batches(chosen)
    kind = many.ASSIGN_MANY if record.kind == ASSIGN else many.CLOSE_MANY
    children = tuple(many.of_ids(kind, some, task.why or f"procedure {record.pid}") for some in batches)
    after = replace(task, left=choosing.added(task.left, left))

    def rest(count: int) -> bytes:
        begun, later = batches[:count], batches[count:]
        ids = [[one.id for some in group for one in some] for group in (begun, later)]
        return BY_IDS.encode(replace(after, begun=tuple(ids[0]), ids=tuple(ids[1])))

    some = min(len(children), many.BATCHES_MAX)
    return Children(children[:some], BEGIN, rest(some), rest=rest)


def _batches(regions: Sequence[Region]) -> list[list[Region]]:
    """Returns the regions in batches of one table each, in their order."""
    found: list[list[Region]] = []
    for one in regions:
        if not found or found[-1][0].table is not one.table or len(found[-1]) >= many.TOGETHER:
            found.append([])
        found[-1].append(one)
    return found


def settled(env: RegionsEnv, kind: str, task: ByIds) -> ByIds:
    """Returns the message once the regions under way have ended: each is as it was to be, or came to nothing."""
    opens, regions, missed = kind == ASSIGN, env.model.regions, list[tuple[Cause, int]]()
    for id_ in task.begun:
        region = regions.get(id_)
        if (cause := choosing.missed(region, opens=opens)) is not None:
            missed.append((cause, id_))
    done = task.done + len(task.begun) - len(missed)
    return replace(task, begun=(), done=done, left=choosing.added(task.left, missed))


async def end(env: RegionsEnv, record: Record) -> Outcome:
    """Ends with how many regions are as they were to be, and why others are not."""
    return Done(result_text(record.kind, BY_IDS.decode(record.data)).encode())


def result_text(kind: str, task: ByIds) -> str:
    """Returns the result in words."""
    return ", ".join(filter(None, (f"{task.done:,} {VERBS[kind]}", choosing.in_words(task.left))))


def unmet(kind: str, task: ByIds) -> str:
    """Returns which regions are not as they were to be, in words; empty where all are."""
    left = [one for one in task.left if one.cause not in MET]
    if not left:
        return ""
    count = sum(one.count for one in left)
    causes = ", ".join(one.told() for one in left)
    return f"{count:,} of {task.count:,} regions not {VERBS[kind]}: {causes}"


def detail(task: ByIds) -> str:
    """Returns how many regions an operator has named, and how many of these are left out so far."""
    out = sum(one.count for one in task.left)
    return counted(task.count, "region") + (f", {out:,} left out" if out else "")


def so_far(env: RegionsEnv, kind: str, task: ByIds) -> str:
    """Returns how many regions are as they were to be by now, and why others are left out."""
    opens, regions = kind == ASSIGN, env.model.regions
    done = task.done + sum(choosing.missed(regions.get(id_), opens=opens) is None for id_ in task.begun)
    of = f"{done:,} of {counted(task.count, 'region')} {VERBS[kind]}"
    return ", ".join(filter(None, (of, choosing.in_words(task.left))))


def demand(record: Record) -> Demand:
    """Demands nothing for itself: each batch shares its table with the others, and each region is locked alone."""
    BY_IDS.decode(record.data)
    return Demand(Resource(Scope.SERVER, "regions by their ids"), exclusive=False)


def members(record: Record) -> Members:
    """Names the reason, and how many regions there are."""
    task: ByIds = BY_IDS.decode(record.data)
    return Members(why=task.why, what=f"{task.count:,} regions")


def _kind(name: str) -> Kind[RegionsEnv]:
    return Kind(name, (Step("begin", begin), Step("end", end)), demand, holds_locks=True, members=members)


ASSIGN_BY_IDS: Final = _kind(ASSIGN)
CLOSE_BY_IDS: Final = _kind(CLOSE)
