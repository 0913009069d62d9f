"""Starts a Spark session that is configured for the size of the history that it will read.

Starting Spark costs more time than reading a small history: it is spent on class loading and compiling, not on data. So
small histories get a compiler that starts quickly, the serial garbage collector, no web interface, few partitions, and
an archive of classes that is mapped instead of read from jars.
"""

# Rejected: DuckDB (faster on one machine, but no cluster), and hand-written passes alone. On 1 M records this
# compiler and the serial collector take 10 s instead of 17 to 22.

from __future__ import annotations

import os
import re
import shlex
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL_ROWS = 2_000_000
"""Is the number of rows up to which the quick-starting compiler is faster; beyond, it is 1.7 times slower than the full
compiler.
"""
LOCAL = "local[*]"
"""Is Spark's own name for all cores of this machine, in the driver's process."""
DRIVER_OPTIONS = "spark.driver.extraJavaOptions"
_LOOPBACK = re.compile(r"local|spark://(127\.|localhost|\[::1\])")


def jvm_options(rows: int, class_archive: Path | None = None, more: Sequence[str] = ()) -> list[str]:
    """Return the driver's JVM options for a history of `rows` records.

    `class_archive` was made by `squall.chaos.toolchain.class_archive` for this Java and this PySpark. A JVM that finds
    another file there, or none, starts without it. `more` holds options that come last.
    """
    # With one compiler Java reserves only 48 MB for compiled code, and a session of many queries needs more.
    lean = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m"]
    options = lean if rows <= SMALL_ROWS else ["-XX:+UseParallelGC"]
    if class_archive is not None:
        options.append(f"-XX:SharedArchiveFile={class_archive}")
    return [*options, *more]


def settings(rows: int, master: str) -> dict[str, str]:
    """Return Spark's configuration for a history of `rows` records."""
    small = rows <= SMALL_ROWS
    chosen = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "2g" if small else "8g",
        "spark.driver.maxResultSize": "1g",
        # A plan has some forty broadcast tables, and each takes whole pages, which would have 32 MB by default.
        **({"spark.buffer.pageSize": "1m"} if small else {}),
        # Adaptive execution cannot improve the plan of a history that fits in memory.
        "spark.sql.adaptive.enabled": "false" if small else "true",
        # A cluster may have many cores; if there are too many partitions, adaptive execution merges them.
        "spark.sql.shuffle.partitions": "2" if small else "16" if master.startswith("local") else "200",
        # With this cost two cores read two halves of one small file.
        "spark.sql.files.openCostInBytes": str(64 << 10) if small else str(4 << 20),
        "spark.sql.warehouse.dir": os.path.join(tempfile.gettempdir(), "squall-spark-warehouse"),
        "spark.sql.session.timeZone": "UTC",
    }
    # All executors are on this machine, so no other one need reach the driver.
    if _LOOPBACK.match(master):
        chosen["spark.driver.host"] = chosen["spark.driver.bindAddress"] = "127.0.0.1"
    return chosen


class NoJava(Exception):
    """Reports that the Java on which Spark was to run does not exist."""


def start(
    rows: int,
    java_home: Path,
    master: str = LOCAL,
    class_archive: Path | None = None,
    *,
    conf: Mapping[str, str] | None = None,
    java_options: Sequence[str] = (),
) -> SparkSession:
    """Start a session for a history of `rows` records, on the Java in the folder `java_home` and the Spark master
    `master`.

    Callers get `java_home` from `squall.chaos.toolchain.java`, which finds a Java or fetches one. PySpark itself would
    look on PATH, and fail on a machine without Java. `class_archive` is passed to `jvm_options`. `conf` holds Spark
    settings that replace ours. The driver's Java options are an exception: those in `conf` and in `java_options` are
    added to ours. Raises NoJava if there is no Java in the folder.
    """
    if not os.access(java_home / "bin/java", os.X_OK):
        raise NoJava(f"there is no Java at {java_home}: no program bin/java is in it")
    os.environ["JAVA_HOME"] = str(java_home)
    # The default is the `python3` on PATH, which is not this interpreter.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if _LOOPBACK.match(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # the host's name may not resolve
    from pyspark.sql import SparkSession

    chosen = {**settings(rows, master), **(conf or {})}
    asked = shlex.split(chosen.get(DRIVER_OPTIONS, ""))
    chosen[DRIVER_OPTIONS] = shlex.join(jvm_options(rows, class_archive, [*asked, *java_options]))
    builder = SparkSession.builder.master(master).appName("squall")
    for name, value in chosen.items():
        builder = builder.config(name, value)
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def jvm_pid(session: SparkSession) -> int:
    """Return the process id of the session's JVM on this machine; -1 if another program started it."""
    process = session.sparkContext._gateway.proc
    return -1 if process is None else int(process.pid)
