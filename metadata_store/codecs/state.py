"""Encodes and decodes ``/brokers/topics/T/partitions/P/state``; a failover decodes one per partition.

Fields beyond the known ones are not kept, as in Kafka's ``TopicPartitionStateZNode``: brokers rewrite the whole
znode, too.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import msgspec
from msgspec import Struct

from metadata_store.codecs.base import BAD_DATA, Int32, Malformed, NonNegative, reason, require_version
from state_machines.model.types import Leadership

VERSION: Final = 1
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


def decode_state(data: bytes | None, version: int, path: str = "") -> Leadership | Malformed:
    """Decodes the leadership of a partition; ``version`` is the znode's (the partition epoch)."""
    try:
        state = _decode(data)  # type: ignore[arg-type]  # None raises TypeError
        if state.version != VERSION or state.leader_recovery_state not in (RECOVERED, RECOVERING):
            _refuse(state)
    except BAD_DATA as error:
        return Malformed(path, reason(error))
    recovering = state.leader_recovery_state == RECOVERING
    return Leadership(state.leader, state.leader_epoch, state.isr, state.controller_epoch, version, recovering)


def _refuse(state: _State) -> None:
    require_version(state.version, (VERSION,))
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
