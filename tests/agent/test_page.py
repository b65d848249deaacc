"""docs/reference/agent-protocol.md has every message, field, outcome and code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import msgspec

from regent_agent import protocol
from regent_agent.codec import encode
from scripts import agent_protocol_page as page
from tests.agent.examples import CONVERSATION

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "agent-protocol.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page.document(), "run: make docs"


def test_the_conversation_has_the_golden_frames_in_order() -> None:
    """A reader can play it: each request is followed by its response, and the connections are those of one process."""
    text = PAGE.read_text(encoding="utf-8").partition("## A conversation")[2]
    shown = re.findall(r"(?m)^(\d+) (\w+) +[<>] .*\n   ([0-9a-f]+)$", text)
    assert [(f"talk-{number}-{connection}", frame) for number, connection, frame in shown] == [
        (name, encode(message).hex()) for name, message in CONVERSATION.items()
    ]
    for connection in ("polls", "reports"):
        of_one = [one for name, one in CONVERSATION.items() if name.endswith(connection)]
        for request, response in zip(of_one[::2], of_one[1::2], strict=False):
            assert isinstance(request, get_args(protocol.Request))
            assert type(response).__name__ == page.RESPONSES[type(request)][0]


def test_each_meaning_belongs_to_a_field() -> None:
    kinds = [kind for kinds in page.SECTIONS.values() for kind in kinds]
    fields = {f"{kind.__name__}.{field.name}" for kind in kinds for field in msgspec.structs.fields(kind)}
    assert set(page.MEANINGS) <= fields
    assert set(page.NAMES) <= {field.partition(".")[2] for field in fields}


def test_all_outcomes_codes_and_requests_are_listed() -> None:
    assert set(page.OUTCOMES) == protocol.OUTCOMES
    assert set(page.CODES) == protocol.CODES
    assert set(page.RESPONSES) == set(get_args(protocol.Request))
