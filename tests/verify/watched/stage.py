"""Boots a cluster with two daemons, which a Prometheus scrapes over TLS and with a token."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cli.demo.process import RegentProcess
from testing.embedded.load import Load
from testing.embedded.process import free_port
from tests.kit.certificates import Authority
from tests.kit.cluster.endpoint import EndpointProcess
from tests.kit.cluster.world import ClusterWorld, world
from tests.kit.deadlines import eventually
from tests.verify.watched.prometheus import Credentials, Prometheus

SESSION_MS: Final = 9_000
STALL_MS_MAX: Final = 4_400
LONG_SESSION_MS: Final = 120_000
"""Of broker 3: so long it stays registered while it is frozen."""
PLACES: Final = ("regent1", "regent2")
PARTITIONS: Final = 12


@dataclass
class Watched:
    """Holds the stage, ``daemons`` and ``endpoints`` by instance; Prometheus scrapes ``ports``."""

    w: ClusterWorld
    prometheus: Prometheus
    ports: dict[str, int]
    credentials: Credentials
    certificate: Path
    daemons: dict[str, RegentProcess]
    endpoints: dict[str, EndpointProcess]
    load: Load

    def daemon(self, instance: str, **options: Any) -> RegentProcess:
        """Returns a daemon that is not started yet, at a port that Prometheus scrapes."""
        settings = {
            "zookeeper.session_timeout_ms": SESSION_MS,
            "controller.loop_stall_ms_max": STALL_MS_MAX,
            "admin.secret_file": str(self.w.cluster.folder / "admin-secret"),
            "http.address": f"127.0.0.1:{self.ports[instance]}",
            "http.certificate_file": str(self.certificate),
            "http.token_file": str(self.credentials.token_file),
            **options.pop("settings", {}),
        }
        return self.w.daemon(settings=settings, **options)

    async def active(self) -> str:
        """Waits until a daemon is active; returns its instance."""

        async def one() -> str | None:
            for instance, daemon in self.daemons.items():
                if daemon.running and await daemon.is_in("active"):
                    return instance
            return None

        seated = await eventually(one, 90.0)
        assert seated is not None
        return seated

    async def replace(self, instance: str, daemon: RegentProcess, mode: str | None) -> None:
        """Replaces a daemon; the admin endpoint beside the former one ends."""
        if instance in self.endpoints:
            await self.endpoints.pop(instance).stop()
        await self.daemons[instance].stop()
        self.daemons[instance] = daemon
        await daemon.boot(mode)

    async def at(self, instance: str) -> None:
        """Starts an admin endpoint beside the daemon."""
        made = self.endpoints[instance] = EndpointProcess(self.daemons[instance])
        await made.boot()


def new_credentials(folder: Path) -> tuple[Credentials, Path]:
    """Makes a token and an authority, and the daemons' certificate."""
    folder.mkdir(parents=True, exist_ok=True)
    token = folder / "token"
    token.write_text(secrets.token_hex(32), encoding="utf-8")
    token.chmod(0o600)
    authority = Authority(folder / "authority")
    return Credentials(authority.file, token), authority.signed("daemon")


@asynccontextmanager
async def watched(folder: Path) -> AsyncIterator[Watched]:
    """Runs the stage; Prometheus keeps its data in ``folder``, an absolute path."""
    credentials, certificate = await asyncio.to_thread(new_credentials, folder)
    ports = {instance: free_port() for instance in PLACES}
    long = {"session_ms_max": 2 * LONG_SESSION_MS}
    async with world(2, partitions=PARTITIONS, zookeeper_options=long, replication=3) as w:
        third = w.cluster.add_broker(3, properties={"zookeeper.session.timeout.ms": LONG_SESSION_MS})
        await third.boot()
        prometheus = Prometheus(folder, ports, credentials)
        load = Load(w.cluster.bootstrap, {"orders": PARTITIONS}, rate_per_s=100, request_s_max=300.0)
        made = Watched(w, prometheus, ports, credentials, certificate, {}, {}, load)
        try:
            await _begin(made)
            async with load:
                yield made
        finally:
            for process in (*made.endpoints.values(), prometheus):
                await process.kill()


async def _begin(made: Watched) -> None:
    for instance, flags, mode in zip(PLACES, (("--takeover",), ()), ("active", "standby"), strict=True):
        made.daemons[instance] = made.daemon(instance, flags=flags)
        await made.daemons[instance].boot(mode)
    await asyncio.gather(*(made.at(instance) for instance in PLACES))
    await made.prometheus.boot()
