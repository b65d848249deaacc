"""Asks the cluster's own policy class, unchanged, in a small JVM beside the daemon.

The JVM starts with the first question, and again with the next one after it has ended or kept a question waiting. One
that has yet to answer for the first time is given longer: a busy machine takes more for that than a question may wait.
It ends with the daemon, because its input ends then.
"""

from __future__ import annotations

import asyncio
import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from controller.process.commands import Output, environment, kill_group
from controller.process.policy_hooks import ANSWER_BYTES_MAX, PolicyFailed, answer_of

SOURCE: Final = Path(__file__).with_name("PolicyHost.java")
START_S_MAX: Final = 60.0
"""Longest wait for the first answer of a JVM."""
OPTIONS: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx128m", "-Djava.awt.headless=true")


class JvmHook:
    """Keeps one JVM, which answers one question at a time. ``class_name``: of the policy.

    ``class_path`` has the brokers' jars and the policy; ``properties``: a file by which the policy is configured.
    """

    def __init__(self, class_name: str, class_path: str, properties: str = "") -> None:
        self._arguments = [class_name, *([properties] if properties else [])]
        self._class_path = class_path
        self._process: asyncio.subprocess.Process | None = None
        self._asked = 0
        self._first_due_s = 0.0
        """When a JVM that has not answered yet is given up, on the loop's clock; 0: it has answered."""
        self._running = ExitStack()
        self._free = asyncio.Lock()

    async def ask(self, fields: bytes) -> str | None:
        """Asks the JVM; late answers are passed over by their numbers."""
        async with self._free:
            try:
                self._process = self._process or await self._start()
                answer = await self._exchange(self._process, fields)
            except asyncio.CancelledError:
                if not self._is_starting():
                    await self.close()
                raise
            except (ConnectionError, ValueError) as error:  # ValueError: a line beyond the limit
                await self.close()
                raise PolicyFailed(f"its JVM cannot be asked: {error}") from error
            except BaseException:
                await self.close()
                raise
            self._first_due_s = 0.0
            return answer_of(answer)

    def _is_starting(self) -> bool:
        return self._process is not None and asyncio.get_running_loop().time() < self._first_due_s

    async def _exchange(self, process: asyncio.subprocess.Process, fields: bytes) -> bytes:
        """Returns the line with the number of the question: others are warnings of the JVM."""
        assert process.stdin is not None
        assert process.stdout is not None
        self._asked += 1
        number = b"%d " % self._asked
        process.stdin.write(number + fields + b"\n")
        line = b""
        while not line.startswith(number):
            line = await process.stdout.readline()
            if not line.endswith(b"\n"):
                await process.wait()
                raise PolicyFailed(f"its JVM ended{self._said.text()}")
        return line.removeprefix(number)

    async def _start(self) -> asyncio.subprocess.Process:
        java = shutil.which("java")
        if java is None:
            raise PolicyFailed("there is no java in the PATH of the daemon")
        command = [java, *OPTIONS, "-cp", self._class_path, str(SOURCE), *self._arguments]
        self._first_due_s = asyncio.get_running_loop().time() + START_S_MAX
        pipe, said = asyncio.subprocess.PIPE, self._running.enter_context(Output())
        self._said = said
        try:
            return await asyncio.create_subprocess_exec(
                *command, stdin=pipe, stdout=pipe, stderr=said.end, start_new_session=True, limit=ANSWER_BYTES_MAX,
                env=environment(),
            )  # fmt: skip
        except OSError as error:
            raise PolicyFailed(f"java cannot be run ({error.strerror})") from error

    async def close(self) -> None:
        """Kills the JVM."""
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            await kill_group(process)
        self._running.close()
