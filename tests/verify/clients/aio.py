"""Drives aiokafka."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import aiokafka
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError

from tests.verify.clients.calls import LAST
from tests.verify.clients.driver import ABSENT, Refused, checked, named, partition_text, shown

KINDS = {"topic": ConfigResourceType.TOPIC, "broker": ConfigResourceType.BROKER}


class Aiokafka:
    """Implements :class:`tests.verify.clients.driver.Driver`."""

    name = "aiokafka"
    version = aiokafka.__version__

    async def start(self, bootstrap: str, prefix: str) -> None:
        self._p = prefix
        self._admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await self._admin.start()

    async def close(self) -> None:
        await self._admin.close()

    async def call(self, operation: str, arguments: Mapping[str, Any]) -> str:
        asked = getattr(self, f"_{operation}", None)
        if asked is None:
            return ABSENT
        try:
            return str(await asked(**arguments))
        except KafkaError as error:
            number = getattr(error, "errno", None)
            raise Refused(named(number) if isinstance(number, int) else type(error).__name__) from error

    async def _create_topic(self, topic: str, validate_only: bool = False, **more: Any) -> str:
        given = dict(enumerate(more.get("assignment", ())))
        counts = (-1, -1) if given else (more.get("partitions", -1), more.get("factor", -1))
        new = NewTopic(self._p + topic, *counts, given or None, more.get("configs", {}))
        found = await self._admin.create_topics([new], validate_only=validate_only)
        return checked(found.topic_errors[0][1])

    async def _create_partitions(self, topic: str, total: int, validate_only: bool = False, **more: Any) -> str:
        new = NewPartitions(total, more.get("assignment"))
        found = await self._admin.create_partitions({self._p + topic: new}, validate_only=validate_only)
        return checked(found.topic_errors[0][1])

    async def _delete_topic(self, topic: str) -> str:
        found = await self._admin.delete_topics([self._p + topic])
        return checked(found.topic_error_codes[0][1])

    async def _list_topics(self) -> str:
        return shown(name.removeprefix(self._p) for name in await self._admin.list_topics() if self._mine(name))

    def _mine(self, name: str) -> bool:
        return name.startswith(self._p)

    async def _described(self, topic: str) -> Any:
        [found] = await self._admin.describe_topics([self._p + topic])
        checked(found["error_code"])
        return found["partitions"]

    async def _describe_topic(self, topic: str) -> str:
        return shown(
            partition_text(at["partition"], at["leader"], at["replicas"], at["isr"])
            for at in await self._described(topic)
        )

    async def _count_partitions(self, topic: str) -> str:
        return f"{len(await self._described(topic))} partitions"

    async def _resource(self, kind: str, name: str, configs: Any) -> ConfigResource:
        if name == LAST:
            name = str(max(node["node_id"] for node in (await self._admin.describe_cluster())["brokers"]))
        return ConfigResource(KINDS[kind], self._p + name if kind == "topic" else name, configs)

    async def _describe_configs(self, resources: list[list[str]], keys: list[str]) -> str:
        asked = [await self._resource(kind, name, None) for kind, name in resources]
        found = [one for answer in await self._admin.describe_configs(asked) for one in answer.resources]
        errors = [named(code) for code, *_ in found if code]
        return shown([f"{key[0]}={key[1]}" for one in found for key in one[4] if key[0] in keys] + errors)

    async def _alter_configs(self, kind: str, name: str, changes: dict[str, str]) -> str:
        found = await self._admin.alter_configs([await self._resource(kind, name, changes)])
        return shown(checked(code) for answer in found for code, *_ in answer.resources)

    async def _describe_cluster(self) -> str:
        found = await self._admin.describe_cluster()
        listed = {node["node_id"] for node in found["brokers"]}
        return (
            f"nodes {shown(listed)}, the controller is {'one of them' if found['controller_id'] in listed else 'not'}"
        )

    async def _list_offsets(self, group: str) -> str:
        found = await self._admin.list_consumer_group_offsets(self._p + group)
        return shown(f"{at.partition}:{offset.offset}" for at, offset in found.items())

    async def _list_groups(self) -> str:
        return shown(
            name.removeprefix(self._p) for name, *_ in await self._admin.list_consumer_groups() if self._mine(name)
        )

    async def _describe_group(self, group: str) -> str:
        [answer] = await self._admin.describe_consumer_groups([self._p + group])
        return str(answer.groups[0][2]).upper()

    async def _delete_records(self, topic: str, partition: int) -> str:
        found = await self._admin.delete_records({TopicPartition(self._p + topic, partition): RecordsToDelete(0)})
        return f"from {shown(found.values())} on"
