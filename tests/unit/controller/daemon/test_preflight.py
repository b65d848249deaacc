"""Checks of the preflight on a cluster in memory: each finding by its cause, and the report as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from brokers.client import BrokerCallFailed
from controller.daemon.preflight.cluster import IDS_APART
from controller.daemon.preflight.context import Level
from controller.daemon.preflight.ensemble import EPOCH_MAX
from controller.daemon.preflight.run import CHECKS
from controller.role import own_znodes as own
from metadata_store import paths
from metadata_store.acl import READ, Acl, digest_acl
from metadata_store.codecs.controller import ControllerZnode, Migration, encode_controller, encode_migration
from metadata_store.codecs.topic import encode_topic
from metadata_store.own import Access
from metadata_store.port import ANY_VERSION
from state_machines.model.types import Assignment
from tests.kit.kafka.preflight import (
    Prepare,
    both,
    broker,
    closed,
    cluster,
    config,
    created,
    deleted,
    offers,
    ours,
    prepare,
    queued,
    restarted,
    topic,
    written,
)
from tests.kit.kafka.role import DAEMON, DIGEST, Kafka, kafka

OK, WARNING, REFUSED = Level.OK, Level.WARNING, Level.REFUSED
KAFKAS_BUILDER = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"


async def kraft_controller(c: Kafka) -> None:
    c.stop_elections()
    await c.operator.delete(paths.CONTROLLER, ANY_VERSION)
    await c.operator.create(paths.CONTROLLER, encode_controller(ControllerZnode(3000, 0, 4)))


async def at_port_of_broker_1(c: Kafka) -> None:
    c.change("listener", port=1, advertised_port=c.brokers[1].port)


async def refuses(*_: object) -> dict[str, str | None]:
    raise BrokerCallFailed("DENIED")


MOVING = encode_topic({0: Assignment((3, 1, 2), adding=(3,), removing=(2,))}, None)
DELETION = both(topic("leaving", (1, 2)), created(paths.deletion("leaving")))
AUTHORIZER = config("authorizer.class.name", "kafka.security.authorizer.AclAuthorizer", 1)
BUILDER = config("principal.builder.class", "com.example.Builder", 2)
POLICY = config("create.topic.policy.class.name", "com.example.Rules", 2)
SHARED = restarted(2, client_listener=None)
HOLD = both(ours(on_absence="hold"), ours("zookeeper", digest=SecretStr(DIGEST)))
TOKENS = "/delegation_token/token_changes"
FORMAT = own.encode(own.Format(own.FORMAT_VERSION + 1))


def closes(c: Kafka) -> None:
    """Has the daemon's znodes belong to its digest alone."""
    c.operator.own_acls = dict.fromkeys(Access, (digest_acl("regent", "secret"), Acl(READ, "world", "anyone")))


FINDINGS: dict[str, list[tuple[Prepare, Level, str]]] = {
    "ZooKeeper release": [
        (cluster(release=(3, 4)), REFUSED, "older than 3.5"),
        (cluster(release=(3, 5)), WARNING, "older than 3.6"),
        (cluster(release=(3, 6)), OK, "127.0.0.1:2181 is 3.6"),
        (cluster(release=None), WARNING, "does not send its release"),
    ],
    "stored format": [
        (both(created(own.ROOT), created(own.FORMAT, b'{"version":1}')), OK, "holds format 1"),
        (both(created(own.ROOT), created(own.FORMAT, b"{")), REFUSED, "could not be checked"),
        (both(created(own.ROOT), created(own.FORMAT, FORMAT)), REFUSED, "is 2, this release"),
    ],
    "controller epoch": [
        (deleted(paths.CONTROLLER_EPOCH), OK, "no controller was ever elected"),
        (written(paths.CONTROLLER_EPOCH, EPOCH_MAX), OK, f"{EPOCH_MAX};"),
        (written(paths.CONTROLLER_EPOCH, EPOCH_MAX + 1), REFUSED, "holds b'"),
        (written(paths.CONTROLLER_EPOCH, "eleven"), REFUSED, "eleven"),
    ],
    "KRaft migration": [
        (created(paths.MIGRATION, encode_migration(Migration(0, 1, 0, 0))), REFUSED, "controller 0"),
        (created(paths.MIGRATION, encode_migration(Migration(-1, 1, 0, 0))), OK, "none"),
        (created(paths.MIGRATION, b"{"), REFUSED, "cannot be read"),
        (kraft_controller, REFUSED, "by a KRaft controller (id 3000)"),
        (config("zookeeper.metadata.migration.enable", "true", 2), REFUSED, "broker 2"),
    ],
    "permissions": [
        (both(topic("secret", (1, 2)), closed(paths.topic("secret"))), REFUSED, "/brokers/topics/secret"),
        (both(topic("secret", (1, 2)), closed(paths.state("secret", 0))), REFUSED, "/partitions/0/state"),
        (closed(paths.CONTROLLER_EPOCH), REFUSED, "/controller_epoch"),
        (closed(paths.ISR_CHANGES), REFUSED, "/isr_change_notification/"),
        (closed(paths.DELETE_TOPICS), REFUSED, "/admin/delete_topics/"),
        (both(created("/delegation_token"), created(TOKENS), closed(TOKENS)),
         REFUSED, "/delegation_token/token_changes/"),
    ],
    "cluster id": [
        (deleted(paths.CLUSTER_ID), REFUSED, paths.CLUSTER_ID),
        (broker(3, cluster_id="A" * 22), REFUSED, "broker 3 has AAAA"),
    ],
    "brokers answer": [
        (broker(3, silent="cannot be reached"), REFUSED, "broker 3 (cannot be reached)"),
        (broker(3, static_configs=refuses), REFUSED, "broker 3 (DENIED) does not send"),
        (ours("brokers", inter_broker_listener="OTHER"), REFUSED, "1 (INTERNAL, CLIENT), 2 ("),
    ],
    "broker releases": [(offers(2, 67, None), REFUSED, "broker 2")],
    "request versions": [
        (offers(2, 4, (0, 6)), REFUSED, "broker 2 (LEADER_AND_ISR v7)"),
        (offers(2, 4, (8, 9)), REFUSED, "broker 2 (LEADER_AND_ISR v7)"),
        (offers(2, 4, (7, 7)), OK, "LEADER_AND_ISR v7"),
    ],
    "controller.ibp": [
        (config("inter.broker.protocol.version", "4.0-IV0", 1), REFUSED, "1 (4.0-IV0)"),
        (both(ours(ibp="3.9-IV0"), config("inter.broker.protocol.version", "3.4-IV0", 2)), WARNING, "2 (3.4-IV0)"),
        (config("inter.broker.protocol.version", "3.4-IV0", 2),
         WARNING, "3.4-IV0, and broker 1 (3.9-IV0), 3 (3.9-IV0) is higher"),
        (ours(ibp="3.0"), WARNING, "3.0-IV1"),
    ],
    "authorizer": [
        (AUTHORIZER, WARNING, "User:ANONYMOUS"),
        (both(AUTHORIZER, config("super.users", "User:a;User:ANONYMOUS", 1)), OK, "User:ANONYMOUS is a super user"),
    ],
    "access control lists": [
        (config("authorizer.class.name", "com.example.Ranger", 3), REFUSED, "3 (com.example.R"),
        (both(config("authorizer.class.name", "com.example.Ranger", 3), ours(acls="none")), OK, "none"),
        (both(AUTHORIZER, config("super.users", None, 1)), WARNING, "broker 1 has super.users"),
        (both(AUTHORIZER, config("allow.everyone.if.no.acl.found", None, 1)),
         WARNING, "broker 1 has allow.everyone.if.no.acl.found"),
    ],
    "principal.builder.class": [
        (config("principal.builder.class", KAFKAS_BUILDER, 2), OK, "Kafka's own"),
        (BUILDER, REFUSED, "2 (com.example.Builder)"),
        (both(BUILDER, ours(acls="none", super_users="")), WARNING, "no permission there depends on the name"),
        (both(BUILDER, ours(acls="none", super_users="User:a")), REFUSED, "broker 2"),
        (config("listener.name.client.principal.builder.class", None, 2), REFUSED, "broker 2 (listener.name.client."),
        (config("listener.name.internal.principal.builder.class", None, 2), OK, "Kafka's"),
    ],
    "controller timeout": [
        (config("controller.socket.timeout.ms", "10001", 1), WARNING, "on broker 1:"),
        (config("controller.socket.timeout.ms", "10000", 1), OK, "10000 ms"),
    ],
    "delete.topic.enable": [
        (both(config("delete.topic.enable", "false", 2), ours(delete_topic_enable=True)),
         REFUSED, "false on brokers 2"),
        (config("delete.topic.enable", "false"), OK, "false (adopted from brokers 1,2,3)"),
        (both(config("delete.topic.enable", "false"), ours(delete_topic_enable=False)), OK, "false (set by us)"),
    ],
    "unclean.leader.election.enable": [
        (ours(unclean_leader_election_enable=True), REFUSED, "false on brokers 1,2,3"),
        (config("unclean.leader.election.enable", "true", 3), WARNING, "on brokers 3"),
    ],
    "default.replication.factor": [
        (both(config("default.replication.factor", "3", 1), ours(default_replication_factor=2)),
         REFUSED, "3 on brokers 1"),
    ],
    "num.partitions": [(both(config("num.partitions", "6"), ours(num_partitions=1)), WARNING, "6 on brokers 1,2,3")],
    "create.topic.policy.class.name": [
        (POLICY, WARNING, "com.example.Rules on broker 2, which the daemon cannot call"),
        (both(POLICY, ours(ignore_create_topic_policy=True)), WARNING, "ignore_create_topic_policy is true"),
        (both(POLICY, ours(create_topic_policy=("https://policies/topics",))),
         OK, "https://policies/topics is asked for each topic (brokers have com.example.Rules)"),
        (ours(create_topic_policy=("/bin/sh", "-c", "exit 0")),
         OK, "/bin/sh -c exit 0 is asked for each topic (brokers have no class)"),
        (ours(create_topic_policy=("/no/such/program",)), WARNING, "/no/such/program, which cannot be run here"),
    ],
    "listener names": [
        (config("inter.broker.listener.name", "REPLICATION", 3),
         REFUSED, "broker 3 (inter.broker.listener.name=REPLICATION)"),
        (both(config("inter.broker.listener.name", None), config("security.inter.broker.protocol", "internal")),
         OK, "INTERNAL"),
        (config("control.plane.listener.name", "CONTROL", 3),
         REFUSED, "broker 3 (control.plane.listener.name=CONTROL)"),
    ],
    "separate listener": [
        (SHARED, REFUSED, "broker 2"),
        (both(SHARED, ours("admin", client_listener="INTERNAL")), OK, "the admin endpoint answers on INTERNAL"),
        (both(SHARED, ours("admin", client_listener="INTERNAL", listed=False)), REFUSED, "broker 2"),
        (both(SHARED, ours("admin", client_listener="INTERNAL"), ours("security", protocol="SSL")), REFUSED, "2 has"),
    ],
    "client listener": [
        (ours("admin", client_listener="OUTSIDE"), REFUSED, "broker 1, 2, 3 has no listener OUTSIDE"),
        (restarted(2, client_listener="OTHER"), WARNING, "broker 2 has no listener CLIENT: "),
        (ours("admin", client_listener="OUTSIDE", listed=False), OK, "not used"),
    ],
    "listener protocol": [(restarted(2, protocol=1), REFUSED, "2 (SSL)")],
    "own address": [
        (restarted(2, host="192.0.2.7"), REFUSED, "and broker 2 is elsewhere"),
        (ours("listener", advertised_host="regent.invalid"), REFUSED, "regent.invalid cannot be resolved"),
        (both(), OK, "127.0.0.1, on a free port"),
        (ours("listener", port=1), WARNING, "127.0.0.1:1 was not tried"),
        (both(ours("listener", port=1), queued(DAEMON)), REFUSED, "nothing answers at 127.0.0.1:1"),
        (both(at_port_of_broker_1, queued(DAEMON)), OK, " answers from here"),
    ],
    "controller.id": [
        (lambda c: c.add(DAEMON), REFUSED, f"broker {DAEMON} has it"),
        (both(queued(DAEMON), queued(DAEMON)), REFUSED, f"{DAEMON} is also the id of the daemon on"),
        (both(ours("listener", port=21_295), queued(DAEMON, "127.0.0.1:21195")), REFUSED, ", at 127.0.0.1:21195)"),
        (queued(DAEMON, "192.0.2.7:9095"), REFUSED, ", at 192.0.2.7:9095)"),
        (queued(DAEMON, "127.0.0.1:9095"), OK, "no broker has"),
        (config("reserved.broker.max.id", str(DAEMON - IDS_APART), 1), REFUSED, "near the ids"),
        (config("reserved.broker.max.id", str(DAEMON - IDS_APART - 1), 1), OK, "no broker has"),
        (ours("brokers", reserved_broker_max_id=DAEMON - IDS_APART), REFUSED, "near the ids"),
        (topic("auto", (1, DAEMON)), WARNING, "auto-0"),
    ],
    "racks": [
        (restarted(2, rack="a"), WARNING, "broker 1, 3 has no rack"),
        (both(*(restarted(b, rack="a") for b in (1, 2, 3))), OK, "every broker has one"),
    ],
    "znodes": [(created(paths.topic("broken"), b"{"), WARNING, "/brokers/topics/broken")],
    "running reassignments": [
        (both(topic("moving", (1, 2)), written(paths.topic("moving"), MOVING)), OK, "moving-0: carried on"),
    ],
    "requested reassignments": [
        (created(paths.REASSIGN_PARTITIONS, b'{"version":1,"partitions":[]}'),
         OK, "/admin/reassign_partitions exists: carried out"),
    ],
    "requested elections": [
        (created(paths.PREFERRED_ELECTION, b'{"version":1,"partitions":[]}'), OK, "carried out after the take-over"),
    ],
    "topic deletions": [
        (DELETION, OK, "leaving below /admin/delete_topics: carried on"),
        (both(*(created(paths.deletion(f"t{n}")) for n in range(9))), OK, "t0, t1, t2, t3, t4 and 4 more"),
        (both(DELETION, ours(delete_topic_enable=False)), WARNING, "delete.topic.enable is false (set by us)"),
        (both(DELETION, config("delete.topic.enable", "false", 2)),
         WARNING, "delete.topic.enable is false (adopted from brokers 2)"),
    ],
    "log directories": [
        (broker(2, dirs={"/data2": 56}), WARNING, "/data2 of broker 2"),
        (broker(2, dirs_refused="CLUSTER_AUTHORIZATION_FAILED"), WARNING, "broker 2 does not send"),
    ],
    "daemons": [
        (both(), WARNING, "none runs"),
        (queued(DAEMON), OK, f"{DAEMON} on "),
        (both(HOLD, queued(DAEMON)), WARNING, "while it is away no leader moves"),
        (both(HOLD, queued(DAEMON), queued(DAEMON + 1)), OK, f", {DAEMON + 1} on "),
    ],
    "regent's znodes": [
        (both(), OK, "open to any client"),
        (both(HOLD, closes), OK, "0 are closed to other clients"),
        (both(HOLD, created(own.ROOT), created(own.ROLE), closes), WARNING, "any client may write /regent, /regent/ro"),
    ],
    "lock-out": [
        (HOLD, OK, "can be changed"),
        (both(HOLD, closed(paths.CONTROLLER_EPOCH)), REFUSED, "no permission to change"),
        (ours(on_absence="hold"), REFUSED, "there are no credentials"),
    ],
}  # fmt: skip


ROWS = [(name, *row) for name, rows in FINDINGS.items() for row in rows]


@pytest.mark.parametrize(("name", "change", "level", "text"), ROWS, ids=[f"{row[0]}: {row[3]}" for row in ROWS])
async def test_a_finding_has_its_level_and_names_its_cause(
    tmp_path: Path, name: str, change: Prepare, level: Level, text: str
) -> None:
    async with kafka(tmp_path) as c:
        await prepare(c, change)
        report = await c.preflight()
        [found] = [f for f in report.findings if f.name == name]
        assert (found.level, text in found.text, bool(found.remedy)) == (level, True, level is not OK), found
        assert (found in report.refusals, found in report.warnings) == (level is REFUSED, level is WARNING)
        if level is not REFUSED:
            assert report.refusals == []


async def test_a_sound_cluster_passes_and_nothing_is_written(tmp_path: Path) -> None:
    async with kafka(tmp_path) as c:
        await c.topic("orders", (1, 2, 3), (2, 3, 1))
        before = c.snapshot()
        report = await c.preflight()
        assert report.refusals == []
        assert [f.name for f in report.warnings] == ["daemons"], "no daemon runs yet"
        assert report.sentence() == f"{len(CHECKS)} checks passed, 1 of them with a warning"
        assert c.snapshot() == before
        assert not c.settings.state.directory.exists()


async def test_with_two_daemons_only_the_exposed_digest_is_a_warning(tmp_path: Path) -> None:
    async with kafka(tmp_path, hold=True) as c:
        await prepare(c, queued(DAEMON), queued(DAEMON + 1))
        assert [f.name for f in (await c.preflight()).findings if f.level is not OK] == ["secrets"]


async def test_all_refusals_are_in_one_report(tmp_path: Path) -> None:
    async with kafka(tmp_path) as c:
        changes = {
            "KRaft migration": created(paths.MIGRATION, b"{"),
            "controller epoch": written(paths.CONTROLLER_EPOCH, "eleven"),
            "request versions": offers(2, 4, (0, 6)),
            "listener protocol": restarted(2, protocol=1),
            "controller.id": config("reserved.broker.max.id", str(DAEMON)),
        }
        await prepare(c, *changes.values())
        report = await c.preflight()
        assert {found.name for found in report.refusals} == changes.keys()
        assert all(f"{found.name}: {found.text}" in report.sentence() for found in report.refusals)


async def test_no_broker_is_a_refusal(tmp_path: Path) -> None:
    async with kafka(tmp_path, brokers=0) as c:
        assert (await c.finding("live brokers")).level is REFUSED


async def test_without_a_setting_requests_follow_the_ibp_of_the_brokers(tmp_path: Path) -> None:
    async with kafka(tmp_path) as c:
        for one in c.brokers.values():
            one.configs["inter.broker.protocol.version"] = "2.8-IV1"
            one.api_versions[4] = (0, 5)
        found = await c.finding("controller.ibp")
        assert (found.level, found.text) == (OK, "2.8-IV1 (adopted) on every broker")
        assert (await c.finding("request versions")).level is OK
        c.change("controller", ibp="3.9-IV0")
        assert (await c.finding("request versions")).level is REFUSED
