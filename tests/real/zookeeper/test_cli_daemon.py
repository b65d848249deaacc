"""``regent run`` as a process under a stand-in for systemd, on a real ZooKeeper without brokers, and its operator."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from cli.exit_codes import Exit
from controller.role.own_znodes import started_ticks
from metadata_store.kazoo_adapter import KazooZooKeeper
from testing.embedded.process import ChildProcess
from tests.conftest import ZooKeeperProcess
from tests.kit.deadlines import eventually

REGENT = (sys.executable, "-m", "cli.main")


@dataclass
class Operator:
    """Calls the command beside a running daemon."""

    daemon: ChildProcess
    config: Path
    notified: list[str]

    async def __call__(self, *arguments: str) -> tuple[int, str, str]:
        process = await asyncio.create_subprocess_exec(
            *REGENT, *arguments, env=os.environ | {"REGENT_CONFIG": str(self.config)},
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, err = await process.communicate()
        return await process.wait(), out.decode(), err.decode()

    async def mode(self) -> str:
        code, out, _ = await self("status", "-o", "json")
        return str(json.loads(out)["items"][0]["mode"]) if code == 0 else ""


@asynccontextmanager
async def daemon_under_systemd(
    zookeeper: ZooKeeperProcess, folder: Path, admin: str = "beside_daemon = false"
) -> AsyncIterator[Operator]:
    """A daemon on a chroot of its own; what it tells systemd is collected."""
    chroot = zookeeper.new_chroot()
    zk = KazooZooKeeper(zookeeper.address + chroot, session_timeout_ms=6_000, create_chroot=True)
    await zk.connect(30)
    await zk.close()
    config = folder / "regent.toml"
    config.write_text(
        f'[zookeeper]\nconnect = "{zookeeper.address}{chroot}"\n'
        '[listener]\nhost = "127.0.0.1"\nport = 0\nadvertised_host = "127.0.0.1"\n'
        f'[http]\nsocket = "{folder}/regent.sock"\n[state]\ndirectory = "{folder}/state"\n[log]\nlevel = "info"\n'
        f"[admin]\n{admin}\n"
    )
    notified: list[str] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(folder / "notify"))
        manager.setblocking(False)
        loop = asyncio.get_running_loop()
        loop.add_reader(manager, lambda: notified.append(manager.recv(1_000).decode()))
        environment = {"NOTIFY_SOCKET": str(folder / "notify"), "WATCHDOG_USEC": "1000000"}
        command = [*REGENT, "run", "--config", str(config)]
        daemon = ChildProcess("regent", command, folder / "regent.log", env=environment)
        operator = Operator(daemon, config, notified)
        try:
            await daemon.start(lambda: _is(operator, "standby"), 60)
            yield operator
        finally:
            await daemon.kill()
            loop.remove_reader(manager)


async def _is(operator: Operator, mode: str) -> bool:
    return await operator.mode() == mode


async def test_a_daemons_life_as_systemd_and_its_operator_see_it(
    zookeeper_process: ZooKeeperProcess, tmp_path: Path
) -> None:
    async with daemon_under_systemd(zookeeper_process, tmp_path) as regent:
        assert regent.notified[0].startswith("READY=1\nSTATUS=")
        await eventually(lambda: regent.notified.count("WATCHDOG=1") >= 2)
        assert any("STATUS=standby" in line for line in regent.notified)
        assert (await regent("health"))[0] == (await regent("health", "--ready"))[0] == Exit.DONE
        code, out, err = await regent("preflight", "-o", "json")
        checks = {check["name"]: check for check in json.loads(out)["items"]}
        assert code == Exit.REFUSED
        assert {name for name, check in checks.items() if check["result"] == "refused"} == {
            "cluster id", "live brokers",
        }  # fmt: skip
        assert "2 of" in err

        regent.config.write_text(regent.config.read_text().replace('"info"', '"debug"'))
        os.kill(regent.daemon.pid, signal.SIGHUP)
        await eventually(lambda: regent.daemon.log_has(r"log\.level is .*debug.* from now on"))
        await eventually(lambda: any(line.startswith("RELOADING=1\nMONOTONIC_USEC=") for line in regent.notified))
        await regent.daemon.stop(60)
        assert regent.daemon.log_has("regent has stopped")
        await eventually(lambda: regent.notified[-1].startswith("STOPPING=1"))
        assert (await regent("status"))[0] == Exit.UNREACHABLE


async def test_what_is_refused_without_brokers_names_the_reason(
    zookeeper_process: ZooKeeperProcess, tmp_path: Path
) -> None:
    async with daemon_under_systemd(zookeeper_process, tmp_path) as regent:
        code, out, err = await regent("takeover", "--yes")
        assert (code, out) == (Exit.REFUSED, "")
        assert "live brokers" in err
        code, out, err = await regent("handback", "--offline", "--yes")
        assert (code, out) == (Exit.REFUSED, "")
        assert "lives" in err, "a daemon that lives hands back by itself"
        code, _, err = await regent("list", "brokers")
        assert code == Exit.UNREACHABLE
        assert "regent takeover" in err
        assert await regent.mode() == "standby"


async def test_the_admin_endpoint_lives_beside_the_daemon_and_no_longer(
    zookeeper_process: ZooKeeperProcess, tmp_path: Path
) -> None:
    def children() -> list[int]:
        return [int(pid) for pid in re.findall(r"the admin endpoint starts, pid (\d+)", regent.daemon.log_text())]

    async with daemon_under_systemd(zookeeper_process, tmp_path, "port = 0") as regent:
        await eventually(lambda: regent.daemon.log_has("the admin endpoint listens on"))
        [first] = children()
        os.kill(first, signal.SIGKILL)
        await eventually(lambda: len(children()) == 2)
        await eventually(lambda: len(re.findall("the admin endpoint listens on", regent.daemon.log_text())) == 2)
        assert regent.daemon.log_has("the admin endpoint ended with -9")
        await regent.daemon.kill()
        await eventually(lambda: started_ticks(children()[1]) is None)
