"""Runs an admin endpoint as a child process, beside a daemon and with its settings; and an admin client."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient

from cli.demo.process import RegentProcess
from testing.embedded.process import ChildProcess, accepts, free_port


class EndpointProcess(ChildProcess):
    """Runs ``regent admin-endpoint`` on a port of its own."""

    def __init__(self, daemon: RegentProcess) -> None:
        self.port = free_port()
        config = daemon.folder / "admin-endpoint.toml"
        own = f'[admin]\nhost = "127.0.0.1"\nport = {self.port}\nadvertised_host = "127.0.0.1"\n'
        config.write_text(daemon.config.read_text(encoding="utf-8").replace("[admin]\n", own), encoding="utf-8")
        command = [sys.executable, "-m", "cli.main", "admin-endpoint", "--config", str(config)]
        super().__init__("admin endpoint", command, daemon.folder / "admin-endpoint.log")

    @property
    def address(self) -> str:
        """Returns the bootstrap address."""
        return f"127.0.0.1:{self.port}"

    async def boot(self) -> float:
        """Starts the endpoint and waits until it listens; returns the seconds it took."""
        return await self.start(lambda: accepts(self.port))


@asynccontextmanager
async def admin_client(address: str | Sequence[str], **options: Any) -> AsyncIterator[AIOKafkaAdminClient]:
    """Connects aiokafka's admin client."""
    client = AIOKafkaAdminClient(bootstrap_servers=address, **options)
    await client.start()
    try:
        yield client
    finally:
        await client.close()


def errors_of(response: Any) -> list[tuple[str, int]]:
    """Returns topic and error code of each topic in a response to CreateTopics or CreatePartitions."""
    return [(topic, code) for topic, code, *_ in response.topic_errors]


@asynccontextmanager
async def endpoint(daemon: RegentProcess) -> AsyncIterator[EndpointProcess]:
    """Runs an endpoint beside a daemon, and stops it at the end."""
    made = EndpointProcess(daemon)
    await made.boot()
    try:
        yield made
    finally:
        await made.stop()
    assert made.exit_code == 0, made.log_tail()
