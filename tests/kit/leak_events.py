"""Events that a daemon meets thousands of times: bounces of brokers, ends of terms, topics that come and go."""

from __future__ import annotations

import itertools
from typing import Final

import pytest

from brokers.listener.controller_listener import NotController
from brokers.wire.calls import AlterPartitionCall, IsrProposal
from controller.kafka.requests.calls import Calls
from tests.kit.controller_kafka import id_of
from tests.kit.leak_kit import Kept, Life

PARTITIONS: Final = (1, 2, 3), (2, 3, 4), (3, 4, 1), (4, 1, 2)


def flat(found: Kept, events: float) -> bool:
    """Whether less than half a small object stays for each event."""
    return max(found) < events / 2


class Bouncing:
    """Restarts one broker after the other, which catches up; scrapes now and then."""

    def __init__(self, w: Life) -> None:
        self.w = w
        self.number = 0

    async def __call__(self) -> None:
        self.number += 1
        await self.w.bounce(self.number % 4 + 1)
        await self.w.calm()
        await self.w.in_sync()
        if self.number % 50 == 0:
            await self.w.scraped()


async def fenced_at_a_write(w: Life) -> None:
    """Elects another controller; the daemon's next write finds it."""
    cluster = w.term.cluster
    w.server.hold_watches(w.session)
    await w.seize()
    row = cluster.rows[0]
    wish = IsrProposal(id_of("t"), 0, row.leader_epoch, row.isr[:1] or row.isr, row.version, False)
    with pytest.raises(NotController):
        await Calls(w.term.queue).alter_partition(
            AlterPartitionCall(3, row.leader, cluster.brokers[row.leader].epoch, (wish,))
        )
    w.server.release_watches(w.session)


class Terms:
    """Terms end in turn by an election, at a write, and with the session."""

    def __init__(self, w: Life) -> None:
        self.w = w
        self.kinds = itertools.cycle(("elected", "fenced", "expired"))

    async def __call__(self) -> None:
        w, kind, finished = self.w, next(self.kinds), self.w.term.finished
        if kind == "elected":
            await w.seize()
        elif kind == "fenced":
            await fenced_at_a_write(w)
        else:
            w.server.expire(w.session)
        await finished.wait()
        await w.calm()
        await w.in_sync()
        await w.scraped()


class Topics:
    """A topic of three partitions is created, runs, and vanishes."""

    def __init__(self, w: Life) -> None:
        self.w = w
        self.number = 0

    async def __call__(self) -> None:
        self.number += 1
        await self.w.topic(f"topic-{self.number:06d}", (1, 2, 3), (2, 3, 4), (3, 4, 1))
        await self.w.calm()
        await self.w.delete_topic(f"topic-{self.number:06d}")
        await self.w.calm()
