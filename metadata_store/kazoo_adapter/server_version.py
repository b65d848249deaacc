"""Which release a ZooKeeper server is, by its ``srvr`` command: MultiRead exists since 3.6.

An older server ends the session of a client that sends an operation it does not know, so it is asked first. ``srvr``
is the one four-letter command that is on by default.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from typing import Final

ASK_S_MAX: Final = 2.0


async def server_version(host: str, port: int, tls: ssl.SSLContext | None = None) -> tuple[int, int] | None:
    """Release as (major, minor), or None where the server does not say."""
    try:
        async with asyncio.timeout(ASK_S_MAX):
            return parse_version(await _ask(host, port, tls))
    except (OSError, TimeoutError):
        return None


def parse_version(answer: bytes) -> tuple[int, int] | None:
    """The release in an answer to ``srvr``."""
    found = re.search(rb"[Vv]ersion: (\d+)\.(\d+)", answer)
    return (int(found[1]), int(found[2])) if found else None


async def _ask(host: str, port: int, tls: ssl.SSLContext | None) -> bytes:
    reader, writer = await asyncio.open_connection(host, port, ssl=tls)
    try:
        writer.write(b"srvr")
        return await reader.readline()
    finally:
        writer.close()
