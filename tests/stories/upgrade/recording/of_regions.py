"""Records each kind of procedure on regions, in ZooKeeper or in a file of SQLite."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from .moments import Moments, former, plain, steps, znodes


def recorded(store: str) -> list[str]:
    """Plays all cases of the kill tests; returns the lines of their moments. ``store``: one of their stores."""
    kills = former("tests kills test_regions")
    lines = [steps(former("controller regions term").KINDS)]
    for name, case in kills.CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            _record(name, lines, kills, case, store, Path(folder))
    return lines


def _record(name: str, lines: list[str], kills: Any, case: Any, store: str, folder: Path) -> None:
    """Plays a case with a daemon that notes its moments around each write of the last story.

    The journal is the same on both stores: only recordings of ZooKeeper have it.
    """
    daemons, kit = former("tests kills region_daemons"), former("tests core journal_kit")
    term = former("controller regions term").RegionsTerm
    held, book = SimpleNamespace(), kit.Book()
    nonces: dict[str, str] = {}

    def noted(of: Any, key: str) -> Any:
        def made(*args: Any, **more: Any) -> Any:
            setattr(held, key, of(*args, **more))
            return getattr(held, key)

        return made

    def begun(store: Any, catalog: Any, epoch: int, *args: Any, **more: Any) -> Any:
        return term(store, catalog, epoch, *args, **more, journal=book.term(kit.DAEMON, epoch))

    async def run(life: Any, kind: str, data: bytes, *args: Any, _run: Any = daemons.Life.run, **more: Any) -> Any:
        nonces[kind] = f"{kind} {data!r}"
        return await _run(life, kind, data, *args, **more)

    def look() -> dict[str, Any]:
        return dumped(folder / "regions.db") if store == "sqlite" else znodes(held.backend.server, {})

    class Recording(kills.Deaths):  # type: ignore[misc]
        def before(self, content: Any) -> None:
            super().before(content)
            self._note("before")

        def after(self) -> None:
            super().after()
            self._note("after")

        def _note(self, side: str) -> None:
            rows = [] if store == "sqlite" else book.entries
            moments.note(f"{side} write {self.writes}", _around(held.service, held.clock), rows)

    moments = Moments(name, lines, look)
    with (
        mock.patch.object(daemons.Life, "run", run),
        mock.patch.object(kills, "Service", noted(kills.Service, "service")),
        mock.patch.object(kills, "Clock", noted(kills.Clock, "clock")),
        mock.patch.object(kills, "MemoryBackend", noted(kills.MemoryBackend, "backend")),
        mock.patch.object(daemons, "RegionsTerm", begun),
    ):
        left = asyncio.run(kills.end_of(case, kills.STORES[store](folder), Recording()))
    print(store, name, plain(left), flush=True)
    moments.end(left, nonces)


def dumped(file: Path) -> dict[str, Any]:
    """Returns a database as lines of SQL, with the settings that its dump leaves out."""
    with contextlib.closing(sqlite3.connect(file)) as db:
        pragmas = {name: db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("user_version", "application_id")}
        settings = {f"PRAGMA {name}={value};": 1 for name, value in pragmas.items()}
        return settings | dict.fromkeys(db.iterdump(), 1)


def _around(service: Any, clock: Any) -> dict[str, Any]:
    """Returns what servers have, and what they share."""
    encode = former("msgspec").json.encode
    return {
        "clock_ms": clock.ms,
        "servers": [
            [*one.key, one.alive, one.epoch, one.taken, one.lists, sorted(one.owned.items()),
             json.loads(encode(list(one.results.values())))]
            for one in service.servers.values()
        ],
        "tokens": sorted(service.tokens.items()),
        "failing": sorted(service.failing.items()),
        "fenced": sorted(service.fenced),
        "split": sorted(service.split),
        "strays": [one.key for one in service.strays],
    }  # fmt: skip
