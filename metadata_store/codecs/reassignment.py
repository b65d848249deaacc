"""Encodes and decodes ``/admin/reassign_partitions``: reassignments by tools up to Kafka 2.8, or by hand."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from metadata_store.codecs.base import Malformed, NonNegative, guarded, to_json
from metadata_store.codecs.entries import Unusable, each_alone
from state_machines.model.types import TopicPartition


class Reassignments(Struct, frozen=True):
    """Targets by partition; ``unknown`` holds further fields, ``unusable`` the entries that request nothing."""

    targets: dict[TopicPartition, tuple[int, ...]]
    unknown: dict[str, object] = {}
    unusable: Unusable = Unusable()


class _Target(Struct):
    topic: str
    partition: NonNegative
    replicas: tuple[NonNegative, ...]


def decode_reassignments(path: str, data: bytes | None) -> Reassignments | Malformed:
    """Decodes the requested targets; a partition named twice keeps its last target, as in Kafka."""
    return guarded(path, lambda: _reassignments(data))


def _reassignments(data: bytes | None) -> Reassignments:
    found = each_alone(data, _Target)
    targets = {TopicPartition(t.topic, t.partition): t.replicas for t in found.usable}
    return Reassignments(targets, found.unknown, found.unusable)


def encode_reassignments(
    targets: Mapping[TopicPartition, tuple[int, ...]], unknown: Mapping[str, object] | None = None
) -> bytes:
    """Encodes targets."""
    partitions = [{"topic": t, "partition": p, "replicas": replicas} for (t, p), replicas in targets.items()]
    return to_json({"version": 1, "partitions": partitions}, unknown)
