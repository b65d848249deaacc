"""The preflight: every check, on a cluster in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from controller.handover.preflight.ensemble import servers
from controller.handover.preflight.finding import Level
from controller.handover.preflight.run import CHECKS
from controller.role import own_znodes as own
from controller.role.own_znodes import this_process
from controller.role.queue import QueuePosition, read_positions
from metadata_store import paths
from metadata_store.acl import ALL, READ, Acl, digest_acl, digest_id
from metadata_store.codecs.controller import ControllerZnode, Migration, encode_controller, encode_migration
from metadata_store.codecs.topic import encode_topic
from metadata_store.port import ANY_VERSION
from state_machines.model.types import Assignment
from tests.core.controller_parts import SECRET
from tests.core.role_kit import DAEMON, DIGEST, Kafka, kafka

Prepare = Callable[[Kafka], Awaitable[None]]


async def test_a_sound_cluster_passes_and_nothing_is_written(tmp_path: Path) -> None:
    async with kafka(tmp_path) as cluster:
        await cluster.topic("orders", (1, 2, 3), (2, 3, 1))
        before = cluster.snapshot()
        report = await cluster.preflight()
        assert report.refusals == []
        assert [f.name for f in report.warnings] == ["daemons"], "no daemon runs yet"
        assert len(report.findings) == len(CHECKS)
        assert cluster.snapshot() == before
        assert not cluster.settings.state.directory.exists()


async def test_with_two_daemons_nothing_is_left_to_say(tmp_path: Path) -> None:
    async with kafka(tmp_path, hold=True) as cluster:
        for number in (DAEMON, DAEMON + 1):
            await queue_daemon(cluster, number)
        left = [f for f in (await cluster.preflight()).findings if f.level is not Level.OK]
        assert [f.name for f in left] == ["secrets"], "the digest goes over the network as it is"


async def queue_daemon(cluster: Kafka, number: int, listener: str = "") -> None:
    """A live daemon's place in the queue, without the daemon."""
    for path in (own.ROOT, own.LOCKS):
        if await cluster.operator.exists(path) is None:
            await cluster.operator.create(path, b"")
    process = replace(this_process(number), mark="of its secret", listener=listener)
    await cluster.operator.create(f"{own.LOCKS}/lock-", own.encode(process), ephemeral=True, sequential=True)


async def test_daemons_with_different_secrets_or_clocks_are_a_warning(tmp_path: Path) -> None:
    async with kafka(tmp_path) as cluster, cluster.daemon() as daemon:
        secret = cluster.settings.secret_file
        secret.parent.mkdir(parents=True, exist_ok=True)
        secret.write_text(SECRET.hex())
        secret.chmod(0o600)
        agreed = await cluster.finding("daemons agree")
        assert (agreed.level, agreed.text) == (Level.OK, "1 daemons have the same admin secret, and ZooKeeper's clock")
        secret.write_text((b"x" * len(SECRET)).hex())
        found = await cluster.finding("daemons agree")
        assert (found.level, str(secret) in found.remedy) == (Level.WARNING, True)
        assert f"daemon {daemon.me.id} on {daemon.me.host} has another admin secret" in found.text
        secret.unlink()
        assert f"there is no {secret} yet to compare" in (await cluster.finding("daemons agree")).text


async def test_a_daemon_of_these_settings_is_no_twin_of_itself(tmp_path: Path) -> None:
    async with kafka(tmp_path) as cluster, cluster.daemon():
        [place] = await read_positions(cluster.operator)
        assert place.process is not None
        assert place.process.listener.startswith("127.0.0.1:")
        assert (await cluster.finding("controller.id")).level is Level.OK


async def test_the_preflight_names_the_holder_for_those_without_a_daemon(tmp_path: Path) -> None:
    async with kafka(tmp_path) as cluster:
        holder = await cluster.controller()
        assert f"; broker {holder} holds the role; a take-over" in (await cluster.finding("controller epoch")).text
        async with cluster.daemon() as daemon:
            await cluster.take_over()
            await cluster.serving(daemon)
            assert f"; daemon {DAEMON} holds the role;" in (await cluster.finding("controller epoch")).text


@pytest.mark.parametrize(("ahead_ms", "level"), [(1_900, Level.OK), (-1_900, Level.OK), (2_100, Level.WARNING)])
async def test_a_clock_that_is_not_zookeepers_is_a_warning(
    ahead_ms: int, level: Level, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with kafka(tmp_path) as cluster:
        process = replace(this_process(DAEMON), clock_ms=10_000_000 + ahead_ms, mark="of its secret")
        place = QueuePosition("/regent/locks/lock-1", process, 1, 10_000_000)

        async def read(_zk: object) -> list[QueuePosition]:
            return [place]

        monkeypatch.setattr("controller.handover.preflight.absence.read_positions", read)
        assert (await cluster.finding("daemons agree")).level is level


# -- what refuses, one at a time


async def migrating(c: Kafka) -> None:
    await c.operator.create(paths.MIGRATION, encode_migration(Migration(3000, 1, 0, 0)))


async def migration_unreadable(c: Kafka) -> None:
    await c.operator.create(paths.MIGRATION, b"{")


async def kraft_controller(c: Kafka) -> None:
    c.brokers[1].elects = c.brokers[2].elects = c.brokers[3].elects = False
    await c.operator.delete(paths.CONTROLLER, ANY_VERSION)
    await c.operator.create(paths.CONTROLLER, encode_controller(ControllerZnode(3000, 0, 4)))


async def migration_switched_on(c: Kafka) -> None:
    c.brokers[2].configs["zookeeper.metadata.migration.enable"] = "true"


async def other_cluster(c: Kafka) -> None:
    c.brokers[3].cluster_id = "AAAAAAAAAAAAAAAAAAAAAA"


async def no_cluster_id(c: Kafka) -> None:
    await c.operator.delete(paths.CLUSTER_ID, ANY_VERSION)


async def unknown_ibp(c: Kafka) -> None:
    c.brokers[1].configs["inter.broker.protocol.version"] = "4.0-IV0"


async def old_requests(c: Kafka) -> None:
    c.brokers[2].api_versions[4] = (0, 5)


async def kafka_2(c: Kafka) -> None:
    del c.brokers[2].api_versions[67]


async def shared_listener(c: Kafka) -> None:
    await c.again(2, client_listener=False)


async def no_client_listener(c: Kafka) -> None:
    admin = c.settings.admin.model_copy(update={"client_listener": "OUTSIDE"})
    c.settings = c.settings.model_copy(update={"admin": admin})


async def tls(c: Kafka) -> None:
    await c.again(2, protocol=1)


async def other_listener_name(c: Kafka) -> None:
    c.brokers[3].configs["inter.broker.listener.name"] = "REPLICATION"


async def control_plane(c: Kafka) -> None:
    c.brokers[3].configs["control.plane.listener.name"] = "CONTROL"


async def silent_broker(c: Kafka) -> None:
    c.brokers[3].silent = "127.0.0.1:9 cannot be reached"


async def twin(c: Kafka) -> None:
    await queue_daemon(c, DAEMON)
    await queue_daemon(c, DAEMON)


async def twin_at_another_address(c: Kafka) -> None:
    listener = c.settings.listener.model_copy(update={"port": 21_295})
    c.settings = c.settings.model_copy(update={"listener": listener})
    await queue_daemon(c, DAEMON, "127.0.0.1:21195")


async def id_of_a_broker(c: Kafka) -> None:
    await c.add(DAEMON)


async def generated_ids_near(c: Kafka) -> None:
    c.brokers[1].configs["reserved.broker.max.id"] = str(DAEMON - 10)


async def reassignment(c: Kafka) -> None:
    await c.topic("moving", (1, 2))
    data = encode_topic({0: Assignment((3, 1, 2), adding=(3,), removing=(2,))}, None)
    await c.operator.set(paths.topic("moving"), data, ANY_VERSION)


async def requested_reassignment(c: Kafka) -> None:
    await c.operator.create(paths.REASSIGN_PARTITIONS, b'{"version":1,"partitions":[]}')


async def requested_election(c: Kafka) -> None:
    await c.operator.create(paths.PREFERRED_ELECTION, b'{"version":1,"partitions":[]}')


async def deletion(c: Kafka) -> None:
    await c.topic("leaving", (1, 2))
    await c.operator.create(paths.deletion("leaving"), None)


async def offline_directory(c: Kafka) -> None:
    c.brokers[2].dirs["/data2"] = 56


async def secret_directories(c: Kafka) -> None:
    c.brokers[2].dirs_refused = "CLUSTER_AUTHORIZATION_FAILED"


async def foreign_epoch(c: Kafka) -> None:
    await c.operator.set(paths.CONTROLLER_EPOCH, b"eleven", ANY_VERSION)


async def later_format(c: Kafka) -> None:
    await c.operator.create(own.ROOT, b"")
    await c.operator.create(own.FORMAT, own.encode(own.Format(own.FORMAT_VERSION + 1)))


async def closed_topic(c: Kafka) -> None:
    await c.topic("secret", (1, 2))
    await close(c, paths.topic("secret"))


async def closed_state(c: Kafka) -> None:
    await c.topic("secret", (1, 2))
    await close(c, paths.state("secret", 0))


async def closed_epoch(c: Kafka) -> None:
    await close(c, paths.CONTROLLER_EPOCH)


async def closed_notifications(c: Kafka) -> None:
    await close(c, paths.ISR_CHANGES)


async def closed_markers(c: Kafka) -> None:
    await close(c, paths.DELETE_TOPICS)


async def closed_tokens(c: Kafka) -> None:
    changes = "/delegation_token/token_changes"
    await c.operator.create("/delegation_token", None)
    await c.operator.create(changes, None)
    await close(c, changes)


async def close(c: Kafka, path: str) -> None:
    """Only somebody else may write there."""
    acls, stat = await c.operator.get_acls(path)
    assert acls
    await c.operator.set_acls(path, [digest_acl("brokers", "other"), Acl(READ, "world", "anyone")], stat.acl_version)


async def zookeeper_3_4(c: Kafka) -> None:
    c.release = (3, 4)


def ours(c: Kafka, **changes: object) -> None:
    """Settings of the section ``controller``."""
    c.settings = c.settings.model_copy(update={"controller": c.settings.controller.model_copy(update=changes)})


async def deletes_in_spite_of_a_broker(c: Kafka) -> None:
    c.brokers[2].configs["delete.topic.enable"] = "false"
    ours(c, delete_topic_enable=True)


async def elects_in_spite_of_the_brokers(c: Kafka) -> None:
    ours(c, unclean_leader_election_enable=True)


async def fewer_replicas_than_brokers(c: Kafka) -> None:
    c.brokers[1].configs["default.replication.factor"] = "3"
    ours(c, default_replication_factor=2)


async def other_authorizer(c: Kafka) -> None:
    c.brokers[3].configs["authorizer.class.name"] = "com.example.Ranger"


REFUSALS: list[tuple[Prepare, str, str]] = [
    (zookeeper_3_4, "ZooKeeper release", "older than 3.5"),
    (later_format, "stored format", "is 2, this release"),
    (no_cluster_id, "cluster id", paths.CLUSTER_ID),
    (other_cluster, "cluster id", "broker 3 has AAAA"),
    (closed_topic, "permissions", "/brokers/topics/secret"),
    (closed_state, "permissions", "/brokers/topics/secret/partitions/0/state"),
    (closed_epoch, "permissions", "/controller_epoch"),
    (closed_notifications, "permissions", "/isr_change_notification/"),
    (closed_markers, "permissions", "/admin/delete_topics/"),
    (closed_tokens, "permissions", "/delegation_token/token_changes/"),
    (foreign_epoch, "controller epoch", "eleven"),
    (migrating, "KRaft migration", "3000"),
    (migration_unreadable, "KRaft migration", "cannot be read"),
    (kraft_controller, "KRaft migration", "3000"),
    (migration_switched_on, "KRaft migration", "broker 2"),
    (silent_broker, "brokers answer", "broker 3 (127.0.0.1:9 cannot be reached)"),
    (kafka_2, "broker releases", "broker 2"),
    (old_requests, "request versions", "broker 2 (LEADER_AND_ISR v7)"),
    (unknown_ibp, "controller.ibp", "1 (4.0-IV0)"),
    (other_listener_name, "listener names", "broker 3 (inter.broker.listener.name=REPLICATION)"),
    (control_plane, "listener names", "broker 3 (control.plane.listener.name=CONTROL)"),
    (shared_listener, "separate listener", "broker 2"),
    (no_client_listener, "client listener", "broker 1, 2, 3 has no listener OUTSIDE"),
    (tls, "listener protocol", "2 (SSL)"),
    (deletes_in_spite_of_a_broker, "delete.topic.enable", "false on brokers 2"),
    (elects_in_spite_of_the_brokers, "unclean.leader.election.enable", "false on brokers 1,2,3"),
    (fewer_replicas_than_brokers, "default.replication.factor", "3 on brokers 1"),
    (other_authorizer, "access control lists", "3 (com.example.Ranger)"),
    (id_of_a_broker, "controller.id", f"broker {DAEMON} has it"),
    (twin, "controller.id", f"{DAEMON} is also the id of the daemon on"),
    (twin_at_another_address, "controller.id", ", at 127.0.0.1:21195)"),
    (generated_ids_near, "controller.id", "near the ids"),
]


@pytest.mark.parametrize(("prepare", "name", "culprit"), REFUSALS, ids=[f"{p.__name__}" for p, _, _ in REFUSALS])
async def test_what_stands_in_the_way_is_refused_and_named(
    tmp_path: Path, prepare: Prepare, name: str, culprit: str
) -> None:
    async with kafka(tmp_path) as cluster:
        await prepare(cluster)
        found = await cluster.finding(name)
        assert found.level is Level.REFUSED
        assert culprit in found.text
        assert found.remedy


async def test_what_the_brokers_have_is_shown_with_its_source(tmp_path: Path) -> None:
    async with kafka(tmp_path) as cluster:
        for broker in cluster.brokers.values():
            broker.configs["delete.topic.enable"] = "false"
        found = await cluster.finding("delete.topic.enable")
        assert (found.level, found.text) == (Level.OK, "false (adopted from brokers 1,2,3)")
        ours(cluster, delete_topic_enable=False)
        found = await cluster.finding("delete.topic.enable")
        assert (found.level, found.text) == (Level.OK, "false (set by us)")


async def test_without_a_setting_the_ibp_of_the_brokers_is_the_one_that_counts(tmp_path: Path) -> None:
    async with kafka(tmp_path) as cluster:
        for broker in cluster.brokers.values():
            broker.configs["inter.broker.protocol.version"] = "2.8-IV1"
            broker.api_versions[4] = (0, 5)
        found = await cluster.finding("controller.ibp")
        assert (found.level, found.text) == (Level.OK, "2.8-IV1 (adopted) on every broker")
        assert (await cluster.finding("request versions")).level is Level.OK
        ours(cluster, ibp="3.9-IV0")
        assert (await cluster.finding("request versions")).level is Level.REFUSED


async def test_reassignments_under_way_are_told_and_stand_in_nobodys_way(tmp_path: Path) -> None:
    async with kafka(tmp_path) as cluster:
        await reassignment(cluster)
        await requested_reassignment(cluster)
        running, requested = [await cluster.finding(f"{kind} reassignments") for kind in ("running", "requested")]
        assert (running.level, running.text) == (Level.OK, "moving-0: carried on")
        assert (requested.level, requested.text) == (Level.OK, "/admin/reassign_partitions exists: carried out")


async def test_an_election_that_was_asked_for_waits_for_the_take_over(tmp_path: Path) -> None:
    async with kafka(tmp_path) as cluster:
        await requested_election(cluster)
        found = await cluster.finding("requested elections")
        assert (found.level, found.text) == (Level.OK, "carried out after the take-over")


async def test_all_refusals_are_shown_at_once(tmp_path: Path) -> None:
    async with kafka(tmp_path) as cluster:
        for prepare in (generated_ids_near, tls, migrating, old_requests, foreign_epoch):
            await prepare(cluster)
        refused = {found.name for found in (await cluster.preflight()).refusals}
        assert refused == {
            "controller.id", "listener protocol", "KRaft migration", "request versions",
            "controller epoch",
        }  # fmt: skip


async def test_deletions_are_carried_on(tmp_path: Path) -> None:
    async with kafka(tmp_path) as cluster:
        await deletion(cluster)
        found = await cluster.finding("topic deletions")
        assert (found.level, "leaving below /admin/delete_topics: carried on" in found.text) == (Level.OK, True)


async def test_no_broker_is_a_refusal(tmp_path: Path) -> None:
    async with kafka(tmp_path, brokers=0) as cluster:
        assert (await cluster.finding("live brokers")).level is Level.REFUSED


async def test_many_culprits_are_named_shortly(tmp_path: Path) -> None:
    async with kafka(tmp_path) as cluster:
        for number in range(9):
            await cluster.operator.create(paths.deletion(f"t{number}"), None)
        assert (await cluster.finding("topic deletions")).text.startswith("t0, t1, t2, t3, t4 and 4 more")


# -- what warns


async def lower_ibp(c: Kafka) -> None:
    ours(c, ibp="3.9-IV0")
    c.brokers[2].configs["inter.broker.protocol.version"] = "3.4-IV0"


async def brokers_of_two_ibps(c: Kafka) -> None:
    c.brokers[2].configs["inter.broker.protocol.version"] = "3.4-IV0"


async def higher_ibp(c: Kafka) -> None:
    c.settings = c.settings.model_copy(update={"controller": c.settings.controller.model_copy(update={"ibp": "3.0"})})


async def one_rack(c: Kafka) -> None:
    await c.again(2, rack="a")


async def unclean(c: Kafka) -> None:
    c.brokers[3].configs["unclean.leader.election.enable"] = "true"


async def long_wait(c: Kafka) -> None:
    c.brokers[1].configs["controller.socket.timeout.ms"] = "30000"


async def with_authorizer(c: Kafka) -> None:
    c.brokers[1].configs["authorizer.class.name"] = "kafka.security.authorizer.AclAuthorizer"


async def zookeeper_3_5(c: Kafka) -> None:
    c.release = (3, 5)


async def zookeeper_mute(c: Kafka) -> None:
    c.release = None


async def phantom(c: Kafka) -> None:
    await c.topic("auto", (1, DAEMON))


async def broken_topic(c: Kafka) -> None:
    await c.operator.create(paths.topic("broken"), b"{")


async def deletion_switched_off(c: Kafka) -> None:
    await deletion(c)
    c.settings = c.settings.model_copy(
        update={"controller": c.settings.controller.model_copy(update={"delete_topic_enable": False})}
    )


async def deletion_switched_off_on_a_broker(c: Kafka) -> None:
    await deletion(c)
    c.brokers[2].configs["delete.topic.enable"] = "false"


async def fewer_partitions_than_brokers(c: Kafka) -> None:
    for broker in c.brokers.values():
        broker.configs["num.partitions"] = "6"
    ours(c, num_partitions=1)


async def creation_policy(c: Kafka) -> None:
    c.brokers[2].configs["create.topic.policy.class.name"] = "com.example.Rules"


async def creation_policy_ignored(c: Kafka) -> None:
    await creation_policy(c)
    ours(c, ignore_create_topic_policy=True)


async def open_without_lists(c: Kafka) -> None:
    await with_authorizer(c)
    c.brokers[1].configs["allow.everyone.if.no.acl.found"] = None


async def hidden_super_users(c: Kafka) -> None:
    await with_authorizer(c)
    c.brokers[1].configs["super.users"] = None


WARNINGS: list[tuple[Prepare, str, str]] = [
    (zookeeper_3_5, "ZooKeeper release", "older than 3.6"),
    (zookeeper_mute, "ZooKeeper release", "does not send"),
    (lower_ibp, "controller.ibp", "2 (3.4-IV0)"),
    (brokers_of_two_ibps, "controller.ibp", "3.4-IV0, and broker 1 (3.9-IV0), 3 (3.9-IV0) is higher"),
    (higher_ibp, "controller.ibp", "3.0-IV1"),
    (one_rack, "racks", "broker 1, 3 has no rack"),
    (unclean, "unclean.leader.election.enable", "true on brokers 3"),
    (fewer_partitions_than_brokers, "num.partitions", "6 on brokers 1,2,3"),
    (creation_policy, "create.topic.policy.class.name", "com.example.Rules on broker 2"),
    (creation_policy_ignored, "create.topic.policy.class.name", "ignore_create_topic_policy is true"),
    (hidden_super_users, "access control lists", "broker 1 has super.users"),
    (open_without_lists, "access control lists", "broker 1 has allow.everyone.if.no.acl.found"),
    (long_wait, "controller timeout", "30000 ms on broker 1"),
    (with_authorizer, "authorizer", "User:ANONYMOUS"),
    (phantom, "controller.id", "auto-0"),
    (broken_topic, "znodes", "/brokers/topics/broken"),
    (deletion_switched_off, "topic deletions", "delete.topic.enable is false (set by us)"),
    (deletion_switched_off_on_a_broker, "topic deletions", "delete.topic.enable is false (adopted from brokers 2)"),
    (offline_directory, "log directories", "/data2 of broker 2"),
    (secret_directories, "log directories", "broker 2 does not send"),
]


async def test_some_brokers_without_the_listener_of_clients_are_a_warning(tmp_path: Path) -> None:
    async with kafka(tmp_path) as cluster:
        await shared_listener(cluster)
        found = await cluster.finding("client listener")
        assert (found.level, found.text[:33]) == (Level.WARNING, "broker 2 has no listener CLIENT: ")


CONF = (
    "clientPort=2181\ndataDir=/data/version-2\ntickTime={tick}\nmaxClientCnxns=60\nminSessionTimeout=4000\n"
    "maxSessionTimeout={most}\nserverId=1\n"
)


@pytest.mark.parametrize(
    ("conf", "level", "said", "remedy"),
    [
        (CONF.format(tick=2000, most=40000) + "syncLimit=5\n", Level.WARNING, "wait 10000 ms", "syncLimit=4 "),
        (CONF.format(tick=2000, most=40000) + "syncLimit=4\n", Level.OK, "at most 8000 ms", ""),
        (CONF.format(tick=2000, most=12000) + "syncLimit=4\n", Level.WARNING, "session of 12000 ms", "syncLimit=2 "),
        (CONF.format(tick=3000, most=40000) + "syncLimit=3\n", Level.WARNING, "wait 9000 ms", "syncLimit=2 "),
        (CONF.format(tick=2000, most=40000), Level.OK, "a single server", ""),
        ("conf is not executed because it is not in the whitelist.\n", Level.OK, "should be below 9000 ms", ""),
    ],
    ids=["the default", "below half", "a session that is cut", "just half", "alone", "not told"],
)
async def test_servers_that_wait_too_long_for_a_frozen_leader(
    tmp_path: Path, conf: str, level: Level, said: str, remedy: str
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readexactly(4) == b"conf"
        writer.write(conf.encode())
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with kafka(tmp_path) as cluster, server:
        port = server.sockets[0].getsockname()[1]
        own_zookeeper = cluster.settings.zookeeper.model_copy(
            update={"connect": f"127.0.0.1:{port}/kafka", "session_timeout_ms": 18_000}
        )
        cluster.settings = cluster.settings.model_copy(update={"zookeeper": own_zookeeper})
        found = await cluster.finding("ZooKeeper syncLimit")
        assert (found.level, said in found.text, remedy in found.remedy) == (level, True, True), found


@pytest.mark.parametrize(("prepare", "name", "culprit"), WARNINGS, ids=[f"{p.__name__}" for p, _, _ in WARNINGS])
async def test_what_is_worth_knowing_is_a_warning(tmp_path: Path, prepare: Prepare, name: str, culprit: str) -> None:
    async with kafka(tmp_path) as cluster:
        await prepare(cluster)
        found = await cluster.finding(name)
        assert found.level is Level.WARNING
        assert culprit in found.text
        assert found.remedy
        assert (await cluster.preflight()).refusals == []


async def test_an_authorizer_that_knows_the_anonymous_user_is_no_warning(tmp_path: Path) -> None:
    async with kafka(tmp_path) as cluster:
        await with_authorizer(cluster)
        cluster.brokers[1].configs["super.users"] = "User:admin;User:ANONYMOUS"
        assert (await cluster.finding("authorizer")).level is Level.OK


# -- permissions and the lock


async def test_who_may_write_is_found_out_for_the_session_that_asks(tmp_path: Path) -> None:
    """The brokers' znodes are closed to the world and open to the daemons' digest."""
    async with kafka(tmp_path, digest=DIGEST) as cluster:
        await cluster.topic("orders", (1, 2))
        _, stat = await cluster.operator.get_acls(paths.topic("orders"))
        await cluster.operator.set_acls(
            paths.topic("orders"), [digest_acl("regent", "secret"), Acl(READ, "world", "anyone")], stat.acl_version
        )
        assert (await cluster.finding("permissions")).level is Level.OK


OWNED = [Acl(ALL, "digest", digest_id(*DIGEST.split(":"))), Acl(READ, "world", "anyone")]


@pytest.mark.parametrize(
    ("brokers", "ours", "acls", "told"),
    [
        (("true", "true", "true"), False, None, "regent's znodes would be open to everybody"),
        (("true", "false", "true"), True, OWNED, "true on broker 1, 3 and false on broker 2"),
        (("false", "false", "false"), True, None, "they could not write regent's znodes"),
        (("true", "true", "true"), True, None, "is open to everybody"),
        (("true", "true", "true"), True, [Acl(ALL, "sasl", "kafka"), *OWNED], "belongs to sasl:kafka, which is not"),
        (("true", "true", "true"), True, OWNED, None),
        (("false", "false", "false"), False, None, None),
    ],
)
async def test_znodes_are_closed_on_both_sides_or_on_none(
    tmp_path: Path, brokers: tuple[str, ...], ours: bool, acls: list[Acl] | None, told: str | None
) -> None:
    async with kafka(tmp_path, hold=True) as cluster:
        for broker, value in zip(cluster.brokers.values(), brokers, strict=True):
            broker.configs["zookeeper.set.acl"] = value
        if acls is not None:
            cluster.server.tree._nodes[paths.TOPICS].acls = tuple(acls)
        cluster.operator.set_acl = ours
        report = await cluster.preflight()
        [found] = [f for f in report.findings if f.name == "access control of znodes"]
        assert (found.level is Level.OK) == (told is None), found
        assert (told or "") in found.text


KAFKAS_OWN = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"


@pytest.mark.parametrize(
    ("key", "value", "level"),
    [
        ("principal.builder.class", KAFKAS_OWN, Level.OK),
        ("principal.builder.class", "com.example.Builder", Level.REFUSED),
        ("listener.name.client.principal.builder.class", None, Level.REFUSED),
        ("listener.name.internal.principal.builder.class", None, Level.OK),
    ],
)
async def test_brokers_name_clients_as_the_endpoint_does(
    tmp_path: Path, key: str, value: str | None, level: Level
) -> None:
    async with kafka(tmp_path) as cluster:
        cluster.brokers[2].configs[key] = value
        [found] = [f for f in (await cluster.preflight()).findings if f.name == "principal.builder.class"]
        assert found.level is level
        assert ("broker 2" in found.text) == (level is Level.REFUSED)
        ours(cluster, acls="none", super_users="")
        [found] = [f for f in (await cluster.preflight()).findings if f.name == "principal.builder.class"]
        assert found.level is (Level.OK if level is Level.OK else Level.WARNING)


async def test_hold_refuses_where_somebody_else_holds_the_lock(tmp_path: Path) -> None:
    async with kafka(tmp_path, hold=True) as cluster:
        assert (await cluster.finding("lock-out")).level is Level.OK
        await close(cluster, paths.CONTROLLER_EPOCH)
        found = await cluster.finding("lock-out")
        assert (found.level, "zookeeper.digest" in found.remedy) == (Level.REFUSED, True)


async def test_hold_with_one_daemon_is_a_warning(tmp_path: Path) -> None:
    async with kafka(tmp_path, hold=True) as cluster:
        await queue_daemon(cluster, DAEMON)
        found = await cluster.finding("daemons")
        assert (found.level, "start a second daemon" in found.remedy) == (Level.WARNING, True)


# -- addresses


async def test_a_loopback_address_is_refused_where_brokers_are_elsewhere(tmp_path: Path) -> None:
    async with kafka(tmp_path) as cluster:
        broker = cluster.brokers[2]
        registered = broker.registration()
        broker.registration = lambda: type(registered)(  # type: ignore[method-assign]
            2, 0, tuple(type(e)(e.listener, "192.0.2.7", e.port) for e in registered.endpoints)
        )
        await cluster.again(2)
        found = await cluster.finding("own address")
        assert (found.level, "broker 2 is elsewhere" in found.text) == (Level.REFUSED, True)


async def test_a_daemon_that_does_not_answer_at_its_address_is_refused(tmp_path: Path) -> None:
    async with kafka(tmp_path) as cluster:
        listener = cluster.settings.listener.model_copy(update={"advertised_port": 1, "port": 1})
        cluster.settings = cluster.settings.model_copy(update={"listener": listener})
        assert (await cluster.finding("own address")).level is Level.WARNING
        await queue_daemon(cluster, DAEMON)
        found = await cluster.finding("own address")
        assert (found.level, "nothing answers at 127.0.0.1:1" in found.text) == (Level.REFUSED, True)
        listener = listener.model_copy(update={"advertised_port": cluster.brokers[1].port})
        cluster.settings = cluster.settings.model_copy(update={"listener": listener})
        assert (await cluster.finding("own address")).level is Level.OK


def test_connect_strings_are_taken_apart() -> None:
    assert servers("zk1,zk2:2182, [::1]:2183,[::2]/kafka") == [
        ("zk1", 2181), ("zk2", 2182), ("::1", 2183), ("::2", 2181),
    ]  # fmt: skip


async def test_a_shared_listener_is_allowed_where_the_admin_endpoint_answers_on_it(tmp_path: Path) -> None:
    async with kafka(tmp_path) as cluster:
        await shared_listener(cluster)
        assert (await cluster.finding("separate listener")).level is Level.REFUSED
        cluster.settings = cluster.settings.model_copy(
            update={"admin": cluster.settings.admin.model_copy(update={"client_listener": "INTERNAL"})}
        )
        found = await cluster.finding("separate listener")
        assert (found.level, "the admin endpoint answers on INTERNAL" in found.text) == (Level.OK, True)
        secured = cluster.settings.security.model_copy(update={"protocol": "SSL"})
        cluster.settings = cluster.settings.model_copy(update={"security": secured})
        assert "certificates" in (await cluster.finding("separate listener")).remedy
