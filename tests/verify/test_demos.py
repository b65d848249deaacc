"""`regent demo reassign` and `regent demo regions` as their users run them."""

from __future__ import annotations

import asyncio
import sys

import pytest

DEMO_S_MAX = 280


async def demonstrated(*arguments: str) -> str:
    """Runs a demo; returns what it says."""
    command = (sys.executable, "-m", "cli.main", "demo", *arguments, "--no-color")
    demo = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        out, _ = await asyncio.wait_for(demo.communicate(), DEMO_S_MAX)
    finally:
        if demo.returncode is None:
            demo.terminate()
            await demo.wait()
    assert demo.returncode == 0, out.decode()
    return out.decode()


async def test_the_plan_of_the_demo_ends_whole_although_its_daemon_is_killed_twice() -> None:
    text = await demonstrated("reassign")
    assert text.count("regent was killed (kill -9) after") == 2
    for expected in (
        "the plan ended: success, 50 done",
        "50 of 50 partitions are at their target, 0 throttle settings are left",
        "0 lost; 'regent verify' is clean",
        "0 violations",
        "The demo succeeded in",
    ):
        assert expected in text, text
    assert "MB copied" in text, "progress is shown on the way"


TRANSPORTS = {
    "poll": ("its store is a file", 'servers answered by reports (regions.transport = "poll")'),
    "zookeeper": ("its store is in ZooKeeper", '3 servers answered by znodes (regions.transport = "zookeeper")'),
}


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_the_demo_of_regions_loses_no_row(transport: str) -> None:
    text = await demonstrated("regions", "--transport", transport)
    for expected in (
        *TRANSPORTS[transport],
        "table 'orders' has 60 regions",
        "kv-2 was killed (kill -9): another server fenced and split its log, and its 20 regions are open elsewhere",
        "kv-2 is back as a new incarnation",
        "regent itself was killed (kill -9) and restarted",
        "kv-3 was stopped (SIGTERM): its 30 regions moved beforehand, it ended after",
        "table 'clicks' has one region",
        "table 'clicks' has 4 regions after",
        "are merged on request",
        "The demo succeeded in",
    ):
        assert expected in text, text
    assert text.count("longest wait") == 7
    assert text.count("rows acknowledged, 0 lost") == text.count("reads, 0 wrong") == 2
