"""A whole cluster that was open before: nothing below ``/regent`` is open once a daemon runs that closes its znodes."""

from __future__ import annotations

import pytest

from metadata_store.acl import OPEN
from metadata_store.kazoo_adapter import KazooZooKeeper
from metadata_store.own import ENDPOINTS, LOCKS, OWN, QUARANTINE, REGIONS, STRAYS, TOPIC_IDS_BEGIN, own_path
from metadata_store.port import ANY_VERSION
from regent_agent.agent import Agent
from regent_agent.options import AgentOptions
from testing.embedded.process import free_port
from tests.contracts.closing import acls_below, writable
from tests.kit.cluster.endpoint import endpoint
from tests.kit.cluster.scene import Scene, succeeds
from tests.kit.deadlines import eventually
from tests.kit.regions.daemon import Opens

pytestmark = pytest.mark.asyncio(loop_scope="package")

MOVING = {f"{REGIONS}/{folder}/*" for folder in ("unassigned", "opened", "rs")}
"""What a region in transition, and a server that answers by znodes, have."""
AFTER_FAULTS = {
    TOPIC_IDS_BEGIN,
    *(f"{parent}{below}" for parent in (STRAYS, QUARANTINE) for below in ("", "/*")),
    f"{REGIONS}/buried/*",
}
"""Paths of the registry that only a fault brings about."""


@pytest.mark.timeout(300)
async def test_nothing_of_an_open_time_stays_open_and_no_path_is_missing_in_the_registry(stage: Scene) -> None:
    port = free_port()
    regions = {"regions.store": "zookeeper", "regions.host": "127.0.0.1", "regions.port": port}
    settings = stage.w.hold() | regions | {"regions.startup_wait_ms": 0, "regions.transport": "zookeeper"}
    await stage.restart_with(settings)
    agent = Agent(Opens(), AgentOptions((("127.0.0.1", port),), "s1", "s1:7000"))
    await agent.start()
    try:
        await _use(stage)
        async with endpoint(stage.daemon):
            await _closed(stage)
            await stage.daemon.stop()
            opened = await _open_again(stage)
            await stage.daemon.boot()
            await _closed(stage)
        entries = {path: own_path(path) for path in opened}
        assert [path for path, entry in entries.items() if entry is None] == [], "the registry lacks them"
        seen = {entry.path for entry in entries.values() if entry is not None}
        alone = {f"{LOCKS}/*", f"{REGIONS}/daemon", f"{REGIONS}/daemons", f"{REGIONS}/daemons/*"}
        left_out = AFTER_FAULTS | MOVING | alone
        assert {one.path for one in OWN} - seen <= left_out, "nobody makes them, also beside others"
    finally:
        await agent.stop()
        await stage.restored()
        await succeeds(stage.daemon, "resume")
        await succeeds(stage.daemon, "uncordon", "1")
        await stage.restart_with(stage.w.hold() | {"controller.on_absence": "brokers"})
    await stage.proven()


async def _use(stage: Scene) -> None:
    """Uses what leaves znodes."""
    await stage.active()
    daemon = stage.daemon
    await succeeds(daemon, "elect", "preferred", "--all")
    await succeeds(daemon, "pause")
    await succeeds(daemon, "cordon", "1")
    await succeeds(daemon, "handback", "--yes", "--wait")
    await succeeds(daemon, "takeover", "--yes", "--wait")
    await stage.active()
    await daemon.post("/v1/regions/namespaces", {"name": "n"})
    [begun] = (await daemon.post("/v1/regions/tables", {"name": "n:t", "uniform": 3}))["items"]
    [made] = (await daemon.get(f"/v1/regions/procedures/{begun['pid']}", waitS=30))["items"]
    assert made["state"] == "success", made
    await succeeds(daemon, "servers", "cordon", "s1")


async def _closed(stage: Scene) -> None:
    """Waits until no stranger can write anything."""

    async def closed() -> bool:
        assert writable(await acls_below(stage.w.zk)) == []
        return True

    await stage.active()
    await eventually(closed)


async def _open_again(stage: Scene) -> list[str]:
    """Opens all znodes, as they were before the settings closed them; returns their paths."""
    zk = KazooZooKeeper(stage.w.cluster.connect, session_timeout_ms=6_000, credentials="regent:secret")
    await zk.connect(10.0)
    try:
        await stage.w.daemons_gone()
        found = await acls_below(zk)
        mine = sorted(path for path in found if not path.startswith(f"{ENDPOINTS}/"))
        for path in mine:
            await zk.set_acls(path, OPEN, ANY_VERSION)
    finally:
        await zk.close()
    assert writable(await acls_below(stage.w.zk)) == mine
    return sorted(found)
