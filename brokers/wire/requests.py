"""Frames LeaderAndIsr, UpdateMetadata and StopReplica: headers apart from bodies, which all brokers share.

``isKRaftController`` is always false (on true a broker responds with an unknown error). The type of LeaderAndIsr is
always 0, as from every controller in ZooKeeper mode. ``LiveLeaders`` stays empty: brokers take addresses from
UpdateMetadata. Request header v2 (flexible) needs no ApiVersions handshake; Kafka's controller sends none, either.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final

from brokers.wire.primitives import (
    EMPTY_ARRAY,
    NO_TAGS,
    compact_nullable_string,
    compact_string,
    legacy_string,
    varint,
)
from brokers.wire.versions import Api, Ibp
from state_machines.model.types import Broker

EMPTY_BODY: Final = EMPTY_ARRAY
"""A body without topics: that of an UpdateMetadata with the live list alone."""

_LENGTH = Struct(">i").pack
_HEADER = Struct(">hhi").pack
_PORT = Struct(">i").pack
_ID = Struct(">i").pack
_PROTOCOL = Struct(">h").pack


def request_header(api: int, version: int, correlation: int, client: bytes) -> bytes:
    """Returns request header v2; ``client`` is the client id as a string with its 16-bit length."""
    return _HEADER(api, version, correlation) + client + NO_TAGS


class Requests:
    """Makes the frames of one controller term at one IBP. Each is a list of parts to write one after the other."""

    def __init__(self, ibp: Ibp, controller_id: int, controller_epoch: int) -> None:
        self.versions = {
            Api.LEADER_AND_ISR: ibp.leader_and_isr_version,
            Api.UPDATE_METADATA: ibp.update_metadata_version,
            Api.STOP_REPLICA: ibp.stop_replica_version,
        }
        self._kraft = ibp.update_metadata_version >= 8
        self._typed = ibp.leader_and_isr_version >= 5
        self._controller = controller_id, controller_epoch
        self._client = legacy_string(str(controller_id))
        self._fields = Struct(">i?iq" if self._kraft else ">iiq").pack

    def leader_and_isr(self, correlation: int, broker_epoch: int, body: bytes) -> list[bytes]:
        """Returns LeaderAndIsr v4 to v7."""
        kind = b"\0" if self._typed else b""
        return self._frame(Api.LEADER_AND_ISR, correlation, broker_epoch, kind, body, EMPTY_ARRAY + NO_TAGS)

    def update_metadata(self, correlation: int, broker_epoch: int, body: bytes, live: bytes) -> list[bytes]:
        """Returns UpdateMetadata v6 to v8; ``live`` is the whole live list, which replaces the broker's one."""
        return self._frame(Api.UPDATE_METADATA, correlation, broker_epoch, b"", body, live + NO_TAGS)

    def stop_replica(self, correlation: int, broker_epoch: int, body: bytes) -> list[bytes]:
        """Returns StopReplica v3 and v4."""
        return self._frame(Api.STOP_REPLICA, correlation, broker_epoch, b"", body, NO_TAGS)

    def _frame(
        self, api: Api, correlation: int, broker_epoch: int, kind: bytes, body: bytes, rest: bytes
    ) -> list[bytes]:
        head = request_header(api, self.versions[api], correlation, self._client)
        controller_id, epoch = self._controller
        identity = (controller_id, False, epoch) if self._kraft else (controller_id, epoch)
        head += self._fields(*identity, broker_epoch) + kind
        return [_LENGTH(len(head) + len(body) + len(rest)) + head, body, rest]


def live_list(brokers: Iterable[Broker]) -> bytes:
    """Encodes the live brokers with all their endpoints, as in UpdateMetadata v6 to v8."""
    entries = [_live_broker(broker) for broker in brokers]
    return varint(len(entries) + 1) + b"".join(entries)


def _live_broker(broker: Broker) -> bytes:
    endpoints = [
        _PORT(e.port) + compact_string(e.host) + compact_string(e.listener) + _PROTOCOL(e.security_protocol) + NO_TAGS
        for e in broker.endpoints
    ]
    count = varint(len(endpoints) + 1)
    return _ID(broker.id) + count + b"".join(endpoints) + compact_nullable_string(broker.rack) + NO_TAGS
