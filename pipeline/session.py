"""Starts Spark. Needs PySpark and a Java that it runs on; one sentence names what is missing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_MIN: Final = 17
"""Spark 4 needs this Java release or a later one."""
NOT_INSTALLED: Final = (
    "{} is not installed: install regent with its extra, in its sources: .venv/bin/pip install '.[pipeline]'"
)
PROBE_S_MAX: Final = 20.0
LOCAL: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
"""Of a local master: nothing listens for others."""
HUGE_METHODS: Final = "-XX:-DontCompileHugeMethods"
"""The audit looks at a row in one generated method; one that is long the JVM would by default interpret for ever."""
_PYTHON_ERROR: Final = re.compile(r"(?!org\.|java\.)[A-Za-z_][\w.]*(Error|Exception|Disagreement|Interrupt)\b: ")
SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.driver.extraJavaOptions": HUGE_METHODS,
    "spark.executor.extraJavaOptions": HUGE_METHODS,
    # Else a task would import a package of the same name from the folder in which the command was run.
    "spark.executorEnv.PYTHONSAFEPATH": "1",
}


class CannotStart(RuntimeError):
    """Spark does not start here; the message has the cause and the remedy."""


def start(master: str, settings: Mapping[str, str] | None = None) -> SparkSession:
    """Returns a session on ``master``, such as ``local[2]`` or ``spark://host:7077``; ``settings`` win over defaults.

    Raises :class:`CannotStart`.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise CannotStart(NOT_INSTALLED.format("PySpark")) from None
    try:
        import pyarrow  # noqa: F401  # what reads and writes would otherwise fail later
    except ImportError:
        raise CannotStart(NOT_INSTALLED.format("PyArrow")) from None
    need_java()
    if master.startswith("local"):
        # Tasks run in this Python, where the extra is, and not in the first one on the PATH.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("regent pipeline").master(master)
    for name, value in (SETTINGS | (LOCAL if master.startswith("local") else {}) | dict(settings or {})).items():
        builder = builder.config(name, value)
    try:
        session = builder.getOrCreate()
    except Exception as error:
        # An error of the gateway or the JVM: its first line is the reason.
        raise CannotStart(f"Spark does not start on {master}: {str(error).splitlines()[0]}") from error
    session.sparkContext.setLogLevel("ERROR")
    return session


def errors() -> tuple[type[Exception], ...]:
    """Returns what Spark raises for a job that it gives up, and for a gateway that is gone."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return Py4JError, PySparkException


def cause(error: Exception) -> str:
    """Returns what an error of Spark's gateway is about: the JVM's sentence, and the last line of a Python task."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    from_jvm = next((line.removeprefix(": ") for line in lines if line.startswith(": ")), lines[0])
    in_python = next((line for line in lines if _PYTHON_ERROR.match(line)), "")
    return f"{from_jvm}: {in_python}" if in_python and in_python not in from_jvm else from_jvm


def need_java() -> None:
    """Raises :class:`CannotStart` unless the Java that Spark's launcher takes is recent enough."""
    home = os.environ.get("JAVA_HOME")
    path = f"{home}/bin/java" if home else shutil.which("java")
    found = "there is no java on the PATH and no JAVA_HOME" if path is None else _unfit(path)
    if found:
        remedy = "install one (Debian: apt-get install openjdk-17-jre-headless) or name its folder with JAVA_HOME"
        raise CannotStart(f"Spark needs Java {JAVA_MIN} or newer, but {found}: {remedy}")


def _unfit(path: str) -> str:
    """Returns why a Java cannot run Spark; empty where it can."""
    try:
        ran = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=PROBE_S_MAX, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return f"{path} does not start"
    version = re.search(r'version "(\d+)', ran.stderr + ran.stdout)
    if version is None:
        return f"{path} does not report its version"
    return f"{path} is Java {version[1]}" if int(version[1]) < JAVA_MIN else ""
