"""Implements the callbacks of regent's agent, and the requests of clients, for all regions of this process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from examples.kv import logs, regions, snapshots
from examples.kv.content import Entry
from examples.kv.memory import Region
from examples.kv.protocol import KEY_BYTES_MAX, PUT_COUNT_MAX, SCAN_BYTES_MAX, SCAN_COUNT_MAX, VALUE_BYTES_MAX
from examples.kv.upkeep import FLUSH_BYTES_MAX, Upkeep
from examples.kv.writer import Log
from regent_agent import protocol
from regent_agent.protocol import Published, RegionLoad
from regent_agent.service import NotRunning, OpenedRegion, Service

FEATURES: Final = (
    protocol.INHERIT,
    protocol.FLUSH,
    protocol.SPLIT_KEY,
    protocol.DISCARD,
    protocol.STAGE,
    protocol.UNSTAGE,
    protocol.PUBLISH,
    protocol.COMMIT,
)
"""What this service does besides opening and closing regions."""
READ_ONLY: Final = "kv.read_only"
"""A published value: with YES no server sets a key."""
YES: Final = b"1"
NO: Final = b"0"

logger = logging.getLogger("kv.service")


class NotOwner(Exception):
    """The process does not own the region with this token, or the region does not have the key."""


class Suspended(Exception):
    """The lease has ended, and nothing is answered until there is a new one."""


class Invalid(Exception):
    """A key or a value is too long, or a request has too many of them."""


class Conflict(Exception):
    """The key has another version than the request expects. ``found``: its entry, None without."""

    def __init__(self, found: Entry | None) -> None:
        super().__init__(f"version {found.sequence if found else 0}")
        self.found = found


class KeyValueService(Service):
    """Owns regions. Every answer waits for the log, so that a process that was fenced answers nothing."""

    def __init__(
        self,
        data: Path,
        log: Log,
        flush_bytes_max: int = FLUSH_BYTES_MAX,
        independent: Callable[[OpenedRegion], None] = lambda _: None,
        published: Callable[[], Mapping[str, Published]] = dict,
    ) -> None:
        """``independent`` gets regions that need no sources any more. ``published``: values that all servers have."""
        self._data = data
        self._log = log
        self._regions: dict[int, Region] = {}
        self._upkeep = Upkeep(data, log, self._regions, independent, flush_bytes_max)
        self._published = published
        self._suspended = False
        self._admitted = False

    def admit(self, admitted: bool) -> None:
        """Opens and serves regions from now on where the daemon fences this server by its log, else none."""
        self._admitted = admitted

    async def save(self) -> None:
        """Writes what the files of regions do not have: nothing recovers it from the log."""
        for region in list(self._regions.values()):
            await self._upkeep.flush(region, whole=False)

    # -- callbacks of the agent

    async def open(self, region: OpenedRegion) -> int:
        """Reads a region and makes this owner's file; returns the sequence number of the open."""
        if not self._admitted:
            raise NotRunning("this server does not know that the daemon fences it by its log")
        content = await asyncio.to_thread(regions.open_content, self._data, region)
        self._regions[region.region] = Region(region, content)
        self._upkeep.begin()
        logger.info("region opened: %d of %s with token %d, %d keys, refers to %d regions",
                    region.region, region.table, region.token, len(content.entries), len(content.sources))  # fmt: skip
        return content.sequence

    async def close(self, region: OpenedRegion) -> None:
        """Refuses all requests of a region from now on, writes what its file does not have, and forgets it."""
        owned = self._regions.get(region.region)
        if owned is None or owned.token != region.token:
            return
        owned.closing = True
        await self._upkeep.flush(owned, whole=False)
        del self._regions[region.region]
        logger.info("region closed: %d of %s with token %d", region.region, region.table, region.token)

    async def fence(self, server: str, incarnation: int) -> list[str]:
        """Keeps a process from answering any more; returns the parts of its log."""
        return await asyncio.to_thread(logs.fence, self._data, server, incarnation)

    async def split(self, server: str, incarnation: int, part: str) -> None:
        """Copies the edits of a part of a fenced log to their regions."""
        await asyncio.to_thread(logs.split, self._data, server, incarnation, part)

    async def work(self, what: str, region: OpenedRegion | None, data: bytes) -> bytes:
        """Does a piece of work on a region that is open here, or as a process."""
        if region is None:
            await self._work_as_process(what, data)
            return b""
        owned = self._owned(region.region, region.token)
        match what:
            case protocol.FLUSH:
                await self._upkeep.flush(owned, whole=True)
            case protocol.SPLIT_KEY:
                return owned.median()
            case protocol.STAGE:
                await self._upkeep.flush(owned, whole=True, snapshot=data.decode())
            case protocol.UNSTAGE:
                await asyncio.to_thread(snapshots.unstage, self._data, data.decode(), region.region)
            case _:
                raise ValueError(f"the work {what!r} is none of {', '.join(FEATURES)}")
        await self._log.confirm()
        return b""

    def suspend(self) -> None:
        """Refuses requests from now on: the lease has ended."""
        self._suspended = True

    def resume(self) -> None:
        """Takes requests again."""
        self._suspended = False

    def load(self) -> dict[str, int]:
        """Returns figures for regent."""
        return {"regions": len(self._regions)}

    def loads(self) -> list[RegionLoad]:
        """Returns the load of each region, by which regent splits, merges and moves them."""
        return [
            RegionLoad(one.number, one.reads, one.writes, one.size_bytes, files=1 + len(one.sources))
            for one in self._regions.values()
        ]

    # -- requests of clients

    async def get(self, number: int, token: int, key: bytes) -> Entry | None:
        """Returns the entry of a key."""
        region = self._owned(number, token, key)
        region.reads += 1
        found = region.get(key)
        await self._log.confirm()
        return found

    async def put(self, number: int, token: int, key: bytes, value: bytes) -> int:
        """Sets a key durably; returns its version."""
        return await self._put(self._owned(number, token, key), [(key, value)])

    async def put_many(self, number: int, token: int, entries: list[tuple[bytes, bytes]]) -> int:
        """Sets keys of one region durably, and returns the version of the last one."""
        if not 0 < len(entries) <= PUT_COUNT_MAX:
            raise Invalid(f"{len(entries)} keys; a request sets at least one, and at most {PUT_COUNT_MAX}")
        return await self._put(self._owned(number, token, *(key for key, _ in entries)), entries)

    async def compare_and_put(self, number: int, token: int, key: bytes, value: bytes, version: int) -> int:
        """Sets a key where it has this version, 0 where it does not exist; raises :class:`Conflict`."""
        region = self._owned(number, token, key)
        found = region.get(key)
        if version != (found.sequence if found else 0):
            await self._log.confirm()
            raise Conflict(found)
        return await self._put(region, [(key, value)])

    async def scan(
        self, number: int, token: int, start: bytes, count_max: int
    ) -> tuple[list[tuple[bytes, Entry]], bool]:
        """Lists entries from a key on, up to the bounds of a response; returns also whether there are more."""
        region = self._owned(number, token)
        region.reads += 1
        bound = max(1, min(count_max, SCAN_COUNT_MAX))
        found = list(islice(region.scan(start), bound + 1))
        listed = _up_to_bytes(found[:bound])
        await self._log.confirm()
        return listed, len(found) > len(listed)

    # -- for all of them

    def _owned(self, number: int, token: int, *keys: bytes) -> Region:
        if self._suspended:
            raise Suspended("this server has lost its lease; try again, it waits for a new one")
        if not self._admitted:
            raise Suspended("the daemon does not fence this server by its log; locate the key again, this server ends")
        region = self._regions.get(number)
        if region is None or region.token != token or region.closing:
            raise NotOwner(f"this server does not own region {number} with token {token}; locate the key again")
        for key in keys:
            if not region.has(key):
                raise NotOwner(f"region {number} does not have the key {key[:50]!r}; locate the key again")
        return region

    async def _put(self, region: Region, entries: list[tuple[bytes, bytes]]) -> int:
        read_only = self._published().get(READ_ONLY)
        if read_only is not None and read_only.data == YES:
            raise Suspended(f"the service is read-only; '{READ_ONLY}' is published with {NO.decode()} to end that")
        for key, value in entries:
            if len(key) > KEY_BYTES_MAX or len(value) > VALUE_BYTES_MAX:
                raise Invalid(f"a key of {len(key)} bytes with a value of {len(value)} bytes; at most {KEY_BYTES_MAX} "
                              f"and {VALUE_BYTES_MAX} are stored")  # fmt: skip
        region.writes += len(entries)
        edits = [region.put(key, value, self._log.segment) for key, value in entries]
        for edit in edits:
            self._log.append(edit)
        await self._log.confirm()
        self._upkeep.begin()
        return edits[-1].sequence

    async def _work_as_process(self, what: str, data: bytes) -> None:
        match what:
            case protocol.DISCARD if data.startswith(protocol.SNAPSHOT_PREFIX):
                identity = data.removeprefix(protocol.SNAPSHOT_PREFIX).decode()
                await asyncio.to_thread(snapshots.discard, self._data, identity)
            case protocol.DISCARD:
                if (number := int(data)) in self._regions:
                    raise ValueError(f"region {number} is open here: it is discarded only once nothing refers to it")
                await asyncio.to_thread(regions.discard, self._data, number)
            case protocol.STAGE:
                value = msgspec.msgpack.decode(data, type=Published)
                if value.name == READ_ONLY and value.data not in {YES, NO}:
                    raise ValueError(f"{READ_ONLY}: {value.data[:20]!r}, expected {YES!r} or {NO!r}")
            case protocol.UNSTAGE | protocol.COMMIT:
                pass  # the agent has the values that count
            case _:
                raise ValueError(f"the work {what!r} of a process is none of {', '.join(FEATURES)}")


def _up_to_bytes(found: list[tuple[bytes, Entry]]) -> list[tuple[bytes, Entry]]:
    """Cuts a list of entries where a response would be too long; the first entry stays."""
    size = 0
    for count, (key, entry) in enumerate(found):
        size += len(key) + len(entry.value)
        if count and size > SCAN_BYTES_MAX:
            return found[:count]
    return found
