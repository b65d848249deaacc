"""The watcher of long tests finds every ISR that is too small, and counts the states that it did not see."""

from __future__ import annotations

import pytest

from metadata_store.codecs.config import Config
from state_machines.model.types import Leadership
from tests.verify.min_isr_watch import MIN_ISR, MinIsrWatch

SPOT = ("orders", 0)


def state(isr: tuple[int, ...], version: int = 0) -> Leadership:
    return Leadership(1, 0, isr, 1, version)


@pytest.mark.parametrize(
    ("own", "isr", "margin"),
    [(None, (1, 2, 3), 1), (None, (1, 2), 0), (None, (1,), -1), ("1", (1,), 0), ("3", (1, 2), -1), ("3", (), -3)],
)
def test_an_isr_below_the_topics_own_value_or_the_brokers_default_is_found(
    own: str | None, isr: tuple[int, ...], margin: int
) -> None:
    watch = MinIsrWatch(2)
    watch.judge({SPOT: state(isr)}, {"orders": Config({MIN_ISR: own} if own is not None else {})})
    assert watch.margins == {margin: 1}
    assert bool(watch.below) is (margin < 0)


def test_each_state_is_judged_once_and_states_that_were_not_read_are_counted() -> None:
    watch = MinIsrWatch(2)
    for isr, version in [((1, 2), 4), ((1, 2), 4), ((1, 2, 3), 5), ((1, 3), 8)]:
        watch.judge({SPOT: state(isr, version)}, {})
    assert (watch.readings, watch.writes, watch.unseen) == (4, 4, 2)
    assert watch.margins == {0: 2, 1: 1}
