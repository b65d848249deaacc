"""Attacks on the port where servers and clients of regions connect."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

import msgspec

from regent_agent import codec, protocol
from regent_agent.protocol import OWNED_MAX, PARTS_MAX, TABLES_MAX, Hello
from tests.verify.attack import LARGE, Attack

MEMBER: Final = "kv-0"
"""Name of an honest server, whose incarnation strangers do not know."""
FOLLOWERS: Final = 300


def hello() -> bytes:
    """Makes the begin of a connection."""
    return codec.encode(Hello(protocol.VERSION))


def framed(*values: object) -> Callable[[], bytes]:
    """Returns what makes a frame of an array with these values; functions among them are called."""

    def made() -> bytes:
        body = msgspec.msgpack.encode([value() if callable(value) else value for value in values])
        return codec.LENGTH.pack(len(body)) + body

    return made


def owned() -> list[list[int]]:
    """Lists as many regions as one server may have."""
    return [[number, (1 << 40) + number] for number in range(OWNED_MAX)]


def parts() -> list[list[object]]:
    """Lists a result with as many parts of a log as a report may have."""
    return [[1, "done", 0, "", [str(number) for number in range(PARTS_MAX)]]]


def _short_names() -> list[str]:
    return [""] * LARGE


def _long_names() -> list[str]:
    return [f"{number:0200}" for number in range(TABLES_MAX)]


REGISTERS: Final = framed("register", "x", 1, "x:1", "", owned)

REGIONS: Final = {
    "nothing said": Attack(bytes, 2_200),
    "hello, then nothing": Attack(hello, 2_200),
    "hellos at the servers' address": Attack(hello, 700, near=True),
    "many that hang up": Attack(bytes, 60, again=True),
    "16 MiB before hello": Attack(lambda: LARGE.to_bytes(4, "big") + b"x", 200),
    "16 MiB announced after hello": Attack(lambda: LARGE.to_bytes(4, "big") + b"x", 200, first=hello),
    "half of 16 MiB after hello": Attack(lambda: LARGE.to_bytes(4, "big") + bytes(LARGE // 2), 24, first=hello),
    "a hello drop by drop": Attack(lambda: (200).to_bytes(4, "big") + bytes(200), 300, drops=True),
    "hellos, answers not read": Attack(hello, 100, again=True, deaf=True),
    "countless frames of no bytes": Attack(lambda: bytes(400_000), 20, again=True),
    "noise at the regions' port": Attack(lambda: os.urandom(2_000), 50, again=True),
    "12 strangers with 250,000 regions": Attack(REGISTERS, 12, again=True, first=hello),
    "50 strangers with 250,000 regions": Attack(REGISTERS, 50, again=True, first=hello),
    "50 of them at the servers' address": Attack(REGISTERS, 50, again=True, near=True, first=hello),
    "lists in a member's name": Attack(framed("regions", MEMBER, 7, 1, owned), 50, again=True, first=hello),
    "reports with 250,000 parts": Attack(framed("report", MEMBER, 7, 1, parts), 50, again=True, first=hello),
    "16 MiB of short names": Attack(framed("follow", 1, 0, _short_names), 12, again=True, first=hello),
    "a name of 16 MiB": Attack(framed("register", lambda: "x" * LARGE, 1, "x:1"), 12, again=True, first=hello),
    "follows with a thousand names": Attack(framed("follow", 1, 0, _long_names), FOLLOWERS, again=True, first=hello),
    "follows, answers not read": Attack(framed("follow", 0, 0), FOLLOWERS, again=True, deaf=True, first=hello),
    "lookups without end": Attack(framed("locate", "t", b"k"), 100, again=True, first=hello),
    "a new member each time": Attack(framed("register", "new", 1, "x:1", "", []), 50, again=True, first=hello),
}
