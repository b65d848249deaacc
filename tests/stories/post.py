"""What leaves an audience's outboxes, in the order in which channels send it, one seal per broker."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from state_machines.model.cluster import leadership_of
from state_machines.model.types import PartitionRow
from state_machines.propagation.propagation import Audience, Outbox, is_forgotten, is_told
from tests.stories.brokers import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, Entry, Request, ids

EVERYTHING = sys.maxsize
EPOCH_DURING_DELETE = -2
RANKS = ["live list", LEADER_AND_ISR, UPDATE_METADATA, STOP_REPLICA]


class Sent(NamedTuple):
    """A request that left: ``round`` counts the seals and turns of its broker."""

    round: int
    broker: int
    request: Request


def post(audience: Audience) -> Iterator[Sent]:
    """All requests until every outbox is empty: seals first, then the snapshot in one turn."""
    for broker, outbox in sorted(audience.outboxes.items()):
        turn = 0
        while audience.behind(outbox):
            if audience.dirty(outbox):
                yield from (Sent(turn, broker, request) for request in _seal(audience, outbox))
                turn += 1
            if outbox.turn < outbox.turn_end:
                yield from (Sent(turn, broker, request) for request in _turn(audience, outbox, broker))
                turn += 1


def _seal(audience: Audience, outbox: Outbox) -> Iterator[Request]:
    """The live list alone where LeaderAndIsr follows, LeaderAndIsr, metadata, StopReplica."""
    if outbox.lead:
        yield from _live_list(audience, outbox)
    leads, stops = outbox.take_lead(EVERYTHING), outbox.take_stop(EVERYTHING)
    if leads:
        yield Request(LEADER_AND_ISR, {_name(audience, i): _order(audience, i, leads[i]) for i in leads})
    rows, reached = audience.feed.since(outbox.position, audience.feed.number, EVERYTHING)
    told = [i for i in rows if is_told(audience.view.rows[i]) or is_forgotten(audience.view.rows[i])]
    if told:
        yield _metadata(audience, outbox, told)
    else:
        yield from _live_list(audience, outbox)
    outbox.position = reached
    if stops:
        held = {i: audience.view.rows[i] for i in stops}
        epochs = {i: EPOCH_DURING_DELETE if is_forgotten(row) else row.leader_epoch for i, row in held.items()}
        yield Request(STOP_REPLICA, {_name(audience, i): Entry(epoch=epochs[i], delete=stops[i]) for i in stops})


def _turn(audience: Audience, outbox: Outbox, broker: int) -> Iterator[Request]:
    view = audience.view
    yield from _live_list(audience, outbox)
    told = [i for i in range(outbox.turn, outbox.turn_end) if is_told(view.rows[i])]
    led = [i for i in told if broker in view.rows[i].assignment.replicas and not view.stopped(i, broker)]
    if led:
        yield Request(LEADER_AND_ISR, {_name(audience, i): _order(audience, i, False) for i in led})
    if told:
        yield _metadata(audience, outbox, told)
    outbox.turn = outbox.turn_end


def _live_list(audience: Audience, outbox: Outbox) -> Iterator[Request]:
    if outbox.live_version != audience.live_version:
        yield _metadata(audience, outbox, [])


def _metadata(audience: Audience, outbox: Outbox, rows: Iterable[int]) -> Request:
    outbox.live_version = audience.live_version
    entries = {}
    for i in rows:
        row = audience.view.rows[i]
        held = leadership_of(row)
        assert held is not None, "a partition without a leadership is told to nobody"
        told = Entry.told(held, row.assignment, audience.view.offline_replicas(i))
        entries[_name(audience, i)] = Entry.forgotten() if is_forgotten(row) else told
    return Request(UPDATE_METADATA, entries, tuple(sorted(audience.view.brokers)))


def _order(audience: Audience, i: int, is_new: bool) -> Entry:
    row: PartitionRow = audience.view.rows[i]
    held = leadership_of(row)
    assert held is not None, "a partition without a leadership is told to nobody"
    return Entry.of(held, row.assignment, is_new=is_new)


def _name(audience: Audience, i: int) -> str:
    row = audience.view.rows[i]
    return f"{audience.view.topics[row.topic].name}-{row.partition}"


def lines(sent: Iterable[Sent]) -> list[str]:
    """Requests as the stories show them: what several brokers get alike stands on one line."""
    shown: dict[tuple[int, int, str], list[int]] = {}
    for turn, broker, request in sent:
        entries = "; ".join(f"{name} {_said(request, entry)}" for name, entry in request.entries.items())
        text = f"{request.kind} {f'live {ids(request.live)}' if request.live_list_only else entries}"
        rank = 0 if request.live_list_only else RANKS.index(request.kind)
        shown.setdefault((turn, rank, text), []).append(broker)
    return [
        f"{ids(brokers)} <- {text}" for (_, _, text), brokers in sorted(shown.items(), key=lambda item: item[0][:2])
    ]


def _said(request: Request, entry: Entry) -> str:
    return f"epoch {entry.epoch}{' delete' if entry.delete else ''}" if request.kind == STOP_REPLICA else str(entry)
