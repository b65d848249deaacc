"""The kernel and the rules for one row and for two agree about each row, of any content, and about broken logs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, product
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="the extra 'pipeline' is not installed")

import pyarrow as pa

from pipeline import kernel
from pipeline.arrays import arrays
from pipeline.brokers_seen import Life
from pipeline.judge import JUDGED, judged, masked
from pipeline.schema import COLUMNS
from state_machines.journal.audit import CHECKS, judge
from state_machines.journal.checks import COMPARISONS, follows, tells
from state_machines.journal.events import PARTITION_KINDS, Kind, Row
from state_machines.model.types import PartitionState, ReplicaState
from state_machines.procedures.states import State
from state_machines.regions.states import RegionState
from tests.kit.journal_rows import MUTATIONS, SOUND, row
from tests.real.pipeline import test_audit, test_region_audit
from tests.real.pipeline.logs import Log, text

SCHEMA = pa.schema([COLUMNS.field(name) for name in JUDGED])
Flags = tuple[set[str], set[str], bool]
"""Invariants that a row breaks by itself, and beside the one before; whether its leader was not there."""


def table(rows: Sequence[Row]) -> pa.Table:
    return pa.Table.from_pylist([msgspec.structs.asdict(one) for one in rows], schema=SCHEMA)


def by_kernel(rows: Sequence[Row], lives: Sequence[Life] = ()) -> list[Flags]:
    masks, _ = masked(arrays(table(rows)), lives)
    return [
        (
            {name for bit, name in enumerate(kernel.BY_ROW) if mask >> bit & 1},
            {name for bit, name in enumerate(kernel.BY_HISTORY, len(kernel.BY_ROW)) if mask >> bit & 1},
            bool(mask & kernel.UNSEEN),
        )
        for mask in masks.tolist()
    ]


def by_rules(rows: Sequence[Row], lives: Sequence[Life] = ()) -> list[Flags]:
    """Judges rows of any order as the rules do: slowly."""
    alone = [{violation.invariant for violation in judge([one])} for one in rows]
    beside: list[set[str]] = [set() for _ in rows]
    told = sorted((at for at, one in enumerate(rows) if tells(one)), key=lambda at: _place(rows[at]))
    for b, i in pairwise(told):
        if _entity(rows[b]) == _entity(rows[i]) and follows(rows[b], rows[i]):
            beside[i] = {name for name, broken in COMPARISONS.items() if broken(rows[b], rows[i])}
    return [(*both, _unseen(one, lives)) for *both, one in zip(alone, beside, rows, strict=True)]  # type: ignore[misc]


def _entity(one: Row) -> tuple[str, str, int]:
    return one.cluster, one.topic or "", -1 if one.partition is None else one.partition


def _place(one: Row) -> tuple[Any, ...]:
    return *_entity(one), one.ctl_epoch, one.seq


def _unseen(one: Row, lives: Sequence[Life]) -> bool:
    elected = one.strategy is not None and one.leader1 is not None and one.leader1 > -1 and one.leader1 != one.leader0
    return elected and not any(
        (life.cluster, life.ctl_epoch, life.broker) == (one.cluster, one.ctl_epoch, one.leader1)
        and life.since < one.seq < (life.until or one.seq + 1)
        for life in lives
    )


IDS = st.integers(-2, 3)
LISTS = st.none() | st.lists(IDS, max_size=4)
SOME_STATES = ["", "NEW", "ONLINE", "OFFLINE", "NON_EXISTENT", "RUNNABLE", "ROLLEDBACK", "SUCCESS", "FAILED", "?", "!"]
STATES = st.sampled_from(SOME_STATES)
EVERY_STATE = [None, "?", *(state.name for of in (PartitionState, ReplicaState, State, RegionState) for state in of)]
VALUES: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(("leader0", "leader1", "leader_epoch0", "leader_epoch1", "pepoch0", "pepoch1"), st.none() | IDS),
    **dict.fromkeys(("isr0", "isr1", "replicas", "adding", "removing", "absent"), LISTS),
    **dict.fromkeys(("from_state", "to_state"), st.none() | STATES),
    **dict.fromkeys(("t_committed", "broker_epoch", "t_sent", "t_acknowledged"), st.none() | IDS),
    "kind": st.sampled_from([*sorted(CHECKS), *sorted(PARTITION_KINDS) * 2, "LATER"]),
    "states": st.none() | st.lists(STATES, max_size=3),
    "steps": st.none() | st.lists(st.sampled_from("ab"), max_size=2),
    "reason": st.sampled_from([None, "observed", "isr_by_leader", "death"]),
    "strategy": st.sampled_from([None, "preferred", "initial", "offline", "controlled_shutdown", "drain"]),
    "unclean": st.sampled_from([None, False, True]),
    "step": st.sampled_from([None, "move"]),
    "topic": st.sampled_from([None, "a", "b"]),
    "topic_id": st.sampled_from([None, "x", "y"]),
    "cluster": st.sampled_from(["c", "d"]),
    "partition": st.sampled_from([None, 0, 1]),
    "ctl_epoch": st.integers(1, 3),
}
"""Fields that are judged, with few values each, so that rows meet."""
LIVES = st.lists(st.builds(Life, st.sampled_from("cd"), st.integers(1, 3), IDS, st.integers(0, 9), st.none()))


@settings(max_examples=400)
@given(
    changed=st.lists(
        st.dictionaries(st.sampled_from(sorted(VALUES)), st.none(), max_size=6).flatmap(
            lambda names: st.fixed_dictionaries({name: VALUES[name] for name in names})
        ),
        max_size=12,
    ),
    lives=LIVES,
)
def test_rows_that_differ_from_a_sound_one_are_judged_alike(changed: list[dict[str, Any]], lives: list[Life]) -> None:
    rows = [row(seq=seq, **fields) for seq, fields in enumerate(changed, 1)]
    assert by_kernel(rows, lives) == by_rules(rows, lives)


@settings(max_examples=400)
@given(drawn=st.lists(st.fixed_dictionaries(VALUES), max_size=12))
def test_rows_of_any_content_are_judged_alike(drawn: list[dict[str, Any]]) -> None:
    rows = [row(seq=seq, **fields) for seq, fields in enumerate(drawn, 1)]
    assert by_kernel(rows) == by_rules(rows)


@pytest.mark.parametrize("kind", ["ISR", "REPLICA_STATE", "PROC_STATE", "REGION_STATE"])
def test_every_transition_of_every_machine_is_judged_alike(kind: str) -> None:
    pairs = list(product(["", *EVERY_STATE], repeat=2))
    rows = [row(seq=seq, kind=kind, from_state=b, to_state=a, states=None) for seq, (b, a) in enumerate(pairs, 1)]
    found = by_kernel(rows)
    assert found == by_rules(rows)
    assert {bool(alone) for alone, _, _ in found} == {False, True}


def test_the_examples_of_the_rules_are_judged_alike() -> None:
    cases = [*SOUND.values(), *(mutated for _, mutated in MUTATIONS.values())]
    rows = [msgspec.structs.replace(one, seq=seq, partition=seq) for seq, one in enumerate(cases, 1)]
    found = by_kernel(rows)
    assert found == by_rules(rows)
    assert [alone for alone, _, _ in found[: len(SOUND)]] == [set()] * len(SOUND)
    assert [alone for alone, _, _ in found[len(SOUND) :]] == [{name} for name, _ in MUTATIONS.values()]


BEFORE = row(partition=0, removing=[3], ctl_epoch=6)
"""It left partition epoch 9 and leader epoch 5."""
PAIRS: dict[str, tuple[set[str], Row]] = {
    "a later term begins where it ended": (set(), row(pepoch0=9, pepoch1=10, replicas=[1, 2, 3])),
    "a later term writes the same version": ({"A7"}, row(pepoch0=8, pepoch1=9)),
    "a later term reads the same version": (set(), row(kind=Kind.PARTITION_STATE, pepoch0=8, pepoch1=9)),
    "a later term writes less": ({"A7"}, row(pepoch0=7, pepoch1=8)),
    "the same term begins elsewhere": ({"A8"}, row(ctl_epoch=6, pepoch0=10, pepoch1=11)),
    "the same epoch has another leader": ({"A2"}, row(pepoch1=10, leader1=3)),
    "the leader epoch falls": ({"A1"}, row(pepoch1=10, leader_epoch1=4)),
    "one was removed, and one that stays was not in sync": ({"A12"}, row(pepoch1=10, replicas=[1, 2], isr0=[2])),
    "one was removed, and one that goes was not in sync": (
        set(), row(pepoch1=10, replicas=[1, 2], isr0=[2], removing=[1])
    ),
    "one was removed, and there are no replicas": (set(), row(pepoch1=10, replicas=None, isr0=[2])),
    "another topic": (set(), row(pepoch0=7, pepoch1=8, topic_id="another")),
    "another partition": (set(), row(pepoch0=7, pepoch1=8, partition=1)),
    "another cluster": (set(), row(pepoch0=7, pepoch1=8, cluster="d")),
}  # fmt: skip


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("backwards", [False, True])
def test_a_row_beside_the_one_before_is_judged_alike_in_any_order(name: str, backwards: bool) -> None:
    broken, after = PAIRS[name]
    rows = [BEFORE, msgspec.structs.replace(after, seq=9)][:: -1 if backwards else 1]
    found = by_kernel(rows)
    assert found == by_rules(rows)
    assert found[0 if backwards else 1][1] == broken


@pytest.mark.parametrize("made", [test_audit.logs, test_region_audit.logs])
def test_broken_logs_are_judged_alike(made: Any) -> None:
    logs: list[Log] = made()
    rows = [msgspec.json.decode(line, type=Row) for log in logs for line in text(log).splitlines()]
    assert by_kernel(rows) == by_rules(rows)


def test_a_row_that_is_found_has_its_sentence_and_the_row_that_it_was_compared_with() -> None:
    before = row(topic_id="x")
    after = row(seq=9, topic_id="x", pepoch0=20, pepoch1=21, leader_epoch0=3, leader_epoch1=4, isr1=[3])
    [first, second, third, fourth] = judged(table([before, after]), [Life("c", 7, 2, 1, None)])
    assert [one.invariant for one in (first, second, third, fourth)] == ["A3", "A11", "A1", "A8"]
    assert first.what == "leader 2 is not in the ISR [3]"
    assert third.what == "the leader epoch was 5 in the row before and is 4"
    assert [one.since for one in (first, third, fourth)] == [None, None, (7, 3)]


def test_a_leader_that_went_before_its_election_was_not_there() -> None:
    came = [Life("c", 7, 2, 1, 3), Life("c", 7, 2, 5, None)]
    for seq, expected in {1: True, 2: False, 3: True, 5: True, 6: False}.items():
        [(_, _, unseen)] = by_kernel([row(seq=seq)], came)
        assert unseen is expected


def test_every_rule_of_partitions_has_a_bit() -> None:
    assert set(kernel.BY_ROW) == {name for checks in CHECKS.values() for name in checks}
    assert tuple(COMPARISONS) == kernel.BY_HISTORY
    assert set(kernel.KINDS) == set(CHECKS)
    assert set(kernel.KINDS[: kernel.PARTITION_STATE + 1]) == {str(kind) for kind in PARTITION_KINDS}
    assert kernel.KINDS[kernel.REGION_STATE] == Kind.REGION_STATE
