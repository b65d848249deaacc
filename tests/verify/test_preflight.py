"""The preflight on real clusters under Kafka's own controller: what this release cannot carry on stands in the way."""

from __future__ import annotations

import json
import shutil

import pytest

from cli.demo.process import RegentProcess
from cli.exit_codes import Exit
from controller.role import own_znodes as own
from metadata_store import paths
from state_machines.model.types import Assignment, TopicAssignment
from testing.embedded.load import Load
from testing.embedded.process import free_port
from testing.znodes import create_topic
from tests.cluster.scene import agreed, regent
from tests.cluster.world import World, world
from tests.polling import eventually


async def refusals(daemon: RegentProcess) -> dict[str, str]:
    """What stands in the way, by the name of the check; the exit code says the same."""
    code, out, err = await regent(daemon, "preflight", "-o", "json")
    found = {c["name"]: c["found"] for c in json.loads(out)["items"] if c["result"] == "refused"}
    assert code == (Exit.REFUSED if found else Exit.DONE), err
    return found


async def stands_in_the_way(w: World, daemon: RegentProcess, wanted: dict[str, str]) -> None:
    """Exactly these checks refuse, and no way to take the role over gets past them."""
    holder, epoch = await w.broker_controls(), await w.epoch()
    found = await refusals(daemon)
    assert found.keys() == wanted.keys(), found
    assert all(text in found[name] for name, text in wanted.items()), found
    code, out, err = await regent(daemon, "takeover", "--yes")
    assert code == Exit.REFUSED, (out, err)
    assert all(name in out + err for name in wanted)
    code, _, err = await regent(daemon, "run", "--takeover")
    assert code == Exit.REFUSED, err
    assert all(name in err for name in wanted)
    assert (await w.controller(), await w.epoch()) == (holder, epoch)
    assert await w.zk.exists(own.ROLE) is None


async def led(w: World, topic: str) -> bool:
    states = {name: state for name, (_, state) in (await w.states()).items() if name[0] == topic}
    return bool(states) and all(state is not None and state.leader >= 0 for state in states.values())


@pytest.mark.seed("S4-86")
async def test_unfinished_work_of_kafkas_controller_is_carried_on() -> None:
    async with world(3, partitions=6) as w, Load(w.cluster.bootstrap, {"orders": 6}, rate_per_s=50):
        daemon = w.daemon()
        assert await refusals(daemon) == {}
        await create_topic(w.zk, "moved", {0: [1, 2]})
        await create_topic(w.zk, "doomed", {0: [3, 1]})
        for topic in ("moved", "doomed"):
            await eventually(lambda t=topic: led(w, t), 30.0)  # type: ignore[misc]
        await w.cluster.brokers[3].kill()
        await eventually(lambda: _registered(w, 3, expected=False), 30.0)

        wish = {"version": 1, "partitions": [{"topic": "moved", "partition": 0, "replicas": [1, 3]}]}
        await w.zk.create(paths.REASSIGN_PARTITIONS, json.dumps(wish).encode())
        await eventually(lambda: _moving(w), 30.0)
        assert await refusals(daemon) == {}, "a reassignment is carried on"
        await w.zk.create(paths.deletion("doomed"), None)
        assert await refusals(daemon) == {}, "a deletion is carried on"
        await daemon.boot("standby")
        code, out, err = await regent(daemon, "takeover", "--yes", "--wait")
        assert code == Exit.DONE, (out, err)
        await w.cluster.revive(3)
        await eventually(lambda: _finished(w), 60.0)
        await w.healed()
        await agreed(daemon)


async def _registered(w: World, broker: int, *, expected: bool) -> bool:
    return (broker in await w.cluster.registered()) is expected


async def _moving(w: World) -> bool:
    [found] = await w.store.load_topics(["moved"])
    return isinstance(found, TopicAssignment) and bool(found.partitions[0].adding)


async def _finished(w: World) -> bool:
    moved, doomed = await w.store.load_topics(["moved", "doomed"])
    return isinstance(moved, TopicAssignment) and moved.partitions[0] == Assignment((1, 3)) and doomed is None


@pytest.mark.seed("S4-86")
async def test_an_offline_log_directory_is_told_and_goes_on_after_a_take_over() -> None:
    async with world(2, partitions=8, replication=2) as w, Load(w.cluster.bootstrap, {"orders": 8}, rate_per_s=50):
        daemon = w.daemon()
        broken = w.cluster.brokers[2].folder / "data-2"
        shutil.rmtree(broken)
        broken.write_text("a file where the directory was")
        await eventually(lambda: _warned(daemon), 60.0)
        assert await refusals(daemon) == {}
        await daemon.boot("standby")
        code, out, err = await regent(daemon, "takeover", "--yes", "--wait")
        assert code == Exit.DONE, (out, err)
        await eventually(lambda: _offline_there(daemon), 30.0)


async def _warned(daemon: RegentProcess) -> bool:
    _, out, _ = await regent(daemon, "preflight", "-o", "json")
    return any(c["name"] == "log directories" and c["result"] == "warning" for c in json.loads(out)["items"])


async def _offline_there(daemon: RegentProcess) -> bool:
    """Broker 2 lives, leads nothing that it lost, and everybody is told so."""
    _, out, _ = await regent(daemon, "list", "partitions", "--under-replicated", "-o", "json")
    found = json.loads(out)["items"]
    return bool(found) and all((p["leader"], p["isr"], p["offlineReplicas"]) == (1, [1], [2]) for p in found)


@pytest.mark.seed("S4-86")
async def test_one_listener_for_clients_and_brokers_refuses_a_take_over() -> None:
    port = free_port()
    shared = {
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
    }
    async with world(1, client_port=port, replication=1, properties=shared) as w:
        daemon = w.daemon(settings={"brokers.inter_broker_listener": "PLAINTEXT"})
        unknown = {"client listener": "broker 1 has no listener CLIENT"}
        one = {"separate listener": "broker 1 has one listener for clients and brokers"}
        await stands_in_the_way(w, daemon, one | unknown)
        answered = {"brokers.inter_broker_listener": "PLAINTEXT", "admin.client_listener": "PLAINTEXT"}
        _, out, _ = await regent(w.daemon(settings=answered), "preflight", "-o", "json")
        found = {c["name"]: c for c in json.loads(out)["items"]}["separate listener"]
        assert found["result"] == "ok"
        assert "the admin endpoint answers on PLAINTEXT" in str(found)
        unnamed = {"brokers answer": "broker 1 (PLAINTEXT) registered no listener INTERNAL"}
        await stands_in_the_way(w, w.daemon(), unnamed | unknown)
