"""One Spark session for the whole pytest run: starting it costs more than all it does here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from spark_analysis import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    running = session.start(rows=1000, master="local[2]")
    yield running
    running.stop()
