"""Plays the table with one client against a cluster."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

from tests.verify.clients.calls import CALLS, DAEMON, Call
from tests.verify.clients.driver import ABSENT, Driver, Refused

WAIT_S_MAX = 30.0
"""How long a call is repeated until its result says what it waits for."""
CALL_S_MAX = 90.0
"""How long a call may take: the clients' own time-outs are 30 to 60 s."""
AGAIN_S = 0.2


async def play(driver: Driver, bootstrap: str, prefix: str, tell: Callable[[str], None]) -> list[str]:
    """Returns results in the order of the table."""
    played: list[str] = []
    absent: set[str] = set()
    await driver.start(bootstrap, prefix)
    try:
        for call in CALLS:
            text = ABSENT if call.after in absent else await _settled(driver, call, prefix)
            if text == ABSENT:
                absent.add(call.operation)
            played.append(text)
            tell(f"{driver.name} {driver.version}: {call.title}: {text}")
    finally:
        await driver.close()
    return played


async def _settled(driver: Driver, call: Call, prefix: str) -> str:
    clock = asyncio.get_running_loop().time
    deadline_s = clock() + WAIT_S_MAX
    while True:
        text = await _once(driver, call)
        for found, name in {prefix: "", str(DAEMON): "DAEMON"}.items():
            text = text.replace(found, name)
        if not call.until or re.search(call.until, text) or clock() > deadline_s or text == ABSENT:
            return " ".join(text.split())
        await asyncio.sleep(AGAIN_S)


async def _once(driver: Driver, call: Call) -> str:
    try:
        async with asyncio.timeout(CALL_S_MAX):
            return await driver.call(call.operation, call.arguments)
    except Refused as refused:
        return str(refused)
    except TimeoutError:
        return "no answer"
    except Exception as error:  # a client's own; it is a result like any other
        return f"{type(error).__name__}: {error}"
