"""Judges reassign plans by the records in ZooKeeper.

| I8 | one nonce has one procedure, whatever happens to daemons |
| I9 | a move that has ended begins no more, unless the plan is taken back; a plan ends with all its moves |
| I12 | one plan has the lock of reassignments, and moves partitions |
| I13 | where no plan has throttles, none of their settings is left, and each rate that another client set last stands |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from controller.kafka.procedures import drain
from controller.kafka.procedures.reassign import NAME, plan_of
from controller.role import own_znodes as own
from metadata_store import paths
from metadata_store.records import codec
from state_machines.admin_rules.throttles import BROKERS, FOLLOWER_RATE, FOLLOWER_REPLICAS, LEADER_RATE, LEADER_REPLICAS
from state_machines.decisions.plan_progress import ENDED, ReassignPlan, Status
from state_machines.procedures.record import Record
from state_machines.procedures.states import State
from tests.simulation.kafka.invariants_calls import KINDS, CallInvariants
from tests.simulation.kafka.invariants_drains import DrainInvariants
from tests.simulation.kafka.unfinished import can_end

if TYPE_CHECKING:
    from tests.simulation.kafka.world import SimulatedKafka

PREFIX: Final = own.PROCEDURES + "/"
RATES: Final = f"{paths.CONFIG}/{BROKERS}/"
THROTTLED: Final = (f"{paths.CONFIG}/brokers/", f"{paths.CONFIG}/topics/")
SETTINGS: Final = frozenset({LEADER_RATE, FOLLOWER_RATE, LEADER_REPLICAS, FOLLOWER_REPLICAS})


class PlanInvariants:
    """Follows every record of a plan."""

    def __init__(self, world: SimulatedKafka, fail: Callable[[str, str], None]) -> None:
        self.w = world
        self.records: dict[int, Record] = {}
        self.drains = DrainInvariants(world, fail)
        self.calls = CallInvariants(world, fail)
        self._fail = fail
        self._nonces: dict[str, int] = {}
        self._foreign: dict[str, str] = {}
        """The rate that another client set last, by path of a broker's configuration."""

    def answered(self, nonce: str, pid: int) -> None:
        """Checks I8: the response names the one procedure of the nonce."""
        if self._nonces.setdefault(nonce, pid) != pid:
            self._fail("I8", f"nonce {nonce} is pid {self._nonces[nonce]} and pid {pid}")

    def rate_set(self, path: str, data: bytes | None) -> None:
        """Notes the rate that another client sets on a broker."""
        self._foreign[path] = _entries(data)[LEADER_RATE]

    def written(self, path: str, data: bytes | None) -> None:
        """Checks a record that was written, against the one before."""
        record = codec.unsealed(int(path.removeprefix(PREFIX)), data or b"")
        if not record.parent:
            self.answered(record.caller.nonce, record.pid)
        if record.kind in KINDS:
            self.calls.written(record)
            return
        before, self.records[record.pid] = self.records.get(record.pid), record
        if record.kind == drain.NAME:
            if record.state.is_final and not record.bypassed:
                self.drains.ended(record)
            return
        plan = plan_of(record)
        if before is not None:
            self._compare(record.pid, plan_of(before), plan)
        if record.state.is_final and not record.bypassed:
            self._ended(record, plan)
        live = self._live_plans()
        holding = [pid for pid, one in live.items() if one.locked or _is_moving(plan_of(one))]
        if len(holding) > 1:
            self._fail("I12", f"plans {holding} have the lock of reassignments at the same time")

    def deleted(self, path: str) -> None:
        """Forgets a record; only one that has ended may go, and a child by its end."""
        record = self.records.pop(int(path.removeprefix(PREFIX)), None)
        if record is not None and not record.state.is_final and not record.parent:
            self._fail("I9", f"the record of plan {record.pid}, which has not ended, is deleted")

    def _compare(self, pid: int, before: ReassignPlan, after: ReassignPlan) -> None:
        turned = after.reverting and not before.reverting
        moving = self.w.invariants.history.moving()
        for old, new in zip(before.moves, after.moves, strict=True):
            under_way = moving.get((new.topic, new.partition))
            done = new.status is Status.DONE and old.status is Status.BEGUN
            if done and under_way is not None and under_way.target == tuple(new.target):
                self._fail("I9", f"plan {pid} counts {new.topic}-{new.partition} as done, which is under way")
            again = new.status not in ENDED and old.status in ENDED
            if again and not (turned and old.status is Status.DONE):
                self._fail("I9", f"plan {pid} begins {new.topic}-{new.partition} again after {old.status.name}")

    def _ended(self, record: Record, plan: ReassignPlan) -> None:
        left = [move for move in plan.moves if move.status not in ENDED]
        begun = any(move.status is Status.DONE for move in plan.moves) and not plan.reverting
        if left or (record.state is State.ROLLEDBACK and begun):
            self._fail("I9", f"plan {record.pid} ends {record.state.name} with {left or 'finished moves'}")
        if plan.throttles:
            self._fail("I13", f"plan {record.pid} ends with throttles {plan.throttles}")
        if not any(plan_of(one).throttles for one in self._live_plans().values()):
            for standing in self._throttles():
                self._fail("I13", f"plan {record.pid} ends: {standing}")

    # -- at the end

    def unfinished(self) -> Iterator[str]:
        """Yields plans that have not ended although nothing holds up a move, and throttles of none.

        One plan runs at a time: those behind a plan that is held up wait with it.
        """
        live = [record for record in self.records.values() if not record.state.is_final]
        if not self._is_held_up() and not self._is_foreign():
            for record in live:
                yield f"{record.kind} {record.pid} has not ended: {record.state.name} {record.error}"
        if not live:
            yield from self._throttles()
        yield from self.drains.unfinished()

    def _live_plans(self) -> dict[int, Record]:
        return {pid: one for pid, one in self.records.items() if one.kind == NAME and not one.state.is_final}

    def _is_held_up(self) -> bool:
        """Checks whether a reassignment cannot end: those of other clients count against the caps of plans, too."""
        return any(not can_end(self.w, name, moved) for name, moved in self.w.invariants.history.moving().items())

    def _is_foreign(self) -> bool:
        """Checks whether the active daemon has other credentials than the others: it may not write their records."""
        active = [node for node in self.w.daemons if node.daemon is not None and node.daemon.term is not None]
        return bool(self.w.plan.odd) and any(self.w.plan.odd[node.number] != "-" for node in active)

    def _throttles(self) -> Iterator[str]:
        """Yields settings of throttles that nobody but a plan has set, and rates of other clients that are gone."""
        found: dict[str, str | None] = dict.fromkeys(self._foreign)
        for path, node in self.w.ensemble.leader.tree.every().items():
            if not path.startswith(THROTTLED):
                continue
            entries = _entries(node.data)
            found[path] = entries.get(LEADER_RATE)
            expected = {LEADER_RATE} if path in self._foreign else set()
            left = (SETTINGS & entries.keys()) - expected
            if left:
                yield f"{path} has {sorted(left)}, and no plan runs"
        for path, rate in self._foreign.items():
            if found[path] != rate:
                yield f"{path} has the rate {found[path]}, another client set {rate}, and no plan runs"


def _entries(data: bytes | None) -> dict[str, str]:
    return dict(msgspec.json.decode(data).get("config", {})) if data else {}


def _is_moving(plan: ReassignPlan) -> bool:
    return any(move.status is Status.BEGUN for move in plan.moves)
