"""The forms of what a stream keeps: those that this Spark cannot write are refused before anything is read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.ending import Stopped
from pipeline.executors import Unfit
from pipeline.stream import delta
from pipeline.verbs.running import Plain
from pipeline.verbs.stream import stream


@pytest.mark.parametrize(
    ("form", "why"),
    [("iceberg", "there is no Apache Iceberg for Spark 4.2 or newer"), ("csv", "--format csv is not known")],
)
def test_a_form_that_is_not_there_is_refused_with_those_that_are(form: str, why: str) -> None:
    with pytest.raises(Stopped, match=why) as end:
        stream(
            Plain(json_wanted=False), into="/lake", checkpoint="/checkpoint", journals=["/journals"], row_format=form
        )
    assert (end.value.code, end.value.remedy) == (2, "give parquet or delta")


def test_delta_lake_is_refused_in_a_spark_that_it_does_not_work_with() -> None:
    spark: Any = SimpleNamespace(version="4.3.0")
    with pytest.raises(Unfit, match=r"delta-spark_4\.2_2\.13:4\.4\.0\) works with Spark 4\.2, and this is 4\.3\.0"):
        delta.fit(spark)
