"""The simulated brokers: one process for all of them, and the channel for commands to it."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.oracle import Digest
from testing.embedded.process import ChildProcess

ANSWER_S_MAX: Final = 300.0
CATCH_UP_S_MAX: Final = 900.0
ANSWER_BYTES_MAX: Final = 16 << 20
NS: Final = 1e-9
SESSION_MS: Final = 120_000
APIS: Final = ("LEADER_AND_ISR", "UPDATE_METADATA", "STOP_REPLICA")


@dataclass(frozen=True)
class Received:
    """Counts of received requests since the last mark. Times are of the monotonic clock, 0 without any request."""

    requests: int = 0
    bytes: int = 0
    refused: int = 0
    last_s: float = 0.0
    now_s: float = 0.0
    cpu_s: float = 0.0
    by_api: dict[str, int] = field(default_factory=dict)
    epochs: frozenset[int] = frozenset()


@dataclass(frozen=True)
class View:
    """The view of one broker: digests of its metadata cache and of its replicas' states, and the live list."""

    metadata: Digest
    replicas: Digest
    live: frozenset[int]


class Fleet(ChildProcess):
    """A process with ``count`` simulated brokers, ids from 1.

    ``full_answers``: responses to LeaderAndIsr have a code for each partition, as those of real brokers.
    """

    def __init__(self, folder: Path, connect: str, count: int, *, full_answers: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.control = folder / "brokers.sock"
        command = [sys.executable, "-m", "testing.simulated", "--zookeeper", connect, "--brokers", f"1-{count}"]
        command += ["--control", str(self.control), "--session-ms", str(SESSION_MS)]
        command += ["--full-answers"] if full_answers else []
        super().__init__("simulated brokers", command, folder / "brokers.log")
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self.count = count

    async def boot(self) -> float:
        """Starts the process and waits until every broker is registered."""
        return await self.start(self._serves)

    async def _serves(self) -> bool:
        if not self.control.exists():
            return False
        try:
            return all(found["registered"] for found in (await self.ask("stats"))["brokers"].values())
        except OSError:
            return False

    async def ask(self, what: str, s_max: float = ANSWER_S_MAX, **details: Any) -> dict[str, Any]:
        """Sends a command on the control channel and returns its response, which may take ``s_max`` seconds."""
        if self._writer is None or self._writer.is_closing():
            opened = await asyncio.open_unix_connection(str(self.control), limit=ANSWER_BYTES_MAX)
            self._reader, self._writer = opened
        assert self._reader is not None
        self._writer.write(json.dumps({"do": what, **details}).encode() + b"\n")
        line = await asyncio.wait_for(self._reader.readline(), s_max)
        if not line:
            self._writer.close()
            raise ConnectionError(f"the simulated brokers ended during {what!r}\n{self.log_tail()}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"simulated brokers: {what}: {answer['error']}")
        return dict(answer)

    async def received(self) -> Received:
        """Returns the counts since the last mark, over all brokers."""
        answer = await self.ask("stats")
        counts = [(api, broker[api]) for broker in answer["brokers"].values() for api in APIS if api in broker]
        by_api = {api: sum(found["requests"] for of, found in counts if of == api) for api in APIS}
        return Received(
            requests=sum(by_api.values()),
            bytes=sum(found["bytes"] for _, found in counts),
            refused=sum(found.get("refused", 0) for _, found in counts),
            last_s=max((found["last_ns"] for _, found in counts if found["requests"]), default=0) * NS,
            now_s=answer["now_ns"] * NS,
            cpu_s=answer["cpu_s"],
            by_api=by_api,
            epochs=frozenset(broker["controller_epoch"] for broker in answer["brokers"].values()),
        )

    async def mark(self) -> None:
        """Resets the counts."""
        await self.ask("mark")

    async def forget(self) -> None:
        """Empties all views."""
        await self.ask("forget")

    async def die(self, brokers: Collection[int]) -> float:
        """Ends brokers and their registrations; returns the moment right before the deletion was sent."""
        return float((await self.ask("die", brokers=list(brokers)))["at_ns"]) * NS

    async def register(self, brokers: Iterable[int]) -> float:
        """Registers brokers with new epochs; returns the moment right before the creation was sent."""
        return float((await self.ask("register", brokers=list(brokers)))["at_ns"]) * NS

    async def prepare_catch_up(self, port: int) -> None:
        """Prepares the leaders' requests and connects them to the controller at ``port``, which takes seconds."""
        await self.ask("prepare", port=port)

    async def catch_up(self) -> float:
        """Sends the prepared requests, by which replicas join ISRs; returns the moment right before.

        It returns once all of them have responses.
        """
        return float((await self.ask("catch_up", CATCH_UP_S_MAX))["at_ns"]) * NS

    async def list_stopped(self, on: bool) -> None:
        """Sets whether responses to StopReplica have a code for each partition, by which deletions are counted."""
        await self.ask("full", brokers=[], api="STOP_REPLICA", on=on)

    async def epochs(self) -> dict[int, int]:
        """Returns the broker epochs."""
        return {int(broker): found["epoch"] for broker, found in (await self.ask("stats"))["brokers"].items()}

    async def views(self) -> dict[int, View]:
        """Returns the views of all brokers. The computation may take seconds, during which no request is received."""
        answer = await self.ask("digest")
        return {
            int(broker): View(_digest(found["metadata"]), _digest(found["replicas"]), frozenset(found["live"]))
            for broker, found in answer["brokers"].items()
        }

    async def dump(self, broker: int, file: Path) -> None:
        """Returns the view of a broker as text for people."""
        await self.ask("dump", broker=broker, file=str(file))

    async def stop_all(self) -> None:
        """Ends the process."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        await self.kill()


def _digest(found: list[Any]) -> Digest:
    return int(found[0]), str(found[1])
