"""Drives Java's client in the version of a jar."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testing.embedded.jars import jars
from testing.embedded.java import find_java

SOURCE = Path(__file__).with_name("Client.java")
BESIDE = ("jackson", "slf4j", "reload4j", "lz4", "snappy", "zstd")
"""The brokers' jars that the client's own needs, or this suite."""


class Java:
    """Implements :class:`tests.verify.clients.driver.Driver`. Its source is compiled as it starts, by a JDK."""

    name = "Java"

    def __init__(self, jar: Path) -> None:
        self.version = jar.stem.removeprefix("kafka-clients-")
        self._jar = jar

    async def start(self, bootstrap: str, prefix: str) -> None:
        path = ":".join(map(str, [self._jar, *(jar for jar in jars() if jar.name.startswith(BESIDE))]))
        options = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", path]
        pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        self._process = await asyncio.create_subprocess_exec(
            find_java().path, *options, str(SOURCE), bootstrap, prefix, stdin=pipe, stdout=pipe, stderr=null
        )

    async def call(self, operation: str, arguments: Mapping[str, Any]) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([operation, arguments]).encode() + b"\n")
        answer = await self._process.stdout.readline()
        assert answer, f"the JVM of Java's client {self.version} has ended"
        return str(json.loads(answer))

    async def close(self) -> None:
        self._process.kill()
        await self._process.wait()
