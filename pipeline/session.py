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
ALL_CORES: Final = "local[*]"
SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""Variable that spark-submit sets for the Python that it starts."""
LOCAL: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
"""Of a local master: nothing listens for others."""
HUGE_METHODS: Final = "-XX:-DontCompileHugeMethods"
"""The audit looks at a row in one generated method; one that is long the JVM would by default interpret for ever."""
_PYTHON_ERROR: Final = re.compile(
    r"(?!org\.|java\.)[A-Za-z_][\w.]*(Error|Exception|Disagreement|Interrupt|NothingToRead|TooManyFiles)\b: "
)
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


def start(master: str | None = None, settings: Mapping[str, str] | None = None) -> SparkSession:
    """Returns the session that runs, or a new one on ``master``, such as ``local[2]`` or ``spark://host:7077``.

    Without ``master`` it is that of ``spark-submit``, or :data:`ALL_CORES`. ``settings`` win over those of
    ``spark-submit``, and these over defaults. Raises :class:`CannotStart`.
    """
    _need_libraries()
    from pyspark.sql import SparkSession

    if (session := SparkSession.getActiveSession()) is not None:
        return session
    if SUBMITTED not in os.environ:
        need_java()
    asked = dict(settings or {}) | ({"spark.master": master} if master else {})
    try:
        given = _submitted()
        named = (given | asked).get("spark.master", ALL_CORES)
        if named.startswith("local"):
            # Tasks run in this Python, where the extra is, and not in the first one on the PATH.
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        defaults = SETTINGS | (LOCAL if named.startswith("local") else {}) | {"spark.app.name": "regent pipeline"}
        builder = SparkSession.builder.master(named)
        for name, value in (defaults | given | asked).items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
    except Exception as error:
        # An error of the gateway or the JVM: its first line is the reason.
        on = f" on {master}" if master else ""
        raise CannotStart(f"Spark does not start{on}: {(str(error).splitlines() or [''])[0]}") from error
    session.sparkContext.setLogLevel("ERROR")
    return session


def runs_already() -> bool:
    """Checks whether this process has a session, as notebooks and hosted Sparks do; others stop that one."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        return False
    return SparkSession.getActiveSession() is not None


def _need_libraries() -> None:
    """Raises :class:`CannotStart` for one that is not installed."""
    try:
        import pyspark.sql  # noqa: F401
    except ImportError:
        raise CannotStart(NOT_INSTALLED.format("PySpark")) from None
    try:
        import pyarrow  # noqa: F401  # what reads and writes would otherwise fail later
    except ImportError:
        raise CannotStart(NOT_INSTALLED.format("PyArrow")) from None


def _submitted() -> dict[str, str]:
    """Returns the settings with which ``spark-submit`` started this process; none where it did not."""
    if SUBMITTED not in os.environ:
        return {}
    from pyspark import SparkConf
    from pyspark.java_gateway import launch_gateway

    gateway = launch_gateway()  # type: ignore[no-untyped-call]  # joins the JVM that waits
    found = dict(SparkConf(_jvm=gateway.jvm).getAll())
    gateway.close()
    return found


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
