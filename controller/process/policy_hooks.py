"""Asks an operator's policy whether a topic may be created: a command, or an address that is sent a request.

Both get Kafka's own fields (``CreateTopicPolicy.RequestMetadata``) as one JSON object, and say yes or give a text.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, Protocol

import msgspec
from msgspec import Struct

from controller.process.commands import environment, kill_group

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
            process = await asyncio.create_subprocess_exec(
                *self._command, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.STDOUT, start_new_session=True,
                env=environment(),
            )  # fmt: skip
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
