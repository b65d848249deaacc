"""Loads of regions: those of the present open count, rates come of two reports, and a region costs some bytes."""

from __future__ import annotations

import random
import sys

import pytest

from controller.regions.loads import STALE_MIN, Load, RegionLoads
from regent_agent.protocol import RegionLoad
from state_machines.regions.entities import Region, Server, Table
from state_machines.regions.model import Regions
from state_machines.regions.states import RegionState, ServerState, TableKind, TableState

S = RegionState


class Desk:
    """Two servers, a table, and a clock that the test sets."""

    def __init__(self, regions: int = 3) -> None:
        self.now_s = 1_000.0
        self.model = Regions()
        self.loads = RegionLoads(self.model, lambda: self.now_s)
        self.a, self.b = (Server(name, 1, f"{name}:1", "", ServerState.ONLINE, {}) for name in "ab")
        self.model.servers = {one.key: one for one in (self.a, self.b)}
        self.table = Table("t", TableKind.USER, TableState.ENABLED, {}, [])
        self.model.add_table(self.table)
        some = [Region(id_, self.table, b"%06d" % id_, b"", S.OFFLINE) for id_ in range(1, regions + 1)]
        self.model.add_regions(self.table, some)
        for one in some:
            self.open(one.id, self.a)

    def open(self, id_: int, server: Server) -> None:
        region = self.model.regions[id_]
        if region.state is S.OPEN:
            for state in (S.CLOSING, S.CLOSED):
                self.model.move(region, state, region.server if state is S.CLOSING else None, self.ms)
        self.model.move(region, S.OPENING, server, self.ms)
        self.model.move(region, S.OPEN, server, self.ms)

    @property
    def ms(self) -> int:
        return int(self.now_s * 1000)

    def report(self, *loads: RegionLoad, server: Server | None = None) -> int:
        return self.loads.take(server or self.a, loads)

    def of(self, id_: int) -> Load | None:
        return self.loads.of(self.model.regions[id_])


def test_a_size_is_known_at_once_and_a_rate_after_two_reports() -> None:
    desk = Desk()
    desk.report(RegionLoad(2, 100, 10, 5_000, 3))
    assert desk.of(1) is None
    assert desk.of(2) == Load(5_000, 3, None, None, 0.0)
    desk.now_s += 20
    desk.report(RegionLoad(2, 400, 20, 6_000, 4))
    assert desk.of(2) == Load(6_000, 4, None, None, 0.0), "too soon after the one before for a rate"
    desk.now_s += 20
    desk.report(RegionLoad(2, 500, 30, 7_000, 5))
    assert desk.of(2) == Load(7_000, 5, 10.0, 0.5, 0.0)
    desk.now_s += 7
    assert desk.of(2) == Load(7_000, 5, 10.0, 0.5, 7.0)


def test_counters_that_fell_begin_anew() -> None:
    desk = Desk()
    for reads in (100, 400, 50):
        desk.report(RegionLoad(1, reads, 0, 1, 1))
        desk.now_s += 40
    assert desk.of(1) == Load(1, 1, None, None, 40.0)


def test_a_load_counts_for_its_own_open_alone() -> None:
    desk = Desk()
    desk.report(*(RegionLoad(one, 0, 0, 100 * one) for one in (1, 2, 3)))
    desk.now_s += 1
    desk.open(1, desk.b)
    desk.open(2, desk.a)
    assert [desk.of(one) for one in (1, 2)] == [None, None], "one moved, one was opened again"
    assert desk.of(3) == Load(300, 0, None, None, 1.0)
    desk.now_s += 40
    desk.report(RegionLoad(2, 900, 0, 7))
    assert desk.of(2) == Load(7, 0, None, None, 0.0), "no rate over two opens"
    desk.model.move(desk.model.regions[3], S.CLOSING, desk.a, desk.ms)
    assert desk.of(3) is None


def test_what_a_server_does_not_have_open_is_ignored_and_counted() -> None:
    desk = Desk()
    ignored = desk.report(RegionLoad(1, 0, 0, 5), RegionLoad(77, 0, 0, 5), RegionLoad(-3, 0, 0, 5), server=desk.b)
    assert (ignored, len(desk.loads), desk.of(1)) == (3, 0, None)
    assert desk.report(RegionLoad(1, 0, 0, 5)) == 0


@pytest.mark.parametrize("wrong", [-1, 1 << 64])
def test_figures_beyond_their_bounds_are_bounded(wrong: int) -> None:
    desk = Desk()
    desk.report(RegionLoad(1, wrong, wrong, wrong, wrong))
    load = desk.of(1)
    assert load is not None
    assert (load.size_bytes, load.files) == ((0, 0) if wrong < 0 else ((1 << 63) - 1, (1 << 32) - 1))


def test_reports_in_any_order_and_in_parts_are_kept_by_region() -> None:
    desk, draw = Desk(400), random.Random(5)
    ids = list(range(1, 401))
    for _ in range(20):
        draw.shuffle(ids)
        for at in range(0, 400, 57):
            desk.report(*(RegionLoad(one, 0, 0, one * 3, one) for one in ids[at : at + 57]))
    assert [desk.of(one) for one in range(1, 401)] == [Load(one * 3, one, None, None, 0.0) for one in range(1, 401)]
    assert len(desk.loads) == 400


def test_rows_of_regions_that_went_elsewhere_are_removed_once_they_are_many() -> None:
    desk = Desk(STALE_MIN + 200)
    desk.report(*(RegionLoad(one, 0, 0, one) for one in desk.model.regions))
    for one in range(11, STALE_MIN + 201):
        desk.open(one, desk.b)
    desk.now_s += 1
    desk.report(RegionLoad(7, 0, 0, 70))
    assert len(desk.loads) == 10
    assert [(load := desk.of(one)) and load.size_bytes for one in (1, 7, 10, 11)] == [1, 70, 10, None]


def test_loads_of_a_process_that_is_gone_are_forgotten_with_the_next_process() -> None:
    desk = Desk()
    desk.report(RegionLoad(1, 0, 0, 5))
    desk.open(1, desk.b)
    desk.model.drop_server(desk.a.key)
    desk.report(RegionLoad(1, 0, 0, 6), server=desk.b)
    assert len(desk.loads) == 1


def test_a_region_costs_sixty_bytes() -> None:
    desk = Desk(5_000)
    for at in range(1, 5_001, 1_000):
        desk.report(*(RegionLoad(one, 5, 5, one) for one in range(at, at + 1_000)))
    kept = desk.loads._of[desk.a.key]
    assert (sys.getsizeof(kept.ids) + sys.getsizeof(kept._rows)) / 5_000 < 64
