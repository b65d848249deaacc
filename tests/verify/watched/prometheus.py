"""Runs a real Prometheus as a child process, and promtool."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

from testing.embedded.process import ChildProcess, free_port

REMEDY: Final = "sudo apt-get install -y --no-install-recommends prometheus"
SCRAPE_S: Final = 5
RULES: Final = Path(__file__).parents[3] / "configs" / "prometheus" / "regent-alerts.yml"


class PrometheusMissing(RuntimeError):
    """Prometheus is not installed on this machine."""


def found(name: str) -> str:
    """Returns the path of ``prometheus`` or ``promtool``; raises :class:`PrometheusMissing`."""
    path = shutil.which(name)
    if path is None:
        raise PrometheusMissing(f"{name} is not installed. On Debian or Ubuntu: {REMEDY}")
    return path


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs promtool to its end."""
    return subprocess.run([found("promtool"), *arguments], capture_output=True, text=True, check=False)


@dataclass(frozen=True)
class Credentials:
    """Holds the authority of the daemons' certificates, and the file with the token."""

    ca_file: Path
    token_file: Path


class Prometheus(ChildProcess):
    """Scrapes ``targets`` (port by instance) every :data:`SCRAPE_S` seconds and evaluates the alert rules.

    Without ``credentials`` it scrapes nothing and shows what ``folder`` holds of an earlier run.
    """

    def __init__(self, folder: Path, targets: Mapping[str, int], credentials: Credentials | None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        config = folder / "prometheus.yml"
        config.write_text(json.dumps(_config(targets, credentials)), encoding="utf-8")
        command = [
            found("prometheus"),
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'data'}",
            "--storage.tsdb.retention.time=10y",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--log.level=warn",
        ]
        super().__init__("prometheus", command, folder / "prometheus.log")

    @property
    def url(self) -> str:
        """Returns the address of its own pages."""
        return f"http://127.0.0.1:{self.port}"

    async def boot(self) -> float:
        """Starts Prometheus and waits until it serves queries."""
        return await self.start(self._ready_to_serve)

    async def _ready_to_serve(self) -> bool:
        try:
            async with httpx.AsyncClient() as client:
                return (await client.get(f"{self.url}/-/ready")).status_code == 200
        except httpx.TransportError:
            return False

    async def ask(self, path: str, **parameters: str | float) -> Any:
        """Returns ``data`` of a response of the HTTP API."""
        async with httpx.AsyncClient(timeout=60) as client:
            answer = (await client.post(f"{self.url}/api/v1/{path}", data=parameters)).json()
        assert answer["status"] == "success", answer
        return answer["data"]

    async def query(self, expression: str, **parameters: float) -> list[dict[str, Any]]:
        """Returns the samples of an expression, now or at ``time``."""
        result: list[dict[str, Any]] = (await self.ask("query", query=expression, **parameters))["result"]
        return result

    async def over(self, expression: str, start: float, end: float, step: float) -> list[dict[str, Any]]:
        """Returns the series of an expression."""
        asked = await self.ask("query_range", query=expression, start=start, end=end, step=step)
        result: list[dict[str, Any]] = asked["result"]
        return result

    async def firing(self) -> set[str]:
        """Returns names of the alerts that fire now."""
        return {sample["metric"]["alertname"] for sample in await self.query('ALERTS{alertstate="firing"}')}


def _config(targets: Mapping[str, int], credentials: Credentials | None) -> dict[str, object]:
    """Returns the configuration as JSON, which is YAML."""
    whole: dict[str, object] = {
        "global": {"scrape_interval": f"{SCRAPE_S}s", "evaluation_interval": f"{SCRAPE_S}s"},
        "rule_files": [str(RULES)],
    }
    if credentials is None:
        return whole
    job = {
        "job_name": "regent",
        "scheme": "https",
        "authorization": {"credentials_file": str(credentials.token_file)},
        "tls_config": {"ca_file": str(credentials.ca_file)},
        "static_configs": [
            {"targets": [f"127.0.0.1:{port}"], "labels": {"instance": instance}} for instance, port in targets.items()
        ],
    }
    return {**whole, "scrape_configs": [job]}


if __name__ == "__main__":
    try:
        print(f"Prometheus is here: {found('prometheus')}, {found('promtool')}")
    except PrometheusMissing as missing:
        raise SystemExit(str(missing)) from missing
