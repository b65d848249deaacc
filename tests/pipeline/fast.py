"""Settings of a Spark that starts quickly, for small journals."""

from __future__ import annotations

from typing import Final

FAST: Final = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
