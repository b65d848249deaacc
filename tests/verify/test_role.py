"""The role at real brokers: taken over in the middle of work, announced, and absent."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from brokers.client import BrokerClient
from cli.demo.process import RegentProcess
from cli.exit_codes import Exit
from metadata_store import paths
from metadata_store.port import ANY_VERSION
from state_machines.model.types import Assignment, TopicAssignment
from testing.embedded.load import Load
from testing.embedded.process import free_port
from testing.znodes import create_topic
from tests.kit.cluster.scene import agreed, leaders, regent, scene, succeeds
from tests.kit.cluster.world import ClusterWorld, world
from tests.kit.deadlines import eventually


async def refusals(daemon: RegentProcess) -> dict[str, str]:
    """Returns the findings that refuse a take-over, by the name of the check."""
    code, out, err = await regent(daemon, "preflight", "-o", "json")
    found = {c["name"]: c["found"] for c in json.loads(out)["items"] if c["result"] == "refused"}
    assert code == (Exit.REFUSED if found else Exit.DONE), err
    return found


@pytest.mark.seed("S4-86")
async def test_a_reassignment_and_a_deletion_that_kafkas_controller_began_are_finished() -> None:
    async with world(3, partitions=6) as w, Load(w.cluster.bootstrap, {"orders": 6}, rate_per_s=50):
        daemon = w.daemon()
        assert await refusals(daemon) == {}
        await create_topic(w.zk, "moved", {0: [1, 2]})
        await create_topic(w.zk, "doomed", {0: [3, 1]})
        await w.led("moved", 1)
        await w.led("doomed", 1)
        await w.cluster.brokers[3].kill()
        await w.registered(3, expected=False)

        wish = {"version": 1, "partitions": [{"topic": "moved", "partition": 0, "replicas": [1, 3]}]}
        await w.zk.create(paths.REASSIGN_PARTITIONS, json.dumps(wish).encode())
        await eventually(lambda: _moving(w), 30.0)
        assert await refusals(daemon) == {}, "a reassignment is carried on"
        await w.zk.create(paths.deletion("doomed"), None)
        assert await refusals(daemon) == {}, "a deletion is carried on"
        await daemon.boot("standby")
        await succeeds(daemon, "takeover", "--yes", "--wait")
        await w.cluster.revive(3)
        await eventually(lambda: _finished(w), 60.0)
        await w.healed()
        await agreed(daemon)


async def _moving(w: ClusterWorld) -> bool:
    [found] = await w.store.load_topics(["moved"])
    return isinstance(found, TopicAssignment) and bool(found.partitions[0].adding)


async def _finished(w: ClusterWorld) -> bool:
    moved, doomed = await w.store.load_topics(["moved", "doomed"])
    return isinstance(moved, TopicAssignment) and moved.partitions[0] == Assignment((1, 3)) and doomed is None


@pytest.mark.seed("S4-86")
async def test_an_offline_log_directory_is_a_warning_and_its_replicas_are_offline_after_a_take_over() -> None:
    async with world(2, partitions=8, replication=2) as w, Load(w.cluster.bootstrap, {"orders": 8}, rate_per_s=50):
        daemon = w.daemon()
        broken = w.cluster.brokers[2].folder / "data-2"
        shutil.rmtree(broken)
        broken.write_text("a file where the directory was")
        await eventually(lambda: _warned(daemon), 60.0)
        assert await refusals(daemon) == {}
        await daemon.boot("standby")
        await succeeds(daemon, "takeover", "--yes", "--wait")
        await eventually(lambda: _offline_there(daemon), 30.0)


async def _warned(daemon: RegentProcess) -> bool:
    _, out, _ = await regent(daemon, "preflight", "-o", "json")
    return any(c["name"] == "log directories" and c["result"] == "warning" for c in json.loads(out)["items"])


async def _offline_there(daemon: RegentProcess) -> bool:
    """Returns whether replicas on the failed disk of broker 2 are offline, and broker 1 leads their partitions."""
    _, out, _ = await regent(daemon, "list", "partitions", "--under-replicated", "-o", "json")
    found = json.loads(out)["items"]
    return bool(found) and all((p["leader"], p["isr"], p["offlineReplicas"]) == (1, [1], [2]) for p in found)


COMPLAINT = "Listeners are not identical across brokers"
PATIENT = (
    "import controller.daemon.admission as c, controller.kafka.brokers.broker_change as e; "
    "c.ENDPOINT_S_MAX = e.GONE_S = 60.0; from cli.main import main; main()"
)
"""The daemon's command, with bounds that a loaded machine keeps: tests in virtual time are about the bounds."""
SILENCED, LOGGED = "ZkMetadataCache=OFF", "ZkMetadataCache=ERROR"


async def log_errors(w: ClusterWorld) -> None:
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


IBPS = ("3.9-IV0", "2.7-IV1")


@pytest.mark.seed("S4-65", "S4-66", "S4-67", "S4-68", "S4-77", "S4-86")
@pytest.mark.parametrize("ibp", IBPS)
async def test_a_broker_holds_the_role_while_every_daemon_is_dead(ibp: str) -> None:
    settings: dict[str, object] = {"controller.ibp": ibp}
    async with scene(settings=settings, ibp=ibp) as stage:
        second, epoch = await stage.standby(settings), await stage.active()
        await second.kill()
        await stage.daemon.kill()
        holder = await stage.w.broker_controls()
        assert await stage.w.epoch() == epoch + 1
        victim = next(b for b in stage.w.cluster.brokers if b != holder)
        await stage.w.cluster.brokers[victim].kill()
        await stage.w.leads_nothing(victim)
        await stage.flows()
        await second.boot()
        assert await stage.w.epoch() == epoch + 2
        assert await stage.metric("regent_interim_terms_total", second) == 1
        assert second.log_has(rf"the role was held by broker {holder}")
        await stage.w.cluster.revive(victim)
        await second.stop()
        await stage.daemon.boot()
        await stage.proven()
        led = leaders(await stage.w.states()).values()
        assert -1 not in led


@pytest.mark.seed("S4-65", "S4-66", "S4-67", "S4-68", "S4-77", "S4-86")
@pytest.mark.parametrize("ibp", IBPS)
async def test_with_hold_no_broker_is_elected_until_a_daemon_is_back(ibp: str) -> None:
    async with scene(ibp=ibp, settings={"controller.ibp": ibp}, request_s_max=120, idempotent=False) as stage:
        cluster = stage.w.cluster
        settings = {"controller.ibp": ibp, **stage.w.hold()}
        await stage.restart_with(settings)
        second, epoch = await stage.standby(settings), await stage.active()
        await second.kill()
        await stage.daemon.kill()
        await stage.w.daemons_gone()
        assert (await stage.w.controller(), await stage.w.epoch()) == (stage.daemon.id, epoch), "/controller stays"

        await stage.w.zk.delete("/controller", ANY_VERSION)
        for broker in cluster.brokers.values():
            await eventually(lambda b=broker: b.log_has("NoAuth"), 20.0)  # type: ignore[misc]
        await cluster.brokers[1].stop()
        await cluster.brokers[1].boot()
        cluster.brokers[2].pause()
        await stage.w.registered(2, expected=False)
        cluster.brokers[2].resume()
        await stage.w.registered(2)
        await cluster.brokers[3].kill()
        await stage.w.registered(3, expected=False)
        assert (await stage.w.controller(), await stage.w.epoch()) == (None, epoch), "no broker is elected"

        await second.boot()
        assert await stage.w.epoch() == epoch + 1
        await stage.w.leads_nothing(3)
        await stage.flows()
        await cluster.revive(3)
        await stage.w.healed()
        await second.stop()
        await stage.daemon.boot()
        await stage.proven()
