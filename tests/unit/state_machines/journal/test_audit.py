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
from state_machines.journal.events import Kind, Row
from state_machines.machines.partition import PartitionStateMachine
from state_machines.machines.replica import ReplicaStateMachine
from state_machines.model.types import PartitionState, ReplicaState
from state_machines.procedures.states import VALID_PREVIOUS, State
from tests.kit.journal_rows import MUTATIONS, SOUND, by_leader, procedure, replica, row
from tests.kit.journals import Book
from tests.kit.kafka.model import P, decided, die, enter, make_cluster


def found(*rows: Row) -> set[str]:
    return {violation.invariant for violation in judge(rows)}


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_row_has_no_violation(name: str) -> None:
    assert found(SOUND[name]) == set()


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
