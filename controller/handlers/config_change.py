"""A configuration changed (S4-82): what waits for a leader may be elected uncleanly, and quotas are read again.

Which one changed does not matter: the decision asks ZooKeeper what holds now, and only where somebody waits; so does
the next call that a quota is for, and the next answer to CreateTopics asks a broker. So nothing is lost that changed
while nobody looked, and no notification needs to be read.
"""

from __future__ import annotations

from functools import partial

from controller.engine.controller import Controller
from controller.journal.reason import Reason
from metadata_store import paths
from state_machines.decisions.leader_election import allow_unclean


async def config_change(c: Controller) -> None:
    """Armed first, as of a read, so that what changes later is another event."""
    await c.zk.exists(paths.CONFIG_CHANGES)
    await c.zk.watch(children=[paths.CONFIG_CHANGES], since_zxid=c.zk.last_zxid)
    c.quotas.forget()
    c.inherited.forget()
    if c.cluster.leaderless:
        await c.carry_out(partial(allow_unclean, unclean=c.unclean), Reason.UNCLEAN_ALLOWED, "a configuration changed")
