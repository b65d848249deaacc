"""Finds what the loss of brokers or racks would cost, by the controller's own rule, and counts it anew with NumPy.

The rule decides partition by partition, as the controller would. The count looks at all partitions at once and shares
no code with it; a difference is a defect of one of them, so no result leaves then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy

from pipeline.ending import Disagreement
from pipeline.inputs import NONE, BadInput, Loads, Snapshot
from state_machines.machines.selectors import Election, offline

np: Any = numpy
Array = Any
SETS_MAX: Final = 10_000
"""Sets of brokers of one call."""
NAMED_MAX: Final = 5
"""Partitions without a leader that a result names."""


@dataclass(frozen=True)
class Loss:
    """What the loss of brokers costs. Counts are of partitions, beside those that are as bad before.

    ``offline``: without a leader. ``under_min_isr``: with fewer replicas in sync than ``min.insync.replicas``, a part
    of which is unknown where the snapshot has no setting. ``led``: leaders that move. ``most_leaders`` and
    ``most_bytes_in``: the busiest broker afterwards as (id, figure), None where no broker is left.
    """

    name: str
    brokers: tuple[int, ...]
    offline: int
    under_min_isr: int
    led: int
    most_leaders: tuple[int, int] | None
    most_bytes_in: tuple[int, float] | None
    named: tuple[str, ...] = ()


def sets_of(snapshot: Snapshot, named: Mapping[str, tuple[int, ...]] | None = None) -> dict[str, tuple[int, ...]]:
    """Returns each live broker, each rack and the ``named`` sets; raises :class:`BadInput` for unknown brokers."""
    table = snapshot.brokers
    live = [int(b) for b in table.ids[table.live]]
    found: dict[str, tuple[int, ...]] = {f"broker {b}": (b,) for b in live}
    for at, rack in enumerate(table.racks):
        if members := tuple(int(b) for b in table.ids[(table.rack == at) & table.live]):
            found[f"rack {rack}"] = members
    for name, brokers in (named or {}).items():
        if unknown := sorted(set(brokers) - set(live)):
            raise BadInput(f"--set {name}: broker {unknown[0]} is not live in the snapshot: correct the id")
        found[name] = tuple(sorted(set(brokers)))
    if len(found) > SETS_MAX:
        raise BadInput(f"{len(found)} sets of brokers are more than {SETS_MAX}: name fewer with --set")
    return found


def losses(snapshot: Snapshot, loads: Loads, sets: Mapping[str, tuple[int, ...]]) -> Iterator[Loss]:
    """Yields what each loss costs; raises :class:`~pipeline.ending.Disagreement`."""
    world = _World(snapshot, loads)
    for name, brokers in sets.items():
        decided = world.decided(frozenset(brokers))
        counted = world.counted(brokers)
        if not (decided.leaders == counted.leaders).all() or decided.under != counted.under:
            raise Disagreement(f"{name}: the rule and the count differ: {decided.summary} and {counted.summary}")
        yield world.loss(name, brokers, decided)


@dataclass(frozen=True)
class _Found:
    """Leaders by partition after a loss (places of brokers, int32, -1 for none), and partitions under min ISR."""

    leaders: Array
    under: int

    @property
    def summary(self) -> str:
        return f"{int((self.leaders < 0).sum())} partitions without a leader, {self.under} below min ISR"


class _World:
    """The snapshot in places of brokers, and the partitions of each broker."""

    def __init__(self, snapshot: Snapshot, loads: Loads) -> None:
        table, brokers = snapshot.partitions, snapshot.brokers
        self._table, self._brokers = table, brokers
        self.live = frozenset(int(b) for b in brokers.ids[brokers.live])
        self.leaders: Array = table.leader.astype(np.int64)
        self._bytes_in: Array = np.nan_to_num(loads.bytes_in_per_s, nan=0.0)
        self._replicas, self._isr, self._min_isr = table.replicas, table.isr, table.min_isr
        width = table.replicas.shape[1] + table.isr.shape[1] + 1
        named = np.column_stack([table.replicas, table.isr, table.leader]).ravel()
        order = np.argsort(named, kind="stable")
        self._named, self._rows = named[order], order // width
        """Each name of a broker, sorted, and the place of the partition that has it."""
        self._ids = np.unique(named)
        led = np.nonzero(self.leaders != NONE)[0]
        self._led, self._led_in = self._each(led, self.leaders), self._bytes(led, self.leaders)
        self._replicas_of = [tuple(b for b in row if b != NONE) for row in table.replicas.tolist()]
        self._isr_of = [tuple(b for b in row if b != NONE) for row in table.isr.tolist()]

    def decided(self, lost: frozenset[int]) -> _Found:
        """Returns what the controller's rule decides for each partition that the loss touches."""
        live, leaders, under = self.live - lost, self.leaders.copy(), 0
        touched = np.isin(self._isr, np.array(sorted(lost))).any(axis=1) | np.isin(self.leaders, np.array(sorted(lost)))
        for row in np.nonzero(touched)[0].tolist():
            isr = self._isr_of[row]
            if int(leaders[row]) in lost:
                elected = offline(self._replicas_of[row], isr, live=live)
                leaders[row] = elected.leader if isinstance(elected, Election) else NONE
            if len(isr) >= self._min_isr[row] > len([b for b in isr if b not in lost]):
                under += 1
        return _Found(leaders, under)

    def counted(self, lost: tuple[int, ...]) -> _Found:
        """Returns the same by arrays, over the partitions that name a lost broker."""
        gone = np.array(lost)
        alive = np.array(sorted(self.live - set(lost)), np.int64)
        rows = self._naming(lost)
        isr, replicas, min_isr = self._isr[rows], self._replicas[rows], self._min_isr[rows]
        stays = (isr != NONE) & ~np.isin(isr, gone)
        before, after = (isr != NONE).sum(axis=1), stays.sum(axis=1)
        under = int(((before >= min_isr) & (after < min_isr) & (after < before)).sum())
        in_isr = (replicas[:, :, None] == np.where(stays, isr, -2)[:, None, :]).any(axis=2)
        able = in_isr & np.isin(replicas, alive)
        first = np.where(able.any(axis=1), replicas[np.arange(len(able)), able.argmax(axis=1)], NONE)
        leaders = self.leaders.copy()
        leaders[rows] = np.where(np.isin(leaders[rows], gone), first, leaders[rows])
        return _Found(leaders, under)

    def _naming(self, lost: tuple[int, ...]) -> Array:
        """Returns the places of partitions that have a lost broker as a replica, in the ISR or as the leader."""
        begins, ends = (np.searchsorted(self._named, np.array(lost), side) for side in ("left", "right"))
        found = [self._rows[begin:end] for begin, end in zip(begins, ends, strict=True)]
        return np.unique(np.concatenate(found)) if found else np.zeros(0, np.int64)

    def loss(self, name: str, brokers: tuple[int, ...], found: _Found) -> Loss:
        """Returns the result of one set."""
        lost = np.nonzero(np.isin(self.leaders, np.array(brokers)))[0]
        new = found.leaders[lost]
        down, moved = lost[new == NONE], lost[new != NONE]
        counts, bytes_in = self._led - self._each(lost, self.leaders), self._led_in - self._bytes(lost, self.leaders)
        counts, bytes_in = counts + self._each(moved, found.leaders), bytes_in + self._bytes(moved, found.leaders)
        most_leaders = most_bytes = None
        if counts.any():
            at, widest = int(counts.argmax()), int(np.where(counts > 0, bytes_in, -1.0).argmax())
            most_leaders = int(self._ids[at]), int(counts[at])
            most_bytes = int(self._ids[widest]), float(bytes_in[widest])
        named = tuple(self._table.name(int(row)) for row in down[:NAMED_MAX])
        return Loss(name, brokers, len(down), found.under, len(lost), most_leaders, most_bytes, named)

    def _each(self, rows: Array, leaders: Array) -> Array:
        return np.bincount(np.searchsorted(self._ids, leaders[rows]), minlength=len(self._ids))

    def _bytes(self, rows: Array, leaders: Array) -> Array:
        return np.bincount(np.searchsorted(self._ids, leaders[rows]), self._bytes_in[rows], len(self._ids))
