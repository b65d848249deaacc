"""Checks of the preflight on daemons, ZooKeeper servers and the identities that own znodes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from controller.daemon.preflight.context import Level
from controller.daemon.preflight.ensemble import servers
from controller.daemon.preflight.permissions import refused_paths
from controller.role import own_znodes as own
from controller.role.own_znodes import this_process
from controller.role.queue import QueuePosition, read_positions
from metadata_store import paths
from metadata_store.acl import ALL, OPEN, READ, Acl, digest_acl, digest_id
from metadata_store.port import ANY_VERSION, Op, SetData
from tests.kit.kafka.parts import SECRET
from tests.kit.kafka.preflight import closed, prepare, topic
from tests.kit.kafka.role import DAEMON, DIGEST, kafka

OK, WARNING, REFUSED = Level.OK, Level.WARNING, Level.REFUSED


async def test_daemons_with_different_secrets_or_none_are_a_warning(tmp_path: Path) -> None:
    async with kafka(tmp_path) as cluster, cluster.daemon() as daemon:
        secret = cluster.settings.secret_file
        assert f"there is no {secret} yet to compare" in (await cluster.finding("daemons agree")).text
        secret.parent.mkdir(parents=True, exist_ok=True)
        secret.write_text(SECRET.hex())
        secret.chmod(0o600)
        agreed = await cluster.finding("daemons agree")
        assert (agreed.level, agreed.text) == (OK, "1 daemons have the same admin secret, and ZooKeeper's clock")
        secret.write_text((b"x" * len(SECRET)).hex())
        found = await cluster.finding("daemons agree")
        assert (found.level, str(secret) in found.remedy) == (WARNING, True)
        assert f"daemon {DAEMON} on {daemon.me.host} has another admin secret" in found.text
        [position] = await read_positions(cluster.operator)
        assert position.process is not None
        await cluster.operator.set(position.path, own.encode(replace(position.process, mark="")), ANY_VERSION)
        assert "has no admin secret that it can use" in (await cluster.finding("daemons agree")).text


async def test_a_running_daemon_with_these_settings_is_no_twin(tmp_path: Path) -> None:
    async with kafka(tmp_path) as cluster, cluster.daemon():
        [position] = await read_positions(cluster.operator)
        assert position.process is not None
        assert position.process.listener.startswith("127.0.0.1:")
        assert (await cluster.finding("controller.id")).level is OK


async def test_the_finding_on_the_epoch_names_the_holder_of_the_role(tmp_path: Path) -> None:
    async with kafka(tmp_path, hold=True) as cluster:

        async def holder() -> str:
            return (await cluster.finding("controller epoch")).text.split("; ")[1]

        assert await holder() == f"broker {await cluster.controller()} holds the role"
        async with cluster.daemon() as daemon:
            await cluster.take_over()
            await cluster.serving(daemon)
            assert await holder() == f"daemon {DAEMON} holds the role"
        assert await holder() == f"daemon {DAEMON} held the role and is gone"
        await cluster.operator.delete(paths.CONTROLLER, ANY_VERSION)
        cluster.stop_elections()
        assert await holder() == "the role has no holder"


@pytest.mark.parametrize(
    ("ahead_ms", "level"), [(2_000, OK), (-2_000, OK), (2_001, WARNING), (-2_001, WARNING), (None, OK)]
)
async def test_a_clock_that_differs_from_zookeepers_is_a_warning(
    ahead_ms: int | None, level: Level, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with kafka(tmp_path) as cluster:
        clock_ms = 0 if ahead_ms is None else 10_000_000 + ahead_ms
        process = replace(this_process(DAEMON), clock_ms=clock_ms, mark="of its secret")

        async def read(_zk: object) -> list[QueuePosition]:
            return [QueuePosition("/regent/locks/lock-1", process, 1, 10_000_000)]

        monkeypatch.setattr("controller.daemon.preflight.daemons.read_positions", read)
        assert (await cluster.finding("daemons agree")).level is level


CONF = (
    "clientPort=2181\ndataDir=/data/version-2\ntickTime={tick}\nmaxClientCnxns=60\nminSessionTimeout=4000\n"
    "maxSessionTimeout={most}\nserverId=1\n"
)


@pytest.mark.parametrize(
    ("conf", "level", "text", "remedy"),
    [
        (CONF.format(tick=2000, most=40000) + "syncLimit=5\n", WARNING, "wait 10000 ms", "syncLimit=4 "),
        (CONF.format(tick=2000, most=40000) + "syncLimit=4\n", OK, "at most 8000 ms", ""),
        (CONF.format(tick=2000, most=12000) + "syncLimit=4\n", WARNING, "session of 12000 ms", "syncLimit=2 "),
        (CONF.format(tick=3000, most=40000) + "syncLimit=3\n", WARNING, "wait 9000 ms", "syncLimit=2 "),
        (CONF.format(tick=2000, most=40000), OK, "a single server", ""),
        ("conf is not executed because it is not in the whitelist.\n", OK, "should be below 9000 ms", ""),
    ],
    ids=["the default", "below half", "a shortened session", "exactly half", "a single server", "not sent"],
)
async def test_servers_that_wait_too_long_for_a_frozen_leader_are_a_warning(
    tmp_path: Path, conf: str, level: Level, text: str, remedy: str
) -> None:
    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readexactly(4) == b"conf"
        writer.write(conf.encode())
        writer.close()

    server = await asyncio.start_server(respond, "127.0.0.1", 0)
    async with kafka(tmp_path) as cluster, server:
        port = server.sockets[0].getsockname()[1]
        cluster.change("zookeeper", connect=f"127.0.0.1:{port}/kafka", session_timeout_ms=18_000)
        found = await cluster.finding("ZooKeeper syncLimit")
        assert (found.level, text in found.text, remedy in found.remedy) == (level, True, True), found


async def test_permission_is_that_of_the_session(tmp_path: Path) -> None:
    async with kafka(tmp_path, digest=DIGEST) as cluster:
        await prepare(cluster, topic("orders", (1, 2)), closed(paths.topic("orders"), digest_acl("regent", "secret")))
        assert (await cluster.finding("permissions")).level is OK


@pytest.mark.parametrize(("most", "found"), [(0, 0), (2, 2), (4, 4), (9, 4)])
async def test_refused_paths_are_found_up_to_a_bound(tmp_path: Path, most: int, found: int) -> None:
    async with kafka(tmp_path) as cluster:
        ops: list[Op] = []
        for number in range(6):
            path = paths.topic(f"t{number}")
            await prepare(cluster, topic(f"t{number}", (1,)), *([closed(path)] if number % 3 else []))
            ops.append(SetData(path, b"", ANY_VERSION))
        before = cluster.snapshot()
        closed_topics = [op.path for number, op in enumerate(ops) if number % 3]
        assert await refused_paths(cluster.operator, ops, most) == closed_topics[:found]
        assert cluster.snapshot() == before


OWNED = (Acl(ALL, "digest", digest_id(*DIGEST.split(":"))), Acl(READ, "world", "anyone"))


@pytest.mark.parametrize(
    ("brokers", "ours", "acls", "text"),
    [
        (("true", "true", "true"), False, OPEN, "regent's znodes would be open to any client"),
        (("true", "false", "true"), True, OWNED, "true on broker 1, 3 and false on broker 2"),
        (("false", "false", "false"), True, OPEN, "they could not write regent's znodes"),
        (("true", "true", "true"), True, OPEN, "is open to any client"),
        (("true", "true", "true"), True, (digest_acl("kafka", "pw"), *OWNED), "belongs to digest:kafka:"),
        (("true", "true", "true"), True, OWNED, None),
        (("false", "false", "false"), False, OPEN, None),
    ],
)
async def test_brokers_and_daemon_must_both_close_znodes_or_leave_them_open(
    tmp_path: Path, brokers: tuple[str, ...], ours: bool, acls: tuple[Acl, ...], text: str | None
) -> None:
    async with kafka(tmp_path, hold=True) as cluster:
        for broker, value in zip(cluster.brokers.values(), brokers, strict=True):
            broker.configs["zookeeper.set.acl"] = value
        await cluster.operator.set_acls(paths.TOPICS, acls, ANY_VERSION)
        cluster.operator.set_acl = ours
        found = await cluster.finding("access control of znodes")
        assert (found.level, (text or "") in found.text) == (OK if text is None else REFUSED, True), found


@pytest.mark.parametrize(
    ("connect", "expected"),
    [
        ("zk1,zk2:2182, [::1]:2183,[::2]/kafka", [("zk1", 2181), ("zk2", 2182), ("::1", 2183), ("::2", 2181)]),
        ("zk1:2182", [("zk1", 2182)]),
    ],
)
def test_a_connect_string_gives_hosts_and_ports(connect: str, expected: list[tuple[str, int]]) -> None:
    assert servers(connect) == expected
