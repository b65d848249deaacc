"""Configurations of topics as Kafka's own controller and regent read them, on the same brokers."""

from __future__ import annotations

import asyncio
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from metadata_store import paths
from metadata_store.codecs.cluster import encode_config
from metadata_store.codecs.notifications import encode_config_change
from state_machines.admin_rules.topic_configs import TOPIC_CONFIGS, unparsable
from testing.embedded.java import find_java
from testing.embedded.jvm import java_command
from tests.kit.admin import CREATE_TOPICS, KafkaClient
from tests.kit.cluster.endpoint import endpoint
from tests.kit.cluster.world import ClusterWorld, world
from tests.kit.deadlines import eventually
from tests.kit.wire import part

SOURCE = Path(__file__).with_name("LogConfigs.java")
WORDS = "true TRUE false yes null none abc compact delete compact,delete compact, gzip GZIP producer CreateTime"
NUMBERS = (
    "-131072 -3 -2 -1 0 1 2 4 9 13 14 18 22 0.5 1.5 +5 1e3 0.5f 2147483648 9223372036854775807 9223372036854775808"
)
VERSIONS = "3.0 3.0-IV1 3.0-IV2 2.7-IV2 3.9.1 9.9 1.5 0.8.2 0.8.2-IV0 0.10.2-IV0 0.10 3.7-IV4 3.7-IV5 4.0-IV1 03.0"
LISTS = "* *,* 0:1 0:1,2:3 0:1, 0:-1 a:b"
VALUES = ["", " 7 ", " True ", "delete, compact", *f"{WORDS} {NUMBERS} {VERSIONS} {LISTS}".split(" ")]


@pytest.mark.seed("S4-82")
def test_a_value_is_parsed_where_kafkas_controller_parses_it() -> None:
    if not Path(find_java().path).resolve().with_name("javac").exists():
        pytest.skip("this Java has no compiler")
    entries = [(name, value) for name in [*TOPIC_CONFIGS, "no.such.key"] for value in VALUES]
    lines = "".join(f"{name}\t{value}\n" for name, value in entries)
    command = java_command([], str(SOURCE))
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=True, timeout=120)
    by_kafka = dict(zip(entries, done.stdout.split(), strict=True))
    differ = [
        (name, value, by_kafka[name, value])
        for name, value in entries
        if (unparsable({name: value}) is None) != (by_kafka[name, value] == "true")
    ]
    assert differ == []


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


async def configured(w: ClusterWorld, **entries: str) -> None:
    """Changes the dynamic defaults of every broker."""
    await w.zk.create(paths.config("brokers", "<default>"), encode_config(entries))
    await w.zk.create(paths.CONFIG_CHANGE_PREFIX, encode_config_change("brokers/<default>"), sequential=True)


async def test_a_response_to_createtopics_has_the_same_configs_under_both_controllers() -> None:
    async with world(2, properties=PROPERTIES) as w:
        controller = w.cluster.brokers[await w.broker_controls()]
        before = await eventually(lambda: created(controller.client_port, "a"))  # once it has seen both brokers
        assert before["retention.ms"] == ("4620000", 5, False, False)
        await configured(w, **{"log.segment.bytes": "1048576", "log.retention.ms": "7200000"})

        async def noticed() -> bool:
            shown = await created(controller.client_port, "never", validate_only=True)
            return bool(shown["retention.ms"][0] == "7200000")

        await eventually(noticed)
        changed = await created(controller.client_port, "b", validate_only=True)
        daemon = w.daemon(flags=["--takeover"])
        await daemon.boot()
        async with endpoint(daemon) as at:
            assert await created(at.port, "c") == changed
            assert await created(at.port, "d", validate_only=True) == changed
        assert changed != before
        assert len(changed) > 30
