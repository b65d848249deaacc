"""Brokers have the daemon on the same listeners as each other through take-overs and restarts, and log no error."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from brokers.client import BrokerClient
from testing.embedded.process import free_port
from tests.kit.polling import eventually
from tests.real.cluster.world import World, world

COMPLAINT = "Listeners are not identical across brokers"
PATIENT = (
    "import controller.daemon.queue_admission as c, controller.kafka.brokers.endpoint_change as e; "
    "c.ENDPOINT_S_MAX = e.GONE_S = 60.0; from cli.main import main; main()"
)
"""The daemon's command, with bounds that a loaded machine keeps: tests in virtual time are about the bounds."""
SILENCED, LOGGED = "ZkMetadataCache=OFF", "ZkMetadataCache=ERROR"


async def log_errors(w: World) -> None:
    """Makes brokers log these errors, which embedded brokers do not by default."""
    for broker in w.cluster.brokers.values():
        file = broker.folder / "log4j.properties"
        text = file.read_text()
        assert SILENCED in text
        file.write_text(text.replace(SILENCED, LOGGED))
        await broker.restart()


def endpoint_of(daemon: int) -> int | None:
    """Returns the process id of the admin endpoint of a daemon; None between two of its lives."""
    children = Path(f"/proc/{daemon}/task/{daemon}/children").read_text().split()
    return int(children[0]) if children else None


async def test_brokers_log_no_error_through_take_overs_and_restarts_of_daemon_and_endpoint() -> None:
    async with world(2) as w:
        await log_errors(w)
        port = free_port()
        settings = {
            "admin.beside_daemon": True,
            "admin.host": "127.0.0.1",
            "admin.port": port,
            "admin.advertised_host": "127.0.0.1",
        }
        daemon = w.daemon(flags=["--takeover"], settings=settings, command=[sys.executable, "-c", PATIENT, "run"])

        async def listed() -> bool:
            """Returns whether the metadata of each broker has the daemon at the endpoint."""
            for broker in w.cluster.brokers.values():
                async with await BrokerClient.connect("127.0.0.1", broker.client_port) as asking:
                    nodes = (await asking.metadata()).nodes
                if (daemon.id, port) not in {(node.id, node.port) for node in nodes}:
                    return False
            return True

        await daemon.boot()
        await eventually(listed, 60.0)
        await daemon.kill()
        await daemon.boot()
        await eventually(listed, 60.0)
        await daemon.stop()
        await daemon.boot()
        await eventually(listed, 60.0)
        endpoint = endpoint_of(daemon.pid)
        assert endpoint is not None
        os.kill(endpoint, signal.SIGKILL)
        await eventually(lambda: endpoint_of(daemon.pid) not in (endpoint, None), 60.0)
        await w.cluster.brokers[2].restart()
        await eventually(listed, 60.0)
        logs = "".join(broker.log.read_text() for broker in w.cluster.brokers.values())
        assert "Registered broker" in logs
        assert COMPLAINT not in logs
