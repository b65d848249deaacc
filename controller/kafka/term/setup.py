"""Makes the parts of a term from the settings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from brokers.outbound.delivery import ChannelSettings
from brokers.queries import Dial
from brokers.security.shared_secret import Seals
from brokers.transport import PROTOCOLS
from brokers.wire.versions import Ibp
from configs.sections import ControllerSettings
from configs.settings import Settings
from controller.kafka.access import authorizer_of
from controller.kafka.brokers.broker_change import ShownEndpoint
from controller.kafka.brokers.broker_settings import Newcomers
from controller.kafka.partitions.elections import AutoBalance
from controller.kafka.path.controller import Controller
from controller.kafka.term.dispatch import Parts
from controller.kafka.topics.configurations import DefaultConfigs
from controller.kafka.topics.topic_policy import TopicPolicy
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


def parts_of(
    c: Controller, settings: ControllerSettings, dial: Dial | None, seals: Callable[[], Awaitable[Seals | None]]
) -> Parts:
    """Builds what handlers get. ``seals``: returns those of the daemon's secret."""
    policed = settings.create_topic_policy is not None
    return Parts(
        c,
        authorizer_of(settings),
        ShownEndpoint(c, settings.id, seals),
        AutoBalance(c, settings.leader_rebalance_moves_per_minute),
        TopicPolicy(settings, c.adoption.policy_class) if policed else None,
        DefaultConfigs(c.cluster, dial, c.ibp),
        Newcomers(c, dial).registered,
    )
