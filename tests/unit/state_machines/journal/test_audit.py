"""The audit of journal rows: each invariant that a mutation breaks is found by its number, sound rows pass."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.kafka.journal.report import Report
from controller.kafka.journal.term_journal import KafkaJournal
from state_machines.decisions.broker_change import broker_death
from state_machines.journal.audit import OF_PARTITIONS, judge
from state_machines.journal.events import OBSERVED, Kind, Row
from state_machines.machines.partition import PartitionStateMachine
from state_machines.machines.replica import ReplicaStateMachine
from state_machines.model.types import PartitionState, ReplicaState
from state_machines.procedures.states import VALID_PREVIOUS, State
from tests.kit.journals import Book
from tests.kit.kafka.model import P, decided, die, enter, make_cluster


def row(**changes: Any) -> Row:
    """Makes a row: broker 1 died, and broker 2 leads in one step."""
    fields: dict[str, Any] = {
        "v": 1, "cluster": "c", "ctl_id": 1, "ctl_epoch": 7, "seq": 3, "ts_us": 0, "mono_us": 0, "kind": Kind.LEADER,
        "topic": "orders", "partition": 0, "from_state": "ONLINE", "to_state": "ONLINE",
        "states": ["OFFLINE", "ONLINE"], "leader0": 1, "leader1": 2, "leader_epoch0": 4, "leader_epoch1": 5,
        "pepoch0": 8, "pepoch1": 9,
        "isr0": [1, 2, 3], "isr1": [2, 3], "replicas": [1, 2, 3], "reason": "broker_failure", "strategy": "offline",
        "steps": ["leader lost"],
    }  # fmt: skip
    return Row(**(fields | changes))


def by_leader(**changes: Any) -> Row:
    """Makes a row: the leader took broker 3 back."""
    fields: dict[str, Any] = {
        "kind": Kind.ISR, "leader0": 2, "isr0": [2], "isr1": [2, 3], "leader_epoch1": 4, "reason": "isr_by_leader",
        "strategy": None, "steps": None, "states": None,
    }  # fmt: skip
    return row(**(fields | changes))


def created(**changes: Any) -> Row:
    fields: dict[str, Any] = {
        "from_state": "NON_EXISTENT", "states": ["NEW", "ONLINE"], "leader0": None, "leader1": 1, "leader_epoch0": None,
        "leader_epoch1": 0, "isr0": None, "isr1": [1, 2, 3], "pepoch0": None, "pepoch1": 0, "strategy": "initial",
    }  # fmt: skip
    return row(**(fields | changes))


def replica(**changes: Any) -> Row:
    fields: dict[str, Any] = {"kind": Kind.REPLICA_STATE, "broker": 1, "from_state": "ONLINE", "to_state": "OFFLINE"}
    return Row(1, "c", 1, 7, 3, 0, 0, topic="orders", partition=0, **(fields | changes))


def procedure(before: str | None, after: str, **changes: Any) -> Row:
    """Makes a row of a procedure with steps."""
    fields: dict[str, Any] = {"pid": 12, "root": 12, "procedure": "reassign", "step": "move replicas"}
    return Row(1, "c", 1, 7, 3, 0, 0, Kind.PROC_STATE, from_state=before, to_state=after, **(fields | changes))


def request(**changes: Any) -> Row:
    """Makes a row of an acknowledged request."""
    fields: dict[str, Any] = {"broker_epoch": 9, "partitions": 4, "t_sent": 5, "t_acknowledged": 8}
    return Row(1, "c", 1, 7, 3, 0, 0, Kind.RPC_BATCH, broker=1, api="LEADER_AND_ISR", **(fields | changes))


def found(*rows: Row) -> set[str]:
    return {violation.invariant for violation in judge(rows)}


SOUND: dict[str, Row] = {
    "an election": row(),
    "an election and a shrink in one write": row(leader_epoch1=6, steps=["leader lost", "a replica's broker died"]),
    "no replica can lead": row(
        leader1=-1,
        to_state="OFFLINE",
        states=None,
        isr0=[1],
        isr1=[1],
        strategy=None,
        steps=["a replica's broker died"],
    ),
    "a replica that an override dropped is named until it has stopped": row(adding=[3], removing=[3]),
    "an unclean election": row(isr0=[1], isr1=[3], leader1=3, strategy="unclean", unclean=True),
    "a leader's own change": by_leader(),
    "a new partition": created(),
    "a new partition that lost a replica at once": created(leader_epoch1=1, steps=["new", "died"], isr1=[1, 2]),
    "a preferred election": row(
        leader0=2, leader1=1, isr1=[1, 2, 3], strategy="preferred", steps=["preferred"], states=None
    ),
    "one that is gone is passed over": row(
        leader0=2, leader1=3, isr0=[2, 1, 3], isr1=[1, 3], absent=[1], strategy="controlled_shutdown", states=None
    ),
    "another controller's write": row(reason=OBSERVED, leader_epoch1=9, from_state="NON_EXISTENT", states=None),
    "another controller's ISR, before its assignment was read": row(reason=OBSERVED, leader_epoch1=9, isr1=[2, 3, 9]),
    "a replica that stops": replica(),
    "a new replica": replica(from_state="NON_EXISTENT", to_state="ONLINE", states=["NEW", "ONLINE"]),
    "a procedure begins": procedure(None, "RUNNABLE"),
    "a recorded call": procedure(None, "SUCCESS", step=None),
    "a procedure is rolled back": procedure("FAILED", "ROLLEDBACK"),
    "a request": request(),
    "a request that was given up": request(t_acknowledged=None),
    "a broker": Row(1, "c", 1, 7, 1, 0, 0, Kind.BROKER_UP, broker=1),
}


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_row_has_no_violation(name: str) -> None:
    assert found(SOUND[name]) == set()


MUTATIONS: dict[str, tuple[str, Row]] = {
    "the leader epoch falls": ("A1", row(leader_epoch1=3)),
    "the leader epoch stays": ("A1", row(leader_epoch1=4)),
    "the leader epoch skips one": ("A1", row(leader_epoch1=6)),
    "two steps, one epoch": ("A1", row(steps=["leader lost", "a replica's broker died"])),
    "the leader's own change takes an epoch": ("A1", by_leader(leader_epoch1=5)),
    "the leader's own change counts a step": ("A1", by_leader(leader_epoch1=5, steps=["x"])),
    "a new partition begins at 1": ("A1", created(leader_epoch1=1)),
    "another's write takes the epoch down": ("A1", row(reason=OBSERVED, leader_epoch1=3)),
    "the leader is not in sync": ("A3", by_leader(isr1=[3])),
    "the ISR has a stranger": ("A4", row(isr1=[2, 3, 9])),
    "the ISR names one twice": ("A4", row(isr1=[2, 2])),
    "the ISR is empty": ("A5", row(leader1=-1, isr1=[], strategy=None)),
    "new again": ("A6", row(kind=Kind.PARTITION_STATE, from_state="OFFLINE", to_state="NEW", states=None)),
    "online out of nothing": ("A6", created(states=None)),
    "gone while online": ("A6", row(to_state="NON_EXISTENT", states=None)),
    "the states end elsewhere": ("A6", row(states=["OFFLINE"])),
    "an unknown state": ("A6", row(to_state="ASLEEP", states=None)),
    "a deleted replica is online": ("A6", replica(from_state="DELETION_SUCCESSFUL", to_state="ONLINE")),
    "a replica begins online": ("A6", replica(from_state="NON_EXISTENT", to_state="ONLINE")),
    "a version is skipped": ("A8", row(pepoch1=10, t_committed=1)),
    "a fact is older than what was known": ("A8", row(pepoch1=8)),
    "the leader is absent": ("A9", row(strategy="reassign", absent=[2])),
    "those that go come first": ("A12", row(removing=[1])),
    "a stranger is added": ("A12", row(adding=[9])),
    "the leader lagged": ("A10", row(isr0=[1, 3])),
    "the preferred one is another": ("A11", row(strategy="preferred")),
    "not the first in sync": ("A11", row(leader1=3)),
    "not the first to be started": ("A11", created(leader1=2)),
    "a procedure begins in the middle": ("A14", procedure(None, "WAITING")),
    "an ended procedure runs": ("A14", procedure("SUCCESS", "RUNNABLE")),
    "a state of no procedure": ("A14", procedure("RUNNABLE", "ONLINE")),
    "what has no steps is rolled back": ("A14", procedure("FAILED", "ROLLEDBACK", step=None)),
    "a request to no registration": ("A15", request(broker_epoch=None)),
    "a response before its request": ("A15", request(t_acknowledged=4)),
    "not the first that stays": ("A11", row(leader1=3, strategy="controlled_shutdown")),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mutated_row_violates_one_invariant(name: str) -> None:
    invariant, mutated = MUTATIONS[name]
    assert found(mutated) == {invariant}
    [violation] = judge([SOUND["an election"], mutated, SOUND["a new partition"]])
    assert violation.row is mutated
    entity = {"A14": "pid 12", "A15": "LEADER_AND_ISR to broker 1"}.get(invariant, "orders-0")
    assert str(violation).startswith(f"{invariant}: {entity}")


def test_a_violation_names_partition_or_replica_and_the_values() -> None:
    broken = [row(isr1=[2, 3, 9]), by_leader(isr1=[]), replica(from_state="NON_EXISTENT", to_state="ONLINE")]
    assert [str(violation) for violation in judge(broken)] == [
        "A4: orders-0 at epoch 7, row 3: the ISR [2, 3, 9] is not within the replicas [1, 2, 3]",
        "A3: orders-0 at epoch 7, row 3: leader 2 is not in the ISR []",
        "A5: orders-0 at epoch 7, row 3: the ISR is empty",
        "A6: orders-0 on broker 1 at epoch 7, row 3: illegal transition NON_EXISTENT -> ONLINE",
    ]


def test_every_invariant_has_a_mutation() -> None:
    assert {invariant for invariant, _ in MUTATIONS.values()} == {*OF_PARTITIONS, "A14", "A15"}


@pytest.mark.parametrize("previous", State)
@pytest.mark.parametrize("target", State)
def test_a_transition_of_a_procedure_outside_of_the_table_is_found(previous: State, target: State) -> None:
    judged = found(procedure(previous.name, target.name))
    assert judged == (set() if previous in VALID_PREVIOUS[target] else {"A14"})


@pytest.mark.parametrize("previous", PartitionState)
@pytest.mark.parametrize("target", PartitionState)
def test_a_transition_of_a_partition_outside_of_the_table_is_found(
    previous: PartitionState, target: PartitionState
) -> None:
    judged = found(row(kind=Kind.PARTITION_STATE, from_state=previous.name, to_state=target.name, states=None))
    reassigned = previous is target is PartitionState.NEW
    assert judged == (set() if reassigned or PartitionStateMachine.allows(previous, target) else {"A6"})


@pytest.mark.parametrize("previous", ReplicaState)
@pytest.mark.parametrize("target", ReplicaState)
def test_a_transition_of_a_replica_outside_of_the_table_is_found(previous: ReplicaState, target: ReplicaState) -> None:
    judged = found(replica(from_state=previous.name, to_state=target.name))
    sent_again = previous is target and target in (ReplicaState.NEW, ReplicaState.NON_EXISTENT)
    assert judged == (set() if sent_again or ReplicaStateMachine.allows(previous, target) else {"A6"})


BROKERS = st.integers(-2, 5)
SETS = st.none() | st.lists(BROKERS, max_size=4)


@given(
    fields=st.fixed_dictionaries(
        {
            "leader0": st.none() | BROKERS, "leader1": st.none() | BROKERS, "isr0": SETS, "isr1": SETS,
            "replicas": SETS, "leader_epoch0": st.none() | BROKERS, "leader_epoch1": st.none() | BROKERS,
            "from_state": st.none() | st.text(max_size=4), "to_state": st.none() | st.sampled_from(["ONLINE", "", "X"]),
            "states": st.none() | st.lists(st.sampled_from(["NEW", "ONLINE", "Y"]), max_size=3),
            "strategy": st.none() | st.sampled_from(["preferred", "offline", "initial", "?"]),
            "reason": st.none() | st.text(max_size=3), "kind": st.sampled_from([*Kind, "LATER"]),
        }
    )
)  # fmt: skip
def test_a_damaged_row_is_judged_without_an_error(fields: dict[str, Any]) -> None:
    """So is one of a later version."""
    list(judge([row(**fields)]))


def test_a_row_from_json_has_the_same_violations() -> None:
    through: Callable[[Row], Row] = lambda r: msgspec.json.decode(msgspec.json.encode(r), type=Row)  # noqa: E731
    for sound in SOUND.values():
        assert found(through(sound)) == set()
    for invariant, mutated in MUTATIONS.values():
        assert found(through(mutated)) == {invariant}


def test_an_election_that_passed_brokers_over_is_not_judged_by_the_order_of_replicas() -> None:
    cluster, book = make_cluster(P((4, 1, 2), 4, (4,)), P((4, 1, 2), 4), brokers=(1, 2, 4)), Book()
    cluster.observe_outranked(1, cluster.brokers[1].epoch)
    die(cluster, 4)
    decision = decided(cluster, partial(broker_death, dead=[4], unclean=lambda _: True))
    enter(cluster, decision)
    book.term(1, cluster.epoch, KafkaJournal).decided(cluster, decision.writes, [], [], Report("a broker died"))
    assert [(r.leader1, r.strategy, r.unclean) for r in book.rows()] == [
        (2, "unclean_passing", True),
        (2, "offline_passing", None),
    ]
    assert found(*book.rows()) == set()
