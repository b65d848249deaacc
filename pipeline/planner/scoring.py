"""Scores loads: how far a broker is outside its bounds, and what a change of its load gains."""

from __future__ import annotations

from typing import Final

from pipeline.compiling import compiled
from pipeline.planner.arrays import Array, np
from pipeline.planner.state import (
    CAP,
    COUNT,
    CPU,
    DISK,
    FLOOR,
    HIGH,
    IN,
    KINDS,
    LEADER_IN,
    LEADERS,
    LOAD,
    LOW,
    OUT,
    POTENTIAL,
    SCALE,
    TOP,
    WEIGHT,
)

CAP_WEIGHT: Final = 30.0
"""Weight of a load above a hard bound, beside one above a soft bound."""
EVEN_WEIGHT: Final = 0.02
"""Weight of evenness within the bounds: it chooses among destinations, and leaves room."""
SLACK: Final = 1e-9
"""Rounding that a sum of loads may have, as a share of the mean."""
NEARLY: Final = 1 - SLACK
"""Share of a change that has to be within a bound."""


@compiled
def drawn(ticks: Array, below: int) -> int:
    """Draws a number from 0 up to ``below``, by xorshift."""
    x = ticks[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    ticks[0] = x
    number: int = np.int64((x >> np.uint64(11)) % np.uint64(below))
    return number


@compiled
def fill(rows: Array, row: int, leads: bool, change: Array) -> None:
    """Writes what one replica of a partition loads its broker with."""
    ins, outs = rows[row, 1], rows[row, 2]
    change[COUNT], change[DISK], change[IN], change[POTENTIAL] = 1.0, rows[row, 0], ins, outs
    if leads:
        change[LEADERS], change[CPU], change[OUT], change[LEADER_IN] = 1.0, ins, outs, ins
    else:
        change[LEADERS], change[CPU], change[OUT], change[LEADER_IN] = 0.0, rows[row, 3], 0.0, 0.0


@compiled
def penalty(book: Array, broker: int, kind: int, load: float) -> float:
    """Returns how bad a load is: squares of the parts outside the bounds, and a little for being uneven."""
    scale, bad, far = book[SCALE, broker, kind], 0.0, 0.0
    if load > book[TOP, broker, kind]:
        over = (load - book[CAP, broker, kind]) * scale
        if over > 0.0:
            bad += CAP_WEIGHT * over * (over + 0.1)
        far = (load - book[HIGH, broker, kind]) * scale
    elif load < book[FLOOR, broker, kind]:
        far = (book[FLOOR, broker, kind] - load) * scale
    if book[WEIGHT, broker, kind] > 0.0:
        uneven = load * scale - 1.0
        bad += far * (far + 0.05) + EVEN_WEIGHT * uneven * uneven
    return bad


@compiled
def gained(book: Array, broker: int, change: Array, sign: float) -> float:
    """Returns by how much a change of a broker's load makes its penalty smaller."""
    gain = 0.0
    for kind in range(KINDS):
        if change[kind] != 0.0 and book[TOP, broker, kind] < np.inf:
            load = book[LOAD, broker, kind]
            gain += penalty(book, broker, kind, load) - penalty(book, broker, kind, load + sign * change[kind])
    return gain


@compiled
def above(book: Array, broker: int, kind: int) -> float:
    """Returns how far a load is above its bounds, as a share of the mean; a hard bound counts more."""
    load, scale = book[LOAD, broker, kind], book[SCALE, broker, kind]
    far, high = 0.0, (load - book[HIGH, broker, kind]) * scale
    over = (load - book[CAP, broker, kind]) * scale
    if over > SLACK:
        far += CAP_WEIGHT * over
    if book[WEIGHT, broker, kind] > 0.0 and high > SLACK:
        far += high
    return far


@compiled
def below(book: Array, broker: int, kind: int) -> float:
    """Returns how far a load is below its bound, as a share of the mean."""
    under = (book[LOW, broker, kind] - book[LOAD, broker, kind]) * book[SCALE, broker, kind]
    return under if book[WEIGHT, broker, kind] > 0.0 and under > SLACK else 0.0


@compiled
def outside(book: Array, broker: int) -> float:
    """Returns how far a broker is outside its bounds; 0 where it is within them all."""
    bad = 0.0
    for kind in range(KINDS):
        bad += above(book, broker, kind) + below(book, broker, kind)
    return bad


@compiled
def fits(book: Array, broker: int, change: Array, soft: bool) -> bool:
    """Checks whether a broker stays within the bounds with a further load; ``soft``: also those of soft goals."""
    layer = TOP if soft else CAP
    for kind in range(KINDS):
        if change[kind] > 0.0 and book[LOAD, broker, kind] + NEARLY * change[kind] > book[layer, broker, kind]:
            return False
    return True


@compiled
def spares(book: Array, broker: int, change: Array) -> bool:
    """Checks whether a broker stays above the lower bounds without a load."""
    for kind in range(KINDS):
        if change[kind] > 0.0 and book[LOAD, broker, kind] - NEARLY * change[kind] < book[FLOOR, broker, kind]:
            return False
    return True


@compiled
def shift(book: Array, giver: int, taker: int, change: Array) -> None:
    """Moves a load from one broker to another."""
    for kind in range(KINDS):
        book[LOAD, giver, kind] -= change[kind]
        book[LOAD, taker, kind] += change[kind]
