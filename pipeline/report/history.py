"""Makes arrays of the rows of partitions: one bucket's rows, by partition and oldest first."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.report.terms import NONE, Flags, Ints, Terms
from state_machines.journal.events import PARTITION_KINDS, Kind
from state_machines.model.types import NO_LEADER, PartitionState

COLUMNS: Final = (
    *("topic", "partition", "ctl_epoch", "ctl_id", "seq", "ts_us", "mono_us", "kind", "to_state", "leader0", "leader1"),
    *("isr0", "isr1", "replicas", "adding", "removing", "reason", "unclean", "t_detect", "t_decide", "t_committed"),
)
"""Columns that :func:`history` reads."""


class History(NamedTuple):
    """Rows of partitions. Text is a number in ``topics`` or ``reasons``; times are microseconds of the wall clock.

    ``first`` and ``last`` mark the ends of each partition's rows. ``detected`` is the time at which the event was
    noticed, or decided on where the journal has no plausible one. ``size0`` and ``size1``: members of the ISR before
    and after. ``target``: replicas without those being added. ``ended``: the partition was deleted. ``replicas``,
    ``isr0`` and ``isr1`` are flat lists with the row of each member.
    """

    topics: list[str]
    reasons: list[str]
    topic: Ints
    partition: Ints
    first: Flags
    last: Flags
    term: Ints
    detected: Ints
    decided: Ints
    committed: Ints
    noticed: Flags
    leader0: Ints
    leader1: Ints
    reason: Ints
    unclean: Flags
    ended: Flags
    size0: Ints
    size1: Ints
    target: Ints
    added: Ints
    moving: Flags
    preferred: Ints
    members0: Members
    members1: Members

    def __len__(self) -> int:
        """Returns the number of rows."""
        return len(self.topic)

    def chosen(self, *names: str) -> Flags:
        """Checks which rows have one of these reasons."""
        return np.isin(self.reason, [number for number, name in enumerate(self.reasons) if name in names])


class Members(NamedTuple):
    """A list of brokers in each row, flat: the row and the broker of each member."""

    row: Ints
    broker: Ints

    def without(self, other: Members) -> Members:
        """Returns the members that the same row of ``other`` has not."""
        stays = ~np.isin(self._keys(), other._keys())
        return Members(self.row[stays], self.broker[stays])

    def _keys(self) -> Ints:
        return self.row * np.int64(1 << 32) + self.broker


def history(table: pa.Table, terms: Terms) -> tuple[History, Terms]:
    """Makes arrays of a bucket; rows are sorted by (topic, partition, ctl_epoch, seq), other kinds are left out.

    Returns the terms, too: with those that only these rows show.
    """
    kinds = pa.array(sorted(kind.value for kind in PARTITION_KINDS))
    table = table.filter(pc.is_in(pc.cast(table["kind"], pa.string()), value_set=kinds)).combine_chunks()
    number = {name: _numbers(table, name) for name in ("ctl_epoch", "ctl_id", "seq", "ts_us", "mono_us")}
    terms = terms.joined(*number.values())
    term = terms.index(number["ctl_epoch"], number["ctl_id"])
    topics, topic = _coded(table, "topic")
    reasons, reason = _coded(table, "reason")
    partition = _numbers(table, "partition")
    starts = np.r_[True, (topic[1:] != topic[:-1]) | (partition[1:] != partition[:-1])][: len(topic)]
    decided = _first_known(_numbers(table, "t_decide"), _numbers(table, "t_committed"), number["mono_us"])
    detected = _numbers(table, "t_detect")
    noticed = (detected != NONE) & (detected <= decided)
    adding = _lengths(table, "adding", 0)
    return History(
        topics,
        reasons,
        topic,
        partition,
        starts,
        np.r_[starts[1:], True][: len(topic)],
        term,
        terms.wall(term, np.where(noticed, detected, decided)),
        terms.wall(term, decided),
        terms.wall(term, _first_known(_numbers(table, "t_committed"), number["mono_us"])),
        noticed,
        _numbers(table, "leader0"),
        _numbers(table, "leader1"),
        reason,
        np.asarray(pc.fill_null(table["unclean"], False), bool),
        _equal(table, "to_state", PartitionState.NON_EXISTENT.name) & _equal(table, "kind", Kind.PARTITION_STATE),
        _lengths(table, "isr0", -1),
        _lengths(table, "isr1", -1),
        _lengths(table, "replicas", 0) - adding,
        adding,
        (adding > 0) | (_lengths(table, "removing", 0) > 0),
        _heads(table, "replicas"),
        _members(table, "isr0"),
        _members(table, "isr1"),
    ), terms


def leads(leader: Ints) -> Flags:
    """Checks which of these are brokers, and not "none", "being deleted" or unknown."""
    return leader > NO_LEADER


def _numbers(table: pa.Table, name: str) -> Ints:
    return np.asarray(pc.fill_null(pc.cast(table[name], pa.int64()), NONE), np.int64)


def _first_known(*times: Ints) -> Ints:
    found = times[0]
    for more in times[1:]:
        found = np.where(found == NONE, more, found)
    return found


def _coded(table: pa.Table, name: str) -> tuple[list[str], Ints]:
    coded = _whole(pc.fill_null(pc.cast(table[name], pa.string()), "").combine_chunks().dictionary_encode())
    return coded.dictionary.to_pylist(), np.asarray(coded.indices, np.int64)


def _equal(table: pa.Table, name: str, value: str) -> Flags:
    return np.asarray(pc.fill_null(pc.equal(pc.cast(table[name], pa.string()), value), False), bool)


def _lengths(table: pa.Table, name: str, absent: int) -> Ints:
    return np.asarray(pc.fill_null(pc.list_value_length(table[name]), absent), np.int64)


def _members(table: pa.Table, name: str) -> Members:
    lists = _whole(table[name].combine_chunks())
    rows = np.asarray(pc.list_parent_indices(lists), np.int64)
    return Members(rows, np.asarray(pc.list_flatten(lists), np.int64))


def _heads(table: pa.Table, name: str) -> Ints:
    """Returns the first member of each list, or unknown."""
    members = _members(table, name)
    heads: Ints = np.full(len(table), NONE, np.int64)
    first = np.r_[True, members.row[1:] != members.row[:-1]][: len(members.row)]
    heads[members.row[first]] = members.broker[first]
    return heads


def _whole(array: Any) -> Any:
    """Returns the one chunk of an array; an empty one may have none."""
    if isinstance(array, pa.ChunkedArray):
        return array.chunk(0) if array.num_chunks else pa.array([], array.type)
    return array
