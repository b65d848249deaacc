"""Lists of operators that come in pages are whole: each item once, whatever filter leaves how few of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from controller.regions.domain import RegionsDomain
from controller.regions.http.ports import ProcedureQuery, RegionQuery
from controller.regions.kinds.messages import TABLE_TASK, TableTask
from controller.regions.operator import pages
from controller.regions.operator.pages import region_page, table_page
from controller.regions.operator.procedures import Procedures
from controller.regions.term import RegionsTerm
from state_machines.regions.states import RegionState
from testing.memory.region_store import RegionDisk
from tests.simulation.regions.kit import Server, creates, ended, procedure, regions_of, running, serving, virtual

Page = Callable[[Any], tuple[list[Any], Any]]
"""Returns the items behind a cursor, and the next cursor."""


def whole(page: Page, first: Any = None) -> Iterator[Any]:
    """Yields all items of a list, page by page, as a client does."""
    after = first
    for _ in range(1_000):
        items, after = page(after)
        yield from items
        if not after:
            return
    raise AssertionError("its pages never end")


def regions_in(term: RegionsTerm, limit: int, **filters: Any) -> list[int]:
    def page(after: str | None) -> tuple[list[int], str | None]:
        found = region_page(term.env, RegionQuery(limit, after, **filters))
        assert len(found.items) <= limit
        return [one.id for one in found.items], found.next

    return list(whole(page))


@virtual
async def test_each_region_is_listed_once_also_where_few_of_many_match() -> None:
    async with running(RegionDisk()) as term:
        async with serving(Server(term, "s1"), Server(term, "s2")):
            for name in ("b", "a", "c"):
                await ended(term, creates(term, name, 7))
        every = [one.id for name in "abc" for one in regions_of(term, name)]
        few = [regions_of(term, "a")[3].id, regions_of(term, "c")[6].id]
        for id_ in few:
            term.env.model.regions[id_].state = RegionState.FAILED_OPEN
        at_one = [one for one in every if str(term.env.model.regions[one].server) == "s1,1"]
        with pytest.MonkeyPatch.context() as patch:
            for scanned in (pages.SCANNED_ROWS_MAX, 4):
                patch.setattr(pages, "SCANNED_ROWS_MAX", scanned)
                for limit in (1, 2, 7, 100):
                    assert regions_in(term, limit) == every
                    assert regions_in(term, limit, table="b") == [one.id for one in regions_of(term, "b")]
                    assert regions_in(term, limit, state="failed_open") == few
                    assert regions_in(term, limit, server="s1") == at_one
                    assert tables_in(term, limit) == ["a", "b", "c"]


def tables_in(term: RegionsTerm, limit: int) -> list[str]:
    def page(after: str | None) -> tuple[list[str], str | None]:
        found = table_page(term.env.model, limit, after)
        return [one.name for one in found.items], found.next

    return list(whole(page))


@virtual
async def test_a_list_goes_on_behind_a_table_that_was_deleted_between_two_of_its_pages() -> None:
    async with running(RegionDisk()) as term, serving(Server(term, "s1")):
        for name in ("a", "b", "c"):
            await ended(term, creates(term, name, 3))
        first, first_tables = region_page(term.env, RegionQuery(4)), table_page(term.env.model, 2, None)
        assert [one.table for one in first.items] == ["a", "a", "a", "b"]
        for change in ("disable_table", "delete_table"):
            await ended(term, procedure(term, change, TABLE_TASK.encode(TableTask("b"))))
        rest, rest_tables = region_page(term.env, RegionQuery(4, first.next)), table_page(term.env.model, 2, "b")
        assert ([one.table for one in rest.items], rest.next) == (["c", "c", "c"], None)
        assert [one.name for one in (*first_tables.items, *rest_tables.items)] == ["a", "b", "c"]
        moved = region_page(term.env, RegionQuery(4, first.next, server="s1"))
        assert [one.table for one in moved.items] == ["c", "c", "c"], "also of one server"


@virtual
async def test_each_procedure_is_listed_once() -> None:
    async with running(RegionDisk()) as term:
        async with serving(Server(term, "s1")):
            for name in ("a", "b", "c"):
                await ended(term, creates(term, name, 2))
        listing = Procedures(cast("RegionsDomain", SimpleNamespace(term=term)))
        every = sorted(term.engine.records)
        assert len(every) == 3
        for limit in (1, 2, 3, 4):

            def page(after: str, limit: int = limit) -> tuple[list[int], str | None]:
                found = listing.list_procedures(ProcedureQuery(limit, int(after or 0)))
                return [one.pid for one in found.items], found.next

            assert list(whole(page, "")) == every
