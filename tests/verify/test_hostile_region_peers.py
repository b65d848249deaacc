"""Hostile peers attack the port of regions: the leases of honest servers hold, and they are served.

What each attack did and cost is printed as a table; delays are stated, as they were and corrected
(:mod:`tests.verify.siege_costs`). Leases, regions, memory and descriptors are asserted.
"""

from __future__ import annotations

import os

from brokers.listener.inbound import ListenerLimits
from tests.verify.hostile_region_peers import REGIONS
from tests.verify.region_siege import REGIONS as REGIONS_OPEN
from tests.verify.region_siege import besieged, table

ATTACK_S = float(os.environ.get("REGENT_ATTACK_S") or 6)
MEMORY_MB_MAX = 350
"""The reserve of 128 MiB, 64 KiB for each connection, and a process of 80 MB."""
DESCRIPTORS_MORE_MAX = 200


async def test_leases_hold_while_strangers_attack_the_port_of_regions() -> None:
    async with besieged() as siege:
        try:
            for attack in REGIONS:
                await siege.endure(attack, ATTACK_S)
        finally:
            print(table(siege.costs), flush=True)
        assert (await siege.fate())["regions"] == REGIONS_OPEN
    for cost in siege.costs:
        assert (cost.suspended, cost.died) == (0, 0), f"honest servers lost their leases: {cost.attack}"
        assert cost.served, f"no honest server was served: {cost.attack}"
        assert cost.memory_mb <= MEMORY_MB_MAX, cost.attack
        assert cost.descriptors <= ListenerLimits().connections_max + DESCRIPTORS_MORE_MAX, cost.attack
