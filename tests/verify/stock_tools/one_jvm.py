"""Runs tools in one JVM, each by its own main method: a start of a JVM takes as long as fifty of them."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from testing.embedded.java import find_java
from testing.embedded.jvm import java_command, write_log4j
from testing.embedded.tools import CLASSES, LOG4J, Finished, Tools

SOURCE: Final = Path(__file__).with_name("Runner.java")
ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024
HEAP: Final = "-Xmx256m"


class OneJvm:
    """Talks to the running JVM, which compiles its source at the start, so it needs a JDK: see :func:`has_compiler`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._free = asyncio.Lock()

    async def run(self, class_name: str, *arguments: str) -> Finished:
        """Runs a main method to its end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        words = [class_name, *(base64.b64encode(argument.encode()).decode() for argument in arguments)]
        async with self._free:
            self._process.stdin.write(" ".join(words).encode() + b"\n")
            answer = (await self._process.stdout.readline()).decode().split(" ")
        assert len(answer) == 4, "the JVM of the tools has ended"
        out, err = (base64.b64decode(text).decode() for text in answer[1:3])
        return Finished(int(answer[0]), out, err)


def has_compiler() -> bool:
    """Returns whether the Java is a JDK."""
    return Path(find_java().path).resolve().with_name("javac").exists()


@asynccontextmanager
async def one_jvm(folder: Path) -> AsyncIterator[OneJvm]:
    """Starts the JVM with the logging of the tools, configured in ``folder``, and ends it."""
    options = [f"-Dlog4j.configuration={write_log4j(folder, LOG4J)}", HEAP, "-Djava.security.manager=allow"]
    command = java_command(options, str(SOURCE))
    pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        *command, stdin=pipe, stdout=pipe, stderr=null, limit=ANSWER_BYTES_MAX
    )
    try:
        yield OneJvm(process)
    finally:
        process.kill()
        await process.wait()


class ToolsInOneJvm(Tools):
    """Runs tools against one bootstrap server in a JVM that they share."""

    def __init__(self, jvm: OneJvm, bootstrap: str, folder: Path, timeout_s: float) -> None:
        super().__init__(bootstrap, folder, timeout_s)
        self._jvm = jvm

    async def run(self, tool: str, *arguments: str) -> Finished:
        """Runs a tool to its end; raises TimeoutError, then the JVM is of no more use."""
        async with asyncio.timeout(self._timeout_s):
            return await self._jvm.run(CLASSES[tool], "--bootstrap-server", self._bootstrap, *arguments)
