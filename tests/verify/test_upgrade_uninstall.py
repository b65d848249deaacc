"""Every command of docs/operations.md, Upgrade and Uninstall, in its order: two daemons of an installation of its own.

``systemctl`` and ``userdel`` are played here; all other commands are run as they stand, below a folder of the test.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import sys
from pathlib import Path

from brokers.embedded.load import Load
from cli.demo.process import RegentProcess
from metadata_store import paths
from tests.cluster.world import World, world
from tests.core.test_packaging import documented
from tests.polling import eventually
from tests.verify.test_readme import TOPIC, shell

ROOT = Path(__file__).parents[2]
BUILD = "scripts/image/build.sh"
KAFKAS = {"deleteall", "delete"}
"""Commands of ``zookeeper-shell.sh``."""


class Machine:
    """A daemon of the installation below ``root``; ``users`` are those that its uninstallation removed."""

    def __init__(self, w: World, root: Path) -> None:
        self.root = root
        self.daemon: RegentProcess = w.daemon(command=[str(root / "opt/regent/bin/regent"), "run"])
        self.users: set[str] = set()

    async def run(self, line: str) -> str:
        """Carries a line out as its shell would; returns what it said."""
        words = shlex.split(line)
        if words[0] == "regent":
            return await self._execute(self.root / "opt/regent/bin/regent", *words[1:], "--config", self.daemon.config)
        if words[0] == "systemctl":
            if words[1] in ("restart", "disable"):
                await self.daemon.stop()
            if words[1] == "restart":
                await self.daemon.boot(mode=None)
            return ""
        if words[0] == "userdel":
            self.users.add(words[1])
            return ""
        if line == BUILD:
            return await self._execute(ROOT / BUILD, self.root)
        return await self._execute(*(re.sub(r"^/", f"{self.root}/", word) for word in words))

    async def _execute(self, *command: str | Path) -> str:
        environ = os.environ | {"PYTHON": sys.executable, "PYTHONPATH": ""}
        process = await asyncio.create_subprocess_exec(
            *command, cwd=ROOT, env=environ, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        out = (await process.communicate())[0].decode()
        assert await process.wait() == 0, (command, out)
        return out


async def test_an_installation_is_upgraded_and_removed_as_told(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "etc/systemd/system").mkdir(parents=True)
    async with world(3, partitions=6) as w, Load(w.cluster.bootstrap, {TOPIC: 6}, rate_per_s=50) as load:
        machines = [Machine(w, root), Machine(w, root)]
        await machines[0].run(BUILD)
        for machine in machines:
            await machine.daemon.boot("standby")
        await machines[0].run("regent takeover --yes --wait")
        await eventually(lambda: machines[0].daemon.is_in("active"), 30.0)
        await upgraded(machines)
        await flows(load)
        await removed(w, machines)
        await flows(load)


async def flows(load: Load) -> None:
    """Waits until every partition has acknowledged a record that was sent from now on."""
    begin, acknowledged = load.ledger.sent, load.ledger.acknowledged
    await eventually(lambda: all(max(acknowledged.get(spot, {0})) > begin for spot in load.spots), 60.0)


async def upgraded(machines: list[Machine]) -> None:
    """Standby first, then the active one, whose role the standby takes; lost modules are there again."""
    active, standby = machines
    module = next(active.root.glob("opt/regent/lib/python3*/site-packages/controller/verify.py"))
    *steps, last = documented("Upgrade")
    for machine in (standby, active):
        module.unlink()
        for line in steps:
            await machine.run(line)
        assert module.exists()
        await eventually(lambda m=machine: m.daemon.is_in("standby"), 30.0)  # type: ignore[misc]
        await eventually(lambda m=machine: other(m, machines).daemon.is_in("active"), 30.0)  # type: ignore[misc]
    assert "ZooKeeper, memory and every broker agree" in await standby.run(last)


def other(machine: Machine, machines: list[Machine]) -> Machine:
    return next(m for m in machines if m is not machine)


async def removed(w: World, machines: list[Machine]) -> None:
    """The role goes back at the active daemon, the files go on each machine, the znodes at last."""
    commands = documented("Uninstall")
    znodes = [line for line in commands if line.split()[0] in KAFKAS]
    handback, *steps = (line for line in commands if line not in znodes)
    await machines[1].run(handback)
    await w.broker_controls()
    for machine in machines:
        for line in steps:
            await machine.run(line)
        assert machine.users == {"regent", "regent-endpoint"}
    assert [path for path in machines[0].root.rglob("*") if path.is_file() or path.is_symlink()] == []
    await w.daemons_gone()
    assert (await w.zk.exists("/regent/daemons/1000002")) is not None, "a hand-back leaves it"
    [everything] = [line for line in znodes if line.startswith("deleteall")]
    [one] = [line for line in znodes if line.startswith("delete ")]
    await shell(w, [one])
    assert await w.zk.exists(one.split()[1]) is None
    await shell(w, [everything])
    assert await w.zk.exists("/regent") is None
    assert await w.zk.exists(paths.CONTROLLER) is not None
