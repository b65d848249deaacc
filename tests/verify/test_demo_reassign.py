"""`regent demo reassign` as its users run it: a real cluster, a plan, two killed daemons."""

from __future__ import annotations

import asyncio
import sys

DEMO_S_MAX = 280


async def test_the_plan_of_the_demo_ends_whole_although_its_daemon_is_killed_twice() -> None:
    command = (sys.executable, "-m", "cli.main", "demo", "reassign", "--no-color")
    demo = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        out, _ = await asyncio.wait_for(demo.communicate(), DEMO_S_MAX)
    finally:
        if demo.returncode is None:
            demo.terminate()
            await demo.wait()
    text = out.decode()
    assert demo.returncode == 0, text
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
