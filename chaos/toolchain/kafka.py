"""Finds the jars of Apache Kafka: in an unpacked distribution, else fetched once by Maven into the cache folder."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from squall.chaos.errors import HarnessError, PreconditionError
from squall.chaos.toolchain.cache import Say, cache_folder, installed
from squall.chaos.toolchain.java import SUPPORTED, java_here
from squall.chaos.toolchain.lacks import MissingDependency, refuse
from squall.chaos.toolchain.maven import copy_jars

VERSION = "4.3.1"
"""Is the version that Maven fetches."""
OLDEST = (4, 0)
"""Is the oldest supported version: older ones have another log4j, and may have no KRaft."""
HOW_TO_GET_IT = "set KAFKA_HOME to an unpacked Apache Kafka 4.x, or install Maven to have its jars fetched"

_ARTIFACTS = (
    f"org.apache.kafka:kafka_2.13:{VERSION}",
    f"org.apache.kafka:kafka-tools:{VERSION}",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",
)


@dataclass(frozen=True, slots=True)
class ApacheKafka:
    """Describes an Apache Kafka that can be started: `java -cp CLASS_PATH kafka.Kafka FILE`."""

    java: str
    class_path: str
    version: str
    """Is the version in the name of its jar."""

    def command(self, main: str, arguments: Sequence[str], *, flags: Sequence[str] = ()) -> list[str]:
        """Return the command that starts a program of Apache Kafka. main: its main class, such as kafka.Kafka; flags:
        flags of the JVM.
        """
        return [self.java, *flags, "-cp", self.class_path, main, *arguments]


def apache_kafka(say: Say) -> ApacheKafka:
    """Return the Apache Kafka of $KAFKA_HOME, else of the cache folder, else fetch it by Maven.

    `say` gets a message before each long step. Raise PreconditionError, with what to install, if Kafka cannot be had.
    """
    refuse("Apache Kafka", kafka_lacks())
    java = _java()
    if home := os.environ.get("KAFKA_HOME"):
        return _unpacked(java, Path(home), f"KAFKA_HOME={home}")
    return _found(java, installed(f"kafka-{VERSION}", lambda folder: _fetch(folder, say)))


def kafka_lacks() -> list[MissingDependency]:
    """Return what is missing here to start an Apache Kafka, or to fetch and start one."""
    lacks = []
    if java_here() is None:
        # The wheel's Java is enough for Spark, but lacks modules that Kafka needs.
        wanted = ", ".join(map(str, SUPPORTED))
        what = f"a whole Java ({wanted}): none is in JAVA_HOME or on PATH"
        lacks.append(MissingDependency(what, ("default-jre-headless",), flag="--kafka"))
    if home := os.environ.get("KAFKA_HOME"):
        try:
            _unpacked("", Path(home), f"KAFKA_HOME={home}")
        except PreconditionError as wrong:
            lacks.append(MissingDependency(str(wrong)))
    elif not jars_here() and shutil.which("mvn") is None:
        lacks.append(MissingDependency(f"Apache Kafka's jars: {HOW_TO_GET_IT}", ("maven",), flag="--kafka"))
    return lacks


def jars_here() -> bool:
    """Return whether the jars that Maven fetches are in the cache folder."""
    return (cache_folder() / f"kafka-{VERSION}").is_dir()


def kafka_version_here() -> str:
    """Return the version of KAFKA_HOME's jars, else of those in the cache folder; empty if there are none."""
    home = os.environ.get("KAFKA_HOME")
    try:
        return _version(Path(home) / "libs" if home else cache_folder() / f"kafka-{VERSION}")
    except PreconditionError:
        return ""


def second_kafka(given: str, first: ApacheKafka) -> ApacheKafka:
    """Return the unpacked Apache Kafka that --upgrade-to names. Raise PreconditionError if there is none, or if it has
    the same version as `first`, from which the cluster is upgraded.
    """
    found = _unpacked(first.java, Path(given).absolute(), f"--upgrade-to {given}")
    if found.version == first.version:
        raise PreconditionError(
            f"--upgrade-to {given}: it is Apache Kafka {first.version} too: another version is wanted"
        )
    return found


def kafka_is_here() -> bool:
    """Return whether an Apache Kafka could be started here without fetching anything."""
    return (bool(os.environ.get("KAFKA_HOME")) or jars_here()) and java_here() is not None


def _unpacked(java: str, home: Path, here: str) -> ApacheKafka:
    libs = home / "libs"
    if not any(libs.glob("kafka_*.jar")):
        raise PreconditionError(f"{here} holds no libs/kafka_*.jar: it must be an unpacked Apache Kafka 4.x")
    return _found(java, libs)


def _found(java: str, jars: Path) -> ApacheKafka:
    version = _version(jars)
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
        raise PreconditionError(f"{jars} holds Apache Kafka {version}: 4.0 or newer is needed; {HOW_TO_GET_IT}")
    return ApacheKafka(java, f"{jars}/*", version)


def _version(jars: Path) -> str:
    """Return the version in the name of Kafka's jar: "4.3.1" for kafka_2.13-4.3.1.jar."""
    for jar in sorted(jars.glob("kafka_*.jar")):
        if found := re.fullmatch(r"kafka_[\d.]+-(\d+\.\d+[\w.-]*)\.jar", jar.name):
            return found[1]
    raise PreconditionError(f"{jars} holds no kafka_*.jar that tells its version; {HOW_TO_GET_IT}")


def _java() -> str:
    """Return the path of the program `java`."""
    there = java_here()
    assert there is not None, "it was just looked for"
    return str(there.home / "bin/java")


def _fetch(folder: Path, say: Say) -> None:
    say(f"fetching Apache Kafka {VERSION} by Maven (55 MB, once)")
    try:
        copy_jars(folder, _ARTIFACTS, what=f"Maven could not fetch Apache Kafka {VERSION}")
    except HarnessError as error:
        raise PreconditionError(f"{error}\nOr {HOW_TO_GET_IT.partition(', or')[0]}.") from error
