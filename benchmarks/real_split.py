"""Splits one failover on the real ZooKeeper and the simulated brokers' sockets by stage.

The term runs inside this process so that its stages can be timed (:mod:`benchmarks.stages`). ``read and wait`` is time
without CPU of this process until it is ready; ``send`` is the kernel's time for its system calls, nearly all of it
for writing to sockets.
"""

from __future__ import annotations

import gc
import resource
import statistics
import time
from typing import Final

from benchmarks import role
from benchmarks.arena import Arena
from benchmarks.in_process import new_term, told
from benchmarks.results import Row, Sample
from benchmarks.stages import Stages
from controller.kafka.term.failover import fail_over
from metadata_store import paths
from metadata_store.kazoo_adapter import KazooZooKeeper

ROUNDS: Final = 3
SESSION_MS: Final = 120_000

Split = dict[str, float]


async def split(arena: Arena) -> Row:
    """Returns the row: seconds until the last acknowledgement, and the stages."""
    taken = [await _failover(arena) for _ in range(1 + ROUNDS)]
    walls = [found.pop("all") for found in taken]
    size = arena.data.shape.name
    row = Row("S", size, "failover inside one process, split", "s", Sample.of(walls[1:], walls[0]))
    row.phases["seconds"] = {stage: statistics.median(found[stage] for found in taken[1:]) for stage in taken[0]}
    return row


async def _failover(arena: Arena) -> Split:
    await arena.calm()
    zk = KazooZooKeeper(arena.zookeeper.connect, session_timeout_ms=SESSION_MS)
    await zk.connect(30.0)
    fence = await zk.exists(paths.CONTROLLER_EPOCH)
    assert fence is not None
    controller = new_term(zk, None, await role.epoch(zk), fence.version)
    try:
        with Stages() as stages:
            began_s, cpu_s, kernel_s = time.perf_counter(), time.process_time(), _kernel_s()
            await fail_over(controller)
            waited_s = (time.perf_counter() - began_s) - (time.process_time() - cpu_s)
            await told(controller)
            wall_s, cpu_s = time.perf_counter() - began_s, time.process_time() - cpu_s
            sent_s, spent = _kernel_s() - kernel_s, stages.spent()
    finally:
        await controller.channels.close()
        await controller.close()
        await zk.close()
        gc.unfreeze()
    rest_s = cpu_s - sent_s - sum(spent.values())
    return {"read and wait": waited_s, **spent, "send": sent_s, "rest": rest_s, "all": wall_s}


def _kernel_s() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_stime
