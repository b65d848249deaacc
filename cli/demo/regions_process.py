"""Runs a daemon for regions alone, and servers of the example service, as child processes."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import httpx

from cli.demo.process import SESSION_MS, DaemonProcess
from controller.journal.segments import regions_folder_in
from testing.embedded.process import START_S_MAX, ChildProcess

LEASE_MS: Final = 3_000
STALL_MS_MAX: Final = 2_500
"""Below half of a session."""
WAIT_S: Final = 10.0
"""Longest wait of one request for the end of a procedure."""
PAGE: Final = 5_000


class RegionsProcess(DaemonProcess):
    """A daemon without Kafka that fences logs; ``settings`` override ``section.key``.

    ``zookeeper``: where its store is, and servers answer by znodes; without it the store is a file.
    """

    def __init__(
        self, folder: Path, settings: Mapping[str, object] | None = None, zookeeper: str | None = None
    ) -> None:
        super().__init__(folder, "regent")
        self.zookeeper = zookeeper
        self.configure(settings or {})

    def _settings(self) -> dict[str, object]:
        in_zookeeper = {
            "zookeeper.connect": self.zookeeper,
            "zookeeper.session_timeout_ms": SESSION_MS,
            "controller.loop_stall_ms_max": STALL_MS_MAX,
            "regions.store": "zookeeper",
            "regions.transport": "zookeeper",
        }
        return {
            **super()._settings(),
            **(in_zookeeper if self.zookeeper is not None else {}),
            "regions.host": "127.0.0.1",
            "regions.port": self.port,
            "regions.fence": "log",
            "regions.lease_ms": LEASE_MS,
        }

    @property
    def journal(self) -> Path:
        """Returns the folder of the journal of regions."""
        return regions_folder_in(self.folder / "state")

    async def boot(self, within_s: float = START_S_MAX) -> float:
        """Starts the daemon and waits until it assigns regions; returns the seconds."""

        async def ready() -> bool:
            status = await self.status()
            return status is not None and status["mode"] == "active"

        return await self.start(ready, within_s)

    async def status(self) -> dict[str, Any] | None:
        """Returns ``regent regions status``, or None where the daemon does not respond."""
        try:
            [item] = (await self.get("/v1/regions"))["items"]
        except httpx.HTTPError:
            return None
        return dict(item)

    async def create(self, table: str, **layout: object) -> None:
        """Creates a table and waits until clients see it; raises ``httpx.HTTPError``."""
        await self.done("/v1/regions/tables", {"name": table, **layout})

    async def done(self, path: str, body: Mapping[str, object]) -> dict[str, Any]:
        """Requests a change and waits until its procedure has ended, which it returns; raises ``httpx.HTTPError``."""
        [begun] = (await self.post(path, body))["items"]
        while not begun["ended"]:
            path = f"/v1/regions/procedures/{begun['pid']}"
            [begun] = (await self.get(path, waitS=WAIT_S))["items"]
        return dict(begun)

    async def regions(self, table: str) -> list[dict[str, Any]]:
        """Returns all regions of a table; raises ``httpx.HTTPError``."""
        return list((await self.get("/v1/regions/list", table=table, limit=PAGE))["items"])

    async def listed(self, table: str) -> list[dict[str, Any]]:
        """Returns all regions of a table in the order of keys; none where the daemon does not respond."""
        try:
            return await self.regions(table)
        except httpx.HTTPError:
            return []

    async def are_open(self, table: str) -> bool:
        """Returns whether the daemon responds, and online servers have all regions of a table open."""
        try:
            found = await self.regions(table)
            servers = (await self.get("/v1/regions/servers"))["items"]
        except httpx.HTTPError:
            return False
        online = {(one["name"], one["incarnation"]) for one in servers if one["state"] in {"online", "leaving"}}
        return bool(found) and all(
            region["state"] == "OPEN" and (region["server"], region["incarnation"]) in online for region in found
        )


class KvServer(ChildProcess):
    """One server of the example service; it has its log beside those of the others, in ``folder``.

    ``arguments``: more of its command line.
    """

    def __init__(self, name: str, folder: Path, daemon: RegionsProcess, arguments: Sequence[str] = ()) -> None:
        command = [sys.executable, "-m", "examples.kv.server", "--name", name, "--data", str(folder / "data")]
        command += ["--daemons", f"127.0.0.1:{daemon.port}"]
        if daemon.zookeeper is not None:
            command += ["--transport", "zookeeper", "--zookeeper", daemon.zookeeper]
        super().__init__(name, [*command, *arguments], folder / f"{name}.log")

    async def boot(self, within_s: float = START_S_MAX) -> float:
        """Starts the server and waits until the daemon knows it; returns the seconds."""

        async def serves() -> bool:
            return self.log_has(f"kv server {self.name} serves clients")

        return await self.start(serves, within_s)
