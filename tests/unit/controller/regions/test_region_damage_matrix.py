"""Each column of the catalog is damaged in both stores, and the page says what the daemon and a report say about it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from metadata_store.catalog.judging import CHECKS
from tests.kit.regions.damage_matrix import SOUND, WRONG, Told, lines, of_file, of_znodes, page, told

PAGE = Path(__file__).resolve().parents[4] / "docs" / "reference" / "damaged-catalog.md"


def test_the_catalog_that_is_damaged_was_in_order() -> None:
    for read in (of_file, of_znodes):
        assert told(asyncio.run(read(dict(SOUND)))) == Told("-", "-", "-")
    every = {(kind, field) for kind, fields in CHECKS.items() for field in fields}
    assert set(WRONG) == every, "no column is left out"


def test_the_page_has_what_is_said_about_each_damage() -> None:
    made = list(lines())
    assert page(made) == PAGE.read_text(encoding="utf-8"), "write it anew, as it says"
    unusable = [one for one in made if one.damage == "no value of its type"]
    assert all((told.report == "-") is (told.mends == "-") for one in made for told in one[3:]), (
        "each finding has a mend"
    )
    assert all("left out" in told.start and "`damaged`" in told.report for one in unusable for told in one[3:])
