"""Draws moves to brokers that were added."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heapreplace

from state_machines.planning.drafting import PlanDraft, Replicas
from state_machines.planning.goals import Add

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
