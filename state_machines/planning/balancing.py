"""Draws moves to added brokers, and those that make all brokers even: counts, then bytes, then first replicas.

Racks bind each move. What is on brokers that take no replica, dead or cordoned ones, stays there.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from heapq import heapify, heapreplace
from operator import itemgetter
from typing import Final, NamedTuple

from state_machines.planning.drafting import PlanDraft, Replicas
from state_machines.planning.goals import Add, Rebalance

Row = tuple[str, int]


def draw_added(draft: PlanDraft, goal: Add) -> None:
    """Draws moves until counts are as even as racks allow; the smallest replicas move.

    First each broker gives as many as evenness needs. Where racks prevent some of that, other brokers give more.
    """
    draft.check_brokers(goal.brokers)
    draft.check_topics(goal.topics)
    for broker in sorted(set(goal.brokers)):
        if (why := draft.view.why_no_host(broker)) is not None:
            draft.refuse(f"broker {broker}", f"brokers = {broker}: {why}")
    if draft.refused:
        return
    counts, added = draft.loads.replicas, sorted(set(goal.brokers))
    givers = {b for b, known in draft.view.brokers.items() if known.live and b not in added}
    low = min(counts[b] for b in added)
    crowded = {b for b in givers if counts[b] - low > 1}
    rows = smallest_first(draft, draft.rows(goal.topics, lambda replicas: not crowded.isdisjoint(replicas)))
    least, most = _levels(counts, crowded, added)
    draw_between(
        draft, rows, lambda b: b in least and counts[b] > least[b], lambda: [b for b in added if counts[b] < most[b]]
    )
    if any(counts[b] < most[b] for b in added):
        draw_between(draft, rows, lambda b: b in crowded, lambda: added)


def smallest_first(draft: PlanDraft, rows: Iterable[Row]) -> list[Row]:
    """Sorts by size, unknown ones last; equal ones by partition, so that no topic gives all of its partitions."""
    sizes, numbers = draft.view.sizes, draft.view.partitions

    def cost(row: Row) -> tuple[bool, int, int]:
        size = sizes.get((row[0], numbers[row[1]])) if sizes else None
        return size is None, size or 0, numbers[row[1]]

    return sorted(rows, key=cost)


def _levels(counts: Counter[int], givers: set[int], added: list[int]) -> tuple[Counter[int], Counter[int]]:
    """Returns the counts of givers and of added brokers once no gap above one is left between the two groups."""
    least, most = Counter({b: counts[b] for b in givers}), Counter({b: counts[b] for b in added})
    full, empty = [(-counts[b], b) for b in givers], [(counts[b], b) for b in added]
    heapify(full)
    heapify(empty)
    while full and -full[0][0] - empty[0][0] > 1:
        (above, giver), (below, taker) = full[0], empty[0]
        least[giver] -= 1
        most[taker] += 1
        heapreplace(full, (above + 1, giver))
        heapreplace(empty, (below + 1, taker))
    return least, most


def draw_between(
    draft: PlanDraft, rows: Iterable[Row], gives: Callable[[int], bool], takers: Callable[[], Sequence[int]]
) -> None:
    """Draws moves from brokers that give to takers, each along a gap above one; in one pass over ``rows``.

    One pass is enough: gaps only shrink, and what racks allow to one partition changes only with its own moves.
    """
    counts, takes = draft.loads.replicas, takers()
    low = min((counts[b] for b in takes), default=None)
    for topic, row in rows:
        if low is None:
            return
        current = draft.current(row)
        while any(counts[b] - low > 1 and gives(b) for b in current):
            target = _step(draft, current, [b for b in current if gives(b)], takes)
            if target is None:
                break
            draft.move_in_order(topic, row, draft.arranged(current, target))
            current, takes = draft.current(row), takers()
            low = min((counts[b] for b in takes), default=None)
            if low is None:
                return


def _step(draft: PlanDraft, current: Replicas, givers: list[int], takers: Sequence[int]) -> list[int] | None:
    """Returns the replicas after one move, from the most loaded giver to the least loaded taker that racks allow."""
    counts, racks = draft.loads.replicas, draft.racks
    by_load = sorted((b for b in takers if b not in current), key=lambda b: (counts[b], b))
    for giver in sorted(givers, key=lambda b: (-counts[b], b == current[0], b)):
        used = racks.used(b for b in current if b != giver)
        shares = racks.of(giver) in used
        for taker in by_load:
            if counts[giver] - counts[taker] <= 1:
                break
            if shares or racks.of(taker) not in used:
                return [taker if b == giver else b for b in current]
    return None


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
