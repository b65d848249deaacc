"""An admin endpoint as a child process, beside a daemon and with its settings."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from cli.demo.process import RegentProcess
from testing.embedded.process import ChildProcess, accepts, free_port


class EndpointProcess(ChildProcess):
    """``regent admin-endpoint`` on a port of its own."""

    def __init__(self, daemon: RegentProcess) -> None:
        self.port = free_port()
        config = daemon.folder / "admin-endpoint.toml"
        own = f'[admin]\nhost = "127.0.0.1"\nport = {self.port}\nadvertised_host = "127.0.0.1"\n'
        config.write_text(daemon.config.read_text(encoding="utf-8").replace("[admin]\n", own), encoding="utf-8")
        command = [sys.executable, "-m", "cli.main", "admin-endpoint", "--config", str(config)]
        super().__init__("admin endpoint", command, daemon.folder / "admin-endpoint.log")

    @property
    def address(self) -> str:
        """Bootstrap address."""
        return f"127.0.0.1:{self.port}"

    async def boot(self) -> float:
        """Starts it and waits until it listens; returns the seconds it took."""
        return await self.start(lambda: accepts(self.port))


@asynccontextmanager
async def endpoint(daemon: RegentProcess) -> AsyncIterator[EndpointProcess]:
    """A running endpoint."""
    made = EndpointProcess(daemon)
    await made.boot()
    try:
        yield made
    finally:
        await made.stop()
    assert made.exit_code == 0, made.log_tail()
