"""Decides how a reassign plan goes on: which moves have ended, which begin now, and which are taken back.

A move is written with its plan in one transaction, so a partition that was begun and has neither the plan's target nor
its replicas was changed by another client: that client wins, and the plan never touches the partition again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from state_machines.admin_rules.throttles import Throttle
from state_machines.decisions.plan_caps import Caps, Sizes, sizes_of
from state_machines.decisions.reassignment import (
    LAST_IN_SYNC,
    NOT_LIVE,
    NotReassigned,
    ReassignmentRequest,
    is_complete,
    judge,
)
from state_machines.decisions.throttling import RateBounds
from state_machines.model.cluster import Cluster
from state_machines.model.min_isr import UNKNOWN, MinIsr
from state_machines.model.types import Assignment

TOPICS_MAX: Final = 450
"""Topic znodes that are written together: one multi, with the plan's record."""

BYTES_MAX: Final = 400_000
"""Bytes of the writes of topic znodes that go together, unless it is one: the plan's record has as much beside them."""
OP_BYTES: Final = 100
"""Bytes of such a write besides the name of the topic and the data."""
EMPTY: Final[Mapping[str, str]] = {}
NO_SIZES: Final[Sizes] = {}

GONE: Final = "the partition was deleted"
REPLICAS_SHOWN_MAX: Final = 10
"""Replicas that a move names to which another client reassigned its partition."""
ELSEWHERE: Final = "another client reassigned the partition"
CANCELLED_BY: Final = "another client cancelled the reassignment"
STOPPED: Final = "the plan was cancelled before the move began"


class Status(IntEnum):
    """States of a move; the values are stored."""

    QUEUED = 0
    BEGUN = 1
    DONE = 2
    SUPERSEDED = 3
    REFUSED = 4
    STOPPED = 5


PASSING: Final = frozenset({NOT_LIVE, LAST_IN_SYNC})
"""Refusals for which a move waits: they pass by themselves."""
PASSING_NOTED_MAX: Final = 500
"""Waiting moves whose passing reason is in the plan, which must fit into its record when all of them wait."""
ENDED: Final = frozenset({Status.DONE, Status.SUPERSEDED, Status.REFUSED, Status.STOPPED})


class PlannedMove(Struct, frozen=True, array_like=True, gc=False):
    """A move of a plan. ``bytes``: what its added replicas copy together, 0 where unknown.

    ``why``: of a move that was superseded or refused.
    """

    topic: str
    partition: int
    origin: tuple[int, ...]
    target: tuple[int, ...]
    bytes: int = 0
    status: Status = Status.QUEUED
    why: str = ""

    @property
    def added(self) -> tuple[int, ...]:
        """Returns the brokers that get a replica."""
        return tuple(broker for broker in self.target if broker not in self.origin)

    @property
    def replica_bytes(self) -> int:
        """Returns the bytes of one replica, 0 where unknown."""
        return self.bytes and self.bytes // max(1, len(self.added))


class Superseded(Struct, frozen=True, array_like=True):
    """A finding that another client changed a partition. ``move``: place of its move in the plan.

    ``found_ms``: of the wall clock; ``by``: principal, client and pid of the recorded call, empty where none is known.
    """

    move: int
    found_ms: int
    by: str = ""


class ReassignPlan(Struct, frozen=True, omit_defaults=True):
    """The stored message of a plan. ``reverting``: begun and finished moves are taken back.

    ``moves_max``: moves under way in the cluster; ``broker_moves_max``: replicas that one broker receives at a time;
    ``bytes_max`` and ``broker_bytes_max``: the same in bytes, 0 without. Reassignments of other clients count.
    ``rate_bytes_per_s``: the throttle of each broker and direction, 0 without; ``rate_in_force``: the one that was
    written; ``throttles``: what stood there before. ``held``: paused and without a throttle, because the role was given
    back. ``adopts``: moves that another client has begun are the plan's own from now on. ``bounds``: those
    between which the rate changes by itself; None: it stays. ``kept``: of a plan that is taken back, the places of
    moves that were refused or superseded by then: nothing of them is taken back.
    """

    moves: tuple[PlannedMove, ...]
    moves_max: int = 100
    broker_moves_max: int = 10
    paused: bool = False
    reverting: bool = False
    rate_bytes_per_s: int = 0
    rate_in_force: int = 0
    throttles: tuple[Throttle, ...] = ()
    held: bool = False
    bytes_max: int = 0
    broker_bytes_max: int = 0
    adopts: bool = False
    superseded: tuple[Superseded, ...] = ()
    bounds: RateBounds | None = None
    kept: tuple[int, ...] = ()

    @property
    def rate_max_bytes_per_s(self) -> int:
        """Returns the highest rate that the plan may have; 0 without a throttle."""
        return self.rate_bytes_per_s if self.bounds is None else self.bounds.high_bytes_per_s


class Progress(NamedTuple):
    """The plan after a look at the model, and the rows whose topic znodes are written with it."""

    plan: ReassignPlan
    begins: Mapping[int, Assignment]

    @property
    def is_over(self) -> bool:
        """Checks whether every move has ended."""
        return all(move.status in ENDED for move in self.plan.moves)


def advance(
    plan: ReassignPlan,
    cluster: Cluster,
    daemons: Collection[int],
    unwritable: Mapping[str, str] = EMPTY,
    *,
    sizes: Sizes = NO_SIZES,
    min_isr: MinIsr = UNKNOWN,
    may_begin: bool = True,
) -> Progress:
    """Compares every move that has not ended with the model, and begins as many as the caps allow.

    ``sizes``: of partitions that other clients reassign. ``unwritable``: topics whose znodes ZooKeeper refuses to
    write, and why; their moves are refused. ``may_begin`` False: automatic moves are paused, so none begins.
    """
    window = _Window(plan, cluster, daemons, unwritable, sizes, min_isr, may_begin=may_begin)
    moves = tuple(move if move.status in ENDED else window.looked_at(move) for move in plan.moves)
    return Progress(replace(plan, moves=moves), window.begins)


def reverted(plan: ReassignPlan) -> ReassignPlan:
    """Returns the plan that takes back what was begun or finished; other clients' partitions stay as they are."""
    if plan.reverting:
        return plan
    moves = tuple(map(_taken_back, plan.moves))
    kept = tuple(at for at, move in enumerate(plan.moves) if move.status in (Status.REFUSED, Status.SUPERSEDED))
    return replace(plan, moves=moves, kept=kept, reverting=True, paused=False, held=False, rate_in_force=0)


def as_planned(plan: ReassignPlan) -> tuple[PlannedMove, ...]:
    """Returns the moves with the plan's own origin and target, also while it is taken back, where these are swapped."""
    if not plan.reverting:
        return plan.moves
    kept = frozenset(plan.kept)
    return tuple(
        move if at in kept or move.status is Status.STOPPED else replace(move, origin=move.target, target=move.origin)
        for at, move in enumerate(plan.moves)
    )


def stopped(plan: ReassignPlan) -> ReassignPlan:
    """Returns the plan without the moves that have not begun."""
    moves = [
        replace(move, status=Status.STOPPED, why="") if move.status is Status.QUEUED else move for move in plan.moves
    ]
    return replace(plan, moves=tuple(moves), paused=False)


def _taken_back(move: PlannedMove) -> PlannedMove:
    if move.status is Status.QUEUED:
        return replace(move, status=Status.STOPPED, why="")
    if move.status in (Status.BEGUN, Status.DONE):
        back = replace(move, origin=move.target, target=move.origin, status=Status.QUEUED)
        return replace(back, bytes=move.replica_bytes * len(back.added))
    return move


class _Window:
    """Looks at moves, and begins others below the caps and the bounds of one transaction."""

    def __init__(
        self,
        plan: ReassignPlan,
        cluster: Cluster,
        daemons: Collection[int],
        unwritable: Mapping[str, str] = EMPTY,
        sizes: Sizes = NO_SIZES,
        min_isr: MinIsr = UNKNOWN,
        *,
        may_begin: bool = True,
    ) -> None:
        self._may_begin = may_begin and not plan.paused and not plan.held
        self.begins: dict[int, Assignment] = {}
        self._unwritable = unwritable
        self._min_isr = min_isr
        self._bytes = self._noted = 0
        self._plan = plan
        self._cluster = cluster
        self._daemons = daemons
        self._caps = Caps(plan, cluster, sizes_of(plan.moves, sizes))
        self._topics: set[str] = set()
        self._highest = max((*cluster.brokers, *(broker for move in plan.moves for broker in move.target)))
        self._sizes: dict[int, int] = {}

    def looked_at(self, move: PlannedMove) -> PlannedMove:
        """Returns the move as the model shows it; it begins where the caps have room."""
        row = self._cluster.find(move.topic, move.partition)
        if row is None:
            return replace(move, status=Status.SUPERSEDED, why=GONE)
        written = self._cluster.reassigning.get(row)
        replicas = self._cluster.rows[row].assignment.replicas
        if written is None and replicas == move.target:
            return replace(move, status=Status.DONE, why="")
        if move.status is Status.BEGUN:
            return self._begun(move, written, replicas)
        if written is not None and self._plan.adopts and not self._plan.reverting and written.target == move.target:
            return replace(move, status=Status.BEGUN, why="")
        if written is not None and not self._is_taken_back(written, move):
            return _elsewhere(move, written.target)
        if written is None and replicas != move.origin:
            return _elsewhere(move, replicas)
        return self._begin(move, row, cancels=written is not None) if self._may_begin else move

    def _begun(self, move: PlannedMove, written: Assignment | None, replicas: tuple[int, ...]) -> PlannedMove:
        """Judges a move under way. Kafka keeps the replicas of a cancelled one, but not their former order."""
        if written is None and set(replicas) == set(move.origin):
            return replace(move, status=Status.SUPERSEDED, why=CANCELLED_BY)
        target = replicas if written is None else written.target
        return move if target == move.target else _elsewhere(move, target)

    def _is_taken_back(self, written: Assignment, move: PlannedMove) -> bool:
        """Checks whether the plan itself began what is under way: a plan that is taken back cancels that."""
        return self._plan.reverting and written.target == move.origin

    def _begin(self, move: PlannedMove, row: int, *, cancels: bool) -> PlannedMove:
        if (why := self._unwritable.get(move.topic)) is not None:
            return replace(move, status=Status.REFUSED, why=why)
        if not self._plan.reverting and (why := below_min_isr(move, self._min_isr)) is not None:
            return replace(move, status=Status.REFUSED, why=why)
        back = cancels and not is_complete(self._cluster, row) and self._origin(row) == move.target
        target = None if back else move.target
        if not self._fits(move.topic, row):
            return move
        found = judge(self._cluster, ReassignmentRequest(row, target), self._daemons)
        if isinstance(found, NotReassigned):
            if found.why in PASSING and not self._plan.reverting:
                self._noted += 1
                return replace(move, why=found.why if self._noted <= PASSING_NOTED_MAX else "")
            return replace(move, status=Status.REFUSED, why=found.why)
        adding = found.kept.adding
        if not cancels and self._caps.why_full(adding, move.replica_bytes) is not None:
            return move
        self._bytes += 0 if move.topic in self._topics else self._size(row)
        self._topics.add(move.topic)
        self._caps.begin(adding, move.replica_bytes, further=not cancels)
        self.begins[row] = found
        return replace(move, status=Status.BEGUN, why="")

    def _origin(self, row: int) -> tuple[int, ...]:
        return self._cluster.reassigning[row].origin

    def _size(self, row: int) -> int:
        """Returns the bytes of the write of a topic's znode, at most: ids have as many digits as the highest one."""
        rows, topic = self._cluster.rows, self._cluster.rows[row].topic
        if (found := self._sizes.get(topic)) is None:
            placed = [rows[one].assignment.replicas for one in self._cluster.topics[topic].rows]
            digits = len(str(max(self._highest, *map(max, placed))))
            data = sum(16 + (1 + digits) * (len(replicas) + 2) for replicas in placed)
            found = self._sizes[topic] = data + len(self._cluster.topics[topic].name) + OP_BYTES
        return found

    def _fits(self, topic: str, row: int) -> bool:
        """Checks whether a partition's topic is in the transaction, or fits into it as one more."""
        if topic in self._topics or not self._topics:
            return True
        return len(self._topics) < TOPICS_MAX and self._bytes + self._size(row) <= BYTES_MAX


def _elsewhere(move: PlannedMove, replicas: tuple[int, ...]) -> PlannedMove:
    shown = (*map(str, replicas[:REPLICAS_SHOWN_MAX]), *("..." for _ in replicas[REPLICAS_SHOWN_MAX:][:1]))
    return replace(move, status=Status.SUPERSEDED, why=f"{ELSEWHERE} to [{', '.join(shown)}]")


def counts(plan: ReassignPlan) -> Counter[Status]:
    """Counts the moves by status."""
    return Counter(move.status for move in plan.moves)


def below_min_isr(move: PlannedMove, min_isr: MinIsr) -> str | None:
    """Returns why a move leaves too few replicas for acks=all; None where it does not, or keeps their number.

    Kafka adds replicas before it removes others, so only the target counts.
    """
    least, count = min_isr.of(move.topic), len(set(move.target))
    if least is None or count >= least or count >= len(move.origin):
        return None
    return f"{count} replicas are below min.insync.replicas = {least}: give {least} or more, or lower the setting"
