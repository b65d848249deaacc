"""Applies, changes and takes back reassign plans, as operators do at the active daemon; each plan has a nonce."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from controller.kafka.procedures.reassign import NAME, PlanCommand, encode_plan, plan_of
from controller.procedures.requests import ProcedureRefused
from metadata_store import paths
from metadata_store.codecs.cluster import Config, decode_config, encode_config
from metadata_store.errors import NotConnected, OutcomeUnknown, ZkError
from state_machines.admin_rules.throttles import BROKERS, LEADER_RATE
from state_machines.decisions.plan_progress import PlannedMove, ReassignPlan, Status
from state_machines.procedures.record import Caller
from state_machines.procedures.states import State
from tests.simulation.kafka import faults
from tests.simulation.kafka.acting import Acting, ids

if TYPE_CHECKING:
    from controller.kafka.procedures.environment import KafkaEnv
    from controller.procedures.engine import Engine

AGAIN_S_MAX: Final = 20.0
PAUSE_S: Final = 0.1
THROTTLE_ROUNDS_MAX: Final = 20
COMMANDS: Final = {
    "stop": PlanCommand(stop=True),
    "pause": PlanCommand(paused=True),
    "rate": PlanCommand(rate_bytes_per_s=9_000),
}

STOP: Final = msgspec.json.encode(COMMANDS["stop"])

Request = Callable[["Engine[KafkaEnv]", int], Awaitable[object]]


def caller(nonce: str) -> Caller:
    """Returns the operator of the plan with a nonce."""
    return Caller(principal="User:operator", client="sim", nonce=nonce)


class PlanActions(Acting):
    """Acts as operators with plans. A request is repeated with its nonce until a daemon has carried it out."""

    def do_plan(self, nonce: str, moves_max: int, rate_bytes_per_s: int, *words: object) -> None:
        """Applies a plan; each word is ``topic/partition/replicas``, of a partition that exists."""
        moves: list[PlannedMove] = []
        for word in words:
            topic, partition, replicas = str(word).split("/")
            origin = self.w.invariants.history.assignment((topic, int(partition)))
            if origin and origin != ids(replicas):
                moves.append(PlannedMove(topic, int(partition), origin, ids(replicas)))
        if moves:
            plan = ReassignPlan(tuple(moves), moves_max, rate_bytes_per_s=rate_bytes_per_s)
            self.w.operate(self._apply(nonce, encode_plan(plan)))

    async def _apply(self, nonce: str, data: bytes) -> None:
        async def submit(engine: Engine[KafkaEnv], _: int) -> int:
            return await engine.submit(NAME, data, caller(nonce))

        pid = await self._requested(nonce, submit, new=True)
        if isinstance(pid, int):
            self.w.happened(faults.PLAN_APPLIED)
            self.w.invariants.plans.answered(nonce, pid)

    def do_plan_abort(self, nonce: str) -> None:
        """Takes a plan back."""
        self.w.operate(self._abort(nonce))

    async def _abort(self, nonce: str) -> None:
        if await self._requested(nonce, lambda engine, pid: engine.abort(pid)):
            self.w.happened(faults.PLAN_ABORTED)

    def do_plan_command(self, nonce: str, command: str) -> None:
        """Changes a plan that runs."""
        data = msgspec.json.encode(COMMANDS[command])
        self.w.operate(self._requested(nonce, lambda engine, pid: engine.command(pid, data)))

    def do_throttle(self, broker: int, rate_bytes_per_s: int) -> None:
        """Sets a rate of a broker as kafka-configs does: what it read, with the one setting changed."""
        self.w.operate(self._throttle(paths.config(BROKERS, str(broker)), str(rate_bytes_per_s)))

    async def _throttle(self, path: str, value: str) -> None:
        zk = self.w.operator
        for _ in range(THROTTLE_ROUNDS_MAX):
            with suppress(ZkError, NotConnected, OutcomeUnknown):
                node = await zk.get(path)
                config = decode_config(path, node.data) if node is not None else Config({})
                assert isinstance(config, Config), config
                data = encode_config({**config.entries, LEADER_RATE: value}, config.unknown)
                await (zk.create(path, data) if node is None else zk.set(path, data, node.stat.version))
                self.w.happened(faults.PLAN_THROTTLE_FOREIGN)
                return
            with suppress(ZkError, NotConnected, OutcomeUnknown):
                await zk.create(path.rpartition("/")[0], b"")
            await asyncio.sleep(PAUSE_S)

    def stop_plans(self) -> None:
        """Stops all plans of the serving daemon, so that nothing waits for brokers that stay down."""
        term = self.w.serving_term()
        engine = term.procedures.engine_or_none if term is not None else None
        for record in list(engine.records.values()) if engine is not None else ():
            live = record.kind == NAME and not record.state.is_final and record.state is not State.FAILED
            if live and any(move.status is Status.QUEUED for move in plan_of(record).moves):
                if record.parent:
                    self.w.operate(self._stop_child(engine, record.pid))
                else:
                    self.w.operate(self._requested(record.caller.nonce, lambda found, one: found.command(one, STOP)))

    async def _stop_child(self, engine: Engine[KafkaEnv] | None, pid: int) -> None:
        with suppress(ProcedureRefused, KeyError):
            if engine is not None:
                await asyncio.wait_for(engine.command(pid, STOP), AGAIN_S_MAX)

    async def _requested(self, nonce: str, request: Request, *, new: bool = False) -> object:
        """Returns the response of a daemon; None where no daemon carries the request out in time."""
        until_s = self.w.loop.now_s + AGAIN_S_MAX
        while self.w.loop.now_s < until_s:
            term = self.w.serving_term()
            engine = term.procedures.engine_or_none if term is not None else None
            pid = engine.pid_of(caller(nonce)) if engine is not None else None
            if engine is not None and (new or pid is not None):
                work = asyncio.ensure_future(request(engine, pid or 0))
                while not work.done() and self.w.serving_term() is term:
                    await asyncio.wait({work}, timeout=PAUSE_S)
                work.cancel()
                if work.done() and not work.cancelled() and not isinstance(work.exception(), ProcedureRefused):
                    return work.result()
            await asyncio.sleep(PAUSE_S)
        return None
