"""The README's service works, and docs/reference/agent-protocol.md has every message, field, outcome and code."""

from __future__ import annotations

import asyncio
import inspect
import re
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from msgspec.structs import replace

import regent_agent
from controller.regions.service import _bounded, _check
from regent_agent import codec, protocol
from regent_agent.codec import decode_request, encode
from regent_agent.protocol import DEAD, OPENED, Poll, Refused, Register, Request, Response, Result
from regent_agent.service import Service
from scripts import agent_protocol_page as page
from tests.unit.regent_agent.examples import CONVERSATION
from tests.unit.regent_agent.kit import StandIn, opens

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "agent-protocol.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page.document(), "run: make docs"


@pytest.mark.parametrize("field", ["server", "address", "software"])
def test_a_registration_takes_names_as_long_as_the_page_says_and_no_longer(field: str) -> None:
    _, text = PAGE.read_text(encoding="utf-8").split("### Register\n")
    [most] = re.findall(rf"\| `{field}` \| str, at most ([\d,]+) \|", text.partition("###")[0])
    count = int(most.replace(",", ""))
    fits, long = [Register("s1", 5, "a:1", "1") for _ in range(2)]
    fits, long = replace(fits, **{field: "x" * count}), replace(long, **{field: "x" * (count + 1)})
    assert decode_request(encode(fits)[4:]) == fits
    _check(fits)
    with pytest.raises(codec.BadFrame):
        decode_request(encode(long)[4:])


def test_the_page_says_what_the_daemon_keeps_of_a_load() -> None:
    text = PAGE.read_text(encoding="utf-8")
    [(figures, characters)] = re.findall(r"keeps the first (\d+), but none whose name has more than (\d+) c", text)
    load = {"n" * int(characters): 1, "n" * (int(characters) + 1): 2} | {str(one): one for one in range(100)}
    kept = _bounded(load)
    assert len(kept) == int(figures) - 1
    assert "n" * int(characters) in kept


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


README = Path(regent_agent.__file__).with_name("README.md")


async def test_the_service_opens_a_region_and_ends_when_it_is_fenced() -> None:
    (source,) = re.findall(
        r"(?s)```python\n(import asyncio.*?)asyncio\.run\(main\(\)\)\n```", README.read_text("utf-8")
    )
    names: dict[str, Any] = {}
    async with StandIn(hold_ms=20).running() as daemon:
        exec(source.replace('("127.0.0.1", 9190)', repr(daemon.address)), names)
        running = asyncio.create_task(ended(names))
        daemon.send(opens(7, 1, sequence=3))
        assert await daemon.result(7) == Result(7, OPENED, 4)

        async def dead(request: Request) -> Response:
            return Refused(DEAD, "fenced")

        daemon.responses[Poll] = dead
        assert await running == "fenced: start this process again"


async def ended(names: dict[str, Any]) -> str:
    with pytest.raises(SystemExit) as caught:
        await names["main"]()
    return str(caught.value)


def test_the_callbacks_of_a_log_are_told_as_they_are_declared() -> None:
    told = re.findall(r"async def (fence|split)\(self, (.*)\) -> (.*):\n", README.read_text("utf-8"))
    declared = [(one.__name__, inspect.signature(one)) for one in (Service.fence, Service.split)]
    assert [(name, f"(self, {given}) -> {back}") for name, given, back in told] == [
        (name, str(found).replace("'", "")) for name, found in declared
    ]
