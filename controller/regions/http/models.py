r"""Defines responses of the HTTP surface about regions, their tables and servers.

Keys are text: printable ASCII as it is, any other byte, and the backslash, as ``\xNN``.
"""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from controller.http.models import Item


class RegionsStatus(Item):
    """The regions' domain of a daemon. Numbers are absent where it has no model, as on a standby."""

    mode: str
    why: str
    version: str
    daemon: str = Field("", description="name of this daemon: its controller.id, or its host and pid without Kafka")
    epoch: int | None = None
    listener: str = Field("", description="address for servers and clients")
    connections: int = 0
    store: str = ""
    file: str = ""
    lease_ms: int = 0
    fence: str = ""
    places: bool | None = Field(None, description="whether enough servers have come, so that regions are placed")
    namespaces: int | None = None
    tables: int | None = None
    regions: int | None = None
    open_regions: int | None = Field(None, description="at servers that may serve")
    waiting_regions: int | None = Field(None, description="WAITING: open at a process that crashed, and served by none")
    failed_regions: int | None = Field(None, description="FAILED_OPEN: an operator has them assigned again")
    stranded_regions: int | None = Field(
        None, description="of enabled tables, not open, and moved by no procedure: an operator has them assigned"
    )
    damaged_rows: int | None = Field(
        None, description="stored rows that cannot be used: they are left out, and stay as they are"
    )
    gaps: int | None = Field(None, description="ranges of keys that no region has, or several: no route is given there")
    in_transition: int | None = None
    overdue: int | None = Field(None, description="of them, longer than regions.transit_warning_ms")
    oldest_transition_s: float | None = None
    servers: int | None = Field(None, description="online ones")
    crashed_servers: int | None = Field(None, description="those whose crash is being dealt with")
    procedures: int | None = Field(None, description="those that have not ended")
    warnings: list[str] = []


class Region(Item):
    """One region. ``end`` is empty where it has no end. ``server`` is absent while no server has, or may have, it.

    The state WAITING is that of a region that is stored as open at a process that crashed: it waits for that crash.
    In lists, keys that no region has, or several, are items with ``id`` 0 and the state HOLE or OVERLAP.
    """

    id: int
    table: str
    start: str
    end: str
    state: str
    server: str | None = None
    incarnation: int | None = None
    address: str | None = None
    token: int = Field(0, description="fence token of its present or latest open")
    sequence: int = Field(0, description="of its latest open, chosen by the service")
    pid: int | None = Field(None, description="the procedure that moves it")
    pinned: str | None = Field(None, description="name of the server at which an operator wants it")
    state_age_s: float = Field(0.0, description="since the latest change of its state, or since this daemon is active")
    waits_for: str = Field("", description="in transition, or where its server crashed")


class RegionExplanation(Item):
    """State and owner of a region, their reasons, and the events that would change them, in sentences."""

    region: Region
    state_because: str
    server_because: str
    procedure_because: str = ""
    would_change: list[str] = []


class RegionTransition(Region):
    """A region in transition, and what it waits for."""

    age_s: float = Field(description="since its procedure began, over all attempts; else since its last change")
    overdue: bool
    kind: str = Field("", description="of its procedure")
    step: str = ""
    attempts: int = 0
    reason: str = Field("", description="of its procedure")
    cause: str = Field("", description="why the latest attempt of its procedure failed")


class Table(Item):
    """A table, and its regions in numbers."""

    name: str
    namespace: str
    kind: str = Field(description="meta, system or user: the order in which regions are assigned")
    state: str
    regions: int
    open_regions: int
    waiting_regions: int = Field(0, description="open at a process that crashed: they wait for that crash")
    in_transition: int
    failed_regions: int
    stranded_regions: int = Field(0, description="of an enabled table, not open, and moved by no procedure")
    gaps: int = Field(0, description="ranges of keys that no region has, or several: no route is given there")
    damage: str = Field("", description="a row of the table that is left out, and the first gaps")
    options: dict[str, str] = {}
    note: str = Field("", description="of one table alone: the lock that a change of it waits for, and what ends that")


class Namespace(Item):
    """A namespace, and the number of its tables."""

    name: str
    tables: int


class RegionServer(Item):
    """One process of a server."""

    name: str
    incarnation: int
    state: str = Field(description="online, leaving, crashed or fenced")
    address: str
    software: str = ""
    lease_left_s: float = Field(0.0, description="until it counts as crashed without a further poll")
    regions: int = 0
    opening: int = 0
    closing: int = 0
    cordoned: bool = Field(False, description="it gets no region; those that it has stay")
    held_until: datetime | None = Field(None, description="until then its regions wait for its next process")
    note: str = Field("", description="why it gets no regions, or what deals with its crash, and the command")
    load: dict[str, int] = Field({}, description="figures of its latest poll, named by the service")
