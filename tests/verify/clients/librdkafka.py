"""Drives confluent-kafka, which is librdkafka."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import confluent_kafka
from confluent_kafka import ConsumerGroupTopicPartitions, ElectionType, KafkaException, TopicCollection, TopicPartition
from confluent_kafka import admin as a

from tests.verify.clients.calls import LAST
from tests.verify.clients.driver import ABSENT, Refused, named, partition_text, shown

TIMEOUT_S = 40.0
KINDS = {"topic": a.ResourceType.TOPIC, "broker": a.ResourceType.BROKER}


class Librdkafka:
    """Implements :class:`tests.verify.clients.driver.Driver`."""

    name = "librdkafka (confluent-kafka)"
    version = confluent_kafka.__version__

    async def start(self, bootstrap: str, prefix: str) -> None:
        self._p = prefix
        self._admin = a.AdminClient({"bootstrap.servers": bootstrap, "socket.timeout.ms": 30_000})

    async def close(self) -> None:
        del self._admin

    async def call(self, operation: str, arguments: Mapping[str, Any]) -> str:
        try:
            return await asyncio.to_thread(getattr(self, f"_{operation}", _absent), **arguments)
        except KafkaException as error:
            found = error.args[0]
            raise Refused(named(found.code()) if found.code() > -100 else found.name()) from error

    def _create_topic(
        self, topic: str, partitions: int = -1, factor: int = -1, validate_only: bool = False, **more: Any
    ) -> str:
        given = {"replica_assignment": more["assignment"]} if "assignment" in more else {"replication_factor": factor}
        count = len(more["assignment"]) if "assignment" in more else partitions
        new = a.NewTopic(self._p + topic, num_partitions=count, config=more.get("configs", {}), **given)
        _one(self._admin.create_topics([new], validate_only=validate_only))
        return "done"

    def _create_partitions(self, topic: str, total: int, validate_only: bool = False, **more: Any) -> str:
        given = {"replica_assignment": more["assignment"]} if "assignment" in more else {}
        new = a.NewPartitions(self._p + topic, total, **given)
        _one(self._admin.create_partitions([new], validate_only=validate_only))
        return "done"

    def _delete_topic(self, topic: str) -> str:
        _one(self._admin.delete_topics([self._p + topic]))
        return "done"

    def _list_topics(self) -> str:
        found = self._admin.list_topics(timeout=TIMEOUT_S).topics
        return shown(name.removeprefix(self._p) for name in found if name.startswith(self._p))

    def _describe(self, topic: str) -> Any:
        return _one(self._admin.describe_topics(TopicCollection([self._p + topic])))

    def _describe_topic(self, topic: str) -> str:
        return shown(
            partition_text(
                at.id, at.leader.id if at.leader else -1, (n.id for n in at.replicas), (n.id for n in at.isr)
            )
            for at in self._describe(topic).partitions
        )

    def _count_partitions(self, topic: str) -> str:
        return f"{len(self._describe(topic).partitions)} partitions"

    def _node(self, name: str) -> str:
        return str(max(self._admin.list_topics(timeout=TIMEOUT_S).brokers)) if name == LAST else name

    def _resource(self, kind: str, name: str, **more: Any) -> Any:
        return a.ConfigResource(KINDS[kind], self._p + name if kind == "topic" else self._node(name), **more)

    def _describe_configs(self, resources: list[list[str]], keys: list[str]) -> str:
        asked = self._admin.describe_configs([self._resource(*named) for named in resources])
        found = [entry for future in asked.values() for entry in future.result(TIMEOUT_S).values()]
        return shown(f"{entry.name}={entry.value}" for entry in found if entry.name in keys)

    def _incremental_alter(
        self, kind: str, name: str, changes: dict[str, str | None], validate_only: bool = False
    ) -> str:
        entries = [
            a.ConfigEntry(
                key,
                value,
                incremental_operation=a.AlterConfigOpType.SET if value is not None else a.AlterConfigOpType.DELETE,
            )
            for key, value in changes.items()
        ]
        resource = self._resource(kind, name, incremental_configs=entries)
        _one(self._admin.incremental_alter_configs([resource], validate_only=validate_only))
        return "done"

    def _alter_configs(self, kind: str, name: str, changes: dict[str, str]) -> str:
        _one(self._admin.alter_configs([self._resource(kind, name, set_config=changes)]))
        return "done"

    def _elect(self, kind: str, topic: str = "", partitions: list[int] | None = None) -> str:
        wanted = None if partitions is None else [TopicPartition(self._p + topic, at) for at in partitions]
        how = ElectionType.PREFERRED if kind == "preferred" else ElectionType.UNCLEAN
        found = self._admin.elect_leaders(how, wanted).result(TIMEOUT_S)
        return shown(f"{at.partition}:{named(why.code()) if why else 'done'}" for at, why in found.items())

    def _describe_cluster(self) -> str:
        found = self._admin.describe_cluster().result(TIMEOUT_S)
        listed = {node.id for node in found.nodes}
        return f"nodes {shown(listed)}, the controller is {'one of them' if found.controller.id in listed else 'not'}"

    def _scram_set(self, user: str, iterations: int) -> str:
        info = a.ScramCredentialInfo(a.ScramMechanism.SCRAM_SHA_256, iterations)
        return self._scram(a.UserScramCredentialUpsertion(self._p + user, info, b"secret"))

    def _scram_delete(self, user: str) -> str:
        return self._scram(a.UserScramCredentialDeletion(self._p + user, a.ScramMechanism.SCRAM_SHA_256))

    def _scram(self, change: Any) -> str:
        _one(self._admin.alter_user_scram_credentials([change]))
        return "done"

    def _scram_describe(self, user: str) -> str:
        found = _one(self._admin.describe_user_scram_credentials([self._p + user]))
        return shown(f"{info.mechanism.name} {info.iterations}" for info in found.scram_credential_infos)

    def _acl(self, topic: str, user: str | None) -> tuple[Any, ...]:
        kinds = (a.ResourceType.TOPIC, self._p + topic, a.ResourcePatternType.LITERAL, user)
        whatever = user is None
        operation = a.AclOperation.ANY if whatever else a.AclOperation.READ
        permission = a.AclPermissionType.ANY if whatever else a.AclPermissionType.ALLOW
        return (*kinds, None if whatever else "*", operation, permission)

    def _acl_create(self, topic: str, user: str) -> str:
        _one(self._admin.create_acls([a.AclBinding(*self._acl(topic, user))]))
        return "done"

    def _acl_describe(self, topic: str) -> str:
        found = self._admin.describe_acls(a.AclBindingFilter(*self._acl(topic, None))).result(TIMEOUT_S)
        return shown(f"{one.principal} {one.operation.name}" for one in found)

    def _acl_delete(self, topic: str) -> str:
        return f"{len(_one(self._admin.delete_acls([a.AclBindingFilter(*self._acl(topic, None))])))} deleted"

    def _set_offsets(self, group: str, topic: str, partition: int) -> str:
        at = TopicPartition(self._p + topic, partition, 0)
        found = _one(self._admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(self._p + group, [at])]))
        return shown(named(one.error.code()) if one.error else "done" for one in found.topic_partitions)

    def _list_offsets(self, group: str) -> str:
        found = _one(self._admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(self._p + group)]))
        return shown(f"{one.partition}:{one.offset}" for one in found.topic_partitions)

    def _list_groups(self) -> str:
        found = self._admin.list_consumer_groups().result(TIMEOUT_S)
        errors = [named(error.args[0].code()) for error in found.errors]
        return shown([one.group_id.removeprefix(self._p) for one in found.valid if self._mine(one.group_id)] + errors)

    def _mine(self, name: str) -> bool:
        return name.startswith(self._p)

    def _describe_group(self, group: str) -> str:
        return str(_one(self._admin.describe_consumer_groups([self._p + group])).state.name)

    def _delete_group(self, group: str) -> str:
        _one(self._admin.delete_consumer_groups([self._p + group]))
        return "done"

    def _delete_records(self, topic: str, partition: int) -> str:
        found = _one(self._admin.delete_records([TopicPartition(self._p + topic, partition, 0)]))
        return f"from {found.low_watermark} on"


def _absent(**_: Any) -> str:
    return ABSENT


def _one(futures: Mapping[Any, Any]) -> Any:
    [future] = futures.values()
    return future.result(TIMEOUT_S)
