"""Encodes and decodes the file of a plan."""

from __future__ import annotations

from typing import Final

import msgspec

from state_machines.planning.goals import listed
from state_machines.planning.json_files import FILE_BYTES_MAX, UnusableFile, check_size, decoded
from state_machines.planning.plan import Move, Plan

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

    Whether it still fits the cluster is another question: see :func:`~state_machines.decisions.plan_faults.faults`.
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
