"""Drains brokers and shuts them down by command, and undoes both, as operators do; each drain has a nonce."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from brokers.listener.controller_listener import NotController
from controller.http.documents import ViewError
from controller.kafka.procedures.drain import NAME, encode_drain
from controller.kafka.requests.calls import Calls
from controller.operator.cordons import CordonView
from controller.operator.drains import DrainView, ShutdownRequest, UndrainRequest
from state_machines.decisions.drain import Drain, why_not
from state_machines.decisions.plan_progress import PlannedMove, ReassignPlan
from state_machines.planning.cluster_view import view_of
from state_machines.planning.goals import Decommission
from state_machines.planning.planner import plan
from tests.simulation.kafka import faults
from tests.simulation.kafka.actions_plans import PlanActions, caller

if TYPE_CHECKING:
    from controller.kafka.procedures.environment import KafkaEnv
    from controller.kafka.term.term import Term
    from controller.procedures.engine import Engine

MOVES_MAX: Final = 40


class DrainActions(PlanActions):
    """Acts as operators with drains."""

    def do_drain(self, nonce: str, replicas: int, *brokers: int) -> None:
        """Drains brokers, with their replicas or without, unless the cluster does not allow it."""
        term = self.w.serving_term()
        if term is None or why_not(term.cluster, brokers) is not None:
            return
        moves = self._planned(term, brokers) if replicas else None
        if moves is not None:
            self.w.happened(faults.DRAIN_REPLICAS)
        self.w.operate(self._drain(nonce, encode_drain(Drain(tuple(sorted(brokers)), plan=moves))))

    def _planned(self, term: Term, brokers: tuple[int, ...]) -> ReassignPlan:
        view = view_of(term.cluster, "", cordoned=term.cluster.cordoned.union(brokers))
        found = plan(view, Decommission(brokers)).moves[:MOVES_MAX]
        return ReassignPlan(tuple(PlannedMove(one.topic, one.partition, one.origin, one.target) for one in found))

    async def _drain(self, nonce: str, data: bytes) -> None:
        async def submit(engine: Engine[KafkaEnv], _: int) -> int:
            return await engine.submit(NAME, data, caller(nonce))

        pid = await self._requested(nonce, submit, new=True)
        if isinstance(pid, int):
            self.w.happened(faults.DRAIN_BEGUN)
            self.w.invariants.plans.answered(nonce, pid)

    def do_drain_abort(self, nonce: str) -> None:
        """Takes a drain back."""
        self.w.operate(self._abort_drain(nonce))

    async def _abort_drain(self, nonce: str) -> None:
        if await self._requested(nonce, lambda engine, pid: engine.abort(pid)):
            self.w.happened(faults.DRAIN_ABORTED)

    def do_undrain(self, *brokers: int) -> None:
        """Removes the marks of brokers, unless a procedure drains them."""
        term = self.w.serving_term()
        if term is not None and term.cluster.drained.intersection(brokers):
            self.w.operate(self._undrain(term, brokers))

    async def _undrain(self, term: Term, brokers: tuple[int, ...]) -> None:
        try:
            await self._view(term).undrain(UndrainRequest(brokers=list(brokers)))
        except ViewError:
            return
        self.w.happened(faults.DRAIN_REMOVED)

    def do_shutdown_broker(self, broker: int, undo_s: float) -> None:
        """Shuts a broker down by command, and undoes that after a while."""
        self.w.operate(self._shutdown(broker))
        self._later(undo_s, self.undo_shutdowns)

    async def _shutdown(self, broker: int) -> None:
        term = self.w.serving_term()
        if term is not None and len(term.cluster.live) > 1:
            with suppress(ViewError):
                await self._view(term).shutdown(ShutdownRequest(broker=broker))
                self.w.happened(faults.SHUTDOWN_COMMANDED)

    def undo_shutdowns(self) -> None:
        """Undoes all shutdowns by command of the serving daemon."""
        term = self.w.serving_term()
        if term is not None and term.controller.shut_by_operator:
            self.w.operate(self._undo(term, list(term.controller.shut_by_operator)))

    async def _undo(self, term: Term, brokers: list[int]) -> None:
        for broker in brokers:
            with suppress(NotController):
                if await Calls(term.queue).undo_shutdown(broker):
                    self.w.happened(faults.SHUTDOWN_UNDONE)

    def _view(self, term: Term) -> DrainView:
        return DrainView(lambda: term, CordonView(lambda: term), None)  # type: ignore[arg-type]
