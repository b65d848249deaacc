"""The row of a table is stored again with what is given, then with what its damaged row has, then with defaults."""

from __future__ import annotations

import pytest

from state_machines.regions.states import TableKind, TableState
from state_machines.regions.table_rows import (
    NOTHING,
    AdoptedRow,
    Given,
    Stored,
    TableParts,
    adopted,
    changes_of,
    readable_text,
)

TTL = (("ttl", "60"),)
WHOLE = TableParts(1, 1, TTL, 7)


@pytest.mark.parametrize(
    ("parts", "given", "expected"),
    [
        (WHOLE, Given(), AdoptedRow(TableKind.SYSTEM, TableState.DISABLED, TTL, 7)),
        (NOTHING, Given(), AdoptedRow(TableKind.USER, TableState.ENABLED, ())),
        (WHOLE._replace(kind=None), Given(), AdoptedRow(TableKind.USER, TableState.DISABLED, TTL, 7)),
        (WHOLE._replace(state=None), Given(), AdoptedRow(TableKind.SYSTEM, TableState.ENABLED, TTL, 7)),
        (WHOLE._replace(options=None), Given(), AdoptedRow(TableKind.SYSTEM, TableState.DISABLED, ())),
        (WHOLE._replace(version=None), Given(), AdoptedRow(TableKind.SYSTEM, TableState.DISABLED, TTL)),
        (WHOLE, Given(TableKind.META), AdoptedRow(TableKind.META, TableState.DISABLED, TTL, 7)),
        (WHOLE, Given(enabled=True), AdoptedRow(TableKind.SYSTEM, TableState.ENABLED, TTL, 7)),
        (WHOLE, Given(enabled=False), AdoptedRow(TableKind.SYSTEM, TableState.DISABLING, TTL, 7)),
        (WHOLE, Given(options={"a": "b"}), AdoptedRow(TableKind.SYSTEM, TableState.DISABLED, (("a", "b"),))),
        (WHOLE, Given(options={}), AdoptedRow(TableKind.SYSTEM, TableState.DISABLED, ())),
        (WHOLE, Given(options={"ttl": "60"}), AdoptedRow(TableKind.SYSTEM, TableState.DISABLED, TTL, 7)),
    ],
)
def test_each_field_is_as_given_else_as_it_was_else_the_default(
    parts: TableParts, given: Given, expected: AdoptedRow
) -> None:
    assert adopted(parts, given) == expected


@pytest.mark.parametrize(
    ("parts", "given", "expected"),
    [
        (NOTHING, Given(), "nothing can be read of its former row"),
        (WHOLE, Given(), "of its former row are kept: kind system, state disabled, options ttl=60, version 7"),
        (
            WHOLE._replace(state=None),
            Given(TableKind.USER, options={}),
            "of its former row are replaced: kind system, options ttl=60; its former row has no readable state",
        ),
        (
            WHOLE._replace(options=(), version=None),
            Given(enabled=True),
            (
                "of its former row are kept: kind system, no options; of its former row are replaced: state disabled; "
                "its former row has no readable version"
            ),
        ),
    ],
)
def test_what_is_kept_and_what_is_replaced_is_said(parts: TableParts, given: Given, expected: str) -> None:
    assert readable_text(parts, adopted(parts, given)) == expected


def test_a_row_that_goes_says_what_it_has_still() -> None:
    assert readable_text(TableParts(2, None, TTL)) == "its former row still has kind user, options ttl=60"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (Given(options={"ttl": "90"}), "restart the daemon, then 'regent tables modify t' changes options"),
        (Given(enabled=True), "restart the daemon, then 'regent tables enable t' changes its state"),
        (Given(enabled=False), "restart the daemon, then 'regent tables disable t' changes its state"),
        (Given(TableKind.META), "restart the daemon; no command changes its kind: leave it out"),
    ],
)
def test_what_a_second_adoption_wants_has_its_command_after_the_restart(given: Given, expected: str) -> None:
    before = adopted(WHOLE, Given())
    wanted = adopted(WHOLE, given)
    assert not wanted.same(before)
    assert changes_of("t", before, wanted) == expected


def test_what_is_stored_is_remembered_with_its_procedure() -> None:
    stored, row = Stored(), adopted(WHOLE, Given())
    assert stored.table("t") is None
    stored.put_table("t", 5, row)
    assert stored.table("t") == (5, row)
    assert row.same(row._replace(version=None)), "that version is the pid of another procedure"
