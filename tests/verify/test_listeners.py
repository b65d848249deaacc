"""Listeners and znodes of real brokers: protocols and mechanisms, one listener for all, closed znodes."""

from __future__ import annotations

from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import NewTopic

from controller.role import own_znodes as own
from metadata_store import paths
from metadata_store.acl import ALL, OPEN, READ, Acl, digest_acl
from metadata_store.errors import Code, ZkError
from metadata_store.kazoo_adapter import KazooZooKeeper
from metadata_store.own import ENDPOINTS, REGIONS
from testing.embedded.process import free_port
from testing.embedded.tools import Tools
from testing.znodes import create_topic
from tests.kit.cluster.endpoint import EndpointProcess, admin_client, endpoint, errors_of
from tests.kit.cluster.scene import agreed, regent, succeeds
from tests.kit.cluster.secured import works_both_ways
from tests.kit.cluster.world import ClusterWorld, world
from tests.kit.deadlines import eventually


@pytest.mark.parametrize(
    ("protocol", "mechanism"),
    [("SASL_PLAINTEXT", "SCRAM-SHA-256"), ("SASL_PLAINTEXT", "PLAIN"), ("SSL", "PLAIN")],
)
async def test_both_directions(tmp_path: Path, protocol: str, mechanism: str) -> None:
    await works_both_ways(tmp_path, protocol, mechanism)


SHARED = {"inter.broker.listener.name": "CLIENT"}
FOUND = "Recorded new ZK controller, from now on will use node 127.0.0.1:{port}"
"""Line in a broker's log when the broker looks its controller up for AlterPartition."""
SHUT_DOWN = "Controlled shutdown request returned successfully"


def uses(w: ClusterWorld, broker: int, port: int) -> bool:
    """Returns whether a broker's requests for ISRs go to a port."""
    lines = [line for line in w.cluster.brokers[broker].log_text().splitlines() if "Recorded new ZK controller" in line]
    return bool(lines) and FOUND.format(port=port) in lines[-1]


async def bounced(w: ClusterWorld, broker: int) -> None:
    """Kills a broker and boots it again: leaders shrink and expand ISRs."""
    await w.cluster.brokers[broker].kill()

    async def gone() -> bool:
        return broker not in (await w.store.load_brokers()).brokers

    await eventually(gone, 60.0)
    await w.leads_nothing(broker)
    await w.cluster.brokers[broker].boot()
    await w.healed()


async def test_calls_of_brokers_with_one_listener_reach_the_daemon_through_the_endpoint(tmp_path: Path) -> None:
    async with world(3, properties=SHARED) as w:
        for topic in ("t", "u"):
            await create_topic(w.zk, topic, {p: [1 + p, 1 + (p + 1) % 3] for p in range(3)})
        await w.healed()
        own = {"brokers.inter_broker_listener": "CLIENT"}
        daemon = w.daemon(flags=["--takeover"], settings=own)
        await daemon.boot()
        await bounced(w, 2)
        async with endpoint(daemon) as at:
            await _through(w, at, tmp_path)
        await bounced(w, 1)
        assert w.violations() == []


async def _through(w: ClusterWorld, at: EndpointProcess, folder: Path) -> None:
    await bounced(w, 3)
    await eventually(lambda: uses(w, 3, at.port), 30.0)
    async with AIOKafkaProducer(bootstrap_servers=at.address, acks="all", enable_idempotence=True) as producer:
        await producer.send_and_wait("t", b"x", partition=0)
    tools = Tools(w.cluster.bootstrap[0], folder)
    done = await tools.run("kafka-topics", "--create", "--topic", "new", "--replication-factor", "2")
    assert done.code == 0, done
    await w.cluster.brokers[1].stop()
    assert SHUT_DOWN in w.cluster.brokers[1].log_text()
    await w.cluster.brokers[1].boot()
    await w.healed()


USER = "kafka:brokers-secret"
DIGEST_MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule required"
ZOOKEEPER = {
    "properties": {"authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"},
    "jaas": f'Server {{\n    {DIGEST_MODULE}\n    user_kafka="brokers-secret"\n    user_other="other";\n}};\n',
}
JAAS = f'Client {{\n    {DIGEST_MODULE}\n    username="kafka"\n    password="brokers-secret";\n}};\n'
OWNER, READER = Acl(ALL, "sasl", "kafka"), Acl(READ, "world", "anyone")


def settings(folder: Path) -> dict[str, object]:
    """Returns settings of a daemon with the brokers' identity at ZooKeeper; its endpoint has another one."""
    for name, text in (("sasl", USER), ("endpoint", "announcer:secret"), ("digest", "regent:secret")):
        (folder / name).write_text(f"{text}\n", encoding="utf-8")
        (folder / name).chmod(0o600)
    return {
        "zookeeper.set_acl": True,
        "zookeeper.sasl_file": str(folder / "sasl"),
        "admin.zookeeper_digest_file": str(folder / "endpoint"),
    }


async def lists(w: ClusterWorld, root: str) -> dict[str, set[Acl]]:
    """Returns the ACL of every znode from ``root`` on."""
    found = {root: set((await w.zk.get_acls(root))[0])}
    listed = await w.zk.children(root)
    for name in listed[0] if listed is not None else ():
        found |= await lists(w, f"{root}/{name}")
    return found


async def refused_to_strangers(w: ClusterWorld, path: str, *, readable: bool) -> None:
    """Checks that a session without the brokers' identity cannot write a znode, nor read one that holds keys."""
    stranger = KazooZooKeeper(w.cluster.connect, session_timeout_ms=10_000)
    await stranger.connect(10.0)
    try:
        with pytest.raises(ZkError) as refused:
            await stranger.set(path, b"mine", -1)
        assert refused.value.code is Code.NO_AUTH
        if readable:
            assert await stranger.get(path) is not None
            return
        with pytest.raises(ZkError) as hidden:
            await stranger.get(path)
        assert hidden.value.code is Code.NO_AUTH
    finally:
        await stranger.close()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("hold", [False, True], ids=["brokers", "hold"])
async def test_znodes_of_regent_are_closed_to_strangers_and_open_to_brokers(tmp_path: Path, hold: bool) -> None:
    properties = {"zookeeper.set.acl": "true"}
    async with world(2, zookeeper_options=ZOOKEEPER, sasl=USER, replication=2, properties=properties, jaas=JAAS) as w:
        given = settings(tmp_path) | {
            "regions.store": "zookeeper",
            "regions.host": "127.0.0.1",
            "regions.port": free_port(),
        }
        if hold:
            given |= {"controller.on_absence": "hold", "zookeeper.digest_file": str(tmp_path / "digest")}
        daemon = w.daemon(flags=["--takeover"], settings=given)
        await daemon.boot()
        locked = (await w.zk.get_acls(paths.CONTROLLER_EPOCH))[0]
        assert set(locked) == ({Acl(ALL, "digest", "regent:x"), READER} if hold else {OWNER, READER})

        async with endpoint(daemon) as at:
            announced = f"{ENDPOINTS}/{daemon.id}"
            await eventually(lambda: w.zk.exists(announced), 20.0)
            assert (await w.zk.get_acls(announced))[0] == [Acl(ALL, "digest", "announcer:x"), READER]
            async with admin_client(at.address) as client:
                assert errors_of(await client.create_topics([NewTopic("t", 2, 2)])) == [("t", 0)]
            scram = ("--alter", "--entity-type", "users", "--entity-name", "alice")
            tools = Tools(at.address, tmp_path)
            done = await tools.run("kafka-configs", *scram, "--add-config", "SCRAM-SHA-256=[password=secret]")
            assert done.code == 0, done
        await w.healed()
        await agreed(daemon)

        owners = {OWNER, digest_acl("regent", "secret")} if hold else {OWNER}
        made = await lists(w, paths.topic("t")) | await lists(w, paths.topic_config("t"))
        made |= {paths.CONTROLLER: set((await w.zk.get_acls(paths.CONTROLLER))[0])}
        assert len(made) > 7
        assert {path: found for path, found in made.items() if found != {*owners, READER}} == {}
        assert set((await w.zk.get_acls(paths.config("users", "alice")))[0]) == owners
        ours = await lists(w, own.ROOT)
        regions = {path: ours.pop(path) for path in sorted(ours) if path.startswith(REGIONS)}
        assert len(regions) > 3
        assert [*regions.values()] == [set(locked) if hold else {OWNER, READER}] * len(regions)
        if hold:  # records are the daemons' alone, as the epoch is
            closed = {path: ours.pop(path) for path in sorted(ours) if path.startswith(own.PROCEDURES)}
            assert [*closed.values()] == [set(locked)] * len(closed)
            assert len(closed) > 1
        assert {path: found for path, found in ours.items() if found & {*OPEN} or not owners <= found} == {}
        assert [path for path, found in ours.items() if len(found) != len(owners) + 1] == [ENDPOINTS]
        await refused_to_strangers(w, paths.topic("t"), readable=True)
        await refused_to_strangers(w, own.ROLE, readable=True)
        await refused_to_strangers(w, paths.config("users", "alice"), readable=False)

        await succeeds(daemon, "handback", "--yes", "--wait")
        await w.broker_controls()
        assert set((await w.zk.get_acls(paths.CONTROLLER_EPOCH))[0]) == {OWNER, READER}
        gone = await w.cluster.brokers[1].shut_down()
        assert gone.succeeded
        await w.leads_nothing(1)
        await w.cluster.brokers[1].boot()
        await w.healed()
        await succeeds(daemon, "takeover", "--yes", "--wait")
        assert (await w.zk.get_acls(paths.CONTROLLER_EPOCH))[0] == locked
        await agreed(daemon)


async def test_preflight_refuses_settings_that_would_open_znodes_or_lock_daemons_out(tmp_path: Path) -> None:
    async with world(
        1, zookeeper_options=ZOOKEEPER, sasl=USER, replication=1, properties={"zookeeper.set.acl": "true"}, jaas=JAAS
    ) as w:
        given = settings(tmp_path)
        (tmp_path / "other").write_text("other:other\n", encoding="utf-8")
        for changed, text in (
            ({"zookeeper.set_acl": False}, "regent's znodes would be open to any client"),
            ({"zookeeper.sasl_file": str(tmp_path / "other")}, "belongs to sasl:kafka, which is not this daemon's"),
        ):
            daemon = w.daemon(settings=given | changed)
            code, out, err = await regent(daemon, "preflight")
            assert code, out
            assert text in out + err, (text, out + err)
        daemon = w.daemons[-1]
        await daemon.boot("blocked")
        status = await daemon.status()
        assert status is not None
        refusals = ("does not name this daemon's identity", "no permission to write /controller_epoch")
        assert [why for why in refusals if why in status["why"]], status["why"]
        assert await w.zk.exists(own.ROOT) is None, "it must not shut the right daemons out"
