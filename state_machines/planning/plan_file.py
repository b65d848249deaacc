"""Encodes and decodes the file of a plan, and compares a plan with the cluster as it is by then."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from state_machines.planning.cluster_view import ClusterView
from state_machines.planning.goals import listed
from state_machines.planning.json_file import FILE_BYTES_MAX, UnusableFile, check_size, decoded
from state_machines.planning.plan import Move, Plan
from state_machines.planning.targets import below_min_isr

VERSION: Final = 1
"""Version of the format. A reader refuses newer files."""


class SavedPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A plan as its file holds it: the cluster that it is for, its goal in words, and its moves."""

    version: int
    cluster_id: str
    goal: str
    moves: tuple[Move, ...]


class _Head(msgspec.Struct):
    version: int


_head = msgspec.json.Decoder(_Head)
_decoder = msgspec.json.Decoder(SavedPlan)
_encoder = msgspec.json.Encoder()


def encode_plan(plan: Plan, *, bytes_max: int = FILE_BYTES_MAX) -> bytes:
    """Encodes a plan's moves, without its refusals and summary; raises :class:`UnusableFile` above ``bytes_max``."""
    data = _encoder.encode(SavedPlan(VERSION, plan.cluster_id, plan.goal, plan.moves)) + b"\n"
    check_size(data, bytes_max)
    return data


def decode_plan(data: bytes, *, bytes_max: int = FILE_BYTES_MAX) -> SavedPlan:
    """Decodes a plan's file of at most ``bytes_max`` bytes; raises :class:`UnusableFile` where it is unusable.

    Whether it still fits the cluster is another question: see :func:`difference`.
    """
    version = decoded(data, _head, bytes_max).version
    if version > VERSION:
        raise UnusableFile(f"version = {version}: this program knows {VERSION}; upgrade it, or plan again with it")
    if version < 1:
        raise UnusableFile(f"version = {version}: give {VERSION}")
    saved = decoded(data, _decoder, bytes_max)
    seen: set[tuple[str, int]] = set()
    for at, move in enumerate(saved.moves):
        if (move.topic, move.partition) in seen:
            raise UnusableFile(f"moves[{at}]: {move.name} has a move already; keep one of them")
        seen.add((move.topic, move.partition))
        _check_move(at, move)
    return saved


def _check_move(at: int, move: Move) -> None:
    for field, replicas in (("origin", move.origin), ("target", move.target)):
        given = f"moves[{at}].{field} = [{listed(replicas)}] of {move.name}"
        if not replicas:
            raise UnusableFile(f"{given}: name at least one broker")
        if len(set(replicas)) != len(replicas):
            raise UnusableFile(f"{given}: name each broker once")
    if move.origin == move.target:
        raise UnusableFile(f"moves[{at}].target = [{listed(move.target)}] of {move.name} is its origin: leave it out")


def difference(saved: SavedPlan, view: ClusterView) -> tuple[str, ...]:
    """Returns what of the cluster has changed since a plan was made, in sentences; empty where the plan still fits.

    Looks at the plan's own partitions and brokers: changes elsewhere leave it as it is. There is at most one sentence
    for each move and for each broker that gets a replica; for another cluster there is one in all.
    """
    if saved.cluster_id != view.cluster_id:
        return (f"The plan is for cluster {saved.cluster_id!r}, and this is {view.cluster_id!r}: plan again here.",)
    found = [f"{move.name}: {change}." for move in saved.moves for change in _partition_changes(move, view)]
    added = sorted({broker for move in saved.moves for broker in move.added})
    return (*found, *(f"The plan adds replicas, but {why}." for b in added if (why := view.why_no_host(b)) is not None))


def _partition_changes(move: Move, view: ClusterView) -> Iterator[str]:
    row = view.find(move.topic, move.partition)
    if row is None:
        yield "it does not exist any more"
        return
    assignment = view.assignments[row]
    if move.topic in view.deleting:
        yield "its topic is being deleted"
    elif assignment.moving:
        yield f"it is being reassigned to [{listed(assignment.target)}]"
    elif assignment.replicas != move.origin:
        yield f"its replicas were [{listed(move.origin)}] and are [{listed(assignment.replicas)}]"
    elif not any(map(view.is_live, move.origin)):
        yield f"none of its replicas [{listed(move.origin)}] is live any more"
    elif (why := below_min_isr(view, move.topic, move.origin, move.target)) is not None:
        yield why
