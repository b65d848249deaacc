"""Plays the table with every client at both controllers' clusters at the same time, and compares the results."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from brokers.client import BrokerClient
from tests.kit.cluster.endpoint import endpoint
from tests.kit.cluster.world import ClusterWorld, world
from tests.kit.deadlines import eventually
from tests.verify.clients.accepted import ACCEPTED, Accepted
from tests.verify.clients.calls import CALLS, DAEMON, GROUPS
from tests.verify.clients.child import CLIENTS
from tests.verify.stock_tools.one_jvm import has_compiler
from tests.verify.stock_tools.sites import BROKER_OPTIONS, PARTITIONS, SETTINGS

CLIENT_S_MAX: Final = 600.0
TRIES_MAX: Final = 2
"""librdkafka ends its process by an assertion now and then, at either cluster."""
RESULTS: Final = Path(__file__).with_name("results.json")
Played = dict[str, dict[str, list[str]]]
"""Results in the order of the table, by controller and client."""


class Difference(NamedTuple):
    """Holds a call whose results differ."""

    client: str
    group: str
    title: str
    kafka: str
    regent: str

    def accepted(self) -> Accepted | None:
        """Returns the accepted difference that covers this one."""
        return next((one for one in ACCEPTED if one.explains(self.title, self.kafka, self.regent)), None)

    def __str__(self) -> str:
        return f"{self.client}: {self.group}: {self.title}\n  - {self.kafka}\n  + {self.regent}"


async def play_all(tell: Callable[[str], None]) -> Played:
    """Starts both clusters, plays every client at the brokers of each, and returns the results."""
    clients = [client for client in CLIENTS if has_compiler() or not client.startswith("Java")]
    async with asyncio.TaskGroup() as group:
        kafka = group.create_task(_under_kafka(clients, tell))
        regent = group.create_task(_under_regent(clients, tell))
    return {"kafka": kafka.result(), "regent": regent.result()}


async def _under_kafka(clients: list[str], tell: Callable[[str], None]) -> dict[str, list[str]]:
    async with world(3, partitions=PARTITIONS, **BROKER_OPTIONS) as w:
        await w.broker_controls()
        return await _visit(w, "kafka", clients, tell)


async def _under_regent(clients: list[str], tell: Callable[[str], None]) -> dict[str, list[str]]:
    async with world(3, partitions=PARTITIONS, **BROKER_OPTIONS) as w:
        daemon = w.daemon(controller_id=DAEMON, flags=["--takeover"], settings=SETTINGS)
        await daemon.boot()
        async with endpoint(daemon):
            await eventually(lambda: _listed(w, daemon.id), 60.0)
            return await _visit(w, "regent", clients, tell)


async def _listed(w: ClusterWorld, daemon: int) -> bool:
    """Returns whether the metadata of each broker has the daemon."""
    for broker in w.cluster.brokers.values():
        async with await BrokerClient.connect("127.0.0.1", broker.client_port) as asking:
            if daemon not in {node.id for node in (await asking.metadata()).nodes}:
                return False
    return True


async def _visit(
    w: ClusterWorld, controller: str, clients: list[str], tell: Callable[[str], None]
) -> dict[str, list[str]]:
    found = {}
    for number, client in enumerate(clients):
        title, results = await _played(w, client, f"c{number}")
        found[title] = results
        tell(f"{controller}: {title}: {len(results)} calls")
    return found


async def _played(w: ClusterWorld, client: str, prefix: str) -> tuple[str, list[str]]:
    """Plays one client in a process of its own, with topics of its own."""
    why = ""
    for attempt in range(TRIES_MAX):
        command = [sys.executable, "-m", "tests.verify.clients.child", client, ",".join(w.cluster.bootstrap)]
        log = w.cluster.folder / f"{prefix}-{attempt}.log"
        with log.open("wb") as errors:
            process = await asyncio.create_subprocess_exec(
                *command, f"{prefix}{attempt}-", stdout=asyncio.subprocess.PIPE, stderr=errors
            )
            try:
                async with asyncio.timeout(CLIENT_S_MAX):
                    out, _ = await process.communicate()
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
        if process.returncode == 0:
            title, results = json.loads(out)
            return title, results
        why = f"{client} ended with {process.returncode}: {log.read_text()[-2_000:]}"
    raise AssertionError(why)


def differences(played: Played) -> Iterator[Difference]:
    """Yields differences between the controllers, accepted or not."""
    groups = [group.title for group in GROUPS for _ in group.calls]
    for client, ours in played["regent"].items():
        for group, call, here, there in zip(groups, CALLS, ours, played["kafka"][client], strict=True):
            if here != there:
                yield Difference(client, group, call.title, there, here)
