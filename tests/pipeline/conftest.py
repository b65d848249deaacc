"""Shares one Spark among all tests of the pipeline, because it takes seconds to start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from pipeline.session import CannotStart, need_java, start
from tests.pipeline.fast import FAST

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Starts Spark where PySpark and a Java are installed; a start that fails there is a failure."""
    pytest.importorskip("pyspark", reason="PySpark is not installed")
    try:
        need_java()
    except CannotStart as error:
        pytest.skip(str(error))
    session = start("local[2]", FAST)
    yield session
    session.stop()
