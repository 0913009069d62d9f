"""Starts the cluster for a suite: Squall's brokers or Apache Kafka's, without a Toxiproxy in between."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from squall.chaos.runtimes.kafka.runtime import KafkaRuntime
from squall.chaos.runtimes.layout import ZONE
from squall.chaos.runtimes.process.runtime import ProcessRuntime
from squall.chaos.toolchain.cache import Say
from squall.chaos.toolchain.kafka import apache_kafka

TARGETS: Mapping[str, str] = {"squall": "4.2.0", "kafka": "4.3.1"}
"""For each kind of brokers, the version of Kafka that suites are to expect. Squall's ApiVersions are those of 4.2."""

HOST = "localhost"
"""The host name that brokers advertise: kafka-go's tests compare it."""


@asynccontextmanager
async def running(
    target: str, nodes: tuple[int, ...], port: int | None, settings: Mapping[str, str], folder: Path, say: Say
) -> AsyncIterator[str]:
    """Start a cluster with Kafka's default time-outs, and yield its bootstrap.servers. port: the first broker's, as
    clients see it.
    """
    direct: Any = {"proxied": False, "client_port": port, "client_host": HOST}
    runtime = (
        KafkaRuntime(folder, kafka=apache_kafka(say), nodes=nodes, settings=settings, say=say, **direct)
        if target == "kafka"
        else ProcessRuntime(folder, nodes=nodes, settings=settings, say=say, **direct)
    )
    await runtime.start()
    try:
        yield runtime.bootstrap(ZONE)
    finally:
        await runtime.stop()
