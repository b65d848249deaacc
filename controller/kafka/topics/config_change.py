"""Handles a changed configuration (S4-82): elects leaders uncleanly where allowed, and reads quotas again.

The handler does not need to know which one changed. The decision reads the present values from ZooKeeper where a
partition waits, the next call with a quota reads that quota, and the next CreateTopics response queries a broker. So no
change is missed, and no notification needs to be read.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from controller.kafka.journal.report import Reason
from controller.kafka.path.controller import Controller, portions
from metadata_store import paths
from state_machines.decisions.leader_election import allow_unclean

TURN_ROWS: Final = 15_000
"""Leaderless partitions of one decision, in one turn of the loop."""


async def config_change(c: Controller) -> None:
    """Arms the watch before it reads, so that a later change is another event."""
    await c.zk.exists(paths.CONFIG_CHANGES)
    await c.zk.watch(children=[paths.CONFIG_CHANGES], since_zxid=c.zk.last_zxid)
    c.quotas.forget()
    c.inherited.forget()
    if c.cluster.leaderless:
        decide = partial(allow_unclean, unclean=c.unclean)
        for some in portions(sorted(c.cluster.leaderless), TURN_ROWS):
            await c.carry_out(decide, Reason.UNCLEAN_ALLOWED, "a configuration changed", only=some)
