"""Declares the interface of the regions' domain for the HTTP surface. Any method may raise ``ViewError``."""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol

from controller.http.models import Health
from controller.http.procedures import Lock, Procedure
from controller.regions.http.marks import RegionMarks
from controller.regions.http.models import (
    Namespace,
    Region,
    RegionExplanation,
    RegionServer,
    RegionsStatus,
    RegionTransition,
    Table,
)
from controller.regions.http.requests import Change, NamespaceCreation, RegionChange, ServerChange, TableCreation

RegionAct = Literal["assign", "unassign", "move", "reopen"]
TableAct = Literal["enable", "disable", "delete"]
ServerAct = Literal["drain", "expire", "forget"]
EndAct = Literal["abort", "bypass", "remove", "leave-out"]


class RegionQuery(NamedTuple):
    """A query of regions; filters together mean all of them. ``after`` is the ``next`` of the page before."""

    limit: int
    after: str | None = None
    table: str | None = None
    server: str | None = None
    state: str | None = None
    in_transition: bool = False
    stranded: bool = False


class RegionPage(NamedTuple):
    """Some regions, and the begin of the next page (None: this is the last). A page may be short, or empty."""

    items: list[Region]
    next: str | None


class TablePage(NamedTuple):
    """Some tables, and the begin of the next page (None: this is the last)."""

    items: list[Table]
    next: str | None


class ProcedureQuery(NamedTuple):
    """A query of procedures by pid, from the one after ``after``; ``parts``: parts of other procedures, too."""

    limit: int
    after: int = 0
    kind: str | None = None
    live: bool = False
    parts: bool = False


class ProcedurePage(NamedTuple):
    """Some procedures, and the begin of the next page (None: this is the last)."""

    items: list[Procedure]
    next: str | None


class RegionReading(Protocol):
    """What operators see of regions, tables and servers."""

    def health(self) -> Health:
        """Reports whether the domain is active, or stands by."""

    def status(self) -> RegionsStatus:
        """Returns the status, in every mode."""

    def list_regions(self, query: RegionQuery) -> RegionPage:
        """Lists regions by table and start key."""

    def describe_region(self, region: int) -> Region:
        """Describes one region."""

    def explain(self, region: int) -> RegionExplanation:
        """Explains the state and the owner of a region."""

    async def list_transitions(self, limit: int) -> list[RegionTransition]:
        """Lists regions in transition, the oldest first."""

    def list_tables(self, limit: int, after: str | None) -> TablePage:
        """Lists tables by name."""

    def describe_table(self, table: str) -> Table:
        """Describes one table."""

    def list_namespaces(self) -> list[Namespace]:
        """Lists namespaces by name."""

    def list_servers(self) -> list[RegionServer]:
        """Lists processes of servers by name and incarnation."""

    def describe_server(self, server: str) -> RegionServer:
        """Describes one process, by its name alone or with its incarnation."""


class RegionProcedures(Protocol):
    """The procedures of the domain."""

    def list_procedures(self, query: ProcedureQuery) -> ProcedurePage:
        """Lists procedures and kept results by pid."""

    async def one(self, pid: int, wait_s: float) -> Procedure:
        """Describes one; waits at most ``wait_s`` for its end."""

    def locks(self) -> list[Lock]:
        """Lists locks."""

    async def end(self, act: EndAct, pid: int, principal: str, reason: str) -> Procedure:
        """Undoes a procedure, ends it as it is, removes a record, or leaves a part of a log out."""


class RegionChanges(Protocol):
    """The changes that operators request; each returns its procedure, in a dry run one without a pid."""

    async def change_region(self, act: RegionAct, region: int, request: RegionChange, principal: str) -> Procedure:
        """Assigns, unassigns, moves or reopens a region."""

    async def create_table(self, request: TableCreation, principal: str) -> Procedure:
        """Creates a table."""

    async def change_table(self, act: TableAct, table: str, request: Change, principal: str) -> Procedure:
        """Enables, disables or deletes a table."""

    async def create_namespace(self, request: NamespaceCreation, principal: str) -> Procedure:
        """Creates a namespace."""

    async def delete_namespace(self, name: str, request: Change, principal: str) -> Procedure:
        """Deletes a namespace."""

    async def change_server(self, act: ServerAct, server: str, request: ServerChange, principal: str) -> Procedure:
        """Drains a server, has its process dealt with as crashed, or forgets the name of a fenced one."""


class RegionsView(Protocol):
    """The operators' view of the regions' domain."""

    @property
    def reading(self) -> RegionReading:
        """Returns what operators see."""

    @property
    def procedures(self) -> RegionProcedures:
        """Returns the procedures."""

    @property
    def changes(self) -> RegionChanges:
        """Returns what takes changes."""

    @property
    def marks(self) -> RegionMarks:
        """Returns the marks of operators."""
