"""Judges the invariants of journal rows that one row shows by itself: A1, A3 to A6, A8 to A12, parts of A14 and A15.

They are judged against Kafka 3.9's behaviour, not against the rules that made the decision. A row has all that is
needed: the tables of both machines give the states, the replica list the order, and the decision counted its steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import IntEnum
from itertools import pairwise
from typing import Final

from msgspec import Struct

from state_machines.journal.checks import (
    NOBODY,
    elected_while_absent,
    ids,
    next_version,
    reassignment_adds_up,
    region_states,
)
from state_machines.journal.events import OBSERVED, PARTITION_KINDS, Kind, Row
from state_machines.machines import selectors
from state_machines.machines.partition import PartitionStateMachine
from state_machines.machines.replica import ReplicaStateMachine
from state_machines.model.types import (
    INITIAL_LEADER_EPOCH,
    PartitionState,
    ReplicaState,
)
from state_machines.procedures.states import VALID_PREVIOUS, State

INVARIANTS: Final[Mapping[str, str]] = {
    "A1": "the leader epoch never decreases, and counts the steps of the controller",
    "A2": "a leader epoch has at most one leader",
    "A3": "the leader is in the ISR",
    "A4": "the ISR is within the replicas",
    "A5": "the ISR is never empty",
    "A6": "only legal transitions",
    "A7": "writes carry the current controller epoch, and none of an earlier one follows",
    "A8": "each write increments the partition epoch",
    "A9": "the elected leader is live and not shutting down",
    "A10": "the elected leader was in the ISR, or the election is marked as unclean",
    "A11": "the elected leader is the first of the replicas, by the rule of the strategy",
    "A12": "a reassignment adds up, and removes only once those that stay are in sync",
    "A13": "replicas are spread over racks",
    "A14": "procedures change states by their table, end after their children and share no exclusive lock",
    "A15": "requests carry the current broker epoch and a controller epoch that never falls",
    "A16": "a region is open at one process alone, until that closed it or is fenced",
    "A17": "the regions of a table cover its keys, each once",
    "A18": "a crash goes from freeze to fence to release, and only then do its regions go elsewhere",
    "A19": "the tokens of a region grow with each open",
    "A20": "a region is open where the process that it was sent to reported it",
    "A21": "an open is sent to a process after OPENING there is stored",
    "A22": "a split or a merge gives the keys of neighbours to new regions, each key once",
    "A23": "a region is opened no more once others have its keys",
    "A24": "the data of a region is discarded once those that have its keys have their own",
}
"""All invariants of the journal. Those of :data:`CHECKS` are judged here, the others by more than one row."""

_STRATEGIES: Final = {
    selectors.NEW_PARTITION: "initial",
    selectors.OFFLINE_IN_ISR: "offline",
    selectors.OFFLINE_UNCLEAN: "unclean",
    selectors.PREFERRED: "preferred",
    selectors.REASSIGNED: "reassign",
    selectors.SHUTDOWN: "controlled_shutdown",
    selectors.DRAINED: "drain",
    selectors.DRAINED_EVENLY: "drain_passing",
}
_PASSING: Final = {
    **_STRATEGIES,
    **{passed: f"{_STRATEGIES[why]}_passing" for why, passed in selectors.PASSED_OVER.items()},
}
STRATEGIES: Final = {
    **_PASSING,
    **{spared: f"{_PASSING[why].removesuffix('_passing')}_passing" for why, spared in selectors.SPARED.items()},
}
"""Strategy of an election by the reason that its selector gives. ``_passing``: a row does not name the brokers,
so the order of the replicas is not judged.
"""

BY_LEADER: Final = "isr_by_leader"
"""``reason`` of an ISR that the partition's leader requested."""

PROCEDURE_BEGINS: Final = (State.RUNNABLE.name, State.SUCCESS.name)
"""States in which a procedure begins; a recorded call has ended when it begins."""


class Violation(Struct, frozen=True):
    """A violation of an invariant. ``invariant`` is its number, ``what`` one sentence with the values."""

    invariant: str
    what: str
    row: Row

    def __str__(self) -> str:
        row = self.row
        if row.procedure is not None:
            return f"{self.invariant}: pid {row.pid} at epoch {row.ctl_epoch}, row {row.seq}: {self.what}"
        if row.region is not None:
            return f"{self.invariant}: {row.table}#{row.region} at epoch {row.ctl_epoch}, row {row.seq}: {self.what}"
        if row.api is not None:
            request = f"{row.api} to broker {row.broker}"
            return f"{self.invariant}: {request} at epoch {row.ctl_epoch}, row {row.seq}: {self.what}"
        entity = f"{row.topic}-{row.partition}" + (f" on broker {row.broker}" if row.broker is not None else "")
        return f"{self.invariant}: {entity} at epoch {row.ctl_epoch}, row {row.seq}: {self.what}"


Check = Callable[[Row], str | None]


def judge(rows: Iterable[Row]) -> Iterator[Violation]:
    """Yields every violation of every row."""
    for row in rows:
        for invariant, check in CHECKS.get(row.kind, {}).items():
            what = check(row)
            if what is not None:
                yield Violation(invariant, what, row)


def leader_epochs(row: Row) -> str | None:
    """Checks A1: one leader epoch for each step of the controller, none for the leader's own ISR change, never less."""
    before, after = row.leader_epoch0, row.leader_epoch1
    if after is None:
        return None
    if before is not None and after < before:
        return f"the leader epoch went from {before} down to {after}"
    if row.reason == OBSERVED:
        return None
    steps = len(row.steps or ())
    if row.reason == BY_LEADER and steps:
        return f"the leader's own change of the ISR counts {steps} steps of the controller"
    expected = before + steps if before is not None else INITIAL_LEADER_EPOCH + steps - 1
    if after != expected:
        return f"the leader epoch is {after} and not {expected} after {before} and {steps} steps"
    return None


def leader_in_isr(row: Row) -> str | None:
    """Checks A3: the leader is in the ISR, or there is none."""
    if row.leader1 is None or row.leader1 in NOBODY or row.leader1 in (row.isr1 or ()):
        return None
    return f"leader {row.leader1} is not in the ISR {ids(row.isr1)}"


def isr_assigned(row: Row) -> str | None:
    """Checks A4: members of the ISR are assigned replicas, each once.

    An observed ISR may be newer than the replicas that the model had: the next controller writes both.
    """
    isr, replicas = row.isr1 or (), row.replicas or ()
    if row.reason != OBSERVED and not set(isr) <= set(replicas):
        return f"the ISR {ids(isr)} is not within the replicas {ids(replicas)}"
    if len(set(isr)) != len(isr):
        return f"the ISR {ids(isr)} names a replica twice"
    return None


def isr_not_empty(row: Row) -> str | None:
    """Checks A5: the last member of the ISR stays, dead or alive."""
    return "the ISR is empty" if row.leader_epoch1 is not None and not row.isr1 else None


PARTITION_STEPS: Final[Mapping[IntEnum, frozenset[IntEnum]]] = {
    **PartitionStateMachine.VALID_PREVIOUS,
    PartitionState.NEW: PartitionStateMachine.VALID_PREVIOUS[PartitionState.NEW] | {PartitionState.NEW},
}
"""States of a partition in a row: one without a first leader is reassigned and stays new."""

REPLICA_STEPS: Final[Mapping[IntEnum, frozenset[IntEnum]]] = {
    **ReplicaStateMachine.VALID_PREVIOUS,
    **{
        state: ReplicaStateMachine.VALID_PREVIOUS[state] | {state}
        for state in (ReplicaState.NEW, ReplicaState.NON_EXISTENT)
    },
}
"""States of a replica in a row: a new one, or one that is to go, is sent once more and keeps its state."""


def partition_states(row: Row) -> str | None:
    """Checks A6 of partitions."""
    return _transitions(row, PartitionState, PARTITION_STEPS)


def replica_states(row: Row) -> str | None:
    """Checks A6 of replicas."""
    return _transitions(row, ReplicaState, REPLICA_STEPS)


def _transitions(row: Row, states: type[IntEnum], table: Mapping[IntEnum, frozenset[IntEnum]]) -> str | None:
    """Checks that each step from state to state is in the table. Facts are no transitions."""
    if row.reason == OBSERVED or row.to_state is None:
        return None
    path = [row.from_state or "NON_EXISTENT", *(row.states or (row.to_state,))]
    if path[-1] != row.to_state:
        return f"the states {' -> '.join(path)} do not end in {row.to_state}"
    for previous, target in pairwise(path):
        if previous not in states.__members__ or target not in states.__members__:
            return f"{previous} -> {target} has a state that does not exist"
        if states[previous] not in table[states[target]]:
            return f"illegal transition {previous} -> {target}"
    return None


def clean_election(row: Row) -> str | None:
    """Checks A10: a new leader was in the ISR before, unless an unclean election was allowed and is marked."""
    if row.leader1 in (None, *NOBODY) or row.leader1 == row.leader0 or row.isr0 is None or row.reason == OBSERVED:
        return None
    if row.leader1 in row.isr0 or row.unclean:
        return None
    return f"leader {row.leader1} was not in the ISR {ids(row.isr0)}, and the election is not marked as unclean"


def elected_in_order(row: Row) -> str | None:
    """Checks A11: the elected leader is the first of the replicas, by the rule of the strategy.

    The offline and the controlled-shutdown rule leave those in the ISR that may lead: the first of them in the order of
    the replicas leads. Only one that is gone may stay in it, where an earlier write was refused.
    """
    replicas = row.replicas or ()
    if row.leader1 in (None, *NOBODY):
        return None
    if row.strategy == "preferred" and row.leader1 not in replicas[:1]:
        return f"the preferred election made {row.leader1} the leader, the replicas are {ids(replicas)}"
    if row.strategy in ("initial", "offline", "controlled_shutdown"):
        able = set(row.isr1 or ()).difference(row.absent or ())
        if row.leader1 != next((replica for replica in replicas if replica in able), None):
            return f"leader {row.leader1} is not the first of the replicas {ids(replicas)} in {ids(row.isr1)}"
    return None


def procedure_states(row: Row) -> str | None:
    """Checks A14 of one row: the transition is in the table, and only what has steps is rolled back."""
    before, after = row.from_state, row.to_state
    if after is None or after not in State.__members__ or (before is not None and before not in State.__members__):
        return f"{before} -> {after} has a state that does not exist"
    if before is None and after not in PROCEDURE_BEGINS:
        return f"a procedure began in {after}"
    if before is not None and State[before] not in VALID_PREVIOUS[State[after]]:
        return f"illegal transition {before} -> {after}"
    if after == State.ROLLEDBACK.name and row.step is None:
        return f"{row.procedure} has no steps that could be undone, and is rolled back"
    return None


def request_fields(row: Row) -> str | None:
    """Checks A15 of one row: the request names a registration, and its response follows it."""
    if row.broker_epoch is None or row.broker_epoch < 0:
        return f"the request names broker epoch {row.broker_epoch}"
    if row.t_acknowledged is not None and row.t_acknowledged < (row.t_sent or 0):
        return f"the response at {row.t_acknowledged} precedes the request at {row.t_sent}"
    return None


OF_PARTITIONS: Final[dict[str, Check]] = {
    "A1": leader_epochs,
    "A3": leader_in_isr,
    "A4": isr_assigned,
    "A5": isr_not_empty,
    "A6": partition_states,
    "A8": next_version,
    "A9": elected_while_absent,
    "A10": clean_election,
    "A11": elected_in_order,
    "A12": reassignment_adds_up,
}

CHECKS: Final[Mapping[str, Mapping[str, Check]]] = {
    **dict.fromkeys(PARTITION_KINDS, OF_PARTITIONS),
    Kind.REPLICA_STATE: {"A6": replica_states},
    Kind.PROC_STATE: {"A14": procedure_states},
    Kind.RPC_BATCH: {"A15": request_fields},
    Kind.REGION_STATE: {"A6": region_states},
}
"""Checks by the kind of row that they are for."""
