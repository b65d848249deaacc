"""Every command of docs/how-to/upgrade-and-uninstall.md, in its order, on two machines in the mode ``hold``.

A machine is a folder with an installation of its own. ``systemctl`` and ``userdel`` are played here; all other commands
are run as they stand, below that folder. Daemons are handed their password over, commands by hand are not.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import sys
from pathlib import Path

import pytest

from cli.demo.process import RegentProcess
from configs.credentials import STORE
from metadata_store import paths
from testing.embedded.load import Load
from tests.kit.cluster.world import ClusterWorld, world
from tests.kit.deadlines import eventually
from tests.kit.documented import documented
from tests.verify.test_readme import TOPIC, shell

ROOT = Path(__file__).parents[2]
BUILD = "scripts/image/build.sh"
LOGIN = "regent:s3cret"
"""The daemons' digest: in the mode ``hold`` the shell begins with it, too."""
KAFKAS = {"deleteall", "delete"}
"""Commands of ``zookeeper-shell.sh``."""


class Machine:
    """Runs a daemon of the installation below ``root``; ``users`` are those that its uninstallation removed."""

    def __init__(self, w: ClusterWorld, root: Path) -> None:
        self.root = root
        settings = {
            "controller.on_absence": "hold",
            "http.address": "127.0.0.1:0",
            "http.token_file": str(root / "etc/regent/http-token"),
        }
        self.daemon: RegentProcess = w.daemon(command=[str(root / "opt/regent/bin/regent"), "run"], settings=settings)
        self.users: set[str] = set()

    async def install(self) -> None:
        """Installs as documented, with the daemon's password in systemd's credential store and a copy for its start."""
        (self.root / "etc/systemd/system").mkdir(parents=True)
        await self._execute(ROOT / BUILD, self.root, PYTHON=sys.executable)
        self._look_below_root()
        _secret(self.root / "etc/regent/http-token", "0123456789abcdef")
        for folder in (self.root / "etc/credstore", self.daemon.folder):
            _secret(folder / "zookeeper-digest", LOGIN)

    def _look_below_root(self) -> None:
        """Gives the installed command this machine's ``/etc/credstore``."""
        module = self.module("configs/credentials.py")
        text = module.read_text()
        assert text.count(f'"{STORE}"') == 1
        module.write_text(text.replace(f'"{STORE}"', f'"{self.root}{STORE}"'))

    def module(self, name: str) -> Path:
        """Returns the path of an installed file, whether it exists or not."""
        [packages] = self.root.glob("opt/regent/lib/python3*/site-packages")
        return packages / name

    async def run(self, line: str) -> str:
        """Runs a line as a shell would; returns its output."""
        words = shlex.split(line)
        if words == ["regent", "health", "--ready"]:  # to be repeated until it succeeds, as the page says
            await eventually(lambda: self._regent(*words[1:]), 30.0)
            return ""
        if words[0] == "regent":
            return await self._regent(*words[1:])
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
            said = await self._execute(ROOT / BUILD, self.root)
            self._look_below_root()
            return said
        return await self._execute(*(re.sub(r"^/", f"{self.root}/", word) for word in words))

    async def _regent(self, *words: str) -> str:
        return await self._execute(self.root / "opt/regent/bin/regent", *words, "--config", self.daemon.config)

    async def _execute(self, *command: str | Path, **environment: str) -> str:
        environ = os.environ | {"PYTHONPATH": ""} | environment
        process = await asyncio.create_subprocess_exec(
            *command, cwd=ROOT, env=environ, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        out = (await process.communicate())[0].decode()
        assert await process.wait() == 0, (command, out)
        return out


def _secret(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"{text}\n")
    path.chmod(0o600)


@pytest.mark.timeout(900)
async def test_documented_commands_upgrade_and_remove_an_installation(tmp_path: Path) -> None:
    async with world(3, partitions=6) as w, Load(w.cluster.bootstrap, {TOPIC: 6}, rate_per_s=50) as load:
        machines = [Machine(w, tmp_path / name) for name in ("first", "second")]
        for machine in machines:
            await machine.install()
            await machine.daemon.boot("standby")
        await machines[0].run("regent takeover --yes --wait")
        await eventually(lambda: machines[0].daemon.is_in("active"), 30.0)
        await upgraded(machines)
        await flows(load)
        await removed(w, machines)
        await flows(load)


async def flows(load: Load) -> None:
    """Waits until every partition has acknowledged a record that was sent from now on."""
    begin = load.ledger.sent
    await eventually(lambda: load.acknowledged_since(begin), 60.0)


async def upgraded(machines: list[Machine]) -> None:
    """Upgrades the standby, then the active daemon, whose role the standby takes; lost modules are restored."""
    active, standby = machines
    *steps, last = (line for line in documented("Upgrade") if not line.startswith("regent regions "))
    for machine in (standby, active):
        module = machine.module("controller/operator/verify.py")
        module.unlink()
        for line in steps:
            await machine.run(line)
        assert module.exists()
        await eventually(lambda m=machine: m.daemon.is_in("standby"), 30.0)  # type: ignore[misc]
        await eventually(lambda m=machine: other(m, machines).daemon.is_in("active"), 30.0)  # type: ignore[misc]
    assert "ZooKeeper, memory and every broker agree" in await standby.run(last)


def other(machine: Machine, machines: list[Machine]) -> Machine:
    return next(m for m in machines if m is not machine)


async def removed(w: ClusterWorld, machines: list[Machine]) -> None:
    """Hands the role back, removes the files of each machine, and the znodes at last."""
    commands = documented("Uninstall")
    znodes = [line for line in commands if line.split()[0] in KAFKAS]
    handback, *steps = (line for line in commands if line not in znodes)
    await machines[1].run(handback)
    await w.broker_controls()
    for machine in machines:
        for line in steps:
            await machine.run(line)
        assert machine.users == {"regent", "regent-endpoint"}
        assert [path for path in machine.root.rglob("*") if path.is_file() or path.is_symlink()] == []
    await w.daemons_gone()
    assert (await w.zk.exists("/regent/daemons/1000002")) is not None, "a hand-back leaves it"
    [everything] = [line for line in znodes if line.startswith("deleteall")]
    [one] = [line for line in znodes if line.startswith("delete ")]
    await shell(w, [f"addauth digest {LOGIN}", one])
    assert await w.zk.exists(one.split()[1]) is None
    await shell(w, [f"addauth digest {LOGIN}", everything])
    assert await w.zk.exists("/regent") is None
    assert await w.zk.exists(paths.CONTROLLER) is not None
