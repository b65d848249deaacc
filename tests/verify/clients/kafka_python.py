"""Drives kafka-python.

Two of its calls are left out: it sends AlterUserScramCredentials and UpdateFeatures to any node, and takes the answer
NOT_CONTROLLER for success, so that their outcome depends on the broker that it happens to choose.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import kafka
from kafka import TopicPartition
from kafka import admin as a
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

from tests.verify.clients.calls import LAST
from tests.verify.clients.driver import ABSENT, Refused, checked, named, partition_text, shown

KINDS = {"topic": a.ConfigResourceType.TOPIC, "broker": a.ConfigResourceType.BROKER}


class KafkaPython:
    """Implements :class:`tests.verify.clients.driver.Driver`."""

    name = "kafka-python"
    version = kafka.__version__

    async def start(self, bootstrap: str, prefix: str) -> None:
        self._p = prefix
        self._admin = await asyncio.to_thread(a.KafkaAdminClient, bootstrap_servers=bootstrap.split(","))

    async def close(self) -> None:
        await asyncio.to_thread(self._admin.close)

    async def call(self, operation: str, arguments: Mapping[str, Any]) -> str:
        try:
            return await asyncio.to_thread(getattr(self, f"_{operation}", _absent), **arguments)
        except KafkaError as error:
            raise Refused(_name(error)) from error

    def _create_topic(self, topic: str, validate_only: bool = False, **more: Any) -> str:
        options: dict[str, Any] = {"configs": more.get("configs", {})}
        if "assignment" in more:
            options["assignments"] = dict(enumerate(more["assignment"]))
        else:
            options |= {"num_partitions": more.get("partitions", -1), "replication_factor": more.get("factor", -1)}
        self._admin.create_topics({self._p + topic: options}, validate_only=validate_only)
        return "done"

    def _create_partitions(self, topic: str, total: int, validate_only: bool = False, **more: Any) -> str:
        wanted = {"count": total, "assignments": more["assignment"]} if "assignment" in more else total
        self._admin.create_partitions({self._p + topic: wanted}, validate_only=validate_only)
        return "done"

    def _delete_topic(self, topic: str) -> str:
        self._admin.delete_topics([self._p + topic])
        return "done"

    def _list_topics(self) -> str:
        found = self._admin.list_topics()
        return shown(name.removeprefix(self._p) for name in found if name.startswith(self._p))

    def _described(self, topic: str) -> Any:
        [found] = self._admin.describe_topics([self._p + topic])
        checked(found["error_code"])
        return found["partitions"]

    def _describe_topic(self, topic: str) -> str:
        return shown(
            partition_text(at["partition_index"], at["leader_id"], at["replica_nodes"], at["isr_nodes"])
            for at in self._described(topic)
        )

    def _count_partitions(self, topic: str) -> str:
        return f"{len(self._described(topic))} partitions"

    def _resource(self, kind: str, name: str, configs: Any) -> Any:
        if name == LAST:
            name = str(max(node["broker_id"] for node in self._admin.describe_cluster()["brokers"]))
        return a.ConfigResource(KINDS[kind], self._p + name if kind == "topic" else name, configs)

    def _describe_configs(self, resources: list[list[str]], keys: list[str]) -> str:
        asked = [self._resource(kind, name, None) for kind, name in resources]
        found = self._admin.describe_configs(asked, config_filter="all")
        entries = [item for kind in found.values() for entry in kind.values() for item in entry.items()]
        return shown(f"{key}={value['value']}" for key, value in entries if key in keys)

    def _incremental_alter(
        self, kind: str, name: str, changes: dict[str, str | None], validate_only: bool = False
    ) -> str:
        told = {key: ("SET", value) if value is not None else ("DELETE", None) for key, value in changes.items()}
        return self._altered(kind, name, told, validate_only=validate_only, incremental=True)

    def _alter_configs(self, kind: str, name: str, changes: dict[str, str]) -> str:
        return self._altered(kind, name, changes, incremental=False)

    def _altered(self, kind: str, name: str, changes: Any, **how: bool) -> str:
        found = self._admin.alter_configs([self._resource(kind, name, changes)], raise_on_unknown=False, **how)
        return shown(_first_word(text) for outcomes in found.values() for text in outcomes.values())

    def _elect(self, kind: str, topic: str = "", partitions: list[int] | None = None) -> str:
        wanted = None if partitions is None else {self._p + topic: partitions}
        found = self._admin.elect_leaders(int(kind != "preferred"), wanted, raise_errors=False)
        results = [topic for topic in found.replica_election_results if topic.topic.startswith(self._p)]
        return shown(f"{at.partition_id}:{named(at.error_code)}" for topic in results for at in topic.partition_result)

    def _reassign(self, topic: str, partition: int, replicas: list[int] | None) -> str:
        at = TopicPartition(self._p + topic, partition)
        found = self._admin.alter_partition_reassignments({at: replicas})
        return shown("done" if why is None else _name(why) for why in found.values())

    def _list_reassignments(self) -> str:
        found = self._admin.list_partition_reassignments()
        return shown(f"{at.partition}:{way['replicas']}" for at, way in found.items() if at.topic.startswith(self._p))

    def _describe_cluster(self) -> str:
        found = self._admin.describe_cluster()
        listed = {node["broker_id"] for node in found["brokers"]}
        return (
            f"nodes {shown(listed)}, the controller is {'one of them' if found['controller_id'] in listed else 'not'}"
        )

    def _log_dirs(self) -> str:
        return shown(
            f"{node['broker']}:{len(node['log_dirs'])}"
            + ("" if all(d.get("total_bytes", -1) >= 0 for d in node["log_dirs"]) else " of unknown size")
            for node in self._admin.describe_log_dirs()
        )

    def _features(self) -> str:
        return shown(self._admin.describe_features().get("finalized_features", ()))

    def _filter(self, topic: str) -> Any:
        pattern = a.ResourcePatternFilter(a.ResourceType.TOPIC, self._p + topic, a.ACLResourcePatternType.LITERAL)
        return a.ACLFilter(None, None, a.ACLOperation.ANY, a.ACLPermissionType.ANY, pattern)

    def _acl_create(self, topic: str, user: str) -> str:
        pattern = a.ResourcePattern(a.ResourceType.TOPIC, self._p + topic)
        made = self._admin.create_acls([a.ACL(user, "*", a.ACLOperation.READ, a.ACLPermissionType.ALLOW, pattern)])
        return "done" if not made["failed"] else shown(made["failed"])

    def _acl_describe(self, topic: str) -> str:
        found, error = self._admin.describe_acls(self._filter(topic))
        checked(error.errno)
        return shown(f"{one.principal} {one.operation.name}" for one in found)

    def _acl_delete(self, topic: str) -> str:
        [(_, found, error)] = self._admin.delete_acls([self._filter(topic)])
        checked(error.errno)
        return f"{len(found)} deleted"

    def _set_offsets(self, group: str, topic: str, partition: int) -> str:
        at = TopicPartition(self._p + topic, partition)
        found = self._admin.alter_group_offsets(self._p + group, {at: OffsetAndMetadata(0, "", -1)})
        return shown(checked(why.errno) for why in found.values())

    def _list_offsets(self, group: str) -> str:
        [found] = self._admin.list_group_offsets(self._p + group).values()
        return shown(f"{at.partition}:{offset.offset}" for at, offset in found.items())

    def _list_groups(self) -> str:
        found = [_group(one) for one in self._admin.list_groups()]
        return shown(name.removeprefix(self._p) for name in found if name.startswith(self._p))

    def _describe_group(self, group: str) -> str:
        [found] = self._admin.describe_groups([self._p + group]).values()
        return str(found["group_state"]).upper()

    def _delete_group(self, group: str) -> str:
        [(_, why)] = _pairs(self._admin.delete_groups([self._p + group]))
        return _outcome(why)

    def _delete_records(self, topic: str, partition: int) -> str:
        [found] = self._admin.delete_records({TopicPartition(self._p + topic, partition): 0}).values()
        return f"from {found['low_watermark']} on"


def _absent(**_: Any) -> str:
    return ABSENT


def _name(error: Any) -> str:
    """Returns the name of an error or its class; the client's own have no number."""
    number = getattr(error, "errno", None)
    kind = error if isinstance(error, type) else type(error)
    return named(number) if isinstance(number, int) else kind.__name__


def _first_word(outcome: Any) -> str:
    """Returns ``OK``, or the name of the error in ``[Error 40] InvalidConfigurationError: why``."""
    text = str(outcome)
    return "done" if text == "OK" else text.partition(":")[0].partition("] ")[2]


def _group(listed: Any) -> str:
    return str(listed["group_id"] if isinstance(listed, dict) else listed[0])


def _pairs(found: Any) -> list[Any]:
    return list(found.items()) if isinstance(found, dict) else list(found)


def _outcome(why: Any) -> str:
    number = getattr(why, "errno", None)
    return "done" if why in (None, "OK") or number == 0 else _name(why) if number is not None else str(why)
