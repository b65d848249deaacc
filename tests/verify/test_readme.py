"""Every command of the README, run in its order on a real cluster."""

from __future__ import annotations

import asyncio
import re
import shlex
from pathlib import Path

import pytest

from cli.exit_codes import Exit
from testing.embedded.jvm import java_command
from testing.embedded.load import Load
from tests.cluster.scene import Scene, regent, scene
from tests.cluster.world import World, world
from tests.polling import eventually

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
TOPIC = "orders"
RUNNING = {"run", "run --shadow"}
"""Commands that stay: they are started as processes."""


def commands(heading: str) -> list[str]:
    """Lines ``regent ...`` of the code blocks below a heading, without the ``regent``."""
    section = README.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for block in re.findall(r"```\n(.*?)```", section, re.DOTALL) for line in block.splitlines()]
    return [line.removeprefix("regent ") for line in lines if line.startswith("regent ")]


async def test_the_way_there_and_back_as_the_readme_tells_it() -> None:
    async with world(3, partitions=6) as w, Load(w.cluster.bootstrap, {TOPIC: 6}, rate_per_s=50):
        daemon = w.daemon()
        for line in commands("On your cluster"):
            if line in RUNNING:
                await daemon.kill()
                daemon = w.daemon(flags=line.split()[1:])
                await daemon.boot("shadow" if "--shadow" in line else "standby")
            else:
                await done(daemon, line)
        await eventually(lambda: daemon.is_in("active"), 30.0)
        for line in commands("Looking at it"):
            await done(daemon, line)
        back, offline = commands("Going back")
        await done(daemon, f"{back} --wait")
        await w.broker_controls()
        await daemon.kill()
        await w.daemons_gone()
        await done(daemon, offline)


async def done(daemon: object, line: str) -> None:
    """Runs one command; it must end well."""
    code, out, err = await regent(daemon, *shlex.split(line))  # type: ignore[arg-type]
    assert code == Exit.DONE, (line, code, out, err)


async def test_the_way_back_with_nothing_but_kafkas_own_shell() -> None:
    lines = [line for line in README.split("zookeeper-shell.sh")[1].split("```")[1].splitlines() if line.strip()]
    assert [line.split()[0] for line in lines] == ["set", "setAcl", "delete"]
    async with scene(settings={"controller.on_absence": "brokers"}) as stage:
        await stage.daemon.kill()
        await stage.w.daemons_gone()
        await shell(stage.w, lines)
        await stage.w.broker_controls()
        await back_to_regent(stage)


async def back_to_regent(stage: Scene) -> None:
    """The daemon takes over again, so that the scene can prove that nothing was lost."""
    await stage.daemon.boot()
    await stage.proven()


async def shell(w: World, lines: list[str]) -> None:
    """What ``zookeeper-shell.sh`` starts, fed with lines."""
    command = java_command([], "org.apache.zookeeper.ZooKeeperMainWithTlsSupportForKafka", "-server", w.cluster.connect)
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    out, _ = await process.communicate("\n".join([*lines, "quit", ""]).encode())
    assert await process.wait() == 0, out.decode()


@pytest.mark.parametrize("heading", ["On your cluster", "Going back", "Looking at it"])
def test_there_are_commands_to_run(heading: str) -> None:
    assert len(commands(heading)) >= 2
