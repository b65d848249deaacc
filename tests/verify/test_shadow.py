"""A shadow through every broker's death, and beside planted differences."""

from __future__ import annotations

import re

import pytest

from controller.kafka.shadow.events import Kind
from controller.role import own_znodes
from testing.embedded.load import Load
from tests.kit.cluster.shadow_watch import plant, spread, watching
from tests.kit.cluster.world import ClusterWorld, world
from tests.kit.deadlines import eventually


@pytest.mark.seed("S4-65", "S4-67", "S4-68", "S4-80")
@pytest.mark.parametrize("ibp", ["2.7-IV1", "3.9-IV0"])
async def test_a_shadow_agrees_with_kafkas_controller_through_every_event(ibp: str) -> None:
    async with world(3, ibp=ibp) as w, watching(w) as watch:
        for name, partitions, replicas in (("triple", 60, 3), ("double", 20, 2), ("single", 12, 1)):
            await watch.creates(name, spread(partitions, replicas))
        async with Load(w.cluster.bootstrap, {"triple": 60}, rate_per_s=300):
            controller = await w.broker_controls()
            for broker in sorted(w.cluster.brokers, key=lambda b: b == controller):
                await watch.kills(broker)
            controller = await w.broker_controls()
            for broker in sorted(w.cluster.brokers, key=lambda b: b == controller):
                await watch.shuts_down(broker)
            await watch.sees_another_controller()
            await watch.creates("late", spread(9, 3))
        report = watch.report()
        print(f"IBP {ibp}:", *report.lines(), sep="\n")
        assert report.differing == 0, report.lines()
        assert report.compared_total >= 500
        assert all(watch.agreed(kind) for kind in Kind)


DECISIONS_MIN = 200


@pytest.mark.seed("S4-42", "S4-44", "S4-45", "S4-46", "S4-49", "S4-72", "S4-74")
async def test_a_shadow_agrees_with_kafkas_controller_and_finds_states_written_by_hand() -> None:
    async with world(3) as w:
        daemon = w.daemon(flags=["--shadow"])
        await daemon.boot("shadow")
        await eventually(lambda: "shadow of controller" in daemon.log_text(), 30.0)
        await agrees(w)
        assert await w.zk.exists(own_znodes.ROOT) is None, "a shadow has no place in the queue and no flag"
        await daemon.stop()
        [summary] = re.findall(r"(\d+) decisions compared, 0 differences", daemon.log_text())
        assert int(summary) >= DECISIONS_MIN, daemon.log_tail()
        await finds_planted_states(w)


async def agrees(w: ClusterWorld) -> None:
    """Causes events one after the other; a shadow in this process shows when each was decided."""
    async with watching(w) as watch:
        for name, partitions, replicas in (("triple", 80, 3), ("double", 20, 2), ("single", 12, 1)):
            await watch.creates(name, spread(partitions, replicas))
        controller = await w.broker_controls()
        killed, stopped = (b for b in w.cluster.brokers if b != controller)
        await watch.kills(killed)
        await watch.shuts_down(stopped)
        report = watch.report()
    print(*report.lines(), sep="\n")
    assert report.compared_total >= DECISIONS_MIN
    assert report.differing == 0, report.lines()
    assert all(watch.agreed(kind) for kind in (Kind.CREATION, Kind.DEATH, Kind.RETURN, Kind.SHUTDOWN))


async def finds_planted_states(w: ClusterWorld) -> None:
    """Writes three states of ISR [1, 2, 3] by hand: another leader, a smaller ISR, only a larger epoch."""
    async with watching(w, wait_s=2.0) as watch:
        states = await w.states()
        names = [("triple", p) for p in range(3)]
        leaders = [state.leader for name in names if (state := states[name][1]) is not None]
        behind, *_ = (b for b in reversed(states[names[0]][0]) if b != leaders[0])
        await plant(w, *names[0], leader=behind, isr=(1, 2, 3), epochs=1)
        await plant(w, *names[1], leader=leaders[1], isr=(leaders[1], leaders[1] % 3 + 1), epochs=1)
        await plant(w, *names[2], leader=leaders[2], isr=(1, 2, 3), epochs=2)
        await eventually(lambda: watch.report().differing >= len(names), 30.0)
        found = {d.path: d.fields for d in watch.report().differences}
    assert found == {
        f"/brokers/topics/triple/partitions/{partition}/state": fields
        for partition, fields in enumerate(("leader, leader epoch", "ISR, leader epoch", "leader epoch"))
    }
