"""Runs ``regent run`` as a child process with a folder of its own, for the demo and for tests."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import httpx

from configs.credentials import HANDED_OVER
from controller.journal.segments import folder_in
from testing.embedded.process import ChildProcess, free_port

SESSION_MS: Final = 6_000
ANSWER_S_MAX: Final = 30.0
DEFAULT_ID: Final = 1_000_001


class DaemonProcess(ChildProcess):
    """A daemon with settings of its own in ``folder``, and a surface on a unix socket there.

    ``flags`` are those of ``regent run``; ``command`` replaces the start of the command line (tests). The credentials
    of a daemon that is installed on this machine are not for it.
    """

    def __init__(
        self, folder: Path, name: str, flags: Sequence[str] = (), command: Sequence[str] | None = None
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.socket = folder / "regent.sock"
        self.port = free_port()
        self.config = folder / "regent.toml"
        run = [*(command or (sys.executable, "-m", "cli.main", "run")), "--config", str(self.config), *flags]
        super().__init__(name, run, folder / "regent.log", {HANDED_OVER: str(folder)})

    def _settings(self) -> dict[str, object]:
        return {
            "http.socket": str(self.socket),
            "state.directory": str(self.folder / "state"),
            "log.format": "console",
        }

    def configure(self, settings: Mapping[str, object]) -> None:
        """Writes the settings file anew: the defaults of this class and ``settings``; the next start reads it."""
        self.config.write_text(_toml(self._settings() | dict(settings)), encoding="utf-8")

    @property
    def journal(self) -> Path:
        """Returns the folder of its journal."""
        return folder_in(self.folder / "state")

    async def get(self, path: str, **params: Any) -> dict[str, Any]:
        """Returns one document over the unix socket; raises ``httpx.HTTPError``."""
        async with self._client() as client:
            answer = await client.get(path, params=params)
            answer.raise_for_status()
            return dict(answer.json())

    async def post(self, path: str, body: Mapping[str, object]) -> dict[str, Any]:
        """Requests a change over the unix socket; raises ``httpx.HTTPError``."""
        async with self._client() as client:
            answer = await client.post(path, json=dict(body))
            answer.raise_for_status()
            return dict(answer.json())

    async def metric(self, name: str) -> dict[str, float]:
        """Returns the samples of a metric by their labels, "" where there are none; raises ``httpx.HTTPError``."""
        async with self._client() as client:
            text = (await client.get("/metrics")).text
        found = re.findall(rf"^{name}(\{{\S*\}})? (\S+)$", text, re.MULTILINE)
        return {labels: float(value) for labels, value in found}

    def _client(self) -> httpx.AsyncClient:
        transport = httpx.AsyncHTTPTransport(uds=str(self.socket))
        return httpx.AsyncClient(transport=transport, base_url="http://regent", timeout=ANSWER_S_MAX)


class RegentProcess(DaemonProcess):
    """A daemon for the cluster at ``connect`` (chroot included); ``settings`` override ``section.key``."""

    def __init__(
        self,
        folder: Path,
        connect: str,
        *,
        controller_id: int = DEFAULT_ID,
        flags: Sequence[str] = (),
        settings: Mapping[str, object] | None = None,
        command: Sequence[str] | None = None,
    ) -> None:
        super().__init__(folder, f"regent {controller_id}", flags, command)
        self.id = controller_id
        self._connect = connect
        self.configure(settings or {})

    def _settings(self) -> dict[str, object]:
        return {
            **super()._settings(),
            "zookeeper.connect": self._connect,
            "zookeeper.session_timeout_ms": SESSION_MS,
            "controller.id": self.id,
            "controller.loop_stall_ms_max": 2_500,
            "listener.host": "127.0.0.1",
            "listener.port": self.port,
            "listener.advertised_host": "127.0.0.1",
            "admin.beside_daemon": False,
        }

    async def is_in(self, mode: str) -> bool:
        """Returns whether the daemon responds and is in ``mode``."""
        status = await self.status()
        return status is not None and status["mode"] == mode

    async def boot(self, mode: str | None = "active", within_s: float = 60.0) -> float:
        """Starts the daemon and waits until it is in ``mode`` (None: until it responds); returns the seconds."""

        async def ready() -> bool:
            status = await self.status()
            return status is not None and mode in {None, status["mode"]}

        return await self.start(ready, within_s)

    async def status(self) -> dict[str, Any] | None:
        """Returns ``regent status`` of this daemon, or None where it does not respond."""
        try:
            [item] = (await self.get("/v1/status"))["items"]
        except httpx.HTTPError:
            return None
        return dict(item)

    async def partitions(self, *only: str, topic: str | None = None) -> list[dict[str, Any]]:
        """Returns all partitions that match the filters."""
        found: list[dict[str, Any]] = []
        after: str | None = None
        while True:
            params = {"limit": 5_000, "only": list(only), "topic": topic, "after": after}
            page = await self.get("/v1/partitions", **{k: v for k, v in params.items() if v})
            found += page["items"]
            after = page.get("next")
            if not after:
                return found


def _toml(settings: Mapping[str, object]) -> str:
    sections: dict[str, list[str]] = {}
    for name, value in settings.items():
        section, _, key = name.partition(".")
        sections.setdefault(section, []).append(f"{key} = {json.dumps(value)}")
    return "\n".join(f"[{section}]\n" + "\n".join(lines) + "\n" for section, lines in sections.items())
