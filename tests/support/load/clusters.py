"""Starts a cluster of one broker, of Squall or of Apache Kafka."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench.clusters import Kafka, Squall

TARGETS: Final = {"squall": Squall, "kafka": Kafka}
_ALONE: Final = (
    "default.replication.factor",
    "min.insync.replicas",
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "transaction.state.log.min.isr",
)


@contextmanager
def one_broker(target: str) -> Iterator[str]:
    """Run a broker of `target` until the end of the block, and yield its address. Raises PreconditionError if Apache
    Kafka is not available.
    """
    with tempfile.TemporaryDirectory(prefix="squall-load-") as folder:
        cluster = TARGETS[target](Path(folder), dict.fromkeys(_ALONE, "1"), (1,))
        try:
            cluster.start()
            yield cluster.bootstrap
        finally:
            cluster.stop()
