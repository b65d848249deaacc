from __future__ import annotations

from tests.core.controller_world import world
from tests.core.virtual_time import in_virtual_time


@in_virtual_time
async def test_smoke() -> None:
    async with world() as w:
        await w.topic("t", (1, 2, 3), (2, 3, 1), leaders=True)
        await w.topic("new", (3, 1))
        await w.take_office()
        print(w.led())
        w.agreed()
        w.die(1)
        await w.settle()
        print(w.led())
        await w.told()
        print(w.wires.last_word(2, 6), w.wires.open)
        await w.boot(1)
        await w.told()
        print(w.led(), [c.why for c in w.witness.told])
        await w.controlled_shutdown(2)
        await w.told()
        print(w.led(), w.wires.stopped(2))
