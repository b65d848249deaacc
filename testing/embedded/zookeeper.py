"""Runs real ZooKeeper servers, each in a process, on the same ports and data folder at every start."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from testing.embedded.jvm import java_command, write_log4j, write_properties
from testing.embedded.process import ChildProcess, free_port

COMMAND_S_MAX: Final = 2.0
"""How long a four-letter command may take before the server counts as not ready."""

_LOG4J: Final = """\
log4j.rootLogger=INFO, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d{ISO8601} %p %m (%c)%n
"""


class Member(NamedTuple):
    """One server of an ensemble; ``ports`` are those of all, counted from 1, for followers and for elections."""

    number: int
    ports: tuple[tuple[int, int], ...]

    def properties(self) -> dict[str, object]:
        """Returns the ensemble's lines of the configuration; a frozen leader is replaced after ``syncLimit`` ticks."""
        servers = {f"server.{n}": f"127.0.0.1:{peer}:{vote}" for n, (peer, vote) in enumerate(self.ports, start=1)}
        return {"initLimit": 10, "syncLimit": 4, **servers}


class EmbeddedZooKeeper(ChildProcess):
    """A ZooKeeper server, standalone unless ``member`` makes it one of an ensemble.

    ``folder`` receives its configuration, log and data.

    ``tick_ms`` bounds sessions (2 to 20 ticks unless ``session_ms_min`` and ``session_ms_max`` are given);
    ``jute_maxbuffer`` is the largest packet in bytes (server default 1 MiB - 1); with ``super_password`` the digest
    user ``super`` may do anything, whatever the ACLs; ``properties`` are further lines of its configuration file,
    ``jaas`` is the text of its JAAS file, ``jvm`` are further options of the JVM.
    """

    def __init__(
        self,
        folder: Path,
        *,
        port: int | None = None,
        tick_ms: int = 1_000,
        session_ms_min: int | None = None,
        session_ms_max: int | None = None,
        jute_maxbuffer: int | None = None,
        super_password: str | None = None,
        properties: Mapping[str, object] | None = None,
        jaas: str | None = None,
        heap_mb: int = 256,
        member: Member | None = None,
        jvm: Sequence[str] = (),
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.port = port or free_port()
        settings: dict[str, object] = {
            "tickTime": tick_ms,
            "dataDir": folder / "data",
            "clientPort": self.port,
            "clientPortAddress": "127.0.0.1",
            "maxClientCnxns": 0,
            "minSessionTimeout": session_ms_min or 2 * tick_ms,
            "maxSessionTimeout": session_ms_max or 20 * tick_ms,
            "4lw.commands.whitelist": "*",
            "admin.enableServer": "false",
            **(member.properties() if member is not None else {}),
            **(properties or {}),
        }
        if member is not None:
            (folder / "data").mkdir(exist_ok=True)
            (folder / "data" / "myid").write_text(str(member.number), encoding="utf-8")
        config = write_properties(folder / "zookeeper.properties", settings)
        options = [f"-Dlog4j.configuration={write_log4j(folder, _LOG4J)}", f"-Xmx{heap_mb}m", *jvm]
        if jute_maxbuffer is not None:
            options.append(f"-Djute.maxbuffer={jute_maxbuffer}")
        if super_password is not None:
            options.append(f"-Dzookeeper.DigestAuthenticationProvider.superDigest={digest('super', super_password)}")
        if jaas is not None:
            (folder / "jaas.conf").write_text(jaas, encoding="utf-8")
            options.append(f"-Djava.security.auth.login.config={folder / 'jaas.conf'}")
        main = "ZooKeeperServerMain" if member is None else "quorum.QuorumPeerMain"
        command = java_command(options, f"org.apache.zookeeper.server.{main}", str(config))
        name = "ZooKeeper" if member is None else f"ZooKeeper {member.number}"
        super().__init__(name, command, folder / "zookeeper.log")

    @property
    def connect(self) -> str:
        """Returns the connect string without a chroot."""
        return f"127.0.0.1:{self.port}"

    async def boot(self) -> float:
        """Starts the server and waits until it serves; returns the seconds it took."""
        return await self.start(self.serves)

    async def restart(self) -> float:
        """Stops the server cleanly and starts it on the same port and data; returns the seconds of the start."""
        await self.stop()
        return await self.boot()

    async def serves(self) -> bool:
        """Checks whether the server's response to ``srvr`` shows that it serves requests."""
        return "Mode:" in await self.query("srvr")

    async def query(self, command: str) -> str:
        """Returns the response to a four-letter command; empty where there is none."""
        try:
            return await asyncio.wait_for(self._query(command), COMMAND_S_MAX)
        except (OSError, TimeoutError):
            return ""

    async def _query(self, command: str) -> str:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(command.encode())
            return (await reader.read(-1)).decode(errors="replace")
        finally:
            writer.close()


def ensemble(folder: Path, size: int, **options: Any) -> list[EmbeddedZooKeeper]:
    """Returns the servers of one ensemble, not started yet: boot them together, one serves once a majority runs."""
    ports = tuple((free_port(), free_port()) for _ in range(size))
    return [
        EmbeddedZooKeeper(folder / f"server-{number}", member=Member(number, ports), **options)
        for number in range(1, size + 1)
    ]


async def in_sync(servers: Sequence[EmbeddedZooKeeper]) -> bool:
    """Checks whether one server leads and has all others of the ensemble in sync: only then any single one may go.

    A server that was frozen reports that it serves before it notices that its leader has dropped it.
    """
    modes = [re.search(r"Mode: (\w+)", await server.query("srvr")) for server in servers]
    if sorted(mode[1] if mode else "none" for mode in modes) != ["follower"] * (len(servers) - 1) + ["leader"]:
        return False
    leader = next(server for server, mode in zip(servers, modes, strict=True) if mode and mode[1] == "leader")
    return (
        re.search(rf"^zk_synced_followers\t{len(servers) - 1}$", await leader.query("mntr"), re.MULTILINE) is not None
    )


def digest(user: str, password: str) -> str:
    """Returns ``user:hash`` as ZooKeeper's digest scheme stores it in ACLs and takes it for ``superDigest``."""
    hashed = hashlib.sha1(f"{user}:{password}".encode(), usedforsecurity=False).digest()
    return f"{user}:{base64.b64encode(hashed).decode()}"
