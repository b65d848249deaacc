"""Encodes and decodes ``/cluster/id`` and ``/latest_producer_id_block``."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from metadata_store.codecs.base import Int32, Malformed, guarded, require_version, strict, to_json

BLOCK_SIZE: Final = 1_000
"""Producer ids of a block (``ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE``)."""

_INT64_MAX: Final = 2**63 - 1


class ProducerIdBlock(Struct, frozen=True):
    """Producer ids ``start`` to ``end`` (both included) that ``broker`` may hand out."""

    broker: int
    start: int
    end: int


class _Block(Struct):
    version: int
    broker: Int32
    block_start: str
    block_end: str


class _ClusterId(Struct):
    id: str
    version: object = None


_decode_block = strict(_Block)
_decode_cluster_id = strict(_ClusterId)


def decode_producer_ids(path: str, data: bytes | None) -> ProducerIdBlock | Malformed | None:
    """Decodes the last allocated block; None where there was none yet (the znode holds NULL)."""
    return guarded(path, lambda: _block(data)) if data is not None else None


def _block(data: bytes) -> ProducerIdBlock:
    found = _decode_block(data)
    require_version(found.version, (1,))
    start, end = int(found.block_start), int(found.block_end)
    if not 0 <= start <= end <= _INT64_MAX:
        raise ValueError(f"the block {start} to {end} is no range of ids")
    return ProducerIdBlock(found.broker, start, end)


def encode_producer_ids(block: ProducerIdBlock) -> bytes:
    """Encodes the last allocated block."""
    fields = {"version": 1, "broker": block.broker, "block_start": str(block.start), "block_end": str(block.end)}
    return to_json(fields)


def decode_cluster_id(path: str, data: bytes | None) -> str | Malformed:
    """Decodes the id of the cluster."""
    return guarded(path, lambda: _cluster_id(data))


def _cluster_id(data: bytes | None) -> str:
    found = _decode_cluster_id(data)
    require_version(str(found.version), ("1",))
    return found.id


def encode_cluster_id(cluster_id: str) -> bytes:
    """Encodes the id of the cluster; the znode's version is a string."""
    return to_json({"version": "1", "id": cluster_id})
