"""Shares one Spark among all tests of the pipeline, because it takes seconds to start, and one audit of broken logs.

With ``-n 2`` one process has the tests of that audit; the others go to the process that is free.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.real.pipeline.fast import WITHOUT_CODE, sessions
from tests.real.pipeline.logs import write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


AUDITED = ("test_audit.py", "test_region_audit.py")
"""Modules whose tests share the audit of broken logs."""


class OneAudit(LoadScopeScheduling):  # type: ignore[misc]  # not typed
    """Sends the tests of the audit of broken logs to one process, and each other test to any."""

    def _split_scope(self, nodeid: str) -> str:
        return "audited" if Path(nodeid.partition("::")[0]).name in AUDITED else nodeid


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> OneAudit:
    return OneAudit(config, log)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    yield from sessions()


@pytest.fixture
def compiling(spark: SparkSession) -> Iterator[None]:
    """Has Spark compile its plans, as it does for users."""
    for name in WITHOUT_CODE:
        spark.conf.unset(name)
    try:
        yield
    finally:
        for name, value in WITHOUT_CODE.items():
            spark.conf.set(name, value)


class Judged(NamedTuple):
    """An audit of many logs, each of a cluster of its own. ``broken``: invariants by cluster. ``rows``: of all logs."""

    folder: Path
    rows: int
    ingested: dict[str, Any]
    audited: dict[str, Any]
    broken: dict[str, set[str]]


@pytest.fixture(scope="session")
def judged(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Judged:
    """Ingests all broken logs, with daemon 1's files twice as after a copy, and audits them in one pass."""
    from pipeline import jobs
    from tests.real.pipeline import test_audit, test_region_audit

    logs = [*test_audit.logs(), *test_region_audit.logs()]
    assert len({log[0]["cluster"] for log in logs}) == len(logs)
    folder, into = tmp_path_factory.mktemp("journals"), tmp_path_factory.mktemp("bronze")
    journals = write(folder, logs)
    shutil.copytree(folder / "daemon-1", folder / "copy")
    ingested = jobs.ingest(spark, [*journals, str(folder / "copy")], str(into))
    audited = jobs.audit(spark, str(into), racks=True)
    broken: dict[str, set[str]] = {}
    for row in spark.read.parquet(f"{into}/violations").collect():
        broken.setdefault(row.cluster, set()).add(row.invariant)
    return Judged(into, sum(map(len, logs)), ingested, audited, broken)
