"""Restarts brokers batch by batch: names those to stop next, until each has come back with another broker epoch.

It stops and moves nothing itself: a person or a script does, by ``regent restart-next``. Each batch is judged anew from
the model and the epochs in the record, beside the queue and in turns, so a failover changes nothing. The next batch is
named once the brokers of the last one are back and every ISR allows it, and none while moves are paused.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

import msgspec
from msgspec.structs import replace

from controller.kafka.procedures.environment import LOOK_MS, KafkaEnv
from controller.procedures.kinds import Kind, Step
from state_machines.decisions.restarts import RestartPlan, RollingRestart, restarting, sentence
from state_machines.procedures.locks import Demand, Resource, Scope
from state_machines.procedures.outcome import Done, Outcome, Wait
from state_machines.procedures.record import Record

log = logging.getLogger("regent.procedures")

NAME: Final = "restart"
LOOK_AGAIN_MS: Final = 2_000
"""Pause between two judgements."""
JUDGED_WITHIN_MS: Final = 60_000
"""Time after which a judgement that has not ended is begun again."""
PAUSED: Final = "automatic moves are paused: regent resume"

_decoder = msgspec.json.Decoder(RollingRestart)
_encoder = msgspec.json.Encoder()


def restart_of(record: Record) -> RollingRestart:
    """Decodes the message of a restart."""
    return _decoder.decode(record.data)


def encode_restart(restart: RollingRestart) -> bytes:
    """Encodes the message of a restart."""
    return _encoder.encode(restart)


def demand(record: Record) -> Demand:
    """Demands the cluster's restarts: one runs at a time."""
    restart_of(record)
    return Demand(Resource(Scope.SERVER, "restarts"), exclusive=True)


async def name_batches(env: KafkaEnv, record: Record) -> Outcome:
    """Takes the latest judgement and stores what it changes, or begins one."""
    restart, plan = restart_of(record), env.judged.pop(record.pid, None)
    if plan is None and not env.guard.is_known(env.controller, record.pid, env.responses.wake):
        return Wait(env.now_ms() + LOOK_MS, record.data, durable=False)
    if plan is None:
        env.controller.spawn(_judged(env, record.pid, restart))
        return Wait(env.now_ms() + JUDGED_WITHIN_MS, record.data, durable=False)
    if plan.done:
        return Done(sentence(plan).encode())
    found = _named(env, restart, plan)
    if found == restart:
        return Wait(env.now_ms() + LOOK_AGAIN_MS, record.data, durable=False)
    log.info("pid=%d restart: %s", record.pid, found.why)
    return Wait(env.now_ms() + LOOK_AGAIN_MS, encode_restart(found))


def _named(env: KafkaEnv, restart: RollingRestart, plan: RestartPlan) -> RollingRestart:
    if env.controller.pauses.in_force is not None and plan.batch and not set(plan.batch).issubset(restart.batch):
        return replace(restart, batch=(), why=PAUSED)
    return replace(restart, batch=plan.batch, why=sentence(plan))


async def _judged(env: KafkaEnv, pid: int, restart: RollingRestart) -> None:
    """Judges in turns of the loop; where brokers come or go meanwhile there is no result, and the step begins anew."""
    c = env.controller
    cluster, live = c.cluster, c.cluster.live
    turns = restarting(cluster, dict(restart.since), c.cluster.min_isr, restart.batch_max, restart.accepted)
    while cluster.live is live:
        try:
            next(turns)
        except StopIteration as ended:
            env.judged[pid] = ended.value
            break
        await asyncio.sleep(0)
    env.responses.wake(pid)


RESTART: Final[Kind[KafkaEnv]] = Kind(NAME, (Step("restart brokers", name_batches),), demand, holds_locks=True)
