"""Regions are split and merged while clients write, and their servers are killed meanwhile."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.kit.deadlines import eventually
from tests.kit.examples.processes import Cluster, cluster
from tests.verify.test_kv_processes import Writers, expect_all


async def test_splits_and_merges_lose_no_acknowledged_put(tmp_path: Path) -> None:
    """The server of the heirs is killed as soon as they are open, and in the middle of what it writes of them."""
    async with cluster(tmp_path) as kv:
        await kv.start("a", "b", "c", "d", arguments=("--segment-bytes", "20000"))
        kv.daemon.create(1)
        await kv.daemon.open(1, "a")
        async with Writers(kv.client).running() as writers:
            await writers.more(300)
            low, high = await kv.daemon.reshape([1], b"4")
            for heir in (low, high):
                await kv.daemon.open(heir, "a")
            await killed(kv, "a", "b")
            await writers.more(300)
            await discarded(kv, [low, high], [1], "b")
            [merged] = await kv.daemon.reshape([low, high])
            await kv.daemon.open(merged, "b")
            await writers.more(30)
            await killed(kv, "b", "c")
            await discarded(kv, [merged], [low, high], "c")
            heirs = await kv.daemon.reshape([merged], b"2", b"4", b"6")
            for heir, server in zip(heirs, "cdcd", strict=True):
                await kv.daemon.open(heir, server)
            await writers.more(300)
            await discarded(kv, heirs, [merged], "d")
            await killed(kv, "c", "d")
            await writers.more(300)
        await expect_all(kv, writers.acknowledged)
        files = {path.parent.name for path in (tmp_path / "data/regions").glob("*/*.sqlite")}
        assert files == {str(heir) for heir in heirs}, "nothing is left of their parents"


async def killed(kv: Cluster, dead: str, successor: str) -> None:
    kv.servers[dead].signal(signal.SIGKILL)
    await kv.servers[dead].ended()
    await kv.daemon.take_over(dead, successor)


async def discarded(kv: Cluster, heirs: list[int], parents: list[int], server: str) -> None:
    """Waits until the heirs need their parents no more, and has a server discard those."""
    await eventually(lambda: kv.daemon.are_independent(heirs), within_s=30)
    for parent in parents:
        await kv.daemon.discard(parent, server)
