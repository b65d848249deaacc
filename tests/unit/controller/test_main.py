"""The process around domains: which one a signal stops, in which order they end, and what ends the process."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest
from fastapi import FastAPI
from prometheus_client.registry import Collector

from controller import main
from controller.domain import Part
from controller.http.models import Health
from controller.metrics import ProcessMetrics
from tests.kit.deadlines import eventually
from tests.kit.regions.daemon import settings_of


class Ran:
    """A domain and its view, which notes what happens to it; ``drains``: it is over at the second stop."""

    def __init__(self, name: str, noted: list[str], *, drains: bool = False, fails: bool = False) -> None:
        self.name = name
        self.over = asyncio.Event()
        self.exit_code = 0
        self.stuck = False
        self._noted, self._drains, self._fails = noted, drains, fails

    async def begin(self) -> None:
        self._note("begins")

    async def run(self) -> None:
        if self._fails:
            raise OSError(f"{self.name} cannot listen")
        try:
            await self.over.wait()
            await asyncio.sleep(0 if self._drains else 3_600)
        finally:
            self._note("ran")

    def end(self) -> None:
        self._note("ends")

    def stop(self) -> None:
        self._note("stop")
        if not self._drains:
            self.over.set()
        self._drains = False

    async def moves(self, _within_s: float) -> bool:
        return not self.stuck

    def liveness(self) -> Health:
        return Health(ok=True, mode=self.name, why="")

    readiness = liveness

    def status_line(self) -> str:
        return f"{self.name} stands"

    def add_routes(self, _app: FastAPI) -> None:
        pass

    def collector(self) -> Collector:
        return ProcessMetrics(1, lambda: 0)

    async def keep(self) -> None:
        pass

    def _note(self, what: str) -> None:
        self._noted.append(f"{self.name} {what}")


async def serve(folder: Path, *domains: Ran) -> None:
    await main._serve(settings_of(folder), parts(domains), ProcessMetrics(1, lambda: 0), None)


def parts(domains: Sequence[Ran]) -> list[Part]:
    return [Part(one, one) for one in domains]


async def test_a_signal_stops_the_first_domain_and_the_others_end_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main, "registry", lambda *_: None)
    noted: list[str] = []
    kafka, regions = Ran("kafka", noted, drains=True), Ran("regions", noted)
    serving = asyncio.create_task(serve(tmp_path, kafka, regions))
    await eventually(lambda: "regions begins" in noted)
    os.kill(os.getpid(), signal.SIGTERM)
    await eventually(lambda: "kafka stop" in noted)
    assert not serving.done(), "it drains"
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(serving, 60)
    assert noted == [
        *("kafka begins", "regions begins", "kafka stop", "kafka stop"),
        *("kafka ran", "regions ran", "regions ends", "kafka ends"),
    ]


async def test_a_domain_that_ends_by_an_error_ends_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(main, "registry", lambda *_: None)
    noted: list[str] = []
    kafka, regions = Ran("kafka", noted), Ran("regions", noted, fails=True)
    with pytest.raises(ExceptionGroup) as raised:
        await asyncio.wait_for(serve(tmp_path, kafka, regions), 60)
    assert main.failed(raised.value) == 1
    assert [record.message for record in caplog.records] == ["regent ends: regions cannot listen"]
    assert noted == ["kafka begins", "regions begins", "kafka ran", "regions ends", "kafka ends"]


async def test_the_first_domain_gives_up_its_role_first_where_the_process_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ended(_: asyncio.Event) -> None:
        raise RuntimeError("the HTTP server ended")

    monkeypatch.setattr(main, "registry", lambda *_: None)
    monkeypatch.setattr(main, "_need_http", ended)
    noted: list[str] = []
    with pytest.raises(ExceptionGroup):
        await asyncio.wait_for(serve(tmp_path, Ran("kafka", noted), Ran("regions", noted)), 60)
    assert noted[2:] == ["kafka ran", "regions ran", "regions ends", "kafka ends"]


class Notified:
    """The service manager of a daemon whose watchdog waits two hundredths of a second."""

    watchdog_s = 0.02

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.fed = 0

    def status(self, line: str) -> None:
        self.lines.append(line)

    def alive(self) -> None:
        self.fed += 1


async def test_systemd_sees_every_domain_and_is_fed_while_all_of_them_move() -> None:
    kafka, regions, manager = Ran("kafka", []), Ran("regions", []), Notified()
    reporting = asyncio.create_task(main._report(parts([kafka, regions]), manager))  # type: ignore[arg-type]
    await eventually(lambda: manager.fed > 1)
    kafka.stuck = True
    await asyncio.sleep(0.02)
    fed = manager.fed
    await asyncio.sleep(0.05)
    assert (manager.lines, manager.fed) == (["kafka stands; regions stands"], fed)
    reporting.cancel()
