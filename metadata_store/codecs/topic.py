"""Encodes and decodes ``/brokers/topics/T`` (KIP-455, KIP-516) and ``/brokers/topics/T/partitions/P/state``.

Fields beyond the known ones are not kept, as in Kafka's ``TopicPartitionStateZNode``: brokers rewrite the whole
znode, too.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import Struct

from metadata_store.codecs.base import (
    BAD_DATA,
    Int32,
    MalformedNode,
    NonNegative,
    guarded,
    reason,
    require_version,
    split_unknown,
    strict,
    to_json,
)
from state_machines.model.types import Assignment, Leadership, TopicAssignment

VERSION: Final = 3
VERSIONS: Final = (1, 2, 3)
TOPIC_ID_CHARS: Final = 22
_ZERO_ID: Final = bytes(16)

Replicas = dict[NonNegative, tuple[NonNegative, ...]]


class _Topic(Struct, forbid_unknown_fields=True, gc=False):
    version: int
    partitions: Replicas
    adding_replicas: Replicas = {}
    removing_replicas: Replicas = {}
    topic_id: str | None = None


class _TopicWithMore(Struct, gc=False):
    version: int
    partitions: Replicas
    adding_replicas: Replicas = {}
    removing_replicas: Replicas = {}
    topic_id: str | None = None


_decode_known = strict(_Topic)
_decode_more = strict(_TopicWithMore)
_FIELDS: Final = _Topic.__struct_fields__
_NONE: Final[dict[str, object]] = {}


def topic_id_text(topic_id: bytes) -> str:
    """Formats the 16 bytes of a topic id as Kafka writes them: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(topic_id)[:TOPIC_ID_CHARS].decode()


def topic_id_bytes(text: str) -> bytes:
    """Returns the 16 bytes of a topic id; raises ValueError."""
    try:
        raw = base64.urlsafe_b64decode(text + "==")
    except ValueError:
        raw = b""
    if len(raw) != len(_ZERO_ID) or topic_id_text(raw) != text:
        raise ValueError(f"topic_id {text!r} is not {TOPIC_ID_CHARS} characters of URL-safe base64 for 16 bytes")
    return raw


class TopicDecoder:
    """Decodes topic znodes; equal plain replica sets become one :class:`Assignment`."""

    def __init__(self) -> None:
        self._plain: dict[tuple[int, ...], Assignment] = {}

    def decode(
        self, path: str, name: str, data: bytes | None, version: int, czxid: int
    ) -> TopicAssignment | MalformedNode:
        """Decodes a topic znode; ``version`` and ``czxid`` are of its stat."""
        return guarded(path, lambda: self._decode(name, data, version, czxid))

    def _decode(self, name: str, data: bytes | None, version: int, czxid: int) -> TopicAssignment:
        unknown = _NONE
        topic: _Topic | _TopicWithMore
        try:
            topic = _decode_known(data)
        except msgspec.ValidationError:
            topic, unknown = _decode_more(data or b""), split_unknown(data, _FIELDS)
        require_version(topic.version, VERSIONS)
        topic_id = topic_id_bytes(topic.topic_id) if topic.topic_id is not None else None
        partitions = self._assignments(topic)
        return TopicAssignment(name, None if topic_id == _ZERO_ID else topic_id, partitions, version, czxid, unknown)

    def _assignments(self, topic: _Topic | _TopicWithMore) -> dict[int, Assignment]:
        found: dict[int, Assignment] = {}
        adding, removing, plain = topic.adding_replicas, topic.removing_replicas, self._plain
        for partition, replicas in topic.partitions.items():
            shared = plain.get(replicas)
            if shared is None:
                shared = plain[replicas] = Assignment(_sound(partition, replicas))
            if adding or removing:
                added, removed = adding.get(partition, ()), removing.get(partition, ())
                if added or removed:
                    shared = Assignment(shared.replicas, added, removed)
            found[partition] = shared
        return found


def _sound(partition: int, replicas: tuple[int, ...]) -> tuple[int, ...]:
    if not replicas or len(set(replicas)) != len(replicas):
        raise ValueError(f"partition {partition} has the replicas {list(replicas)}: empty, or one twice")
    return replicas


def decode_topic(path: str, name: str, data: bytes | None, version: int, czxid: int) -> TopicAssignment | MalformedNode:
    """Decodes one topic znode."""
    return TopicDecoder().decode(path, name, data, version, czxid)


def encode_topic(
    partitions: Mapping[int, Assignment], topic_id: bytes | None, unknown: Mapping[str, object] | None = None
) -> bytes:
    """Encodes a topic znode in version 3; the id is left out where there is none (IBP below 2.8)."""
    fields: dict[str, Any] = {
        "version": VERSION,
        "partitions": {p: a.replicas for p, a in partitions.items()},
        "adding_replicas": {p: a.adding for p, a in partitions.items() if a.adding},
        "removing_replicas": {p: a.removing for p, a in partitions.items() if a.removing},
    }
    if topic_id is not None:
        fields["topic_id"] = topic_id_text(topic_id)
    return to_json(fields, unknown)


STATE_VERSION: Final = 1
RECOVERED: Final = 0
RECOVERING: Final = 1
ISR_TEXTS_MAX: Final = 65_536


class _State(Struct, gc=False):
    leader: Int32
    leader_epoch: NonNegative
    isr: tuple[NonNegative, ...]
    controller_epoch: NonNegative
    version: int
    leader_recovery_state: int = RECOVERED


_decode = msgspec.json.Decoder(_State).decode


def decode_state(data: bytes | None, version: int, path: str = "") -> Leadership | MalformedNode:
    """Decodes the leadership of a partition; ``version`` is the znode's (the partition epoch)."""
    try:
        state = _decode(data)  # type: ignore[arg-type]  # None raises TypeError
        if state.version != STATE_VERSION or state.leader_recovery_state not in (RECOVERED, RECOVERING):
            _refuse(state)
    except BAD_DATA as error:
        return MalformedNode(path, reason(error))
    recovering = state.leader_recovery_state == RECOVERING
    return Leadership(state.leader, state.leader_epoch, state.isr, state.controller_epoch, version, recovering)


def _refuse(state: _State) -> None:
    require_version(state.version, (STATE_VERSION,))
    raise ValueError(f"leader_recovery_state {state.leader_recovery_state} is neither 0 nor 1")


@lru_cache(ISR_TEXTS_MAX)
def _isr_text(isr: tuple[int, ...]) -> str:
    return ",".join(map(str, isr))


def encode_state(
    leader: int, leader_epoch: int, isr: tuple[int, ...], controller_epoch: int, recovering: bool = False
) -> bytes:
    """Encodes a leadership; ``leader_recovery_state`` only while recovering: brokers below IBP 3.2 do not know it."""
    more = ',"leader_recovery_state":1' if recovering else ""
    return (
        f'{{"version":1,"leader":{leader},"leader_epoch":{leader_epoch},"controller_epoch":{controller_epoch},'
        f'"isr":[{_isr_text(isr)}]{more}}}'
    ).encode()
