"""A Spark that starts and plans quickly, for small journals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pytest

from pipeline.session import CannotStart, need_java, start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FAST: Final = {
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
WITHOUT_CODE: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
"""Making and compiling code takes longer than to interpret an audit of a thousand rows; a session may change these."""


def sessions() -> Iterator[SparkSession]:
    """Starts Spark where PySpark and a Java are installed; a start that fails there is a failure."""
    pytest.importorskip("pyspark", reason="PySpark is not installed")
    try:
        need_java()
    except CannotStart as error:
        pytest.skip(str(error))
    session = start("local[1]", FAST | WITHOUT_CODE)
    yield session
    session.stop()
