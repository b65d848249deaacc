"""Takes all requests that wait for brokers, in the order in which channels send them, one seal per broker."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from state_machines.model.cluster import leadership_of
from state_machines.model.types import PartitionRow
from state_machines.propagation.pending_requests import PendingRequests
from state_machines.propagation.propagation import Propagation
from state_machines.propagation.view import is_removed, is_sent
from tests.stories.brokers import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, Entry, Request, ids

EVERYTHING = sys.maxsize
EPOCH_DURING_DELETE = -2
RANKS = ["live list", LEADER_AND_ISR, UPDATE_METADATA, STOP_REPLICA]


class Sent(NamedTuple):
    """A request that was sent: ``round`` counts the seals and turns of its broker."""

    round: int
    broker: int
    request: Request


def post(propagation: Propagation) -> Iterator[Sent]:
    """Yields requests until none is pending: seals first, then the snapshot in one turn."""
    for broker, pending in sorted(propagation.pending.items()):
        turn = 0
        while propagation.behind(pending):
            if propagation.dirty(pending):
                yield from (Sent(turn, broker, request) for request in _seal(propagation, pending))
                turn += 1
            if pending.turn < pending.turn_end:
                yield from (Sent(turn, broker, request) for request in _turn(propagation, pending, broker))
                turn += 1


def _seal(propagation: Propagation, pending: PendingRequests) -> Iterator[Request]:
    """Yields the live list alone where LeaderAndIsr follows, LeaderAndIsr, metadata, StopReplica."""
    if pending.lead:
        yield from _live_list(propagation, pending)
    leads, stops = pending.take_lead(EVERYTHING), pending.take_stop(EVERYTHING)
    if leads:
        yield Request(LEADER_AND_ISR, {_name(propagation, i): _order(propagation, i, leads[i]) for i in leads})
    rows, reached = propagation.feed.since(pending.position, propagation.feed.number, EVERYTHING)
    sent = [i for i in rows if is_sent(propagation.view.rows[i]) or is_removed(propagation.view.rows[i])]
    if sent:
        yield _metadata(propagation, pending, sent)
    else:
        yield from _live_list(propagation, pending)
    pending.position = reached
    if stops:
        held = {i: propagation.view.rows[i] for i in stops}
        epochs = {i: EPOCH_DURING_DELETE if is_removed(row) else row.leader_epoch for i, row in held.items()}
        yield Request(STOP_REPLICA, {_name(propagation, i): Entry(epoch=epochs[i], delete=stops[i]) for i in stops})


def _turn(propagation: Propagation, pending: PendingRequests, broker: int) -> Iterator[Request]:
    view = propagation.view
    yield from _live_list(propagation, pending)
    sent = [i for i in range(pending.turn, pending.turn_end) if is_sent(view.rows[i])]
    led = [i for i in sent if broker in view.rows[i].assignment.replicas and not view.stopped(i, broker)]
    if led:
        yield Request(LEADER_AND_ISR, {_name(propagation, i): _order(propagation, i, False) for i in led})
    if sent:
        yield _metadata(propagation, pending, sent)
    pending.turn = pending.turn_end


def _live_list(propagation: Propagation, pending: PendingRequests) -> Iterator[Request]:
    if pending.live_version != propagation.live_version:
        yield _metadata(propagation, pending, [])


def _metadata(propagation: Propagation, pending: PendingRequests, rows: Iterable[int]) -> Request:
    pending.live_version = propagation.live_version
    entries = {}
    for i in rows:
        row = propagation.view.rows[i]
        held = leadership_of(row)
        assert held is not None, "a partition without a leadership is not sent"
        entry = Entry.metadata(held, row.assignment, propagation.view.offline_replicas(i))
        entries[_name(propagation, i)] = Entry.forgotten() if is_removed(row) else entry
    return Request(UPDATE_METADATA, entries, tuple(sorted(propagation.view.brokers)))


def _order(propagation: Propagation, i: int, is_new: bool) -> Entry:
    row: PartitionRow = propagation.view.rows[i]
    held = leadership_of(row)
    assert held is not None, "a partition without a leadership is not sent"
    return Entry.of(held, row.assignment, is_new=is_new)


def _name(propagation: Propagation, i: int) -> str:
    row = propagation.view.rows[i]
    return f"{propagation.view.topics[row.topic].name}-{row.partition}"


def lines(sent: Iterable[Sent]) -> list[str]:
    """Returns requests as stories show them: those that several brokers get alike are one line."""
    shown: dict[tuple[int, int, str], list[int]] = {}
    for turn, broker, request in sent:
        entries = "; ".join(f"{name} {_shown(request, entry)}" for name, entry in request.entries.items())
        text = f"{request.kind} {f'live {ids(request.live)}' if request.live_list_only else entries}"
        rank = 0 if request.live_list_only else RANKS.index(request.kind)
        shown.setdefault((turn, rank, text), []).append(broker)
    return [
        f"{ids(brokers)} <- {text}" for (_, _, text), brokers in sorted(shown.items(), key=lambda item: item[0][:2])
    ]


def _shown(request: Request, entry: Entry) -> str:
    return f"epoch {entry.epoch}{' delete' if entry.delete else ''}" if request.kind == STOP_REPLICA else str(entry)
