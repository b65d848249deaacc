"""docs/evidence/clients.md, its results and its table."""

from __future__ import annotations

import json
from pathlib import Path

from tests.verify.clients.accepted import Accepted
from tests.verify.clients.calls import CALLS
from tests.verify.clients.compare import RESULTS, differences
from tests.verify.clients.page import document

PAGE = Path(__file__).parents[3] / "docs" / "evidence" / "clients.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == document(), "run: make docs"


def test_the_results_cover_the_table_and_every_difference_is_explained() -> None:
    played = json.loads(RESULTS.read_text(encoding="utf-8"))
    assert played["kafka"].keys() == played["regent"].keys()
    assert {len(results) for found in played.values() for results in found.values()} == {len(CALLS)}
    assert not [str(one) for one in differences(played) if one.accepted() is None]


def test_a_difference_is_accepted_as_a_whole_or_not_at_all() -> None:
    one = Accepted("described", kafka="nodes 1", regent="nodes 1 D", why="one node more")
    assert one.explains("described", "nodes 1", "nodes 1 D")
    assert not one.explains("described again", "nodes 1", "nodes 1 D")
    assert not one.explains("described", "nodes 1", "nodes 1 D E")
    assert not one.explains("described", "nodes 1 2", "nodes 1 D")
