"""Commands of operators, drawn by chance: changes, marks, and ends of procedures, sensible or not."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, Final

from tests.verify.region_fuzz.daemons import Away, Daemons, Response, call
from tests.verify.region_fuzz.servers import BROKEN

TABLES: Final = ("t1", "t2", "t3", "t4", "broken")
REGIONS_MAX: Final = 24
PAGE: Final = 5_000
SERVER_ERROR: Final = 500
Items = list[dict[str, Any]]


class Operator:
    """Sends commands. ``counts``: by command and outcome; ``faults``: responses that no command may get.

    ``refusals``: texts of refusals without their numbers, and how often each came.
    """

    def __init__(self, daemons: Daemons, chance: random.Random, servers: tuple[str, ...]) -> None:
        self.counts: Counter[str] = Counter()
        self.refusals: Counter[str] = Counter()
        self.faults: list[str] = []
        self._daemons, self._chance, self._servers = daemons, chance, servers
        self._commands: list[Callable[[], Coroutine[Any, Any, None]]] = [
            *[self.move] * 4,
            *[self.change_region] * 3,
            *[self.change_table] * 3,
            *[self.create] * 2,
            *[self.change_server] * 2,
            *[self.mark] * 2,
            *[self.unmark] * 2,
            *[self.end] * 5,
        ]

    async def act(self) -> None:
        """Sends one command."""
        await self._chance.choice(self._commands)()

    # -- reading

    async def items(self, path: str, **params: Any) -> Items:
        """Returns the items of a list; raises ``Away`` and ``Response``."""
        return list((await call(self._daemons, "GET", path, params=params))["items"])

    async def status(self) -> dict[str, Any]:
        """Returns the status of the active daemon."""
        [found] = await self.items("/v1/regions")
        return found

    async def regions(self) -> Items:
        """Returns all regions."""
        return await self.items("/v1/regions/list", limit=PAGE)

    async def procedures(self) -> Items:
        """Returns procedures that have not ended, and their parts."""
        return await self.items("/v1/regions/procedures", live=True, parts=True, limit=PAGE)

    async def _some(self, path: str, **params: Any) -> dict[str, Any] | None:
        try:
            found = await self.items(path, **params)
        except (Away, Response):
            return None
        return self._chance.choice(found) if found else None

    # -- changes

    async def send(self, command: str, path: str, **body: Any) -> dict[str, Any] | None:
        """Sends a command; returns its procedure, None where it is refused or no daemon responds."""
        body.setdefault("reason", "fuzz")
        try:
            found = await call(self._daemons, "POST", path, json=body)
        except Away:
            self.counts[f"{command}: no daemon"] += 1
            return None
        except Response as refused:
            self.counts[f"{command}: refused"] += 1
            self.refusals[re.sub(r"\d+", "N", f"{command}: {refused.text}")] += 1
            if refused.status == SERVER_ERROR:
                self.faults.append(f"{path} {body}: {refused}")
            return None
        self.counts[f"{command}: accepted"] += 1
        return dict(found["items"][0]) if found.get("items") else {}

    async def move(self) -> None:
        """Moves a region."""
        if (region := await self._some("/v1/regions/list", limit=PAGE)) is not None:
            path = f"/v1/regions/{region['id']}/move"
            await self.send("move", path, server=self._chance.choice(self._servers), force=self._chance.random() < 0.5)

    async def change_region(self) -> None:
        """Assigns, closes or reopens a region."""
        if (region := await self._some("/v1/regions/list", limit=PAGE)) is not None:
            act = self._chance.choice(["assign", "assign", "unassign", "reopen"])
            await self.send(act, f"/v1/regions/{region['id']}/{act}")

    async def change_table(self) -> None:
        """Enables, disables or deletes a table."""
        act = self._chance.choice(["enable", "enable", "disable", "disable", "delete"])
        await self.send(f"{act} table", f"/v1/regions/tables/{self._chance.choice(TABLES)}/{act}")

    async def create(self) -> None:
        """Creates a table; one of them cannot be opened."""
        name = self._chance.choice(TABLES)
        options = {BROKEN: "yes"} if name == "broken" else {}
        uniform = self._chance.randrange(1, REGIONS_MAX)
        await self.send("create table", "/v1/regions/tables", name=name, uniform=uniform, options=options)

    async def change_server(self) -> None:
        """Drains a server, or has it fenced."""
        act = self._chance.choice(["drain", "drain", "expire"])
        await self.send(act, f"/v1/regions/servers/{self._chance.choice(self._servers)}/{act}")

    async def mark(self) -> None:
        """Cordons, holds or pins."""
        kind = self._chance.choice(["cordon", "hold", "pin"])
        server = self._chance.choice(self._servers)
        if kind == "pin":
            if (region := await self._some("/v1/regions/list", limit=PAGE)) is not None:
                await self.send("pin", "/v1/regions/marks", kind=kind, subject=str(region["id"]), server=server)
        else:
            for_s = self._chance.randrange(1, 20) if kind == "hold" else 0
            await self.send(kind, "/v1/regions/marks", kind=kind, subject=server, for_s=for_s)

    async def unmark(self) -> None:
        """Removes a mark."""
        if (mark := await self._some("/v1/regions/marks")) is not None:
            await self._unmark(mark)

    async def _unmark(self, mark: dict[str, Any]) -> None:
        await self.send("unmark", "/v1/regions/marks/remove", kind=mark["kind"], subject=mark["subject"])

    async def remove_marks(self) -> None:
        """Removes all marks."""
        for mark in await self.items("/v1/regions/marks"):
            await self._unmark(mark)

    async def end(self) -> None:
        """Ends a procedure that lives, or one that has ended, whole or a part."""
        live = self._chance.random() < 0.9
        found = await self._some("/v1/regions/procedures", live=live, parts=True, limit=PAGE)
        if found is not None:
            await self.end_one(found, self._chance.choice(["bypass", "abort"]))

    async def end_one(self, procedure: dict[str, Any], act: str) -> None:
        """Ends a procedure."""
        await self.send(f"{act} {procedure['kind']}", f"/v1/regions/procedures/{procedure['pid']}/{act}")
