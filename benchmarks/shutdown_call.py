"""Sends ControlledShutdown as a broker does, to a given controller."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Final

from brokers.transport import TcpTransport
from testing.simulated.calls import controlled_shutdown as request
from testing.simulated.calls import shutdown_response

ANSWER_S_MAX: Final = 600.0


@dataclass(frozen=True)
class Answer:
    """Error code, number of partitions that are still led, time of the request and seconds of its response."""

    error: int
    remaining: int
    began_s: float
    took_s: float


async def controlled_shutdown(port: int, broker: int, epoch: int) -> Answer:
    """Requests the controlled shutdown of ``broker`` at ``port``; the clock starts after the connection is made."""
    connection = await TcpTransport().connect("127.0.0.1", port, lambda: None)
    try:
        frame = request(1, broker, epoch)
        began_s = time.monotonic()
        async with asyncio.timeout(ANSWER_S_MAX):
            answer = await connection.exchange([len(frame).to_bytes(4, "big"), frame])
        took_s = time.monotonic() - began_s
    finally:
        connection.close()
    found = shutdown_response(answer)
    return Answer(found.error, len(found.remaining), began_s, took_s)
