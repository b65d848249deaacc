"""Measures when the shadow reads what: polls, growing pauses, slow readings, late ones."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from typing import Any
from unittest import mock

import pytest

from controller.kafka.shadow.reading import Reader
from controller.kafka.shadow.shadow import AGAIN_S_MAX, AGAIN_S_MIN, CATCHING_UP_S, LATE_S, LOAD_MAX, Shadow
from controller.kafka.shadow.timeline import READ_LATE
from tests.kit.polling import eventually
from tests.kit.shadow_kit import TRIPLES
from tests.kit.shadow_store import POLL_S, reported, shadowing, stored
from tests.kit.virtual_time import in_exact_time


class Readings:
    """Records time and size of each read of state znodes; a reading takes ``takes_s``."""

    def __init__(self, takes_s: float = 0.0) -> None:
        self.found: list[tuple[float, int]] = []
        really = Reader.states

        async def states(reader: Reader, named: Sequence[tuple[int, str, int]]) -> Any:
            self.found.append((round(asyncio.get_running_loop().time(), 3), len(named)))
            await asyncio.sleep(takes_s)
            return await really(reader, named)

        self.patch = mock.patch.object(Reader, "states", states)

    def pauses(self) -> list[float]:
        return [round(after - before, 3) for (before, _), (after, _) in pairwise(self.found)]


@in_exact_time
async def test_a_quiet_cluster_is_read_at_each_poll() -> None:
    readings = Readings()
    with readings.patch:
        async with shadowing(stored(*TRIPLES).server):
            await asyncio.sleep(10 * POLL_S)
    assert set(readings.pauses()[:8]) == {POLL_S}
    assert {size for _, size in readings.found} == {len(TRIPLES)}


@in_exact_time
async def test_a_waiting_partition_is_read_again_after_growing_pauses() -> None:
    readings, w = Readings(), stored(*TRIPLES)
    with readings.patch:
        async with shadowing(w.server, Shadow(poll_s=60.0, wait_s=30.0)):
            w.write(("t", 0), 1, 1, (1, 2, 3))
            w.register(8)
            await asyncio.sleep(5.0)
    begin = next(at for at, pause in enumerate(readings.pauses()) if pause == AGAIN_S_MIN)
    assert readings.pauses()[begin : begin + 7] == [AGAIN_S_MIN, 0.04, 0.08, 0.16, 0.32, AGAIN_S_MAX, AGAIN_S_MAX]
    assert {size for _, size in readings.found[begin + 1 :]} == {1}, "the other partitions are not read"


@in_exact_time
async def test_partitions_whose_isr_a_live_replica_may_join_are_read_often() -> None:
    readings, w = Readings(), stored(*TRIPLES)
    w.leader_sets_isr(("t", 1), 2, 3)
    with readings.patch:
        async with shadowing(w.server, Shadow(poll_s=60.0)):
            await asyncio.sleep(0.5)
            w.leader_sets_isr(("t", 1), 2, 3, 1)
            await asyncio.sleep(30.0)
    assert readings.pauses()[:9] == [CATCHING_UP_S] * 9
    assert [size for _, size in readings.found][:10] == [len(TRIPLES), *[1] * 9]
    assert len(readings.found) < 15, "it has joined"


@in_exact_time
async def test_slow_readings_take_a_bounded_share_of_the_time() -> None:
    readings, w = Readings(takes_s=1.0), stored(*TRIPLES)
    with readings.patch:
        async with shadowing(w.server, Shadow(poll_s=600.0, wait_s=600.0)):
            w.write(("t", 0), 1, 1, (1, 2, 3))
            w.register(8)
            await asyncio.sleep(60.0)
    assert readings.pauses()[-3:] == [1.0 + 1.0 / LOAD_MAX] * 3


@pytest.mark.parametrize(("takes_s", "late"), [(LATE_S / 2, False), (2.5 * LATE_S, True)])
@in_exact_time
async def test_an_event_that_is_read_late_may_hide_others(takes_s: float, late: bool) -> None:
    w = stored(*TRIPLES)
    w.controller.tamper = lambda name, s: s if name[1] else type(s)(3, s.leader_epoch, s.isr, 0, 0)
    readings = Readings(takes_s)
    with readings.patch:
        async with shadowing(w.server) as (shadow, _):
            started = len(readings.found)
            await eventually(lambda: len(readings.found) > started)
            w.deregister(1)
            w.controller.finish()
            report = await reported(shadow, lambda r: bool(r.differing or r.uncomparable))
    assert (report.differing, report.uncomparable) == ((0, {READ_LATE: 1}) if late else (1, {}))
