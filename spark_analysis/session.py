"""One Spark session, set up for what it is to read.

Starting costs more than reading a small history: class loading and compiling, not data. Hence a compiler that starts
quickly and the serial collector for small histories, no web interface, and few partitions; the numbers behind each
choice are in ARCHITECTURE.md.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL_ROWS = 2_000_000
"""Up to so many rows the quick-starting compiler wins; beyond, it is 1.7 times slower than the full one."""


def jvm_options(rows: int, class_archive: str | None) -> str:
    """The JVM's options for a history of `rows` records. `class_archive`: an AppCDS file, made where there is none."""
    options = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"] if rows <= SMALL_ROWS else ["-XX:+UseParallelGC"]
    if class_archive:
        flag = "SharedArchiveFile" if os.path.exists(class_archive) else "ArchiveClassesAtExit"
        options.append(f"-XX:{flag}={class_archive}")
    return " ".join(options)


def settings(rows: int, master: str, class_archive: str | None = None) -> dict[str, str]:
    """Spark's configuration for a history of `rows` records."""
    small = rows <= SMALL_ROWS
    chosen = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "2g" if small else "8g",
        "spark.driver.maxResultSize": "1g",
        "spark.driver.extraJavaOptions": jvm_options(rows, class_archive),
        # One plan, made once: there is nothing to adapt in a history that fits in memory.
        "spark.sql.adaptive.enabled": "false" if small else "true",
        "spark.sql.shuffle.partitions": "2" if small else "16",
        # Two halves of one small file are read by two cores.
        "spark.sql.files.openCostInBytes": str(64 << 10) if small else str(4 << 20),
        "spark.sql.warehouse.dir": os.path.join(tempfile.gettempdir(), "squall-spark-warehouse"),
        "spark.sql.session.timeZone": "UTC",
    }
    if master.startswith("local"):
        chosen["spark.driver.host"] = chosen["spark.driver.bindAddress"] = "127.0.0.1"
    return chosen


class NoJava(Exception):
    """The Java that Spark was to run on is not there."""


def start(rows: int, java_home: Path, master: str = "local[*]", class_archive: str | None = None) -> SparkSession:
    """A session for a history of `rows` records, on the Java in the folder `java_home`.

    Whoever starts Spark says on which Java, and has it from `chaos.toolchain.java`, which finds one or fetches it:
    PySpark would look on PATH, and fail on a machine that has none. Raises NoJava where there is none in that folder.
    """
    if not os.access(java_home / "bin/java", os.X_OK):
        raise NoJava(f"there is no Java at {java_home}: no program bin/java is in it")
    os.environ["JAVA_HOME"] = str(java_home)
    # The default is the `python3` on PATH, which is not this interpreter; and the host's name may not resolve.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).appName("squall")
    for name, value in settings(rows, master, class_archive).items():
        builder = builder.config(name, value)
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
