"""Judges invariants that one row shows by itself (:mod:`state_machines.journal.audit`), as Spark expressions.

It needs no window and no shuffle: a row has before and after, which is enough. A8, A9 and A12 are judged in part here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as fn

from pipeline.schema import OF_PARTITION
from pipeline.violations import Broken, Group, brokers, sentence
from state_machines.journal.audit import BY_LEADER, PARTITION_STEPS, PROCEDURE_BEGINS, REPLICA_STEPS
from state_machines.journal.events import OBSERVED, Kind
from state_machines.journal.region_checks import REGION_STEPS
from state_machines.model.types import INITIAL_LEADER_EPOCH, LEADER_DURING_DELETE, NO_LEADER
from state_machines.procedures.states import VALID_PREVIOUS, State

IN_ORDER: Final = ("initial", "offline", "controlled_shutdown")
"""Strategies by which the first of the replicas leads that stays in the ISR and may lead."""

USUAL_STATES: Final = 3
"""Rows with more states are judged by the full table."""


def row_local() -> tuple[Group, ...]:
    """Returns A1, A3 to A6, A8 to A12, A14 and A15, as far as single rows show them."""
    return (
        Group(fn.col("kind").isin(*OF_PARTITION), of_partitions()),
        Group(fn.col("kind") == Kind.REPLICA_STATE.value, {"A6": transitions(REPLICA_STEPS)}),
        Group(fn.col("kind") == Kind.PROC_STATE.value, {"A14": procedure_states()}),
        Group(fn.col("kind") == Kind.RPC_BATCH.value, {"A15": request_fields()}),
        Group(fn.col("kind") == Kind.REGION_STATE.value, {"A6": region_states()}),
    )


def of_partitions() -> dict[str, Broken]:
    """Returns the invariants of rows of a partition, by number."""
    return {
        "A1": leader_epochs(),
        "A3": leader_in_isr(),
        "A4": isr_assigned(),
        "A5": isr_not_empty(),
        "A6": transitions(PARTITION_STEPS),
        "A8": next_version(),
        "A9": elected_while_absent(),
        "A10": clean_election(),
        "A11": elected_in_order(),
        "A12": reassignment_adds_up(),
    }


def leader_epochs() -> Broken:
    """Checks A1: one leader epoch for each step of the controller, none for the leader's own ISR change, never less."""
    before, after, reason, steps = fn.col("leader_epoch0"), fn.col("leader_epoch1"), fn.col("reason"), _size("steps")
    expected = fn.coalesce(before, fn.lit(INITIAL_LEADER_EPOCH - 1)) + steps
    miscounted = ((reason == BY_LEADER) & (steps > 0)) | (after != expected)
    return Broken(
        after.isNotNull() & ((after < before) | (~_observed() & miscounted)),
        sentence("the leader epoch went from", before, "to", after, "with", steps, "steps"),
    )


def leader_in_isr() -> Broken:
    """Checks A3: the leader is in the ISR, or there is none."""
    leader, isr = fn.col("leader1"), brokers("isr1")
    return Broken(_led() & ~fn.array_contains(isr, leader), sentence("leader", leader, "is not in the ISR", isr))


def isr_assigned() -> Broken:
    """Checks A4: members of the ISR are assigned replicas, each once.

    An observed ISR may be newer than the replicas.
    """
    isr, replicas = brokers("isr1"), brokers("replicas")
    strange = ~_observed() & (fn.size(fn.array_except(isr, replicas)) > 0)
    twice = fn.size(fn.array_distinct(isr)) < fn.size(isr)
    return Broken(
        strange | twice, sentence("the ISR", isr, "is not within the replicas", replicas, "or names one twice")
    )


def isr_not_empty() -> Broken:
    """Checks A5: the last member of the ISR stays, dead or alive."""
    empty = fn.col("leader_epoch1").isNotNull() & (fn.size(brokers("isr1")) == 0)
    return Broken(empty, sentence("the ISR is empty"))


def transitions(table: Mapping[IntEnum, frozenset[IntEnum]]) -> Broken:
    """Checks A6: each step from state to state is in the machine's table. Facts are no transitions."""
    legal = [(before.name, after.name) for after, froms in table.items() for before in froms]
    start, states, end = fn.coalesce("from_state", fn.lit("NON_EXISTENT")), fn.col("states"), fn.col("to_state")
    path = fn.concat_ws(" ", start, states, end)
    pairs = fn.zip_with(
        fn.concat(fn.array(start), states), states, lambda one, following: fn.concat_ws(" ", one, following)
    )
    steps = [" ".join(pair) for pair in legal]
    several = fn.exists(fn.slice(pairs, 1, fn.size(states)), lambda pair: ~pair.isin(*steps))
    illegal = fn.when(_size("states") == 0, ~path.isin(*steps)).otherwise(
        several | ~fn.try_element_at(states, fn.lit(-1)).eqNullSafe(end)
    )
    decided = ~_observed() & end.isNotNull()
    stays = [before for before, after in legal if before == after]
    unusual = ~(states.isNull() & (start == end) & end.isin(*stays)) & ~path.isin(*usual_paths(legal))
    return Broken(decided & illegal, sentence("illegal or unfinished transitions", path), decided & unusual)


def usual_paths(legal: Sequence[tuple[str, str]]) -> list[str]:
    """Returns legal paths of few states as text: from, all states of the row, and the last one again."""
    paths = [" ".join(pair) for pair in legal]
    chains: list[tuple[str, ...]] = [*legal]
    for _ in range(USUAL_STATES):
        paths += [" ".join((*chain, chain[-1])) for chain in chains]
        chains = [(*chain, after) for chain in chains for before, after in legal if before == chain[-1]]
    return paths


def next_version() -> Broken:
    """Checks A8 within a row: an own write is the znode's next version; a fact is newer than the known version."""
    before, after = fn.col("pepoch0"), fn.col("pepoch1")
    ours = fn.col("t_committed").isNotNull()
    wrong = fn.when(ours, after != fn.coalesce(before, fn.lit(-1)) + 1).otherwise(after <= before)
    written = fn.col("kind") != Kind.PARTITION_STATE.value
    return Broken(written & wrong, sentence("the partition epoch went from", before, "to", after))


def elected_while_absent() -> Broken:
    """Checks A9 within a row: the elected leader is registered."""
    leader, absent = fn.col("leader1"), brokers("absent")
    elected = fn.col("strategy").isNotNull() & _led()
    return Broken(
        elected & fn.array_contains(absent, leader), sentence("leader", leader, "is among the absent brokers", absent)
    )


def clean_election() -> Broken:
    """Checks A10: a new leader was in the ISR before, unless an unclean election was allowed and is marked."""
    leader, isr = fn.col("leader1"), fn.col("isr0")
    new = _led() & ~leader.eqNullSafe(fn.col("leader0")) & ~_observed()
    lagged = isr.isNotNull() & ~fn.array_contains(isr, leader) & ~fn.coalesce("unclean", fn.lit(False))
    return Broken(
        new & lagged, sentence("leader", leader, "was not in the ISR", isr, "and it is not marked as unclean")
    )


def elected_in_order() -> Broken:
    """Checks A11: the elected leader is the first of the replicas, by the rule of the strategy."""
    leader, replicas, strategy = fn.col("leader1"), brokers("replicas"), fn.col("strategy")
    able = fn.array_intersect(replicas, fn.array_except(brokers("isr1"), brokers("absent")))
    first = fn.when(strategy == "preferred", fn.get(replicas, fn.lit(0))).otherwise(fn.get(able, fn.lit(0)))
    return Broken(
        _led() & strategy.isin("preferred", *IN_ORDER) & ~first.eqNullSafe(leader),
        sentence("the", strategy, "election made", leader, "the leader and not", first, "of the replicas", replicas),
    )


def reassignment_adds_up() -> Broken:
    """Checks A12 within a row: added and removed brokers are replicas, not both, and those that go come last."""
    replicas, adding, removing = brokers("replicas"), brokers("adding"), brokers("removing")
    strange = fn.size(fn.array_except(fn.concat(adding, removing), replicas)) > 0
    stay = fn.greatest(fn.size(replicas) - fn.size(removing), fn.lit(0))
    early = fn.arrays_overlap(fn.slice(replicas, fn.lit(1), stay), removing)
    moving = (fn.size(adding) > 0) | (fn.size(removing) > 0)
    return Broken(
        moving & (strange | early | fn.arrays_overlap(adding, removing)),
        sentence("replicas", replicas, "do not add up with adding", adding, "and removing", removing),
    )


def procedure_states() -> Broken:
    """Checks A14 within a row: the transition is in the table, and only what has steps is rolled back."""
    before, after = fn.coalesce("from_state", fn.lit("")), fn.col("to_state")
    legal = [f"{one.name} {following.name}" for following, froms in VALID_PREVIOUS.items() for one in froms]
    legal += [f" {state}" for state in PROCEDURE_BEGINS]
    illegal = ~fn.coalesce(fn.concat_ws(" ", before, after).isin(*legal), fn.lit(False))
    undone = (after == State.ROLLEDBACK.name) & fn.col("step").isNull()
    return Broken(
        illegal | undone, sentence("the state went from", before, "to", after, "with the next step", fn.col("step"))
    )


def region_states() -> Broken:
    """Checks A6 of regions."""
    before, after = fn.coalesce("from_state", fn.lit("")), fn.coalesce("to_state", fn.lit(""))
    legal = [f"{before} {after}" for before, after in sorted(REGION_STEPS)]
    illegal = ~fn.concat_ws(" ", before, after).isin(*legal)
    return Broken(illegal, sentence("illegal transition", fn.col("from_state"), "->", fn.col("to_state")))


def request_fields() -> Broken:
    """Checks A15 within a row: the request names a registration, and its response follows it."""
    epoch, sent, acknowledged = fn.col("broker_epoch"), fn.col("t_sent"), fn.col("t_acknowledged")
    return Broken(
        fn.coalesce(epoch < 0, fn.lit(True)) | (acknowledged < sent),
        sentence("the request of broker epoch", epoch, "was sent at", sent, "and acknowledged at", acknowledged),
    )


def _led() -> Column:
    leader = fn.col("leader1")
    return leader.isNotNull() & ~leader.isin(NO_LEADER, LEADER_DURING_DELETE)


def _observed() -> Column:
    return fn.col("reason").eqNullSafe(OBSERVED)


def _size(name: str) -> Column:
    return fn.when(fn.col(name).isNull(), 0).otherwise(fn.size(name))
