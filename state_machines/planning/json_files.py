"""Encodes and decodes JSON files within a bound: plans, and the reassignments and elections of Kafka's tools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

import msgspec

from state_machines.planning.goals import Target, TargetReplicas, listed
from state_machines.planning.plan import Move, Plan

T = TypeVar("T")

FILE_BYTES_MAX: Final = 64 * 2**20
"""Bytes of a file that is read or written: some 500,000 moves."""


class UnusableFile(ValueError):
    """The file is no plan that can be used; the text names the field, the value and the remedy."""


def decoded(data: bytes, decoder: msgspec.json.Decoder[T], bytes_max: int) -> T:
    """Decodes a file of at most ``bytes_max`` bytes; raises :class:`UnusableFile`."""
    check_size(data, bytes_max)
    if not data.strip():
        raise UnusableFile("the file is empty: write the plan again")
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise UnusableFile(f"the file is not as expected: {error}") from None


def check_size(data: bytes, bytes_max: int) -> None:
    """Raises :class:`UnusableFile` where a file has more than ``bytes_max`` bytes."""
    if len(data) > bytes_max:
        raise UnusableFile(f"the file has {len(data)} bytes, more than {bytes_max}: limit the plan to some topics")


VERSION: Final = 1
"""The only version of the format."""
ANY: Final = "any"
"""Log directory of a replica whose broker chooses it."""


class _Partition(msgspec.Struct):
    topic: str
    partition: int
    replicas: tuple[int, ...]
    log_dirs: tuple[str, ...] = ()


class _Reassignment(msgspec.Struct):
    version: int
    partitions: tuple[_Partition, ...]


class _Elected(msgspec.Struct):
    topic: str
    partition: int


class _Elections(msgspec.Struct):
    partitions: tuple[_Elected, ...]


_elections = msgspec.json.Decoder(_Elections)
_decoder = msgspec.json.Decoder(_Reassignment)
_encoder = msgspec.json.Encoder()


def decode_kafka(data: bytes, *, bytes_max: int = FILE_BYTES_MAX) -> Target:
    """Decodes a file of at most ``bytes_max`` bytes into a goal, whose values the planner checks.

    Raises :class:`UnusableFile`, also for log directories other than ``any``: plans move replicas between brokers.
    """
    found = decoded(data, _decoder, bytes_max)
    if found.version != VERSION:
        raise UnusableFile(f"version = {found.version}: give {VERSION}")
    for at, wanted in enumerate(found.partitions):
        given = f"partitions[{at}].log_dirs = [{listed(wanted.log_dirs)}] of {wanted.topic}-{wanted.partition}"
        if any(directory != ANY for directory in wanted.log_dirs):
            raise UnusableFile(f"{given}: plans choose no log directory; give {ANY!r} for each, or leave the field out")
        if wanted.log_dirs and len(wanted.log_dirs) != len(wanted.replicas):
            raise UnusableFile(f"{given}: give one for each of the {len(wanted.replicas)} replicas, or none")
    return Target(tuple(TargetReplicas(p.topic, p.partition, p.replicas) for p in found.partitions))


def decode_elections(data: bytes, *, bytes_max: int = FILE_BYTES_MAX) -> tuple[tuple[str, int], ...]:
    """Decodes the partitions of a file of ``kafka-leader-election``; raises :class:`UnusableFile`."""
    return tuple((one.topic, one.partition) for one in decoded(data, _elections, bytes_max).partitions)


def encode_kafka(
    moves: Sequence[Move], log_dirs: Sequence[Sequence[str]] | None = None, *, bytes_max: int = FILE_BYTES_MAX
) -> bytes:
    """Encodes the targets of moves for Kafka's tool; raises :class:`UnusableFile` above ``bytes_max``.

    ``log_dirs``: for each move the directories of its replicas, :data:`ANY` where the broker chooses.
    """
    partitions: list[dict[str, object]] = [
        {"topic": m.topic, "partition": m.partition, "replicas": m.target} for m in moves
    ]
    for partition, named in zip(partitions, log_dirs, strict=True) if log_dirs is not None else ():
        partition["log_dirs"] = named
    data = _encoder.encode({"version": VERSION, "partitions": partitions}) + b"\n"
    check_size(data, bytes_max)
    return data


class SavedPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A plan as its file holds it: the cluster that it is for, its goal in words, and its moves."""

    version: int
    cluster_id: str
    goal: str
    moves: tuple[Move, ...]


class _Head(msgspec.Struct):
    version: int


_head = msgspec.json.Decoder(_Head)
_plan_decoder = msgspec.json.Decoder(SavedPlan)


def encode_plan(plan: Plan, *, bytes_max: int = FILE_BYTES_MAX) -> bytes:
    """Encodes a plan's moves, without its refusals and summary; raises :class:`UnusableFile` above ``bytes_max``."""
    data = _encoder.encode(SavedPlan(VERSION, plan.cluster_id, plan.goal, plan.moves)) + b"\n"
    check_size(data, bytes_max)
    return data


def decode_plan(data: bytes, *, bytes_max: int = FILE_BYTES_MAX) -> SavedPlan:
    """Decodes a plan's file of at most ``bytes_max`` bytes; raises :class:`UnusableFile` where it is unusable.

    Whether it still fits the cluster is another question: see :func:`~state_machines.decisions.plan_checks.faults`.
    """
    version = decoded(data, _head, bytes_max).version
    if version > VERSION:
        raise UnusableFile(f"version = {version}: this program knows {VERSION}; upgrade it, or plan again with it")
    if version < 1:
        raise UnusableFile(f"version = {version}: give {VERSION}")
    saved = decoded(data, _plan_decoder, bytes_max)
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
