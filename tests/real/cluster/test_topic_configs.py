"""Responses to CreateTopics of Kafka's own controller and of the daemon, on the same brokers."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from metadata_store import paths
from metadata_store.codecs.config import encode_config
from metadata_store.codecs.notifications import encode_config_change
from tests.kit.admin_kit import KafkaClient
from tests.kit.admin_requests import CREATE_TOPICS
from tests.kit.polling import eventually
from tests.kit.wire_kit import part
from tests.real.cluster.endpoint import endpoint
from tests.real.cluster.world import World, world

VERSION = 7
PROPERTIES = {
    "log.retention.minutes": "77",
    "log.roll.hours": "5",
    "min.insync.replicas": "2",
    "log.cleanup.policy": "compact,delete",
    "log.cleaner.min.cleanable.ratio": "0.25",
    "log.message.timestamp.difference.max.ms": "123456789",
}
OWN = {"preallocate": " TRUE", "retention.bytes": "0100", "cleanup.policy": "delete , compact", "segment.ms": "9999"}


async def created(port: int, name: str, *, validate_only: bool = False) -> dict[str, Any]:
    """Creates one topic; returns its configuration in the response."""
    configs = tuple(
        part(CREATE_TOPICS, VERSION, "CreatableTopicConfig", name=key, value=value) for key, value in OWN.items()
    )
    counts: dict[str, Any] = {"num_partitions": 2, "replication_factor": 1, "assignments": ()}
    topic = part(CREATE_TOPICS, VERSION, "CreatableTopic", name=name, configs=configs, **counts)
    client = KafkaClient(*await asyncio.open_connection("127.0.0.1", port))
    fields = {"topics": (topic,), "timeout": timedelta(seconds=30), "validate_only": validate_only}
    [made] = (await client.call(CREATE_TOPICS, VERSION, **fields)).topics
    client.writer.close()
    assert (made.error_code, made.topic_config_error_code) == (0, 0), made
    shown = {c.name: (c.value, int(c.config_source), c.read_only, c.is_sensitive) for c in made.configs}
    return shown | {"partitions": made.num_partitions, "factor": made.replication_factor}


async def configured(w: World, **entries: str) -> None:
    """Changes the dynamic defaults of every broker."""
    await w.zk.create(paths.config("brokers", "<default>"), encode_config(entries))
    await w.zk.create(paths.CONFIG_CHANGE_PREFIX, encode_config_change("brokers/<default>"), sequential=True)


async def test_a_response_to_createtopics_has_the_same_configs_under_both_controllers() -> None:
    async with world(2, properties=PROPERTIES) as w:
        controller = w.cluster.brokers[await w.broker_controls()]
        before = await eventually(lambda: created(controller.client_port, "a"), 30.0)  # once it has seen both brokers
        assert before["retention.ms"] == ("4620000", 5, False, False)
        await configured(w, **{"log.segment.bytes": "1048576", "log.retention.ms": "7200000"})

        async def noticed() -> bool:
            shown = await created(controller.client_port, "never", validate_only=True)
            return bool(shown["retention.ms"][0] == "7200000")

        await eventually(noticed, 30.0)
        changed = await created(controller.client_port, "b", validate_only=True)
        daemon = w.daemon(flags=["--takeover"])
        await daemon.boot()
        async with endpoint(daemon) as at:
            assert await created(at.port, "c") == changed
            assert await created(at.port, "d", validate_only=True) == changed
        assert changed != before
        assert len(changed) > 30
