"""Shadow mode beside Kafka's own controller: the same decisions, and planted differences found."""

from __future__ import annotations

import pytest

from controller.shadow.happenings import Kind
from tests.cluster.shadow_watch import plant, spread, watching
from tests.cluster.world import World, world
from tests.polling import eventually

DECISIONS_MIN = 200


@pytest.mark.seed("S4-42", "S4-44", "S4-45", "S4-46", "S4-49", "S4-72", "S4-74")
async def test_it_agrees_through_creation_death_return_and_clean_shutdown_and_finds_what_is_planted() -> None:
    async with world(3) as w:
        await agrees(w)
        await finds_what_is_planted(w)


async def agrees(w: World) -> None:
    async with watching(w) as watch:
        for name, partitions, replicas in (("triple", 60, 3), ("double", 20, 2), ("single", 12, 1)):
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


async def finds_what_is_planted(w: World) -> None:
    """Three partitions of ISR [1, 2, 3] are written by hand: another leader, a smaller ISR, only a larger epoch."""
    async with watching(w, wait_s=2.0) as watch:
        states = {name: held for name, (_, held) in (await w.states()).items() if name[0] == "triple"}
        names = sorted(states)[:3]
        leaders = [held.leader for name in names if (held := states[name]) is not None]
        others = [leader % 3 + 1 for leader in leaders]
        assert [held is not None and sorted(held.isr) for held in states.values()] == [[1, 2, 3]] * len(states)
        followed = [(b for b in (1, 2, 3) if b != spread(3, 3)[p][0]) for p in range(3)]
        await plant(w, *names[0], leader=max(followed[0]), isr=(1, 2, 3), epochs=1)
        await plant(w, *names[1], leader=leaders[1], isr=(leaders[1], others[1]), epochs=1)
        await plant(w, *names[2], leader=leaders[2], isr=(1, 2, 3), epochs=2)
        await eventually(lambda: watch.report().differing >= len(names), 30.0)
        found = {d.path: d.fields for d in watch.report().differences}
    assert found == {
        f"/brokers/topics/triple/partitions/{name[1]}/state": fields
        for name, fields in zip(names, ("leader, leader epoch", "ISR, leader epoch", "leader epoch"), strict=True)
    }
