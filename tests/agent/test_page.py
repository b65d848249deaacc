"""docs/reference/agent-protocol.md has every message, field, outcome and code."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import msgspec

from regent_agent import protocol
from scripts import agent_protocol_page as page

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "agent-protocol.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page.document(), "run: make docs"


def test_each_meaning_belongs_to_a_field() -> None:
    kinds = [kind for kinds in page.SECTIONS.values() for kind in kinds]
    fields = {f"{kind.__name__}.{field.name}" for kind in kinds for field in msgspec.structs.fields(kind)}
    assert set(page.MEANINGS) <= fields
    assert set(page.NAMES) <= {field.partition(".")[2] for field in fields}


def test_all_outcomes_codes_and_requests_are_listed() -> None:
    assert set(page.OUTCOMES) == protocol.OUTCOMES
    assert set(page.CODES) == protocol.CODES
    assert set(page.RESPONSES) == set(get_args(protocol.Request))
