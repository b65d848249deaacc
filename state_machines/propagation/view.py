"""Shows propagation the model, which rows changed since a reader's position, and which changes need LeaderAndIsr."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

from state_machines.model.decision import Change
from state_machines.model.types import NO_VERSION, Broker, PartitionRow, PartitionState, Topic

_NON_EXISTENT: Final = PartitionState.NON_EXISTENT


class ClusterView(Protocol):
    """The part of the model that propagation reads (:class:`state_machines.model.cluster.Cluster`).

    A replica is ``stopped`` only where its row is not Online or one of the row's replicas is not online: a snapshot
    does not check ordinary rows.
    """

    @property
    def epoch(self) -> int:
        """Controller epoch of the term."""

    @property
    def rows(self) -> Sequence[PartitionRow]:
        """All partition rows; only appended to, an index is never reused."""

    @property
    def present(self) -> int:
        """Rows whose topics did not vanish."""

    @property
    def topics(self) -> Sequence[Topic]:
        """Topic incarnations by :attr:`PartitionRow.topic`."""

    @property
    def brokers(self) -> Mapping[int, Broker]:
        """Registered brokers, live or shutting down."""

    @property
    def live(self) -> frozenset[int]:
        """Brokers that are registered and not shutting down."""

    @property
    def ids_learned(self) -> int:
        """Grows with every topic that gets an id after brokers were sent it without one."""

    def find(self, topic: str, partition: int) -> int | None:
        """Returns the row of a partition that exists."""

    def offline_replicas(self, i: int) -> tuple[int, ...]:
        """Returns the replicas of a row that are not online."""

    @property
    def any_failed(self) -> bool:
        """Checks whether :meth:`offline_replicas` depends on more than the row's replicas."""

    @property
    def any_stopped(self) -> bool:
        """Checks whether :meth:`stopped` may be true of any replica."""

    def stopped(self, i: int, broker: int) -> bool:
        """Checks whether the replica was sent StopReplica and must not be sent LeaderAndIsr."""


def is_sent(row: PartitionRow) -> bool:
    """Checks whether brokers are sent the row at all: it exists and has a leadership."""
    return row.version != NO_VERSION and row.state is not _NON_EXISTENT


def is_sent_to(broker: int, row: PartitionRow) -> bool:
    """Checks whether a broker is sent LeaderAndIsr of the row."""
    return is_sent(row) and broker in row.assignment.replicas


def is_removed(row: PartitionRow) -> bool:
    """Checks whether brokers are sent that the row is gone: its topic is being deleted, or was."""
    return row.is_removed


def successor(view: ClusterView, i: int) -> int | None:
    """Returns the row of the same partition in a later incarnation of the topic, None where there is none."""
    later = view.find(view.topics[view.rows[i].topic].name, view.rows[i].partition)
    return None if later == i else later


def needs_leader_and_isr(change: Change) -> bool:
    """Checks whether replicas need LeaderAndIsr: brokers ignore it unless the leader epoch moved or is the first.

    All other changes go out by UpdateMetadata alone (ISR changes of a leader, replicas gone offline).
    """
    before, after = change.before, change.after
    return after.leader_epoch != before.leader_epoch or before.version == NO_VERSION or change.is_new


BLOCK_ROWS: Final = 4096
"""Granularity, in rows, at which :meth:`Feed.last_change` knows whether encoded rows are still current."""

_PAGE_BITS: Final = 10
_PAGE_LAST: Final = (1 << _PAGE_BITS) - 1
"""A page has the rows of 1,024 numbers: a count of the rows behind a position visits one page only."""
_SHRUNK_AT: Final = frozenset({0, 4, 16, 64, 256})
"""Sizes at which a page that lost rows is made anew, because a dict does not shrink by itself."""


class Feed:
    """Rows by the number of their last change, oldest first. A reader keeps the number up to which it has read.

    Rows that every reader has read may be ``forgotten``, up to a number.
    """

    def __init__(self) -> None:
        self.number = 0
        self._last: dict[int, int] = {}
        self._pages: dict[int, dict[int, int]] = {}
        self._blocks: dict[int, int] = {}
        self.forgotten = 0

    def __len__(self) -> int:
        return len(self._last)

    def changed(self, rows: Iterable[int]) -> None:
        """Numbers the rows anew: each gets the next number."""
        last, blocks, pages, number = self._last, self._blocks, self._pages, self.number
        page = pages.setdefault(number >> _PAGE_BITS, {})
        for i in rows:
            number += 1
            if not number & _PAGE_LAST:
                page = pages[number >> _PAGE_BITS] = {}
            if i in last:
                key = last[i] >> _PAGE_BITS
                del pages[key][i]
                if len(pages[key]) in _SHRUNK_AT and pages[key] is not page:
                    self._shrink(key)
            last[i] = page[i] = number
            blocks[i // BLOCK_ROWS] = number
        self.number = number

    def _shrink(self, key: int) -> None:
        """Frees the memory of rows that a full page lost."""
        if self._pages[key]:
            self._pages[key] = dict(self._pages[key])
        else:
            del self._pages[key]

    def since(self, position: int, until: int, limit: int) -> tuple[list[int], int]:
        """Returns the ``limit`` oldest rows changed after ``position`` and up to ``until``, and the next position."""
        found: list[int] = []
        for page in self._pages_from(position) if position < until else ():
            for i, number in page.items():
                if number > until:
                    return found, until
                if number > position:
                    if len(found) == limit:
                        return found, self._last[found[-1]]
                    found.append(i)
        return found, max(position, until)

    def backlog(self, position: int) -> int:
        """Returns how many rows changed after ``position``; costs little however many there are."""
        if position >= self.number:
            return 0
        count = 0
        for number in reversed(self._pages.get(position >> _PAGE_BITS, {}).values()):
            if number <= position:
                break
            count += 1
        return count + sum(map(len, self._pages_from(position + _PAGE_LAST + 1)))

    def _pages_from(self, number: int) -> list[dict[int, int]]:
        """Returns the page that ``number`` is in, and those behind it."""
        first = number >> _PAGE_BITS
        return [page for key, page in self._pages.items() if key >= first]

    def number_of(self, i: int) -> int:
        """Returns the number of a row's last change; 0 where every reader has read it."""
        return self._last.get(i, 0)

    def last_change(self, first: int, last: int) -> int:
        """Returns a number after which no row in ``range(first, last)`` changed (exact to a block of rows)."""
        blocks = range(first // BLOCK_ROWS, (last - 1) // BLOCK_ROWS + 1)
        return max((self._blocks.get(block, 0) for block in blocks), default=0)

    def forget(self, position: int) -> None:
        """Drops rows that every reader has read."""
        if position <= self.forgotten:
            return
        self.forgotten = position
        for key in list(self._pages):
            if key > position >> _PAGE_BITS:
                break
            self._forget_from(key, position)

    def _forget_from(self, key: int, position: int) -> None:
        page, last = self._pages[key], self._last
        for i, number in list(page.items()):
            if number > position:
                return
            del page[i], last[i]
        if key < self.number >> _PAGE_BITS:
            del self._pages[key]
