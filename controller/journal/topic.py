"""Gives the journal's rows to a topic of Kafka, on a thread with an event loop of its own.

The files stay the truth. Rows without room in the queue, or that the topic refuses, are counted and missing in the
topic: a reader sees the hole in their numbers. After an outage some rows may come twice, with the same numbers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Final

from configs.journal_section import JournalSettings
from controller.journal.topic_producer import Connect, NotTaken
from controller.journal.topic_queue import Slice, TopicQueue
from controller.journal.topic_sending import Sending, TopicCounters

log = logging.getLogger("regent.journal")

CLOSE_S_MAX: Final = 3.0
"""Longest time for the last rows at a stop, and again for the end of the connections."""


class JournalTopic:
    """The topic of one daemon's journal. Only the thread waits for brokers."""

    def __init__(self, settings: JournalSettings, counters: TopicCounters, connect: Connect) -> None:
        self._topic = settings.topic
        self._given = [server.strip() for server in settings.topic_bootstrap.split(",") if server.strip()]
        self._brokers: Callable[[], Sequence[str]] = list
        self._known: Sequence[str] = ()
        self._counters = counters
        self._queue = TopicQueue(settings.topic_bytes_max, counters)
        self._sending = Sending(self._topic, self._queue, counters, connect, self._bootstrap)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing = False
        self._closed = asyncio.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="journal-topic", daemon=True)

    def start(self, brokers: Callable[[], Sequence[str]]) -> None:
        """Starts the thread; ``brokers`` returns ``host:port`` of the brokers that the daemon controls. Any thread."""
        self._brokers = brokers
        self._thread.start()

    def stage(self, epoch: int, seq: int, rows: int, data: bytes) -> None:
        """Keeps lines that are on their way to the disk; never waits."""
        self._queue.stage(Slice(epoch, seq, rows, data))

    def commit(self) -> None:
        """Sends the staged lines, because the files have them."""
        if self._queue.commit():
            self._call(self._sending.woken.set)

    def discard(self) -> None:
        """Forgets the staged lines, because the files do not have them."""
        self._queue.discard()

    def close(self) -> None:
        """Sends the last rows for ``CLOSE_S_MAX`` at most, and ends the thread."""
        self._closing = True
        self._call(self._closed.set)
        if self._thread.is_alive():
            self._thread.join(2 * CLOSE_S_MAX)

    def _call(self, callback: Callable[[], None]) -> None:
        """Has the thread's loop run a callback, where it runs."""
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # closed
                loop.call_soon_threadsafe(callback)

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        if self._closing:
            self._closed.set()
        sending = asyncio.create_task(self._sending.run())
        await self._closed.wait()
        self._sending.closing = True
        self._sending.woken.set()
        await asyncio.wait({sending}, timeout=CLOSE_S_MAX)
        sending.cancel()
        await asyncio.wait({sending}, timeout=CLOSE_S_MAX / 3)
        await self._sending.disconnect()
        if rest := self._sending.rest():
            self._queue.lose(rest)
            log.error("the last %d rows are missing in topic %s, the files have them", rest, self._topic)

    def _bootstrap(self) -> Sequence[str]:
        """Returns the brokers to connect to: those of the settings, or the last ones that the daemon knew."""
        if self._given:
            return self._given
        self._known = self._brokers() or self._known
        if not self._known:
            raise NotTaken("no broker is registered")
        return self._known
