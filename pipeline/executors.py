"""Runs plain functions as tasks of Spark, over the code of this process and the libraries of the executors."""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final
from zipimport import zipimporter

from pyspark import SparkFiles
from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.sql import SparkSession

from pipeline.lacking import lacking
from pipeline.merge import Workers
from pipeline.progress import NOTHING, Done, Phase, amount, is_heard, telling

LIBRARIES: Final = ("msgspec", "numba", "numpy", "pyarrow")
"""What tasks import, beside Spark and the code below."""
CODE: Final = ("pipeline", "state_machines")
"""Packages that tasks import; executors on other machines get them from here."""
REMEDY: Final = "install regent with its extra 'pipeline' there, or name a Python that has it with PYSPARK_PYTHON"


class Unfit(RuntimeError):
    """Executors lack something; the message names it and the remedy."""


_READY: Final[set[str]] = set()
"""Applications of Spark whose executors are known to be fit."""


def workers_of(spark: SparkSession) -> Workers:
    """Returns the executors as workers.

    They call functions of modules of :data:`CODE`, one task for each value. Such a function should return what is
    expected to go wrong: exceptions end up in the text of Spark's. Raises :class:`Unfit` once a call finds that they
    lack a library.
    """

    def each(function: Callable[[Any], Any], values: Sequence[Any], phase: Phase | None = None) -> list[Any]:
        if not values:
            return []
        made_ready(spark)
        context = spark.sparkContext
        found: list[Any]
        if phase is None or not is_heard():
            found = context.parallelize(list(values), len(values)).map(function).collect()
            return found
        done = context.accumulator(NOTHING, _Sum())
        with telling(phase, lambda: done.value):
            numbered = context.parallelize(list(enumerate(values)), len(values))
            found = numbered.map(partial(_counted, function, phase, done)).collect()
        return found

    return Workers(each, max(spark.sparkContext.defaultParallelism, 1))


class _Sum(AccumulatorParam[Done]):
    def zero(self, value: Done) -> Done:  # of any value
        return NOTHING

    def addInPlace(self, value1: Done, value2: Done) -> Done:  # noqa: N802  # Spark's name
        return value1 + value2


def _counted(function: Callable[[Any], Any], phase: Phase, done: Accumulator[Done], numbered: tuple[int, Any]) -> Any:
    """Runs a task, and counts what it has done."""
    number, value = numbered
    found = function(value)
    done.add(amount(phase, number, found))
    return found


def made_ready(spark: SparkSession) -> None:
    """Sends the code to executors that are other processes, and asks them for the libraries; once for a session."""
    context = spark.sparkContext
    if context.applicationId in _READY:
        return
    master = str(context.master)
    if master != "local" and not master.startswith("local["):
        # Executors fetch it for as long as the context lives; Spark removes this folder then.
        context.addPyFile(str(_archive(Path(tempfile.mkdtemp(dir=SparkFiles.getRootDirectory())))))
    slots = max(context.defaultParallelism, 1)
    found = context.parallelize(range(slots), slots).map(partial(lacking, LIBRARIES)).filter(bool).take(1)
    if found:
        raise Unfit(f"the executors of Spark cannot import {found[0]}: {REMEDY}")
    _READY.add(context.applicationId)


def _archive(folder: Path) -> Path:
    """Returns a zip of the code: the one that this process has it from, or a new one in ``folder``."""
    loader = import_module(__name__).__spec__.loader  # type: ignore[union-attr]
    if isinstance(loader, zipimporter):
        return Path(loader.archive)
    path = folder / "regent.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in CODE:
            root = Path(str(import_module(name).__file__)).parent
            for source in sorted(root.rglob("*.py")):
                archive.write(source, f"{name}/{source.relative_to(root)}")
    return path
