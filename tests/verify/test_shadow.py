"""A shadow through every broker's death and clean shutdown, the controller's too, at two IBPs and under load."""

from __future__ import annotations

import pytest

from controller.kafka.shadow.events import Kind
from testing.embedded.load import Load
from tests.real.cluster.shadow_watch import spread, watching
from tests.real.cluster.world import world


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
