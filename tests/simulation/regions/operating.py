"""What operators do in short runs, as their commands word it; the commands that refusals name are parsed and done."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from typing import Any, Final, NamedTuple, cast

from controller.http.documents import ViewError
from controller.http.procedures import Procedure
from controller.regions.domain import RegionsDomain, RegionsMode
from controller.regions.operator.explain import explained
from controller.regions.operator.marks import MarkRemoval, MarkRequest, MarkView
from controller.regions.operator.namespaces import NamespaceCreation
from controller.regions.operator.procedures import ProcedureView
from controller.regions.operator.region_changes import RegionChange
from controller.regions.operator.repairs import Forgetting
from controller.regions.operator.requests import Change
from controller.regions.operator.servers import ServerChange
from controller.regions.operator.tables import TableCreation
from controller.regions.term import RegionsTerm
from tests.kit.regions.term import view_of

COMMAND: Final = re.compile(r"regent ((?:regions|tables|servers|namespaces) [^';:()]*)")
ARGUMENTS: Final = {"move": 2, "pin": 2, "list": 0, "transitions": 0, "status": 0, "marks": 0, "locks": 0}
"""Words that follow a command in a sentence; all others have one."""
ALREADY: Final = (
    "does not exist",
    "is not known",
    "already",
    "has no cordon",
    "has no hold",
    "has no pin",
    "has the tables without a namespace",
    "it has ended",
    "have said that they are independent",
    "go elsewhere by themselves",
    "is dealt with, and sees to it itself",
    "start another server",
    "' is not online",
    "has not come to this daemon yet",
    "splits no part of a log",
    "regions.fence_command",
    "the lease of ",
    "servers end their work on the log of ",
    "start a server: ",
)
"""Parts of refusals that say that there is nothing to do, or what is to be done without a command of this program."""
REPAIRS: Final = frozenset({"fix-keys", "forget"})
WHO: Final = "uid 7"
VIEWS: Final = frozenset({"list", "show", "describe", "explain", "transitions", "status", "marks", "wait", "locks"})
"""Commands that show something, and change nothing."""


class Refusal(NamedTuple):
    """A refused command. ``text``: what it says with its remedy."""

    text: str

    @property
    def commands(self) -> list[str]:
        """Returns the commands that it names, without ``regent``."""
        return [_command(one.split()) for one in COMMAND.findall(self.text)]


def _command(words: list[str]) -> str:
    """Returns the command with which some words of a sentence begin."""
    path = 3 if words[1] == "procedures" else 2
    given = [one.rstrip(",.") for one in words[: path + ARGUMENTS.get(words[path - 1], 1)]]
    return " ".join(given)


LOSES: Final = " leave-out "
"""Part of the command that gives up edits."""


class WayOut(NamedTuple):
    """What became of the commands that a refusal names. ``begun``: by the one that was accepted."""

    begun: Procedure | None
    is_one: bool
    refused: list[Refusal]


class Operator:
    """Gives commands to the present term. ``server``, ``name``, ``table``: for what a sentence leaves to its reader.

    ``loses_edits``: a part of a log is left out where a refusal names that.
    """

    def __init__(
        self,
        term: Callable[[], RegionsTerm | None],
        server: str = "b",
        name: str = "a",
        table: str = "t",
        *,
        loses_edits: bool = True,
    ) -> None:
        self._term, self._loses_edits = term, loses_edits
        self._server, self._name, self._table = server, name, table
        domain = cast("RegionsDomain", self)
        self._changes, self._marks, self.procedures = view_of(domain), MarkView(domain), ProcedureView(domain)
        self.repairs = self._changes.repairs

    @property
    def term(self) -> RegionsTerm | None:
        return self._term()

    mode, why = RegionsMode.ACTIVE, ""

    async def does(self, command: str) -> Procedure | Refusal:
        """Gives a command; returns its procedure, or how it was refused."""
        if LOSES in command and not self._loses_edits:
            return Refusal("no edits are given up in this run")
        words = shlex.split(command)
        try:
            return await (self._repaired(*words) if words[1] in REPAIRS else self._called(words))
        except ViewError as error:
            return Refusal(f"{error.message} | {error.remedy}")

    async def _repaired(self, _: str, act: str, subject: str) -> Procedure:
        if act == "forget":
            return await self.repairs.forget(int(subject), Forgetting(reason="a test"), WHO)
        return await self._changes.table_changes.fix_keys(subject, Change(reason="a test"), WHO)

    async def _called(self, words: list[str]) -> Procedure:
        given = [one for one in words if not one.startswith("--")]
        match given:
            case ["regions", "procedures", ("abort" | "bypass" | "remove" | "leave-out") as act, pid]:
                return await self.procedures.end(act, int(pid), WHO, "a test")
            case ["regions", "pin", region, server]:
                return await self._marks.mark(MarkRequest(kind="pin", subject=region, server=server), WHO)
            case ["regions", "unpin", region]:
                return await self._marks.unmark(MarkRemoval(kind="pin", subject=region), WHO)
            case ["regions", ("assign" | "unassign" | "move" | "reopen") as act, region, *to]:
                change = RegionChange(server="".join(to), force="--force" in words)
                return await self._changes.region_changes.change_region(cast("Any", act), int(region), change, WHO)
            case ["tables", "create", name]:
                return await self._changes.tables.create_table(TableCreation(name=name, uniform=2), WHO)
            case ["tables", ("enable" | "disable" | "delete") as act, name]:
                return await self._changes.tables.change_table(cast("Any", act), name, Change(), WHO)
            case ["namespaces", "create", name]:
                return await self._changes.namespaces.create_namespace(NamespaceCreation(name=name), WHO)
            case ["namespaces", "delete", name]:
                return await self._changes.namespaces.delete_namespace(name, Change(), WHO)
            case ["servers", ("cordon" | "hold") as kind, name]:
                for_s = 60 if kind == "hold" else 0
                return await self._marks.mark(MarkRequest(kind=cast("Any", kind), subject=name, for_s=for_s), WHO)
            case ["servers", ("uncordon" | "release") as act, name]:
                kind = "hold" if act == "release" else "cordon"
                return await self._marks.unmark(MarkRemoval(kind=cast("Any", kind), subject=name), WHO)
            case ["servers", ("drain" | "expire") as act, name]:
                return await self._changes.servers.change_server(
                    cast("Any", act), name, ServerChange(force="--force" in words), WHO
                )
        raise AssertionError(f"no operator knows the command {words}")

    async def way_out(self, refusal: Refusal, region: int) -> WayOut:
        """Gives the commands that a refusal names, or the explanation of its region, until one is accepted."""
        names = [one for one in refusal.commands if acts(one)]
        if any(one.startswith("regions explain") for one in refusal.commands):
            names += [one for one in self.explains(region) if acts(one)]
        refused: list[Refusal] = []
        for one in names:
            if LOSES in one and not self._loses_edits:
                return WayOut(None, is_one=True, refused=refused)
            found = await self.does(self.filled(one))
            if isinstance(found, Procedure):
                return WayOut(found, is_one=True, refused=refused)
            refused.append(found)
        return WayOut(None, any(part in refusal.text for part in ALREADY), refused)

    def filled(self, command: str) -> str:
        """Fills in what a sentence leaves to its reader."""
        name = self._table if command.startswith("tables") else self._name
        return command.replace("SERVER", self._server).replace("NAME", name)

    def explains(self, region: int) -> list[str]:
        """Returns the commands of a region's explanation."""
        return Refusal(self.explanation(region)).commands

    def explanation(self, region: int) -> str:
        """Returns the explanation of a region; empty where there is no such region."""
        term = self.term
        found = None if term is None else term.env.model.regions.get(region)
        if found is None or term is None:
            return ""
        told = explained(found, term.env, term.engine)
        return "; ".join((told.state_because, told.server_because, told.procedure_because, *told.would_change))


def acts(command: str) -> bool:
    """Checks whether a command changes something."""
    return VIEWS.isdisjoint(command.split()[1:3])
