"""What the listener of regions reads: nothing large before Hello, and no list beyond its bound."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from brokers.regions.listener import RegionListener, _Greeting
from brokers.wire.primitives import Malformed
from regent_agent import protocol
from regent_agent.protocol import LENGTH, Refused, decode_response

HOSTILE = msgspec.msgpack.encode(["follow", 1, 1, ["t"] * (protocol.TABLES_MAX + 1)])


def connection(user: str | None) -> Any:
    greeting = _Greeting()
    greeting.user = user
    return SimpleNamespace(authentication=greeting)


async def test_a_request_with_a_list_beyond_its_bound_is_refused_and_named() -> None:
    listener = RegionListener("127.0.0.1", 0)
    response = decode_response((await listener.respond(HOSTILE, connection("server")))[LENGTH.size :])
    assert response == Refused(protocol.INVALID, "tables: more than the 1000 that a Follow may have there")


async def test_such_a_request_before_hello_ends_its_connection() -> None:
    with pytest.raises(Malformed, match="tables"):
        await RegionListener("127.0.0.1", 0).respond(HOSTILE, connection(None))
