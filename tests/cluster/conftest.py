"""One cluster under regent and under load for all short tests of this folder, on one event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.cluster.scene import Scene, scene

SETTINGS = {"listener.frame_timeout_ms": 1_000, "listener.connections_max": 40}


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def shared_scene() -> AsyncIterator[Scene]:
    """The cluster; a test takes it through :func:`stage`."""
    async with scene(settings=SETTINGS) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="package")
async def stage(shared_scene: Scene) -> Scene:
    """The shared cluster as a test finds it: all brokers up, the daemon active, every replica in sync."""
    await shared_scene.restored()
    return shared_scene


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests without the shared cluster go first: while their loops run its load stands still.

    After a pause longer than a request may take, the load's producer gives up records that it had numbered, and no
    broker takes what comes after the gap.
    """
    here = [at for at, item in enumerate(items) if Path(__file__).parent in item.path.parents]
    ordered = sorted((items[at] for at in here), key=lambda item: "shared_scene" in getattr(item, "fixturenames", ()))
    for at, item in zip(here, ordered, strict=True):
        items[at] = item


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure shows the end of the daemon's and the brokers' logs, whose folder is removed with the cluster."""
    report = yield
    staged = getattr(item, "funcargs", {}).get("shared_scene") or getattr(item, "funcargs", {}).get("stage")
    if report.failed and isinstance(staged, Scene):
        for process in (*staged.w.daemons, *staged.w.cluster.brokers.values()):
            report.sections.append((f"log of {process.name}", process.log_tail()))
    return report
