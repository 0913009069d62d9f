"""Fetches Spark's own Kafka source, to which the data source `squall` is compared."""

from __future__ import annotations

import shutil
from pathlib import Path

from squall.chaos.toolchain.cache import Say, cache_folder, installed
from squall.chaos.toolchain.maven import copy_jars

VERSION = "4.2.0"
"""Is the newest version that Maven has. It works with PySpark 4.3."""
_FOLDER = f"spark-kafka-{VERSION}"
_ARTIFACTS = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{VERSION}",
    f"org.apache.spark:spark-token-provider-kafka-0-10_2.13:{VERSION}",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
)
"""Lists the source and those jars that it needs and PySpark does not have."""


def kafka_source_here() -> bool:
    """Return whether the jars are here, or can be fetched."""
    return (cache_folder() / _FOLDER).is_dir() or shutil.which("mvn") is not None


def kafka_source_jars(say: Say) -> list[Path]:
    """Return the jars of Spark's Kafka source, which Maven fetches once. Raises HarnessError if it cannot."""

    def fetch(folder: Path) -> None:
        say(f"fetching Spark's Kafka source {VERSION} by Maven (11 MB, once)")
        copy_jars(folder, _ARTIFACTS, what="Maven could not fetch Spark's Kafka source", alone=True)

    return sorted(installed(_FOLDER, fetch).glob("*.jar"))
