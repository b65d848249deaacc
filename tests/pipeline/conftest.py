"""One Spark for all tests of the pipeline: it takes seconds to start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from pipeline.session import CannotStart, need_java, start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FAST = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Only where PySpark and a Java are; that they do not start is a failure."""
    pytest.importorskip("pyspark", reason="PySpark is not installed")
    try:
        need_java()
    except CannotStart as error:
        pytest.skip(str(error))
    session = start("local[2]", FAST)
    yield session
    session.stop()
