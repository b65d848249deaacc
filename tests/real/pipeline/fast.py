"""Settings of a Spark that starts and plans quickly, for small journals."""

from __future__ import annotations

from typing import Final

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
