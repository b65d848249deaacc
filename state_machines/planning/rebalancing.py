"""Draws moves that make brokers even: counts of replicas, then bytes where sizes are known, then first replicas.

Racks bind each move. What is on brokers that take no replica, dead or cordoned ones, stays there.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from functools import partial
from operator import itemgetter
from typing import Final, NamedTuple

from state_machines.planning.balancing import Row, draw_between, smallest_first
from state_machines.planning.drafting import PlanDraft
from state_machines.planning.goals import Rebalance

SWAPS_MAX: Final = 1_000
"""Swaps for even bytes: each moves two replicas."""
PASSES_MAX: Final = 16
"""Passes over replicas and bytes; the last one finds nothing more to do."""
LARGEST_MAX: Final = 200
"""Replicas of the fullest broker that are tried for a swap."""
GAP_SHARE: Final = 0.1
"""Bytes are even where the fullest and the emptiest broker differ by less than this share of the mean."""


class Sized(NamedTuple):
    """A replica on one broker; sorted by size."""

    bytes: int
    topic: str
    row: int


def draw_rebalance(draft: PlanDraft, goal: Rebalance) -> None:
    """Draws moves until replicas, leaders and bytes are as even as racks allow."""
    draft.check_topics(goal.topics)
    if len(draft.hosts) < 2:
        draft.refuse("brokers", "fewer than 2 brokers may take replicas: start one, or uncordon one")
    if draft.refused:
        return
    rows = smallest_first(draft, draft.rows(goal.topics, lambda _: True))
    for _ in range(PASSES_MAX):  # a swap may open a way for a move that racks forbade before
        before = [draft.current(row) for _, row in rows]
        _even_replicas(draft, rows)
        _even_bytes(draft, rows)
        if before == [draft.current(row) for _, row in rows]:
            break
    while _leaders_moved(draft, rows):  # each pass makes the counts evener, so there is a last one
        pass


def _even_bytes(draft: PlanDraft, rows: Sequence[Row]) -> None:
    if draft.view.sizes:
        placed, swaps = _placed(draft, rows), 0
        while swaps < SWAPS_MAX and _swapped(draft, placed):
            swaps += 1


def _even_replicas(draft: PlanDraft, rows: Sequence[Row]) -> None:
    counts, hosts = draft.loads.replicas, sorted(draft.hosts)
    total = sum(counts[b] for b in hosts)
    for level in dict.fromkeys((-(-total // len(hosts)), total // len(hosts))):
        gives, takes = partial(_is_above, draft, level), partial(_below, draft, level)
        draw_between(draft, rows, gives, takes)
    draw_between(draft, rows, draft.hosts.__contains__, lambda: hosts)  # where racks keep some from the mean


def _is_above(draft: PlanDraft, level: int, broker: int) -> bool:
    return broker in draft.hosts and draft.loads.replicas[broker] > level


def _below(draft: PlanDraft, level: int) -> list[int]:
    return [b for b in sorted(draft.hosts) if draft.loads.replicas[b] < level]


def _leaders_moved(draft: PlanDraft, rows: Sequence[Row]) -> bool:
    """Gives partitions another first replica where theirs has two more than another of them; False where none has.

    Nothing is copied. It is done last, because a swap moves first replicas, too.
    """
    first, moved = draft.loads.first, False
    for topic, row in rows:
        current = draft.current(row)
        least = min((b for b in current if b in draft.hosts), key=lambda b: (first[b], b), default=current[0])
        if first[current[0]] - first[least] > 1:
            draft.move_in_order(topic, row, (least, *(b for b in current if b != least)))
            moved = True
    return moved


def _placed(draft: PlanDraft, rows: Sequence[Row]) -> dict[int, list[Sized]]:
    """Returns the replicas of each broker with their sizes, the smallest first; unknown sizes count as nothing."""
    sizes, numbers = draft.view.sizes, draft.view.partitions
    placed: dict[int, list[Sized]] = {b: [] for b in draft.hosts}
    for topic, row in rows:
        size = sizes.get((topic, numbers[row])) or 0
        for broker in draft.current(row):
            if broker in placed:
                placed[broker].append(Sized(size, topic, row))
    for found in placed.values():
        found.sort()
    return placed


def _swapped(draft: PlanDraft, placed: dict[int, list[Sized]]) -> bool:
    """Swaps a replica of the fullest broker for a smaller one of the emptiest; False where none makes them evener."""
    totals = {b: sum(one.bytes for one in found) for b, found in sorted(placed.items())}
    full, empty = max(totals, key=totals.__getitem__), min(totals, key=totals.__getitem__)
    gap = totals[full] - totals[empty]
    if gap <= GAP_SHARE * sum(totals.values()) / len(totals):
        return False
    smaller = placed[empty]
    for large in placed[full][: -LARGEST_MAX - 1 : -1]:
        if empty in draft.current(large.row):
            continue
        at = bisect_right(smaller, large.bytes - gap, key=itemgetter(0))  # a larger difference would turn the gap round
        for small in smaller[at : at + LARGEST_MAX]:
            if small.bytes >= large.bytes:
                break
            if full not in draft.current(small.row) and _swap(draft, large, small, full, empty):
                placed[full].remove(large)
                placed[empty].remove(small)
                insort(placed[empty], large)
                insort(placed[full], small)
                return True
    return False


def _swap(draft: PlanDraft, large: Sized, small: Sized, full: int, empty: int) -> bool:
    """Draws a swap, unless racks forbid one half of it."""
    racks = draft.racks
    changes = [(large, full, empty), (small, empty, full)]
    after = [_exchanged(draft.current(one.row), giver, taker) for one, giver, taker in changes]
    befores = [draft.current(one.row) for one, _, _ in changes]
    if any(racks.missing(new) > racks.missing(old) for new, old in zip(after, befores, strict=True)):
        return False
    for (one, _, _), target in zip(changes, after, strict=True):
        draft.move_in_order(one.topic, one.row, target)
    return True


def _exchanged(current: Sequence[int], giver: int, taker: int) -> tuple[int, ...]:
    return tuple(taker if b == giver else b for b in current)
