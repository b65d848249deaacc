"""The simulated brokers: one process for all of them, and the channel on which it is told what to do."""

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
    """What the brokers received since the last mark. Times are of the monotonic clock, 0 where nothing came."""

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
    """What one broker knows: digests of its metadata cache and of what it was told of its replicas; the live list."""

    metadata: Digest
    replicas: Digest
    live: frozenset[int]


class Fleet(ChildProcess):
    """``count`` simulated brokers with ids from 1, in one process.

    ``full_answers``: LeaderAndIsr is answered with a code for each partition, as real brokers do.
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
        """One request on the control channel and its answer, which may take ``s_max`` seconds."""
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
        """Counts since the last mark, over all brokers."""
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
        """Counts begin anew."""
        await self.ask("mark")

    async def forget(self) -> None:
        """All views are empty again."""
        await self.ask("forget")

    async def die(self, brokers: Collection[int]) -> float:
        """They vanish with their registrations; the moment right before the deletion was sent."""
        return float((await self.ask("die", brokers=list(brokers)))["at_ns"]) * NS

    async def register(self, brokers: Iterable[int]) -> float:
        """They are back with new epochs; the moment right before the creation was sent."""
        return float((await self.ask("register", brokers=list(brokers)))["at_ns"]) * NS

    async def prepare_catch_up(self, port: int) -> None:
        """Leaders look at what they know and connect to the controller at ``port``. Takes seconds."""
        await self.ask("prepare", port=port)

    async def catch_up(self) -> float:
        """All that was prepared: replicas on live brokers join the ISRs; the moment right before leaders asked for it.

        Returns when all of them are answered.
        """
        return float((await self.ask("catch_up", CATCH_UP_S_MAX))["at_ns"]) * NS

    async def list_stopped(self, on: bool) -> None:
        """Whether StopReplica is answered with a code for each partition: deletions are counted by it."""
        await self.ask("full", brokers=[], api="STOP_REPLICA", on=on)

    async def epochs(self) -> dict[int, int]:
        """Broker epochs."""
        return {int(broker): found["epoch"] for broker, found in (await self.ask("stats"))["brokers"].items()}

    async def views(self) -> dict[int, View]:
        """What each broker knows. Computing it may take seconds, during which nothing is received."""
        answer = await self.ask("digest")
        return {
            int(broker): View(_digest(found["metadata"]), _digest(found["replicas"]), frozenset(found["live"]))
            for broker, found in answer["brokers"].items()
        }

    async def dump(self, broker: int, file: Path) -> None:
        """What a broker knows, as text, for people."""
        await self.ask("dump", broker=broker, file=str(file))

    async def stop_all(self) -> None:
        """Ends the process."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        await self.kill()


def _digest(found: list[Any]) -> Digest:
    return int(found[0]), str(found[1])
