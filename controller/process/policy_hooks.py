"""Asks an operator's policy whether a topic may be created: a command, an address, or the cluster's own class.

All get Kafka's own fields (``CreateTopicPolicy.RequestMetadata``) as one JSON object, and say yes or give a text.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Protocol

import msgspec
from msgspec import Struct

from controller.process.commands import Output, kill_group, start

REASON_CHARS_MAX: Final = 500
"""Characters of a refusal or of a cause; the rest is cut off."""
ANSWER_BYTES_MAX: Final = 64 * 1024
"""Bytes of a policy's answer; one with more has failed."""
REFUSED: Final = 1
"""Exit code of a command that refuses a topic."""
NO_REASON: Final = "the policy gives no reason"


class PolicyFailed(Exception):
    """The policy gave no answer; the text has the cause."""


class Hook(Protocol):
    """Asks a policy; cancelled where its answer comes too late."""

    async def ask(self, fields: bytes) -> str | None:
        """Returns why the topic is refused, None where it may be created; raises :class:`PolicyFailed`."""

    async def close(self) -> None:
        """Ends what the hook has started."""


class Answer(Struct):
    """The answer of a policy in JSON; ``error``: why it has none."""

    allowed: bool
    reason: str = ""
    error: str = ""


def answer_of(data: bytes) -> str | None:
    """Parses an answer in JSON; raises :class:`PolicyFailed`."""
    try:
        found = msgspec.json.decode(data, type=Answer)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise PolicyFailed(f'its answer is not {{"allowed": true or false, "reason": text}}: {error}') from error
    if found.error:
        raise PolicyFailed(_text(found.error))
    return None if found.allowed else _text(found.reason) or NO_REASON


def _text(value: str) -> str:
    text = " ".join(value.split())
    return text if len(text) <= REASON_CHARS_MAX else f"{text[:REASON_CHARS_MAX]}..."


class CommandHook:
    """Runs a program for each topic, without a shell, with the fields in its standard input.

    It allows the topic by exit code 0, and refuses it by 1, with the reason in its output.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command

    async def ask(self, fields: bytes) -> str | None:
        """Runs the program, and kills its process group where it is not done in time."""
        pipe = asyncio.subprocess.PIPE
        try:
            process = await start(*self._command, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.STDOUT)
        except OSError as error:
            raise PolicyFailed(f"it cannot be run ({error.strerror})") from error
        has_ended = False
        try:
            said = await _exchange(process, fields)
            code = await process.wait()
            has_ended = True
        finally:
            if not has_ended:  # children that it has left may hold its output open
                await kill_group(process)
        text = _text(said.decode(errors="replace"))
        if code == REFUSED:
            return text or NO_REASON
        if code:
            raise PolicyFailed(f"it ended with {code}{f'; it said: {text}' if text else ''}")
        return None

    async def close(self) -> None:
        """Does nothing: each run ends with its question."""


async def _exchange(process: asyncio.subprocess.Process, fields: bytes) -> bytes:
    """Sends the fields, and returns all output; raises :class:`PolicyFailed` where that is too long."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(fields)
    process.stdin.close()  # a program that does not read its input is none of our business
    said = b""
    while chunk := await process.stdout.read(ANSWER_BYTES_MAX):
        said += chunk
        if len(said) > ANSWER_BYTES_MAX:
            raise PolicyFailed(f"it said more than {ANSWER_BYTES_MAX} bytes")
    return said


class HttpHook:
    """Posts the fields to an address, whose response has status 200 and the answer in JSON."""

    def __init__(self, url: str, timeout_s: float) -> None:
        import httpx  # no daemon without such a policy has it in memory

        self._url = url
        self._errors = (httpx.HTTPError, httpx.InvalidURL)
        self._client = httpx.AsyncClient(timeout=timeout_s, follow_redirects=False)

    async def ask(self, fields: bytes) -> str | None:
        """Sends one request."""
        headers = {"content-type": "application/json"}
        try:
            async with self._client.stream("POST", self._url, content=fields, headers=headers) as response:
                data = b""
                async for chunk in response.aiter_bytes():
                    data += chunk
                    if len(data) > ANSWER_BYTES_MAX:
                        raise PolicyFailed(f"it responds with more than {ANSWER_BYTES_MAX} bytes")
        except self._errors as error:
            raise PolicyFailed(str(error) or type(error).__name__) from error
        text = _text(data.decode(errors="replace"))
        if response.status_code != 200:  # the one status with an answer
            raise PolicyFailed(f"it responds with status {response.status_code}: {text}")
        return answer_of(data)

    async def close(self) -> None:
        """Closes the connections."""
        await self._client.aclose()


SOURCE: Final = Path(__file__).with_name("PolicyHost.java")
START_S_MAX: Final = 60.0
"""Longest wait for the first answer of a JVM."""
OPTIONS: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx128m", "-Djava.awt.headless=true")


class JvmHook:
    """Keeps one JVM with the cluster's own policy class, unchanged, which answers one question at a time.

    The JVM starts with the first question, and again with the next one after it has ended or kept a question waiting.
    One that has yet to answer for the first time is given longer: a busy machine takes more for that than a question
    may wait. It ends with the daemon, because its input ends then.

    ``class_name``: of the policy. ``class_path`` has the brokers' jars and the policy; ``properties``: a file by which
    the policy is configured.
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
            return await start(*command, stdin=pipe, stdout=pipe, stderr=said.end, limit=ANSWER_BYTES_MAX)
        except OSError as error:
            raise PolicyFailed(f"java cannot be run ({error.strerror})") from error

    async def close(self) -> None:
        """Kills the JVM."""
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            await kill_group(process)
        self._running.close()
