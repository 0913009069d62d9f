"""One Spark session for the whole pytest run, because starting it costs more than all tests with it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from squall.chaos.toolchain.java import java
from squall.spark_analysis import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    # Found or fetched, as for `squall run`: a new machine has none.
    running = session.start(1000, java(print).home, "local[2]")
    yield running
    running.stop()
