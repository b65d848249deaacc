"""Declares what a service implements: it opens and closes regions, and fences the log of a dead server."""

from __future__ import annotations

from typing import Protocol

import msgspec

from regent_agent.protocol import Source


class OpenedRegion(msgspec.Struct, frozen=True):
    """A region that this server opens, has open, or closes.

    ``token``: higher than that of any owner before; the service stores it beside its data, and refuses writes with a
    lower one. ``sequence``: of this open once it is open, of the last one before. ``options``: of the table.
    ``sources``: the data begins as what these regions have in its range. Once that is copied, the service calls
    ``agent.independent(region)``.
    """

    region: int
    table: str
    start: bytes
    end: bytes
    token: int
    sequence: int
    options: dict[str, str]
    sources: tuple[Source, ...] = ()


class NotRunning(Exception):
    """A callback raises it while the service cannot work yet. The daemon sends the operation again later."""


class LowToken(Exception):
    """The data of a region has a token that the token of its open is not above. ``stored``: that of the data.

    A callback raises it as it opens the region: operators read what it says, and how to go on.
    """

    def __init__(self, stored: int, given: int) -> None:
        super().__init__(
            f"the data has token {stored}, this open has {given}: another server has opened it since, and then nothing "
            "is amiss; or the daemons' store is a new one, or older than the data: 'A new store beside old data' in "
            "the runbook of regions says how to go on"
        )


class Service(Protocol):
    """The callbacks of a service. The agent calls them for several regions side by side, for one in order."""

    async def open(self, region: OpenedRegion) -> int:
        """Opens a region and returns the sequence number of this open; raises to fail."""

    async def close(self, region: OpenedRegion) -> None:
        """Closes a region. No request for it is answered any more; raises to be called again."""

    async def fence(self, server: str, incarnation: int) -> list[str]:
        """Keeps a dead server from writing, and returns the parts of its log."""

    async def split(self, server: str, incarnation: int, part: str) -> None:
        """Makes the edits in one part of a dead server's log available to the regions that it had."""

    async def work(self, what: str, region: OpenedRegion | None, data: bytes) -> bytes:
        """Does a piece of work, on a region or (None) as a process, and returns its result, of 64 KiB at most.

        ``what``: one of the features that the agent was given. It may be called again: twice gives the same. Raises
        to fail.
        """

    def suspend(self) -> None:
        """Serves nothing any more, at once: the lease ended. It must not block."""

    def resume(self) -> None:
        """Serves again: the lease is valid. It must not block."""


class RegionService:
    """A base for services without a log, without work, and with nothing to do when the lease is lost.

    Only open and close are left.
    """

    async def fence(self, server: str, incarnation: int) -> list[str]:
        """Refuses: a service that is fenced by its log implements it."""
        raise NotImplementedError(f"this service cannot fence {server}: fence its servers by their lease")

    async def split(self, server: str, incarnation: int, part: str) -> None:
        """Refuses: a service that is fenced by its log implements it."""
        raise NotImplementedError(f"this service cannot split the log of {server}: fence its servers by their lease")

    async def work(self, what: str, region: OpenedRegion | None, data: bytes) -> bytes:
        """Refuses: a service that names features implements it."""
        about = "" if region is None else f" on region {region.region}"
        raise NotImplementedError(f"this service does no work {what!r}{about}: name only features that it has")

    def suspend(self) -> None:
        """Does nothing: ``agent.serving`` says the same to each request."""

    def resume(self) -> None:
        """Does nothing."""
