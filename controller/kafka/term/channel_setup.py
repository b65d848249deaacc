"""Makes the settings of the channels to brokers in a term."""

from __future__ import annotations

from brokers.outbound.delivery import ChannelSettings
from brokers.transport import PROTOCOLS
from brokers.wire.versions import Ibp
from configs.settings import Settings
from state_machines.model.types import Endpoint


def channel_settings(settings: Settings, epoch: int, ibp: Ibp, advertised: tuple[str, int]) -> ChannelSettings:
    """Builds the settings of a term's channels; requests name ``advertised`` as the controller's listener."""
    brokers = settings.brokers
    listeners = tuple(name for name in (brokers.control_plane_listener, brokers.inter_broker_listener) if name)
    host, port = advertised
    protocol = PROTOCOLS[settings.security.protocol]
    return ChannelSettings(
        controller_id=settings.controller.id,
        controller_epoch=epoch,
        ibp=ibp,
        listeners=listeners,
        own_endpoints=tuple(Endpoint(name, host, port, protocol) for name in listeners),
        security_protocol=protocol,
        connect_timeout_ms=brokers.connect_timeout_ms,
        request_timeout_ms=brokers.request_timeout_ms,
        retry_backoff_ms=brokers.retry_backoff_ms,
        retry_backoff_ms_max=brokers.retry_backoff_ms_max,
        seal_interval_ms=brokers.seal_interval_ms,
        snapshot_turn_partitions=brokers.snapshot_turn_partitions,
    )
