"""What the loss of brokers would cost: by the controller's rule, by a count, and here partition by partition."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

np = pytest.importorskip("numpy", reason="NumPy is not installed")

from pipeline import what_if  # noqa: E402
from pipeline.ending import Disagreement  # noqa: E402
from pipeline.inputs import BadInput, Loads, Partitions, Snapshot, brokers_of, matrix  # noqa: E402
from pipeline.what_if import Loss, losses, sets_of  # noqa: E402
from state_machines.machines.selectors import NoLeader  # noqa: E402

Row = tuple[tuple[int, ...], tuple[int, ...], int]
RACKS = {1: "a", 2: "a", 3: "b", 4: None}


def snapshot(*rows: Row, dead: tuple[int, ...] = ()) -> Snapshot:
    """Makes partitions of one topic by replicas, ISR and min ISR; the first live member of the ISR leads."""
    count = len(rows)
    replicas = matrix([placed for placed, _, _ in rows])
    nothing, none = np.zeros(replicas.shape, bool), np.full(count, -1, np.int32)
    leaders = [next((b for b in placed if b in isr and b not in dead), -1) for placed, isr, _ in rows]
    table = Partitions(
        ("t",), (None,), np.zeros(count, np.int32), np.arange(count, dtype=np.int32), replicas, nothing, nothing,
        np.array(leaders, np.int32), none, none, matrix([isr for _, isr, _ in rows]),
        np.array([least for _, _, least in rows], np.int32),
    )  # fmt: skip
    return Snapshot(brokers_of(RACKS, dict(RACKS), live=set(RACKS) - set(dead)), table)


def found(given: Snapshot, **named: tuple[int, ...]) -> dict[str, Loss]:
    rates = np.arange(1.0, len(given.partitions) + 1)
    loads = Loads(np.full(len(rates), -1, np.int64), rates, rates)
    return {one.name: one for one in losses(given, loads, sets_of(given, named))}


def test_each_broker_each_rack_and_named_sets_are_lost() -> None:
    costs = found(snapshot(((1, 2), (1, 2), 2), ((2, 3), (2, 3), 1), ((4,), (4,), 1)), pair=(3, 4))
    assert list(costs) == ["broker 1", "broker 2", "broker 3", "broker 4", "rack a", "rack b", "pair"]
    assert (costs["broker 1"].offline, costs["broker 1"].under_min_isr, costs["broker 1"].led) == (0, 1, 1)
    assert (costs["broker 2"].offline, costs["broker 2"].under_min_isr, costs["broker 2"].led) == (0, 1, 1)
    assert (costs["rack a"].offline, costs["rack a"].named, costs["rack a"].brokers) == (1, ("t-0",), (1, 2))
    assert costs["broker 1"].most_leaders == (2, 2)
    assert costs["broker 1"].most_bytes_in == (2, 3.0) == (2, 1.0 + 2.0)
    assert (costs["pair"].offline, costs["pair"].named) == (1, ("t-2",))


def test_nobody_is_left_when_all_brokers_are_lost() -> None:
    loss = found(snapshot(((1, 2), (1, 2), 1)), all=(1, 2, 3, 4))["all"]
    assert (loss.offline, loss.most_leaders, loss.most_bytes_in) == (1, None, None)


def test_an_unknown_broker_of_a_set_is_refused() -> None:
    with pytest.raises(BadInput, match="--set x: broker 3 is not live in the snapshot"):
        sets_of(snapshot(((1,), (1,), 1), dead=(3,)), {"x": (3,)})


def test_a_difference_of_rule_and_count_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(what_if, "offline", lambda *_, **__: NoLeader("broken"))
    with pytest.raises(Disagreement, match="broker 1: the rule and the count differ: 1 partitions without a leader"):
        found(snapshot(((1, 2), (1, 2), 1)))


@st.composite
def rows(draw: st.DrawFn) -> Row:
    """Draws replicas, an ISR in any order, and a min ISR that may be unknown."""
    placed = tuple(draw(st.permutations(list(RACKS)))[: draw(st.integers(1, 4))])
    isr = tuple(draw(st.permutations(placed))[: draw(st.integers(1, len(placed)))])
    return placed, isr, draw(st.sampled_from([-1, 1, 2, 3]))


@settings(max_examples=200, deadline=None)
@given(st.lists(rows(), min_size=1, max_size=8), st.sets(st.sampled_from(list(RACKS)), max_size=1))
def test_losses_are_those_of_a_naive_count(drawn: list[Row], dead: set[int]) -> None:
    made = snapshot(*drawn, dead=tuple(dead))
    for loss in found(made).values():
        lost = set(loss.brokers)
        offline = under = 0
        for (placed, isr, least), leader in zip(drawn, made.partitions.leader.tolist(), strict=True):
            left = [b for b in placed if b in isr and b not in lost and b not in dead]
            offline += leader in lost and not left
            under += least >= 0 and len(isr) >= least > len([b for b in isr if b not in lost])
        assert (loss.offline, loss.under_min_isr) == (offline, under)
