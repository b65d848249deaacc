"""Events that znodes request: reassignments, preferred leaders, creations and deletions of topics.

Both controllers get the same znodes. New replicas catch up on a command, all at once, so that the
measured time is the controller's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final

from benchmarks import request_znodes
from benchmarks.arena import Arena
from benchmarks.contestants import Contestant
from benchmarks.datasets import PARTITIONS_PER_TOPIC, REPLICATION, DataSet, Shape, data_set
from benchmarks.turns import EVENT_S_MAX, Clock, Turn, Wrong, check, metered, quiet
from metadata_store import paths

START: Final = "reassignment start"
COMPLETION: Final = "reassignment completion"
PREFERRED: Final = "preferred leaders"
CREATION: Final = "topic creation"
DELETION: Final = "topic deletion"


def moved(data: DataSet, count: int) -> dict[int, tuple[int, ...]]:
    """Returns new replicas for ``count`` rows evenly over the data: the first, second or third replica changes."""
    step, brokers = len(data.replicas) // count, len(data.brokers)
    targets: dict[int, tuple[int, ...]] = {}
    for number, row in enumerate(range(0, count * step, step)):
        replicas = list(data.replicas[row])
        place = number % len(replicas)
        new = replicas[place]
        while new in replicas:
            new = new % brokers + 1
        replicas[place] = new
        targets[row] = tuple(replicas)
    return targets


async def reassignments(arena: Arena, contestant: Contestant, count: int) -> list[Turn]:
    """Measures the start, until the last broker has the change, and the completion after the catch-up."""
    targets = moved(arena.data, count)
    start = Turn(START)
    async with metered(arena, contestant, start):
        clock = Clock.now()
        await request_znodes.ask_for_reassignments(arena.zk, arena.oracle, targets)
        arena.oracle.reassigns(targets)
        start.told_s = (await quiet(arena)).last_s - clock.began_s
    await check(arena, start, clock)

    await arena.fleet.prepare_catch_up(contestant.port)
    end = Turn(COMPLETION)
    async with metered(arena, contestant, end):
        done = asyncio.ensure_future(_seen(request_znodes.until_gone(arena.zk, paths.REASSIGN_PARTITIONS, EVENT_S_MAX)))
        clock = Clock.now().moved(await arena.fleet.catch_up())
        arena.oracle.completes(contestant.writes)
        end.ready_s = await done - clock.began_s
        end.told_s = (await quiet(arena)).last_s - clock.began_s
    await check(arena, end, clock)
    return [start, end]


async def preferred(arena: Arena, contestant: Contestant) -> Turn:
    """Requests preferred leaders of all other partitions, in as many requests as ZooKeeper's limit needs."""
    oracle, turn = arena.oracle, Turn(PREFERRED)
    rows = [row for row, state in enumerate(oracle.states) if state.leader != oracle.assigned[row][0]]
    async with metered(arena, contestant, turn):
        clock = Clock.now()
        for at in range(0, len(rows), request_znodes.ELECTIONS_MAX):
            some = rows[at : at + request_znodes.ELECTIONS_MAX]
            await request_znodes.ask_for_elections(arena.zk, oracle, some)
            gone_s = await _seen(request_znodes.until_gone(arena.zk, paths.PREFERRED_ELECTION, EVENT_S_MAX))
            turn.ready_s = gone_s - clock.began_s
        oracle.prefers()
        turn.told_s = (await quiet(arena)).last_s - clock.began_s
    await check(arena, turn, clock)
    return turn


async def topics(arena: Arena, contestant: Contestant, count: int) -> list[Turn]:
    """Creates ``count`` topics, and then deletes them."""
    brokers = arena.data.shape.brokers
    added = data_set(Shape("added", count, PARTITIONS_PER_TOPIC, REPLICATION, brokers, prefix="added"))
    creation = Turn(CREATION)
    async with metered(arena, contestant, creation):
        clock = Clock.now()
        await request_znodes.create_topics(arena.zk, added)
        arena.oracle.creates(added)
        creation.told_s = (await quiet(arena)).last_s - clock.began_s
    await check(arena, creation, clock)

    await arena.fleet.list_stopped(True)
    deletion = Turn(DELETION)
    async with metered(arena, contestant, deletion):
        clock = Clock.now()
        await request_znodes.delete_topics(arena.zk, added)
        arena.oracle.deletes(added)
        gone_s = await _seen(request_znodes.until_empty(arena.zk, paths.DELETE_TOPICS, EVENT_S_MAX))
        deletion.ready_s = gone_s - clock.began_s
        deletion.told_s = (await quiet(arena)).last_s - clock.began_s
    await check(arena, deletion, clock)
    await arena.fleet.list_stopped(False)
    return [creation, deletion]


async def _seen(waiting: Awaitable[float]) -> float:
    try:
        return await waiting
    except TimeoutError as error:
        raise Wrong(str(error)) from None
