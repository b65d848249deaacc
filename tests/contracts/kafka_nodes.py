"""Contract of the store: bulk reads, and the znodes that are read and written one by one."""

from __future__ import annotations

import pytest

from metadata_store import paths
from metadata_store.acl import digest_acl
from metadata_store.codecs.base import MalformedNode
from metadata_store.codecs.cluster import (
    DEFAULT_ENTITY,
    Config,
    FeatureRange,
    Features,
    ProducerIdBlock,
    decode_producer_ids,
    encode_broker,
    encode_cluster_id,
    encode_config,
    encode_features,
)
from metadata_store.codecs.controller import ControllerZnode, encode_controller
from metadata_store.codecs.notifications import Partitions, encode_log_dir_event, encode_partitions
from metadata_store.codecs.topic import encode_topic
from metadata_store.errors import Code, OutcomeUnknown, ZkError
from metadata_store.kafka_store import KafkaStore
from metadata_store.nodes.cluster_nodes import (
    Found,
    allocate_producer_ids,
    delete_as_read,
    delete_children,
    delete_fresh_topic,
    ensure_top_level_paths,
    read_cluster_id,
    read_controller,
    read_epoch,
    read_features,
    read_preferred_election,
    set_up_features,
)
from metadata_store.nodes.reassignment_node import (
    Request,
    encode_reassignments,
    read_reassignments,
    write_reassignments,
)
from metadata_store.port import ANY_VERSION
from metadata_store.reads import read_broker_configs, read_broker_default, read_isr_changes, read_log_dir_events
from state_machines.model.types import Assignment, Broker, Endpoint, Leadership, TopicAssignment, TopicPartition
from testing.znodes import create_topic
from tests.contracts.kafka_support import ASSIGNMENT, kafka
from tests.contracts.support import Backend, NthWrite, refused, session

ENDPOINT = Endpoint("INTERNAL", "127.0.0.1", 9092)


class LoadContract:
    """Everything that a failover reads; one bad znode never stops the rest."""

    async def test_usable_registrations_are_read_and_the_others_named(self, backend: Backend) -> None:
        async with kafka(backend) as k:
            epochs = {}
            for broker in (3, 1):
                data = encode_broker(Broker(broker, 0, (ENDPOINT,), "r1"), timestamp_ms=1)
                epochs[broker] = (await k.zk.create(paths.broker(broker), data, ephemeral=True)).stat.czxid
            await k.zk.create(paths.broker(2), b"{")
            await k.zk.create(f"{paths.BROKER_IDS}/x", b"{}")
            found = await k.store.load_brokers()
            assert found.brokers == {b: Broker(b, epochs[b], (ENDPOINT,), "r1", 0) for b in (1, 3)}
            assert [bad.path for bad in found.malformed] == ["/brokers/ids/2", "/brokers/ids/x"]

    async def test_topics_are_read_by_name_or_all(self, backend: Backend) -> None:
        async with kafka(backend) as k:
            made = await k.zk.create(paths.topic("b"), encode_topic({0: ASSIGNMENT}, bytes(range(16)), {"x": 1}))
            await k.zk.create(paths.topic("a"), b"not json")
            found = await k.store.load_topics()
            topic = TopicAssignment("b", bytes(range(16)), {0: ASSIGNMENT}, 0, made.stat.czxid, {"x": 1})
            assert [type(f) for f in found] == [MalformedNode, TopicAssignment]
            assert found[1] == topic
            bad, absent, again = await k.store.load_topics(["a", "none", "b"])
            assert isinstance(bad, MalformedNode)
            assert (bad.path, absent, again) == ("/brokers/topics/a", None, topic)

    async def test_states_are_read_in_order_though_some_are_unusable(self, backend: Backend) -> None:
        async with kafka(backend, credentials="me:secret") as k, session(backend) as stranger:
            await k.make_topics(30)
            await k.set_raw(1, b'{"version":2,"leader":1,"leader_epoch":0,"controller_epoch":1,"isr":[1]}')
            await k.set_raw(2, b"")
            await k.zk.delete(k.path(3), 0)
            await k.zk.set_acls(k.path(4), [digest_acl("me", "secret")], 0)
            wanted = [k.name(row) for row in range(30)]
            await stranger.zk.sync()
            found = await KafkaStore(stranger.zk).load_states(wanted)
            assert found[3] is None
            bad = {row: state for row, state in enumerate(found) if isinstance(state, MalformedNode)}
            assert [state.path for state in bad.values()] == [k.path(row) for row in (1, 2, 4)]
            assert "NO_AUTH" in bad[4].why
            assert [row for row, state in enumerate(found) if state == Leadership(1, 0, (1, 2, 3), 1, 0)] == [
                0,
                *range(5, 30),
            ]

    @pytest.mark.kafka("KafkaZkClientTest.testIsrChangeNotificationsDeletion")
    @pytest.mark.seed("S4-80")
    async def test_isr_notifications_are_read_and_deleted(self, backend: Backend) -> None:
        async with kafka(backend) as k:
            prefix = f"{paths.ISR_CHANGES}/isr_change_"
            named = [TopicPartition("t", 0), TopicPartition("u", 3)]
            first = await k.zk.create(prefix, encode_partitions(named), sequential=True)
            second = await k.zk.create(prefix, b"{}", sequential=True)
            names = [created.path.rpartition("/")[2] for created in (first, second)]
            good, bad = await read_isr_changes(k.zk, [*names, "isr_change_gone"])
            assert good == Partitions(named)
            assert isinstance(bad, MalformedNode)
            await k.zk.set(second.path, b"{", 0)
            await delete_children(k.zk, [first.path, second.path, f"{prefix}gone"], k.fence)
            assert await k.s.names(paths.ISR_CHANGES) == []

    @pytest.mark.seed("S4-61")
    async def test_the_znode_of_reassignments_is_read_and_shrinks_until_it_is_deleted(self, backend: Backend) -> None:
        async with kafka(backend) as k:
            path, asked = paths.REASSIGN_PARTITIONS, {TopicPartition("t", p): (p + 1, p + 2) for p in range(3)}
            assert await read_reassignments(k.zk) is None
            await k.zk.create(path, encode_reassignments(asked, {"vendor": 1}))
            found = await read_reassignments(k.zk)
            assert found == Request(asked, {"vendor": 1}, 0)
            left = Request(dict(list(asked.items())[:1]), {"vendor": 1}, 0)
            assert not await write_reassignments(k.zk, left._replace(version=7), k.fence), "another client wrote it"
            assert await write_reassignments(k.zk, left, k.fence)
            assert await read_reassignments(k.zk) == left._replace(version=1)
            assert await write_reassignments(k.zk, Request({}, {}, 1), k.fence)
            assert await k.zk.exists(path) is None
            assert not await write_reassignments(k.zk, Request({}, {}, 1), k.fence)
            await k.zk.create(path, b"{")
            assert isinstance(await read_reassignments(k.zk), MalformedNode)

    async def test_a_znode_of_reassignments_without_permission_is_malformed(self, backend: Backend) -> None:
        async with kafka(backend, credentials="me:secret") as k, session(backend) as stranger:
            await k.zk.create(paths.REASSIGN_PARTITIONS, encode_reassignments({}))
            await k.zk.set_acls(paths.REASSIGN_PARTITIONS, [digest_acl("me", "secret")], 0)
            await stranger.zk.sync()
            found = await read_reassignments(stranger.zk)
            assert isinstance(found, MalformedNode)
            assert "NO_AUTH" in found.why

    async def test_configurations_of_topics_are_read(self, backend: Backend) -> None:
        async with kafka(backend) as k:
            await create_topic(k.zk, "a", {0: [1]}, config={"min.insync.replicas": "2"})
            await k.zk.create(paths.topic_config("b"), b"[]")
            found = await k.store.load_topic_configs(["a", "b", "c"])
            assert (found["a"], found["c"]) == (Config({"min.insync.replicas": "2"}), Config({}))
            assert isinstance(found["b"], MalformedNode)

    async def test_the_configuration_that_brokers_share_is_read(self, backend: Backend) -> None:
        async with kafka(backend) as k:
            assert await read_broker_default(k.zk) == Config({})
            path = paths.config("brokers", DEFAULT_ENTITY)
            await k.zk.create(path, encode_config({"unclean.leader.election.enable": "true"}))
            assert await read_broker_default(k.zk) == Config({"unclean.leader.election.enable": "true"})
            await k.zk.set(path, b"{", 0)
            assert isinstance(await read_broker_default(k.zk), MalformedNode)

    async def test_the_configurations_of_single_brokers_are_read(self, backend: Backend) -> None:
        async with kafka(backend) as k:
            assert await read_broker_configs(k.zk, [1, 2]) == []
            await k.zk.create(paths.config("brokers", "1"), encode_config({"a": "b"}))
            await k.zk.create(paths.config("brokers", "3"), encode_config({"c": "d"}))
            assert await read_broker_configs(k.zk, [1, 2]) == [Config({"a": "b"})]
            await k.zk.set(paths.config("brokers", "1"), b"{", 0)
            [found] = await read_broker_configs(k.zk, [1])
            assert isinstance(found, MalformedNode)

    async def test_notifications_of_failed_log_directories_are_read(self, backend: Backend) -> None:
        async with kafka(backend) as k:
            for name, data in (("a", encode_log_dir_event(3)), ("b", b"{}")):
                await k.zk.create(f"{paths.LOG_DIR_EVENTS}/{name}", data)
            good, bad = await read_log_dir_events(k.zk, ["a", "b", "gone"])
            assert good == 3
            assert isinstance(bad, MalformedNode)

    @pytest.mark.kafka("KafkaZkClientTest.testPreferredReplicaElectionMethods")
    async def test_a_znode_is_deleted_as_it_was_read_or_not_at_all(self, backend: Backend) -> None:
        async with kafka(backend) as k:
            path, wanted = paths.PREFERRED_ELECTION, [TopicPartition("t", 0)]
            assert await read_preferred_election(k.zk) is None
            await k.zk.create(path, encode_partitions(wanted))
            found = await read_preferred_election(k.zk)
            assert isinstance(found, Found)
            assert (found.value, found.stat.version) == (Partitions(wanted), 0)
            await k.zk.set(path, b"{", 0)
            assert await delete_as_read(k.zk, path, 0, k.fence) is Code.BAD_VERSION
            changed = await read_preferred_election(k.zk)
            assert isinstance(changed, Found)
            assert isinstance(changed.value, MalformedNode)
            assert await delete_as_read(k.zk, path, 1, k.fence) is None
            assert await delete_as_read(k.zk, path, 1, k.fence) is Code.NO_NODE


class ClusterNodeContract:
    """The role, features, ids and topics."""

    async def test_missing_top_level_paths_are_created_with_null(self, backend: Backend) -> None:
        async with session(backend) as s:
            store = KafkaStore(s.zk)
            await s.zk.create("/brokers", b"kept")
            for _ in range(2):
                await ensure_top_level_paths(store.zk)
            assert await s.data("/brokers") == b"kept"
            for path in paths.PERSISTENT:
                assert await s.data(path) is None

    async def test_the_holder_of_the_role_the_epoch_and_the_cluster_id_are_read(self, backend: Backend) -> None:
        async with kafka(backend) as k:
            assert (await read_controller(k.zk), await read_cluster_id(k.zk)) == (None, None)
            await k.zk.create(paths.CLUSTER, None)
            await k.zk.create(paths.CLUSTER_ID, encode_cluster_id("one"))
            assert await read_cluster_id(k.zk) == "one"
            controller = ControllerZnode(7, 123, unknown={"nonce": "x"})
            await k.zk.create(paths.CONTROLLER, encode_controller(controller), ephemeral=True)
            found, epoch = await read_controller(k.zk), await read_epoch(k.zk)
            assert isinstance(found, Found)
            assert (found.value, found.stat.ephemeral_owner) == (controller, k.zk.session_id)
            assert isinstance(epoch, Found)
            assert (epoch.value, epoch.stat.version) == (1, k.fence.epoch_version)

    @pytest.mark.seed("S4-85")
    async def test_features_follow_the_ibp(self, backend: Backend) -> None:
        async with kafka(backend) as k:
            await set_up_features(k.zk, 1, True, k.fence)
            found = await read_features(k.zk)
            assert found is not None
            assert found.value == Features(1, True)
            finalised = Features(2, True, {"f": FeatureRange(3)}, {"vendor": 1})
            await k.zk.set(paths.FEATURE, encode_features(finalised), ANY_VERSION)
            await set_up_features(k.zk, 2, True, k.fence)
            kept = await read_features(k.zk)
            assert kept is not None
            assert (kept.value, kept.stat.version) == (finalised, 1)
            await set_up_features(k.zk, 1, False, k.fence)
            off = await read_features(k.zk)
            assert off is not None
            assert off.value == Features(1, False, unknown={"vendor": 1})
            await k.zk.set(paths.FEATURE, b"{", ANY_VERSION)
            assert isinstance(await set_up_features(k.zk, 2, True, k.fence), MalformedNode)
            assert await k.s.data(paths.FEATURE) == b"{"

    @pytest.mark.seed("S4-87")
    async def test_a_producer_id_block_is_never_handed_out_twice(self, backend: Backend) -> None:
        async with kafka(backend) as k, session(backend) as broker:
            first = await allocate_producer_ids(k.zk, 1, k.fence)
            k.zk.hooks = NthWrite(at=0, after=OutcomeUnknown("lost"))
            with pytest.raises(OutcomeUnknown):
                await allocate_producer_ids(k.zk, 2, k.fence)
            taken = b'{"version":1,"broker":3,"block_start":"2000","block_end":"2999"}'
            k.zk.hooks = NthWrite(at=0, before=lambda: broker.zk.set(paths.PRODUCER_IDS, taken, 2))
            third = await allocate_producer_ids(k.zk, 1, k.fence)
            assert (first, third) == (ProducerIdBlock(1, 0, 999), ProducerIdBlock(1, 3000, 3999))
            assert decode_producer_ids("", await k.s.data(paths.PRODUCER_IDS)) == third

    async def test_a_broken_producer_id_block_is_left_alone(self, backend: Backend) -> None:
        async with kafka(backend) as k:
            await k.zk.set(paths.PRODUCER_IDS, b"{", 0)
            assert isinstance(await allocate_producer_ids(k.zk, 1, k.fence), MalformedNode)
            assert await k.s.data(paths.PRODUCER_IDS) == b"{"

    async def test_a_topic_as_a_broker_creates_it(self, backend: Backend) -> None:
        async with kafka(backend) as k:
            await create_topic(k.zk, "t", {0: [1, 2], 1: [2, 1]}, bytes(range(16)), {"a": "b"})
            [found] = await k.store.load_topics(["t"])
            assert isinstance(found, TopicAssignment)
            assert found.partitions == {0: Assignment((1, 2)), 1: Assignment((2, 1))}
            assert await k.s.data(paths.topic_config("t")) == b'{"version":1,"config":{"a":"b"}}'
            with pytest.raises(ZkError) as error:
                await create_topic(k.zk, "t", {0: [1]})
            assert error.value.code is Code.NODE_EXISTS

    @pytest.mark.seed("S4-88")
    async def test_only_a_fresh_topic_is_deleted(self, backend: Backend) -> None:
        async with kafka(backend) as k:
            await create_topic(k.zk, "fresh", {0: [1]})
            await create_topic(k.zk, "changed", {0: [1]})
            await k.zk.set(paths.topic("changed"), b"{}", 0)
            await create_topic(k.zk, "started", {0: [1]})
            await k.zk.create(paths.partitions("started"), None)
            assert await delete_fresh_topic(k.zk, "fresh", 0, k.fence)
            assert await k.zk.exists(paths.topic_config("fresh")) is None
            for name in ("changed", "started", "fresh"):
                assert not await delete_fresh_topic(k.zk, name, 0, k.fence)
            assert await k.zk.exists(paths.topic_config("started")) is not None
            await refused(k.zk.delete(paths.topic("started"), 0), Code.NOT_EMPTY, paths.topic("started"))
