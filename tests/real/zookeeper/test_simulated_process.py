"""A process of simulated brokers on a real ZooKeeper, and a daemon that controls them: the whole way over sockets."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from cli.demo.process import RegentProcess
from controller.role import own_znodes
from controller.role.own_znodes import RoleFlag
from metadata_store import paths
from metadata_store.codecs.base import MalformedNode
from metadata_store.codecs.cluster import decode_broker
from metadata_store.kazoo_adapter import KazooZooKeeper
from state_machines.model.types import Endpoint
from tests.contracts.simulated_process import COUNT, FIRST, all_is_sent, brokers
from tests.kit.deadlines import eventually


async def registered(zk: KazooZooKeeper) -> dict[int, int]:
    """Returns the broker epochs by id."""
    listed = await zk.children(paths.BROKER_IDS)
    assert listed is not None
    stats = {int(name): await zk.exists(paths.broker(int(name))) for name in listed[0]}
    return {broker: stat.czxid for broker, stat in stats.items() if stat is not None}


@pytest.mark.parametrize("flags", [[], ["--own-sessions"]], ids=["one session", "own sessions"])
async def test_brokers_register_die_return_and_end_with_the_process(
    zookeeper_chroot: str, tmp_path: Path, flags: list[str]
) -> None:
    async with brokers(zookeeper_chroot, tmp_path, *flags, "--listeners", "INTERNAL,CLIENT") as (process, zk):
        first = await registered(zk)
        state = await process.state()
        assert first == {int(broker): found["epoch"] for broker, found in state.items()}
        assert len(first) == COUNT
        node = await zk.get(paths.broker(12))
        assert node is not None
        found = decode_broker("", 12, node.data, node.stat.czxid, 0)
        assert not isinstance(found, MalformedNode)
        port = state["12"]["port"]
        assert found.endpoints == (Endpoint("INTERNAL", "127.0.0.1", port), Endpoint("CLIENT", "127.0.0.1", port))

        assert "at_ns" in await process.send("die", brokers=[12, 13])
        await eventually(lambda: _is(zk, {11, 14}))
        assert "not registered" in (await process.send("die", brokers=[12]))["error"]
        assert "at_ns" in await process.send("register", brokers=[12, 13])
        await process.send("bounce", brokers=[11])
        second = await registered(zk)
        assert second[14] == first[14]
        assert all(second[broker] > first[broker] for broker in (11, 12, 13))
        assert (await process.state())["11"]["epoch"] == second[11]
        assert "no broker [19]" in (await process.send("register", brokers=[19]))["error"]
        await process.stop()
        assert process.exit_code == 0
        await eventually(lambda: _is(zk, set()))


async def _is(zk: KazooZooKeeper, expected: set[int]) -> bool:
    return set(await registered(zk)) == expected


@pytest.mark.parametrize(
    ("ibp", "flags"),
    [("3.9-IV0", []), ("3.9-IV0", ["--full-answers"]), ("3.9-IV0", ["--exact"]), ("2.8", []), ("2.7-IV1", [])],
    ids=str,
)
async def test_simulated_brokers_receive_all_metadata_from_a_daemon(
    zookeeper_chroot: str, tmp_path: Path, ibp: str, flags: list[str]
) -> None:
    async with brokers(zookeeper_chroot, tmp_path, "--ibp", ibp, *flags) as (process, zk):
        daemon = RegentProcess(tmp_path / "regent", zookeeper_chroot, settings={"controller.ibp": ibp})
        try:
            await zk.create(own_znodes.ROOT, b"")
            await zk.create(own_znodes.ROLE, own_znodes.encode(RoleFlag("regent")))
            await daemon.boot()
            await all_is_sent(process, zk, daemon.id)
        finally:
            await daemon.kill()


async def test_the_response_to_an_impossible_command_has_the_reason(zookeeper_chroot: str, tmp_path: Path) -> None:
    async with brokers(zookeeper_chroot, tmp_path) as (process, _):
        for command, fields, why in (
            ("dance", {}, "'dance' is not one of bounce, "),
            ("shutdown", {"broker": FIRST}, "there is no controller"),
            ("fail", {"broker": FIRST, "topic": "orders", "partition": 0}, "start the process with --exact"),
            ("slow", {"brokers": [FIRST]}, "missing 1 required positional argument: 'ms'"),
        ):
            assert why in (await process.send(command, **fields))["error"]
        for command, fields in (("mute", {}), ("slow", {"ms": 1}), ("errors", {"api": "STOP_REPLICA", "top": 11})):
            assert await process.send(command, brokers=[], **fields) == {}
        await process.send("stop")
        assert await process.ended(60.0)
        assert process.exit_code == 0


async def test_without_a_socket_the_process_reads_its_input_and_ends_with_it(zookeeper_chroot: str) -> None:
    command = [sys.executable, "-m", "testing.simulated", "--zookeeper", zookeeper_chroot]
    command += ["--count", "2", "--first-id", "7"]
    process = await asyncio.create_subprocess_exec(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(b'{"do": "stats"}\n')
        response = json.loads(await asyncio.wait_for(process.stdout.readline(), 60.0))
        assert {broker: found["registered"] for broker, found in response["brokers"].items()} == {"7": True, "8": True}
        process.stdin.close()
        assert await asyncio.wait_for(process.wait(), 60.0) == 0
    finally:
        if process.returncode is None:
            process.kill()
