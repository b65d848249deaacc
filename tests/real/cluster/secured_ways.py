"""Checks requests in both directions for a protocol and mechanism between brokers."""

from __future__ import annotations

from pathlib import Path

from aiokafka.admin import NewTopic

from brokers.security.access import SecureTransport
from brokers.security.tls import Tls
from cli.demo.process import RegentProcess
from metadata_store import paths
from testing.simulated.calls import controlled_shutdown, shutdown_response
from testing.znodes import create_topic
from tests.real.cluster.endpoint import admin_client, endpoint, errors_of
from tests.real.cluster.scene import agreed
from tests.real.cluster.secured import Secured
from tests.real.cluster.world import World, world


async def serving(w: World, daemon: RegentProcess) -> None:
    """Waits until the daemon has started a topic and every broker has its metadata."""
    await create_topic(w.zk, "t", {0: [1, 2], 1: [2, 1]})
    await w.healed()
    await agreed(daemon)


async def works_both_ways(tmp_path: Path, protocol: str, mechanism: str) -> None:
    """Sends requests to brokers, and ISR changes, a controlled shutdown and a client's call to the daemon."""
    secured = Secured(tmp_path, protocol, mechanism)
    async with world(2, replication=2, properties=secured.properties()) as w:
        await secured.introduce(w)
        daemon = w.daemon(flags=["--takeover"], settings=secured.settings())
        await daemon.boot()
        await serving(w, daemon)
        async with endpoint(daemon) as at, admin_client(at.address) as client:
            assert errors_of(await client.create_topics([NewTopic("carried", 1, 2)])) == [("carried", 0)]
        if protocol == "SSL":
            await drains_nothing(w, secured, daemon)
        gone = await w.cluster.brokers[1].shut_down()
        assert gone.first_try
        await w.leads_nothing(1)
        await w.cluster.brokers[1].boot()
        await w.healed()
        await agreed(daemon)


async def drains_nothing(w: World, secured: Secured, daemon: RegentProcess) -> None:
    """Sends a ControlledShutdown with an application's certificate of the same authority; the daemon refuses it."""
    tls = Tls(secured.authority.signed("application"), None, secured.authority.file)
    registered = await w.zk.exists(paths.broker(1))
    assert registered is not None
    connection = await SecureTransport(tls, None).connect("127.0.0.1", daemon.port, lambda: None)
    frame = controlled_shutdown(1, 1, registered.czxid)
    response = shutdown_response(await connection.exchange([len(frame).to_bytes(4, "big"), frame]))
    connection.close()
    assert (response.error, "no broker presents the certificate" in daemon.log_text()) == (31, True)
    assert {state.leader for _, state in (await w.states()).values() if state is not None} == {1, 2}
