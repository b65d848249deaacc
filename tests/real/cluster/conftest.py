"""Shares one cluster under regent and under load among all short tests of this folder, on one event loop.

With ``-n 2`` one process has the tests of that cluster, another one all those with clusters of their own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from xdist.scheduler import LoadScopeScheduling

from tests.kit.cluster.scene import Scene, scene


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def shared_scene() -> AsyncIterator[Scene]:
    """Runs the cluster; a test takes it through :func:`stage`."""
    async with scene() as made:
        yield made


@pytest_asyncio.fixture(loop_scope="package")
async def stage(shared_scene: Scene) -> Scene:
    """Waits until all brokers are up, the daemon is active and every replica is in sync."""
    await shared_scene.restored()
    return shared_scene


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts tests without the shared cluster first, or in another process: while their loops run its load stands still.

    After a pause longer than a request may take, the load's producer gives up records that it had numbered. Then no
    broker accepts the records after the gap.
    """
    here = [at for at, item in enumerate(items) if Path(__file__).parent in item.path.parents]
    ordered = sorted((items[at] for at in here), key=on_stage)
    for at, item in zip(here, ordered, strict=True):
        items[at] = item
        assert on_stage(item) is shares_cluster(str(item.path)), f"{item.nodeid} is not on its module's cluster"


def on_stage(item: pytest.Item) -> bool:
    """Returns whether a test takes the shared cluster."""
    return "shared_scene" in getattr(item, "fixturenames", ())


@cache
def shares_cluster(module: str) -> bool:
    """Returns whether a module's tests run on the shared cluster's loop; the scheduler imports no module."""
    return 'loop_scope="package"' in Path(module).read_text(encoding="utf-8")


class TwoHalves(LoadScopeScheduling):  # type: ignore[misc]  # not typed
    """Sends tests of the shared cluster to one process, in their order, and all others to another one."""

    def _split_scope(self, nodeid: str) -> str:
        return "shared" if shares_cluster(str(self.config.rootpath / nodeid.partition("::")[0])) else "own"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> TwoHalves:
    return TwoHalves(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds the ends of the daemon's and the brokers' logs to a failure; their folder is removed with the cluster."""
    report = yield
    staged = getattr(item, "funcargs", {}).get("shared_scene") or getattr(item, "funcargs", {}).get("stage")
    if report.failed and isinstance(staged, Scene):
        for process in (*staged.w.daemons, *staged.w.cluster.brokers.values()):
            report.sections.append((f"log of {process.name}", process.log_tail()))
    return report
