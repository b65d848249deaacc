"""Commands of the README and of pages in docs/how-to run in their order on a real cluster."""

from __future__ import annotations

import asyncio
import re
import shlex
from pathlib import Path

import pytest

from testing.embedded.jvm import java_command
from testing.embedded.load import Load
from tests.kit.cluster.scene import scene, succeeds
from tests.kit.cluster.world import ClusterWorld, world
from tests.kit.deadlines import eventually

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
HOW_TO = ROOT / "docs" / "how-to"
THERE, LOOK, BACK = (HOW_TO / f"{name}.md" for name in ("put-it-on-a-cluster", "watch", "go-back"))
TOPIC = "orders"
RUNNING = {"run", "run --shadow"}
"""Commands that stay: they are started as processes."""


def commands(page: Path) -> list[str]:
    """Returns lines ``regent ...`` of a page's code blocks, without the ``regent`` and comments."""
    text = page.read_text(encoding="utf-8")
    lines = [line for block in re.findall(r"(?ms)^```\w*\n(.*?)^```$", text) for line in block.splitlines()]
    return [line.partition("  #")[0].strip().removeprefix("regent ") for line in lines if line.startswith("regent ")]


async def test_all_documented_commands_from_installation_to_handback_succeed() -> None:
    async with world(3, partitions=6) as w, Load(w.cluster.bootstrap, {TOPIC: 6}, rate_per_s=50):
        daemon = w.daemon()
        for line in commands(THERE):
            if line in RUNNING:
                await daemon.kill()
                daemon = w.daemon(flags=line.split()[1:])
                await daemon.boot("shadow" if "--shadow" in line else "standby")
            else:
                await succeeds(daemon, *shlex.split(line))
        await eventually(lambda: daemon.is_in("active"), 30.0)
        for line in commands(LOOK):
            await succeeds(daemon, *shlex.split(line))
        back, offline = commands(BACK)
        await succeeds(daemon, *shlex.split(back), "--wait")
        await w.broker_controls()
        await daemon.kill()
        await w.daemons_gone()
        await succeeds(daemon, *shlex.split(offline))


async def test_documented_lines_of_zookeepers_shell_give_the_role_back() -> None:
    lines = [
        line
        for line in BACK.read_text(encoding="utf-8").split("zookeeper-shell.sh")[1].split("```")[1].splitlines()
        if line.strip()
    ]
    assert [line.split()[0] for line in lines] == ["set", "setAcl", "delete"]
    async with scene(settings={"controller.on_absence": "brokers"}) as stage:
        await stage.daemon.kill()
        await stage.w.daemons_gone()
        await shell(stage.w, lines)
        await stage.w.broker_controls()
        await stage.daemon.boot()
        await stage.proven()


async def shell(w: ClusterWorld, lines: list[str]) -> None:
    """Runs lines as ``zookeeper-shell.sh`` does."""
    command = java_command([], "org.apache.zookeeper.ZooKeeperMainWithTlsSupportForKafka", "-server", w.cluster.connect)
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    out, _ = await process.communicate("\n".join([*lines, "quit", ""]).encode())
    assert await process.wait() == 0, out.decode()


@pytest.mark.parametrize("page", [THERE, LOOK, BACK], ids=lambda page: page.stem)
def test_each_page_has_commands(page: Path) -> None:
    assert len(commands(page)) >= 2


def test_commands_of_the_readme_stand_on_the_pages_in_the_same_order() -> None:
    """Each command of the README stands on one of the other pages, in the same order."""
    way = iter([*commands(THERE), *commands(LOOK), *commands(BACK)])
    short = commands(README)
    assert {line.split()[0] for line in short} >= {"preflight", "run", "takeover", "verify", "explain", "handback"}
    assert [line for line in short if line not in way] == []
